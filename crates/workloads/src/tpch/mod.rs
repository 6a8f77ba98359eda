//! TPC-H: schema, generated or file-borne data, the 22 queries, and stored answers to check results against.

mod answers;
mod batch;
mod chunk;
mod dates;
pub mod dump;
mod generate;
mod queries;
mod schema;
pub mod tbl;

pub use answers::{AnswerCheck, AnswerMismatch, CellKind, StoredAnswer};
pub use chunk::{Chunk, Column, ColumnType, TextColumn};
pub use generate::{CHUNK_ROWS, TablePart, generate};
pub use queries::{QUERY_COUNT, QueryNumber};
pub use schema::{ColumnDefinition, FOREIGN_KEYS, Table};
