//! SERIALIZABLE where commits take their time, where nothing may be kept, and on threads. Its anomalies are in
//! `hermitage.rs`.

#![expect(clippy::expect_used, reason = "a test fails by panicking")]

mod accounts;
mod sessions;
mod slow_log;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use accounts::{KEY, SetAmount, between, by_key, everything, integers, lookup, pairs, row, schema};
use eris_engine::IsolationLevel::{ReadCommitted, Serializable};
use eris_engine::{
    Coalescing, ContainerSpec, Engine, EngineError, EngineOptions, Event, LogError, Partitioning, Simulation,
    Transaction,
};
use eris_platform::{RealEnv, SeededRandom, test_load};
use eris_storage::{Batch, ContainerId, DataType, Layout, Value};
use sessions::Answer::{Count, Done, Refused, Rows, Unserializable};
use sessions::{Bench, Do, Session};
use slow_log::SlowLog;

const SEEDS: u64 = 6;

/// Accounts 1 and 2 with 10 and 20, and a log that decides when it is told to.
fn with_log(run: impl Fn(&mut Bench, &SlowLog, &[Session])) {
    for seed in 1..=test_load(SEEDS) {
        let mut bench = Bench::new(seed);
        let log = SlowLog::default();
        log.attach(bench.engine());
        let sessions: Vec<Session> = (0..3).map(|_| bench.begin(Serializable)).collect();
        run(&mut bench, &log, &sessions);
        log.hurry();
        bench.finish(sessions);
    }
}

fn set(key: i64, amount: i64) -> Do {
    Do::Set(key, amount)
}

/// Each reads both accounts and writes its own.
fn skew(bench: &mut Bench, sessions: &[Session]) {
    for (session, key) in sessions.iter().zip([1, 2]) {
        bench.expect(session, Do::All, Rows(vec![(1, 10), (2, 20)]));
        bench.expect(session, set(key, 11 * key), Count(1));
    }
}

#[test]
fn one_of_two_whose_commits_are_under_way_together_is_told_at_once() {
    with_log(|bench, log, sessions| {
        skew(bench, sessions);
        bench.waits(&sessions[0], Do::Commit);
        bench.expect(&sessions[1], Do::Commit, Unserializable);
        assert!(log.decide(Ok(())) && log.len() == 0);
        bench.settle();
        assert_eq!(sessions[0].answer(), Some(Done));
        assert_eq!(bench.state(), [(1, 11), (2, 20)]);
    });
}

#[test]
fn who_is_about_to_commit_is_nobodys_victim() {
    with_log(|bench, log, sessions| {
        // 2 reads what 1 wrote before, 3 writes what 2 read; 2 is the pivot and its record is on its way.
        bench.expect(&sessions[0], Do::Get(1), Rows(vec![(1, 10)]));
        bench.expect(&sessions[1], Do::Get(2), Rows(vec![(2, 20)]));
        bench.expect(&sessions[1], set(1, 11), Count(1));
        bench.expect(&sessions[0], Do::Insert(3, 30), Count(1));
        bench.waits(&sessions[1], Do::Commit);
        bench.expect(&sessions[2], set(2, 22), Count(1));
        bench.expect(&sessions[2], Do::Commit, Unserializable);
        assert!(log.decide(Ok(())));
        bench.settle();
        assert_eq!(sessions[1].answer(), Some(Done));
        bench.waits(&sessions[0], Do::Commit);
        assert!(log.decide(Ok(())));
        bench.settle();
        assert_eq!(sessions[0].answer(), Some(Done));
        assert_eq!(bench.state(), [(1, 11), (2, 20), (3, 30)]);
    });
}

#[test]
fn who_is_refused_by_the_log_is_in_nobodys_way() {
    with_log(|bench, log, sessions| {
        bench.expect(&sessions[1], Do::All, Rows(vec![(1, 10), (2, 20)]));
        bench.expect(&sessions[0], set(1, 11), Count(1));
        bench.waits(&sessions[0], Do::Commit);
        assert!(log.decide(Err(LogError::Full { reason: "a test".into() })));
        bench.settle();
        assert_eq!(sessions[0].answer(), Some(Refused));
        let third = bench.begin(Serializable);
        bench.expect(&third, Do::Get(2), Rows(vec![(2, 20)]));
        bench.expect(&sessions[1], set(2, 22), Count(1));
        bench.waits(&sessions[1], Do::Commit);
        assert!(log.decide(Ok(())));
        bench.settle();
        assert_eq!(sessions[1].answer(), Some(Done));
        third.tell(Do::Drop);
        bench.settle();
        assert_eq!(bench.state(), [(1, 10), (2, 22)]);
    });
}

/// The younger commit is decided first: nobody sees it, and so it is not forgotten, before the older one is.
#[test]
fn a_commit_that_nobody_sees_yet_is_kept() {
    with_log(|bench, log, sessions| {
        bench.expect(&sessions[2], Do::Insert(7, 70), Count(1));
        bench.waits(&sessions[2], Do::Commit);
        bench.expect(&sessions[0], Do::Get(2), Rows(vec![(2, 20)]));
        bench.expect(&sessions[0], set(1, 11), Count(1));
        bench.waits(&sessions[0], Do::Commit);
        sessions[1].tell(Do::Drop);
        log.decide_youngest();
        bench.settle();
        // Begun when 1 is decided and not visible.
        let late = bench.begin(Serializable);
        bench.expect(&late, Do::Get(1), Rows(vec![(1, 10)]));
        bench.expect(&late, set(2, 22), Unserializable);
        late.tell(Do::Drop);
        assert!(log.decide(Ok(())));
        bench.settle();
        assert_eq!((sessions[2].answer(), sessions[0].answer()), (Some(Done), Some(Done)));
        assert_eq!(bench.state(), [(1, 11), (2, 20), (7, 70)]);
    });
}

#[test]
fn a_unique_key_that_came_and_went_is_not_taken_blindly() {
    for seed in 1..=test_load(SEEDS) {
        let mut bench = Bench::new(seed);
        let sessions: Vec<Session> = (0..3).map(|_| bench.begin(Serializable)).collect();
        bench.expect(&sessions[0], Do::Get(1), Rows(vec![(1, 10)]));
        bench.expect(&sessions[1], Do::Insert(3, 30), Count(1));
        bench.expect(&sessions[1], Do::Commit, Done);
        let last = bench.begin(Serializable);
        bench.expect(&last, Do::Delete(3), Count(1));
        bench.expect(&last, set(1, 11), Count(1));
        bench.expect(&last, Do::Commit, Done);
        // In a serial order it comes before the last one, and then that one deletes what it inserts.
        bench.expect(&sessions[0], Do::Insert(3, 31), Unserializable);
        last.tell(Do::Drop);
        bench.finish(sessions);
    }
}

#[test]
fn savepoints_do_not_help_who_is_doomed() {
    for seed in 1..=test_load(SEEDS) {
        let mut bench = Bench::new(seed);
        let sessions: Vec<Session> = (0..2).map(|_| bench.begin(Serializable)).collect();
        bench.expect(&sessions[1], Do::Savepoint, Done);
        skew(&mut bench, &sessions);
        bench.expect(&sessions[0], Do::Commit, Done);
        bench.expect(&sessions[1], Do::RollbackTo(0), Done);
        for order in [Do::Get(1), Do::Insert(5, 50), Do::Commit] {
            bench.expect(&sessions[1], order, Unserializable);
        }
        bench.finish(sessions);
    }
}

/// Runs a task of an engine with these accounts on one thread.
fn run<F: Future<Output = ()> + Send + 'static>(options: EngineOptions, task: impl FnOnce(Engine, ContainerId) -> F) {
    let mut simulation = Simulation::new(1, options).expect("it starts");
    let engine = simulation.engine().clone();
    let container = create(&engine, 40);
    let filled = engine.clone();
    let fill = async move {
        let mut transaction = filled.begin();
        let rows: Vec<Batch> = (0..40).map(|key| row(key, key, None)).collect();
        transaction.insert(container, Batch::concat(&rows)).await.expect("they are new");
        transaction.commit().await.expect("nobody else is here");
    };
    simulation.block_on(fill).expect("it ends");
    simulation.block_on(task(engine.clone(), container)).expect("it ends");
    simulation.run_until_idle().expect("it comes to rest");
    assert_eq!(engine.statistics().tracked_transactions, 0);
    engine.drop_container(container).expect("it is there");
    simulation.run_until_idle().expect("it comes to rest");
    let memory = Arc::clone(engine.memory());
    drop((engine, simulation));
    assert_eq!(memory.used(), 0, "{:?}", memory.by_consumer());
}

fn create(engine: &Engine, split_at: u32) -> ContainerId {
    let container = engine.next_container_id();
    let schema = Arc::new(schema(container, Layout::Default, split_at));
    let partitioning = Partitioning::Range(Box::new([KEY]));
    engine.create_container(ContainerSpec { schema, partitioning }).expect("the id is fresh");
    container
}

async fn change(transaction: &mut Transaction, container: ContainerId, key: i64) -> Result<u64, EngineError> {
    transaction.next_statement();
    transaction.update(&by_key(container, key), Arc::new(SetAmount(100))).await
}

/// Every way of reading is known to who overwrites what was read.
#[test]
fn all_ways_of_reading_count() {
    for way in 0..6 {
        run(EngineOptions::default(), move |engine, container| async move {
            let mut reader = engine.begin_with(Serializable);
            let mut writer = engine.begin_with(Serializable);
            match way {
                0 => drop(reader.read(&by_key(container, 7)).await.expect("reads")),
                1 => {
                    let mut rows = eris_storage::PackedRows::default();
                    reader.read_rows(&by_key(container, 7), &mut rows).await.expect("reads");
                }
                2 => drop(reader.scan(between(container, 5, 9), None).expect("scans").collect().await.expect("scans")),
                3 => drop(reader.pin(container, &between(container, 5, 9).request).await.expect("pins")),
                4 => {
                    let keys = integers(&[3, 7]);
                    let found = reader.lookup_many(lookup(container, KEY, Coalescing::Sender), &keys, None);
                    drop(found.expect("looks up").collect().await.expect("looks up"));
                }
                _ => {
                    let lock = eris_storage::RowLock::KeyShare;
                    let wait = eris_engine::LockWait::Wait;
                    drop(reader.lock_rows(&by_key(container, 7), lock, wait).await.expect("locks"));
                }
            }
            drop(writer.read(&by_key(container, 20)).await.expect("reads"));
            assert_eq!(change(&mut reader, container, 20).await.expect("first"), 1);
            assert_eq!(change(&mut writer, container, 7).await.expect("first"), 1);
            reader.commit().await.expect("the first one");
            let error = writer.commit().await.expect_err("the second one");
            assert!(matches!(error, EngineError::Unserializable { .. }) && error.is_retryable(), "{way}: {error}");
            // Other keys are nobody's business.
            let mut one = engine.begin_with(Serializable);
            let mut other = engine.begin_with(Serializable);
            drop(one.read(&by_key(container, 1)).await.expect("reads"));
            drop(other.read(&by_key(container, 2)).await.expect("reads"));
            assert_eq!(change(&mut one, container, 3).await.expect("first"), 1);
            assert_eq!(change(&mut other, container, 4).await.expect("first"), 1);
            one.commit().await.expect("it is alone with its keys");
            other.commit().await.expect("it is alone with its keys");
        });
    }
}

/// A load, by rows and as segments, is met by who read that its rows are not there.
#[test]
fn loads_count_as_writes() {
    for (rows, entries) in [(10, 4_096), (2_000, 4_096), (2_000, 100)] {
        let options = EngineOptions { tracked_entries_max: entries, ..EngineOptions::default() };
        run(options, move |engine, container| async move {
            let mut reader = engine.begin_with(Serializable);
            let mut loader = engine.begin_with(Serializable);
            drop(loader.read(&by_key(container, 1)).await.expect("reads"));
            drop(reader.read(&by_key(container, 1_005)).await.expect("reads"));
            let values: Vec<Vec<Value>> =
                (1_000..1_000 + rows).map(|key| vec![Value::Int64(key), Value::Int64(0), Value::Null]).collect();
            let mut load = loader.bulk(container).expect("it may load");
            let types = [DataType::Int64, DataType::Int64, DataType::Text];
            load.append(Batch::from_rows(&types, &values)).await.expect("keys are new");
            load.finish().await.expect("keys are new");
            loader.commit().await.expect("the first one");
            let error = change(&mut reader, container, 1).await.expect_err("the second one");
            assert!(matches!(error, EngineError::Unserializable { .. }), "{error}");
        });
    }
}

/// Bytes for SERIALIZABLE transactions.
fn kept(engine: &Engine) -> u64 {
    let consumers = engine.memory().by_consumer();
    consumers.iter().find(|(name, _)| *name == "serializable transactions").map_or(0, |(_, bytes)| *bytes)
}

#[test]
fn too_many_entries_become_coarse_and_cost_no_more() {
    let options = EngineOptions { tracked_entries_max: 8, ..EngineOptions::default() };
    run(options, |engine, container| async move {
        let mut reader = engine.begin_with(Serializable);
        let without_entries = kept(&engine);
        for key in 0..8 {
            drop(reader.read(&by_key(container, key)).await.expect("reads"));
        }
        assert!(kept(&engine) > without_entries);
        drop(reader.read(&by_key(container, 8)).await.expect("reads"));
        assert_eq!(kept(&engine), without_entries, "it has read the whole table");
        let mut writer = engine.begin_with(Serializable);
        drop(writer.read(&by_key(container, 20)).await.expect("reads"));
        assert_eq!(change(&mut writer, container, 30).await.expect("first"), 1);
        assert_eq!(change(&mut reader, container, 20).await.expect("first"), 1);
        writer.commit().await.expect("the first one");
        reader.commit().await.expect_err("it has read everything");
        assert!(engine.statistics().event(Event::TrackedCoarsely) == 1 && kept(&engine) == 0);
    });
}

#[test]
fn what_is_kept_of_a_transaction_is_accounted_for() {
    run(EngineOptions::default(), async |engine, container| {
        let old = engine.begin_with(Serializable);
        let of_one = kept(&engine);
        assert!(of_one >= 256, "{of_one} bytes");
        for key in 0..10 {
            let mut writer = engine.begin_with(Serializable);
            change(&mut writer, container, key).await.expect("nobody else is here");
            writer.commit().await.expect("nobody else is here");
        }
        assert!(kept(&engine) >= 11 * of_one, "{} bytes", kept(&engine));
        drop(old);
        engine.begin().commit().await.expect("it wrote nothing");
        assert_eq!(kept(&engine), 0);
    });
}

#[test]
fn who_declares_to_write_nothing_is_held_to_it() {
    run(EngineOptions::default(), |engine, container| async move {
        let mut reader = engine.begin_with(Serializable);
        reader.declare_read_only();
        drop(reader.read(&everything(container)).await.expect("reads"));
        assert!(matches!(change(&mut reader, container, 1).await, Err(EngineError::ReadOnly)));
        assert!(matches!(reader.insert(container, row(99, 0, None)).await, Err(EngineError::ReadOnly)));
        assert!(matches!(reader.delete(&by_key(container, 1), None).await, Err(EngineError::ReadOnly)));
        reader.commit().await.expect("it may read");
        // A pivot behind a reader that did not see the first to commit is spared at once.
        let mut reader = engine.begin_with(Serializable);
        reader.declare_read_only();
        let mut pivot = engine.begin_with(Serializable);
        let mut first = engine.begin_with(Serializable);
        drop(pivot.read(&by_key(container, 1)).await.expect("reads"));
        assert_eq!(change(&mut pivot, container, 2).await.expect("writes"), 1);
        drop(reader.read(&by_key(container, 2)).await.expect("reads"));
        assert_eq!(change(&mut first, container, 1).await.expect("writes"), 1);
        first.commit().await.expect("the first one");
        pivot.commit().await.expect("the reader comes before both");
        reader.commit().await.expect("it wrote nothing");
    });
}

/// Pairs of accounts whose sum must not fall below zero; each transaction looks at both and takes from one.
#[test]
fn the_sum_of_two_never_falls_below_zero_on_threads() {
    const WORKERS: usize = 4;
    const AMOUNT: i64 = 10_000;
    for pairs_of_accounts in [1, 16] {
        let engine = Engine::start(Arc::new(RealEnv::new()), EngineOptions { workers: 2, ..EngineOptions::default() });
        let engine = engine.expect("it starts");
        let container = create(&engine, 64);
        let filler = engine.clone();
        let fill = async move {
            let mut transaction = filler.begin();
            let rows: Vec<Batch> = (0..2 * pairs_of_accounts).map(|key| row(key, AMOUNT, None)).collect();
            transaction.insert(container, Batch::concat(&rows)).await.expect("they are new");
            transaction.commit().await.expect("nobody else is here");
        };
        engine.block_on(fill).expect("it ends");
        let [taken, lost, unserializable, ended] = [(); 4].map(|()| Arc::new(AtomicU64::new(0)));
        for client in 0..WORKERS {
            let counts = [&taken, &lost, &unserializable, &ended].map(Arc::clone);
            let engine = engine.clone();
            engine.clone().spawn(async move {
                let mut random = SeededRandom::new(client as u64 + 1);
                for _ in 0..test_load(2_000) {
                    let pair = random.below(pairs_of_accounts as u64) as i64;
                    let keys = [2 * pair, 2 * pair + 1];
                    let counted = match take(&engine, container, keys, keys[random.index(2)]).await {
                        Ok(true) => &counts[0],
                        Ok(false) => continue,
                        Err(EngineError::Unserializable { .. }) => &counts[2],
                        Err(error) if error.is_retryable() => &counts[1],
                        Err(error) => panic!("{error}"),
                    };
                    counted.fetch_add(1, Ordering::Relaxed);
                }
                counts[3].fetch_add(1, Ordering::Release);
            });
        }
        while ended.load(Ordering::Acquire) < WORKERS as u64 {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        let reader = engine.clone();
        let check = async move {
            let mut transaction = reader.begin_with(ReadCommitted);
            let mut rows = pairs(&transaction.read(&everything(container)).await.expect("reads"));
            rows.sort_unstable();
            for pair in rows.chunks(2) {
                assert!(pair[0].1 + pair[1].1 >= 0, "{pair:?}");
            }
        };
        engine.block_on(check).expect("the invariant holds");
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        println!(
            "{pairs_of_accounts} pairs: {} taken, {} lost a row, {} unserializable",
            count(&taken),
            count(&lost),
            count(&unserializable)
        );
        assert!(count(&taken) > 0 && count(&unserializable) > 0);
        assert_eq!(engine.statistics().tracked_transactions, 0);
        engine.shutdown();
    }
}

/// Takes ten from one of two accounts if both together have as much.
async fn take(engine: &Engine, container: ContainerId, keys: [i64; 2], from: i64) -> Result<bool, EngineError> {
    let mut transaction = engine.begin_with(Serializable);
    let mut found = Vec::new();
    for key in keys {
        found.extend(pairs(&transaction.read(&by_key(container, key)).await?));
    }
    let sum: i64 = found.iter().map(|(_, amount)| amount).sum();
    if sum < 10 {
        return Ok(false);
    }
    let amount = found.iter().find(|(key, _)| *key == from).map_or(0, |(_, amount)| *amount);
    transaction.next_statement();
    transaction.update(&by_key(container, from), Arc::new(SetAmount(amount - 10))).await?;
    transaction.commit().await.map(|_| true)
}
