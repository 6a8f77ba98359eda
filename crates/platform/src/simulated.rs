//! The environment of the simulator: a machine on one thread that its seed determines completely.
//!
//! Time stands still until [`SimulatedEnv::advance`]. Files and streams live in memory, can be slow, short and broken,
//! and nothing blocks: whoever drives the simulation steps the workers itself, lets I/O jobs run
//! ([`SimulatedEnv::run_io`]), and cuts the power ([`SimulatedEnv::lose_power`]).

mod disk;
mod disk_faults;
mod files;
mod inode;
mod io_queue;
mod names;
mod network;
mod open_file;
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

use io_queue::SimulatedIoQueues;

pub use disk_faults::{DiskFaults, FailedSync, FileFault, PerMille, Unsynced};
pub use files::SimulatedFiles;
pub use network::{Cut, NetworkOptions, SimulatedListener, SimulatedNetwork, SimulatedStream};

/// 2024-01-01 00:00:00 UTC, the wall-clock time at which every simulation starts.
const START_UNIX_MICROS: i64 = 1_704_067_200_000_000;
/// What the disk and the I/O queues draw has nothing to do with what others draw from the same seed.
const DISK_SEED: u64 = 0x6469_736b_5f6c_6f73;
const IO_QUEUE_SEED: u64 = 0x696f_5f71_7565_7565;

/// See the [module](self). Cheap to clone; clones are the same machine.
#[derive(Clone)]
pub struct SimulatedEnv {
    machine: Arc<Machine>,
}

struct Machine {
    seed: u64,
    now: Arc<AtomicU64>,
    random: Mutex<SeededRandom>,
    files: SimulatedFiles,
    io_queues: SimulatedIoQueues,
    network: SimulatedNetwork,
}

impl SimulatedEnv {
    pub fn new(seed: u64) -> SimulatedEnv {
        SimulatedEnv::with_network(seed, NetworkOptions::default())
    }

    pub fn with_network(seed: u64, options: NetworkOptions) -> SimulatedEnv {
        let mut random = SeededRandom::new(seed);
        let network = SimulatedNetwork::new(random.fork(), options);
        let now = Arc::<AtomicU64>::default();
        let files = SimulatedFiles::new(seed ^ DISK_SEED);
        let io_random = SeededRandom::new(seed ^ IO_QUEUE_SEED);
        let io_queues = SimulatedIoQueues::new(io_random, Arc::clone(&now), files.clone());
        let machine = Machine { seed, now, random: Mutex::new(random), files, io_queues, network };
        SimulatedEnv { machine: Arc::new(machine) }
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

    /// Runs the jobs of all I/O queues that are due by now, and returns how many. A job is due some time after it was
    /// submitted (see [`DiskFaults`]), and not before those ahead of it in its queue.
    pub fn run_io(&self) -> usize {
        self.machine.io_queues.run()
    }

    /// When the next job of an I/O queue is due; may be over already. `None`: none waits.
    pub fn next_io(&self) -> Option<Nanos> {
        self.machine.io_queues.next()
    }

    /// See [`SimulatedFiles::lose_power_at`].
    pub fn lose_power_at(&self, operation: u64) {
        self.machine.files.lose_power_at(operation);
    }

    /// See [`SimulatedFiles::is_powerless`].
    pub fn is_powerless(&self) -> bool {
        self.machine.files.is_powerless()
    }

    /// The power is lost, and back at once: files lose what [`SimulatedFiles::lose_power`] says, and jobs that wait in
    /// I/O queues are dropped without running. Queues from before are dead: what is submitted to them is dropped too.
    pub fn lose_power(&self) {
        self.machine.files.lose_power();
        self.machine.io_queues.drop_lost();
    }

    /// The process is killed: as [`lose_power`](Self::lose_power), but files stay as they look, see
    /// [`SimulatedFiles::kill_process`].
    pub fn kill_process(&self) {
        self.machine.files.kill_process();
        self.machine.io_queues.drop_lost();
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

    fn io_queue(&self, name: &str) -> io::Result<Arc<dyn IoQueue>> {
        Ok(Arc::new(self.machine.io_queues.add(name)))
    }
}
