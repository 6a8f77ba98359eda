//! Batched lookups, through an index or by one scan, against the reference; and counts against reads.

use super::{Driver, View, generate, rows_of};
use eris_storage::{AttributeId, Batch, Comparison, Condition, LookupRequest, Predicate, ReadRequest, Test, Value};

/// By the primary key, by a secondary one in another order than its index's, and by attributes without an index.
const KEYS: [&[u16]; 4] = [&[1], &[1, 2], &[3], &[6, 7]];

impl Driver {
    /// Who only counts the same rows counts as many.
    pub(super) fn check_count(&mut self, part: usize, view: View, request: &ReadRequest, expected: usize) {
        let request = ReadRequest { desired: [].into(), order: None, ..request.clone() };
        let mut cursor = self.parts[part].store.open_cursor(&request).unwrap().counting();
        let mut rows = 0;
        while let Some(gateway) = self.parts[part].store.next_batch(&view.snapshot(&self.table), &mut cursor).unwrap() {
            assert!(gateway.batch.columns.is_empty() && gateway.addresses.is_empty());
            rows += gateway.batch.rows;
        }
        assert_eq!(rows, expected, "seed {}: {request:?}", self.seed);
    }

    /// Looks up many keys at once, some of them twice, some absent, some NULL.
    pub(super) fn look_up(&mut self) {
        let (_, view) = self.pick();
        let attributes: Vec<AttributeId> = KEYS[self.random.index(4)].iter().copied().map(AttributeId).collect();
        let desired: Vec<AttributeId> =
            (0..=self.random.below(3)).map(|_| AttributeId(self.random.index(9) as u16)).collect();
        let types: Vec<_> = attributes.iter().map(|id| self.schema.attributes[id.index()].data_type).collect();
        let keys: Vec<Vec<Value>> = (0..self.random.below(60))
            .map(|_| {
                let null = self.random.chance(0.1);
                let mut value =
                    |id: &AttributeId| if null { Value::Null } else { generate::value(&mut self.random, *id) };
                attributes.iter().map(&mut value).collect()
            })
            .collect();
        let request = LookupRequest { attributes: attributes.clone().into(), desired: desired.clone().into() };
        let mut found: Vec<(u32, Vec<Value>)> = Vec::new();
        for part in &mut self.parts {
            let mut cursor = part.store.open_lookup(&request, &Batch::from_rows(&types, &keys)).unwrap();
            while let Some(more) = part.store.next_found(&view.snapshot(&self.table), &mut cursor).unwrap() {
                assert_eq!(more.keys.len(), more.batch.rows);
                found.extend(more.keys.iter().copied().zip(rows_of(&more.batch)));
            }
        }
        found.sort();
        let mut expected: Vec<(u32, Vec<Value>)> = Vec::new();
        for (number, key) in keys.iter().enumerate() {
            let conditions = attributes.iter().zip(key).map(|(attribute, value)| Condition {
                attribute: *attribute,
                test: Test::Compare(Comparison::Equal, value.clone()),
            });
            let predicate = Predicate::new(conditions.collect::<Vec<_>>());
            let rows = self.reference.read(view, &predicate, &desired);
            expected.extend(rows.into_iter().map(|row| (number as u32, row)));
        }
        expected.sort();
        assert_eq!(found, expected, "seed {}: {view:?} {request:?} {keys:?}", self.seed);
    }
}
