//! Memory of the process spread over all NUMA nodes, page by page: the placement that node-local memory is compared
//! with.

use std::io;

use crate::topology::Topology;

/// `MPOL_INTERLEAVE` of `linux/mempolicy.h`.
const MPOL_INTERLEAVE: libc::c_int = 3;
/// Nodes that fit the mask passed to the kernel.
const NODES_MAX: usize = 64;

/// From now on pages of this thread, and of threads it starts, come from the nodes in turn.
///
/// # Errors
/// If the machine has one node only ([`io::ErrorKind::Unsupported`]), or the kernel refuses.
pub fn interleave_allocations(topology: &Topology) -> io::Result<()> {
    let nodes = &topology.nodes;
    if nodes.len() < 2 {
        return Err(io::Error::new(io::ErrorKind::Unsupported, "one NUMA node"));
    }
    let ids = nodes.iter().map(|node| usize::from(node.id.0)).filter(|id| *id < NODES_MAX);
    let mask = ids.fold(0_u64, |mask, id| mask | 1 << id);
    // The kernel reads one bit less than it is told.
    let told = NODES_MAX + 1;
    // SAFETY: the call reads the mask, which outlives it, and changes how pages are placed, not what is in them.
    let result = unsafe { libc::syscall(libc::SYS_set_mempolicy, MPOL_INTERLEAVE, &raw const mask, told) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
