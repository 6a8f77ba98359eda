//! The `eris` binary: one subcommand, one module.

mod arguments;
mod backup;
mod bench;
mod call_thread;
mod demo;
mod directory;
mod failure;
mod log_file;
mod resources;
mod restore;
mod serve;
mod shell;
mod signals;
mod verify;

use std::io::Write;
use std::process::ExitCode;

use clap::Parser;

use crate::arguments::{Arguments, Command};
use crate::failure::Failure;

/// Counts what is allocated, so that a report on memory can tell what the rest of the process is.
#[global_allocator]
static ALLOCATOR: eris_platform::CountingAllocator = eris_platform::CountingAllocator;

/// Runs before `main`: Rust allocates before that, and what the allocator took then it does not give back.
// SAFETY: what is listed there is called on the only thread; the function needs nothing that Rust prepares for `main`.
#[cfg(target_env = "gnu")]
#[used]
#[unsafe(link_section = ".init_array")]
static BEFORE_MAIN: extern "C" fn() = eris_platform::allocator::take_little_address_space;

fn main() -> ExitCode {
    if resources::address_space_is_too_small() {
        return ExitCode::FAILURE;
    }
    let arguments = Arguments::parse();
    signals::bear_limits_on_files();
    let result = match arguments.command {
        Command::Demo(options) => {
            signals::end_with_the_reader();
            demo::run(&options)
        }
        Command::Serve(options) => serve::run(&options),
        Command::Shell(options) => {
            signals::end_with_the_reader();
            shell::run(&options)
        }
        Command::Backup(options) => backup::run(&options),
        Command::Restore(options) => restore::run(&options),
        Command::Verify(options) => verify::run(&options),
        Command::Bench(options) => bench::run(&options),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Told) => ExitCode::FAILURE,
        Err(Failure::Message(message)) => {
            // If nobody reads it, the exit code has to do.
            let _ = writeln!(std::io::stderr(), "error: {message}");
            ExitCode::FAILURE
        }
    }
}
