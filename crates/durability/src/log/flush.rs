//! Writing and syncing, on the log's own thread.

use std::io;
use std::sync::Arc;
use std::task::Waker;

use eris_platform::Files;

use super::Shared;
use super::file::{LogFile, file_name, header};
use super::named::NamedFile;
use super::state::Batch;
use crate::directory::Kept;
use crate::error::DurabilityError;

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
    let (commits, wakers) = {
        let mut state = shared.state();
        state.synced(now - begun, since.map(|since| now - since));
        match written {
            Ok(()) => {
                let buffer = batch.writes.pop().map(|last| last.bytes).unwrap_or_default();
                // This has the next batch written, if there is one, before anybody is told of this one.
                state.written(shared, end, buffer)
            }
            Err(error) => {
                drop(state);
                return shared.fail(&error.to_string());
            }
        }
    };
    shared.decisions.push(commits, &Ok(()));
    wakers.into_iter().for_each(Waker::wake);
}

/// What a look found, as what writing fails with.
fn found<T>(looked: Result<T, DurabilityError>) -> io::Result<T> {
    looked.map_err(|error| io::Error::other(error.to_string()))
}

/// Writes a batch and makes it durable, in the directory and the file to which their paths lead: files that are
/// not found again are as good as none.
fn write(shared: &Shared, files: &dyn Files, batch: &Batch) -> io::Result<()> {
    let kept = found(shared.lock.keep())?;
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
            give_name(shared, files, &kept, &write.file)?;
        }
    }
    found(kept.look(files).and_then(|()| shared.look_at_file(files)))
}

/// Gives a file its name, if the one before still has its own: what is in this one is found only together with that.
fn give_name(shared: &Shared, files: &dyn Files, kept: &Kept<'_>, file: &LogFile) -> io::Result<()> {
    // No look meanwhile: the file before may be removed as soon as this one has its name.
    let mut named = shared.named();
    found(kept.look_closely(files))?;
    if let Some(before) = &*named {
        found(before.look(files))?;
    }
    let spare = NamedFile::new(file.spare_path.clone(), Arc::clone(&file.file))?;
    found(spare.look(files))?;
    let name = shared.directory.join(file_name(file.first));
    files.rename(&file.spare_path, &name)?;
    // Planted: the file's bytes are durable, and its name is not.
    if !cfg!(feature = "bug_log_name_not_synced") {
        files.sync_directory(&shared.directory)?;
    }
    // The name may have been given in another directory.
    found(kept.look_closely(files))?;
    *named = Some(NamedFile::new(name, Arc::clone(&file.file))?);
    Ok(())
}
