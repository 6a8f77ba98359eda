//! The shell at a terminal: prompts, history, statements over several lines.

use std::io;
use std::path::PathBuf;

use eris::TransactionStatus;
use rustyline::DefaultEditor;
use rustyline::error::ReadlineError;

use crate::failure::Failure;
use crate::shell::script::{DataLines, is_blank, next_item};
use crate::shell::session::{HOW_DATA_ENDS, Next, ShellSession, print};

/// Lines that the history file keeps.
const HISTORY_LINES_MAX: usize = 10_000;

pub fn run(session: &mut ShellSession) -> Result<(), Failure> {
    let config = rustyline::Config::builder()
        .max_history_size(HISTORY_LINES_MAX)
        .and_then(|config| config.history_ignore_dups(true))
        .map_err(Failure::new)?
        .build();
    let mut editor = DefaultEditor::with_config(config).map_err(Failure::new)?;
    let history = history_file();
    if let Some(file) = &history {
        // None yet, at the first start.
        let _ = editor.load_history(file);
    }
    println!("ERIS {}: an embedded, empty database. \\? for help, \\q to quit.", env!("CARGO_PKG_VERSION"));
    let mut input = String::new();
    'lines: loop {
        match editor.readline(&prompt(session.status(), is_blank(&input))) {
            Ok(line) => {
                editor.add_history_entry(&line).map_err(Failure::new)?;
                input.push_str(&line);
                input.push('\n');
                while let Some((item, end)) = next_item(&input) {
                    input.drain(..end);
                    // An error has been told, and the next statement may do better.
                    if let Ok(Next::Quit) = session.run_item(&item, &mut TypedData(&mut editor)) {
                        break 'lines;
                    }
                }
            }
            // Ctrl-C drops what was typed.
            Err(ReadlineError::Interrupted) => input.clear(),
            Err(ReadlineError::Eof) => break,
            Err(error) => return Err(Failure::new(error)),
        }
    }
    if let Some(file) = &history {
        // Without a home directory that can be written there is no history.
        let _ = editor.save_history(file);
    }
    Ok(())
}

/// As in psql: `*` in a transaction block, `!` in a failed one, `-` inside a statement.
fn prompt(status: TransactionStatus, new: bool) -> String {
    let mark = match status {
        TransactionStatus::Idle => "",
        TransactionStatus::InTransaction => "*",
        TransactionStatus::Failed => "!",
    };
    format!("eris{}{mark}> ", if new { "=" } else { "-" })
}

/// Data that is typed, not kept in the history.
struct TypedData<'a>(&'a mut DefaultEditor);

impl DataLines for TypedData<'_> {
    fn begin(&mut self) -> io::Result<()> {
        print(HOW_DATA_ENDS)
    }

    fn next_line(&mut self) -> io::Result<Option<String>> {
        match self.0.readline(">> ") {
            Ok(line) => Ok(Some(line)),
            Err(ReadlineError::Eof) => Ok(None),
            Err(ReadlineError::Interrupted) => Err(io::Error::other("canceled by user")),
            Err(error) => Err(io::Error::other(error)),
        }
    }
}

fn history_file() -> Option<PathBuf> {
    let state = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from);
    let directory = state.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".local/state")))?.join("eris");
    std::fs::create_dir_all(&directory).ok()?;
    Some(directory.join("history"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_prompt_says_where_one_is() {
        assert_eq!(prompt(TransactionStatus::Idle, true), "eris=> ");
        assert_eq!(prompt(TransactionStatus::InTransaction, true), "eris=*> ");
        assert_eq!(prompt(TransactionStatus::Failed, true), "eris=!> ");
        assert_eq!(prompt(TransactionStatus::InTransaction, false), "eris-*> ");
    }
}
