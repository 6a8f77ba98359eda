//! Running one command on a latched partition for at most a quantum. What becomes of one that panics is said in
//! [`super::panics`].

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use eris_platform::{Env, Nanos};
use eris_storage::{
    AttachCursor, Batch, BuildForm, BuildOptions, Found, Gateway, IndexBuildCursor, Key, Progress as StorageProgress,
    ReadRequest, SealedSegment, Snapshot, StorageError,
};

use super::command::{Command, Progress};
use super::forward::{Concern, all_belong_here, concern, forward_inserts, forward_position};
use super::lookup::{LockFound, LookingUp, OwnKeys, gateway, one_of_each_key, own_keys};
use super::panics::{contain_panic, write_registered};
use super::within::Within;
use super::{LivingPartition, PartitionState};
use crate::counters::Event;
use crate::dataflow::{Attachment, Dataflow, Work};
use crate::error::EngineError;
use crate::lookup::ArrivedKeys;
use crate::message::{Header, Message, Primitive};
use crate::operator::{Collect, MicroOperator, Output};
use crate::runtime::Runtime;

/// Rows that one insert step writes before it looks at the clock.
const INSERT_STEP_ROWS: usize = 512;
/// Rows of a sealed segment that one step of a bulk load indexes.
const ATTACH_STEP_ROWS: usize = 4_096;
/// Rows that one step of an index build reads.
const INDEX_STEP_ROWS: usize = 4_096;

/// How long a command may keep the partition.
#[derive(Clone, Copy)]
pub(crate) struct Quantum<'a> {
    env: &'a dyn Env,
    deadline: Nanos,
    /// Where somebody says that the partition is wanted for a point access; then the quantum is over, too.
    wanted: Option<&'a AtomicBool>,
}

impl<'a> Quantum<'a> {
    pub fn start(runtime: &'a Runtime) -> Self {
        Self::start_several(runtime, runtime.env.now(), 1)
    }

    /// So many in a row, from `now` on.
    pub fn start_several(runtime: &'a Runtime, now: Nanos, quanta: u32) -> Self {
        Self { env: &*runtime.env, deadline: now + runtime.options.quantum * quanta, wanted: None }
    }

    /// The same one, which ends early if somebody wants the partition.
    pub fn until_wanted(self, wanted: &'a AtomicBool) -> Self {
        Self { wanted: Some(wanted), ..self }
    }

    pub fn is_over(&self) -> bool {
        self.wanted.is_some_and(|wanted| wanted.load(Ordering::Relaxed)) || self.is_over_at(self.env.now())
    }

    /// The same for who has looked at the clock and is wanted by nobody.
    pub fn is_over_at(&self, now: Nanos) -> bool {
        now >= self.deadline
    }
}

/// What became of a command.
pub(crate) enum Ran {
    Finished,
    /// The quantum is over, or somebody wants the partition; the cursor is saved in the command.
    Unfinished(Command),
    /// Something else has to happen to the partition first.
    Waiting(Command),
    /// The task has not taken enough results; it says when to go on.
    Stalled(Command),
}

/// Everything a command needs of its surroundings.
pub(super) struct Place<'a> {
    pub runtime: &'a Runtime,
    pub partition: &'a LivingPartition,
    pub state: &'a mut PartitionState,
    pub dataflow: Arc<Dataflow>,
    pub header: Header,
}

pub(super) enum Step {
    Done,
    Again(Progress),
    Waits(Progress),
    NoRoom(Progress),
}

/// Runs a command until it is done, out of time or out of room.
pub(crate) fn run_command(
    runtime: &Runtime,
    partition: &LivingPartition,
    state: &mut PartitionState,
    command: Command,
    quantum: &Quantum<'_>,
) -> Ran {
    let Command { message, dataflow, messages, progress } = command;
    // Here, with the latch in hand: what a revoked snapshot sees may be vacated.
    if let Err(error) = dataflow.snapshot.check() {
        dataflow.fail(error);
    }
    let reads = matches!(dataflow.operator(message.header.operator).work, Work::Read { .. });
    let mut sits = reads && !matches!(progress, Progress::Fresh);
    if reads && !sits && !dataflow.is_over() {
        sits = dataflow.take_seat(partition.id);
        // Asked again: who ends a dataflow has only those visited that had said they wait.
        if !sits && !dataflow.is_over() {
            runtime.counters.add(Event::Stalls, 1);
            return Ran::Stalled(Command { message, dataflow, messages, progress });
        }
    }
    let mut place = Place { runtime, partition, state, dataflow: Arc::clone(&dataflow), header: message.header };
    let step = if dataflow.is_over() {
        place.drop_progress(progress);
        Ok(Step::Done)
    } else {
        let step = place.run(&message, progress, quantum);
        let did_something = !matches!(step, Ok(Step::Waits(_)));
        place.state.resized |= did_something && dataflow.operator(message.header.operator).work.may_resize();
        step
    };
    match step {
        Ok(Step::Again(progress)) => {
            runtime.counters.add(Event::SavedCursors, 1);
            Ran::Unfinished(Command { message, dataflow, messages, progress })
        }
        Ok(Step::Waits(progress)) => Ran::Waiting(Command { message, dataflow, messages, progress }),
        Ok(Step::NoRoom(progress)) => {
            runtime.counters.add(Event::Stalls, 1);
            Ran::Stalled(Command { message, dataflow, messages, progress })
        }
        Ok(Step::Done) => {
            if sits {
                runtime.visit_all(&dataflow.leave_seat());
            }
            runtime.finish_commands(&dataflow, messages);
            Ran::Finished
        }
        Err(error) => {
            // What a request names by id (an index, attributes, whole rows) may have gone or come while it was under
            // way. Whatever it names that is still there means the same, so only what fails is told.
            let here = place.state.store.schema().version;
            dataflow.fail(error.for_sender(message.header.schema_version, here));
            runtime.finish_commands(&dataflow, messages);
            Ran::Finished
        }
    }
}

impl Place<'_> {
    fn run(&mut self, message: &Message, progress: Progress, quantum: &Quantum<'_>) -> Result<Step, EngineError> {
        match progress {
            Progress::Fresh => self.start(message, quantum),
            Progress::Reading { .. } => self.read(progress, quantum),
            Progress::Changing { .. } => self.change(progress, quantum),
            Progress::Gathered(keys) => self.start_lookup(*keys, quantum),
            Progress::LookingUp(lookup) => self.look_up(lookup, quantum),
            Progress::Inserting { .. } => self.insert(progress, quantum),
            Progress::Attaching { .. } => self.attach(progress, quantum),
            Progress::BuildingIndex { cursor } => self.build_index(cursor, quantum),
        }
    }

    fn start(&mut self, message: &Message, quantum: &Quantum<'_>) -> Result<Step, EngineError> {
        if message.header.primitive == Primitive::Lookup {
            let position = message.commands().next().map(Key::from_bytes);
            let position = position.unwrap_or_else(|| unreachable!("a lookup carries its position"));
            if forward_position(self.runtime, self.state, message, &position, &self.dataflow) {
                return Ok(Step::Done);
            }
        }
        let dataflow = Arc::clone(&self.dataflow);
        let operator = dataflow.operator(self.header.operator);
        let waits = match operator.work {
            // The rows would be indexed in one of the two stores only.
            Work::BuildIndex { .. } => self.state.is_changing(),
            // The micro-QEPs of saved cursors name the indexes of the old schema.
            Work::Alter { .. } => self.state.has_saved_cursors() || self.state.is_changing(),
            _ => false,
        };
        if waits {
            // Whom else it concerns is asked behind the change: a half that is cut off meanwhile is one of them.
            return Ok(Step::Waits(Progress::Fresh));
        }
        let concern = match message.header.primitive {
            Primitive::UnorderedScan
            | Primitive::OrderedScan
            | Primitive::Pin
            | Primitive::BuildIndex
            | Primitive::Alter
            | Primitive::SetLayout => concern(self.runtime, self.state, message, self.partition.id, &dataflow),
            Primitive::Insert | Primitive::Lookup | Primitive::ConditionalInsert | Primitive::Attach => Concern::All,
            Primitive::Probe | Primitive::LookupKeys => unreachable!("keys and probes are gathered when they arrive"),
        };
        let range = match concern {
            Concern::All => None,
            Concern::Within(range) => Some(range),
            Concern::Nothing => return Ok(Step::Done),
        };
        #[cfg(feature = "bug_counter_early")]
        if message.header.primitive == Primitive::UnorderedScan && message.header.forwarded {
            // Planted: reports a forwarded scan as finished before it has run.
            self.dataflow.count_sends(1);
            self.dataflow.count_finished(1);
            return Ok(Step::Done);
        }
        let partitioning = &operator.table.partitioning;
        let within = |request: &ReadRequest| match &range {
            None => (request.clone(), None),
            Some(range) => {
                let (request, within) = Within::extend(request, range.clone(), partitioning);
                (request, Some(within))
            }
        };
        match &operator.work {
            Work::Read { request, operator } => {
                let (request, within) = within(request);
                let cursor = self.state.store.open_cursor(&request)?;
                // A part of the rows is told by their keys.
                let counts = within.is_none() && operator.only_counts();
                let cursor = if counts { cursor.counting() } else { cursor.without_addresses() };
                self.read(Progress::Reading { cursor, state: operator.open(), within }, quantum)
            }
            Work::Lookup { .. } | Work::LockKeys { .. } | Work::Probe => {
                unreachable!("keys and probes are gathered when they arrive")
            }
            Work::Pin { request } if range.is_some() => {
                // A pin would hold all rows of its segments: those of the range are copied instead.
                let (request, within) = within(request);
                let cursor = self.state.store.open_cursor(&request)?.without_addresses();
                self.read(Progress::Reading { cursor, state: Collect.open(), within }, quantum)
            }
            Work::Pin { request } => {
                let pinned = self.state.store.pin(&dataflow.snapshot());
                dataflow.add_pinned(pinned);
                let cursor = self.state.store.open_cursor_unsealed(request)?.without_addresses();
                self.read(Progress::Reading { cursor, state: Collect.open(), within: None }, quantum)
            }
            Work::Update { request, .. } | Work::Delete { request, .. } | Work::Lock { request, .. } => {
                let (request, within) = within(request);
                let cursor = self.state.store.open_cursor(&request)?;
                self.change(Progress::Changing { cursor, within }, quantum)
            }
            Work::Insert => {
                let pending = attachments(message);
                self.insert(Progress::Inserting { pending, rows: Batch::empty(&[]), done: 0 }, quantum)
            }
            Work::Attach => self.next_attach(attachments(message), quantum),
            // What concerns the partition as a whole is done with every message for a part of it. Left to one of them,
            // a partition that is cut between two messages would have a half that neither concerned. To hear it twice
            // does no harm.
            Work::BuildIndex { .. } => self.build_index(IndexBuildCursor::default(), quantum),
            Work::Alter { .. } => self.alter(),
            Work::SetLayout { layouts } => {
                self.state.store.set_layouts(layouts.clone())?;
                Ok(Step::Done)
            }
        }
    }

    fn read(&mut self, progress: Progress, quantum: &Quantum<'_>) -> Result<Step, EngineError> {
        let Progress::Reading { mut cursor, mut state, within } = progress else { unreachable!("a read reads") };
        let dataflow = Arc::clone(&self.dataflow);
        let snapshot = dataflow.snapshot();
        let result = contain_panic(|| {
            loop {
                if dataflow.is_over() {
                    return Ok(ReadStep::Done);
                }
                if !dataflow.has_room(self.partition.id) {
                    return Ok(ReadStep::NoRoom);
                }
                let mut output = Output { dataflow: &dataflow, quantum };
                if state.is_behind() {
                    state.go_on(&mut output)?;
                } else {
                    let next = self.state.store.next_batch(&snapshot, &mut cursor)?;
                    match kept(next, within.as_ref()) {
                        Some(gateway) if gateway.batch.rows == 0 => {}
                        Some(gateway) => state.batch(gateway, &mut output)?,
                        None => {
                            state.finish(&mut output)?;
                            return Ok(ReadStep::Done);
                        }
                    }
                }
                if quantum.is_over() {
                    return Ok(ReadStep::Again);
                }
            }
        });
        match result {
            Ok(ReadStep::Again) => Ok(Step::Again(Progress::Reading { cursor, state, within })),
            Ok(ReadStep::NoRoom) => Ok(Step::NoRoom(Progress::Reading { cursor, state, within })),
            Ok(ReadStep::Done) => {
                self.state.store.close_cursor(cursor);
                Ok(Step::Done)
            }
            Err(error) => {
                self.state.store.close_cursor(cursor);
                Err(error)
            }
        }
    }

    /// Keys of other partitions go on, the others are looked up.
    fn start_lookup(&mut self, keys: ArrivedKeys, quantum: &Quantum<'_>) -> Result<Step, EngineError> {
        let dataflow = Arc::clone(&self.dataflow);
        let operator = dataflow.operator(self.header.operator);
        let partitioning = &operator.table.partitioning;
        let (lookup, operator, locks): (_, &dyn MicroOperator, _) = match &operator.work {
            Work::Lookup { lookup, operator, .. } => (lookup, &**operator, false),
            Work::LockKeys { lookup, .. } => (lookup, &Collect, true),
            _ => unreachable!("keys go to operators that look them up"),
        };
        let own = own_keys(self.runtime, self.partition.id, self.state, &self.header, &dataflow, keys);
        let OwnKeys { keys, positions, range } = own;
        let (cursor, within) = match range {
            None => (self.state.store.open_lookup(&lookup.request, &keys)?, None),
            Some(range) => {
                let (request, within) = Within::extend_lookup(&lookup.request, range, partitioning);
                (self.state.store.open_lookup(&request, &keys)?, Some(within))
            }
        };
        let cursor = if locks { cursor.with_addresses() } else { cursor };
        self.look_up(Box::new(LookingUp { cursor, positions, within, state: operator.open() }), quantum)
    }

    fn look_up(&mut self, mut lookup: Box<LookingUp>, quantum: &Quantum<'_>) -> Result<Step, EngineError> {
        let dataflow = Arc::clone(&self.dataflow);
        let snapshot = dataflow.snapshot();
        let LookingUp { cursor, positions, within, state } = &mut *lookup;
        let locks = match &dataflow.operator(self.header.operator).work {
            Work::LockKeys { lock, statement, .. } => Some(LockFound { lock: *lock, statement: *statement }),
            _ => None,
        };
        let result = contain_panic(|| {
            loop {
                if dataflow.is_over() {
                    return Ok(ReadStep::Done);
                }
                if !dataflow.has_room(self.partition.id) {
                    return Ok(ReadStep::NoRoom);
                }
                let mut output = Output { dataflow: &dataflow, quantum };
                if state.is_behind() {
                    state.go_on(&mut output)?;
                    if quantum.is_over() {
                        return Ok(ReadStep::Again);
                    }
                    continue;
                }
                let next = self.state.store.next_found(&snapshot, cursor)?;
                let kept = match within {
                    None => next,
                    Some(within) => next.map(|found| within.keep_found(found)),
                };
                let kept = match (kept, locks) {
                    (Some(found), Some(locks)) if !found.keys.is_empty() => match self.lock_found(locks, found)? {
                        Some(found) => Some(found),
                        // The task waits and asks again.
                        None => return Ok(ReadStep::Done),
                    },
                    (kept, _) => kept,
                };
                match kept {
                    Some(found) if found.keys.is_empty() => {}
                    Some(found) => state.batch(gateway(positions, found), &mut output)?,
                    None => {
                        state.finish(&mut output)?;
                        return Ok(ReadStep::Done);
                    }
                }
                if quantum.is_over() {
                    return Ok(ReadStep::Again);
                }
            }
        })?;
        Ok(match result {
            ReadStep::Done => Step::Done,
            ReadStep::Again => Step::Again(Progress::LookingUp(lookup)),
            ReadStep::NoRoom => Step::NoRoom(Progress::LookingUp(lookup)),
        })
    }

    /// Locks one row of each key that was found; none if somebody undecided has one of them, whom the dataflow knows
    /// then.
    fn lock_found(&mut self, locks: LockFound, found: Found) -> Result<Option<Found>, EngineError> {
        let found = one_of_each_key(found);
        let dataflow = Arc::clone(&self.dataflow);
        let snapshot = Snapshot { statement: locks.statement, ..dataflow.snapshot() };
        #[cfg(feature = "bug_parent_not_locked")]
        if !dataflow.operator(self.header.operator).container.foreign_keys(crate::foreign_key::Side::Parent).is_empty()
        {
            // Planted: the parent's row is found and not locked.
            return Ok(Some(found));
        }
        match self.write(|state| state.store.lock_rows(&snapshot, &found.addresses, locks.lock, false)) {
            Ok(_) => Ok(Some(found)),
            Err(error) => {
                dataflow.block(error.undecided().ok_or(error)?);
                Ok(None)
            }
        }
    }

    fn insert(&mut self, progress: Progress, quantum: &Quantum<'_>) -> Result<Step, EngineError> {
        let Progress::Inserting { mut pending, mut rows, mut done } = progress else {
            unreachable!("an insert inserts")
        };
        let dataflow = Arc::clone(&self.dataflow);
        loop {
            if done == rows.rows {
                let Some(index) = pending.pop() else { return Ok(Step::Done) };
                let Some(Attachment::Rows(attached)) = dataflow.take_attachment(index) else {
                    unreachable!("an insert names rows that nobody took before")
                };
                rows = forward_inserts(
                    self.runtime,
                    self.partition,
                    self.state,
                    &self.header,
                    attached,
                    &dataflow,
                    |rows| Ok(Attachment::Rows(rows)),
                )?;
                done = 0;
                continue;
            }
            let step = INSERT_STEP_ROWS.min(rows.rows - done);
            let part = if step == rows.rows { rows.clone() } else { rows.slice(done, step) };
            let noting = dataflow.noting(self.runtime, &self.header);
            if let Err(error) =
                self.write(|state| noting.insert(&mut state.store, &dataflow.snapshot(), &part).map(drop))
            {
                let Some(holder) = error.undecided() else { return Err(error) };
                dataflow.give_back(holder, rows.slice(done, rows.rows - done));
                // What lies behind it may go on.
                done = rows.rows;
                continue;
            }
            done += step;
            if quantum.is_over() && (done < rows.rows || !pending.is_empty()) {
                return Ok(Step::Again(Progress::Inserting { pending, rows, done }));
            }
        }
    }

    fn next_attach(&mut self, mut pending: Vec<u32>, quantum: &Quantum<'_>) -> Result<Step, EngineError> {
        let Some(index) = pending.pop() else { return Ok(Step::Done) };
        let Some(Attachment::Segment(segment)) = self.dataflow.take_attachment(index) else {
            unreachable!("a bulk load names segments that nobody took before")
        };
        let Some(segment) = self.divide(segment)? else { return self.next_attach(pending, quantum) };
        let cursor = AttachCursor::default();
        self.attach(Progress::Attaching { pending, segment, cursor }, quantum)
    }

    /// Sends those rows of a segment to their owners that went elsewhere while it was on its way; the others, if any.
    fn divide(&mut self, segment: Arc<SealedSegment>) -> Result<Option<Arc<SealedSegment>>, EngineError> {
        let dataflow = Arc::clone(&self.dataflow);
        if all_belong_here(self.state, &self.header, &dataflow) {
            return Ok(Some(segment));
        }
        let schema = Arc::clone(self.state.store.schema());
        let dictionaries = self.state.store.dictionaries();
        let arena = self.runtime.machine.arena(self.partition.home());
        let options = BuildOptions { memory: &self.runtime.memory, dictionaries, arena, form: BuildForm::AsLaidOut };
        let build = |rows: &Batch| SealedSegment::build_in(&schema, rows, &options);
        let rows = segment.to_rows(&schema);
        let own = forward_inserts(self.runtime, self.partition, self.state, &self.header, rows, &dataflow, |rows| {
            Ok(Attachment::Segment(build(&rows)?))
        })?;
        Ok(match own.rows {
            0 => None,
            all if all == segment.rows() as usize => Some(segment),
            _ => Some(build(&own)?),
        })
    }

    fn attach(&mut self, progress: Progress, quantum: &Quantum<'_>) -> Result<Step, EngineError> {
        let Progress::Attaching { pending, segment, mut cursor } = progress else { unreachable!("a load attaches") };
        let dataflow = Arc::clone(&self.dataflow);
        loop {
            let noting = dataflow.noting(self.runtime, &self.header);
            let attached = self.write(|state| {
                let snapshot = dataflow.snapshot();
                let progress = state.store.attach(&snapshot, &segment, &mut cursor, ATTACH_STEP_ROWS);
                let progress = progress.inspect_err(|error| noting.refused(state.store.schema(), error))?;
                if noting.is_on() && matches!(progress, StorageProgress::Done(_)) {
                    let schema = state.store.schema();
                    noting.inserted(schema, &snapshot, &segment.to_rows(schema))?;
                }
                Ok(progress)
            });
            if let Some(holder) = attached.as_ref().err().and_then(EngineError::undecided) {
                self.state.store.abandon_attach(&cursor);
                dataflow.give_back(holder, segment.to_rows(self.state.store.schema()));
                return self.next_attach(pending, quantum);
            }
            if let StorageProgress::Done(_) = attached? {
                return self.next_attach(pending, quantum);
            }
            if quantum.is_over() {
                return Ok(Step::Again(Progress::Attaching { pending, segment, cursor }));
            }
        }
    }

    fn build_index(&mut self, mut cursor: IndexBuildCursor, quantum: &Quantum<'_>) -> Result<Step, EngineError> {
        let dataflow = Arc::clone(&self.dataflow);
        let Work::BuildIndex { definition } = &dataflow.operator(self.header.operator).work else {
            unreachable!("only index builds build indexes")
        };
        loop {
            let snapshot = dataflow.snapshot();
            match self.state.store.create_index_step(&snapshot, definition, &mut cursor, INDEX_STEP_ROWS)? {
                StorageProgress::Done(()) => return Ok(Step::Done),
                StorageProgress::More if quantum.is_over() => {
                    return Ok(Step::Again(Progress::BuildingIndex { cursor }));
                }
                StorageProgress::More if self.state.store.images_await_cursors() => {
                    return Ok(Step::Waits(Progress::BuildingIndex { cursor }));
                }
                StorageProgress::More => {}
            }
        }
    }

    fn alter(&mut self) -> Result<Step, EngineError> {
        let dataflow = Arc::clone(&self.dataflow);
        let Work::Alter { schema } = &dataflow.operator(self.header.operator).work else {
            unreachable!("only alterations alter")
        };
        self.state.store.set_schema(Arc::clone(schema))?;
        Ok(Step::Done)
    }

    /// See [`write_registered`].
    pub(super) fn write<T>(
        &mut self,
        change: impl FnOnce(&mut PartitionState) -> Result<T, StorageError>,
    ) -> Result<T, EngineError> {
        write_registered(self.runtime, self.partition, self.state, self.dataflow.hold.object(), change)
    }

    fn drop_progress(&mut self, progress: Progress) {
        match progress {
            Progress::Reading { cursor, .. } | Progress::Changing { cursor, .. } => {
                self.state.store.close_cursor(cursor);
            }
            // An aborted load is taken back by maintenance, an unfinished index by the alteration that follows.
            // Dropping its cursor is closing it.
            Progress::LookingUp(_)
            | Progress::Fresh
            | Progress::Gathered(_)
            | Progress::Inserting { .. }
            | Progress::Attaching { .. }
            | Progress::BuildingIndex { .. } => {}
        }
    }
}

enum ReadStep {
    Done,
    Again,
    NoRoom,
}

/// What a read delivered, kept to what its message concerns.
pub(super) fn kept(gateway: Option<Gateway>, within: Option<&Within>) -> Option<Gateway> {
    match within {
        None => gateway,
        Some(within) => gateway.map(|gateway| within.keep(gateway)),
    }
}

fn attachments(message: &Message) -> Vec<u32> {
    let mut pending: Vec<u32> = message
        .commands()
        .map(|command| {
            let bytes: [u8; 4] =
                command.try_into().unwrap_or_else(|_| unreachable!("such a command is an attachment index"));
            u32::from_le_bytes(bytes)
        })
        .collect();
    pending.reverse();
    pending
}
