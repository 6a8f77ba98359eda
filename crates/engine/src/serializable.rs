//! Serializable snapshot isolation: what SERIALIZABLE transactions read and wrote, and which of them may not commit.
//!
//! Snapshot isolation allows a cycle of dependencies only if it has two rw edges in a row (Fekete et al., TODS 2005;
//! Cahill et al., SIGMOD 2008; Ports and Grittner, VLDB 2012), and of the three transactions the last commits first:
//! ```text
//!           rw                 rw                    rw: the former read what the latter wrote anew,
//!   one ----------> two ----------> three                and did not see it
//!   (the reader)    (the pivot)     (the first to commit; may be `one`)
//! ```
//! So it is enough that no such *dangerous structure* commits as a whole. Who commits so may have been no part of a
//! cycle; who repeats a transaction that failed for it may succeed.
//!
//! - **Who meets whom** ([`registry`]): each container knows the predicates that were read and the rows that were
//!   written by transactions that run, or committed while others of those ran. A read is entered before it looks at
//!   rows, a write under the latch under which it is done: whichever comes second finds the other. Partitions know
//!   nothing of it, so they split, merge and move as ever.
//! - **What follows** ([`graph`]): the edges, the rules, and when to forget.
//! - **A transaction's own part** ([`tracked`]): what it has entered where, the memory for it, whether it is doomed.
//!
//! Locks are taken in this order: the transaction's entries, a container's registry; and the graph's with none of them.
//! Edges may come a moment after the registry was asked, because a rule looks at prepared and committed transactions,
//! too, and whoever asks goes on only when the edges are there.
//!
//! Transactions of other levels are not tracked and pay for one look at an empty slot per access.

mod access;
mod graph;
#[cfg(test)]
mod histories;
mod key_set;
mod registry;
mod tracked;
mod tracking;

pub(crate) use graph::ConflictGraph;
pub(crate) use registry::AccessRegistry;
pub(crate) use tracked::TrackedTransaction;
pub(crate) use tracking::{Tracking, predicates_of_keys};
