//! Files of SQL with what must come of it, as tests under `tests/slt` have them.
//!
//! The format is that of sqllogictest with rows on lines of their own:
//!
//! ```text
//! statement ok                    must succeed
//! statement count 3               must report 3 rows
//! statement error 22012 zero      must fail with this SQLSTATE, the text contains the rest of the line
//! query [rowsort] [native] [fallback] [names]
//!                                 rows follow after ----, columns separated by a bar; native: no DataFusion node ran,
//!                                 fallback: one did; names: the first line is the names of the columns
//! copy count 3                    data follows after ----; also copy error
//! session name                    the records that follow are another client's
//! ```
//! A text after `statement error` is looked for in message, detail, hint and context.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use eris_sql::SqlState;

use super::{Client, Instance, joined};

/// Why a record failed.
pub struct Problem {
    pub text: String,
    /// It asked for more memory than there is.
    pub no_memory: bool,
}

impl From<String> for Problem {
    fn from(text: String) -> Self {
        Self { text, no_memory: false }
    }
}

/// The files of records, by name.
pub fn files() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/slt");
    let mut files: Vec<PathBuf> = fs::read_dir(folder)
        .expect("the folder of SQL tests")
        .map(|entry| entry.expect("a folder entry").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "slt"))
        .collect();
    files.sort();
    assert!(!files.is_empty(), "there are SQL tests");
    files
}

/// The clients of a file, by name.
pub struct Sessions<'i> {
    instance: &'i Instance,
    clients: BTreeMap<String, Client>,
    current: String,
}

impl<'i> Sessions<'i> {
    pub fn new(instance: &'i Instance) -> Self {
        Self { instance, clients: BTreeMap::new(), current: String::new() }
    }

    fn client(&mut self) -> &mut Client {
        let instance = self.instance;
        self.clients.entry(self.current.clone()).or_insert_with(|| instance.session())
    }
}

/// A statement with its first line, and what must come of it.
pub struct Record<'a> {
    pub line: usize,
    pub head: &'a str,
    pub sql: String,
    expected: Vec<&'a str>,
}

/// The records of a file.
pub fn records(text: &str) -> Vec<Record<'_>> {
    let mut records = Vec::new();
    let mut lines = text.lines().enumerate().peekable();
    while let Some((at, line)) = lines.next() {
        if line.trim().is_empty() || line.starts_with('#') {
            continue;
        }
        let mut record = Record { line: at + 1, head: line.trim(), sql: String::new(), expected: Vec::new() };
        let mut results = false;
        while let Some((_, line)) = lines.next_if(|(_, line)| !line.trim().is_empty()) {
            if line == "----" {
                results = true;
            } else if results {
                record.expected.push(line);
            } else {
                record.sql.push_str(line);
                record.sql.push('\n');
            }
        }
        records.push(record);
    }
    records
}

/// Runs a record and compares what comes.
pub fn check(sessions: &mut Sessions<'_>, record: &Record<'_>) -> Result<(), Problem> {
    let words: Vec<&str> = record.head.split_whitespace().collect();
    if let ["session", name] = words.as_slice() {
        sessions.current = (*name).to_string();
        return Ok(());
    }
    let client = sessions.client();
    let data = record.expected.iter().flat_map(|line| [line, "\n"]).collect::<String>();
    let copied = (words[0] == "copy").then_some(data.as_str());
    let answer = client.run_with(&record.sql, &[], copied);
    match (words.as_slice(), answer) {
        (["statement", "ok"] | ["copy"], Ok(_)) => Ok(()),
        (["statement" | "copy", "count", count], Ok(answer)) => {
            let reported = answer.tag.rsplit(' ').next().unwrap_or_default().to_string();
            if reported == *count { Ok(()) } else { Err(format!("{} instead of {count} rows", answer.tag).into()) }
        }
        (["statement" | "copy", "error", state, rest @ ..], Err(error)) => {
            let text = error.to_string();
            let wanted = rest.join(" ");
            if error.sqlstate.as_str() != *state {
                return Err(format!("expected SQLSTATE {state}, got {text}").into());
            }
            if text.contains(&wanted) { Ok(()) } else { Err(format!("no \"{wanted}\" in {text}").into()) }
        }
        (["statement" | "copy", "error", ..], Ok(answer)) => Err(format!("succeeded with {answer:?}").into()),
        (["query", modes @ ..], Ok(answer)) => {
            if modes.contains(&"native") && !answer.native {
                return Err("is not native".to_string().into());
            }
            if modes.contains(&"fallback") && answer.native {
                return Err("is native".to_string().into());
            }
            let mut rows: Vec<String> = answer.rows.iter().map(|row| joined(row)).collect();
            if modes.contains(&"names") {
                rows.insert(0, answer.columns.join("|"));
            }
            let mut expected: Vec<String> = record.expected.iter().map(ToString::to_string).collect();
            if modes.contains(&"rowsort") {
                rows.sort();
                expected.sort();
            }
            if rows == expected {
                Ok(())
            } else {
                Err(format!("expected\n{}\ngot\n{}", expected.join("\n"), rows.join("\n")).into())
            }
        }
        (_, Err(error)) => {
            Err(Problem { text: error.to_string(), no_memory: error.sqlstate == SqlState::OUT_OF_MEMORY })
        }
        (_, Ok(_)) => Err(format!("unknown record {}", record.head).into()),
    }
}
