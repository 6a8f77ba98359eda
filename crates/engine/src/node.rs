//! A node: the queues that its workers share, and the coordinator role that moves messages in and out.
//!
//! ```text
//!   worker buffer --flush--> local incoming --+                    +--> inboxes --> assignment queue --> workers
//!                                             +--> coordinator ----+
//!   other nodes ----------> remote incoming --+                    +--> outgoing buffer per node --> their remote
//!   incoming
//! ```

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use eris_platform::{NodeId, ReactorHandle};
use eris_sync::{Consumer, DoubleBuffer, Drain, Producer, Sleepers, TryLatch};

use crate::counters::Event;
use crate::lock::{Lock, lock};
use crate::message::Message;
use crate::partition::Partition;
use crate::partition_table::Entry;
use crate::runtime::Runtime;
use crate::task::Task;
use crate::timer::Timers;

/// A queue whose length can be seen without its lock.
pub(crate) struct Queue<T> {
    length: AtomicUsize,
    items: Lock<VecDeque<T>>,
}

impl<T> Queue<T> {
    fn new() -> Self {
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
        let mut items = lock(&self.items);
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
    pub tasks: Queue<Arc<Task>>,
    pub assignments: Queue<Partition>,
    pub maintenance: Queue<Partition>,
    pub timers: Timers,
    pub sleepers: Sleepers,
    pub reactors: Vec<ReactorHandle>,
    /// Nothing is placed here any more.
    given_up: AtomicBool,
    local_incoming: Producer,
    remote_incoming: Producer,
    coordinator: TryLatch<Coordinator>,
}

/// What belongs to whoever is the coordinator.
struct Coordinator {
    local: Consumer,
    remote: Consumer,
    /// One per node; what its remote incoming buffer could not take stays here.
    outgoing: Vec<Vec<u8>>,
}

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
        let (local_incoming, local) = DoubleBuffer::new(buffer_bytes);
        let (remote_incoming, remote) = DoubleBuffer::new(buffer_bytes);
        Self {
            id,
            tasks: Queue::new(),
            assignments: Queue::new(),
            maintenance: Queue::new(),
            timers: Timers::new(),
            sleepers: Sleepers::new(workers.len()),
            workers,
            reactors,
            given_up: AtomicBool::new(false),
            local_incoming,
            remote_incoming,
            coordinator: TryLatch::new(Coordinator { local, remote, outgoing: vec![Vec::new(); nodes] }),
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

    /// Puts a worker's messages into the local incoming buffer, as many as fit; returns the bytes taken.
    pub fn flush_local(&self, bytes: &[u8]) -> usize {
        append_messages(&self.local_incoming, bytes)
    }

    fn flush_remote(&self, bytes: &[u8]) -> usize {
        append_messages(&self.remote_incoming, bytes)
    }

    /// Whether a worker of this node may not sleep. A coordinator at work counts: it is looked at again when it is
    /// done.
    pub fn has_work(&self) -> bool {
        !self.tasks.is_empty()
            || !self.assignments.is_empty()
            || !self.maintenance.is_empty()
            || self.coordinator.try_lock().is_none_or(|coordinator| coordinator.has_work())
    }

    /// One pass in the coordinator's role, if nobody else is in it; returns whether messages moved.
    pub fn coordinate(&self, runtime: &Runtime) -> bool {
        let Some(mut coordinator) = self.coordinator.try_lock() else { return false };
        let mut moved = false;
        let Coordinator { local, remote, outgoing } = &mut *coordinator;
        if let Drain::Drained(_) = local.try_drain(|bytes| {
            for_each_message(bytes, |message, bytes| self.route_local(runtime, message, bytes, outgoing));
        }) {
            moved = true;
        }
        if let Drain::Drained(_) = remote.try_drain(|bytes| {
            for_each_message(bytes, |message, bytes| self.route_remote(runtime, message, bytes, outgoing));
        }) {
            moved = true;
        }
        for (node, buffer) in outgoing.iter_mut().enumerate().filter(|(_, buffer)| !buffer.is_empty()) {
            let node = &runtime.nodes[node];
            let taken = node.flush_remote(buffer);
            if taken > 0 {
                buffer.drain(..taken);
                moved = true;
                runtime.wake_node(node.id);
            }
            if !buffer.is_empty() {
                runtime.counters.add(Event::BufferFull, 1);
            }
        }
        if moved {
            runtime.counters.add(Event::CoordinatorPasses, 1);
        }
        moved
    }

    /// Algorithm 3 of the sources, local buffer: lines 3 to 13.
    fn route_local(&self, runtime: &Runtime, message: Message, bytes: &[u8], outgoing: &mut [Vec<u8>]) {
        match message.header.target {
            None => {
                runtime.counters.add(Event::Broadcasts, 1);
                let remote_nodes = self.assign_broadcast(runtime, &message, true);
                for node in remote_nodes {
                    runtime.counters.add(Event::RemoteMessages, 1);
                    outgoing[node.0 as usize].extend_from_slice(bytes);
                }
            }
            Some(target) => {
                let home = runtime.partition(target).home();
                if home == self.id {
                    runtime.counters.add(Event::LocalMessages, 1);
                    runtime.assign(message);
                } else {
                    runtime.counters.add(Event::RemoteMessages, 1);
                    outgoing[home.0 as usize].extend_from_slice(bytes);
                }
            }
        }
    }

    /// Algorithm 3, remote buffer: lines 15 to 19; a partition that moved meanwhile is followed.
    fn route_remote(&self, runtime: &Runtime, message: Message, bytes: &[u8], outgoing: &mut [Vec<u8>]) {
        match message.header.target {
            None => {
                self.assign_broadcast(runtime, &message, false);
            }
            Some(target) => {
                let home = runtime.partition(target).home();
                if home == self.id {
                    runtime.assign(message);
                } else {
                    outgoing[home.0 as usize].extend_from_slice(bytes);
                }
            }
        }
    }

    /// Assigns a broadcast to the partitions that lived here when the version that the dataflow pinned was made,
    /// wherever they live now; returns the other nodes that had some. What lived on a node that is given up, the
    /// sender's node assigns at once.
    fn assign_broadcast(&self, runtime: &Runtime, message: &Message, is_sender: bool) -> Vec<NodeId> {
        let dataflow = runtime.dataflow(message.header.dataflow);
        let table = Arc::clone(&dataflow.operator(message.header.operator).table);
        assert_eq!(table.version, message.header.table_version, "a broadcast names the version its dataflow pinned");
        let mut others: Vec<NodeId> = Vec::new();
        // Looked up once: each entry is assigned by one node.
        let given_up = if is_sender { runtime.given_up_nodes() } else { Vec::new() };
        for Entry { home, partition, .. } in table.entries() {
            let home = *home;
            if home == self.id || given_up.contains(&home) {
                let mut message = message.clone();
                message.header.target = Some(partition.id);
                runtime.assign_to(partition, message);
            } else if !others.contains(&home) {
                others.push(home);
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
        let length = message_length(&bytes[taken..]);
        if buffer.append(&bytes[taken..taken + length]).is_err() {
            break;
        }
        taken += length;
    }
    taken
}

fn message_length(bytes: &[u8]) -> usize {
    let (_, length) = Message::decode(bytes)
        .unwrap_or_else(|error| unreachable!("buffers hold messages that this process encoded: {error}"));
    length
}

fn for_each_message(bytes: &[u8], mut visit: impl FnMut(Message, &[u8])) {
    let mut at = 0;
    while at < bytes.len() {
        let (message, length) = Message::decode(&bytes[at..])
            .unwrap_or_else(|error| unreachable!("buffers hold messages that this process encoded: {error}"));
        visit(message, &bytes[at..at + length]);
        at += length;
    }
}
