//! Work of one query on several workers at once: tasks that take pieces from one counter until there are no more.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use eris_engine::{CancelHandle, Engine, yield_to_tasks};
use eris_operators::OperatorError;
use tokio::sync::mpsc::unbounded_channel;

use crate::errors::SqlError;
use crate::plan::operator_error;

/// Does one piece of work. A piece keeps a worker, so it should take a fraction of a millisecond.
pub(super) type Piece = Arc<dyn Fn(usize) -> Result<(), OperatorError> + Send + Sync>;

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
    let next = Arc::new(AtomicUsize::new(0));
    let _ending = Ending { next: &next, count };
    if tasks <= 1 {
        return take_pieces(&next, count, cancel, &piece).await;
    }
    let (sender, mut receiver) = unbounded_channel();
    // This task is one of them; the others run where there is a free worker.
    for _ in 1..tasks {
        let (next, piece, cancel, sender) = (Arc::clone(&next), Arc::clone(&piece), cancel.clone(), sender.clone());
        let work: Pin<Box<dyn Future<Output = ()> + Send>> = Box::pin(async move {
            let result = take_pieces(&next, count, &cancel, &piece).await;
            // What the piece holds must be gone before the query goes on, and charges it.
            drop(piece);
            // Nobody listens when the query itself has ended.
            let _ = sender.send(result);
        });
        engine.spawn(work);
    }
    drop(sender);
    let mut result = take_pieces(&next, count, cancel, &piece).await;
    for _ in 1..tasks {
        let other = receiver.recv().await.unwrap_or_else(|| Err(SqlError::internal("a part of the query was dropped")));
        result = result.and(other);
    }
    result
}

/// When the query is dropped nobody takes a further piece.
struct Ending<'a> {
    next: &'a AtomicUsize,
    count: usize,
}

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.next.store(self.count, Ordering::Relaxed);
    }
}

async fn take_pieces(next: &AtomicUsize, count: usize, cancel: &CancelHandle, piece: &Piece) -> Result<(), SqlError> {
    loop {
        let at = next.fetch_add(1, Ordering::Relaxed);
        if at >= count {
            return Ok(());
        }
        let done = if cancel.is_cancelled() {
            Err(SqlError::cancelled())
        } else {
            piece(at).map_err(|error| operator_error(&error))
        };
        if done.is_err() {
            // The others end with the piece they are at.
            next.store(count, Ordering::Relaxed);
            return done;
        }
        yield_to_tasks().await;
    }
}
