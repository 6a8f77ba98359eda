//! How long a worker without work looks around before it sleeps: as long as that pays.
//!
//! To be put to sleep and woken takes longer than a client with one statement after the other needs between two of
//! them. So a worker looks for about as long as that takes, if work came within it lately, and else hardly at all. What
//! wakes it does not tell how long it would have had to look; that is found out by looking again now and then.
//!
//! Who looks for the end of a commit ([`Watching`]) gives way to other threads meanwhile. One that takes the processor
//! for long keeps the worker from what it was claimed for, though another one sleeps who could be woken for that: then
//! this one had better sleep, too.

use std::time::Duration;

use eris_platform::Nanos;

/// Idle steps before a worker sleeps.
const STEPS_MAX: u32 = 64;
/// The same where there is never work within them.
const STEPS_MIN: u32 = 4;
/// After every n-th sleep it looks for all steps once more.
const TRIES_SHARE: u32 = 16;

pub(crate) struct Spinning {
    /// Steps without work so far.
    idle_steps: u32,
    /// Idle steps before it sleeps.
    limit: u32,
    /// Sleeps since it was last tried to look for all steps.
    sleeps: u32,
}

impl Spinning {
    pub fn new() -> Self {
        Self { idle_steps: 0, limit: STEPS_MAX, sleeps: 0 }
    }

    pub fn is_idle(&self) -> bool {
        self.idle_steps > 0
    }

    /// Whether to look on.
    pub fn looks_on(&self) -> bool {
        self.idle_steps < self.limit
    }

    pub fn step_in_vain(&mut self) {
        self.idle_steps = self.idle_steps.saturating_add(1);
    }

    /// A step found work. `counts`: whether it did because it looked around, and for nothing that was announced.
    pub fn step_worked(&mut self, counts: bool) {
        if counts && self.is_idle() {
            self.limit = STEPS_MAX;
        }
        self.idle_steps = 0;
    }

    /// It slept: to look was in vain.
    pub fn slept(&mut self) {
        self.idle_steps = 0;
        self.limit = (self.limit / 2).max(STEPS_MIN);
        self.sleeps += 1;
        if self.sleeps == TRIES_SHARE {
            self.limit = STEPS_MAX;
            self.sleeps = 0;
        }
    }
}

/// Another thread may have the processor of a worker that watches for so long.
const GIVEN_AWAY_MAX: Duration = Duration::from_micros(50);
/// The worker does not watch for so many times as long as it was kept from its processor.
const PAUSE_TIMES: u32 = 64;

/// Whether a worker watches, as far as that depends on who else wants its processor.
#[derive(Default)]
pub(crate) struct Watching {
    /// Not before.
    from: Nanos,
}

impl Watching {
    pub fn pays(&self, now: Nanos) -> bool {
        now >= self.from
    }

    /// It gave way, and has its processor back.
    pub fn gave_way(&mut self, before: Nanos, now: Nanos) {
        let away = now - before;
        if away > GIVEN_AWAY_MAX {
            self.from = now + away * PAUSE_TIMES;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Looks around until work comes, after so many idle steps, or the worker sleeps; returns whether it did not.
    fn look(spinning: &mut Spinning, work_after: u32, announced: bool) -> bool {
        for _ in 0..work_after {
            if !spinning.looks_on() {
                spinning.slept();
                return false;
            }
            spinning.step_in_vain();
        }
        spinning.step_worked(!announced);
        true
    }

    #[test]
    fn who_finds_nothing_hardly_looks() {
        let mut spinning = Spinning::new();
        let limits = [(); 5].map(|()| {
            assert!(!look(&mut spinning, u32::MAX, false));
            spinning.limit
        });
        assert_eq!(limits, [32, 16, 8, 4, 4]);
    }

    #[test]
    fn a_worker_that_slept_often_finds_a_client_that_came_back() {
        let mut spinning = Spinning::new();
        // A client whose statements come after 20 steps: each finds the worker asleep, until it tries.
        assert!((0..10).all(|_| !look(&mut spinning, u32::MAX, false)));
        let asleep = (0..100).take_while(|_| !look(&mut spinning, 20, false)).count();
        assert!(asleep < TRIES_SHARE as usize, "asleep {asleep} times");
        assert!((0..100).all(|_| look(&mut spinning, 20, false)), "awake from then on");
    }

    #[test]
    fn what_was_announced_is_no_reason_to_look_longer() {
        let mut spinning = Spinning::new();
        assert!((0..5).all(|_| !look(&mut spinning, u32::MAX, false)));
        assert!(look(&mut spinning, 3, true));
        assert_eq!(spinning.limit, STEPS_MIN);
        assert!(look(&mut spinning, 3, false));
        assert_eq!(spinning.limit, STEPS_MAX);
    }

    #[test]
    fn whose_processor_others_want_does_not_watch_for_a_while() {
        let at = |micros: u64| Nanos(micros * 1_000);
        let mut watching = Watching::default();
        assert!(watching.pays(at(0)));
        watching.gave_way(at(100), at(150));
        assert!(watching.pays(at(150)), "nobody has it for long");
        watching.gave_way(at(1_000), at(5_000));
        assert!(!watching.pays(at(5_000)));
        assert!(!watching.pays(at(5_000 + 64 * 4_000 - 1)));
        assert!(watching.pays(at(5_000 + 64 * 4_000)));
    }
}
