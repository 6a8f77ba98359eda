//! Topology, limits and placement against machines made of directories.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use eris_platform::limits::{self, CpuLimits, MemoryLimit, ResourceDefaults};
use eris_platform::{CpuId, NodeId, Origin, Pinning, PlacementError, Topology, WorkerId, WorkerPlan};

/// A root with files in it; removed on drop.
struct Tree(PathBuf);

impl Tree {
    fn new(files: &[(&str, &str)]) -> Tree {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let root = std::env::temp_dir().join(format!("eris-machine-{}-{number}", std::process::id()));
        let tree = Tree(root);
        fs::create_dir_all(&tree.0).unwrap_or_else(|error| panic!("{error}"));
        tree.add(files)
    }

    fn add(self, files: &[(&str, &str)]) -> Tree {
        for (path, contents) in files {
            let path = self.0.join(path);
            let written = fs::create_dir_all(path.parent().unwrap_or(&path)).and_then(|()| fs::write(&path, contents));
            written.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        }
        self
    }

    fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn cpus(ids: &[u32]) -> Vec<CpuId> {
    ids.iter().copied().map(CpuId).collect()
}

fn limits_of(ids: &[u32], quota: Option<f64>) -> CpuLimits {
    CpuLimits { allowed: cpus(ids), quota, origin: Origin::Measured }
}

/// Two sockets with SMT: cpu 0 shares a core with 4, 1 with 5, and so on; node 2 is a memory expander.
fn two_sockets() -> Tree {
    let mut tree = Tree::new(&[
        ("sys/devices/system/cpu/online", "0-7\n"),
        ("sys/devices/system/node/online", "0-2\n"),
        ("sys/devices/system/node/node0/cpulist", "0-1,4-5\n"),
        ("sys/devices/system/node/node0/distance", "10 21 17\n"),
        (
            "sys/devices/system/node/node0/meminfo",
            "Node 0 MemTotal:        8874196 kB\nNode 0 HugePages_Total:     0\n",
        ),
        ("sys/devices/system/node/node1/cpulist", "2-3,6-7\n"),
        ("sys/devices/system/node/node1/distance", "21 10 28\n"),
        ("sys/devices/system/node/node2/cpulist", "\n"),
        ("sys/devices/system/node/node2/distance", "17 28 10\n"),
        ("sys/devices/system/node/has_cpu", "0-1\n"),
        ("sys/devices/system/node/power/control", "auto\n"),
    ]);
    for cpu in 0..8 {
        let path = format!("sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
        tree = tree.add(&[(&path, &format!("{},{}\n", cpu % 4, cpu % 4 + 4))]);
    }
    tree
}

#[test]
fn reads_nodes_distances_and_siblings() {
    let tree = two_sockets();
    let topology = Topology::read(tree.path());
    assert_eq!(topology.origin, Origin::Measured);
    assert_eq!(topology.remarks, Vec::<String>::new());
    assert_eq!(topology.nodes.len(), 2);
    let node = &topology.nodes[0];
    assert_eq!((node.id, &node.cpus), (NodeId(0), &cpus(&[0, 1, 4, 5])));
    assert_eq!(node.memory_bytes, Some(8_874_196 * 1024));
    assert_eq!(node.distances.values().copied().collect::<Vec<_>>(), [10, 21, 17]);
    assert_eq!(topology.nodes[1].memory_bytes, None);
    assert_eq!(topology.memory_only.len(), 1);
    assert_eq!(topology.siblings(CpuId(6)), cpus(&[2, 6]));
    assert_eq!(topology.siblings(CpuId(99)), cpus(&[99]));
    assert!(topology.has_node(NodeId(2)) && !topology.has_node(NodeId(3)));
}

#[test]
fn missing_pieces_give_one_node_and_say_so() {
    let tree = Tree::new(&[("sys/devices/system/cpu/online", "0-2,5\n")]);
    let topology = Topology::read(tree.path());
    assert_eq!(topology.origin, Origin::Modelled);
    assert_eq!(topology.nodes.len(), 1);
    assert_eq!(topology.nodes[0].cpus, cpus(&[0, 1, 2, 5]));
    assert!(topology.remarks[0].contains("one node is assumed"), "{:?}", topology.remarks);

    let tree = Tree::new(&[("sys/devices/system/cpu/cpu3/x", ""), ("sys/devices/system/cpu/cpufreq/x", "")]);
    assert_eq!(Topology::read(tree.path()).nodes[0].cpus, cpus(&[3]));

    let topology = Topology::read(Tree::new(&[]).path());
    assert_eq!(topology.origin, Origin::Unavailable);
    assert_eq!(topology.nodes[0].cpus, cpus(&[0]));
}

#[test]
fn broken_and_offline_pieces_are_left_out() {
    let tree = two_sockets().add(&[
        ("sys/devices/system/cpu/online", "0-6\n"),
        ("sys/devices/system/node/node1/distance", "21 10\n"),
        ("sys/devices/system/node/node0/cpulist", "nonsense\n"),
    ]);
    let topology = Topology::read(tree.path());
    assert_eq!(topology.nodes.len(), 1);
    assert_eq!(topology.nodes[0].cpus, cpus(&[2, 3, 6]), "cpu 7 is offline");
    assert_eq!(topology.nodes[0].distances[&NodeId(0)], 20);
    assert_eq!(topology.remarks.len(), 2, "{:?}", topology.remarks);
}

#[test]
fn cgroup_v2_limits_of_every_level_count() {
    let tree = Tree::new(&[
        ("proc/self/cgroup", "0::/system.slice/eris.service\n"),
        ("proc/meminfo", "MemTotal:       16777216 kB\nMemFree: 1 kB\n"),
        ("sys/fs/cgroup/cpu.max", "max 100000\n"),
        ("sys/fs/cgroup/system.slice/cpu.max", "150000 100000\n"),
        ("sys/fs/cgroup/system.slice/eris.service/cpu.max", "400000 100000\n"),
        ("sys/fs/cgroup/system.slice/memory.max", "max\n"),
        ("sys/fs/cgroup/system.slice/eris.service/memory.max", "1073741824\n"),
    ]);
    let limits = limits::cpus_with_affinity(tree.path(), Some(cpus(&[0, 1, 2, 3])));
    assert_eq!(limits.quota, Some(1.5));
    assert_eq!(limits.usable(), 2);
    assert!(limits.quota_below_cpus());
    let memory = limits::memory(tree.path());
    assert_eq!(memory, MemoryLimit { bytes: 1 << 30, origin: Origin::Measured, by_cgroup: true });
    let defaults = ResourceDefaults::of(&limits, memory);
    assert_eq!(defaults, ResourceDefaults { workers: 2, memory_bytes: (1 << 30) / 100 * 80 });
}

#[test]
fn cgroup_v1_and_container_paths_count() {
    let tree = Tree::new(&[
        ("proc/self/cgroup", "5:memory:/docker/abc\n4:cpu,cpuacct:/docker/abc\n1:name=systemd:/\n0::/\n"),
        ("proc/meminfo", "MemTotal:       16777216 kB\n"),
        // Inside the container the group's own directory is the mount point.
        ("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "50000\n"),
        ("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n"),
        ("sys/fs/cgroup/memory/memory.limit_in_bytes", "536870912\n"),
    ]);
    let limits = limits::cpus_with_affinity(tree.path(), Some(cpus(&[0, 1])));
    assert_eq!((limits.quota, limits.usable()), (Some(0.5), 1));
    assert_eq!(limits::memory(tree.path()).bytes, 512 << 20);

    let unlimited = tree.add(&[
        ("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n"),
        ("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"),
    ]);
    assert_eq!(limits::cpus_with_affinity(unlimited.path(), None).quota, None);
    let memory = limits::memory(unlimited.path());
    assert_eq!((memory.bytes, memory.by_cgroup), (16 << 30, false));
}

#[test]
fn without_any_information_little_is_assumed() {
    let tree = Tree::new(&[("proc/self/cgroup", "garbage\n0::/../outside\n")]);
    let limits = limits::cpus_with_affinity(tree.path(), None);
    assert_eq!((limits.usable(), limits.quota, limits.origin), (1, None, Origin::Modelled));
    let memory = limits::memory(tree.path());
    assert_eq!((memory.bytes, memory.origin), (1 << 30, Origin::Unavailable));
}

#[test]
fn this_machine_has_cpus_and_memory() {
    let defaults = ResourceDefaults::detect(Path::new("/"));
    assert!(defaults.workers >= 1);
    assert!(defaults.memory_bytes > 64 << 20);
    assert!(!Topology::read(Path::new("/")).nodes.is_empty());
}

#[test]
fn impossible_plans_are_refused_with_both_numbers() {
    let topology = Topology::uniform(2, 2);
    let limits = limits_of(&[0, 1, 2, 3], None);
    let plan = |workers, nodes| WorkerPlan::new(workers, nodes, Pinning::Auto, &topology, &limits);
    assert_eq!(plan(0, 1), Err(PlacementError::NoWorkers { workers: 0 }));
    assert_eq!(plan(1, 0), Err(PlacementError::NoNodes { nodes: 0 }));
    let error = plan(2, 4).map(|_| ()).map_err(|error| error.to_string());
    assert_eq!(error, Err("2 workers are fewer than 4 nodes: each node needs at least one worker".to_owned()));
    assert_eq!(plan(1025, 1), Err(PlacementError::TooManyWorkers { workers: 1025 }));
}

#[test]
fn pins_one_worker_to_each_core_before_its_siblings() {
    let tree = two_sockets();
    let topology = Topology::read(tree.path());
    let limits = limits_of(&[0, 1, 2, 3, 4, 5, 6, 7], None);
    let plan = WorkerPlan::new(6, 2, Pinning::Auto, &topology, &limits).unwrap();
    let pins: Vec<_> = plan.placements().iter().map(|place| (place.node.0, place.cpu.map(|cpu| cpu.0))).collect();
    assert_eq!(pins, [(0, Some(0)), (0, Some(1)), (0, Some(4)), (1, Some(2)), (1, Some(3)), (1, Some(6))]);
    assert_eq!(plan.workers_of(NodeId(1)).collect::<Vec<_>>(), [WorkerId(3), WorkerId(4), WorkerId(5)]);
    assert_eq!(plan.memory_node(NodeId(1)), NodeId(1));
}

/// Many machines number the threads of a core next to each other.
#[test]
fn neighbouring_siblings_come_last_too() {
    let mut tree = Tree::new(&[("sys/devices/system/cpu/online", "0-3\n")]);
    for (cpu, core) in [(0, "0-1"), (1, "0-1"), (2, "2-3"), (3, "2-3")] {
        tree = tree.add(&[(&format!("sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"), core)]);
    }
    let topology = Topology::read(tree.path());
    let pins = |allowed: &[u32], workers| {
        let plan = WorkerPlan::new(workers, 1, Pinning::Auto, &topology, &limits_of(allowed, None)).unwrap();
        plan.placements().iter().map(|place| place.cpu.map_or(99, |cpu| cpu.0)).collect::<Vec<_>>()
    };
    assert_eq!(pins(&[0, 1, 2, 3], 4), [0, 2, 1, 3]);
    assert_eq!(pins(&[1, 2, 3], 2), [1, 2], "a core whose first thread is not ours still counts");
}

#[test]
fn virtual_nodes_spread_over_real_ones_and_real_ones_over_few() {
    let topology = Topology::uniform(2, 4);
    let limits = limits_of(&[0, 1, 2, 3, 4, 5, 6, 7], None);
    let memory = |nodes: u16| {
        let plan = WorkerPlan::new(8, usize::from(nodes), Pinning::Auto, &topology, &limits).unwrap();
        assert!(plan.placements().iter().all(|place| place.cpu.is_some()), "{nodes} nodes: a worker has no cpu");
        (0..nodes).map(|node| plan.memory_node(NodeId(node)).0).collect::<Vec<_>>()
    };
    assert_eq!(memory(1), [0]);
    assert_eq!(memory(2), [0, 1]);
    assert_eq!(memory(4), [0, 0, 1, 1]);
    assert_eq!(memory(8), [0, 0, 0, 0, 1, 1, 1, 1]);
}

#[test]
fn auto_pins_only_where_it_cannot_hurt() {
    let topology = Topology::uniform(1, 4);
    let pinned = |workers, pinning, limits: &CpuLimits| {
        let plan = WorkerPlan::new(workers, 1, pinning, &topology, limits).unwrap();
        (plan.is_pinned(), plan.remark().to_owned())
    };
    let four = limits_of(&[0, 1, 2, 3], None);
    assert!(pinned(4, Pinning::Auto, &four).0);
    assert_eq!(pinned(5, Pinning::Auto, &four), (false, "not pinned: 5 workers share 4 cpus".to_owned()));
    assert!(pinned(5, Pinning::On, &four).0);
    assert!(!pinned(4, Pinning::Off, &four).0);
    assert!(!pinned(1, Pinning::Auto, &limits_of(&[2], None)).0, "one cpu");
    let (is_pinned, remark) = pinned(2, Pinning::Auto, &limits_of(&[0, 1, 2, 3], Some(2.5)));
    assert_eq!((is_pinned, remark.as_str()), (false, "not pinned: a quota of 2.50 cpus is below 4 cpus"));
    assert!(pinned(2, Pinning::Auto, &limits_of(&[0, 1], Some(2.0))).0);
}

/// Over all small machines: every node has workers, shares are even, pins are allowed, distinct and on the right node.
#[test]
fn every_plan_is_fair_and_pins_apart() {
    for (real_nodes, cpus_per_node) in [(1, 1), (1, 2), (1, 4), (2, 2), (4, 3)] {
        let topology = Topology::uniform(real_nodes, cpus_per_node);
        let all: Vec<u32> = topology.cpus().map(|cpu| cpu.0).collect();
        for allowed in [all.clone(), all.iter().copied().skip(1).collect::<Vec<_>>()] {
            if allowed.is_empty() {
                continue;
            }
            let limits = limits_of(&allowed, None);
            for nodes in 1..=6 {
                for workers in nodes..=14 {
                    let plan = WorkerPlan::new(workers, nodes, Pinning::Auto, &topology, &limits).unwrap();
                    check(&plan, workers, nodes, &topology, &limits);
                }
            }
        }
    }
}

fn check(plan: &WorkerPlan, workers: usize, nodes: usize, topology: &Topology, limits: &CpuLimits) {
    let place = format!("{workers} workers, {nodes} nodes, {} cpus", limits.allowed.len());
    assert_eq!((plan.workers(), plan.nodes()), (workers, nodes), "{place}");
    let mut pins = Vec::new();
    for node in 0..nodes as u16 {
        let count = plan.workers_of(NodeId(node)).count();
        assert!((workers / nodes..=workers.div_ceil(nodes)).contains(&count), "{place}: node {node} has {count}");
        for worker in plan.workers_of(NodeId(node)) {
            assert_eq!(plan.node_of(worker), NodeId(node), "{place}");
            let Some(cpu) = plan.cpu_of(worker) else { continue };
            assert!(limits.allowed.contains(&cpu), "{place}: {cpu} is not allowed");
            if nodes >= topology.nodes.len() {
                let home = topology.nodes.iter().find(|real| real.cpus.contains(&cpu)).map(|real| real.id);
                assert_eq!(home, Some(plan.memory_node(NodeId(node))), "{place}: {cpu} is on another node");
            }
            pins.push(cpu);
        }
    }
    assert!(plan.placements().iter().enumerate().all(|(index, place)| place.worker.index() == index), "{place}");
    let count = pins.len();
    pins.sort_unstable();
    pins.dedup();
    assert_eq!(pins.len(), count, "{place}: two workers share a cpu");
    assert_eq!(workers > limits.allowed.len() || limits.allowed.len() < 2, !plan.is_pinned(), "{place}");
}
