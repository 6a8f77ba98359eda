//! How much of the machine the process may use: affinity, cgroup quotas and memory limits, v2 and v1.
//!
//! A limit may be set on any group between the process and the root of the hierarchy, so all of them are looked at and
//! the smallest wins. Inside a container `/proc/self/cgroup` often names a path of the *host*, while the mounted
//! hierarchy starts at the container's own group; a path that is not there is therefore skipped, and the mount point
//! itself always counts.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::ids::CpuId;
use crate::origin::Origin;
use crate::topology::Topology;

/// The share of the memory limit that the database takes by default; the rest is for code, stacks, buffers of the
/// kernel and everything that is not accounted.
pub const MEMORY_DEFAULT_PERCENT: u64 = 80;
/// What is assumed of a machine that does not say how much memory it has.
const MEMORY_ASSUMED_BYTES: u64 = 1 << 30;
/// v1 reports "no limit" as the largest multiple of the page size; everything in that region means none.
const MEMORY_UNLIMITED_BYTES: u64 = 1 << 60;

/// Which cpus the process may use, and how much of them.
#[derive(Clone, PartialEq, Debug)]
pub struct CpuLimits {
    /// Cpus the process may run on, ascending. At least one.
    pub allowed: Vec<CpuId>,
    /// Cpu seconds per second, if a cgroup limits them; may be a fraction.
    pub quota: Option<f64>,
    pub origin: Origin,
}

impl CpuLimits {
    /// How many workers can run at once: the allowed cpus, or the quota rounded up if that is less.
    pub fn usable(&self) -> usize {
        let quota = self.quota.map_or(usize::MAX, |quota| quota.ceil().max(1.0) as usize);
        self.allowed.len().min(quota)
    }

    /// Whether the quota is what limits: then threads are stopped by the kernel wherever they run, and pinning hurts.
    pub fn quota_below_cpus(&self) -> bool {
        self.quota.is_some_and(|quota| quota < self.allowed.len() as f64)
    }
}

/// How much memory the process may use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemoryLimit {
    pub bytes: u64,
    /// `Measured` from a cgroup or the machine's memory; `Unavailable`: an assumption of 1 GiB.
    pub origin: Origin,
    /// Whether a cgroup is what limits.
    pub by_cgroup: bool,
}

/// What a database takes when nothing is configured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ResourceDefaults {
    pub workers: usize,
    pub memory_bytes: u64,
}

impl ResourceDefaults {
    /// From the limits of the process on the machine below `root`.
    pub fn detect(root: &Path) -> ResourceDefaults {
        ResourceDefaults::of(&cpus(root), memory(root))
    }

    pub fn of(cpus: &CpuLimits, memory: MemoryLimit) -> ResourceDefaults {
        ResourceDefaults { workers: cpus.usable(), memory_bytes: memory.bytes / 100 * MEMORY_DEFAULT_PERCENT }
    }
}

/// The cpu limits of this process: its affinity, and the cgroups described below `root`.
pub fn cpus(root: &Path) -> CpuLimits {
    cpus_with_affinity(root, affinity())
}

/// As [`cpus`], with the affinity given (`None`: unknown, then the online cpus count).
pub fn cpus_with_affinity(root: &Path, affinity: Option<Vec<CpuId>>) -> CpuLimits {
    let origin = if affinity.is_some() { Origin::Measured } else { Origin::Modelled };
    let allowed = affinity.filter(|cpus| !cpus.is_empty()).unwrap_or_else(|| Topology::read(root).cpus().collect());
    let groups = Groups::of_this_process(root);
    let unified = groups.unified().filter_map(|group| quota_v2(&group));
    let quotas = unified.chain(groups.legacy("cpu").filter_map(|group| quota_v1(&group)));
    CpuLimits { allowed, quota: quotas.reduce(f64::min), origin }
}

/// The memory limit of this process: the smallest of its cgroups' limits and the machine's memory.
pub fn memory(root: &Path) -> MemoryLimit {
    let groups = Groups::of_this_process(root);
    let unified = groups.unified().filter_map(|group| read_number(&group.join("memory.max")));
    let legacy = groups.legacy("memory").filter_map(|group| read_number(&group.join("memory.limit_in_bytes")));
    let limit = unified.chain(legacy).filter(|&bytes| 0 < bytes && bytes < MEMORY_UNLIMITED_BYTES).min();
    match (limit, physical_memory(root)) {
        (Some(limit), physical) if physical.is_none_or(|physical| limit < physical) => {
            MemoryLimit { bytes: limit, origin: Origin::Measured, by_cgroup: true }
        }
        (_, Some(physical)) => MemoryLimit { bytes: physical, origin: Origin::Measured, by_cgroup: false },
        (_, None) => MemoryLimit { bytes: MEMORY_ASSUMED_BYTES, origin: Origin::Unavailable, by_cgroup: false },
    }
}

/// The files that say how full a group is whose memory is limited.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct GroupFiles {
    pub(crate) limit: PathBuf,
    pub(crate) current: PathBuf,
    pub(crate) statistics: PathBuf,
    /// The line of the statistics with the bytes of file pages that can go at once.
    pub(crate) inactive: &'static str,
}

impl GroupFiles {
    /// Limit and current use without file pages that can go at once, if the group is limited.
    pub(crate) fn read(&self) -> Option<(u64, u64)> {
        let limit = read_number(&self.limit).filter(|&bytes| 0 < bytes && bytes < MEMORY_UNLIMITED_BYTES)?;
        let current = read_number(&self.current)?;
        let text = fs::read_to_string(&self.statistics).unwrap_or_default();
        let inactive = text.lines().find_map(|line| line.strip_prefix(self.inactive)?.trim().parse().ok());
        Some((limit, current.saturating_sub(inactive.unwrap_or(0))))
    }
}

/// The groups of this process that limit memory, its own first.
pub(crate) fn memory_groups(root: &Path) -> Vec<GroupFiles> {
    let groups = Groups::of_this_process(root);
    let unified = groups.unified().map(|group| GroupFiles {
        limit: group.join("memory.max"),
        current: group.join("memory.current"),
        statistics: group.join("memory.stat"),
        inactive: "inactive_file ",
    });
    let legacy = groups.legacy("memory").map(|group| GroupFiles {
        limit: group.join("memory.limit_in_bytes"),
        current: group.join("memory.usage_in_bytes"),
        statistics: group.join("memory.stat"),
        inactive: "total_inactive_file ",
    });
    let mut found: Vec<GroupFiles> = Vec::new();
    for files in unified.chain(legacy) {
        if !found.contains(&files) && files.read().is_some() {
            found.push(files);
        }
    }
    found
}

/// The machine's memory: `MemTotal` of `/proc/meminfo`.
pub fn physical_memory(root: &Path) -> Option<u64> {
    let text = fs::read_to_string(root.join("proc/meminfo")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kilobytes.checked_mul(1024)
}

/// Bytes of address space that the process may have, if that is limited: all of it (`ulimit -v`), or what is private
/// and writable (`ulimit -d`), which is all but code. Allocates nothing.
pub fn address_space() -> Option<u64> {
    match (resource(libc::RLIMIT_AS), resource(libc::RLIMIT_DATA)) {
        (Some(all), Some(data)) => Some(all.min(data)),
        (all, data) => all.or(data),
    }
}

/// Descriptors of files and sockets that the process may have open (`ulimit -n`), if that is limited.
pub fn descriptors() -> Option<u64> {
    resource(libc::RLIMIT_NOFILE)
}

fn resource(which: libc::__rlimit_resource_t) -> Option<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the call writes one structure to a valid pointer.
    let result = unsafe { libc::getrlimit(which, &raw mut limit) };
    (result == 0 && limit.rlim_cur != libc::RLIM_INFINITY).then_some(limit.rlim_cur)
}

/// The cpus this thread may run on, or `None` if the kernel does not tell.
pub fn affinity() -> Option<Vec<CpuId>> {
    // SAFETY: an all-zero cpu_set_t is the empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: the set is writable and as long as stated; pid 0 is the calling thread.
    let result = unsafe { libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut set) };
    if result != 0 {
        return None;
    }
    let capacity = 8 * size_of::<libc::cpu_set_t>();
    // SAFETY: the index is below the set's capacity.
    let allowed = (0..capacity).filter(|&cpu| unsafe { libc::CPU_ISSET(cpu, &set) });
    Some(allowed.map(|cpu| CpuId(cpu as u32)).collect())
}

/// Lets this thread run on these cpus only. Threads that it starts afterwards inherit them.
pub fn set_affinity(cpus: &[CpuId]) -> io::Result<()> {
    let capacity = 8 * size_of::<libc::cpu_set_t>();
    // SAFETY: an all-zero cpu_set_t is the empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    for cpu in cpus {
        let index = cpu.0 as usize;
        if index >= capacity {
            let text = format!("a thread cannot be bound to {cpu}: the system call knows {capacity} cpus");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        // SAFETY: the index is below the set's capacity.
        unsafe { libc::CPU_SET(index, &mut set) };
    }
    // SAFETY: the set is readable and as long as stated; pid 0 is the calling thread.
    let result = unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set) };
    if result == 0 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    let names: Vec<String> = cpus.iter().map(CpuId::to_string).collect();
    Err(io::Error::new(error.kind(), format!("cannot bind a thread to {}: {error}", names.join(", "))))
}

/// `cpu.max`: `max 100000` or `150000 100000` (quota and period in microseconds).
fn quota_v2(group: &Path) -> Option<f64> {
    let text = fs::read_to_string(group.join("cpu.max")).ok()?;
    let mut words = text.split_whitespace();
    let quota: f64 = words.next()?.parse().ok()?;
    let period: f64 = words.next().map_or(Some(100_000.0), |period| period.parse().ok())?;
    (quota > 0.0 && period > 0.0).then_some(quota / period)
}

/// `cpu.cfs_quota_us` (-1: none) over `cpu.cfs_period_us`.
fn quota_v1(group: &Path) -> Option<f64> {
    let quota = read_number(&group.join("cpu.cfs_quota_us"))?;
    let period = read_number(&group.join("cpu.cfs_period_us"))?;
    (quota > 0 && period > 0).then(|| quota as f64 / period as f64)
}

/// A whole number; `None` for `max`, `-1`, a missing file.
fn read_number(path: &Path) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// The groups this process is in.
struct Groups {
    root: PathBuf,
    /// Controllers (empty for v2) and path, as in the lines `4:memory:/path` and `0::/path`.
    memberships: Vec<(Vec<String>, String)>,
}

impl Groups {
    fn of_this_process(root: &Path) -> Groups {
        let text = fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
        let parse = |line: &str| {
            let mut fields = line.splitn(3, ':').skip(1);
            let controllers = fields.next()?.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect();
            Some((controllers, fields.next()?.to_owned()))
        };
        Groups { root: root.to_path_buf(), memberships: text.lines().filter_map(parse).collect() }
    }

    /// The v2 groups from the process's own up to the mount point. On hybrid systems v2 is mounted beside the v1
    /// hierarchies, in `unified`.
    fn unified(&self) -> impl Iterator<Item = PathBuf> {
        let path = self.memberships.iter().find(|(controllers, _)| controllers.is_empty());
        let path = path.map_or("", |(_, path)| path);
        ["sys/fs/cgroup", "sys/fs/cgroup/unified"].into_iter().flat_map(move |mount| self.chain(mount, path))
    }

    /// The v1 groups of `controller` from the process's own up to the mount point. A hierarchy is mounted under the
    /// name of its controllers (`cpu,cpuacct`), usually with a link from each of them.
    fn legacy(&self, controller: &str) -> impl Iterator<Item = PathBuf> {
        let membership = self.memberships.iter().find(|(names, _)| names.iter().any(|name| name == controller));
        let path = membership.map_or("", |(_, path)| path);
        let joined = membership.map_or(controller.to_owned(), |(names, _)| names.join(","));
        let mounts = [format!("sys/fs/cgroup/{controller}"), format!("sys/fs/cgroup/{joined}")];
        mounts.into_iter().flat_map(move |mount| self.chain(&mount, path))
    }

    /// The directories from `mount/path` up to `mount`.
    fn chain(&self, mount: &str, path: &str) -> Vec<PathBuf> {
        let mount = self.root.join(mount);
        // `..` appears when the process's group lies outside the namespace: only the mount point is visible then.
        let relative = Path::new(path.trim_start_matches('/'));
        let visible = !path.split('/').any(|part| part == "..");
        let own = if visible { mount.join(relative) } else { mount.clone() };
        own.ancestors().take_while(|group| group.starts_with(&mount)).map(Path::to_path_buf).collect()
    }
}
