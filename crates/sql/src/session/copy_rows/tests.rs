//! What a reader gathers and reserves.

use eris_engine::Partitioning;
use eris_platform::MemoryPool;
use eris_storage::{Attribute, AttributeId, ContainerId, Layout, SEGMENT_ROWS_DEFAULT, Schema, SchemaVersion};

use super::*;
use crate::catalog::{ColumnDefault, TableColumn};
use crate::types::SqlType;

const MIB: usize = 1 << 20;

fn table(types: &[SqlType]) -> Arc<Table> {
    let named = || types.iter().enumerate().map(|(position, sql_type)| (format!("c{position}"), *sql_type));
    let attribute = |(name, sql_type): (String, SqlType)| Attribute {
        name: name.as_str().into(),
        data_type: sql_type.data_type(),
        nullable: true,
    };
    let schema = Schema {
        container: ContainerId(1),
        version: SchemaVersion(1),
        attributes: named().map(attribute).collect(),
        indexes: Box::new([]),
        layout: Layout::Default,
        physical: None,
        segment_rows: SEGMENT_ROWS_DEFAULT,
    };
    let column =
        |(name, sql_type)| TableColumn { name, sql_type, not_null: false, default: ColumnDefault::Value(Value::Null) };
    let partitioning = Partitioning::Hash { attributes: Box::new([AttributeId(0)]), partitions: 1 };
    let columns = named().map(column).collect();
    let table = Table::new("t".to_owned(), columns, schema, 0, partitioning, &MemoryPool::unlimited());
    Arc::new(table.unwrap())
}

fn reader(pool: &Arc<MemoryPool>, types: &[SqlType], csv: bool) -> CopyReader {
    let format = CopyFormat { csv, delimiter: b',', quote: b'"', escape: b'"', null: String::new(), header: false };
    let defaults = types.iter().map(|_| Value::Null).collect();
    CopyReader::new(&table(types), &[], format, defaults, pool.reserve(COPY)).unwrap()
}

/// The batches of data that comes in pieces of so many bytes.
fn batches(reader: &mut CopyReader, data: &[u8], piece_bytes: usize) -> Result<Vec<CopyBatch>, SqlError> {
    let mut batches = Vec::new();
    for piece in data.chunks(piece_bytes) {
        let mut rest = piece;
        while !rest.is_empty() {
            let taken = reader.feed(rest)?;
            rest = &rest[taken..];
            batches.extend(reader.take_batch());
        }
    }
    reader.finish()?;
    batches.extend(reader.take_batch());
    Ok(batches)
}

fn row_counts(batches: &[CopyBatch]) -> Vec<usize> {
    batches.iter().map(|batch| batch.rows.rows).collect()
}

#[test]
fn a_batch_ends_with_its_rows_its_width_or_its_bytes() {
    let pool = MemoryPool::unlimited();
    let narrow = [SqlType::BigInt, SqlType::Text];
    let data = (0..20_000).fold(String::new(), |data, id| data + &format!("{id},x\n"));
    let found = batches(&mut reader(&pool, &narrow, true), data.as_bytes(), 8_000).unwrap();
    assert_eq!(row_counts(&found), [8_192, 8_192, 3_616]);
    // Six rows of 200 kB are the first that have a MiB.
    let long = format!("1,{}\n", "x".repeat(200_000)).repeat(20);
    for piece_bytes in [32 << 10, long.len()] {
        let found = batches(&mut reader(&pool, &narrow, true), long.as_bytes(), piece_bytes).unwrap();
        assert_eq!(row_counts(&found), [6, 6, 6, 2], "pieces of {piece_bytes}");
    }
    let wide = vec![SqlType::BigInt; 1_000];
    let data = format!("{}\n", ["1"; 1_000].join(",")).repeat(1_000);
    let found = batches(&mut reader(&pool, &wide, true), data.as_bytes(), 8_000).unwrap();
    assert!(
        found.len() > 1 && found.iter().all(|batch| batch.rows.bytes() <= BATCH_WIDTH_BYTES_MAX),
        "{}",
        found.len()
    );
    assert_eq!(row_counts(&found).iter().sum::<usize>(), 1_000);
}

/// Quotes over several lines, escapes and long fields, cut anywhere.
#[test]
fn pieces_change_no_row() {
    let pool = MemoryPool::unlimited();
    let types = [SqlType::Integer, SqlType::Text, SqlType::Bytea];
    let long = "a \"\"b\"\" \r\n, c\n".repeat(100_000);
    let csv = format!("1,\"x\ny\",\\x00ff\n2,\"{long}\",\n3,,\"\\x01\"\n4,\"\",\\x61");
    let text = format!("1,x\\ny,\\\\x00ff\n2,{},\n3,,\\\\x01\n", "tab\\tand\\\\more\\,".repeat(90_000));
    for (csv, data) in [(true, csv), (false, text)] {
        let rows = |piece_bytes| {
            let found = batches(&mut reader(&pool, &types, csv), data.as_bytes(), piece_bytes).unwrap();
            Batch::concat(&found.into_iter().map(|batch| batch.rows).collect::<Vec<_>>())
        };
        let whole = rows(data.len());
        assert_eq!(whole.rows, if csv { 4 } else { 3 });
        for piece_bytes in [7, 8_192, MIB] {
            let found = rows(piece_bytes);
            assert_eq!(found.rows, whole.rows);
            assert!(found.columns.iter().eq(&whole.columns), "csv {csv}, pieces of {piece_bytes}");
        }
    }
    assert_eq!(pool.used(), 0);
}

#[test]
fn a_batch_takes_its_reservation_along() {
    let pool = MemoryPool::unlimited();
    let mut reader = reader(&pool, &[SqlType::Integer, SqlType::Text], true);
    let data = format!("1,{}\n", "x".repeat(300_000)).repeat(10);
    let found = batches(&mut reader, data.as_bytes(), 10_000).unwrap();
    for batch in &found {
        assert_eq!(batch.memory.bytes(), batch.rows.bytes() as u64);
    }
    let gathered: u64 = found.iter().map(|batch| batch.memory.bytes()).sum();
    assert!(gathered >= 3_000_000 && pool.used() >= gathered, "{gathered} of {}", pool.used());
    drop(reader);
    assert_eq!(pool.used(), gathered);
    drop(found);
    assert_eq!(pool.used(), 0);
}

#[test]
fn a_line_is_reserved_as_it_comes_and_given_back_when_it_is_read() {
    let pool = MemoryPool::unlimited();
    let mut reader = reader(&pool, &[SqlType::Integer, SqlType::Text], true);
    let piece = [b'x'; 8_192];
    assert_eq!(reader.feed(b"1,").unwrap(), 2);
    let mut length = 2;
    while length < 20 * MIB {
        assert_eq!(reader.feed(&piece).unwrap(), piece.len());
        length += piece.len();
        // While its vector grows there are two for a moment, which may be two thirds of it more.
        let (held, allocated) = (pool.used(), reader.partial.capacity());
        assert!(held >= allocated as u64, "{held} bytes are reserved, {allocated} are held");
        assert!(held <= 3 * length as u64 + 2 * STEP_BYTES as u64, "{held} bytes are reserved for {length}");
    }
    assert_eq!(reader.feed(b"\n").unwrap(), 1);
    let batch = reader.take_batch().expect("it has the bytes of a batch");
    let own = batch.memory.bytes();
    assert!(own >= length as u64 - 2, "{own} of {length} bytes");
    assert!(pool.used() - own <= 2 * STEP_BYTES as u64, "{} bytes are reserved beside the batch", pool.used() - own);
    drop((batch, reader));
    assert_eq!(pool.used(), 0);
}

/// Whatever the format, in a field with quotes and one without.
#[test]
fn a_line_without_end_is_refused_before_memory_is_passed() {
    const LIMIT: usize = 16 * MIB;
    for (csv, beginning) in [(true, "1,"), (true, "1,\"\n"), (false, "1,")] {
        let pool = MemoryPool::new(LIMIT as u64);
        let mut reader = reader(&pool, &[SqlType::Integer, SqlType::Text], csv);
        assert_eq!(reader.feed(beginning.as_bytes()).unwrap(), beginning.len());
        let mut fed = 0;
        let error = loop {
            assert!(fed < LIMIT, "{fed} bytes were taken");
            match reader.feed(&[b'x'; 8_192]) {
                Ok(taken) => fed += taken,
                Err(error) => break error,
            }
        };
        assert!(fed >= LIMIT / 4, "{fed} bytes are not many");
        assert_eq!(error.sqlstate, SqlState::OUT_OF_MEMORY, "{error}");
        assert!(error.hint.as_deref().is_some_and(|hint| hint.contains("--memory-limit")), "{error}");
        assert_eq!(error.context.as_deref(), Some("COPY t, line 1"));
        assert!(pool.peak() <= LIMIT as u64);
        drop(reader);
        assert_eq!(pool.used(), 0);
    }
}

/// A line that came in one piece is not held by the reader, but its values are.
#[test]
fn values_are_reserved_before_they_are_read() {
    let pool = MemoryPool::new(4 * MIB as u64);
    for field in ["x".repeat(5 * MIB), format!("\"{}\"", "x".repeat(2 * MIB))] {
        let mut reader = reader(&pool, &[SqlType::Integer, SqlType::Text], true);
        let error = reader.feed(format!("1,x\n2,{field}\n").as_bytes()).unwrap_err();
        assert_eq!(error.sqlstate, SqlState::OUT_OF_MEMORY, "{error}");
        assert_eq!(error.context.as_deref(), Some("COPY t, line 2"));
        assert!(reader.builders[1].len() < 2, "the value was read");
    }
    assert_eq!(pool.used(), 0);
}

/// It would be in the message as a whole.
#[test]
fn an_error_shows_the_beginning_of_a_long_value() {
    let pool = MemoryPool::unlimited();
    let mut reader = reader(&pool, &[SqlType::Integer], true);
    let error = reader.feed(format!("{}\n", "ä".repeat(MIB)).as_bytes()).unwrap_err();
    assert_eq!(error.sqlstate, SqlState::INVALID_TEXT, "{error}");
    assert!(error.message.starts_with("invalid input syntax for type integer: \"ää"), "{error}");
    assert!(error.message.chars().count() <= MESSAGE_CHARACTERS_MAX + 3, "{}", error.message.len());
}
