//! What a partition is asked for: conditions it evaluates itself, the attributes wanted, and in which order.
//!
//! A predicate is a conjunction. Constants have the type of the attribute they are compared with; the planner sees to
//! that. NULL never qualifies, except for `IsNull`.

use crate::ids::{AttributeId, IndexId};
use crate::schema::Schema;
use crate::value::Value;
use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

/// How two values are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

impl Comparison {
    /// Whether an ordering satisfies the comparison.
    pub fn accepts(self, ordering: Ordering) -> bool {
        match self {
            Self::Equal => ordering.is_eq(),
            Self::NotEqual => ordering.is_ne(),
            Self::Less => ordering.is_lt(),
            Self::LessOrEqual => ordering.is_le(),
            Self::Greater => ordering.is_gt(),
            Self::GreaterOrEqual => ordering.is_ge(),
        }
    }

    fn symbol(self) -> &'static str {
        match self {
            Self::Equal => "=",
            Self::NotEqual => "<>",
            Self::Less => "<",
            Self::LessOrEqual => "<=",
            Self::Greater => ">",
            Self::GreaterOrEqual => ">=",
        }
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.symbol())
    }
}

/// What an attribute's value is tested for.
#[derive(Clone, Debug, PartialEq)]
pub enum Test {
    Compare(Comparison, Value),
    In(Arc<[Value]>),
    IsNull,
    IsNotNull,
    CompareAttribute(Comparison, AttributeId),
    /// Text that begins with the bytes given.
    StartsWith(Arc<str>),
}

/// A test of one attribute.
#[derive(Clone, Debug, PartialEq)]
pub struct Condition {
    pub attribute: AttributeId,
    pub test: Test,
}

/// A conjunction of conditions; empty means true.
#[derive(Clone, Debug, PartialEq)]
pub struct Predicate {
    pub conditions: Arc<[Condition]>,
}

impl Predicate {
    /// The predicate every row satisfies.
    pub fn all() -> Self {
        Self { conditions: Arc::default() }
    }

    /// The conjunction of `conditions`.
    pub fn new(conditions: impl Into<Arc<[Condition]>>) -> Self {
        Self { conditions: conditions.into() }
    }

    /// `attribute = value`.
    pub fn equal(attribute: AttributeId, value: Value) -> Self {
        Self::new([Condition { attribute, test: Test::Compare(Comparison::Equal, value) }])
    }

    /// Whether a whole row of values (in schema order) qualifies. The slow and obvious evaluation: what the filters of
    /// the storage modules are compared with.
    pub fn accepts(&self, row: &[Value]) -> bool {
        self.conditions.iter().all(|condition| condition.accepts(|attribute| row[attribute.index()].clone()))
    }
}

impl Condition {
    /// Whether a row qualifies whose values `value_of` gives.
    pub(crate) fn accepts(&self, value_of: impl Fn(AttributeId) -> Value) -> bool {
        let value = value_of(self.attribute);
        match &self.test {
            Test::IsNull => value.is_null(),
            Test::IsNotNull => !value.is_null(),
            Test::Compare(comparison, constant) => {
                !value.is_null() && !constant.is_null() && comparison.accepts(value.cmp(constant))
            }
            Test::In(list) => !value.is_null() && list.contains(&value),
            Test::CompareAttribute(comparison, other) => {
                let other = value_of(*other);
                !value.is_null() && !other.is_null() && comparison.accepts(value.cmp(&other))
            }
            Test::StartsWith(prefix) => match value {
                Value::Text(text) => text.starts_with(&**prefix),
                _ => false,
            },
        }
    }

    /// The condition as text, attributes by name.
    pub fn describe(&self, schema: &Schema) -> String {
        let name = |id: AttributeId| schema.attribute(id).map_or("?", |attribute| &attribute.name).to_owned();
        let left = name(self.attribute);
        match &self.test {
            Test::Compare(comparison, value) => format!("{left} {comparison} {value}"),
            Test::In(list) if list.len() > 4 => format!("{left} IN ({} values)", list.len()),
            Test::In(list) => {
                let list: Vec<String> = list.iter().map(ToString::to_string).collect();
                format!("{left} IN ({})", list.join(", "))
            }
            Test::IsNull => format!("{left} IS NULL"),
            Test::IsNotNull => format!("{left} IS NOT NULL"),
            Test::CompareAttribute(comparison, right) => format!("{left} {comparison} {}", name(*right)),
            Test::StartsWith(prefix) => format!("{left} LIKE '{prefix}%'"),
        }
    }
}

/// The order in which rows are to leave (access primitive `OrderedScan`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexOrder {
    pub index: IndexId,
    pub descending: bool,
}

/// A `Lookup`, `UnorderedScan` or `OrderedScan`.
#[derive(Clone, Debug, PartialEq)]
pub struct ReadRequest {
    pub predicate: Predicate,
    /// The attributes handed out, in this order.
    pub desired: Arc<[AttributeId]>,
    /// Rows leave in the order of this index.
    pub order: Option<IndexOrder>,
}
