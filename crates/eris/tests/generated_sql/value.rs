//! Values and types as PostgreSQL has them, in the smallest form that the evaluator needs.

use std::cmp::Ordering;
use std::fmt;

/// An error by its SQLSTATE.
pub type State = &'static str;
pub const OVERFLOW: State = "22003";
pub const DIVISION_BY_ZERO: State = "22012";
pub const TOO_LONG: State = "22001";
pub const MANY_ROWS: State = "21000";
pub const NOT_NULL: State = "23502";
pub const DUPLICATE_KEY: State = "23505";
pub const FAILED_BLOCK: State = "25P02";

/// The type of an expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Int2,
    Int4,
    Int8,
    Numeric,
    Float4,
    Float8,
    Bool,
    Text,
    Date,
    Timestamp,
}

impl Kind {
    pub const ALL: [Kind; 10] = [
        Kind::Int2,
        Kind::Int4,
        Kind::Int8,
        Kind::Numeric,
        Kind::Float4,
        Kind::Float8,
        Kind::Bool,
        Kind::Text,
        Kind::Date,
        Kind::Timestamp,
    ];

    pub fn is_integer(self) -> bool {
        self <= Kind::Int8
    }

    pub fn is_number(self) -> bool {
        self <= Kind::Float8
    }

    pub fn is_float(self) -> bool {
        matches!(self, Kind::Float4 | Kind::Float8)
    }

    /// Whether two values of these types can be compared.
    pub fn compares_with(self, other: Kind) -> bool {
        let time = |kind| matches!(kind, Kind::Date | Kind::Timestamp);
        self == other || (self.is_number() && other.is_number()) || (time(self) && time(other))
    }

    pub fn sql(self) -> &'static str {
        match self {
            Kind::Int2 => "smallint",
            Kind::Int4 => "integer",
            Kind::Int8 => "bigint",
            // Of literals and NULLs.
            Kind::Numeric => "numeric(14, 4)",
            Kind::Float4 => "real",
            Kind::Float8 => "double precision",
            Kind::Bool => "boolean",
            Kind::Text => "text",
            Kind::Date => "date",
            Kind::Timestamp => "timestamp",
        }
    }

    /// The least and the greatest integer.
    pub fn range(self) -> (i64, i64) {
        match self {
            Kind::Int2 => (i64::from(i16::MIN), i64::from(i16::MAX)),
            Kind::Int4 => (i64::from(i32::MIN), i64::from(i32::MAX)),
            _ => (i64::MIN, i64::MAX),
        }
    }
}

/// The type of a column or the target of a cast.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    Plain(Kind),
    Numeric(u32, u32),
    Varchar(usize),
}

impl Type {
    pub fn kind(self) -> Kind {
        match self {
            Type::Plain(kind) => kind,
            Type::Numeric(..) => Kind::Numeric,
            Type::Varchar(_) => Kind::Text,
        }
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Type::Plain(kind) => f.write_str(kind.sql()),
            Type::Numeric(precision, scale) => write!(f, "numeric({precision}, {scale})"),
            Type::Varchar(length) => write!(f, "varchar({length})"),
        }
    }
}

/// `digits / 10^scale`. The generator keeps all numerics below 10^36, so that nothing here overflows.
#[derive(Clone, Copy, Debug)]
pub struct Decimal {
    pub digits: i128,
    pub scale: u32,
}

const TOO_LARGE: &str = "the generator keeps numerics small";

impl Decimal {
    pub fn of(integer: i64) -> Decimal {
        Decimal { digits: i128::from(integer), scale: 0 }
    }

    fn widened(self, scale: u32) -> i128 {
        self.digits.checked_mul(10_i128.pow(scale - self.scale)).expect(TOO_LARGE)
    }

    fn aligned(self, other: Decimal) -> (i128, i128, u32) {
        let scale = self.scale.max(other.scale);
        (self.widened(scale), other.widened(scale), scale)
    }

    pub fn plus(self, other: Decimal) -> Decimal {
        let (left, right, scale) = self.aligned(other);
        Decimal { digits: left + right, scale }
    }

    pub fn negated(self) -> Decimal {
        Decimal { digits: -self.digits, scale: self.scale }
    }

    pub fn times(self, other: Decimal) -> Decimal {
        let digits = self.digits.checked_mul(other.digits).expect(TOO_LARGE);
        Decimal { digits, scale: self.scale + other.scale }
    }

    pub fn remainder(self, other: Decimal) -> Decimal {
        let (left, right, scale) = self.aligned(other);
        Decimal { digits: left % right, scale }
    }

    /// Rounds half away from zero, or adds zeros.
    pub fn rounded(self, scale: u32) -> Decimal {
        if scale >= self.scale {
            return Decimal { digits: self.widened(scale), scale };
        }
        Decimal { digits: divided(self.digits, 10_i128.pow(self.scale - scale)), scale }
    }

    /// Divides by an integer, rounded half away from zero at this many digits behind the point.
    pub fn over(self, divisor: i128, scale: u32) -> Decimal {
        Decimal { digits: divided(self.widened(scale), divisor), scale }
    }

    fn compare(self, other: Decimal) -> Ordering {
        let (left, right, _) = self.aligned(other);
        left.cmp(&right)
    }

    pub fn float(self) -> f64 {
        self.to_string().parse().expect("a decimal is a number")
    }

    fn parse(text: &str) -> Option<Decimal> {
        let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
        let digits = format!("{whole}{fraction}").parse().ok()?;
        Some(Decimal { digits, scale: fraction.len() as u32 })
    }
}

fn divided(dividend: i128, divisor: i128) -> i128 {
    let (quotient, rest) = (dividend / divisor, dividend % divisor);
    let up = rest.abs() * 2 >= divisor.abs();
    quotient + if up { dividend.signum() * divisor.signum() } else { 0 }
}

impl fmt::Display for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (sign, scale) = (if self.digits < 0 { "-" } else { "" }, self.scale as usize);
        let digits = format!("{:0>width$}", self.digits.unsigned_abs(), width = scale + 1);
        let (whole, fraction) = digits.split_at(digits.len() - scale);
        write!(f, "{sign}{whole}{}{fraction}", if scale > 0 { "." } else { "" })
    }
}

#[derive(Clone, Debug)]
pub enum Value {
    Null,
    Bool(bool),
    Int(i64),
    Numeric(Decimal),
    /// Of either width; that of a `real` is rounded to 32 bits.
    Float(f64),
    Text(String),
    /// Days since 1970-01-01.
    Date(i64),
    /// Microseconds since 1970-01-01.
    Timestamp(i64),
}

pub type Row = Vec<Value>;

const DAY_MICROS: i64 = 86_400_000_000;

impl Value {
    pub fn is_null(&self) -> bool {
        matches!(self, Value::Null)
    }

    pub fn float(&self) -> f64 {
        match self {
            Value::Int(value) => *value as f64,
            Value::Numeric(value) => value.float(),
            Value::Float(value) => *value,
            other => unreachable!("{other:?} is no number"),
        }
    }

    pub fn decimal(&self) -> Decimal {
        match self {
            Value::Int(value) => Decimal::of(*value),
            Value::Numeric(value) => *value,
            other => unreachable!("{other:?} is no numeric"),
        }
    }

    pub fn micros(&self) -> i64 {
        match self {
            Value::Date(days) => days * DAY_MICROS,
            Value::Timestamp(micros) => *micros,
            other => unreachable!("{other:?} is no time"),
        }
    }

    /// `None` if one is NULL.
    pub fn compare(&self, other: &Value) -> Option<Ordering> {
        Some(match (self, other) {
            (Value::Null, _) | (_, Value::Null) => return None,
            (Value::Bool(left), Value::Bool(right)) => left.cmp(right),
            (Value::Text(left), Value::Text(right)) => left.as_bytes().cmp(right.as_bytes()),
            (Value::Int(left), Value::Int(right)) => left.cmp(right),
            (Value::Float(_), _) | (_, Value::Float(_)) => {
                let (left, right) = (self.float(), other.float());
                left.partial_cmp(&right).unwrap_or_else(|| left.is_nan().cmp(&right.is_nan()))
            }
            (Value::Date(_) | Value::Timestamp(_), _) => self.micros().cmp(&other.micros()),
            _ => self.decimal().compare(other.decimal()),
        })
    }

    /// NULLs are equal to each other and greater than everything else: the order of ORDER BY, the equality of DISTINCT.
    pub fn sort(&self, other: &Value) -> Ordering {
        self.compare(other).unwrap_or_else(|| self.is_null().cmp(&other.is_null()))
    }

    /// A text that is the same for values that are equal, whatever they were written like.
    pub fn canonical(&self) -> String {
        match self {
            Value::Null => "NULL".to_owned(),
            Value::Bool(value) => value.to_string(),
            Value::Int(value) => value.to_string(),
            Value::Numeric(value) => {
                let text = value.to_string();
                let text = if value.scale > 0 { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
                (if text == "-0" { "0" } else { text }).to_owned()
            }
            // Also makes 0 of -0.
            Value::Float(value) => format!("{:e}", value + 0.0),
            Value::Text(text) => format!("{text:?}"),
            Value::Date(days) => date_text(*days),
            Value::Timestamp(micros) => timestamp_text(*micros),
        }
    }

    /// The value that a server wrote as this text.
    pub fn parse(kind: Kind, text: &str) -> Option<Value> {
        Some(match kind {
            Kind::Int2 | Kind::Int4 | Kind::Int8 => Value::Int(text.parse().ok()?),
            Kind::Numeric => Value::Numeric(Decimal::parse(text)?),
            Kind::Float4 => Value::Float(f64::from(text.parse::<f32>().ok()?)),
            Kind::Float8 => Value::Float(text.parse().ok()?),
            Kind::Bool => Value::Bool(match text {
                "t" => true,
                "f" => false,
                _ => return None,
            }),
            Kind::Text => Value::Text(text.to_owned()),
            Kind::Date => Value::Date(parse_date(text)?),
            Kind::Timestamp => Value::Timestamp(parse_timestamp(text)?),
        })
    }
}

pub fn canonical_row(row: &[Value]) -> String {
    row.iter().map(Value::canonical).collect::<Vec<_>>().join("|")
}

/// Days since 1970-01-01 to year, month, day (Howard Hinnant's `civil_from_days`).
fn civil(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

pub fn date_text(date: i64) -> String {
    let (year, month, day) = civil(date);
    format!("{year:04}-{month:02}-{day:02}")
}

pub fn timestamp_text(micros: i64) -> String {
    let (date, rest) = (micros.div_euclid(DAY_MICROS), micros.rem_euclid(DAY_MICROS));
    let (seconds, fraction) = (rest / 1_000_000, rest % 1_000_000);
    let fraction = if fraction == 0 { String::new() } else { format!(".{fraction:06}") };
    let (hour, minute, second) = (seconds / 3_600, seconds / 60 % 60, seconds % 60);
    format!("{} {hour:02}:{minute:02}:{second:02}{}", date_text(date), fraction.trim_end_matches('0'))
}

fn parse_date(text: &str) -> Option<i64> {
    let mut parts = text.split('-').map(|part| part.parse::<i64>().ok());
    Some(days(parts.next()??, parts.next()??, parts.next()??))
}

fn parse_timestamp(text: &str) -> Option<i64> {
    let (date, time) = text.split_once(' ')?;
    let (time, fraction) = time.split_once('.').unwrap_or((time, ""));
    let mut parts = time.split(':').map(|part| part.parse::<i64>().ok());
    let seconds = parts.next()?? * 3_600 + parts.next()?? * 60 + parts.next()??;
    let fraction: i64 = format!("{fraction:0<6}").parse().ok()?;
    Some(parse_date(date)? * DAY_MICROS + seconds * 1_000_000 + fraction)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_read_back() {
        for date in [-719_162, -1, 0, 59, 60, 11_016, 19_782, 2_932_896] {
            assert_eq!(parse_date(&date_text(date)), Some(date));
        }
        assert_eq!(date_text(19_782), "2024-02-29");
        assert_eq!(timestamp_text(-1), "1969-12-31 23:59:59.999999");
        assert_eq!(parse_timestamp("1969-12-31 23:59:59.5"), Some(-500_000));
        assert_eq!(Decimal { digits: -5, scale: 2 }.to_string(), "-0.05");
        assert_eq!(Decimal { digits: -25, scale: 1 }.rounded(0).to_string(), "-3");
        assert_eq!(Decimal::of(-1).over(3, 4).to_string(), "-0.3333");
        assert_eq!(Value::Numeric(Decimal { digits: -100, scale: 2 }).canonical(), "-1");
    }
}
