//! How long expressions of TPC-H take: nanoseconds per row, the best of several runs over batches that stay in the
//! cache. `cargo run --release -p eris-operators --example kernels [PART OF A NAME]`

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use eris_operators::{ArithmeticOperator, DatePart, Expression, LikePattern, Span, ValueSet};
use eris_storage::{BATCH_ROWS, Batch, Column, ColumnBuilder, Comparison, DataType, Value};

const MONEY: DataType = DataType::Decimal { precision: 15, scale: 2 };
const RUNS: usize = 7;
const REPEATS: usize = 200;

/// A sequence that is the same in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
        (self.0 >> 33) % limit
    }
}

fn filled(data_type: DataType, mut value: impl FnMut() -> Value) -> Column {
    let mut builder = ColumnBuilder::with_capacity(data_type, BATCH_ROWS);
    (0..BATCH_ROWS).for_each(|_| builder.push(&value()));
    builder.finish()
}

fn money(unscaled: u64) -> Value {
    Value::Decimal { unscaled: i128::from(unscaled), scale: 2 }
}

/// Words that comments are made of.
const WORDS: [&str; 48] = [
    "foxes",
    "ideas",
    "theodolites",
    "pinto",
    "beans",
    "instructions",
    "dependencies",
    "excuses",
    "platelets",
    "asymptotes",
    "courts",
    "dolphins",
    "multipliers",
    "sauternes",
    "warthogs",
    "frets",
    "dinos",
    "attainments",
    "somas",
    "Tiresias",
    "patterns",
    "forges",
    "braids",
    "frays",
    "warhorses",
    "dugouts",
    "notornis",
    "epitaphs",
    "pearls",
    "tithes",
    "waters",
    "orbits",
    "gifts",
    "sheaves",
    "depths",
    "sentiments",
    "decoys",
    "realms",
    "pains",
    "grouches",
    "escapades",
    "hockey",
    "requests",
    "deposits",
    "accounts",
    "packages",
    "special",
    "furiously",
];
const PRIORITIES: [&str; 5] = ["1-URGENT", "2-HIGH", "3-MEDIUM", "4-NOT SPECIFIED", "5-LOW"];
const TYPES: [&str; 6] = [
    "PROMO BURNISHED COPPER",
    "STANDARD PLATED TIN",
    "ECONOMY BRUSHED STEEL",
    "PROMO ANODIZED NICKEL",
    "LARGE POLISHED BRASS",
    "SMALL PLATED BRASS",
];

/// Price, discount, tax, ship date, comment, priority, type, quantity, size, phone.
fn batch() -> Batch {
    let mut random = Random(42);
    let mut next = |limit| random.below(limit);
    let mut columns = vec![
        filled(MONEY, || money(90_100 + next(10_404_850))),
        filled(MONEY, || money(next(11))),
        filled(MONEY, || money(next(9))),
        filled(DataType::Date, || Value::Date(8_036 + next(2_526) as i32)),
    ];
    columns.push(filled(DataType::Text, || {
        let words: Vec<&str> = (0..6).map(|_| WORDS[next(48) as usize]).collect();
        Value::Text(words.join(" ").into())
    }));
    columns.push(filled(DataType::Text, || Value::Text(PRIORITIES[next(5) as usize].into())));
    columns.push(filled(DataType::Text, || Value::Text(TYPES[next(6) as usize].into())));
    columns.push(filled(MONEY, || money(100 * (1 + next(50)))));
    columns.push(filled(DataType::Int32, || Value::Int32(1 + next(50) as i32)));
    columns.push(filled(DataType::Text, || {
        Value::Text(format!("{}-{:03}-{:03}", 10 + next(25), next(999), next(999)).into())
    }));
    Batch::new(columns, BATCH_ROWS)
}

fn column(index: usize, data_type: DataType) -> Expression {
    Expression::Column { index, data_type }
}

fn constant(value: Value, data_type: DataType) -> Expression {
    Expression::Constant { value, data_type }
}

fn whole(value: i32) -> Expression {
    constant(Value::Decimal { unscaled: i128::from(value), scale: 0 }, DataType::Decimal { precision: 1, scale: 0 })
}

fn arithmetic(operator: ArithmeticOperator, left: Expression, right: Expression, digits: (u8, u8)) -> Expression {
    let data_type = DataType::Decimal { precision: digits.0, scale: digits.1 };
    Expression::Arithmetic { operator, left: Box::new(left), right: Box::new(right), data_type }
}

fn compare(comparison: Comparison, left: Expression, right: Expression) -> Expression {
    Expression::Compare { comparison, left: Box::new(left), right: Box::new(right) }
}

fn text(value: &str) -> Expression {
    constant(Value::Text(value.into()), DataType::Text)
}

/// `l_extendedprice * (1 - l_discount)`
fn revenue() -> Expression {
    let discounted = arithmetic(ArithmeticOperator::Subtract, whole(1), column(1, MONEY), (16, 2));
    arithmetic(ArithmeticOperator::Multiply, column(0, MONEY), discounted, (32, 4))
}

fn like(index: usize, pattern: &str) -> Expression {
    let pattern = LikePattern::new(pattern, Some('\\'), false).map(Arc::new);
    match pattern {
        Some(pattern) => Expression::Like { input: Box::new(column(index, DataType::Text)), pattern, negated: false },
        None => whole(0),
    }
}

fn is_in(input: Expression, values: &[Value]) -> Expression {
    match ValueSet::new(input.data_type(), values) {
        Some(set) => Expression::InList { input: Box::new(input), set: Arc::new(set), negated: false },
        None => whole(0),
    }
}

fn case(condition: Expression, then: Expression, otherwise: Expression) -> Expression {
    let data_type = then.data_type();
    Expression::Case { branches: [(condition, then)].into(), otherwise: Some(Box::new(otherwise)), data_type }
}

fn expressions() -> Vec<(&'static str, Expression)> {
    let taxed = arithmetic(ArithmeticOperator::Add, whole(1), column(2, MONEY), (16, 2));
    let date = |days| constant(Value::Date(days), DataType::Date);
    let ship_date = || column(3, DataType::Date);
    let bigint = |value| constant(Value::Int64(value), DataType::Int64);
    let urgent = |comparison| {
        let one = |name| compare(comparison, column(5, DataType::Text), text(name));
        [one("1-URGENT"), one("2-HIGH")]
    };
    let zero = constant(Value::Decimal { unscaled: 0, scale: 4 }, DataType::Decimal { precision: 32, scale: 4 });
    let sizes: Vec<Value> = [49, 14, 23, 45, 19, 3, 36, 9].map(Value::Int32).to_vec();
    let codes: Vec<Value> = ["13", "31", "23", "29", "30", "18", "17"].map(|code| Value::Text(code.into())).to_vec();
    let phone = column(9, DataType::Text);
    let span = Span::new(1, Some(2)).map(|span| Expression::Substring { input: Box::new(phone), span });
    let q6 = [
        compare(Comparison::GreaterOrEqual, ship_date(), date(8_766)),
        compare(Comparison::Less, ship_date(), date(9_131)),
        compare(Comparison::GreaterOrEqual, column(1, MONEY), constant(money(5), MONEY)),
        compare(Comparison::LessOrEqual, column(1, MONEY), constant(money(7), MONEY)),
        compare(Comparison::Less, column(7, MONEY), constant(money(2_400), MONEY)),
    ];
    vec![
        ("Q1: price * (1 - discount)", revenue()),
        ("Q1: price * (1 - discount) * (1 + tax)", arithmetic(ArithmeticOperator::Multiply, revenue(), taxed, (38, 6))),
        (
            "three-way conjunction: date range, priority",
            Expression::and([
                compare(Comparison::GreaterOrEqual, ship_date(), date(8_766)),
                compare(Comparison::Less, ship_date(), date(9_131)),
                compare(Comparison::Equal, column(5, DataType::Text), text("1-URGENT")),
            ]),
        ),
        ("Q6: five comparisons", Expression::and(q6)),
        ("Q13: comment like '%special%requests%'", like(4, "%special%requests%")),
        ("Q2: type like '%BRASS'", like(6, "%BRASS")),
        ("Q14: type like 'PROMO%'", like(6, "PROMO%")),
        (
            "Q12: case when urgent or high then 1 else 0",
            case(Expression::or(urgent(Comparison::Equal)), bigint(1), bigint(0)),
        ),
        ("Q14: case when like 'PROMO%' then price * (1 - discount) else 0", case(like(6, "PROMO%"), revenue(), zero)),
        ("Q7: extract(year from date)", Expression::Extract { part: DatePart::Year, input: Box::new(ship_date()) }),
        ("Q16: size in (8 values)", is_in(column(8, DataType::Int32), &sizes)),
        ("Q22: substring(phone from 1 for 2) in (7 values)", is_in(span.unwrap_or_else(|| text("")), &codes)),
    ]
}

/// Nanoseconds per row of the fastest run.
fn measure(mut run: impl FnMut()) -> f64 {
    let one = |run: &mut dyn FnMut()| {
        let start = Instant::now();
        (0..REPEATS).for_each(|_| run());
        start.elapsed().as_nanos() as f64 / (REPEATS * BATCH_ROWS) as f64
    };
    (0..RUNS).map(|_| one(&mut run)).fold(f64::INFINITY, f64::min)
}

fn main() {
    let batch = batch();
    let wanted = std::env::args().nth(1).unwrap_or_default();
    let one_row = batch.slice(0, 1);
    println!("{:>8}  {:>8}  {:>8}  expression", "full", "narrow", "one row");
    for (name, expression) in expressions().into_iter().filter(|(name, _)| name.contains(&wanted)) {
        let full = measure(|| {
            black_box(expression.evaluate(black_box(&batch), &[]).ok());
        });
        let narrow = measure(|| {
            black_box(expression.evaluate_narrow(black_box(&batch), &[]).ok());
        });
        // Of a batch of one row: what point accesses pay.
        let one = BATCH_ROWS as f64
            * measure(|| {
                black_box(expression.evaluate(black_box(&one_row), &[]).ok());
            });
        println!("{full:8.3}  {narrow:8.3}  {one:8.1}  {name}");
    }
}
