//! Bulk load: rows are gathered per partition, sealed outside of any latch, and attached under the transaction.
//!
//! Old state stays visible until the transaction commits; the segments carry its lock word until then. A partition that
//! split while rows were gathered divides what it gets (see `partition::forward`).

use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::time::Duration;

use eris_platform::memory::RefusedBy;
use eris_platform::{MemoryExceeded, Nanos, Reservation};
use eris_storage::{
    Batch, BuildForm, BuildOptions, ContainerId, Key, PartitionId, SealedSegment, SegmentIdentity, Value, segment_bytes,
};

use super::through_index::knew_all;
use super::{Transaction, group_by_partition};
use crate::container::Container;
use crate::dataflow::{Attachment, Work};
use crate::error::EngineError;
use crate::message::{Message, Primitive};
use crate::options::LATCHED_RETRY;
use crate::partition::Partition;
use crate::partition_table::{PartitionTable, Partitioning};
use crate::placement::split_above;
use crate::results::Results;
use crate::timer::Sleep;
use crate::write_rules::KnownRules;

/// Segments under way per worker before the load waits for the oldest.
const IN_FLIGHT_PER_WORKER: usize = 2;
/// Fewer rows than this are inserted as rows: a segment of them would be compacted soon anyway.
const SEAL_ROWS_MIN: usize = 1_024;

/// Rows of a partition that have the bytes of a segment, and at least so many, are not gathered any further. While they
/// become one they are there up to four times: gathered, in one piece, sealed and in the log.
const GATHERED_BYTES_MIN: u64 = 2 << 20;
/// Nor are those of all partitions together that have this share: the largest part goes first.
const GATHERED_SHARE_OF_ALL: u64 = 8;
/// Rows that become no segment are sent as so many bytes at a time, if they are several batches.
const SENT_BYTES: u64 = 1 << 20;

/// How often a load tries to get at a partition that it would leave behind.
const LATCH_TRIES: usize = 20;
/// Maximum wait of a whole segment for a partition that is copying rows. Beside other work, copying the rows of one
/// segment can take more than 100 ms; a load that waits for less outruns the split.
const CHANGE_WAIT: Duration = Duration::from_secs(2);
/// How long it waits for one to begin with that, at most. Not every partition can be split.
const BEGIN_WAIT: Duration = Duration::from_millis(5);
/// A refused request fails after this many retries in a row that found no more free memory.
const TRIES_IN_VAIN: u32 = 3;
/// Maximum time for all retries of one request.
const TRIES_TIME: Duration = Duration::from_secs(10);
/// Maximum wait for memory before each retry.
const ROOM_WAIT: Duration = Duration::from_secs(1);

/// A bulk load within a transaction.
pub struct BulkLoad<'t> {
    transaction: &'t mut Transaction,
    container: Arc<Container>,
    table: Arc<PartitionTable>,
    gathered: Vec<Gathered>,
    gathered_bytes: Reservation,
    in_flight: VecDeque<InFlight>,
    segments: Vec<Weak<SegmentIdentity>>,
    /// Whether segments are encoded later, while there is memory for that.
    encodes_later: bool,
    rows: u64,
    /// What was known when it began: foreign keys that are added later were not checked.
    rules: KnownRules,
}

/// A segment on its way to a partition.
struct InFlight {
    partition: PartitionId,
    rows: u64,
    bytes: u64,
    results: Results,
}

/// Rows of one partition that wait until they are enough.
struct Gathered {
    partition: Partition,
    batches: Vec<Batch>,
    rows: usize,
    bytes: u64,
}

/// Retries of one request for memory.
#[derive(Default)]
struct Tries {
    until: Option<Nanos>,
    in_vain: u32,
}

/// Why rows are not gathered any further.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Enough {
    /// They are a whole segment; what is left beside whole ones waits.
    Rows,
    /// All of them have to go, because of their bytes.
    Bytes,
    /// The load ends.
    Last,
}

impl Gathered {
    fn push(&mut self, rows: Batch) {
        self.rows += rows.rows;
        self.bytes += rows.bytes() as u64;
        self.batches.push(rows);
    }
}

impl Drop for BulkLoad<'_> {
    fn drop(&mut self) {
        self.container.end_bulk_load();
    }
}

impl<'t> BulkLoad<'t> {
    pub(super) fn new(transaction: &'t mut Transaction, container: ContainerId) -> Result<Self, EngineError> {
        let container = transaction.runtime.container(container)?;
        let table = container.table();
        let gathered_bytes = transaction.memory().reserve("bulk load");
        container.begin_bulk_load();
        let rules = container.rules().known();
        Ok(Self {
            transaction,
            container,
            table,
            gathered: Vec::new(),
            gathered_bytes,
            in_flight: VecDeque::new(),
            segments: Vec::new(),
            encodes_later: false,
            rows: 0,
            rules,
        })
    }

    /// Attaches segments as plain columns, which maintenance encodes afterwards: the rows are there sooner. It is done
    /// as long as the memory in use is less than half of the limit.
    #[must_use]
    pub fn encode_later(mut self) -> Self {
        self.encodes_later = true;
        self
    }

    fn form(&self, rows: &Batch) -> BuildForm {
        if !self.encodes_later {
            return BuildForm::AsLaidOut;
        }
        let runtime = &self.transaction.runtime;
        if runtime.has_room_for_plain_columns(rows.bytes() as u64) {
            return BuildForm::Unencoded;
        }
        // Those that are plain are encoded now, while there is room to do so.
        if runtime.is_opening() {
            runtime.unblock_maintenance();
        }
        BuildForm::AsLaidOut
    }

    /// Adds rows, columns in schema order.
    pub async fn append(&mut self, rows: Batch) -> Result<(), EngineError> {
        if self.transaction.cancel().is_cancelled() {
            return Err(EngineError::Cancelled);
        }
        self.rows += rows.rows as u64;
        self.transaction.check_serializable()?;
        self.transaction.insert_entries(&self.container, &rows).await?;
        self.transaction.note_inserted(&self.container, &rows)?;
        self.transaction.check_part().await?;
        self.refresh_table();
        self.reserve_gathered(rows.bytes() as u64).await?;
        self.distribute(rows);
        let segment_rows = self.container.schema().segment_rows as usize;
        while let Some((index, enough)) = self.enough(segment_rows) {
            let gathered = self.gathered.swap_remove(index);
            self.seal(gathered, segment_rows, enough).await?;
        }
        self.transaction.write_ahead_if_long().await
    }

    /// What is gathered for one of the partitions and should not be any further, if anything is.
    fn enough(&self, segment_rows: usize) -> Option<(usize, Enough)> {
        if let Some(index) = self.gathered.iter().position(|gathered| gathered.rows >= segment_rows) {
            return Some((index, Enough::Rows));
        }
        let limit = self.transaction.runtime.memory.configured_limit();
        let of_one = segment_bytes(limit).max(GATHERED_BYTES_MIN);
        let of_all = (limit / GATHERED_SHARE_OF_ALL).max(GATHERED_BYTES_MIN);
        let (index, largest) = self.gathered.iter().enumerate().max_by_key(|(_, gathered)| gathered.bytes)?;
        let all: u64 = self.gathered.iter().map(|gathered| gathered.bytes).sum();
        (largest.bytes >= of_one || all >= of_all).then_some((index, Enough::Bytes))
    }

    /// Attaches what is left and waits for everything; returns the number of rows.
    pub async fn finish(self) -> Result<u64, EngineError> {
        self.finish_segments().await.map(|(rows, _)| rows)
    }

    /// The same; also gives the segments that were made, each with rows in the order in which they came. A partition
    /// that split meanwhile has made other ones of the same rows, and fewer rows than a segment is worth are in none.
    pub async fn finish_segments(mut self) -> Result<(u64, Vec<Weak<SegmentIdentity>>), EngineError> {
        self.refresh_table();
        let segment_rows = self.container.schema().segment_rows as usize;
        loop {
            while let Some(gathered) = self.gathered.pop() {
                self.seal(gathered, segment_rows, Enough::Last).await?;
            }
            self.land_all().await?;
            if self.gathered.is_empty() {
                break;
            }
        }
        knew_all(&self.container, self.rules)?;
        self.transaction.check_operation().await?;
        self.transaction.check_serializable()?;
        Ok((self.rows, std::mem::take(&mut self.segments)))
    }

    /// After a split, what was gathered under the old bounds is divided anew.
    fn refresh_table(&mut self) {
        let table = self.container.table();
        if table.version == self.table.version {
            return;
        }
        self.table = table;
        if !self.table.partitioning.has_positions() {
            return;
        }
        for gathered in std::mem::take(&mut self.gathered) {
            for batch in gathered.batches {
                self.distribute(batch);
            }
        }
    }

    fn distribute(&mut self, rows: Batch) {
        if !self.table.partitioning.has_positions() && !self.gathered.is_empty() {
            // One partition at a time gets whole segments.
            self.gathered[0].push(rows);
            return;
        }
        // A few rows may wait for long, and would keep the texts of all.
        for (partition, rows) in group_by_partition(&self.container, &self.table, rows, Batch::take_alone) {
            if let Some(gathered) = self.gathered.iter_mut().find(|gathered| gathered.partition.id == partition.id) {
                gathered.push(rows);
                continue;
            }
            let mut gathered = Gathered { partition, batches: Vec::new(), rows: 0, bytes: 0 };
            gathered.push(rows);
            self.gathered.push(gathered);
        }
    }

    /// Seals whole segments of what was gathered, and the remainder, unless that can wait: then it is gathered further.
    async fn seal(&mut self, gathered: Gathered, segment_rows: usize, enough: Enough) -> Result<(), EngineError> {
        if gathered.rows < SEAL_ROWS_MIN.min(segment_rows) {
            return self.send(gathered, segment_rows, enough).await;
        }
        let several = gathered.batches.len() > 1;
        if several {
            // For a moment they are there in parts and in one piece.
            self.reserve_gathered(gathered.bytes).await?;
        }
        let rows = Batch::concat(&gathered.batches);
        drop(gathered.batches);
        if several {
            self.give_back(gathered.bytes);
        }
        let all = enough != Enough::Rows;
        let mut at = 0;
        while rows.rows - at >= segment_rows || (all && at < rows.rows) {
            let length = segment_rows.min(rows.rows - at);
            let part = if length == rows.rows { rows.clone() } else { rows.slice(at, length) };
            let is_whole = length >= segment_rows || enough == Enough::Bytes;
            if is_whole && self.let_split_end(&gathered.partition).await?
                || self.split_above(&gathered.partition, &part).await?
            {
                break;
            }
            if !self.attach(&gathered.partition, part, segment_rows).await? {
                break;
            }
            at += length;
        }
        // As long as they wait, they would keep the memory of those that were sealed.
        let left = match at {
            0 => rows,
            _ => rows.take_alone(&(at as u32..rows.rows as u32).collect::<Vec<_>>()),
        };
        if left.rows > 0 {
            // Under the table of now: the partition may have been cut above.
            self.distribute(left);
        }
        self.count_gathered()
    }

    /// Sends rows that are too few for a segment as rows, a few batches at a time. They are neither brought into one
    /// piece nor charged twice on their way: they may be long.
    async fn send(&mut self, gathered: Gathered, segment_rows: usize, enough: Enough) -> Result<(), EngineError> {
        let mut batches = VecDeque::from(gathered.batches);
        let mut is_first = true;
        while !batches.is_empty() {
            let (mut count, mut bytes) = (0, 0);
            while let Some(batch) = batches.get(count)
                && (count == 0 || bytes + batch.bytes() as u64 <= SENT_BYTES)
            {
                bytes += batch.bytes() as u64;
                count += 1;
            }
            let part = Batch::concat(&batches.drain(..count).collect::<Vec<_>>());
            // Once for all: each of many parts would otherwise begin a partition.
            if std::mem::take(&mut is_first)
                && (enough == Enough::Bytes && self.let_split_end(&gathered.partition).await?
                    || self.split_above(&gathered.partition, &part).await?)
            {
                // As above.
                self.distribute(part);
                for batch in batches {
                    self.distribute(batch);
                }
                break;
            }
            self.give_back(bytes);
            self.attach(&gathered.partition, part, segment_rows).await?;
        }
        self.count_gathered()
    }

    /// Gives back what was reserved for gathered rows, as far as it is: in parts they may have a few bytes more.
    fn give_back(&self, bytes: u64) {
        self.gathered_bytes.shrink(bytes.min(self.gathered_bytes.bytes()));
    }

    /// Reserves what is gathered now.
    fn count_gathered(&self) -> Result<(), EngineError> {
        let kept = self.gathered.iter().map(|gathered| gathered.bytes).sum();
        Ok(self.gathered_bytes.resize(kept)?)
    }

    /// Before a whole segment: waits for a partition that has outgrown its limits to give rows away, a few at a time.
    /// It would never have given all of them while a load brings more at once, could not be cut meanwhile, and would
    /// hold all of it twice. What stands in the way of that may stay for long, so the load goes on after a while. True
    /// if the partition has other bounds now.
    async fn let_split_end(&mut self, partition: &Partition) -> Result<bool, EngineError> {
        let runtime = Arc::clone(&self.transaction.runtime);
        let options = &runtime.options;
        let is_divisible = self.table.partitioning.has_positions();
        let is_outgrown = || partition.rows() > options.split_rows || partition.bytes() > options.split_bytes;
        let bounds = self.table.bounds_of(partition.id);
        let asked = runtime.env.now();
        while !self.container.is_dropped() {
            let wait = match partition.is_giving_away() {
                true => CHANGE_WAIT,
                false if is_divisible && is_outgrown() => BEGIN_WAIT,
                false => break,
            };
            if runtime.env.now() >= asked + wait {
                break;
            }
            if self.transaction.cancel().is_cancelled() {
                return Err(EngineError::Cancelled);
            }
            // A segment that is not attached yet is in the way of the switch.
            self.land_all().await?;
            Sleep::until(&runtime, runtime.env.now() + LATCHED_RETRY).await;
        }
        self.refresh_table();
        Ok(self.table.bounds_of(partition.id) != bounds)
    }

    /// Rising keys: when the partition is large enough and `rows` lie above what it holds, they go on in an empty one,
    /// so that nothing has to be moved later. True if there is one now. The first few of `rows` may share their
    /// position with the last ones of the partition.
    async fn split_above(&mut self, partition: &Partition, rows: &Batch) -> Result<bool, EngineError> {
        let runtime = Arc::clone(&self.transaction.runtime);
        let partitioning = Arc::clone(&self.table.partitioning);
        if !matches!(*partitioning, Partitioning::Range(_)) || !self.may_be_left(partition, rows) {
            return Ok(false);
        }
        // What is under way may lie above, too, and counts only once.
        self.land_all().await?;
        if !self.may_be_left(partition, rows) {
            return Ok(false);
        }
        let mut cuts = lowest_positions(&partitioning, rows);
        if partition.rows() == 0 {
            // Nothing can share a position with the first row.
            cuts.truncate(1);
        }
        for _ in 0..LATCH_TRIES {
            if let Some(mut state) = partition.try_latch() {
                let mut cut = |(at, values): &(Key, Vec<Value>)| {
                    split_above(&runtime, &self.container, partition, &mut state, at.clone(), values)
                };
                let split = cuts.iter().any(&mut cut);
                drop(state);
                if split {
                    self.refresh_table();
                }
                return Ok(split);
            }
            // Maintenance settles what was just loaded.
            Sleep::until(&runtime, runtime.env.now() + LATCHED_RETRY).await;
        }
        Ok(false)
    }

    /// Sends rows to a partition, as a segment if there are enough for one. Sends nothing and returns false if the
    /// bounds of the partition changed while the load waited for memory.
    async fn attach(&mut self, partition: &Partition, rows: Batch, segment_rows: usize) -> Result<bool, EngineError> {
        let limit = IN_FLIGHT_PER_WORKER * self.transaction.runtime.options.workers;
        while self.in_flight.len() >= limit {
            self.land_oldest().await?;
        }
        let (count, bytes) = (rows.rows as u64, rows.bytes() as u64);
        let as_rows = rows.rows < SEAL_ROWS_MIN.min(segment_rows);
        let (work, primitive, attachment) = if as_rows {
            (Work::Insert, Primitive::Insert, Attachment::Rows(rows))
        } else {
            let Some(segment) = self.build(partition, &rows).await? else { return Ok(false) };
            (Work::Attach, Primitive::Attach, Attachment::Segment(segment))
        };
        let transaction = &*self.transaction;
        let operator = Transaction::operator(&self.container, &self.table, work, None);
        let dataflow = transaction.dataflow(vec![operator]);
        let attachment = dataflow.attach(attachment)?;
        let header = transaction.header(&dataflow, primitive, Some(partition));
        let message = Message::new(header, &[&attachment.to_le_bytes()]);
        let results = transaction.start(dataflow, vec![message]);
        self.in_flight.push_back(InFlight { partition: partition.id, rows: count, bytes, results });
        Ok(true)
    }

    /// Builds a segment and waits for memory if needed. `None`: the bounds of the partition changed meanwhile, so the
    /// rows have to be distributed again.
    async fn build(&mut self, partition: &Partition, rows: &Batch) -> Result<Option<Arc<SealedSegment>>, EngineError> {
        let (mut tries, bounds) = (Tries::default(), self.table.bounds_of(partition.id));
        loop {
            let runtime = &self.transaction.runtime;
            let arena = runtime.machine.arena(partition.home());
            let dictionaries = Some(self.container.dictionaries());
            let options = BuildOptions { memory: &runtime.memory, dictionaries, arena, form: self.form(rows) };
            match SealedSegment::build_in(&self.container.schema(), rows, &options) {
                Ok(segment) => {
                    self.segments.push(Arc::downgrade(segment.identity()));
                    return Ok(Some(segment));
                }
                Err(refused) => self.make_room(refused.into(), &mut tries).await?,
            }
            self.refresh_table();
            if self.table.bounds_of(partition.id) != bounds {
                return Ok(None);
            }
        }
    }

    /// Reserves memory for gathered rows and waits for it if needed.
    async fn reserve_gathered(&mut self, bytes: u64) -> Result<(), EngineError> {
        let mut tries = Tries::default();
        while let Err(refused) = self.gathered_bytes.grow(bytes) {
            self.make_room(refused.into(), &mut tries).await?;
        }
        Ok(())
    }

    /// Called after a refusal. A load that fails loses all its rows, so if memory was refused it lands the segments
    /// under way and waits for memory to be reclaimed. `Ok`: retry the request.
    async fn make_room(&mut self, refused: EngineError, tries: &mut Tries) -> Result<(), EngineError> {
        let may_come = |refused: &MemoryExceeded| refused.refused_by != RefusedBy::Statement;
        let runtime = Arc::clone(&self.transaction.runtime);
        let until = *tries.until.get_or_insert(runtime.env.now() + TRIES_TIME);
        // A statement's own limit does not rise, and recovery (`encodes_later`) retries by itself.
        if !refused.memory_exceeded().is_some_and(may_come)
            || self.encodes_later
            || tries.in_vain == TRIES_IN_VAIN
            || runtime.env.now() >= until
        {
            return Err(refused);
        }
        let room = || runtime.memory.limit().saturating_sub(runtime.memory.used());
        let before = room();
        self.land_all().await?;
        self.transaction.reclaim_memory(ROOM_WAIT).await?;
        tries.in_vain = if room() > before { 0 } else { tries.in_vain + 1 };
        Ok(())
    }

    async fn land_oldest(&mut self) -> Result<(), EngineError> {
        match self.in_flight.pop_front() {
            Some(oldest) => {
                let blocked = oldest.results.finish().await?.blocked;
                let Some(holder) = blocked.holder else { return Ok(()) };
                // Somebody undecided has one of the keys: these rows go again.
                self.transaction.wait_for(holder).await?;
                let rows = Batch::concat(&blocked.rows);
                self.gathered_bytes.grow(rows.bytes() as u64)?;
                self.distribute(rows);
                Ok(())
            }
            None => Ok(()),
        }
    }

    async fn land_all(&mut self) -> Result<(), EngineError> {
        while !self.in_flight.is_empty() {
            self.land_oldest().await?;
        }
        Ok(())
    }

    /// Whether a partition may be left behind instead of taking `rows`, too: two for each worker soon, later those that
    /// would be near their limits, where a split would move what is loaded now.
    fn may_be_left(&self, partition: &Partition, rows: &Batch) -> bool {
        let options = &self.transaction.runtime.options;
        let coming = self.in_flight.iter().filter(|coming| coming.partition == partition.id);
        let (rows_coming, bytes_coming) =
            coming.fold((0, 0), |(rows, bytes), coming| (rows + coming.rows, bytes + coming.bytes));
        let few = self.table.entries().len() < 2 * options.workers;
        let loaded = partition.rows() + rows_coming;
        // A third: indexes come on top of the rows, and workers share a table out by its partitions.
        let near = |size: u64, limit: u64| size > limit / 3;
        // Loads side by side bring different ranges of keys: each begins a partition of its own.
        (loaded > 0 || self.container.bulk_loads() > 1)
            && (few
                || near(loaded + rows.rows as u64, options.split_rows)
                || near(partition.bytes() + bytes_coming + rows.bytes() as u64, options.split_bytes))
    }
}

/// The two lowest positions of rows, with the values of the partitioning attributes there.
fn lowest_positions(partitioning: &Partitioning, rows: &Batch) -> Vec<(Key, Vec<Value>)> {
    let mut lowest: Vec<(Key, usize)> = Vec::new();
    let all = || (0..rows.rows).collect();
    let ends = partitioning.ends_of_rows(rows);
    let looked_at: Vec<usize> = ends.map_or_else(all, |ends| std::iter::once(ends.lowest).chain(ends.next).collect());
    for row in looked_at {
        let position = partitioning.position_of_row(rows, row);
        if let Err(at) = lowest.binary_search_by(|(known, _)| known.cmp(&position))
            && at < 2
        {
            lowest.insert(at, (position, row));
            lowest.truncate(2);
        }
    }
    let values = |row: usize| partitioning.attributes().iter().map(|id| rows.value(row, id.index())).collect();
    lowest.into_iter().map(|(position, row)| (position, values(row))).collect()
}
