//! Making an empty engine what the files of a directory say. Changes no file.

use std::path::PathBuf;
use std::time::Duration;

use eris_engine::Engine;
use eris_platform::messages::tell;
use eris_storage::Timestamp;

use crate::checkpoint::{FileEntry, Manifest, WrittenSegments, load};
use crate::directory::Directory;
use crate::error::{CUT, DurabilityError};
use crate::log::{LogReader, Rest, Step};
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

/// Why reading the log came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// Nothing follows.
    End,
    /// What follows was being written when the machine or the process ended: nobody was told that it is durable.
    Torn,
    /// What follows was durable and is damaged; the database was to be opened all the same.
    Damage,
}

/// What opening did and found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecoveryReport {
    /// When it began, in microseconds since 1970.
    pub opened_unix_micros: i64,
    /// The timestamp of the checkpoint, if there was one, ...
    pub checkpoint_timestamp: Option<u64>,
    /// ... and the position up to which it has the log.
    pub checkpoint_position: Option<u64>,
    /// Where in the log reading began and ended.
    pub from: u64,
    /// See `from`.
    pub to: u64,
    /// Transactions and records that were read there; those that the checkpoint has are records only.
    pub transactions: u64,
    /// See `transactions`.
    pub records: u64,
    /// How long opening took.
    pub took: Duration,
    /// Why reading ended.
    pub stop: Stop,
    /// The file in which it ended, if there was one, ...
    pub stop_file: Option<PathBuf>,
    /// ... and at which byte of it.
    pub stop_offset: u64,
    /// Bytes that stand behind, up to the last one that is not zero.
    pub bytes_after: u64,
    /// Whole records among them.
    pub records_after: u64,
    /// Log files that were put aside, by their new names.
    pub put_aside: Vec<PathBuf>,
}

impl RecoveryReport {
    /// What somebody should know who opens or verifies the database, if there is anything: that its log does not end
    /// with a whole record, where, and what stands there.
    pub fn told(&self) -> Option<String> {
        let file = self.stop_file.as_ref().filter(|_| self.stop != Stop::End)?;
        let why = match self.stop {
            Stop::Damage => "is damaged, and what stands behind is left out, as was asked for",
            Stop::Torn | Stop::End => "ends with what was being written when the server ended",
        };
        let mut told = format!(
            "the log {why}: it stops at byte {} of \"{}\" (position {}), {} bytes with {} whole records follow",
            self.stop_offset,
            file.display(),
            self.to,
            self.bytes_after,
            self.records_after
        );
        for aside in &self.put_aside {
            told.push_str(&format!("; put aside as \"{}\"", aside.display()));
        }
        Some(told)
    }
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
    /// The same, and why it ended, for people.
    pub report: RecoveryReport,
}

/// Makes containers, rows and whatever is made of them, and sets the clock behind the last commit.
pub(crate) async fn recover(
    engine: &Engine,
    directory: &Directory,
    options: &DurabilityOptions,
    mut progress: impl FnMut(Progress) + Send,
) -> Result<Recovered, DurabilityError> {
    let _opening = engine.begin_opening();
    let (begun, opened_unix_micros) = (engine.env().now(), engine.env().unix_micros());
    let all_files = engine.env().files();
    let manifest = Manifest::read(all_files, &directory.checkpoint(), directory.id())?;
    if manifest.is_none() && directory.begins_with_checkpoint() {
        let reason = format!("\"{}\" has no checkpoint, with which it began", directory.path().display());
        return Err(DurabilityError::Missing { reason });
    }
    let checkpoint = manifest.as_ref().map(|manifest| (manifest.timestamp, manifest.position));
    let replay_from = manifest.as_ref().map_or(0, |manifest| manifest.replay_from);
    let mut reader = LogReader::open(all_files, &directory.log(), directory.id(), replay_from)?;
    if manifest.is_none() && reader.has_no_files() && directory.may_have_lost_its_log() {
        tell(format_args!(
            "the database in \"{}\" has no log file and no checkpoint, and is empty; if there should be something in \
             it, restore the directory from a backup",
            directory.path().display()
        ));
    }
    let mut replay = Replay::new(engine, reader.files().clone(), options);
    let (mut files, mut written, mut covered) = (Vec::new(), WrittenSegments::default(), 0);
    if let Some(mut manifest) = manifest {
        let all_bytes = manifest.blocks.iter().map(|block| block.place.length).sum();
        let mut told =
            |done_bytes| progress(Progress { phase: Phase::Checkpoint, done_bytes, all_bytes, transactions: 0 });
        let loaded = load(engine, directory, &mut manifest, &mut told).await?;
        replay.begin_behind(manifest.timestamp, manifest.position, loaded.left);
        (files, written) = (manifest.files, loaded.written);
        covered = manifest.position;
    }
    let (from, all_bytes) = (reader.position(), reader.bytes_left());
    let state =
        |position, transactions| Progress { phase: Phase::Log, done_bytes: position - from, all_bytes, transactions };
    let (mut told, mut durable, mut abandoned) = (from, from, Vec::new());
    let (mut records, mut is_damaged) = (0, false);
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
                is_damaged = true;
                break;
            }
            Err(DurabilityError::Damaged { file, offset, reason, help: CUT }) => {
                let Rest { bytes, records, .. } = reader.rest()?;
                let reason = format!("{reason}; {bytes} bytes with {records} whole records stand there and behind");
                return Err(DurabilityError::Damaged { file, offset, reason, help: CUT });
            }
            Err(error) => return Err(error),
        };
        records += 1;
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
    let rest = reader.rest()?;
    let (last, transactions) = (replay.last, replay.transactions);
    replay.finish().await.map_err(|unusable| unusable_log(directory, unusable))?;
    engine.continue_behind(last);
    let stop = match rest.bytes {
        _ if is_damaged => Stop::Damage,
        0 => Stop::End,
        _ => Stop::Torn,
    };
    let report = RecoveryReport {
        opened_unix_micros,
        checkpoint_timestamp: checkpoint.map(|(timestamp, _)| timestamp),
        checkpoint_position: checkpoint.map(|(_, position)| position),
        from,
        to: position,
        transactions,
        records,
        took: engine.env().now() - begun,
        stop,
        stop_file: rest.file,
        stop_offset: rest.offset,
        bytes_after: rest.bytes,
        records_after: rest.records,
        put_aside: Vec::new(),
    };
    Ok(Recovered { last, position, durable, abandoned, files, written, log: state(position, transactions), report })
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
