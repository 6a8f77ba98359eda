//! What a client counts while it drives, and what all clients of a run add up to.

use super::transactions::{Completed, ForwardingChange, ForwardingKey, Outcome, TransactionKind};
use crate::histogram::Histogram;
use std::time::Duration;

/// The rules behind the figures, in the words of the reports.
pub const THROUGHPUT_RULE: &str =
    "completed transactions per second after warm-up: committed, or rolled back as the benchmark foresees";
pub const SUCCESS_RULE: &str =
    "a GET returned a row; an UPDATE or DELETE hit a row; an INSERT met no existing key; retries are not counted";

/// Counts of one kind of transaction after warm-up.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct KindStatistics {
    pub success: u64,
    pub empty: u64,
    pub rejected: u64,
    /// Attempts that lost against another transaction (40001, 40P01) and were made again.
    pub retries: u64,
    /// From the first attempt to the end of the last one.
    pub latency: Histogram,
}

impl KindStatistics {
    pub fn completed(&self) -> u64 {
        self.success + self.empty + self.rejected
    }

    /// Share of completed transactions that succeeded; `None` if there were none.
    pub fn success_ratio(&self) -> Option<f64> {
        (self.completed() > 0).then(|| self.success as f64 / self.completed() as f64)
    }
}

/// One client's counts, or the sum of several.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Statistics {
    kinds: [KindStatistics; 7],
    /// Every call-forwarding row added or removed by a committed transaction, warm-up included.
    pub forwarding_changes: Vec<(ForwardingKey, ForwardingChange)>,
}

impl Statistics {
    /// Counts a transaction; one that ended during warm-up leaves only its change.
    pub fn record(&mut self, kind: TransactionKind, completed: Completed, retries: u64, latency: Option<Duration>) {
        self.forwarding_changes.extend(completed.forwarding);
        let Some(latency) = latency else { return };
        let counts = &mut self.kinds[kind as usize];
        match completed.outcome {
            Outcome::Success => counts.success += 1,
            Outcome::Empty => counts.empty += 1,
            Outcome::Rejected => counts.rejected += 1,
        }
        counts.retries += retries;
        counts.latency.record(u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX));
    }

    pub fn merge(&mut self, other: Self) {
        for (counts, other) in self.kinds.iter_mut().zip(&other.kinds) {
            counts.success += other.success;
            counts.empty += other.empty;
            counts.rejected += other.rejected;
            counts.retries += other.retries;
            counts.latency.merge(&other.latency);
        }
        self.forwarding_changes.extend(other.forwarding_changes);
    }

    pub fn of(&self, kind: TransactionKind) -> &KindStatistics {
        &self.kinds[kind as usize]
    }

    pub fn completed(&self) -> u64 {
        self.kinds.iter().map(KindStatistics::completed).sum()
    }

    /// Completed transactions that ended in a commit: every GET, and the writes that succeeded.
    pub fn qualified(&self) -> u64 {
        let qualified = |kind: &TransactionKind| match kind {
            TransactionKind::GetSubscriberData
            | TransactionKind::GetNewDestination
            | TransactionKind::GetAccessData => self.of(*kind).completed(),
            TransactionKind::UpdateSubscriberData
            | TransactionKind::UpdateLocation
            | TransactionKind::InsertCallForwarding
            | TransactionKind::DeleteCallForwarding => self.of(*kind).success,
        };
        TransactionKind::ALL.iter().map(qualified).sum()
    }

    pub fn retries(&self) -> u64 {
        self.kinds.iter().map(|counts| counts.retries).sum()
    }

    /// Latencies of all kinds together.
    pub fn latency(&self) -> Histogram {
        let mut all = Histogram::default();
        for counts in &self.kinds {
            all.merge(&counts.latency);
        }
        all
    }
}

/// A finished run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunResult {
    pub statistics: Statistics,
    /// Measured time without warm-up.
    pub measured: Duration,
}

impl RunResult {
    pub fn throughput_per_s(&self) -> f64 {
        self.statistics.completed() as f64 / self.measured.as_secs_f64()
    }
}

/// How long and how hard to drive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunOptions {
    /// Clients, each with one transaction in flight and no think time.
    pub clients: u32,
    pub warm_up: Duration,
    pub measured: Duration,
    pub keys: super::keys::KeyDistribution,
    pub seed: u64,
}

/// Attempts after which a transaction that keeps losing is an error: the system makes no progress.
pub const ATTEMPTS_MAX: u64 = 100_000;
