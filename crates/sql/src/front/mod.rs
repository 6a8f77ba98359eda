//! From text to commands: splitting, parsing, and the pass that refuses what is not planned.
//!
//! ```text
//!   text --tokens--> statements --sqlparser--> AST --lower--> Command | 0A000 and what to do
//! ```
//! The pass takes the parser's structures apart *without* `..`, field by field: a clause that no [`Command`] carries is
//! refused, and a new field in the parser's next version does not compile until someone has decided about it. So
//! nothing is dropped silently. This module needs the parser, [`crate::errors`] and types of `eris_storage`,
//! nothing else.

mod arrays;
mod bounds;
mod copy;
mod create;
mod cut;
mod dialect;
mod dml;
mod expressions;
mod locate;
mod lower;
mod names;
mod nothing;
mod operators;
mod parse;
mod query;
mod size;
mod type_names;
mod utility;
mod windows;

mod command;

pub use arrays::array_items;
pub use bounds::{BOUNDS_DEFAULT, BOUNDS_MAX, Bounds};
pub use command::{
    Assignment, Command, CopyCommand, CopyFormat, CopySource, CreateIndexCommand, CreateTableCommand, DeleteCommand,
    ExplainCommand, InsertCommand, InsertSource, Isolation, NewColumn, NewConstraint, SetValue, TableName,
    UpdateCommand,
};
pub use cut::{Cutter, Piece};
pub use expressions::PLAIN_OPERATORS;
pub use locate::locate;
pub use lower::lower;
pub(crate) use names::table_name;
pub use nothing::{aggregates, reads_nothing};
pub use parse::{ParsedStatement, parse, parse_expression, parse_within, template};
pub use size::Size;
pub use type_names::{is_bare_numeric, sql_type_of};
pub(crate) use windows::resolve as resolve_windows;

/// What every step of the pass gives.
pub(crate) type Lowered<T> = Result<T, crate::errors::SqlError>;

/// Refuses a clause if it is there.
fn refuse_if(present: bool, what: &str, hint: &str) -> Lowered<()> {
    if present { Err(crate::errors::SqlError::unsupported(what, hint)) } else { Ok(()) }
}
