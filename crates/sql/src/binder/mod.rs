//! From a statement's tree to typed relations: which table, column, operator and type each name and literal means.
//!
//! ```text
//!   SELECT a + 1 FROM t WHERE b = 'x'
//!     Project  #2 = #0 + 1::integer
//!       Filter   #1 = 'x'::text
//!         Scan     t: #0 = a, #1 = b
//! ```
//! Bound here are SELECT with joins, groups, subqueries, WITH and set operations, and what UPDATE and DELETE of one
//! table ask for. All else is [`Unplanned`], and so is everything that is wrong with a statement: DataFusion plans it
//! then, or says why not. What is bound here means the same there; `select 1` alone is an `integer` here, as in
//! PostgreSQL.

mod expressions;
mod from;
mod groups;
mod literals;
mod moments;
mod scope;
mod select;
mod session_values;
mod set_operations;
mod subqueries;
mod with;

use std::rc::Rc;
use std::sync::Arc;

use eris_query::rules::optimized;
use eris_query::{AggregateItem, ColumnId, Query, Relation, Scalar, TableId, Unplanned, ValueQuery};

use crate::catalog::{CatalogVersion, Table};
use crate::front::TableName;
use crate::plan::{LazySessionValues, ParameterTypes};
use crate::types::SqlType;
use crate::views::is_view;
pub(crate) use literals::number;
use scope::Scope;
use subqueries::Pending;
use with::WithQuery;

/// What binding gives.
pub(crate) type Binding<T> = Result<T, Unplanned>;

/// Operators and brackets within each other at most: what computes them walks down as deep.
const DEPTH_MAX: usize = 256;

/// Subqueries within each other, and in all, at most.
const QUERIES_WITHIN_MAX: usize = 32;
const QUERIES_MAX: usize = 200;

/// Tables that are read at most, each time counted: joins stand within each other.
const SCANS_MAX: usize = 200;

/// What is written once and computed several times (`x BETWEEN a AND b`) is copied as long as it is no larger than this
/// all in all. Copies within each other double each time.
const COPIED_MAX: usize = 1_000;

/// What names mean, and when it is now.
#[derive(Clone, Copy)]
pub(crate) struct Names<'a> {
    /// Tables.
    pub catalog: &'a CatalogVersion,
    /// What the session knows.
    pub session: &'a LazySessionValues<'a>,
    /// Microseconds since 1970, for `now()`.
    pub unix_micros: i64,
}

/// Binds one statement.
pub(crate) struct Binder<'a> {
    names: Names<'a>,
    types: ParameterTypes,
    tables: Vec<Arc<Table>>,
    columns: u32,
    momentary: bool,
    /// The aggregates of the SELECT that is bound; `None`: there is no place for one.
    calls: Option<Vec<AggregateItem>>,
    /// Its subqueries that are to be joined with its rows; `None`: there is no place for one.
    pending: Option<Vec<Pending>>,
    /// Subqueries that give values.
    values: Vec<ValueQuery>,
    /// The queries of WITH that are seen, the nearest last.
    with: Vec<Rc<WithQuery>>,
    /// How many queries are bound within each other, and in all.
    queries: usize,
    all_queries: usize,
    /// How many tables are read.
    scans: usize,
}

/// A bound query.
pub(crate) struct BoundSelect {
    /// Its rows.
    pub relation: Relation,
    /// The columns of its result.
    pub output: Vec<OutputColumn>,
}

/// A column of a result.
pub(crate) struct OutputColumn {
    pub name: String,
    pub column: ColumnId,
    pub sql_type: SqlType,
}

/// The rows of one table for which a condition holds, and values computed from each of them.
pub(crate) struct BoundRows {
    pub relation: Relation,
    pub values: Vec<Scalar>,
}

/// What is known once a statement is bound.
pub(crate) struct Known {
    /// The tables that it names.
    pub tables: Arc<[Arc<Table>]>,
    /// The types of its parameters.
    pub parameters: Vec<SqlType>,
    /// Whether it holds for this session and moment only.
    pub momentary: bool,
}

impl<'a> Binder<'a> {
    /// With the types of parameters as far as they are known.
    pub fn new(names: Names<'a>, types: ParameterTypes) -> Self {
        Self {
            names,
            types,
            tables: Vec::new(),
            columns: 0,
            momentary: false,
            calls: None,
            pending: None,
            values: Vec::new(),
            with: Vec::new(),
            queries: 0,
            all_queries: 0,
            scans: 0,
        }
    }

    /// The query that a SELECT is.
    pub fn whole(&mut self, bound: Relation, output: Vec<ColumnId>) -> Query {
        let parameters = self.types.0.len();
        let mut relation = bound;
        let mut values = self.numbered_values(&mut relation, parameters);
        relation = optimized(relation, &mut self.columns);
        for value in &mut values {
            let own = std::mem::replace(&mut value.relation, Relation::OneRow);
            value.relation = optimized(own, &mut self.columns);
        }
        Query { relation, output, values, parameters }
    }

    /// What is known now.
    pub fn finish(self) -> Known {
        Known { tables: self.tables.into(), parameters: self.types.finish(), momentary: self.momentary }
    }

    /// The rows of a table that UPDATE or DELETE is about, with their new values.
    pub fn rows(
        &mut self,
        table: &TableName,
        alias: Option<&str>,
        selection: Option<&crate::ast::Expr>,
        values: &[crate::ast::Expr],
    ) -> Binding<BoundRows> {
        let mut scope = Scope::default();
        let scan = self.scan(&mut scope, table, alias)?;
        let relation = self.filtered(scan, selection, &scope)?;
        let values = values.iter().map(|value| self.expression(value, &scope)).collect::<Binding<Vec<Scalar>>>()?;
        Ok(BoundRows { relation, values })
    }

    /// A value without columns.
    pub fn value(&mut self, expr: &crate::ast::Expr) -> Binding<Scalar> {
        self.expression(expr, &Scope::default())
    }

    fn scan(&mut self, scope: &mut Scope<'_>, name: &TableName, alias: Option<&str>) -> Binding<Relation> {
        if is_view(name) {
            return Err(Unplanned(format!("the view {name}")));
        }
        self.scans += 1;
        if self.scans > SCANS_MAX {
            return Err(Unplanned::because("many tables"));
        }
        let table = self.names.catalog.table(name).map_err(Unplanned::because)?;
        let columns = scope.add(table, alias.unwrap_or(&name.name), &mut self.columns)?;
        let known = self.tables.iter().position(|known| known.container() == table.container());
        let id = TableId(known.unwrap_or_else(|| {
            self.tables.push(Arc::clone(table));
            self.tables.len() - 1
        }));
        Ok(Relation::Scan { table: id, columns })
    }

    fn filtered(
        &mut self,
        input: Relation,
        condition: Option<&crate::ast::Expr>,
        scope: &Scope<'_>,
    ) -> Binding<Relation> {
        let Some(condition) = condition else { return Ok(input) };
        let condition = self.condition(condition, scope)?;
        Ok(Relation::Filter { input: Box::new(input), condition })
    }

    fn new_column(&mut self) -> ColumnId {
        let column = ColumnId(self.columns);
        self.columns += 1;
        column
    }
}
