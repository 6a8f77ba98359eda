//! A connection of the embedded database as the TATP driver's trait.

use std::io::Cursor;

use eris::{Connection, QueryResult, SqlError, Statement, Value};
use eris_sql::pg_format;
use eris_workloads::connection::{SqlConnection, SqlFailure, SqlResult, SqlValue, StatementId};

pub struct EmbeddedConnection {
    connection: Connection,
    statements: Vec<Statement>,
}

impl EmbeddedConnection {
    pub fn new(connection: Connection) -> Self {
        Self { connection, statements: Vec::new() }
    }

    fn run(&mut self, statement: &Statement, values: &[SqlValue]) -> Result<SqlResult, SqlFailure> {
        let parameters: Result<Vec<Value>, SqlError> = statement
            .parameters()
            .iter()
            .zip(values)
            .map(|(sql_type, value)| match value {
                SqlValue::Null => Ok(Value::Null),
                other => pg_format::parse_text(*sql_type, &other.to_string()),
            })
            .collect();
        let run = parameters.and_then(|parameters| self.connection.execute_prepared(statement, &parameters));
        run.map(|result| sql_result(&result)).map_err(|error| failure(&error))
    }
}

impl SqlConnection for EmbeddedConnection {
    fn execute(&mut self, sql: &str, params: &[SqlValue]) -> Result<SqlResult, SqlFailure> {
        if params.is_empty() {
            return self.connection.execute(sql).map(|result| sql_result(&result)).map_err(|error| failure(&error));
        }
        let statement = self.connection.prepare(sql).map_err(|error| failure(&error))?;
        self.run(&statement, params)
    }

    fn prepare(&mut self, sql: &str) -> Result<StatementId, SqlFailure> {
        self.statements.push(self.connection.prepare(sql).map_err(|error| failure(&error))?);
        Ok(StatementId(self.statements.len() as u32 - 1))
    }

    fn execute_prepared(&mut self, statement: StatementId, params: &[SqlValue]) -> Result<SqlResult, SqlFailure> {
        let statement = self.statements[statement.0 as usize].clone();
        self.run(&statement, params)
    }

    fn copy_in(&mut self, sql: &str, data: &mut dyn Iterator<Item = Vec<u8>>) -> Result<u64, SqlFailure> {
        let bytes: Vec<u8> = data.flatten().collect();
        self.connection.copy_in(sql, &mut Cursor::new(bytes)).map_err(|error| failure(&error))
    }
}

fn failure(error: &SqlError) -> SqlFailure {
    SqlFailure::new(error.sqlstate.as_str(), error.to_string())
}

fn sql_result(result: &QueryResult) -> SqlResult {
    let cell = |row: usize, column: usize| match result.value(row, column) {
        Value::Int16(value) => SqlValue::Int(i64::from(value)),
        Value::Int32(value) => SqlValue::Int(i64::from(value)),
        Value::Int64(value) => SqlValue::Int(value),
        _ => result.text(row, column).map_or(SqlValue::Null, SqlValue::Text),
    };
    let columns = result.columns.len();
    let rows = (0..result.row_count()).map(|row| (0..columns).map(|column| cell(row, column)).collect()).collect();
    SqlResult { rows, rows_affected: result.rows_affected() }
}
