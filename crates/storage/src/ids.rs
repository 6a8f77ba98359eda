//! The ids of storage. Two integers of the same type next to each other in a signature are a bug waiting, so each id is
//! a type of its own.

use std::fmt;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

id! {
    /// A container: a table, a global index or a temporary table.
    ContainerId(u32)
}
id! {
    /// A living partition; global, never reused.
    PartitionId(u64)
}
id! {
    /// The version of a container's schema; grows with every change.
    SchemaVersion(u32)
}
id! {
    /// An attribute's position in its schema.
    AttributeId(u16)
}
id! {
    /// An index of a container.
    IndexId(u32)
}
id! {
    /// A segment inside one living partition; grows, never reused.
    SegmentNumber(u32)
}
id! {
    /// A row inside its segment, counted from 0.
    RowOffset(u32)
}

impl AttributeId {
    /// As an index into the schema's attributes.
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}
