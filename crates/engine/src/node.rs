//! A node: the queues of its workers, and the coordinator role that moves messages in and out.
//!
//! ```text
//!   worker buffer --flush--> local incoming --+                    +--> inboxes --> assignment queue --> workers
//!                                             +--> coordinator ----+
//!   other nodes ----------> remote incoming --+                    +--> outgoing buffer per node --> their remote
//!   incoming
//! ```
//! A flush may also append to the inboxes of its own node directly ([`crate::EngineOptions::direct_append`]); what is
//! for other nodes or for several partitions passes the coordinator.
//!
//! **Reserved space.** Control messages have incoming and outgoing buffers of their own, which nothing else can fill:
//! they get through while the others are full, and each pass moves them first.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use eris_platform::{Nanos, NodeId, ReactorHandle};
use eris_sync::{Consumer, DoubleBuffer, Drain, Producer, Sleepers, TryLatch};

use crate::assignments::Assignments;
use crate::counters::Event;
use crate::keepers::Keepers;
use crate::lock::{Lock, lock, try_lock};
use crate::message::{Class, Envelope, HEADER_BYTES, MessageView};
use crate::partition::Partition;
use crate::partition_table::Entry;
use crate::ready::Ready;
use crate::runtime::Runtime;
use crate::scatter::Scatter;
use crate::task::Task;
use crate::timer::Timers;

/// A queue whose length can be seen without its lock.
pub(crate) struct Queue<T> {
    length: AtomicUsize,
    items: Lock<VecDeque<T>>,
}

impl<T> Queue<T> {
    pub fn new() -> Self {
        Self { length: AtomicUsize::new(0), items: Lock::new(VecDeque::new()) }
    }

    pub fn push(&self, item: T) {
        let mut items = lock(&self.items);
        items.push_back(item);
        self.length.store(items.len(), Ordering::SeqCst);
    }

    pub fn pop(&self) -> Option<T> {
        if self.is_empty() {
            return None;
        }
        self.pop_from(lock(&self.items))
    }

    /// For who has other things to do than to wait for somebody who is at the queue.
    pub fn pop_unless_locked(&self) -> Option<T> {
        if self.is_empty() {
            return None;
        }
        try_lock(&self.items).and_then(|items| self.pop_from(items))
    }

    /// Takes all of another, unless somebody is at that. Who looks at both sees at no time that there is nothing.
    pub fn take_over(&self, other: &Self) {
        if other.is_empty() {
            return;
        }
        let mut items = lock(&self.items);
        if let Some(mut others) = try_lock(&other.items) {
            items.append(&mut others);
            self.length.store(items.len(), Ordering::SeqCst);
            other.length.store(0, Ordering::SeqCst);
        }
    }

    /// Keeps others out, as who is at the queue does.
    #[cfg(test)]
    pub fn hold(&self) -> impl Sized + '_ {
        lock(&self.items)
    }

    fn pop_from(&self, mut items: MutexGuard<'_, VecDeque<T>>) -> Option<T> {
        let item = items.pop_front();
        self.length.store(items.len(), Ordering::SeqCst);
        item
    }

    pub fn is_empty(&self) -> bool {
        self.length.load(Ordering::SeqCst) == 0
    }

    pub fn len(&self) -> usize {
        self.length.load(Ordering::SeqCst)
    }
}

pub(crate) struct Node {
    pub id: NodeId,
    /// Engine-wide numbers of its workers.
    pub workers: Vec<usize>,
    pub tasks: Ready<Arc<Task>>,
    /// Those that go on with a piece of long work.
    pub pieces: Queue<Arc<Task>>,
    pub assignments: Assignments<Partition>,
    pub maintenance: Queue<Partition>,
    pub keepers: Keepers,
    pub timers: Timers,
    pub sleepers: Sleepers,
    pub reactors: Vec<ReactorHandle>,
    /// Nothing is placed here any more.
    given_up: AtomicBool,
    local_incoming: Lanes<Producer>,
    remote_incoming: Lanes<Producer>,
    coordinator: TryLatch<Coordinator>,
}

/// The same thing twice: for control messages and for all others.
pub(crate) struct Lanes<T> {
    pub control: T,
    pub ordinary: T,
}

impl Lanes<Consumer> {
    fn has_work(&self) -> bool {
        self.control.has_work() || self.ordinary.has_work()
    }
}

impl Lanes<Vec<u8>> {
    pub const fn empty() -> Self {
        Self { control: Vec::new(), ordinary: Vec::new() }
    }

    pub fn is_empty(&self) -> bool {
        self.control.is_empty() && self.ordinary.is_empty()
    }

    /// Appends to an incoming buffer what it takes, control messages first; returns whether it took anything.
    fn move_into(&mut self, incoming: &Lanes<Producer>) -> bool {
        let mut moved = false;
        for (bytes, producer) in [(&mut self.control, &incoming.control), (&mut self.ordinary, &incoming.ordinary)] {
            if !bytes.is_empty() {
                let taken = append_messages(producer, bytes);
                bytes.drain(..taken);
                moved |= taken > 0;
            }
        }
        moved
    }
}

/// Buffers for messages of this many bytes, and for control messages beside them.
fn incoming_buffers(bytes: usize) -> (Lanes<Producer>, Lanes<Consumer>) {
    let (control, control_consumer) = DoubleBuffer::new((bytes / CONTROL_SHARE).max(CONTROL_BYTES_MIN));
    let (ordinary, ordinary_consumer) = DoubleBuffer::new(bytes);
    (Lanes { control, ordinary }, Lanes { control: control_consumer, ordinary: ordinary_consumer })
}

/// What belongs to whoever is the coordinator.
struct Coordinator {
    local: Lanes<Consumer>,
    remote: Lanes<Consumer>,
    /// One per node; what its remote incoming buffer could not take stays here.
    outgoing: Vec<Lanes<Vec<u8>>>,
    scatter: Scatter,
}

/// Where the messages of a pass come from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Origin {
    /// Workers of this node.
    Local,
    /// Coordinators of other nodes.
    Remote,
}

/// The buffers for control messages are this part of those for the others.
const CONTROL_SHARE: usize = 16;
/// Room for a few of them at least: they are headers without commands.
const CONTROL_BYTES_MIN: usize = 4 * HEADER_BYTES;

impl Coordinator {
    fn has_work(&self) -> bool {
        self.local.has_work() || self.remote.has_work() || self.outgoing.iter().any(|buffer| !buffer.is_empty())
    }
}

impl Node {
    pub fn new(
        id: NodeId,
        workers: Vec<usize>,
        reactors: Vec<ReactorHandle>,
        nodes: usize,
        buffer_bytes: usize,
    ) -> Self {
        let (local_incoming, local) = incoming_buffers(buffer_bytes);
        let (remote_incoming, remote) = incoming_buffers(buffer_bytes);
        let outgoing = std::iter::repeat_with(Lanes::empty).take(nodes).collect();
        Self {
            id,
            tasks: Ready::new(&workers),
            pieces: Queue::new(),
            assignments: Assignments::new(),
            maintenance: Queue::new(),
            keepers: Keepers::new(workers.len()),
            timers: Timers::new(id),
            sleepers: Sleepers::new(workers.len()),
            workers,
            reactors,
            given_up: AtomicBool::new(false),
            local_incoming,
            remote_incoming,
            coordinator: TryLatch::new(Coordinator { local, remote, outgoing, scatter: Scatter::default() }),
        }
    }

    /// Whether its work is done elsewhere: it was evacuated.
    pub fn is_given_up(&self) -> bool {
        self.given_up.load(Ordering::SeqCst)
    }

    pub fn give_up(&self) {
        self.given_up.store(true, Ordering::SeqCst);
    }

    pub fn push_task(&self, task: Arc<Task>) {
        self.tasks.push(task);
    }

    pub fn push_piece(&self, task: Arc<Task>) {
        self.pieces.push(task);
    }

    /// Moves a worker's messages into the local incoming buffer, as many as fit; returns whether any did.
    pub fn flush_local(&self, messages: &mut Lanes<Vec<u8>>) -> bool {
        messages.move_into(&self.local_incoming)
    }

    /// Wakes the tasks whose timers are due; whether there were any.
    pub fn fire_timers(&self, runtime: &Runtime) -> bool {
        self.fire_timers_late_by(runtime, Duration::ZERO)
    }

    /// The same for those that others should have seen to so long ago.
    pub fn fire_timers_late_by(&self, runtime: &Runtime, late: Duration) -> bool {
        self.timers.next().is_some_and(|next| {
            let now = runtime.env.now();
            next + late <= now && self.timers.fire(Nanos(now.0.saturating_sub(late.as_nanos() as u64)))
        })
    }

    /// Whether a worker of this node may not sleep. A coordinator at work counts: it is looked at again when it is
    /// done.
    pub fn has_work(&self) -> bool {
        !self.tasks.is_empty()
            || !self.pieces.is_empty()
            || !self.assignments.is_empty()
            || !self.maintenance.is_empty()
            || self.coordinator.try_lock().is_none_or(|coordinator| coordinator.has_work())
    }

    /// Whether there is something that a keeper leaves to others.
    pub fn has_long_work(&self) -> bool {
        !self.pieces.is_empty() || self.assignments.has_later()
    }

    /// Takes the coordinator's role without doing anything in it, if nobody else is in it.
    pub fn hold_coordinator(&self) -> Option<impl Sized + '_> {
        self.coordinator.try_lock()
    }

    /// One pass in the coordinator's role, if nobody else is in it; returns whether messages moved.
    pub fn coordinate(&self, runtime: &Runtime) -> bool {
        let Some(mut coordinator) = self.coordinator.try_lock() else { return false };
        let mut moved = false;
        let Coordinator { local, remote, outgoing, scatter } = &mut *coordinator;
        for (lanes, origin) in [(local, Origin::Local), (remote, Origin::Remote)] {
            // Control messages of either origin first would need four drains; each origin's own come first.
            for (consumer, class) in [(&mut lanes.control, Class::Control), (&mut lanes.ordinary, Class::Point)] {
                if let Drain::Drained(_) =
                    consumer.try_drain(|bytes| self.route(runtime, bytes, origin, class, outgoing, scatter))
                {
                    moved = true;
                }
            }
        }
        for (node, messages) in outgoing.iter_mut().enumerate().filter(|(_, messages)| !messages.is_empty()) {
            let node = &runtime.nodes[node];
            if messages.move_into(&node.remote_incoming) {
                moved = true;
                runtime.traffic.transferred(self.id, node.id);
                runtime.wake_node(node.id);
            }
            if !messages.is_empty() {
                runtime.counters.add(Event::BufferFull, 1);
            }
        }
        if moved {
            runtime.counters.add(Event::CoordinatorPasses, 1);
        }
        moved
    }

    /// Algorithm 3 of the sources: messages to partitions of this node go to them, others to their node (lines 8 to
    /// 12), also from the remote buffer: a partition that moved meanwhile is followed. Broadcasts and multicasts
    /// are assigned here and, if they are from here, sent to the nodes that had further partitions (lines 4 to 6, 15
    /// and 16).
    fn route(
        &self,
        runtime: &Runtime,
        bytes: &[u8],
        origin: Origin,
        class: Class,
        outgoing: &mut [Lanes<Vec<u8>>],
        scatter: &mut Scatter,
    ) {
        let mut to_node = |node: NodeId, messages: usize, bytes: &[u8]| {
            runtime.traffic.sent(self.id, node, messages, bytes.len());
            let lanes = &mut outgoing[node.0 as usize];
            let buffer = if class == Class::Control { &mut lanes.control } else { &mut lanes.ordinary };
            buffer.extend_from_slice(bytes);
        };
        let mut remote_messages = 0;
        scatter.add_all(runtime, bytes, |scatter, message| {
            let others = self.assign_broadcast(runtime, message, origin, scatter);
            if origin == Origin::Local {
                remote_messages += others.len() as u64;
                for node in others {
                    to_node(node, 1, message);
                }
            }
        });
        let delivered = scatter.deliver(runtime, self.id, |node, bytes, messages| {
            remote_messages += messages as u64;
            to_node(node, messages, bytes);
        });
        if origin == Origin::Local {
            runtime.counters.add(Event::LocalMessages, delivered as u64);
        }
        runtime.counters.add(Event::RemoteMessages, remote_messages);
    }

    /// Assigns a message for several partitions (a broadcast, or a multicast if a predicate leaves out some) to those
    /// that lived here when the version that the dataflow pinned was made: each is met once, wherever it lives now; a
    /// copy for one that moved meanwhile follows it as an addressed message. Returns the other nodes that had some.
    /// What lived on a node that is given up, the sender's node assigns at once.
    fn assign_broadcast(&self, runtime: &Runtime, bytes: &[u8], origin: Origin, scatter: &mut Scatter) -> Vec<NodeId> {
        let header = decode(bytes).header;
        let dataflow = runtime.dataflow(header.dataflow);
        let operator = dataflow.operator(header.operator);
        assert_eq!(operator.table.version, header.table_version, "a broadcast names the version its dataflow pinned");
        let receivers = operator.receivers();
        if origin == Origin::Local {
            let to_all = receivers.len() == operator.table.entries().len();
            runtime.counters.add(if to_all { Event::Broadcasts } else { Event::Multicasts }, 1);
        }
        let mut others: Vec<NodeId> = Vec::new();
        // Looked up once: each entry is assigned by one node.
        let given_up = if origin == Origin::Local { runtime.given_up_nodes() } else { Vec::new() };
        for Entry { home, partition, .. } in receivers {
            if *home == self.id || given_up.contains(home) {
                scatter.add_copy(partition, bytes);
            } else if !others.contains(home) {
                others.push(*home);
            }
        }
        others
    }
}

/// Appends whole messages; stops at the first that does not fit. One append takes as many as fit at once.
fn append_messages(buffer: &Producer, bytes: &[u8]) -> usize {
    if buffer.append(bytes).is_ok() {
        return bytes.len();
    }
    let mut taken = 0;
    while taken < bytes.len() {
        let length = Envelope::of(&bytes[taken..]).length;
        if buffer.append(&bytes[taken..taken + length]).is_err() {
            break;
        }
        taken += length;
    }
    taken
}

/// The first message of bytes that this process encoded.
pub(crate) fn decode(bytes: &[u8]) -> MessageView<'_> {
    let (message, _) = MessageView::decode(bytes)
        .unwrap_or_else(|error| unreachable!("buffers hold messages that this process encoded: {error}"));
    message
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{DataflowId, OperatorIndex, TableVersion};
    use crate::message::{Header, Message, Primitive};
    use eris_storage::{ContainerId, SchemaVersion, StatementNumber, TransactionId};

    fn message(primitive: Primitive) -> Vec<u8> {
        let header = Header {
            primitive,
            operator: OperatorIndex(0),
            target: None,
            container: ContainerId(1),
            schema_version: SchemaVersion(1),
            table_version: TableVersion(1),
            dataflow: DataflowId(1),
            transaction: TransactionId(1),
            statement: StatementNumber(1),
            source: NodeId(0),
            forwarded: false,
            range: None,
        };
        let mut bytes = Vec::new();
        Message::new(header, &[]).encode(&mut bytes);
        bytes
    }

    #[test]
    fn control_messages_pass_while_ordinary_ones_wait() {
        let (producers, mut consumers) = incoming_buffers(2 * HEADER_BYTES);
        let mut outbox = Lanes::empty();
        for _ in 0..5 {
            outbox.ordinary.extend(message(Primitive::UnorderedScan));
        }
        assert!(outbox.move_into(&producers));
        assert_eq!(outbox.ordinary.len(), 3 * HEADER_BYTES, "two fit, the others wait with their sender");
        for _ in 0..3 {
            outbox.control.extend(message(Primitive::Pin));
        }
        assert!(outbox.move_into(&producers), "control messages have space of their own");
        assert_eq!((outbox.control.len(), outbox.ordinary.len()), (0, 3 * HEADER_BYTES));
        let mut taken = 0;
        assert_eq!(consumers.control.try_drain(|bytes| taken = bytes.len()), Drain::Drained(3 * HEADER_BYTES));
        assert_eq!(taken, 3 * HEADER_BYTES);
    }
}
