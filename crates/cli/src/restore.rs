//! `eris restore`: a backup becomes a database of its own.

use std::path::PathBuf;

use clap::Args;

use crate::failure::Failure;
use crate::shell::print;

#[derive(Args, Clone, Debug)]
pub struct RestoreArguments {
    /// A directory that `eris backup` wrote; it stays as it is
    #[arg(value_name = "BACKUP")]
    pub backup: PathBuf,

    /// Where the database is to be: a directory that is missing or empty
    #[arg(value_name = "DIR")]
    pub target: PathBuf,
}

pub fn run(arguments: &RestoreArguments) -> Result<(), Failure> {
    let restored = eris::restore(&arguments.backup, &arguments.target).map_err(Failure::new)?;
    let (directory, eris::RestoreReport { timestamp, rows, bytes, took }) = (arguments.target.display(), restored);
    print(&format!(
        "restored to {directory}: {rows} rows, {bytes} bytes, all commits up to timestamp {timestamp}, in {:.1} s\n\
         serve it with: eris serve --db {directory}\n",
        took.as_secs_f64()
    ))?;
    Ok(())
}
