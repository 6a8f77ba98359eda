//! Sessions: statements in, rows and tags out, transactions in between.

mod backup;
mod cache;
mod cancel;
mod commit;
mod control;
mod copy;
mod copy_rows;
mod copy_values;
mod ddl;
mod execute;
mod explain;
mod indexes;
mod notices;
mod observer;
mod outcome;
mod plans;
mod prepared;
mod script;
#[allow(clippy::module_inception)]
mod session;
mod sleep;
mod source_file;
mod statement;
mod states;
mod table_locks;
mod template;
mod turns;

pub use cache::PlanCache;
pub use cancel::SessionCancel;
pub use copy::CopyIn;
pub use notices::Notice;
pub use observer::{EndedTransaction, TransactionObserver};
pub use outcome::{CommandTag, Outcome, Rows};
pub use plans::{PlannedQuery, QueryBody, QueryPlan};
pub use prepared::{ColumnDescription, Prepared};
pub use script::Script;
pub use session::{Session, SessionOptions};
pub use states::{Block, Place, StatementKind, Step, TransactionStatus};
