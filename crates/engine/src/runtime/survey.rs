//! What there is and what it waits for, as a whole.

use std::fmt::Write as _;
use std::sync::{Arc, Weak};

use super::Runtime;
use crate::admission::STATEMENT_CLASSES;
use crate::dataflow::Dataflow;
use crate::lock::{lock, read};
use crate::partition::Partition;

impl Runtime {
    /// All partitions that live.
    pub fn all_partitions(&self) -> Vec<Partition> {
        read(&self.partitions).iter().filter_map(Weak::upgrade).collect()
    }

    /// All dataflows that run.
    pub fn all_dataflows(&self) -> Vec<Arc<Dataflow>> {
        self.dataflows.iter().flat_map(|shard| lock(shard).values().cloned().collect::<Vec<_>>()).collect()
    }

    /// Whether some partition is to be maintained now.
    pub fn has_maintenance(&self) -> bool {
        read(&self.partitions).iter().filter_map(Weak::upgrade).any(|partition| partition.is_marked_for_maintenance())
    }

    /// Who waits for what: for the report of a run that is stuck.
    pub fn describe(&self) -> String {
        let mut text = String::new();
        for node in &self.nodes {
            let (tasks, assignments) = (node.tasks.len() + node.pieces.len(), node.assignments.len());
            let (maintenance, work) = (node.maintenance.len(), node.has_work());
            let _ = writeln!(
                text,
                "node {}: {tasks} tasks, {assignments} partitions, {maintenance} for maintenance, has work: {work}",
                node.id.0
            );
        }
        for partition in read(&self.partitions).iter().filter_map(Weak::upgrade) {
            let _ = writeln!(text, "{partition:?}: {}", partition.describe());
        }
        for shard in &self.dataflows {
            for dataflow in lock(shard).values() {
                let _ = writeln!(text, "{}", dataflow.describe());
            }
        }
        for wait in self.transactions.describe_waits() {
            let _ = writeln!(text, "{wait}");
        }
        for class in STATEMENT_CLASSES {
            let (running, waiting) = self.admission.counts(class);
            if waiting > 0 {
                let _ = writeln!(text, "admission of {class:?}: {running} run, {waiting} wait");
            }
        }
        text
    }
}
