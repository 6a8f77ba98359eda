//! Work of one query on several workers at once: tasks that take pieces from one counter until there are no more.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::Poll;

use eris_engine::{CancelHandle, Engine, yield_to_tasks};
use eris_operators::OperatorError;
use tokio::sync::mpsc::unbounded_channel;

use crate::errors::SqlError;
use crate::plan::operator_error;

/// Does one piece of work, or a part of it and says so by `Pending`; then it is called again, by the same task. A call
/// keeps a worker, so it should take a fraction of a millisecond.
pub(super) type Piece = Arc<dyn Fn(usize) -> Result<Poll<()>, OperatorError> + Send + Sync>;

/// Does pieces `0..count`, each once, on so many workers; in the task itself if there is one only. The first error ends
/// it.
pub(super) async fn on_workers(
    engine: &Engine,
    cancel: &CancelHandle,
    workers: usize,
    count: usize,
    piece: Piece,
) -> Result<(), SqlError> {
    let tasks = workers.min(count);
    let pieces = Arc::new(Pieces { next: AtomicUsize::new(0), count, over: AtomicBool::new(false) });
    let _ending = Ending(&pieces);
    if tasks <= 1 {
        return take_pieces(&pieces, cancel, &piece).await;
    }
    let (sender, mut receiver) = unbounded_channel();
    // This task is one of them; the others run where there is a free worker.
    for _ in 1..tasks {
        let (pieces, piece, cancel, sender) = (Arc::clone(&pieces), Arc::clone(&piece), cancel.clone(), sender.clone());
        let work: Pin<Box<dyn Future<Output = ()> + Send>> = Box::pin(async move {
            let result = take_pieces(&pieces, &cancel, &piece).await;
            // What the piece holds must be gone before the query goes on, and charges it.
            drop(piece);
            // Nobody listens when the query itself has ended.
            let _ = sender.send(result);
        });
        engine.spawn(work);
    }
    drop(sender);
    let mut result = take_pieces(&pieces, cancel, &piece).await;
    for _ in 1..tasks {
        let other = receiver.recv().await.unwrap_or_else(|| Err(SqlError::internal("a part of the query was dropped")));
        result = result.and(other);
    }
    result
}

/// Which pieces are left.
struct Pieces {
    next: AtomicUsize,
    count: usize,
    /// One failed, or nobody waits any more: nothing goes on, not even a piece that has begun.
    over: AtomicBool,
}

impl Pieces {
    fn take(&self) -> Option<usize> {
        let at = self.next.fetch_add(1, Ordering::Relaxed);
        (at < self.count && !self.is_over()).then_some(at)
    }

    fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    fn end(&self) {
        self.over.store(true, Ordering::Relaxed);
    }
}

/// When the query is dropped nobody goes on.
struct Ending<'a>(&'a Pieces);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// Nor when a part of it panics.
struct EndingByPanic<'a>(&'a Pieces);

impl Drop for EndingByPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.end();
        }
    }
}

async fn take_pieces(pieces: &Pieces, cancel: &CancelHandle, piece: &Piece) -> Result<(), SqlError> {
    let _ending = EndingByPanic(pieces);
    while let Some(at) = pieces.take() {
        loop {
            if cancel.is_cancelled() {
                pieces.end();
                return Err(SqlError::cancelled());
            }
            let done = piece(at).map_err(|error| operator_error(&error)).inspect_err(|_| pieces.end())?;
            yield_to_tasks().await;
            if done.is_ready() {
                break;
            }
            if pieces.is_over() {
                return Ok(());
            }
        }
    }
    Ok(())
}
