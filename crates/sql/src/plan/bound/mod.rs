//! From bound relations to native plans: which access reads them, and what is computed from what it reads.
//!
//! ```text
//!   Project  a + 1                     Scan   t: a = 5, b > 2      what storage evaluates
//!     Filter   a = 5 and b > 2 and c     ->     filter c           what it cannot
//!       Scan     t: a, b, c                     a + 1
//! ```
//! Only columns that are needed are read. A sort of many rows is none of these plans: it is compiled to dataflows.

mod conditions;

use std::collections::BTreeSet;
use std::sync::Arc;

use eris_operators::{Expression, SortKey, SortKeys};
use eris_query::{ColumnId, Projected, Relation, Scalar, ScannedColumn, SortItem, TableId, Unplanned, lower};
use eris_storage::{AttributeId, DataType};

use crate::ast;
use crate::binder::{Binder, Binding, Known, Names};
use crate::catalog::Table;
use crate::front::TableName;
use crate::native::{Access, ConditionTemplate, Node, Slot, SortSpec, TestTemplate};
use crate::plan::{ParameterTypes, Scope};
use crate::session::ColumnDescription;

/// A query that was bound here, and its plan.
pub(crate) struct OwnQuery {
    pub node: Node,
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

    /// Binds and plans a query of one table or none.
    pub(crate) fn own_query(&self, query: &ast::Query, types: ParameterTypes) -> Binding<OwnQuery> {
        let mut binder = self.binder(types)?;
        let bound = binder.query(query)?;
        let known = binder.finish();
        let output: Vec<ColumnId> = bound.output.iter().map(|column| column.column).collect();
        let node = self::query(&bound.relation, &known.tables, &output)?;
        let description =
            |column: crate::binder::OutputColumn| ColumnDescription { name: column.name, sql_type: column.sql_type };
        self.planner.note_bound_here();
        Ok(OwnQuery { node, columns: bound.output.into_iter().map(description).collect(), known })
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

/// A plan, and which columns it yields in which order.
struct Planned {
    node: Node,
    columns: Vec<ColumnId>,
}

impl Planned {
    fn place(&self) -> impl Fn(ColumnId) -> Option<usize> + '_ {
        |column| self.columns.iter().position(|known| *known == column)
    }
}

/// The plan of a query that yields these columns, in this order.
pub(super) fn query(relation: &Relation, tables: &[Arc<Table>], output: &[ColumnId]) -> Binding<Node> {
    let needed = output.iter().copied().collect();
    let planned = planned(relation, tables, &needed)?;
    if planned.columns == output {
        return Ok(planned.node);
    }
    let place = planned.place();
    let types = planned.node.types();
    let column = |column: &ColumnId| {
        let index = place(*column).ok_or_else(|| Unplanned::because("a column of the result is missing"))?;
        Ok(Expression::Column { index, data_type: types[index] })
    };
    let expressions = output.iter().map(column).collect::<Binding<Arc<[Expression]>>>()?;
    drop(place);
    Ok(Node::Project { input: Box::new(planned.node), expressions })
}

/// A scan with a condition, and values computed from each row that it finds.
pub(super) struct RowsPlan {
    /// None: no row can qualify.
    pub access: Option<Access>,
    pub filter: Option<Arc<Expression>>,
    pub values: Arc<[Expression]>,
}

/// The plan of what UPDATE and DELETE ask for.
pub(super) fn rows(relation: &Relation, tables: &[Arc<Table>], values: &[Scalar]) -> Binding<RowsPlan> {
    let planned = planned(relation, tables, &columns_of(values))?;
    let values = values.iter().map(|value| lower(value, &planned.place())).collect::<Binding<Arc<[Expression]>>>()?;
    match planned.node {
        Node::Scan { access, filter, projection: None } => {
            let is_empty = access.conditions.iter().any(|condition| matches!(condition.test, TestTemplate::Never));
            Ok(RowsPlan { access: (!is_empty).then_some(access), filter, values })
        }
        _ => Err(Unplanned::because("rows that are more than those of a table")),
    }
}

/// The columns that scalars refer to.
fn columns_of<'s>(scalars: impl IntoIterator<Item = &'s Scalar>) -> BTreeSet<ColumnId> {
    let mut columns = BTreeSet::new();
    for scalar in scalars {
        scalar.columns(&mut |column| {
            columns.insert(column);
        });
    }
    columns
}

fn planned(relation: &Relation, tables: &[Arc<Table>], needed: &BTreeSet<ColumnId>) -> Binding<Planned> {
    match relation {
        Relation::OneRow => {
            Ok(Planned { node: Node::Values { rows: [Arc::from([])].into(), types: [].into() }, columns: Vec::new() })
        }
        Relation::Scan { table, columns } => scan(*table, columns, tables, &[], needed),
        Relation::Filter { input, condition } => match input.as_ref() {
            Relation::Scan { table, columns } => scan(*table, columns, tables, condition.conjuncts(), needed),
            _ => Err(Unplanned::because("a condition without a table")),
        },
        Relation::Project { input, items } => project(input, items, tables, needed),
        Relation::Sort { input, keys } => sort(input, keys, tables, needed),
        Relation::Limit { input, skip, fetch } => {
            let Planned { node, columns } = planned(input, tables, needed)?;
            let slot = |count: &Option<Scalar>| count.as_ref().map(slot_of).transpose();
            let node = Node::Limit { input: Box::new(node), skip: slot(skip)?, fetch: slot(fetch)? };
            Ok(Planned { node, columns })
        }
    }
}

/// A scan with the parts of its condition: those that storage evaluates become its conditions, the others a filter.
fn scan(
    table: TableId,
    scanned: &[ScannedColumn],
    tables: &[Arc<Table>],
    conditions: &[Scalar],
    needed: &BTreeSet<ColumnId>,
) -> Binding<Planned> {
    let table = tables.get(table.0).ok_or_else(|| Unplanned::because("a table that is not there"))?;
    let attribute_of =
        |column: ColumnId| scanned.iter().find(|known| known.column == column).map(|known| known.attribute);
    let (mut inside, mut outside): (Vec<ConditionTemplate>, Vec<&Scalar>) = (Vec::new(), Vec::new());
    for condition in conditions {
        let own = conditions::known(condition, table);
        match own.or_else(|| conditions::condition_of(condition, table, &attribute_of)) {
            Some(own) => inside.extend(own),
            None => outside.push(condition),
        }
    }
    let mut read = columns_of(outside.iter().copied());
    read.extend(needed);
    let columns: Vec<&ScannedColumn> = scanned.iter().filter(|known| read.contains(&known.column)).collect();
    let desired: Arc<[AttributeId]> = columns.iter().map(|known| known.attribute).collect();
    let columns: Vec<ColumnId> = columns.iter().map(|known| known.column).collect();
    let place = |column: ColumnId| columns.iter().position(|known| *known == column);
    let outside = outside.into_iter().map(|condition| lower(condition, &place)).collect::<Binding<Vec<_>>>()?;
    let filter = match outside.len() {
        0 => None,
        1 => outside.into_iter().next(),
        _ => Some(Expression::and(outside)),
    };
    let access = Access { table: Arc::clone(table), conditions: inside, desired, order: None };
    Ok(Planned { node: Node::Scan { access, filter: filter.map(Arc::new), projection: None }, columns })
}

fn project(
    input: &Relation,
    items: &[Projected],
    tables: &[Arc<Table>],
    needed: &BTreeSet<ColumnId>,
) -> Binding<Planned> {
    let items: Vec<&Projected> = items.iter().filter(|item| needed.contains(&item.column)).collect();
    let input = planned(input, tables, &columns_of(items.iter().map(|item| &item.value)))?;
    let columns: Vec<ColumnId> = items.iter().map(|item| item.column).collect();
    let place = input.place();
    let expressions = items.iter().map(|item| lower(&item.value, &place)).collect::<Binding<Arc<[Expression]>>>()?;
    let is_same = expressions.len() == input.columns.len()
        && expressions
            .iter()
            .enumerate()
            .all(|(at, expression)| matches!(expression, Expression::Column { index, .. } if *index == at));
    drop(place);
    let node = match input.node {
        node if is_same && !matches!(node, Node::Values { .. }) => node,
        Node::Scan { access, filter, projection: None } => Node::Scan { access, filter, projection: Some(expressions) },
        Node::Values { rows, types } if types.is_empty() && rows.len() == 1 => {
            let types: Arc<[DataType]> = expressions.iter().map(Expression::data_type).collect();
            Node::Values { rows: [expressions].into(), types }
        }
        other => Node::Project { input: Box::new(other), expressions },
    };
    Ok(Planned { node, columns })
}

fn sort(input: &Relation, keys: &[SortItem], tables: &[Arc<Table>], needed: &BTreeSet<ColumnId>) -> Binding<Planned> {
    let mut below = columns_of(keys.iter().map(|key| &key.value));
    below.extend(needed);
    let input = planned(input, tables, &below)?;
    if !input.node.is_small() {
        return Err(Unplanned::because("a sort of many rows"));
    }
    let place = input.place();
    let key = |key: &SortItem| match lower(&key.value, &place)? {
        Expression::Column { index, .. } => {
            Ok(SortKey { column: index, descending: key.descending, nulls_first: key.nulls_first })
        }
        _ => Err(Unplanned::because("a sort by what is computed")),
    };
    let keys = keys.iter().map(key).collect::<Binding<Vec<SortKey>>>()?;
    drop(place);
    let spec = SortSpec { keys: SortKeys(keys.into()), fetch: None };
    Ok(Planned { node: Node::Sort { input: Box::new(input.node), spec }, columns: input.columns })
}

/// OFFSET or LIMIT.
fn slot_of(count: &Scalar) -> Binding<Slot> {
    Ok(match lower(count, &|_| None)? {
        Expression::Constant { value, .. } => Slot::Constant(value),
        expression => Slot::Expression(expression),
    })
}

/// A condition that no row satisfies.
fn never(data_type: DataType) -> ConditionTemplate {
    ConditionTemplate { attribute: AttributeId(0), data_type, test: TestTemplate::Never }
}
