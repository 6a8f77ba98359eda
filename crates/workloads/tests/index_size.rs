//! Upserts and lookups with small indexes: under the simulator every key has the value that a plain set says, and a
//! tiny run of the benchmark reports what it should.

use eris_engine::{EngineOptions, Simulation};
use eris_platform::SeededRandom;
use eris_workloads::columns::sum_values;
use eris_workloads::index_size::{
    Draws, Expected, IndexSizeOptions, Upserted, Upserter, is_loaded, load, look_up, run, upsert, upserted_value_of,
};
use eris_workloads::kv::{Access, KvError, KvStore, value_of};
use std::collections::BTreeSet;
use std::error::Error;
use std::sync::{Arc, Mutex, PoisonError};

const DOMAIN: u64 = 5_000;
const TASKS: usize = 3;
const TRANSACTIONS: u64 = 2;

/// A simulated engine with what is loaded.
fn loaded(seed: u64, access: Access) -> Result<(Simulation, KvStore), Box<dyn Error>> {
    let options = IndexSizeOptions { partitions: 3, ..IndexSizeOptions::default() }.store(DOMAIN, access);
    let engine_options = EngineOptions { in_place: seed.is_multiple_of(2), ..KvStore::engine_options(&options) };
    let mut simulation = Simulation::new(seed, engine_options)?;
    let store = KvStore::create(simulation.engine(), &options)?;
    let filling = store.clone();
    simulation.block_on(async move { load(&filling, DOMAIN).await })??;
    Ok((simulation, store))
}

#[test]
fn keys_that_are_there_are_updated_and_others_inserted() -> Result<(), Box<dyn Error>> {
    for (seed, access) in (0..8).flat_map(|seed| [(seed, Access::OrderedIndex), (seed, Access::Index)]) {
        let (mut simulation, store) = loaded(seed, access)?;
        let finished: Arc<Mutex<Vec<Result<Upserted, KvError>>>> = Arc::default();
        for task in 0..TASKS {
            let upserter = Upserter { store: store.clone(), draws: Draws::new(DOMAIN, task, TASKS, seed) };
            let finished = Arc::clone(&finished);
            simulation.engine().spawn(async move {
                let result = upserter.run(|done| done.transactions < TRANSACTIONS).await;
                finished.lock().unwrap_or_else(PoisonError::into_inner).push(result);
            });
        }
        let all = Arc::clone(&finished);
        simulation.run_until(move || all.lock().is_ok_and(|finished| finished.len() == TASKS))?;
        let mut done = Upserted::default();
        for result in std::mem::take(&mut *finished.lock().unwrap_or_else(PoisonError::into_inner)) {
            done.add(result?);
        }

        // The same draws, kept in a set.
        let (mut upserted, mut draws) = (BTreeSet::new(), 0);
        for task in 0..TASKS {
            let mut keys = Draws::new(DOMAIN, task, TASKS, seed);
            for key in (0..TRANSACTIONS).flat_map(|_| keys.next_keys()) {
                assert_eq!(key as usize % TASKS, task, "no other task writes it");
                upserted.insert(key);
                draws += 1;
            }
        }
        let inserted = upserted.iter().filter(|key| !is_loaded(**key)).count() as u64;
        assert_eq!(done, Upserted { inserted, updated: draws - inserted, transactions: TRANSACTIONS * TASKS as u64 });
        assert!(0 < inserted && inserted < draws, "some of each");

        let expected = Arc::new(Expected::after(DOMAIN, &[TRANSACTIONS; TASKS], seed));
        let mut sum = 0_i64;
        for key in 0..DOMAIN as i64 {
            let value = if upserted.contains(&key) {
                Some(upserted_value_of(key))
            } else {
                is_loaded(key).then(|| value_of(key))
            };
            assert_eq!(expected.value(key), value, "key {key}");
            sum = sum.wrapping_add(value.unwrap_or(0));
        }
        let (engine, container) = (simulation.engine().clone(), store.container());
        let found = simulation.block_on(async move { sum_values(&engine, container).await })??;
        assert_eq!((found, expected.sum().1), (sum, sum), "seed {seed}, {access:?}");
        let looking = store.clone();
        let found = simulation.block_on(async move {
            let mut random = SeededRandom::new(seed);
            look_up(&looking, &expected, &mut random).await
        })??;
        assert_eq!(found, 1_000);
    }
    Ok(())
}

#[test]
fn a_lookup_notices_a_value_that_is_not_the_expected_one() -> Result<(), Box<dyn Error>> {
    let (mut simulation, store) = loaded(1, Access::Index)?;
    // All keys that are there are upserted, and the check believes that none was.
    let none = Expected::after(DOMAIN, &[], 1);
    let upserting = store.clone();
    let keys: Vec<i64> = (0..DOMAIN as i64).filter(|key| is_loaded(*key)).collect();
    let count = keys.len() as u64;
    let done = simulation.block_on(async move { upsert(&upserting, &keys).await })??;
    assert_eq!((done.inserted, done.updated), (0, count));
    let found = simulation.block_on(async move { look_up(&store, &none, &mut SeededRandom::new(1)).await })?;
    assert!(matches!(found, Err(KvError::WrongAnswer(_))), "{found:?}");
    Ok(())
}

#[test]
fn reports_have_figures_for_each_size_and_store() -> Result<(), Box<dyn Error>> {
    let options = IndexSizeOptions { sizes: vec![100, 2_000], seconds: 0.05, ..IndexSizeOptions::default() };
    let report = run(&options, &mut |_| {})?;
    assert_eq!(report.steps.len(), 2);
    for (step, size) in report.steps.iter().zip(&options.sizes) {
        assert!(step.pairs > size / 2 && step.pairs < 2 * size, "about {size}: {step:?}");
        for store in [step.ordered, step.hash, step.shared] {
            assert!(store.upserts_per_s > 0.0 && store.lookups_per_s > 0.0 && store.random_reads_per_s > 0.0);
            assert!(store.lookups > 0 && store.store_bytes > 0, "{store:?}");
            assert_eq!(store.pairs, step.pairs + store.inserted);
        }
    }
    let json = serde_json::to_value(&report)?;
    assert_eq!(json["benchmark"], "index_size");
    for store in ["ordered", "hash", "shared"] {
        for figure in ["upserts_per_s", "lookups_per_s", "random_reads_per_s", "pairs", "store_bytes"] {
            assert!(json["steps"][1][store][figure].is_number(), "{store} has no {figure}");
        }
    }
    Ok(())
}

#[test]
fn options_that_make_no_sense_are_refused() {
    let wrong = [
        IndexSizeOptions { sizes: Vec::new(), ..IndexSizeOptions::default() },
        IndexSizeOptions { sizes: vec![1], ..IndexSizeOptions::default() },
        IndexSizeOptions { seconds: 0.0, ..IndexSizeOptions::default() },
        IndexSizeOptions { workers: 0, ..IndexSizeOptions::default() },
        IndexSizeOptions { partitions: 0, ..IndexSizeOptions::default() },
    ];
    for options in wrong {
        assert!(matches!(run(&options, &mut |_| {}), Err(KvError::Options(_))), "{options:?}");
    }
}
