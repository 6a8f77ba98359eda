//! The types of attributes and how their values lie in memory.

use std::fmt;

/// The type of an attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DataType {
    Boolean,
    Int16,
    Int32,
    Int64,
    Float32,
    Float64,
    /// `precision` decimal digits, `scale` of them behind the point; stored unscaled.
    Decimal {
        precision: u8,
        scale: u8,
    },
    /// Days since 1970-01-01.
    Date,
    /// Microseconds since 1970-01-01.
    Timestamp,
    Text,
    Bytes,
}

/// How the values of a type lie in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Physical {
    /// One byte, 0 or 1.
    Boolean,
    Int16,
    Int32,
    Int64,
    Int128,
    Float32,
    Float64,
    /// Arrow's 16-byte views.
    Bytes,
}

/// The largest precision whose unscaled values fit in 64 bits.
pub const DECIMAL64_PRECISION_MAX: u8 = 18;

impl DataType {
    /// How its values lie in memory.
    pub fn physical(self) -> Physical {
        match self {
            Self::Boolean => Physical::Boolean,
            Self::Int16 => Physical::Int16,
            Self::Int32 | Self::Date => Physical::Int32,
            Self::Int64 | Self::Timestamp => Physical::Int64,
            Self::Float32 => Physical::Float32,
            Self::Float64 => Physical::Float64,
            Self::Decimal { precision, .. } if precision <= DECIMAL64_PRECISION_MAX => Physical::Int64,
            Self::Decimal { .. } => Physical::Int128,
            Self::Text | Self::Bytes => Physical::Bytes,
        }
    }

    /// Whether values differ in length.
    pub fn is_variable_length(self) -> bool {
        self.physical() == Physical::Bytes
    }
}

impl Physical {
    /// Bytes of one value (of its view, for variable length).
    pub fn width(self) -> usize {
        match self {
            Self::Boolean => 1,
            Self::Int16 => 2,
            Self::Int32 | Self::Float32 => 4,
            Self::Int64 | Self::Float64 => 8,
            Self::Int128 | Self::Bytes => 16,
        }
    }
}

impl fmt::Display for DataType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Boolean => f.write_str("boolean"),
            Self::Int16 => f.write_str("smallint"),
            Self::Int32 => f.write_str("integer"),
            Self::Int64 => f.write_str("bigint"),
            Self::Float32 => f.write_str("real"),
            Self::Float64 => f.write_str("double precision"),
            Self::Decimal { precision, scale } => write!(f, "numeric({precision},{scale})"),
            Self::Date => f.write_str("date"),
            Self::Timestamp => f.write_str("timestamp"),
            Self::Text => f.write_str("text"),
            Self::Bytes => f.write_str("bytea"),
        }
    }
}
