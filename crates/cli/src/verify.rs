//! `eris verify`: everything in a directory is read and looked at; nothing is changed.

use std::path::PathBuf;

use clap::Args;
use eris::{RecoveryReport, Verified, VerifyReport};

use crate::directory::Telling;
use crate::failure::Failure;
use crate::resources::Resources;
use crate::shell::print;

/// Findings that are told.
const WRONG_MAX: usize = 20;

#[derive(Args, Clone, Debug)]
pub struct VerifyArguments {
    /// The directory of a database that nobody has open, or of a backup
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,

    #[command(flatten)]
    pub resources: Resources,
}

pub fn run(arguments: &VerifyArguments) -> Result<(), Failure> {
    let mut telling = Telling::start();
    let tell = move |progress: eris::Progress| telling.tell(&progress);
    let Verified { report, tables, rows } =
        eris::verify(&arguments.directory, arguments.resources.options(), WRONG_MAX, tell)?;
    // What a crash leaves at the end of the log is no damage, and yet somebody should know of it.
    let end_of_log = report.recovery.as_ref().and_then(RecoveryReport::told);
    let end_of_log = end_of_log.map(|told| format!("  {told}\n")).unwrap_or_default();
    let VerifyReport { timestamp, blocks, checkpoint_bytes, records, log_bytes, transactions, wrong, took, .. } =
        report;
    let directory = arguments.directory.display();
    if !wrong.is_empty() {
        let more = if wrong.len() >= WRONG_MAX { " or more" } else { "" };
        let s = if wrong.len() == 1 { "" } else { "s" };
        eprintln!("{directory} is damaged: {}{more} finding{s}", wrong.len());
        for wrong in wrong {
            eprintln!("  {wrong}");
        }
        return Err(Failure::Told);
    }
    print(&format!(
        "{directory} is whole: {tables} tables with {rows} rows, all commits up to timestamp {timestamp}\n  \
         checkpoint: {blocks} blocks, {checkpoint_bytes} bytes\n  \
         log: {records} records, {log_bytes} bytes, {transactions} transactions behind the checkpoint\n\
         {end_of_log}  looked at in {:.1} s\n",
        took.as_secs_f64()
    ))?;
    Ok(())
}
