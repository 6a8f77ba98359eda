//! `eris bench commits`: its options.

use std::path::{Path, PathBuf};

use clap::Args;
use eris_bench::CommitsOptions;

#[derive(Args, Clone, Debug)]
pub struct CommitsArguments {
    /// A new directory for the database, on the disk that is meant; removed again
    #[arg(long, value_name = "DIR")]
    db: PathBuf,
    /// Rows of the table
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    accounts: u32,
    /// Rounds in which disk, task API, echo and SQL take turns
    #[arg(long, value_name = "N", default_value_t = 15)]
    rounds: usize,
    /// Commits of one client in a round, over the task API and over SQL each
    #[arg(long, value_name = "N", default_value_t = 500)]
    commits: u32,
    /// Clients at once
    #[arg(long, value_name = "N", default_value_t = 64)]
    clients: u32,
    /// For how long they commit in a round, over the task API and over SQL each
    #[arg(long, value_name = "S", default_value_t = 2.0)]
    seconds: f64,
    /// Worker threads in total
    #[arg(long, value_name = "N", default_value_t = 2)]
    workers: usize,
    /// Where the figures go; without it to standard output
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

impl CommitsArguments {
    pub fn json(&self) -> Option<&Path> {
        self.json.as_deref()
    }

    pub fn options(&self) -> CommitsOptions {
        CommitsOptions {
            accounts: self.accounts,
            rounds: self.rounds,
            commits: self.commits,
            clients: self.clients,
            seconds: self.seconds,
            workers: self.workers,
            ..CommitsOptions::new(self.db.clone())
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    /// `eris bench commits`, alone.
    #[derive(Debug, Parser)]
    struct Commits {
        #[command(flatten)]
        arguments: CommitsArguments,
    }

    #[test]
    fn defaults_are_those_of_the_benchmark() {
        assert!(Commits::try_parse_from(["commits"]).is_err(), "a directory has to be named");
        match Commits::try_parse_from(["commits", "--db", "dir"]) {
            Ok(commits) => assert_eq!(commits.arguments.options(), CommitsOptions::new("dir".into())),
            Err(error) => panic!("{error}"),
        }
    }
}
