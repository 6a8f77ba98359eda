//! Runs one random history on stores and reference side by side.

mod lifecycle;
mod lookups;

use super::generate::{self, KEY, SERIAL};
use super::model::{Reference, Refusal, Table, Version, View};
use super::substitute;
use eris_platform::memory::MemoryPool;
use eris_platform::{Arena, NodeId, SeededRandom};
use eris_storage::{
    AttachCursor, Attribute, AttributeId, Batch, BuildForm, BuildOptions, ContainerDictionaries, DataType, Horizon,
    IndexBuildCursor, IndexOrder, Key, Outcome, PinnedCursor, PinnedPartition, Progress, ReadCursor, ReadRequest,
    Registry, RowAddress, Schema, SchemaVersion, SealedSegment, SplitBoundary, SplitStep, StorageError, Store,
    StoreCounters, StoreOptions, Timestamp, TransactionId, Value, key_of_row, key_of_values,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use lifecycle::new_store;

/// A store and the keys that belong to it.
struct Part {
    store: Store,
    lower: Key,
    /// Transactions that have something pending here.
    pending: BTreeSet<u64>,
}

struct Open {
    view: View,
}

/// A cursor that sleeps, with what it must deliver.
struct Saved {
    part: usize,
    cursor: ReadCursor,
    view: View,
    found: Vec<Vec<Value>>,
    expected: Vec<Vec<Value>>,
    desired: Arc<[AttributeId]>,
}

/// A pin, with what it and the open rows must deliver.
struct Pinned {
    pin: PinnedPartition,
    open_rows: Vec<Vec<Value>>,
    view: View,
    request: ReadRequest,
    expected: Vec<Vec<Value>>,
}

pub struct Driver {
    seed: u64,
    random: SeededRandom,
    schema: Arc<Schema>,
    dictionaries: Arc<ContainerDictionaries>,
    memory: Arc<MemoryPool>,
    modules: &'static Registry,
    table: Table,
    reference: Reference,
    parts: Vec<Part>,
    /// A split under way: of which part, and the target.
    splitting: Option<(usize, Store, Key)>,
    open: Vec<Open>,
    saved: Vec<Saved>,
    pinned: Vec<Pinned>,
    clock: u64,
    next_transaction: u64,
    next_serial: i64,
    may_split: bool,
}

fn key_of(value: &Value) -> Key {
    key_of_values(&[(value, eris_storage::DataType::Int32)])
}

fn rows_of(batch: &Batch) -> impl Iterator<Item = Vec<Value>> + '_ {
    (0..batch.rows).map(|row| batch.row(row))
}

impl Driver {
    pub fn new(seed: u64) -> Self {
        let mut random = SeededRandom::new(seed);
        let may_split = random.chance(0.5);
        let schema = Arc::new(generate::schema(&mut random, !may_split));
        let memory = MemoryPool::unlimited();
        let modules = if random.chance(0.3) { substitute::dynamic_rows() } else { Registry::standard() };
        let dictionaries = ContainerDictionaries::new(&memory);
        let store = new_store(&schema, &dictionaries, &memory, modules, seed);
        Self {
            seed,
            random,
            parts: vec![Part { store, lower: Key::lowest(), pending: BTreeSet::new() }],
            schema,
            dictionaries,
            memory,
            modules,
            table: Table::default(),
            reference: Reference::default(),
            splitting: None,
            open: Vec::new(),
            saved: Vec::new(),
            pinned: Vec::new(),
            clock: 10,
            next_transaction: 1,
            next_serial: 1,
            may_split,
        }
    }

    /// Runs the history to its end; gives the counters of all stores.
    pub fn run(mut self, steps: usize) -> Vec<StoreCounters> {
        for _ in 0..steps {
            self.step();
        }
        self.finish()
    }

    fn step(&mut self) {
        match self.random.below(100) {
            0..12 => self.begin(),
            12..30 => self.insert(),
            30..42 => self.change(),
            42..55 => self.read(),
            55..58 => self.look_up(),
            58..68 => self.end_one(),
            68..80 => self.maintain(),
            80..84 => self.pin(),
            84..88 => self.check_pin(),
            88..91 => self.save_cursor(),
            91..95 => self.resume_cursor(),
            95..96 => self.attach(),
            96 => self.roll_back_to(),
            97 => {
                self.create_index();
                self.widen();
            }
            98 => self.set_layout(),
            _ => self.split(),
        }
    }

    fn part_of(&self, key: &Key) -> usize {
        let covers = |part: &&Part| part.lower <= *key;
        let best = self.parts.iter().filter(covers).map(|part| &part.lower).max().expect("the first covers all");
        self.parts.iter().position(|part| part.lower == *best).expect("just found")
    }

    fn begin(&mut self) {
        if self.open.len() >= 4 {
            return;
        }
        let transaction = self.next_transaction;
        self.next_transaction += 1;
        self.set_outcome(transaction, Outcome::Active);
        self.open.push(Open { view: View { visible: self.clock, transaction, statement: 1 } });
    }

    fn set_outcome(&mut self, transaction: u64, outcome: Outcome) {
        self.table.set(transaction, outcome);
        self.reference.outcomes.insert(transaction, outcome);
    }

    /// A random open transaction, at its next statement.
    fn pick(&mut self) -> (usize, View) {
        if self.open.is_empty() {
            self.begin();
        }
        let position = self.random.index(self.open.len());
        self.open[position].view.statement += 1;
        (position, self.open[position].view)
    }

    /// The last statements of a transaction are taken back; it goes on.
    fn roll_back_to(&mut self) {
        let (_, view) = self.pick();
        let first = self.random.below(u64::from(view.statement)) as u32 + 1;
        for statement in first..view.statement {
            self.table.void((view.transaction, statement));
            self.reference.voided.insert((view.transaction, statement));
        }
        // Pins and cursors of the statements that are gone would still see them.
        self.close_of(view.transaction);
        self.read_as(view);
    }

    fn unique_keys(&self) -> Vec<Vec<AttributeId>> {
        self.schema.indexes.iter().filter(|index| index.unique).map(|index| index.attributes.to_vec()).collect()
    }

    fn fresh_row(&mut self) -> Vec<Value> {
        self.next_serial += 1;
        generate::row(&mut self.random, &self.schema, self.next_serial)
    }

    /// Checks a write's answer against everything the reference has to object; true if it went through.
    fn judge<T: std::fmt::Debug>(&self, result: &Result<T, StorageError>, refusals: &[Refusal], what: &str) -> bool {
        let answered = match result {
            Ok(_) => {
                assert!(refusals.is_empty(), "seed {}: {what} went through, reference: {refusals:?}", self.seed);
                return true;
            }
            Err(StorageError::DuplicateKey { .. }) => Refusal::Duplicate,
            Err(StorageError::Conflict { .. }) => Refusal::Conflict,
            Err(error) => panic!("seed {}: {what}: {error}", self.seed),
        };
        assert!(refusals.contains(&answered), "seed {}: {what}: {result:?}, reference: {refusals:?}", self.seed);
        false
    }

    fn entered(&mut self, part: usize, transaction: u64, first: bool) {
        let new = self.parts[part].pending.insert(transaction);
        assert_eq!(new, first, "seed {}: first_of_transaction of {transaction}", self.seed);
    }

    /// Adds rows to the reference one by one; gives what it objects.
    fn reference_insert(&mut self, rows: &[Vec<Value>], view: View) -> Vec<Refusal> {
        let unique = self.unique_keys();
        let mut refusals = Vec::new();
        for row in rows {
            refusals.extend(self.reference.refusals(row, view, &unique));
            let begin = (view.transaction, view.statement);
            self.reference.versions.push(Version { row: row.clone(), begin, end: None });
        }
        refusals
    }

    fn insert(&mut self) {
        let (position, view) = self.pick();
        let rows: Vec<Vec<Value>> = (0..=self.random.below(6)).map(|_| self.fresh_row()).collect();
        let part = self.part_of(&key_of(&rows[0][KEY.index()]));
        let rows: Vec<Vec<Value>> =
            rows.into_iter().filter(|row| self.part_of(&key_of(&row[KEY.index()])) == part).collect();
        let before = self.reference.versions.clone();
        let refusals = self.reference_insert(&rows, view);
        let batch = Batch::from_rows(&self.schema.data_types(), &rows);
        let result = self.parts[part].store.insert(&view.snapshot(&self.table), &batch);
        if self.judge(&result, &refusals, "insert") {
            self.entered(part, view.transaction, result.expect("judged").first_of_transaction);
            self.read_in_same_statement(view);
        } else {
            self.refused(position, part, view, before, &result.unwrap_err());
        }
    }

    /// After a conflict with somebody undecided nothing is left, and the transaction may go on; otherwise it aborts.
    fn refused(&mut self, position: usize, part: usize, view: View, before: Vec<Version>, error: &StorageError) {
        self.parts[part].pending.insert(view.transaction);
        if error.undecided().is_none() || self.random.chance(0.3) {
            return self.abort(position);
        }
        self.reference.versions = before;
        let view = self.next_statement(position);
        self.read_as(view);
    }

    fn next_statement(&mut self, position: usize) -> View {
        self.open[position].view.statement += 1;
        self.open[position].view
    }

    fn attach(&mut self) {
        let (position, view) = self.pick();
        if self.parts.len() > 1 {
            return;
        }
        let count = self.random.below(40) + 1;
        let sequential = self.random.chance(0.7);
        let rows: Vec<Vec<Value>> = (0..count)
            .map(|n| {
                let mut row = self.fresh_row();
                if sequential {
                    row[KEY.index()] = Value::Int32((self.next_serial * 100 + n as i64) as i32);
                    row[7] = Value::Null;
                }
                row
            })
            .collect();
        let batch = Batch::from_rows(&self.schema.data_types(), &rows);
        let (memory, dictionaries) = (&self.memory, Some(&self.dictionaries));
        let options = BuildOptions { memory, dictionaries, arena: None, form: BuildForm::AsLaidOut };
        let segment = SealedSegment::build_in(&self.schema, &batch, &options).unwrap();
        let refusals = self.reference_insert(&rows, view);
        let mut cursor = AttachCursor::default();
        let result = loop {
            let budget = self.random.index(20) + 1;
            match self.parts[0].store.attach(&view.snapshot(&self.table), &segment, &mut cursor, budget) {
                Ok(Progress::More) => {
                    self.parts[0].pending.insert(view.transaction);
                    self.maintain();
                    if self.random.chance(0.3) {
                        self.split();
                        assert_eq!(self.parts.len(), 1, "seed {}: rows left before they were checked", self.seed);
                    }
                    if self.random.chance(0.05) {
                        // The client goes away in the middle.
                        return self.abort(position);
                    }
                }
                Ok(Progress::Done(written)) => break Ok(written),
                Err(error) => break Err(error),
            }
        };
        self.parts[0].pending.insert(view.transaction);
        if !self.judge(&result, &refusals, "attach") {
            self.abort(position);
        }
    }

    /// Reads everything a request gives from one part.
    fn read_part(&mut self, part: usize, view: View, request: &ReadRequest) -> Vec<(RowAddress, Vec<Value>)> {
        let mut cursor = self.parts[part].store.open_cursor(request).unwrap();
        let mut rows = Vec::new();
        while let Some(gateway) = self.parts[part].store.next_batch(&view.snapshot(&self.table), &mut cursor).unwrap() {
            assert_eq!(gateway.batch.rows, gateway.addresses.len());
            rows.extend(gateway.addresses.iter().copied().zip(rows_of(&gateway.batch)));
        }
        self.parts[part].store.close_cursor(cursor);
        self.check_count(part, view, request, rows.len());
        rows
    }

    fn read(&mut self) {
        let (_, view) = self.pick();
        self.read_as(view);
    }

    /// A statement does not see its own writes: reads again within the statement that wrote.
    fn read_in_same_statement(&mut self, view: View) {
        if self.random.chance(0.3) {
            self.read_as(view);
        }
    }

    fn read_as(&mut self, view: View) {
        let request = generate::request(&mut self.random, &self.schema);
        let mut found: Vec<Vec<Value>> = Vec::new();
        for part in 0..self.parts.len() {
            let rows: Vec<Vec<Value>> = self.read_part(part, view, &request).into_iter().map(|(_, row)| row).collect();
            if let Some(order) = request.order {
                self.check_order(&rows, &request, order);
            }
            found.extend(rows);
        }
        found.sort();
        let expected = self.reference.read(view, &request.predicate, &request.desired);
        if found != expected {
            self.report_difference(view, &request);
        }
    }

    /// Reads again with all attributes and says which versions are wrong.
    fn report_difference(&mut self, view: View, request: &ReadRequest) -> ! {
        let desired: Arc<[AttributeId]> = (0..self.schema.attributes.len() as u16).map(AttributeId).collect();
        let request = ReadRequest { desired: Arc::clone(&desired), ..request.clone() };
        let mut found = Vec::new();
        for part in 0..self.parts.len() {
            found.extend(self.read_part(part, view, &request));
        }
        let expected = self.reference.read(view, &request.predicate, &desired);
        for (address, row) in &found {
            if !expected.contains(row) || found.iter().filter(|(_, other)| other == row).count() > 1 {
                let version = self.reference.by_serial(&row[0]).clone();
                println!("too much: {address:?} {version:?} {:?}", self.reference.outcome(version.begin));
            }
        }
        for row in expected.iter().filter(|row| !found.iter().any(|(_, found)| found == *row)) {
            println!("missing: {:?}", self.reference.by_serial(&row[0]));
        }
        println!("{:?}", self.parts.iter().map(|part| part.store.segments()).collect::<Vec<_>>());
        panic!("seed {}: {view:?} {request:?}", self.seed);
    }

    fn check_order(&self, rows: &[Vec<Value>], request: &ReadRequest, order: IndexOrder) {
        let index = self.schema.index(order.index).unwrap();
        let positions: Option<Vec<usize>> =
            index.attributes.iter().map(|id| request.desired.iter().position(|desired| desired == id)).collect();
        let Some(positions) = positions else { return };
        let key = |row: &Vec<Value>| -> Vec<Value> { positions.iter().map(|p| row[*p].clone()).collect() };
        let sorted = if order.descending {
            rows.is_sorted_by(|left, right| key(left) >= key(right))
        } else {
            rows.is_sorted_by(|left, right| key(left) <= key(right))
        };
        assert!(sorted, "seed {}: order {order:?} of {rows:?}", self.seed);
    }

    /// A delete or update of some rows of one part.
    fn change(&mut self) {
        let (position, view) = self.pick();
        let desired: Arc<[AttributeId]> = (0..self.schema.attributes.len() as u16).map(AttributeId).collect();
        let request = ReadRequest { predicate: generate::predicate(&mut self.random), desired, order: None };
        let part = self.random.index(self.parts.len());
        let mut rows = self.read_part(part, view, &request);
        rows.truncate(self.random.index(5) + 1);
        if rows.is_empty() {
            return;
        }
        if self.random.chance(0.2) {
            // A statement may reach a row twice.
            rows.push(rows[0].clone());
        }
        if self.random.chance(0.5) {
            self.delete(position, part, view, &rows);
        } else {
            self.update(position, part, view, &rows);
        }
    }

    fn end_versions(&mut self, rows: &[(RowAddress, Vec<Value>)], view: View) -> (Vec<Refusal>, Vec<usize>) {
        let (mut refusals, mut changed) = (Vec::new(), Vec::new());
        for (position, (_, row)) in rows.iter().enumerate() {
            let version = self.reference.by_serial(&row[SERIAL.index()]).clone();
            match self.reference.may_end(&version, view.transaction) {
                Ok(true) => {
                    let end = Some((view.transaction, view.statement));
                    self.reference.by_serial(&row[SERIAL.index()]).end = end;
                    changed.push(position);
                }
                Ok(false) => {}
                Err(refusal) => {
                    refusals.push(refusal);
                    break;
                }
            }
        }
        (refusals, changed)
    }

    fn delete(&mut self, position: usize, part: usize, view: View, rows: &[(RowAddress, Vec<Value>)]) {
        let before = self.reference.versions.clone();
        let (refusals, changed) = self.end_versions(rows, view);
        let addresses: Vec<RowAddress> = rows.iter().map(|(address, _)| *address).collect();
        let result = self.parts[part].store.delete(&view.snapshot(&self.table), &addresses);
        if self.judge(&result, &refusals, "delete") {
            let written = result.expect("judged");
            assert_eq!(written.rows, changed.len() as u64, "seed {}", self.seed);
            self.entered(part, view.transaction, written.first_of_transaction);
            self.read_in_same_statement(view);
        } else {
            self.refused(position, part, view, before, &result.unwrap_err());
        }
    }

    fn update(&mut self, position: usize, part: usize, view: View, rows: &[(RowAddress, Vec<Value>)]) {
        // The key stays where there are several parts: moving rows between partitions is the engine's business.
        let from = if self.may_split { 2 } else { 1 };
        let mut attributes: Vec<AttributeId> = (from..9).map(AttributeId).collect();
        self.random.shuffle(&mut attributes);
        if self.random.chance(0.7) {
            attributes.retain(|id| generate::OVERWRITABLE.contains(&id.0));
        }
        attributes.truncate(self.random.index(4) + 1);
        let before = self.reference.versions.clone();
        let (mut refusals, changed) = self.end_versions(rows, view);
        let mut new_rows = Vec::new();
        for (_, old) in rows {
            let fresh = self.fresh_row();
            let mut row = old.clone();
            row[0] = fresh[0].clone();
            for id in &attributes {
                row[id.index()] = fresh[id.index()].clone();
            }
            new_rows.push(row);
        }
        if refusals.is_empty() {
            let inserted: Vec<Vec<Value>> = changed.iter().map(|position| new_rows[*position].clone()).collect();
            refusals = self.reference_insert(&inserted, view);
        }
        attributes.push(SERIAL);
        let types: Vec<_> = attributes.iter().map(|id| self.schema.attributes[id.index()].data_type).collect();
        let values: Vec<Vec<Value>> =
            new_rows.iter().map(|row| attributes.iter().map(|id| row[id.index()].clone()).collect()).collect();
        let addresses: Vec<RowAddress> = rows.iter().map(|(address, _)| *address).collect();
        let batch = Batch::from_rows(&types, &values);
        let result = self.parts[part].store.update(&view.snapshot(&self.table), &addresses, &attributes, &batch);
        if self.judge(&result, &refusals, "update") {
            let written = result.expect("judged");
            assert_eq!(written.rows, changed.len() as u64, "seed {}", self.seed);
            self.entered(part, view.transaction, written.first_of_transaction);
            self.read_in_same_statement(view);
        } else {
            self.refused(position, part, view, before, &result.unwrap_err());
        }
    }

    fn abort(&mut self, position: usize) {
        let view = self.open.swap_remove(position).view;
        self.set_outcome(view.transaction, Outcome::Aborted);
        self.close_of(view.transaction);
    }

    fn end_one(&mut self) {
        if self.open.is_empty() {
            return;
        }
        let position = self.random.index(self.open.len());
        if self.random.chance(0.25) {
            return self.abort(position);
        }
        let view = self.open.swap_remove(position).view;
        self.clock += 1;
        self.set_outcome(view.transaction, Outcome::Committed(Timestamp(self.clock)));
        self.close_of(view.transaction);
    }

    /// What a transaction still reads ends with it.
    fn close_of(&mut self, transaction: u64) {
        self.saved.retain(|saved| saved.view.transaction != transaction);
        self.pinned.retain(|pinned| pinned.view.transaction != transaction);
    }

    /// Ends everything and looks whether nothing is left behind.
    fn finish(mut self) -> Vec<StoreCounters> {
        while !self.pinned.is_empty() {
            self.check_pin();
        }
        while !self.saved.is_empty() {
            self.resume_cursor();
        }
        while !self.open.is_empty() {
            self.end_one();
        }
        while self.splitting.is_some() {
            self.split();
            // An attach that was given up holds the switch until it is settled.
            self.maintain();
        }
        self.begin();
        self.read();
        self.abort(0);
        for part in 0..self.parts.len() {
            let mut rounds = 0;
            while self.maintain_part(part, 50) {
                rounds += 1;
                assert!(rounds < 20_000, "seed {}: maintenance does not come to rest", self.seed);
            }
            assert!(
                self.parts[part].pending.is_empty(),
                "seed {}: {:?} not settled",
                self.seed,
                self.parts[part].pending
            );
        }
        let view = View { visible: self.clock, transaction: 0, statement: 0 };
        let live = self.reference.visible(view).count() as u64;
        let statistics: Vec<_> = self.parts.iter().map(|part| part.store.statistics()).collect();
        let entries: u64 = statistics.iter().map(|statistics| statistics.index_entries).sum();
        assert_eq!(entries, live * self.schema.indexes.len() as u64, "seed {}: index entries", self.seed);
        let live_estimate: u64 = statistics.iter().map(|statistics| statistics.rows_live_estimate).sum();
        assert_eq!(live_estimate, live, "seed {}", self.seed);
        for part in &self.parts {
            let Some(layouts) = part.store.layouts() else { continue };
            for segment in part.store.segments().into_iter().filter(|segment| segment.sealed) {
                // Older than some attributes is no reason to be touched.
                let is_target = generate::agree_on_known_attributes(&segment.layout, &layouts.sealed);
                assert!(is_target, "seed {}: {:?} at rest, not rebuilt", self.seed, segment.layout);
            }
        }
        self.parts.clear();
        drop(self.dictionaries);
        assert_eq!(self.memory.used(), 0, "seed {}: {:?}", self.seed, self.memory.by_consumer());
        statistics.into_iter().map(|statistics| statistics.counters).collect()
    }
}

/// Sums counters over histories.
pub fn total(counters: &[StoreCounters], of: impl Fn(&StoreCounters) -> u64) -> u64 {
    counters.iter().map(of).sum()
}

/// Counters by name, for the coverage assertion.
pub fn coverage(counters: &[StoreCounters]) -> BTreeMap<&'static str, u64> {
    [
        ("sealed", total(counters, |c| c.sealed)),
        ("attached", total(counters, |c| c.attached)),
        ("thawed", total(counters, |c| c.thawed)),
        ("compacted", total(counters, |c| c.compacted)),
        ("rebuilt", total(counters, |c| c.rebuilt)),
        ("rows moved", total(counters, |c| c.rows_moved)),
        ("dropped", total(counters, |c| c.dropped)),
        ("cut", total(counters, |c| c.cut)),
        ("splits", total(counters, |c| c.splits)),
        ("pins", total(counters, |c| c.pins)),
        ("settled", total(counters, |c| c.settled)),
        ("updated in place", total(counters, |c| c.updated_in_place)),
        ("images restored", total(counters, |c| c.images_restored)),
        ("images freed", total(counters, |c| c.images_freed)),
        ("images spilled", total(counters, |c| c.images_spilled)),
        ("relocated", total(counters, |c| c.relocated)),
        ("plan hits", total(counters, |c| c.micro_qep_hits)),
        ("plan misses", total(counters, |c| c.micro_qep_misses)),
    ]
    .into()
}
