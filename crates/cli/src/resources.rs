//! The options that say how much of the machine a database may use; every command that opens one has them.

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Args;
use eris::{ADDRESS_SPACE_MIN, Options};
use eris_platform::Origin;
use eris_platform::limits::{self, MemoryLimit};
use eris_platform::messages::tell;

/// How much of the machine the database may use.
#[derive(Args, Clone, Debug, Default)]
pub struct Resources {
    /// Worker threads in total [default: the processors this process may use]
    #[arg(long, value_name = "N")]
    pub workers: Option<usize>,

    /// Nodes; more than the machine has become virtual ones
    #[arg(long, value_name = "N")]
    pub nodes: Option<usize>,

    /// Memory for data and queries, in bytes or with K, M or G [default: 80 % of what this process may use]
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    pub memory_limit: Option<u64>,

    /// Where statements keep what does not fit into memory; the directory may be missing, what it is in may not
    /// [default: temp/ in the directory of the database; without one, a directory of its own where the system keeps
    /// temporary files]
    #[arg(long, value_name = "DIR")]
    pub temp_dir: Option<PathBuf>,

    /// What the temporary files of one statement may have together, in bytes or with K, M or G; 0: nothing; -1: what
    /// the disk has [default: -1]
    #[arg(long, value_name = "BYTES", value_parser = temp_file_limit, allow_negative_numbers = true)]
    pub temp_file_limit: Option<TempFileLimit>,

    /// Memory for versions of rows that only old snapshots see, in bytes or with K, M or G; beyond, the transaction
    /// with the oldest snapshot fails, and no writer; 0 or -1: as much as there is [default: a quarter of the memory
    /// limit]
    #[arg(long, value_name = "BYTES", value_parser = bytes_or_off, allow_negative_numbers = true)]
    pub old_version_memory_limit: Option<u64>,
}

impl Resources {
    pub fn options(&self) -> Options {
        let default = Options::default();
        let workers = self.workers.unwrap_or(default.workers.max(self.nodes.unwrap_or(1)));
        Options {
            workers,
            nodes: self.nodes.unwrap_or(default.nodes),
            temp_file_limit_bytes: self.temp_file_limit.and_then(|limit| limit.0),
            old_version_limit_bytes: self.old_version_memory_limit,
            memory_limit_bytes: self.memory_limit.unwrap_or_else(|| eris::memory_limit_default(workers)),
            ..default
        }
    }

    /// Warns of a memory limit that is more than there is: the database would rely on it until the system ends it.
    pub fn warn_of_too_much(&self) {
        let warning = self.memory_limit.and_then(|given| more_than_there_is(given, limits::memory(Path::new("/"))));
        if let Some(warning) = warning {
            tell(warning);
        }
    }
}

/// What there is to say of a memory limit that was given.
fn more_than_there_is(given: u64, there_is: MemoryLimit) -> Option<String> {
    let MemoryLimit { bytes, origin, by_cgroup } = there_is;
    if origin != Origin::Measured || given <= bytes {
        return None;
    }
    let whose = if by_cgroup { "the control group of this process may use" } else { "this machine has" };
    let fits = bytes / 100 * limits::MEMORY_DEFAULT_PERCENT;
    Some(format!(
        "warning: --memory-limit is {given} bytes, and {whose} {bytes}: before the limit is reached, the system may \
         end this process; at most {fits} are advised, which is the default"
    ))
}

/// Whether there is so little address space (`ulimit -v`, `-d`) that an allocation may fail any moment, which ends a
/// process without a word about the reason. Says so, and allocates nothing.
pub fn address_space_is_too_small() -> bool {
    if limits::address_space().is_none_or(|bytes| bytes >= ADDRESS_SPACE_MIN) {
        return false;
    }
    const { assert!(ADDRESS_SPACE_MIN == 768 << 20, "the message says it") };
    let message = b"error: the address space of this process is limited to less than 768 MiB; raise ulimit -v and -d\n";
    // If nobody reads it, the exit code has to do.
    let _ = std::io::stderr().write_all(message);
    true
}

/// A number of bytes: `1000000`, `512M`, `4G`.
pub fn bytes(text: &str) -> Result<u64, String> {
    let split = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let factor: u64 = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kb" | "kib" => 1 << 10,
        "m" | "mb" | "mib" => 1 << 20,
        "g" | "gb" | "gib" => 1 << 30,
        _ => return Err(format!("`{unit}` is not a unit: use bytes, or K, M or G")),
    };
    let number: u64 = number.parse().map_err(|_| format!("`{text}` is not a number of bytes"))?;
    match number.checked_mul(factor) {
        Some(0) => Err("no database fits into 0 bytes".to_owned()),
        Some(bytes) => Ok(bytes),
        None => Err(format!("`{text}` is more than any machine has")),
    }
}

/// Bytes that the temporary files of one statement may have; `None`: what the disk has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TempFileLimit(Option<u64>);

/// As PostgreSQL's setting `temp_file_limit`, in bytes: `-1` is no limit, and with `0` nothing may be written.
fn temp_file_limit(text: &str) -> Result<TempFileLimit, String> {
    match text.trim() {
        "-1" => Ok(TempFileLimit(None)),
        "0" => Ok(TempFileLimit(Some(0))),
        text => bytes(text).map(|bytes| TempFileLimit(Some(bytes))),
    }
}

/// As [`bytes`], or 0 for a bound that is `0` or `-1`: none.
fn bytes_or_off(text: &str) -> Result<u64, String> {
    if matches!(text.trim(), "0" | "-1") { Ok(0) } else { bytes(text) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read() {
        assert_eq!(bytes("1000"), Ok(1000));
        assert_eq!(bytes("512M"), Ok(512 << 20));
        assert_eq!(bytes("4 GiB"), Ok(4 << 30));
        for wrong in ["", "M", "-1", "0", "1T", "99999999999999G"] {
            assert!(bytes(wrong).is_err(), "{wrong}");
        }
        assert_eq!(["0", "-1", "64M"].map(bytes_or_off), [Ok(0), Ok(0), Ok(64 << 20)]);
        assert!(bytes_or_off("-2").is_err());
        let limits = ["-1", "0", "64M"].map(|text| temp_file_limit(text).map(|limit| limit.0));
        assert_eq!(limits, [Ok(None), Ok(Some(0)), Ok(Some(64 << 20))]);
        assert!(temp_file_limit("-2").is_err() && temp_file_limit("").is_err());
    }

    #[test]
    fn a_limit_above_the_memory_there_is_is_warned_of_with_both_figures() {
        let there_is = MemoryLimit { bytes: 1_000, origin: Origin::Measured, by_cgroup: false };
        assert_eq!(more_than_there_is(1_000, there_is), None);
        let warning = more_than_there_is(1_001, there_is).unwrap();
        assert!(warning.contains("is 1001 bytes, and this machine has 1000:"), "{warning}");
        let warning = more_than_there_is(1_001, MemoryLimit { by_cgroup: true, ..there_is }).unwrap();
        assert!(warning.contains("control group of this process may use 1000:"), "{warning}");
        assert_eq!(more_than_there_is(1_001, MemoryLimit { origin: Origin::Unavailable, ..there_is }), None);
    }

    #[test]
    fn enough_workers_are_chosen_for_the_nodes_but_a_given_number_is_kept() {
        let nodes = Resources { nodes: Some(64), ..Resources::default() };
        assert!(nodes.options().workers >= 64);
        let few = Resources { workers: Some(1), nodes: Some(2), ..Resources::default() };
        assert_eq!(few.options().workers, 1, "opening refuses it, with both numbers");
    }
}
