//! What the shell works with: a connection, how results are printed, and the way a Ctrl-C takes.

use std::io::{self, IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use eris::{ColumnDescription, Connection, Database, Event, SqlError, SqlType, TransactionStatus};
use eris_sql::SqlState;

use crate::failure::Failure;
use crate::shell::format::Format;
use crate::shell::meta::{self, Meta};
use crate::shell::print::Printer;
use crate::shell::script::{Data, DataLines, Item, Script, begins_with_copy};
use crate::signals::{Signal, Signals};

pub struct ShellSession {
    database: Database,
    connection: Connection,
    format: Format,
    timing: bool,
    /// What errors start with: where in a file the statement is.
    place: String,
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
            place: String::new(),
            running: Arc::default(),
        }
    }

    /// From now on Ctrl-C cancels the running statement. Without one it ends the process, unless someone types there
    /// who would lose the database by it; SIGTERM always does.
    pub fn cancel_on(&self, signals: Signals, at_terminal: bool) {
        let (cancel, running) = (self.connection.cancel_handle(), self.running.clone());
        std::thread::spawn(move || {
            while let Ok(signal) = signals.wait() {
                if signal == Signal::Interrupt && running.load(Ordering::SeqCst) {
                    cancel.cancel();
                } else if signal == Signal::Terminate || !at_terminal {
                    std::process::exit(130);
                }
            }
        });
    }

    pub fn status(&self) -> TransactionStatus {
        self.connection.status()
    }

    /// Runs everything; the first error ends it. A script with a name has its data in it, for one from the command line
    /// data comes from standard input.
    pub fn run_script(&mut self, text: &str, name: Option<&str>) -> Result<(), Failure> {
        let mut script = Script::new(text, name);
        let outside = std::mem::take(&mut self.place);
        let mut result = Ok(Next::Continue);
        while let (Ok(Next::Continue), Some(item)) = (&result, script.next()) {
            self.place = script.place();
            result = if name.is_some() {
                self.run_item(&item, &mut script)
            } else {
                self.run_item(&item, &mut StandardInput)
            };
        }
        self.place = outside;
        result.map(drop)
    }

    /// Runs one item. The user has read about an error when it is returned.
    pub fn run_item(&mut self, item: &Item, data: &mut dyn DataLines) -> Result<Next, Failure> {
        match item {
            Item::Statement(sql) => self.run_statement(sql, data).map(|()| Next::Continue),
            Item::Meta(line) => match meta::parse(line) {
                Ok(meta) => self.run_meta(meta),
                Err(message) => Err(self.told(&message)),
            },
        }
    }

    /// Tells the user what is wrong, and where.
    fn told(&self, message: &str) -> Failure {
        eprintln!("{}{message}", self.place);
        Failure::Told
    }

    fn run_statement(&mut self, sql: &str, data: &mut dyn DataLines) -> Result<(), Failure> {
        let start = Instant::now();
        let result = match self.takes_data(sql) {
            Ok(true) => self.copy_in(sql, data)?,
            Ok(false) => self.print_results(sql)?,
            Err(error) => Err(error),
        };
        if self.timing {
            eprintln!("Time: {:.3} ms", start.elapsed().as_secs_f64() * 1e3);
        }
        result.map_err(|error| self.told(describe(&error, sql).trim_end()))
    }

    fn takes_data(&mut self, sql: &str) -> Result<bool, SqlError> {
        Ok(begins_with_copy(sql) && self.connection.prepare(sql)?.takes_data())
    }

    fn print_results(&mut self, sql: &str) -> io::Result<Result<(), SqlError>> {
        let mut output = io::BufWriter::new(io::stdout().lock());
        let mut printer = Printer::new(&mut output, self.format);
        self.running.store(true, Ordering::SeqCst);
        let place = &self.place;
        let result = self.connection.run(sql, |event| match event {
            Event::Columns(columns) => printer.columns(columns),
            Event::Batch(batch) => printer.batch(&batch),
            Event::Notice(notice) => eprintln!("{place}{}:  {}", notice.severity(), notice.message),
            Event::Done(tag) => printer.done(&tag),
        });
        self.running.store(false, Ordering::SeqCst);
        printer.finish().map(|()| result)
    }

    /// Loads what follows the statement.
    fn copy_in(&mut self, sql: &str, lines: &mut dyn DataLines) -> io::Result<Result<(), SqlError>> {
        if let Err(error) = lines.begin() {
            let state = SqlState::BAD_COPY_FORMAT;
            return Ok(Err(SqlError::new(state, error.to_string())));
        }
        let mut data = Data::new(lines);
        let rows = match self.connection.copy_in(sql, &mut data) {
            Ok(rows) => rows,
            Err(error) => {
                data.skip()?;
                return Ok(Err(error));
            }
        };
        let mut output = io::stdout().lock();
        let mut printer = Printer::new(&mut output, self.format);
        printer.done(&format!("COPY {rows}"));
        printer.finish().map(Ok)
    }

    fn run_meta(&mut self, meta: Meta) -> Result<Next, Failure> {
        match meta {
            Meta::Quit => return Ok(Next::Quit),
            Meta::Help => print(meta::HELP)?,
            Meta::Timing(wanted) => {
                self.timing = wanted.unwrap_or(!self.timing);
                print(if self.timing { "Timing is on.\n" } else { "Timing is off.\n" })?;
            }
            Meta::Expanded(wanted) => {
                let expanded = wanted.unwrap_or(self.format != Format::Expanded);
                self.format = if expanded { Format::Expanded } else { Format::Table };
                print(if expanded { "Expanded display is on.\n" } else { "Expanded display is off.\n" })?;
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
                    return Err(self.told(&format!("there is no table \"{name}\"")));
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
                let text = std::fs::read_to_string(&file).map_err(|error| self.told(&format!("{file}: {error}")))?;
                self.run_script(&text, Some(&file))?;
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

/// Standard input as data.
struct StandardInput;

impl DataLines for StandardInput {
    fn begin(&mut self) -> io::Result<()> {
        if io::stdin().is_terminal() { print(HOW_DATA_ENDS) } else { Ok(()) }
    }

    fn next_line(&mut self) -> io::Result<Option<String>> {
        let mut line = String::new();
        if io::stdin().read_line(&mut line)? == 0 {
            return Ok(None);
        }
        line.truncate(line.strip_suffix('\n').unwrap_or(&line).len());
        Ok(Some(line))
    }
}

/// What someone who types data needs to know.
pub const HOW_DATA_ENDS: &str = "\
Enter data to be copied followed by a newline.
End with a backslash and a period on a line by itself, or an EOF signal.
";

pub fn print(text: &str) -> io::Result<()> {
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
