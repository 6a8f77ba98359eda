//! The options that say where a database is kept, and opening it there.

use std::io::{IsTerminal, Write};
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use eris::{Damage, Database, DurabilityOptions, OpenError, Phase, Progress};

use crate::failure::Failure;
use crate::resources::{Resources, bytes};

/// Where the database is kept.
#[derive(Args, Clone, Debug, Default)]
pub struct Directory {
    /// Keep the database in this directory; without it, it lives in memory only
    #[arg(long, value_name = "DIR")]
    pub db: Option<PathBuf>,

    /// What is done about damage in the middle of the log
    #[arg(long, value_enum, default_value_t = DamagedLog::Refuse, requires = "db")]
    pub damaged_log: DamagedLog,

    /// Take a checkpoint when the log has grown by so many bytes [default: 256M]
    #[arg(long, value_name = "BYTES", value_parser = bytes, requires = "db")]
    pub checkpoint_bytes: Option<u64>,
}

#[derive(ValueEnum, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DamagedLog {
    /// The database is not opened
    #[default]
    Refuse,
    /// What stands behind the damage is left out
    EndThere,
}

impl Directory {
    /// Opens the database; says on standard error how far that is, if it takes a while.
    pub fn open(&self, resources: &Resources) -> Result<Database, Failure> {
        Ok(self.try_open(resources)?)
    }

    /// The same for who looks at the error.
    pub fn try_open(&self, resources: &Resources) -> Result<Database, OpenError> {
        let Some(directory) = &self.db else { return Database::open(resources.options()) };
        let default = DurabilityOptions::default();
        let options = DurabilityOptions {
            damage: match self.damaged_log {
                DamagedLog::Refuse => Damage::Refuse,
                DamagedLog::EndThere => Damage::EndThere,
            },
            checkpoint_log_bytes: self.checkpoint_bytes.unwrap_or(default.checkpoint_log_bytes),
            ..default
        };
        let mut telling = Telling::default();
        Database::open_directory(directory, resources.options(), &options, move |progress| telling.tell(&progress))
    }
}

/// What the user was told last.
#[derive(Default)]
pub struct Telling {
    last: Option<(Phase, u64)>,
    written: bool,
}

impl Telling {
    pub fn tell(&mut self, progress: &Progress) {
        let percent = (progress.done_bytes * 100).checked_div(progress.all_bytes).unwrap_or(100).min(100);
        if self.last == Some((progress.phase, percent)) {
            return;
        }
        self.last = Some((progress.phase, percent));
        let mut out = std::io::stderr();
        if !out.is_terminal() {
            return;
        }
        let what = match progress.phase {
            Phase::Checkpoint => "checkpoint",
            Phase::Log => "log",
        };
        self.written = write!(out, "\rreading the {what}: {percent} %   ").and_then(|()| out.flush()).is_ok();
    }
}

impl Drop for Telling {
    fn drop(&mut self) {
        if self.written {
            eprintln!();
        }
    }
}
