//! The engine's own identifiers. Everything that travels in a message is one of these, never a pointer, so that a
//! partition may split or move and a run may be replayed while messages are under way.

use std::fmt;

/// A dataflow: one run of micro-operators until its message counter reaches zero.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct DataflowId(pub u64);

/// Position of a micro-operator within its dataflow.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct OperatorIndex(pub u16);

/// Version of a container's partition table. Grows by one with every split, merge and move.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct TableVersion(pub u32);

impl fmt::Display for DataflowId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "dataflow {}", self.0)
    }
}
