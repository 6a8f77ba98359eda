//! Foreign keys under the simulator: clients insert, load, move, rename and delete parents and children at both
//! isolation levels, with savepoints, checks that are put off and lock timeouts, while partitions split, merge and move
//! and the foreign key itself may be made in the middle. Whenever somebody looks, in any snapshot, every child has its
//! parent.
//!
//! `ERIS_SEEDS=1000 ERIS_TRANSACTIONS=1000` make it long; `ERIS_SEED=n` replays one seed.

#![expect(clippy::expect_used, reason = "a test fails by panicking")]

mod families;
mod mover;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use eris_engine::{
    Engine, EngineError, EngineOptions, Event, IsolationLevel, ReferentialAction, Savepoint, Simulation, Transaction,
};
use eris_platform::SeededRandom;

use families::{Answer, Do, Family, ID, Making, SHAPES, Shape, answer_of, check_nothing_is_left, equal, obey, orphans};
use mover::{Mover, move_about};

/// How often somebody tries to make the foreign key among writers who break it.
const MAKINGS_MAX: u64 = 30;

/// Counts over all seeds, to show that the runs reached what they are for.
#[derive(Default, Debug)]
struct Coverage {
    committed: u64,
    rolled_back: u64,
    refused_commits: u64,
    missing: u64,
    referenced: u64,
    deadlocks: u64,
    timeouts: u64,
    lost: u64,
    looks: u64,
    /// Looks that saw children with parents.
    families: u64,
    made_among_writers: u64,
    refused_makings: u64,
    /// What somebody saw who looked: children without parents.
    broken: Option<String>,
    events: std::collections::BTreeMap<&'static str, u64>,
}

impl Coverage {
    fn answered(&mut self, answer: &Answer) {
        match answer {
            Answer::Missing(_) => self.missing += 1,
            Answer::Referenced(_) => self.referenced += 1,
            Answer::Deadlock => self.deadlocks += 1,
            Answer::Timeout => self.timeouts += 1,
            Answer::Lost => self.lost += 1,
            Answer::Done | Answer::Count(_) | Answer::Rows(_) | Answer::Duplicate => {}
        }
    }
}

/// What all tasks of a run share.
#[derive(Clone)]
struct Run {
    engine: Engine,
    family: Family,
    seed: u64,
    keys: u64,
    /// The foreign key is there: every snapshot taken from now on keeps it.
    enforced: Arc<AtomicBool>,
    over: Arc<AtomicBool>,
    coverage: Arc<Mutex<Coverage>>,
}

impl Run {
    fn order(&self, random: &mut SeededRandom) -> Do {
        let mut key = || random.below(self.keys) as i64;
        let (first, second, third) = (key(), key(), key());
        // Children have ids of their own, except in a table that refers to itself.
        let id = if self.family.shape == Shape::Own { first } else { first * 3 + third % 3 };
        let parent = |key: i64| (key > 0).then_some(key);
        match random.below(30) {
            0..5 => Do::Parents(vec![first]),
            5 => Do::Parents(vec![first, second]),
            6..12 => Do::Children(vec![(id, parent(second))]),
            12 => Do::Children(vec![(id, parent(second)), (third, parent(first))]),
            13..15 => Do::Load(vec![(id, parent(second)), (third, parent(first)), (second, parent(third))]),
            15..18 => Do::DeleteParent(first),
            18..21 => Do::DeleteChild(id),
            21..24 => Do::Rename(first, second),
            24..26 => Do::Adopt(id, parent(second)),
            26..28 => Do::Touch(first),
            28 => Do::Hold(first % 3 > 0),
            _ => Do::Check,
        }
    }

    /// Statements at random. After an error some are taken back if there is a savepoint.
    async fn statements(&self, transaction: &mut Transaction, random: &mut SeededRandom) -> Result<(), EngineError> {
        let mut savepoints: Vec<Savepoint> = Vec::new();
        for _ in 0..=random.below(5) {
            if random.chance(0.3) {
                savepoints.push(transaction.savepoint());
            }
            if random.chance(0.9) {
                transaction.next_statement();
            }
            let order = self.order(random);
            match obey(transaction, &self.family, &order).await {
                Ok(_) => {
                    if !savepoints.is_empty() && random.chance(0.1) {
                        let place = random.index(savepoints.len());
                        transaction.rollback_to(&savepoints[place])?;
                        savepoints.truncate(place + 1);
                    }
                }
                Err(error) if !savepoints.is_empty() && random.chance(0.7) => {
                    self.coverage.lock().expect("one thread").answered(&answer_of(&error));
                    let place = random.index(savepoints.len());
                    transaction.rollback_to(&savepoints[place])?;
                    savepoints.truncate(place + 1);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    async fn client(self, number: u64, transactions: u64) {
        let mut random = SeededRandom::new(self.seed.wrapping_mul(31) + number);
        for _ in 0..transactions {
            if random.chance(0.1) {
                self.look().await;
            }
            let level = [IsolationLevel::ReadCommitted, IsolationLevel::RepeatableRead][random.index(2)];
            let mut transaction = self.engine.begin_with(level);
            let timeouts = [None, None, None, Some(0), Some(1), Some(50)];
            transaction.set_lock_timeout(timeouts[random.index(6)].map(Duration::from_millis));
            let result = self.statements(&mut transaction, &mut random).await;
            let commits = random.chance(0.85);
            let ended = match result {
                Ok(()) if commits => Some(transaction.commit().await),
                Ok(()) => {
                    transaction.rollback();
                    None
                }
                Err(error) => {
                    let answer = answer_of(&error);
                    self.coverage.lock().expect("one thread").answered(&answer);
                    transaction.rollback();
                    None
                }
            };
            let mut coverage = self.coverage.lock().expect("one thread");
            match ended {
                Some(Ok(_)) => coverage.committed += 1,
                Some(Err(error)) => {
                    coverage.answered(&answer_of(&error));
                    coverage.refused_commits += 1;
                }
                None => coverage.rolled_back += 1,
            }
        }
    }

    /// Every child that a snapshot shows has its parent there.
    async fn look(&self) {
        let enforced = self.enforced.load(Ordering::Relaxed);
        let mut reader = self.engine.begin();
        let rows = self.family.rows(&mut reader).await.expect("a read waits for nobody");
        if enforced {
            let mut coverage = self.coverage.lock().expect("one thread");
            let orphans = orphans(&rows);
            if !orphans.is_empty() {
                let at = reader.snapshot_timestamp();
                coverage.broken = Some(format!("seed {}: orphans {orphans:?} at {at:?} of {rows:?}", self.seed));
            }
            coverage.looks += 1;
            coverage.families += u64::from(rows.1.iter().any(|(_, parent)| parent.is_some()));
        }
    }

    /// Makes the foreign key among writers: removes what has no parent and tries, until it holds.
    async fn make(self) {
        let spec = self.family.spec(ReferentialAction::NoAction);
        for _ in 0..MAKINGS_MAX {
            self.engine.sleep_until(self.engine.env().now() + Duration::from_micros(300)).await;
            match self.engine.create_foreign_key(&spec).await {
                Ok(()) => {
                    self.coverage.lock().expect("one thread").made_among_writers += 1;
                    self.enforced.store(true, Ordering::Relaxed);
                    return;
                }
                Err(error) => {
                    let answer = answer_of(&error);
                    assert!(matches!(answer, Answer::Missing(_) | Answer::Lost | Answer::Deadlock), "{error}");
                    self.coverage.lock().expect("one thread").refused_makings += 1;
                }
            }
            let mut cleaner = self.engine.begin_with(IsolationLevel::ReadCommitted);
            let Ok(rows) = self.family.rows(&mut cleaner).await else { continue };
            let mut removed = true;
            for (id, _) in orphans(&rows) {
                cleaner.next_statement();
                removed &= cleaner.delete(&equal(self.family.children, ID, id), None).await.is_ok();
            }
            if removed {
                cleaner.commit().await.expect("nothing was put off");
            }
        }
    }
}

fn options(random: &mut SeededRandom) -> EngineOptions {
    let nodes = [1, 2, 4][random.index(3)];
    EngineOptions {
        workers: nodes * (1 + random.index(2)),
        nodes,
        memory_limit_bytes: 1 << 30,
        quantum: Duration::from_micros([0, 0, 200][random.index(3)]),
        in_place: random.chance(0.7),
        incoming_buffer_bytes: [96, 512, 1 << 16][random.index(3)],
        worker_buffer_bytes: [64, 4_096][random.index(2)],
        split_rows: [6, 30, 1_000_000][random.index(3)],
        split_bytes: 1 << 30,
        parallel_rows: [16, 1_000_000][random.index(2)],
        maintenance_rows: [4, 64, 2_048][random.index(3)],
        result_batches_max: [1, 64][random.index(2)],
        ..EngineOptions::default()
    }
}

fn run_seed(seed: u64, transactions: u64, coverage: &Arc<Mutex<Coverage>>) {
    let mut random = SeededRandom::new(seed);
    let options = options(&mut random);
    let making = Making {
        shape: SHAPES[random.index(3)],
        indexed: random.chance(0.5),
        hash_partitions: [None, None, Some(1), Some(4)][random.index(4)],
        segment_rows: [4, 16, 64][random.index(3)],
    };
    let mut simulation = Simulation::new(seed, options).expect("the engine starts");
    let engine = simulation.engine().clone();
    let run = Run {
        family: Family::create(&engine, making),
        engine: engine.clone(),
        seed,
        keys: [5, 12, 60][random.index(3)],
        enforced: Arc::default(),
        over: Arc::default(),
        coverage: Arc::clone(coverage),
    };
    if random.chance(0.7) {
        let action = [ReferentialAction::NoAction, ReferentialAction::Restrict][random.index(2)];
        let (engine, spec) = (engine.clone(), run.family.spec(action));
        let made = simulation.block_on(async move { engine.create_foreign_key(&spec).await });
        made.expect("it ends").expect("there are no rows");
        run.enforced.store(true, Ordering::Relaxed);
    } else {
        engine.spawn(run.clone().make());
    }
    let clients = 2 + random.below(5);
    let done = Arc::new(Mutex::new(0));
    for number in 0..clients {
        let (run, done) = (run.clone(), Arc::clone(&done));
        engine.spawn(async move {
            run.client(number, transactions / clients + 1).await;
            *done.lock().expect("one thread") += 1;
        });
    }
    for container in run.family.containers() {
        if random.chance(0.6) {
            let pause = Duration::from_micros([20, 200, 2_000][random.index(3)]);
            let over = Arc::clone(&run.over);
            engine.spawn(move_about(Mover { engine: engine.clone(), container, seed, pause, over }));
        }
    }
    let broken = || coverage.lock().expect("one thread").broken.clone();
    let ended = simulation.run_until(|| *done.lock().expect("one thread") == clients || broken().is_some());
    ended.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    assert_eq!(broken(), None, "every child has its parent");
    run.over.store(true, Ordering::Relaxed);
    simulation.run_until_idle().expect("maintenance ends");
    let last = run.clone();
    simulation.block_on(async move { last.look().await }).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    assert_eq!(broken(), None, "every child has its parent at the end");
    simulation.run_until_idle().expect("maintenance ends");
    for (event, count) in &engine.statistics().events {
        *coverage.lock().expect("one thread").events.entry(event.name()).or_default() += count;
    }
    let family = run.family.clone();
    drop((run, engine));
    check_nothing_is_left(simulation, &family);
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// Fewer seeds need not reach everything.
const SEEDS_FOR_COVERAGE: u64 = 60;

#[test]
fn every_child_has_its_parent_in_every_snapshot() {
    let transactions = number("ERIS_TRANSACTIONS", 250);
    let coverage = Arc::new(Mutex::new(Coverage::default()));
    if let Some(seed) = std::env::var("ERIS_SEED").ok().and_then(|text| text.parse().ok()) {
        run_seed(seed, transactions, &coverage);
        eprintln!("{coverage:#?}");
        return;
    }
    let (first, seeds) = (number("ERIS_FIRST_SEED", 1), number("ERIS_SEEDS", 60));
    for seed in first..first + seeds {
        run_seed(seed, transactions, &coverage);
    }
    let coverage = coverage.lock().expect("one thread");
    eprintln!("{coverage:#?}");
    if seeds < SEEDS_FOR_COVERAGE {
        return;
    }
    let reached = [
        coverage.committed,
        coverage.rolled_back,
        coverage.refused_commits,
        coverage.missing,
        coverage.referenced,
        coverage.deadlocks,
        coverage.timeouts,
        coverage.families,
        coverage.made_among_writers,
        coverage.refused_makings,
    ];
    assert!(reached.iter().all(|count| *count > 0), "something was not reached: {coverage:#?}");
    for event in [Event::LockWaits, Event::Splits, Event::Merges, Event::Copies, Event::Forwarded] {
        assert!(coverage.events[event.name()] > 0, "no run reached {}", event.name());
    }
}
