//! Topology and placement: nodes, their cpus, distances, and which cpu each worker would get.

use std::path::Path;

use eris_platform::{Origin, Pinning, Topology, WorkerPlan, limits};

use crate::{Report, ensure, on_cpu};

pub fn check(report: &mut Report) {
    report.check("topology", topology);
    report.check("distances", distances);
    report.check("placement of workers", placement);
    report.check("threads stay on their cpu", pinning);
}

pub fn read() -> Topology {
    Topology::read(Path::new("/"))
}

fn topology(report: &mut Report) -> Result<String, String> {
    let topology = read();
    ensure(topology.origin == Origin::Measured, || format!("nodes are {}", topology.origin))?;
    ensure(topology.remarks.is_empty(), || format!("{:?}", topology.remarks))?;
    let cpus: Vec<usize> = topology.nodes.iter().map(|node| node.cpus.len()).collect();
    if let (Some(nodes), Some(each)) = (report.number("nodes"), report.number("cpus")) {
        ensure(cpus == vec![each; nodes], || format!("cpus by node are {cpus:?}"))?;
    }
    let sizes: Option<Vec<u64>> = topology.nodes.iter().map(|node| node.memory_bytes.map(|b| b >> 20)).collect();
    let sizes = sizes.ok_or("a node does not say how much memory it has")?;
    Ok(format!("cpus by node {cpus:?}, MiB by node {sizes:?}"))
}

fn distances(report: &mut Report) -> Result<String, String> {
    let topology = read();
    let rows: Vec<String> = topology
        .nodes
        .iter()
        .map(|node| node.distances.values().map(u32::to_string).collect::<Vec<_>>().join(","))
        .collect();
    let seen = rows.join(";");
    if let Some(expected) = report.options.get("distances") {
        ensure(&seen == expected, || format!("{seen} instead of {expected}"))?;
    }
    Ok(seen)
}

fn placement(_: &mut Report) -> Result<String, String> {
    let topology = read();
    let limits = limits::cpus(Path::new("/"));
    let (nodes, cpus) = (topology.nodes.len(), topology.cpus().count());
    let plan = WorkerPlan::new(cpus, nodes, Pinning::Auto, &topology, &limits).map_err(|error| error.to_string())?;
    let mut taken: Vec<u32> = Vec::new();
    for placement in plan.placements() {
        let cpu = placement.cpu.ok_or_else(|| format!("{} is not pinned: {}", placement.worker, plan.remark()))?;
        let home = topology.nodes.iter().find(|node| node.id == plan.memory_node(placement.node));
        ensure(home.is_some_and(|home| home.cpus.contains(&cpu)), || {
            format!("{} of {} is on {cpu}, whose memory is elsewhere", placement.worker, placement.node)
        })?;
        taken.push(cpu.0);
    }
    let list = format!("{taken:?}");
    taken.sort_unstable();
    taken.dedup();
    ensure(taken.len() == cpus, || format!("two workers share a cpu: {list}"))?;
    Ok(format!("{plan}; cpus {list}"))
}

fn pinning(_: &mut Report) -> Result<String, String> {
    let topology = read();
    for cpu in topology.cpus() {
        let seen = on_cpu(cpu, limits::affinity)?;
        ensure(seen.as_deref() == Some(&[cpu]), || format!("a thread bound to {cpu} may run on {seen:?}"))?;
    }
    Ok(format!("{} cpus, one after the other", topology.cpus().count()))
}
