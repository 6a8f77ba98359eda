//! The inbox of a partition: message bytes, appended by whoever moves messages, taken as a whole by whoever has the
//! latch.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::lookup::Gathering;
use super::{Command, LivingPartition, PartitionState};
use crate::dataflow::Dataflow;
use crate::lock::{Lock, lock};
use crate::message::{MessageView, Primitive};
use crate::runtime::Runtime;

/// A larger inbox gives its memory back when it is empty.
const BYTES_KEPT_MAX: usize = 1 << 20;

/// Whole messages, one behind the other.
#[derive(Default)]
pub(super) struct Inbox {
    /// How many there are; changed with the bytes.
    messages: AtomicUsize,
    /// How many of them are as urgent as a point access, or more; changed with the bytes, too.
    urgent: AtomicUsize,
    bytes: Lock<Vec<u8>>,
    /// How often somebody appended.
    #[cfg(test)]
    pub appends: AtomicUsize,
}

impl Inbox {
    pub fn messages(&self) -> usize {
        self.messages.load(Ordering::Acquire)
    }

    pub fn urgent(&self) -> usize {
        self.urgent.load(Ordering::Acquire)
    }

    pub fn push(&self, bytes: &[u8], messages: usize, urgent: usize) {
        let mut inbox = lock(&self.bytes);
        #[cfg(test)]
        self.appends.fetch_add(1, Ordering::Relaxed);
        inbox.extend_from_slice(bytes);
        self.urgent.fetch_add(urgent, Ordering::Release);
        self.messages.fetch_add(messages, Ordering::Release);
    }

    /// Exchanges the messages for `empty`.
    fn take(&self, empty: &mut Vec<u8>) {
        assert!(empty.is_empty(), "an inbox is exchanged for an empty one");
        let mut inbox = lock(&self.bytes);
        self.messages.store(0, Ordering::Release);
        self.urgent.store(0, Ordering::Release);
        std::mem::swap(&mut *inbox, empty);
    }
}

/// Turns what waits in the inbox into commands. Messages with keys are read in place and put together; others are
/// copied, because they may have to wait.
pub(crate) fn receive(runtime: &Runtime, partition: &LivingPartition, state: &mut PartitionState) {
    let mut taken = std::mem::take(&mut state.spare);
    partition.inbox.take(&mut taken);
    let mut gathering = Gathering::default();
    let mut known: Option<Arc<Dataflow>> = None;
    // How many messages of one kind followed each other: they are counted together.
    let mut run: Option<(Primitive, u64)> = None;
    let mut at = 0;
    while at < taken.len() {
        let (message, length) = MessageView::decode(&taken[at..])
            .unwrap_or_else(|error| unreachable!("inboxes hold messages that this process encoded: {error}"));
        at += length;
        run = match run {
            Some((kind, messages)) if kind == message.header.primitive => Some((kind, messages + 1)),
            before => {
                count_messages(runtime, before);
                Some((message.header.primitive, 1))
            }
        };
        if matches!(message.header.primitive, Primitive::LookupKeys | Primitive::Probe) {
            gathering.add(runtime, &message, |gathered| state.add(Command::of_keys(gathered)));
            continue;
        }
        let dataflow = match &known {
            Some(dataflow) if dataflow.id == message.header.dataflow => Arc::clone(dataflow),
            _ => runtime.dataflow(message.header.dataflow),
        };
        known = Some(Arc::clone(&dataflow));
        state.add(Command::new(message.to_message(), dataflow));
    }
    count_messages(runtime, run);
    gathering.finish(runtime, |gathered| state.add(Command::of_keys(gathered)));
    if taken.capacity() <= BYTES_KEPT_MAX {
        taken.clear();
        state.spare = taken;
    }
}

fn count_messages(runtime: &Runtime, run: Option<(Primitive, u64)>) {
    if let Some((kind, messages)) = run {
        runtime.counters.add_messages(kind, messages);
    }
}
