//! How unkind the simulated disk is: what a power loss takes, what a failed sync means, how long I/O takes.

use std::time::Duration;

use crate::random::SeededRandom;

/// What a file operation can be told to fail with.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum FileFault {
    /// `ENOSPC`; only operations that take space suffer it (creating, writing behind the end, extending, renaming),
    /// others pass it on to the next.
    NoSpace,
    /// `EIO`. For a sync of a file see [`FailedSync`].
    Broken,
    /// `EACCES`: the process has not the right to do it.
    Denied,
}

/// A probability in thousandths.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PerMille(pub u16);

impl PerMille {
    pub(super) fn hits(self, random: &mut SeededRandom) -> bool {
        random.below(1_000) < u64::from(self.0)
    }
}

/// What a power loss does to that which was not synced.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Unsynced {
    /// The random decides, sector by sector and directory by directory.
    Random {
        /// How likely a sector is not at its newest, a length not the last, a directory not complete. It is then as
        /// after any earlier write since the last sync, or as at that sync, all equally likely.
        lost: PerMille,
        /// How likely a sector holds the beginning of a newer state and the rest of an older one.
        torn: PerMille,
    },
    /// Nothing of it survives.
    Lost,
    /// All of it survives.
    Kept,
}

/// What a failed sync does to the writes that it was to make durable.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum FailedSync {
    /// As Linux does: the pages count as clean, so that no later sync writes them. Readers see what was written until
    /// the power is lost, which takes all of it.
    LosesWrites,
    /// They stay to be written, and the next sync that succeeds makes them durable.
    KeepsWrites,
}

/// The properties of the simulated disk; see
/// [`SimulatedFiles::set_disk_faults`](super::SimulatedFiles::set_disk_faults).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct DiskFaults {
    pub unsynced: Unsynced,
    pub failed_sync: FailedSync,
    /// A job of an I/O queue takes at least this long, ...
    pub latency_min: Duration,
    /// ... and at most this long, unless it is slow.
    pub latency_max: Duration,
    /// How likely a job is slow, ...
    pub slow: PerMille,
    /// ... which is at most this long.
    pub slow_max: Duration,
}

impl Default for DiskFaults {
    /// Half of what is not synced is lost and a tenth torn. The latencies are those of a flash disk, which is busy with
    /// itself now and then.
    fn default() -> DiskFaults {
        DiskFaults {
            unsynced: Unsynced::Random { lost: PerMille(500), torn: PerMille(100) },
            failed_sync: FailedSync::LosesWrites,
            latency_min: Duration::from_micros(20),
            latency_max: Duration::from_micros(200),
            slow: PerMille(5),
            slow_max: Duration::from_millis(50),
        }
    }
}

impl DiskFaults {
    /// A power loss takes everything that was not synced.
    pub fn all_lost() -> DiskFaults {
        DiskFaults { unsynced: Unsynced::Lost, ..DiskFaults::default() }
    }

    /// A power loss takes nothing; as if only the process had died.
    pub fn nothing_lost() -> DiskFaults {
        DiskFaults { unsynced: Unsynced::Kept, ..DiskFaults::default() }
    }

    pub(super) fn latency(&self, random: &mut SeededRandom) -> Duration {
        let (min, max) = if self.slow.hits(random) {
            (self.latency_max, self.slow_max)
        } else {
            (self.latency_min, self.latency_max)
        };
        let nanoseconds = |span: Duration| i64::try_from(span.as_nanos()).unwrap_or(i64::MAX);
        Duration::from_nanos(random.between(nanoseconds(min), nanoseconds(max.max(min))) as u64)
    }
}

impl Unsynced {
    /// Which of the states `oldest..=newest` survives.
    pub(super) fn survivor(self, oldest: usize, newest: usize, random: &mut SeededRandom) -> usize {
        assert!(oldest <= newest, "there is no state between {oldest} and {newest}");
        match self {
            Unsynced::Random { lost, .. } if oldest < newest && lost.hits(random) => {
                oldest + random.index(newest - oldest)
            }
            Unsynced::Random { .. } | Unsynced::Kept => newest,
            Unsynced::Lost => oldest,
        }
    }

    /// The states `(newer, older)` that a torn sector with states `oldest..=newest` consists of; `None` if it is whole.
    pub(super) fn tear(self, oldest: usize, newest: usize, random: &mut SeededRandom) -> Option<(usize, usize)> {
        match self {
            Unsynced::Random { torn, .. } if oldest < newest && torn.hits(random) => {
                let newer = oldest + 1 + random.index(newest - oldest);
                Some((newer, oldest + random.index(newer - oldest)))
            }
            _ => None,
        }
    }
}
