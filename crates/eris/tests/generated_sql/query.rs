//! Queries and statements, and their text.

use std::fmt;

use crate::expression::{Expr, List};
use crate::value::{Kind, Type};

#[derive(Clone, Debug)]
pub struct Column {
    pub name: String,
    pub declared: Type,
    pub not_null: bool,
    /// Sums of its floating point values are exact in any order.
    pub summable: bool,
}

#[derive(Clone, Debug)]
pub struct Table {
    pub name: String,
    pub columns: Vec<Column>,
    /// Positions of the primary key; empty: none.
    pub key: Vec<usize>,
    /// The columns of each index.
    pub indexes: Vec<Vec<usize>>,
    /// What stands in WITH (...).
    pub storage: String,
}

impl Table {
    fn names(&self, positions: &[usize]) -> String {
        positions.iter().map(|at| self.columns[*at].name.as_str()).collect::<Vec<_>>().join(", ")
    }

    /// The statements that make it; another database is not told how to store it.
    pub fn create(&self, with_storage: bool) -> Vec<String> {
        let mut parts: Vec<String> = Vec::new();
        for column in &self.columns {
            let not_null = if column.not_null { " NOT NULL" } else { "" };
            parts.push(format!("{} {}{not_null}", column.name, column.declared));
        }
        if !self.key.is_empty() {
            parts.push(format!("PRIMARY KEY ({})", self.names(&self.key)));
        }
        let storage = if with_storage { format!(" WITH ({})", self.storage) } else { String::new() };
        let mut statements = vec![format!("CREATE TABLE {} ({}){storage}", self.name, parts.join(", "))];
        for (number, index) in self.indexes.iter().enumerate() {
            let (table, columns) = (&self.name, self.names(index));
            statements.push(format!("CREATE INDEX {table}_i{number} ON {table} ({columns})"));
        }
        statements
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JoinKind {
    Inner,
    Left,
    Right,
    Full,
    Cross,
}

#[derive(Clone, Debug)]
pub enum Source {
    /// By its position in the schema.
    Table(usize, String),
    Derived(Box<Query>),
}

/// One item of FROM; the first is joined to nothing.
#[derive(Clone, Debug)]
pub struct From {
    pub source: Source,
    pub alias: String,
    pub join: JoinKind,
    pub condition: Option<Expr>,
    /// How many columns it has.
    pub width: usize,
}

#[derive(Clone, Debug)]
pub struct Select {
    pub from: Vec<From>,
    pub filter: Option<Expr>,
    /// `None`: not grouped. Without keys there is one group.
    pub group: Option<Vec<Expr>>,
    pub having: Option<Expr>,
    pub items: Vec<Expr>,
    pub distinct: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetOperator {
    Union,
    UnionAll,
    Intersect,
    Except,
}

#[derive(Clone, Debug)]
pub enum Body {
    Select(Box<Select>),
    Set(SetOperator, Box<Body>, Box<Body>),
}

#[derive(Clone, Debug)]
pub struct OrderBy {
    pub position: usize,
    pub descending: bool,
    /// `None`: as the direction says.
    pub nulls_first: Option<bool>,
}

#[derive(Clone, Debug)]
pub struct Query {
    pub body: Body,
    pub order: Vec<OrderBy>,
    pub limit: Option<usize>,
    pub offset: Option<usize>,
}

impl Body {
    pub fn kinds(&self) -> Vec<Kind> {
        match self {
            Body::Select(select) => select.items.iter().map(|item| item.kind).collect(),
            Body::Set(_, left, _) => left.kinds(),
        }
    }
}

impl Query {
    pub fn of(select: Select) -> Query {
        Query { body: Body::Select(Box::new(select)), order: Vec::new(), limit: None, offset: None }
    }
}

#[derive(Clone, Debug)]
pub enum InsertSource {
    Values(Vec<Vec<Expr>>),
    Query(Query),
}

#[derive(Clone, Debug)]
pub enum Statement {
    Begin,
    Commit,
    Rollback,
    Insert {
        table: usize,
        name: String,
        columns: Vec<usize>,
        names: Vec<String>,
        source: InsertSource,
    },
    Update {
        table: usize,
        name: String,
        sets: Vec<(usize, String, Expr)>,
        filter: Option<Expr>,
    },
    Delete {
        table: usize,
        name: String,
        filter: Option<Expr>,
    },
    Query(Query),
    /// By another session, which sees what is committed.
    Elsewhere(Query),
    /// A query without a filter, which must give what it gives with the condition true, false and unknown.
    Partition(Query, Expr),
}

struct Clause<'a>(&'static str, Option<&'a Expr>);

impl fmt::Display for Clause<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.1.map_or(Ok(()), |expr| write!(f, " {} {expr}", self.0))
    }
}

impl fmt::Display for From {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.source {
            Source::Table(_, name) => write!(f, "{name} AS {}", self.alias)?,
            Source::Derived(query) => write!(f, "({query}) AS {}", self.alias)?,
        }
        Clause("ON", self.condition.as_ref()).fmt(f)
    }
}

impl fmt::Display for Select {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.distinct { "SELECT DISTINCT " } else { "SELECT " })?;
        for (at, item) in self.items.iter().enumerate() {
            write!(f, "{}{item} AS c{at}", if at > 0 { ", " } else { "" })?;
        }
        for (at, from) in self.from.iter().enumerate() {
            let word = match from.join {
                _ if at == 0 => " FROM ",
                JoinKind::Inner => " JOIN ",
                JoinKind::Left => " LEFT JOIN ",
                JoinKind::Right => " RIGHT JOIN ",
                JoinKind::Full => " FULL JOIN ",
                JoinKind::Cross => " CROSS JOIN ",
            };
            write!(f, "{word}{from}")?;
        }
        Clause("WHERE", self.filter.as_ref()).fmt(f)?;
        if let Some(keys) = &self.group
            && !keys.is_empty()
        {
            write!(f, " GROUP BY {}", List(keys))?;
        }
        Clause("HAVING", self.having.as_ref()).fmt(f)
    }
}

impl fmt::Display for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Body::Select(select) => select.fmt(f),
            Body::Set(operator, left, right) => {
                let word = match operator {
                    SetOperator::Union => "UNION",
                    SetOperator::UnionAll => "UNION ALL",
                    SetOperator::Intersect => "INTERSECT",
                    SetOperator::Except => "EXCEPT",
                };
                // INTERSECT binds more than the others: parentheses say what is meant.
                let side = |body: &Body| match body {
                    Body::Select(select) => select.to_string(),
                    Body::Set(..) => format!("({body})"),
                };
                write!(f, "{} {word} {}", side(left), side(right))
            }
        }
    }
}

impl fmt::Display for Query {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.body.fmt(f)?;
        for (at, key) in self.order.iter().enumerate() {
            write!(f, "{}{}", if at > 0 { ", " } else { " ORDER BY " }, key.position + 1)?;
            f.write_str(if key.descending { " DESC" } else { "" })?;
            f.write_str(match key.nulls_first {
                Some(true) => " NULLS FIRST",
                Some(false) => " NULLS LAST",
                None => "",
            })?;
        }
        if let Some(limit) = self.limit {
            write!(f, " LIMIT {limit}")?;
        }
        self.offset.map_or(Ok(()), |offset| write!(f, " OFFSET {offset}"))
    }
}

impl fmt::Display for Statement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Statement::Begin => f.write_str("BEGIN"),
            Statement::Commit => f.write_str("COMMIT"),
            Statement::Rollback => f.write_str("ROLLBACK"),
            Statement::Insert { name, names, source, .. } => {
                write!(f, "INSERT INTO {name} ({}) ", names.join(", "))?;
                match source {
                    InsertSource::Query(query) => query.fmt(f),
                    InsertSource::Values(rows) => {
                        let rows: Vec<String> = rows.iter().map(|row| format!("({})", List(row))).collect();
                        write!(f, "VALUES {}", rows.join(", "))
                    }
                }
            }
            Statement::Update { name, sets, filter, .. } => {
                let sets: Vec<String> = sets.iter().map(|(_, column, value)| format!("{column} = {value}")).collect();
                write!(f, "UPDATE {name} SET {}{}", sets.join(", "), Clause("WHERE", filter.as_ref()))
            }
            Statement::Delete { name, filter, .. } => {
                write!(f, "DELETE FROM {name}{}", Clause("WHERE", filter.as_ref()))
            }
            Statement::Query(query) | Statement::Elsewhere(query) | Statement::Partition(query, _) => query.fmt(f),
        }
    }
}
