//! One configuration under the simulator: what the engine sends for the lookups, counted.
//!
//! The engine is the real one, with as many workers and partitions as the machine has hardware threads; the seed
//! decides which worker steps next. How many messages a transfer carries depends on that order, all else does not.

use std::sync::{Arc, Mutex, PoisonError};

use eris_engine::{Engine, EngineError, Event, Simulation, SimulationError};
use eris_platform::{NodeId, SeededRandom};

use super::machine::{DISTANCES, distance_between};
use crate::kv::driver::{Client, Found};
use crate::kv::options::{KvError, KvOptions, PartitionedBy};
use crate::kv::store::KvStore;

/// What crossed one distance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Crossing {
    pub messages: u64,
    pub message_bytes: u64,
    pub transfers: u64,
    pub answers: u64,
    pub answer_bytes: u64,
}

/// What was counted.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Counts {
    pub lookups: u64,
    /// Messages assigned on the node that sent them, copies of broadcasts included.
    pub local_messages: u64,
    /// Messages that went to another node.
    pub remote_messages: u64,
    pub broadcasts: u64,
    /// Messages that partitions executed.
    pub executed_messages: u64,
    /// Batches in which the answers came.
    pub answers: u64,
    /// By distance; nothing at the first one, which is local.
    pub crossings: [Crossing; DISTANCES.len()],
}

/// Sums of the engine's counters.
fn counted(engine: &Engine) -> Counts {
    let statistics = engine.statistics();
    let mut counts = Counts {
        local_messages: statistics.event(Event::LocalMessages),
        remote_messages: statistics.event(Event::RemoteMessages),
        broadcasts: statistics.event(Event::Broadcasts),
        executed_messages: statistics.event(Event::Commands),
        ..Counts::default()
    };
    for traffic in engine.traffic() {
        let distance = distance_between(traffic.source.0 as usize, traffic.target.0 as usize);
        let crossing = &mut counts.crossings[distance];
        crossing.messages += traffic.messages;
        crossing.message_bytes += traffic.message_bytes;
        crossing.transfers += traffic.transfers;
        crossing.answers += traffic.answers;
        crossing.answer_bytes += traffic.answer_bytes;
    }
    counts
}

impl Counts {
    /// What came since.
    fn since(self, before: &Self) -> Self {
        let mut crossings = self.crossings;
        for (crossing, before) in crossings.iter_mut().zip(&before.crossings) {
            crossing.messages -= before.messages;
            crossing.message_bytes -= before.message_bytes;
            crossing.transfers -= before.transfers;
            crossing.answers -= before.answers;
            crossing.answer_bytes -= before.answer_bytes;
        }
        Self {
            local_messages: self.local_messages - before.local_messages,
            remote_messages: self.remote_messages - before.remote_messages,
            broadcasts: self.broadcasts - before.broadcasts,
            executed_messages: self.executed_messages - before.executed_messages,
            crossings,
            ..self
        }
    }
}

/// Fills the store and runs `tasks` tasks, spread over the nodes, of `transactions` transactions each.
pub(super) fn simulate(options: &KvOptions, tasks: usize, transactions: usize) -> Result<Counts, KvError> {
    options.validate()?;
    let mut simulation = Simulation::new(options.seed, KvStore::engine_options(options))?;
    let engine = simulation.engine().clone();
    let store = KvStore::create(&engine, options)?;
    let (filling, pairs, partitions) = (store.clone(), options.pairs, options.partition_count() as u64);
    // By key, each partition's rows come at once, so that the load cuts nothing; by value, all have some of each batch.
    let loads = if options.partitioned_by == PartitionedBy::Key { partitions } else { 1 };
    let fill = async move {
        for load in 0..loads {
            filling.fill(pairs * load / loads..pairs * (load + 1) / loads).await?;
        }
        Ok::<_, EngineError>(())
    };
    simulation.block_on(fill).map_err(|error| stuck(&error))??;
    simulation.run_until_idle().map_err(|error| stuck(&error))?;
    let found = engine.partitions().len() as u64;
    if found != partitions {
        return Err(KvError::Simulation(format!("the load made {found} partitions of {partitions}")));
    }
    let before = counted(&engine);

    let finished: Arc<Mutex<Vec<Result<Found, KvError>>>> = Arc::default();
    for task in 0..tasks {
        let node = NodeId((task * options.nodes / tasks) as u16);
        let mut client = Client {
            store: store.clone(),
            keys: store.keys_for(node, options.locality),
            random: SeededRandom::new(options.seed.wrapping_mul(1_000_003).wrapping_add(task as u64)),
            coalescing: options.coalescing,
        };
        let finished = Arc::clone(&finished);
        engine.spawn_on(node, async move {
            let mut total = Ok(Found::default());
            for _ in 0..transactions {
                total = match (total, client.transaction().await) {
                    (Ok(total), Ok(found)) => Ok(Found {
                        keys: total.keys + found.keys,
                        sum: total.sum.wrapping_add(found.sum),
                        batches: total.batches + found.batches,
                    }),
                    (Err(error), _) | (_, Err(error)) => Err(error),
                };
            }
            finished.lock().unwrap_or_else(PoisonError::into_inner).push(total);
        });
    }
    let all = Arc::clone(&finished);
    simulation
        .run_until(move || all.lock().unwrap_or_else(PoisonError::into_inner).len() == tasks)
        .map_err(|error| stuck(&error))?;
    let mut counts = counted(&engine).since(&before);
    for found in std::mem::take(&mut *finished.lock().unwrap_or_else(PoisonError::into_inner)) {
        let found = found?;
        counts.lookups += found.keys;
        counts.answers += found.batches;
    }
    Ok(counts)
}

fn stuck(error: &SimulationError) -> KvError {
    KvError::Simulation(error.to_string())
}
