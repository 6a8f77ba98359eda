//! Plans by text, shared by all sessions of a database.

use std::sync::{Arc, Mutex, PoisonError};

use eris_platform::DeterministicMap;

use super::statement::Planned;
use crate::settings::Lanes;
use crate::types::SqlType;

/// Plans kept at most. The texts come from clients, so the number is bounded; when it is reached everything is dropped,
/// which costs one planning each and needs no order of use.
const PLANS_MAX: usize = 2_048;
/// Longer texts are not kept: loads that write their values into the text would fill the cache with them.
const TEXT_BYTES_MAX: usize = 16_384;

/// The cache.
#[derive(Debug, Default)]
pub struct PlanCache {
    plans: Mutex<DeterministicMap<Box<str>, Vec<Arc<Planned>>>>,
}

impl PlanCache {
    /// A plan for the text and declared types that holds for this version.
    pub(super) fn find(
        &self,
        text: &str,
        declared: &[Option<SqlType>],
        catalog: u64,
        lanes: Lanes,
    ) -> Option<Arc<Planned>> {
        let plans = self.plans.lock().unwrap_or_else(PoisonError::into_inner);
        let found = plans.get(text)?.iter().find(|plan| plan.declared == declared && plan.holds(catalog, lanes))?;
        Some(Arc::clone(found))
    }

    /// Keeps a plan, in place of those for the same text that no longer hold.
    pub(super) fn keep(&self, text: &str, plan: &Arc<Planned>) {
        if plan.momentary || text.len() > TEXT_BYTES_MAX || plan.catalog == u64::MAX {
            return;
        }
        let mut plans = self.plans.lock().unwrap_or_else(PoisonError::into_inner);
        if plans.len() >= PLANS_MAX {
            plans.clear();
        }
        let same = plans.entry(text.into()).or_default();
        same.retain(|known| known.catalog == plan.catalog && known.declared != plan.declared);
        same.push(Arc::clone(plan));
    }
}
