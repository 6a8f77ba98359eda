//! The operations of one transaction that are not in the log yet.

use std::task::Waker;

use eris_platform::{MemoryExceeded, Reservation};
use eris_storage::StatementNumber;

use super::operation::redo_operations;

/// Shorter buffers are not accounted: there is at most one for each transaction under way.
const FREE_BYTES: usize = 4 << 10;
/// Longer ones are accounted in such steps.
const STEP_BYTES: usize = 64 << 10;

/// See the [module](self).
#[derive(Debug, Default)]
pub(crate) struct RedoBuffer {
    pub bytes: Vec<u8>,
    /// What is reserved for them.
    accounted: usize,
    /// Whether something of the transaction is in the log already.
    pub has_parts: bool,
    /// Of the task that puts it there ahead of the commit, if it waits for those who write.
    pub waker: Option<Waker>,
    /// Whether there is such a task.
    pub is_watched: bool,
}

impl RedoBuffer {
    /// Accounts what was appended.
    pub fn account(&mut self, memory: &Reservation) -> Result<(), MemoryExceeded> {
        let length = self.bytes.len();
        if length > FREE_BYTES && length > self.accounted {
            let wanted = length.next_multiple_of(STEP_BYTES);
            memory.grow((wanted - self.accounted) as u64)?;
            self.accounted = wanted;
        }
        Ok(())
    }

    /// Takes the bytes out, for somebody who keeps account of them himself.
    pub fn take(&mut self, memory: &Reservation) -> Vec<u8> {
        memory.shrink(std::mem::take(&mut self.accounted) as u64);
        std::mem::take(&mut self.bytes)
    }
}

impl RedoBuffer {
    /// Puts bytes back that were taken out last, in front of what came since.
    pub fn put_back(&mut self, mut bytes: Vec<u8>) {
        bytes.append(&mut self.bytes);
        self.bytes = bytes;
    }
}

/// The operations in `bytes` whose statements were not rolled back.
pub(crate) fn without(bytes: &[u8], is_void: impl Fn(StatementNumber) -> bool) -> Vec<u8> {
    let mut kept = Vec::with_capacity(bytes.len());
    for operation in redo_operations(bytes) {
        let Ok(operation) = operation else { unreachable!("a transaction's own operations are whole") };
        if !is_void(operation.header.statement) {
            kept.extend_from_slice(operation.bytes);
        }
    }
    kept
}
