//! Where the log is, what waits to be written, and who waits for it.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use eris_engine::{LogError, PendingCommit};
use eris_platform::Nanos;
use eris_storage::TransactionId;

use crate::checkpoint::Control;
use crate::error::is_full;

use super::file::{FILE_HEADER_BYTES, LogFile, create_spare};
use super::record::{self, Kind, Record};
use super::{BATCH_BYTES_MAX, Shared, UNDECIDED_MAX};

/// A system that refused a file is asked again after this time.
const REFUSAL_LASTS: Duration = Duration::from_secs(1);
/// Bytes at the end of a file for definitions alone: they cannot wait for another file.
const DEFINITIONS_BYTES: u64 = 1 << 20;
/// So many bytes without a synchronous commit are written without delay.
const WRITE_BYTES: usize = 1 << 20;

/// Workers look for a batch that is on its way if that takes no longer, as a rule: beyond it, waking them is cheap.
const WATCH_MAX: Duration = Duration::from_micros(250);
/// The weight of the last batch in how long one takes as a rule: one of so many.
const USUAL_OF: u32 = 8;

/// What a log did. Only grows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogStatistics {
    /// Transactions in it.
    pub commits: u64,
    /// Bytes of records.
    pub bytes: u64,
    /// Times that it was written and synced.
    pub syncs: u64,
    /// Nanoseconds spent with that.
    pub busy_nanos: u64,
    /// Nanoseconds in which synchronous commits waited and nothing was written.
    pub idle_nanos: u64,
}

/// Consecutive bytes of one file.
pub(super) struct Write {
    pub file: LogFile,
    pub offset: u64,
    pub bytes: Vec<u8>,
    /// Whether these are the file's first records: it gets its name then.
    pub begins: bool,
}

/// What is written and synced together.
#[derive(Default)]
pub(super) struct Batch {
    pub writes: Vec<Write>,
    pub bytes: usize,
}

/// A commit in the log.
struct InFlight {
    /// Where its record ends.
    end: u64,
    commit: PendingCommit,
}

/// The error of a commit that needs a further file, which cannot be made. Nothing is lost by that, and making one is
/// tried again.
pub(super) fn no_file(capacity: u64, error: &io::Error) -> LogError {
    let reason = format!("no further file of {capacity} bytes: {error}").into();
    if is_full(error) { LogError::Full { reason } } else { LogError::Failed { reason, is_over: false } }
}

/// The error of whoever comes too late.
pub(super) fn closed() -> LogError {
    LogError::Failed { reason: Arc::from("the database is closed"), is_over: true }
}

/// Whether there is room.
pub(super) enum Appending {
    Now,
    Later,
}

/// What came since the last checkpoint.
#[derive(Default)]
struct Growth {
    /// Where the last one began.
    from: u64,
    /// Whether the last one failed.
    is_owed: bool,
    /// Whoever takes them was woken for the first byte, and for the bytes at which one is due.
    woken: bool,
    woken_for_bytes: bool,
    log_bytes: u64,
    control: Weak<Control>,
}

#[expect(clippy::struct_excessive_bools, reason = "each answers a question of its own")]
pub(super) struct State {
    /// Where the next record goes.
    position: u64,
    durable: u64,
    /// Where what was not handed over to be written begins: it is written when all in front of it is durable.
    batch_from: u64,
    /// The file that takes it; none until there is one.
    current: Option<LogFile>,
    /// Whether the current file has records, written or not.
    has_begun: bool,
    next: Option<LogFile>,
    /// The body of the record in front of all others, until it is appended.
    start: Option<String>,
    files_made: u64,
    is_allocating: bool,
    /// The last time that the system refused a file.
    refused: Option<(LogError, Nanos)>,
    failure: Option<LogError>,
    /// Nothing more is accepted, and what was accepted is still written.
    is_closing: bool,
    batch: Batch,
    is_writing: bool,
    /// What this lock's holder hands over when it unlocks, and where that ends.
    to_write: Option<(Batch, u64)>,
    /// Whether somebody will write soon.
    pub is_delayed: bool,
    /// Since when commits wait and nothing is written.
    idle_since: Option<Nanos>,
    in_flight: VecDeque<InFlight>,
    wait_for_room: Vec<Waker>,
    wait_for_durable: Vec<(u64, Waker)>,
    /// Transactions under way, and where their first part is.
    parts: BTreeMap<TransactionId, u64>,
    /// A buffer to be filled again.
    buffer: Vec<u8>,
    growth: Growth,
    /// How long commits wait as a rule.
    usual: Option<Duration>,
    pub statistics: LogStatistics,
}

impl State {
    /// Begins at `position`; the record of kind [`Kind::Start`] comes first.
    pub fn new(position: u64, start: String) -> Self {
        Self {
            position,
            durable: position,
            batch_from: position,
            current: None,
            has_begun: false,
            next: None,
            start: Some(start),
            files_made: 1,
            is_allocating: false,
            refused: None,
            failure: None,
            is_closing: false,
            batch: Batch::default(),
            is_writing: false,
            to_write: None,
            is_delayed: false,
            idle_since: None,
            in_flight: VecDeque::new(),
            wait_for_room: Vec::new(),
            wait_for_durable: Vec::new(),
            parts: BTreeMap::new(),
            buffer: Vec::new(),
            growth: Growth::default(),
            usual: None,
            statistics: LogStatistics::default(),
        }
    }

    // ---- room

    /// The first file, or why there is none: it is asked for again.
    pub fn begin(&mut self, first: Result<LogFile, (LogError, Nanos)>) {
        match first {
            Ok(first) => self.next = Some(first),
            Err(refused) => self.refused = Some(refused),
        }
    }

    fn left(&self) -> u64 {
        self.current.as_ref().map_or(0, |current| current.capacity - (self.position - current.first))
    }

    /// Whether records are accepted.
    fn check_open(&self) -> Result<(), LogError> {
        self.check_works()?;
        if self.is_closing { Err(closed()) } else { Ok(()) }
    }

    /// Whether what was accepted can still become durable.
    fn check_works(&self) -> Result<(), LogError> {
        self.failure.clone().map_or(Ok(()), Err)
    }

    /// Whether a record of so many bytes may be appended. If not, the caller waits for room, which somebody sees to.
    pub fn room_for(&mut self, shared: &Arc<Shared>, length: u64) -> Result<Appending, LogError> {
        self.check_open()?;
        if self.in_flight.len() + shared.decisions.len() >= UNDECIDED_MAX || self.batch.bytes >= BATCH_BYTES_MAX {
            self.write_now(shared);
            return Ok(Appending::Later);
        }
        let wanted = length + DEFINITIONS_BYTES.min(shared.options.log_file_bytes / 4);
        if self.left() >= wanted {
            let is_half_full = self.current.as_ref().is_some_and(|current| self.left() < current.capacity / 2);
            if self.next.is_none() && is_half_full {
                self.allocate(shared, 0);
            }
            return Ok(Appending::Now);
        }
        if self.next_has(wanted) {
            self.begin_next_file(shared);
            return Ok(Appending::Now);
        }
        self.ask_for_room(shared, wanted)?;
        Ok(Appending::Later)
    }

    /// Has a file made, unless that was refused a moment ago.
    fn ask_for_room(&mut self, shared: &Arc<Shared>, wanted: u64) -> Result<(), LogError> {
        if let Some((error, at)) = &self.refused
            && !self.is_allocating
            && shared.env.now() < *at + REFUSAL_LASTS
        {
            return Err(error.clone());
        }
        self.allocate(shared, wanted);
        Ok(())
    }

    /// Definitions do not wait: there is room for some of them at the end of each file.
    pub fn room_for_definition(&mut self, shared: &Arc<Shared>, length: u64) -> Result<(), LogError> {
        self.check_open()?;
        if self.left() < length && self.next_has(length) {
            self.begin_next_file(shared);
        }
        if self.left() >= length {
            return Ok(());
        }
        // For whoever tries again.
        self.ask_for_room(shared, length)?;
        let reason = Arc::from("there is no further log file yet; try again");
        Err(self.refused.as_ref().map_or(LogError::Full { reason }, |(error, _)| error.clone()))
    }

    /// Whether the next file has room for a record of so many bytes.
    fn next_has(&self, length: u64) -> bool {
        let start = self.start.as_ref().map_or(0, |start| record::record_bytes(start.len()));
        self.next.as_ref().is_some_and(|next| next.capacity >= start + length)
    }

    fn begin_next_file(&mut self, shared: &Shared) {
        let Some(next) = self.next.take() else { unreachable!("there is a next file") };
        self.current = Some(LogFile { first: self.position, ..next });
        self.has_begun = false;
        if let Some(start) = self.start.take() {
            self.append(shared, Kind::Start, 0, |out| out.extend_from_slice(start.as_bytes()));
        }
    }

    /// Has a file made, for records of `wanted` bytes or more.
    fn allocate(&mut self, shared: &Arc<Shared>, wanted: u64) {
        if self.is_allocating {
            return;
        }
        self.is_allocating = true;
        // Too small for what is wanted.
        let old = self.next.take();
        let number = self.files_made;
        self.files_made += 1;
        let start = self.start.as_ref().map_or(0, |start| record::record_bytes(start.len()));
        let capacity = shared.options.log_file_bytes.max(start + wanted);
        let of_job = Arc::clone(shared);
        shared.allocations.submit(Box::new(move |files| {
            let made = of_job.in_directory(files, || {
                if let Some(old) = old {
                    // It may be needed for the new one's room; if it stays, it is removed when the log is opened again.
                    let _ = files.remove(&old.spare_path);
                }
                create_spare(files, &of_job.directory, number, capacity)
            });
            let waiting = {
                let mut state = of_job.state();
                state.is_allocating = false;
                match made {
                    Ok((spare_path, file)) => {
                        state.refused = None;
                        state.next = Some(LogFile { file, spare_path, first: 0, capacity });
                    }
                    Err(error) => {
                        state.refused = Some((no_file(capacity, &error), of_job.env.now()));
                    }
                }
                std::mem::take(&mut state.wait_for_room)
            };
            waiting.into_iter().for_each(Waker::wake);
        }));
    }

    pub fn wait_for_room(&mut self, waker: &Waker) {
        self.wait_for_room.push(waker.clone());
    }

    // ---- appending

    /// Appends a record, for which there is room.
    pub fn append(&mut self, shared: &Shared, kind: Kind, timestamp: u64, write: impl FnOnce(&mut Vec<u8>)) {
        let Some(current) = &self.current else { unreachable!("there is room") };
        let (first, capacity) = (current.first, current.capacity);
        let offset = FILE_HEADER_BYTES + (self.position - first);
        let begins = !self.has_begun;
        self.has_begun = true;
        if begins || self.batch.writes.is_empty() {
            let bytes = std::mem::take(&mut self.buffer);
            self.batch.writes.push(Write { file: current.clone(), offset, bytes, begins });
        }
        let Some(last) = self.batch.writes.last_mut() else { unreachable!("a write was pushed") };
        let before = last.bytes.len();
        let record = Record { position: self.position, durable: self.batch_from, timestamp, kind, body: &[] };
        record::append(&mut last.bytes, shared.id, record, write);
        let length = last.bytes.len() - before;
        self.batch.bytes += length;
        self.position += length as u64;
        self.statistics.bytes += length as u64;
        let used = self.position - first;
        assert!(used <= capacity, "{used} bytes in a log file for {capacity}");
        self.note_growth();
    }

    // ---- checkpoints

    pub fn watch(&mut self, control: &Arc<Control>, log_bytes: u64) {
        let control = Arc::downgrade(control);
        self.growth = Growth { from: self.position, log_bytes, control, ..Growth::default() };
    }

    pub fn grown_bytes(&self) -> u64 {
        let grown = self.position - self.growth.from.min(self.position);
        grown.max(u64::from(self.growth.is_owed))
    }

    fn note_growth(&mut self) {
        let is_due = self.grown_bytes() >= self.growth.log_bytes;
        if !self.growth.woken || (is_due && !self.growth.woken_for_bytes) {
            self.growth.woken = true;
            self.growth.woken_for_bytes = is_due;
            if let Some(control) = self.growth.control.upgrade() {
                control.wake();
            }
        }
    }

    /// Where it begins, and where the log has to be read from.
    pub fn begin_checkpoint(&mut self) -> (u64, u64) {
        self.growth.from = self.position;
        let first_part = self.parts.values().min().copied();
        (self.position, first_part.unwrap_or(self.position))
    }

    /// One that failed is tried again, also if nothing follows; but none succeeds whose log has failed.
    pub fn end_checkpoint(&mut self, succeeded: bool) {
        self.growth.is_owed = !succeeded && self.failure.is_none();
        self.growth.woken = self.grown_bytes() > 0;
        self.growth.woken_for_bytes = false;
    }

    /// A commit whose record was appended last.
    pub fn push_commit(&mut self, commit: PendingCommit) {
        self.in_flight.push_back(InFlight { end: self.position, commit });
    }

    pub fn note_part(&mut self, transaction: TransactionId) {
        let first = self.parts.entry(transaction).or_insert(self.position);
        // Planted: the place of its last part stands for all of them.
        if cfg!(feature = "bug_checkpoint_from_last_part") {
            *first = self.position;
        }
    }

    pub fn forget_parts(&mut self, transaction: TransactionId) {
        if !self.parts.is_empty() {
            self.parts.remove(&transaction);
        }
    }

    // ---- writing

    /// Has what was appended written, unless somebody is about to.
    pub fn write_now(&mut self, shared: &Arc<Shared>) {
        if self.is_writing || self.batch.writes.is_empty() {
            return;
        }
        self.is_writing = true;
        self.is_delayed = false;
        if !self.in_flight.is_empty() {
            let now = shared.env.now();
            self.idle_since = Some(now);
            if let Some(usual) = self.usual.filter(|usual| *usual <= WATCH_MAX) {
                shared.watched_until.store((now + usual * 2).0, Ordering::Relaxed);
            }
        }
        self.batch_from = self.position;
        self.to_write = Some((std::mem::take(&mut self.batch), self.position));
    }

    /// What is to be written now, and the position where it ends: for whoever unlocks this.
    pub fn take_to_write(&mut self) -> Option<(Batch, u64)> {
        self.to_write.take()
    }

    /// Nobody looks any longer for what is told: for the next batch, if commits wait for one, and else for nothing.
    pub fn end_watch(&self, shared: &Shared) {
        if self.in_flight.is_empty() {
            shared.watched_until.store(0, Ordering::Relaxed);
        }
    }

    /// Has what was appended written when others had time to come along.
    pub fn write_soon(&mut self, shared: &Arc<Shared>) {
        if self.batch.bytes >= WRITE_BYTES {
            self.write_now(shared);
        } else if !self.is_writing && !self.is_delayed {
            self.is_delayed = true;
            shared.decisions.wake();
        }
    }

    /// A batch begins to be written; gives since when its commits wait for that, if it has any.
    pub fn begun(&mut self, now: Nanos) -> Option<Nanos> {
        let since = self.idle_since.take()?;
        self.statistics.idle_nanos += (now - since).as_nanos() as u64;
        Some(since)
    }

    /// A batch was written and synced, or that failed, in this time; its commits, if it has any, waited in all so long.
    pub fn synced(&mut self, took: Duration, waited: Option<Duration>) {
        self.statistics.syncs += 1;
        self.statistics.busy_nanos += took.as_nanos() as u64;
        if let Some(waited) = waited {
            let usual = self.usual.unwrap_or(waited);
            self.usual = Some((usual * (USUAL_OF - 1) + waited) / USUAL_OF);
        }
    }

    /// A batch that ended at `end` is durable; gives the commits in it, and who waits.
    pub fn written(&mut self, shared: &Arc<Shared>, end: u64, buffer: Vec<u8>) -> (Vec<PendingCommit>, Vec<Waker>) {
        self.durable = end;
        if buffer.capacity() <= WRITE_BYTES {
            self.buffer = buffer;
            self.buffer.clear();
        }
        // Planted: what was appended while this batch was on its way counts as a part of it.
        let told = if cfg!(feature = "bug_told_with_batch_before") { self.position } else { end };
        let through = self.in_flight.partition_point(|commit| commit.end <= told);
        let commits = self.in_flight.drain(..through).map(|it| it.commit).collect();
        let mut wakers = std::mem::take(&mut self.wait_for_room);
        self.wait_for_durable.retain(|(position, waker)| {
            let waits = *position > end;
            if !waits {
                wakers.push(waker.clone());
            }
            waits
        });
        self.is_writing = false;
        if !self.in_flight.is_empty() || !self.wait_for_durable.is_empty() {
            self.write_now(shared);
        } else if !self.batch.writes.is_empty() {
            self.write_soon(shared);
        }
        (commits, wakers)
    }

    pub fn has_failed(&self) -> bool {
        self.failure.is_some()
    }

    /// The log is at its end.
    pub fn fail(&mut self, error: LogError) -> (Vec<PendingCommit>, Vec<Waker>) {
        self.is_writing = false;
        self.failure.get_or_insert(error);
        self.batch = Batch::default();
        let commits = self.in_flight.drain(..).map(|it| it.commit).collect();
        let durable = self.wait_for_durable.drain(..).map(|(_, waker)| waker);
        (commits, self.wait_for_room.drain(..).chain(durable).collect())
    }

    /// Appends that the log is closed, if anything was written to it and there is room: from then on whatever is wrong
    /// in front of it is no end.
    pub fn append_end(&mut self, shared: &Shared) {
        if self.has_begun && self.failure.is_none() && self.left() >= record::record_bytes(0) {
            self.append(shared, Kind::Closed, 0, |_| {});
        }
    }

    /// Accepts nothing more; gives who waits for room in vain.
    pub fn close(&mut self) -> Vec<Waker> {
        self.is_closing = true;
        std::mem::take(&mut self.wait_for_room)
    }

    pub fn poll_durable(
        &mut self,
        shared: &Arc<Shared>,
        context: &mut Context<'_>,
        ticket: &mut Option<u64>,
    ) -> Poll<Result<(), LogError>> {
        let position = *ticket.get_or_insert(self.position);
        if self.durable >= position {
            return Poll::Ready(Ok(()));
        }
        self.check_works()?;
        self.wait_for_durable.push((position, context.waker().clone()));
        self.write_now(shared);
        Poll::Pending
    }
}
