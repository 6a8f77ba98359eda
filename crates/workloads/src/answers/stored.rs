//! Answers as files, part of the binary (`bench/answers/make.py` writes them).
//!
//! A file has three header lines and then either rows or, above 1,000 rows, a hash:
//!
//! ```text
//! kinds,text,exact,approximate      how each column is compared
//! order,1d,0                        the ORDER BY: column positions, d for descending
//! rows,4
//! A,37734107,25.522005853257337     RFC 4180 quoting
//! ```
//! The hash is the wrapping sum of the 64-bit FNV-1a hashes of all canonical rows.

use super::answer::{Answer, AnswerShape, Body, CellKind, OrderColumn};

impl Answer {
    /// Reads a file; `None` if it is malformed.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut records = parse_csv(text).into_iter();
        let mut header = |name: &str| -> Option<Vec<String>> {
            let mut record = records.next()?;
            (record.remove(0) == name).then_some(record)
        };
        let kinds = header("kinds")?.iter().map(|kind| cell_kind(kind)).collect::<Option<Vec<_>>>()?;
        let order = header("order")?.iter().map(|column| order_column(column)).collect::<Option<Vec<_>>>()?;
        let row_count = header("rows")?.first()?.parse().ok()?;
        let rows: Vec<Vec<String>> = records.collect();
        let body = match rows.first() {
            Some(record) if record.len() == 2 && record[0] == "hash" && row_count != rows.len() => {
                Body::Hash(u64::from_str_radix(&record[1], 16).ok()?)
            }
            _ if rows.len() == row_count && rows.iter().all(|row| row.len() == kinds.len()) => Body::Rows(rows),
            _ => return None,
        };
        let inside = order.iter().all(|column| column.position < kinds.len());
        inside.then_some(Self { shape: AnswerShape { kinds, order }, row_count, body })
    }
}

fn cell_kind(name: &str) -> Option<CellKind> {
    match name {
        "text" => Some(CellKind::Text),
        "exact" => Some(CellKind::Exact),
        "approximate" => Some(CellKind::Approximate),
        _ => None,
    }
}

fn order_column(text: &str) -> Option<OrderColumn> {
    let descending = text.ends_with('d');
    let position = text.trim_end_matches('d').parse().ok()?;
    Some(OrderColumn { position, descending })
}

/// 64-bit FNV-1a over the cells of a canonical row, each ended by the unit separator.
pub(super) fn row_hash(row: &[String]) -> u64 {
    row.iter()
        .flat_map(|cell| cell.bytes().chain([0x1f]))
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// Records of RFC 4180 text: quoted fields may hold commas, doubled quotes and line ends.
fn parse_csv(text: &str) -> Vec<Vec<String>> {
    let mut records = Vec::new();
    let mut record = Vec::new();
    let mut field = String::new();
    let mut quoted = false;
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            '"' if quoted && characters.peek() == Some(&'"') => {
                characters.next();
                field.push('"');
            }
            '"' => quoted = !quoted,
            ',' if !quoted => record.push(std::mem::take(&mut field)),
            '\n' if !quoted => {
                record.push(std::mem::take(&mut field));
                records.push(std::mem::take(&mut record));
            }
            '\r' if !quoted => {}
            other => field.push(other),
        }
    }
    if !field.is_empty() || !record.is_empty() {
        record.push(field);
        records.push(record);
    }
    records
}

#[cfg(test)]
mod tests {
    use super::super::answer::AnswerMismatch;
    use super::*;
    use crate::connection::SqlValue;

    fn text(value: &str) -> SqlValue {
        SqlValue::Text(value.to_owned())
    }

    #[test]
    fn malformed_files_are_no_answers() {
        let file = "kinds,text,exact\norder,1d\nrows,1\na,1\n";
        assert!(Answer::parse(file).is_some());
        for (right, wrong) in [("exact", "exactly"), ("1d", "2d"), ("1d", "d"), ("rows,1", "rows,2"), ("a,1", "a")] {
            assert_eq!(Answer::parse(&file.replace(right, wrong)), None, "{wrong}");
        }
    }

    #[test]
    fn a_hashed_answer_finds_one_changed_cell() {
        let rows: Vec<Vec<SqlValue>> = (0..2_000).map(|i| vec![SqlValue::Int(i), text("x")]).collect();
        let canonical = |i: i64| vec![i.to_string(), "x".to_owned()];
        let hash = (0..2_000).fold(0u64, |sum, i| sum.wrapping_add(row_hash(&canonical(i))));
        let stored = format!("kinds,exact,text\norder,0\nrows,2000\nhash,{hash:016x}\n");
        let stored = Answer::parse(&stored).unwrap();
        assert_eq!(stored.check(&rows), Ok(()));
        let mut changed = rows;
        changed[1_234][1] = text("y");
        assert!(matches!(stored.check(&changed), Err(AnswerMismatch::Hash { .. })));
    }
}
