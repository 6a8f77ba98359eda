//! Planning INSERT, UPDATE and DELETE.
//!
//! WHERE and SET are planned as the query `SELECT new values FROM table WHERE condition`, so that names, types and
//! simplification are those of queries; its native plan says which rows are accessed and what is computed.

mod change;
mod constant;
mod insert;

use std::sync::Arc;

use eris_storage::{AttributeId, DataType};

use super::bind::LazySessionValues;
use super::planner::Planner;
use crate::ast::{self, Expr, Ident, SelectItem};
use crate::catalog::{CatalogVersion, ColumnDefault, Table, TableColumn, suggestions};
use crate::errors::{SqlError, SqlState};
use crate::front::{TableName, template};
use crate::settings::Lanes;
use crate::types::SqlType;

pub use change::{plan_delete, plan_update};
pub use constant::Constant;
use insert::literal;
pub use insert::plan_insert;

/// What planning a statement needs to know.
#[derive(Clone, Copy)]
pub struct Scope<'a> {
    /// Functions and rules.
    pub planner: &'a Planner,
    /// Names.
    pub catalog: &'a CatalogVersion,
    /// The session.
    pub values: &'a LazySessionValues<'a>,
    /// Microseconds since 1970 when the statement was planned: one moment for all of it.
    pub unix_micros: i64,
    /// The lanes that queries may take.
    pub lanes: Lanes,
}

/// A planned DML statement.
#[derive(Debug)]
pub struct PlannedWrite<P> {
    /// The plan.
    pub plan: P,
    /// The table that is written.
    pub table: Arc<Table>,
    /// The tables that are named where rows, conditions and values come from, whether or not the plan reads them. The
    /// one that is written may be among them.
    pub named: Arc<[Arc<Table>]>,
    /// The types of its parameters.
    pub parameters: Vec<SqlType>,
    /// The plan holds only for this session and moment.
    pub momentary: bool,
    /// Our own binder bound its condition and values.
    pub is_bound_here: bool,
    /// Bytes of the constants that were computed for it.
    pub constant_bytes: usize,
}

/// A table with its alias, the tables beside it, and the condition on all of them.
#[derive(Clone, Copy)]
struct Rows<'a> {
    table: &'a TableName,
    alias: Option<&'a str>,
    others: &'a [ast::TableWithJoins],
    selection: Option<&'a Expr>,
}

/// `SELECT items FROM table AS alias, others WHERE selection`, built as a tree.
fn select(items: Vec<Expr>, rows: Rows<'_>) -> ast::Query {
    let Rows { table, alias, others, selection } = rows;
    let name = ast::ObjectName::from(
        table.schema.iter().chain([&table.name]).map(|part| Ident::with_quote('"', part.clone())).collect::<Vec<_>>(),
    );
    let mut query = template("SELECT 1 FROM x");
    if let ast::SetExpr::Select(select) = query.body.as_mut() {
        select.projection = items
            .into_iter()
            .enumerate()
            .map(|(at, expr)| SelectItem::ExprWithAlias { expr, alias: Ident::with_quote('"', format!("__new_{at}")) })
            .collect();
        if let Some(ast::TableWithJoins {
            relation: ast::TableFactor::Table { name: own, alias: own_alias, .. }, ..
        }) = select.from.first_mut()
        {
            *own = name;
            *own_alias = alias.map(|alias| ast::TableAlias {
                explicit: true,
                name: Ident::with_quote('"', alias),
                columns: Vec::new(),
                at: None,
            });
        }
        select.from.extend_from_slice(others);
        select.selection = selection.cloned();
    }
    query
}

fn column_of<'t>(table: &'t Table, name: &str) -> Result<(AttributeId, &'t TableColumn), SqlError> {
    table
        .column(name)
        .ok_or_else(|| SqlError::no_such_column(name, Some(&table.name), &suggestions(name, table.column_names())))
}

/// The expression that stands for a default.
fn default_expression(column: &TableColumn) -> Expr {
    let value = match &column.default {
        ColumnDefault::Moment(expr) => return expr.as_ref().clone(),
        ColumnDefault::Value(value) => value,
    };
    let value = match crate::pg_format::value_text(value) {
        None => ast::Value::Null,
        Some(text) => ast::Value::SingleQuotedString(text),
    };
    Expr::Value(value.with_empty_span())
}

/// 42804 when the types can never fit. A literal or parameter is text that is read as what it is stored in.
fn check_assignable(from: DataType, is_literal: bool, column: &TableColumn) -> Result<(), SqlError> {
    use eris_storage::DataType as T;
    let target = column.sql_type;
    let to = target.data_type();
    let number = |data_type: T| {
        matches!(data_type, T::Int16 | T::Int32 | T::Int64 | T::Float32 | T::Float64 | T::Decimal { .. })
    };
    let time = |data_type: T| matches!(data_type, T::Date | T::Timestamp);
    let fits = from == to
        || to == T::Text
        || (number(from) && number(to))
        || (time(from) && time(to))
        || (from == T::Text && is_literal);
    if fits {
        return Ok(());
    }
    Err(SqlError::new(
        SqlState::TYPE_MISMATCH,
        format!("column \"{}\" is of type {target} but expression is of type {}", column.name, SqlType::of(from)),
    )
    .hint("You will need to rewrite or cast the expression."))
}
