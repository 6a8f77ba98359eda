//! What partitions were told and learnt, as a manifest keeps it.

use std::sync::Arc;
use std::time::Duration;

use eris_engine::PartitionHistory;
use eris_storage::{AccessHistory, AttributeId, AttributeTotals, ContainerId, Key};
use serde::{Deserialize, Serialize};

use crate::definitions::{StoredLayouts, from_hex, to_hex};

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct StoredHistory {
    container: u32,
    place: usize,
    lower: Option<String>,
    layouts: Option<StoredLayouts>,
    processing_nanos: u64,
    reads: u64,
    writes: u64,
    insert_calls: u64,
    attributes: Vec<StoredTotals>,
    combinations: Vec<(Vec<u16>, u64)>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredTotals {
    scans: u64,
    lookups: u64,
    links: u64,
    examined: u64,
    qualified: f64,
}

impl StoredHistory {
    pub fn of(history: &PartitionHistory) -> Self {
        let accesses = &history.accesses;
        let totals = |totals: &AttributeTotals| {
            let AttributeTotals { scans, lookups, links, examined, qualified } = *totals;
            StoredTotals { scans, lookups, links, examined, qualified }
        };
        let numbers = |ids: &[AttributeId]| ids.iter().map(|id| id.0).collect();
        Self {
            container: history.container.0,
            place: history.place,
            lower: history.lower.as_ref().map(|lower| to_hex(lower.as_bytes())),
            layouts: history.layouts.as_deref().map(StoredLayouts::of),
            processing_nanos: accesses.processing.as_nanos() as u64,
            reads: accesses.reads,
            writes: accesses.writes,
            insert_calls: accesses.insert_calls,
            attributes: accesses.attributes.iter().map(totals).collect(),
            combinations: accesses.combinations.iter().map(|(ids, count)| (numbers(ids), *count)).collect(),
        }
    }

    /// What is kept, or why it is none.
    pub fn history(self) -> Result<PartitionHistory, String> {
        let totals = |stored: StoredTotals| {
            let StoredTotals { scans, lookups, links, examined, qualified } = stored;
            AttributeTotals { scans, lookups, links, examined, qualified }
        };
        let ids = |numbers: Vec<u16>| numbers.into_iter().map(AttributeId).collect();
        Ok(PartitionHistory {
            container: ContainerId(self.container),
            place: self.place,
            lower: self.lower.map(|lower| from_hex(&lower)).transpose()?.map(|bytes| Key::from_bytes(&bytes)),
            layouts: self.layouts.map(|layouts| Arc::new(layouts.layouts())),
            accesses: AccessHistory {
                processing: Duration::from_nanos(self.processing_nanos),
                reads: self.reads,
                writes: self.writes,
                insert_calls: self.insert_calls,
                attributes: self.attributes.into_iter().map(totals).collect(),
                combinations: self.combinations.into_iter().map(|(numbers, count)| (ids(numbers), count)).collect(),
            },
        })
    }
}
