//! The JSON that `eris bench commits` writes.

use eris_durability::LogStatistics;
use serde::Serialize;

use crate::figures::{median, quantile};

#[derive(Debug, Clone, Serialize)]
pub struct CommitsReport {
    pub benchmark: &'static str,
    /// Of the directory; the disk is probed in the same one.
    pub file_system: String,
    pub workers: usize,
    pub accounts: u32,
    /// Bytes of log that a commit writes, and the disk's probe with it.
    pub commit_bytes: u64,
    /// Bytes of a statement and its answer on the wire, and of the echo's.
    pub request_bytes: u64,
    pub answer_bytes: u64,
    pub rounds: usize,
    pub commits_per_round: u32,
    pub shown: &'static str,
    pub one_client: OneClient,
    pub many_clients: ManyClients,
}

pub(super) const SHOWN: &str = "p50_us and p99_us of all rounds together; what is above a limit is the median over \
                                the rounds of the difference in each of them";

/// Rounds in which the disk, the task API, the echo and SQL take turns.
#[derive(Debug, Clone, Serialize)]
pub struct OneClient {
    /// An append and a sync, by a thread that does nothing else.
    pub disk: Latencies,
    /// The same in two files at once, by a thread each.
    pub disk_with_two_files: Latencies,
    /// Begin, update by key, commit; and the commit alone.
    pub task: Latencies,
    pub task_commit: Latencies,
    /// A round trip over loopback.
    pub echo: Latencies,
    pub sql: Latencies,
    pub task_above_disk: Above,
    pub sql_above_disk_and_echo: Above,
}

#[derive(Debug, Clone, Serialize)]
pub struct ManyClients {
    pub clients: u32,
    pub seconds_per_round: f64,
    pub idle_rule: &'static str,
    pub task: Grouped,
    pub sql: Grouped,
}

pub(super) const IDLE_RULE: &str = "of the time in which commits waited and the log wrote, or did not, the share in \
                                    which it did not";

#[derive(Debug, Clone, Serialize)]
pub struct Latencies {
    pub p50_us: f64,
    pub p99_us: f64,
    pub p50_us_of_rounds: Vec<f64>,
    pub p99_us_of_rounds: Vec<f64>,
}

/// How much a latency is above its limit.
#[derive(Debug, Clone, Serialize)]
pub struct Above {
    pub p50_us: f64,
    pub p99_us: f64,
}

/// Commits of many clients at once.
#[derive(Debug, Clone, Serialize)]
pub struct Grouped {
    pub commits_per_s: f64,
    pub syncs_per_s: f64,
    pub commits_per_sync: f64,
    pub idle_share: f64,
    pub busy_s: f64,
    pub idle_s: f64,
    pub p50_us: f64,
    pub p99_us: f64,
}

/// Microseconds, round by round.
#[derive(Default)]
pub(super) struct Rounds(Vec<Vec<f64>>);

impl Rounds {
    pub fn add(&mut self, nanos: impl IntoIterator<Item = u64>) {
        self.0.push(nanos.into_iter().map(|nanos| nanos as f64 / 1e3).collect());
    }

    fn of_rounds(&self, share: f64) -> Vec<f64> {
        self.0.iter().map(|round| quantile(round, share)).collect()
    }

    pub fn latencies(&self) -> Latencies {
        let all: Vec<f64> = self.0.iter().flatten().copied().collect();
        Latencies {
            p50_us: quantile(&all, 0.5),
            p99_us: quantile(&all, 0.99),
            p50_us_of_rounds: self.of_rounds(0.5),
            p99_us_of_rounds: self.of_rounds(0.99),
        }
    }

    /// Above the sum of the limits, each of the same round.
    pub fn above(&self, limits: &[&Self]) -> Above {
        let above = |share| {
            let limits: Vec<Vec<f64>> = limits.iter().map(|limit| limit.of_rounds(share)).collect();
            let rounds = self.of_rounds(share).into_iter().enumerate();
            let above = rounds.map(|(round, own)| own - limits.iter().map(|limit| limit[round]).sum::<f64>());
            median(&above.collect::<Vec<_>>())
        };
        Above { p50_us: above(0.5), p99_us: above(0.99) }
    }
}

/// What the log did in the time of many clients, all rounds together.
#[derive(Default)]
pub(super) struct Grouping {
    latencies_us: Vec<f64>,
    seconds: f64,
    log: LogStatistics,
}

impl Grouping {
    pub fn add(&mut self, nanos: &[u64], seconds: f64, before: LogStatistics, after: LogStatistics) {
        self.latencies_us.extend(nanos.iter().map(|nanos| *nanos as f64 / 1e3));
        self.seconds += seconds;
        self.log.commits += after.commits - before.commits;
        self.log.bytes += after.bytes - before.bytes;
        self.log.syncs += after.syncs - before.syncs;
        self.log.busy_nanos += after.busy_nanos - before.busy_nanos;
        self.log.idle_nanos += after.idle_nanos - before.idle_nanos;
    }

    pub fn grouped(&self) -> Grouped {
        let log = self.log;
        let share = |part: u64, whole: u64| part as f64 / whole.max(1) as f64;
        Grouped {
            commits_per_s: self.latencies_us.len() as f64 / self.seconds,
            syncs_per_s: log.syncs as f64 / self.seconds,
            commits_per_sync: share(log.commits, log.syncs),
            idle_share: share(log.idle_nanos, log.idle_nanos + log.busy_nanos),
            busy_s: log.busy_nanos as f64 / 1e9,
            idle_s: log.idle_nanos as f64 / 1e9,
            p50_us: quantile(&self.latencies_us, 0.5),
            p99_us: quantile(&self.latencies_us, 0.99),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_round_of_the_disk_is_no_excess() {
        let (mut disk, mut echo, mut own) = (Rounds::default(), Rounds::default(), Rounds::default());
        for slow in [1, 1, 50] {
            disk.add([slow * 100_000, slow * 100_000]);
            echo.add([10_000, 10_000]);
            own.add([slow * 100_000 + 25_000, slow * 100_000 + 40_000]);
        }
        let above = own.above(&[&disk, &echo]);
        assert!((above.p50_us - 15.0).abs() < 1e-9 && (above.p99_us - 30.0).abs() < 1e-9, "{above:?}");
        assert!((own.latencies().p99_us - 5_040.0).abs() < 1e-9);
    }

    #[test]
    fn idle_is_a_share_of_waiting() {
        let mut grouping = Grouping::default();
        let after = LogStatistics { commits: 60, bytes: 1, syncs: 10, busy_nanos: 95, idle_nanos: 5 };
        grouping.add(&[1_000; 60], 2.0, LogStatistics::default(), after);
        let grouped = grouping.grouped();
        assert!((grouped.idle_share - 0.05).abs() < 1e-12 && (grouped.commits_per_sync - 6.0).abs() < 1e-12);
        assert!((grouped.commits_per_s - 30.0).abs() < 1e-12 && (grouped.syncs_per_s - 5.0).abs() < 1e-12);
    }
}
