//! Statements that our own binder binds, on their way to plans.

use std::sync::Arc;

use eris_operators::Expression;
use eris_query::{Unplanned, lower};

use super::task::{RowsPlan, rows};
use super::{ParameterTypes, Scope, TypedPlan};
use crate::ast;
use crate::binder::{Binder, Binding, Known, Names, OutputColumn};
use crate::front::TableName;
use crate::session::ColumnDescription;

/// A query that was bound here.
pub(crate) struct OwnQuery {
    pub plan: TypedPlan,
    pub columns: Arc<[ColumnDescription]>,
    pub known: Known,
}

impl Scope<'_> {
    fn binder(&self, types: ParameterTypes) -> Binding<Binder<'_>> {
        if !self.lanes.own_binder {
            return Err(Unplanned::because("own_binder = off"));
        }
        let names = Names { catalog: self.catalog, session: self.values, unix_micros: self.unix_micros };
        Ok(Binder::new(names, types))
    }

    /// Binds a query.
    pub(crate) fn own_query(&self, query: &ast::Query, types: ParameterTypes) -> Binding<OwnQuery> {
        let mut binder = self.binder(types)?;
        let bound = binder.query(query)?;
        let output = bound.output.iter().map(|column| column.column).collect();
        let query = binder.whole(bound.relation, output);
        let known = binder.finish();
        let description = |column: OutputColumn| ColumnDescription { name: column.name, sql_type: column.sql_type };
        Ok(OwnQuery {
            plan: TypedPlan { query, tables: Arc::clone(&known.tables) },
            columns: bound.output.into_iter().map(description).collect(),
            known,
        })
    }

    /// Binds and plans what UPDATE or DELETE of one table asks for.
    pub(super) fn own_rows(
        &self,
        table: &TableName,
        alias: Option<&str>,
        selection: Option<&ast::Expr>,
        values: &[ast::Expr],
        types: ParameterTypes,
    ) -> Binding<(RowsPlan, Known)> {
        let mut binder = self.binder(types)?;
        let bound = binder.rows(table, alias, selection, values)?;
        let known = binder.finish();
        let plan = rows(&bound.relation, &known.tables, &bound.values)?;
        self.planner.note_bound_here();
        Ok((plan, known))
    }

    /// Binds expressions without columns.
    pub(super) fn own_values(&self, values: &[&ast::Expr], types: ParameterTypes) -> Binding<(Vec<Expression>, Known)> {
        let mut binder = self.binder(types)?;
        let mut expressions = Vec::with_capacity(values.len());
        for value in values {
            expressions.push(lower(&binder.value(value)?, &|_| None)?);
        }
        self.planner.note_bound_here();
        Ok((expressions, binder.finish()))
    }
}
