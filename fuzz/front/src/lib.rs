//! `eris_sql::front` and what it needs, compiled from the same files; only [`ast`] differs.

pub mod ast;
#[path = "../../../crates/sql/src/errors.rs"]
pub mod errors;
#[path = "../../../crates/sql/src/front/mod.rs"]
pub mod front;
#[path = "../../../crates/sql/src/settings/modes.rs"]
pub mod settings;
#[path = "../../../crates/sql/src/sqlstate.rs"]
pub mod sqlstate;
#[path = "../../../crates/query/src/types.rs"]
pub mod types;

pub use errors::SqlError;
pub use sqlstate::SqlState;
