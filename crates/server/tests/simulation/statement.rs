//! Statements on the two tables as values. The generator makes them, the model says what they mean, and here they
//! become SQL, with their constants written out or as parameters.

use std::fmt::Write;

/// One of the two tables; both have the columns of [`Row`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Table {
    Accounts,
    Ledger,
}

impl Table {
    pub const ALL: [Table; 2] = [Table::Accounts, Table::Ledger];

    pub fn name(self) -> &'static str {
        match self {
            Table::Accounts => "accounts",
            Table::Ledger => "ledger",
        }
    }
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Row {
    pub id: i64,
    pub branch: i64,
    pub amount: i64,
    pub note: Option<String>,
}

/// A WHERE clause.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Filter {
    All,
    Key(i64),
    Keys(Vec<i64>),
    /// Both ends included.
    Range(i64, i64),
    /// By the secondary index.
    Branch(i64),
    Above(i64),
    Remainder {
        divisor: i64,
        remainder: i64,
    },
    WithoutNote,
    NoteStarts(String),
    Both(Box<Filter>, Box<Filter>),
}

/// What a SELECT asks of the rows that pass its filter.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Query {
    Rows,
    /// Any so many of them.
    Some(u64),
    /// All of them, the largest amounts first.
    Sorted,
    /// Count, sum, least and largest amount, count of notes.
    Sums,
    /// Count and sum of amounts by branch.
    Groups,
    /// Each with the row whose key is its branch.
    Peers,
    /// The amount divided by its distance from this one: an error for a row that has it.
    Quotients(i64),
}

/// What an UPDATE does to the rows that pass its filter.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Change {
    Amount(i64),
    Add(i64),
    Note(Option<String>),
    Branch(i64),
    /// Another key, which may belong to another partition.
    Id(i64),
    ShiftIds(i64),
    /// An error for a row with this amount.
    Divide(i64),
    /// NULL where it is not allowed: an error for any row.
    Forget,
}

/// How a COPY ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CopyEnd {
    Done,
    /// The client gives up.
    Fail,
    /// The last line is not a row.
    BadLine,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Statement {
    Select {
        table: Table,
        filter: Filter,
        query: Query,
    },
    Insert {
        table: Table,
        rows: Vec<Row>,
    },
    /// NULL where it is not allowed.
    InsertNull {
        table: Table,
        id: i64,
    },
    /// The rows of a query, with other keys.
    InsertSelect {
        table: Table,
        from: Table,
        filter: Filter,
        shift: i64,
    },
    Update {
        table: Table,
        filter: Filter,
        change: Change,
    },
    Delete {
        table: Table,
        filter: Filter,
    },
    Copy {
        table: Table,
        rows: Vec<Row>,
        end: CopyEnd,
    },
    /// Takes all rows, whoever wrote them.
    Truncate {
        table: Table,
    },
    /// Only within a block.
    Lock {
        table: Table,
        mode: &'static str,
    },
    /// Makes a table that no other statement uses, or drops it.
    Side {
        drops: bool,
    },
    /// An error that is found without any row.
    DivideByZero,
    /// A table that does not exist.
    Nowhere,
}

impl Statement {
    pub fn writes(&self) -> bool {
        match self {
            Statement::Select { .. } | Statement::Lock { .. } | Statement::DivideByZero | Statement::Nowhere => false,
            Statement::Insert { .. }
            | Statement::Truncate { .. }
            | Statement::Side { .. }
            | Statement::InsertNull { .. }
            | Statement::InsertSelect { .. }
            | Statement::Update { .. }
            | Statement::Delete { .. }
            | Statement::Copy { .. } => true,
        }
    }

    /// The tables whose rows it uses.
    pub fn tables(&self) -> Vec<Table> {
        match self {
            Statement::InsertSelect { table, from, .. } => vec![*table, *from],
            Statement::Select { table, .. }
            | Statement::Insert { table, .. }
            | Statement::InsertNull { table, .. }
            | Statement::Update { table, .. }
            | Statement::Delete { table, .. }
            | Statement::Copy { table, .. }
            | Statement::Truncate { table }
            | Statement::Lock { table, .. } => vec![*table],
            Statement::Side { .. } | Statement::DivideByZero | Statement::Nowhere => Vec::new(),
        }
    }

    /// The table that it keeps from others as a whole.
    pub fn takes_whole(&self) -> Option<Table> {
        match self {
            Statement::Truncate { table } | Statement::Lock { table, .. } => Some(*table),
            _ => None,
        }
    }

    /// Whether it changes names, which a COMMIT may refuse.
    pub fn defines(&self) -> bool {
        matches!(self, Statement::Truncate { .. } | Statement::Side { .. })
    }

    /// Whether it may go on in temporary files.
    pub fn may_spill(&self) -> bool {
        matches!(self, Statement::Select { .. } | Statement::InsertSelect { .. })
    }

    pub fn is_query(&self) -> bool {
        matches!(self, Statement::Select { .. })
    }

    pub fn is_copy(&self) -> bool {
        matches!(self, Statement::Copy { .. })
    }
}

/// The value of a parameter.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Parameter {
    Integer(i64),
    Text(Option<String>),
}

/// The text of a statement.
pub struct Sql {
    pub text: String,
    pub parameters: Vec<Parameter>,
    inline: bool,
}

impl Sql {
    /// Constants are part of the text.
    pub fn inline(statement: &Statement) -> String {
        let mut sql = Sql { text: String::new(), parameters: Vec::new(), inline: true };
        sql.statement(statement);
        sql.text
    }

    /// Constants are parameters, as far as the grammar of the server lets them.
    pub fn with_parameters(statement: &Statement) -> Sql {
        let mut sql = Sql { text: String::new(), parameters: Vec::new(), inline: false };
        sql.statement(statement);
        sql
    }

    fn word(&mut self, text: &str) {
        self.text.push_str(text);
    }

    fn integer(&mut self, value: i64) {
        if self.inline {
            let _ = write!(self.text, "{value}");
        } else {
            self.parameters.push(Parameter::Integer(value));
            let _ = write!(self.text, "${}", self.parameters.len());
        }
    }

    fn note(&mut self, value: Option<&str>) {
        if !self.inline {
            self.parameters.push(Parameter::Text(value.map(str::to_owned)));
            let _ = write!(self.text, "${}", self.parameters.len());
            return;
        }
        match value {
            None => self.word("NULL"),
            Some(value) => {
                let _ = write!(self.text, "'{}'", value.replace('\'', "''"));
            }
        }
    }

    fn statement(&mut self, statement: &Statement) {
        match statement {
            Statement::Select { table, filter, query } => self.select(*table, filter, query),
            Statement::Insert { table, rows } => {
                self.word("INSERT INTO ");
                self.word(table.name());
                self.word(" VALUES ");
                for (at, row) in rows.iter().enumerate() {
                    self.word(if at == 0 { "(" } else { ", (" });
                    self.integer(row.id);
                    self.word(", ");
                    self.integer(row.branch);
                    self.word(", ");
                    self.integer(row.amount);
                    self.word(", ");
                    self.note(row.note.as_deref());
                    self.word(")");
                }
            }
            Statement::InsertNull { table, id } => {
                self.word("INSERT INTO ");
                self.word(table.name());
                self.word(" (id, branch, amount) VALUES (");
                self.integer(*id);
                self.word(", 0, NULL)");
            }
            Statement::InsertSelect { table, from, filter, shift } => {
                let _ = write!(self.text, "INSERT INTO {} SELECT id + ", table.name());
                self.integer(*shift);
                let _ = write!(self.text, ", branch, amount, note FROM {}", from.name());
                self.filter(filter, "");
            }
            Statement::Update { table, filter, change } => {
                let _ = write!(self.text, "UPDATE {} SET ", table.name());
                self.change(change);
                self.filter(filter, "");
            }
            Statement::Delete { table, filter } => {
                let _ = write!(self.text, "DELETE FROM {}", table.name());
                self.filter(filter, "");
            }
            Statement::Copy { table, .. } => {
                let _ = write!(self.text, "COPY {} FROM STDIN", table.name());
            }
            Statement::Truncate { table } => {
                let _ = write!(self.text, "TRUNCATE {}", table.name());
            }
            Statement::Lock { table, mode } => {
                let _ = write!(self.text, "LOCK TABLE {} IN {mode} MODE", table.name());
            }
            Statement::Side { drops: false } => {
                self.word("CREATE TABLE IF NOT EXISTS side (id bigint PRIMARY KEY, note text)");
            }
            Statement::Side { drops: true } => self.word("DROP TABLE IF EXISTS side"),
            Statement::DivideByZero => self.word("SELECT 1 / 0"),
            Statement::Nowhere => self.word("SELECT id FROM nowhere"),
        }
    }

    fn select(&mut self, table: Table, filter: &Filter, query: &Query) {
        let name = table.name();
        match query {
            Query::Rows | Query::Some(_) | Query::Sorted => {
                let _ = write!(self.text, "SELECT id, branch, amount, note FROM {name}");
                self.filter(filter, "");
                if *query == Query::Sorted {
                    self.word(" ORDER BY amount DESC, id");
                }
                if let Query::Some(count) = query {
                    let _ = write!(self.text, " LIMIT {count}");
                }
            }
            Query::Sums => {
                let _ = write!(
                    self.text,
                    "SELECT count(*), sum(amount), min(amount), max(amount), count(note) FROM {name}"
                );
                self.filter(filter, "");
            }
            Query::Groups => {
                let _ = write!(self.text, "SELECT branch, count(*), sum(amount) FROM {name}");
                self.filter(filter, "");
                self.word(" GROUP BY branch");
            }
            Query::Peers => {
                let _ = write!(
                    self.text,
                    "SELECT a.id, b.id, b.amount FROM {name} AS a JOIN {name} AS b ON b.id = a.branch"
                );
                self.filter(filter, "a.");
            }
            Query::Quotients(amount) => {
                self.word("SELECT id, amount / (amount - ");
                self.integer(*amount);
                let _ = write!(self.text, ") FROM {name}");
                self.filter(filter, "");
            }
        }
    }

    fn change(&mut self, change: &Change) {
        match change {
            Change::Amount(amount) => {
                self.word("amount = ");
                self.integer(*amount);
            }
            Change::Add(amount) => {
                self.word("amount = amount + ");
                self.integer(*amount);
            }
            Change::Note(note) => {
                self.word("note = ");
                self.note(note.as_deref());
            }
            Change::Branch(branch) => {
                self.word("branch = ");
                self.integer(*branch);
            }
            Change::Id(id) => {
                self.word("id = ");
                self.integer(*id);
            }
            Change::ShiftIds(shift) => {
                self.word("id = id + ");
                self.integer(*shift);
            }
            Change::Divide(amount) => {
                self.word("amount = amount / (amount - ");
                self.integer(*amount);
                self.word(")");
            }
            Change::Forget => self.word("amount = NULL"),
        }
    }

    fn filter(&mut self, filter: &Filter, alias: &str) {
        if *filter != Filter::All {
            self.word(" WHERE ");
            self.condition(filter, alias);
        }
    }

    fn condition(&mut self, filter: &Filter, alias: &str) {
        self.word(match filter {
            Filter::All => "true",
            Filter::Both(..) => "",
            _ => alias,
        });
        match filter {
            Filter::All => {}
            Filter::Key(id) => {
                self.word("id = ");
                self.integer(*id);
            }
            Filter::Keys(ids) => {
                self.word("id IN (");
                for (at, id) in ids.iter().enumerate() {
                    self.word(if at == 0 { "" } else { ", " });
                    self.integer(*id);
                }
                self.word(")");
            }
            Filter::Range(low, high) => {
                self.word("id BETWEEN ");
                self.integer(*low);
                self.word(" AND ");
                self.integer(*high);
            }
            Filter::Branch(branch) => {
                self.word("branch = ");
                self.integer(*branch);
            }
            Filter::Above(amount) => {
                self.word("amount > ");
                self.integer(*amount);
            }
            Filter::Remainder { divisor, remainder } => {
                self.word("amount % ");
                self.integer(*divisor);
                self.word(" = ");
                self.integer(*remainder);
            }
            Filter::WithoutNote => self.word("note IS NULL"),
            Filter::NoteStarts(start) => {
                let _ = write!(self.text, "note LIKE '{start}%'");
            }
            Filter::Both(one, other) => {
                self.condition(one, alias);
                self.word(" AND ");
                self.condition(other, alias);
            }
        }
    }
}

/// The lines of a COPY in PostgreSQL's text format.
pub fn copy_lines(rows: &[Row], end: CopyEnd) -> String {
    let mut lines = String::new();
    for row in rows {
        let note = match &row.note {
            None => "\\N".to_owned(),
            Some(note) => note.replace('\\', "\\\\").replace('\t', "\\t").replace('\n', "\\n"),
        };
        let _ = writeln!(lines, "{}\t{}\t{}\t{note}", row.id, row.branch, row.amount);
    }
    if end == CopyEnd::BadLine {
        lines.push_str("many\t1\t2\tnote\n");
    }
    lines
}
