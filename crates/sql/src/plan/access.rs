//! Which parts of a condition the partitions of a table evaluate themselves.
//!
//! ```text
//!   column op constant      constant: a literal, a parameter, or an expression of those
//!   column BETWEEN, IN, IS [NOT] NULL, LIKE 'prefix%', boolean column, column op column of one type,
//!   column = constant OR the same column = another one
//! ```
//! A cast to a wider type around the column is looked through: the constant is narrowed instead, with its order kept
//! (see [`crate::native::comparable`]).

use std::sync::Arc;

use eris_operators::{Expression, flipped};
use eris_query::{Scalar, ScannedColumn, TableId, Unplanned, lower};
use eris_storage::{AttributeId, Comparison, DataType, Value};

use super::Lowering;
use crate::catalog::Table;
use crate::native::{ConditionTemplate, Slot, TestTemplate, comparable};

/// A table of a query.
pub(super) fn table_of(tables: &[Arc<Table>], table: TableId) -> Lowering<&Arc<Table>> {
    tables.get(table.0).ok_or_else(|| Unplanned::because("a table that is not there"))
}

/// A part of a condition that storage evaluates.
pub(super) struct Inside {
    /// Over the table's attributes.
    pub expression: Expression,
    /// As storage says it.
    pub conditions: Vec<ConditionTemplate>,
}

/// A condition on the rows of a table in two parts.
#[derive(Default)]
pub(super) struct Split<'s> {
    pub inside: Vec<Inside>,
    /// What storage cannot evaluate.
    pub outside: Vec<&'s Scalar>,
}

impl<'s> Split<'s> {
    /// Of a condition on what a scan yields.
    pub fn of(condition: &'s Scalar, scanned: &[ScannedColumn], table: &Table) -> Lowering<Self> {
        let attribute = |column| {
            let found = scanned.iter().find(|known| known.column == column);
            found.map(|known| known.attribute.index())
        };
        let mut split = Self::default();
        for part in condition.conjuncts() {
            let expression = lower(part, &attribute)?;
            match conditions_of(&expression, table) {
                Some(conditions) => split.inside.push(Inside { expression, conditions }),
                None => split.outside.push(part),
            }
        }
        Ok(split)
    }
}

/// The conditions that are equivalent to an expression over a table's attributes; `None` if there are none.
pub(super) fn conditions_of(expression: &Expression, table: &Table) -> Option<Vec<ConditionTemplate>> {
    let of = Of(table);
    let one = |condition| Some(vec![condition]);
    if is_constant(expression) {
        return of.known(expression);
    }
    match expression {
        Expression::Compare { comparison, left, right } => one(of.comparison(*comparison, left, right)?),
        Expression::And(parts) => {
            let parts = parts.iter().map(|part| conditions_of(part, table)).collect::<Option<Vec<_>>>()?;
            Some(parts.into_iter().flatten().collect())
        }
        Expression::Or(parts) => one(of.any_of(parts)?),
        Expression::InList { input, set, negated: false } => {
            let attribute = of.column(input)?;
            let wanted = of.data_type(attribute);
            let slot = |item: &Value| comparable(item, wanted).map(|_| Slot::Constant(item.clone()));
            let slots = set.values().iter().map(slot).collect::<Option<Vec<_>>>()?;
            one(of.test(attribute, TestTemplate::In(slots)))
        }
        Expression::IsNull { input, negated } => {
            let test = if *negated { TestTemplate::IsNotNull } else { TestTemplate::IsNull };
            one(of.test(plain(input)?, test))
        }
        Expression::Like { input, pattern, negated: false } => {
            let attribute = plain(input)?;
            let is_text = of.data_type(attribute) == DataType::Text;
            one(of.test(attribute, TestTemplate::StartsWith(Arc::from(pattern.prefix().filter(|_| is_text)?))))
        }
        Expression::Column { .. } => one(of.truth(expression, true)?),
        Expression::Not(input) if plain(input).is_some() => one(of.truth(input, false)?),
        _ => None,
    }
}

/// The attribute that an expression is.
fn plain(expression: &Expression) -> Option<AttributeId> {
    match expression {
        Expression::Column { index, .. } => Some(AttributeId(*index as u16)),
        _ => None,
    }
}

/// Whether an expression has neither columns nor parameters and gives the same each time.
fn is_constant(expression: &Expression) -> bool {
    let mut is_constant = !expression.is_volatile();
    expression.columns(&mut |_| is_constant = false);
    expression.parameters(&mut |_| is_constant = false);
    is_constant
}

/// The table that conditions are about.
#[derive(Clone, Copy)]
struct Of<'a>(&'a Table);

impl Of<'_> {
    fn data_type(self, attribute: AttributeId) -> DataType {
        self.0.columns[attribute.index()].sql_type.data_type()
    }

    fn test(self, attribute: AttributeId, test: TestTemplate) -> ConditionTemplate {
        ConditionTemplate { attribute, data_type: self.data_type(attribute), test }
    }

    /// An attribute, also below a cast that keeps values and order.
    fn column(self, expression: &Expression) -> Option<AttributeId> {
        match expression {
            Expression::Cast { input, data_type } => {
                let attribute = plain(input)?;
                widens(self.data_type(attribute), *data_type).then_some(attribute)
            }
            _ => plain(expression),
        }
    }

    /// A constant condition, unless computing it is an error.
    fn known(self, expression: &Expression) -> Option<Vec<ConditionTemplate>> {
        match expression.constant(&[]).ok()? {
            Value::Boolean(true) => Some(Vec::new()),
            _ => Some(vec![self.test(AttributeId(0), TestTemplate::Never)]),
        }
    }

    fn comparison(self, comparison: Comparison, left: &Expression, right: &Expression) -> Option<ConditionTemplate> {
        if let Some(attribute) = self.column(left) {
            if let Some(other) = plain(right) {
                let own = plain(left)?;
                let same = self.data_type(own) == self.data_type(other);
                return same.then(|| self.test(own, TestTemplate::CompareAttribute(comparison, other)));
            }
            return self.compare(comparison, attribute, right);
        }
        self.compare(flipped(comparison), self.column(right)?, left)
    }

    fn compare(self, comparison: Comparison, attribute: AttributeId, other: &Expression) -> Option<ConditionTemplate> {
        let slot = self.slot(other, attribute)?;
        Some(self.test(attribute, TestTemplate::Compare(comparison, slot)))
    }

    /// `column = a OR column = b`.
    fn any_of(self, parts: &[Expression]) -> Option<ConditionTemplate> {
        let mut slots = Vec::with_capacity(parts.len());
        let mut column = None;
        for part in parts {
            let Expression::Compare { comparison: Comparison::Equal, left, right } = part else { return None };
            let (own, constant) = match self.column(left) {
                Some(own) => (own, right),
                None => (self.column(right)?, left),
            };
            if *column.get_or_insert(own) != own {
                return None;
            }
            slots.push(self.slot(constant, own)?);
        }
        Some(self.test(column?, TestTemplate::In(slots)))
    }

    fn truth(self, expression: &Expression, value: bool) -> Option<ConditionTemplate> {
        let attribute = plain(expression)?;
        let test = TestTemplate::Compare(Comparison::Equal, Slot::Constant(Value::Boolean(value)));
        (self.data_type(attribute) == DataType::Boolean).then(|| self.test(attribute, test))
    }

    /// A slot for a value without columns that is compared with an attribute.
    fn slot(self, expression: &Expression, attribute: AttributeId) -> Option<Slot> {
        let wanted = self.data_type(attribute);
        if let Expression::Constant { value, .. } = expression {
            comparable(value, wanted)?;
            return Some(Slot::Constant(value.clone()));
        }
        let mut has_columns = false;
        expression.columns(&mut |_| has_columns = true);
        if has_columns || expression.is_volatile() {
            return None;
        }
        // Only the value is known later; its type must allow every value to be compared exactly.
        let given = expression.data_type();
        let exact = |data_type| {
            matches!(data_type, DataType::Int16 | DataType::Int32 | DataType::Int64 | DataType::Decimal { .. })
        };
        let comparable = given == wanted
            || (exact(given) && exact(wanted))
            || matches!(
                (given, wanted),
                (DataType::Float32, DataType::Float64) | (DataType::Date, DataType::Timestamp)
            );
        comparable.then(|| Slot::Expression(expression.clone()))
    }
}

/// Whether every value of one type is a value of the other, in the same order.
fn widens(from: DataType, to: DataType) -> bool {
    let digits = |data_type| match data_type {
        DataType::Int16 => Some((5_u8, 0_u8)),
        DataType::Int32 => Some((10, 0)),
        DataType::Int64 => Some((19, 0)),
        DataType::Decimal { precision, scale } => Some((precision, scale)),
        _ => None,
    };
    if from == to {
        return true;
    }
    match (from, to) {
        (DataType::Int16, DataType::Int32 | DataType::Int64) | (DataType::Int32, DataType::Int64) => true,
        (DataType::Float32, DataType::Float64) | (DataType::Date, DataType::Timestamp) => true,
        (_, DataType::Decimal { precision, scale }) => digits(from).is_some_and(|(from_precision, from_scale)| {
            scale >= from_scale && precision - scale >= from_precision - from_scale
        }),
        _ => false,
    }
}
