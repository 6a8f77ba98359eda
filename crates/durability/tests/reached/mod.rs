//! What the runs met: a kind that no run reached is one that nothing was said about.

use std::fmt;

use crate::{plots, scribes};

/// What the runs met.
#[derive(Default)]
pub struct Reached {
    pub lives: u64,
    pub crashes_between_steps: u64,
    pub crashes_within_operations: u64,
    pub crashes_while_opening: u64,
    pub processes_killed: u64,
    pub committed: u64,
    pub rolled_back: u64,
    pub unknown: u64,
    pub unknown_survived: u64,
    pub asynchronous_lost: u64,
    pub files: u64,
    pub log_failures: u64,
    pub log_full: u64,
    pub closed: u64,
    pub checkpoints: u64,
    pub failed_checkpoints: u64,
    pub reused_bytes: u64,
    pub loaded_checkpoints: u64,
    pub plots: plots::Counts,
    pub scribes: scribes::Counts,
}

impl Reached {
    fn kinds(&self) -> Vec<(&'static str, u64)> {
        vec![
            ("lives", self.lives),
            ("crashes between steps", self.crashes_between_steps),
            ("crashes within operations", self.crashes_within_operations),
            ("crashes while opening", self.crashes_while_opening),
            ("crashes of the process alone", self.processes_killed),
            ("commits", self.committed),
            ("rollbacks", self.rolled_back),
            ("commits whose end nobody heard of", self.unknown),
            ("such commits that are there", self.unknown_survived),
            ("asynchronous commits that were lost", self.asynchronous_lost),
            ("further log files", self.files),
            ("failed logs", self.log_failures),
            ("full disks", self.log_full),
            ("databases that were closed", self.closed),
            ("checkpoints", self.checkpoints),
            ("checkpoints that failed", self.failed_checkpoints),
            ("bytes of segments that were written before", self.reused_bytes),
            ("checkpoints that were loaded", self.loaded_checkpoints),
            ("containers made", self.plots.made),
            ("containers altered", self.plots.altered),
            ("containers dropped", self.plots.dropped),
            ("foreign keys made", self.plots.foreign_keys_made),
            ("foreign keys dropped", self.plots.foreign_keys_dropped),
            ("changes of definitions that were refused", self.plots.refused),
            ("changes under way at a crash that are there", self.plots.under_way_there),
            ("changes under way at a crash that are not", self.plots.under_way_lost),
            ("commits at SERIALIZABLE", self.scribes.committed),
            ("transactions that were not serializable", self.scribes.unserializable),
        ]
    }

    pub fn check(&self) {
        let missing: Vec<_> = self.kinds().into_iter().filter(|(_, count)| *count == 0).map(|(kind, _)| kind).collect();
        assert!(missing.is_empty(), "no run reached {missing:?}");
    }
}

/// As `scripts/simulate` reads it.
impl fmt::Display for Reached {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kinds: Vec<String> = self.kinds().iter().map(|(kind, count)| format!("\"{kind}\": {count}")).collect();
        write!(formatter, "coverage {{{}}}", kinds.join(", "))
    }
}
