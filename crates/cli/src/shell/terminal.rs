//! The shell at a terminal: prompts, history, statements over several lines.

use std::path::PathBuf;

use rustyline::DefaultEditor;
use rustyline::error::ReadlineError;

use crate::failure::Failure;
use crate::shell::script::{is_blank, take_items};
use crate::shell::session::{Next, ShellSession};

/// Lines that the history file keeps.
const HISTORY_LINES_MAX: usize = 10_000;

pub fn run(session: &mut ShellSession) -> Result<(), Failure> {
    let config = rustyline::Config::builder()
        .max_history_size(HISTORY_LINES_MAX)
        .and_then(|config| config.history_ignore_dups(true))
        .map_err(Failure::new)?
        .auto_add_history(true)
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
        let prompt = if is_blank(&input) { "eris=> " } else { "eris-> " };
        match editor.readline(prompt) {
            Ok(line) => {
                input.push_str(&line);
                input.push('\n');
                for item in take_items(&mut input) {
                    // An error has been told, and the next statement may do better.
                    if let Ok(Next::Quit) = session.run_item(&item) {
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

fn history_file() -> Option<PathBuf> {
    let state = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from);
    let directory = state.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".local/state")))?.join("eris");
    std::fs::create_dir_all(&directory).ok()?;
    Some(directory.join("history"))
}
