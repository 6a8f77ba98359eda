//! An open pipeline: where its rows come from, what they have passed through, and where a query's columns are in them.

use std::collections::BTreeMap;
use std::sync::Arc;

use eris_operators::Expression;
use eris_query::{ColumnId, Scalar, Unplanned};
use eris_storage::DataType;

use super::Lowering;
use super::estimate::Estimate;
use crate::native::{Input, Source, StepPlan};

/// Which column of the batches a column is, if it is there.
pub(super) type Places = BTreeMap<ColumnId, usize>;

/// See the module's documentation.
#[derive(Clone, Debug)]
pub(super) struct Stream {
    /// All have the same columns.
    pub inputs: Vec<Input>,
    /// Where columns are.
    pub places: Places,
    /// The types of the batches' columns.
    pub types: Vec<DataType>,
    /// What is expected of the rows.
    pub estimate: Estimate,
}

impl Stream {
    /// Rows of one source, without steps.
    pub fn of(source: Source, places: Places, types: Vec<DataType>, estimate: Estimate) -> Self {
        let inputs = vec![Input { source, steps: Vec::new(), expected_rows: estimate.rows }];
        Self { inputs, places, types, estimate }
    }

    /// Where a column is.
    pub fn place_of(&self, column: ColumnId) -> Lowering<usize> {
        self.places.get(&column).copied().ok_or_else(|| Unplanned(format!("column {} was not asked for", column.0)))
    }

    /// A step for all inputs.
    pub fn push(&mut self, step: &StepPlan) {
        self.inputs.iter_mut().for_each(|input| input.steps.push(step.clone()));
    }

    /// A column as an expression.
    pub fn column_expression(&self, column: ColumnId) -> Lowering<Expression> {
        let index = self.place_of(column)?;
        Ok(Expression::Column { index, data_type: self.types[index] })
    }

    /// The expression that computes a scalar.
    pub fn lower(&self, scalar: &Scalar) -> Lowering<Expression> {
        eris_query::lower(scalar, &|column| self.places.get(&column).copied())
    }

    /// The expressions that compute scalars.
    pub fn lower_all<'s>(&self, scalars: impl IntoIterator<Item = &'s Scalar>) -> Lowering<Arc<[Expression]>> {
        scalars.into_iter().map(|scalar| self.lower(scalar)).collect()
    }

    /// The same rows with exactly these columns, in this order.
    pub fn arranged(mut self, columns: &[ColumnId]) -> Lowering<Self> {
        let expressions = columns.iter().map(|column| self.column_expression(*column)).collect::<Lowering<Vec<_>>>()?;
        let sources: Vec<Option<usize>> = columns.iter().map(|column| self.places.get(column).copied()).collect();
        self.computed(expressions.into(), &sources);
        self.places = placed(columns.iter().copied());
        Ok(self)
    }

    /// Whether the batches have exactly these columns, in this order.
    pub fn is_arranged(&self, columns: &[ColumnId]) -> bool {
        self.types.len() == columns.len()
            && columns.iter().enumerate().all(|(at, column)| self.places.get(column) == Some(&at))
    }

    /// Adds a step that computes columns; `sources` says which of them are columns of before. Places are the caller's
    /// to set.
    pub fn computed(&mut self, expressions: Arc<[Expression]>, sources: &[Option<usize>]) {
        self.types = expressions.iter().map(Expression::data_type).collect();
        self.estimate = self.estimate.projected(&expressions, sources);
        self.push(&StepPlan::Project(expressions));
    }

    /// Makes columns of expressions: those that are none yet are computed, after the columns that are there. Where each
    /// is then.
    pub fn with_columns(&mut self, expressions: Vec<Expression>) -> Vec<usize> {
        let known = self.types.iter().enumerate();
        let mut all: Vec<Expression> =
            known.map(|(index, data_type)| Expression::Column { index, data_type: *data_type }).collect();
        let mut sources: Vec<Option<usize>> = (0..all.len()).map(Some).collect();
        let place = |expression| match expression {
            Expression::Column { index, .. } => index,
            computed => {
                all.push(computed);
                sources.push(None);
                all.len() - 1
            }
        };
        let places = expressions.into_iter().map(place).collect();
        if all.len() > self.types.len() {
            self.computed(all.into(), &sources);
        }
        places
    }

    /// One input: what a stage left.
    pub fn rows_of(stage: usize, expected_rows: f64) -> Vec<Input> {
        vec![Input { source: Source::Stage(stage), steps: Vec::new(), expected_rows }]
    }

    /// Whether it reads what a stage left.
    pub fn reads(&self, stage: usize) -> bool {
        self.inputs.iter().any(|input| matches!(input.source, Source::Stage(read) if read == stage))
    }
}

/// The places of columns that stand in this order.
pub(super) fn placed(columns: impl IntoIterator<Item = ColumnId>) -> Places {
    columns.into_iter().enumerate().map(|(at, column)| (column, at)).collect()
}
