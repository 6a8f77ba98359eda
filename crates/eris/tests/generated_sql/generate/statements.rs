//! What a case does: it fills its tables, changes them, in blocks and alone, and asks in between.

use super::queries::Shape;
use super::{Construct, Generator, Visible};
use crate::expression::{Expr, Node, Operator};
use crate::query::{Body, InsertSource, Query, Source, Statement};
use crate::value::{Kind, Value};

const STATEMENTS_MAX: usize = 40;
/// Rows of one INSERT that fills a table; more than the smallest segment has.
const ROWS_MAX: usize = 25;

impl Generator {
    pub(super) fn statements(&mut self) -> Vec<Statement> {
        let mut statements = Vec::new();
        for table in 0..self.tables.len() {
            // Some tables stay empty.
            for _ in 0..self.random.index(4) {
                let rows = 1 + self.random.index(ROWS_MAX);
                statements.push(self.insert(table, rows));
            }
        }
        let mut open = false;
        for _ in 0..10 + self.random.index(STATEMENTS_MAX - 10) {
            let statement = match self.random.below(100) {
                0..=6 if !open => Statement::Begin,
                0..=4 => Statement::Commit,
                5..=6 => Statement::Rollback,
                7..=22 => {
                    let (table, rows) = (self.random.index(self.tables.len()), 1 + self.random.index(4));
                    if self.chance(25) { self.insert_query(table) } else { self.insert(table, rows) }
                }
                23..=39 => self.update(),
                40..=45 => self.delete(),
                46..=50 => Statement::Elsewhere(self.query(Shape { tables_max: 2, grouped: true, subqueries: 0 })),
                51..=58 => self.partition(),
                _ => Statement::Query(self.query(Shape { tables_max: 3, grouped: true, subqueries: 2 })),
            };
            open = match statement {
                Statement::Begin => true,
                Statement::Commit | Statement::Rollback => false,
                _ => open,
            };
            statements.push(statement);
        }
        statements
    }

    /// A query without a filter, and the condition to divide it by.
    fn partition(&mut self) -> Statement {
        let mut select = self.select(Shape { tables_max: 2, grouped: false, subqueries: 0 });
        select.filter = None;
        select.distinct = false;
        self.see(&select.from.iter().map(|from| (from.alias.clone(), from.source.clone())).collect::<Vec<_>>());
        let condition = self.boolean(3);
        self.visible.clear();
        Statement::Partition(Query::of(select), condition)
    }

    /// Puts the columns of tables in sight; those of derived tables stay out.
    fn see(&mut self, sources: &[(String, Source)]) {
        let mut index = 0;
        for (alias, source) in sources {
            match source {
                Source::Table(table, _) => {
                    for column in &self.tables[*table].columns {
                        let (declared, summable) = (column.declared, column.summable);
                        let name = format!("{alias}.{}", column.name);
                        self.visible.push(Visible { depth: 0, index, name, declared, summable });
                        index += 1;
                    }
                }
                Source::Derived(query) => index += query.body.kinds().len(),
            }
        }
    }

    fn insert(&mut self, table: usize, rows: usize) -> Statement {
        self.visible.clear();
        let columns: Vec<usize> = self.inserted_columns(table);
        let mut values = Vec::new();
        for _ in 0..rows {
            let mut row = self.inserted_row(table, &columns);
            // A few tries for a key that is not taken; some stay taken.
            for _ in 0..4 {
                let own = |at: &usize| self.tables[table].key.contains(&columns[*at]);
                let key: Vec<String> = (0..row.len()).filter(own).map(|at| row[at].to_string()).collect();
                if key.is_empty() || self.keys[table].insert(key.join("|")) {
                    break;
                }
                row = self.inserted_row(table, &columns);
            }
            values.push(row);
        }
        let names = columns.iter().map(|at| self.tables[table].columns[*at].name.clone()).collect();
        let name = self.tables[table].name.clone();
        Statement::Insert { table, name, columns, names, source: InsertSource::Values(values) }
    }

    /// All columns, or all but some that may be NULL; now and then in another order.
    fn inserted_columns(&mut self, table: usize) -> Vec<usize> {
        let mut columns: Vec<usize> = (0..self.tables[table].columns.len()).collect();
        if self.chance(20) {
            let keep: Vec<bool> = columns.iter().map(|at| self.tables[table].columns[*at].not_null).collect();
            columns.retain(|at| keep[*at] || self.random.chance(0.7));
            self.random.shuffle(&mut columns);
        }
        if columns.is_empty() { vec![0] } else { columns }
    }

    fn inserted_row(&mut self, table: usize, columns: &[usize]) -> Vec<Expr> {
        let mut row = Vec::new();
        for at in columns {
            let column = self.tables[table].columns[*at].clone();
            let kind = column.declared.kind();
            if self.tables[table].key.contains(at) && kind.is_integer() && self.chance(70) {
                let value = Value::Int(self.random.between(-100, 1_000));
                row.push(Expr::new(kind, Node::Literal { value, bare: false }));
            } else {
                row.push(self.stored(column.declared, column.summable, column.not_null));
            }
        }
        row
    }

    fn insert_query(&mut self, table: usize) -> Statement {
        self.visible.clear();
        let columns: Vec<usize> = (0..self.tables[table].columns.len()).collect();
        let kinds: Vec<Kind> = columns.iter().map(|at| self.tables[table].columns[*at].declared.kind()).collect();
        let mut select = self.select_of(&kinds);
        for (at, item) in columns.iter().zip(&mut select.items) {
            let column = &self.tables[table].columns[*at];
            if column.declared.kind().is_float() && column.summable {
                *item = self.literal(item.kind);
            } else if item.kind.is_integer() && self.tables[table].key.contains(at) && item.kind != Kind::Int2 {
                // Out of the way of the keys that there are.
                let away = self.integer(2_000, 30_000);
                *item = Expr::binary(item.kind, Operator::Add, item.clone(), away);
            }
        }
        let names = columns.iter().map(|at| self.tables[table].columns[*at].name.clone()).collect();
        let name = self.tables[table].name.clone();
        Statement::Insert { table, name, columns, names, source: InsertSource::Query(Query::of(select)) }
    }

    fn changed_table(&mut self) -> (usize, String) {
        let table = self.random.index(self.tables.len());
        let name = self.tables[table].name.clone();
        self.visible.clear();
        self.see(&[(name.clone(), Source::Table(table, String::new()))]);
        (table, name)
    }

    /// Most conditions pick few rows: by key, by a range of it, or by anything.
    fn changed_rows(&mut self, table: usize) -> Option<Expr> {
        if self.chance(8) {
            return None;
        }
        let key = self.tables[table].key.first().copied();
        let Some(key) = key.filter(|_| self.chance(50)) else { return Some(self.boolean(2)) };
        let column = self.visible[key].clone();
        let (column, kind) = (column.expr(), column.declared.kind());
        let low = self.literal(kind);
        if self.chance(50) {
            let operator = self.pick(&Operator::COMPARISONS);
            return Some(Expr::binary(Kind::Bool, operator, column, low));
        }
        let high = self.literal(kind);
        Some(Expr::new(
            Kind::Bool,
            Node::Between { input: Box::new(column), low: Box::new(low), high: Box::new(high), negated: false },
        ))
    }

    fn update(&mut self) -> Statement {
        let (table, name) = self.changed_table();
        let mut sets: Vec<(usize, String, Expr)> = Vec::new();
        for _ in 0..=self.random.index(2) {
            let at = self.random.index(self.tables[table].columns.len());
            let column = self.tables[table].columns[at].clone();
            let is_key = self.tables[table].key.contains(&at);
            if sets.iter().any(|(known, ..)| *known == at) || (is_key && !self.chance(25)) {
                continue;
            }
            let kind = column.declared.kind();
            let value = if self.chance(40) || (kind.is_float() && column.summable) {
                self.stored(column.declared, column.summable, column.not_null)
            } else {
                self.expr(kind, 2)
            };
            sets.push((at, column.name, value));
        }
        let filter = self.changed_rows(table);
        self.visible.clear();
        if sets.is_empty() {
            return Statement::Delete { table, name, filter };
        }
        Statement::Update { table, name, sets, filter }
    }

    fn delete(&mut self) -> Statement {
        let (table, name) = self.changed_table();
        let mut filter = self.changed_rows(table);
        if self.chance(15) && self.allows(Construct::Subquery) {
            filter = Some(self.subquery_condition());
        }
        self.visible.clear();
        Statement::Delete { table, name, filter }
    }
}

/// Whether a query is one SELECT without anything that lets a database leave out work.
pub fn computes_everything(query: &Query) -> bool {
    let Body::Select(select) = &query.body else { return false };
    let plain = select.from.len() == 1 && matches!(select.from[0].source, Source::Table(..));
    let exprs = select.filter.iter().chain(&select.items).chain(&select.having);
    // A HAVING that is never met needs no groups.
    let plain = plain && !select.having.as_ref().is_some_and(Expr::has_null);
    plain && query.limit.is_none() && query.offset.is_none() && !exprs.into_iter().any(Expr::has_subquery)
}
