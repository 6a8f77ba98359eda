//! From a query to a plan that the task runs itself: for point accesses, and for streams of rows.
//!
//! ```text
//!   Project  a + 1                     Scan   t: a = 5, b > 2      what storage evaluates
//!     Filter   a = 5 and b > 2 and c     ->     filter c           what it cannot
//!       Scan     t: a, b, c                     a + 1
//! ```
//! Only columns that are needed are read. What has to look at many rows before it gives one (a sort of many rows, a
//! join without a key) is none of these plans: it is compiled to dataflows.

mod joins;

use std::collections::BTreeSet;
use std::sync::Arc;

use eris_operators::{AggregateCall, Expression, SortKey, SortKeys};
use eris_query::{
    Aggregate, AggregateItem, ColumnId, Projected, Relation, Scalar, ScannedColumn, SortItem, TableId, TypedColumn,
    Unplanned, columns_of, lower,
};
use eris_storage::{AttributeId, DataType};

use super::access::{Split, table_of};
use super::{Lowering, TypedPlan};
use crate::catalog::Table;
use crate::native::{Access, Node, Slot, SortSpec, TestTemplate};

/// A plan, and which columns it yields in which order.
struct Planned {
    node: Node,
    columns: Vec<ColumnId>,
}

impl Planned {
    fn place(&self) -> impl Fn(ColumnId) -> Option<usize> + '_ {
        |column| self.columns.iter().position(|known| *known == column)
    }

    fn lower_all<'s>(&self, scalars: impl IntoIterator<Item = &'s Scalar>) -> Lowering<Arc<[Expression]>> {
        scalars.into_iter().map(|scalar| lower(scalar, &self.place())).collect()
    }
}

/// Columns that are needed above.
type Needed = BTreeSet<ColumnId>;

/// The plan of a query.
pub(super) fn in_task(plan: &TypedPlan) -> Lowering<Node> {
    if !plan.query.values.is_empty() {
        return Err(Unplanned::because("a subquery that gives a value"));
    }
    let output = &plan.query.output;
    let planned = Tables(&plan.tables).planned(&plan.query.relation, &output.iter().copied().collect())?;
    if planned.columns == *output {
        return Ok(planned.node);
    }
    let types = planned.node.types();
    let column = |column: &ColumnId| {
        let index = planned.place()(*column).ok_or_else(|| Unplanned::because("a column of the result is missing"))?;
        Ok(Expression::Column { index, data_type: types[index] })
    };
    let expressions = output.iter().map(column).collect::<Lowering<Arc<[Expression]>>>()?;
    Ok(project(planned.node, expressions))
}

/// A scan with a condition, and values computed from each row that it finds.
pub(super) struct RowsPlan {
    /// None: no row can qualify.
    pub access: Option<Access>,
    pub filter: Option<Arc<Expression>>,
    pub values: Arc<[Expression]>,
}

/// The plan of what UPDATE and DELETE ask for.
pub(super) fn rows(relation: &Relation, tables: &[Arc<Table>], values: &[Scalar]) -> Lowering<RowsPlan> {
    let planned = Tables(tables).planned(relation, &columns_of(values))?;
    let values = planned.lower_all(values)?;
    match planned.node {
        Node::Scan { access, filter, projection: None } => {
            let is_empty = access.conditions.iter().any(|condition| matches!(condition.test, TestTemplate::Never));
            Ok(RowsPlan { access: (!is_empty).then_some(access), filter, values })
        }
        _ => Err(Unplanned::because("rows that are more than those of a table")),
    }
}

/// OFFSET or LIMIT.
pub(super) fn slot_of(count: &Scalar) -> Lowering<Slot> {
    Ok(match lower(count, &|_| None)? {
        Expression::Constant { value, .. } => Slot::Constant(value),
        expression => Slot::Expression(expression),
    })
}

/// Puts a projection on a node; into the scan itself where that is possible.
fn project(node: Node, expressions: Arc<[Expression]>) -> Node {
    match node {
        Node::Scan { access, filter, projection: None } => Node::Scan { access, filter, projection: Some(expressions) },
        Node::Values { rows, types } if types.is_empty() && rows.len() == 1 => {
            let types: Arc<[DataType]> = expressions.iter().map(Expression::data_type).collect();
            Node::Values { rows: [expressions].into(), types }
        }
        other => Node::Project { input: Box::new(other), expressions },
    }
}

/// All of these conditions; none: no condition.
fn all_of(mut conditions: Vec<Expression>) -> Option<Arc<Expression>> {
    match conditions.len() {
        0 | 1 => conditions.pop().map(Arc::new),
        _ => Some(Arc::new(Expression::and(conditions))),
    }
}

/// The tables of a query.
#[derive(Clone, Copy)]
struct Tables<'a>(&'a [Arc<Table>]);

impl Tables<'_> {
    fn planned(self, relation: &Relation, needed: &Needed) -> Lowering<Planned> {
        match relation {
            Relation::OneRow => Ok(Planned {
                node: Node::Values { rows: [Arc::from([])].into(), types: [].into() },
                columns: Vec::new(),
            }),
            Relation::Values { columns, rows } => values(columns, rows),
            Relation::Scan { table, columns } => self.scan(*table, columns, None, needed),
            Relation::Filter { input, condition } => self.filter(input, condition, needed),
            Relation::Project { input, items } => self.project(input, items, needed),
            Relation::Join(join) => self.join(join, needed),
            Relation::Aggregate(aggregate) => self.aggregate(aggregate, needed),
            Relation::Sort { input, keys, fetch } => self.sort(input, keys, *fetch, needed),
            Relation::Limit { input, skip, fetch } => {
                let Planned { node, columns } = self.planned(input, needed)?;
                let slot = |count: &Option<Scalar>| count.as_ref().map(slot_of).transpose();
                let node = Node::Limit { input: Box::new(node), skip: slot(skip)?, fetch: slot(fetch)? };
                Ok(Planned { node, columns })
            }
            Relation::Window { .. } => Err(Unplanned::because("window functions")),
            Relation::Distinct { .. } => Err(Unplanned::because("DISTINCT")),
            Relation::Union { .. } => Err(Unplanned::because("UNION")),
        }
    }

    /// A scan with the parts of its condition: those that storage evaluates become its conditions, the others a filter.
    fn scan(
        self,
        table: TableId,
        scanned: &[ScannedColumn],
        condition: Option<&Scalar>,
        needed: &Needed,
    ) -> Lowering<Planned> {
        let table = table_of(self.0, table)?;
        let split = match condition {
            Some(condition) => Split::of(condition, scanned, table)?,
            None => Split::default(),
        };
        let mut read = columns_of(split.outside.iter().copied());
        read.extend(needed);
        let columns: Vec<&ScannedColumn> = scanned.iter().filter(|known| read.contains(&known.column)).collect();
        let desired: Arc<[AttributeId]> = columns.iter().map(|known| known.attribute).collect();
        let columns: Vec<ColumnId> = columns.iter().map(|known| known.column).collect();
        let place = |column: ColumnId| columns.iter().position(|known| *known == column);
        let outside = split.outside.into_iter().map(|condition| lower(condition, &place));
        let filter = all_of(outside.collect::<Lowering<Vec<_>>>()?);
        let conditions = split.inside.into_iter().flat_map(|inside| inside.conditions).collect();
        let access = Access { table: Arc::clone(table), conditions, desired, order: None };
        Ok(Planned { node: Node::Scan { access, filter, projection: None }, columns })
    }

    fn filter(self, input: &Relation, condition: &Scalar, needed: &Needed) -> Lowering<Planned> {
        if let Relation::Scan { table, columns } = input {
            return self.scan(*table, columns, Some(condition), needed);
        }
        let mut below = columns_of([condition]);
        below.extend(needed);
        let input = self.planned(input, &below)?;
        let condition = Arc::new(lower(condition, &input.place())?);
        Ok(Planned { node: Node::Filter { input: Box::new(input.node), condition }, columns: input.columns })
    }

    fn project(self, input: &Relation, items: &[Projected], needed: &Needed) -> Lowering<Planned> {
        let items: Vec<&Projected> = items.iter().filter(|item| needed.contains(&item.column)).collect();
        let input = self.planned(input, &columns_of(items.iter().map(|item| &item.value)))?;
        let columns: Vec<ColumnId> = items.iter().map(|item| item.column).collect();
        let expressions = input.lower_all(items.iter().map(|item| &item.value))?;
        let is_same = expressions.len() == input.columns.len()
            && expressions
                .iter()
                .enumerate()
                .all(|(at, expression)| matches!(expression, Expression::Column { index, .. } if *index == at));
        let node = match input.node {
            node if is_same && !matches!(node, Node::Values { .. }) => node,
            node => project(node, expressions),
        };
        Ok(Planned { node, columns })
    }

    /// Groups run in the partitions if they are of a scan with filter and projection.
    fn aggregate(self, aggregate: &Aggregate, needed: &Needed) -> Lowering<Planned> {
        if aggregate.sets.is_some() {
            return Err(Unplanned::because("GROUPING SETS"));
        }
        let calls: Vec<&AggregateItem> =
            aggregate.calls.iter().filter(|call| needed.contains(&call.result.column)).collect();
        if calls.iter().any(|call| call.distinct || call.filter.is_some()) {
            return Err(Unplanned::because("an aggregate with DISTINCT or FILTER"));
        }
        let groups = || aggregate.groups.iter().map(|group| &group.value);
        let arguments = calls.iter().flat_map(|call| &call.argument);
        let input = self.planned(&aggregate.input, &columns_of(groups().chain(arguments)))?;
        let groups = input.lower_all(groups())?;
        let lowered = calls.iter().map(|call| {
            let argument = call.argument.as_ref().map(|argument| lower(argument, &input.place())).transpose()?;
            let result = call.result.sql_type.data_type();
            Ok(AggregateCall { function: call.function, input: argument, result })
        });
        let lowered = lowered.collect::<Lowering<Arc<[AggregateCall]>>>()?;
        let Node::Scan { access, filter, projection } = input.node else {
            return Err(Unplanned::because("groups of more than a table's rows"));
        };
        let columns = aggregate.groups.iter().map(|group| group.column);
        let columns = columns.chain(calls.iter().map(|call| call.result.column)).collect();
        Ok(Planned { node: Node::Aggregate { access, filter, projection, groups, calls: lowered }, columns })
    }

    fn sort(self, input: &Relation, keys: &[SortItem], fetch: Option<usize>, needed: &Needed) -> Lowering<Planned> {
        let mut below = columns_of(keys.iter().map(|key| &key.value));
        below.extend(needed);
        let input = self.planned(input, &below)?;
        if !input.node.is_small() {
            return Err(Unplanned::because("a sort of many rows"));
        }
        let key = |key: &SortItem| match lower(&key.value, &input.place())? {
            Expression::Column { index, .. } => {
                Ok(SortKey { column: index, descending: key.descending, nulls_first: key.nulls_first })
            }
            _ => Err(Unplanned::because("a sort by what is computed")),
        };
        let keys = keys.iter().map(key).collect::<Lowering<Vec<SortKey>>>()?;
        let spec = SortSpec { keys: SortKeys(keys.into()), fetch };
        Ok(Planned { node: Node::Sort { input: Box::new(input.node), spec }, columns: input.columns })
    }
}

fn values(columns: &[TypedColumn], rows: &[Vec<Scalar>]) -> Lowering<Planned> {
    let row = |row: &Vec<Scalar>| row.iter().map(|value| lower(value, &|_| None)).collect::<Lowering<Arc<[_]>>>();
    let rows = rows.iter().map(row).collect::<Lowering<Vec<_>>>()?;
    let types = columns.iter().map(|column| column.sql_type.data_type()).collect();
    let columns = columns.iter().map(|column| column.column).collect();
    Ok(Planned { node: Node::Values { rows: rows.into(), types }, columns })
}
