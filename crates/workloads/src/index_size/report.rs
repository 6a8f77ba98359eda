//! The runs and their figures: each kind of index beside the shared table, for each size.

use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};

use eris_engine::{Engine, EngineError};
use eris_platform::{RealEnv, SeededRandom};
use eris_storage::Layout;
use serde::Serialize;

use super::client::{Upserted, Upserter, load, look_up};
use super::{DRAWS_PER_TRANSACTION, Draws, Expected, IndexSizeOptions, is_loaded, upserted_value_of};
use crate::columns::sum_values;
use crate::kv::{Access, KvError, KvOptions, KvStore, SharedStore, measure_limits, on_threads, value_of};

/// How long each limit is measured.
const LIMIT_TIME: Duration = Duration::from_millis(200);

/// All figures.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct IndexSizeReport {
    pub benchmark: &'static str,
    pub workers: usize,
    pub partitions: usize,
    pub tasks: usize,
    pub seconds: f64,
    pub draws_per_transaction: usize,
    pub steps: Vec<SizeStep>,
}

/// All stores of one size.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SizeStep {
    /// Pairs before the first upsert.
    pub pairs: u64,
    pub ordered: SizeReport,
    pub hash: SizeReport,
    /// One hash table without partitions and transactions.
    pub shared: SizeReport,
}

/// One store of one size.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct SizeReport {
    pub upserts_per_s: f64,
    pub lookups_per_s: f64,
    pub inserted: u64,
    pub updated: u64,
    /// After the upserts; lookups find these.
    pub pairs: u64,
    pub lookups: u64,
    /// What the store reserves then, index included.
    pub store_bytes: u64,
    /// Independent reads at random places of as many bytes by as many threads.
    pub random_reads_per_s: f64,
    /// Lookups a second for each of those reads a second.
    pub share_of_random_reads: f64,
}

/// One phase.
struct Phase<T> {
    results: Vec<T>,
    took: Duration,
}

/// What both kinds of stores are told.
struct Run<'o> {
    options: &'o IndexSizeOptions,
    domain: u64,
}

/// Runs all sizes; `progress` gets a line for each.
pub fn run(options: &IndexSizeOptions, progress: &mut dyn FnMut(&str)) -> Result<IndexSizeReport, KvError> {
    validate(options)?;
    let mut steps = Vec::new();
    for size in &options.sizes {
        progress(&format!("{size} pairs"));
        let run = Run { options, domain: 2 * size };
        steps.push(SizeStep {
            pairs: (0..run.domain as i64).filter(|key| is_loaded(*key)).count() as u64,
            ordered: run.of_index(Access::OrderedIndex)?,
            hash: run.of_index(Access::Index)?,
            shared: run.of_shared_table()?,
        });
    }
    Ok(IndexSizeReport {
        benchmark: "index_size",
        workers: options.workers,
        partitions: options.partitions,
        tasks: options.tasks(),
        seconds: options.seconds,
        draws_per_transaction: DRAWS_PER_TRANSACTION,
        steps,
    })
}

fn validate(options: &IndexSizeOptions) -> Result<(), KvError> {
    let refuse = |text: &str| Err(KvError::Options(text.to_owned()));
    if options.workers == 0 || options.tasks_per_worker == 0 || options.partitions == 0 {
        return refuse("there are workers, each with tasks, and partitions");
    }
    let least = options.tasks().max(options.partitions).max(MIN_PAIRS) as u64;
    if options.sizes.is_empty() || options.sizes.iter().any(|size| !(least..1 << 40).contains(size)) {
        return refuse("there are sizes, with at least 16 pairs and one for each task and partition");
    }
    if !(options.seconds > 0.0 && options.seconds < 1e6) {
        return refuse("seconds are a positive number");
    }
    Ok(())
}

/// So many at least, that there is one to look up whatever the seed.
const MIN_PAIRS: usize = 16;

impl IndexSizeOptions {
    /// The store of a run over the keys below `domain`.
    pub fn store(&self, domain: u64, access: Access) -> KvOptions {
        KvOptions {
            pairs: domain,
            workers: self.workers,
            partitions: Some(self.partitions),
            access,
            layout: Layout::Row,
            memory_limit_bytes: self.memory_limit_bytes,
            seed: self.seed,
            ..KvOptions::default()
        }
    }
}

impl Run<'_> {
    fn of_index(&self, access: Access) -> Result<SizeReport, KvError> {
        let store_options = self.options.store(self.domain, access);
        let engine = Engine::start(Arc::new(RealEnv::new()), KvStore::engine_options(&store_options))?;
        let store = KvStore::create(&engine, &store_options)?;
        let (filling, domain) = (store.clone(), self.domain);
        engine.block_on(async move { load(&filling, domain).await })??;

        let (seconds, tasks, seed) =
            (Duration::from_secs_f64(self.options.seconds), self.options.tasks(), self.options.seed);
        let upserts = on_tasks(&engine, tasks, |task| {
            let upserter = Upserter { store: store.clone(), draws: Draws::new(domain, task, tasks, seed) };
            let end = engine.env().now() + seconds;
            let env = Arc::clone(engine.env());
            // At least one: a phase that did nothing has no figure.
            upserter.run(move |done| done.transactions == 0 || env.now() < end)
        })?;
        let transactions: Vec<u64> = upserts.results.iter().map(|done| done.transactions).collect();
        let expected = Arc::new(Expected::after(domain, &transactions, seed));
        let lookups = on_tasks(&engine, tasks, |task| {
            let (store, expected) = (store.clone(), Arc::clone(&expected));
            let end = engine.env().now() + seconds;
            async move {
                let mut random = SeededRandom::new(seed.wrapping_add(task as u64));
                let mut found = 0;
                while found == 0 || store.engine().env().now() < end {
                    found += look_up(&store, &expected, &mut random).await?;
                }
                Ok(found)
            }
        })?;
        let (summing, container) = (engine.clone(), store.container());
        let sum = engine.block_on(async move { sum_values(&summing, container).await })??;
        let store_bytes = engine.memory().used();
        engine.shutdown();
        self.report(&upserts, &lookups, &expected, sum, store_bytes)
    }

    fn of_shared_table(&self) -> Result<SizeReport, KvError> {
        let (options, domain, tasks) = (self.options, self.domain, self.options.workers);
        let store = SharedStore::empty(domain, Access::Index);
        for key in (0..domain as i64).filter(|key| is_loaded(*key)) {
            store.upsert(key, value_of(key));
        }
        let seconds = Duration::from_secs_f64(options.seconds);
        let upserts = on_all_threads(tasks, |thread| {
            let mut draws = Draws::new(domain, thread, tasks, options.seed);
            let (mut done, start) = (Upserted::default(), Instant::now());
            while done.transactions == 0 || start.elapsed() < seconds {
                let keys = draws.next_keys();
                let inserted = keys.iter().filter(|key| store.upsert(**key, upserted_value_of(**key))).count() as u64;
                done.add(Upserted { inserted, updated: keys.len() as u64 - inserted, transactions: 1 });
            }
            done
        });
        let transactions: Vec<u64> = upserts.results.iter().map(|done| done.transactions).collect();
        let expected = Expected::after(domain, &transactions, options.seed);
        let lookups = on_all_threads(tasks, |thread| {
            let mut random = SeededRandom::new(options.seed.wrapping_add(thread as u64));
            let (mut found, start) = (0, Instant::now());
            while found == 0 || start.elapsed() < seconds {
                for _ in 0..DRAWS_PER_TRANSACTION {
                    let key = expected.draw(&mut random);
                    assert!(store.get(key) == expected.value(key), "the shared table has the value of key {key}");
                }
                found += DRAWS_PER_TRANSACTION as u64;
            }
            found
        });
        let sum = (0..domain as i64).filter_map(|key| store.get(key)).fold(0, i64::wrapping_add);
        self.report(&upserts, &lookups, &expected, sum, store.bytes())
    }

    /// Checks what is left and counts.
    fn report(
        &self,
        upserts: &Phase<Upserted>,
        lookups: &Phase<u64>,
        expected: &Expected,
        sum: i64,
        store_bytes: u64,
    ) -> Result<SizeReport, KvError> {
        let mut done = Upserted::default();
        upserts.results.iter().for_each(|one| done.add(*one));
        let loaded = (0..self.domain as i64).filter(|key| is_loaded(*key)).count() as u64;
        let (pairs, expected_sum) = expected.sum();
        if (loaded + done.inserted, sum) != (pairs, expected_sum) {
            return Err(KvError::WrongAnswer(format!(
                "{} pairs with the sum {sum}, not {pairs} with {expected_sum}",
                loaded + done.inserted
            )));
        }
        let found: u64 = lookups.results.iter().sum();
        let lookups_per_s = found as f64 / lookups.took.as_secs_f64();
        let limits = measure_limits(store_bytes, self.options.workers, LIMIT_TIME);
        Ok(SizeReport {
            upserts_per_s: (done.inserted + done.updated) as f64 / upserts.took.as_secs_f64(),
            lookups_per_s,
            inserted: done.inserted,
            updated: done.updated,
            pairs,
            lookups: found,
            store_bytes,
            random_reads_per_s: limits.random_reads_per_s,
            share_of_random_reads: lookups_per_s / limits.random_reads_per_s,
        })
    }
}

/// Runs tasks on the engine and waits for all of them.
fn on_tasks<T: Send + 'static, F: Future<Output = Result<T, KvError>> + Send + 'static>(
    engine: &Engine,
    tasks: usize,
    work: impl Fn(usize) -> F,
) -> Result<Phase<T>, KvError> {
    let (sender, receiver) = mpsc::channel();
    let start = Instant::now();
    for task in 0..tasks {
        let (sender, work) = (sender.clone(), work(task));
        engine.spawn(async move {
            // The receiver waits below; it is gone only if the run is.
            let _ = sender.send((task, work.await));
        });
    }
    drop(sender);
    let mut results = Vec::new();
    while let Ok((task, result)) = receiver.recv() {
        results.push((task, result?));
    }
    let took = start.elapsed();
    if results.len() < tasks {
        return Err(EngineError::OperatorPanicked("a task ended without a result".to_owned()).into());
    }
    results.sort_by_key(|(task, _)| *task);
    Ok(Phase { results: results.into_iter().map(|(_, result)| result).collect(), took })
}

/// The same on threads without an engine.
fn on_all_threads<T: Send>(threads: usize, work: impl Fn(usize) -> T + Sync) -> Phase<T> {
    let results = Mutex::new(Vec::new());
    let start = Instant::now();
    on_threads(threads, |thread| {
        let result = work(thread);
        results.lock().unwrap_or_else(PoisonError::into_inner).push((thread, result));
        0.0
    });
    let took = start.elapsed();
    let mut results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
    results.sort_by_key(|(thread, _)| *thread);
    Phase { results: results.into_iter().map(|(_, result)| result).collect(), took }
}
