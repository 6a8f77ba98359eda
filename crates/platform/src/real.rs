//! The environment of a running server: Linux.

mod file_lock;
mod files;
mod io_queue;
mod positioned;
mod reactor;
mod readiness;
mod regular;
mod streams;
mod threads;

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use crate::env::Env;
use crate::files::Files;
use crate::ids::CpuId;
use crate::io_queue::IoQueue;
use crate::limits;
use crate::random::SeededRandom;
use crate::reactor::Reactor;
use crate::threads::ThreadHandle;
use crate::time::Nanos;

pub use files::RealFiles;
use io_queue::{Priority, RealIoQueue};

/// See the [module](self).
#[derive(Debug)]
pub struct RealEnv {
    start: Instant,
    random: Mutex<SeededRandom>,
    files: Arc<RealFiles>,
    /// Where the threads of its queues may run: `None` if the kernel does not tell.
    cpus: Option<Vec<CpuId>>,
}

impl RealEnv {
    pub fn new() -> RealEnv {
        RealEnv::with_file_root(PathBuf::from("/"))
    }

    fn queue(&self, name: &str, priority: Priority) -> io::Result<Arc<dyn IoQueue>> {
        let files: Arc<dyn Files> = Arc::<RealFiles>::clone(&self.files);
        Ok(Arc::new(RealIoQueue::start(name, files, priority, self.cpus.clone())?))
    }

    /// An environment whose file names are all taken below `root`. Threads of its I/O queues may run where the calling
    /// thread may.
    pub fn with_file_root(root: PathBuf) -> RealEnv {
        RealEnv {
            start: Instant::now(),
            random: Mutex::new(SeededRandom::new(seed_of_the_system())),
            files: Arc::new(RealFiles::new(root)),
            cpus: limits::affinity(),
        }
    }
}

impl Default for RealEnv {
    fn default() -> RealEnv {
        RealEnv::new()
    }
}

/// 64 bits from the kernel. A kernel without entropy (early boot) leaves the address space layout and the clock.
fn seed_of_the_system() -> u64 {
    let mut seed = [0_u8; 8];
    // SAFETY: the buffer is writable and as long as stated.
    let filled = unsafe { libc::getrandom(seed.as_mut_ptr().cast(), seed.len(), 0) };
    if filled == 8 {
        u64::from_ne_bytes(seed)
    } else {
        let nanoseconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64);
        nanoseconds ^ (std::ptr::from_ref(&seed) as u64)
    }
}

impl Env for RealEnv {
    fn now(&self) -> Nanos {
        Nanos(self.start.elapsed().as_nanos() as u64)
    }

    fn unix_micros(&self) -> i64 {
        match SystemTime::now().duration_since(UNIX_EPOCH) {
            Ok(since) => since.as_micros() as i64,
            Err(before) => -(before.duration().as_micros() as i64),
        }
    }

    fn random_u64(&self) -> u64 {
        self.random.lock().unwrap_or_else(PoisonError::into_inner).next_u64()
    }

    fn files(&self) -> &dyn Files {
        &*self.files
    }

    fn spawn(
        &self,
        name: &str,
        pin: Option<CpuId>,
        body: Box<dyn FnOnce() + Send>,
    ) -> io::Result<Box<dyn ThreadHandle>> {
        threads::spawn(name, pin, body)
    }

    fn reactor(&self) -> io::Result<Box<dyn Reactor>> {
        Ok(Box::new(reactor::RealReactor::new()?))
    }

    fn io_queue(&self, name: &str) -> io::Result<Arc<dyn IoQueue>> {
        self.queue(name, Priority::Normal)
    }

    fn prompt_io_queue(&self, name: &str) -> io::Result<Arc<dyn IoQueue>> {
        self.queue(name, Priority::Prompt)
    }

    fn background_io_queue(&self, name: &str) -> io::Result<Arc<dyn IoQueue>> {
        self.queue(name, Priority::Background)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_advance_and_randomness_differs() {
        let env = RealEnv::new();
        let first = env.now();
        while env.now() == first {}
        assert!(env.now() > first);
        assert!(env.unix_micros() > 1_700_000_000_000_000, "the clock is before 2023");
        assert_ne!(env.random_u64(), env.random_u64());
        assert_ne!(env.random_u64(), RealEnv::new().random_u64());
    }

    #[test]
    fn queues_that_a_pinned_thread_starts_are_not_pinned() {
        let env = Arc::new(RealEnv::new());
        let allowed = limits::affinity().unwrap();
        let pinned = *allowed.last().unwrap();
        let (sender, receiver) = std::sync::mpsc::channel();
        let starter = Arc::clone(&env);
        let start = move || {
            for queue in [starter.io_queue("a"), starter.prompt_io_queue("b"), starter.background_io_queue("c")] {
                let sender = sender.clone();
                queue.unwrap().submit(Box::new(move |_| sender.send(limits::affinity()).unwrap()));
            }
        };
        env.spawn("worker", Some(pinned), Box::new(start)).unwrap().join().unwrap();
        let seen: Vec<_> = receiver.iter().map(Option::unwrap).collect();
        assert_eq!(seen, [allowed.clone(), allowed.clone(), allowed]);
    }
}
