//! The one door through which everything enters that can make two runs differ.
//!
//! Crates to the right take an `Arc<dyn Env>` and ask it for time, randomness, files, threads and reactors. With
//! [`RealEnv`](crate::RealEnv) that is Linux, with [`SimulatedEnv`](crate::SimulatedEnv) a machine that a seed
//! determines completely.

use std::io;
use std::sync::Arc;

use crate::files::Files;
use crate::ids::CpuId;
use crate::io_queue::IoQueue;
use crate::reactor::Reactor;
use crate::threads::ThreadHandle;
use crate::time::Nanos;

/// The machine as the database sees it. Shared as `Arc<dyn Env>`.
pub trait Env: Send + Sync + 'static {
    /// Monotonic time since an arbitrary start.
    fn now(&self) -> Nanos;

    /// Wall-clock time: microseconds since 1970-01-01 UTC. May jump; never used to measure.
    fn unix_micros(&self) -> i64;

    /// Random bits: unpredictable in a real environment, given by the seed in a simulated one.
    fn random_u64(&self) -> u64;

    fn files(&self) -> &dyn Files;

    /// Starts a thread, pinned to `pin` if given. An operating system that refuses the thread or the pin is an error;
    /// the simulated environment refuses always, because its driver steps the workers itself.
    fn spawn(
        &self,
        name: &str,
        pin: Option<CpuId>,
        body: Box<dyn FnOnce() + Send>,
    ) -> io::Result<Box<dyn ThreadHandle>>;

    /// A new reactor; each worker owns one.
    fn reactor(&self) -> io::Result<Box<dyn Reactor>>;

    /// A new queue for work on files; see [`IoQueue`]. The name is for people.
    ///
    /// A real queue is a thread, which may run where the one that made the environment could, also if a pinned worker
    /// calls this.
    fn io_queue(&self, name: &str) -> io::Result<Arc<dyn IoQueue>>;

    /// The same for what many wait for and what mostly waits itself, as a log does: its turns on the processor are
    /// short and come early.
    fn prompt_io_queue(&self, name: &str) -> io::Result<Arc<dyn IoQueue>> {
        self.io_queue(name)
    }

    /// The same for work that nobody waits for and that others must not wait for: it is done in bursts of microseconds,
    /// as long as its jobs [breathe](Files::breathe).
    fn background_io_queue(&self, name: &str) -> io::Result<Arc<dyn IoQueue>> {
        self.io_queue(name)
    }
}
