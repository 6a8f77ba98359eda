//! Sequences: bounds, cycles and errors as PostgreSQL has them, and no value given twice, whoever asks from where.

#![expect(clippy::expect_used, reason = "a test fails by panicking")]

mod accounts;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use accounts::{KEY, everything, pairs, row, schema};
use eris_engine::{
    ContainerSpec, Engine, EngineError, EngineOptions, Partitioning, Sequence, SequenceError, SequenceId, SequenceSpec,
    Simulation,
};
use eris_platform::{RealEnv, SeededRandom, test_load};
use eris_storage::{ContainerId, Layout};

fn simulation(seed: u64) -> Simulation {
    let options = EngineOptions { workers: 4, nodes: 2, ..EngineOptions::default() };
    Simulation::new(seed, options).expect("a simulated engine starts")
}

fn spec(increment: i64, minimum: i64, maximum: i64, start: i64) -> SequenceSpec {
    SequenceSpec { increment, minimum, maximum, start, ..SequenceSpec::new("numbers") }
}

/// The next values, up to so many or to the first error.
fn values(sequence: &Sequence, count: usize) -> (Vec<i64>, Option<SequenceError>) {
    let mut values = Vec::new();
    for _ in 0..count {
        match sequence.next() {
            Ok(value) => values.push(value),
            Err(error) => return (values, Some(error)),
        }
    }
    (values, None)
}

#[test]
fn values_go_up_or_down_to_their_bound() {
    let simulation = simulation(1);
    let engine = simulation.engine();
    for cache in [1, 2, 100] {
        let create = |spec: SequenceSpec| {
            engine.create_sequence(&SequenceSpec { cache, ..spec }).expect("its parts fit together")
        };
        let exhausted = |limit, ascending| Some(SequenceError::Exhausted { name: "numbers".into(), limit, ascending });
        let up = create(spec(3, 1, 11, 2));
        assert_eq!(values(&up, 9), (vec![2, 5, 8, 11], exhausted(11, true)), "cache {cache}");
        assert_eq!(
            up.next().expect_err("it stays so").to_string(),
            "nextval: reached maximum value of sequence \"numbers\" (11)"
        );
        let down = create(spec(-2, -5, 1, 0));
        assert_eq!(values(&down, 9), (vec![0, -2, -4], exhausted(-5, false)), "cache {cache}");
        assert_eq!(
            down.next().expect_err("it stays so").to_string(),
            "nextval: reached minimum value of sequence \"numbers\" (-5)"
        );
        let ends = create(spec(1, i64::MIN, i64::MAX, i64::MAX - 1));
        assert_eq!(values(&ends, 9), (vec![i64::MAX - 1, i64::MAX], exhausted(i64::MAX, true)), "cache {cache}");
        let around = create(SequenceSpec { cycle: true, ..spec(2, 1, 6, 4) });
        assert_eq!(values(&around, 7), (vec![4, 6, 1, 3, 5, 1, 3], None), "cache {cache}");
        let around = create(SequenceSpec { cycle: true, ..spec(-4, -5, 5, 0) });
        assert_eq!(values(&around, 6), (vec![0, -4, 5, 1, -3, 5], None), "cache {cache}");
    }
}

#[test]
fn a_sequence_that_does_not_fit_in_memory_is_refused_and_leaves_nothing() {
    let simulation = simulation(2);
    let engine = simulation.engine();
    let held = engine.memory().reserve("held");
    let room = engine.memory().limit() - engine.memory().kept() - engine.memory().used();
    held.grow(room).expect("there is room");
    let used = engine.memory().used();
    match engine.create_sequence(&SequenceSpec { cache: 10, ..spec(1, 1, 9, 1) }) {
        Err(EngineError::Memory(refused)) => assert_eq!(refused.consumer, "sequences"),
        other => panic!("there is no memory left: {other:?}"),
    }
    assert_eq!(engine.memory().used(), used);
    drop(held);
    let sequence = engine.create_sequence(&SequenceSpec { cache: 10, ..spec(1, 1, 9, 1) }).expect("there is memory");
    assert_eq!(values(&sequence, 3).0, [1, 2, 3]);
}

#[test]
fn a_sequence_is_set_and_restarted() {
    let simulation = simulation(2);
    for cache in [1, 10] {
        let spec = SequenceSpec { cache, ..spec(5, 1, 100, 20) };
        let sequence = simulation.engine().create_sequence(&spec).expect("its parts fit together");
        assert_eq!(values(&sequence, 2).0, [20, 25]);
        sequence.set(50, true).expect("within the bounds");
        assert_eq!(values(&sequence, 2).0, [55, 60], "what was cached is not given any more");
        sequence.set(50, false).expect("within the bounds");
        assert_eq!((sequence.state().last, sequence.state().is_called), (50, false));
        assert_eq!(values(&sequence, 2).0, [50, 55]);
        sequence.restart(None).expect("the start is within the bounds");
        assert_eq!(values(&sequence, 1).0, [20]);
        sequence.restart(Some(99)).expect("within the bounds");
        assert_eq!(values(&sequence, 1).0, [99]);
        for value in [0, 101] {
            let error = sequence.set(value, true).expect_err("out of bounds");
            let text = format!("setval: value {value} is out of bounds for sequence \"numbers\" (1..100)");
            assert_eq!(error.to_string(), text);
        }
        let below = sequence.restart(Some(0)).expect_err("out of bounds");
        assert_eq!(below.to_string(), "RESTART value (0) cannot be less than MINVALUE (1)");
        let above = sequence.restart(Some(101)).expect_err("out of bounds");
        assert_eq!(above.to_string(), "RESTART value (101) cannot be greater than MAXVALUE (100)");
        assert!(sequence.next().is_err(), "99 was the last one, and nothing was set");
    }
}

#[test]
fn a_sequence_whose_parts_do_not_fit_is_refused() {
    let simulation = simulation(3);
    let no_cache = SequenceSpec { cache: 0, ..SequenceSpec::new("numbers") };
    for (spec, reason) in [
        (spec(0, 1, 10, 1), "INCREMENT must not be zero"),
        (spec(1, 10, 10, 10), "MINVALUE (10) must be less than MAXVALUE (10)"),
        (spec(1, 1, 10, 0), "START value (0) cannot be less than MINVALUE (1)"),
        (spec(1, 1, 10, 11), "START value (11) cannot be greater than MAXVALUE (10)"),
        (no_cache, "CACHE (0) must be greater than zero"),
    ] {
        match simulation.engine().create_sequence(&spec) {
            Err(EngineError::Sequence(SequenceError::Invalid(found))) => assert_eq!(found, reason),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(simulation.engine().memory().used(), 0, "{:?}", simulation.engine().memory().by_consumer());
}

#[test]
fn a_dropped_sequence_gives_no_more_values_and_its_memory_back() {
    let simulation = simulation(4);
    let engine = simulation.engine();
    let before = engine.memory().used();
    let cached = SequenceSpec { cache: 10, ..SequenceSpec::new("numbers") };
    let sequence = engine.create_sequence(&cached).expect("its parts fit together");
    assert_eq!(sequence.next(), Ok(1));
    assert!(engine.memory().used() > before);
    let id = sequence.id();
    assert!(engine.sequence(id).is_some_and(|known| Arc::ptr_eq(&known, &sequence)));
    engine.drop_sequence(id).expect("it exists");
    assert_eq!(sequence.next(), Err(SequenceError::NoSuchSequence(id)), "cached or not");
    assert_eq!(sequence.set(5, true), Err(SequenceError::NoSuchSequence(id)));
    assert!(engine.sequence(id).is_none());
    assert_eq!(engine.drop_sequence(id), Err(SequenceError::NoSuchSequence(id)));
    assert_eq!(engine.drop_sequence(SequenceId(99)), Err(SequenceError::NoSuchSequence(SequenceId(99))));
    drop(sequence);
    assert_eq!(engine.memory().used(), before);
}

/// What the clients of a run got.
#[derive(Default)]
struct Given {
    values: Vec<i64>,
    committed: BTreeSet<i64>,
    rolled_back: usize,
    done: u64,
    /// The value that the sequence was set to last, by a call that has returned.
    set_to: i64,
    sets: usize,
}

async fn client(engine: Engine, sequence: Arc<Sequence>, container: ContainerId, seed: u64, given: Arc<Mutex<Given>>) {
    let mut random = SeededRandom::new(seed);
    for _ in 0..60 {
        let mut transaction = engine.begin();
        let mut keys = Vec::new();
        for _ in 0..=random.below(4) {
            if random.chance(0.3) {
                engine.sleep_until(engine.env().now() + Duration::from_micros(random.below(50))).await;
            }
            let floor = given.lock().expect("one thread").set_to;
            let key = sequence.next().expect("it is far from its bound");
            assert!(key > floor, "seed {seed}: {key} was cached before the sequence was set to {floor}");
            given.lock().expect("one thread").values.push(key);
            // A value that was given before would be a duplicate key.
            transaction.insert(container, row(key, 0, None)).await.expect("nobody else has this key");
            keys.push(key);
        }
        if random.chance(0.3) {
            transaction.rollback();
            given.lock().expect("one thread").rolled_back += keys.len();
        } else {
            transaction.commit().await.expect("it conflicts with nobody");
            given.lock().expect("one thread").committed.extend(keys);
        }
    }
    given.lock().expect("one thread").done += 1;
}

/// Sets the sequence ahead, now and then.
async fn set_ahead(engine: Engine, sequence: Arc<Sequence>, seed: u64, clients: u64, given: Arc<Mutex<Given>>) {
    let mut random = SeededRandom::new(seed);
    while given.lock().expect("one thread").done < clients {
        engine.sleep_until(engine.env().now() + Duration::from_micros(random.below(2_000))).await;
        let value = sequence.state().last + 1_000;
        sequence.set(value, true).expect("within the bounds");
        let mut given = given.lock().expect("one thread");
        given.set_to = value;
        given.sets += 1;
    }
}

#[test]
fn no_value_is_given_twice_and_a_rollback_gives_none_back() {
    let (mut rolled_back, mut sets) = (0, 0);
    for seed in 0..test_load(60) {
        let mut random = SeededRandom::new(seed);
        let nodes = [1, 2, 4][random.index(3)];
        let options = EngineOptions {
            workers: nodes * (1 + random.index(2)),
            nodes,
            in_place: random.chance(0.5),
            split_rows: [8, 1_000][random.index(2)],
            ..EngineOptions::default()
        };
        let mut simulation = Simulation::new(seed, options).expect("a simulated engine starts");
        let engine = simulation.engine().clone();
        let container = engine.next_container_id();
        let partitioning = Partitioning::Range(Box::new([KEY]));
        let accounts = Arc::new(schema(container, Layout::Default, 16));
        engine.create_container(ContainerSpec { schema: accounts, partitioning }).expect("the id is fresh");
        let cache = [1, 2, 32][random.index(3)];
        let spec = SequenceSpec { cache, ..SequenceSpec::new("numbers") };
        let sequence = engine.create_sequence(&spec).expect("its parts fit together");
        let given = Arc::new(Mutex::new(Given::default()));
        let clients = 5;
        for number in 0..clients {
            let (sequence, given) = (Arc::clone(&sequence), Arc::clone(&given));
            engine.spawn(client(engine.clone(), sequence, container, seed * 31 + number, given));
        }
        let is_set = random.chance(0.5);
        if is_set {
            engine.spawn(set_ahead(engine.clone(), Arc::clone(&sequence), seed, clients, Arc::clone(&given)));
        }
        simulation.run_until(|| given.lock().expect("one thread").done == clients).expect("clients end");
        simulation.run_until_idle().expect("maintenance ends");
        let given = given.lock().expect("one thread");
        let different: BTreeSet<i64> = given.values.iter().copied().collect();
        assert_eq!(different.len(), given.values.len(), "seed {seed}: no value is given twice");
        let last = sequence.state().last;
        assert!(different.last().is_some_and(|largest| *largest <= last), "seed {seed}: what was given was taken");
        if !is_set {
            // What is missing lies in the workers' parts.
            let parts = (cache - 1) * (engine.worker_count() as u64 + 1);
            assert!(last as u64 <= different.len() as u64 + parts, "seed {seed}: {last} values were taken");
        }
        let reader = engine.clone();
        let rows = simulation.block_on(async move {
            reader.begin().scan(everything(container), None).expect("it exists").collect().await
        });
        let rows = pairs(&rows.expect("it ends").expect("a scan succeeds"));
        assert_eq!(rows.into_iter().map(|(key, _)| key).collect::<BTreeSet<_>>(), given.committed);
        rolled_back += given.rolled_back;
        sets += given.sets;
    }
    assert!(rolled_back > 1_000 && sets > 50, "{rolled_back} values of transactions that rolled back, {sets} sets");
}

#[test]
fn threads_and_workers_share_a_sequence() {
    const EACH: usize = 20_000;
    for cache in [1, 16] {
        let options = EngineOptions { workers: 2, ..EngineOptions::default() };
        let engine = Engine::start(Arc::new(RealEnv::new()), options).expect("the engine starts");
        let spec = SequenceSpec { cache, ..SequenceSpec::new("numbers") };
        let sequence = engine.create_sequence(&spec).expect("its parts fit together");
        let take = |sequence: Arc<Sequence>| move || values(&sequence, EACH).0;
        let all: Vec<Vec<i64>> = thread::scope(|scope| {
            let outside: Vec<_> = (0..2).map(|_| scope.spawn(take(Arc::clone(&sequence)))).collect();
            let inside = (0..2).map(|_| {
                let (engine, take) = (engine.clone(), take(Arc::clone(&sequence)));
                scope.spawn(move || engine.block_on(async move { take() }).expect("the task ends"))
            });
            outside.into_iter().chain(inside.collect::<Vec<_>>()).map(|taker| taker.join().expect("it ends")).collect()
        });
        engine.shutdown();
        let different: BTreeSet<i64> = all.iter().flatten().copied().collect();
        assert_eq!(different.len(), 4 * EACH, "no value is given twice");
        for values in all.iter().filter(|_| cache == 1) {
            assert!(values.is_sorted(), "without a cache they are given in order");
        }
    }
}
