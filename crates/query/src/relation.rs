//! Relations: what gives rows. Columns are known by their [`ColumnId`]s, wherever they stand.
//!
//! ```text
//!   select c_name, sum(o_total) from customer join orders on c_id = o_customer group by c_name
//!
//!     Aggregate   #7 = sum(#5) by #6 = #1
//!       Join        #0 = #4
//!         Scan        customer  #0 c_id, #1 c_name
//!         Scan        orders    #3 o_id, #4 o_customer, #5 o_total
//! ```
//! No two relations of a query yield the same column, so that a scalar means the same wherever it is moved to. Columns
//! that are not needed above are not computed.

use eris_operators::{AggregateFunction, SortKey, WindowCall};
use eris_storage::AttributeId;

use crate::scalar::{ColumnId, Scalar};
use crate::types::SqlType;

/// A table of a statement, by its place among those that the statement names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableId(pub usize);

/// A query: what gives its rows, and which columns of them are its result.
#[derive(Clone, Debug)]
pub struct Query {
    /// The rows.
    pub relation: Relation,
    /// The columns of the result, in order.
    pub output: Vec<ColumnId>,
    /// Subqueries that refer to no row outside.
    pub values: Vec<ValueQuery>,
    /// How many parameters the statement has; those of `values` follow them.
    pub parameters: usize,
}

/// A subquery whose only value is a parameter to the rest: NULL without a row, an error with more than one.
#[derive(Clone, Debug)]
pub struct ValueQuery {
    /// The parameter.
    pub parameter: usize,
    /// Its rows.
    pub relation: Relation,
    /// The value.
    pub column: ColumnId,
}

/// What gives rows.
#[derive(Clone, Debug)]
pub enum Relation {
    /// One row without columns: what SELECT without FROM computes its items for.
    OneRow,
    /// Rows of values without columns below.
    Values {
        /// The columns.
        columns: Vec<TypedColumn>,
        /// A value for each column.
        rows: Vec<Vec<Scalar>>,
    },
    /// The rows of a table.
    Scan {
        /// The table, by its place in the statement.
        table: TableId,
        /// Its columns, in order.
        columns: Vec<ScannedColumn>,
    },
    /// The rows for which a condition is true.
    Filter {
        /// Of these rows.
        input: Box<Relation>,
        /// The condition.
        condition: Scalar,
    },
    /// Computed columns; those of the input end here.
    Project {
        /// Of these rows.
        input: Box<Relation>,
        /// The columns, in order.
        items: Vec<Projected>,
    },
    /// Rows of two relations together.
    Join(Box<Join>),
    /// One row for each group.
    Aggregate(Box<Aggregate>),
    /// The rows with results of window functions.
    Window {
        /// These rows.
        input: Box<Relation>,
        /// One after the other.
        windows: Vec<Window>,
    },
    /// Rows that differ in some columns, which alone go on.
    Distinct {
        /// Of these rows.
        input: Box<Relation>,
        /// The columns.
        columns: Vec<ColumnId>,
    },
    /// The rows in order.
    Sort {
        /// These rows.
        input: Box<Relation>,
        /// By these keys, the first one first.
        keys: Vec<SortItem>,
        /// At most this many are needed.
        fetch: Option<usize>,
    },
    /// A part of the rows.
    Limit {
        /// Of these rows.
        input: Box<Relation>,
        /// How many are left out first.
        skip: Option<Scalar>,
        /// How many follow; `None`: all.
        fetch: Option<Scalar>,
    },
    /// The rows of several relations, one after the other.
    Union {
        /// Each with the columns that become those of the union.
        inputs: Vec<(Relation, Vec<ColumnId>)>,
        /// The columns.
        columns: Vec<TypedColumn>,
    },
}

/// A column and its type.
#[derive(Clone, Copy, Debug)]
pub struct TypedColumn {
    /// As the statement knows it.
    pub column: ColumnId,
    /// Its type.
    pub sql_type: SqlType,
}

/// A column that a scan yields.
#[derive(Clone, Copy, Debug)]
pub struct ScannedColumn {
    /// As the statement knows it.
    pub column: ColumnId,
    /// As the table does.
    pub attribute: AttributeId,
    /// Its type.
    pub sql_type: SqlType,
}

/// A column that is computed.
#[derive(Clone, Debug)]
pub struct Projected {
    /// As it is known above.
    pub column: ColumnId,
    /// From the columns below.
    pub value: Scalar,
}

/// A sort key.
#[derive(Clone, Debug)]
pub struct SortItem {
    /// What is compared.
    pub value: Scalar,
    /// DESC.
    pub descending: bool,
    /// NULLS FIRST.
    pub nulls_first: bool,
}

/// A join.
#[derive(Clone, Debug)]
pub struct Join {
    /// What becomes of rows with and without partners.
    pub kind: JoinKind,
    /// The rows that matter to an outer, semi, anti or mark join.
    pub left: Relation,
    /// Their partners.
    pub right: Relation,
    /// What is equal in partners: of the left row and of the right one.
    pub keys: Vec<(Scalar, Scalar)>,
    /// What else is true of partners.
    pub condition: Option<Scalar>,
    /// Whether keys that are NULL equal each other.
    pub null_equal: bool,
}

/// What becomes of rows with and without partners.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JoinKind {
    /// Each pair of partners.
    Inner,
    /// And left rows without partner, with NULLs.
    Left,
    /// And right ones.
    Full,
    /// Left rows with a partner, once.
    Semi,
    /// Left rows without partner.
    Anti {
        /// As NOT IN: a NULL may be equal to anything.
        null_aware: bool,
    },
    /// All left rows, and whether they have a partner.
    Mark {
        /// The answer.
        column: ColumnId,
        /// As IN: it is NULL if only a NULL may be equal.
        null_aware: bool,
    },
}

/// Groups of rows.
#[derive(Clone, Debug)]
pub struct Aggregate {
    /// The rows.
    pub input: Relation,
    /// The keys; none: all rows are one group.
    pub groups: Vec<Projected>,
    /// What is computed of each group.
    pub calls: Vec<AggregateItem>,
    /// GROUPING SETS, ROLLUP or CUBE.
    pub sets: Option<GroupingSets>,
}

/// The result of an aggregate function.
#[derive(Clone, Debug)]
pub struct AggregateItem {
    /// The result, and its type.
    pub result: TypedColumn,
    /// The function.
    pub function: AggregateFunction,
    /// Its argument; `None` for count(*).
    pub argument: Option<Scalar>,
    /// DISTINCT.
    pub distinct: bool,
    /// FILTER.
    pub filter: Option<Scalar>,
}

/// Which of the keys rows are grouped by, each time once.
#[derive(Clone, Debug)]
pub struct GroupingSets {
    /// The number of the set that a group belongs to.
    pub number: TypedColumn,
    /// The sets.
    pub sets: Vec<GroupingSet>,
}

/// One set.
#[derive(Clone, Debug)]
pub struct GroupingSet {
    /// For each key whether the set groups by it.
    pub grouped: Vec<bool>,
    /// No two sets have the same.
    pub number: i64,
}

/// Window functions that see the same partitions in the same order.
#[derive(Clone, Debug)]
pub struct Window {
    /// What keys, functions and frames look at. Where those name a column, it is the place of one of these.
    pub inputs: Vec<Scalar>,
    /// The keys of the partition, then those of the order within it.
    pub keys: Vec<SortKey>,
    /// How many of the keys are the partition's.
    pub partition_keys: usize,
    /// What is computed.
    pub items: Vec<WindowItem>,
}

/// The result of a window function.
#[derive(Clone, Debug)]
pub struct WindowItem {
    /// The result.
    pub column: ColumnId,
    /// The function and its frame.
    pub call: WindowCall,
}

impl Relation {
    /// The relations that it is made of directly.
    pub fn inputs(&self) -> Vec<&Relation> {
        match self {
            Self::OneRow | Self::Values { .. } | Self::Scan { .. } => Vec::new(),
            Self::Filter { input, .. }
            | Self::Project { input, .. }
            | Self::Window { input, .. }
            | Self::Distinct { input, .. }
            | Self::Sort { input, .. }
            | Self::Limit { input, .. } => vec![input],
            Self::Join(join) => vec![&join.left, &join.right],
            Self::Aggregate(aggregate) => vec![&aggregate.input],
            Self::Union { inputs, .. } => inputs.iter().map(|(input, _)| input).collect(),
        }
    }

    /// The columns that it yields.
    pub fn columns(&self) -> Vec<ColumnId> {
        match self {
            Self::OneRow => Vec::new(),
            Self::Values { columns, .. } | Self::Union { columns, .. } => {
                columns.iter().map(|column| column.column).collect()
            }
            Self::Scan { columns, .. } => columns.iter().map(|column| column.column).collect(),
            Self::Project { items, .. } => items.iter().map(|item| item.column).collect(),
            Self::Distinct { columns, .. } => columns.clone(),
            Self::Filter { input, .. } | Self::Sort { input, .. } | Self::Limit { input, .. } => input.columns(),
            Self::Join(join) => {
                let mut columns = join.left.columns();
                match join.kind {
                    JoinKind::Inner | JoinKind::Left | JoinKind::Full => columns.extend(join.right.columns()),
                    JoinKind::Semi | JoinKind::Anti { .. } => {}
                    JoinKind::Mark { column, .. } => columns.push(column),
                }
                columns
            }
            Self::Aggregate(aggregate) => {
                let groups = aggregate.groups.iter().map(|group| group.column);
                let number = aggregate.sets.iter().map(|sets| sets.number.column);
                groups.chain(number).chain(aggregate.calls.iter().map(|call| call.result.column)).collect()
            }
            Self::Window { input, windows } => {
                let items = windows.iter().flat_map(|window| &window.items);
                input.columns().into_iter().chain(items.map(|item| item.column)).collect()
            }
        }
    }

    /// The relations that it is made of directly, to be changed; in the same order.
    fn inputs_mut(&mut self) -> Vec<&mut Relation> {
        match self {
            Self::OneRow | Self::Values { .. } | Self::Scan { .. } => Vec::new(),
            Self::Filter { input, .. }
            | Self::Project { input, .. }
            | Self::Window { input, .. }
            | Self::Distinct { input, .. }
            | Self::Sort { input, .. }
            | Self::Limit { input, .. } => vec![input],
            Self::Join(join) => vec![&mut join.left, &mut join.right],
            Self::Aggregate(aggregate) => vec![&mut aggregate.input],
            Self::Union { inputs, .. } => inputs.iter_mut().map(|(input, _)| input).collect(),
        }
    }

    /// The same of other relations than those that it is made of directly.
    #[must_use]
    pub fn map_inputs(mut self, change: &mut dyn FnMut(Relation) -> Relation) -> Self {
        for input in self.inputs_mut() {
            *input = change(std::mem::replace(input, Self::OneRow));
        }
        self
    }

    /// Calls `found` with it and all relations below, each before its inputs.
    pub fn visit<'r>(&'r self, found: &mut dyn FnMut(&'r Relation)) {
        let mut open = vec![self];
        while let Some(relation) = open.pop() {
            found(relation);
            open.extend(relation.inputs().into_iter().rev());
        }
    }

    /// The scalars that it computes itself.
    pub fn scalars(&self) -> Vec<&Scalar> {
        match self {
            Self::OneRow | Self::Scan { .. } | Self::Distinct { .. } | Self::Union { .. } => Vec::new(),
            Self::Values { rows, .. } => rows.iter().flatten().collect(),
            Self::Filter { condition, .. } => vec![condition],
            Self::Project { items, .. } => items.iter().map(|item| &item.value).collect(),
            Self::Join(join) => {
                let keys = join.keys.iter().flat_map(|(left, right)| [left, right]);
                keys.chain(&join.condition).collect()
            }
            Self::Aggregate(aggregate) => {
                let calls = aggregate.calls.iter().flat_map(|call| call.argument.iter().chain(&call.filter));
                aggregate.groups.iter().map(|group| &group.value).chain(calls).collect()
            }
            Self::Window { windows, .. } => windows.iter().flat_map(|window| &window.inputs).collect(),
            Self::Sort { keys, .. } => keys.iter().map(|key| &key.value).collect(),
            Self::Limit { skip, fetch, .. } => skip.iter().chain(fetch).collect(),
        }
    }

    /// The scalars that it computes itself, to be changed; in the same order.
    pub fn scalars_mut(&mut self) -> Vec<&mut Scalar> {
        match self {
            Self::OneRow | Self::Scan { .. } | Self::Distinct { .. } | Self::Union { .. } => Vec::new(),
            Self::Values { rows, .. } => rows.iter_mut().flatten().collect(),
            Self::Filter { condition, .. } => vec![condition],
            Self::Project { items, .. } => items.iter_mut().map(|item| &mut item.value).collect(),
            Self::Join(join) => {
                let keys = join.keys.iter_mut().flat_map(|(left, right)| [left, right]);
                keys.chain(&mut join.condition).collect()
            }
            Self::Aggregate(aggregate) => {
                let calls = aggregate.calls.iter_mut();
                let calls = calls.flat_map(|call| call.argument.iter_mut().chain(&mut call.filter));
                aggregate.groups.iter_mut().map(|group| &mut group.value).chain(calls).collect()
            }
            Self::Window { windows, .. } => windows.iter_mut().flat_map(|window| &mut window.inputs).collect(),
            Self::Sort { keys, .. } => keys.iter_mut().map(|key| &mut key.value).collect(),
            Self::Limit { skip, fetch, .. } => skip.iter_mut().chain(fetch).collect(),
        }
    }

    /// The columns that it names itself, beside those that its scalars refer to.
    fn named_columns_mut(&mut self) -> Vec<&mut ColumnId> {
        match self {
            Self::OneRow | Self::Filter { .. } | Self::Sort { .. } | Self::Limit { .. } => Vec::new(),
            Self::Values { columns, .. } => columns.iter_mut().map(|column| &mut column.column).collect(),
            Self::Scan { columns, .. } => columns.iter_mut().map(|column| &mut column.column).collect(),
            Self::Project { items, .. } => items.iter_mut().map(|item| &mut item.column).collect(),
            Self::Join(join) => match &mut join.kind {
                JoinKind::Mark { column, .. } => vec![column],
                _ => Vec::new(),
            },
            Self::Aggregate(aggregate) => {
                let groups = aggregate.groups.iter_mut().map(|group| &mut group.column);
                let number = aggregate.sets.iter_mut().map(|sets| &mut sets.number.column);
                let results = aggregate.calls.iter_mut().map(|call| &mut call.result.column);
                groups.chain(number).chain(results).collect()
            }
            Self::Window { windows, .. } => {
                let items = windows.iter_mut().flat_map(|window| &mut window.items);
                items.map(|item| &mut item.column).collect()
            }
            Self::Distinct { columns, .. } => columns.iter_mut().collect(),
            Self::Union { inputs, columns } => {
                let of_inputs = inputs.iter_mut().flat_map(|(_, own)| own);
                of_inputs.chain(columns.iter_mut().map(|column| &mut column.column)).collect()
            }
        }
    }

    /// Calls `visit` with every column that it and the relations below yield or refer to, in an order that depends on
    /// nothing else.
    pub fn each_column(&mut self, visit: &mut dyn FnMut(&mut ColumnId)) {
        self.each_relation(&mut |relation| {
            for column in relation.named_columns_mut() {
                visit(column);
            }
            for scalar in relation.scalars_mut() {
                scalar.each_column(visit);
            }
        });
    }

    /// Calls `change` with it and all relations below.
    pub fn each_relation(&mut self, change: &mut dyn FnMut(&mut Relation)) {
        change(self);
        for input in self.inputs_mut() {
            input.each_relation(change);
        }
    }

    /// Whether it gives the same rows each time.
    pub fn is_repeatable(&self) -> bool {
        let mut is_volatile = false;
        self.visit(&mut |relation| is_volatile |= relation.scalars().into_iter().any(Scalar::is_volatile));
        !is_volatile
    }
}
