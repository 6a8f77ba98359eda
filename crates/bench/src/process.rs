//! What processes cost, as the kernel counts it: CPU time and resident memory from `/proc`.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

/// Clock ticks per second of `/proc/PID/stat`: fixed at 100 in the kernel's interface on every Linux architecture.
const TICKS_PER_S: u64 = 100;

/// A process id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ProcessId(pub u32);

impl ProcessId {
    pub fn own() -> Self {
        Self(std::process::id())
    }

    /// CPU time of the process and of all its living descendants, including what ended children left behind; `None`
    /// when there is no such process. A PostgreSQL backend is a child of its postmaster.
    pub fn tree_cpu_time(self) -> Option<Duration> {
        let mut processes = BTreeMap::new();
        for entry in fs::read_dir("/proc").ok()?.flatten() {
            let id = entry.file_name().to_str().and_then(|name| name.parse().ok()).map(Self);
            // A process may end between the listing and the look.
            if let Some((id, stat)) = id.and_then(|id| Some((id, Stat::of(id)?))) {
                processes.insert(id, stat);
            }
        }
        let mut ticks = processes.get(&self)?.ticks;
        let mut parents = vec![self];
        while let Some(parent) = parents.pop() {
            for (id, stat) in processes.iter().filter(|(_, stat)| stat.parent == parent) {
                ticks += stat.ticks;
                parents.push(*id);
            }
        }
        Some(Duration::from_millis(ticks * 1_000 / TICKS_PER_S))
    }

    /// CPU time of the threads of this process alone.
    pub fn cpu_time(self) -> Option<Duration> {
        Stat::of(self).map(|stat| Duration::from_millis(stat.own_ticks * 1_000 / TICKS_PER_S))
    }

    /// The largest resident set so far, in bytes.
    pub fn rss_peak_bytes(self) -> Option<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.0)).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
        line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kibibytes| kibibytes * 1_024)
    }
}

struct Stat {
    parent: ProcessId,
    own_ticks: u64,
    /// Own ticks and those of ended children.
    ticks: u64,
}

impl Stat {
    fn of(id: ProcessId) -> Option<Self> {
        let text = fs::read_to_string(format!("/proc/{}/stat", id.0)).ok()?;
        // The name stands in parentheses and may hold spaces and parentheses itself; fields count from there.
        let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
        let number = |index: usize| fields.get(index)?.parse::<u64>().ok();
        // Fields 4 (parent), 14 and 15 (user, system), 16 and 17 (of ended children) of proc(5).
        let own_ticks = number(11)? + number(12)?;
        let parent = ProcessId(number(1)? as u32);
        Some(Self { parent, own_ticks, ticks: own_ticks + number(13)? + number(14)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_figures_are_plausible() {
        let own = ProcessId::own();
        let before = own.cpu_time().unwrap();
        // However little of a busy machine this process gets, its work shows in the end.
        let start = std::time::Instant::now();
        let mut sum = 0u64;
        while own.cpu_time().unwrap() < before + Duration::from_millis(30) {
            for number in 0..100_000 {
                sum = std::hint::black_box(sum.wrapping_add(number));
            }
            assert!(start.elapsed() < Duration::from_mins(1), "a minute of work counts less than 30 ms");
        }
        assert!(own.rss_peak_bytes().unwrap() > 1 << 20);
        assert_eq!(ProcessId(u32::MAX).tree_cpu_time(), None);
    }

    #[test]
    fn children_count() {
        let mut child = std::process::Command::new("sh")
            .args(["-c", "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; echo done; sleep 10"])
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = [0; 4];
        std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut line).unwrap();
        let own = ProcessId::own();
        // Read in this order, the tree holds at least both.
        let parts = own.cpu_time().unwrap() + ProcessId(child.id()).cpu_time().unwrap();
        let tree = own.tree_cpu_time().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(tree >= parts, "{tree:?} {parts:?}");
    }
}
