//! Scaling without the machine: the key-value benchmark on 1 to 64 simulated nodes, what it sends for each lookup, and
//! what Table 3.2's latencies and bandwidths make of that, beside figures 3.29 to 3.34 of 004.
//!
//! ```text
//!   simulate   the real engine on so many nodes of twelve workers, one thread, a seed  ──> messages, bytes, transfers
//!   machine    which nodes are how far apart on the modelled machine                   ──> the same by distance
//!   model      what each of them waits or occupies                                     ──> lookups a second, modelled
//! ```
//! Counts are *simulated*: they are the engine's own. Figures made of them and of Table 3.2 are *modelled*.

mod machine;
mod model;
mod report;
mod simulate;

pub use machine::Distance;
pub use model::Modelled;
pub use report::{ByDistance, Configuration, ScalingReport, Scans, Step, scaling};

use super::options::KvError;

/// What to simulate.
#[derive(Debug, Clone, PartialEq)]
pub struct ScalingOptions {
    /// Numbers of nodes, rising from 1; all but 1 even, so that half of them away is another one for all.
    pub nodes: Vec<usize>,
    /// Pairs in the store, whatever the number of nodes: the sources keep the data and add processors. What is sent
    /// does not depend on it; with more than 65,536 to a partition the load cuts partitions itself.
    pub pairs: u64,
    pub tasks_per_worker: usize,
    pub transactions_per_task: usize,
    pub seed: u64,
}

impl Default for ScalingOptions {
    fn default() -> Self {
        Self {
            nodes: vec![1, 2, 4, 8, 16, 32, 64],
            pairs: 500_000,
            tasks_per_worker: 1,
            transactions_per_task: 2,
            seed: 1,
        }
    }
}

impl ScalingOptions {
    fn validate(&self) -> Result<(), KvError> {
        let refuse = |text: &str| Err(KvError::Options(text.to_owned()));
        let rises = self.nodes.windows(2).all(|pair| pair[0] < pair[1]);
        let ends = self.nodes.first() == Some(&1) && self.nodes.last() <= Some(&machine::PROCESSORS_MAX);
        if !rises || !ends || self.nodes.iter().skip(1).any(|nodes| nodes % 2 == 1) {
            return refuse("numbers of nodes rise from 1 to at most 64 and are even but the first");
        }
        if self.tasks_per_worker == 0 || self.transactions_per_task == 0 {
            return refuse("each worker has tasks, and each task transactions");
        }
        Ok(())
    }
}
