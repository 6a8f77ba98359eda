//! Plans by the shape of their requests.
//!
//! A partition sees few shapes, again and again: a short list, those used more towards the front, compared piece by
//! piece. The attributes wanted are compared by address first: a prepared statement hands in the same `Arc` each time.

use super::compile::MicroPlan;
use super::usage::{AccessTotals, Touched};
use crate::ids::AttributeId;
use crate::predicate::{Comparison, IndexOrder, ReadRequest, Test};
use std::mem::{Discriminant, discriminant};
use std::sync::Arc;

/// Shapes kept at most.
const PLANS_MAX: usize = 16;
/// So many are compared quickly in any order. A change of order is a write, which the next core has to fetch.
const FRONT: usize = 4;

/// One condition without its constants.
#[derive(Clone, Copy, PartialEq)]
struct ConditionShape {
    attribute: AttributeId,
    kind: Discriminant<Test>,
    comparison: Option<Comparison>,
    other: Option<AttributeId>,
}

fn shape_of(attribute: AttributeId, test: &Test) -> ConditionShape {
    let (comparison, other) = match test {
        Test::Compare(comparison, _) => (Some(*comparison), None),
        Test::CompareAttribute(comparison, other) => (Some(*comparison), Some(*other)),
        Test::In(_) | Test::IsNull | Test::IsNotNull | Test::StartsWith(_) => (None, None),
    };
    ConditionShape { attribute, kind: discriminant(test), comparison, other }
}

struct Entry {
    desired: Arc<[AttributeId]>,
    conditions: Box<[ConditionShape]>,
    order: Option<IndexOrder>,
    plan: Arc<MicroPlan>,
}

impl Entry {
    fn touched(&self) -> Touched {
        let conditions = self.conditions.iter().map(|shape| (shape.attribute, shape.other)).collect();
        Touched { conditions, desired: (*self.desired).into() }
    }

    fn is_for(&self, request: &ReadRequest) -> bool {
        (Arc::ptr_eq(&self.desired, &request.desired) || self.desired == request.desired)
            && self.order == request.order
            && self.conditions.len() == request.predicate.conditions.len()
            && self
                .conditions
                .iter()
                .zip(request.predicate.conditions.iter())
                .all(|(shape, condition)| *shape == shape_of(condition.attribute, &condition.test))
    }
}

/// See the module's documentation.
#[derive(Default)]
pub(crate) struct PlanCache {
    entries: Vec<Entry>,
    /// What was done with plans that are gone.
    gone: AccessTotals,
}

impl PlanCache {
    /// The place of the plan for a request of this shape.
    pub(crate) fn find(&mut self, request: &ReadRequest) -> Option<usize> {
        let place = self.entries.iter().position(|entry| entry.is_for(request))?;
        if place < FRONT {
            return Some(place);
        }
        // Half-way to the front: a shape used once does not displace those used all the time.
        self.entries.swap(place, place / 2);
        Some(place / 2)
    }

    /// The plan at a place that was given just now.
    pub(crate) fn at(&self, place: usize) -> &Arc<MicroPlan> {
        &self.entries[place].plan
    }

    /// Keeps a plan; gives its place.
    pub(crate) fn add(&mut self, request: &ReadRequest, plan: Arc<MicroPlan>) -> usize {
        self.drop_from(PLANS_MAX - 1);
        let conditions = request.predicate.conditions.iter().map(|c| shape_of(c.attribute, &c.test)).collect();
        self.entries.push(Entry { desired: Arc::clone(&request.desired), conditions, order: request.order, plan });
        self.entries.len() - 1
    }

    /// Forgets all plans: the layout changed.
    pub(crate) fn clear(&mut self) {
        self.drop_from(0);
    }

    fn drop_from(&mut self, kept: usize) {
        for entry in self.entries.drain(kept.min(self.entries.len())..) {
            self.gone.add(&entry.touched(), &entry.plan);
        }
    }

    /// What was done with all plans there were.
    pub(crate) fn totals(&self) -> AccessTotals {
        let mut totals = self.gone.clone();
        for entry in &self.entries {
            totals.add(&entry.touched(), &entry.plan);
        }
        totals
    }

    /// What was done with plans that are gone, to be added to.
    pub(crate) fn gone_mut(&mut self) -> &mut AccessTotals {
        &mut self.gone
    }

    /// Forgets what was done, but not what was learnt about the data.
    pub(crate) fn begin_horizon(&mut self) {
        self.gone = self.totals();
        self.gone.forget_workload();
        for entry in &self.entries {
            entry.plan.usage.clear();
        }
    }
}
