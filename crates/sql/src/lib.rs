//! SQL over living partitions: text to commands, commands to plans, plans to tasks of the engine.
//!
//! - From outside: [`Database`], [`Session`], [`Prepared`], [`Outcome`], [`SqlError`], [`SqlType`], [`pg_format`].
//! - [`front`]: text to commands, and refusal of what is not planned.
//! - [`catalog`], [`settings`], [`views`]: names, knobs, introspection.
//! - `binder`: statements to typed relations of the crate `query`, as far as they are bound here.
//! - [`plan`]: commands to plans; DataFusion binds and optimises the others, we lower to access primitives or compile
//!   dataflows.
//! - [`activity`]: what sessions are at; cancelling, terminating, timeouts.
//! - [`statistics`]: what is known of tables when a query is compiled.
//! - [`native`]: plans on the engine. [`fallback`]: plans on DataFusion's operators over pinned segments.
//! - [`session`]: statements, transactions, COPY. [`errors`]: every SQLSTATE there is.

pub mod activity;
pub mod arrow_view;
pub mod ast;
mod binder;
pub mod catalog;
pub mod database;
pub mod errors;
pub mod fallback;
pub mod front;
pub mod native;
pub mod pg_format;
pub mod plan;
pub mod session;
pub mod settings;
pub mod sqlstate;
pub mod statistics;
pub mod views;

pub use eris_query::types;

pub use activity::{Activities, Activity, ActivityReport, FIRST_OWN_PROCESS, Interruption, Phase};
pub use database::{Database, DatabaseOptions};
pub use errors::SqlError;
pub use session::{
    ColumnDescription, CommandTag, CopyIn, EndedTransaction, Notice, Outcome, Prepared, Rows, Script, Session,
    SessionCancel, SessionOptions, TransactionObserver, TransactionStatus,
};
pub use sqlstate::SqlState;
pub use types::SqlType;
