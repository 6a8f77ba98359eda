//! Taking a checkpoint.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Duration;

use eris_engine::{CancelHandle, Container, Definition, Engine, EngineError, Transaction, Whole};
use eris_platform::{DeterministicMap, Env, Files, IoQueue, io_queue};
use eris_storage::{AttributeId, Batch, ContainerId, PinnedSegment, Predicate, ReadRequest, Schema, SegmentIdentity};

use super::block::{BlockKind, BlockPlace, DataWriter, HEADER_BYTES, live_count, number_of_name};
use super::histories::StoredHistory;
use super::manifest::{BlockEntry, FileEntry, MANIFEST, Manifest};
use crate::definitions::Stored;
use crate::directory::{DatabaseId, Directory, DirectoryLock};
use crate::error::{DurabilityError, is_full};
use crate::log::Log;

/// Rows of open segments that are written as one block.
const OPEN_ROWS: usize = 1 << 16;
/// The same in bytes.
const OPEN_BYTES: usize = 4 << 20;
/// A data file of which less than one in so many bytes is needed is left: its blocks are written again.
const SPARSE: u64 = 2;
/// How often a container is read again whose schema moves meanwhile.
const SCHEMA_TRIES: u32 = 100;

/// What a checkpoint did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CheckpointReport {
    /// Commits up to here are in it.
    pub timestamp: u64,
    /// Rows in it.
    pub rows: u64,
    /// Bytes that it wrote.
    pub written_bytes: u64,
    /// Bytes of earlier checkpoints that it names again.
    pub reused_bytes: u64,
    /// How long it took.
    pub took: Duration,
}

/// The log that goes on where a checkpoint ends. A backup has none.
#[derive(Clone, Copy)]
struct Behind<'l> {
    log: &'l Log,
    /// What the log has from here on need not be in the checkpoint.
    position: u64,
    replay_from: u64,
}

/// Where a segment's rows were written.
#[derive(Debug)]
struct Written {
    /// Keeps the address from being another one's.
    segment: Weak<SegmentIdentity>,
    /// Columns of the block: a schema may get further attributes.
    columns: usize,
    place: BlockPlace,
    #[cfg(feature = "bug_checkpoint_keeps_bitmap")]
    live: Option<BlockPlace>,
}

/// Segments whose rows are in a block, by the addresses of their identities.
#[derive(Debug, Default)]
pub(crate) struct WrittenSegments(DeterministicMap<usize, Written>);

impl WrittenSegments {
    /// Notes a segment that was made of all rows of a block.
    pub(super) fn add(&mut self, segment: &Arc<SegmentIdentity>, columns: usize, entry: &BlockEntry) {
        let written = Written {
            segment: Arc::downgrade(segment),
            columns,
            place: entry.place,
            #[cfg(feature = "bug_checkpoint_keeps_bitmap")]
            live: entry.live,
        };
        self.0.insert(Arc::as_ptr(segment) as usize, written);
    }

    fn find(&self, pinned: &PinnedSegment) -> Option<&Written> {
        let identity = pinned.segment().identity();
        let known = self.0.get(&(Arc::as_ptr(identity) as usize))?;
        known.segment.upgrade().filter(|segment| Arc::ptr_eq(segment, identity))?;
        (known.columns == pinned.schema().attributes.len()).then_some(known)
    }
}

/// What is known between two checkpoints.
pub(crate) struct Checkpointer {
    env: Arc<dyn Env>,
    directory: PathBuf,
    lock: Arc<DirectoryLock>,
    id: DatabaseId,
    queue: Arc<dyn IoQueue>,
    written: WrittenSegments,
    files: Vec<FileEntry>,
    next_file: u64,
}

/// A data file in the hands of the queue.
type Data = Arc<std::sync::Mutex<DataWriter>>;

impl Checkpointer {
    /// `files` and `written`: what the last manifest names, and the segments that were made of it. A file that nobody
    /// names may still be there, if it could not be removed: what comes is numbered behind it.
    pub fn new(
        env: &Arc<dyn Env>,
        directory: &Directory,
        files: Vec<FileEntry>,
        written: WrittenSegments,
    ) -> Result<Self, DurabilityError> {
        let path = directory.checkpoint();
        let queue = env
            .background_io_queue("eris-checkpoint")
            .map_err(DurabilityError::io("start the thread that writes", &path))?;
        let there = env.files().list(&path).map_err(DurabilityError::io("list", &path))?;
        let numbers = there.iter().filter_map(|name| number_of_name(name)).chain(files.iter().map(|file| file.number));
        let next_file = numbers.max().map_or(1, |last| last.saturating_add(1));
        Ok(Self { written, files, next_file, ..Self::on(env, directory, &queue) })
    }

    /// Of a directory that has no checkpoint, on a thread that is there.
    pub fn on(env: &Arc<dyn Env>, directory: &Directory, queue: &Arc<dyn IoQueue>) -> Self {
        let (env, queue, id) = (Arc::clone(env), Arc::clone(queue), directory.id());
        let (lock, directory, files) = (Arc::clone(directory.lock()), directory.checkpoint(), Vec::new());
        Self { env, directory, lock, id, queue, written: WrittenSegments::default(), files, next_file: 1 }
    }

    /// Takes a checkpoint. If it fails, there is one all the same, this or the one before, and the log behind either.
    pub async fn take(&mut self, engine: &Engine, log: &Log) -> Result<CheckpointReport, DurabilityError> {
        let begun = self.env.now();
        self.look(log).await?;
        let positions = log.checkpoint_positions();
        let whole = engine.begin_whole().await;
        // Planted: commits that the snapshot does not see may be in front of the position already.
        let is_late = cfg!(feature = "bug_position_behind_snapshot");
        let (position, replay_from) = if is_late { log.checkpoint_positions() } else { positions };
        let mut report = self.write(engine, whole, Some(Behind { log, position, replay_from })).await?;
        log.forget_in_front_of(replay_from);
        report.took = self.env.now() - begun;
        Ok(report)
    }

    /// Takes the first checkpoint of a directory that gets no log: of everything there is at one moment, all of it
    /// durable in the database that it is of. `cancel` ends it early.
    pub async fn take_without_log(
        &mut self,
        engine: &Engine,
        cancel: CancelHandle,
    ) -> Result<CheckpointReport, DurabilityError> {
        let begun = self.env.now();
        let mut whole = engine.begin_whole().await;
        whole.snapshot.set_cancel(cancel);
        let mut report = self.write(engine, whole, None).await?;
        report.took = self.env.now() - begun;
        Ok(report)
    }

    async fn write(
        &mut self,
        engine: &Engine,
        mut whole: Whole,
        behind: Option<Behind<'_>>,
    ) -> Result<CheckpointReport, DurabilityError> {
        let timestamp = whole.snapshot.snapshot_timestamp().0;
        let (position, replay_from) = behind.map_or((0, 0), |behind| (behind.position, behind.replay_from));
        let mut manifest = Manifest::new(self.id, timestamp, position, replay_from);
        let data = self.begin_file().await?;
        let mut report = CheckpointReport { timestamp, ..CheckpointReport::default() };
        let taken = self.write_rows(&mut whole, &data, &mut manifest, &mut report).await;
        let Whole { snapshot, definitions, .. } = whole;
        snapshot.rollback();
        // Planted: the log goes before the manifest that makes up for it has its name.
        if let (Some(behind), true, true) = (behind, cfg!(feature = "bug_log_goes_before_manifest"), taken.is_ok()) {
            behind.log.forget_in_front_of(replay_from);
        }
        let prepared = match taken {
            Ok(written) => {
                self.prepare(engine, &data, definitions, manifest, &mut report).await.map(|files| (written, files))
            }
            Err(error) => Err(error),
        };
        match prepared {
            Ok((written, files)) => {
                self.replace_manifest(&files, &data).await?;
                self.written = written;
                self.files = files;
                Ok(report)
            }
            Err(error @ DurabilityError::Lost { .. }) => Err(error),
            Err(error) => {
                let path = lock(&data).path().to_path_buf();
                // What nobody names is removed at the next opening, at the latest.
                let removed = io_queue::run(&self.queue, move |files| files.remove(&path)).await;
                drop(removed);
                Err(error)
            }
        }
    }

    /// Files are made, named and removed only in the directory that was opened, and behind its log.
    async fn look(&self, log: &Log) -> Result<(), DurabilityError> {
        let (lock, log) = (Arc::clone(&self.lock), log.clone());
        let look = move |files: &dyn Files| {
            lock.keep()?.look_closely(files)?;
            log.look_at_file(files)
        };
        let looked = io_queue::run(&self.queue, look).await;
        looked.map_err(DurabilityError::io("look at", &self.directory))?
    }

    async fn begin_file(&mut self) -> Result<Data, DurabilityError> {
        let (directory, id, number) = (self.directory.clone(), self.id, self.next_file);
        self.next_file += 1;
        let made = io_queue::run(&self.queue, move |files| DataWriter::create(files, &directory, id, number)).await;
        let writer = made.and_then(|made| made).map_err(DurabilityError::io("make a data file in", &self.directory))?;
        Ok(Arc::new(std::sync::Mutex::new(writer)))
    }

    /// Writes what is not written yet; gives where all segments are.
    async fn write_rows(
        &self,
        whole: &mut Whole,
        data: &Data,
        manifest: &mut Manifest,
        report: &mut CheckpointReport,
    ) -> Result<WrittenSegments, DurabilityError> {
        let mut segments: Vec<(ContainerId, Arc<PinnedSegment>)> = Vec::new();
        let mut columns: DeterministicMap<ContainerId, usize> = DeterministicMap::default();
        for (container, schema) in whole.containers() {
            // Also of those that were dropped since: what the log has between the snapshot and that finds its rows.
            let id = container.id();
            columns.insert(id, schema.attributes.len());
            let request = everything(&schema);
            let pinned =
                self.write_open_rows(&mut whole.snapshot, (&container, &request), data, manifest, report).await?;
            segments.extend(pinned.into_iter().map(|segment| (id, segment)));
        }
        let sparse = self.sparse_files(&segments);
        let mut written = WrittenSegments::default();
        let (handle, cancel) = (whole.snapshot.snapshot_handle(), whole.snapshot.cancel_handle());
        for (container, pinned) in segments {
            if cancel.is_cancelled() {
                return Err(EngineError::Cancelled.into());
            }
            // It may have got further attributes since.
            let columns = columns.get(&container).copied().unwrap_or(usize::MAX);
            let has_more = pinned.schema().attributes.len() > columns;
            let known = self.known(&pinned).filter(|place| !has_more && !sparse.contains(&place.file));
            let (segment, snapshot) = (Arc::clone(&pinned), Arc::clone(&handle));
            let (place, live, rows) = self
                .with_file(data, move |data, files| {
                    let pause = &mut || files.breathe();
                    let place = match known {
                        Some(place) => place,
                        None => data.append(files, BlockKind::Rows, |out| {
                            first(segment.all_rows(pause), columns).store_with_pauses(out, pause);
                        })?,
                    };
                    let live = segment.live_rows(&snapshot.snapshot());
                    let rows = live.as_deref().map_or(u64::from(segment.rows()), live_count);
                    let live =
                        live.map(|live| data.append(files, BlockKind::LiveRows, |out| out.extend_from_slice(&live)));
                    Ok((place, live.transpose()?, rows))
                })
                .await?;
            if known.is_some() {
                report.reused_bytes += place.length;
            }
            report.rows += rows;
            // Planted: the rows are as they were, so the bitmap of the last time is named along with them.
            #[cfg(feature = "bug_checkpoint_keeps_bitmap")]
            let live = known.and_then(|_| self.written.find(&pinned)).map_or(live, |before| before.live);
            let entry = BlockEntry { container: container.0, rows: pinned.rows(), place, live };
            written.add(pinned.segment().identity(), pinned.schema().attributes.len().min(columns), &entry);
            manifest.blocks.push(entry);
        }
        Ok(written)
    }

    /// Where the segment was written before.
    fn known(&self, pinned: &PinnedSegment) -> Option<BlockPlace> {
        self.written.find(pinned).map(|known| known.place)
    }

    /// Data files of earlier checkpoints of which little is needed still.
    fn sparse_files(&self, segments: &[(ContainerId, Arc<PinnedSegment>)]) -> Vec<u64> {
        let mut needed: BTreeMap<u64, u64> = BTreeMap::new();
        for place in segments.iter().filter_map(|(_, pinned)| self.known(pinned)) {
            *needed.entry(place.file).or_default() += place.length;
        }
        let is_sparse = |file: &&FileEntry| {
            let needed = needed.get(&file.number).copied().unwrap_or(0);
            needed < file.bytes.saturating_sub(HEADER_BYTES) / SPARSE
        };
        self.files.iter().filter(is_sparse).map(|file| file.number).collect()
    }

    /// Writes the rows of open segments; gives the sealed ones.
    async fn write_open_rows(
        &self,
        snapshot: &mut Transaction,
        container: (&Arc<Container>, &ReadRequest),
        data: &Data,
        manifest: &mut Manifest,
        report: &mut CheckpointReport,
    ) -> Result<Vec<Arc<PinnedSegment>>, DurabilityError> {
        for _ in 0..SCHEMA_TRIES {
            let before = manifest.blocks.len();
            match self.try_open_rows(snapshot, container, data, manifest).await {
                Ok((rows, segments)) => {
                    report.rows += rows;
                    return Ok(segments);
                }
                Err(DurabilityError::Engine(EngineError::SchemaMoved)) => manifest.blocks.truncate(before),
                Err(error) => return Err(error),
            }
        }
        Err(EngineError::SchemaMoved.into())
    }

    async fn try_open_rows(
        &self,
        snapshot: &mut Transaction,
        (container, request): (&Arc<Container>, &ReadRequest),
        data: &Data,
        manifest: &mut Manifest,
    ) -> Result<(u64, Vec<Arc<PinnedSegment>>), DurabilityError> {
        snapshot.next_statement();
        let mut stream = snapshot.pin_stream(container, request)?;
        let (mut rows, mut gathered, mut count, mut bytes) = (0, Vec::new(), 0, 0);
        loop {
            let next = stream.next_open().await?;
            let is_last = next.is_none();
            if let Some(batch) = next.filter(|batch| batch.rows > 0) {
                count += batch.rows;
                bytes += batch.bytes();
                gathered.push(batch);
            }
            if count > 0 && (is_last || count >= OPEN_ROWS || bytes >= OPEN_BYTES) {
                let batches = std::mem::take(&mut gathered);
                let place = self
                    .with_file(data, move |data, files| {
                        data.append(files, BlockKind::Rows, |out| {
                            Batch::concat(&batches).store_with_pauses(out, &mut || files.breathe());
                        })
                    })
                    .await?;
                let entry = BlockEntry { container: container.id().0, rows: count as u32, place, live: None };
                manifest.blocks.push(entry);
                rows += count as u64;
                (count, bytes) = (0, 0);
            }
            if is_last {
                return Ok((rows, stream.into_segments().await?));
            }
        }
    }

    /// Runs a piece of work on the checkpoint's thread.
    async fn with_file<T: Send + 'static>(
        &self,
        data: &Data,
        work: impl FnOnce(&mut DataWriter, &dyn Files) -> io::Result<T> + Send + 'static,
    ) -> Result<T, DurabilityError> {
        let of_job = Arc::clone(data);
        let done = io_queue::run(&self.queue, move |files| work(&mut lock(&of_job), files)).await;
        done.and_then(|done| done).map_err(|error| DurabilityError::io("write", lock(data).path())(error))
    }

    /// Makes everything durable, with a manifest beside the one that counts; gives the files that it names.
    async fn prepare(
        &self,
        engine: &Engine,
        data: &Data,
        definitions: Vec<Definition>,
        mut manifest: Manifest,
        report: &mut CheckpointReport,
    ) -> Result<Vec<FileEntry>, DurabilityError> {
        // The log must not end in front of what the checkpoint has.
        // Planted: the checkpoint may know more than its log.
        if !cfg!(feature = "bug_manifest_before_log") {
            engine.sync_log().await?;
        }
        manifest.definitions = definitions.iter().map(Stored::of).collect();
        // Layouts that were set meanwhile may name attributes that the definitions do not have.
        let grown = definitions.iter().filter_map(|definition| match definition {
            Definition::Container { schema, .. } => {
                let now = engine.container(schema.container)?.schema();
                (now.attributes.len() > schema.attributes.len()).then_some(schema.container)
            }
            _ => None,
        });
        let grown: BTreeSet<ContainerId> = grown.collect();
        let histories = engine.partition_histories().into_iter().filter(|history| !grown.contains(&history.container));
        manifest.histories = histories.map(|history| StoredHistory::of(&history)).collect();
        self.with_file(data, |data, _| data.sync()).await?;
        let (written, own) = {
            let data = lock(data);
            (data.end(), data.path().to_path_buf())
        };
        report.written_bytes = written;
        let own = own.file_name().and_then(|name| number_of_name(name.to_str()?));
        let named: BTreeSet<u64> = manifest
            .blocks
            .iter()
            .flat_map(|block| [Some(block.place.file), block.live.map(|live| live.file)])
            .flatten()
            .collect();
        let mut files: Vec<FileEntry> =
            self.files.iter().copied().filter(|file| named.contains(&file.number)).collect();
        files.extend(own.filter(|own| named.contains(own)).map(|number| FileEntry { number, bytes: written }));
        manifest.files.clone_from(&files);
        self.with_directory(move |all, directory| {
            all.sync_directory(directory)?;
            manifest.write_beside(all, directory)
        })
        .await?;
        Ok(files)
    }

    /// Has the new manifest count. If that fails, the data that it names stays: it may be the manifest that is found
    /// later. Only where there was no room for its name it is not, and the data takes no room either.
    async fn replace_manifest(&self, named: &[FileEntry], data: &Data) -> Result<(), DurabilityError> {
        let (kept, own) = (named.to_vec(), lock(data).path().to_path_buf());
        self.with_directory(move |all, directory| {
            Manifest::rename(all, directory).inspect_err(|error| {
                if is_full(error) {
                    let _ = all.remove(&own);
                }
            })?;
            all.sync_directory(directory)?;
            // What is left of others is no reason to fail: the next checkpoint removes it.
            let _ = remove_orphans(all, directory, &kept);
            Ok(())
        })
        .await
    }

    /// Has the queue work on the manifest in the directory, while that is the one that was opened.
    async fn with_directory(
        &self,
        work: impl FnOnce(&dyn Files, &Path) -> io::Result<()> + Send + 'static,
    ) -> Result<(), DurabilityError> {
        let (directory, lock) = (self.directory.clone(), Arc::clone(&self.lock));
        let job = move |all: &dyn Files| {
            let kept = lock.keep()?;
            kept.look_closely(all)?;
            work(all, &directory).map_err(DurabilityError::io("write the manifest in", &directory))
        };
        let done = io_queue::run(&self.queue, job).await;
        done.map_err(DurabilityError::io("write the manifest in", &self.directory))?
    }
}

fn lock(data: &Data) -> std::sync::MutexGuard<'_, DataWriter> {
    data.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn everything(schema: &Schema) -> ReadRequest {
    let desired = (0..schema.attributes.len() as u16).map(AttributeId).collect();
    ReadRequest { predicate: Predicate::all(), desired, order: None }
}

/// The first columns of rows.
fn first(rows: Batch, columns: usize) -> Batch {
    if rows.columns.len() <= columns {
        return rows;
    }
    rows.project(&(0..columns).collect::<Vec<_>>())
}

/// Removes what no manifest names. One file that stays keeps no other one: the first error is told behind all of them.
pub(crate) fn remove_orphans(files: &dyn Files, directory: &Path, kept: &[FileEntry]) -> io::Result<()> {
    let mut removed = Ok(());
    for name in files.list(directory)? {
        let is_kept = match number_of_name(&name) {
            Some(number) => kept.iter().any(|file| file.number == number),
            None => name == MANIFEST,
        };
        if !is_kept {
            removed = removed.and(files.remove(&directory.join(name)));
        }
    }
    removed
}
