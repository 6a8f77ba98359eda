//! One snapshot, read in every way there is: all have to say the same.

use std::sync::Arc;

use eris_engine::{Coalescing, EngineError, Lookup, Read, Transaction};
use eris_platform::SeededRandom;
use eris_storage::{AttributeId, Batch, ContainerId, DataType, IndexOrder, LookupRequest, PinnedCursor, Value};

use super::{ALL, BY_KEY, CODE, KEY, RING, Row, TURNS, all, between, equal, rows_of};

/// Ways to read that are compared with the scan.
const WAYS: u64 = 9;

/// Reads all rows by a scan, and again in some other ways, with the snapshot of the statement that has begun.
///
/// # Panics
/// If two of them differ.
pub async fn look(
    transaction: &mut Transaction,
    container: ContainerId,
    ways: u64,
    random: &mut SeededRandom,
) -> Result<Vec<Row>, EngineError> {
    let rows = rows_of(&transaction.scan(all(container), None)?.collect().await?, 0);
    for pair in rows.windows(2) {
        assert!((pair[0].ring, pair[0].id) != (pair[1].ring, pair[1].id), "a row is there twice: {pair:?}");
    }
    let mut look = Look { transaction, container, rows: &rows, random };
    if ways >= WAYS {
        for way in 0..WAYS {
            look.compare(way).await?;
        }
    } else {
        for _ in 0..ways {
            let way = look.random.below(WAYS);
            look.compare(way).await?;
        }
    }
    Ok(rows)
}

struct Look<'a> {
    transaction: &'a mut Transaction,
    container: ContainerId,
    rows: &'a [Row],
    random: &'a mut SeededRandom,
}

impl Look<'_> {
    async fn compare(&mut self, way: u64) -> Result<(), EngineError> {
        match way {
            0 => self.in_order(false).await,
            1 => self.in_order(true).await,
            2 => self.by(KEY).await,
            3 => self.by(CODE).await,
            4 => self.by(RING).await,
            5 => self.by(TURNS).await,
            6 => self.range().await,
            7 => self.pinned().await,
            _ => self.many().await,
        }
    }

    fn value(row: &Row, attribute: AttributeId) -> i64 {
        [row.key, row.code, row.ring, row.id, row.turns, row.touches][usize::from(attribute.0)]
    }

    /// A value of some row, of its neighbour or of nobody.
    fn draw(&mut self, attribute: AttributeId) -> i64 {
        let Some(last) = self.rows.len().checked_sub(1) else { return 0 };
        let row = &self.rows[self.random.index(last + 1)];
        Self::value(row, attribute) + [0, 0, 0, 1][self.random.index(4)]
    }

    fn expected(&self, accepts: impl Fn(&Row) -> bool) -> Vec<Row> {
        self.rows.iter().filter(|row| accepts(row)).copied().collect()
    }

    fn same(&self, what: &str, found: &[Row], expected: &[Row]) {
        let snapshot = self.transaction.snapshot_timestamp();
        assert!(
            found == expected,
            "{what} at {snapshot:?} finds {found:?}, a scan with the same snapshot {expected:?}"
        );
    }

    /// By the primary key, upwards or downwards; each partition keeps the order.
    async fn in_order(&mut self, descending: bool) -> Result<(), EngineError> {
        let order = Some(IndexOrder { index: BY_KEY, descending });
        let mut read = all(self.container);
        read.request.order = order;
        let batches = self.transaction.scan(read, None)?.collect().await?;
        for batch in &batches {
            let key = |row| match batch.value(row, 0) {
                Value::Int64(key) => key,
                other => panic!("a key is an integer: {other:?}"),
            };
            let kept = (1..batch.rows).all(|row| (key(row - 1) < key(row)) != descending);
            assert!(kept, "an ordered scan is in order (descending: {descending}): {batch:?}");
        }
        self.same("an ordered scan", &rows_of(&batches, 0), self.rows);
        Ok(())
    }

    /// By one value: of the primary key, of the global index, of local indexes.
    async fn by(&mut self, attribute: AttributeId) -> Result<(), EngineError> {
        let value = self.draw(attribute);
        let found = rows_of(&self.transaction.read(&equal(self.container, attribute, value)).await?, 0);
        let expected = self.expected(|row| Self::value(row, attribute) == value);
        self.same(&format!("a read of {attribute:?} = {value}"), &found, &expected);
        Ok(())
    }

    async fn range(&mut self) -> Result<(), EngineError> {
        let attribute = [KEY, CODE, TURNS][self.random.index(3)];
        let (one, other) = (self.draw(attribute), self.draw(attribute));
        let (from, below) = (one.min(other), one.max(other));
        let read: Read = between(self.container, attribute, from, below);
        let found = rows_of(&self.transaction.scan(read, None)?.collect().await?, 0);
        let expected = self.expected(|row| (from..below).contains(&Self::value(row, attribute)));
        self.same(&format!("a read of {attribute:?} in {from}..{below}"), &found, &expected);
        Ok(())
    }

    /// By pins, which need no latch.
    async fn pinned(&mut self) -> Result<(), EngineError> {
        let (one, other) = (self.draw(KEY), self.draw(KEY));
        let (from, below) = (one.min(other), one.max(other) + 1);
        let (read, expected) = if self.random.chance(0.5) {
            (all(self.container), self.rows.to_vec())
        } else {
            (
                between(self.container, KEY, from, below),
                self.expected(|row| (from..below).contains(&Self::value(row, KEY))),
            )
        };
        let request = read.request;
        let pinned = self.transaction.pin(self.container, &request).await?;
        let handle = self.transaction.snapshot_handle();
        let mut batches = pinned.open;
        for segment in &pinned.segments {
            let mut cursor = PinnedCursor::default();
            while let Some(batch) = segment.scan(&handle.snapshot(), &request, &mut cursor, 5)? {
                batches.push(batch);
            }
        }
        self.same("a scan of pins", &rows_of(&batches, 0), &expected);
        Ok(())
    }

    /// Many values at once; each finds its rows.
    async fn many(&mut self) -> Result<(), EngineError> {
        let attribute = [KEY, KEY, RING, TURNS][self.random.index(4)];
        let coalescing = [Coalescing::None, Coalescing::Partition, Coalescing::Sender][self.random.index(3)];
        let wanted: Vec<i64> = (0..self.random.below(12)).map(|_| self.draw(attribute)).collect();
        let keys: Vec<Vec<Value>> = wanted.iter().map(|value| vec![Value::Int64(*value)]).collect();
        let request = LookupRequest { attributes: Arc::new([attribute]), desired: Arc::new(ALL) };
        let lookup = Lookup { container: self.container, request, coalescing };
        let keys = Batch::from_rows(&[DataType::Int64], &keys);
        let batches = self.transaction.lookup_many(lookup, &keys, None)?.collect().await?;
        let found = rows_of(&batches, 1);
        let mut expected: Vec<Row> = wanted
            .iter()
            .flat_map(|value| self.rows.iter().filter(|row| Self::value(row, attribute) == *value).copied())
            .collect();
        expected.sort_unstable();
        self.same(&format!("a lookup of {attribute:?} in {wanted:?}"), &found, &expected);
        Ok(())
    }
}
