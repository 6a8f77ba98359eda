//! The tables as they should be: what each statement changes and answers, with one transaction at a time.

use std::collections::BTreeSet;

use crate::evaluate::{Context, Frame, Mistake};
use crate::expression::Expr;
use crate::generate::computes_everything;
use crate::query::{Body, InsertSource, Query, Statement, Table};
use crate::value::{DUPLICATE_KEY, FAILED_BLOCK, NOT_NULL, Row, State, Value, canonical_row};

/// What a statement should do.
#[derive(Clone, Debug)]
pub struct Expected {
    /// The rows of a query, or how many rows were changed; or one of the errors.
    pub result: Result<Answer, State>,
    /// The errors that may be reported.
    pub noted: BTreeSet<State>,
    /// An error that came through must be reported: nothing may be left out.
    pub strict: bool,
}

#[derive(Clone, Debug)]
pub enum Answer {
    Rows(Vec<Row>),
    Changed(usize),
    Nothing,
}

pub struct Model<'a> {
    schema: &'a [Table],
    committed: Vec<Vec<Row>>,
    current: Vec<Vec<Row>>,
    open: bool,
    failed: bool,
    mistake: Option<Mistake>,
}

impl<'a> Model<'a> {
    pub fn new(schema: &'a [Table], mistake: Option<Mistake>) -> Model<'a> {
        let empty = vec![Vec::new(); schema.len()];
        Model { schema, committed: empty.clone(), current: empty, open: false, failed: false, mistake }
    }

    /// The rows of a table as the session sees them.
    pub fn rows(&self, table: usize) -> &[Row] {
        &self.current[table]
    }

    /// What the statement should do; nothing is changed before [`Model::apply`]. An eager run notes more.
    pub fn expect(&self, statement: &Statement, eager: bool) -> (Expected, Option<Vec<Row>>) {
        let plain = |result| (Expected { result, noted: BTreeSet::new(), strict: true }, None);
        let tables = if matches!(statement, Statement::Elsewhere(_)) { &self.committed } else { &self.current };
        let mut context = Context::new(tables, self.mistake);
        context.eager = eager;
        match statement {
            Statement::Elsewhere(query) => (rows_of(query, context), None),
            Statement::Commit | Statement::Rollback => plain(Ok(Answer::Nothing)),
            _ if self.failed => {
                (Expected { result: Err(FAILED_BLOCK), noted: [FAILED_BLOCK].into(), strict: true }, None)
            }
            Statement::Begin => plain(Ok(Answer::Nothing)),
            Statement::Query(query) | Statement::Partition(query, _) => (rows_of(query, context), None),
            Statement::Insert { table, columns, source, .. } => {
                let inserted = self.inserted(&context, *table, columns, source);
                let count = inserted.as_ref().map_or(0, Vec::len);
                let strict = match source {
                    InsertSource::Values(_) => true,
                    InsertSource::Query(query) => computes_everything(query),
                };
                let rows = inserted.map(|rows| self.current[*table].iter().cloned().chain(rows).collect());
                self.changed(context, *table, count, rows, strict)
            }
            Statement::Update { table, sets, filter, .. } => {
                let updated = self.updated(&context, *table, sets, filter.as_ref());
                let strict = !filter.as_ref().is_some_and(Expr::has_subquery);
                let count = updated.as_ref().map_or(0, |(_, count)| *count);
                self.changed(context, *table, count, updated.map(|(rows, _)| rows), strict)
            }
            Statement::Delete { table, filter, .. } => {
                let kept = self.kept(&context, *table, filter.as_ref());
                let strict = !filter.as_ref().is_some_and(Expr::has_subquery);
                let count = kept.as_ref().map_or(0, |kept| self.current[*table].len() - kept.len());
                self.changed(context, *table, count, kept, strict)
            }
        }
    }

    /// Takes the changes over, or the failure.
    pub fn apply(&mut self, statement: &Statement, outcome: Result<Option<Vec<Row>>, State>) {
        match statement {
            Statement::Begin if !self.failed => self.open = true,
            Statement::Commit | Statement::Rollback => {
                let kept = matches!(statement, Statement::Commit) || self.mistake == Some(Mistake::RollbackKeeps);
                if self.open && !self.failed && kept {
                    self.committed.clone_from(&self.current);
                } else if self.open {
                    self.current.clone_from(&self.committed);
                }
                (self.open, self.failed) = (false, false);
            }
            Statement::Elsewhere(_) => {}
            _ => match outcome {
                Ok(Some(rows)) => {
                    if let Statement::Insert { table, .. }
                    | Statement::Update { table, .. }
                    | Statement::Delete { table, .. } = statement
                    {
                        self.current[*table] = rows;
                        if !self.open {
                            self.committed.clone_from(&self.current);
                        }
                    }
                }
                Ok(None) => {}
                Err(_) => self.failed = self.open,
            },
        }
    }

    /// The last checks of a change: NOT NULL and keys.
    fn changed(
        &self,
        context: Context<'_>,
        table: usize,
        count: usize,
        rows: Result<Vec<Row>, State>,
        strict: bool,
    ) -> (Expected, Option<Vec<Row>>) {
        let checked = rows.and_then(|rows| {
            self.check(&context, table, &rows)?;
            Ok(rows)
        });
        let strict = strict && !context.avoidable.get();
        let noted = context.noted.into_inner();
        match checked {
            Ok(rows) => (Expected { result: Ok(Answer::Changed(count)), noted, strict }, Some(rows)),
            Err(state) => (Expected { result: Err(state), noted, strict }, None),
        }
    }

    fn check(&self, context: &Context<'_>, table: usize, rows: &[Row]) -> Result<(), State> {
        let schema = &self.schema[table];
        for row in rows {
            if row.iter().zip(&schema.columns).any(|(value, column)| column.not_null && value.is_null()) {
                return context.fault(NOT_NULL);
            }
        }
        if schema.key.is_empty() {
            return Ok(());
        }
        let mut keys = BTreeSet::new();
        if rows.iter().all(|row| keys.insert(self.key(table, row))) { Ok(()) } else { context.fault(DUPLICATE_KEY) }
    }

    fn key(&self, table: usize, row: &Row) -> String {
        canonical_row(&self.schema[table].key.iter().map(|at| row[*at].clone()).collect::<Row>())
    }

    fn stored(&self, context: &Context<'_>, table: usize, column: usize, value: Value) -> Result<Value, State> {
        let column = &self.schema[table].columns[column];
        if value.is_null() && column.not_null {
            return context.fault(NOT_NULL);
        }
        context.cast(value, column.declared, true)
    }

    /// Notes what comes up when constants are made values of their columns ahead.
    fn fold_stored(&self, context: &Context<'_>, table: usize, column: usize, expr: &Expr) {
        context.fold(expr);
        let value = if expr.is_constant() {
            context.value(expr, &Frame { row: &[], group: None, outer: None })
        } else {
            return;
        };
        let _ = value.and_then(|value| context.cast(value, self.schema[table].columns[column].declared, true));
    }

    fn inserted(
        &self,
        context: &Context<'_>,
        table: usize,
        columns: &[usize],
        source: &InsertSource,
    ) -> Result<Vec<Row>, State> {
        let rows = match source {
            InsertSource::Query(query) => {
                if let Body::Select(select) = &query.body {
                    let stored = columns.iter().zip(&select.items);
                    stored.for_each(|(column, item)| self.fold_stored(context, table, *column, item));
                }
                context.query(query, None)?
            }
            InsertSource::Values(rows) => {
                let frame = Frame { row: &[], group: None, outer: None };
                let values = |row: &Vec<Expr>| row.iter().map(|value| context.value(value, &frame)).collect::<Vec<_>>();
                let rows: Vec<Vec<Result<Value, State>>> = rows.iter().map(values).collect();
                rows.into_iter().map(|row| row.into_iter().collect()).collect::<Result<Vec<Row>, State>>()?
            }
        };
        let whole = |row: Row| {
            let mut whole = vec![Value::Null; self.schema[table].columns.len()];
            let mut fault = None;
            for (at, value) in columns.iter().zip(row) {
                match self.stored(context, table, *at, value) {
                    Ok(value) => whole[*at] = value,
                    Err(state) => fault = Some(state),
                }
            }
            fault.map_or(Ok(whole), Err)
        };
        let rows: Vec<Result<Row, State>> = rows.into_iter().map(whole).collect();
        // Also where a value does not fit, a key that is there already may be reported.
        let mut keys: BTreeSet<String> = self.current[table].iter().map(|row| self.key(table, row)).collect();
        let mut stored = rows.iter().filter_map(|row| row.as_ref().ok());
        if !self.schema[table].key.is_empty() && !stored.all(|row| keys.insert(self.key(table, row))) {
            let _: Result<(), State> = context.fault(DUPLICATE_KEY);
        }
        rows.into_iter().collect()
    }

    fn updated(
        &self,
        context: &Context<'_>,
        table: usize,
        sets: &[(usize, String, Expr)],
        filter: Option<&Expr>,
    ) -> Result<(Vec<Row>, usize), State> {
        for (column, _, value) in sets {
            self.fold_stored(context, table, *column, value);
        }
        if let Some(filter) = filter {
            self.look_ahead(context, table, filter);
        }
        let old: BTreeSet<String> = self.current[table].iter().map(|row| self.key(table, row)).collect();
        let (mut rows, mut count, mut fault) = (Vec::new(), 0, None);
        for row in &self.current[table] {
            let frame = Frame { row, group: None, outer: None };
            match filter.map_or(Ok(true), |filter| context.met(filter, &frame)) {
                Ok(true) => count += 1,
                Ok(false) => {
                    rows.push(row.clone());
                    continue;
                }
                Err(state) => {
                    fault = Some(state);
                    continue;
                }
            }
            let mut new = row.clone();
            for (column, _, value) in sets {
                let value = context.value(value, &frame);
                match value.and_then(|value| self.stored(context, table, *column, value)) {
                    Ok(value) => new[*column] = value,
                    Err(state) => fault = Some(state),
                }
            }
            // PostgreSQL looks at keys row by row, and may meet one that would have been changed later.
            let key = self.key(table, &new);
            if !self.schema[table].key.is_empty() && key != self.key(table, row) && old.contains(&key) {
                let _: Result<(), State> = context.fault(DUPLICATE_KEY);
            }
            rows.push(new);
        }
        fault.map_or(Ok((rows, count)), Err)
    }

    /// Notes what comes up when parts of a condition are computed before there is a row.
    fn look_ahead(&self, context: &Context<'_>, table: usize, filter: &Expr) {
        context.fold(filter);
        if context.eager {
            let row = vec![Value::Null; self.schema[table].columns.len()];
            context.touch(filter, &Frame { row: &row, group: None, outer: None });
        }
    }

    fn kept(&self, context: &Context<'_>, table: usize, filter: Option<&Expr>) -> Result<Vec<Row>, State> {
        let Some(filter) = filter else { return Ok(Vec::new()) };
        self.look_ahead(context, table, filter);
        let (mut kept, mut fault) = (Vec::new(), None);
        for row in &self.current[table] {
            match context.met(filter, &Frame { row, group: None, outer: None }) {
                Ok(true) => {}
                Ok(false) => kept.push(row.clone()),
                Err(state) => fault = Some(state),
            }
        }
        fault.map_or(Ok(kept), Err)
    }
}

fn rows_of(query: &Query, context: Context<'_>) -> Expected {
    let result = context.query(query, None).map(Answer::Rows);
    let strict = computes_everything(query) && !context.avoidable.get();
    Expected { result, noted: context.noted.into_inner(), strict }
}
