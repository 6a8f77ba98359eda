//! Plans by text, shared by all sessions of a database.

use std::sync::{Arc, Mutex, PoisonError};

use eris_platform::DeterministicMap;

use super::prepared::plan_bytes;
use super::statement::Planned;
use crate::settings::Lanes;
use crate::types::SqlType;

/// Plans kept at most. The texts come from clients, so the number is bounded; when it is reached everything is dropped,
/// which costs one planning each and needs no order of use.
const PLANS_MAX: usize = 2_048;
/// Longer texts are not kept: loads that write their values into the text would fill the cache with them.
const TEXT_BYTES_MAX: usize = 16_384;

/// Plans with more bytes of constants are not kept: few of them would drop all others.
const CONSTANT_BYTES_MAX: usize = 1 << 20;

/// Bytes of all plans together, as [`plan_bytes`] has them: this, or one part in so many of the memory limit.
const BYTES_MAX: usize = 64 << 20;
const LIMIT_SHARE: u64 = 32;

/// The cache.
#[derive(Debug)]
pub struct PlanCache {
    kept: Mutex<Kept>,
    bytes_max: usize,
}

/// The types that parameters are declared with.
type Declared = Box<[Option<SqlType>]>;

#[derive(Debug, Default)]
struct Kept {
    plans: DeterministicMap<Box<str>, Vec<Arc<Planned>>>,
    /// Templates that are planned with their literals.
    no_templates: DeterministicMap<Box<str>, Vec<Declared>>,
    /// Of those that were put in since all was dropped.
    bytes: usize,
}

impl PlanCache {
    /// Without plans; it keeps a small part of this memory limit.
    pub fn new(limit_bytes: u64) -> Self {
        let share = usize::try_from(limit_bytes / LIMIT_SHARE).unwrap_or(usize::MAX);
        Self { kept: Mutex::default(), bytes_max: share.min(BYTES_MAX) }
    }

    /// A plan for the text and declared types that holds for this version.
    pub(super) fn find(
        &self,
        text: &str,
        declared: &[Option<SqlType>],
        catalog: u64,
        lanes: Lanes,
    ) -> Option<Arc<Planned>> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let found =
            kept.plans.get(text)?.iter().find(|plan| plan.declared == declared && plan.holds(catalog, lanes))?;
        Some(Arc::clone(found))
    }

    /// Whether a template was [found to be none](Self::note_no_template).
    pub(super) fn has_no_template(&self, text: &str, types: &[Option<SqlType>]) -> bool {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.no_templates.get(text).is_some_and(|known| known.iter().any(|known| **known == *types))
    }

    /// Notes that texts of a template are planned as they are. It may have one again when a table is made anew; it is
    /// tried again after all was dropped.
    pub(super) fn note_no_template(&self, text: &str, types: &[Option<SqlType>]) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes = text.len() + size_of_val(types);
        if kept.no_templates.len() >= PLANS_MAX || kept.bytes + bytes > self.bytes_max {
            *kept = Kept::default();
        }
        kept.bytes += bytes;
        kept.no_templates.entry(text.into()).or_default().push(types.into());
    }

    /// Keeps a plan, in place of those for the same text that no longer hold.
    pub(super) fn keep(&self, text: &str, plan: &Arc<Planned>) {
        if plan.momentary || text.len() > TEXT_BYTES_MAX || plan.catalog == u64::MAX {
            return;
        }
        if plan.constant_bytes > CONSTANT_BYTES_MAX {
            return;
        }
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes = plan_bytes(text, plan);
        if kept.plans.len() >= PLANS_MAX || kept.bytes + bytes > self.bytes_max {
            *kept = Kept::default();
        }
        kept.bytes += bytes;
        let same = kept.plans.entry(text.into()).or_default();
        same.retain(|known| known.catalog == plan.catalog && known.declared != plan.declared);
        same.push(Arc::clone(plan));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::front::Command;
    use crate::session::prepared::ColumnDescription;

    fn keep(cache: &PlanCache, text: &str) {
        keep_with(cache, text, 0);
    }

    fn keep_with(cache: &PlanCache, text: &str, constant_bytes: usize) {
        let plan = Planned::later(text.to_owned(), Command::Commit, &[]);
        cache.keep(text, &Arc::new(Planned { catalog: 1, momentary: false, constant_bytes, ..plan }));
    }

    fn has(cache: &PlanCache, text: &str) -> bool {
        cache.find(text, &[], 1, Lanes::BOTH).is_some()
    }

    /// Texts as long as any that are kept: their plans have all bytes long before there are too many of them.
    #[test]
    fn plans_are_kept_up_to_their_bytes_and_the_newest_always_is() {
        let cache = PlanCache::new(u64::MAX);
        let texts: Vec<String> = (0..100).map(|number| format!("{number:0>TEXT_BYTES_MAX$}")).collect();
        let each = plan_bytes(&texts[0], &Planned::later(texts[0].clone(), Command::Commit, &[]));
        let mut most = 0;
        for (number, text) in texts.iter().enumerate() {
            keep(&cache, text);
            assert!(has(&cache, text), "plan {number} is not kept");
            let kept = texts.iter().filter(|text| has(&cache, text)).count();
            assert!(kept * each <= 64 << 20, "{kept} plans of {each} bytes are kept");
            most = most.max(kept);
        }
        assert_eq!(most, (64 << 20) / each, "as many as there is room for");
        let longer = format!("{} ", texts[0]);
        keep(&cache, &longer);
        assert!(!has(&cache, &longer), "a longer text is not kept");
    }

    #[test]
    fn a_small_part_of_the_memory_limit_is_kept() {
        let cache = PlanCache::new(32 << 20);
        let texts: Vec<String> = (0..500).map(|number| format!("SELECT {number}")).collect();
        let each = plan_bytes(&texts[0], &Planned::later(texts[0].clone(), Command::Commit, &[]));
        for text in &texts {
            keep(&cache, text);
            let kept = texts.iter().filter(|text| has(&cache, text)).count();
            assert!((1..=(1 << 20) / each).contains(&kept), "{kept} plans of {each} bytes are kept");
        }
        let column = || ColumnDescription { name: "c".to_owned(), sql_type: SqlType::Text };
        let columns = Some((0..1_600).map(|_| column()).collect());
        let wide = Planned { columns, ..Planned::later(texts[0].clone(), Command::Commit, &[]) };
        assert!(plan_bytes(&texts[0], &wide) > each + 100_000, "columns count");
    }

    /// Short texts whose plans hold a lot: what was computed when they were planned is charged.
    #[test]
    fn constants_of_plans_are_charged_and_a_plan_of_many_is_not_kept() {
        let cache = PlanCache::new(u64::MAX);
        let texts: Vec<String> = (0..500).map(|number| format!("SELECT {number}")).collect();
        let constants = 300 << 10;
        for text in &texts {
            keep_with(&cache, text, constants);
            assert!(has(&cache, text), "the newest is kept");
            let kept = texts.iter().filter(|text| has(&cache, text)).count();
            assert!(kept * constants <= 64 << 20, "{kept} plans with {constants} bytes of constants are kept");
        }
        keep_with(&cache, "SELECT a lot", CONSTANT_BYTES_MAX + 1);
        assert!(!has(&cache, "SELECT a lot"));
        assert!(has(&cache, &texts[499]), "and drops no other");
    }
}
