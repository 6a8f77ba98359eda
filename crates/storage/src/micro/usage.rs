//! What requests do to attributes: Tables 5.5 and 5.6 of 004.
//!
//! ```text
//!   request ──> plan of its shape: scans, lookups, rows examined, qualified, linked      a few plain additions
//!                      │ asked for, or the plan is dropped
//!                      v
//!   totals: per attribute, per combination of attributes
//! ```
//! A plan knows which attributes its requests touch, so the point path counts per plan and not per attribute. Only who
//! holds the partition's latch counts here; the counters are atomic because cursors share the plan, and are added to
//! without locked instructions. Rows that a cursor reads after its plan was dropped are not counted.

use super::compile::{Access, MicroPlan};
use crate::ids::AttributeId;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

/// Combinations of attributes remembered at most; the rarest goes.
const COMBINATIONS_MAX: usize = 64;

/// What was done with one plan since it was compiled or asked last.
#[derive(Debug, Default)]
pub(crate) struct PlanUsage {
    scans: AtomicU64,
    lookups: AtomicU64,
    examined: AtomicU64,
    qualified: AtomicU64,
    tested: AtomicU64,
    linked: AtomicU64,
}

#[inline]
fn add(counter: &AtomicU64, count: usize) {
    // One writer at a time: a plain addition.
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(count as u64), Ordering::Relaxed);
}

impl PlanUsage {
    /// A request begins.
    #[inline]
    pub(crate) fn opened(&self, scans: bool) {
        add(if scans { &self.scans } else { &self.lookups }, 1);
    }

    /// A window was scanned; its qualifying rows were linked.
    #[inline]
    pub(crate) fn scanned(&self, examined: usize, qualified: usize) {
        add(&self.examined, examined);
        add(&self.qualified, qualified);
        add(&self.linked, qualified);
    }

    /// Rows found through an index were tested for what it did not answer, and linked.
    #[inline]
    pub(crate) fn looked_up(&self, tested: usize, linked: usize) {
        add(&self.tested, tested);
        add(&self.linked, linked);
    }
}

/// Which attributes a plan's requests touch.
#[derive(Clone, Debug, Default)]
pub(crate) struct Touched {
    /// For each condition its attributes.
    pub conditions: Box<[(AttributeId, Option<AttributeId>)]>,
    pub desired: Box<[AttributeId]>,
}

impl Touched {
    fn targets(&self) -> Vec<AttributeId> {
        let of = |(attribute, other): &(AttributeId, Option<AttributeId>)| [Some(*attribute), *other];
        let mut targets: Vec<AttributeId> = self.conditions.iter().flat_map(of).flatten().collect();
        targets.sort_unstable();
        targets.dedup();
        targets
    }
}

/// What was done to one attribute, in numbers that add up.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct AttributeTotals {
    /// Scans by it, or of it.
    pub scans: u64,
    /// Requests that found their rows by it.
    pub lookups: u64,
    /// Rows whose value was linked.
    pub links: u64,
    /// Rows that were tested with a condition on it.
    pub examined: u64,
    /// Those of them that it let through.
    pub qualified: f64,
}

impl AttributeTotals {
    /// Notes that of so many examined rows so many satisfied a condition on the attribute.
    pub(crate) fn narrowed(&mut self, examined: u64, qualified: f64) {
        self.examined += examined;
        self.qualified += qualified;
    }

    /// The share of examined rows that satisfied a condition on the attribute, if there was one.
    pub(crate) fn selectivity(&self) -> Option<f64> {
        (self.examined > 0).then(|| self.qualified / self.examined as f64)
    }
}

/// Of rows that satisfied `conditions` conditions together the share that each would let through, were they alike.
pub(crate) fn share_of_each(examined: u64, qualified: u64, conditions: usize) -> f64 {
    (qualified as f64 / examined as f64).powf(1.0 / conditions as f64)
}

/// Sums over plans.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct AccessTotals {
    pub requests: u64,
    /// By attribute id, as far as any was touched.
    attributes: Vec<AttributeTotals>,
    pub combinations: BTreeMap<Box<[AttributeId]>, u64>,
}

impl AccessTotals {
    /// What was done to an attribute.
    pub(crate) fn attribute(&self, id: AttributeId) -> AttributeTotals {
        self.attributes.get(id.index()).copied().unwrap_or_default()
    }

    /// As `attribute`, to add to it.
    pub(crate) fn attribute_mut(&mut self, id: AttributeId) -> &mut AttributeTotals {
        if self.attributes.len() <= id.index() {
            self.attributes.resize(id.index() + 1, AttributeTotals::default());
        }
        &mut self.attributes[id.index()]
    }

    /// By attribute id, as far as any was touched.
    pub(crate) fn attributes(&self) -> &[AttributeTotals] {
        &self.attributes
    }

    /// Adds what was done elsewhere.
    pub(crate) fn add_all(
        &mut self,
        requests: u64,
        attributes: &[AttributeTotals],
        combinations: &[(Box<[AttributeId]>, u64)],
    ) {
        self.requests += requests;
        for (position, more) in attributes.iter().enumerate() {
            let totals = self.attribute_mut(AttributeId(position as u16));
            totals.scans += more.scans;
            totals.lookups += more.lookups;
            totals.links += more.links;
            totals.narrowed(more.examined, more.qualified);
        }
        for (ids, count) in combinations {
            *self.combinations.entry(ids.clone()).or_default() += count;
        }
    }

    /// Adds what was done with a plan.
    pub(crate) fn add(&mut self, touched: &Touched, plan: &MicroPlan) {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let usage = &plan.usage;
        let (scans, lookups) = (read(&usage.scans), read(&usage.lookups));
        self.requests += scans + lookups;
        let targets = touched.targets();
        // Without conditions it is the desired attributes that are scanned.
        for id in if targets.is_empty() { &touched.desired } else { &*targets } {
            let totals = self.attribute_mut(*id);
            totals.scans += scans;
            totals.lookups += lookups;
        }
        let (examined, qualified) = (read(&usage.examined), read(&usage.qualified));
        if examined > 0 {
            let each = share_of_each(examined, qualified, touched.conditions.len().max(1));
            for id in &targets {
                self.attribute_mut(*id).narrowed(examined, each * examined as f64);
            }
        }
        if let Access::Index(_) = plan.access {
            for position in &plan.residual {
                let (attribute, other) = touched.conditions[usize::from(*position)];
                for id in [Some(attribute), other].into_iter().flatten() {
                    self.attribute_mut(id).links += read(&usage.tested);
                }
            }
        }
        for id in &touched.desired {
            self.attribute_mut(*id).links += read(&usage.linked);
        }
        let mut combination = [&*targets, &touched.desired].concat();
        combination.sort_unstable();
        combination.dedup();
        if scans + lookups > 0 {
            *self.combinations.entry(combination.into()).or_default() += scans + lookups;
        }
        if self.combinations.len() > COMBINATIONS_MAX
            && let Some(rarest) = self.combinations.iter().min_by_key(|(_, count)| **count).map(|(ids, _)| ids.clone())
        {
            self.combinations.remove(&rarest);
        }
    }

    /// Forgets the workload and keeps what is known about the data.
    pub(crate) fn forget_workload(&mut self) {
        for totals in &mut self.attributes {
            (totals.scans, totals.lookups, totals.links) = (0, 0, 0);
        }
        (self.requests, self.combinations) = (0, BTreeMap::new());
    }
}

impl PlanUsage {
    /// Starts again at zero.
    pub(crate) fn clear(&self) {
        let Self { scans, lookups, examined, qualified, tested, linked } = self;
        for counter in [scans, lookups, examined, qualified, tested, linked] {
            counter.store(0, Ordering::Relaxed);
        }
    }
}
