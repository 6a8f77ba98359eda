//! What the integration tests share: a database on a real engine, and statements as text in and out.

#![allow(dead_code, reason = "each test uses a part of it")]

pub mod catalog;
pub mod disturber;
pub mod records;

use std::sync::Arc;

use eris_engine::{Engine, EngineOptions};
use eris_platform::{RealEnv, Reservation};
use eris_sql::{Database, DatabaseOptions, Outcome, Prepared, Session, SessionOptions, SqlError, SqlType, pg_format};
use eris_storage::Value;

/// An engine with a database, shut down when dropped.
pub struct Instance {
    pub database: Database,
}

impl Instance {
    pub fn start(workers: usize, nodes: usize, options: DatabaseOptions) -> Self {
        Self::with_engine(EngineOptions { workers, nodes, ..EngineOptions::default() }, options)
    }

    pub fn with_engine(engine: EngineOptions, options: DatabaseOptions) -> Self {
        let env = Arc::new(RealEnv::new());
        let engine = Engine::start(env, engine).expect("the engine starts");
        Self { database: Database::new(engine, options).expect("the database opens") }
    }

    pub fn session(&self) -> Client {
        Client { database: self.database.clone(), session: Some(self.database.session(SessionOptions::default())) }
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        self.database.engine().shutdown();
    }
}

/// What a statement gave, as text.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    pub tag: String,
    pub columns: Vec<String>,
    pub rows: Vec<Vec<Option<String>>>,
    pub native: bool,
}

/// A session used from outside of the engine.
pub struct Client {
    database: Database,
    session: Option<Session>,
}

impl Client {
    /// Runs all statements of a text; the answer of the last one.
    pub fn run(&mut self, sql: &str) -> Result<Answer, SqlError> {
        self.run_with(sql, &[], None)
    }

    /// Runs with parameters and data for COPY FROM STDIN.
    pub fn run_with(&mut self, sql: &str, parameters: &[Value], data: Option<&str>) -> Result<Answer, SqlError> {
        let mut session = self.session.take().expect("one statement at a time");
        let (sql, parameters) = (sql.to_string(), parameters.to_vec());
        let data = data.map(str::to_string);
        let (session, answer) = self
            .database
            .engine()
            .block_on(async move {
                let answer = run(&mut session, &sql, &parameters, data.as_deref()).await;
                (session, answer)
            })
            .expect("the engine runs");
        self.session = Some(session);
        answer
    }

    /// Runs a text as the simple protocol does.
    pub fn simple(&mut self, sql: &str) -> Result<Answer, SqlError> {
        let mut session = self.session.take().expect("one statement at a time");
        let sql = sql.to_string();
        let (session, answer) = self
            .database
            .engine()
            .block_on(async move {
                let answer = run_script(&mut session, &sql).await;
                (session, answer)
            })
            .expect("the engine runs");
        self.session = Some(session);
        answer
    }

    pub fn session(&self) -> &Session {
        self.session.as_ref().expect("no statement runs")
    }

    /// Runs and panics on an error.
    pub fn ok(&mut self, sql: &str) -> Answer {
        match self.run(sql) {
            Ok(answer) => answer,
            Err(error) => panic!("{sql}\n{error}"),
        }
    }

    /// The types of a statement's parameters.
    pub fn parameters(&mut self, sql: &str) -> Vec<SqlType> {
        let session = self.session.as_mut().expect("no statement runs");
        match session.parse(sql, &[]) {
            Ok(statements) => statements[0].parameters().to_vec(),
            Err(error) => panic!("{sql}\n{error}"),
        }
    }

    /// Prepares a statement with types of its parameters.
    pub fn prepare(&mut self, sql: &str, types: &[Option<SqlType>]) {
        let session = self.session.as_mut().expect("no statement runs");
        session.parse(sql, types).unwrap_or_else(|error| panic!("{sql}\n{error}"));
    }

    /// The types of a statement's result.
    pub fn types(&mut self, sql: &str) -> Vec<SqlType> {
        let session = self.session.as_mut().expect("no statement runs");
        match session.parse(sql, &[]) {
            Ok(statements) => statements[0].columns().into_iter().flatten().map(|column| column.sql_type).collect(),
            Err(error) => panic!("{sql}\n{error}"),
        }
    }

    /// The SQLSTATE of a statement that must fail.
    pub fn state(&mut self, sql: &str) -> String {
        match self.run(sql) {
            Ok(answer) => panic!("{sql} gave {answer:?}"),
            Err(error) => error.sqlstate.to_string(),
        }
    }

    /// The rows of a query, columns joined by a bar.
    pub fn rows(&mut self, sql: &str) -> Vec<String> {
        let answer = self.ok(sql);
        answer.rows.iter().map(|row| joined(row)).collect()
    }
}

/// Reserves all memory that rows may take, and what ended statements release a moment later.
pub fn take_all(engine: &Engine, name: &'static str) -> Reservation {
    let (held, mut refused) = (engine.memory().reserve(name), 0);
    while refused < 100 {
        while held.grow(64 << 10).is_ok() {
            refused = 0;
        }
        refused += 1;
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    held
}

pub fn joined(row: &[Option<String>]) -> String {
    row.iter().map(|value| value.clone().unwrap_or_else(|| "NULL".to_string())).collect::<Vec<_>>().join("|")
}

pub async fn run(
    session: &mut Session,
    sql: &str,
    parameters: &[Value],
    data: Option<&str>,
) -> Result<Answer, SqlError> {
    let statements = session.parse(sql, &[])?;
    let mut answer = Answer { tag: String::new(), columns: Vec::new(), rows: Vec::new(), native: true };
    for statement in statements {
        answer = run_one(session, &statement, parameters, data).await?;
    }
    Ok(answer)
}

/// The same for the simple protocol: statements without parameters, each planned when the one before it has run.
pub async fn run_script(session: &mut Session, sql: &str) -> Result<Answer, SqlError> {
    let mut script = session.script(sql)?;
    let mut answer = Answer { tag: String::new(), columns: Vec::new(), rows: Vec::new(), native: true };
    while let Some(statement) = session.next_of(&mut script)? {
        assert!(statement.parameters().is_empty(), "{sql}");
        answer = run_one(session, &statement, &[], None).await?;
    }
    Ok(answer)
}

async fn run_one(
    session: &mut Session,
    statement: &Arc<Prepared>,
    parameters: &[Value],
    data: Option<&str>,
) -> Result<Answer, SqlError> {
    let sql = statement.text();
    let native = statement.is_native();
    let mut rows = Vec::new();
    let mut columns = Vec::new();
    let tag = match session.execute(statement, parameters).await? {
        Outcome::Empty => String::new(),
        Outcome::Complete(tag) => tag.to_string(),
        Outcome::Rows(mut found) => {
            let descriptions = found.columns().to_vec();
            columns = descriptions.iter().map(|column| column.name.clone()).collect();
            while let Some(batch) = found.next().await? {
                assert_eq!(batch.columns.len(), descriptions.len(), "{sql}");
                for row in 0..batch.rows {
                    let mut values = Vec::new();
                    for (column, description) in batch.columns.iter().zip(&descriptions) {
                        assert_eq!(column.data_type, description.sql_type.data_type(), "{sql}: {}", description.name);
                        values.push((!column.is_null(row)).then(|| {
                            let mut out = Vec::new();
                            pg_format::text(column, row, description.sql_type, &mut out);
                            String::from_utf8(out).expect("text is UTF-8")
                        }));
                    }
                    rows.push(values);
                }
            }
            found.finish().await?.to_string()
        }
        Outcome::CopyIn(mut copy) => {
            // In small pieces, so that records are cut anywhere.
            for piece in data.unwrap_or_default().as_bytes().chunks(7) {
                copy.data(piece).await?;
            }
            copy.finish().await?.to_string()
        }
    };
    Ok(Answer { tag, columns, rows, native })
}
