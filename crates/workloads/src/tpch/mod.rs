//! TPC-H: schema, generated or file-borne data, the 22 queries, and stored answers to check results against.

mod answers;
mod batch;
mod chunk;
pub(crate) mod dates;
pub mod dump;
mod generate;
mod queries;
pub(crate) mod rows;
mod schema;
pub mod tbl;

pub use answers::{answer_shape, stored_answer};
pub use chunk::{Chunk, Column, ColumnType, TextColumn};
pub(crate) use generate::generate_of;
pub use generate::{TablePart, forget_texts, generate};
pub use queries::{QUERY_COUNT, QueryNumber};
pub use rows::{CHUNK_ROWS, Chunks};
pub use schema::{ColumnDefinition, FOREIGN_KEYS, Table};
