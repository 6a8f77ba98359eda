//! What goes wrong in a simulated machine while its faults last, decided by the seed.
//!
//! ```text
//!   stalled    a worker takes no step for a while of virtual time: its processor is somebody else's
//!   slow       a worker takes one of many steps that it could take
//!   latched    a worker lost its processor while it had a partition: the others step, nobody gets in
//!   coordinator  the same for the role of a node's coordinator
//!   memory     a reservation is refused
//! ```
//! Faults never end the run by themselves: what stalls goes on, what was refused may be asked for again. A run that
//! must come to its end stops them ([`Simulation::stop_faults`](super::Simulation::stop_faults)).

use std::sync::Arc;
use std::time::Duration;

use eris_platform::{MemoryFaults, Nanos, SeededRandom};

use crate::partition::Partition;
use crate::runtime::Runtime;

/// How often what goes wrong. The default: nothing.
#[derive(Clone, Debug, Default)]
pub struct FaultOptions {
    /// Probability that at a step some worker stalls.
    pub stall: f64,
    /// The longest stall.
    pub stall_max: Duration,
    /// Probability that a worker is slow, decided once for each.
    pub slow: f64,
    /// A slow worker takes one in so many of its steps; at least 1.
    pub slow_one_in: u64,
    /// Probability that at a step some partition, or some node's coordinator, stays latched while others step.
    pub latched: f64,
    /// Steps of others meanwhile at most.
    pub latched_steps_max: u64,
    /// Probability that a reservation is refused.
    pub memory: f64,
}

/// A kind of fault.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Fault {
    /// A worker stopped for a while.
    Stalled,
    /// A step was withheld from a slow worker.
    Slow,
    /// A partition stayed latched over steps of others.
    Latched,
    /// A node had no coordinator over steps of others.
    NoCoordinator,
    /// A reservation was refused.
    MemoryRefused,
}

/// All of them.
pub const FAULTS: [Fault; 5] =
    [Fault::Stalled, Fault::Slow, Fault::Latched, Fault::NoCoordinator, Fault::MemoryRefused];

impl Fault {
    /// Name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Stalled => "worker stalled",
            Self::Slow => "worker slow",
            Self::Latched => "partition latched",
            Self::NoCoordinator => "coordinator held",
            Self::MemoryRefused => "memory refused",
        }
    }
}

/// Draws the faults of one run.
pub(super) struct Faults {
    options: FaultOptions,
    random: SeededRandom,
    memory: Arc<MemoryFaults>,
    /// By worker: it takes no step before this time.
    stalled_until: Vec<Nanos>,
    slow: Vec<bool>,
    counts: [u64; FAULTS.len()],
}

/// What stays latched while others step.
pub(super) enum Held {
    Partition(Partition),
    Coordinator(usize),
}

impl Faults {
    pub fn new(seed: u64, options: FaultOptions, runtime: &Runtime) -> Self {
        assert!(options.slow_one_in >= 1 || options.slow == 0.0, "a slow worker takes a step at times");
        let mut random = SeededRandom::new(seed ^ 0xFA_17);
        let workers = runtime.options.workers;
        let memory = Arc::new(MemoryFaults::new(random.next_u64()));
        memory.set_chance(options.memory);
        runtime.memory.inject_faults(&memory);
        let slow = (0..workers).map(|_| random.chance(options.slow)).collect();
        Self { options, random, memory, stalled_until: vec![Nanos(0); workers], slow, counts: [0; FAULTS.len()] }
    }

    /// Nothing goes wrong any more.
    pub fn stop(&mut self) {
        self.options = FaultOptions::default();
        self.memory.set_chance(0.0);
        self.stalled_until.fill(Nanos(0));
        self.slow.fill(false);
    }

    pub fn count(&self, fault: Fault) -> u64 {
        if fault == Fault::MemoryRefused { self.memory.refused() } else { self.counts[fault as usize] }
    }

    /// By consumer, also those who always got.
    pub fn memory_refusals(&self) -> Vec<(&'static str, u64)> {
        self.memory.refusals().into_iter().collect()
    }

    /// What goes wrong at this step; returns what stays latched, and for how many steps.
    pub fn draw(&mut self, runtime: &Runtime) -> Option<(Held, u64)> {
        let Self { options, random, .. } = self;
        if options.stall > 0.0 && random.chance(options.stall) {
            let worker = random.index(self.stalled_until.len());
            let span = Duration::from_nanos(random.below(options.stall_max.as_nanos() as u64 + 1));
            self.stalled_until[worker] = runtime.env.now() + span;
            self.counts[Fault::Stalled as usize] += 1;
        }
        if options.latched == 0.0 || !random.chance(options.latched) {
            return None;
        }
        let steps = 1 + random.below(options.latched_steps_max);
        let held = if random.chance(0.3) {
            self.counts[Fault::NoCoordinator as usize] += 1;
            Held::Coordinator(random.index(runtime.nodes.len()))
        } else {
            let containers = runtime.containers();
            if containers.is_empty() {
                return None;
            }
            let table = containers[random.index(containers.len())].table();
            let entries = table.entries();
            self.counts[Fault::Latched as usize] += 1;
            Held::Partition(Arc::clone(&entries[random.index(entries.len())].partition))
        };
        Some((held, steps))
    }

    /// Whether the worker may step now.
    pub fn lets_step(&mut self, worker: usize, now: Nanos) -> bool {
        if now < self.stalled_until[worker] {
            return false;
        }
        if self.slow[worker] && self.random.below(self.options.slow_one_in) > 0 {
            self.counts[Fault::Slow as usize] += 1;
            return false;
        }
        true
    }

    /// Whether the worker is stalled.
    pub fn is_stalled(&self, worker: usize, now: Nanos) -> bool {
        now < self.stalled_until[worker]
    }

    /// When the next stalled worker goes on.
    pub fn next_end(&self, now: Nanos) -> Option<Nanos> {
        self.stalled_until.iter().copied().filter(|until| *until > now).min()
    }

    /// Whether somebody may have work that it was not let do.
    pub fn withholds(&self) -> bool {
        self.slow.contains(&true)
    }
}
