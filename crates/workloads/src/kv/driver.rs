//! The closed loop: tasks that begin a transaction, look up 1,000 keys, check every answer and commit.

use std::ops::Range;
use std::sync::mpsc;
use std::time::Duration;

use eris_engine::{Coalescing, EngineError};
use eris_platform::{NodeId, SeededRandom};
use eris_storage::{Batch, Values};

use super::options::{KvError, KvOptions};
use super::processor::spent_while;
use super::store::KvStore;
use super::{LOOKUPS_PER_TRANSACTION, value_of};

/// What was measured.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Run {
    /// Lookups of transactions that ended within the measured time.
    pub lookups: u64,
    pub measured: Duration,
    /// Processor time of the process meanwhile.
    pub processor: Option<Duration>,
}

impl Run {
    pub fn throughput_per_s(&self) -> f64 {
        self.lookups as f64 / self.measured.as_secs_f64()
    }
}

/// Drives the store with tasks on every node until the time is over; the first error of a task is the run's.
pub fn drive(store: &KvStore, options: &KvOptions) -> Result<Run, KvError> {
    let (sender, receiver) = mpsc::channel();
    let nodes = options.engine_nodes();
    let tasks = options.workers * options.tasks_per_worker;
    let measured = Duration::from_secs_f64(options.seconds);
    let begin = store.engine().env().now() + Duration::from_secs_f64(options.warm_up_seconds);
    for task in 0..tasks {
        let node = NodeId((task * nodes / tasks) as u16);
        let keys = store.keys_for(node, options.locality);
        let random = SeededRandom::new(options.seed.wrapping_mul(1_000_003).wrapping_add(task as u64));
        let (store, sender, coalescing) = (store.clone(), sender.clone(), options.coalescing);
        let engine = store.engine().clone();
        engine.spawn_on(node, async move {
            let env = store.engine().env().clone();
            let mut client = Client { store, keys, random, coalescing };
            let mut lookups = 0;
            let result = loop {
                if env.now() >= begin + measured {
                    break Ok(lookups);
                }
                match client.transaction().await {
                    Ok(_) if (begin..begin + measured).contains(&env.now()) => {
                        lookups += LOOKUPS_PER_TRANSACTION as u64;
                    }
                    Ok(_) => {}
                    Err(error) => break Err(error),
                }
            };
            // The receiver waits below; it is gone only if the run is.
            let _ = sender.send(result);
        });
    }
    drop(sender);
    let processor = spent_while(Duration::from_secs_f64(options.warm_up_seconds), measured);
    let mut lookups = 0;
    for _ in 0..tasks {
        let lost = |_| EngineError::OperatorPanicked("a task ended without a result".to_owned());
        lookups += receiver.recv().map_err(lost)??;
    }
    Ok(Run { lookups, measured, processor })
}

/// One task's loop.
pub(super) struct Client {
    pub store: KvStore,
    pub keys: Range<u64>,
    pub random: SeededRandom,
    pub coalescing: Coalescing,
}

/// What a transaction found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Found {
    pub keys: u64,
    /// Of the values.
    pub sum: i64,
    /// In how many answers they came.
    pub batches: u64,
}

impl Client {
    /// Looks up so many keys at once and commits.
    pub async fn transaction(&mut self) -> Result<Found, KvError> {
        let span = self.keys.end - self.keys.start;
        let keys: Vec<i64> =
            (0..LOOKUPS_PER_TRANSACTION).map(|_| (self.keys.start + self.random.below(span)) as i64).collect();
        let mut transaction = self.store.engine().begin();
        let found = look_up_checked(&self.store, &mut transaction, &keys, self.coalescing, value_of).await?;
        transaction.commit().await?;
        debug_assert_eq!(found.keys, keys.len() as u64);
        Ok(found)
    }
}

/// Looks up keys that exist and compares every value with the one that its key has to have.
pub(crate) async fn look_up_checked(
    store: &KvStore,
    transaction: &mut eris_engine::Transaction,
    keys: &[i64],
    coalescing: Coalescing,
    expected: impl Fn(i64) -> i64,
) -> Result<Found, KvError> {
    let mut results = store.look_up(transaction, keys.to_vec(), coalescing)?;
    let mut answered = vec![false; keys.len()];
    let mut found = Found::default();
    while let Some(batch) = results.next().await? {
        let (positions, values) = columns(&batch)?;
        for (position, value) in positions.iter().zip(values) {
            let place = *position as usize;
            if std::mem::replace(&mut answered[place], true) || expected(keys[place]) != *value {
                return Err(KvError::WrongAnswer(format!(
                    "key {} has the value {value}, or is found twice",
                    keys[place]
                )));
            }
            found.sum = found.sum.wrapping_add(*value);
        }
        found.keys += batch.rows as u64;
        found.batches += 1;
    }
    if found.keys != keys.len() as u64 {
        return Err(KvError::WrongAnswer(format!("{} of {} keys are found", found.keys, keys.len())));
    }
    Ok(found)
}

/// Of an answer: which of the keys asked for have which values.
pub(crate) fn columns(batch: &Batch) -> Result<(&[i32], &[i64]), KvError> {
    match &batch.columns[..] {
        [positions, values] => match (&positions.values, &values.values) {
            (Values::Int32(positions), Values::Int64(values)) => Ok((positions, values)),
            _ => Err(KvError::WrongAnswer("an answer of other types".to_owned())),
        },
        _ => Err(KvError::WrongAnswer(format!("an answer of {} columns", batch.columns.len()))),
    }
}
