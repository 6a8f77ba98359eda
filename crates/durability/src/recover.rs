//! Making an empty engine what the files of a directory say. Changes no file.

use std::path::PathBuf;

use eris_engine::Engine;
use eris_storage::Timestamp;

use crate::checkpoint::{FileEntry, Manifest, WrittenSegments, load};
use crate::directory::Directory;
use crate::error::{CUT, DurabilityError};
use crate::log::{LogReader, Step};
use crate::options::{Damage, DurabilityOptions};
use crate::replay::{Replay, Unusable};

/// Bytes of log between two reports of progress.
const TELL_BYTES: u64 = 16 << 20;

/// What opening reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The rows of the last checkpoint.
    Checkpoint,
    /// What was committed since.
    Log,
}

/// How far opening is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// What is read.
    pub phase: Phase,
    /// Bytes that were read.
    pub done_bytes: u64,
    /// Bytes that are to be read at most.
    pub all_bytes: u64,
    /// Transactions that were done again.
    pub transactions: u64,
}

/// What was found.
pub(crate) struct Recovered {
    /// The last commit that is there.
    pub last: Timestamp,
    /// Where the log ends.
    pub position: u64,
    /// In front of this it is known to be durable.
    pub durable: u64,
    /// Log files that are left out, because of damage in front of them.
    pub abandoned: Vec<PathBuf>,
    /// Data files of the checkpoint.
    pub files: Vec<FileEntry>,
    /// Segments that are as these have them.
    pub written: WrittenSegments,
    /// What was done again.
    pub log: Progress,
}

/// Makes containers, rows and whatever is made of them, and sets the clock behind the last commit.
pub(crate) async fn recover(
    engine: &Engine,
    directory: &Directory,
    options: &DurabilityOptions,
    mut progress: impl FnMut(Progress) + Send,
) -> Result<Recovered, DurabilityError> {
    let _opening = engine.begin_opening();
    let all_files = engine.env().files();
    let manifest = Manifest::read(all_files, &directory.checkpoint(), directory.id())?;
    if manifest.is_none() && directory.begins_with_checkpoint() {
        let reason = format!("\"{}\" has no checkpoint, with which it began", directory.path().display());
        return Err(DurabilityError::Missing { reason });
    }
    let replay_from = manifest.as_ref().map_or(0, |manifest| manifest.replay_from);
    let mut reader = LogReader::open(all_files, &directory.log(), directory.id(), replay_from)?;
    let mut replay = Replay::new(engine, reader.files().clone(), options);
    let (mut files, mut written, mut covered) = (Vec::new(), WrittenSegments::default(), 0);
    if let Some(mut manifest) = manifest {
        let all_bytes = manifest.blocks.iter().map(|block| block.place.length).sum();
        let mut tell =
            |done_bytes| progress(Progress { phase: Phase::Checkpoint, done_bytes, all_bytes, transactions: 0 });
        let loaded = load(engine, directory, &mut manifest, &mut tell).await?;
        replay.begin_behind(manifest.timestamp, manifest.position, loaded.left);
        (files, written) = (manifest.files, loaded.written);
        covered = manifest.position;
    }
    let (from, all_bytes) = (reader.position(), reader.bytes_left());
    let state =
        |position, transactions| Progress { phase: Phase::Log, done_bytes: position - from, all_bytes, transactions };
    let (mut told, mut durable, mut abandoned) = (from, from, Vec::new());
    loop {
        let position = reader.position();
        if position - told >= TELL_BYTES {
            told = position;
            progress(state(position, replay.transactions));
        }
        let record = match reader.next() {
            Ok(Step::Record(record)) => record,
            Ok(Step::End) => break,
            Err(DurabilityError::Damaged { help: CUT, .. }) if options.damage == Damage::EndThere => {
                abandoned = reader.later_files();
                break;
            }
            Err(error) => return Err(error),
        };
        durable = durable.max(record.durable);
        replay.record(record).await.map_err(|unusable| unusable_log(directory, unusable))?;
    }
    let position = reader.position();
    if position < covered {
        let reason = format!(
            "the log in \"{}\" ends at position {position}, the checkpoint needs it up to {covered}: they do not \
             belong together",
            directory.log().display()
        );
        return Err(DurabilityError::Missing { reason });
    }
    let (last, transactions) = (replay.last, replay.transactions);
    replay.finish().await.map_err(|unusable| unusable_log(directory, unusable))?;
    engine.continue_behind(last);
    Ok(Recovered { last, position, durable, abandoned, files, written, log: state(position, transactions) })
}

pub(crate) fn unusable_log(directory: &Directory, unusable: Unusable) -> DurabilityError {
    match unusable {
        Unusable::Engine(error) => error.into(),
        Unusable::File(error) => error,
        Unusable::Malformed { position, reason } => DurabilityError::Damaged {
            file: directory.log(),
            offset: None,
            reason: format!("the record at position {position} cannot be used: {reason}"),
            help: CUT,
        },
    }
}
