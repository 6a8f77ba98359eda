//! One session on a server: start-up, statements, errors.
//!
//! After an error the server skips to the next Sync, and this client reads up to its `ReadyForQuery`, so a failed
//! statement leaves the connection usable. A failed stream does not: every later call then fails with class 08.

use super::url::PostgresUrl;
use super::values::{Format, TypeOid, parameter_format, read_field, result_format, write_parameter};
use super::wire::{Body, Incoming, Outgoing, put_i16, put_text};
use crate::connection::{SharedThread, SqlConnection, SqlFailure, SqlResult, SqlValue, StatementId};
use crate::crowd::blocking;
use std::io::{self, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;

#[derive(Debug, Clone, Copy)]
struct ResultColumn {
    oid: TypeOid,
    format: Format,
}

#[derive(Debug, Clone, Default)]
struct Statement {
    parameters: Vec<TypeOid>,
    columns: Vec<ResultColumn>,
}

/// A connection to a PostgreSQL or ERIS server.
#[derive(Debug)]
pub struct PostgresConnection {
    stream: TcpStream,
    incoming: Incoming,
    outgoing: Outgoing,
    sent_bytes: u64,
    statements: Vec<Statement>,
    /// Process and secret, if the server told them.
    key: Option<(i32, i32)>,
}

/// The right to have a server cancel what a connection is at.
#[derive(Debug, Clone, Copy)]
pub struct CancelToken {
    pub(super) server: SocketAddr,
    pub(super) key: (i32, i32),
}

impl CancelToken {
    /// Asks for it. A server that is at nothing ignores it, and none says what came of it.
    pub fn cancel(self) -> io::Result<()> {
        let mut request = Outgoing::default();
        request.untagged(|body| {
            for number in [80_877_102, self.key.0, self.key.1] {
                body.extend(number.to_be_bytes());
            }
        });
        TcpStream::connect(self.server)?.write_all(request.bytes())
    }
}

fn broken(error: &io::Error) -> SqlFailure {
    SqlFailure::new("08006", format!("the connection failed: {error}"))
}

fn unexpected(tag: u8) -> SqlFailure {
    SqlFailure::new("08P01", format!("the server sent an unexpected message '{}'", tag.escape_ascii()))
}

impl PostgresConnection {
    pub fn connect(url: &PostgresUrl) -> Result<Self, SqlFailure> {
        let stream = TcpStream::connect((url.host.as_str(), url.port)).map_err(|error| {
            SqlFailure::new("08001", format!("cannot connect to {}:{}: {error}", url.host, url.port))
        })?;
        stream.set_nodelay(true).map_err(|error| broken(&error))?;
        let (incoming, outgoing) = (Incoming::default(), Outgoing::default());
        let mut connection = Self { stream, incoming, outgoing, sent_bytes: 0, statements: Vec::new(), key: None };
        connection.start_up(url)?;
        Ok(connection)
    }

    fn start_up(&mut self, url: &PostgresUrl) -> Result<(), SqlFailure> {
        self.outgoing.untagged(|body| {
            body.extend(196_608i32.to_be_bytes()); // protocol 3.0
            for (name, value) in [("user", &url.user), ("database", &url.database)] {
                put_text(body, name);
                put_text(body, value);
            }
            put_text(body, "client_encoding");
            put_text(body, "UTF8");
            body.push(0);
        });
        self.flush()?;
        loop {
            let (tag, mut body) = blocking(self.incoming.next(&mut self.stream)).map_err(|error| broken(&error))?;
            match tag {
                b'R' => match body.i32()? {
                    0 => {}
                    3 => {
                        let password = url.password.clone().ok_or_else(|| {
                            SqlFailure::new("28P01", "the server asks for a password and the URL has none")
                        })?;
                        self.outgoing.message(b'p', |body| put_text(body, &password));
                        self.flush()?;
                    }
                    method => {
                        let message = format!("authentication method {method} is not supported: use trust");
                        return Err(SqlFailure::new("28000", message));
                    }
                },
                b'Z' => return Ok(()),
                b'E' => return Err(body.failure()?),
                b'K' => self.key = Some((body.i32()?, body.i32()?)),
                b'S' | b'N' => {}
                other => return Err(unexpected(other)),
            }
        }
    }

    /// For another thread, while this one waits. `None` if the server does not cancel.
    pub fn cancel_token(&self) -> Option<CancelToken> {
        Some(CancelToken { server: self.stream.peer_addr().ok()?, key: self.key? })
    }

    /// Bytes sent and received so far.
    pub fn traffic_bytes(&self) -> (u64, u64) {
        (self.sent_bytes, self.incoming.received_bytes())
    }

    fn flush(&mut self) -> Result<(), SqlFailure> {
        self.sent_bytes += self.outgoing.bytes().len() as u64;
        let written = self.stream.write_all(self.outgoing.bytes());
        self.outgoing.clear();
        written.map_err(|error| broken(&error))
    }

    /// Sends what is collected and hands every message to `handle` until the server is ready again. The first error,
    /// of the server or of `handle`, is the result.
    async fn exchange(
        &mut self,
        mut handle: impl FnMut(u8, Body<'_>) -> Result<(), SqlFailure>,
    ) -> Result<(), SqlFailure> {
        self.flush()?;
        let mut result = Ok(());
        loop {
            let (tag, body) = self.incoming.next(&mut self.stream).await.map_err(|error| broken(&error))?;
            match tag {
                b'Z' => return result,
                b'N' | b'S' | b'A' => {}
                b'E' => result = result.and(Err(body.failure()?)),
                other => result = result.and_then(|()| handle(other, body)),
            }
        }
    }

    async fn describe(&mut self, name: &str, sql: &str) -> Result<Statement, SqlFailure> {
        self.outgoing.message(b'P', |body| {
            put_text(body, name);
            put_text(body, sql);
            put_i16(body, 0);
        });
        self.outgoing.message(b'D', |body| {
            body.push(b'S');
            put_text(body, name);
        });
        self.outgoing.message(b'S', |_| {});
        let mut statement = Statement::default();
        self.exchange(|tag, mut body| {
            match tag {
                b't' => {
                    for _ in 0..body.i16()? {
                        statement.parameters.push(TypeOid(body.i32()? as u32));
                    }
                }
                b'T' => {
                    for oid in read_row_description(&mut body)? {
                        statement.columns.push(ResultColumn { oid, format: result_format(oid) });
                    }
                }
                b'1' | b'n' => {}
                other => return Err(unexpected(other)),
            }
            Ok(())
        })
        .await?;
        Ok(statement)
    }

    async fn run(&mut self, name: &str, statement: &Statement, params: &[SqlValue]) -> Result<SqlResult, SqlFailure> {
        if params.len() != statement.parameters.len() {
            let (found, expected) = (params.len(), statement.parameters.len());
            return Err(SqlFailure::new("08P01", format!("{found} parameters where the statement has {expected}")));
        }
        let mut written = Ok(());
        self.outgoing.message(b'B', |body| written = put_bind(body, name, statement, params));
        if let Err(failure) = written {
            self.outgoing.clear();
            return Err(failure);
        }
        self.outgoing.message(b'E', |body| {
            put_text(body, "");
            body.extend(0i32.to_be_bytes());
        });
        self.outgoing.message(b'S', |_| {});
        let mut result = SqlResult::default();
        self.exchange(|tag, mut body| {
            match tag {
                b'D' => result.rows.push(read_row(&mut body, &statement.columns)?),
                b'C' => result.rows_affected = rows_of_tag(body.text()?),
                b'2' | b'I' | b's' => {}
                other => return Err(unexpected(other)),
            }
            Ok(())
        })
        .await?;
        Ok(result)
    }

    async fn simple_query(&mut self, sql: &str) -> Result<SqlResult, SqlFailure> {
        self.outgoing.message(b'Q', |body| put_text(body, sql));
        let mut columns = Vec::new();
        let mut result = SqlResult::default();
        self.exchange(|tag, mut body| {
            match tag {
                b'T' => {
                    let oids = read_row_description(&mut body)?;
                    columns = oids.into_iter().map(|oid| ResultColumn { oid, format: Format::Text }).collect();
                    result.rows.clear();
                }
                b'D' => result.rows.push(read_row(&mut body, &columns)?),
                b'C' => result.rows_affected = rows_of_tag(body.text()?),
                b'I' => {}
                other => return Err(unexpected(other)),
            }
            Ok(())
        })
        .await?;
        Ok(result)
    }

    async fn run_prepared(&mut self, statement: StatementId, params: &[SqlValue]) -> Result<SqlResult, SqlFailure> {
        // Taken out for the call, because `run` borrows the whole connection.
        let mut prepared = std::mem::take(&mut self.statements[statement.0 as usize]);
        let result = self.run(&statement_name(statement), &prepared, params).await;
        std::mem::swap(&mut self.statements[statement.0 as usize], &mut prepared);
        result
    }
}

impl SqlConnection for PostgresConnection {
    fn execute(&mut self, sql: &str, params: &[SqlValue]) -> Result<SqlResult, SqlFailure> {
        if params.is_empty() {
            return blocking(self.simple_query(sql));
        }
        let statement = blocking(self.describe("", sql))?;
        blocking(self.run("", &statement, params))
    }

    fn prepare(&mut self, sql: &str) -> Result<StatementId, SqlFailure> {
        let id = StatementId(self.statements.len() as u32);
        let statement = blocking(self.describe(&statement_name(id), sql))?;
        self.statements.push(statement);
        Ok(id)
    }

    fn execute_prepared(&mut self, statement: StatementId, params: &[SqlValue]) -> Result<SqlResult, SqlFailure> {
        blocking(self.run_prepared(statement, params))
    }

    fn copy_in(&mut self, sql: &str, data: &mut dyn Iterator<Item = Vec<u8>>) -> Result<u64, SqlFailure> {
        self.outgoing.message(b'Q', |body| put_text(body, sql));
        self.flush()?;
        loop {
            let (tag, body) = blocking(self.incoming.next(&mut self.stream)).map_err(|error| broken(&error))?;
            match tag {
                b'G' => break,
                b'N' | b'S' => {}
                b'E' => {
                    let failure = body.failure()?;
                    blocking(self.exchange(|_, _| Ok(())))?;
                    return Err(failure);
                }
                other => return Err(unexpected(other)),
            }
        }
        for piece in data {
            self.outgoing.message(b'd', |body| body.extend(piece));
            self.flush()?;
        }
        self.outgoing.message(b'c', |_| {});
        let mut rows = 0;
        blocking(self.exchange(|tag, mut body| match tag {
            b'C' => {
                rows = rows_of_tag(body.text()?);
                Ok(())
            }
            other => Err(unexpected(other)),
        }))?;
        Ok(rows)
    }
}

impl SharedThread for PostgresConnection {
    fn holding(&mut self) -> &mut dyn SqlConnection {
        self
    }

    fn socket(&self) -> io::Result<Option<OwnedFd>> {
        self.stream.try_clone().map(|stream| Some(stream.into()))
    }

    async fn ask(&mut self, sql: &str) -> Result<SqlResult, SqlFailure> {
        self.incoming.shares_thread = true;
        let result = self.simple_query(sql).await;
        self.incoming.shares_thread = false;
        result
    }

    async fn ask_prepared(&mut self, statement: StatementId, params: &[SqlValue]) -> Result<SqlResult, SqlFailure> {
        self.incoming.shares_thread = true;
        let result = self.run_prepared(statement, params).await;
        self.incoming.shares_thread = false;
        result
    }
}

impl Drop for PostgresConnection {
    fn drop(&mut self) {
        self.outgoing.clear();
        self.outgoing.message(b'X', |_| {});
        // A server that is gone already needs no goodbye.
        let _ = self.flush();
    }
}

fn statement_name(id: StatementId) -> String {
    format!("s{}", id.0)
}

fn put_bind(body: &mut Vec<u8>, name: &str, statement: &Statement, params: &[SqlValue]) -> Result<(), SqlFailure> {
    put_text(body, ""); // the unnamed portal
    put_text(body, name);
    put_i16(body, params.len());
    for (value, oid) in params.iter().zip(&statement.parameters) {
        body.extend(parameter_format(value, *oid).code().to_be_bytes());
    }
    put_i16(body, params.len());
    for (value, oid) in params.iter().zip(&statement.parameters) {
        if matches!(value, SqlValue::Null) {
            body.extend((-1i32).to_be_bytes());
            continue;
        }
        let length_at = body.len();
        body.extend([0; 4]);
        write_parameter(body, value, *oid)?;
        let length = (body.len() - length_at - 4) as i32;
        body[length_at..length_at + 4].copy_from_slice(&length.to_be_bytes());
    }
    put_i16(body, statement.columns.len());
    for column in &statement.columns {
        body.extend(column.format.code().to_be_bytes());
    }
    Ok(())
}

fn read_row_description(body: &mut Body<'_>) -> Result<Vec<TypeOid>, SqlFailure> {
    let count = body.i16()?;
    let mut oids = Vec::with_capacity(count.max(0) as usize);
    for _ in 0..count {
        body.text()?; // name
        body.take(6)?; // table and attribute
        oids.push(TypeOid(body.i32()? as u32));
        body.take(8)?; // length, modifier, format
    }
    Ok(oids)
}

fn read_row(body: &mut Body<'_>, columns: &[ResultColumn]) -> Result<Vec<SqlValue>, SqlFailure> {
    let count = body.i16()?;
    if usize::try_from(count) != Ok(columns.len()) {
        return Err(SqlFailure::new("08P01", format!("a row of {count} fields where {} are described", columns.len())));
    }
    let fields = columns.iter().map(|column| match body.i32()? {
        -1 => Ok(SqlValue::Null),
        length => read_field(body.take(length as u32 as usize)?, column.oid, column.format),
    });
    fields.collect()
}

/// `INSERT 0 5` and `SELECT 5` are five rows, `BEGIN` is none.
fn rows_of_tag(tag: &str) -> u64 {
    tag.rsplit(' ').next().and_then(|count| count.parse().ok()).unwrap_or(0)
}
