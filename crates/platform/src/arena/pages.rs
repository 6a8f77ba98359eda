//! Where pages lie, and moving them: the kernel's `mbind` and `move_pages`.
//!
//! ```text
//! mbind       which node the pages of a range shall come from when they are touched first   (a policy)
//! move_pages  without nodes: on which node each page lies; with nodes: puts it there        (pages that exist)
//! ```
//! Kernels without NUMA answer `ENOSYS`, containers often `EPERM`. Neither is an error of ours: a location then says
//! *unavailable* and why, and memory stays where the kernel put it.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::ptr::NonNull;

use super::mapping::{NumaPlacement, PAGE_BYTES};
use crate::ids::NodeId;
use crate::origin::Origin;

/// `MPOL_PREFERRED`: from this node if it has free memory, else from elsewhere. The strict `MPOL_BIND` would make the
/// kernel kill the process when the node is full while others are empty.
const MPOL_PREFERRED: libc::c_int = 1;
/// `MPOL_INTERLEAVE`: page by page from each node in turn.
const MPOL_INTERLEAVE: libc::c_int = 3;
/// `MPOL_MF_MOVE`: pages that only this process maps.
const MPOL_MF_MOVE: libc::c_int = 2;

/// Words of a node mask: 1,024 nodes, as many as Linux can be built for.
const MASK_WORDS: usize = 16;

/// Pages asked about in one system call: the arrays stay within the first-level cache.
const PAGES_PER_CALL: usize = 512;

/// From which nodes memory shall come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Policy {
    /// From the node of the thread that touches a page first.
    Anywhere,
    Preferred(NodeId),
    Interleaved(NodeMask),
}

/// A set of nodes as the kernel wants it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct NodeMask([u64; MASK_WORDS]);

impl NodeMask {
    /// `None` if a node is beyond what can be addressed.
    fn of(nodes: &[NodeId]) -> Option<NodeMask> {
        let mut mask = NodeMask::default();
        for node in nodes {
            *mask.0.get_mut(node.index() / 64)? |= 1 << (node.index() % 64);
        }
        Some(mask)
    }

    fn nodes(self) -> Vec<NodeId> {
        let has = |node: &usize| self.0[node / 64] & (1 << (node % 64)) != 0;
        (0..64 * MASK_WORDS).filter(has).map(|node| NodeId(node as u16)).collect()
    }
}

impl Policy {
    /// Pages in turn from each of these nodes; those beyond the mask are left out.
    pub(super) fn interleaved(nodes: &[NodeId]) -> Policy {
        let known: Vec<NodeId> = nodes.iter().copied().filter(|node| node.index() < 64 * MASK_WORDS).collect();
        NodeMask::of(&known).map_or(Policy::Anywhere, Policy::Interleaved)
    }

    /// Tells the kernel where the pages of a range shall come from.
    pub(super) fn apply(self, start: NonNull<u8>, bytes: usize) -> NumaPlacement {
        let (mode, mask) = match self {
            Policy::Anywhere => return NumaPlacement::Unbound("no NUMA node was asked for".to_owned()),
            Policy::Preferred(node) => {
                let Some(mask) = NodeMask::of(&[node]) else {
                    let bits = 64 * MASK_WORDS;
                    return NumaPlacement::Unbound(format!("{node} is beyond the {bits} nodes that can be addressed"));
                };
                (MPOL_PREFERRED, mask)
            }
            Policy::Interleaved(mask) => (MPOL_INTERLEAVE, mask),
        };
        // The kernel reads one bit less than it is told.
        let bits_told = (64 * MASK_WORDS) as libc::c_ulong + 1;
        // SAFETY: the range is a mapping of ours and page-aligned; the mask is as long as told.
        let result = unsafe {
            libc::syscall(libc::SYS_mbind, start.as_ptr(), bytes, mode, mask.0.as_ptr(), bits_told, 0 as libc::c_int)
        };
        if result == 0 {
            return match self {
                Policy::Preferred(node) => NumaPlacement::Bound(node),
                Policy::Anywhere | Policy::Interleaved(_) => NumaPlacement::Interleaved(mask.nodes()),
            };
        }
        let error = io::Error::last_os_error();
        NumaPlacement::Unbound(match self {
            Policy::Preferred(node) => format!("the system has no NUMA node {} to bind to: {error}", node.0),
            Policy::Anywhere | Policy::Interleaved(_) => {
                format!("the system does not spread memory over nodes {:?}: {error}", mask.nodes())
            }
        })
    }
}

/// Where the bytes of some memory lie, in whole pages.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Location {
    /// By the operating system's node.
    pub by_node: BTreeMap<NodeId, u64>,
    /// In pages that were never written, so they lie nowhere yet.
    pub untouched_bytes: u64,
    /// In pages the kernel says nothing about, each time for a passing reason.
    pub unknown_bytes: u64,
    /// Why the kernel says nothing at all.
    pub unavailable: Option<String>,
}

impl Location {
    /// Bytes that lie on `node`.
    pub fn bytes_on(&self, node: NodeId) -> u64 {
        self.by_node.get(&node).copied().unwrap_or(0)
    }

    /// Bytes that lie on other nodes than `node`: it had no free memory when they were touched.
    pub fn bytes_away_from(&self, node: NodeId) -> u64 {
        self.by_node.iter().filter(|(known, _)| **known != node).map(|(_, bytes)| bytes).sum()
    }

    /// `Measured`, or `Unavailable` where the kernel does not tell.
    pub fn origin(&self) -> Origin {
        if self.unavailable.is_some() { Origin::Unavailable } else { Origin::Measured }
    }

    /// Takes the bytes of another memory in.
    pub fn add(&mut self, other: &Location) {
        for (node, bytes) in &other.by_node {
            *self.by_node.entry(*node).or_default() += bytes;
        }
        self.untouched_bytes += other.untouched_bytes;
        self.unknown_bytes += other.unknown_bytes;
        if self.unavailable.is_none() {
            self.unavailable.clone_from(&other.unavailable);
        }
    }

    fn add_page(&mut self, status: libc::c_int) {
        let bytes = PAGE_BYTES as u64;
        match status {
            0.. => *self.by_node.entry(NodeId(status as u16)).or_default() += bytes,
            // Not there yet, or the shared page of zeros that a read maps.
            _ if status == -libc::ENOENT || status == -libc::EFAULT => self.untouched_bytes += bytes,
            _ => self.unknown_bytes += bytes,
        }
    }
}

impl fmt::Display for Location {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(reason) = &self.unavailable {
            return write!(formatter, "unavailable: {reason}");
        }
        for (node, bytes) in &self.by_node {
            write!(formatter, "{node}: {bytes} bytes, ")?;
        }
        write!(formatter, "untouched: {} bytes", self.untouched_bytes)?;
        if self.unknown_bytes > 0 {
            write!(formatter, ", unknown: {} bytes", self.unknown_bytes)?;
        }
        Ok(())
    }
}

/// Where the pages of a range lie. Touches none of them.
pub(super) fn locate(start: NonNull<u8>, bytes: usize) -> Location {
    let mut location = Location::default();
    let result = each_call(start, bytes, |pages, statuses| {
        // SAFETY: both arrays are as long as told; without target nodes nothing is moved.
        let result = unsafe {
            libc::syscall(
                libc::SYS_move_pages,
                0 as libc::c_int,
                pages.len(),
                pages.as_ptr(),
                std::ptr::null::<libc::c_int>(),
                statuses.as_mut_ptr(),
                0 as libc::c_int,
            )
        };
        if result < 0 {
            return Err(io::Error::last_os_error());
        }
        for status in statuses {
            location.add_page(*status);
        }
        Ok(())
    });
    if let Err(error) = result {
        location.unavailable = Some(format!("the system does not tell where pages lie: {error}"));
    }
    location
}

/// Moves the pages of a range that exist to `node`, and has later ones come from there. What could not be moved stays
/// where it is; the result says where everything lies then.
pub(super) fn migrate(start: NonNull<u8>, bytes: usize, node: NodeId) -> Location {
    let mut location = Location::default();
    if let NumaPlacement::Unbound(reason) = Policy::Preferred(node).apply(start, bytes) {
        location.unavailable = Some(reason);
        return location;
    }
    let targets = [libc::c_int::from(node.0); PAGES_PER_CALL];
    let result = each_call(start, bytes, |pages, statuses| {
        // SAFETY: the three arrays are as long as told. Moving a page keeps its address and its contents.
        let result = unsafe {
            libc::syscall(
                libc::SYS_move_pages,
                0 as libc::c_int,
                pages.len(),
                pages.as_ptr(),
                targets.as_ptr(),
                statuses.as_mut_ptr(),
                MPOL_MF_MOVE,
            )
        };
        // Above zero: so many pages stayed, for want of memory there. Where they are is asked below.
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    });
    if let Err(error) = result {
        location.unavailable = Some(format!("the system does not move pages to {node}: {error}"));
        return location;
    }
    locate(start, bytes)
}

/// Calls `call` with the addresses of the pages of a range, some at a time, and room for a status of each.
fn each_call(
    start: NonNull<u8>,
    bytes: usize,
    mut call: impl FnMut(&[*mut u8], &mut [libc::c_int]) -> io::Result<()>,
) -> io::Result<()> {
    assert!(start.as_ptr().addr().is_multiple_of(PAGE_BYTES), "pages start at multiples of their size");
    let mut statuses = [0; PAGES_PER_CALL];
    let mut pages = Vec::with_capacity(PAGES_PER_CALL);
    let count = bytes.div_ceil(PAGE_BYTES);
    for first in (0..count).step_by(PAGES_PER_CALL) {
        pages.clear();
        let last = count.min(first + PAGES_PER_CALL);
        pages.extend((first..last).map(|page| start.as_ptr().wrapping_add(page * PAGE_BYTES)));
        // A status that the kernel does not write is not taken for node 0.
        statuses.fill(-libc::EBUSY);
        call(&pages, &mut statuses[..pages.len()])?;
    }
    Ok(())
}
