//! What a statement asks for, after everything that is not planned has been refused.

use std::fmt;

use eris_engine::{IsolationLevel, TableLockMode};
use eris_storage::IndexKind;

use crate::ast;
use crate::types::SqlType;

/// A table's name with an optional schema, folded to lower case unless quoted.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TableName {
    /// `None`: look in `public`.
    pub schema: Option<String>,
    /// The name itself.
    pub name: String,
}

impl TableName {
    /// Whether it means a table of `public`: tables of users are nowhere else.
    pub fn is_public(&self) -> bool {
        self.schema.as_deref().is_none_or(|schema| schema == "public")
    }
}

impl fmt::Display for TableName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.schema {
            Some(schema) => write!(f, "{schema}.{}", self.name),
            None => f.write_str(&self.name),
        }
    }
}

/// One statement.
#[derive(Clone, Debug)]
pub enum Command {
    /// SELECT, VALUES, TABLE and their set operations.
    Query(Box<ast::Query>),
    /// INSERT.
    Insert(InsertCommand),
    /// UPDATE.
    Update(UpdateCommand),
    /// DELETE.
    Delete(DeleteCommand),
    /// COPY ... FROM.
    Copy(CopyCommand),
    /// CREATE TABLE.
    CreateTable(CreateTableCommand),
    /// DROP TABLE.
    DropTable {
        /// Which.
        names: Vec<TableName>,
        /// No error if one is missing.
        if_exists: bool,
    },
    /// CREATE INDEX.
    CreateIndex(CreateIndexCommand),
    /// DROP INDEX.
    DropIndex {
        /// Which.
        names: Vec<TableName>,
        /// No error if one is missing.
        if_exists: bool,
    },
    /// TRUNCATE.
    Truncate {
        /// Which.
        names: Vec<TableName>,
        /// No error if one is missing.
        if_exists: bool,
    },
    /// LOCK TABLE.
    LockTable {
        /// Which.
        names: Vec<TableName>,
        /// IN ... MODE.
        mode: TableLockMode,
        /// NOWAIT: fail instead of waiting.
        nowait: bool,
    },
    /// BEGIN, START TRANSACTION.
    Begin(Isolation),
    /// COMMIT, END.
    Commit,
    /// ROLLBACK.
    Rollback,
    /// SET TRANSACTION.
    SetTransaction(Isolation),
    /// SET SESSION CHARACTERISTICS: of the transactions that follow.
    SetCharacteristics(Isolation),
    /// SET name = value.
    Set {
        /// Folded name.
        name: String,
        /// The new value.
        value: SetValue,
        /// SET LOCAL: until the transaction ends.
        local: bool,
    },
    /// RESET name, RESET ALL (`None`).
    Reset(Option<String>),
    /// SHOW name, SHOW ALL (`None`).
    Show(Option<String>),
    /// EXPLAIN.
    Explain(ExplainCommand),
    /// PREPARE.
    Prepare {
        /// The statement's name.
        name: String,
        /// Declared types of its parameters.
        parameter_types: Vec<SqlType>,
        /// What is prepared.
        statement: Box<Command>,
    },
    /// EXECUTE.
    Execute {
        /// The statement's name.
        name: String,
        /// Constant expressions.
        arguments: Vec<ast::Expr>,
    },
    /// CHECKPOINT.
    Checkpoint,
    /// BACKUP TO a directory.
    Backup(String),
    /// DEALLOCATE name, DEALLOCATE ALL (`None`).
    Deallocate(Option<String>),
    /// DISCARD.
    Discard {
        /// DISCARD ALL: everything a session holds.
        all: bool,
    },
}

/// INSERT INTO table (columns) source.
#[derive(Clone, Debug)]
pub struct InsertCommand {
    /// Into which table.
    pub table: TableName,
    /// Named columns; empty: all.
    pub columns: Vec<String>,
    /// Where rows come from.
    pub source: InsertSource,
}

/// Where inserted rows come from.
#[derive(Clone, Debug)]
pub enum InsertSource {
    /// DEFAULT VALUES.
    Defaults,
    /// VALUES lists; `None` is DEFAULT.
    Values(Vec<Vec<Option<ast::Expr>>>),
    /// A query.
    Query(Box<ast::Query>),
}

/// UPDATE table SET assignments FROM others WHERE selection.
#[derive(Clone, Debug)]
pub struct UpdateCommand {
    /// Which table.
    pub table: TableName,
    /// Its alias.
    pub alias: Option<String>,
    /// SET.
    pub assignments: Vec<Assignment>,
    /// FROM.
    pub others: Vec<ast::TableWithJoins>,
    /// WHERE.
    pub selection: Option<ast::Expr>,
}

/// column = value.
#[derive(Clone, Debug)]
pub struct Assignment {
    /// The column.
    pub column: String,
    /// `None`: DEFAULT.
    pub value: Option<ast::Expr>,
}

/// DELETE FROM table USING others WHERE selection.
#[derive(Clone, Debug)]
pub struct DeleteCommand {
    /// Which table.
    pub table: TableName,
    /// Its alias.
    pub alias: Option<String>,
    /// USING.
    pub others: Vec<ast::TableWithJoins>,
    /// WHERE.
    pub selection: Option<ast::Expr>,
}

/// COPY table (columns) FROM source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyCommand {
    /// Into which table.
    pub table: TableName,
    /// Named columns; empty: all.
    pub columns: Vec<String>,
    /// Where from.
    pub source: CopySource,
    /// How to read it.
    pub format: CopyFormat,
}

/// Where COPY reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CopySource {
    /// The client sends it.
    Stdin,
    /// A file of the server.
    File(String),
}

/// How COPY reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyFormat {
    /// CSV, otherwise PostgreSQL's text format.
    pub csv: bool,
    /// Between fields.
    pub delimiter: u8,
    /// Around fields (CSV).
    pub quote: u8,
    /// Before a quote inside quotes (CSV).
    pub escape: u8,
    /// What stands for NULL.
    pub null: String,
    /// The first line names columns and is skipped.
    pub header: bool,
}

/// CREATE TABLE.
#[derive(Clone, Debug)]
pub struct CreateTableCommand {
    /// Its name.
    pub table: TableName,
    /// IF NOT EXISTS.
    pub if_not_exists: bool,
    /// Columns in order.
    pub columns: Vec<NewColumn>,
    /// PRIMARY KEY and UNIQUE, of columns and of the table.
    pub constraints: Vec<NewConstraint>,
    /// WITH (name = value).
    pub options: Vec<(String, String)>,
}

/// A column of CREATE TABLE.
#[derive(Clone, Debug)]
pub struct NewColumn {
    /// Its name.
    pub name: String,
    /// Its type.
    pub sql_type: SqlType,
    /// NOT NULL or part of the primary key.
    pub not_null: bool,
    /// DEFAULT: a constant expression.
    pub default: Option<ast::Expr>,
}

/// A key of CREATE TABLE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewConstraint {
    /// CONSTRAINT name.
    pub name: Option<String>,
    /// PRIMARY KEY, otherwise UNIQUE.
    pub primary: bool,
    /// The columns.
    pub columns: Vec<String>,
}

/// CREATE INDEX.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreateIndexCommand {
    /// Its name; `None`: made from table and columns.
    pub name: Option<String>,
    /// On which table.
    pub table: TableName,
    /// The columns.
    pub columns: Vec<String>,
    /// UNIQUE.
    pub unique: bool,
    /// USING.
    pub kind: IndexKind,
    /// IF NOT EXISTS.
    pub if_not_exists: bool,
}

/// What BEGIN or SET TRANSACTION said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Isolation {
    /// READ ONLY: writes are refused; READ WRITE: they are not.
    pub read_only: Option<bool>,
    /// The level, if one was named; every one up to REPEATABLE READ is snapshot isolation.
    pub level: Option<IsolationLevel>,
}

/// The right side of SET.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SetValue {
    /// TO DEFAULT.
    Default,
    /// Anything else, as text.
    Text(String),
}

/// EXPLAIN.
#[derive(Clone, Debug)]
pub struct ExplainCommand {
    /// ANALYZE: run it too.
    pub analyze: bool,
    /// VERBOSE.
    pub verbose: bool,
    /// What is explained.
    pub statement: Box<Command>,
}
