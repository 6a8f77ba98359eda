//! Runs every `.slt` file under `tests/slt`, each under several ways of storing and dividing tables.
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

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use eris_sql::DatabaseOptions;
use eris_storage::Layout;
use support::{Client, Instance, joined};

struct Variant {
    name: &'static str,
    workers: usize,
    nodes: usize,
    options: DatabaseOptions,
}

fn variants() -> Vec<Variant> {
    let base = DatabaseOptions::default;
    vec![
        Variant { name: "default", workers: 2, nodes: 1, options: base() },
        Variant {
            name: "rows, one partition, tiny segments",
            workers: 1,
            nodes: 1,
            options: DatabaseOptions { layout: Layout::Row, partitions: 1, segment_rows: 8, ..base() },
        },
        Variant {
            name: "columns, 7 partitions, 2 nodes",
            workers: 2,
            nodes: 2,
            options: DatabaseOptions { layout: Layout::Column, partitions: 7, segment_rows: 16, ..base() },
        },
        Variant {
            name: "mixed, 64 partitions, 4 nodes",
            workers: 4,
            nodes: 4,
            options: DatabaseOptions { layout: Layout::Mixed, partitions: 64, segment_rows: 16, ..base() },
        },
    ]
}

fn files() -> Vec<PathBuf> {
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
struct Sessions<'i> {
    instance: &'i Instance,
    clients: BTreeMap<String, Client>,
    current: String,
}

impl<'i> Sessions<'i> {
    fn new(instance: &'i Instance) -> Self {
        Self { instance, clients: BTreeMap::new(), current: String::new() }
    }

    fn client(&mut self) -> &mut Client {
        let instance = self.instance;
        self.clients.entry(self.current.clone()).or_insert_with(|| instance.session())
    }
}

struct Record<'a> {
    line: usize,
    head: &'a str,
    sql: String,
    expected: Vec<&'a str>,
}

fn records(text: &str) -> Vec<Record<'_>> {
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

fn check(sessions: &mut Sessions<'_>, record: &Record<'_>) -> Result<(), String> {
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
            if reported == *count { Ok(()) } else { Err(format!("{} instead of {count} rows", answer.tag)) }
        }
        (["statement" | "copy", "error", state, rest @ ..], Err(error)) => {
            let text = error.to_string();
            let wanted = rest.join(" ");
            if error.sqlstate.as_str() != *state {
                return Err(format!("expected SQLSTATE {state}, got {text}"));
            }
            if text.contains(&wanted) { Ok(()) } else { Err(format!("no \"{wanted}\" in {text}")) }
        }
        (["statement" | "copy", "error", ..], Ok(answer)) => Err(format!("succeeded with {answer:?}")),
        (["query", modes @ ..], Ok(answer)) => {
            if modes.contains(&"native") && !answer.native {
                return Err("is not native".to_string());
            }
            if modes.contains(&"fallback") && answer.native {
                return Err("is native".to_string());
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
                Err(format!("expected\n{}\ngot\n{}", expected.join("\n"), rows.join("\n")))
            }
        }
        (_, Err(error)) => Err(error.to_string()),
        (_, Ok(_)) => Err(format!("unknown record {}", record.head)),
    }
}

#[test]
fn all_files_under_all_variants() {
    let mut failures = Vec::new();
    let mut checked = 0;
    let only = std::env::var("SLT").ok();
    for variant in variants() {
        for file in files() {
            let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if only.as_ref().is_some_and(|only| !name.contains(only.as_str())) {
                continue;
            }
            let text = fs::read_to_string(&file).expect("a readable SQL test");
            let instance = Instance::start(variant.workers, variant.nodes, variant.options.clone());
            let mut sessions = Sessions::new(&instance);
            for record in records(&text) {
                checked += 1;
                if let Err(problem) = check(&mut sessions, &record) {
                    failures.push(format!("{name}:{} ({})\n{}{problem}\n", record.line, variant.name, record.sql));
                }
            }
        }
    }
    assert!(failures.is_empty(), "{} of {checked} records failed\n\n{}", failures.len(), failures.join("\n"));
    assert!(checked > 0, "records were checked");
}
