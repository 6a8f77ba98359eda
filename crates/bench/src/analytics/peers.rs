//! Other systems on the same data and texts, as child processes: the other end of `bench/peers/peer.py`.
//!
//! The scripts are part of the binary and are written to a temporary directory. They run on the interpreter that
//! `ERIS_BENCH_PYTHON` names, by default `python3`; what they import is listed in `bench/peers/requirements.txt`.

use crate::error::BenchError;
use eris_workloads::connection::{Rows, SqlValue};
use serde_json::{Value, json};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

const CONVERSATION: &str = include_str!("../../../../bench/peers/peer.py");

/// A system to compare with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum PeerKind {
    DuckDb,
    DataFusion,
    Hyper,
}

impl PeerKind {
    pub const ALL: [Self; 3] = [Self::DuckDb, Self::DataFusion, Self::Hyper];

    pub fn name(self) -> &'static str {
        match self {
            Self::DuckDb => "duckdb",
            Self::DataFusion => "datafusion",
            Self::Hyper => "hyper",
        }
    }

    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// Whether averages come as doubles with all their digits, instead of as decimals with few.
    pub fn prints_all_digits(self) -> bool {
        match self {
            Self::DuckDb => true,
            Self::DataFusion | Self::Hyper => false,
        }
    }

    fn script(self) -> &'static str {
        match self {
            Self::DuckDb => include_str!("../../../../bench/peers/duckdb_peer.py"),
            Self::DataFusion => include_str!("../../../../bench/peers/datafusion_peer.py"),
            Self::Hyper => include_str!("../../../../bench/peers/hyper_peer.py"),
        }
    }
}

/// A running peer with its data loaded. Dropping it ends the process.
pub struct Peer {
    pub kind: PeerKind,
    pub version: String,
    pub load_ms: f64,
    process: Child,
    /// Closed first when the peer is dropped: the end of its input ends it.
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    scripts: PathBuf,
}

/// A peer's answer to one query.
#[derive(Debug)]
pub struct PeerAnswer {
    pub elapsed_ms: f64,
    pub rows: Rows,
}

impl Peer {
    /// Starts a peer on a directory of `.tbl` files and waits until it has loaded them.
    pub fn start(kind: PeerKind, data: &Path, threads: usize) -> Result<Self, BenchError> {
        let scripts = std::env::temp_dir().join(format!("eris-peer-{}-{}", kind.name(), std::process::id()));
        fs::create_dir_all(&scripts)?;
        fs::write(scripts.join("peer.py"), CONVERSATION)?;
        let script = scripts.join(format!("{}_peer.py", kind.name()));
        fs::write(&script, kind.script())?;
        let python = std::env::var_os("ERIS_BENCH_PYTHON").unwrap_or_else(|| "python3".into());
        let spawned = Command::new(&python)
            .arg(&script)
            .arg(data)
            .arg(threads.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn();
        let mut process = spawned.map_err(|error| {
            let interpreter = python.to_string_lossy();
            BenchError::Peer { peer: kind.name(), message: format!("cannot start {interpreter}: {error}") }
        })?;
        let input = process.stdin.take();
        let output = process.stdout.take().map(BufReader::new);
        let Some(output) = output else { unreachable!("the output was asked for as a pipe") };
        let mut peer = Self { kind, version: String::new(), load_ms: 0.0, process, input, output, scripts };
        let ready = peer.read()?;
        ready["version"].as_str().unwrap_or("unknown").clone_into(&mut peer.version);
        peer.load_ms = ready["load_ms"].as_f64().unwrap_or(0.0);
        Ok(peer)
    }

    /// Runs one query; an error of the peer's engine is an error of this query only.
    pub fn query(&mut self, name: &str, sql: &str) -> Result<Result<PeerAnswer, String>, BenchError> {
        let request = json!({ "name": name, "sql": sql });
        let Some(input) = &mut self.input else { unreachable!("the input is open until the peer is dropped") };
        writeln!(input, "{request}")?;
        let mut answer = self.read()?;
        if let Some(error) = answer["error"].as_str() {
            return Ok(Err(error.to_owned()));
        }
        let Some(elapsed_ms) = answer["ms"].as_f64() else {
            return Err(self.failed(&format!("an answer without a time: {answer}")));
        };
        let Value::Array(rows) = answer["rows"].take() else {
            return Err(self.failed("an answer without rows"));
        };
        let rows = rows.into_iter().map(|row| match row {
            Value::Array(cells) => cells.into_iter().map(cell).collect(),
            other => vec![cell(other)],
        });
        Ok(Ok(PeerAnswer { elapsed_ms, rows: rows.collect() }))
    }

    fn read(&mut self) -> Result<Value, BenchError> {
        let mut line = String::new();
        if self.output.read_line(&mut line)? == 0 {
            return Err(self.failed(
                "it ended unexpectedly; its packages are listed in bench/peers/requirements.txt, ERIS_BENCH_PYTHON \
                 names the interpreter that has them",
            ));
        }
        serde_json::from_str(&line).map_err(|error| self.failed(&format!("not JSON ({error}): {line}")))
    }

    fn failed(&self, message: &str) -> BenchError {
        BenchError::Peer { peer: self.kind.name(), message: message.to_owned() }
    }
}

fn cell(value: Value) -> SqlValue {
    match value {
        Value::Null => SqlValue::Null,
        Value::String(text) => SqlValue::Text(text),
        other => SqlValue::Text(other.to_string()),
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        drop(self.input.take());
        // It ends with its input; what remains of a broken one is not this program's result.
        let _ = self.process.wait();
        let _ = fs::remove_dir_all(&self.scripts);
    }
}
