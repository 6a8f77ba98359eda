//! The options that say where a database is kept, and opening it there.

use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::time::{Duration, Instant};

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
        let database = self.opened(resources)?;
        resources.warn_of_too_much();
        if let Some(directory) = &resources.temp_dir {
            database.keep_temp_files_in(directory)?;
        }
        Ok(database)
    }

    fn opened(&self, resources: &Resources) -> Result<Database, OpenError> {
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
        let mut telling = Telling::start();
        Database::open_directory(directory, resources.options(), &options, move |progress| telling.tell(&progress))
    }
}

/// Where nobody looks at a terminal there is a line each time that reading took so long again.
const LINE_EVERY: Duration = Duration::from_secs(10);

/// Says on standard error how far reading a database is: percent in place on a terminal; lines elsewhere, if it takes a
/// while, and one at the end.
pub struct Telling {
    begun: Instant,
    is_terminal: bool,
    /// What a terminal was told last.
    last: Option<(Phase, u64)>,
    /// When there is a line next.
    next_line: Duration,
    has_told: bool,
}

impl Telling {
    pub fn start() -> Self {
        Self::to(std::io::stderr().is_terminal())
    }

    fn to(is_terminal: bool) -> Self {
        Self { begun: Instant::now(), is_terminal, last: None, next_line: LINE_EVERY, has_told: false }
    }

    pub fn tell(&mut self, progress: &Progress) {
        if let Some(text) = self.text(progress, self.begun.elapsed()) {
            say(&text);
        }
    }

    /// What is said when reading has come so far in so much time, if anything is.
    fn text(&mut self, progress: &Progress, took: Duration) -> Option<String> {
        let percent = (progress.done_bytes * 100).checked_div(progress.all_bytes).unwrap_or(100).min(100);
        let what = match progress.phase {
            Phase::Checkpoint => "checkpoint",
            Phase::Log => "log",
        };
        let text = if self.is_terminal {
            if self.last.replace((progress.phase, percent)) == Some((progress.phase, percent)) {
                return None;
            }
            format!("\rreading the {what}: {percent} %   ")
        } else {
            if took < self.next_line {
                return None;
            }
            self.next_line = took + LINE_EVERY;
            format!("eris: reading the {what}: {percent} % after {} s\n", took.as_secs())
        };
        self.has_told = true;
        Some(text)
    }

    /// What is said at the end: if anything was before, or what came behind reading took long.
    fn end(&self, took: Duration) -> Option<String> {
        if self.is_terminal {
            return self.has_told.then(|| "\n".to_owned());
        }
        let is_long = self.has_told || took >= LINE_EVERY;
        is_long.then(|| format!("eris: reading took {} s\n", took.as_secs()))
    }
}

impl Drop for Telling {
    fn drop(&mut self) {
        if let Some(text) = self.end(self.begun.elapsed()) {
            say(&text);
        }
    }
}

/// If nobody reads it, reading goes on all the same.
fn say(text: &str) {
    let mut out = std::io::stderr();
    let _ = write!(out, "{text}").and_then(|()| out.flush());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(phase: Phase, done_bytes: u64) -> Progress {
        Progress { phase, done_bytes, all_bytes: 200, transactions: 0 }
    }

    fn after(telling: &mut Telling, phase: Phase, done_bytes: u64, millis: u64) -> Option<String> {
        telling.text(&at(phase, done_bytes), Duration::from_millis(millis))
    }

    #[test]
    fn without_a_terminal_there_is_a_line_each_ten_seconds_and_one_at_the_end() {
        let mut telling = Telling::to(false);
        let told = [
            after(&mut telling, Phase::Checkpoint, 0, 0),
            after(&mut telling, Phase::Checkpoint, 100, 9_999),
            after(&mut telling, Phase::Checkpoint, 101, 10_000),
            after(&mut telling, Phase::Checkpoint, 200, 15_000),
            after(&mut telling, Phase::Log, 0, 19_999),
            after(&mut telling, Phase::Log, 20, 33_500),
            after(&mut telling, Phase::Log, 20, 43_000),
            // As far as before, but still at it.
            after(&mut telling, Phase::Log, 20, 43_500),
        ];
        let expected = [
            "eris: reading the checkpoint: 50 % after 10 s\n",
            "eris: reading the log: 10 % after 33 s\n",
            "eris: reading the log: 10 % after 43 s\n",
        ];
        assert_eq!(told.into_iter().flatten().collect::<Vec<_>>(), expected);
        assert_eq!(telling.end(Duration::from_secs(50)).as_deref(), Some("eris: reading took 50 s\n"));
    }

    #[test]
    fn what_is_read_at_once_is_not_told_of() {
        let mut telling = Telling::to(false);
        assert_eq!(after(&mut telling, Phase::Log, 200, 9_000), None);
        assert_eq!(telling.end(Duration::from_secs(9)), None);
        let slow_end = telling.end(Duration::from_secs(50));
        assert_eq!(slow_end.as_deref(), Some("eris: reading took 50 s\n"), "indexes are made behind it");
    }

    #[test]
    fn a_terminal_is_told_each_percent_once_in_place() {
        let mut telling = Telling::to(true);
        let told = [0, 0, 1, 2, 2].map(|done| after(&mut telling, Phase::Log, done, 0));
        let told: Vec<String> = told.into_iter().flatten().collect();
        assert_eq!(told, ["\rreading the log: 0 %   ", "\rreading the log: 1 %   "]);
        assert_eq!(telling.end(Duration::ZERO).as_deref(), Some("\n"));
        assert_eq!(Telling::to(true).end(Duration::ZERO), None);
    }
}
