//! Arithmetic against wider arithmetic, at the ends of every width.

use eris_storage::{DECIMAL64_PRECISION_MAX, Physical};

use super::decimals::{self, Operand};
use super::*;

fn column(data_type: DataType, values: &[Value]) -> Datum {
    let mut builder = eris_storage::ColumnBuilder::with_capacity(data_type, values.len());
    for value in values {
        builder.push(value);
    }
    Datum::Column(builder.finish())
}

const OPERATORS: [ArithmeticOperator; 5] = [
    ArithmeticOperator::Add,
    ArithmeticOperator::Subtract,
    ArithmeticOperator::Multiply,
    ArithmeticOperator::Divide,
    ArithmeticOperator::Modulo,
];

/// The reference: 128-bit arithmetic on one pair.
fn reference(operator: ArithmeticOperator, a: i64, b: i64) -> Option<i128> {
    let (a, b) = (i128::from(a), i128::from(b));
    match operator {
        ArithmeticOperator::Add => Some(a + b),
        ArithmeticOperator::Subtract => Some(a - b),
        ArithmeticOperator::Multiply => Some(a * b),
        ArithmeticOperator::Divide => (b != 0).then(|| a / b),
        ArithmeticOperator::Modulo => (b != 0).then(|| a % b),
    }
}

#[test]
fn integers_agree_with_wide_arithmetic_or_refuse() {
    let interesting = [i64::MIN, i64::MIN + 1, -7, -1, 0, 1, 2, 7, 1 << 32, i64::MAX - 1, i64::MAX];
    for operator in OPERATORS {
        for a in interesting {
            for b in interesting {
                let left = column(DataType::Int64, &[Value::Int64(a), Value::Null]);
                let right = Datum::Constant(Value::Int64(b));
                let got = evaluate(operator, &left, &right, DataType::Int64, 2);
                match reference(operator, a, b) {
                    None => assert!(matches!(got, Err(OperatorError::DivisionByZero)), "{a} {operator} {b}"),
                    Some(wide) => match i64::try_from(wide) {
                        Ok(exact) => {
                            let column = got.unwrap().into_column(DataType::Int64, 2);
                            assert_eq!(column.value(0), Value::Int64(exact), "{a} {operator} {b}");
                            assert_eq!(column.value(1), Value::Null);
                        }
                        Err(_) => assert!(matches!(got, Err(OperatorError::Overflow { .. })), "{a} {operator} {b}"),
                    },
                }
            }
        }
    }
}

#[test]
fn floats_that_leave_their_range_are_refused() {
    let (tiny, huge) = (1e-200, 1e200);
    for (operator, a, b, refused) in [
        (ArithmeticOperator::Multiply, huge, huge, true),
        (ArithmeticOperator::Multiply, tiny, tiny, true),
        (ArithmeticOperator::Multiply, tiny, 0.0, false),
        (ArithmeticOperator::Divide, tiny, huge, true),
        (ArithmeticOperator::Divide, tiny, f64::INFINITY, false),
        (ArithmeticOperator::Divide, huge, tiny, true),
        (ArithmeticOperator::Add, f64::MAX, f64::MAX, true),
        (ArithmeticOperator::Add, f64::INFINITY, 1.0, false),
        (ArithmeticOperator::Subtract, 1.0, 1.0, false),
    ] {
        let left = column(DataType::Float64, &[Value::Float64(a)]);
        let got = evaluate(operator, &left, &Datum::Constant(Value::Float64(b)), DataType::Float64, 1);
        assert_eq!(got.is_err(), refused, "{a} {operator} {b}");
    }
}

fn decimal(unscaled: i128, scale: u8) -> Value {
    Value::Decimal { unscaled, scale }
}

fn decimal_type(precision: u8, scale: u8) -> DataType {
    DataType::Decimal { precision, scale }
}

fn decimals_of(operator: ArithmeticOperator, left: Datum, right: Datum, data_type: DataType) -> Option<Datum> {
    let (left, right) = (Operand::of(left).unwrap(), Operand::of(right).unwrap());
    decimals::evaluate(operator, left, right, data_type).ok().map(|operand| operand.into_datum(data_type))
}

#[test]
fn decimals_keep_their_scale() {
    let left = || column(decimal_type(12, 2), &[decimal(1050, 2)]);
    let right = || Datum::Constant(decimal(25, 1));
    let of = |operator, data_type| {
        let result = decimals_of(operator, left(), right(), data_type)?;
        Some(result.into_column(data_type, 1).value(0))
    };
    assert_eq!(of(ArithmeticOperator::Multiply, decimal_type(20, 3)), Some(decimal(26_250, 3)));
    assert_eq!(of(ArithmeticOperator::Multiply, decimal_type(20, 1)), Some(decimal(263, 1)));
    assert_eq!(of(ArithmeticOperator::Add, decimal_type(20, 2)), Some(decimal(1300, 2)));
    assert_eq!(of(ArithmeticOperator::Modulo, decimal_type(20, 2)), Some(decimal(50, 2)));
    assert_eq!(of(ArithmeticOperator::Divide, decimal_type(38, 12)), Some(decimal(4_200_000_000_000, 12)));
    assert_eq!(of(ArithmeticOperator::Add, decimal_type(3, 2)), None);
}

/// What 128-bit arithmetic says, if it can.
fn exact(operator: ArithmeticOperator, a: i128, b: i128, scales: (u8, u8), digits: (u8, u8)) -> Option<i128> {
    let common = scales.0.max(scales.1);
    let scaled = || Some((rescale(a, scales.0, common)?, rescale(b, scales.1, common)?));
    let raw = match operator {
        ArithmeticOperator::Add => scaled().and_then(|(a, b)| a.checked_add(b))?,
        ArithmeticOperator::Subtract => scaled().and_then(|(a, b)| a.checked_sub(b))?,
        ArithmeticOperator::Multiply => a.checked_mul(b)?,
        ArithmeticOperator::Divide | ArithmeticOperator::Modulo => return None,
    };
    let scale = if operator == ArithmeticOperator::Multiply { scales.0 + scales.1 } else { common };
    let result = rescale(raw, scale, digits.1)?;
    (result.unsigned_abs() < 10_u128.pow(u32::from(digits.0))).then_some(result)
}

#[test]
fn decimals_are_exact_at_the_ends_of_64_and_128_bits() {
    let ends = |precision: u8| {
        let limit = 10_i128.pow(u32::from(precision));
        let all = [
            0,
            1,
            -1,
            9,
            -10,
            3_037_000_499,
            3_037_000_500,
            -3_037_000_500,
            i128::from(i64::MAX) - 1,
            i128::from(i64::MAX),
            i128::from(i64::MAX) + 1,
            i128::from(i64::MIN),
            i128::from(i64::MIN) - 1,
            limit / 2,
            limit - 1,
            1 - limit,
        ];
        all.into_iter().filter(|value| value.unsigned_abs() < limit.unsigned_abs()).collect::<Vec<_>>()
    };
    let types = [decimal_type(18, 0), decimal_type(18, 4), decimal_type(38, 0), decimal_type(38, 6)];
    let results = [decimal_type(18, 4), decimal_type(20, 8), decimal_type(38, 4), decimal_type(38, 6)];
    let operators = [ArithmeticOperator::Add, ArithmeticOperator::Subtract, ArithmeticOperator::Multiply];
    for left_type in types {
        for right_type in types {
            let digits = |data_type| scale::digits_of(data_type).unwrap();
            let (left_digits, right_digits) = (digits(left_type), digits(right_type));
            for a in ends(left_digits.0) {
                for b in ends(right_digits.0) {
                    for (operator, result) in operators.iter().flat_map(|one| results.map(|result| (*one, result))) {
                        let scales = (left_digits.1, right_digits.1);
                        let expected = exact(operator, a, b, scales, digits(result));
                        let (left, right) = (decimal(a, scales.0), decimal(b, scales.1));
                        // Rows of small numbers and NULLs beside the two do not matter.
                        let (one, null) = (decimal(1, scales.0), Value::Null);
                        let of = |data_type, first: &Value, rest: &Value| {
                            column(data_type, &[first.clone(), rest.clone(), Value::Null, Value::Null, Value::Null])
                        };
                        let columns = [
                            (of(left_type, &left, &null), Datum::Constant(right.clone())),
                            (Datum::Constant(left.clone()), of(right_type, &right, &null)),
                            (of(left_type, &left, &one), of(right_type, &right, &null)),
                            (column(left_type, &[left]), column(right_type, &[right])),
                        ];
                        for (left, right) in columns {
                            let got = decimals_of(operator, left, right, result);
                            let got = got.map(|datum| datum.into_column(result, 2).value(0));
                            let expected = expected.map(|unscaled| decimal(unscaled, digits(result).1));
                            assert_eq!(got, expected, "{a} {operator} {b} of {left_type} and {right_type} as {result}");
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn small_values_of_wide_types_stay_in_64_bits() {
    let wide = decimal_type(38, 4);
    assert_eq!((wide.physical(), DECIMAL64_PRECISION_MAX), (Physical::Int128, 18));
    let values: Vec<Value> = (0..100).map(|n| decimal(i128::from(n) * 1_000_000, 2)).collect();
    let left = column(decimal_type(30, 2), &values);
    let product = decimals_of(ArithmeticOperator::Multiply, left.clone(), left, wide).unwrap();
    let Datum::Column(column) = product else { panic!("a column") };
    assert_eq!(column.values.physical(), Physical::Int64);
    assert_eq!(column.value(99), decimal(99 * 99 * 1_000_000_000_000, 4));
    assert_eq!(decimals::in_full_width(column).values.physical(), Physical::Int128);
}

#[test]
fn what_lies_under_a_null_does_not_matter() {
    let validity: eris_storage::Bitmap = (0..40).map(|row| row % 2 == 0).collect();
    let values: Vec<i64> = (0..40).map(|row| if row % 2 == 0 { row } else { i64::MAX }).collect();
    let of = |data_type| {
        Datum::Column(Column {
            data_type,
            validity: Some(validity.clone()),
            values: Values::Int64(values.clone().into()),
        })
    };
    for operator in OPERATORS {
        let one = Datum::Constant(Value::Int64(3));
        let integers = evaluate(operator, &of(DataType::Int64), &one, DataType::Int64, 40).unwrap();
        let expected = reference(operator, 38, 3).unwrap();
        assert_eq!(integers.into_column(DataType::Int64, 40).value(38), Value::Int64(expected as i64), "{operator}");
        let narrow = decimal_type(18, 0);
        let numbers = decimals_of(operator, of(narrow), Datum::Constant(decimal(3, 0)), narrow).unwrap();
        let expected = if operator == ArithmeticOperator::Divide { 13 } else { expected };
        assert_eq!(numbers.into_column(narrow, 40).value(38), decimal(expected, 0), "{operator}");
    }
}
