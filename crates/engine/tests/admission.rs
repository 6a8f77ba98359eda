//! Admission control under the simulator: limits hold, the queue is fair, waiting ends, places are given back.

#![expect(clippy::expect_used, reason = "a test fails by panicking")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use eris_engine::{AdmissionError, AdmissionOptions, ClassLimit, Engine, EngineOptions, Simulation, StatementClass};
use eris_platform::test_load;

/// What happened, in order.
#[derive(Default)]
struct Log {
    running: usize,
    most: usize,
    arrived: Vec<usize>,
    admitted: Vec<usize>,
    full: usize,
    timed_out: usize,
    /// Statements of a class without a limit that had to wait, too.
    others_waited: usize,
    done: usize,
}

/// A statement of the class with the limit; while it has a place, one of the other class runs as well.
async fn statement(
    engine: Engine,
    [class, other]: [StatementClass; 2],
    number: usize,
    work: Duration,
    log: Arc<Mutex<Log>>,
) {
    // Nobody comes between the two: the first poll of the latter takes a place, or one in the queue.
    log.lock().expect("one thread").arrived.push(number);
    let admitted = engine.admit(class).await;
    match &admitted {
        Ok(_) => {
            {
                let mut log = log.lock().expect("one thread");
                log.running += 1;
                log.most = log.most.max(log.running);
                log.admitted.push(number);
            }
            let asked = engine.env().now();
            let free = engine.admit(other).await.is_ok() && engine.env().now() == asked;
            engine.sleep_until(engine.env().now() + work).await;
            let mut log = log.lock().expect("one thread");
            log.running -= 1;
            log.others_waited += usize::from(!free);
        }
        Err(AdmissionError::QueueFull { .. }) => log.lock().expect("one thread").full += 1,
        Err(AdmissionError::TimedOut(_) | AdmissionError::NoMemory(_)) => {
            log.lock().expect("one thread").timed_out += 1;
        }
    }
    drop(admitted);
    log.lock().expect("one thread").done += 1;
}

/// Each class has the limit in turn; the others run as they come.
fn run(seed: u64, limit: ClassLimit, statements: usize, work: Duration) -> Log {
    let classes = [StatementClass::Point, StatementClass::Scan, StatementClass::Load];
    let (class, other) = (classes[seed as usize % 3], classes[(seed as usize + 1) % 3]);
    let limit_of = |of| (class == of).then_some(limit);
    let [point, scan, load] = classes.map(limit_of);
    let admission = AdmissionOptions { point, scan, load };
    let options = EngineOptions { workers: 2, admission, ..EngineOptions::default() };
    let mut simulation = Simulation::new(seed, options).expect("starts");
    let engine = simulation.engine().clone();
    let log = Arc::new(Mutex::new(Log::default()));
    for number in 0..statements {
        let spawner = engine.clone();
        spawner.spawn(statement(engine.clone(), [class, other], number, work, Arc::clone(&log)));
    }
    simulation.run_until(|| log.lock().expect("one thread").done == statements).expect("all end");
    assert_eq!(engine.admitted(class), (0, 0), "places are given back");
    drop((simulation, engine));
    let log = Arc::try_unwrap(log).ok().expect("all tasks are gone").into_inner().expect("one thread");
    let in_turn: Vec<usize> = log.arrived.iter().copied().filter(|number| log.admitted.contains(number)).collect();
    assert_eq!(log.admitted, in_turn, "seed {seed}: who comes first runs first");
    assert_eq!(log.others_waited, 0, "seed {seed}: a class without a limit");
    log
}

#[test]
fn statements_beyond_the_limit_wait_for_their_turn() {
    for seed in 0..test_load(50) {
        let limit = ClassLimit { running_max: 3, waiting_max: 100, wait_max: Duration::from_secs(10) };
        let log = run(seed, limit, 20, Duration::from_millis(5));
        assert_eq!((log.most, log.admitted.len(), log.full, log.timed_out), (3, 20, 0, 0), "seed {seed}");
    }
}

#[test]
fn statements_beyond_the_queue_are_refused() {
    for seed in 0..test_load(50) {
        let limit = ClassLimit { running_max: 2, waiting_max: 3, wait_max: Duration::from_secs(10) };
        let log = run(seed, limit, 20, Duration::from_millis(500));
        assert_eq!((log.most, log.admitted.len(), log.full), (2, 5, 15), "seed {seed}");
    }
}

#[test]
fn nobody_waits_longer_than_the_limit() {
    for seed in 0..test_load(50) {
        let limit = ClassLimit { running_max: 1, waiting_max: 100, wait_max: Duration::from_millis(100) };
        let log = run(seed, limit, 10, Duration::from_millis(60));
        assert!(log.timed_out >= 7 && log.most == 1, "seed {seed}: {} timed out", log.timed_out);
        assert_eq!(log.admitted.len() + log.timed_out, 10);
    }
}

/// One statement of a class that was refused memory goes on when there is some; those that came later wait after it,
/// whether there is room for them or not.
#[test]
fn who_waits_for_memory_goes_on_before_those_that_came_later() {
    for seed in 0..test_load(20) {
        let options = EngineOptions { workers: 2, memory_limit_bytes: 64 << 20, ..EngineOptions::default() };
        let mut simulation = Simulation::new(seed, options).expect("starts");
        let engine = simulation.engine().clone();
        let order = Arc::new(Mutex::new(Vec::new()));
        let note = |what: &'static str| order.lock().expect("one thread").push(what);
        let first = simulation.block_on(engine.admit(StatementClass::Scan)).expect("runs").expect("nobody runs");
        let second = simulation.block_on(engine.admit(StatementClass::Scan)).expect("runs").expect("no limit");
        assert!(first.has_others());
        let held = engine.memory().reserve("test");
        held.grow(48 << 20).expect("there is room");
        let waits = second.wait_for_memory(Some(32 << 20), Duration::from_mins(1));
        let spawn = |name: &'static str, engine: &Engine| {
            let (order, admit) = (Arc::clone(&order), engine.admit(StatementClass::Scan));
            engine.spawn(async move {
                let _permit = admit.await.expect("its turn comes");
                order.lock().expect("one thread").push(name);
            });
        };
        let (told, waiting) = (Arc::clone(&order), engine.clone());
        engine.spawn(async move {
            let _permit = waits.await.expect("memory comes");
            told.lock().expect("one thread").push("refused");
            let pause = waiting.env().now() + Duration::from_millis(1);
            waiting.sleep_until(pause).await;
        });
        spawn("later", &engine);
        let pause = engine.clone();
        let nap = async move { pause.sleep_until(pause.env().now() + Duration::from_millis(50)).await };
        simulation.block_on(nap).expect("runs");
        assert_eq!(engine.admitted(StatementClass::Scan), (1, 2), "seed {seed}");
        note("memory");
        drop(held);
        simulation.run_until(|| order.lock().expect("one thread").len() == 3).expect("both go on");
        assert_eq!(*order.lock().expect("one thread"), ["memory", "refused", "later"], "seed {seed}");
        drop(first);
    }
}

/// Of several that were refused memory, each goes on in the order in which it was refused, when there is enough for it;
/// one that needs less does not overtake one that needs more.
#[test]
fn those_who_wait_for_memory_go_on_in_the_order_in_which_they_came() {
    for seed in 0..test_load(20) {
        let options = EngineOptions { workers: 2, memory_limit_bytes: 64 << 20, ..EngineOptions::default() };
        let mut simulation = Simulation::new(seed, options).expect("starts");
        let engine = simulation.engine().clone();
        let order = Arc::new(Mutex::new(Vec::new()));
        let admit = |simulation: &mut Simulation| {
            simulation.block_on(engine.admit(StatementClass::Scan)).expect("runs").expect("no limit")
        };
        // It keeps the others from being alone.
        let first = admit(&mut simulation);
        let held = engine.memory().reserve("test");
        held.grow(56 << 20).expect("there is room");
        let admitted = [24 << 20, 2 << 20, 16 << 20].map(|bytes| (bytes, admit(&mut simulation)));
        for (number, (bytes, permit)) in admitted.into_iter().enumerate() {
            let waits = permit.wait_for_memory(Some(bytes), Duration::from_mins(1));
            let (order, nap) = (Arc::clone(&order), engine.clone());
            engine.spawn(async move {
                let _permit = waits.await.expect("memory comes");
                order.lock().expect("one thread").push(number);
                nap.sleep_until(nap.env().now() + Duration::from_millis(1)).await;
            });
        }
        let mut given_back = 0;
        while given_back < 48 {
            let pause = engine.clone();
            let nap = async move { pause.sleep_until(pause.env().now() + Duration::from_millis(20)).await };
            simulation.block_on(nap).expect("runs");
            if given_back == 8 {
                assert!(
                    order.lock().expect("one thread").is_empty(),
                    "seed {seed}: not before the one that came first"
                );
            }
            held.shrink(8 << 20);
            given_back += 8;
        }
        simulation.run_until(|| order.lock().expect("one thread").len() == 3).expect("all go on");
        assert_eq!(*order.lock().expect("one thread"), [0, 1, 2], "seed {seed}");
        drop((first, held));
    }
}

/// Alone it goes on whatever is free; and not for ever does it wait.
#[test]
fn who_waits_for_memory_goes_on_alone_or_gives_up() {
    let options = EngineOptions { workers: 2, memory_limit_bytes: 64 << 20, ..EngineOptions::default() };
    let mut simulation = Simulation::new(3, options).expect("starts");
    let engine = simulation.engine().clone();
    let held = engine.memory().reserve("test");
    held.grow(48 << 20).expect("there is room");
    let admit = |simulation: &mut Simulation| {
        simulation.block_on(engine.admit(StatementClass::Scan)).expect("runs").expect("no limit")
    };
    let (first, second) = (admit(&mut simulation), admit(&mut simulation));
    let waits = second.wait_for_memory(Some(32 << 20), Duration::from_millis(100));
    let refused = simulation.block_on(waits).expect("runs").map(drop);
    assert_eq!(refused, Err(AdmissionError::NoMemory(Duration::from_millis(100))));
    assert_eq!(engine.admitted(StatementClass::Scan), (1, 0), "it left the queue");
    let second = admit(&mut simulation);
    drop(first);
    let waits = second.wait_for_memory(None, Duration::from_mins(1));
    let permit = simulation.block_on(waits).expect("runs").expect("it is alone");
    assert!(!permit.has_others());
    drop((permit, held));
}

/// A statement that waits for memory does not wait for a client that took some rows and may never ask for more.
#[test]
fn nobody_waits_for_a_suspended_statement() {
    let options = EngineOptions { workers: 1, memory_limit_bytes: 64 << 20, ..EngineOptions::default() };
    let mut simulation = Simulation::new(1, options).expect("starts");
    let engine = simulation.engine().clone();
    let admit = |simulation: &mut Simulation| {
        simulation.block_on(engine.admit(StatementClass::Scan)).expect("runs").expect("no limit")
    };
    let (mut first, second) = (admit(&mut simulation), admit(&mut simulation));
    let held = engine.memory().reserve("test");
    held.grow(48 << 20).expect("there is room");
    first.suspend();
    first.suspend();
    assert!(!second.has_others() && first.has_others());
    let waits = second.wait_for_memory(Some(32 << 20), Duration::from_mins(1));
    let second = simulation.block_on(waits).expect("runs").expect("nobody else runs");
    first.resume();
    assert!(second.has_others() && first.has_others());
    first.suspend();
    drop((first, second));
    assert_eq!(engine.admitted(StatementClass::Scan), (0, 0), "places are given back once");
}

/// A statement that has not begun waits for room; after a while it begins with less, one statement at a time.
#[test]
fn who_waits_for_room_begins_when_there_is_some_or_one_at_a_time_after_a_while() {
    let options = EngineOptions { workers: 1, memory_limit_bytes: 64 << 20, ..EngineOptions::default() };
    let mut simulation = Simulation::new(1, options).expect("starts");
    let engine = simulation.engine().clone();
    let admit = |simulation: &mut Simulation| {
        simulation.block_on(engine.admit(StatementClass::Scan)).expect("runs").expect("no limit")
    };
    let (room, while_, wait_max) = (32 << 20, Duration::from_secs(1), Duration::from_mins(1));
    let held = engine.memory().reserve("test");
    held.grow(48 << 20).expect("there is room");
    let (first, second, third) = (admit(&mut simulation), admit(&mut simulation), admit(&mut simulation));
    let begun = engine.env().now();
    let second = simulation.block_on(second.wait_for_room(room, begun + while_, wait_max)).expect("runs");
    let second = second.expect("not refused");
    let waited = engine.env().now().since(begun);
    assert!((while_..2 * while_).contains(&waited), "{waited:?}");
    assert_eq!(engine.admitted(StatementClass::Scan), (3, 0), "it has its place");
    let waits = third.wait_for_room(room, begun + while_, wait_max);
    let refused = simulation.block_on(waits).expect("runs").map(drop);
    assert_eq!(refused, Err(AdmissionError::NoMemory(wait_max)), "another one has begun with less");
    drop(second);
    let next = admit(&mut simulation);
    let at_once = engine.env().now();
    let next = simulation.block_on(next.wait_for_room(room, at_once, wait_max)).expect("runs").expect("not refused");
    assert!(engine.env().now().since(at_once) < while_ / 10, "that one has ended");
    held.shrink(48 << 20);
    let last = admit(&mut simulation).wait_for_room(room, at_once + wait_max, wait_max);
    let last = simulation.block_on(last).expect("runs").expect("not refused");
    assert!(engine.env().now().since(at_once) < while_ / 5, "there is room");
    drop((first, next, last));
    assert_eq!(engine.admitted(StatementClass::Scan), (0, 0), "places are given back once");
}

/// A statement that arrives after those that wait for memory queues after them, for a bounded time.
#[test]
fn who_came_later_waits_behind_them_no_longer_than_it_wants_to() {
    let options = EngineOptions { workers: 1, memory_limit_bytes: 64 << 20, ..EngineOptions::default() };
    let mut simulation = Simulation::new(1, options).expect("starts");
    let engine = simulation.engine().clone();
    let first = simulation.block_on(engine.admit(StatementClass::Scan)).expect("runs").expect("no limit");
    let second = simulation.block_on(engine.admit(StatementClass::Scan)).expect("runs").expect("no limit");
    let waits = second.wait_for_memory(None, Duration::from_mins(1));
    let (begun, wait_max) = (engine.env().now(), Duration::from_secs(1));
    let later = simulation.block_on(engine.admit(StatementClass::Scan).within(wait_max)).expect("runs").map(drop);
    assert_eq!(later, Err(AdmissionError::NoMemory(wait_max)));
    assert!(engine.env().now().since(begun) >= wait_max);
    drop(first);
    drop(simulation.block_on(waits).expect("runs").expect("it is alone"));
    let now = simulation.block_on(engine.admit(StatementClass::Scan).within(Duration::ZERO)).expect("runs");
    assert!(now.is_ok(), "the queue is empty");
}
