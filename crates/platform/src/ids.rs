//! Identities of the parts of the machine a database runs on.

use std::fmt;

/// A node of ERIS: a NUMA domain, or a virtual one (`--nodes`). Numbered densely from 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct NodeId(pub u16);

/// A worker. Numbered densely from 0 over all nodes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct WorkerId(pub u16);

/// A hardware thread as the operating system numbers it; the numbers may have gaps.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct CpuId(pub u32);

impl NodeId {
    /// The id as an index into per-node arrays.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl WorkerId {
    /// The id as an index into per-worker arrays.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "node {}", self.0)
    }
}

impl fmt::Display for WorkerId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "worker {}", self.0)
    }
}

impl fmt::Display for CpuId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "cpu {}", self.0)
    }
}
