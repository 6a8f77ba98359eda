//! Values: mostly small and alike, so that they meet in joins and keys; now and then NULL or the end of a range.

use super::{Construct, Dialect, Generator};
use crate::expression::{Expr, Node};
use crate::value::{Decimal, Kind, Type, Value};

const TEXTS: [&str; 18] =
    ["", "a", "A", "b", "ab", "aB", "abc", "b%", "a_c", " a", "a ", "x'y", "\\", "0", "NULL", "é", "日本", "😀"];
const PATTERNS: [&str; 14] = ["%", "", "a%", "%b", "_", "__", "%a%", "a_c", "a\\_c", "%\\%", "A%", "é%", "_本", "ab"];
/// 1970-01-01, 2000-02-29, 2024-02-29, 1900-03-01, and far away ones.
const DATES: [i64; 6] = [0, 11_016, 19_782, -25_508, -715_875, 2_929_878];

impl Generator {
    pub(super) fn value_of(&mut self, declared: Type, summable: bool) -> Value {
        match declared {
            Type::Numeric(precision, scale) => {
                let limit = 10_i128.pow(precision) - 1;
                let digits = match self.random.below(10) {
                    0 => limit,
                    1 => -limit,
                    2..=5 => i128::from(self.random.between(-3, 3)) * 10_i128.pow(scale),
                    _ => i128::from(self.random.between(-500, 500)),
                };
                Value::Numeric(Decimal { digits: digits.clamp(-limit, limit), scale })
            }
            Type::Varchar(length) => {
                let Value::Text(text) = self.value_of(Type::Plain(Kind::Text), true) else { return Value::Null };
                Value::Text(text.chars().take(length).collect())
            }
            Type::Plain(kind) => self.plain_value(kind, summable),
        }
    }

    fn plain_value(&mut self, kind: Kind, summable: bool) -> Value {
        match kind {
            Kind::Int2 | Kind::Int4 | Kind::Int8 => {
                let (low, high) = kind.range();
                Value::Int(match self.random.below(20) {
                    0 => low,
                    1 => high,
                    2 => self.random.between(low, high),
                    3..=6 => self.random.between(-200, 200),
                    _ => self.random.between(-2, 6),
                })
            }
            Kind::Numeric => self.value_of(Type::Numeric(6, 2), true),
            Kind::Float4 | Kind::Float8 => {
                let ends = if kind == Kind::Float4 { [3e38, -3e38, 0.1] } else { [1e300, -1e300, 0.1] };
                let value = match self.random.below(10) {
                    0..=2 if !summable && self.allows(Construct::FloatRange) => self.pick(&ends),
                    _ => self.random.between(-20, 20) as f64 * 0.25,
                };
                Value::Float(if kind == Kind::Float4 { f64::from(value as f32) } else { value })
            }
            Kind::Bool => Value::Bool(self.chance(50)),
            Kind::Text if self.chance(3) => Value::Text("long é".repeat(40)),
            Kind::Text => Value::Text(self.pick(&TEXTS).to_owned()),
            Kind::Date => Value::Date(self.date() + self.random.between(-1, 1)),
            Kind::Timestamp => {
                let day = self.date() * 86_400_000_000;
                let within = self.pick(&[0, 0, 1, -1, 43_200_000_000, 500_000]);
                Value::Timestamp(day + within)
            }
        }
    }

    fn date(&mut self) -> i64 {
        let near = if self.allows(Construct::FarTime) { DATES.len() } else { 4 };
        self.pick(&DATES[..near])
    }

    pub(super) fn literal(&mut self, kind: Kind) -> Expr {
        if self.chance(6) {
            return Expr::new(kind, Node::Literal { value: Value::Null, bare: false });
        }
        let mut value = self.plain_value(kind, true);
        // Without a point the digits would be an integer.
        if let Value::Numeric(number) = &mut value {
            *number = number.rounded(number.scale.max(1));
        }
        Expr::new(kind, Node::Literal { value, bare: false })
    }

    /// An operand beside another one that says what the type is: NULL may stand there as it is.
    pub(super) fn literal_or_null(&mut self, kind: Kind) -> Expr {
        if !self.chance(15) {
            return self.literal(kind);
        }
        let bare = self.chance(60);
        Expr::new(kind, Node::Literal { value: Value::Null, bare })
    }

    pub(super) fn integer(&mut self, low: i64, high: i64) -> Expr {
        Expr::new(Kind::Int4, Node::Literal { value: Value::Int(self.random.between(low, high)), bare: false })
    }

    pub(super) fn pattern(&mut self) -> String {
        self.pick(&PATTERNS).to_owned()
    }

    /// Whether letters outside of ASCII may change case.
    pub(super) fn changes_case(&mut self) -> bool {
        self.dialect == Dialect::Eris
    }
}
