//! The configurations of figures 3.29 to 3.34, simulated one after the other, and what is reported of each.

use eris_engine::Coalescing;
use serde::Serialize;

use super::ScalingOptions;
use super::machine::{DISTANCES, Distance, THREADS_PER_PROCESSOR};
use super::model::{Costs, Modelled, READS_PER_KEY, READS_PER_MISS, SOURCE_LOOKUP_NS, scans_per_s};
use super::simulate::{Counts, simulate};
use crate::kv::LOOKUPS_PER_TRANSACTION;
use crate::kv::options::{Access, KvError, KvOptions, Locality, PartitionedBy, coalescing_name};

/// Everything.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ScalingReport {
    pub benchmark: &'static str,
    pub seed: u64,
    pub pairs: u64,
    pub workers_per_node: usize,
    pub lookups_per_transaction: usize,
    pub machine: &'static str,
    /// Table 3.2.
    pub distances: [Distance; DISTANCES.len()],
    pub model: Model,
    pub configurations: Vec<Configuration>,
    pub scans_by_value: Vec<Scans>,
}

/// What is assumed.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Model {
    pub counts: &'static str,
    pub wait_ns_per_lookup: &'static str,
    pub interconnect: &'static str,
    pub throughput_per_s: &'static str,
    pub left_out: &'static str,
    pub topology: &'static str,
    pub reads_per_key: f64,
    pub reads_per_miss: f64,
    pub source_lookup_ns: f64,
}

/// One setting over all numbers of nodes.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Configuration {
    /// `by key` or `by value`.
    pub partitioned: &'static str,
    pub locality: &'static str,
    /// `none`, `partition` or `sender`.
    pub coalescing: &'static str,
    pub source: Source,
    pub steps: Vec<Step>,
}

/// What the text of 004, section 3.4.6, says of the same setting at 768 threads. Figures have no numbers in the text.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct Source {
    pub figures: &'static str,
    /// Of linear scale-up, with 100 million pairs.
    pub share_of_linear_sf_1000: Option<f64>,
    /// With 500 million pairs.
    pub share_of_linear_sf_5000: Option<f64>,
    /// Requests that a partition executes together.
    pub keys_per_answer: Option<f64>,
    /// Peak throughput over that without coalescing.
    pub peak_over_plain: Option<f64>,
    pub text: &'static str,
}

/// One number of nodes.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Step {
    pub nodes: usize,
    pub workers: usize,
    pub lookups: u64,
    /// Messages that were sent, a broadcast once for each node it goes to.
    pub messages_per_lookup: f64,
    pub commands_per_message: f64,
    /// Messages that partitions executed.
    pub executed_per_lookup: f64,
    /// Keys that a partition answered together.
    pub keys_per_answer: f64,
    /// Of all messages.
    pub remote_message_share: f64,
    pub interconnect_bytes_per_lookup: f64,
    pub by_distance: Vec<ByDistance>,
    pub modelled: Modelled,
}

/// What crossed one distance, for each lookup.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct ByDistance {
    pub distance: &'static str,
    pub messages_per_lookup: f64,
    pub message_bytes_per_lookup: f64,
    pub messages_per_transfer: f64,
    pub transfers_per_lookup: f64,
    pub answers_per_lookup: f64,
    pub answer_bytes_per_lookup: f64,
}

/// Figures 3.31 and 3.32: a scan of all keys for each lookup, in all partitions. Messages are those of the index scans
/// by value.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Scans {
    pub origin: &'static str,
    pub figure: &'static str,
    pub pairs: u64,
    pub nodes: usize,
    /// What the memory bandwidth of all nodes allows.
    pub throughput_per_s: f64,
    pub share_of_linear: f64,
    pub source: &'static str,
}

const MODEL: Model = Model {
    counts: "simulated: counted by the engine under its simulator, one seed; transfers depend on the order of steps",
    wait_ns_per_lookup: "modelled: local latency x (reads_per_key for the partition that has the key + reads_per_miss \
                         for each other partition + executed_per_lookup + answers taken on their own node) + sum over \
                         distances of latency x (transfers + answers)",
    interconnect: "modelled: a processor takes sum over distances of bytes / bandwidth for each lookup of its own",
    throughput_per_s: "modelled: the lower of workers / wait and nodes / interconnect time",
    left_out: "instructions, caches (so nothing is better than linear), overlap of waits, contention; \
               share_of_linear_with_source_time adds source_lookup_ns of processor time to every execution",
    topology: "4 enclosures in a ring of 8 blades in an enhanced cube of 2 processors: our reading of figure 3.1(c)",
    reads_per_key: READS_PER_KEY,
    reads_per_miss: READS_PER_MISS,
    source_lookup_ns: SOURCE_LOOKUP_NS,
};

fn source(locality: Locality, coalescing: Coalescing) -> Source {
    let coalesced = coalescing != Coalescing::None;
    let (plain, keys, peak) = match locality {
        Locality::Local => ((1.27, 1.20), None, Some(1.30)),
        Locality::Shifted => ((1.06, 1.19), Some(83.3), Some(1.20)),
        Locality::Random => ((0.84, 0.78), Some(1.3), None),
    };
    Source {
        figures: "3.29, 3.30",
        share_of_linear_sf_1000: (!coalesced).then_some(plain.0),
        share_of_linear_sf_5000: (!coalesced).then_some(plain.1),
        keys_per_answer: keys.filter(|_| coalesced),
        peak_over_plain: peak.filter(|_| coalesced),
        text: match locality {
            Locality::Local => "better than linear: each partition shrinks and fits better into the cache",
            Locality::Shifted => "large batches between two processors; the full batch is rarely reached",
            Locality::Random => "better than linear up to 200 cores, then the message layer",
        },
    }
}

const SOURCE_BY_VALUE: Source = Source {
    figures: "3.33, 3.34",
    share_of_linear_sf_1000: None,
    share_of_linear_sf_5000: None,
    keys_per_answer: None,
    peak_over_plain: None,
    text: "scales only over a few threads: every partition is asked for every key",
};

/// Simulates all configurations; `progress` gets a line for each number of nodes of each.
pub fn scaling(options: &ScalingOptions, progress: &mut dyn FnMut(&str)) -> Result<ScalingReport, KvError> {
    options.validate()?;
    let mut configurations = Vec::new();
    for locality in [Locality::Local, Locality::Shifted, Locality::Random] {
        for coalescing in [Coalescing::None, Coalescing::Partition, Coalescing::Sender] {
            configurations.push(configuration(options, PartitionedBy::Key, locality, coalescing, progress)?);
        }
    }
    for coalescing in [Coalescing::None, Coalescing::Sender] {
        configurations.push(configuration(options, PartitionedBy::Value, Locality::Random, coalescing, progress)?);
    }
    let scans = |(figure, pairs, source)| {
        options.nodes.iter().map(move |nodes| Scans {
            origin: "modelled",
            figure,
            pairs,
            nodes: *nodes,
            throughput_per_s: scans_per_s(pairs, *nodes),
            share_of_linear: scans_per_s(pairs, *nodes) / (*nodes as f64 * scans_per_s(pairs, 1)),
            source,
        })
    };
    let scans_by_value = [
        ("3.31", 100_000_000, "better than linear: the keys fit into the caches of enough processors"),
        ("3.32", 500_000_000, "slightly worse than linear: each lookup is a broadcast"),
    ];
    Ok(ScalingReport {
        benchmark: "scaling",
        seed: options.seed,
        pairs: options.pairs,
        workers_per_node: THREADS_PER_PROCESSOR,
        lookups_per_transaction: LOOKUPS_PER_TRANSACTION,
        machine: "SGI UV 3000, 64 processors of 12 threads (004, Tables 3.1 and 3.2)",
        distances: DISTANCES,
        model: MODEL,
        configurations,
        scans_by_value: scans_by_value.into_iter().flat_map(scans).collect(),
    })
}

fn configuration(
    options: &ScalingOptions,
    partitioned_by: PartitionedBy,
    locality: Locality,
    coalescing: Coalescing,
    progress: &mut dyn FnMut(&str),
) -> Result<Configuration, KvError> {
    let is_broadcast = partitioned_by == PartitionedBy::Value;
    let mut steps = Vec::new();
    let mut one_node = None;
    for nodes in options.nodes.iter().copied() {
        let workers = nodes * THREADS_PER_PROCESSOR;
        progress(&format!(
            "{}, {}, coalescing {}, {nodes} nodes",
            partitioned_by.name(),
            locality.name(),
            coalescing_name(coalescing)
        ));
        let simulated = KvOptions {
            pairs: options.pairs,
            workers,
            nodes,
            access: Access::Index,
            partitioned_by,
            locality,
            coalescing,
            tasks_per_worker: options.tasks_per_worker,
            seed: options.seed,
            ..KvOptions::default()
        };
        // One lookup by value keeps all partitions busy.
        let (tasks, transactions) =
            if is_broadcast { (1, 1) } else { (workers * options.tasks_per_worker, options.transactions_per_task) };
        let counts = simulate(&simulated, tasks, transactions)?;
        let costs = Costs::of(&counts, nodes, is_broadcast);
        let modelled = costs.modelled(one_node.get_or_insert(costs));
        steps.push(step(&counts, nodes, modelled));
    }
    Ok(Configuration {
        partitioned: partitioned_by.name(),
        locality: locality.name(),
        coalescing: coalescing_name(coalescing),
        source: if is_broadcast { SOURCE_BY_VALUE } else { source(locality, coalescing) },
        steps,
    })
}

fn step(counts: &Counts, nodes: usize, modelled: Modelled) -> Step {
    let per_lookup = |count: u64| count as f64 / counts.lookups as f64;
    let quotient = |part: u64, whole: u64| if whole == 0 { 0.0 } else { part as f64 / whole as f64 };
    // A broadcast is assigned to the partitions of its own node and sent to each other node.
    let at_home = if counts.broadcasts > 0 { counts.broadcasts } else { counts.local_messages };
    let messages = at_home + counts.remote_messages;
    let crossings = counts.crossings.iter().zip(&DISTANCES).filter(|(crossing, _)| crossing.messages > 0);
    let by_distance = crossings.map(|(crossing, distance)| ByDistance {
        distance: distance.name,
        messages_per_lookup: per_lookup(crossing.messages),
        message_bytes_per_lookup: per_lookup(crossing.message_bytes),
        messages_per_transfer: quotient(crossing.messages, crossing.transfers),
        transfers_per_lookup: per_lookup(crossing.transfers),
        answers_per_lookup: per_lookup(crossing.answers),
        answer_bytes_per_lookup: per_lookup(crossing.answer_bytes),
    });
    let crossed: u64 = counts.crossings.iter().map(|crossing| crossing.message_bytes + crossing.answer_bytes).sum();
    Step {
        nodes,
        workers: nodes * THREADS_PER_PROCESSOR,
        lookups: counts.lookups,
        messages_per_lookup: per_lookup(messages),
        // A broadcast carries its commands to each node again.
        commands_per_message: if counts.broadcasts > 0 {
            quotient(counts.lookups, counts.broadcasts)
        } else {
            quotient(counts.lookups, messages)
        },
        executed_per_lookup: per_lookup(counts.executed_messages),
        keys_per_answer: quotient(counts.lookups, counts.answers),
        remote_message_share: quotient(counts.remote_messages, messages),
        interconnect_bytes_per_lookup: per_lookup(crossed),
        by_distance: by_distance.collect(),
        modelled,
    }
}
