//! Which workers of a node keep to tasks while those take the time of a whole worker or more. The others do long work:
//! pieces of it, scans and loads.
//!
//! ```text
//!   each worker, once in a window:   the share of its time that tasks take ─┐
//!                                                                           ├─ sum over the node's workers
//!   from 0.8 on the first worker keeps to tasks, from 1.8 on the first two ─┘  and so on; never all of them
//! ```
//! Workers that do both in turn have cold caches after each turn, and whoever becomes ready waits for a quantum of long
//! work. A keeper visits partitions only where somebody waits for a point access, and goes back to both as soon as
//! nothing becomes ready or nobody else sees to long work. The others leave tasks to the keepers while there is long
//! work: a timer until it is late, and what is ready at a keeper unless that is at something long or has too many. So
//! both find in their caches what they need.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use eris_platform::Nanos;
use eris_sync::Line;

/// Of a worker's time; fine, so that what rounding loses is nothing in the sum over many workers.
const WHOLE: u32 = 1 << 20;
/// The part of a further worker's time that tasks have to take for it to become a keeper.
const ENOUGH: u32 = WHOLE / 5 * 4;
/// How long a share is measured; four windows or so are known of.
const WINDOW: Duration = Duration::from_millis(1);
const KNOWN_WINDOWS: u32 = 4;
/// A keeper without a task for this long does long work.
const GAP: Duration = Duration::from_micros(50);
/// So does one if nobody else gave long work a turn for this long.
const STANDSTILL: Duration = Duration::from_millis(1);
/// Turns are told of no more often than this.
const TOLD_EVERY: Duration = Duration::from_micros(100);

/// What the workers of a node know of each other.
pub(crate) struct Keepers {
    /// In tasks, of each worker's time.
    shares: Box<[Line<AtomicU32>]>,
    /// When somebody who is no keeper gave long work a turn.
    turn: Line<AtomicU64>,
}

impl Keepers {
    pub fn new(workers: usize) -> Self {
        let shares = (0..workers).map(|_| Line(AtomicU32::new(0))).collect();
        Self { shares, turn: Line(AtomicU64::new(0)) }
    }

    fn count(&self) -> usize {
        let sum: u64 = self.shares.iter().map(|share| u64::from(share.load(Ordering::Relaxed))).sum();
        let whole = (sum + u64::from(WHOLE - ENOUGH)) / u64::from(WHOLE);
        (whole as usize).min(self.shares.len().saturating_sub(1))
    }
}

/// What a worker knows of itself.
pub(crate) struct Keeper {
    /// Its place among the workers of its node.
    index: usize,
    keeps: bool,
    /// Whether somebody else keeps to tasks.
    others_keep: bool,
    window_begun: Nanos,
    /// Within the window.
    in_tasks: u64,
    last_task: Nanos,
    last_told: Nanos,
}

impl Keeper {
    pub fn new(index: usize) -> Self {
        let never = Nanos(0);
        let (keeps, others_keep) = (false, false);
        Self { index, keeps, others_keep, window_begun: never, in_tasks: 0, last_task: never, last_told: never }
    }

    /// The tasks of a step, if there were any, took from `begun` until `now`.
    pub fn count_tasks(&mut self, keepers: &Keepers, any: bool, begun: Nanos, now: Nanos) {
        if any {
            self.in_tasks += now.0.saturating_sub(begun.0);
            self.last_task = now;
        }
        if now >= self.window_begun + WINDOW {
            let elapsed = now.0.saturating_sub(self.window_begun.0);
            let last = (u64::from(WHOLE) * self.in_tasks / elapsed).min(u64::from(WHOLE)) as u32;
            let share = &keepers.shares[self.index];
            let known = share.load(Ordering::Relaxed);
            share.store((known * (KNOWN_WINDOWS - 1) + last) / KNOWN_WINDOWS, Ordering::Relaxed);
            let count = keepers.count();
            self.keeps = self.index < count;
            self.others_keep = count > 0 && !self.keeps;
            (self.window_begun, self.in_tasks) = (now, 0);
        }
    }

    /// It has no tasks now, and measures nothing until it is awake again.
    pub fn sleeps(&mut self, keepers: &Keepers) {
        keepers.shares[self.index].store(0, Ordering::Relaxed);
    }

    /// Whether tasks are for others, as long as those keep up and there is long work.
    pub fn leaves_tasks(&self) -> bool {
        self.others_keep
    }

    /// Whether long work is not for this worker now. To be asked before each turn of it.
    pub fn leaves_long_work(&mut self, keepers: &Keepers, now: Nanos) -> bool {
        if self.keeps {
            let turn = Nanos(keepers.turn.load(Ordering::Relaxed));
            return now < self.last_task + GAP && now < turn + STANDSTILL;
        }
        if now >= self.last_told + TOLD_EVERY {
            keepers.turn.store(now.0, Ordering::Relaxed);
            self.last_told = now;
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;

    use super::*;
    use crate::counters::own_slot;
    use crate::options::EngineOptions;
    use crate::simulator::Simulation;
    use crate::task::yield_to_tasks;

    const START: Nanos = Nanos(1_000_000_000);

    /// Workers of one node; each has tasks for such a part of each window, one after the other for a while.
    fn after_a_while(parts: &[f64]) -> (Keepers, Vec<Keeper>, Nanos) {
        let keepers = Keepers::new(parts.len());
        let mut workers: Vec<Keeper> = (0..parts.len()).map(Keeper::new).collect();
        let mut now = START;
        for _ in 0..10 * KNOWN_WINDOWS {
            for (worker, part) in workers.iter_mut().zip(parts) {
                worker.count_tasks(&keepers, true, now, now + WINDOW.mul_f64(*part));
                worker.count_tasks(&keepers, false, now + WINDOW, now + WINDOW);
            }
            now += WINDOW;
        }
        (keepers, workers, now)
    }

    fn keeping(parts: &[f64]) -> Vec<bool> {
        after_a_while(parts).1.iter().map(|worker| worker.keeps).collect()
    }

    #[test]
    fn the_first_workers_keep_to_tasks_that_take_the_time_of_so_many() {
        assert_eq!(keeping(&[0.35, 0.35]), [false, false], "it would have nothing to do for a third of the time");
        assert_eq!(keeping(&[0.5, 0.5]), [true, false]);
        assert_eq!(keeping(&[1.0, 0.0]), [true, false], "and it does when it has all of them");
        assert_eq!(keeping(&[0.0, 1.0]), [true, false]);
        assert_eq!(keeping(&[0.5, 0.5, 0.5, 0.5]), [true, true, false, false]);
        assert_eq!(keeping(&[1.0, 1.0]), [true, false], "somebody does long work");
        assert_eq!(keeping(&[1.0]), [false]);
    }

    #[test]
    fn tasks_are_for_keepers() {
        let leaving =
            |parts: &[f64]| -> Vec<bool> { after_a_while(parts).1.iter().map(Keeper::leaves_tasks).collect() };
        assert_eq!(leaving(&[0.35, 0.35]), [false, false], "there are none");
        assert_eq!(leaving(&[1.0, 0.9, 0.0]), [false, false, true]);
    }

    #[test]
    fn who_sleeps_has_no_share() {
        let (keepers, mut workers, mut now) = after_a_while(&[0.5, 0.5]);
        workers[1].sleeps(&keepers);
        now += WINDOW;
        workers[0].count_tasks(&keepers, false, now, now);
        assert!(!workers[0].keeps);
    }

    #[test]
    fn small_shares_of_many_workers_add_up() {
        assert!(keeping(&[1.0 / 128.0; 128])[0]);
    }

    #[test]
    fn a_keeper_without_tasks_does_long_work() {
        let (keepers, mut workers, now) = after_a_while(&[0.5, 0.5]);
        let (mut keeper, mut other) = (workers.remove(0), workers.remove(0));
        keeper.count_tasks(&keepers, true, now, now);
        assert!(!other.leaves_long_work(&keepers, now));
        assert!(keeper.leaves_long_work(&keepers, now));
        assert!(!keeper.leaves_long_work(&keepers, now + GAP));
        keeper.count_tasks(&keepers, true, now + GAP, now + GAP);
        assert!(keeper.leaves_long_work(&keepers, now + GAP));
    }

    #[test]
    fn a_keeper_does_long_work_that_nobody_else_sees_to() {
        let (keepers, mut workers, mut now) = after_a_while(&[0.5, 0.5]);
        assert!(!workers[1].leaves_long_work(&keepers, now));
        now += STANDSTILL.saturating_sub(Duration::from_nanos(1));
        workers[0].count_tasks(&keepers, true, now, now);
        assert!(workers[0].leaves_long_work(&keepers, now));
        now += Duration::from_nanos(1);
        assert!(!workers[0].leaves_long_work(&keepers, now));
        assert!(!workers[0].leaves_long_work(&keepers, now), "its own turns do not count");
        assert!(!workers[1].leaves_long_work(&keepers, now));
        assert!(workers[0].leaves_long_work(&keepers, now));
    }

    #[test]
    fn pieces_are_for_the_worker_that_is_no_keeper() {
        let options = EngineOptions { workers: 2, quantum: Duration::from_micros(50), ..EngineOptions::default() };
        let mut simulation = Simulation::new(11, options).expect("starts");
        let engine = simulation.engine().clone();
        let polls: Arc<[AtomicUsize; 2]> = Arc::default();
        for _ in 0..2 {
            let (engine, env, polls) = (engine.clone(), simulation.env().clone(), Arc::clone(&polls));
            simulation.engine().spawn(async move {
                loop {
                    polls[own_slot(2)].fetch_add(1, Ordering::Relaxed);
                    env.advance(Duration::from_micros(15));
                    engine.sleep_until(engine.env().now() + Duration::from_nanos(1)).await;
                }
            });
        }
        let pieces: Arc<[AtomicUsize; 2]> = Arc::default();
        let counted = Arc::clone(&pieces);
        simulation.engine().spawn(async move {
            loop {
                counted[own_slot(2)].fetch_add(1, Ordering::Relaxed);
                yield_to_tasks().await;
            }
        });
        let steps = Cell::new(0);
        let mut after = |last| simulation.run_until(|| steps.replace(steps.get() + 1) > last).expect("there is work");
        let done = |what: &[AtomicUsize; 2]| [0, 1].map(|worker| what[worker].load(Ordering::Relaxed));
        after(500);
        let before = (done(&pieces), done(&polls));
        after(2_500);
        let [keeper, other] = [0, 1].map(|worker| done(&pieces)[worker] - before.0[worker]);
        assert!(other > 500 && keeper < other / 5, "{keeper} pieces by the keeper, {other} by the other worker");
        let [keeper, other] = [0, 1].map(|worker| done(&polls)[worker] - before.1[worker]);
        assert!(keeper > 500 && other < keeper / 5, "{keeper} tasks by the keeper, {other} by the other worker");
    }
}
