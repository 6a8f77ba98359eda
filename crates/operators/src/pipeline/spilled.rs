//! Runs a sink that goes on in files as the executor does, for tests: on the threads of the test and the real disk, or
//! on the simulated one.

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::thread;

use eris_engine::CancelHandle;
use eris_platform::simulated::FileFault;
use eris_platform::{MemoryPool, SimulatedEnv, TempDirectory, TempFileError, TempFiles};
use eris_storage::Batch;

use super::Sink;
use crate::error::OperatorError;
use crate::spill::{RowStream, Spill, SpillOptions, SpillingSink};

/// Everything that an operation of the disk may fail with.
pub(crate) const FAULTS: [FileFault; 3] = [FileFault::Broken, FileFault::Denied, FileFault::NoSpace];

/// Whether the error of a statement that met this fault says what the disk said.
pub(crate) fn tells(fault: FileFault, error: &OperatorError) -> bool {
    let OperatorError::TempFile(error) = error else { return false };
    match (fault, error) {
        (FileFault::NoSpace, TempFileError::Full { .. }) => true,
        (FileFault::Broken | FileFault::Denied, TempFileError::Io { os_error: Some(code), .. }) => {
            let is_denied = io::Error::from_raw_os_error(*code).kind() == io::ErrorKind::PermissionDenied;
            is_denied == (fault == FileFault::Denied)
        }
        _ => false,
    }
}

/// A test of every operation in turn has to see more failures than this. Only operations that take space are refused
/// it: a directory, a file, and each write.
pub(crate) fn failures_min(fault: FileFault, operations: u64) -> u64 {
    if fault == FileFault::NoSpace { 4 } else { operations }
}

/// Fails each disk operation of `run` in turn, with every fault, until a run meets none. Each failure has to say what
/// the disk said, and to leave no memory or file; more than `operations` of them are expected.
pub(crate) fn fail_each_operation(operations: u64, run: impl Fn(&Disk, &Arc<MemoryPool>) -> Result<(), OperatorError>) {
    for fault in FAULTS {
        let mut failed = 0;
        for operation in 0.. {
            let (disk, pool) = (Disk::new(operation), MemoryPool::unlimited());
            disk.fail_at(operation, fault);
            let ended = run(&disk, &pool);
            disk.settle();
            assert_eq!((pool.used(), disk.files.statistics().used_bytes), (0, 0), "{fault:?}: {ended:?}");
            let Err(error) = ended else { break };
            assert!(tells(fault, &error), "{fault:?} of operation {operation}: {error}");
            failed += 1;
        }
        assert!(failed > failures_min(fault, operations), "{failed} operations, {fault:?}");
    }
}

/// A simulated disk, and what a statement may do with it.
pub(crate) struct Disk {
    pub env: SimulatedEnv,
    pub files: Arc<TempFiles>,
}

impl Disk {
    pub fn new(seed: u64) -> Self {
        let env = SimulatedEnv::new(seed);
        env.simulated_files().insert("/db/eris.db", "");
        let directory = TempDirectory { path: "/db/temp".into(), is_own: false, keeps_free_bytes: 0 };
        let files = TempFiles::new(Arc::new(env.clone()), directory);
        Self { env, files }
    }

    /// Has an operation of the disk fail: the next one is number 0.
    pub fn fail_at(&self, operation: u64, fault: FileFault) {
        let files = self.env.simulated_files();
        files.fail_at(files.operations() + operation, fault);
    }

    pub fn spill(&self, memory: &Arc<MemoryPool>, options: SpillOptions) -> Spill {
        Spill::new(&self.files, memory, &CancelHandle::default(), options)
    }

    /// Runs a future; the disk works whenever it waits.
    pub fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        let mut future = pin!(future);
        loop {
            if let Poll::Ready(done) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                return done;
            }
            if let Some(due) = self.env.next_io() {
                self.env.advance_to(due);
                self.env.run_io();
            }
        }
    }

    /// Lets the disk do all that waits.
    pub fn settle(&self) {
        while let Some(due) = self.env.next_io() {
            self.env.advance_to(due);
            self.env.run_io();
        }
    }

    /// Gives a sink all batches, on so many threads, and takes its rows; whether they came from files.
    pub fn run(&self, sink: &dyn Sink, batches: &[Batch], threads: usize) -> Result<(Vec<Batch>, bool), OperatorError> {
        self.block_on(async {
            give(sink, batches, threads).await?;
            if !sink.spilling().is_some_and(SpillingSink::ends_in_files) {
                return Ok((super::finish(sink, threads)?, false));
            }
            write_out(sink, threads).await?;
            let mut stream = spilling(sink).take_stream()?;
            Ok((rows_of_stream(&mut *stream).await?, true))
        })
    }
}

/// Gives a sink batches, which goes on in files where it has to.
pub(crate) async fn give(sink: &dyn Sink, batches: &[Batch], threads: usize) -> Result<(), OperatorError> {
    for batches in batches.chunks(threads) {
        for refused in consume(sink, batches)? {
            write_out(sink, threads).await?;
            if let Some(refused) = consume(sink, &[refused])?.pop() {
                spilling(sink).consume_anyway(refused)?;
            }
        }
    }
    Ok(())
}

/// All rows of a stream.
pub(crate) async fn rows_of_stream(stream: &mut dyn RowStream) -> Result<Vec<Batch>, OperatorError> {
    let mut rows = Vec::new();
    while let Some(batch) = stream.next().await? {
        rows.push(batch);
    }
    Ok(rows)
}

fn spilling(sink: &dyn Sink) -> &dyn SpillingSink {
    sink.spilling().expect("only what spills hands batches back")
}

/// Gives each batch on a thread of its own; those that were handed back.
fn consume(sink: &dyn Sink, batches: &[Batch]) -> Result<Vec<Batch>, OperatorError> {
    let refused = std::sync::Mutex::new(Vec::new());
    let each = |batch: &Batch| {
        sink.consume(batch.clone(), &mut |batch| {
            super::lock(&refused).push(batch);
            Ok(())
        })
    };
    thread::scope(|scope| {
        let handles: Vec<_> = batches.iter().map(|batch| scope.spawn(move || each(batch))).collect();
        handles.into_iter().try_for_each(|handle| handle.join().expect("no panic"))
    })?;
    Ok(refused.into_inner().expect("no panic"))
}

/// Has a sink write everything it holds.
pub(crate) async fn write_out(sink: &dyn Sink, threads: usize) -> Result<(), OperatorError> {
    let spilling = spilling(sink);
    loop {
        let jobs = spilling.spill_jobs()?;
        if jobs == 0 {
            return Ok(());
        }
        let run = |thread: usize| {
            (thread..jobs).step_by(threads).try_for_each(|job| {
                while spilling.spill_job(job)?.is_pending() {}
                Ok::<(), OperatorError>(())
            })
        };
        thread::scope(|scope| {
            let handles: Vec<_> = (0..threads).map(|thread| scope.spawn(move || run(thread))).collect();
            handles.into_iter().try_for_each(|handle| handle.join().expect("no panic"))
        })?;
        spilling.written().await?;
    }
}
