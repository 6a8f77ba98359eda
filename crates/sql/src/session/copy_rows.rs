//! Reading COPY data: bytes in pieces of any size become batches of rows.
//!
//! A record is found first (a line feed outside of quotes, or one that is not escaped), then cut into fields. Records
//! that lie within one piece are not copied. Fields are what the format says; whether one was quoted decides whether it
//! can be NULL.

use std::borrow::Cow;
use std::sync::Arc;

use eris_storage::{Batch, Column, ColumnBuilder, Value};

use crate::catalog::{Table, suggestions};
use crate::errors::{SqlError, SqlState};
use crate::front::CopyFormat;
use crate::pg_format::{fit_text, parse_date, parse_text};
use crate::types::SqlType;

/// Rows of a batch.
const BATCH_ROWS: usize = 8_192;
/// The longest record.
const RECORD_BYTES_MAX: usize = 64 << 20;

/// Turns bytes into batches of a table's rows.
#[expect(clippy::struct_excessive_bools, reason = "independent facts about where in a record the reader is")]
pub(super) struct CopyReader {
    table: Arc<Table>,
    format: CopyFormat,
    /// By column of the table: what it gets if no field is for it.
    defaults: Box<[Value]>,
    /// By field: the position of its column.
    targets: Vec<usize>,
    builders: Vec<ColumnBuilder>,
    rows: usize,
    /// The beginning of a record whose end has not come yet.
    partial: Vec<u8>,
    /// Where the scan for its end goes on, and in which state.
    scanned: usize,
    in_quotes: bool,
    escaped: bool,
    line: u64,
    /// Lines that the current record spans.
    lines_in_record: u64,
    header_pending: bool,
    ended: bool,
    ready: Vec<Batch>,
}

impl CopyReader {
    pub fn new(
        table: &Arc<Table>,
        columns: &[String],
        format: CopyFormat,
        defaults: Box<[Value]>,
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
        let mut reader = Self {
            table: Arc::clone(table),
            format,
            defaults,
            targets,
            builders: Vec::new(),
            rows: 0,
            partial: Vec::new(),
            scanned: 0,
            in_quotes: false,
            escaped: false,
            line: 0,
            lines_in_record: 0,
            header_pending,
            ended: false,
            ready: Vec::new(),
        };
        reader.new_builders();
        Ok(reader)
    }

    fn new_builders(&mut self) {
        self.builders = self
            .targets
            .iter()
            .map(|target| ColumnBuilder::with_capacity(self.table.columns[*target].sql_type.data_type(), BATCH_ROWS))
            .collect();
        self.rows = 0;
    }

    /// Number of fields in a record.
    pub fn fields(&self) -> usize {
        self.targets.len()
    }

    /// Takes a piece of data.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<(), SqlError> {
        let mut rest = bytes;
        while !rest.is_empty() && !self.ended {
            match self.find_end(rest) {
                None => {
                    self.partial.extend_from_slice(rest);
                    self.scanned = self.partial.len();
                    if self.partial.len() > RECORD_BYTES_MAX {
                        return Err(self.bad(format!("a record exceeds {RECORD_BYTES_MAX} bytes")));
                    }
                    return Ok(());
                }
                Some(end) => {
                    let (record, after) = (&rest[..end], &rest[end + 1..]);
                    if self.partial.is_empty() {
                        self.record(record)?;
                    } else {
                        let mut whole = std::mem::take(&mut self.partial);
                        whole.extend_from_slice(record);
                        self.record(&whole)?;
                        whole.clear();
                        self.partial = whole;
                    }
                    rest = after;
                }
            }
        }
        Ok(())
    }

    /// The data is complete.
    pub fn finish(&mut self) -> Result<(), SqlError> {
        if self.in_quotes {
            self.line += 1;
            return Err(self.bad("unterminated CSV quoted field".to_string()));
        }
        if !self.partial.is_empty() && !self.ended {
            let whole = std::mem::take(&mut self.partial);
            self.lines_in_record += 1;
            self.record(&whole)?;
        }
        if self.rows > 0 {
            self.make_batch()?;
        }
        Ok(())
    }

    /// The batches that are complete.
    pub fn take_batches(&mut self) -> Vec<Batch> {
        std::mem::take(&mut self.ready)
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
        if self.format.csv { self.csv_record(text) } else { self.text_record(text) }?;
        self.line += spanned.saturating_sub(1);
        self.rows += 1;
        if self.rows == BATCH_ROWS { self.make_batch() } else { Ok(()) }
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
                let mut out: Vec<u8> = bytes[start..at].to_vec();
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
        match push_value(&mut self.builders[field], column.sql_type, text) {
            Ok(()) => Ok(()),
            Err(error) => Err(error.context(self.place(Some((&column.name, text))))),
        }
    }

    /// Where the reader is, in PostgreSQL's words.
    fn place(&self, value: Option<(&str, &str)>) -> String {
        let place = format!("COPY {}, line {}", self.table.name, self.line);
        match value {
            None => place,
            Some((column, value)) => {
                let shown: Cow<'_, str> = match value.char_indices().nth(100) {
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
        for (builder, target) in std::mem::take(&mut self.builders).into_iter().zip(&self.targets) {
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
        self.ready.push(Batch::new(columns, rows));
        self.new_builders();
        Ok(())
    }
}

/// Reads a value straight into a column: the common types without a value in between.
fn push_value(builder: &mut ColumnBuilder, sql_type: SqlType, text: &str) -> Result<(), SqlError> {
    match sql_type {
        SqlType::Integer => {
            if let Ok(value) = text.parse::<i32>() {
                builder.push_i32(value);
                return Ok(());
            }
        }
        SqlType::BigInt => {
            if let Ok(value) = text.parse::<i64>() {
                builder.push_i64(value);
                return Ok(());
            }
        }
        SqlType::Date => {
            if let Some(days) = parse_date(text) {
                builder.push_i32(days);
                return Ok(());
            }
        }
        SqlType::Text | SqlType::Varchar(_) | SqlType::Char(_) => {
            builder.push_bytes(fit_text(sql_type, text)?.as_bytes());
            return Ok(());
        }
        _ => {}
    }
    builder.push(&parse_text(sql_type, text)?);
    Ok(())
}

/// Backslash sequences of the text format; `None` if they give bytes that are not text.
fn unescape(raw: &str) -> Option<Cow<'_, str>> {
    if !raw.contains('\\') {
        return Some(Cow::Borrowed(raw));
    }
    let bytes = raw.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        if bytes[at] != b'\\' || at + 1 == bytes.len() {
            out.push(bytes[at]);
            at += 1;
            continue;
        }
        at += 1;
        let digits = |from: usize, most: usize, radix: u32| {
            bytes[from..].iter().take(most).take_while(|byte| (**byte as char).is_digit(radix)).count()
        };
        match bytes[at] {
            b'b' => out.push(8),
            b'f' => out.push(12),
            b'n' => out.push(b'\n'),
            b'r' => out.push(b'\r'),
            b't' => out.push(b'\t'),
            b'v' => out.push(11),
            b'x' if digits(at + 1, 2, 16) > 0 => {
                let count = digits(at + 1, 2, 16);
                out.push(u8::from_str_radix(&raw[at + 1..=at + count], 16).ok()?);
                at += count;
            }
            b'0'..=b'7' => {
                let count = digits(at, 3, 8);
                out.push((u32::from_str_radix(&raw[at..at + count], 8).ok()? & 0xff) as u8);
                at += count - 1;
            }
            other => out.push(other),
        }
        at += 1;
    }
    String::from_utf8(out).ok().map(Cow::Owned)
}
