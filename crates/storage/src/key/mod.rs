//! Keys as bytes whose order is the order of the values: for indexes, for ranges of partition tables, for merging.

mod encode;
mod inline;

pub use encode::{KeyEncoder, KeyPart, key_of_row, key_of_values};
pub use inline::Key;
