//! The types a setting can have.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

/// A number of bytes, written `64MB`. Units are powers of 1024, as in PostgreSQL.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ByteSize(pub u64);

impl ByteSize {
    pub const MAX: ByteSize = ByteSize(1 << 62);
}

/// How long something may take, in milliseconds; 0: for ever. Written as in PostgreSQL: `2s`, `500ms`, or a number of
/// milliseconds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Timeout(pub u32);

impl Timeout {
    pub const NEVER: Timeout = Timeout(0);
    /// PostgreSQL's largest: 24 days.
    pub const MAX: Timeout = Timeout(i32::MAX as u32);

    /// `None`: for ever.
    pub fn duration(self) -> Option<Duration> {
        (self.0 > 0).then(|| Duration::from_millis(u64::from(self.0)))
    }
}

/// One of the words a setting allows.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Choice(pub &'static str);

/// A value of any setting. Its display form parses to the same value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SettingValue {
    Bool(bool),
    Integer(i64),
    Duration(Duration),
    Timeout(Timeout),
    Bytes(ByteSize),
    /// One of the declared words, never another.
    Choice(&'static str),
    Text(Cow<'static, str>),
}

/// A Rust type that can be read from a [`SettingValue`].
pub trait SettingType: Sized {
    /// `None` if the value is of another kind.
    fn from_value(value: &SettingValue) -> Option<Self>;
}

impl SettingType for bool {
    fn from_value(value: &SettingValue) -> Option<bool> {
        if let SettingValue::Bool(value) = value { Some(*value) } else { None }
    }
}

impl SettingType for i64 {
    fn from_value(value: &SettingValue) -> Option<i64> {
        if let SettingValue::Integer(value) = value { Some(*value) } else { None }
    }
}

impl SettingType for Duration {
    fn from_value(value: &SettingValue) -> Option<Duration> {
        if let SettingValue::Duration(value) = value { Some(*value) } else { None }
    }
}

impl SettingType for Timeout {
    fn from_value(value: &SettingValue) -> Option<Timeout> {
        if let SettingValue::Timeout(value) = value { Some(*value) } else { None }
    }
}

impl SettingType for ByteSize {
    fn from_value(value: &SettingValue) -> Option<ByteSize> {
        if let SettingValue::Bytes(value) = value { Some(*value) } else { None }
    }
}

impl SettingType for Choice {
    fn from_value(value: &SettingValue) -> Option<Choice> {
        if let SettingValue::Choice(value) = value { Some(Choice(value)) } else { None }
    }
}

impl SettingType for String {
    fn from_value(value: &SettingValue) -> Option<String> {
        if let SettingValue::Text(value) = value { Some(value.clone().into_owned()) } else { None }
    }
}

impl fmt::Display for ByteSize {
    /// The largest unit that divides.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [(40, "TB"), (30, "GB"), (20, "MB"), (10, "kB")];
        let unit = units.into_iter().find(|(shift, _)| self.0 > 0 && self.0.trailing_zeros() >= *shift);
        let (shift, name) = unit.unwrap_or((0, "B"));
        write!(formatter, "{}{name}", self.0 >> shift)
    }
}

impl fmt::Display for Timeout {
    /// The largest unit that divides; zero has none.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [(86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s"), (1, "ms")];
        match units.into_iter().find(|(length, _)| self.0 > 0 && self.0.is_multiple_of(*length)) {
            Some((length, name)) => write!(formatter, "{}{name}", self.0 / length),
            None => formatter.write_str("0"),
        }
    }
}

impl fmt::Display for SettingValue {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SettingValue::Bool(value) => formatter.write_str(if *value { "on" } else { "off" }),
            SettingValue::Integer(value) => write!(formatter, "{value}"),
            SettingValue::Duration(value) => formatter.write_str(&duration_text(*value)),
            SettingValue::Timeout(value) => write!(formatter, "{value}"),
            SettingValue::Bytes(value) => write!(formatter, "{value}"),
            SettingValue::Choice(value) => formatter.write_str(value),
            SettingValue::Text(value) => formatter.write_str(value),
        }
    }
}

/// The largest unit that divides.
pub(super) fn duration_text(duration: Duration) -> String {
    let nanoseconds = duration.as_nanos();
    let units = [(60_000_000_000, "min"), (1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us")];
    let unit = units.into_iter().find(|(length, _)| nanoseconds.is_multiple_of(*length));
    let (length, name) = unit.unwrap_or((1, "ns"));
    if nanoseconds == 0 { "0s".to_owned() } else { format!("{}{name}", nanoseconds / length) }
}
