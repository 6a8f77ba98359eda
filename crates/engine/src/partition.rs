//! A living partition: rows that no thread owns, an inbox, and a latch that lets one worker at a time be them.

mod bounds;
mod change;
mod command;
mod execute;
mod forward;
mod inbox;
mod lookup;
mod panics;
mod within;

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use eris_platform::{Nanos, NodeId};
use eris_storage::{ContainerId, PartitionId, SegmentNumber, Store};
use eris_sync::{Guard, QueuedFlag, TryLatch};

use crate::assignments::Urgency;
use crate::ids::TableVersion;
use crate::message::{CLASSES, Class, Primitive};
use crate::old_versions::KeptVersions;
use crate::options::{LATCH_TRIES, LOW_CLASS_SHARE};
use crate::placement::{Change, Guest};
use crate::transactions::TransactionManager;

pub(crate) use bounds::{Bounds, Handover};
pub(crate) use command::Command;
pub(crate) use execute::{Quantum, Ran, run_command};
pub(crate) use forward::is_own_position;
pub(crate) use inbox::receive;
pub(crate) use lookup::probe_value;
pub(crate) use panics::{contain_panic, write_registered};

use inbox::Inbox;

/// What everybody may see of a partition without its latch.
pub(crate) struct LivingPartition {
    pub id: PartitionId,
    pub container: ContainerId,
    home: AtomicU16,
    /// The node whose workers maintain it: another than its home while it is copied there.
    carer: AtomicU16,
    inbox: Inbox,
    /// In the assignment queues of its node.
    queued_urgent: QueuedFlag,
    queued_later: QueuedFlag,
    /// In the maintenance queue of its node.
    maintenance_queued: QueuedFlag,
    rows: AtomicU64,
    bytes: AtomicU64,
    /// Like the sizes, for those without the latch.
    giving_away: AtomicBool,
    kept_versions: KeptVersions,
    /// A point access in place wants the latch; a scan or load lets go after its next step.
    wanted: AtomicBool,
    state: TryLatch<PartitionState>,
    /// Who is told when words of transactions go with the partition.
    transactions: OnceLock<Arc<TransactionManager>>,
}

/// What the worker that holds the latch may change.
pub(crate) struct PartitionState {
    pub store: Store,
    pub bounds: Bounds,
    /// The first table version in which this partition owned just `bounds`: messages that are addressed under an older
    /// one may concern more, or less.
    pub changed: TableVersion,
    /// What this partition gave away, oldest first: older messages are passed on accordingly.
    pub handovers: Vec<Handover>,
    /// A change that this partition drives.
    pub change: Option<Box<Change>>,
    /// Its part in a change that another partition drives.
    pub guest: Option<Guest>,
    /// As a forwarder: when somebody looks whether it is needed still.
    pub next_look: Option<Nanos>,
    /// At so many rows somebody looks whether keys rise.
    pub rising_look: u64,
    pub tail_watch: Option<TailWatch>,
    /// Until when it is not split by itself: the last time there was no memory for the copies.
    pub no_split_until: Nanos,
    /// When maintenance for which there was no room is tried again, whatever happens meanwhile.
    pub no_room_retry: Nanos,
    /// How long that was put off; zero after there was room.
    pub no_room_pause: Duration,
    ready: [VecDeque<Command>; CLASSES],
    stalled: Vec<Command>,
    picks: u32,
    /// Memory that changes places with the inbox's.
    spare: Vec<u8>,
    /// It may have another size than the one that was published last.
    pub resized: bool,
}

/// When to look again at what is written, and how it was at the last look.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TailWatch {
    /// The tail and its rows, if they are worth sealing.
    pub tail: Option<(SegmentNumber, u32)>,
    /// How often rows were overwritten, if segments are kept open for that.
    pub overwrites: Option<u64>,
    pub until: Nanos,
}

impl LivingPartition {
    pub fn new(id: PartitionId, container: ContainerId, home: NodeId, store: Store, bounds: Bounds) -> Self {
        let statistics = store.statistics();
        Self {
            id,
            container,
            home: AtomicU16::new(home.0),
            carer: AtomicU16::new(home.0),
            inbox: Inbox::default(),
            queued_urgent: QueuedFlag::new(),
            queued_later: QueuedFlag::new(),
            maintenance_queued: QueuedFlag::new(),
            rows: AtomicU64::new(statistics.rows_live_estimate),
            bytes: AtomicU64::new(statistics.bytes),
            giving_away: AtomicBool::new(false),
            kept_versions: KeptVersions::default(),
            wanted: AtomicBool::new(false),
            state: TryLatch::new(PartitionState {
                store,
                bounds,
                changed: TableVersion(0),
                handovers: Vec::new(),
                change: None,
                guest: None,
                next_look: None,
                rising_look: 0,
                tail_watch: None,
                no_split_until: Nanos(0),
                no_room_retry: Nanos(0),
                no_room_pause: Duration::ZERO,
                ready: std::array::from_fn(|_| VecDeque::new()),
                stalled: Vec::new(),
                picks: 0,
                spare: Vec::new(),
                resized: false,
            }),
            transactions: OnceLock::new(),
        }
    }

    /// From now on transactions may write here.
    pub fn register(&self, transactions: &Arc<TransactionManager>) {
        let registered = self.transactions.set(Arc::clone(transactions));
        assert!(registered.is_ok(), "a partition belongs to one engine, once");
    }

    pub fn home(&self) -> NodeId {
        NodeId(self.home.load(Ordering::Acquire))
    }

    /// From now on its commands run on another node.
    pub fn set_home(&self, node: NodeId) {
        self.home.store(node.0, Ordering::Release);
        self.set_carer(node);
    }

    /// The node that maintains it.
    pub fn carer(&self) -> NodeId {
        NodeId(self.carer.load(Ordering::Acquire))
    }

    pub fn set_carer(&self, node: NodeId) {
        self.carer.store(node.0, Ordering::Release);
    }

    /// Rows as of the last visit.
    pub fn rows(&self) -> u64 {
        self.rows.load(Ordering::Relaxed)
    }

    /// Bytes as of the last visit.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Whether it gave rows away at the end of its last maintenance: it drives a change that was not put off.
    pub fn is_giving_away(&self) -> bool {
        self.giving_away.load(Ordering::Relaxed)
    }

    /// Takes the latch if nobody has it.
    pub fn try_latch(&self) -> Option<Guard<'_, PartitionState>> {
        self.state.try_lock()
    }

    /// The latch for a task that runs a command in place: only if nothing waits here that is as urgent. Scans and loads
    /// are overtaken, as messages for point accesses overtake them.
    pub fn try_in_place(&self) -> Result<Guard<'_, PartitionState>, Missed> {
        if self.inbox.urgent() > 0 {
            return Err(Missed::Others);
        }
        let state = self.latch_soon().ok_or(Missed::Latch)?;
        let free = self.inbox.urgent() == 0 && !state.has_fresh_urgent_commands();
        if free { Ok(state) } else { Err(Missed::Others) }
    }

    /// The latch, if whoever has it lets go within about a point access: a message instead costs several of them, and
    /// while it is in the inbox all others have to be sent as well.
    fn latch_soon(&self) -> Option<Guard<'_, PartitionState>> {
        for _ in 0..LATCH_TRIES {
            if let Some(state) = self.state.try_lock() {
                return Some(state);
            }
            if !self.wanted.load(Ordering::Relaxed) {
                self.wanted.store(true, Ordering::Relaxed);
            }
            std::hint::spin_loop();
        }
        None
    }

    /// Forgets who wanted the latch before the caller got it; whoever wants it from here on says so in what this gives.
    pub fn forget_wishes(&self) -> &AtomicBool {
        self.wanted.store(false, Ordering::Relaxed);
        &self.wanted
    }

    /// Puts messages into the inbox.
    pub fn push(&self, bytes: &[u8], messages: usize, urgent: usize) {
        self.inbox.push(bytes, messages, urgent);
    }

    /// Appends to the inbox so far, and the messages in it.
    #[cfg(test)]
    pub fn inbox_counts(&self) -> (usize, usize) {
        (self.inbox.appends.load(Ordering::Relaxed), self.inbox.messages())
    }

    /// How soon somebody has to look at the inbox; none if it is empty.
    pub fn inbox_urgency(&self) -> Option<Urgency> {
        if self.inbox_is_empty() {
            None
        } else if self.inbox.urgent() > 0 {
            Some(Urgency::Urgent)
        } else {
            Some(Urgency::Later)
        }
    }

    pub fn inbox_is_empty(&self) -> bool {
        self.inbox.messages() == 0
    }

    /// True for the caller that has to put it into the assignment queue.
    pub fn mark_queued(&self, urgency: Urgency) -> bool {
        self.queued(urgency).mark()
    }

    fn queued(&self, urgency: Urgency) -> &QueuedFlag {
        match urgency {
            Urgency::Urgent => &self.queued_urgent,
            Urgency::Later => &self.queued_later,
        }
    }

    pub fn unmark_queued(&self, urgency: Urgency) {
        self.queued(urgency).unmark();
    }

    /// What it keeps for old snapshots; changed with the latch in hand.
    pub fn kept_versions(&self) -> &KeptVersions {
        &self.kept_versions
    }

    pub fn mark_maintenance(&self) -> bool {
        self.maintenance_queued.mark()
    }

    pub fn is_marked_for_maintenance(&self) -> bool {
        self.maintenance_queued.is_marked()
    }

    pub fn unmark_maintenance(&self) {
        self.maintenance_queued.unmark();
    }

    pub fn describe(&self) -> String {
        let inbox = self.inbox.messages();
        let queued = self.queued_urgent.is_marked() || self.queued_later.is_marked();
        match self.try_latch() {
            None => format!("latched, {inbox} messages in the inbox, queued: {queued}"),
            Some(state) => format!(
                "{inbox} messages in the inbox, queued: {queued}, {} ready, {} stalled, changing: {}, guest: {}, \
                 draining: {}, forwarder: {}",
                state.ready.iter().map(VecDeque::len).sum::<usize>(),
                state.stalled.len(),
                state.change.is_some(),
                state.guest.is_some(),
                state.is_draining(),
                state.is_forwarder(),
            ),
        }
    }

    /// Publishes sizes for the partition table's eyes; the caller holds the latch. It looks at every segment.
    pub fn publish_size(&self, state: &mut PartitionState) {
        state.resized = false;
        let statistics = state.store.statistics();
        self.rows.store(statistics.rows_live_estimate, Ordering::Relaxed);
        self.bytes.store(statistics.bytes, Ordering::Relaxed);
    }

    /// Publishes whether it gives rows away; the caller holds the latch.
    pub fn publish_change(&self, state: &PartitionState) {
        let goes_on = state.change.as_ref().is_some_and(|change| !change.is_put_off());
        self.giving_away.store(goes_on, Ordering::Relaxed);
    }
}

/// The container is gone, and with it the words that nobody has settled: their transactions need not be known here.
impl Drop for LivingPartition {
    fn drop(&mut self) {
        let (Some(transactions), Some(state)) = (self.transactions.get(), self.state.try_lock()) else { return };
        for transaction in state.store.pending_transactions() {
            transactions.settled(transaction);
        }
    }
}

impl fmt::Debug for LivingPartition {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "LivingPartition({}, node {})", self.id.0, self.home().0)
    }
}

impl PartitionState {
    /// Takes out what it is at: a change holds the partition that drives it, a command its container.
    pub fn take_work(&mut self) -> impl Sized + use<> {
        (self.change.take(), std::mem::take(&mut self.ready), std::mem::take(&mut self.stalled))
    }

    /// Whether there is something that a command in place may not overtake. Commands with a saved cursor do not count:
    /// they run under their own snapshots.
    fn has_fresh_urgent_commands(&self) -> bool {
        let urgent = &self.ready[..=Class::Point as usize];
        urgent.iter().flatten().any(|command| !command.has_started())
            || self.stalled.iter().any(|command| command.class() <= Class::Point && !command.has_started())
    }

    /// How soon its commands want to go on, if there are any that can.
    pub fn wants_visit(&self) -> Option<Urgency> {
        // A change of bounds waits for the cursors that are left.
        if self.is_draining() {
            return self.has_started_ready().then_some(Urgency::Urgent);
        }
        let urgent = self.ready[..=Class::Point as usize].iter().any(|queue| !queue.is_empty());
        if urgent { Some(Urgency::Urgent) } else { self.has_ready().then_some(Urgency::Later) }
    }

    /// Whether commands are held back or passed on.
    pub fn holds_back(&self) -> bool {
        self.is_draining() || self.is_forwarder()
    }

    /// Whether commands without a cursor wait for a change of bounds.
    pub fn is_draining(&self) -> bool {
        self.change.as_ref().is_some_and(|change| change.is_draining())
            || self.guest.as_ref().is_some_and(|guest| guest.draining)
    }

    /// Whether a change is under way here, whoever drives it.
    pub fn is_changing(&self) -> bool {
        self.change.is_some() || self.guest.is_some()
    }

    /// Whether an index or a new schema waits here for the end of a change.
    pub fn holds_definition(&self) -> bool {
        let waits = |command: &Command| {
            matches!(command.message.header.primitive, Primitive::BuildIndex | Primitive::Alter)
                && !command.has_started()
        };
        self.ready.iter().flatten().any(waits)
    }

    /// Whether it owns nothing any more and only passes messages on.
    pub fn is_forwarder(&self) -> bool {
        self.bounds.is_nothing()
    }

    /// Whether no command is here.
    pub fn has_no_commands(&self) -> bool {
        !self.has_ready() && self.stalled.is_empty()
    }

    pub fn add(&mut self, command: Command) {
        self.ready[command.class() as usize].push_back(command);
    }

    /// The next command: the most urgent class, but every [`LOW_CLASS_SHARE`]-th time the least urgent one.
    pub fn next_command(&mut self) -> Option<Command> {
        self.picks = self.picks.wrapping_add(1);
        let waiting = |class: &usize| !self.ready[*class].is_empty();
        let class = if self.picks.is_multiple_of(LOW_CLASS_SHARE) {
            (0..CLASSES).rev().find(waiting)
        } else {
            (0..CLASSES).find(waiting)
        }?;
        self.ready[class].pop_front()
    }

    /// The next command that a command in place may not overtake.
    pub fn next_fresh_urgent(&mut self) -> Option<Command> {
        for queue in &mut self.ready[..=Class::Point as usize] {
            if let Some(index) = queue.iter().position(|command| !command.has_started()) {
                return queue.remove(index);
            }
        }
        None
    }

    pub fn stall(&mut self, command: Command) {
        self.stalled.push(command);
    }

    /// Moves stalled commands back whose dataflow has room again; the others are noted there once more, because what
    /// brought the worker here may have been taken by another partition.
    pub fn resume_stalled(&mut self, own: PartitionId) {
        let mut index = 0;
        while index < self.stalled.len() {
            if self.stalled[index].dataflow.has_room(own) {
                let command = self.stalled.swap_remove(index);
                self.add(command);
            } else {
                index += 1;
            }
        }
    }

    pub fn has_ready(&self) -> bool {
        self.ready.iter().any(|queue| !queue.is_empty())
    }

    /// Whether a command holds a cursor into the rows, so that they must keep their addresses.
    pub fn has_saved_cursors(&self) -> bool {
        self.ready.iter().flatten().any(Command::has_started) || self.stalled.iter().any(Command::has_started)
    }

    /// The next command that already holds a cursor: what may run while a split waits for the cursors to go.
    pub fn next_started(&mut self) -> Option<Command> {
        for queue in &mut self.ready {
            if let Some(index) = queue.iter().position(Command::has_started) {
                return queue.remove(index);
            }
        }
        None
    }

    pub fn has_started_ready(&self) -> bool {
        self.ready.iter().flatten().any(Command::has_started)
    }
}

/// Shared by everything that names partitions.
pub(crate) type Partition = Arc<LivingPartition>;

/// Why a command does not run in place right now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Missed {
    /// Somebody has the latch.
    Latch,
    /// Others wait there that came before.
    Others,
}

#[cfg(test)]
mod tests {
    use eris_platform::MemoryPool;
    use eris_storage::{Layout, Schema, SchemaVersion, StatementNumber, StoreOptions};

    use super::*;
    use crate::cancel::CancelHandle;
    use crate::dataflow::Dataflow;
    use crate::ids::{DataflowId, OperatorIndex};
    use crate::message::{Header, Message, Primitive};
    use crate::near::Near;
    use crate::options::EngineOptions;
    use crate::transactions::{SnapshotHandle, TransactionHold};

    /// No attributes and no indexes.
    pub(super) fn schema() -> Arc<Schema> {
        Arc::new(Schema {
            container: ContainerId(1),
            version: SchemaVersion(1),
            attributes: Box::new([]),
            indexes: Box::new([]),
            layout: Layout::Column,
            physical: None,
            segment_rows: 16,
        })
    }

    fn partition() -> LivingPartition {
        let store = Store::new(StoreOptions::new(schema(), MemoryPool::new(1 << 20)));
        LivingPartition::new(PartitionId(1), ContainerId(1), NodeId(0), store, Bounds::default())
    }

    /// A dataflow that commands may name; nothing runs.
    fn dataflow() -> Arc<Dataflow> {
        let transactions = Near::new(Arc::new(TransactionManager::new(1)));
        let object = transactions.begin();
        let hold = || TransactionHold::new(&transactions, &object);
        let snapshot = Arc::new(SnapshotHandle::publish(hold(), StatementNumber(1)));
        transactions.abort(&object);
        let cancel = CancelHandle::default();
        let (memory, options) = (MemoryPool::new(1 << 20), EngineOptions::default());
        Arc::new(Dataflow::new(DataflowId(1), hold(), snapshot, Vec::new(), cancel, &memory, &options))
    }

    /// A command; `number` tells those of one class apart.
    fn command(dataflow: &Arc<Dataflow>, primitive: Primitive, number: u32) -> Command {
        let header = Header {
            primitive,
            operator: OperatorIndex(0),
            target: Some(PartitionId(1)),
            container: ContainerId(1),
            schema_version: SchemaVersion(1),
            table_version: TableVersion(1),
            dataflow: dataflow.id,
            transaction: dataflow.hold.object().id,
            statement: StatementNumber(number),
            source: NodeId(0),
            forwarded: false,
            range: None,
        };
        Command::new(Message::new(header, &[]), Arc::clone(dataflow))
    }

    #[test]
    fn commands_are_picked_by_class_and_every_eighth_pick_takes_the_least_urgent() {
        let (partition, dataflow) = (partition(), dataflow());
        let mut state = partition.try_latch().expect("nobody else is here");
        // The least urgent come first.
        let waiting =
            [(Primitive::Attach, 2), (Primitive::UnorderedScan, 4), (Primitive::Insert, 9), (Primitive::Pin, 3)];
        for (primitive, count) in waiting {
            (0..count).for_each(|number| state.add(command(&dataflow, primitive, number)));
        }
        let picks = std::iter::from_fn(|| state.next_command());
        let picked: Vec<(Class, u32)> =
            picks.map(|command| (command.class(), command.message.header.statement.0)).collect();
        let of = |class, numbers: std::ops::Range<u32>| numbers.map(move |number| (class, number));
        let expected: Vec<(Class, u32)> = of(Class::Control, 0..3)
            .chain(of(Class::Point, 0..4))
            .chain(of(Class::Load, 0..1))
            .chain(of(Class::Point, 4..9))
            .chain(of(Class::Scan, 0..2))
            .chain(of(Class::Load, 1..2))
            .chain(of(Class::Scan, 2..4))
            .collect();
        assert_eq!(picked, expected);
        assert_eq!((LOW_CLASS_SHARE, picked[7], picked[15]), (8, (Class::Load, 0), (Class::Load, 1)));
    }

    #[test]
    fn the_share_goes_to_the_least_urgent_class_that_waits() {
        let (partition, dataflow) = (partition(), dataflow());
        let mut state = partition.try_latch().expect("nobody else is here");
        (0..40).for_each(|number| state.add(command(&dataflow, Primitive::LookupKeys, number)));
        state.add(command(&dataflow, Primitive::OrderedScan, 0));
        for pick in 1..=41 {
            let class = state.next_command().expect("there are 41").class();
            assert_eq!(class, if pick == LOW_CLASS_SHARE { Class::Scan } else { Class::Point }, "pick {pick}");
        }
        assert!(state.next_command().is_none());
    }
}
