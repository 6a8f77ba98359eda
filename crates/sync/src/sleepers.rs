//! Who sleeps and must be woken.
//!
//! A worker that finds nothing to do goes to sleep in its reactor, and whoever makes work for it must then unpark it;
//! but an unpark is a system call, too dear for every message to a worker that is awake. So sleepers announce
//! themselves here, one bit each, and the waker that clears the bit is the one that unparks. The protocol:
//!
//! | sleeper | waker |
//! |---|---|
//! | 1. [`announce`](Sleepers::announce): set the bit, **fence** | 1. publish the work |
//! | 2. look for work once more | 2. [`claim`](Sleepers::claim): **fence**, clear the bit if it is set |
//! | 3. found: [`retract`](Sleepers::retract), go on working | 3. claimed: unpark that worker |
//! | 4. else block; if a timer or socket ends it: [`retract`](Sleepers::retract) | |
//!
//! When an unpark ends the block, the bit is clear already.
//!
//! A worker that expects work any moment does not sleep yet: it [watches](Sleepers::watch), one at a time, which is to
//! look and look. Work for anybody goes to the watcher, whom nobody has to unpark. It watches only while it looks: once
//! it has found something, it [stops watching](Sleepers::stop_watching) before it does that, because what it found may
//! take long; then it looks whether there is more, which it may have been claimed for meanwhile, and claims somebody
//! for that. Before it sleeps it stops watching, too, and does as above; so a claim that it did not notice is in front
//! of its last look, by the same fences.
//!
//! Both fences are sequentially consistent, so one of them is first. If the sleeper's is, the waker sees the bit; if
//! the waker's is, the sleeper sees the work. Never do both miss, and a wake-up is never lost. A claim between 1 and 3
//! costs an unpark that was not needed: the next block returns at once.

use std::ops::Range;
use std::sync::atomic::Ordering;

use crate::line::Line;
use crate::primitives::{AtomicU64, fence};

/// The workers that can be told apart.
pub const WORKERS_MAX: usize = 1024;

const BITS: usize = u64::BITS as usize;

/// Between the announcement and the last look for work.
fn fence_of_sleeper() {
    if !cfg!(loom_weak = "sleepers_announce_fence") {
        fence(Ordering::SeqCst);
    }
}

/// Between the work and the look for sleepers.
fn fence_of_waker() {
    if !cfg!(loom_weak = "sleepers_claim_fence") {
        fence(Ordering::SeqCst);
    }
}

/// Between the end of a watch and the look for what the watcher was claimed for. Both its claims are in front of it:
/// those that ended the watch, and those after which it began anew.
fn fence_of_watcher() {
    if !cfg!(loom_weak = "sleepers_stop_watching_fence") {
        fence(Ordering::Acquire);
    }
}

/// Who does work for anybody.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Claimed {
    /// Somebody who looks anyway.
    Watcher,
    /// This worker: the caller must unpark it.
    Sleeper(usize),
}

/// See the [module](self).
pub struct Sleepers {
    workers: usize,
    /// One more than the worker that watches; 0: none does.
    watcher: Line<AtomicU64>,
    /// Bit `w % 64` of word `w / 64`: worker `w` is about to sleep, or sleeps.
    words: Box<[Line<AtomicU64>]>,
    claims: Line<AtomicU64>,
}

impl Sleepers {
    /// For workers `0..workers`, all awake.
    ///
    /// # Panics
    /// If there are more than [`WORKERS_MAX`].
    pub fn new(workers: usize) -> Sleepers {
        assert!(workers <= WORKERS_MAX, "{workers} workers are more than {WORKERS_MAX}");
        let words = (0..workers.div_ceil(BITS)).map(|_| Line(AtomicU64::new(0))).collect();
        Sleepers { workers, watcher: Line(AtomicU64::new(0)), words, claims: Line(AtomicU64::new(0)) }
    }

    fn bit(&self, worker: usize) -> (&AtomicU64, u64) {
        assert!(worker < self.workers, "worker {worker} of {} can neither sleep nor be woken", self.workers);
        (&self.words[worker / BITS], 1 << (worker % BITS))
    }

    /// Says that `worker` will sleep unless its last look, which follows, finds work.
    pub fn announce(&self, worker: usize) {
        let (word, bit) = self.bit(worker);
        let before = word.fetch_or(bit, Ordering::Relaxed);
        assert!(before & bit == 0, "worker {worker} announces its sleep twice");
        fence_of_sleeper();
    }

    /// Says that `worker` is awake. False if somebody has claimed it: an unpark is under way or has happened.
    pub fn retract(&self, worker: usize) -> bool {
        let (word, bit) = self.bit(worker);
        word.fetch_and(!bit, Ordering::Relaxed) & bit != 0
    }

    /// After work for `worker` was published: true if the caller must unpark it.
    #[must_use]
    pub fn claim(&self, worker: usize) -> bool {
        fence_of_waker();
        let (word, bit) = self.bit(worker);
        // The load keeps the line shared while nobody sleeps.
        let claimed = word.load(Ordering::Relaxed) & bit != 0 && word.fetch_and(!bit, Ordering::Relaxed) & bit != 0;
        if claimed {
            self.claims.fetch_add(1, Ordering::Relaxed);
        }
        claimed
    }

    /// Says that `worker` looks for work until it says otherwise, if nobody else does; false if somebody does. To be
    /// said again: whoever gave it work took it off watch.
    pub fn watch(&self, worker: usize) -> bool {
        let own = self.watcher_of(worker);
        let before = self.watcher.compare_exchange(0, own, Ordering::Relaxed, Ordering::Relaxed);
        before.is_ok() || before == Err(own)
    }

    /// Says that `worker` does not watch any more. Whatever it was claimed for, now or earlier, it sees from here on.
    pub fn stop_watching(&self, worker: usize) {
        let own = self.watcher_of(worker);
        // Fails if it was claimed.
        let _ = self.watcher.compare_exchange(own, 0, Ordering::Relaxed, Ordering::Relaxed);
        fence_of_watcher();
    }

    fn watcher_of(&self, worker: usize) -> u64 {
        assert!(worker < self.workers, "worker {worker} of {} cannot watch", self.workers);
        worker as u64 + 1
    }

    /// After work that anybody can do was published: who does it, if somebody has nothing to do. The watcher goes
    /// first, then the lowest number, so that under little load the same few workers work and the others stay asleep.
    #[must_use]
    pub fn claim_one(&self) -> Option<Claimed> {
        fence_of_waker();
        // The load keeps the line shared while nobody watches.
        if self.watcher.load(Ordering::Relaxed) != 0 && self.watcher.swap(0, Ordering::Relaxed) != 0 {
            return Some(Claimed::Watcher);
        }
        self.claim_sleeper(0..self.workers).map(Claimed::Sleeper)
    }

    /// As [`claim_one`](Self::claim_one) among those of `workers` who sleep, for example those of one node.
    #[must_use]
    pub fn claim_one_of(&self, workers: Range<usize>) -> Option<usize> {
        assert!(workers.end <= self.workers, "workers {workers:?} are not among {}", self.workers);
        fence_of_waker();
        self.claim_sleeper(workers)
    }

    fn claim_sleeper(&self, workers: Range<usize>) -> Option<usize> {
        let mut next = workers.start;
        while next < workers.end {
            let (word, first) = (next / BITS, next % BITS);
            let last = (workers.end - word * BITS).min(BITS);
            // Bits `first..last`.
            let mask = (u64::MAX >> (BITS - last)) & (u64::MAX << first);
            let mut candidates = self.words[word].load(Ordering::Relaxed) & mask;
            while candidates != 0 {
                let bit = candidates & candidates.wrapping_neg();
                if self.words[word].fetch_and(!bit, Ordering::Relaxed) & bit != 0 {
                    self.claims.fetch_add(1, Ordering::Relaxed);
                    return Some(word * BITS + bit.trailing_zeros() as usize);
                }
                candidates &= !bit;
            }
            next = (word + 1) * BITS;
        }
        None
    }

    /// How many have announced themselves, at some moment.
    pub fn asleep(&self) -> usize {
        self.words.iter().map(|word| word.load(Ordering::Relaxed).count_ones() as usize).sum()
    }

    /// Whether `worker` has announced itself.
    pub fn is_asleep(&self, worker: usize) -> bool {
        let (word, bit) = self.bit(worker);
        word.load(Ordering::Relaxed) & bit != 0
    }

    /// Successful claims, that is unparks, since the beginning.
    pub fn claims(&self) -> u64 {
        self.claims.load(Ordering::Relaxed)
    }

    pub fn workers(&self) -> usize {
        self.workers
    }
}
