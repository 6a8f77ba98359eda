//! The engine on one thread: a seed decides which worker steps next, and the clock moves when nobody has work.
//!
//! Two runs with one seed do the same things in the same order, so a seed that fails is a test.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use eris_platform::{NodeId, SeededRandom, SimulatedEnv, WorkerPlan};

use crate::engine::Engine;
use crate::error::EngineError;
use crate::lock::{Lock, lock};
use crate::options::EngineOptions;
use crate::worker::Worker;

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
        Ok(Self { engine, env: env.clone(), workers, random, steps: 0, stopped: Vec::new() })
    }

    /// The engine; its tasks run only while the simulation does.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// The machine it runs on.
    pub fn env(&self) -> &SimulatedEnv {
        &self.env
    }

    /// From now on the workers of a node do nothing: it is dead, or its processors are somebody else's.
    pub fn stop_node(&mut self, node: NodeId) {
        self.stopped.push(node);
    }

    /// The workers of a node go on.
    pub fn resume_node(&mut self, node: NodeId) {
        self.stopped.retain(|stopped| *stopped != node);
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
        let limit = self.steps + STEPS_MAX;
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
        let limit = self.steps + STEPS_MAX;
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

    /// One step of some worker that has work; false if none has.
    fn step(&mut self) -> bool {
        self.env.advance(Duration::from_nanos(self.random.below(STEP_NANOS_MAX)));
        let first = self.random.index(self.workers.len());
        // Twice: a worker polls its sockets in the step after one without work.
        for offset in 0..2 * self.workers.len() {
            let worker = (first + offset) % self.workers.len();
            self.steps += 1;
            if !self.stopped.contains(&self.workers[worker].node()) && self.workers[worker].step() {
                return true;
            }
        }
        false
    }

    fn advance_to_next_timer(&mut self) -> bool {
        let runtime = self.engine.runtime();
        // Nobody looks at the timers of a node that stands still, unless somebody helps it.
        let looks = |node: &NodeId| !self.stopped.contains(node) || runtime.helpers.helper_of(*node).is_some();
        let nodes = runtime.nodes.iter().map(|node| node.id).filter(looks);
        let next = nodes.filter_map(|node| runtime.next_deadline(node)).min();
        if let Some(deadline) = next {
            self.env.advance_to(deadline);
        }
        next.is_some()
    }
}
