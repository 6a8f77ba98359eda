//! Where a pipeline ends.

use std::fmt::Debug;

use eris_platform::Reservation;
use eris_storage::Batch;

use super::Emitting;
use crate::error::OperatorError;
use crate::spill::SpillingSink;

/// The end of a pipeline, shared by all commands and tasks that feed it.
///
/// Once all input was consumed, rounds of jobs finish it: [`Self::finish_jobs`] says how many jobs the next round has,
/// each is run once by [`Self::finish_job`], and when all have ended the next round is asked for, until there is none.
pub trait Sink: Send + Sync + Debug {
    /// Takes a batch, on any worker. `emit` hands a batch to the waiting task, and fails when the query is over; a
    /// [sink that spills](Self::spilling) hands on what it cannot take now.
    fn consume(
        &self,
        batch: Batch,
        emit: &mut dyn FnMut(Batch) -> Result<(), OperatorError>,
    ) -> Result<(), OperatorError>;

    /// Whether columns of decimals may come as 64-bit values, whatever their type says
    /// ([`Expression::evaluate_narrow`](crate::Expression::evaluate_narrow)).
    fn takes_narrow(&self) -> bool {
        false
    }

    /// Whether it only counts rows: batches may come without columns, and with any number of rows.
    fn only_counts(&self) -> bool {
        false
    }

    /// How it goes on in files when memory is refused, if it can.
    fn spilling(&self) -> Option<&dyn SpillingSink> {
        None
    }

    /// The number of independent jobs in the next round; 0 if nothing is left to do. Called by one task when all input
    /// was consumed, and again after each round.
    fn finish_jobs(&self) -> Result<usize, OperatorError>;

    /// One job of the round: on any worker, in any order, each once.
    fn finish_job(&self, job: usize) -> Result<(), OperatorError>;

    /// The batches of the result, in order where there is one, and what is still reserved for them. Once, after all
    /// rounds.
    fn take_output(&self) -> Result<(Vec<Batch>, Option<Reservation>), OperatorError>;
}

/// Streams what it gets to the waiting task.
#[derive(Clone, Copy, Debug, Default)]
pub struct Emit;

impl Sink for Emit {
    fn consume(&self, batch: Batch, emit: &mut Emitting<'_>) -> Result<(), OperatorError> {
        emit(batch)
    }

    fn finish_jobs(&self) -> Result<usize, OperatorError> {
        Ok(0)
    }

    fn finish_job(&self, job: usize) -> Result<(), OperatorError> {
        unreachable!("job {job} of a sink without jobs")
    }

    fn take_output(&self) -> Result<(Vec<Batch>, Option<Reservation>), OperatorError> {
        Ok((Vec::new(), None))
    }
}

/// Runs the rounds of a sink on so many threads; gives what comes out.
#[cfg(test)]
pub(crate) fn finish(sink: &dyn Sink, threads: usize) -> Result<Vec<Batch>, OperatorError> {
    loop {
        let jobs = sink.finish_jobs()?;
        if jobs == 0 {
            return Ok(sink.take_output()?.0);
        }
        std::thread::scope(|scope| {
            let run = |thread| (thread..jobs).step_by(threads).try_for_each(|job| sink.finish_job(job));
            let handles: Vec<_> = (0..threads).map(|thread| scope.spawn(move || run(thread))).collect();
            handles.into_iter().try_for_each(|handle| handle.join().unwrap_or_else(|_| panic!("a job panicked")))
        })?;
    }
}
