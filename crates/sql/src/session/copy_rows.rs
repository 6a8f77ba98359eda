//! Reading COPY data: bytes in pieces of any size become batches of rows.
//!
//! A record is found first (a line feed outside of quotes, or one that is not escaped), then cut into fields. Records
//! that lie within one piece are not copied. Fields are what the format says; whether one was quoted decides whether it
//! can be NULL.
//!
//! What is held is reserved first, in coarse steps:
//!
//! ```text
//!   partial record            | values of the batch so far        | the record that is read: its values, and a copy of
//!   its vector, as it grows   | rows x width + texts, and what    | a field without quotes and escapes
//!                             | vectors have in spare             |
//! ```
//! A batch takes the reservation for its bytes along; it ends with so many rows or so many bytes, because the engine
//! copies it several times.

use std::borrow::Cow;
use std::sync::Arc;

use eris_platform::{MemoryExceeded, Reservation};
use eris_storage::{Batch, Column, ColumnBuilder, VIEW_INLINE_MAX, Value};

use super::copy_values::{push_value, unescape};
use crate::catalog::{Table, suggestions};
use crate::errors::{SqlError, SqlState};
use crate::front::CopyFormat;
use crate::types::SqlType;

/// Rows of a batch at most.
const BATCH_ROWS_MAX: usize = 8_192;
/// A batch ends with the record that brings it to so many bytes of text.
const BATCH_BYTES_MAX: usize = 1 << 20;
/// What lies in rows of a fixed width takes so many bytes of a batch at most: 8,192 rows of 512 bytes.
const BATCH_WIDTH_BYTES_MAX: usize = 4 << 20;
/// Rows that the first batch has room for from the start: a short COPY has no more.
const FIRST_ROWS: usize = 256;
/// The longest record.
const RECORD_BYTES_MAX: usize = 64 << 20;
/// The vector of partial records is kept for the next one up to this size.
const PARTIAL_KEPT_MAX: usize = 1 << 20;
/// Memory is reserved in such steps.
const STEP_BYTES: usize = 64 << 10;
/// Copies of shorter fields are not reserved: there is one at a time.
const FREE_COPY_BYTES: usize = 4 << 10;
/// An error shows so many characters of a value, or of what else is wrong.
const SHOWN_CHARACTERS_MAX: usize = 100;
/// The message of an error has so many characters at most: it may have the whole of a long value.
const MESSAGE_CHARACTERS_MAX: usize = 1_000;

/// What the pool calls the bytes that a COPY holds.
pub(super) const COPY: &str = "copy";

/// Rows for the engine, and what is reserved for them.
pub(super) struct CopyBatch {
    pub rows: Batch,
    pub memory: Reservation,
}

/// Turns bytes into batches of a table's rows.
#[expect(clippy::struct_excessive_bools, reason = "independent facts about where in a record the reader is")]
pub(super) struct CopyReader {
    table: Arc<Table>,
    format: CopyFormat,
    /// By column of the table: what it gets if no field is for it.
    defaults: Box<[Value]>,
    /// By field: the position of its column.
    targets: Vec<usize>,
    /// By field; none before the first record of a batch.
    builders: Vec<ColumnBuilder>,
    rows: usize,
    /// Bytes of the records that the rows came from.
    text_bytes: usize,
    /// Bytes of a row without its long texts.
    row_width: usize,
    /// Rows of a batch of this table at most.
    batch_rows: usize,
    /// Rows that the builders had room for from the start, and that those of the next batch will have.
    room_rows: usize,
    next_room_rows: usize,
    /// The beginning of a record whose end has not come yet.
    partial: Vec<u8>,
    /// What its vector has allocated, also while the record is read.
    partial_bytes: usize,
    /// Of the record that is read.
    record_bytes: usize,
    /// For the builders, the partial record, and what reading one takes.
    memory: Reservation,
    /// In which state the scan for the end of the record goes on.
    in_quotes: bool,
    escaped: bool,
    line: u64,
    /// Lines that the current record spans.
    lines_in_record: u64,
    header_pending: bool,
    ended: bool,
    ready: Option<CopyBatch>,
}

impl CopyReader {
    /// A reader that reserves what it holds as a part of `memory`.
    pub fn new(
        table: &Arc<Table>,
        columns: &[String],
        format: CopyFormat,
        defaults: Box<[Value]>,
        memory: Reservation,
    ) -> Result<Self, SqlError> {
        let mut targets = Vec::new();
        for name in columns {
            let Some((attribute, _)) = table.column(name) else {
                return Err(SqlError::no_such_column(
                    name,
                    Some(&table.name),
                    &suggestions(name, table.column_names()),
                ));
            };
            if targets.contains(&attribute.index()) {
                return Err(SqlError::new(
                    SqlState::DUPLICATE_COLUMN,
                    format!("column \"{name}\" specified more than once"),
                ));
            }
            targets.push(attribute.index());
        }
        if targets.is_empty() {
            targets = (0..table.columns.len()).collect();
        }
        let header_pending = format.header;
        let row_width = row_width(table, &targets, &defaults);
        let batch_rows = (BATCH_WIDTH_BYTES_MAX / row_width).clamp(1, BATCH_ROWS_MAX);
        Ok(Self {
            table: Arc::clone(table),
            format,
            defaults,
            targets,
            builders: Vec::new(),
            rows: 0,
            text_bytes: 0,
            row_width,
            batch_rows,
            room_rows: 0,
            next_room_rows: FIRST_ROWS.min(batch_rows),
            partial: Vec::new(),
            partial_bytes: 0,
            record_bytes: 0,
            memory,
            in_quotes: false,
            escaped: false,
            line: 0,
            lines_in_record: 0,
            header_pending,
            ended: false,
            ready: None,
        })
    }

    /// Number of fields in a record.
    pub fn fields(&self) -> usize {
        self.targets.len()
    }

    /// Takes bytes up to the end of a batch, or all; returns how many. A batch that is complete has to be taken before
    /// the next call.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<usize, SqlError> {
        assert!(self.ready.is_none(), "a batch is taken before the next one begins");
        let mut taken = 0;
        while taken < bytes.len() && self.ready.is_none() {
            let rest = &bytes[taken..];
            if self.ended {
                return Ok(bytes.len());
            }
            let Some(end) = self.find_end(rest) else {
                self.keep(rest)?;
                return Ok(bytes.len());
            };
            taken += end + 1;
            self.complete(&rest[..end])?;
        }
        Ok(taken)
    }

    /// The data is complete. The last rows are a batch to be taken.
    pub fn finish(&mut self) -> Result<(), SqlError> {
        assert!(self.ready.is_none(), "a batch is taken before the last one is made");
        if self.in_quotes {
            self.line += 1;
            return Err(self.bad("unterminated CSV quoted field".to_string()));
        }
        if !self.partial.is_empty() && !self.ended {
            self.lines_in_record += 1;
            self.complete(&[])?;
        }
        if self.rows > 0 {
            self.make_batch()?;
        }
        Ok(())
    }

    /// The batch that is complete, if one is.
    pub fn take_batch(&mut self) -> Option<CopyBatch> {
        self.ready.take()
    }

    /// Keeps bytes of a record whose end has not come yet.
    fn keep(&mut self, bytes: &[u8]) -> Result<(), SqlError> {
        let length = self.partial.len() + bytes.len();
        if length > RECORD_BYTES_MAX {
            self.line += 1;
            return Err(self.bad(format!("a record exceeds {RECORD_BYTES_MAX} bytes")));
        }
        let capacity = self.partial.capacity();
        if length > capacity {
            // By half, so that a long record is copied seldom. For that moment the old vector is there, too.
            let wanted = length.max(capacity + capacity / 2);
            // An error is about the line that follows those that were read.
            self.line += 1;
            self.hold(wanted)?;
            self.line -= 1;
            self.partial.reserve_exact(wanted - self.partial.len());
            self.partial_bytes = self.partial.capacity();
            self.give_back();
        }
        self.partial.extend_from_slice(bytes);
        Ok(())
    }

    /// Reads the record that ends with these bytes.
    fn complete(&mut self, end: &[u8]) -> Result<(), SqlError> {
        if self.partial.is_empty() {
            return self.record(end);
        }
        self.keep(end)?;
        let mut whole = std::mem::take(&mut self.partial);
        self.record(&whole)?;
        if whole.capacity() <= PARTIAL_KEPT_MAX {
            whole.clear();
            self.partial = whole;
        } else {
            drop(whole);
            self.partial_bytes = 0;
            self.give_back();
        }
        Ok(())
    }

    /// Reserves what is held, and `more` bytes.
    fn hold(&self, more: usize) -> Result<(), SqlError> {
        let needed = self.held() + more as u64;
        if needed <= self.memory.bytes() {
            return Ok(());
        }
        self.memory.resize(needed.next_multiple_of(STEP_BYTES as u64)).map_err(|exceeded| self.refused(&exceeded))
    }

    /// The same for copies of a part of the record that is read, whose values may be held twice for a moment.
    fn hold_copies(&self, bytes: usize) -> Result<(), SqlError> {
        if bytes > FREE_COPY_BYTES { self.hold(self.record_bytes + bytes) } else { Ok(()) }
    }

    /// Bytes of the partial record and of the rows so far. Vectors double when they are full, so they may have as much
    /// in spare as they hold; one that a long text does not fit into grows to what is needed.
    fn held(&self) -> u64 {
        let rows = if self.rows < self.room_rows { self.room_rows } else { 2 * self.rows };
        let values = rows * self.row_width + self.text_bytes + self.text_bytes.min(BATCH_BYTES_MAX);
        (self.partial_bytes + values) as u64
    }

    /// Gives back what is reserved beyond what is held.
    fn give_back(&self) {
        let needed = self.held().next_multiple_of(STEP_BYTES as u64);
        self.memory.shrink(self.memory.bytes().saturating_sub(needed));
    }

    fn refused(&self, exceeded: &MemoryExceeded) -> SqlError {
        SqlError::out_of_memory(exceeded)
            .hint(
                "Raise --memory-limit, run less at the same time, or copy shorter rows: COPY holds some megabytes, \
                 and up to four times the longest row.",
            )
            .context(self.place(None))
    }

    /// The offset of the line feed that ends the record that continues in `bytes`.
    fn find_end(&mut self, bytes: &[u8]) -> Option<usize> {
        let (quote, escape) = (self.format.quote, self.format.escape);
        for (at, byte) in bytes.iter().enumerate() {
            if *byte == b'\n' {
                self.lines_in_record += 1;
            }
            if self.escaped {
                self.escaped = false;
                continue;
            }
            if self.format.csv {
                if self.in_quotes && *byte == escape && escape != quote {
                    self.escaped = true;
                } else if *byte == quote {
                    self.in_quotes = !self.in_quotes;
                } else if *byte == b'\n' && !self.in_quotes {
                    return Some(at);
                }
            } else if *byte == b'\\' {
                self.escaped = true;
            } else if *byte == b'\n' {
                return Some(at);
            }
        }
        None
    }

    fn record(&mut self, record: &[u8]) -> Result<(), SqlError> {
        self.line += 1;
        let spanned = std::mem::take(&mut self.lines_in_record);
        let record = record.strip_suffix(b"\r").unwrap_or(record);
        if record == b"\\." {
            self.ended = true;
            return Ok(());
        }
        if std::mem::take(&mut self.header_pending) {
            self.line += spanned.saturating_sub(1);
            return Ok(());
        }
        let text = std::str::from_utf8(record).map_err(|_| {
            SqlError::new(SqlState::INVALID_ENCODING, "invalid byte sequence for encoding \"UTF8\"")
                .context(self.place(None))
        })?;
        self.begin_row(record.len())?;
        if self.format.csv { self.csv_record(text) } else { self.text_record(text) }?;
        self.line += spanned.saturating_sub(1);
        self.rows += 1;
        self.text_bytes += record.len();
        if self.rows >= self.batch_rows || self.text_bytes >= BATCH_BYTES_MAX { self.make_batch() } else { Ok(()) }
    }

    /// Reserves the values of a row that is read from so many bytes. The first one of a batch makes its columns.
    fn begin_row(&mut self, bytes: usize) -> Result<(), SqlError> {
        self.record_bytes = bytes;
        if !self.builders.is_empty() {
            return self.hold(bytes);
        }
        self.room_rows = self.next_room_rows;
        self.hold(bytes)?;
        let types = self.targets.iter().map(|target| self.table.columns[*target].sql_type.data_type());
        self.builders = types.map(|data_type| ColumnBuilder::with_capacity(data_type, self.room_rows)).collect();
        Ok(())
    }

    fn csv_record(&mut self, record: &str) -> Result<(), SqlError> {
        let (delimiter, quote, escape) = (self.format.delimiter, self.format.quote, self.format.escape);
        let bytes = record.as_bytes();
        let mut field = 0;
        let mut at = 0;
        loop {
            // A field without quotes is a slice of the record.
            let start = at;
            while at < bytes.len() && bytes[at] != delimiter && bytes[at] != quote {
                at += 1;
            }
            if at == bytes.len() || bytes[at] == delimiter {
                self.push(field, &record[start..at], false)?;
            } else {
                self.hold_copies(bytes.len() - start)?;
                let mut out = Vec::with_capacity(bytes.len() - start);
                out.extend_from_slice(&bytes[start..at]);
                let mut in_quotes = false;
                while at < bytes.len() {
                    let byte = bytes[at];
                    if in_quotes {
                        let next = bytes.get(at + 1).copied();
                        if byte == escape && next.is_some_and(|next| next == quote || next == escape) {
                            out.extend(next);
                            at += 1;
                        } else if byte == quote {
                            in_quotes = false;
                        } else {
                            out.push(byte);
                        }
                    } else if byte == quote {
                        in_quotes = true;
                    } else if byte == delimiter {
                        break;
                    } else {
                        out.push(byte);
                    }
                    at += 1;
                }
                // Only ASCII bytes were taken out, so what is left is still text.
                let text = String::from_utf8_lossy(&out);
                self.push(field, &text, true)?;
            }
            field += 1;
            if at >= bytes.len() {
                break;
            }
            at += 1;
        }
        self.check_count(field)
    }

    fn text_record(&mut self, record: &str) -> Result<(), SqlError> {
        let bytes = record.as_bytes();
        let mut field = 0;
        let mut start = 0;
        let mut at = 0;
        loop {
            while at < bytes.len() && bytes[at] != self.format.delimiter {
                at += if bytes[at] == b'\\' { 2 } else { 1 };
            }
            at = at.min(bytes.len());
            let raw = &record[start..at];
            if raw == self.format.null {
                self.push_null(field)?;
            } else {
                self.hold_copies(raw.len())?;
                let text = unescape(raw).ok_or_else(|| {
                    SqlError::new(SqlState::INVALID_ENCODING, "invalid byte sequence for encoding \"UTF8\"")
                        .context(self.place(None))
                })?;
                self.push(field, &text, true)?;
            }
            field += 1;
            if at >= bytes.len() {
                break;
            }
            at += 1;
            start = at;
        }
        self.check_count(field)
    }

    fn check_count(&self, fields: usize) -> Result<(), SqlError> {
        match self.targets.get(fields) {
            None => Ok(()),
            Some(missing) => {
                let name = &self.table.columns[*missing].name;
                Err(SqlError::new(SqlState::BAD_COPY_FORMAT, format!("missing data for column \"{name}\""))
                    .context(self.place(None)))
            }
        }
    }

    fn push_null(&mut self, field: usize) -> Result<(), SqlError> {
        let target = self.target(field)?;
        let column = &self.table.columns[target];
        if column.not_null {
            return Err(SqlError::not_null(&column.name, &self.table.name).context(self.place(None)));
        }
        self.builders[field].push_null();
        Ok(())
    }

    fn target(&self, field: usize) -> Result<usize, SqlError> {
        self.targets.get(field).copied().ok_or_else(|| {
            SqlError::new(SqlState::BAD_COPY_FORMAT, "extra data after last expected column").context(self.place(None))
        })
    }

    fn push(&mut self, field: usize, text: &str, quoted: bool) -> Result<(), SqlError> {
        if !quoted && text == self.format.null {
            return self.push_null(field);
        }
        let target = self.target(field)?;
        let column = &self.table.columns[target];
        if matches!(column.sql_type, SqlType::Bytea) {
            // A value of its own, beside a field without its quotes.
            self.hold_copies(2 * text.len())?;
        }
        match push_value(&mut self.builders[field], column.sql_type, text) {
            Ok(()) => Ok(()),
            Err(mut error) => {
                if let Some((at, _)) = error.message.char_indices().nth(MESSAGE_CHARACTERS_MAX) {
                    error.message.truncate(at);
                    error.message.push_str("...");
                    error.message.shrink_to_fit();
                }
                Err(error.context(self.place(Some((&column.name, text)))))
            }
        }
    }

    /// Where the reader is, in PostgreSQL's words.
    fn place(&self, value: Option<(&str, &str)>) -> String {
        let place = format!("COPY {}, line {}", self.table.name, self.line);
        match value {
            None => place,
            Some((column, value)) => {
                let shown: Cow<'_, str> = match value.char_indices().nth(SHOWN_CHARACTERS_MAX) {
                    Some((at, _)) => format!("{}...", &value[..at]).into(),
                    None => value.into(),
                };
                format!("{place}, column {column}: \"{shown}\"")
            }
        }
    }

    fn bad(&self, message: String) -> SqlError {
        SqlError::new(SqlState::BAD_COPY_FORMAT, message).context(self.place(None))
    }

    fn make_batch(&mut self) -> Result<(), SqlError> {
        let rows = self.rows;
        let mut given: Vec<Option<Column>> = Vec::new();
        given.resize_with(self.table.columns.len(), || None);
        for (mut builder, target) in std::mem::take(&mut self.builders).into_iter().zip(&self.targets) {
            builder.shrink_to_fit();
            given[*target] = Some(builder.finish());
        }
        let mut columns = Vec::with_capacity(given.len());
        for ((column, default), values) in self.table.columns.iter().zip(&self.defaults).zip(given) {
            columns.push(match values {
                Some(values) => values,
                None if column.not_null && default.is_null() => {
                    return Err(SqlError::not_null(&column.name, &self.table.name).context(self.place(None)));
                }
                None => Column::constant(column.sql_type.data_type(), default, rows),
            });
        }
        let batch = Batch::new(columns, rows);
        (self.rows, self.text_bytes, self.room_rows) = (0, 0, 0);
        self.next_room_rows = rows;
        // All but what is still held.
        let spare = self.memory.bytes().saturating_sub(self.held());
        let memory = self.memory.split(spare.min(batch.bytes() as u64));
        self.give_back();
        self.ready = Some(CopyBatch { rows: batch, memory });
        Ok(())
    }
}

/// Bytes of one row in columns, without the long texts of its record.
fn row_width(table: &Table, targets: &[usize], defaults: &[Value]) -> usize {
    let repeated = |position: usize| match &defaults[position] {
        Value::Text(text) if !targets.contains(&position) && text.len() > VIEW_INLINE_MAX => text.len(),
        Value::Bytes(bytes) if !targets.contains(&position) && bytes.len() > VIEW_INLINE_MAX => bytes.len(),
        _ => 0,
    };
    let of_column =
        |position: usize| table.columns[position].sql_type.data_type().physical().width() + repeated(position);
    // A bit of each column tells whether it is NULL.
    1 + table.columns.len() / 8 + (0..table.columns.len()).map(of_column).sum::<usize>()
}

#[cfg(test)]
mod tests;
