//! I/O queues of the simulated machine: when jobs are due, in what order they run, and what a power loss does to them.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use eris_platform::simulated::{DiskFaults, PerMille};
use eris_platform::{Env, Files, Nanos, SimulatedEnv, io_queue};

fn poll<T>(task: &mut io_queue::IoTask<T>) -> Poll<io::Result<T>> {
    Pin::new(task).poll(&mut Context::from_waker(Waker::noop()))
}

/// What jobs did, when, in which queue.
fn io_history(seed: u64, faults: DiskFaults) -> Vec<(usize, u64, Nanos)> {
    let env = SimulatedEnv::new(seed);
    env.simulated_files().set_disk_faults(faults);
    let queues = [env.io_queue("log").unwrap(), env.io_queue("checkpoint").unwrap()];
    let history: Arc<Mutex<Vec<_>>> = Arc::default();
    for number in 0..200 {
        for (index, queue) in queues.iter().enumerate() {
            let (history, clock) = (Arc::clone(&history), env.clone());
            queue.submit(Box::new(move |_| history.lock().unwrap().push((index, number, clock.now()))));
        }
        env.advance(Duration::from_millis(1));
        env.run_io();
    }
    while let Some(due) = env.next_io() {
        assert!(due > env.now(), "a job that was due did not run");
        assert_eq!(env.run_io(), 0, "a job ran before its time");
        env.advance_to(due);
        assert!(env.run_io() > 0);
    }
    let history = history.lock().unwrap().clone();
    for index in 0..queues.len() {
        let numbers = history.iter().filter(|(queue, ..)| *queue == index).map(|(_, number, _)| *number);
        assert!(numbers.eq(0..200), "queue {index} lost its order");
    }
    history
}

#[test]
fn io_takes_its_time() {
    let never_slow = DiskFaults { slow: PerMille(0), ..DiskFaults::default() };
    for seed in 0..20 {
        let history = io_history(seed, never_slow);
        // A job is submitted each millisecond and looked after a millisecond later.
        assert!(history.iter().all(|(_, number, at)| *at == Nanos::from_millis(number + 1)), "{history:?}");
        assert_eq!(io_history(seed, DiskFaults::default()), io_history(seed, DiskFaults::default()));
    }
    let slow = io_history(0, DiskFaults { slow: PerMille(100), ..DiskFaults::default() });
    let latencies = slow.iter().map(|(_, number, at)| at.since(Nanos::from_millis(*number)));
    let longest = latencies.max().unwrap();
    assert!((10..=51).contains(&longest.as_millis()), "the slowest job took {longest:?}");

    let env = SimulatedEnv::new(5);
    let queue = env.io_queue("log").unwrap();
    for micros in [0, 7, 90] {
        let exact = Duration::from_micros(micros);
        env.simulated_files().set_disk_faults(DiskFaults { latency_min: exact, latency_max: exact, ..never_slow });
        queue.submit(Box::new(|_| ()));
        assert_eq!(env.next_io(), Some(env.now() + exact));
        if let Some(earlier) = exact.checked_sub(Duration::from_nanos(1)) {
            env.advance(earlier);
            assert_eq!(env.run_io(), 0, "a job ran before its time");
            env.advance(Duration::from_nanos(1));
        }
        assert_eq!(env.run_io(), 1);
    }
}

#[test]
fn queues_die_with_the_power() {
    let env = SimulatedEnv::new(0);
    let queue = env.io_queue("log").unwrap();
    let ran = Arc::new(AtomicU64::new(0));
    let job = || {
        let ran = Arc::clone(&ran);
        move |_: &dyn Files| ran.fetch_add(1, Ordering::Relaxed)
    };
    // A job that owns its queue must not keep the machine in memory, nor the drop of it meet a lock.
    let own = Arc::clone(&queue);
    queue.submit(Box::new(move |_| drop(own)));
    let mut before = io_queue::run(&queue, job());
    assert!(poll(&mut before).is_pending());
    env.lose_power();
    let mut after = io_queue::run(&queue, job());
    for task in [&mut before, &mut after] {
        let Poll::Ready(Err(error)) = poll(task) else { panic!("a lost job is still awaited") };
        assert!(error.to_string().contains("lost"), "{error}");
    }
    env.advance(Duration::from_secs(1));
    assert_eq!((env.next_io(), env.run_io(), ran.load(Ordering::Relaxed)), (None, 0, 0));
    let queue = env.io_queue("log").unwrap();
    queue.submit(Box::new(move |_| ()));
    assert!(env.next_io().is_some());
    // The files alone lose their power: the queues notice.
    env.simulated_files().lose_power();
    assert_eq!((env.next_io(), env.run_io()), (None, 0));
    let mut orphan = io_queue::run(&env.io_queue("log").unwrap(), job());
    drop(env);
    assert!(matches!(poll(&mut orphan), Poll::Ready(Err(_))), "a machine that is gone runs no jobs");
}
