//! Arenas on several nodes: bound, interleaved, moved both ways, and on a node without memory.

use std::time::Instant;

use eris_platform::arena::NumaPlacement;
use eris_platform::{Arena, ArenaOptions, Block, CpuId, Location, MemoryPool, NodeId};

use crate::machine::read;
use crate::{Report, ensure, on_cpu};

const MIB: usize = 1 << 20;
/// Moved and spread in one go.
const LARGE: usize = 16 * MIB;

pub fn check(report: &mut Report) {
    report.check("arenas lie on their node", bound);
    report.check("pages are moved", |report| moved(report, false));
    report.check("blocks are copied", |report| moved(report, true));
    report.check("interleaved pages are spread evenly", interleaved);
    if report.number("spare").is_some() {
        report.check("a full node falls back and says so", full);
    }
}

fn arena_on(node: NodeId) -> Arena {
    let options = ArenaOptions { memory_node: Some(node), huge_pages: false, consumer: "columns" };
    Arena::with_options(node, &MemoryPool::unlimited(), options)
}

fn all_on(location: &Location, node: NodeId) -> Result<u64, String> {
    let bytes = location.bytes_on(node);
    let all = location.unavailable.is_none() && location.bytes_away_from(node) == 0 && location.unknown_bytes == 0;
    ensure(all && bytes > 0, || format!("not all of it is on {node}: {location}"))?;
    Ok(bytes)
}

fn filled(arena: &Arena, length: usize, fill: u8) -> Result<Block, String> {
    let mut block = arena.allocate_bytes(length, 64).map_err(|error| error.to_string())?;
    block.fill(fill);
    Ok(block)
}

/// A cpu of another node than `node`, so that "the node of the thread that touches it" would be wrong.
fn foreign_cpu(node: NodeId) -> Result<CpuId, String> {
    let other = read().nodes.into_iter().find(|other| other.id != node).ok_or("there is one node only")?;
    Ok(other.cpus[0])
}

fn bound(_: &mut Report) -> Result<String, String> {
    let mut bytes = Vec::new();
    for node in read().nodes.iter().map(|node| node.id) {
        let arena = arena_on(node);
        let blocks = on_cpu(foreign_cpu(node)?, || -> Result<Vec<Block>, String> {
            // Slots of several sizes, and mappings of their own.
            [100, 5_000, 70_000, 200_000, 4 * MIB].iter().map(|length| filled(&arena, *length, 1)).collect()
        })??;
        ensure(arena.numa_placement() == Some(NumaPlacement::Bound(node)), || format!("{:?}", arena.remark()))?;
        for block in &blocks {
            all_on(&block.location(), node)?;
        }
        bytes.push(all_on(&arena.location(), node)?);
        ensure(arena.remark().is_none(), || format!("{:?}", arena.remark()))?;
    }
    Ok(format!("bytes by node {bytes:?}, touched from other nodes"))
}

/// Each node to the one farthest from it, by moving pages or by copying.
fn moved(report: &mut Report, copy: bool) -> Result<String, String> {
    let topology = read();
    let mut routes = Vec::new();
    for node in &topology.nodes {
        let farthest = node.distances.iter().max_by_key(|(to, distance)| (**distance, to.0)).map(|(to, _)| *to);
        let (from, to) = (node.id, farthest.ok_or("the node has no distances")?);
        let (source, target) = (arena_on(from), arena_on(to));
        let small = filled(&source, 20_000, 3)?;
        let large = filled(&source, LARGE, 4)?;
        all_on(&source.location(), from)?;
        let start = Instant::now();
        let (small, large) = if copy {
            let copied = |block: &Block| block.copy_to(&target).map_err(|error| error.to_string());
            (copied(&small)?, copied(&large)?)
        } else {
            all_on(&source.migrate(to), to)?;
            (small, large)
        };
        let ms_per_mib = start.elapsed().as_secs_f64() * 1e3 / (LARGE / MIB) as f64;
        all_on(&large.location(), to)?;
        all_on(&small.location(), to)?;
        ensure(small.iter().all(|byte| *byte == 3) && large.iter().all(|byte| *byte == 4), || {
            format!("bytes changed on the way from {from} to {to}")
        })?;
        let way = if copy { "copying a block" } else { "moving pages" };
        let name = format!("{way}, {from} to {to}, distance {}", topology_distance(&topology, from, to));
        report.figure(&name, (ms_per_mib * 1e3).round() / 1e3, "ms/MiB");
        routes.push(format!("{} to {}: {ms_per_mib:.2} ms/MiB", from.0, to.0));
        // What is allocated from now on comes from there, too.
        if !copy {
            all_on(&filled(&source, 100_000, 5)?.location(), to)?;
        }
    }
    Ok(routes.join(", "))
}

fn topology_distance(topology: &eris_platform::Topology, from: NodeId, to: NodeId) -> u32 {
    let node = topology.nodes.iter().find(|node| node.id == from);
    node.and_then(|node| node.distances.get(&to)).copied().unwrap_or(0)
}

fn interleaved(_: &mut Report) -> Result<String, String> {
    let nodes: Vec<NodeId> = read().nodes.iter().map(|node| node.id).collect();
    let arena = Arena::interleaved(NodeId(0), &MemoryPool::unlimited(), &nodes);
    let block = filled(&arena, LARGE, 1)?;
    let location = block.location();
    let share = (LARGE / nodes.len()) as u64;
    for node in &nodes {
        let bytes = location.bytes_on(*node);
        // Within a page for each of the kernel's batches.
        ensure(bytes.abs_diff(share) <= share / 100, || format!("{node} has {bytes} of {share} bytes: {location}"))?;
    }
    Ok(location.to_string())
}

/// Fills a node beyond what it has.
fn full(report: &mut Report) -> Result<String, String> {
    let node = NodeId(report.number("spare").unwrap_or(0) as u16);
    let known = read().nodes.into_iter().find(|known| known.id == node).ok_or("there is no such node")?;
    let has = known.memory_bytes.ok_or("the node does not say how much memory it has")?;
    let arena = arena_on(node);
    let mut blocks = Vec::new();
    let wanted = has as usize + 64 * MIB;
    while blocks.len() * LARGE < wanted {
        blocks.push(filled(&arena, LARGE, 6)?);
    }
    let location = arena.location();
    let (at_home, away) = (location.bytes_on(node), location.bytes_away_from(node));
    ensure(at_home > has / 2, || format!("{at_home} of {has} bytes of {node} were used: {location}"))?;
    ensure(away >= 64 << 20, || format!("{away} bytes lie elsewhere: {location}"))?;
    ensure(blocks.iter().all(|block| block[LARGE - 1] == 6), || "bytes are lost".to_owned())?;
    let remark = arena.remark().ok_or("nothing is said about it")?;
    ensure(remark.contains("no free memory") && remark.contains(&away.to_string()), || remark.clone())?;
    drop(blocks);
    // With its memory back the node is used again.
    all_on(&filled(&arena, LARGE, 7)?.location(), node)?;
    Ok(remark)
}
