//! What the counted traffic costs on the modelled machine. All figures from here are *modelled*.
//!
//! Two bounds, of which the lower one holds.
//!
//! **Workers.** What a worker waits for, with the latencies of Table 3.2:
//!
//! ```text
//!   wait per lookup = local latency x ( READS_PER_KEY x keys looked at + messages executed + answers taken locally )
//!                   + sum over distances d:  latency(d) x ( transfers(d) + answers(d) )
//! ```
//! A transfer writes the incoming buffer of another node, an answer is read by the task where the partition left it:
//! each waits once for the distance and then streams. A message is executed out of local memory.
//!
//! **Interconnect.** A processor reads from distance d with bandwidth(d), and from one distance at a time:
//!
//! ```text
//!   seconds per lookup = sum over distances d:  bytes(d) / bandwidth(d)
//! ```
//! Instructions cost nothing in it, caches hold nothing, waits do not overlap. So it says what memory and interconnect
//! allow and how that changes with the number of nodes, not what a processor reaches; nothing can be better than
//! linear. For the comparison with the sources' share of linear scale-up their own time per lookup is added
//! ([`SOURCE_LOOKUP_NS`]).

use serde::Serialize;

use super::machine::{DISTANCES, LOCAL, THREADS_PER_PROCESSOR};
use super::simulate::Counts;

/// Dependent reads of a lookup in a hash index: the entry, and the row's value.
pub(super) const READS_PER_KEY: f64 = 2.0;

/// A lookup of a key that the partition does not have reads the index only.
pub(super) const READS_PER_MISS: f64 = 1.0;

/// Time of a hardware thread for one lookup in the sources: up to 200 million a second on 768 threads (004, section
/// 5.4.1).
pub(super) const SOURCE_LOOKUP_NS: f64 = 768.0 / 200e6 * 1e9;

/// See the [module](self).
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Modelled {
    pub origin: &'static str,
    /// What a worker waits for memory, for each lookup.
    pub wait_ns_per_lookup: f64,
    /// Lookups a second that workers reach if they do nothing but wait.
    pub worker_bound_per_s: f64,
    /// Lookups a second that the interconnect carries; none without remote traffic.
    pub interconnect_bound_per_s: Option<f64>,
    /// The lower one.
    pub throughput_per_s: f64,
    /// Of so many times one node's throughput as there are nodes.
    pub share_of_linear: f64,
    /// The same when every lookup also costs a thread what it cost the sources' engine.
    pub share_of_linear_with_source_time: f64,
}

/// Costs of one configuration, before they are compared with one node's.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Costs {
    pub nodes: usize,
    pub wait_ns: f64,
    /// Lookups times the number of keys that are looked at for each: partitions that execute it.
    executions: f64,
    /// Nanoseconds of a processor's interconnect.
    interconnect_ns: f64,
}

impl Costs {
    pub fn of(counts: &Counts, nodes: usize, is_broadcast: bool) -> Self {
        let lookups = counts.lookups as f64;
        let per_lookup = |count: u64| count as f64 / lookups;
        let remote_answers: u64 = counts.crossings.iter().map(|crossing| crossing.answers).sum();
        // A broadcast is executed by every partition, of which one has the key.
        let keys_looked_at = if is_broadcast { (nodes * THREADS_PER_PROCESSOR) as f64 } else { 1.0 };
        let reads = READS_PER_KEY + (keys_looked_at - 1.0) * READS_PER_MISS;
        let local = reads + per_lookup(counts.executed_messages) + per_lookup(counts.answers - remote_answers);
        let mut wait_ns = local * DISTANCES[LOCAL].latency_ns;
        let mut interconnect_ns = 0.0;
        for (crossing, distance) in counts.crossings.iter().zip(&DISTANCES) {
            wait_ns += per_lookup(crossing.transfers + crossing.answers) * distance.latency_ns;
            // A GB/s is a byte a nanosecond.
            interconnect_ns += per_lookup(crossing.message_bytes + crossing.answer_bytes) / distance.bandwidth_gb_per_s;
        }
        Self { nodes, wait_ns, executions: keys_looked_at, interconnect_ns }
    }

    /// Lookups a second when a lookup costs a thread so much besides waiting, in every partition that executes it.
    fn throughput_per_s(&self, thread_ns: f64) -> f64 {
        let threads = (self.nodes * THREADS_PER_PROCESSOR) as f64;
        let workers = threads * 1e9 / (self.wait_ns + self.executions * thread_ns);
        self.interconnect_bound_per_s().map_or(workers, |bound| workers.min(bound))
    }

    fn interconnect_bound_per_s(&self) -> Option<f64> {
        (self.interconnect_ns > 0.0).then(|| self.nodes as f64 * 1e9 / self.interconnect_ns)
    }

    /// The figures, beside those of one node.
    pub fn modelled(&self, one_node: &Self) -> Modelled {
        let share =
            |thread_ns| self.throughput_per_s(thread_ns) / (self.nodes as f64 * one_node.throughput_per_s(thread_ns));
        Modelled {
            origin: "modelled",
            wait_ns_per_lookup: self.wait_ns,
            worker_bound_per_s: (self.nodes * THREADS_PER_PROCESSOR) as f64 * 1e9 / self.wait_ns,
            interconnect_bound_per_s: self.interconnect_bound_per_s(),
            throughput_per_s: self.throughput_per_s(0.0),
            share_of_linear: share(0.0),
            share_of_linear_with_source_time: share(SOURCE_LOOKUP_NS),
        }
    }
}

/// A scan of all keys for each lookup, of which every node scans its part with the bandwidth of its memory.
pub(super) fn scans_per_s(pairs: u64, nodes: usize) -> f64 {
    let bytes_per_node = pairs as f64 * 8.0 / nodes as f64;
    DISTANCES[LOCAL].bandwidth_gb_per_s * 1e9 / bytes_per_node
}
