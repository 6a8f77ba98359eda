//! The embedded database's connection as the drivers' trait.

use super::failure;
use eris::{Batch, Connection, QueryResult, SqlType, Statement, Value, text_of};
use eris_sql::pg_format;
use eris_workloads::connection::{Rows, SqlConnection, SqlFailure, SqlResult, SqlValue, StatementId};
use std::io::{self, Read};

/// A blocking session. Not for use on the engine's own workers.
pub struct EmbeddedConnection {
    connection: Connection,
    statements: Vec<Statement>,
}

impl EmbeddedConnection {
    pub fn new(connection: Connection) -> Self {
        Self { connection, statements: Vec::new() }
    }

    fn run(&mut self, statement: &Statement, values: &[SqlValue]) -> Result<SqlResult, SqlFailure> {
        let types = statement.parameters();
        if types.len() != values.len() {
            let message = format!("{} parameters where the statement has {}", values.len(), types.len());
            return Err(SqlFailure::new("08P01", message));
        }
        let parameters: Result<Vec<Value>, SqlFailure> =
            types.iter().zip(values).map(|(sql_type, value)| parameter(*sql_type, value)).collect();
        let result = self.connection.execute_prepared(statement, &parameters?).map_err(|error| failure(&error))?;
        Ok(sql_result(&result))
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
        let statement = self.connection.prepare(sql).map_err(|error| failure(&error))?;
        self.statements.push(statement);
        Ok(StatementId(self.statements.len() as u32 - 1))
    }

    fn execute_prepared(&mut self, statement: StatementId, params: &[SqlValue]) -> Result<SqlResult, SqlFailure> {
        let statement = self.statements[statement.0 as usize].clone();
        self.run(&statement, params)
    }

    fn copy_in(&mut self, sql: &str, data: &mut dyn Iterator<Item = Vec<u8>>) -> Result<u64, SqlFailure> {
        let mut pieces = Pieces { data, piece: Vec::new(), read: 0 };
        self.connection.copy_in(sql, &mut pieces).map_err(|error| failure(&error))
    }
}

fn sql_result(result: &QueryResult) -> SqlResult {
    let types: Vec<SqlType> = result.columns.iter().map(|column| column.sql_type).collect();
    let rows = result.batches.iter().flat_map(|batch| rows_of(batch, &types)).collect();
    SqlResult { rows, rows_affected: result.rows_affected() }
}

/// The rows of a batch as drivers see them.
pub(super) fn rows_of(batch: &Batch, types: &[SqlType]) -> Rows {
    let cell = |row: usize, column: usize| match batch.value(row, column) {
        Value::Boolean(value) => SqlValue::Bool(value),
        Value::Int16(value) => SqlValue::Int(i64::from(value)),
        Value::Int32(value) => SqlValue::Int(i64::from(value)),
        Value::Int64(value) => SqlValue::Int(value),
        Value::Float32(value) => SqlValue::Float(f64::from(value)),
        Value::Float64(value) => SqlValue::Float(value),
        Value::Text(text) => SqlValue::Text(text.into()),
        Value::Null | Value::Decimal { .. } | Value::Date(_) | Value::Timestamp(_) | Value::Bytes(_) => {
            text_of(batch, row, column, types[column]).map_or(SqlValue::Null, SqlValue::Text)
        }
    };
    (0..batch.rows).map(|row| (0..batch.columns.len()).map(|column| cell(row, column)).collect()).collect()
}

fn parameter(sql_type: SqlType, value: &SqlValue) -> Result<Value, SqlFailure> {
    match value {
        SqlValue::Null => Ok(Value::Null),
        other => pg_format::parse_text(sql_type, &other.to_string()).map_err(|error| failure(&error)),
    }
}

/// Pieces of data as one stream of bytes.
struct Pieces<'a> {
    data: &'a mut dyn Iterator<Item = Vec<u8>>,
    piece: Vec<u8>,
    /// Bytes of the piece that are read.
    read: usize,
}

impl Read for Pieces<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        while self.read == self.piece.len() {
            let Some(piece) = self.data.next() else { return Ok(0) };
            (self.piece, self.read) = (piece, 0);
        }
        let count = out.len().min(self.piece.len() - self.read);
        out[..count].copy_from_slice(&self.piece[self.read..self.read + count]);
        self.read += count;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_one_stream() {
        let mut data = vec![b"ab".to_vec(), Vec::new(), b"cdefg".to_vec()].into_iter();
        let mut pieces = Pieces { data: &mut data, piece: Vec::new(), read: 0 };
        let mut buffer = [0; 3];
        let mut all = Vec::new();
        loop {
            match pieces.read(&mut buffer).unwrap() {
                0 => break,
                count => all.extend_from_slice(&buffer[..count]),
            }
        }
        assert_eq!(all, b"abcdefg");
    }
}
