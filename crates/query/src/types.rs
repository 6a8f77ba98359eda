//! SQL types: what a client sees of a value's type, and how it is stored.
//!
//! Storage knows eleven physical types ([`DataType`]); SQL has more names than that (`varchar(10)` and `text` are
//! stored alike) and PostgreSQL's clients identify them by object ids and type modifiers.

use std::fmt;

use eris_storage::DataType;

/// A type as SQL names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SqlType {
    /// `boolean`
    Boolean,
    /// `smallint`
    SmallInt,
    /// `integer`
    Integer,
    /// `bigint`
    BigInt,
    /// `real`
    Real,
    /// `double precision`
    Double,
    /// `numeric(precision, scale)`
    Numeric {
        /// Digits in all.
        precision: u8,
        /// Digits after the point.
        scale: u8,
    },
    /// `date`
    Date,
    /// `timestamp` without time zone, microseconds
    Timestamp,
    /// `text`
    Text,
    /// `varchar(n)`: at most n characters
    Varchar(Option<u32>),
    /// `char(n)`: at most n characters, trailing spaces do not count and are not kept
    Char(Option<u32>),
    /// `bytea`
    Bytea,
    /// `interval`: only as the result of an expression, never as a column's type
    Interval,
    /// Not known (yet): an untyped parameter, a bare NULL
    Unknown,
}

impl SqlType {
    /// `numeric` without precision: 28 digits before the point, ten after it.
    pub const NUMERIC: Self = Self::Numeric { precision: 38, scale: 10 };

    /// PostgreSQL's object id of the type.
    pub fn oid(self) -> u32 {
        match self {
            Self::Boolean => 16,
            Self::Bytea => 17,
            Self::BigInt => 20,
            Self::SmallInt => 21,
            Self::Integer => 23,
            Self::Text => 25,
            Self::Real => 700,
            Self::Double => 701,
            Self::Unknown => 705,
            Self::Char(_) => 1042,
            Self::Varchar(_) => 1043,
            Self::Date => 1082,
            Self::Timestamp => 1114,
            Self::Interval => 1186,
            Self::Numeric { .. } => 1700,
        }
    }

    /// The type of an object id; `None` if ERIS has no such type. Id 0 is "not said".
    pub fn from_oid(oid: u32) -> Option<Self> {
        Some(match oid {
            16 => Self::Boolean,
            17 => Self::Bytea,
            20 => Self::BigInt,
            21 => Self::SmallInt,
            23 => Self::Integer,
            25 | 19 => Self::Text,
            700 => Self::Real,
            701 => Self::Double,
            0 | 705 => Self::Unknown,
            1042 => Self::Char(None),
            1043 => Self::Varchar(None),
            1082 => Self::Date,
            1114 => Self::Timestamp,
            1186 => Self::Interval,
            1700 => Self::NUMERIC,
            _ => return None,
        })
    }

    /// PostgreSQL's `typlen`: bytes of a value, -1 if they vary.
    pub fn typlen(self) -> i16 {
        match self {
            Self::Boolean => 1,
            Self::SmallInt => 2,
            Self::Integer | Self::Real | Self::Date => 4,
            Self::BigInt | Self::Double | Self::Timestamp => 8,
            Self::Interval => 16,
            Self::Unknown => -2,
            Self::Numeric { .. } | Self::Text | Self::Varchar(_) | Self::Char(_) | Self::Bytea => -1,
        }
    }

    /// PostgreSQL's type modifier, -1 if there is none.
    pub fn typmod(self) -> i32 {
        match self {
            Self::Numeric { precision, scale } => ((i32::from(precision) << 16) | i32::from(scale)) + 4,
            Self::Varchar(Some(n)) | Self::Char(Some(n)) => i32::try_from(n).map_or(-1, |n| n.saturating_add(4)),
            _ => -1,
        }
    }

    /// How values of the type are stored. Intervals travel as three fields packed into 128 bits: months, days,
    /// microseconds.
    pub fn data_type(self) -> DataType {
        match self {
            Self::Boolean => DataType::Boolean,
            Self::SmallInt => DataType::Int16,
            Self::Integer => DataType::Int32,
            Self::BigInt => DataType::Int64,
            Self::Real => DataType::Float32,
            Self::Double => DataType::Float64,
            Self::Numeric { precision, scale } => DataType::Decimal { precision, scale },
            Self::Date => DataType::Date,
            Self::Timestamp => DataType::Timestamp,
            Self::Text | Self::Varchar(_) | Self::Char(_) | Self::Unknown => DataType::Text,
            Self::Bytea => DataType::Bytes,
            Self::Interval => DataType::Decimal { precision: 38, scale: 0 },
        }
    }

    /// The plainest SQL type that is stored like this.
    pub fn of(data_type: DataType) -> Self {
        match data_type {
            DataType::Boolean => Self::Boolean,
            DataType::Int16 => Self::SmallInt,
            DataType::Int32 => Self::Integer,
            DataType::Int64 => Self::BigInt,
            DataType::Float32 => Self::Real,
            DataType::Float64 => Self::Double,
            DataType::Decimal { precision, scale } => Self::Numeric { precision, scale },
            DataType::Date => Self::Date,
            DataType::Timestamp => Self::Timestamp,
            DataType::Text => Self::Text,
            DataType::Bytes => Self::Bytea,
        }
    }

    /// The name error messages use, without modifiers.
    pub fn base_name(self) -> &'static str {
        match self {
            Self::Boolean => "boolean",
            Self::SmallInt => "smallint",
            Self::Integer => "integer",
            Self::BigInt => "bigint",
            Self::Real => "real",
            Self::Double => "double precision",
            Self::Numeric { .. } => "numeric",
            Self::Date => "date",
            Self::Timestamp => "timestamp",
            Self::Text => "text",
            Self::Varchar(_) => "character varying",
            Self::Char(_) => "character",
            Self::Bytea => "bytea",
            Self::Interval => "interval",
            Self::Unknown => "unknown",
        }
    }
}

impl fmt::Display for SqlType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Numeric { precision, scale } => write!(f, "numeric({precision},{scale})"),
            Self::Varchar(Some(n)) => write!(f, "character varying({n})"),
            Self::Char(Some(n)) => write!(f, "character({n})"),
            Self::Timestamp => f.write_str("timestamp without time zone"),
            other => f.write_str(other.base_name()),
        }
    }
}

/// A type without its modifiers: what signatures name, a row of `pg_type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TypeKind {
    /// `boolean`
    Boolean,
    /// `smallint`
    SmallInt,
    /// `integer`
    Integer,
    /// `bigint`
    BigInt,
    /// `real`
    Real,
    /// `double precision`
    Double,
    /// `numeric`
    Numeric,
    /// `date`
    Date,
    /// `timestamp without time zone`
    Timestamp,
    /// `text`
    Text,
    /// `character varying`
    Varchar,
    /// `character`
    Char,
    /// `bytea`
    Bytea,
    /// `interval`
    Interval,
    /// A literal or parameter that says no type of its own.
    Unknown,
}

/// Types that are cast to each other more readily than to others: `pg_type.typcategory`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Category {
    /// B
    Boolean,
    /// N
    Numeric,
    /// D
    DateTime,
    /// T
    Timespan,
    /// S
    String,
    /// U
    UserDefined,
    /// X
    Unknown,
}

impl TypeKind {
    /// The category that PostgreSQL puts the type in.
    pub fn category(self) -> Category {
        match self {
            Self::Boolean => Category::Boolean,
            Self::SmallInt | Self::Integer | Self::BigInt | Self::Real | Self::Double | Self::Numeric => {
                Category::Numeric
            }
            Self::Date | Self::Timestamp => Category::DateTime,
            Self::Interval => Category::Timespan,
            Self::Text | Self::Varchar | Self::Char => Category::String,
            Self::Bytea => Category::UserDefined,
            Self::Unknown => Category::Unknown,
        }
    }

    /// Whether it is the type of its category that values are rather cast to: `pg_type.typispreferred`.
    pub fn is_preferred(self) -> bool {
        matches!(self, Self::Boolean | Self::Double | Self::Text | Self::Interval)
    }

    /// The type without modifiers. Of `numeric` it is the one that a column without precision has.
    pub fn plain(self) -> SqlType {
        match self {
            Self::Boolean => SqlType::Boolean,
            Self::SmallInt => SqlType::SmallInt,
            Self::Integer => SqlType::Integer,
            Self::BigInt => SqlType::BigInt,
            Self::Real => SqlType::Real,
            Self::Double => SqlType::Double,
            Self::Numeric => SqlType::NUMERIC,
            Self::Date => SqlType::Date,
            Self::Timestamp => SqlType::Timestamp,
            Self::Text => SqlType::Text,
            Self::Varchar => SqlType::Varchar(None),
            Self::Char => SqlType::Char(None),
            Self::Bytea => SqlType::Bytea,
            Self::Interval => SqlType::Interval,
            Self::Unknown => SqlType::Unknown,
        }
    }
}

impl SqlType {
    /// The type without its modifiers.
    pub fn kind(self) -> TypeKind {
        match self {
            Self::Boolean => TypeKind::Boolean,
            Self::SmallInt => TypeKind::SmallInt,
            Self::Integer => TypeKind::Integer,
            Self::BigInt => TypeKind::BigInt,
            Self::Real => TypeKind::Real,
            Self::Double => TypeKind::Double,
            Self::Numeric { .. } => TypeKind::Numeric,
            Self::Date => TypeKind::Date,
            Self::Timestamp => TypeKind::Timestamp,
            Self::Text => TypeKind::Text,
            Self::Varchar(_) => TypeKind::Varchar,
            Self::Char(_) => TypeKind::Char,
            Self::Bytea => TypeKind::Bytea,
            Self::Interval => TypeKind::Interval,
            Self::Unknown => TypeKind::Unknown,
        }
    }
}
