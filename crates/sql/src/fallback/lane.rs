//! The thread pool of the lane. It starts with the first plan that needs it.

use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};

use datafusion::execution::disk_manager::{DiskManagerBuilder, DiskManagerMode};
use datafusion::execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};
use eris_platform::ids::CpuId;
use eris_platform::{MemoryPool as ErisPool, limits};
use tokio::runtime::{Builder, Handle, Runtime};

use super::memory::AccountedMemory;
use crate::errors::{SqlError, SqlState};

/// The lane of one database.
pub struct Lane {
    threads: usize,
    /// Where the threads may run. A worker starts them, and they would inherit the one processor it is pinned to.
    cpus: Option<Arc<[CpuId]>>,
    runtime: Mutex<Option<Runtime>>,
}

impl fmt::Debug for Lane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Lane({} threads)", self.threads)
    }
}

impl Lane {
    /// A lane with this many threads, on the processors that the calling thread may use.
    pub fn new(threads: usize) -> Self {
        let cpus = limits::affinity().map(Into::into);
        Self { threads: threads.max(1), cpus, runtime: Mutex::new(None) }
    }

    /// What DataFusion's operators are given: our memory, no disk.
    pub fn environment(memory: &Arc<ErisPool>) -> Result<Arc<RuntimeEnv>, SqlError> {
        let no_disk = DiskManagerBuilder::default().with_mode(DiskManagerMode::Disabled);
        let environment = RuntimeEnvBuilder::new()
            .with_memory_pool(Arc::new(AccountedMemory::new(memory)))
            .with_disk_manager_builder(no_disk)
            .build()
            .map_err(|error| crate::plan::datafusion_error(&error))?;
        Ok(Arc::new(environment))
    }

    /// Threads, and partitions of a plan.
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// The pool, started if need be.
    pub fn handle(&self) -> Result<Handle, SqlError> {
        let mut runtime = self.runtime.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(runtime) = runtime.as_ref() {
            return Ok(runtime.handle().clone());
        }
        let cpus = self.cpus.clone();
        let start = || {
            Builder::new_multi_thread()
                .worker_threads(self.threads)
                .thread_name("eris-fallback")
                .on_thread_start(move || {
                    if let Some(cpus) = &cpus {
                        // Processors can be taken away meanwhile; a thread left where it started is slower, not wrong.
                        let _ = limits::set_affinity(cpus);
                    }
                })
                .build()
        };
        // Where the system has no thread for it, the runtime panics.
        let started = catch_unwind(AssertUnwindSafe(start))
            .unwrap_or_else(|_| Err(io::Error::other("the system has no thread for it (ulimit -u, -v)")))
            .map_err(|error| {
                let message = format!("the fallback lane cannot start: {error}");
                SqlError::new(SqlState::INSUFFICIENT_RESOURCES, message)
            })?;
        Ok(runtime.insert(started).handle().clone())
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        let runtime = self.runtime.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(runtime) = runtime {
            runtime.shutdown_background();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_started_by_a_pinned_worker_run_on_every_processor() {
        let allowed = limits::affinity().unwrap();
        let lane = Lane::new(2);
        let first = allowed[0];
        let started = std::thread::spawn(move || {
            limits::set_affinity(&[first]).unwrap();
            let task = lane.handle().unwrap().spawn(async { limits::affinity() });
            (lane.handle().unwrap().block_on(task).unwrap(), limits::affinity())
        });
        let (of_the_lane, of_the_starter) = started.join().unwrap();
        assert_eq!(of_the_starter, Some(vec![first]));
        assert_eq!(of_the_lane, Some(allowed));
    }
}
