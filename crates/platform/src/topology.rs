//! The machine's NUMA nodes, their cpus, and which cpus share a core, read from sysfs below a root.
//!
//! Nothing here fails: a machine without `/sys/devices/system/node` (no `CONFIG_NUMA`, many containers) is one node
//! with the online cpus. [`Topology::origin`] and [`Topology::remarks`] say what was found and what had to be assumed.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::str::FromStr;

use crate::cpu_list;
use crate::ids::{CpuId, NodeId};
use crate::limits;
use crate::origin::Origin;

/// The distance of a node to itself, by definition of ACPI's SLIT.
pub const DISTANCE_LOCAL: u32 = 10;
/// What is assumed of another node whose distance is not told (Linux' `REMOTE_DISTANCE`).
pub const DISTANCE_REMOTE: u32 = 20;

/// See the [module](self).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Topology {
    /// Nodes that have cpus, by number. At least one.
    pub nodes: Vec<NumaNode>,
    /// Nodes that have memory and no cpus (memory expanders).
    pub memory_only: Vec<NumaNode>,
    /// `Measured`: nodes were read. `Modelled`: one node with the online cpus. `Unavailable`: not even those were
    /// found, one cpu is assumed.
    pub origin: Origin,
    /// What was missing or unreadable, for `eris doctor`.
    pub remarks: Vec<String>,
    /// The cpus of each cpu's core, itself included, ascending.
    siblings: BTreeMap<CpuId, Vec<CpuId>>,
}

/// A NUMA node of the operating system.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NumaNode {
    /// The operating system's number; may have gaps.
    pub id: NodeId,
    /// Ascending.
    pub cpus: Vec<CpuId>,
    pub memory_bytes: Option<u64>,
    /// Distance to each node by the operating system's number; [`DISTANCE_LOCAL`] is local.
    pub distances: BTreeMap<NodeId, u32>,
}

impl Topology {
    /// Reads the tree below `root` (`/` for the real machine).
    pub fn read(root: &Path) -> Topology {
        let mut remarks = Vec::new();
        let online = online_cpus(root, &mut remarks);
        let (mut nodes, memory_only) = read_nodes(root, online.as_deref(), &mut remarks);
        let mut origin = Origin::Measured;
        if nodes.is_empty() {
            origin = if online.is_some() { Origin::Modelled } else { Origin::Unavailable };
            remarks.push("NUMA nodes are not described by the system: one node is assumed".to_owned());
            let memory_bytes = limits::physical_memory(root);
            let distances = BTreeMap::from([(NodeId(0), DISTANCE_LOCAL)]);
            let cpus = online.unwrap_or_else(|| vec![CpuId(0)]);
            nodes.push(NumaNode { id: NodeId(0), cpus, memory_bytes, distances });
        }
        let mut siblings = BTreeMap::new();
        for &cpu in nodes.iter().flat_map(|node| &node.cpus) {
            let path = format!("sys/devices/system/cpu/cpu{}/topology/thread_siblings_list", cpu.0);
            let mut core = read_list(&root.join(path)).unwrap_or_default();
            if !core.contains(&cpu.0) {
                core = vec![cpu.0];
            }
            siblings.insert(cpu, core.into_iter().map(CpuId).collect());
        }
        Topology { nodes, memory_only, origin, remarks, siblings }
    }

    /// A machine made up for tests and simulations: `nodes` nodes of `cpus_per_node` cpus without SMT.
    ///
    /// # Panics
    /// If either is 0.
    pub fn uniform(nodes: u16, cpus_per_node: u32) -> Topology {
        assert!(nodes > 0 && cpus_per_node > 0, "a machine has at least one node with one cpu");
        let distance = |from, to| if from == to { DISTANCE_LOCAL } else { DISTANCE_REMOTE };
        let node = |id: u16| NumaNode {
            id: NodeId(id),
            cpus: (0..cpus_per_node).map(|cpu| CpuId(u32::from(id) * cpus_per_node + cpu)).collect(),
            memory_bytes: None,
            distances: (0..nodes).map(|to| (NodeId(to), distance(id, to))).collect(),
        };
        let nodes: Vec<NumaNode> = (0..nodes).map(node).collect();
        let siblings = nodes.iter().flat_map(|node| &node.cpus).map(|&cpu| (cpu, vec![cpu])).collect();
        Topology { nodes, memory_only: Vec::new(), origin: Origin::Modelled, remarks: Vec::new(), siblings }
    }

    /// All cpus, node by node.
    pub fn cpus(&self) -> impl Iterator<Item = CpuId> {
        self.nodes.iter().flat_map(|node| node.cpus.iter().copied())
    }

    /// The cpus that share a core with `cpu`, itself included; only itself if nothing is known.
    pub fn siblings(&self, cpu: CpuId) -> Vec<CpuId> {
        self.siblings.get(&cpu).cloned().unwrap_or_else(|| vec![cpu])
    }

    /// Whether the operating system knows a node of this number, so that memory can be bound to it.
    pub fn has_node(&self, id: NodeId) -> bool {
        self.nodes.iter().chain(&self.memory_only).any(|node| node.id == id)
    }
}

fn read_list(path: &Path) -> Option<Vec<u32>> {
    cpu_list::parse(&fs::read_to_string(path).ok()?)
}

/// `cpu/online`; without it the `cpuN` directories; without those nothing.
fn online_cpus(root: &Path, remarks: &mut Vec<String>) -> Option<Vec<CpuId>> {
    let directory = root.join("sys/devices/system/cpu");
    if let Some(online) = read_list(&directory.join("online")).filter(|online| !online.is_empty()) {
        return Some(online.into_iter().map(CpuId).collect());
    }
    remarks.push("sys/devices/system/cpu/online is missing or unreadable".to_owned());
    let mut cpus: Vec<CpuId> = numbered_entries(&directory, "cpu").into_iter().map(CpuId).collect();
    cpus.sort_unstable();
    (!cpus.is_empty()).then_some(cpus)
}

/// The `N` of all entries named `prefixN`.
fn numbered_entries<N: FromStr>(directory: &Path, prefix: &str) -> Vec<N> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.strip_prefix(prefix)?.parse().ok()).collect()
}

fn read_nodes(root: &Path, online: Option<&[CpuId]>, remarks: &mut Vec<String>) -> (Vec<NumaNode>, Vec<NumaNode>) {
    let directory = root.join("sys/devices/system/node");
    let mut ids: Vec<u16> = numbered_entries(&directory, "node");
    ids.sort_unstable();
    let mut nodes = Vec::new();
    let mut memory_only = Vec::new();
    for &id in &ids {
        let path = directory.join(format!("node{id}"));
        let Some(cpus) = read_list(&path.join("cpulist")) else {
            remarks.push(format!("node{id}/cpulist is missing or unreadable: the node is left out"));
            continue;
        };
        // A cpu that was switched off stays in the list of some kernels.
        let is_online = |cpu: &CpuId| online.is_none_or(|online| online.contains(cpu));
        let node = NumaNode {
            id: NodeId(id),
            cpus: cpus.into_iter().map(CpuId).filter(is_online).collect(),
            memory_bytes: node_memory(&path, id),
            distances: node_distances(&path, id, &ids, remarks),
        };
        if node.cpus.is_empty() { memory_only.push(node) } else { nodes.push(node) }
    }
    (nodes, memory_only)
}

/// `Node 0 MemTotal:        8874196 kB` in `meminfo`.
fn node_memory(path: &Path, id: u16) -> Option<u64> {
    let text = fs::read_to_string(path.join("meminfo")).ok()?;
    let prefix = format!("Node {id} MemTotal:");
    let line = text.lines().find_map(|line| line.strip_prefix(&prefix))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kilobytes.checked_mul(1024)
}

/// A row of numbers, one for each node in ascending order.
fn node_distances(path: &Path, id: u16, ids: &[u16], remarks: &mut Vec<String>) -> BTreeMap<NodeId, u32> {
    let text = fs::read_to_string(path.join("distance")).unwrap_or_default();
    let row: Option<Vec<u32>> = text.split_whitespace().map(|distance| distance.parse().ok()).collect();
    if let Some(row) = row.filter(|row| row.len() == ids.len()) {
        return ids.iter().map(|&to| NodeId(to)).zip(row).collect();
    }
    remarks.push(format!("node{id}/distance is missing or does not fit: {DISTANCE_REMOTE} is assumed"));
    ids.iter().map(|&to| (NodeId(to), if to == id { DISTANCE_LOCAL } else { DISTANCE_REMOTE })).collect()
}
