//! One access to one table: conditions, the attributes wanted, and whether few rows are expected.

use std::sync::Arc;

use eris_engine::Read;
use eris_storage::{AttributeId, DataType, IndexOrder, Predicate, ReadRequest, Value};

use super::conditions::{ConditionTemplate, OuterRow, fill};
use crate::catalog::Table;
use crate::errors::SqlError;

/// An access primitive of a plan.
#[derive(Clone, Debug)]
pub struct Access {
    /// What is read.
    pub table: Arc<Table>,
    /// What storage evaluates.
    pub conditions: Vec<ConditionTemplate>,
    /// The attributes that leave the partition.
    pub desired: Arc<[AttributeId]>,
    /// In which order rows leave, if that matters.
    pub order: Option<IndexOrder>,
}

/// How many rows an access is expected to find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// At most one: a whole unique key is given.
    One,
    /// Few: the key is given but for its last part.
    Few,
    /// Any number.
    Many,
}

/// A request whose slots are filled.
#[derive(Clone, Debug)]
pub enum Bound {
    /// Ask the engine for this.
    Read(Read),
    /// No row can qualify.
    Nothing,
}

impl Access {
    /// Fills the slots.
    pub fn bind(&self, parameters: &[Value]) -> Result<Bound, SqlError> {
        self.bind_with(parameters, None)
    }

    pub(super) fn bind_with(&self, parameters: &[Value], outer: Option<OuterRow<'_>>) -> Result<Bound, SqlError> {
        let Some(conditions) = fill(&self.conditions, parameters, outer)? else { return Ok(Bound::Nothing) };
        let request = ReadRequest {
            predicate: Predicate::new(conditions),
            desired: Arc::clone(&self.desired),
            order: self.order,
        };
        Ok(Bound::Read(Read { container: self.table.container(), request }))
    }

    /// The types of what it yields.
    pub fn types(&self) -> Vec<DataType> {
        self.desired.iter().map(|attribute| self.table.columns[attribute.index()].sql_type.data_type()).collect()
    }

    /// Whether an index of the table begins with an attribute.
    pub fn leads_an_index(&self, attribute: AttributeId) -> bool {
        self.table.schema.indexes.iter().any(|index| index.attributes.first() == Some(&attribute))
    }

    /// How many rows it is expected to find, judged by the keys that its equalities cover.
    pub fn expected(&self) -> Expected {
        let equal = |attribute: &AttributeId| {
            self.conditions.iter().any(|condition| condition.attribute == *attribute && condition.is_equality())
        };
        let mut expected = Expected::Many;
        for index in &self.table.schema.indexes {
            let covered = index.attributes.iter().take_while(|attribute| equal(attribute)).count();
            if index.unique && covered == index.attributes.len() {
                return Expected::One;
            }
            if covered > 0 && covered + 1 >= index.attributes.len() {
                expected = Expected::Few;
            }
        }
        expected
    }
}
