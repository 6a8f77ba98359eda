//! Bytes in place of the history of a partition's segments: what goes into them comes out of them, in whatever format
//! they are, and however often they change it.
//!
//! ```text
//!   input := schema | step step ...            read by `segment_input`
//!   step  := rows are inserted | attached, sealed as they come | deleted | updated
//!          | segments are sealed, thawed, compacted (maintenance) | get other layouts, memory, attributes
//!          | flattened and streamed to a fresh store (a move, a split) or to one in use (a merge),
//!            with writes in between
//! ```
//! After every step all rows are read back and compared with a plain list of them, bit by bit, and those that a
//! predicate accepts with those that the list's rows satisfy. At the end the accounted memory is given back.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use eris_platform::memory::MemoryPool;
use eris_platform::{Arena, NodeId};
use eris_storage::{
    AttachCursor, AttributeId, Batch, Horizon, Key, Outcome, Outcomes, Predicate, Progress, ReadRequest, RowAddress,
    Schema, SealedSegment, Snapshot, SplitBoundary, SplitStep, StatementNumber, StorageError, Store, StoreCounters,
    StoreOptions, Timestamp, TransactionId, Value, key_of_row, key_of_values,
};

use crate::segment_input::{Input, SERIAL};

/// More rows make an input slow and say nothing new: segments have at most forty.
const ROWS_MAX: usize = 400;
const INSERTED_ROWS_MAX: usize = 24;

/// Who took a transaction back. All others committed at the time of their number.
#[derive(Default)]
struct Ended {
    aborted: BTreeSet<u64>,
}

impl Outcomes for Ended {
    fn outcome(&self, transaction: TransactionId, _: StatementNumber) -> Outcome {
        if self.aborted.contains(&transaction.0) {
            Outcome::Aborted
        } else {
            Outcome::Committed(Timestamp(transaction.0))
        }
    }
}

/// A store and what must be in it.
struct History<'a> {
    input: Input<'a>,
    memory: Arc<MemoryPool>,
    schema: Arc<Schema>,
    store: Store,
    ended: Ended,
    /// The rows, by serial.
    rows: BTreeMap<i64, Vec<Value>>,
    next_serial: i64,
    clock: u64,
    /// Of stores that gave their rows away.
    counters: StoreCounters,
}

/// Runs the history that the bytes tell; what the stores did in it.
///
/// # Panics
/// If a row comes out other than it went in, or memory is not given back.
pub fn segments(bytes: &[u8]) -> StoreCounters {
    let memory = MemoryPool::unlimited();
    let mut input = Input::new(bytes);
    let schema = Arc::new(input.schema());
    let store = Store::new(StoreOptions::new(Arc::clone(&schema), Arc::clone(&memory)));
    let mut history = History {
        input,
        memory: Arc::clone(&memory),
        schema,
        store,
        ended: Ended::default(),
        rows: BTreeMap::new(),
        next_serial: 1,
        clock: 1,
        counters: StoreCounters::default(),
    };
    while !history.input.is_empty() {
        history.step();
        history.check();
    }
    history.maintain(usize::MAX);
    history.check();
    let mut counters = history.counters;
    counters.add(&history.store.statistics().counters);
    drop(history.store);
    assert_eq!(memory.used(), 0, "memory is given back");
    counters
}

impl History<'_> {
    fn step(&mut self) {
        match self.input.below(13) {
            0..3 => self.insert(),
            3 => self.attach(),
            4 => self.delete(),
            5 => self.update(),
            6 => self.maintain_some(),
            7 => self.set_layouts(),
            8 => self.widen(),
            9 => self.move_all(),
            10 => self.split_and_merge(),
            11 => self.store.set_arena(Some(Arena::new(NodeId(self.input.below(2) as u16), &self.memory))),
            _ => self.read_some(),
        }
    }

    /// A writer's snapshot: it sees what was committed before.
    fn begin(&mut self) -> TransactionId {
        self.clock += 1;
        TransactionId(self.clock)
    }

    /// Rows of the next serials.
    fn fresh_rows(&mut self) -> Vec<Vec<Value>> {
        let wanted = 1 + self.input.below(INSERTED_ROWS_MAX);
        let room = ROWS_MAX.saturating_sub(self.rows.len());
        let first = self.next_serial;
        self.next_serial += wanted.min(room) as i64;
        (first..self.next_serial).map(|serial| self.input.row(&self.schema.attributes, serial)).collect()
    }

    fn insert(&mut self) {
        let rows = self.fresh_rows();
        let transaction = self.begin();
        let batch = Batch::from_rows(&self.schema.data_types(), &rows);
        let written = self.store.insert(&snapshot(&self.ended, transaction), &batch);
        assert!(written.is_ok(), "rows without unique keys are inserted: {written:?}");
        if self.input.below(8) == 0 {
            self.ended.aborted.insert(transaction.0);
        } else {
            self.rows.extend((self.next_serial - rows.len() as i64..).zip(rows));
        }
    }

    /// Rows come sealed, as from a bulk load.
    fn attach(&mut self) {
        let mut rows = self.fresh_rows();
        rows.truncate(self.schema.segment_rows as usize);
        if rows.is_empty() {
            return;
        }
        let batch = Batch::from_rows(&self.schema.data_types(), &rows);
        let segment = match SealedSegment::build(&self.schema, &batch, &self.memory) {
            Ok(segment) => segment,
            Err(error) => unreachable!("memory is not limited: {error}"),
        };
        same_rows(&segment.to_rows(&self.schema), &rows);
        let (transaction, budget) = (self.begin(), 1 + self.input.below(16));
        let mut cursor = AttachCursor::default();
        loop {
            match self.store.attach(&snapshot(&self.ended, transaction), &segment, &mut cursor, budget) {
                Ok(Progress::More) => {}
                Ok(Progress::Done(_)) => break,
                Err(error) => unreachable!("rows without unique keys are attached: {error}"),
            }
        }
        self.rows.extend(rows.into_iter().filter_map(|row| match row[SERIAL.index()] {
            Value::Int64(serial) => Some((serial, row)),
            _ => None,
        }));
    }

    /// The addresses of those rows whose serials leave some rest.
    fn choose(&mut self) -> (TransactionId, Vec<i64>, Vec<RowAddress>) {
        let modulus = 1 + self.input.below(6) as i64;
        let rest = self.input.below(6) as i64 % modulus;
        let transaction = self.begin();
        let found = read(&mut self.store, &self.ended, transaction, &Predicate::all(), &[SERIAL]);
        let chosen = found.into_iter().filter_map(|(address, row)| match row[0] {
            Value::Int64(serial) if serial % modulus == rest => Some((serial, address)),
            _ => None,
        });
        let (serials, addresses) = chosen.unzip();
        (transaction, serials, addresses)
    }

    fn delete(&mut self) {
        let (transaction, serials, addresses) = self.choose();
        let written = self.store.delete(&snapshot(&self.ended, transaction), &addresses);
        assert!(written.is_ok(), "nobody else writes: {written:?}");
        if self.input.below(8) == 0 {
            self.ended.aborted.insert(transaction.0);
        } else {
            self.rows.retain(|serial, _| !serials.contains(serial));
        }
    }

    fn update(&mut self) {
        let (transaction, serials, addresses) = self.choose();
        let attribute = AttributeId((1 + self.input.below(self.schema.attributes.len() - 1)) as u16);
        let of = &self.schema.attributes[attribute.index()];
        let values: Vec<Vec<Value>> = serials.iter().map(|_| vec![self.input.value(of)]).collect();
        let new = Batch::from_rows(&[of.data_type], &values);
        let written = self.store.update(&snapshot(&self.ended, transaction), &addresses, &[attribute], &new);
        assert!(written.is_ok(), "nobody else writes: {written:?}");
        if self.input.below(8) == 0 {
            self.ended.aborted.insert(transaction.0);
            return;
        }
        for (serial, mut value) in serials.into_iter().zip(values) {
            if let (Some(row), Some(value)) = (self.rows.get_mut(&serial), value.pop()) {
                row[attribute.index()] = value;
            }
        }
    }

    fn maintain(&mut self, budget: usize) {
        maintain(&mut self.store, &self.ended, self.clock, budget);
    }

    /// A call, while somebody still reads what was some transactions ago: what ended since is kept.
    fn maintain_some(&mut self) {
        let (budget, behind) = (1 + self.input.below(200), self.input.below(4) as u64 * 8);
        maintain(&mut self.store, &self.ended, self.clock.saturating_sub(behind), budget);
    }

    fn set_layouts(&mut self) {
        let layouts = (self.input.below(8) > 0).then(|| Arc::new(self.input.layouts(&self.schema.attributes)));
        let set = self.store.set_layouts(layouts);
        assert!(set.is_ok(), "layouts hold what the modules can hold: {set:?}");
    }

    fn widen(&mut self) {
        if self.schema.attributes.len() >= 16 {
            return;
        }
        let mut attribute = self.input.attribute(self.schema.attributes.len());
        attribute.nullable = true;
        let schema = Arc::new(self.schema.with_attributes([attribute]));
        match self.store.set_schema(Arc::clone(&schema)) {
            Ok(()) => {
                self.schema = schema;
                self.rows.values_mut().for_each(|row| row.push(Value::Null));
            }
            Err(StorageError::Busy { .. }) => {}
            Err(error) => unreachable!("attributes that may be NULL are added: {error}"),
        }
    }

    fn fresh_store(&self) -> Store {
        Store::new(StoreOptions::new(Arc::clone(&self.schema), Arc::clone(&self.memory)))
    }

    /// All rows go to a fresh store, while some come and go.
    fn move_all(&mut self) {
        let mut target = self.fresh_store();
        if began(self.store.begin_handover(false)) {
            self.stream(&mut target);
            let mut source = std::mem::replace(&mut self.store, target);
            self.end(&mut source);
        }
    }

    /// The upper rows go to a fresh store, and come back among the lower ones.
    fn split_and_merge(&mut self) {
        let at = Value::Int64(1 + self.input.byte() as i64 * self.next_serial / 256);
        let at: Key = key_of_values(&[(&at, self.schema.attributes[SERIAL.index()].data_type)]);
        let position = Arc::new(|batch: &Batch, row: usize| key_of_row(batch, row, &[0]));
        let mut upper = self.fresh_store();
        if !began(self.store.begin_split(SplitBoundary { attributes: [SERIAL].into(), position, at })) {
            return;
        }
        self.stream(&mut upper);
        let budget = 1 + self.input.below(200);
        maintain(&mut upper, &self.ended, self.clock, budget);
        if began(self.store.begin_absorbing()) {
            let handed_over = upper.begin_handover(true);
            assert!(handed_over.is_ok(), "a fresh store gives its rows back: {handed_over:?}");
            let budget = 1 + self.input.below(60);
            step_until_done(&mut upper, &mut self.store, budget);
            self.store.end_absorbing();
        } else {
            // What is still to be cleaned up after an earlier split is in the way: the rest goes the other way.
            maintain(&mut self.store, &self.ended, self.clock, usize::MAX);
            let absorbing = self.store.begin_absorbing();
            assert!(absorbing.is_ok(), "after all maintenance a store takes rows: {absorbing:?}");
            let handed_over = upper.begin_handover(true);
            assert!(handed_over.is_ok(), "a fresh store gives its rows back: {handed_over:?}");
            step_until_done(&mut upper, &mut self.store, ROWS_MAX);
            self.store.end_absorbing();
        }
        self.end(&mut upper);
    }

    /// Copies in quanta with writes in between, and switches.
    fn stream(&mut self, target: &mut Store) {
        for _ in 0..self.input.below(4) {
            let budget = 1 + self.input.below(60);
            let copied = self.store.copy_step(target, budget);
            assert!(copied.is_ok(), "memory is not limited: {copied:?}");
            match self.input.below(4) {
                0 => self.insert(),
                1 => self.delete(),
                2 => self.update(),
                _ => {}
            }
            self.check();
        }
        let budget = 1 + self.input.below(60);
        step_until_done(&mut self.store, target, budget);
    }

    /// What gave its rows away is empty.
    fn end(&mut self, source: &mut Store) {
        let transaction = self.begin();
        assert!(read(source, &self.ended, transaction, &Predicate::all(), &[SERIAL]).is_empty(), "all rows are gone");
        maintain(source, &self.ended, self.clock, usize::MAX);
        assert_eq!(source.statistics().index_entries, 0, "no index entry leads to a row that is gone");
        self.counters.add(&source.statistics().counters);
    }

    fn read_some(&mut self) {
        let predicate = self.input.predicate(&self.schema.attributes);
        let transaction = self.begin();
        let desired: Vec<AttributeId> = (0..self.schema.attributes.len() as u16).map(AttributeId).collect();
        let found = read(&mut self.store, &self.ended, transaction, &predicate, &desired);
        let expected: BTreeSet<i64> =
            self.rows.iter().filter(|(_, row)| predicate.accepts(row)).map(|(serial, _)| *serial).collect();
        self.compare(found, &expected, &predicate);
    }

    fn check(&mut self) {
        let transaction = self.begin();
        let desired: Vec<AttributeId> = (0..self.schema.attributes.len() as u16).map(AttributeId).collect();
        let found = read(&mut self.store, &self.ended, transaction, &Predicate::all(), &desired);
        let expected = self.rows.keys().copied().collect();
        self.compare(found, &expected, &Predicate::all());
    }

    fn compare(&self, found: Vec<(RowAddress, Vec<Value>)>, expected: &BTreeSet<i64>, predicate: &Predicate) {
        let mut serials = BTreeSet::new();
        for (_, row) in found {
            let Value::Int64(serial) = row[SERIAL.index()] else { unreachable!("a serial is an integer") };
            assert!(serials.insert(serial), "row {serial} is found once");
            let Some(known) = self.rows.get(&serial) else { unreachable!("row {serial} is gone") };
            same(&row, known);
        }
        assert_eq!(serials, *expected, "{predicate:?}");
    }
}

fn snapshot(ended: &Ended, transaction: TransactionId) -> Snapshot<'_> {
    Snapshot { visible: Timestamp(transaction.0 - 1), transaction, statement: StatementNumber(1), outcomes: ended }
}

/// Whether a change could begin; at another time it can.
fn began(result: Result<(), StorageError>) -> bool {
    match result {
        Ok(()) => true,
        Err(StorageError::Busy { .. }) => false,
        Err(error) => unreachable!("a change begins or waits: {error}"),
    }
}

fn step_until_done(source: &mut Store, target: &mut Store, budget: usize) {
    loop {
        match source.split_step(target, budget) {
            Ok(SplitStep::Done(_)) => return,
            Ok(SplitStep::More { blocked_by_cursors }) => assert!(!blocked_by_cursors, "no cursor is saved"),
            Err(error) => unreachable!("memory is not limited: {error}"),
        }
    }
}

/// One call, or all that there is to do.
fn maintain(store: &mut Store, ended: &Ended, oldest: u64, budget: usize) {
    let horizon = Horizon { oldest: Timestamp(oldest), outcomes: ended };
    while store.maintain(&horizon, budget.min(1_000)).more && budget == usize::MAX {}
}

fn read(
    store: &mut Store,
    ended: &Ended,
    transaction: TransactionId,
    predicate: &Predicate,
    desired: &[AttributeId],
) -> Vec<(RowAddress, Vec<Value>)> {
    let request = ReadRequest { predicate: predicate.clone(), desired: desired.into(), order: None };
    let mut cursor = match store.open_cursor(&request) {
        Ok(cursor) => cursor,
        Err(error) => unreachable!("{request:?} is a request: {error}"),
    };
    let mut found = Vec::new();
    loop {
        match store.next_batch(&snapshot(ended, transaction), &mut cursor) {
            Ok(Some(gateway)) => {
                let rows = (0..gateway.batch.rows).map(|row| gateway.batch.row(row));
                found.extend(gateway.addresses.iter().copied().zip(rows));
            }
            Ok(None) => break,
            Err(error) => unreachable!("{request:?} is answered: {error}"),
        }
    }
    store.close_cursor(cursor);
    found
}

fn same_rows(batch: &Batch, rows: &[Vec<Value>]) {
    assert_eq!(batch.rows, rows.len(), "all rows are there");
    for (position, row) in rows.iter().enumerate() {
        same(&batch.row(position), row);
    }
}

/// Values are the same bit by bit: -0 is not 0, and every NaN is itself.
fn same(found: &[Value], expected: &[Value]) {
    let bits = |value: &Value| match value {
        Value::Float32(value) => Some(u64::from(value.to_bits())),
        Value::Float64(value) => Some(value.to_bits()),
        _ => None,
    };
    assert_eq!(found.len(), expected.len(), "{found:?} {expected:?}");
    for (found, expected) in found.iter().zip(expected) {
        assert!(found == expected && bits(found) == bits(expected), "{found:?} is {expected:?}");
    }
}
