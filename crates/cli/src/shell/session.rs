//! What the shell works with: a connection, how results are printed, and the way a Ctrl-C takes.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use eris::{ColumnDescription, Connection, Database, Event, SqlError, SqlType};

use crate::failure::Failure;
use crate::shell::format::Format;
use crate::shell::meta::{self, Meta};
use crate::shell::print::Printer;
use crate::shell::script::{Item, is_blank, take_items};
use crate::signals::{Signal, Signals};

pub struct ShellSession {
    database: Database,
    connection: Connection,
    format: Format,
    timing: bool,
    /// Whether a statement runs that a Ctrl-C is to cancel.
    running: Arc<AtomicBool>,
}

/// Whether the shell goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    Continue,
    Quit,
}

impl ShellSession {
    pub fn new(database: &Database, format: Format) -> ShellSession {
        ShellSession {
            database: database.clone(),
            connection: database.connect(),
            format,
            timing: false,
            running: Arc::default(),
        }
    }

    /// From now on Ctrl-C cancels the running statement; without one, or on SIGTERM, the process ends.
    pub fn cancel_on(&self, signals: Signals) {
        let (cancel, running) = (self.connection.cancel_handle(), self.running.clone());
        std::thread::spawn(move || {
            while let Ok(signal) = signals.wait() {
                if signal == Signal::Interrupt && running.load(Ordering::SeqCst) {
                    cancel.cancel();
                } else {
                    std::process::exit(130);
                }
            }
        });
    }

    /// Runs everything; the first error ends it.
    pub fn run_script(&mut self, text: &str) -> Result<(), Failure> {
        let mut input = text.to_owned();
        if !input.ends_with('\n') {
            input.push('\n');
        }
        let mut items = take_items(&mut input);
        // The last statement needs no semicolon.
        if !is_blank(&input) {
            items.push(Item::Statement(input));
        }
        for item in items {
            if self.run_item(&item)? == Next::Quit {
                break;
            }
        }
        Ok(())
    }

    /// Runs one item. The user has read about an error when it is returned.
    pub fn run_item(&mut self, item: &Item) -> Result<Next, Failure> {
        match item {
            Item::Statement(sql) => self.run_statement(sql).map(|()| Next::Continue),
            Item::Meta(line) => match meta::parse(line) {
                Ok(meta) => self.run_meta(meta),
                Err(message) => {
                    eprintln!("{message}");
                    Err(Failure::Told)
                }
            },
        }
    }

    fn run_statement(&mut self, sql: &str) -> Result<(), Failure> {
        let start = Instant::now();
        let mut output = io::BufWriter::new(io::stdout().lock());
        let mut printer = Printer::new(&mut output, self.format);
        self.running.store(true, Ordering::SeqCst);
        let result = self.connection.run(sql, |event| match event {
            Event::Columns(columns) => printer.columns(columns),
            Event::Batch(batch) => printer.batch(&batch),
            Event::Done(tag) => printer.done(&tag),
        });
        self.running.store(false, Ordering::SeqCst);
        printer.finish()?;
        drop(output);
        if self.timing {
            eprintln!("Time: {:.3} ms", start.elapsed().as_secs_f64() * 1e3);
        }
        result.map_err(|error| {
            eprint!("{}", describe(&error, sql));
            Failure::Told
        })
    }

    fn run_meta(&mut self, meta: Meta) -> Result<Next, Failure> {
        match meta {
            Meta::Quit => return Ok(Next::Quit),
            Meta::Help => print(meta::HELP)?,
            Meta::Timing(wanted) => {
                self.timing = wanted.unwrap_or(!self.timing);
                print(if self.timing { "Timing is on.\n" } else { "Timing is off.\n" })?;
            }
            Meta::Format(Some(format)) => self.format = format,
            Meta::Format(None) => print(&format!("The format is {}.\n", self.format.name()))?,
            Meta::Describe(None) => {
                let tables = self.database.tables();
                let rows = tables.iter().map(|table| {
                    let key = table.indexes.iter().find(|index| index.primary);
                    vec![
                        table.name.clone(),
                        table.columns.len().to_string(),
                        key.map_or(String::new(), |key| key.columns.join(", ")),
                    ]
                });
                self.print_rows(&["table", "columns", "primary key"], rows)?;
            }
            Meta::Describe(Some(name)) => {
                let tables = self.database.tables();
                let Some(table) = tables.iter().find(|table| table.name == name) else {
                    eprintln!("there is no table \"{name}\"");
                    return Err(Failure::Told);
                };
                let columns = table.columns.iter().map(|column| {
                    let nullable = if column.nullable { "" } else { "not null" };
                    vec![column.name.clone(), column.type_name.clone(), nullable.to_owned()]
                });
                self.print_rows(&["column", "type", "nullable"], columns)?;
                let indexes = table.indexes.iter().map(|index| {
                    let kind = if index.primary {
                        "primary key"
                    } else if index.unique {
                        "unique"
                    } else {
                        ""
                    };
                    vec![index.name.clone(), index.columns.join(", "), kind.to_owned()]
                });
                self.print_rows(&["index", "columns", "kind"], indexes)?;
            }
            Meta::Include(file) => {
                let text = std::fs::read_to_string(&file).map_err(|error| {
                    eprintln!("{file}: {error}");
                    Failure::Told
                })?;
                self.run_script(&text)?;
            }
        }
        Ok(Next::Continue)
    }
}

impl ShellSession {
    fn print_rows(&self, names: &[&str], rows: impl Iterator<Item = Vec<String>>) -> io::Result<()> {
        let mut output = io::BufWriter::new(io::stdout().lock());
        let mut printer = Printer::new(&mut output, self.format);
        let text = |name: &&str| ColumnDescription { name: (*name).to_owned(), sql_type: SqlType::Text };
        printer.columns(names.iter().map(text).collect());
        for row in rows {
            printer.row(row.into_iter().map(Some).collect());
        }
        printer.done("");
        printer.finish()
    }
}

fn print(text: &str) -> io::Result<()> {
    let mut output = io::stdout().lock();
    output.write_all(text.as_bytes())?;
    output.flush()
}

/// An error with the line it points at.
fn describe(error: &SqlError, sql: &str) -> String {
    let mut text = format!("ERROR:  {}: {}\n", error.sqlstate.as_str(), error.message);
    if let Some(position) = error.position {
        let before: String = sql.chars().take(position.saturating_sub(1)).collect();
        let number = before.matches('\n').count();
        if let Some(line) = sql.lines().nth(number) {
            let column = before.rsplit('\n').next().unwrap_or("").chars().count();
            let label = format!("LINE {}: ", number + 1);
            text.push_str(&format!("{label}{line}\n{}^\n", " ".repeat(label.chars().count() + column)));
        }
    }
    let notes =
        [("DETAIL", error.detail.as_deref()), ("HINT", error.hint.as_deref()), ("CONTEXT", error.context.as_deref())];
    for (label, value) in notes {
        if let Some(value) = value {
            text.push_str(&format!("{label}:  {value}\n"));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_point_at_their_place() {
        let state = eris_sql::SqlState::SYNTAX;
        let error = SqlError::new(state, "no such thing").at(Some(10)).hint("try another");
        let expected = "ERROR:  42601: no such thing\nLINE 2: grüß thing\n             ^\nHINT:  try another\n";
        assert_eq!(describe(&error, "sel\ngrüß thing\n;"), expected);
        assert_eq!(describe(&SqlError::new(state, "x").at(Some(99)), "a"), "ERROR:  42601: x\nLINE 1: a\n         ^\n");
    }
}
