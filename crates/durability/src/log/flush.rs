//! Writing and syncing, on the log's own thread.

use std::io;
use std::sync::Arc;
use std::task::Waker;

use eris_engine::LogError;
use eris_platform::Files;
use eris_platform::messages::tell;

use super::Shared;
use super::file::{file_name, header};
use super::state::Batch;

/// Has a batch written that ends at a position.
pub(super) fn submit(shared: &Arc<Shared>, batch: Batch, end: u64) {
    let of_job = Arc::clone(shared);
    shared.writes.submit(Box::new(move |files| flush(&of_job, files, batch, end)));
}

fn flush(shared: &Arc<Shared>, files: &dyn Files, mut batch: Batch, end: u64) {
    let begun = shared.env.now();
    let since = shared.state().begun(begun);
    let written = write(shared, files, &batch);
    let now = shared.env.now();
    let (commits, wakers, outcome) = {
        let mut state = shared.state();
        state.synced(now - begun, since.map(|since| now - since));
        match written {
            Ok(()) => {
                let buffer = batch.writes.pop().map(|last| last.bytes).unwrap_or_default();
                // This has the next batch written, if there is one, before anybody is told of this one.
                let (commits, wakers) = state.written(shared, end, buffer);
                (commits, wakers, Ok(()))
            }
            Err(error) => {
                tell(format_args!("the log could not be written ({error}); no more commits are accepted"));
                let error = LogError::Failed { reason: error.to_string().into(), is_over: true };
                let (commits, wakers) = state.fail(error.clone());
                (commits, wakers, Err(error))
            }
        }
    };
    shared.decisions.push(commits, &outcome);
    wakers.into_iter().for_each(Waker::wake);
}

/// Writes a batch and makes it durable.
fn write(shared: &Shared, files: &dyn Files, batch: &Batch) -> io::Result<()> {
    for (place, write) in batch.writes.iter().enumerate() {
        if write.begins {
            write.file.file.write_all_at(&header(shared.id, write.file.first), 0)?;
        }
        write.file.file.write_all_at(&write.bytes, write.offset)?;
        // Planted: one sync is taken to do for all of a batch, though it may lie in two files.
        if !cfg!(feature = "bug_sync_of_last_file_only") || place + 1 == batch.writes.len() {
            write.file.file.sync_data()?;
        }
        if write.begins {
            let name = shared.directory.join(file_name(write.file.first));
            files.rename(&write.file.spare_path, &name)?;
            // Planted: the file's bytes are durable, and its name is not.
            if !cfg!(feature = "bug_log_name_not_synced") {
                files.sync_directory(&shared.directory)?;
            }
        }
    }
    Ok(())
}
