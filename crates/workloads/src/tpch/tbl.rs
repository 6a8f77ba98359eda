//! `.tbl` files: what dbgen writes, one file per table, fields ended by `|`, rows by a newline.
//!
//! ```text
//! 1|155190|7706|1|17|21168.23|0.04|0.02|N|O|1996-03-13|...|egular courts above the|\n
//! ```
//! The reader accepts a missing last `|` and `\r\n`, and names table, line, column and value of anything it cannot
//! read. Files of split dbgen runs (`lineitem.tbl.1`, `.2`, ...) are read in the order of their numbers.

use super::chunk::{Chunk, Column};
use super::dates;
use super::rows::CHUNK_ROWS;
use super::schema::Table;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};

/// Why a `.tbl` file could not be read.
#[derive(Debug, thiserror::Error)]
pub enum TblError {
    #[error("{path}: {source}")]
    Io { path: String, source: io::Error },
    #[error("{path}, line {line}: column {column} cannot be \"{value}\"")]
    Value { path: String, line: u64, column: &'static str, value: String },
    #[error("{path}, line {line}: {found} fields where {expected} are expected")]
    FieldCount { path: String, line: u64, expected: usize, found: usize },
    #[error("no {table}.tbl in {directory}")]
    Missing { table: &'static str, directory: String },
}

/// The files that hold a table in a directory.
pub fn table_files(directory: &Path, table: Table) -> Result<Vec<PathBuf>, TblError> {
    let single = directory.join(format!("{}.tbl", table.name()));
    if single.is_file() {
        return Ok(vec![single]);
    }
    let numbered: Vec<PathBuf> = (1..=u32::MAX)
        .map(|number| directory.join(format!("{}.tbl.{number}", table.name())))
        .take_while(|path| path.is_file())
        .collect();
    if numbered.is_empty() {
        return Err(TblError::Missing { table: table.name(), directory: directory.display().to_string() });
    }
    Ok(numbered)
}

/// Reads a table's file chunk by chunk.
pub struct TblReader {
    table: Table,
    path: String,
    input: BufReader<File>,
    line: Vec<u8>,
    line_number: u64,
}

impl TblReader {
    pub fn open(path: &Path, table: Table) -> Result<Self, TblError> {
        let path_text = path.display().to_string();
        let file = File::open(path).map_err(|source| TblError::Io { path: path_text.clone(), source })?;
        let input = BufReader::with_capacity(1 << 20, file);
        Ok(Self { table, path: path_text, input, line: Vec::new(), line_number: 0 })
    }

    /// The next rows, or `None` at the end of the file.
    pub fn next_chunk(&mut self) -> Result<Option<Chunk>, TblError> {
        let definitions = self.table.columns();
        let mut columns: Vec<Column> = definitions.iter().map(|column| Column::new(column.column_type)).collect();
        for _ in 0..CHUNK_ROWS {
            self.line.clear();
            let read = self.input.read_until(b'\n', &mut self.line);
            let length = read.map_err(|source| TblError::Io { path: self.path.clone(), source })?;
            if length == 0 {
                break;
            }
            self.line_number += 1;
            self.append_line(&mut columns)?;
        }
        let chunk = Chunk { columns };
        Ok((chunk.rows() > 0).then_some(chunk))
    }

    fn append_line(&self, columns: &mut [Column]) -> Result<(), TblError> {
        let line = self.line.strip_suffix(b"\n").unwrap_or(&self.line);
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let line = line.strip_suffix(b"|").unwrap_or(line);
        let found = line.split(|&byte| byte == b'|').count();
        if found != columns.len() {
            let expected = columns.len();
            return Err(TblError::FieldCount { path: self.path.clone(), line: self.line_number, expected, found });
        }
        let definitions = self.table.columns();
        for ((field, column), definition) in line.split(|&byte| byte == b'|').zip(columns).zip(definitions) {
            let value = std::str::from_utf8(field).ok().and_then(|text| append_field(column, text));
            value.ok_or_else(|| TblError::Value {
                path: self.path.clone(),
                line: self.line_number,
                column: definition.name,
                value: String::from_utf8_lossy(field).into_owned(),
            })?;
        }
        Ok(())
    }
}

fn append_field(column: &mut Column, text: &str) -> Option<()> {
    match column {
        Column::Int32(values) => values.push(text.parse().ok()?),
        Column::Int64(values) => values.push(text.parse().ok()?),
        Column::Decimal(values) => values.push(parse_hundredths(text)?),
        Column::Date(values) => values.push(dates::parse(text)?),
        Column::Text(values) => values.push(text),
    }
    Some(())
}

/// `-12.3` is -1230 hundredths; more than two decimals are refused.
fn parse_hundredths(text: &str) -> Option<i64> {
    let (negative, digits) = text.strip_prefix('-').map_or((false, text), |rest| (true, rest));
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let all_digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || fraction.len() > 2 || !all_digits(whole) || !all_digits(fraction) {
        return None;
    }
    let mut value = whole.parse::<i64>().ok()?.checked_mul(100)?;
    for (position, digit) in fraction.bytes().enumerate() {
        value = value.checked_add(i64::from(digit - b'0') * if position == 0 { 10 } else { 1 })?;
    }
    Some(if negative { -value } else { value })
}

/// Writes a chunk as `.tbl` lines. Decimals have two places, also `l_quantity`, which dbgen prints without.
pub fn write_chunk(out: &mut impl Write, chunk: &Chunk) -> io::Result<()> {
    for row in 0..chunk.rows() {
        for column in &chunk.columns {
            match column {
                Column::Int32(values) => write!(out, "{}|", values[row])?,
                Column::Int64(values) => write!(out, "{}|", values[row])?,
                Column::Decimal(values) => {
                    let value = values[row];
                    let sign = if value < 0 { "-" } else { "" };
                    write!(out, "{sign}{}.{:02}|", value.abs() / 100, value.abs() % 100)?;
                }
                Column::Date(values) => write!(out, "{}|", dates::format(values[row]))?,
                Column::Text(values) => write!(out, "{}|", values.get(row))?,
            }
        }
        out.write_all(b"\n")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::generate::{TablePart, generate};
    use super::*;

    fn read(table: Table, text: &[u8]) -> Result<Vec<Chunk>, TblError> {
        let unique = format!("eris-tbl-{}-{:?}", std::process::id(), std::thread::current().id());
        let path = std::env::temp_dir().join(unique);
        std::fs::write(&path, text).unwrap();
        let mut reader = TblReader::open(&path, table)?;
        let mut chunks = Vec::new();
        let result = loop {
            match reader.next_chunk() {
                Ok(Some(chunk)) => chunks.push(chunk),
                Ok(None) => break Ok(chunks),
                Err(error) => break Err(error),
            }
        };
        std::fs::remove_file(&path).unwrap();
        result
    }

    #[test]
    fn what_is_written_reads_back() {
        for table in Table::ALL {
            let generated: Vec<Chunk> = generate(table, 0.002, TablePart::WHOLE).collect();
            let mut text = Vec::new();
            for chunk in &generated {
                write_chunk(&mut text, chunk).unwrap();
            }
            assert_eq!(read(table, &text).unwrap(), generated, "{}", table.name());
        }
    }

    #[test]
    fn bad_fields_are_named() {
        let error = read(Table::Region, b"0|AFRICA|x|\n1|ASIA|\n").unwrap_err().to_string();
        assert!(error.contains("line 2: 2 fields where 3"), "{error}");
        let error = read(Table::Region, b"0|AFRICA|x|\r\nten|ASIA|y\n").unwrap_err().to_string();
        assert!(error.contains("line 2: column r_regionkey cannot be \"ten\""), "{error}");
        let bad_utf8 = read(Table::Region, b"0|AFR\xffICA|x|\n").unwrap_err().to_string();
        assert!(bad_utf8.contains("r_name"), "{bad_utf8}");
    }

    #[test]
    fn decimals_are_hundredths() {
        for (text, value) in [("0", Some(0)), ("-0.5", Some(-50)), ("901.00", Some(90_100)), ("7.07", Some(707))] {
            assert_eq!(parse_hundredths(text), value, "{text}");
        }
        for text in ["", "-", "1.234", "1e3", "+1", ".5", "1.-5", "99999999999999999999"] {
            assert_eq!(parse_hundredths(text), None, "{text}");
        }
    }
}
