//! An open pipeline: where its rows come from, what they have passed through, and where a plan's columns are in them.

use std::sync::Arc;

use datafusion::common::DFSchema;
use eris_operators::Expression;
use eris_storage::DataType;

use super::Needed;
use super::estimate::Estimate;
use crate::native::{Input, Source, StepPlan};
use crate::plan::lower::{Columns, Lowering, NotNative};

/// See the module's documentation.
#[derive(Clone, Debug)]
pub(super) struct Stream {
    /// All have the same columns.
    pub inputs: Vec<Input>,
    /// By position in the plan's schema: which column of the batches it is, if it is there.
    pub columns: Vec<Option<usize>>,
    /// The types of the batches' columns.
    pub types: Vec<DataType>,
    /// What is expected of the rows.
    pub estimate: Estimate,
}

impl Stream {
    /// Rows of one source, without steps.
    pub fn of(source: Source, columns: Vec<Option<usize>>, types: Vec<DataType>, estimate: Estimate) -> Self {
        let inputs = vec![Input { source, steps: Vec::new(), expected_rows: estimate.rows }];
        Self { inputs, columns, types, estimate }
    }

    /// The column of the batches at a position of the schema.
    pub fn column(&self, position: usize) -> Lowering<usize> {
        self.columns
            .get(position)
            .copied()
            .flatten()
            .ok_or_else(|| NotNative(format!("column {position} was not asked for")))
    }

    /// A step for all inputs.
    pub fn push(&mut self, step: &StepPlan) {
        self.inputs.iter_mut().for_each(|input| input.steps.push(step.clone()));
    }

    /// The column at a position, as an expression.
    pub fn column_expression(&self, position: usize) -> Lowering<Expression> {
        let index = self.column(position)?;
        Ok(Expression::Column { index, data_type: self.types[index] })
    }

    /// The same rows with exactly these positions as columns, in this order.
    pub fn arranged(mut self, positions: &[usize]) -> Lowering<Self> {
        let expressions =
            positions.iter().map(|position| self.column_expression(*position)).collect::<Lowering<Vec<_>>>()?;
        let sources: Vec<Option<usize>> = positions.iter().map(|position| self.columns[*position]).collect();
        self.computed(expressions.into(), &sources);
        self.place(positions, self.columns.len());
        Ok(self)
    }

    /// Adds a step that computes columns; `sources` says which of them are columns of before. Positions are the
    /// caller's to set.
    pub fn computed(&mut self, expressions: Arc<[Expression]>, sources: &[Option<usize>]) {
        self.types = expressions.iter().map(Expression::data_type).collect();
        self.estimate = self.estimate.projected(&expressions, sources);
        self.push(&StepPlan::Project(expressions));
    }

    /// Makes columns of expressions: those that are none yet are computed, behind the columns that are there. Where
    /// each is then.
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

    /// Says at which positions of a schema the columns are.
    pub fn place(&mut self, positions: &[usize], width: usize) {
        self.columns = vec![None; width];
        for (column, position) in positions.iter().enumerate() {
            self.columns[*position] = Some(column);
        }
    }

    /// What lowering needs to find columns of the plan's schema in the batches.
    pub fn scope<'s>(schema: &'s DFSchema, map: &'s [Option<usize>]) -> Columns<'s> {
        Columns { schema, offset: 0, map: Some(map) }
    }
}

/// The positions of a schema that expressions refer to.
pub(super) fn referred<'e>(
    exprs: impl IntoIterator<Item = &'e datafusion::logical_expr::Expr>,
    schema: &DFSchema,
) -> Lowering<Needed> {
    let mut needed = Needed::new();
    for expr in exprs {
        for column in expr.column_refs() {
            let position = schema.maybe_index_of_column(column);
            needed.insert(position.ok_or_else(|| NotNative(format!("column {column} is elsewhere")))?);
        }
    }
    Ok(needed)
}
