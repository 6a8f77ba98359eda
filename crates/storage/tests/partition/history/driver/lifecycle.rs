//! What happens to the partitions of a history besides reads and writes: maintenance, pins, cursors, indexes, splits.

use super::*;

pub(super) fn new_store(
    schema: &Arc<Schema>,
    dictionaries: &Arc<ContainerDictionaries>,
    memory: &Arc<MemoryPool>,
    modules: &'static Registry,
    seed: u64,
) -> Store {
    Store::new(StoreOptions {
        dictionaries: Some(Arc::clone(dictionaries)),
        // Every other history has its sealed columns in node-local memory.
        arena: seed.is_multiple_of(2).then(|| Arena::new(NodeId(0), memory)),
        modules,
        updates_in_place: !seed.is_multiple_of(3),
        ..StoreOptions::new(Arc::clone(schema), Arc::clone(memory))
    })
}

impl Driver {
    pub(super) fn maintain(&mut self) {
        let part = self.random.index(self.parts.len());
        let budget = [1, 3, 20, 1_000][self.random.index(4)];
        if self.seed.is_multiple_of(2) && self.random.chance(0.1) {
            // The partition gets another home; its columns follow, step by step between everything else.
            let home = NodeId(self.random.below(2) as u16);
            self.parts[part].store.set_arena(Some(Arena::new(home, &self.memory)));
        }
        if self.random.chance(0.1) {
            self.parts[part].store.let_cool();
        }
        self.maintain_part(part, budget);
    }

    pub(super) fn maintain_part(&mut self, part: usize, budget: usize) -> bool {
        let oldest = self.open.iter().map(|open| open.view.visible).min().unwrap_or(self.clock);
        let horizon = Horizon { oldest: Timestamp(oldest), outcomes: &self.table };
        let before = self.parts[part].store.statistics();
        let maintained = self.parts[part].store.maintain(&horizon, budget);
        for TransactionId(transaction) in maintained.settled {
            assert!(self.parts[part].pending.remove(&transaction), "seed {}: {transaction} settled twice", self.seed);
            let elsewhere = self.parts.iter().any(|part| part.pending.contains(&transaction));
            if !elsewhere && self.splitting.is_none() {
                // Nobody may ask for it any more; pins and saved cursors must live without.
                self.table.forget(transaction);
            }
        }
        maintained.more || self.parts[part].store.statistics() != before
    }

    /// Other layouts for one part, perhaps those the schema has.
    pub(super) fn set_layout(&mut self) {
        let part = self.random.index(self.parts.len());
        let layouts = self.random.chance(0.85).then(|| generate::layouts(&mut self.random, &self.schema.attributes));
        self.parts[part].store.set_layouts(layouts.map(Arc::new)).unwrap();
    }

    pub(super) fn pin(&mut self) {
        let (_, view) = self.pick();
        let mut request = generate::request(&mut self.random, &self.schema);
        request.order = None;
        for part in 0..self.parts.len() {
            let (lower, upper) = self.range_of(part);
            let expected = self.expected_within(view, &request, &lower, upper.as_ref());
            let snapshot = view.snapshot(&self.table);
            let store = &mut self.parts[part].store;
            let pin = store.pin(&snapshot);
            let mut cursor = store.open_cursor_unsealed(&request).unwrap();
            let mut open_rows = Vec::new();
            while let Some(gateway) = store.next_batch(&snapshot, &mut cursor).unwrap() {
                open_rows.extend(rows_of(&gateway.batch));
            }
            self.pinned.push(Pinned { pin, open_rows, view, request: request.clone(), expected });
        }
    }

    pub(super) fn range_of(&self, part: usize) -> (Key, Option<Key>) {
        let lower = self.parts[part].lower.clone();
        let upper = self.parts.iter().map(|part| &part.lower).filter(|other| **other > lower).min().cloned();
        (lower, upper)
    }

    pub(super) fn expected_within(
        &self,
        view: View,
        request: &ReadRequest,
        lower: &Key,
        upper: Option<&Key>,
    ) -> Vec<Vec<Value>> {
        let within = |version: &&Version| {
            let key = key_of(&version.row[KEY.index()]);
            key >= *lower && upper.is_none_or(|upper| key < *upper)
        };
        let rows = self.reference.visible(view).filter(within);
        let mut rows: Vec<Vec<Value>> = rows
            .filter(|version| request.predicate.accepts(&version.row))
            .map(|version| request.desired.iter().map(|id| version.row[id.index()].clone()).collect())
            .collect();
        rows.sort();
        rows
    }

    pub(super) fn check_pin(&mut self) {
        if self.pinned.is_empty() {
            return;
        }
        let position = self.random.index(self.pinned.len());
        let Pinned { pin, open_rows, view, request, expected } = self.pinned.swap_remove(position);
        let mut found = open_rows;
        for segment in &pin.segments {
            let mut cursor = PinnedCursor::default();
            let rows_max = self.random.index(20) + 1;
            // A pin must not need outcomes: it gets a table that knows nobody.
            let nobody = Table::default();
            while let Some(batch) = segment.scan(&view.snapshot(&nobody), &request, &mut cursor, rows_max).unwrap() {
                found.extend(rows_of(&batch));
            }
        }
        found.sort();
        assert_eq!(found, expected, "seed {}: pin of {view:?} {request:?}", self.seed);
    }

    pub(super) fn save_cursor(&mut self) {
        if self.saved.len() > 2 {
            return;
        }
        let (_, view) = self.pick();
        let request = generate::request(&mut self.random, &self.schema);
        let part = self.random.index(self.parts.len());
        let (lower, upper) = self.range_of(part);
        let expected = self.expected_within(view, &request, &lower, upper.as_ref());
        let cursor = self.parts[part].store.open_cursor(&request).unwrap();
        let desired = Arc::clone(&request.desired);
        self.saved.push(Saved { part, cursor, view, found: Vec::new(), expected, desired });
    }

    pub(super) fn resume_cursor(&mut self) {
        if self.saved.is_empty() {
            return;
        }
        let position = self.random.index(self.saved.len());
        let saved = &mut self.saved[position];
        let store = &mut self.parts[saved.part].store;
        match store.next_batch(&saved.view.snapshot(&self.table), &mut saved.cursor) {
            Ok(Some(gateway)) => {
                saved.found.extend(rows_of(&gateway.batch));
                assert_eq!(gateway.batch.columns.len(), saved.desired.len());
            }
            Ok(None) => {
                let mut saved = self.saved.swap_remove(position);
                saved.found.sort();
                assert_eq!(saved.found, saved.expected, "seed {}: saved cursor of {:?}", self.seed, saved.view);
            }
            Err(StorageError::SchemaMoved) => {
                self.saved.swap_remove(position);
            }
            Err(error) => panic!("seed {}: {error}", self.seed),
        }
    }

    pub(super) fn create_index(&mut self) {
        let definition = generate::new_index(&mut self.random);
        if self.schema.index(definition.id).is_some() || self.splitting.is_some() || self.parts.len() > 1 {
            return;
        }
        let (_, view) = self.pick();
        let mut cursor = IndexBuildCursor::default();
        loop {
            let budget = self.random.index(30) + 1;
            let step =
                self.parts[0].store.create_index_step(&view.snapshot(&self.table), &definition, &mut cursor, budget);
            if step.unwrap() == Progress::Done(()) {
                break;
            }
            match self.random.below(4) {
                0 => self.insert(),
                1 => self.change(),
                2 => self.maintain(),
                _ => self.end_one(),
            }
        }
        let mut schema = (*self.schema).clone();
        schema.version = SchemaVersion(schema.version.0 + 1);
        schema.indexes = schema.indexes.iter().cloned().chain([definition]).collect();
        self.schema = Arc::new(schema);
        self.parts[0].store.set_schema(Arc::clone(&self.schema)).unwrap();
    }

    /// Adds an attribute that may be NULL: old rows have none of it.
    pub(super) fn widen(&mut self) {
        if self.splitting.is_some() || self.parts.len() > 1 || self.random.chance(0.5) {
            return;
        }
        let name = format!("added {}", self.schema.attributes.len()).into();
        let added = Attribute { name, data_type: DataType::Int32, nullable: true };
        let schema = Arc::new(self.schema.with_attributes([added]));
        match self.parts[0].store.set_schema(Arc::clone(&schema)) {
            Ok(()) => {
                self.schema = schema;
                self.reference.versions.iter_mut().for_each(|version| version.row.push(Value::Null));
            }
            Err(StorageError::Busy { .. }) => {}
            Err(error) => panic!("seed {}: {error}", self.seed),
        }
    }

    pub(super) fn split(&mut self) {
        if !self.may_split || self.parts.len() >= 4 {
            return;
        }
        let Some((part, mut target, at)) = self.splitting.take() else {
            return self.begin_split();
        };
        let budget = self.random.index(60) + 1;
        match self.parts[part].store.split_step(&mut target, budget).unwrap() {
            SplitStep::More { .. } => self.splitting = Some((part, target, at)),
            SplitStep::Done(moved) => {
                let pending = moved.transactions_now_in_target.iter().map(|id| id.0).collect();
                self.parts.push(Part { store: target, lower: at, pending });
            }
        }
    }

    pub(super) fn begin_split(&mut self) {
        let part = self.random.index(self.parts.len());
        let Some(at) = self.parts[part].store.split_key(&[KEY]) else { return };
        let boundary = SplitBoundary {
            attributes: [KEY].into(),
            position: Arc::new(|batch: &Batch, row| key_of_row(batch, row, &[0])),
            at: at.clone(),
        };
        match self.parts[part].store.begin_split(boundary) {
            Ok(()) => {
                let store = new_store(&self.schema, &self.dictionaries, &self.memory, self.modules, self.seed);
                self.splitting = Some((part, store, at));
            }
            Err(StorageError::Busy { .. }) => {}
            Err(error) => panic!("seed {}: {error}", self.seed),
        }
    }
}
