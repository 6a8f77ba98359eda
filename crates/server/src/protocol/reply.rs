//! Messages to the client, written straight into the connection's output buffer.
//!
//! A result leaves in pieces, so the buffer stays small, except for a row that is larger than a piece: that is in it
//! whole. Room for such a row, of the size that it has, is reserved before it is written, and is given back when it is
//! sent.

use std::sync::Arc;

use eris_platform::{MemoryPool, Reservation};

use crate::protocol::backend::{ColumnInfo, TransactionStatus};
use crate::protocol::frames::{IDLE_BYTES_MAX, MESSAGE_BYTES_MAX};
use crate::protocol::frontend::Format;
use crate::protocol::report::{Report, Severity, SqlState};

/// Longest text of an error or notice field: a statement's text may come back in it.
const FIELD_BYTES_MAX: usize = 8_000;

/// Output that is collected before it is sent in the middle of a result.
pub const REPLY_BYTES: usize = 1 << 16;
/// Memory that the buffer may hold without a reservation: what is collected, and a row that is no larger.
const UNRESERVED_BYTES_MAX: usize = 2 * REPLY_BYTES;
/// What a message has beside the values or names in it.
const HEADER_BYTES: usize = 7;

/// Bytes that are to be sent.
#[derive(Debug)]
pub struct Reply {
    pub(crate) bytes: Vec<u8>,
    /// Of a buffer that is larger than usual.
    memory: Reservation,
}

impl Reply {
    pub(crate) fn new(memory: &Arc<MemoryPool>) -> Reply {
        Reply { bytes: Vec::new(), memory: memory.reserve("reply") }
    }

    /// Whether a message of about `bytes` has room beside what is there, without a reservation.
    pub(crate) fn has_room(&self, bytes: usize) -> bool {
        self.bytes.len().saturating_add(bytes) <= REPLY_BYTES
    }

    /// Makes room for a message of at most `bytes`. What is beyond the usual is reserved first; if it is not free,
    /// nothing has changed.
    pub(crate) fn make_room(&mut self, bytes: usize) -> Result<(), Report> {
        let needed = self.bytes.len().saturating_add(bytes);
        if needed <= REPLY_BYTES.max(self.bytes.capacity()) {
            return Ok(());
        }
        // Not as a vector grows by itself: of a large value that would be twice what is needed.
        let capacity = needed.max(UNRESERVED_BYTES_MAX);
        if capacity > UNRESERVED_BYTES_MAX {
            self.memory.resize(capacity as u64).map_err(|exceeded| {
                Report::error(SqlState::OUT_OF_MEMORY, exceeded.to_string())
                    .with_hint("Select less in one row, such as a part of a long value, or raise --memory-limit.")
            })?;
        }
        self.bytes.reserve_exact(capacity - self.bytes.len());
        Ok(())
    }

    /// Forgets the first `bytes`, which are sent. A buffer that was large for one row is given back.
    pub(crate) fn sent(&mut self, bytes: usize) {
        self.bytes.drain(..bytes);
        if self.bytes.is_empty() && self.bytes.capacity() > UNRESERVED_BYTES_MAX {
            self.let_go();
        }
    }

    /// Gives memory back before a wait of unknown length.
    pub(crate) fn rest(&mut self) {
        if self.bytes.is_empty() && self.bytes.capacity() > IDLE_BYTES_MAX {
            self.let_go();
        }
    }

    fn let_go(&mut self) {
        self.bytes = Vec::new();
        self.memory.shrink(self.memory.bytes());
    }

    /// Writes one message: kind, a length that is filled in afterwards, the body.
    fn message(&mut self, kind: u8, body: impl FnOnce(&mut Vec<u8>)) {
        self.bytes.push(kind);
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&[0; 4]);
        body(&mut self.bytes);
        let length = (self.bytes.len() - start) as u32;
        self.bytes[start..start + 4].copy_from_slice(&length.to_be_bytes());
    }

    /// The one-byte answer to a request for an encrypted connection.
    pub fn encryption_refused(&mut self) {
        self.bytes.push(b'N');
    }

    pub fn authentication_ok(&mut self) {
        self.message(b'R', |out| out.extend_from_slice(&0u32.to_be_bytes()));
    }

    pub fn negotiate_protocol_version(&mut self, newest_minor: u32, not_understood: &[&str]) {
        self.message(b'v', |out| {
            out.extend_from_slice(&newest_minor.to_be_bytes());
            out.extend_from_slice(&(not_understood.len() as u32).to_be_bytes());
            for option in not_understood {
                text(out, option);
            }
        });
    }

    pub fn parameter_status(&mut self, name: &str, value: &str) {
        self.message(b'S', |out| {
            text(out, name);
            text(out, value);
        });
    }

    pub fn backend_key_data(&mut self, process: u32, secret: u32) {
        self.message(b'K', |out| {
            out.extend_from_slice(&process.to_be_bytes());
            out.extend_from_slice(&secret.to_be_bytes());
        });
    }

    pub fn ready_for_query(&mut self, status: TransactionStatus) {
        let code = match status {
            TransactionStatus::Idle => b'I',
            TransactionStatus::InTransaction => b'T',
            TransactionStatus::Failed => b'E',
        };
        self.message(b'Z', |out| out.push(code));
    }

    /// An `ErrorResponse`, or a `NoticeResponse` when the severity is below an error.
    pub fn report(&mut self, report: &Report) {
        let kind = match report.severity {
            Severity::Fatal | Severity::Error => b'E',
            Severity::Warning | Severity::Notice => b'N',
        };
        self.message(kind, |out| {
            let mut field = |code: u8, value: &str| {
                out.push(code);
                text(out, shortened(value));
            };
            field(b'S', report.severity.as_str());
            field(b'V', report.severity.as_str());
            field(b'C', report.sqlstate.as_str());
            field(b'M', &report.message);
            if let Some(detail) = &report.detail {
                field(b'D', detail);
            }
            if let Some(hint) = &report.hint {
                field(b'H', hint);
            }
            if let Some(position) = report.position {
                field(b'P', &position.to_string());
            }
            if let Some(context) = &report.context {
                field(b'W', context);
            }
            out.push(0);
        });
    }

    pub fn parse_complete(&mut self) {
        self.message(b'1', |_| ());
    }

    pub fn bind_complete(&mut self) {
        self.message(b'2', |_| ());
    }

    pub fn close_complete(&mut self) {
        self.message(b'3', |_| ());
    }

    pub fn no_data(&mut self) {
        self.message(b'n', |_| ());
    }

    pub fn portal_suspended(&mut self) {
        self.message(b's', |_| ());
    }

    pub fn empty_query(&mut self) {
        self.message(b'I', |_| ());
    }

    pub fn command_complete(&mut self, tag: &str) {
        self.message(b'C', |out| text(out, tag));
    }

    pub fn parameter_description(&mut self, types: &[u32]) {
        self.message(b't', |out| {
            out.extend_from_slice(&(types.len() as u16).to_be_bytes());
            for oid in types {
                out.extend_from_slice(&oid.to_be_bytes());
            }
        });
    }

    /// Names may be as long as the text that they are from.
    pub fn row_description<'a>(
        &mut self,
        columns: impl ExactSizeIterator<Item = (ColumnInfo<'a>, Format)> + Clone,
    ) -> Result<(), Report> {
        // Beside its name a column has a zero byte and 18 more.
        let bytes: usize = columns.clone().map(|(column, _)| column.name.len() + 19).sum();
        self.make_room(HEADER_BYTES + bytes)?;
        self.message(b'T', |out| {
            out.extend_from_slice(&(columns.len() as u16).to_be_bytes());
            for (column, format) in columns {
                text(out, column.name);
                // No table and no attribute number: a result column is not promised to be one of a table.
                out.extend_from_slice(&[0; 6]);
                out.extend_from_slice(&column.type_oid.to_be_bytes());
                out.extend_from_slice(&column.type_bytes.to_be_bytes());
                out.extend_from_slice(&column.type_modifier.to_be_bytes());
                out.extend_from_slice(&format.code().to_be_bytes());
            }
        });
        Ok(())
    }

    /// Bytes of a `DataRow` of `columns` values, which have `bytes` together.
    pub(crate) fn row_bytes(columns: usize, bytes: usize) -> usize {
        HEADER_BYTES.saturating_add(4 * columns).saturating_add(bytes)
    }

    /// Starts a `DataRow` of `columns` values, for which there is room; the caller writes each with
    /// [`RowWriter::value`].
    pub fn row(&mut self, columns: usize) -> RowWriter<'_> {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&[b'D', 0, 0, 0, 0]);
        self.bytes.extend_from_slice(&(columns as u16).to_be_bytes());
        RowWriter { reply: self, start }
    }

    /// Asks the client for rows in text form.
    pub fn copy_in(&mut self, columns: usize) {
        self.message(b'G', |out| {
            out.push(0);
            out.extend_from_slice(&(columns as u16).to_be_bytes());
            out.resize(out.len() + 2 * columns, 0);
        });
    }
}

/// A `DataRow` that is being written. Dropped before [`RowWriter::finish`] it leaves nothing behind.
#[derive(Debug)]
pub struct RowWriter<'a> {
    reply: &'a mut Reply,
    start: usize,
}

impl RowWriter<'_> {
    /// Appends one value; `encode` returns whether it is one (`false`: NULL).
    pub fn value<E>(&mut self, encode: impl FnOnce(&mut Vec<u8>) -> Result<bool, E>) -> Result<(), E> {
        let out = &mut self.reply.bytes;
        let start = out.len();
        out.extend_from_slice(&[0; 4]);
        let length = if encode(out)? { (out.len() - start - 4) as u32 } else { u32::MAX };
        if length == u32::MAX {
            out.truncate(start + 4);
        }
        out[start..start + 4].copy_from_slice(&length.to_be_bytes());
        Ok(())
    }

    pub fn finish(self) -> Result<(), Report> {
        let length = self.reply.bytes.len() - self.start - 1;
        if length > MESSAGE_BYTES_MAX {
            return Err(Report::error(
                SqlState::PROGRAM_LIMIT_EXCEEDED,
                format!("a result row takes {length} bytes; a message takes at most {MESSAGE_BYTES_MAX}"),
            ));
        }
        self.reply.bytes[self.start + 1..self.start + 5].copy_from_slice(&(length as u32).to_be_bytes());
        std::mem::forget(self);
        Ok(())
    }
}

impl Drop for RowWriter<'_> {
    fn drop(&mut self) {
        self.reply.bytes.truncate(self.start);
    }
}

/// A zero-terminated string. A zero inside would end it early, so it is left out.
fn text(out: &mut Vec<u8>, value: &str) {
    out.extend(value.bytes().filter(|byte| *byte != 0));
    out.push(0);
}

fn shortened(value: &str) -> &str {
    &value[..value.floor_char_boundary(FIELD_BYTES_MAX)]
}
