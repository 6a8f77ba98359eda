//! Conditions with slots: what storage evaluates, once the slots are filled.

use std::sync::Arc;

use eris_operators::Expression;
use eris_storage::{AttributeId, Batch, Comparison, Condition, DataType, Test, Value};

use super::convert::{Converted, comparable};
use crate::errors::SqlError;
use crate::plan::operator_error;

/// Where a constant comes from.
#[derive(Clone, Debug)]
pub enum Slot {
    /// It is known.
    Constant(Value),
    /// Computed from parameters.
    Expression(Expression),
    /// A column of the outer row of a key join.
    Outer(usize),
}

/// A test whose constants are slots.
#[derive(Clone, Debug)]
pub enum TestTemplate {
    /// attribute comparison slot
    Compare(Comparison, Slot),
    /// attribute IN (slots)
    In(Vec<Slot>),
    /// attribute IS NULL
    IsNull,
    /// attribute IS NOT NULL
    IsNotNull,
    /// attribute comparison attribute
    CompareAttribute(Comparison, AttributeId),
    /// attribute LIKE 'text%'
    StartsWith(Arc<str>),
    /// No row qualifies.
    Never,
}

/// A condition on one attribute.
#[derive(Clone, Debug)]
pub struct ConditionTemplate {
    /// Which.
    pub attribute: AttributeId,
    /// Its type, which constants are brought to.
    pub data_type: DataType,
    /// What it is tested for.
    pub test: TestTemplate,
}

impl ConditionTemplate {
    /// Whether its constants are there before the statement runs.
    pub fn is_constant(&self) -> bool {
        let is_constant = |slot: &Slot| matches!(slot, Slot::Constant(_));
        match &self.test {
            TestTemplate::Compare(_, slot) => is_constant(slot),
            TestTemplate::In(slots) => slots.iter().all(is_constant),
            TestTemplate::IsNull
            | TestTemplate::IsNotNull
            | TestTemplate::CompareAttribute(..)
            | TestTemplate::StartsWith(_)
            | TestTemplate::Never => true,
        }
    }
}

/// The row that `Slot::Outer` refers to.
#[derive(Clone, Copy)]
pub(super) struct OuterRow<'a> {
    pub batch: &'a Batch,
    pub row: usize,
}

/// What a condition becomes with its slots filled.
enum Filled {
    Condition(Condition),
    /// Nothing qualifies.
    Never,
}

impl Slot {
    fn value(&self, parameters: &[Value], outer: Option<OuterRow<'_>>) -> Result<Value, SqlError> {
        match self {
            Self::Constant(value) => Ok(value.clone()),
            Self::Expression(Expression::Parameter { index, .. }) => parameters
                .get(*index)
                .cloned()
                .ok_or_else(|| SqlError::internal(format!("parameter {} is not bound", index + 1))),
            Self::Expression(expression) => expression.constant(parameters).map_err(|error| operator_error(&error)),
            Self::Outer(column) => match outer {
                Some(outer) => Ok(outer.batch.value(outer.row, *column)),
                None => Err(SqlError::internal("a key of an outer row outside of a join")),
            },
        }
    }
}

impl ConditionTemplate {
    /// Whether it is `attribute = slot`.
    pub fn is_equality(&self) -> bool {
        matches!(self.test, TestTemplate::Compare(Comparison::Equal, _))
    }

    fn fill(&self, parameters: &[Value], outer: Option<OuterRow<'_>>) -> Result<Filled, SqlError> {
        let test = match &self.test {
            TestTemplate::Compare(comparison, slot) => {
                return self.compare(*comparison, &slot.value(parameters, outer)?);
            }
            TestTemplate::In(slots) => {
                let mut values = Vec::with_capacity(slots.len());
                for slot in slots {
                    let value = slot.value(parameters, outer)?;
                    match self.convert(&value)? {
                        Converted::Exact(value) => values.push(value),
                        // No value of the type equals these; NULL in a list makes no row qualify either.
                        Converted::Between(_) | Converted::Below | Converted::Above | Converted::Null => {}
                    }
                }
                if values.is_empty() {
                    return Ok(Filled::Never);
                }
                Test::In(values.into())
            }
            TestTemplate::Never => return Ok(Filled::Never),
            TestTemplate::IsNull => Test::IsNull,
            TestTemplate::IsNotNull => Test::IsNotNull,
            TestTemplate::CompareAttribute(comparison, other) => Test::CompareAttribute(*comparison, *other),
            TestTemplate::StartsWith(prefix) => Test::StartsWith(Arc::clone(prefix)),
        };
        Ok(Filled::Condition(Condition { attribute: self.attribute, test }))
    }

    fn convert(&self, value: &Value) -> Result<Converted, SqlError> {
        comparable(value, self.data_type)
            .ok_or_else(|| SqlError::internal(format!("{value} cannot be compared with {}", self.data_type)))
    }

    fn compare(&self, comparison: Comparison, value: &Value) -> Result<Filled, SqlError> {
        use Comparison::{Equal, Greater, GreaterOrEqual, Less, LessOrEqual, NotEqual};
        let condition = |test| Ok(Filled::Condition(Condition { attribute: self.attribute, test }));
        match self.convert(value)? {
            Converted::Exact(value) => condition(Test::Compare(comparison, value)),
            Converted::Null => Ok(Filled::Never),
            Converted::Between(floor) => match comparison {
                Equal => Ok(Filled::Never),
                NotEqual => condition(Test::IsNotNull),
                Less | LessOrEqual => condition(Test::Compare(LessOrEqual, floor)),
                Greater | GreaterOrEqual => condition(Test::Compare(Greater, floor)),
            },
            Converted::Below => match comparison {
                Equal | Less | LessOrEqual => Ok(Filled::Never),
                NotEqual | Greater | GreaterOrEqual => condition(Test::IsNotNull),
            },
            Converted::Above => match comparison {
                Equal | Greater | GreaterOrEqual => Ok(Filled::Never),
                NotEqual | Less | LessOrEqual => condition(Test::IsNotNull),
            },
        }
    }
}

/// Fills all conditions; `None` means that no row can qualify.
pub(super) fn fill(
    templates: &[ConditionTemplate],
    parameters: &[Value],
    outer: Option<OuterRow<'_>>,
) -> Result<Option<Vec<Condition>>, SqlError> {
    let mut conditions = Vec::with_capacity(templates.len());
    for template in templates {
        match template.fill(parameters, outer)? {
            Filled::Condition(condition) => conditions.push(condition),
            Filled::Never => return Ok(None),
        }
    }
    Ok(Some(conditions))
}
