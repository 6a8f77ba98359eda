//! The engine on real threads: what the simulator cannot show.
//!
//! Clients move money between accounts at full speed while others sum everything up; the sum never changes. Afterwards
//! the engine must fall asleep and give its memory back.

#![expect(clippy::expect_used, reason = "a test fails by panicking")]

mod accounts;
mod mover;
mod slow_log;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::ThreadId;
use std::time::Duration;

use accounts::{KEY, SetAmount, SetKey, by_key, everything, pairs, row, schema};
use eris_engine::{
    ContainerSpec, Engine, EngineError, EngineOptions, Event, MicroOperator, OperatorState, Output, Partitioning,
    yield_now,
};
use eris_platform::{NodeId, RealEnv, SeededRandom, test_load};
use eris_storage::{ContainerId, Gateway, Layout};
use mover::{Mover, move_about};
use slow_log::SlowLog;

const ACCOUNTS: i64 = 400;
const AMOUNT_EACH: i64 = 1_000;

fn start(options: EngineOptions) -> Engine {
    Engine::start(Arc::new(RealEnv::new()), options).expect("the engine starts")
}

fn create(engine: &Engine, partitioning: Partitioning) -> ContainerId {
    create_with(engine, partitioning, 64)
}

fn create_with(engine: &Engine, partitioning: Partitioning, segment_rows: u32) -> ContainerId {
    let container = engine.next_container_id();
    let schema = Arc::new(schema(container, Layout::Default, segment_rows));
    engine.create_container(ContainerSpec { schema, partitioning }).expect("the id is fresh");
    let loader = engine.clone();
    engine
        .block_on(async move {
            let mut transaction = loader.begin();
            for key in 0..ACCOUNTS {
                transaction.insert(container, row(key, AMOUNT_EACH, Some("conto"))).await.expect("keys are distinct");
            }
            transaction.commit().await.expect("nothing conflicts");
        })
        .expect("the task ends");
    container
}

async fn transfer(engine: &Engine, container: ContainerId, random: &mut SeededRandom) -> Result<(), EngineError> {
    let mut transaction = engine.begin();
    let from = random.below(ACCOUNTS as u64) as i64;
    let to = (from + 1 + random.below(ACCOUNTS as u64 - 1) as i64) % ACCOUNTS;
    let amount = random.below(10) as i64;
    for (key, change) in [(from, -amount), (to, amount)] {
        transaction.next_statement();
        let found = pairs(&transaction.read(&by_key(container, key)).await?);
        assert_eq!(found.len(), 1, "account {key} exists once");
        transaction.next_statement();
        let rows = transaction.update(&by_key(container, key), Arc::new(SetAmount(found[0].1 + change))).await?;
        assert_eq!(rows, 1);
    }
    transaction.commit().await?;
    Ok(())
}

async fn sum(engine: &Engine, container: ContainerId) -> (usize, i64) {
    let mut transaction = engine.begin();
    let results = transaction.scan(everything(container), None).expect("the container exists");
    let found = pairs(&results.collect().await.expect("a read succeeds"));
    (found.len(), found.iter().map(|(_, amount)| amount).sum())
}

fn money_is_conserved(options: EngineOptions, partitioning: Partitioning, transfers: u64) -> Engine {
    move_money(options, partitioning, transfers, false)
}

/// `moving`: while a mover splits, merges and moves partitions.
fn move_money(options: EngineOptions, partitioning: Partitioning, transfers: u64, moving: bool) -> Engine {
    let engine = start(options);
    let container = create(&engine, partitioning);
    let committed = Arc::new(AtomicU64::new(0));
    let running = Arc::new(AtomicU64::new(0));
    for number in 0..4 {
        let (task, committed, running) = (engine.clone(), Arc::clone(&committed), Arc::clone(&running));
        running.fetch_add(1, Ordering::SeqCst);
        engine.spawn(async move {
            let mut random = SeededRandom::new(number);
            for _ in 0..transfers {
                match transfer(&task, container, &mut random).await {
                    Ok(()) => {
                        committed.fetch_add(1, Ordering::SeqCst);
                    }
                    Err(error) => assert!(error.is_retryable(), "{error}"),
                }
            }
            running.fetch_sub(1, Ordering::SeqCst);
        });
    }
    let over = Arc::new(AtomicBool::new(false));
    if moving {
        let pause = Duration::from_micros(500);
        engine.spawn(move_about(Mover { engine: engine.clone(), container, seed: 7, pause, over: Arc::clone(&over) }));
    }
    let checker = engine.clone();
    let mut sums = 0;
    loop {
        let busy = running.load(Ordering::SeqCst) > 0;
        let engine = checker.clone();
        let seen = checker.block_on(async move { sum(&engine, container).await }).expect("the task ends");
        assert_eq!(seen, (ACCOUNTS as usize, ACCOUNTS * AMOUNT_EACH), "after {sums} sums");
        sums += 1;
        if !busy {
            break;
        }
    }
    over.store(true, Ordering::SeqCst);
    assert!(committed.load(Ordering::SeqCst) > 0, "some transfers commit");
    engine
}

#[test]
fn transfers_beside_moves_merges_and_splits() {
    let options = EngineOptions { workers: 3, nodes: 3, split_rows: 60, ..EngineOptions::default() };
    let engine = move_money(options, Partitioning::Range(Box::new([KEY])), test_load(3_000), true);
    let statistics = engine.statistics();
    for event in [Event::Merges, Event::Links, Event::Copies, Event::ForwardersDropped] {
        assert!(statistics.event(event) > 0, "nothing reached {}", event.name());
    }
    engine.shutdown();
}

#[test]
fn transfers_beside_sums_on_one_node() {
    let options = EngineOptions { workers: 2, split_rows: 60, ..EngineOptions::default() };
    let engine = money_is_conserved(options, Partitioning::Range(Box::new([KEY])), 1_000);
    // The sums may have put it off: a change gives way to readers that are not done.
    let splits = || engine.statistics().event(Event::Splits);
    for _ in 0..3_000 {
        if splits() > 0 {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(splits() > 0, "the table splits");
    assert!(engine.statistics().event(Event::InPlace) > 0, "points run in place");
    engine.shutdown();
}

#[test]
fn transfers_beside_sums_on_two_nodes_by_messages() {
    let options = EngineOptions {
        workers: 2,
        nodes: 2,
        in_place: false,
        incoming_buffer_bytes: 4_096,
        quantum: Duration::from_micros(1),
        result_batches_max: 2,
        ..EngineOptions::default()
    };
    let partitioning = Partitioning::Hash { attributes: Box::new([KEY]), partitions: 7 };
    let engine = money_is_conserved(options, partitioning, 300);
    let statistics = engine.statistics();
    assert_eq!(statistics.event(Event::InPlace), 0);
    assert!(statistics.event(Event::RemoteMessages) > 0, "nodes talk");
    engine.shutdown();
}

/// A scan that takes its time until it has been interrupted.
#[derive(Clone, Default)]
struct Slow {
    batches: Arc<AtomicU64>,
    /// Somebody is about to read; before, the scan does not go on.
    asking: Arc<AtomicBool>,
    answered: Arc<AtomicBool>,
}

impl MicroOperator for Slow {
    fn open(&self) -> Box<dyn OperatorState> {
        Box::new(self.clone())
    }
}

impl OperatorState for Slow {
    fn batch(&mut self, _: Gateway, _: &mut Output<'_>) -> Result<(), EngineError> {
        self.batches.fetch_add(1, Ordering::SeqCst);
        while !self.asking.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
        // Seven batches: the reader has more than a second to say that it wants the partition.
        if !self.answered.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(200));
        }
        Ok(())
    }

    fn finish(&mut self, _: &mut Output<'_>) -> Result<(), EngineError> {
        Ok(())
    }
}

#[test]
fn a_scan_lets_go_of_a_partition_that_a_point_access_wants() {
    let engine = start(EngineOptions { workers: 2, quantum: Duration::from_hours(1), ..EngineOptions::default() });
    let container = create(&engine, Partitioning::Range(Box::new([KEY])));
    let slow = Slow::default();
    let (scanner, operator) = (engine.clone(), Arc::new(slow.clone()));
    let scanned = Arc::new(AtomicBool::new(false));
    let ended = Arc::clone(&scanned);
    engine.spawn(async move {
        let mut transaction = scanner.begin();
        let results = transaction.scan(everything(container), Some(operator)).expect("the container exists");
        results.collect().await.expect("a scan succeeds");
        ended.store(true, Ordering::SeqCst);
    });
    let (reader, seen) = (engine.clone(), slow.clone());
    let before = engine.block_on(async move {
        while seen.batches.load(Ordering::SeqCst) == 0 {
            yield_now().await;
        }
        seen.asking.store(true, Ordering::SeqCst);
        let found = pairs(&reader.begin().read(&by_key(container, 7)).await.expect("a read succeeds"));
        assert_eq!(found, [(7, AMOUNT_EACH)]);
        seen.answered.store(true, Ordering::SeqCst);
        seen.batches.load(Ordering::SeqCst)
    });
    while !scanned.load(Ordering::SeqCst) {
        std::thread::yield_now();
    }
    let (before, all) = (before.expect("the task ends"), slow.batches.load(Ordering::SeqCst));
    assert!(before + 1 < all, "the read waited for {before} of {all} batches");
    engine.shutdown();
}

#[test]
fn rows_that_change_their_key_move_to_the_partition_that_owns_it() {
    let options = EngineOptions { workers: 2, nodes: 2, ..EngineOptions::default() };
    let engine = start(options);
    let container = create(&engine, Partitioning::Hash { attributes: Box::new([KEY]), partitions: 5 });
    let task = engine.clone();
    engine
        .block_on(async move {
            for key in 0..test_load(50) as i64 {
                let mut transaction = task.begin();
                let change = Arc::new(SetKey(key + 10_000));
                let rows = transaction.update(&by_key(container, key), change).await.expect("nothing conflicts");
                assert_eq!(rows, 1);
                transaction.commit().await.expect("nothing conflicts");
                let mut reader = task.begin();
                let gone = reader.read(&by_key(container, key)).await.expect("a read succeeds");
                assert!(pairs(&gone).is_empty());
                let there = reader.read(&by_key(container, key + 10_000)).await.expect("a read succeeds");
                assert_eq!(pairs(&there), [(key + 10_000, AMOUNT_EACH)]);
            }
            assert_eq!(sum(&task, container).await, (ACCOUNTS as usize, ACCOUNTS * AMOUNT_EACH));
        })
        .expect("the task ends");
    engine.shutdown();
}

#[test]
fn an_idle_engine_sleeps_and_returns_its_memory() {
    let options = EngineOptions { workers: 2, split_rows: 60, ..EngineOptions::default() };
    let engine = money_is_conserved(options, Partitioning::Range(Box::new([KEY])), 100);
    // Maintenance may have a few things left to do; it must come to an end.
    let quiet = (0..200).any(|_| {
        let before = engine.statistics();
        std::thread::sleep(Duration::from_millis(50));
        let after = engine.statistics();
        [Event::TaskPolls, Event::Commands, Event::MaintenanceCalls, Event::Parks]
            .iter()
            .all(|event| before.event(*event) == after.event(*event))
    });
    assert!(quiet, "the workers never come to rest: {:?}", engine.statistics());
    let statistics = engine.statistics();
    assert_eq!(statistics.snapshots, 0);
    assert_eq!(statistics.known_transactions, 0, "all transactions are settled and forgotten");
    let memory = Arc::clone(engine.memory());
    engine.shutdown();
    drop(engine);
    assert_eq!(memory.used(), 0, "{:?}", memory.by_consumer());
}

/// How many workers looked while one of them did so a thousand times.
fn lookers(log: &SlowLog) -> usize {
    let times = |asked: &[(ThreadId, u64)], thread| {
        asked.iter().find(|(known, _)| *known == thread).map_or(0, |(_, times)| *times)
    };
    let before = log.asked();
    for _ in 0..10_000 {
        std::thread::sleep(Duration::from_millis(1));
        let now = log.asked();
        let new: Vec<u64> = now.iter().map(|(thread, asked)| asked - times(&before, *thread)).collect();
        if new.iter().any(|asked| *asked >= 1_000) {
            return new.iter().filter(|asked| **asked > 0).count();
        }
    }
    0
}

/// While a commit is awaited one worker looks on and takes what comes, and the other one sleeps; then both do.
#[test]
fn one_worker_looks_out_for_commits() {
    let engine = start(EngineOptions { workers: 2, ..EngineOptions::default() });
    let log = SlowLog::default();
    log.attach(&engine);
    log.await_it(true);
    let met = Arc::new(AtomicU64::new(0));
    for _ in 0..2 {
        let met = Arc::clone(&met);
        engine.spawn(async move {
            met.fetch_add(1, Ordering::SeqCst);
            // Keeps its worker, so the other one is awake, too.
            let waits = (0..10_000).take_while(|_| met.load(Ordering::SeqCst) % 2 == 1);
            waits.for_each(|_| std::thread::sleep(Duration::from_millis(1)));
        });
    }
    while met.load(Ordering::SeqCst) < 2 {
        std::thread::yield_now();
    }
    let watches = engine.statistics().event(Event::Watches);
    // The other one goes to sleep, and stays there.
    let mut alone = 0;
    let rounds = (0..2_000).take_while(|_| {
        alone = if lookers(&log) == 1 { alone + 1 } else { 0 };
        alone < 100
    });
    assert!(rounds.count() < 2_000, "both look out, or nobody: {:?}", log.asked());
    assert!(engine.statistics().event(Event::Watches) >= watches.max(1), "it is counted");
    // Who looks out finds what comes: whoever slept sleeps on.
    let parks = engine.statistics().event(Event::Parks);
    for _ in 0..100 {
        engine.block_on(async {}).expect("the engine answers");
        assert!(lookers(&log) > 0, "nobody looks out: {:?}", log.asked());
    }
    let woken = engine.statistics().event(Event::Parks) - parks;
    assert!(woken < 50, "a hundred tasks for who looks out sent somebody back to bed {woken} times");
    log.await_it(false);
    assert!(falls_asleep(&engine, &log), "{:?}", engine.statistics());
    engine.block_on(async {}).expect("the engine answers");
    engine.shutdown();
}

/// What a transaction wrote is settled by the worker that committed it, before it sleeps: the other one sleeps on.
#[test]
fn nobody_is_woken_to_settle_what_was_committed() {
    const TRANSACTIONS: u64 = 20;
    let engine = start(EngineOptions { workers: 2, ..EngineOptions::default() });
    let log = SlowLog::default();
    log.hurry();
    log.attach(&engine);
    // Far from a full segment: nothing is ever sealed, and no timer waits for a quiet moment to do it.
    let container = create_with(&engine, Partitioning::Hash { attributes: Box::new([KEY]), partitions: 1 }, 1 << 16);
    let mut parks = 0;
    for amount in 0..TRANSACTIONS as i64 {
        assert!(falls_asleep(&engine, &log), "{:?}", engine.statistics());
        let (before, writer) = (engine.statistics(), engine.clone());
        let committed = engine.block_on(async move {
            let mut transaction = writer.begin();
            transaction.update(&by_key(container, 7), Arc::new(SetAmount(amount))).await?;
            transaction.commit().await
        });
        committed.expect("the task ends").expect("nothing conflicts");
        assert!(falls_asleep(&engine, &log), "{:?}", engine.statistics());
        let after = engine.statistics();
        assert!(after.event(Event::MaintenanceCalls) > before.event(Event::MaintenanceCalls), "somebody settles it");
        parks += after.event(Event::Parks) - before.event(Event::Parks);
    }
    assert!(parks < TRANSACTIONS * 3 / 2, "{TRANSACTIONS} transactions sent workers to bed {parks} times");
    engine.shutdown();
}

/// Whether no worker looks for anything any more.
fn falls_asleep(engine: &Engine, log: &SlowLog) -> bool {
    (0..200).any(|_| {
        let before = (engine.statistics(), log.asked());
        std::thread::sleep(Duration::from_millis(50));
        let after = engine.statistics();
        [Event::Watches, Event::Parks].iter().all(|event| before.0.event(*event) == after.event(*event))
            && before.1 == log.asked()
    })
}

/// Tells when it is dropped, by whatever end.
struct Told(Arc<AtomicBool>);

impl Drop for Told {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// One worker is blocked by a task that sleeps; the other one answers what comes meanwhile: of its own node, and what
/// waits for the blocked node, which it helps. `watches`: the worker looked for the end of a commit, and found the task
/// itself, when a timer was due; so nobody claimed it.
fn others_go_on_beside_a_blocked_worker(watches: bool) {
    for nodes in [1, 2] {
        let engine = start(EngineOptions { workers: 2, nodes, ..EngineOptions::default() });
        let log = SlowLog::default();
        log.hurry();
        log.attach(&engine);
        let container = create(&engine, Partitioning::Hash { attributes: Box::new([KEY]), partitions: 4 });
        let (blocked_node, other_node) = (NodeId(0), NodeId(nodes as u16 - 1));
        let before = engine.statistics();
        let flag = || Arc::new(AtomicBool::new(false));
        let (blocked, answered, unblocked) = (flag(), flag(), flag());
        let (blocks, done, ends) = (Arc::clone(&blocked), Arc::clone(&answered), Arc::clone(&unblocked));
        // Nothing else takes that worker off watch.
        assert!(falls_asleep(&engine, &log), "{:?}", engine.statistics());
        log.await_it(watches);
        let sleep = watches.then(|| engine.sleep_until(engine.env().now() + Duration::from_millis(50)));
        engine.spawn_on(blocked_node, async move {
            let _ends = Told(ends);
            if let Some(sleep) = sleep {
                sleep.await;
            }
            blocks.store(true, Ordering::SeqCst);
            std::thread::sleep(Duration::from_millis(300));
            // However slow the machine is, the others have their time. If they do not go on, this ends nevertheless.
            for _ in 0..3_000 {
                if done.load(Ordering::SeqCst) {
                    break;
                }
                std::thread::sleep(Duration::from_millis(10));
            }
        });
        while !blocked.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
        log.await_it(false);
        // Not before: the helper would take the blocking task, too.
        engine.set_help(other_node, blocked_node).expect("both are there");
        for node in [blocked_node, other_node] {
            assert!(falls_asleep(&engine, &log), "the other worker goes to sleep: {:?}", engine.statistics());
            let (reader, (sender, receiver)) = (engine.clone(), std::sync::mpsc::sync_channel(1));
            engine.spawn_on(node, async move {
                let mut found = 0;
                for key in 0..ACCOUNTS {
                    let read = reader.begin().read(&by_key(container, key)).await.expect("a read succeeds");
                    found += usize::from(pairs(&read) == [(key, AMOUNT_EACH)]);
                }
                sender.send(found).expect("somebody waits");
            });
            assert_eq!(receiver.recv().expect("the task ends"), ACCOUNTS as usize);
        }
        assert!(!unblocked.load(Ordering::SeqCst), "everything was answered while the worker was blocked");
        answered.store(true, Ordering::SeqCst);
        while !unblocked.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
        // Stops behind the poll.
        engine.shutdown();
        let after = engine.statistics();
        assert!(after.event(Event::LongPolls) > before.event(Event::LongPolls), "the poll is told");
        assert_eq!(after.event(Event::Helped) > before.event(Event::Helped), nodes > 1, "the other node helps");
        let memory = Arc::clone(engine.memory());
        drop(engine);
        assert_eq!(memory.used(), 0, "{:?}", memory.by_consumer());
    }
}

#[test]
fn a_task_that_blocks_its_worker_is_counted_and_others_go_on() {
    others_go_on_beside_a_blocked_worker(false);
}

#[test]
fn a_task_that_blocks_a_worker_that_watches_does_not_hold_up_others() {
    others_go_on_beside_a_blocked_worker(true);
}

/// What a task makes ready waits with its worker, but not for it.
#[test]
fn tasks_of_a_worker_that_is_blocked_are_polled_by_others() {
    let engine = start(EngineOptions { workers: 2, ..EngineOptions::default() });
    let (starter, polled) = (engine.clone(), Arc::new(AtomicU64::new(0)));
    let by_others = engine.block_on(async move {
        for _ in 0..100 {
            let (polled, own) = (Arc::clone(&polled), std::thread::current().id());
            starter.spawn(async move {
                polled.fetch_add(u64::from(std::thread::current().id() != own), Ordering::SeqCst);
            });
        }
        // At last they are polled here.
        for _ in 0..3_000 {
            if polled.load(Ordering::SeqCst) == 100 {
                break;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        polled.load(Ordering::SeqCst)
    });
    assert_eq!(by_others.expect("the task ends"), 100);
    engine.shutdown();
}

#[test]
fn a_task_that_panics_is_reported_and_nothing_else_suffers() {
    let engine = start(EngineOptions { workers: 1, ..EngineOptions::default() });
    let lost = engine.block_on(async { panic!("on purpose") });
    assert!(matches!(lost, Err(EngineError::OperatorPanicked(_))), "{lost:?}");
    assert_eq!(engine.block_on(async { 7 }).expect("the engine lives"), 7);
    engine.shutdown();
}
