//! Which parts of a condition a partition evaluates itself.
//!
//! ```text
//!   column op constant      constant: a literal, a parameter, or an expression of those
//!   column IN, IS [NOT] NULL, LIKE 'prefix%', boolean column, column op column of one type,
//!   column = constant OR the same column = another one
//! ```
//! A cast to a wider type around the column is looked through: the constant is narrowed instead, with its order kept
//! (see [`crate::native::comparable`]).

use std::sync::Arc;

use eris_operators::Expression;
use eris_query::{ColumnId, Kernel, Scalar, ScalarKind, lower};
use eris_storage::{AttributeId, Comparison, DataType, Value};

use super::never;
use crate::catalog::Table;
use crate::native::{ConditionTemplate, Slot, TestTemplate, comparable};
use crate::plan::lower::{flipped, widens};

type Attributes<'a> = &'a dyn Fn(ColumnId) -> Option<AttributeId>;

/// The conditions that are equivalent to one over a table's columns; `None` if there are none.
pub(super) fn condition_of(
    scalar: &Scalar,
    table: &Table,
    attributes: Attributes<'_>,
) -> Option<Vec<ConditionTemplate>> {
    let of = Of { table, attributes };
    let one = |condition| Some(vec![condition]);
    match &scalar.kind {
        ScalarKind::Call { operator, operands } => match (operator.kernel, operands.as_slice()) {
            (Kernel::Compare(comparison), [left, right]) => one(of.comparison(comparison, left, right)?),
            (Kernel::Like { negated: false, case_insensitive: false }, [input, pattern]) => {
                one(of.prefix(input, pattern)?)
            }
            _ => None,
        },
        ScalarKind::Or(parts) => one(of.any_of(parts)?),
        ScalarKind::InList { input, items, negated: false } => {
            let attribute = of.plain(input)?;
            let wanted = of.data_type(attribute);
            let slot = |item: &Value| comparable(item, wanted).map(|_| Slot::Constant(item.clone()));
            let slots = items.iter().map(slot).collect::<Option<Vec<_>>>()?;
            one(of.test(attribute, TestTemplate::In(slots)))
        }
        ScalarKind::IsNull { input, negated } => {
            let test = if *negated { TestTemplate::IsNotNull } else { TestTemplate::IsNull };
            one(of.test(of.plain(input)?, test))
        }
        ScalarKind::Column(_) => one(of.truth(scalar, true)?),
        ScalarKind::Not(input) => one(of.truth(input, false)?),
        ScalarKind::Constant(Value::Boolean(true)) => Some(Vec::new()),
        ScalarKind::Constant(Value::Boolean(false) | Value::Null) => one(never(of.data_type(AttributeId(0)))),
        _ => None,
    }
}

/// The same for a condition that is known already: it has neither columns nor parameters, and computing it is no error.
pub(super) fn known(scalar: &Scalar, table: &Table) -> Option<Vec<ConditionTemplate>> {
    let mut open = vec![scalar];
    while let Some(part) = open.pop() {
        if matches!(part.kind, ScalarKind::Column(_) | ScalarKind::Parameter(_)) {
            return None;
        }
        open.extend(part.operands());
    }
    let value = lower(scalar, &|_| None).ok()?.constant(&[]).ok()?;
    let first = Of { table, attributes: &|_| None }.data_type(AttributeId(0));
    Some(if matches!(value, Value::Boolean(true)) { Vec::new() } else { vec![never(first)] })
}

/// The table that conditions are about.
#[derive(Clone, Copy)]
struct Of<'a> {
    table: &'a Table,
    attributes: Attributes<'a>,
}

impl Of<'_> {
    fn data_type(self, attribute: AttributeId) -> DataType {
        self.table.columns[attribute.index()].sql_type.data_type()
    }

    fn test(self, attribute: AttributeId, test: TestTemplate) -> ConditionTemplate {
        ConditionTemplate { attribute, data_type: self.data_type(attribute), test }
    }

    /// A column of the table, as it is stored.
    fn plain(self, scalar: &Scalar) -> Option<AttributeId> {
        match scalar.kept_column()?.kind {
            ScalarKind::Column(column) => (self.attributes)(column),
            _ => None,
        }
    }

    /// A column of the table, also below a cast that keeps values and order.
    fn column(self, scalar: &Scalar) -> Option<AttributeId> {
        match &scalar.kind {
            ScalarKind::Cast(input) => {
                let attribute = self.plain(input)?;
                widens(self.data_type(attribute), scalar.sql_type.data_type()).then_some(attribute)
            }
            _ => self.plain(scalar),
        }
    }

    fn comparison(self, comparison: Comparison, left: &Scalar, right: &Scalar) -> Option<ConditionTemplate> {
        if let Some(attribute) = self.column(left) {
            if let Some(other) = self.plain(right) {
                let own = self.plain(left)?;
                let same = self.data_type(own) == self.data_type(other);
                return same.then(|| self.test(own, TestTemplate::CompareAttribute(comparison, other)));
            }
            return self.compare(comparison, attribute, right);
        }
        self.compare(flipped(comparison), self.column(right)?, left)
    }

    fn compare(self, comparison: Comparison, attribute: AttributeId, other: &Scalar) -> Option<ConditionTemplate> {
        let slot = self.slot(other, attribute)?;
        Some(self.test(attribute, TestTemplate::Compare(comparison, slot)))
    }

    /// `column = a OR column = b`.
    fn any_of(self, parts: &[Scalar]) -> Option<ConditionTemplate> {
        let mut slots = Vec::with_capacity(parts.len());
        let mut column = None;
        for part in parts {
            let ScalarKind::Call { operator, operands } = &part.kind else { return None };
            let (Kernel::Compare(Comparison::Equal), [left, right]) = (operator.kernel, operands.as_slice()) else {
                return None;
            };
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

    /// LIKE 'text%'.
    fn prefix(self, input: &Scalar, pattern: &Scalar) -> Option<ConditionTemplate> {
        let attribute = self.plain(input)?;
        let Value::Text(pattern) = pattern.as_constant()? else { return None };
        let prefix = pattern.strip_suffix('%')?;
        let is_plain = !prefix.contains(['%', '_', '\\']) && self.data_type(attribute) == DataType::Text;
        is_plain.then(|| self.test(attribute, TestTemplate::StartsWith(Arc::from(prefix))))
    }

    fn truth(self, scalar: &Scalar, value: bool) -> Option<ConditionTemplate> {
        let attribute = self.plain(scalar)?;
        let test = TestTemplate::Compare(Comparison::Equal, Slot::Constant(Value::Boolean(value)));
        (self.data_type(attribute) == DataType::Boolean).then(|| self.test(attribute, test))
    }

    /// A slot for a value without columns that is compared with a column.
    fn slot(self, scalar: &Scalar, attribute: AttributeId) -> Option<Slot> {
        let wanted = self.data_type(attribute);
        if let Some(value) = scalar.as_constant() {
            comparable(value, wanted)?;
            return Some(Slot::Constant(value.clone()));
        }
        if scalar.has_columns() {
            return None;
        }
        let expression: Expression = lower(scalar, &|_| None).ok()?;
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
        comparable.then_some(Slot::Expression(expression))
    }
}
