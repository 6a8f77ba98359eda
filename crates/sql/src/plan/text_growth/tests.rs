//! Texts are reserved before they are made, whatever function makes them.

use std::iter::repeat_n;

use datafusion::arrow::array::{AsArray, BinaryArray, Int64Array, StringArray, StringViewArray};
use datafusion::arrow::datatypes::Field;
use datafusion::common::ScalarValue;
use datafusion::common::config::ConfigOptions;
use datafusion::execution::memory_pool::{GreedyMemoryPool, UnboundedMemoryPool};

use super::*;

fn function(name: &str, memory: &Arc<dyn MemoryPool>) -> Arc<ScalarUDF> {
    if name == "||" {
        return join::joining(memory);
    }
    let all = datafusion::functions::all_default_functions();
    bounded(all.into_iter().find(|function| function.name() == name).unwrap(), memory)
}

fn call(function: &ScalarUDF, args: Vec<ColumnarValue>, rows: usize, planning: bool) -> Result<ColumnarValue> {
    let fields: Vec<FieldRef> = args.iter().map(|arg| Arc::new(Field::new("", arg.data_type(), true)) as _).collect();
    let types: Vec<ArrowType> = args.iter().map(ColumnarValue::data_type).collect();
    let mut options = ConfigOptions::default();
    if planning {
        options.extensions.insert(Planning);
    }
    function.invoke_with_args(ScalarFunctionArgs {
        return_field: Arc::new(Field::new("", function.return_type(&types)?, true)),
        args,
        arg_fields: fields,
        number_rows: rows,
        config_options: Arc::new(options),
    })
}

fn text(text: impl Into<String>) -> ColumnarValue {
    ColumnarValue::Scalar(ScalarValue::Utf8(Some(text.into())))
}

fn number(number: i64) -> ColumnarValue {
    ColumnarValue::Scalar(ScalarValue::Int64(Some(number)))
}

/// One text for each row.
fn rows(text: &str, rows: usize) -> ColumnarValue {
    ColumnarValue::Array(Arc::new(StringViewArray::from_iter_values(vec![text; rows])))
}

fn limited(bytes: usize) -> Arc<dyn MemoryPool> {
    Arc::new(GreedyMemoryPool::new(bytes))
}

/// What every function makes of texts of 100 kB is no more than what it was said to make.
#[test]
fn no_function_makes_more_than_is_told() {
    let memory: Arc<dyn MemoryPool> = Arc::new(UnboundedMemoryPool::default());
    for long in ["x".repeat(100_000), "aß".repeat(40_000), "ɐΐ".repeat(20_000)] {
        let own = || rows(&long, 2);
        let view = |text: &str| ColumnarValue::Scalar(ScalarValue::Utf8View(Some(text.to_string())));
        let calls = [
            ("repeat", vec![own(), number(3)]),
            ("lpad", vec![own(), number(200_000), view("äb")]),
            ("rpad", vec![own(), number(200_000), view("äb")]),
            ("replace", vec![own(), view("x"), view("yz")]),
            ("||", vec![own(), own()]),
            ("concat", vec![own(), own(), view("x")]),
            ("concat_ws", vec![view("--"), own(), own(), own()]),
            ("overlay", vec![own(), own(), number(7)]),
            ("overlay", vec![own(), own(), number(90_000), number(-80_000)]),
            ("reverse", vec![own()]),
            ("encode", vec![ColumnarValue::Array(Arc::new(BinaryArray::from(vec![long.as_bytes(); 2]))), text("hex")]),
            ("initcap", vec![own()]),
            ("upper", vec![own()]),
            ("lower", vec![own()]),
            ("translate", vec![own(), view("xa"), view("€ä")]),
            ("regexp_replace", vec![own(), view("(.)"), view(r"<\1\1>"), view("g")]),
            ("regexp_replace", vec![own(), view("(x*)"), view(r"<\1\1>")]),
        ];
        for (name, args) in calls {
            let told = Growth::of(name).unwrap().bytes(&args, 2).unwrap();
            let made = call(&function(name, &memory), args, 2, false).unwrap().into_array(2).unwrap();
            let made = datafusion::arrow::compute::cast(&made, &ArrowType::Utf8View).unwrap();
            let lengths: Vec<u64> = made.as_string_view().iter().map(|text| text.unwrap().len() as u64).collect();
            assert!(lengths.iter().all(|length| *length <= told.longest), "{name}: {lengths:?}, told {told:?}");
            assert!(lengths.iter().sum::<u64>() <= told.all, "{name}: {lengths:?}, told {told:?}");
        }
    }
    assert_eq!(memory.reserved(), 0);
}

/// Refused before it is built, whichever function it is.
#[test]
fn every_function_is_refused_before_it_builds_more_than_is_free() {
    let memory = limited(10 << 20);
    let long = "x".repeat(1 << 20);
    for (name, args) in [
        ("||", vec![rows(&long, 8), rows(&long, 8)]),
        ("concat", vec![rows(&long, 8), rows(&long, 8)]),
        ("concat_ws", vec![text(&*long), rows("a", 20), rows("b", 20)]),
        ("repeat", vec![rows("x", 2), number(8 << 20)]),
        ("overlay", vec![rows(&long, 8), rows(&long, 8), number(1)]),
        ("regexp_replace", vec![rows(&long, 1), text("x"), text("0123456789abcdef"), text("g")]),
    ] {
        let number_rows = args.iter().find_map(|arg| match arg {
            ColumnarValue::Array(array) => Some(array.len()),
            ColumnarValue::Scalar(_) => None,
        });
        match call(&function(name, &memory), args, number_rows.unwrap(), false) {
            Err(DataFusionError::ResourcesExhausted(_)) => {}
            other => panic!("{name}: {:?}", other.map(|value| value.data_type())),
        }
        assert_eq!(memory.reserved(), 0, "{name}");
    }
}

/// A large result is charged as long as it is there, by what it takes.
#[test]
fn a_large_result_stays_reserved_until_it_goes() {
    let memory = limited(64 << 20);
    let repeat = function("repeat", &memory);
    let made = call(&repeat, vec![rows("x", 4), number(1 << 20)], 4, false).unwrap().into_array(4).unwrap();
    assert!(memory.reserved() >= 4 << 20, "{} bytes", memory.reserved());
    let one = made.slice(1, 1);
    drop(made);
    assert!(memory.reserved() >= 4 << 20, "a part of it holds all of it");
    assert_eq!(one.as_string_view().value(0).len(), 1 << 20);
    drop(one);
    assert_eq!(memory.reserved(), 0);
    let texts = constant_texts("x".repeat(2 << 20), 1_000, &memory).unwrap();
    assert_eq!((texts.len(), memory.reserved()), (1_000, 2 << 20));
    assert_eq!(texts.value(999).len(), 2 << 20);
    drop(texts);
    assert_eq!(memory.reserved(), 0);
    // Of constants it is one value, however many rows there are.
    let translate = function("translate", &memory);
    let made = call(&translate, vec![text("x".repeat(2 << 20)), text("x"), text("y")], 1_000, false).unwrap();
    assert!(matches!(made, ColumnarValue::Scalar(_)), "{:?}", made.data_type());
    let small = call(&repeat, vec![rows("x", 4), number(10_000)], 4, false).unwrap();
    assert_eq!(memory.reserved(), 0, "a small one is its operator's");
    drop(small);
}

/// A bound that is far too high refuses nothing that fits.
#[test]
fn rows_are_computed_in_slices_where_only_a_bound_is_known() {
    let memory = limited(16 << 20);
    let replace = function("regexp_replace", &memory);
    let long = "x".repeat(10_000);
    let texts: [ArrayRef; 2] = [
        Arc::new(StringArray::from_iter_values(repeat_n(&long, 200))),
        Arc::new(StringViewArray::from_iter_values(repeat_n(&long, 200))),
    ];
    for texts in texts {
        // By the bound 200 rows of 10,000 characters might become 64 MB.
        let (data_type, to) = (texts.data_type().clone(), "0123456789abcdef0123456789abcdef");
        let args = vec![ColumnarValue::Array(texts), text("y"), text(to), text("g")];
        assert!(Growth::Matches.bytes(&args, 200).unwrap().all > 60_000_000);
        let made = call(&replace, args, 200, false).unwrap().into_array(200).unwrap();
        assert_eq!((made.len(), made.data_type()), (200, &data_type));
        assert_eq!(memory.reserved(), charged::data_bytes(&made), "{data_type}");
        assert!(memory.reserved() >= 2_000_000, "{data_type}: {} bytes", memory.reserved());
        let views = datafusion::arrow::compute::cast(&made, &ArrowType::Utf8View).unwrap();
        assert!(views.as_string_view().iter().all(|text| text.unwrap().len() == 10_000));
        drop((made, views));
        assert_eq!(memory.reserved(), 0, "{data_type}");
    }
}

/// A constant has no buffer that keeps it reserved; its expression does.
#[test]
fn constants_stay_reserved_until_their_expression_is_evaluated() {
    let memory = limited(16 << 20);
    let repeat = function("repeat", &memory);
    let made = |times| call(&repeat, vec![text("x"), number(times)], 1, false);
    made(2 << 20).unwrap();
    assert_eq!(memory.reserved(), 0, "nobody holds it");
    let outer = HeldConstants::open();
    made(2 << 20).unwrap();
    let inner = HeldConstants::open();
    made(4 << 20).unwrap();
    assert_eq!(memory.reserved(), 6 << 20);
    assert!(matches!(made(6 << 20), Err(DataFusionError::ResourcesExhausted(_))));
    drop(inner);
    assert_eq!(memory.reserved(), 2 << 20);
    made(6 << 20).unwrap();
    drop(outer);
    assert_eq!(memory.reserved(), 0);
}

#[test]
fn constants_beyond_a_bound_are_not_computed_while_a_statement_is_planned() {
    let memory = limited(1 << 30);
    let repeat = function("repeat", &memory);
    assert!(call(&repeat, vec![text("x"), number(4_096)], 1, true).is_ok());
    assert!(call(&repeat, vec![text("x"), number(4_097)], 1, true).is_err());
    assert!(call(&repeat, vec![text("x"), number(4_097)], 1, false).is_ok());
    let too_long = call(&repeat, vec![text("x"), number(2_000_000_000)], 1, true).unwrap_err();
    assert!(too_long.to_string().contains("requested length too large"), "{too_long}");
    // Of some only the result tells how long it is.
    let replace = function("regexp_replace", &memory);
    let replaced = |length, pattern: &str| {
        let args = vec![text("x".repeat(length)), text(pattern), text("0123456789abcdef"), text("g")];
        assert!(Growth::Matches.bytes(&args, 1).unwrap().all > FOLDED_BYTES_MAX);
        call(&replace, args, 1, true)
    };
    assert!(replaced(300, "y").is_ok());
    assert!(replaced(300, "x").is_err());
    assert!(replaced(5_000, "y").is_err(), "not even tried");
}

#[test]
fn joining_is_shown_as_it_was_written_and_null_with_null() {
    use datafusion::logical_expr::{col, lit};
    let memory = limited(1 << 20);
    let join = function("||", &memory);
    let call =
        |left: Expr, right: Expr| Expr::ScalarFunction(ScalarFunction::new_udf(Arc::clone(&join), vec![left, right]));
    assert_eq!(shown(&call(call(col("a"), col("b")), col("c")).eq(col("d"))), "a || b || c = d");
    assert!(join.is_strict());
    let null = lit(ScalarValue::Utf8View(None));
    let simplified = |args| join.simplify(args, &SimplifyContext::default()).unwrap();
    match simplified(vec![col("a"), null.clone()]) {
        ExprSimplifyResult::Simplified(simplified) => assert_eq!(simplified, null),
        ExprSimplifyResult::Original(args) => panic!("{args:?}"),
    }
    assert!(matches!(simplified(vec![col("a"), col("b")]), ExprSimplifyResult::Original(_)));
}

#[test]
fn joining_is_null_where_one_is_and_takes_every_kind_of_text() {
    let memory = limited(1 << 20);
    let join = function("||", &memory);
    let array = |texts: [Option<&str>; 2]| ColumnarValue::Array(Arc::new(StringArray::from(texts.to_vec())));
    let made = call(&join, vec![array([Some("a"), None]), text("b")], 2, false).unwrap().into_array(2).unwrap();
    assert_eq!(made.as_string::<i32>().iter().collect::<Vec<_>>(), [Some("ab"), None]);
    let null = ColumnarValue::Scalar(ScalarValue::Utf8(None));
    let made = call(&join, vec![text("a"), null], 1, false).unwrap();
    assert!(matches!(made, ColumnarValue::Scalar(ScalarValue::Utf8(None))), "{made:?}");
    let bytes = |bytes: &[u8]| ColumnarValue::Scalar(ScalarValue::BinaryView(Some(bytes.to_vec())));
    let made = call(&join, vec![bytes(b"a"), bytes(&[0xff])], 1, false).unwrap();
    assert!(matches!(made, ColumnarValue::Scalar(ScalarValue::BinaryView(Some(joined))) if joined == [b'a', 0xff]));
}

#[test]
fn counts_may_be_of_any_type_and_in_columns() {
    let memory = limited(1 << 20);
    let counts = ColumnarValue::Array(Arc::new(Int64Array::from(vec![Some(2), Some(-1), None])));
    let args = vec![rows("ab", 3), counts];
    assert_eq!(Growth::Repeat.bytes(&args, 3).unwrap(), Bytes { longest: 4, all: 4, spread: 0 });
    let made = call(&function("repeat", &memory), args, 3, false).unwrap().into_array(3).unwrap();
    assert_eq!(made.as_string_view().iter().collect::<Vec<_>>(), [Some("abab"), Some(""), None]);
}
