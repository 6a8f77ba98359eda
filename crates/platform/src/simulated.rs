//! The environment of the simulator: a machine on one thread that its seed determines completely.
//!
//! Time stands still until [`SimulatedEnv::advance`]. Files and streams live in memory, can be slow, short and broken,
//! and nothing blocks: whoever drives the simulation steps the workers itself.

mod files;
mod network;
mod pipe;
mod reactor;

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::env::Env;
use crate::files::Files;
use crate::ids::CpuId;
use crate::io_queue::IoQueue;
use crate::random::SeededRandom;
use crate::reactor::Reactor;
use crate::threads::ThreadHandle;
use crate::time::Nanos;

pub use files::{FileFault, SimulatedFiles};
pub use network::{Cut, NetworkOptions, SimulatedListener, SimulatedNetwork, SimulatedStream};

/// 2024-01-01 00:00:00 UTC, the wall-clock time at which every simulation starts.
const START_UNIX_MICROS: i64 = 1_704_067_200_000_000;

/// See the [module](self). Cheap to clone; clones are the same machine.
#[derive(Clone)]
pub struct SimulatedEnv {
    machine: Arc<Machine>,
}

struct Machine {
    seed: u64,
    now: AtomicU64,
    random: Mutex<SeededRandom>,
    files: SimulatedFiles,
    network: SimulatedNetwork,
}

impl SimulatedEnv {
    pub fn new(seed: u64) -> SimulatedEnv {
        SimulatedEnv::with_network(seed, NetworkOptions::default())
    }

    pub fn with_network(seed: u64, options: NetworkOptions) -> SimulatedEnv {
        let mut random = SeededRandom::new(seed);
        let network = SimulatedNetwork::new(random.fork(), options);
        SimulatedEnv {
            machine: Arc::new(Machine {
                seed,
                now: AtomicU64::new(0),
                random: Mutex::new(random),
                files: SimulatedFiles::default(),
                network,
            }),
        }
    }

    pub fn seed(&self) -> u64 {
        self.machine.seed
    }

    /// Lets time pass.
    pub fn advance(&self, span: Duration) {
        self.machine.now.store((self.now() + span).0, Ordering::Relaxed);
    }

    /// Lets time pass until `deadline`, if it is not over already.
    pub fn advance_to(&self, deadline: Nanos) {
        self.machine.now.fetch_max(deadline.0, Ordering::Relaxed);
    }

    /// The files as what they are, to plan faults and to look at contents.
    pub fn simulated_files(&self) -> &SimulatedFiles {
        &self.machine.files
    }

    /// The network, for clients that belong to no reactor.
    pub fn network(&self) -> &SimulatedNetwork {
        &self.machine.network
    }
}

impl Env for SimulatedEnv {
    fn now(&self) -> Nanos {
        Nanos(self.machine.now.load(Ordering::Relaxed))
    }

    fn unix_micros(&self) -> i64 {
        START_UNIX_MICROS + self.now().as_micros() as i64
    }

    fn random_u64(&self) -> u64 {
        self.machine.random.lock().unwrap_or_else(PoisonError::into_inner).next_u64()
    }

    fn files(&self) -> &dyn Files {
        &self.machine.files
    }

    fn spawn(
        &self,
        name: &str,
        _pin: Option<CpuId>,
        _body: Box<dyn FnOnce() + Send>,
    ) -> io::Result<Box<dyn ThreadHandle>> {
        let message = format!("the simulated machine has one thread and cannot start \"{name}\"");
        Err(io::Error::new(io::ErrorKind::Unsupported, message))
    }

    fn reactor(&self) -> io::Result<Box<dyn Reactor>> {
        Ok(Box::new(reactor::SimulatedReactor::new(self.machine.network.clone())))
    }

    fn io_queue(&self, _name: &str) -> io::Result<Arc<dyn IoQueue>> {
        Err(io::ErrorKind::Unsupported.into())
    }
}
