//! How long a worker without work looks around before it sleeps: as long as that pays.
//!
//! To be put to sleep and woken takes longer than a client with one statement after the other needs between two of
//! them. So a worker looks for about as long as that takes, if work came within it lately, and else hardly at all. What
//! wakes it does not tell how long it would have had to look; that is found out by looking again now and then.

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
}
