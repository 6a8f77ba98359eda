//! From DataFusion's optimised plan to the relations of `eris-query`, or the reason why there are none.
//!
//! ```text
//!   Projection: c_name AS name, 1 + total        Project   #4 = #1, #5 = 1 + #3
//!     SubqueryAlias: c                    ->       Scan      customer  #0 c_id, #1 c_name, #2, #3 c_total
//!       TableScan: customer
//! ```
//! DataFusion's columns are names; here each gets a number where it is made. Nodes that only rename columns or choose
//! some of them add no relation.

mod aggregates;
mod conditions;
mod expressions;
mod scalars;
mod windows;

use std::sync::Arc;

use datafusion::common::{DFSchema, NullEquality};
use datafusion::datasource::source_as_provider;
use datafusion::logical_expr::{
    Distinct, EmptyRelation, Expr, Filter, Join as JoinNode, JoinType, Limit, LogicalPlan, Projection, Sort, TableScan,
    Union, Values,
};
use eris_query::{
    ColumnId, Join, JoinKind, Projected, Query, Relation, Scalar, ScannedColumn, SortItem, TableId, TypedColumn,
    Unplanned, ValueQuery,
};
use eris_storage::AttributeId;

use super::source::TableSourceProvider;
use super::{Lowering, TypedPlan};
use crate::arrow_view::sql_type_of_arrow;
use crate::catalog::Table;
use expressions::Columns;
use scalars::plain_column;

pub use conditions::condition_of;

/// The relations of an optimised plan of a statement with this many parameters.
pub(in crate::plan) fn translate(plan: &LogicalPlan, parameters: usize) -> Lowering<TypedPlan> {
    let mut translator = Translator {
        tables: Vec::new(),
        columns: 0,
        next_parameter: parameters,
        values: Vec::new(),
        known_values: Vec::new(),
    };
    let Node { relation, columns } = translator.node(plan)?;
    let query = Query { relation, output: columns, values: translator.values, parameters };
    Ok(TypedPlan { query, tables: translator.tables.into() })
}

/// The table of a scan, if it is one of ours.
pub(in crate::plan) fn table_of(scan: &TableScan) -> Lowering<Arc<Table>> {
    let provider = source_as_provider(&scan.source).map_err(Unplanned::because)?;
    match provider.downcast_ref::<TableSourceProvider>() {
        Some(source) => Ok(Arc::clone(source.table())),
        None => Err(Unplanned(format!("scan of the view {}", scan.table_name))),
    }
}

/// A translated node.
struct Node {
    relation: Relation,
    /// By position in the node's schema.
    columns: Vec<ColumnId>,
}

struct Translator {
    tables: Vec<Arc<Table>>,
    /// How many there are.
    columns: u32,
    next_parameter: usize,
    values: Vec<ValueQuery>,
    /// Subqueries that are values already, and give the same each time.
    known_values: Vec<(LogicalPlan, Expr)>,
}

/// The numbers of the columns of a schema.
struct Scope<'s> {
    schema: &'s DFSchema,
    numbers: Vec<Option<usize>>,
}

impl<'s> Scope<'s> {
    fn of(schema: &'s DFSchema, columns: &[ColumnId]) -> Self {
        Self { schema, numbers: columns.iter().map(|column| Some(column.0 as usize)).collect() }
    }

    fn columns(&self) -> Columns<'_> {
        Columns { schema: self.schema, map: &self.numbers }
    }
}

impl Translator {
    fn new_column(&mut self) -> ColumnId {
        let column = ColumnId(self.columns);
        self.columns += 1;
        column
    }

    /// New columns for all positions of a schema.
    fn new_columns(&mut self, schema: &DFSchema) -> Lowering<Vec<TypedColumn>> {
        let fields = schema.fields().iter();
        fields
            .map(|field| Ok(TypedColumn { column: self.new_column(), sql_type: sql_type_of_arrow(field.data_type())? }))
            .collect()
    }

    fn node(&mut self, plan: &LogicalPlan) -> Lowering<Node> {
        match plan {
            LogicalPlan::TableScan(scan) => self.scan(scan),
            LogicalPlan::Filter(filter) => self.filter(filter),
            LogicalPlan::Projection(projection) => self.projection(projection),
            LogicalPlan::SubqueryAlias(alias) => self.node(&alias.input),
            LogicalPlan::Join(join) => self.join(join),
            LogicalPlan::Aggregate(aggregate) => self.aggregate(aggregate),
            LogicalPlan::Window(window) => self.window(window),
            LogicalPlan::Distinct(Distinct::All(input)) => {
                let Node { relation, columns } = self.node(input)?;
                let relation = Relation::Distinct { input: Box::new(relation), columns: columns.clone() };
                Ok(Node { relation, columns })
            }
            LogicalPlan::Distinct(Distinct::On(_)) => Err(Unplanned::because("DISTINCT ON")),
            LogicalPlan::Sort(sort) => self.sort(sort),
            LogicalPlan::Limit(limit) => self.limit(limit),
            LogicalPlan::Union(union) => self.union(union),
            LogicalPlan::EmptyRelation(empty) => self.empty(empty),
            LogicalPlan::Values(values) => self.rows(values),
            other => Err(Unplanned(node_name(other))),
        }
    }

    fn scan(&mut self, scan: &TableScan) -> Lowering<Node> {
        let table = table_of(scan)?;
        let known = self.tables.iter().position(|known| known.container() == table.container());
        let id = TableId(known.unwrap_or_else(|| {
            self.tables.push(Arc::clone(&table));
            self.tables.len() - 1
        }));
        let scanned: Vec<ScannedColumn> = table
            .columns
            .iter()
            .enumerate()
            .map(|(at, column)| ScannedColumn {
                column: self.new_column(),
                attribute: AttributeId(at as u16),
                sql_type: column.sql_type,
            })
            .collect();
        let all: Vec<ColumnId> = scanned.iter().map(|column| column.column).collect();
        let columns = match &scan.projection {
            Some(projection) => projection.iter().map(|position| all[*position]).collect(),
            None => all.clone(),
        };
        let mut relation = Relation::Scan { table: id, columns: scanned };
        if !scan.filters.is_empty() {
            // Qualified or not, a column of the table is known by its name.
            let schema = conditions::schema_of(&table)?;
            let scope = Scope::of(&schema, &all);
            let conditions = scan.filters.iter().map(|filter| {
                let filter = datafusion::logical_expr::expr_rewriter::unnormalize_col(filter.clone());
                self.scalar(&filter, &scope)
            });
            let condition = Scalar::and(conditions.collect::<Lowering<Vec<Scalar>>>()?);
            relation = Relation::Filter { input: Box::new(relation), condition };
        }
        Ok(Node { relation, columns })
    }

    fn filter(&mut self, filter: &Filter) -> Lowering<Node> {
        let Node { relation, columns } = self.node(&filter.input)?;
        let condition = self.scalar(&filter.predicate, &Scope::of(filter.input.schema(), &columns))?;
        let (input, condition) = match relation {
            Relation::Filter { input, condition: first } => (input, Scalar::and([first, condition])),
            other => (Box::new(other), condition),
        };
        Ok(Node { relation: Relation::Filter { input, condition }, columns })
    }

    fn projection(&mut self, projection: &Projection) -> Lowering<Node> {
        let input = self.node(&projection.input)?;
        let schema = projection.input.schema();
        let position = |expr| schema.maybe_index_of_column(plain_column(expr)?);
        if let Some(positions) = projection.expr.iter().map(position).collect::<Option<Vec<usize>>>() {
            let columns = positions.into_iter().map(|position| input.columns[position]).collect();
            return Ok(Node { columns, ..input });
        }
        let scope = Scope::of(schema, &input.columns);
        let items = projection.expr.iter().map(|expr| {
            let value = self.scalar(expr, &scope)?;
            Ok(Projected { column: self.new_column(), value })
        });
        let items = items.collect::<Lowering<Vec<Projected>>>()?;
        let columns = items.iter().map(|item| item.column).collect();
        Ok(Node { relation: Relation::Project { input: Box::new(input.relation), items }, columns })
    }

    fn join(&mut self, join: &JoinNode) -> Lowering<Node> {
        let (left, right) = (self.node(&join.left)?, self.node(&join.right)?);
        let (of_left, of_right) =
            (Scope::of(join.left.schema(), &left.columns), Scope::of(join.right.schema(), &right.columns));
        let is_swapped =
            matches!(join.join_type, JoinType::Right | JoinType::RightSemi | JoinType::RightAnti | JoinType::RightMark);
        let mut keys = Vec::with_capacity(join.on.len());
        for (one, other) in &join.on {
            let (one, other) = (self.scalar(one, &of_left)?, self.scalar(other, &of_right)?);
            keys.push(if is_swapped { (other, one) } else { (one, other) });
        }
        let both: Vec<ColumnId> = left.columns.iter().chain(&right.columns).copied().collect();
        let condition = match &join.filter {
            None => None,
            Some(filter) => {
                let combined = join.left.schema().join(join.right.schema()).map_err(Unplanned::because)?;
                Some(self.scalar(filter, &Scope::of(&combined, &both))?)
            }
        };
        let null_aware = join.null_aware;
        let kind = match join.join_type {
            JoinType::Inner => JoinKind::Inner,
            JoinType::Left | JoinType::Right => JoinKind::Left,
            JoinType::Full => JoinKind::Full,
            JoinType::LeftSemi | JoinType::RightSemi => JoinKind::Semi,
            JoinType::LeftAnti | JoinType::RightAnti => JoinKind::Anti { null_aware },
            JoinType::LeftMark | JoinType::RightMark => JoinKind::Mark { column: self.new_column(), null_aware },
        };
        let (first, second) = if is_swapped { (right, left) } else { (left, right) };
        let mut columns = match kind {
            JoinKind::Inner | JoinKind::Left | JoinKind::Full => both,
            JoinKind::Semi | JoinKind::Anti { .. } | JoinKind::Mark { .. } => first.columns,
        };
        if let JoinKind::Mark { column, .. } = kind {
            columns.push(column);
        }
        let null_equal = join.null_equality == NullEquality::NullEqualsNull;
        let (left, right) = (first.relation, second.relation);
        let relation = Relation::Join(Box::new(Join { kind, left, right, keys, condition, null_equal }));
        Ok(Node { relation, columns })
    }

    fn sort(&mut self, sort: &Sort) -> Lowering<Node> {
        let Node { relation, columns } = self.node(&sort.input)?;
        let scope = Scope::of(sort.input.schema(), &columns);
        let keys = sort.expr.iter().map(|key| {
            let value = self.scalar(&key.expr, &scope)?;
            Ok(SortItem { value, descending: !key.asc, nulls_first: key.nulls_first })
        });
        let keys = keys.collect::<Lowering<Vec<SortItem>>>()?;
        let relation = Relation::Sort { input: Box::new(relation), keys, fetch: sort.fetch };
        Ok(Node { relation, columns })
    }

    fn limit(&mut self, limit: &Limit) -> Lowering<Node> {
        let Node { relation, columns } = self.node(&limit.input)?;
        let nothing = DFSchema::empty();
        let scope = Scope::of(&nothing, &[]);
        let mut count = |expr: &Option<Box<Expr>>| expr.as_ref().map(|expr| self.scalar(expr, &scope)).transpose();
        let (skip, fetch) = (count(&limit.skip)?, count(&limit.fetch)?);
        Ok(Node { relation: Relation::Limit { input: Box::new(relation), skip, fetch }, columns })
    }

    fn union(&mut self, union: &Union) -> Lowering<Node> {
        let inputs = union.inputs.iter().map(|input| {
            let Node { relation, columns } = self.node(input)?;
            Ok((relation, columns))
        });
        let inputs = inputs.collect::<Lowering<Vec<_>>>()?;
        let typed = self.new_columns(&union.schema)?;
        let columns = typed.iter().map(|column| column.column).collect();
        Ok(Node { relation: Relation::Union { inputs, columns: typed }, columns })
    }

    /// No rows, or one without columns.
    fn empty(&mut self, empty: &EmptyRelation) -> Lowering<Node> {
        if !empty.produce_one_row {
            return self.values(&empty.schema, Vec::new());
        }
        if empty.schema.fields().is_empty() {
            return Ok(Node { relation: Relation::OneRow, columns: Vec::new() });
        }
        Err(Unplanned::because("a row of columns without values"))
    }

    fn rows(&mut self, values: &Values) -> Lowering<Node> {
        let nothing = DFSchema::empty();
        let scope = Scope::of(&nothing, &[]);
        let row = |row: &Vec<Expr>| row.iter().map(|value| self.scalar(value, &scope)).collect();
        let rows = values.values.iter().map(row).collect::<Lowering<Vec<Vec<Scalar>>>>()?;
        self.values(&values.schema, rows)
    }

    fn values(&mut self, schema: &DFSchema, rows: Vec<Vec<Scalar>>) -> Lowering<Node> {
        let typed = self.new_columns(schema)?;
        let columns = typed.iter().map(|column| column.column).collect();
        Ok(Node { relation: Relation::Values { columns: typed, rows }, columns })
    }
}

/// What a node that is not translated is called in EXPLAIN and refusals.
fn node_name(plan: &LogicalPlan) -> String {
    let text = plan.display().to_string();
    text.split([':', ' ']).next().unwrap_or("plan").to_string()
}
