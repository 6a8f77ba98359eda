//! Nothing lost: the log, checkpoints, and what is made of them when a database is opened.
//!
//! - A [`directory`] belongs to one database and, while it is open, to one process.
//! - The [`log`] takes commits and [`definitions`] in their order and makes them durable in groups.
//! - [`open`] makes an empty engine what the database was, and from then on its commits go into the log.
//! - [`back_up`] makes a database of its own of one that works, [`restore`] another one of that; [`verify`] looks at
//!   all that there is.
//!
//! `docs/durability.md` says what is promised at which setting, and what the files look like.

mod backup;
mod checkpoint;
mod definitions;
mod directory;
mod error;
mod log;
mod open;
mod options;
mod recover;
mod replay;
mod restore;
mod room;
mod verify;

pub use backup::{BackupReport, back_up};
pub use checkpoint::CheckpointReport;
pub use directory::{Directory, FORMAT_VERSION};
pub use error::DurabilityError;
pub use log::{Log, LogStatistics};
pub use open::{Database, open};
pub use options::{Damage, DurabilityOptions};
pub use recover::{Phase, Progress, RecoveryReport, Stop};
pub use restore::{RestoreReport, restore};
pub use verify::{VerifyReport, verify};
