//! The command line.

use clap::{Parser, Subcommand};

use crate::backup::BackupArguments;
use crate::bench::BenchArguments;
use crate::demo::DemoArguments;
use crate::restore::RestoreArguments;
use crate::serve::ServeArguments;
use crate::shell::ShellArguments;
use crate::verify::VerifyArguments;

/// ERIS: an in-memory SQL database of living partitions, for transactions and analytics on the same data.
#[derive(Debug, Parser)]
#[command(name = "eris", version)]
pub struct Arguments {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Load TPC-H, run and check its 22 queries with TATP transactions beside them, show the living partitions
    Demo(DemoArguments),
    /// Serve PostgreSQL clients: user and database `eris`, no password, loopback only
    Serve(ServeArguments),
    /// Run SQL in an embedded database
    Shell(ShellArguments),
    /// Write everything that is committed into a directory of its own, of a database that is served or that is closed
    Backup(BackupArguments),
    /// Make a database of a backup
    Restore(RestoreArguments),
    /// Read everything in a directory and check what must hold of it, without changing anything
    Verify(VerifyArguments),
    /// Run a benchmark and write its figures as JSON
    Bench(BenchArguments),
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn what_is_kept_stable_parses() {
        for line in [
            "eris serve",
            "eris serve --listen 127.0.0.1:5433 --workers 2 --nodes 1 --memory-limit 1000000000",
            "eris shell -c SELECT",
            "eris backup dir",
            "eris backup --url postgres://eris@localhost:5433/eris dir",
            "eris backup --db source --workers 1 dir",
            "eris restore backup dir",
            "eris verify --workers 2 --memory-limit 4G dir",
            "eris demo",
            "eris bench tpch --sf 1 --data dir --workers 2 --nodes 1 --partitions 7 --layout row --repeat 3 \
             --peers duckdb,datafusion,hyper --json out.json",
            "eris bench jcch --sf 1 --parameters skewed --workload --repeat 1 --peers duckdb --json out.json",
            "eris bench tatp --subscribers 100000 --seconds 10 --clients 4 --workers 2 --nodes 1 --partitions 4 \
             --via sql --url postgres://eris@localhost:5433/eris --server-pid 1 --json out.json",
            "eris bench kv --pairs 10000000 --seconds 10 --nodes 1 --workers 2 --partitions 2 --access index \
             --partitioned key --locality local --coalesced --baseline shared --json out.json",
        ] {
            let parsed = Arguments::try_parse_from(line.split_ascii_whitespace());
            assert!(parsed.is_ok(), "{line}: {}", parsed.err().map(|error| error.to_string()).unwrap_or_default());
        }
    }
}
