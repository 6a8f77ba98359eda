//! The house rules that a compiler does not check: what a source file may contain, where it may lie, how long it may
//! be.
//!
//! A rule is a function from the tree of files to findings. `tests/tidy.rs` applies every rule to this repository, and
//! each rule's own tests show a sample that breaks it, so that a rule cannot become one that always agrees.
//! `tests/dependencies` holds the same promise for the crates: layers, forbidden dependencies, licences.

mod finding;
pub mod rules;
mod rust_text;
mod tree;

pub use finding::Finding;
pub use tree::{SourceFile, Tree};
