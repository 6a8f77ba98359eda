//! Random values and expressions, the same for a seed.

use std::sync::Arc;

use eris_storage::{Comparison, DataType, Value};

use crate::ArithmeticOperator;
use crate::expression::{DatePart, Expression, LikePattern, Span, ValueSet};

pub(super) struct Random(pub u64);

const fn decimal(precision: u8, scale: u8) -> DataType {
    DataType::Decimal { precision, scale }
}

/// The columns of a batch: each type, some twice.
pub(super) const COLUMNS: [DataType; 14] = [
    DataType::Boolean,
    DataType::Int16,
    DataType::Int32,
    DataType::Int64,
    DataType::Float64,
    decimal(15, 2),
    decimal(15, 2),
    decimal(4, 1),
    decimal(30, 4),
    DataType::Date,
    DataType::Timestamp,
    DataType::Text,
    DataType::Text,
    DataType::Float32,
];

const COMPARISONS: [Comparison; 6] = [
    Comparison::Equal,
    Comparison::NotEqual,
    Comparison::Less,
    Comparison::LessOrEqual,
    Comparison::Greater,
    Comparison::GreaterOrEqual,
];

const OPERATORS: [ArithmeticOperator; 5] = [
    ArithmeticOperator::Add,
    ArithmeticOperator::Subtract,
    ArithmeticOperator::Multiply,
    ArithmeticOperator::Divide,
    ArithmeticOperator::Modulo,
];

const TEXTS: [&str; 12] = [
    "",
    "a",
    "ab",
    "é",
    "special requests",
    "special packages wake requests",
    "PROMO BURNISHED",
    "PROMO",
    "b%_a\\",
    "13-345-678",
    "a text that is longer than its view",
    "🌏 ab é",
];

const PATTERNS: [&str; 12] = [
    "%special%requests%",
    "PROMO%",
    "%ED",
    "_",
    "%é%",
    "a%b",
    "%",
    "",
    "PROMO",
    "_\\%\\_%",
    "%a_text%view",
    "13-___-%",
];

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
        self.0 >> 16 ^ self.0 >> 40
    }

    pub fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }

    fn pick<T: Copy>(&mut self, values: &[T]) -> T {
        values[self.below(values.len())]
    }

    fn chance(&mut self, one_in: usize) -> bool {
        self.below(one_in) == 0
    }

    /// Small mostly, now and then at the end of 64 bits.
    fn number(&mut self) -> i64 {
        match self.below(24) {
            0 => i64::MAX,
            1 => i64::MIN,
            2 => self.next() as i64 * 3,
            _ => self.below(2_001) as i64 - 1_000,
        }
    }

    /// A value of a type that is not NULL; `small`: no overflow is near.
    pub fn value(&mut self, data_type: DataType, small: bool) -> Value {
        let number = if small { self.below(41) as i64 - 20 } else { self.number() };
        match data_type {
            DataType::Boolean => Value::Boolean(number % 2 == 0),
            DataType::Int16 => Value::Int16(number as i16),
            DataType::Int32 => Value::Int32(number as i32),
            DataType::Int64 => Value::Int64(number),
            DataType::Float32 => Value::Float32(if self.chance(9) { f32::NAN } else { number as f32 / 4.0 }),
            DataType::Float64 => Value::Float64(match self.below(30) {
                0 if !small => f64::NAN,
                1 if !small => 1e300,
                2 if !small => -0.0,
                _ => number as f64 / 8.0,
            }),
            DataType::Decimal { precision, scale } => {
                let limit = 10_i128.pow(u32::from(precision));
                let unscaled = match self.below(24) {
                    0 if !small => limit - 1,
                    1 if !small => 1 - limit,
                    2 if !small => (i128::from(self.next()) << 60) % limit,
                    _ => i128::from(number) % limit,
                };
                Value::Decimal { unscaled, scale }
            }
            // Some lie beyond all timestamps.
            DataType::Date if !small && self.chance(200) => {
                Value::Date(if number < 0 { -110_000_000 } else { 110_000_000 })
            }
            DataType::Date => Value::Date((number % 40_000) as i32),
            DataType::Timestamp => Value::Timestamp(number % 2_000_000_000_000_000),
            DataType::Text => Value::Text(self.pick(&TEXTS).into()),
            DataType::Bytes => Value::Bytes(self.pick(&TEXTS).as_bytes().into()),
        }
    }

    /// A column of the type, or a constant; now and then a parameter (number 0 is NULL, of any type).
    fn leaf(&mut self, data_type: DataType, small: bool) -> Expression {
        let columns: Vec<usize> = (0..COLUMNS.len()).filter(|at| COLUMNS[*at] == data_type).collect();
        match self.below(8) {
            0 => Expression::Parameter { index: 0, data_type },
            1 | 2 => Expression::Constant { value: self.value(data_type, small), data_type },
            _ if columns.is_empty() => Expression::Constant { value: self.value(data_type, small), data_type },
            _ => Expression::Column { index: self.pick(&columns), data_type },
        }
    }

    fn boxed(&mut self, data_type: DataType, depth: usize) -> Box<Expression> {
        Box::new(self.expression(data_type, depth))
    }

    fn any_decimal(&mut self) -> DataType {
        self.pick(&[decimal(15, 2), decimal(4, 1), decimal(30, 4)])
    }

    fn case(&mut self, data_type: DataType, depth: usize) -> Expression {
        let branches = (0..=self.below(3))
            .map(|_| (self.expression(DataType::Boolean, depth), self.expression(data_type, depth)))
            .collect();
        let otherwise = if self.chance(3) { None } else { Some(self.boxed(data_type, depth)) };
        Expression::Case { branches, otherwise, data_type }
    }

    /// An expression of a type.
    pub fn expression(&mut self, data_type: DataType, depth: usize) -> Expression {
        let Some(below) = depth.checked_sub(1) else { return self.leaf(data_type, false) };
        if self.chance(5) {
            return self.leaf(data_type, false);
        }
        if self.chance(5) {
            return self.case(data_type, below);
        }
        match data_type {
            DataType::Boolean => self.condition(below),
            DataType::Int16 | DataType::Int32 | DataType::Int64 | DataType::Float64 => match self.below(6) {
                0 if data_type == DataType::Int32 => {
                    let input = self.pick(&[DataType::Date, DataType::Timestamp]);
                    let part = self.pick(&[DatePart::Year, DatePart::Month, DatePart::Day]);
                    Expression::Extract { part, input: self.boxed(input, below) }
                }
                0 | 1 => {
                    let mut from = vec![DataType::Int16, DataType::Int32, DataType::Int64];
                    if data_type == DataType::Float64 {
                        from.extend([decimal(15, 2), decimal(4, 1), DataType::Float32]);
                    }
                    let from = self.pick(&from);
                    self.expression(from, below).cast(data_type).unwrap_or_else(|same| panic!("{same} as {data_type}"))
                }
                _ => Expression::Arithmetic {
                    operator: self.pick(&OPERATORS),
                    left: self.boxed(data_type, below),
                    right: self.boxed(data_type, below),
                    data_type,
                },
            },
            DataType::Decimal { .. } if self.chance(3) => {
                let from = self.pick(&[DataType::Int16, DataType::Int32, DataType::Int64]);
                let from = if self.chance(2) { from } else { self.any_decimal() };
                self.expression(from, below).cast(data_type).unwrap_or_else(|same| panic!("{same} as {data_type}"))
            }
            DataType::Decimal { scale, .. } => {
                // A quotient's scale is not below that of its operands.
                let operators = if scale == 4 { &OPERATORS[..] } else { &OPERATORS[..3] };
                let operator = self.pick(operators);
                let (left, right) = (self.any_decimal(), self.any_decimal());
                let (left, right) = (self.boxed(left, below), self.boxed(right, below));
                Expression::Arithmetic { operator, left, right, data_type }
            }
            DataType::Text => {
                let (start, count) = (self.below(9) as i64 - 3, self.below(20) as i64);
                let count = if self.chance(4) { None } else { Some(count) };
                match Span::new(start, count) {
                    Some(span) => Expression::Substring { input: self.boxed(DataType::Text, below), span },
                    None => self.leaf(data_type, false),
                }
            }
            DataType::Timestamp => {
                let date = self.expression(DataType::Date, below);
                date.cast(data_type).unwrap_or_else(|same| panic!("{same} as {data_type}"))
            }
            DataType::Float32 | DataType::Date | DataType::Bytes => self.leaf(data_type, false),
        }
    }

    fn condition(&mut self, depth: usize) -> Expression {
        match self.below(11) {
            0..=3 => {
                let data_type = self.pick(&COLUMNS);
                let right = if matches!(data_type, DataType::Decimal { .. }) { self.any_decimal() } else { data_type };
                let (left, right) = (self.boxed(data_type, depth), self.boxed(right, depth));
                if self.chance(4) {
                    return Expression::Distinct { left, right, same: self.chance(2) };
                }
                Expression::Compare { comparison: self.pick(&COMPARISONS), left, right }
            }
            4 | 5 => {
                let parts: Vec<Expression> =
                    (0..2 + self.below(3)).map(|_| self.expression(DataType::Boolean, depth)).collect();
                if self.chance(2) { Expression::and(parts) } else { Expression::or(parts) }
            }
            6 => Expression::Not(self.boxed(DataType::Boolean, depth)),
            7 => {
                let data_type = self.pick(&COLUMNS);
                Expression::IsNull { input: self.boxed(data_type, depth), negated: self.chance(2) }
            }
            8 => Expression::IsTruth {
                input: self.boxed(DataType::Boolean, depth),
                truth: self.chance(2),
                negated: self.chance(2),
            },
            9 => match LikePattern::new(self.pick(&PATTERNS), Some('\\'), false) {
                Some(pattern) => Expression::Like {
                    input: self.boxed(DataType::Text, depth),
                    pattern: Arc::new(pattern),
                    negated: self.chance(2),
                },
                None => self.leaf(DataType::Boolean, false),
            },
            _ => {
                let data_type = self.pick(&COLUMNS);
                let small = self.chance(2);
                let count = if self.chance(2) { self.below(5) } else { self.below(40) };
                let mut values: Vec<Value> = (0..count).map(|_| self.value(data_type, small)).collect();
                if self.chance(4) {
                    values.push(Value::Null);
                }
                if let Some(Value::Decimal { unscaled, scale }) = values.first_mut() {
                    (*unscaled, *scale) = (*unscaled * 10, *scale + 1);
                }
                match ValueSet::new(data_type, &values) {
                    Some(set) => Expression::InList {
                        input: self.boxed(data_type, depth),
                        set: Arc::new(set),
                        negated: self.chance(2),
                    },
                    None => panic!("a list of {values:?}"),
                }
            }
        }
    }
}
