//! `eris shell`: SQL in an embedded database, typed, from a file or from the command line.

mod format;
mod meta;
mod print;
mod script;
mod session;
mod terminal;

use std::io::{IsTerminal, Read};
use std::path::{Path, PathBuf};

use clap::Args;

use crate::directory::Directory;
use crate::failure::Failure;
use crate::resources::Resources;
use crate::shell::format::Format;
use crate::shell::session::ShellSession;
pub use crate::shell::session::print;
use crate::signals::Signals;

#[derive(Args, Clone, Debug)]
pub struct ShellArguments {
    /// Run these statements and exit; may be given several times
    #[arg(short = 'c', long = "command", value_name = "SQL")]
    pub commands: Vec<String>,

    /// Run the statements of a file and exit; `-` is standard input
    #[arg(short = 'f', long = "file", value_name = "FILE")]
    pub files: Vec<PathBuf>,

    /// How results are printed
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub format: Format,

    #[command(flatten)]
    pub directory: Directory,

    #[command(flatten)]
    pub resources: Resources,
}

pub fn run(arguments: &ShellArguments) -> Result<(), Failure> {
    let signals = Signals::block()?;
    let database = arguments.directory.open(&arguments.resources)?;
    let mut session = ShellSession::new(&database, arguments.format);
    let at_terminal = arguments.commands.is_empty() && arguments.files.is_empty() && std::io::stdin().is_terminal();
    session.cancel_on(signals, at_terminal);
    let result = if at_terminal { terminal::run(&mut session) } else { run_in(&mut session, arguments) };
    drop(session);
    database.close();
    result
}

fn run_in(session: &mut ShellSession, arguments: &ShellArguments) -> Result<(), Failure> {
    for command in &arguments.commands {
        session.run_script(command, None)?;
    }
    let standard_input = [PathBuf::from("-")];
    let files = if arguments.commands.is_empty() && arguments.files.is_empty() {
        &standard_input[..]
    } else {
        &arguments.files
    };
    for file in files {
        let name = if file.as_os_str() == "-" { "<stdin>".into() } else { file.to_string_lossy() };
        session.run_script(&read(file)?, Some(&name))?;
    }
    Ok(())
}

fn read(file: &Path) -> Result<String, Failure> {
    let mut bytes = Vec::new();
    let result = if file.as_os_str() == "-" {
        std::io::stdin().read_to_end(&mut bytes).map(drop)
    } else {
        std::fs::read(file).map(|read| bytes = read)
    };
    result.map_err(|error| Failure::Message(format!("{}: {error}", file.display())))?;
    String::from_utf8(bytes).map_err(|error| {
        let line = error.as_bytes()[..error.utf8_error().valid_up_to()].iter().filter(|byte| **byte == b'\n').count();
        Failure::Message(format!("{}: line {} is not UTF-8", file.display(), line + 1))
    })
}
