//! Expressions over a batch.
//!
//! An expression is made once, when a statement is planned; parameters are slots that each execution fills. Evaluating
//! gives a [`Datum`]: a column, or one value that stands for all rows, so that constants are never spread out.
//!
//! ```text
//!   evaluate_on(rows)      a batch, or some rows of it: only their values are copied, of columns that are asked for
//!     decimals             64 bits within the expression where the values allow it ("narrow"), whatever the type
//!     texts                by their views; LIKE and the like once per distinct text where texts repeat
//!     AND, OR, CASE        later parts for the rows that need them
//! ```
//! Everything is computed by a loop per node over whole columns, see [`instructions`].

pub(crate) mod bits;
mod case;
mod cast;
pub(crate) mod compare;
mod cost;
mod dates;
mod display;
pub(crate) mod instructions;
mod like;
mod membership;
mod merge;
mod rows;
mod search;
mod substring;
#[cfg(test)]
mod tests;
mod texts;

use std::fmt;
use std::sync::Arc;

use eris_storage::{Batch, Bitmap, Column, Comparison, DataType, Value, Values};

use crate::arithmetic::decimals::{self, Operand, in_full_width};
use crate::arithmetic::{self, ArithmeticOperator};
use crate::error::OperatorError;
use crate::logic;
pub use compare::flipped;
pub use dates::DatePart;
pub use like::LikePattern;
pub use membership::ValueSet;
pub(crate) use rows::Rows;
pub use substring::Span;
pub(crate) use texts::by_dictionary;

/// An expression of the layer above, evaluated on whole batches.
pub trait ForeignExpr: Send + Sync + fmt::Debug + fmt::Display {
    /// One value per row of `input`; `parameters` are the values of this execution.
    fn evaluate(&self, input: &Batch, parameters: &[Value]) -> Result<Column, OperatorError>;

    /// The type of the result.
    fn data_type(&self) -> DataType;

    /// The positions of the columns that it reads.
    fn columns(&self) -> &[usize];

    /// The parameters that it reads, with their types.
    fn parameters(&self) -> &[(usize, DataType)];

    /// The same over columns at other positions, as many and in this order.
    fn over(&self, columns: Box<[usize]>) -> Arc<dyn ForeignExpr>;

    /// Whether it may give another result for the same values.
    fn is_volatile(&self) -> bool;
}

/// An expression.
#[derive(Clone, Debug)]
pub enum Expression {
    /// A column of the input, by position.
    Column {
        /// Position.
        index: usize,
        /// Its type.
        data_type: DataType,
    },
    /// The same value for all rows.
    Constant {
        /// The value.
        value: Value,
        /// Its type, also when the value is NULL.
        data_type: DataType,
    },
    /// A parameter of the statement, from 0.
    Parameter {
        /// Which.
        index: usize,
        /// The type it is bound with.
        data_type: DataType,
    },
    /// Checked arithmetic on operands of one type (decimals may differ in precision and scale).
    Arithmetic {
        /// Which.
        operator: ArithmeticOperator,
        /// Left operand.
        left: Box<Expression>,
        /// Right operand.
        right: Box<Expression>,
        /// Type of the result.
        data_type: DataType,
    },
    /// A comparison of operands of one type.
    Compare {
        /// Which.
        comparison: Comparison,
        /// Left operand.
        left: Box<Expression>,
        /// Right operand.
        right: Box<Expression>,
    },
    /// True if all are; three-valued. See [`Expression::and`].
    And(Box<[Expression]>),
    /// True if one is; three-valued. See [`Expression::or`].
    Or(Box<[Expression]>),
    /// Three-valued negation.
    Not(Box<Expression>),
    /// IS NULL, or IS NOT NULL if negated.
    IsNull {
        /// What is tested.
        input: Box<Expression>,
        /// IS NOT NULL.
        negated: bool,
    },
    /// IS TRUE or IS FALSE; never NULL.
    IsTruth {
        /// The truth value.
        input: Box<Expression>,
        /// What it is to be.
        truth: bool,
        /// IS NOT.
        negated: bool,
    },
    /// IS DISTINCT FROM, or IS NOT DISTINCT FROM: a comparison to which NULL is a value.
    Distinct {
        /// Left operand.
        left: Box<Expression>,
        /// Right operand.
        right: Box<Expression>,
        /// IS NOT DISTINCT FROM.
        same: bool,
    },
    /// The result of the first branch whose condition is true.
    Case {
        /// Conditions and results.
        branches: Box<[(Expression, Expression)]>,
        /// The result if no condition is true; `None`: NULL.
        otherwise: Option<Box<Expression>>,
        /// The type that all results have.
        data_type: DataType,
    },
    /// LIKE or ILIKE with a constant pattern.
    Like {
        /// The text.
        input: Box<Expression>,
        /// The pattern.
        pattern: Arc<LikePattern>,
        /// NOT LIKE.
        negated: bool,
    },
    /// IN with a list of constants.
    InList {
        /// What is looked for.
        input: Box<Expression>,
        /// Where it is looked for.
        set: Arc<ValueSet>,
        /// NOT IN.
        negated: bool,
    },
    /// A part of a date or timestamp, as an integer.
    Extract {
        /// Which part.
        part: DatePart,
        /// The date or timestamp.
        input: Box<Expression>,
    },
    /// A part of a text, at constant bounds.
    Substring {
        /// The text.
        input: Box<Expression>,
        /// The bounds.
        span: Span,
    },
    /// A number as another type of them; checked, and rounded half away from zero. A date as a timestamp. See
    /// [`Expression::cast`].
    Cast {
        /// The number or date.
        input: Box<Expression>,
        /// The type.
        data_type: DataType,
    },
    /// Anything else.
    Foreign(Arc<dyn ForeignExpr>),
}

/// What an expression gives: a column, or one value for all rows.
#[derive(Clone, Debug)]
pub enum Datum {
    /// One value per row.
    Column(Column),
    /// The same value for all rows.
    Constant(Value),
}

/// What [`Expression::evaluate_narrow`] gives.
#[derive(Clone, Debug)]
pub struct Narrowed {
    /// The values. A column of decimals of any type holds 64-bit values (`Values::Int64`) if they all fit.
    pub datum: Datum,
    /// Of a column of 64-bit integers or decimals, where all values lie, ends included, also those under NULLs.
    pub range: Option<(i64, i64)>,
}

impl Datum {
    /// As a column of `rows` values.
    pub fn into_column(self, data_type: DataType, rows: usize) -> Column {
        match self {
            Self::Column(column) => column,
            Self::Constant(value) => Column::constant(data_type, &value, rows),
        }
    }

    /// Which rows are not NULL, if some are.
    pub(crate) fn validity(&self) -> Option<&Bitmap> {
        match self {
            Self::Column(column) => column.validity.as_ref(),
            Self::Constant(_) => None,
        }
    }

    /// Applies what works on a column of a type.
    fn map(
        self,
        data_type: DataType,
        apply: impl FnOnce(&Column) -> Result<Column, OperatorError>,
    ) -> Result<Self, OperatorError> {
        match self {
            Self::Column(column) => apply(&column).map(Self::Column),
            Self::Constant(value) => {
                apply(&Column::constant(data_type, &value, 1)).map(|column| Self::Constant(column.value(0)))
            }
        }
    }

    /// Applies a test of values that are not NULL.
    fn test(
        self,
        data_type: DataType,
        negated: bool,
        test: impl FnOnce(&Column) -> Result<Vec<u8>, OperatorError>,
    ) -> Result<Self, OperatorError> {
        self.map(data_type, |column| {
            let values = Values::Boolean(test(column)?.into());
            Ok(Column { data_type: DataType::Boolean, validity: column.validity.clone(), values })
        })
        .map(|found| if negated { logic::not(found) } else { found })
    }
}

impl Expression {
    /// AND, its parts in the order in which they are best computed.
    pub fn and(parts: impl Into<Vec<Expression>>) -> Self {
        let mut parts = parts.into();
        cost::order(&mut parts);
        Self::And(parts.into())
    }

    /// OR, its parts in the order in which they are best computed.
    pub fn or(parts: impl Into<Vec<Expression>>) -> Self {
        let mut parts = parts.into();
        cost::order(&mut parts);
        Self::Or(parts.into())
    }

    /// A value where a condition is true, else NULL. Where it is not, the value is not computed.
    #[must_use]
    pub fn only_where(condition: Self, value: Self) -> Self {
        let data_type = value.data_type();
        Self::Case { branches: [(condition, value)].into(), otherwise: None, data_type }
    }

    /// A cast between numbers, or of a date to a timestamp; the expression itself if there is no kernel for it.
    pub fn cast(self, data_type: DataType) -> Result<Self, Self> {
        let from = self.data_type();
        if from == data_type {
            Ok(self)
        } else if cast::is_native(from, data_type) {
            Ok(Self::Cast { input: Box::new(self), data_type })
        } else {
            Err(self)
        }
    }

    /// The type of the result.
    pub fn data_type(&self) -> DataType {
        match self {
            Self::Column { data_type, .. }
            | Self::Constant { data_type, .. }
            | Self::Parameter { data_type, .. }
            | Self::Arithmetic { data_type, .. }
            | Self::Case { data_type, .. }
            | Self::Cast { data_type, .. } => *data_type,
            Self::Compare { .. }
            | Self::And(_)
            | Self::Or(_)
            | Self::Not(_)
            | Self::IsNull { .. }
            | Self::IsTruth { .. }
            | Self::Distinct { .. }
            | Self::Like { .. }
            | Self::InList { .. } => DataType::Boolean,
            Self::Extract { .. } => DataType::Int32,
            Self::Substring { input, .. } => input.data_type(),
            Self::Foreign(foreign) => foreign.data_type(),
        }
    }

    /// The expressions that it is made of directly.
    pub fn operands(&self) -> Vec<&Expression> {
        match self {
            Self::Column { .. } | Self::Constant { .. } | Self::Parameter { .. } | Self::Foreign(_) => Vec::new(),
            Self::Arithmetic { left, right, .. }
            | Self::Compare { left, right, .. }
            | Self::Distinct { left, right, .. } => vec![left, right],
            Self::And(parts) | Self::Or(parts) => parts.iter().collect(),
            Self::Not(input)
            | Self::IsNull { input, .. }
            | Self::IsTruth { input, .. }
            | Self::Like { input, .. }
            | Self::InList { input, .. }
            | Self::Extract { input, .. }
            | Self::Substring { input, .. }
            | Self::Cast { input, .. } => vec![input],
            Self::Case { branches, otherwise, .. } => {
                let branches = branches.iter().flat_map(|(condition, result)| [condition, result]);
                branches.chain(otherwise.as_deref()).collect()
            }
        }
    }

    /// The expressions that it is made of directly, to be changed.
    fn operands_mut(&mut self) -> Vec<&mut Expression> {
        match self {
            Self::Column { .. } | Self::Constant { .. } | Self::Parameter { .. } | Self::Foreign(_) => Vec::new(),
            Self::Arithmetic { left, right, .. }
            | Self::Compare { left, right, .. }
            | Self::Distinct { left, right, .. } => vec![left, right],
            Self::And(parts) | Self::Or(parts) => parts.iter_mut().collect(),
            Self::Not(input)
            | Self::IsNull { input, .. }
            | Self::IsTruth { input, .. }
            | Self::Like { input, .. }
            | Self::InList { input, .. }
            | Self::Extract { input, .. }
            | Self::Substring { input, .. }
            | Self::Cast { input, .. } => vec![input],
            Self::Case { branches, otherwise, .. } => {
                let branches = branches.iter_mut().flat_map(|(condition, result)| [condition, result]);
                branches.chain(otherwise.as_deref_mut()).collect()
            }
        }
    }

    /// Calls `found` with the position of every column that it reads.
    pub fn columns(&self, found: &mut dyn FnMut(usize)) {
        let mut open = vec![self];
        while let Some(expression) = open.pop() {
            match expression {
                Self::Column { index, .. } => found(*index),
                Self::Foreign(foreign) => foreign.columns().iter().for_each(|index| found(*index)),
                other => open.extend(other.operands()),
            }
        }
    }

    /// Calls `found` with every parameter that it reads.
    pub fn parameters(&self, found: &mut dyn FnMut(usize)) {
        let mut open = vec![self];
        while let Some(expression) = open.pop() {
            match expression {
                Self::Parameter { index, .. } => found(*index),
                Self::Foreign(foreign) => foreign.parameters().iter().for_each(|(index, _)| found(*index)),
                other => open.extend(other.operands()),
            }
        }
    }

    /// The same over columns at other positions; `None` if `place` knows none for one of them.
    pub fn moved(&self, place: &mut dyn FnMut(usize) -> Option<usize>) -> Option<Self> {
        let mut moved = self.clone();
        let mut open = vec![&mut moved];
        while let Some(expression) = open.pop() {
            match expression {
                Self::Column { index, .. } => *index = place(*index)?,
                Self::Foreign(foreign) => {
                    let columns = foreign.columns().iter().map(|index| place(*index)).collect::<Option<_>>()?;
                    *foreign = foreign.over(columns);
                }
                other => open.extend(other.operands_mut()),
            }
        }
        Some(moved)
    }

    /// Whether it may give another result for the same values.
    pub fn is_volatile(&self) -> bool {
        let mut open = vec![self];
        while let Some(expression) = open.pop() {
            if let Self::Foreign(foreign) = expression
                && foreign.is_volatile()
            {
                return true;
            }
            open.extend(expression.operands());
        }
        false
    }

    /// Evaluates on all rows of a batch.
    pub fn evaluate(&self, input: &Batch, parameters: &[Value]) -> Result<Datum, OperatorError> {
        Ok(match self.evaluate_on(&Rows::all(input, parameters))? {
            Datum::Column(column) => Datum::Column(in_full_width(column)),
            constant @ Datum::Constant(_) => constant,
        })
    }

    /// Evaluates on all rows of a batch, decimals in 64 bits wherever they fit, and says where they lie.
    pub fn evaluate_narrow(&self, input: &Batch, parameters: &[Value]) -> Result<Narrowed, OperatorError> {
        let rows = Rows::all(input, parameters);
        let data_type = self.data_type();
        if matches!(data_type, DataType::Decimal { .. }) {
            let mut operand = self.decimals(&rows)?.narrow();
            let range = operand.range();
            return Ok(Narrowed { datum: operand.into_datum(data_type), range });
        }
        let datum = self.evaluate_on(&rows)?;
        let range = match &datum {
            Datum::Column(Column { values: Values::Int64(values), .. }) => Some(decimals::range_of(values)),
            Datum::Column(_) | Datum::Constant(_) => None,
        };
        Ok(Narrowed { datum, range })
    }

    /// The rows of a batch, or of those `among` it, for which a condition is true.
    pub fn true_rows(
        &self,
        input: &Batch,
        parameters: &[Value],
        among: Option<&[u32]>,
    ) -> Result<Vec<u32>, OperatorError> {
        let rows = Rows::of(input, parameters, among);
        let found = logic::true_rows(&self.evaluate_on(&rows)?, rows.len());
        Ok(if among.is_some() { rows.positions(&found) } else { found })
    }

    /// Evaluates on some rows. A column of wide decimals may be a narrow one.
    pub(crate) fn evaluate_on(&self, rows: &Rows<'_>) -> Result<Datum, OperatorError> {
        Ok(match self {
            Self::Column { index, .. } => Datum::Column(rows.column(*index)),
            Self::Constant { value, .. } => Datum::Constant(value.clone()),
            Self::Parameter { index, .. } => Datum::Constant(rows.parameter(*index)?.clone()),
            Self::Arithmetic { data_type: data_type @ DataType::Decimal { .. }, .. }
            | Self::Cast { data_type: data_type @ DataType::Decimal { .. }, .. } => {
                self.decimals(rows)?.into_datum(*data_type)
            }
            Self::Arithmetic { operator, left, right, data_type } => {
                let left = left.evaluate_on(rows)?;
                let right = right.evaluate_on(rows)?;
                arithmetic::evaluate(*operator, &left, &right, *data_type, rows.len())?
            }
            Self::Cast { input, data_type } => {
                input.evaluate_on(rows)?.map(input.data_type(), |column| cast::cast(column, *data_type))?
            }
            Self::Compare { comparison, left, right } => {
                let left = left.evaluate_on(rows)?;
                let right = right.evaluate_on(rows)?;
                compare::compare(*comparison, &left, &right)
            }
            Self::And(parts) => logic::all(parts, rows)?,
            Self::Or(parts) => logic::any(parts, rows)?,
            Self::Not(inner) => logic::not(inner.evaluate_on(rows)?),
            Self::IsNull { input, negated } => logic::is_null(&input.evaluate_on(rows)?, *negated),
            Self::IsTruth { input, truth, negated } => logic::is_truth(&input.evaluate_on(rows)?, *truth, *negated),
            Self::Distinct { left, right, same } => {
                let left = left.evaluate_on(rows)?;
                logic::is_distinct(&left, &right.evaluate_on(rows)?, *same, rows.len())
            }
            Self::Case { branches, otherwise, data_type } => {
                case::evaluate(branches, otherwise.as_deref(), *data_type, rows)?
            }
            Self::Like { input, pattern, negated } => {
                input.evaluate_on(rows)?.test(input.data_type(), *negated, |column| match &column.values {
                    Values::Bytes(views) => Ok(pattern.test(views)),
                    _ => Err(OperatorError::Internal(format!("LIKE of {}", column.data_type))),
                })?
            }
            Self::InList { input, set, negated } => {
                input.evaluate_on(rows)?.map(input.data_type(), |column| in_list(column, set, *negated))?
            }
            Self::Extract { part, input } => {
                input.evaluate_on(rows)?.map(input.data_type(), |column| dates::extract(*part, column))?
            }
            Self::Substring { input, span } => {
                input.evaluate_on(rows)?.map(input.data_type(), |column| substring::substring(column, *span))?
            }
            Self::Foreign(foreign) => Datum::Column(foreign.evaluate(&rows.batch(), rows.parameters())?),
        })
    }

    /// Evaluates decimals on some rows, for arithmetic.
    fn decimals(&self, rows: &Rows<'_>) -> Result<Operand, OperatorError> {
        match self {
            Self::Arithmetic { operator, left, right, data_type: data_type @ DataType::Decimal { .. } } => {
                let left = left.decimals(rows)?;
                decimals::evaluate(*operator, left, right.decimals(rows)?, *data_type)
            }
            Self::Cast { input, data_type: data_type @ DataType::Decimal { .. } } => {
                let operand = match (input.data_type(), input) {
                    (DataType::Decimal { .. }, input) => input.decimals(rows)?,
                    (_, input) => match input.evaluate_on(rows)? {
                        Datum::Column(column) => cast::as_decimals(&column)?,
                        Datum::Constant(value) => Operand::of_integer(&value)?,
                    },
                };
                decimals::cast(operand, *data_type)
            }
            other => Operand::of(other.evaluate_on(rows)?),
        }
    }

    /// Evaluates on all rows of a batch, always as a column.
    pub fn column(&self, input: &Batch, parameters: &[Value]) -> Result<Column, OperatorError> {
        Ok(self.evaluate(input, parameters)?.into_column(self.data_type(), input.rows))
    }

    /// The one value of an expression that refers to no column.
    pub fn constant(&self, parameters: &[Value]) -> Result<Value, OperatorError> {
        let no_columns = Batch::new(Vec::new(), 1);
        match self.evaluate(&no_columns, parameters)? {
            Datum::Constant(value) => Ok(value),
            Datum::Column(column) => Ok(column.value(0)),
        }
    }
}

/// Whether each value is (or is not) in a list; NULL where that depends on a NULL.
fn in_list(column: &Column, set: &ValueSet, negated: bool) -> Result<Column, OperatorError> {
    let found = set.test(column)?;
    let mut validity = column.validity.clone();
    if set.has_null() {
        let found = bits::bitmap_of(&found);
        validity = bits::both_of(validity.as_ref(), Some(&found));
    }
    let values = if negated { found.into_iter().map(|found| found ^ 1).collect() } else { found };
    Ok(Column { data_type: DataType::Boolean, validity, values: Values::Boolean(values.into()) })
}
