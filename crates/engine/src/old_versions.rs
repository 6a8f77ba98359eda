//! What old versions cost, and whose snapshot is revoked when they cost too much.
//!
//! A version that ended stays until no snapshot sees it. So one transaction that sits on an old snapshot keeps every
//! version that others replace meanwhile, without end. With a limit the oldest snapshot is revoked instead: its reader
//! fails, and never a writer.
//! ```text
//!   maintenance of a partition   vacates what the oldest snapshot does not see, weighs what is left
//!          |                     (the sum counts only what was weighed under the present oldest snapshot)
//!          v
//!   sum > limit for a while, or much, and memory is nearly gone
//!          |
//!          v
//!   revoke the oldest snapshot ---> fail its dataflows ---> blocked maintenance goes on, before other work
//! ```
//! What is left after that is weighed under the next oldest snapshot; only what that one holds back counts against it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use eris_platform::Nanos;
use eris_storage::{Timestamp, TransactionId};

use crate::counters::Event;
use crate::engine::Engine;
use crate::lock::{Lock, lock};
use crate::options::EngineOptions;
use crate::partition::LivingPartition;
use crate::runtime::Runtime;

/// The share of the memory limit that old versions may have unless the options say otherwise.
const LIMIT_SHARE: u64 = 4;
/// Memory is nearly gone when less than this share of it is free. Then the oldest snapshot goes as soon as old versions
/// have as much.
const SCARCE_SHARE: u64 = 16;
/// A writer that was refused memory has the oldest snapshot revoked if old versions have this share of the limit.
const WORTH_SHARE: u64 = 64;
/// How long maintenance goes first after that, at most.
const VACATE_MAX: Duration = Duration::from_secs(2);

/// What was weighed under one snapshot.
struct Weighed {
    oldest: Timestamp,
    bytes: u64,
    /// Since when that is over the limit.
    over_since: Option<Nanos>,
}

/// See the [module](self).
pub(crate) struct OldVersions {
    /// None: however many.
    limit: Option<u64>,
    weighed: Lock<Weighed>,
}

/// What one partition keeps, as of its last maintenance.
#[derive(Default)]
pub(crate) struct KeptVersions {
    /// The oldest snapshot of then.
    oldest: AtomicU64,
    bytes: AtomicU64,
}

/// A snapshot in use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SnapshotDescription {
    /// Whose it is.
    pub transaction: TransactionId,
    /// Commits up to here are visible in it.
    pub timestamp: Timestamp,
    /// Whether it is the engine's own (a checkpoint, a backup, a new index) and not revoked.
    pub is_internal: bool,
    /// Whether there is no older one.
    pub is_oldest: bool,
    /// Bytes of versions that are kept as long as the oldest snapshot is in use, about; 0 for all others.
    pub old_version_bytes: u64,
}

impl OldVersions {
    pub fn new(options: &EngineOptions) -> Self {
        let limit = match options.old_version_limit_bytes {
            None => Some(options.memory_limit_bytes / LIMIT_SHARE),
            Some(0) => None,
            given => given,
        };
        Self { limit, weighed: Lock::new(Weighed { oldest: Timestamp(0), bytes: 0, over_since: None }) }
    }

    /// Whether what this snapshot keeps has been over the limit for so long. A statement that is about to end anyway is
    /// not worth an error.
    fn is_over_for(&self, oldest: Timestamp, grace: Duration, now: Nanos) -> bool {
        let mut weighed = lock(&self.weighed);
        weighed.oldest == oldest && *weighed.over_since.get_or_insert(now) + grace <= now
    }

    /// Notes what a partition keeps.
    fn weigh(&self, kept: &KeptVersions, oldest: Timestamp, bytes: u64) -> Option<u64> {
        let before = if kept.oldest.swap(oldest.0, Ordering::Relaxed) == oldest.0 {
            kept.bytes.swap(bytes, Ordering::Relaxed)
        } else {
            kept.bytes.store(bytes, Ordering::Relaxed);
            0
        };
        if before == 0 && bytes == 0 {
            return None;
        }
        let mut weighed = lock(&self.weighed);
        if weighed.oldest < oldest {
            *weighed = Weighed { oldest, bytes: 0, over_since: None };
        }
        if weighed.oldest > oldest {
            return None;
        }
        weighed.bytes = (weighed.bytes + bytes).saturating_sub(before);
        if self.limit.is_none_or(|limit| weighed.bytes <= limit) {
            weighed.over_since = None;
        }
        Some(weighed.bytes)
    }
}

impl KeptVersions {
    fn under(&self, oldest: Timestamp) -> u64 {
        if self.oldest.load(Ordering::Relaxed) == oldest.0 { self.bytes.load(Ordering::Relaxed) } else { 0 }
    }
}

impl Runtime {
    /// A partition was maintained with this oldest snapshot and keeps so many bytes of old versions; the caller has its
    /// latch. Gives the sum, if this is part of it.
    pub fn weigh_old_versions(&self, partition: &LivingPartition, oldest: Timestamp, bytes: u64) -> Option<u64> {
        self.old_versions.weigh(partition.kept_versions(), oldest, bytes)
    }

    /// Revokes the oldest snapshot if so many bytes are too much. The caller has no latch.
    pub fn revoke_if_too_much(self: &Arc<Self>, oldest: Timestamp, sum: u64) {
        let Some(limit) = self.old_versions.limit else { return };
        let little = self.memory.limit() / SCARCE_SHARE;
        if sum <= limit.min(little) {
            return;
        }
        // Of partitions that are gone since nothing is kept.
        let bytes = self.old_version_bytes(oldest);
        let is_over = || self.old_versions.is_over_for(oldest, self.options.old_snapshot_grace, self.env.now());
        if (bytes > little && self.memory.free() < little) || (bytes > limit && is_over()) {
            self.revoke_snapshot(oldest);
        }
    }

    /// What all partitions keep for this snapshot, the oldest one.
    fn old_version_bytes(&self, oldest: Timestamp) -> u64 {
        self.all_partitions().iter().map(|partition| partition.kept_versions().under(oldest)).sum()
    }

    /// Revokes the oldest snapshot; false if nothing is gained by that.
    fn revoke_snapshot(self: &Arc<Self>, oldest: Timestamp) -> bool {
        let revoked = self.transactions.revoke_snapshot(oldest);
        if revoked.is_empty() {
            return false;
        }
        self.counters.add(Event::SnapshotsRevoked, revoked.len() as u64);
        // Their cursors keep segments from being emptied.
        for dataflow in self.all_dataflows() {
            if let Err(error) = dataflow.snapshot.check() {
                dataflow.fail(error);
                self.visit_all(&dataflow.abandon());
            }
        }
        self.unblock_maintenance();
        let engine = Engine::of_runtime(self);
        engine.clone().spawn(async move { engine.reclaim_memory(VACATE_MAX).await });
        true
    }
}

impl Engine {
    /// How much memory versions may have that only old snapshots see; none: as much as there is.
    pub fn old_version_limit(&self) -> Option<u64> {
        self.runtime().old_versions.limit
    }

    /// The snapshots in use, oldest first: which transaction has which, and what the oldest one costs.
    pub fn snapshots(&self) -> Vec<SnapshotDescription> {
        let runtime = self.runtime();
        let list = runtime.transactions.snapshots_in_use();
        let Some((oldest, ..)) = list.first().copied() else { return Vec::new() };
        let bytes = runtime.old_version_bytes(oldest);
        list.into_iter()
            .map(|(timestamp, transaction, is_internal)| SnapshotDescription {
                transaction,
                timestamp,
                is_internal,
                is_oldest: timestamp == oldest,
                old_version_bytes: if timestamp == oldest { bytes } else { 0 },
            })
            .collect()
    }

    /// A writer was refused memory: revokes the oldest snapshot if much is kept for it. True if it did; then
    /// [`Engine::reclaim_memory`] waits until that is given back.
    pub fn revoke_oldest_snapshot(&self) -> bool {
        let runtime = self.runtime();
        let oldest = runtime.transactions.oldest_snapshot();
        let worth = runtime.memory.limit() / WORTH_SHARE;
        runtime.old_versions.limit.is_some()
            && runtime.old_version_bytes(oldest) > worth
            && runtime.revoke_snapshot(oldest)
    }
}
