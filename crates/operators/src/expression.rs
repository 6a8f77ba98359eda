//! Expressions over a batch.
//!
//! An expression is made once, when a statement is planned; parameters are slots that each execution fills. Evaluating
//! gives a [`Datum`]: a column, or one value that stands for all rows, so that constants are never spread out.

use std::fmt;
use std::sync::Arc;

use eris_storage::{Batch, Column, Comparison, DataType, Value};

use crate::arithmetic::{self, ArithmeticOperator};
use crate::error::OperatorError;
use crate::logic;

/// An expression of the layer above, evaluated on whole batches.
pub trait ForeignExpr: Send + Sync + fmt::Debug + fmt::Display {
    /// One value per row of `input`; `parameters` are the values of this execution.
    fn evaluate(&self, input: &Batch, parameters: &[Value]) -> Result<Column, OperatorError>;

    /// The type of the result.
    fn data_type(&self) -> DataType;
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
    /// Checked arithmetic on operands of one type (decimals may differ in scale).
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
    /// True if all are; three-valued.
    And(Box<[Expression]>),
    /// True if one is; three-valued.
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

impl Datum {
    /// As a column of `rows` values.
    pub fn into_column(self, data_type: DataType, rows: usize) -> Column {
        match self {
            Self::Column(column) => column,
            Self::Constant(value) => Column::constant(data_type, &value, rows),
        }
    }
}

impl Expression {
    /// The type of the result.
    pub fn data_type(&self) -> DataType {
        match self {
            Self::Column { data_type, .. }
            | Self::Constant { data_type, .. }
            | Self::Parameter { data_type, .. }
            | Self::Arithmetic { data_type, .. } => *data_type,
            Self::Compare { .. } | Self::And(_) | Self::Or(_) | Self::Not(_) | Self::IsNull { .. } => DataType::Boolean,
            Self::Foreign(foreign) => foreign.data_type(),
        }
    }

    /// Evaluates on all rows of a batch.
    pub fn evaluate(&self, input: &Batch, parameters: &[Value]) -> Result<Datum, OperatorError> {
        Ok(match self {
            Self::Column { index, .. } => Datum::Column(input.columns[*index].clone()),
            Self::Constant { value, .. } => Datum::Constant(value.clone()),
            Self::Parameter { index, .. } => Datum::Constant(parameter(parameters, *index)?.clone()),
            Self::Arithmetic { operator, left, right, data_type } => {
                let left = left.evaluate(input, parameters)?;
                let right = right.evaluate(input, parameters)?;
                arithmetic::evaluate(*operator, &left, &right, *data_type, input.rows)?
            }
            Self::Compare { comparison, left, right } => {
                let left = left.evaluate(input, parameters)?;
                let right = right.evaluate(input, parameters)?;
                logic::compare(*comparison, &left, &right, input.rows)
            }
            Self::And(parts) => logic::all(parts, input, parameters)?,
            Self::Or(parts) => logic::any(parts, input, parameters)?,
            Self::Not(inner) => logic::not(inner.evaluate(input, parameters)?, input.rows),
            Self::IsNull { input: inner, negated } => {
                logic::is_null(&inner.evaluate(input, parameters)?, *negated, input.rows)
            }
            Self::Foreign(foreign) => Datum::Column(foreign.evaluate(input, parameters)?),
        })
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

fn parameter(parameters: &[Value], index: usize) -> Result<&Value, OperatorError> {
    parameters.get(index).ok_or_else(|| OperatorError::Internal(format!("parameter {} is not bound", index + 1)))
}

impl fmt::Display for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |f: &mut fmt::Formatter<'_>, parts: &[Expression], word: &str| {
            for (at, part) in parts.iter().enumerate() {
                if at > 0 {
                    write!(f, " {word} ")?;
                }
                write!(f, "({part})")?;
            }
            Ok(())
        };
        match self {
            Self::Column { index, .. } => write!(f, "#{index}"),
            Self::Constant { value, .. } => write!(f, "{value}"),
            Self::Parameter { index, .. } => write!(f, "${}", index + 1),
            Self::Arithmetic { operator, left, right, .. } => write!(f, "({left} {operator} {right})"),
            Self::Compare { comparison, left, right } => write!(f, "{left} {comparison} {right}"),
            Self::And(parts) => list(f, parts, "and"),
            Self::Or(parts) => list(f, parts, "or"),
            Self::Not(inner) => write!(f, "not ({inner})"),
            Self::IsNull { input, negated: false } => write!(f, "{input} is null"),
            Self::IsNull { input, negated: true } => write!(f, "{input} is not null"),
            Self::Foreign(foreign) => write!(f, "{foreign}"),
        }
    }
}
