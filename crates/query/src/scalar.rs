//! Scalars: typed expressions over the columns of a relation.

use std::collections::BTreeSet;

use eris_operators::Expression;
use eris_storage::Value;

use crate::functions::Function;
use crate::numeric::{self, PRECISION_MAX};
use crate::operators::Signature;
use crate::types::{SqlType, TypeKind};

/// Microseconds of a day.
const MICROS_OF_DAY: i64 = 86_400_000_000;

/// A column of a statement: what a scan yields, or a projection computes. No two have the same number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ColumnId(pub u32);

/// An expression and its type.
#[derive(Clone, Debug)]
pub struct Scalar {
    /// What it is.
    pub kind: ScalarKind,
    /// The type of its values. [`SqlType::Unknown`] stands for a literal or parameter that has none yet.
    pub sql_type: SqlType,
}

/// What a scalar is made of.
#[derive(Clone, Debug)]
pub enum ScalarKind {
    /// A column of the rows below.
    Column(ColumnId),
    /// The same value for all rows.
    Constant(Value),
    /// A parameter of the statement, from 0.
    Parameter(usize),
    /// An operator on operands of the types that its signature names.
    Call {
        /// The operator, on operands of these types.
        operator: &'static Signature,
        /// Its operands.
        operands: Vec<Scalar>,
    },
    /// True if all are; three-valued.
    And(Vec<Scalar>),
    /// True if one is; three-valued.
    Or(Vec<Scalar>),
    /// Three-valued negation.
    Not(Box<Scalar>),
    /// IS NULL.
    IsNull {
        /// What is tested.
        input: Box<Scalar>,
        /// IS NOT NULL.
        negated: bool,
    },
    /// IS TRUE or IS FALSE.
    IsTruth {
        /// The truth value.
        input: Box<Scalar>,
        /// What it is to be.
        truth: bool,
        /// IS NOT.
        negated: bool,
    },
    /// IN with a list of constants of the input's type.
    InList {
        /// What is looked for.
        input: Box<Scalar>,
        /// Where it is looked for.
        items: Vec<Value>,
        /// NOT IN.
        negated: bool,
    },
    /// The result of the first branch whose condition is true, else `otherwise`, else NULL; all of one type.
    Case {
        /// Conditions and results.
        branches: Vec<(Scalar, Scalar)>,
        /// The result if no condition is true.
        otherwise: Option<Box<Scalar>>,
    },
    /// Another type for the same value.
    Cast(Box<Scalar>),
    /// A function of one value.
    Function {
        /// The function.
        function: Function,
        /// Its argument.
        input: Box<Scalar>,
    },
    /// What a planner outside has lowered already. Its columns are the numbers of [`ColumnId`]s.
    Lowered(Expression),
}

impl Scalar {
    /// A column.
    pub fn column(column: ColumnId, sql_type: SqlType) -> Self {
        Self { kind: ScalarKind::Column(column), sql_type }
    }

    /// A constant.
    pub fn constant(value: Value, sql_type: SqlType) -> Self {
        Self { kind: ScalarKind::Constant(value), sql_type }
    }

    /// A parameter.
    pub fn parameter(index: usize, sql_type: SqlType) -> Self {
        Self { kind: ScalarKind::Parameter(index), sql_type }
    }

    /// A condition.
    pub fn condition(kind: ScalarKind) -> Self {
        Self { kind, sql_type: SqlType::Boolean }
    }

    /// True if all parts are. The parts of an AND among them become parts of this one.
    pub fn and(parts: impl IntoIterator<Item = Scalar>) -> Self {
        let mut all = Vec::new();
        for part in parts {
            match part.kind {
                ScalarKind::And(own) => all.extend(own),
                kind => all.push(Self { kind, sql_type: part.sql_type }),
            }
        }
        if all.len() == 1 { all.remove(0) } else { Self::condition(ScalarKind::And(all)) }
    }

    /// True if one part is.
    pub fn or(parts: Vec<Scalar>) -> Self {
        Self::condition(ScalarKind::Or(parts))
    }

    /// Three-valued negation.
    #[must_use]
    pub fn negated(self) -> Self {
        Self::condition(ScalarKind::Not(Box::new(self)))
    }

    /// The same value as another type; of a constant the value itself where that loses nothing but digits after the
    /// point.
    #[must_use]
    pub fn cast(self, to: SqlType) -> Self {
        if self.sql_type == to {
            return self;
        }
        if let ScalarKind::Constant(value) = &self.kind
            && let Some(value) = converted(value, to)
        {
            return Self::constant(value, to);
        }
        Self { kind: ScalarKind::Cast(Box::new(self)), sql_type: to }
    }

    /// The same value as a type of another kind, with as many digits as it may need.
    #[must_use]
    pub fn cast_to_kind(self, kind: TypeKind) -> Self {
        if self.sql_type.kind() == kind {
            return self;
        }
        let to = match (kind, &self.kind) {
            (TypeKind::Numeric, ScalarKind::Constant(value)) => match integer_of(value) {
                Some(value) => numeric::digits_of_value(value, 0).unwrap_or(SqlType::NUMERIC),
                None => numeric_of(self.sql_type),
            },
            (TypeKind::Numeric, _) => numeric_of(self.sql_type),
            _ => kind.plain(),
        };
        self.cast(to)
    }

    /// The scalars that it is made of directly.
    pub fn operands(&self) -> Vec<&Scalar> {
        match &self.kind {
            ScalarKind::Column(_) | ScalarKind::Constant(_) | ScalarKind::Parameter(_) | ScalarKind::Lowered(_) => {
                Vec::new()
            }
            ScalarKind::Call { operands, .. } | ScalarKind::And(operands) | ScalarKind::Or(operands) => {
                operands.iter().collect()
            }
            ScalarKind::Not(input)
            | ScalarKind::IsNull { input, .. }
            | ScalarKind::IsTruth { input, .. }
            | ScalarKind::InList { input, .. }
            | ScalarKind::Function { input, .. }
            | ScalarKind::Cast(input) => vec![input],
            ScalarKind::Case { branches, otherwise } => {
                let branches = branches.iter().flat_map(|(condition, result)| [condition, result]);
                branches.chain(otherwise.as_deref()).collect()
            }
        }
    }

    /// How many scalars it is made of, itself included.
    pub fn size(&self) -> usize {
        let mut size = 0;
        let mut open = vec![self];
        while let Some(scalar) = open.pop() {
            size += 1;
            open.extend(scalar.operands());
        }
        size
    }

    /// Calls `found` with every column that it refers to.
    pub fn columns(&self, found: &mut impl FnMut(ColumnId)) {
        let mut open = vec![self];
        while let Some(scalar) = open.pop() {
            match &scalar.kind {
                ScalarKind::Column(column) => found(*column),
                ScalarKind::Lowered(expression) => {
                    expression.columns(&mut |index| found(ColumnId(index as u32)));
                }
                _ => open.extend(scalar.operands()),
            }
        }
    }

    /// Calls `visit` with every column that it refers to, to be changed.
    pub fn each_column(&mut self, visit: &mut dyn FnMut(&mut ColumnId)) {
        match &mut self.kind {
            ScalarKind::Column(column) => visit(column),
            ScalarKind::Lowered(expression) => {
                let moved = expression.moved(&mut |index| {
                    let mut column = ColumnId(index as u32);
                    visit(&mut column);
                    Some(column.0 as usize)
                });
                if let Some(moved) = moved {
                    *expression = moved;
                }
            }
            _ => {
                for operand in self.operands_mut() {
                    operand.each_column(visit);
                }
            }
        }
    }

    /// Calls `visit` with every parameter that it refers to, to be changed; not with those of what others lowered.
    pub fn each_parameter(&mut self, visit: &mut dyn FnMut(&mut usize)) {
        if let ScalarKind::Parameter(index) = &mut self.kind {
            visit(index);
        }
        for operand in self.operands_mut() {
            operand.each_parameter(visit);
        }
    }

    /// Calls `found` with every parameter that it refers to.
    pub fn parameters(&self, found: &mut dyn FnMut(usize)) {
        let mut open = vec![self];
        while let Some(scalar) = open.pop() {
            match &scalar.kind {
                ScalarKind::Parameter(index) => found(*index),
                ScalarKind::Lowered(expression) => expression.parameters(found),
                _ => open.extend(scalar.operands()),
            }
        }
    }

    /// Whether a part of it was lowered by others.
    pub fn has_lowered(&self) -> bool {
        match &self.kind {
            ScalarKind::Lowered(_) => true,
            _ => self.operands().into_iter().any(Self::has_lowered),
        }
    }

    /// Whether both are the same, part by part.
    pub fn is_same(&self, other: &Self) -> bool {
        self.sql_type == other.sql_type && self.kind.is_same(&other.kind)
    }

    /// With other scalars in the place of some of its parts: those that `replace` has one for are not looked into.
    #[must_use]
    pub fn replaced(mut self, replace: &dyn Fn(&Self) -> Option<Self>) -> Self {
        if let Some(other) = replace(&self) {
            return other;
        }
        for operand in self.operands_mut() {
            let part = std::mem::replace(operand, Self::constant(Value::Null, SqlType::Unknown));
            *operand = part.replaced(replace);
        }
        self
    }

    /// The scalars that it is made of directly, to be changed.
    fn operands_mut(&mut self) -> Vec<&mut Scalar> {
        match &mut self.kind {
            ScalarKind::Column(_) | ScalarKind::Constant(_) | ScalarKind::Parameter(_) | ScalarKind::Lowered(_) => {
                Vec::new()
            }
            ScalarKind::Call { operands, .. } | ScalarKind::And(operands) | ScalarKind::Or(operands) => {
                operands.iter_mut().collect()
            }
            ScalarKind::Not(input)
            | ScalarKind::IsNull { input, .. }
            | ScalarKind::IsTruth { input, .. }
            | ScalarKind::InList { input, .. }
            | ScalarKind::Function { input, .. }
            | ScalarKind::Cast(input) => vec![input],
            ScalarKind::Case { branches, otherwise } => {
                let branches = branches.iter_mut().flat_map(|(condition, result)| [condition, result]);
                branches.chain(otherwise.as_deref_mut()).collect()
            }
        }
    }

    /// Whether it may give another value for the same columns.
    pub fn is_volatile(&self) -> bool {
        match &self.kind {
            ScalarKind::Lowered(expression) => expression.is_volatile(),
            _ => self.operands().into_iter().any(Self::is_volatile),
        }
    }

    /// Whether it refers to a column.
    pub fn has_columns(&self) -> bool {
        let mut any = false;
        self.columns(&mut |_| any = true);
        any
    }

    /// The column that it is, also below casts that change nothing about how values are stored.
    pub fn kept_column(&self) -> Option<&Scalar> {
        match &self.kind {
            ScalarKind::Column(_) => Some(self),
            ScalarKind::Cast(input) if input.sql_type.data_type() == self.sql_type.data_type() => input.kept_column(),
            _ => None,
        }
    }

    /// Its value, if it is a constant.
    pub fn as_constant(&self) -> Option<&Value> {
        match &self.kind {
            ScalarKind::Constant(value) => Some(value),
            _ => None,
        }
    }

    /// The column that it is.
    pub fn as_column(&self) -> Option<ColumnId> {
        match &self.kind {
            ScalarKind::Column(column) => Some(*column),
            _ => None,
        }
    }

    /// The parts that all have to be true for it to be, each by itself.
    pub fn into_conjuncts(self) -> Vec<Scalar> {
        match self.kind {
            ScalarKind::And(parts) => parts,
            kind => vec![Self { kind, sql_type: self.sql_type }],
        }
    }

    /// The parts that all have to be true for it to be.
    pub fn conjuncts(&self) -> &[Scalar] {
        match &self.kind {
            ScalarKind::And(parts) => parts,
            _ => std::slice::from_ref(self),
        }
    }
}

/// The columns that scalars refer to.
pub fn columns_of<'s>(scalars: impl IntoIterator<Item = &'s Scalar>) -> BTreeSet<ColumnId> {
    let mut columns = BTreeSet::new();
    for scalar in scalars {
        scalar.columns(&mut |column| {
            columns.insert(column);
        });
    }
    columns
}

impl ScalarKind {
    fn is_same(&self, other: &Self) -> bool {
        let all = |one: &[Scalar], other: &[Scalar]| {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| one.is_same(other))
        };
        match (self, other) {
            (Self::Column(one), Self::Column(other)) => one == other,
            (Self::Constant(one), Self::Constant(other)) => one == other,
            (Self::Parameter(one), Self::Parameter(other)) => one == other,
            (Self::Call { operator, operands }, Self::Call { operator: other_operator, operands: other_operands }) => {
                operator == other_operator && all(operands, other_operands)
            }
            (Self::And(one), Self::And(other)) | (Self::Or(one), Self::Or(other)) => all(one, other),
            (Self::Not(one), Self::Not(other)) | (Self::Cast(one), Self::Cast(other)) => one.is_same(other),
            (Self::IsNull { input, negated }, Self::IsNull { input: other, negated: other_negated }) => {
                negated == other_negated && input.is_same(other)
            }
            (
                Self::IsTruth { input, truth, negated },
                Self::IsTruth { input: other, truth: other_truth, negated: other_negated },
            ) => (truth, negated) == (other_truth, other_negated) && input.is_same(other),
            (
                Self::InList { input, items, negated },
                Self::InList { input: other, items: other_items, negated: other_negated },
            ) => negated == other_negated && items == other_items && input.is_same(other),
            (
                Self::Case { branches, otherwise },
                Self::Case { branches: other_branches, otherwise: other_otherwise },
            ) => {
                let branch = |((when, then), (other_when, other_then)): (&(Scalar, Scalar), &(Scalar, Scalar))| {
                    when.is_same(other_when) && then.is_same(other_then)
                };
                let ends = match (otherwise, other_otherwise) {
                    (Some(one), Some(other)) => one.is_same(other),
                    (one, other) => one.is_none() && other.is_none(),
                };
                ends && branches.len() == other_branches.len() && branches.iter().zip(other_branches).all(branch)
            }
            (Self::Function { function, input }, Self::Function { function: other_function, input: other }) => {
                function == other_function && input.is_same(other)
            }
            // Expressions of others are not looked into.
            _ => false,
        }
    }
}

fn numeric_of(sql_type: SqlType) -> SqlType {
    match numeric::digits_of(sql_type) {
        Some((precision, scale)) => SqlType::Numeric { precision, scale },
        None => SqlType::NUMERIC,
    }
}

fn integer_of(value: &Value) -> Option<i128> {
    match value {
        Value::Int16(value) => Some(i128::from(*value)),
        Value::Int32(value) => Some(i128::from(*value)),
        Value::Int64(value) => Some(i128::from(*value)),
        _ => None,
    }
}

/// A constant as another type, if that needs no kernel and cannot fail.
fn converted(value: &Value, to: SqlType) -> Option<Value> {
    if value.is_null() {
        return Some(Value::Null);
    }
    match (value, to) {
        (Value::Int16(_) | Value::Int32(_) | Value::Int64(_), _) => of_integer(integer_of(value)?, to),
        (Value::Decimal { unscaled, scale }, SqlType::Double) => {
            format!("{unscaled}e-{scale}").parse().ok().map(Value::Float64)
        }
        (Value::Decimal { unscaled, scale }, SqlType::Numeric { precision, scale: wanted }) => {
            rescaled(*unscaled, *scale, precision, wanted)
        }
        (Value::Float32(value), SqlType::Double) => Some(Value::Float64(f64::from(*value))),
        (Value::Date(days), SqlType::Timestamp) => i64::from(*days).checked_mul(MICROS_OF_DAY).map(Value::Timestamp),
        (Value::Text(_), SqlType::Text | SqlType::Varchar(None) | SqlType::Char(None)) => Some(value.clone()),
        _ => None,
    }
}

fn of_integer(value: i128, to: SqlType) -> Option<Value> {
    match to {
        SqlType::SmallInt => i16::try_from(value).ok().map(Value::Int16),
        SqlType::Integer => i32::try_from(value).ok().map(Value::Int32),
        SqlType::BigInt => i64::try_from(value).ok().map(Value::Int64),
        SqlType::Double => Some(Value::Float64(value as f64)),
        SqlType::Numeric { precision, scale } => rescaled(value, 0, precision, scale),
        _ => None,
    }
}

/// A decimal with other digits after the point, rounded half away from zero.
fn rescaled(unscaled: i128, from: u8, precision: u8, to: u8) -> Option<Value> {
    let power = |digits: u8| 10_i128.checked_pow(u32::from(digits));
    let unscaled = if to >= from {
        unscaled.checked_mul(power(to - from)?)?
    } else {
        let divisor = power(from - to)?;
        let (quotient, remainder) = (unscaled / divisor, unscaled % divisor);
        if remainder.abs() >= divisor - remainder.abs() { quotient + unscaled.signum() } else { quotient }
    };
    let fits = unscaled.unsigned_abs() < power(precision.min(PRECISION_MAX))?.unsigned_abs();
    fits.then_some(Value::Decimal { unscaled, scale: to })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decimal(unscaled: i128, scale: u8) -> Value {
        Value::Decimal { unscaled, scale }
    }

    #[test]
    fn constants_are_cast_at_once_where_they_keep_their_value() {
        let numeric = |precision, scale| SqlType::Numeric { precision, scale };
        for (value, to, expected) in [
            (Value::Int32(7), SqlType::BigInt, Some(Value::Int64(7))),
            (Value::Int64(70_000), SqlType::SmallInt, None),
            (Value::Int32(7), numeric(3, 2), Some(decimal(700, 2))),
            (Value::Int32(70), numeric(3, 2), None),
            (decimal(125, 2), numeric(2, 1), Some(decimal(13, 1))),
            (decimal(-125, 2), numeric(2, 1), Some(decimal(-13, 1))),
            (decimal(124, 2), numeric(2, 1), Some(decimal(12, 1))),
            (decimal(996, 2), numeric(2, 1), None),
            (decimal(11, 1), SqlType::Double, Some(Value::Float64(1.1))),
            (Value::Float32(0.5), SqlType::Double, Some(Value::Float64(0.5))),
            (Value::Date(1), SqlType::Timestamp, Some(Value::Timestamp(86_400_000_000))),
            (Value::Text("a".into()), SqlType::Text, Some(Value::Text("a".into()))),
            (Value::Text("a".into()), SqlType::Varchar(Some(3)), None),
            (Value::Null, SqlType::Date, Some(Value::Null)),
        ] {
            assert_eq!(converted(&value, to), expected, "{value} as {to}");
        }
    }

    #[test]
    fn a_cast_of_a_column_stays_a_cast_and_knows_its_digits() {
        let column = Scalar::column(ColumnId(3), SqlType::Integer).cast_to_kind(TypeKind::Numeric);
        assert_eq!(column.sql_type, SqlType::Numeric { precision: 10, scale: 0 });
        assert!(matches!(column.kind, ScalarKind::Cast(_)) && column.has_columns());
        let constant = Scalar::constant(Value::Int32(120), SqlType::Integer).cast_to_kind(TypeKind::Numeric);
        assert_eq!(constant.sql_type, SqlType::Numeric { precision: 3, scale: 0 });
        assert_eq!(constant.as_constant(), Some(&decimal(120, 0)));
    }

    #[test]
    fn an_and_of_ands_is_one() {
        let part = |at| Scalar::column(ColumnId(at), SqlType::Boolean);
        let both = Scalar::and([Scalar::and([part(0), part(1)]), part(2)]);
        assert_eq!(both.conjuncts().len(), 3);
        assert!(matches!(Scalar::and([part(0)]).kind, ScalarKind::Column(ColumnId(0))));
    }
}
