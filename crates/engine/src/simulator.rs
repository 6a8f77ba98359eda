//! The engine on one thread: a seed decides which worker steps next, and the clock moves when nobody has work.
//!
//! Two runs with one seed do the same things in the same order, so a seed that fails is a test.
//!
//! A run may have [faults] for a while. Afterwards it must come to its end: whoever waits for something bounds the
//! steps ([`Simulation::limit_steps`]), and a run that is stuck says which partitions, dataflows and waits are open.

mod faults;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use eris_platform::{Env, NodeId, SeededRandom, SimulatedEnv, WorkerPlan};

use crate::counters::count_as_nobody;
use crate::engine::Engine;
use crate::error::EngineError;
use crate::lock::{Lock, lock};
use crate::options::EngineOptions;
use crate::task::give_up_all;
use crate::worker::Worker;

pub use faults::{FAULTS, Fault, FaultOptions};
use faults::{Faults, Held};

/// Steps without a result after which a run counts as stuck.
const STEPS_MAX: u64 = 20_000_000;
/// What one step costs on the virtual clock at most, so that quanta end at different places.
const STEP_NANOS_MAX: u64 = 50_000;

/// A simulated engine.
pub struct Simulation {
    engine: Engine,
    env: SimulatedEnv,
    workers: Vec<Worker>,
    random: SeededRandom,
    steps: u64,
    stopped: Vec<NodeId>,
    steps_max: u64,
    faults: Option<Faults>,
}

/// A run that cannot end.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SimulationError {
    /// No worker has work, no timer runs, and the task waits.
    #[error("seed {seed}: nobody has work after {steps} steps, and the task is not done\n{state}")]
    Deadlock { seed: u64, steps: u64, state: String },
    /// The limit of steps is reached.
    #[error("seed {seed}: the task is not done after {steps} steps\n{state}")]
    TooLong { seed: u64, steps: u64, state: String },
    /// The task panicked or was dropped.
    #[error("seed {seed}: the task ended without a result")]
    Lost { seed: u64 },
}

/// With the simulation all is gone: what tasks were at is dropped, as it lies in memory that is no more.
impl Drop for Simulation {
    fn drop(&mut self) {
        give_up_all(self.engine.runtime());
    }
}

impl Simulation {
    /// An engine of `options.workers` workers on `options.nodes` nodes.
    pub fn new(seed: u64, options: EngineOptions) -> Result<Self, EngineError> {
        Self::on(&SimulatedEnv::new(seed), options)
    }

    /// The same on a machine that is there already.
    pub fn on(env: &SimulatedEnv, options: EngineOptions) -> Result<Self, EngineError> {
        let plan = WorkerPlan::unpinned(options.workers, options.nodes)
            .map_err(|error| EngineError::Start(error.to_string()))?;
        let (engine, workers) = Engine::assemble_stepped(Arc::new(env.clone()), options, &plan)?;
        let random = SeededRandom::new(env.seed() ^ 0x5EED);
        Ok(Self {
            engine,
            env: env.clone(),
            workers,
            random,
            steps: 0,
            stopped: Vec::new(),
            steps_max: STEPS_MAX,
            faults: None,
        })
    }

    /// The engine; its tasks run only while the simulation does.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// The machine it runs on.
    pub fn env(&self) -> &SimulatedEnv {
        &self.env
    }

    /// From now on the workers of a node do nothing: it is dead, or its processors are somebody else's. They come to
    /// the end of their step: what they have sent in it still leaves their buffers.
    pub fn stop_node(&mut self, node: NodeId) {
        self.stopped.push(node);
    }

    /// The workers of a node go on.
    pub fn resume_node(&mut self, node: NodeId) {
        self.stopped.retain(|stopped| *stopped != node);
    }

    /// Takes so many steps while nobody can be the coordinator of a node: a worker lost its processor in that role.
    pub fn step_without_coordinator(&mut self, node: NodeId, steps: u64) {
        let runtime = Arc::clone(self.engine.runtime());
        let held = runtime.node(node).hold_coordinator();
        assert!(held.is_some(), "between two steps nobody is the coordinator");
        for _ in 0..steps {
            self.step_once();
        }
    }

    /// From now on these faults happen, as the seed wants it. Once in a run.
    pub fn set_faults(&mut self, options: FaultOptions) {
        assert!(self.faults.is_none(), "the faults of a run are set once");
        self.faults = Some(Faults::new(self.env.seed(), options, self.engine.runtime()));
    }

    /// Nothing goes wrong any more.
    pub fn stop_faults(&mut self) {
        if let Some(faults) = &mut self.faults {
            faults.stop();
        }
    }

    /// How often a fault happened.
    pub fn fault_count(&self, fault: Fault) -> u64 {
        self.faults.as_ref().map_or(0, |faults| faults.count(fault))
    }

    /// How often each consumer of memory was refused; 0 for those who asked and always got.
    pub fn memory_refusals(&self) -> Vec<(&'static str, u64)> {
        self.faults.as_ref().map_or(Vec::new(), Faults::memory_refusals)
    }

    /// From now on what is waited for must come within so many steps.
    pub fn limit_steps(&mut self, steps_max: u64) {
        self.steps_max = steps_max;
    }

    /// Says what is wrong with a partition of an engine in which nobody has work: indexes that disagree with the rows,
    /// or something that transactions and readers left behind.
    pub fn check_partitions(&self) -> Result<(), String> {
        for container in self.engine.runtime().containers() {
            for partition in container.table().partitions() {
                let Some(state) = partition.try_latch() else { return Err(format!("{partition:?} is latched")) };
                let checked = state.store.check_indexes().and_then(|()| state.store.check_quiet());
                if let Err(wrong) = checked {
                    return Err(format!("{partition:?} of container {}: {wrong}", container.id().0));
                }
            }
        }
        Ok(())
    }

    /// Steps taken so far.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// Runs until the future is done.
    pub fn block_on<T: Send + 'static>(
        &mut self,
        future: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, SimulationError> {
        let slot = Arc::new(Lock::new(None));
        let result = Arc::clone(&slot);
        let alive = Arc::new(());
        let running = Arc::clone(&alive);
        self.engine.spawn(async move {
            let value = future.await;
            *lock(&result) = Some(value);
            drop(running);
        });
        self.run_until(|| lock(&slot).is_some() || Arc::strong_count(&alive) == 1)?;
        let value = lock(&slot).take();
        value.ok_or(SimulationError::Lost { seed: self.env.seed() })
    }

    /// Runs until `done` holds.
    pub fn run_until(&mut self, mut done: impl FnMut() -> bool) -> Result<(), SimulationError> {
        let limit = self.steps + self.steps_max;
        while !done() {
            if self.steps >= limit {
                return Err(self.too_long());
            }
            if !self.step() && !done() && !self.advance_to_next_timer() {
                let state = self.engine.runtime().describe();
                return Err(SimulationError::Deadlock { seed: self.env.seed(), steps: self.steps, state });
            }
        }
        Ok(())
    }

    /// Runs until nobody has work: settles, garbage-collects, splits.
    pub fn run_until_idle(&mut self) -> Result<(), SimulationError> {
        let limit = self.steps + self.steps_max;
        while self.step() || self.advance_to_next_timer() {
            if self.steps >= limit {
                return Err(self.too_long());
            }
        }
        Ok(())
    }

    fn too_long(&self) -> SimulationError {
        let state = self.engine.runtime().describe();
        SimulationError::TooLong { seed: self.env.seed(), steps: self.steps, state }
    }

    /// One step of some worker that has work, and of others while something stays latched; false if none has.
    fn step(&mut self) -> bool {
        let runtime = Arc::clone(self.engine.runtime());
        if let Some((held, steps)) = self.faults.as_mut().and_then(|faults| faults.draw(&runtime)) {
            let _latched = match &held {
                Held::Partition(partition) => (partition.try_latch(), None),
                Held::Coordinator(node) => (None, runtime.nodes[*node].hold_coordinator()),
            };
            for _ in 0..steps {
                self.step_once();
            }
        }
        self.step_once()
    }

    /// One step of some worker that has work and may do it; false if none has.
    fn step_once(&mut self) -> bool {
        self.env.advance(Duration::from_nanos(self.random.below(STEP_NANOS_MAX)));
        if self.env.run_io() > 0 {
            return true;
        }
        let first = self.random.index(self.workers.len());
        // Twice: a worker polls its sockets in the step after one without work.
        for offset in 0..2 * self.workers.len() {
            let worker = (first + offset) % self.workers.len();
            self.steps += 1;
            if self.stopped.contains(&self.workers[worker].node()) {
                if self.workers[worker].hand_out() {
                    return true;
                }
                continue;
            }
            if let Some(faults) = &mut self.faults
                && !faults.lets_step(worker, self.env.now())
            {
                continue;
            }
            let worked = self.workers[worker].step();
            // What is done between steps is done by a client.
            count_as_nobody();
            if worked {
                return true;
            }
        }
        false
    }

    /// Lets time pass until something may happen; false if nothing ever will.
    fn advance_to_next_timer(&mut self) -> bool {
        let runtime = self.engine.runtime();
        let now = self.env.now();
        let is_stalled = |worker: &usize| self.faults.as_ref().is_some_and(|faults| faults.is_stalled(*worker, now));
        // Nobody looks at the timers of a node that stands still, unless somebody helps it.
        let moves = |node: NodeId| !self.stopped.contains(&node) && !runtime.node(node).workers.iter().all(&is_stalled);
        let looks = |node: &NodeId| moves(*node) || runtime.helpers.helper_of(*node).is_some_and(moves);
        let nodes = runtime.nodes.iter().map(|node| node.id).filter(looks);
        let timers = nodes.filter_map(|node| runtime.next_deadline(node));
        let faults_end = self.faults.as_ref().and_then(|faults| faults.next_end(now));
        let next = timers.chain(faults_end).chain(self.env.next_io()).min();
        if let Some(deadline) = next {
            self.env.advance_to(deadline);
        }
        // A slow worker may have work that it was not let do.
        next.is_some() || self.faults.as_ref().is_some_and(Faults::withholds)
    }
}
