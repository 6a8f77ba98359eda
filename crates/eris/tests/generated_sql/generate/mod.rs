//! Schemas, data and statements from a seed.

mod expressions;
mod literals;
mod queries;
mod statements;

pub use statements::computes_everything;

use std::collections::BTreeSet;
use std::env;

use eris_platform::SeededRandom;

use crate::expression::{Expr, Node};
use crate::query::{Column, Statement, Table};
use crate::value::{Kind, Type};

/// What a seed stands for.
#[derive(Clone, Debug)]
pub struct Case {
    pub seed: u64,
    pub workers: usize,
    pub nodes: usize,
    pub split_rows: u64,
    pub tables: Vec<Table>,
    pub statements: Vec<Statement>,
}

/// Where a case is going to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    Eris,
    /// Also beside PostgreSQL, whose letters and digits of averages depend on how it is set up.
    Both,
}

/// What may be left out of cases while ERIS gets it wrong: a name in [`LEFT_OUT`] is a bug that is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Construct {
    /// IN, EXISTS and scalar subqueries in conditions.
    Subquery,
    /// A date compared with a timestamp.
    DateBesideTimestamp,
    /// Times that are not within some centuries of ours.
    FarTime,
    /// `abs` and unary minus of the least integer.
    LeastInteger,
    /// Arithmetic and comparisons of floating point with other numbers.
    FloatBesideOther,
    /// Floating point out of range.
    FloatRange,
    /// A cast in the keys or aggregates of a grouped query: those that differ in a cast alone get one name.
    GroupedCast,
    /// A cast that takes digits away from a numeric.
    NarrowNumeric,
    /// `round` to some digits.
    Round,
    /// NOT IN with NULL in the list.
    NotInNull,
    /// CASE, coalesce, nullif, greatest, least.
    Choice,
    /// A subquery in FROM.
    Derived,
}

/// What is left out now; `ERIS_LEFT_OUT=Subquery,Choice` leaves these out instead, `ERIS_LEFT_OUT=none` nothing.
const LEFT_OUT: &[Construct] = &[Construct::GroupedCast];

/// A column that an expression may name.
#[derive(Clone, Debug)]
struct Visible {
    depth: usize,
    index: usize,
    name: String,
    declared: Type,
    summable: bool,
}

impl Visible {
    fn expr(&self) -> Expr {
        let Visible { depth, index, name, declared, .. } = self.clone();
        Expr::new(declared.kind(), Node::Column { depth, index, name, declared })
    }
}

pub struct Generator {
    random: SeededRandom,
    dialect: Dialect,
    left_out: String,
    tables: Vec<Table>,
    /// What expressions may name, the nearest query last.
    visible: Vec<Visible>,
    /// Subqueries that may still be made in this statement.
    subqueries: usize,
    /// Aliases so far, so that none hides another.
    aliases: usize,
    /// Keys so far, by table: most rows get a new one.
    keys: Vec<BTreeSet<String>>,
}

impl Generator {
    pub fn case(seed: u64, dialect: Dialect) -> Case {
        let mut generator = Generator {
            random: SeededRandom::new(seed),
            dialect,
            left_out: env::var("ERIS_LEFT_OUT").unwrap_or_else(|_| format!("{LEFT_OUT:?}")),
            tables: Vec::new(),
            visible: Vec::new(),
            subqueries: 0,
            aliases: 0,
            keys: Vec::new(),
        };
        for number in 0..=generator.random.index(3) {
            let table = generator.table(number);
            generator.tables.push(table);
            generator.keys.push(BTreeSet::new());
        }
        let statements = generator.statements();
        let nodes = 1 + generator.random.index(2);
        Case {
            seed,
            workers: nodes + generator.random.index(2),
            nodes,
            split_rows: [10, 40, 4_000_000][generator.random.index(3)],
            tables: generator.tables,
            statements,
        }
    }

    fn allows(&self, construct: Construct) -> bool {
        self.dialect == Dialect::Both || !self.left_out.contains(&format!("{construct:?}"))
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.random.below(100) < percent
    }

    fn pick<T: Clone>(&mut self, list: &[T]) -> T {
        list[self.random.index(list.len())].clone()
    }

    fn column_type(&mut self) -> Type {
        match self.pick(&Kind::ALL) {
            Kind::Numeric => {
                let precision = 1 + self.random.below(12) as u32;
                Type::Numeric(precision, self.random.below(u64::from(precision.min(4)) + 1) as u32)
            }
            Kind::Text if self.chance(50) => Type::Varchar(1 + self.random.index(8)),
            kind => Type::Plain(kind),
        }
    }

    fn table(&mut self, number: usize) -> Table {
        let mut columns: Vec<Column> = (0..2 + self.random.index(5))
            .map(|at| {
                let declared = self.column_type();
                let (not_null, summable) = (self.chance(25), self.chance(60));
                Column { name: format!("c{at}"), declared, not_null, summable }
            })
            .collect();
        let mut key = Vec::new();
        if self.chance(80) {
            for _ in 0..=self.random.index(2) {
                let at = self.random.index(columns.len());
                // Most keys are integers; floating point as a key is nobody's wish.
                if self.chance(70) || columns[at].declared.kind().is_float() {
                    columns[at].declared = Type::Plain(self.pick(&[Kind::Int2, Kind::Int4, Kind::Int8]));
                }
                columns[at].not_null = true;
                if !key.contains(&at) {
                    key.push(at);
                }
            }
        }
        let mut indexes = Vec::new();
        for _ in 0..self.random.index(3) {
            let mut index = vec![self.random.index(columns.len())];
            let second = self.random.index(columns.len());
            if self.chance(30) && second != index[0] {
                index.push(second);
            }
            indexes.push(index);
        }
        let layout = self.pick(&["default", "row", "column", "mixed"]);
        let partitions =
            if self.chance(40) { String::new() } else { format!(", partitions = {}", 1 + self.random.index(7)) };
        let segment_rows = self.pick(&[8, 8, 16, 64, 1_024]);
        let storage = format!("layout = {layout}, segment_rows = {segment_rows}{partitions}");
        Table { name: format!("t{number}"), columns, key, indexes, storage }
    }
}
