//! ERIS as a library: open a database in this process, run SQL on it, and serve it to PostgreSQL clients.
//!
//! ```
//! let database = eris::Database::open(eris::Options { workers: 1, ..eris::Options::default() })?;
//! let mut connection = database.connect();
//! connection.execute("CREATE TABLE greeting (id int PRIMARY KEY, text text)")?;
//! connection.execute("INSERT INTO greeting VALUES (1, 'hello')")?;
//! let answer = connection.query("SELECT text FROM greeting WHERE id = 1")?;
//! assert_eq!(answer.text(0, 0).as_deref(), Some("hello"));
//! database.close();
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod backup;
mod channel;
mod connection;
mod database;
mod options;
mod results;
mod tables;

pub use backup::{Verified, restore, verify};
pub use connection::{Connection, Event, Statement};
pub use database::{Database, OpenError};
pub use eris_durability::{
    BackupReport, Damage, DurabilityError, DurabilityOptions, Phase, Progress, RecoveryReport, RestoreReport,
    VerifyReport,
};
pub use eris_server::{ServeError, ServerHandle, own_descriptors, stop_all};
pub use eris_sql::{ColumnDescription, Notice, SqlError, SqlType, TransactionStatus};
pub use eris_storage::{Batch, Value};
pub use options::{ADDRESS_SPACE_MIN, MEMORY_LIMIT_MIN, Options, memory_limit_default};
pub use results::{QueryResult, text_of};
pub use tables::{TableColumn, TableDescription, TableIndex};
