//! Which worker belongs to which node and runs on which cpu.
//!
//! `--workers` is the total. Workers are dealt to nodes in contiguous, nearly equal shares: worker ids of one node are
//! neighbours. When there are more nodes of ERIS than NUMA nodes, several *virtual* nodes share one; when there are
//! fewer, one node spans several.

use std::fmt;

use crate::ids::{CpuId, NodeId, WorkerId};
use crate::limits::CpuLimits;
use crate::topology::Topology;

/// Node and worker ids have 16 bits.
pub const WORKERS_MAX: usize = 1024;

/// Whether workers are bound to hardware threads.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Pinning {
    /// When it cannot hurt: each worker gets a cpu of its own, there is more than one, and no quota stops threads.
    #[default]
    Auto,
    On,
    Off,
}

/// What cannot be planned.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PlacementError {
    #[error("{workers} workers cannot run a database: at least 1 is needed")]
    NoWorkers { workers: usize },
    #[error("{nodes} nodes cannot hold a database: at least 1 is needed")]
    NoNodes { nodes: usize },
    #[error("{workers} workers are fewer than {nodes} nodes: each node needs at least one worker")]
    FewerWorkersThanNodes { workers: usize, nodes: usize },
    #[error("{workers} workers are more than the {WORKERS_MAX} that can be addressed")]
    TooManyWorkers { workers: usize },
}

/// Where one worker lives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WorkerPlacement {
    pub worker: WorkerId,
    pub node: NodeId,
    /// The cpu it is pinned to, if it is.
    pub cpu: Option<CpuId>,
}

/// The plan for all workers, fixed when a database opens.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WorkerPlan {
    placements: Vec<WorkerPlacement>,
    /// For each node of ERIS the NUMA node that holds its memory.
    memory_nodes: Vec<NodeId>,
    /// For `eris doctor`.
    remark: String,
}

impl WorkerPlan {
    pub fn new(
        workers: usize,
        nodes: usize,
        pinning: Pinning,
        topology: &Topology,
        limits: &CpuLimits,
    ) -> Result<WorkerPlan, PlacementError> {
        if workers == 0 {
            return Err(PlacementError::NoWorkers { workers });
        }
        if nodes == 0 {
            return Err(PlacementError::NoNodes { nodes });
        }
        if workers < nodes {
            return Err(PlacementError::FewerWorkersThanNodes { workers, nodes });
        }
        if workers > WORKERS_MAX {
            return Err(PlacementError::TooManyWorkers { workers });
        }
        let domains = domains_of(nodes, topology, limits);
        let (pins, remark) = decide_pinning(workers, pinning, limits);
        let mut placements = Vec::with_capacity(workers);
        // Virtual nodes of one NUMA node draw from the same cpus; where each stopped is kept by NUMA node.
        let mut drawn = vec![0; domains.len()];
        for (node, domain) in domains.iter().enumerate() {
            let shares_with = domains.iter().position(|other| other.cpus == domain.cpus).unwrap_or(node);
            for worker in share(workers, nodes, node) {
                let cpu = pins.then(|| domain.cpus[drawn[shares_with] % domain.cpus.len()]);
                drawn[shares_with] += 1;
                placements.push(WorkerPlacement { worker: WorkerId(worker as u16), node: NodeId(node as u16), cpu });
            }
        }
        if pinning == Pinning::Auto {
            keep_pins_apart(&mut placements);
        }
        Ok(WorkerPlan { placements, memory_nodes: domains.iter().map(|domain| domain.memory).collect(), remark })
    }

    /// A plan without pins for the simulator and for tests: `workers` dealt to `nodes`.
    pub fn unpinned(workers: usize, nodes: usize) -> Result<WorkerPlan, PlacementError> {
        let topology = Topology::uniform(1, 1);
        let limits = CpuLimits { allowed: topology.cpus().collect(), quota: None, origin: topology.origin };
        WorkerPlan::new(workers, nodes, Pinning::Off, &topology, &limits)
    }

    pub fn workers(&self) -> usize {
        self.placements.len()
    }

    pub fn nodes(&self) -> usize {
        self.memory_nodes.len()
    }

    /// All workers, by id.
    pub fn placements(&self) -> &[WorkerPlacement] {
        &self.placements
    }

    /// # Panics
    /// If there is no such worker.
    pub fn node_of(&self, worker: WorkerId) -> NodeId {
        self.placements[worker.index()].node
    }

    /// # Panics
    /// If there is no such worker.
    pub fn cpu_of(&self, worker: WorkerId) -> Option<CpuId> {
        self.placements[worker.index()].cpu
    }

    /// The workers of `node`, a contiguous range.
    pub fn workers_of(&self, node: NodeId) -> impl Iterator<Item = WorkerId> {
        share(self.workers(), self.nodes(), node.index()).map(|worker| WorkerId(worker as u16))
    }

    /// The NUMA node of the operating system that should hold the memory of `node`.
    ///
    /// # Panics
    /// If there is no such node.
    pub fn memory_node(&self, node: NodeId) -> NodeId {
        self.memory_nodes[node.index()]
    }

    pub fn is_pinned(&self) -> bool {
        self.placements.iter().any(|placement| placement.cpu.is_some())
    }

    /// Why workers are pinned or not.
    pub fn remark(&self) -> &str {
        &self.remark
    }
}

impl fmt::Display for WorkerPlan {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} workers on {} nodes, {}", self.workers(), self.nodes(), self.remark)
    }
}

/// The hardware behind one node of ERIS.
struct Domain {
    /// One cpu of each core first, then their siblings. Not empty.
    cpus: Vec<CpuId>,
    memory: NodeId,
}

/// The `part`-th of `parts` contiguous, nearly equal shares of `0..total`.
fn share(total: usize, parts: usize, part: usize) -> std::ops::Range<usize> {
    total * part / parts..total * (part + 1) / parts
}

fn domains_of(nodes: usize, topology: &Topology, limits: &CpuLimits) -> Vec<Domain> {
    let usable = |cpu: &CpuId| limits.allowed.contains(cpu);
    let mut real: Vec<Domain> = topology
        .nodes
        .iter()
        .map(|node| Domain { cpus: node.cpus.iter().copied().filter(usable).collect(), memory: node.id })
        .filter(|domain| !domain.cpus.is_empty())
        .collect();
    if real.is_empty() {
        // The affinity names cpus that the topology does not know: the former is what binds.
        real.push(Domain { cpus: limits.allowed.clone(), memory: topology.nodes[0].id });
    }
    let domain = |node| {
        // Fewer nodes than NUMA nodes: a share of several. More: the one NUMA node this virtual node falls into.
        let mut covered = share(real.len(), nodes, node);
        if nodes > real.len() {
            let only = node * real.len() / nodes;
            covered = only..only + 1;
        }
        let memory = real[covered.start].memory;
        let cpus: Vec<CpuId> = real[covered].iter().flat_map(|domain| domain.cpus.iter().copied()).collect();
        Domain { cpus: cores_first(&cpus, topology), memory }
    };
    (0..nodes).map(domain).collect()
}

/// Two workers on one core share its units, so every core gets one before any gets a second.
fn cores_first(cpus: &[CpuId], topology: &Topology) -> Vec<CpuId> {
    let rank =
        |cpu: CpuId| topology.siblings(cpu).iter().filter(|sibling| cpus.contains(sibling)).position(|&s| s == cpu);
    let mut ranked: Vec<_> = cpus.iter().map(|&cpu| (rank(cpu), cpu)).collect();
    // Stable: within a rank the order of the nodes stays.
    ranked.sort_by_key(|&(rank, _)| rank);
    ranked.into_iter().map(|(_, cpu)| cpu).collect()
}

fn decide_pinning(workers: usize, pinning: Pinning, limits: &CpuLimits) -> (bool, String) {
    let cpus = limits.allowed.len();
    match pinning {
        Pinning::Off => (false, "not pinned, as configured".to_owned()),
        Pinning::On => (true, "pinned, as configured".to_owned()),
        Pinning::Auto if cpus < 2 => (false, "not pinned: there is one cpu".to_owned()),
        Pinning::Auto if workers > cpus => (false, format!("not pinned: {workers} workers share {cpus} cpus")),
        Pinning::Auto if limits.quota_below_cpus() => {
            (false, format!("not pinned: a quota of {:.2} cpus is below {cpus} cpus", limits.quota.unwrap_or_default()))
        }
        Pinning::Auto => (true, "pinned: each worker has a cpu of its own".to_owned()),
    }
}

/// An uneven machine can have enough cpus in total and too few on one node: there the later workers stay unpinned
/// rather than share a cpu.
fn keep_pins_apart(placements: &mut [WorkerPlacement]) {
    let mut taken = std::collections::BTreeSet::new();
    for placement in placements {
        placement.cpu = placement.cpu.filter(|&cpu| taken.insert(cpu));
    }
}
