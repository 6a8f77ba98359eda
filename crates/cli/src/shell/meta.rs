//! Meta commands: lines that start with a backslash.

use crate::shell::format::Format;

/// A meta command that was understood.
#[derive(Debug, PartialEq, Eq)]
pub enum Meta {
    Quit,
    Help,
    /// `None` changes it to the other.
    Timing(Option<bool>),
    /// `None` shows it.
    Format(Option<Format>),
    /// Expanded or not; `None` changes it to the other.
    Expanded(Option<bool>),
    /// Tables, or the columns of one.
    Describe(Option<String>),
    /// Runs a file.
    Include(String),
}

pub const HELP: &str = "\
SQL statements end with a semicolon. Ctrl-C cancels a running statement.
  \\d [TABLE]        list the tables, or the columns of one
  \\format [FORMAT]  show or set the format of results: table, expanded, csv, json
  \\x [on|off]       results with a line for each value
  \\timing [on|off]  show how long statements take
  \\i FILE           run the statements of a file
  \\?                this help
  \\q                quit
";

/// Reads a meta command, without its backslash.
pub fn parse(line: &str) -> Result<Meta, String> {
    let (name, argument) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let argument = argument.trim().trim_end_matches(';').trim_end();
    let given = (!argument.is_empty()).then_some(argument);
    match (name.trim_end_matches(';'), given) {
        ("q" | "quit", None) => Ok(Meta::Quit),
        ("?" | "h" | "help", _) => Ok(Meta::Help),
        ("timing", given) => switch(given).map(Meta::Timing),
        ("x", given) => switch(given).map(Meta::Expanded),
        ("format", None) => Ok(Meta::Format(None)),
        ("format", Some(name)) => match Format::from_name(name) {
            Some(format) => Ok(Meta::Format(Some(format))),
            None => Err(format!("unknown format \"{name}\": table, expanded, csv or json")),
        },
        ("d" | "dt", given) => Ok(Meta::Describe(given.map(str::to_owned))),
        ("copy", _) => Err("there is no \\copy: COPY reads the files of this machine here".to_owned()),
        ("i" | "include", Some(file)) => Ok(Meta::Include(file.to_owned())),
        _ => Err(format!("invalid command \\{line}: try \\? for help")),
    }
}

/// A switch that is turned on or off, or over when neither is said.
fn switch(argument: Option<&str>) -> Result<Option<bool>, String> {
    match argument {
        None => Ok(None),
        Some("on") => Ok(Some(true)),
        Some("off") => Ok(Some(false)),
        Some(other) => Err(format!("\"{other}\" is neither on nor off")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_understood() {
        assert_eq!(parse("q"), Ok(Meta::Quit));
        assert_eq!(parse("timing on"), Ok(Meta::Timing(Some(true))));
        assert_eq!(parse("format  csv"), Ok(Meta::Format(Some(Format::Csv))));
        assert_eq!(parse("d lineitem;"), Ok(Meta::Describe(Some("lineitem".to_owned()))));
        assert_eq!(parse("timing"), Ok(Meta::Timing(None)));
        assert_eq!(parse("x off"), Ok(Meta::Expanded(Some(false))));
        for wrong in ["y", "x maybe", "", "timing maybe", "format xml", "i", "q now"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
