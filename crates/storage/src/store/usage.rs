//! The statistics of a partition's accesses, for the layout controller (Tables 5.5 and 5.6 of 004).

use super::Store;
use crate::batch::Batch;
use crate::ids::AttributeId;
use crate::micro::{AccessTotals, AttributeTotals, share_of_each};
use crate::predicate::{ReadRequest, Test};
use crate::segment::{NewRows, SealedSegment};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// What was done to one attribute (Table 5.6). Counts without a word of their own begin anew with each horizon
/// ([`Store::begin_horizon`]).
#[derive(Clone, Debug, PartialEq)]
pub struct AttributeStatistics {
    pub attribute: AttributeId,
    /// NULLs among the records, ever: how sparse the attribute is.
    pub nulls: u64,
    /// Insert calls on the access paths that hold it.
    pub inserts: u64,
    /// Scans by it, or of it where nothing is scanned by.
    pub scans: u64,
    /// Requests that found their rows by it through an index.
    pub lookups: u64,
    /// Rows whose value was linked.
    pub links: u64,
    /// The share of scanned rows that a condition on it let through, ever; none if there was no such scan. Conditions
    /// that were tested together are taken to be alike.
    pub selectivity: Option<f64>,
}

/// What was done to a partition (Table 5.5).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AccessStatistics {
    /// Time spent on requests that came as messages, in this horizon.
    pub processing: Duration,
    /// Reads, inserts, updates and deletes in this horizon.
    pub requests: u64,
    /// Record versions that came, ever.
    pub records: u64,
    /// Attributes that were read together (conditions and result), ascending, with the number of requests in this
    /// horizon; the rarest of many are left out.
    pub combinations: Vec<(Box<[AttributeId]>, u64)>,
    /// One per attribute of the schema.
    pub attributes: Vec<AttributeStatistics>,
}

/// What a partition counted of its accesses, in numbers with which another store of the same rows goes on.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AccessHistory {
    /// Time spent on requests that came as messages.
    pub processing: Duration,
    /// Reads.
    pub reads: u64,
    /// Deletes and updates.
    pub writes: u64,
    /// Insert calls.
    pub insert_calls: u64,
    /// By attribute id, as far as any was read.
    pub attributes: Vec<AttributeTotals>,
    /// Attributes that were read together, with the number of requests.
    pub combinations: Vec<(Box<[AttributeId]>, u64)>,
}

/// What pins count beside each other.
#[derive(Default)]
struct PinnedAttribute {
    links: AtomicU64,
    examined: AtomicU64,
    qualified: AtomicU64,
}

/// Rows that pins read, by attribute. Shared, because pins are read without the latch.
pub(super) struct PinnedUsage {
    attributes: Box<[PinnedAttribute]>,
}

impl PinnedUsage {
    fn new(attributes: usize) -> Self {
        Self { attributes: (0..attributes).map(|_| PinnedAttribute::default()).collect() }
    }

    /// A window of a pinned segment was scanned.
    pub(super) fn scanned(&self, request: &ReadRequest, examined: usize, qualified: usize) {
        let conditions = &request.predicate.conditions;
        let each = share_of_each(examined as u64, qualified as u64, conditions.len().max(1));
        let narrow = |id: AttributeId| {
            let Some(counters) = self.attributes.get(id.index()) else { return };
            counters.examined.fetch_add(examined as u64, Ordering::Relaxed);
            counters.qualified.fetch_add((each * examined as f64) as u64, Ordering::Relaxed);
        };
        for condition in conditions.iter() {
            narrow(condition.attribute);
            if let Test::CompareAttribute(_, other) = condition.test {
                narrow(other);
            }
        }
        for id in request.desired.iter().filter(|_| qualified > 0) {
            if let Some(counters) = self.attributes.get(id.index()) {
                counters.links.fetch_add(qualified as u64, Ordering::Relaxed);
            }
        }
    }
}

/// What a store counts besides its plans.
pub(super) struct StoreUsage {
    processing: Duration,
    writes: u64,
    insert_calls: u64,
    records: u64,
    nulls: Box<[u64]>,
    pub pinned: Arc<PinnedUsage>,
}

impl StoreUsage {
    pub(super) fn new(attributes: usize) -> Self {
        Self {
            processing: Duration::ZERO,
            writes: 0,
            insert_calls: 0,
            records: 0,
            nulls: vec![0; attributes].into(),
            pinned: Arc::new(PinnedUsage::new(attributes)),
        }
    }

    /// The schema gained attributes: there are so many now.
    pub(super) fn widen(&mut self, attributes: usize) {
        self.nulls = self.nulls.iter().copied().chain(std::iter::repeat(0)).take(attributes).collect();
        self.pinned = Arc::new(PinnedUsage::new(attributes));
    }

    /// A delete or update.
    #[inline]
    pub(super) fn wrote(&mut self) {
        self.writes += 1;
    }

    /// New record versions are inserted.
    #[inline]
    pub(super) fn inserted(&mut self, rows: NewRows<'_>) {
        self.insert_calls += 1;
        match rows {
            NewRows::Columns(rows) => self.received(rows),
            NewRows::Packed(rows) => {
                self.records += rows.len() as u64;
                rows.for_each_null(|column| self.nulls[column] += 1);
            }
        }
    }

    /// Record versions came from another partition.
    pub(super) fn received(&mut self, rows: &Batch) {
        self.records += rows.rows as u64;
        for (nulls, column) in self.nulls.iter_mut().zip(&rows.columns) {
            if column.validity.is_some() {
                *nulls += column.null_count() as u64;
            }
        }
    }

    /// A segment was attached.
    pub(super) fn attached(&mut self, segment: &SealedSegment) {
        self.writes += 1;
        self.records += u64::from(segment.rows());
        for (nulls, more) in self.nulls.iter_mut().zip(segment.nulls()) {
            *nulls += more;
        }
    }
}

impl Store {
    /// Adds time that was spent on requests.
    pub fn add_processing(&mut self, time: Duration) {
        self.usage.processing += time;
    }

    /// What was done to the partition and its attributes.
    pub fn access_statistics(&self) -> AccessStatistics {
        let totals = self.access_totals();
        let ids = (0..self.schema.attributes.len() as u16).map(AttributeId);
        let attributes = ids.zip(&self.usage.nulls).map(|(attribute, nulls)| {
            let totals = totals.attribute(attribute);
            AttributeStatistics {
                attribute,
                nulls: *nulls,
                inserts: self.usage.insert_calls,
                scans: totals.scans,
                lookups: totals.lookups,
                links: totals.links,
                selectivity: totals.selectivity(),
            }
        });
        AccessStatistics {
            processing: self.usage.processing,
            requests: totals.requests + self.usage.insert_calls + self.usage.writes,
            records: self.usage.records,
            attributes: attributes.collect(),
            combinations: totals.combinations.into_iter().collect(),
        }
    }

    /// What was counted of accesses in this horizon.
    pub fn access_history(&self) -> AccessHistory {
        let totals = self.access_totals();
        AccessHistory {
            processing: self.usage.processing,
            reads: totals.requests,
            writes: self.usage.writes,
            insert_calls: self.usage.insert_calls,
            attributes: totals.attributes().to_vec(),
            combinations: totals.combinations.into_iter().collect(),
        }
    }

    /// Goes on from what a store counted that had the same rows: what it took to get them here does not count.
    /// Attributes that the schema does not have are left out.
    pub fn continue_history(&mut self, history: &AccessHistory) {
        let known = self.schema().attributes.len();
        self.begin_horizon();
        let attributes = &history.attributes[..known.min(history.attributes.len())];
        let is_known = |(ids, _): &&(Box<[AttributeId]>, u64)| ids.iter().all(|id| id.index() < known);
        let combinations: Vec<_> = history.combinations.iter().filter(is_known).cloned().collect();
        self.plans.gone_mut().add_all(history.reads, attributes, &combinations);
        self.usage.processing = history.processing;
        (self.usage.writes, self.usage.insert_calls) = (history.writes, history.insert_calls);
    }

    /// Begins a new observation horizon: what describes the workload starts at zero again, what describes the data
    /// stays (the column *reset* of the tables).
    pub fn begin_horizon(&mut self) {
        self.plans.begin_horizon();
        for counters in &self.usage.pinned.attributes {
            counters.links.store(0, Ordering::Relaxed);
        }
        (self.usage.processing, self.usage.writes, self.usage.insert_calls) = (Duration::ZERO, 0, 0);
    }

    /// Reads through plans and pins.
    pub(super) fn access_totals(&self) -> AccessTotals {
        let mut totals = self.plans.totals();
        for (position, counters) in self.usage.pinned.attributes.iter().enumerate() {
            let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
            let attribute = totals.attribute_mut(AttributeId(position as u16));
            attribute.links += read(&counters.links);
            attribute.narrowed(read(&counters.examined), read(&counters.qualified) as f64);
        }
        totals
    }
}
