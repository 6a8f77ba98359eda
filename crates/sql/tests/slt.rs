//! Runs every `.slt` file under `tests/slt` ([`support::records`] says what is in them), each under many ways of
//! storing and dividing tables and of making it hard: tiny batches, buffers and quanta, little memory, temporary
//! files, partitions that are split, merged, moved and stored in another way in the middle of queries.
//!
//! `ERIS_MATRIX=full` runs every way with every other; without it there are twelve, in which each layout meets each
//! number of partitions and of nodes, and what makes it hard comes at least once. `SLT=name` runs the files with that
//! name only, `SLT_TIMES=1` says how long each takes.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::fmt;
use std::fs;
use std::time::Duration;

use eris_engine::EngineOptions;
use eris_sql::DatabaseOptions;
use eris_storage::Layout;
use support::Instance;
use support::disturber::Disturber;
use support::records::{Sessions, check, files, records};

const LAYOUTS: [Layout; 4] = [Layout::Row, Layout::Column, Layout::Mixed, Layout::Default];
const PARTITIONS: [usize; 3] = [1, 7, 64];
const NODES: [usize; 3] = [1, 2, 4];
const STRESSES: [Stress; 8] = [
    Stress::None,
    Stress::Batches(1),
    Stress::Batches(7),
    Stress::OneMessageBuffers,
    Stress::TinyQuanta,
    Stress::Disturbed,
    Stress::TinyMemory,
    Stress::Spilling,
];

/// The smallest buffer that takes any message.
const ONE_MESSAGE_BYTES: usize = 96;
/// What a file says that looks at partitions: they must stay as they are.
const UNDISTURBED: &str = "# Undisturbed:";
/// Enough for most files, not for all.
const TINY_MEMORY_BYTES: u64 = 400 << 10;

/// What is made hard.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Stress {
    None,
    /// Rows of a batch at most.
    Batches(usize),
    /// Each message is handed on by itself.
    OneMessageBuffers,
    /// Every command gives its partition back as often as it can.
    TinyQuanta,
    /// Partitions split by themselves, and change by orders.
    Disturbed,
    /// What does not fit says so.
    TinyMemory,
    /// Operators that can go on in temporary files do so with their second batch.
    Spilling,
}

#[derive(Clone, Copy)]
struct Variant {
    layout: Layout,
    partitions: usize,
    nodes: usize,
    stress: Stress,
}

impl fmt::Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { layout, partitions, nodes, stress } = self;
        write!(f, "{layout:?}, {partitions} partitions, {nodes} nodes, {stress:?}")
    }
}

impl Variant {
    fn start(self) -> Instance {
        let mut database = DatabaseOptions {
            layout: self.layout,
            partitions: self.partitions,
            segment_rows: if self.partitions == 1 { 8 } else { 16 },
            ..DatabaseOptions::default()
        };
        let workers = self.nodes.max(2);
        let mut engine = EngineOptions { workers, nodes: self.nodes, ..EngineOptions::default() };
        match self.stress {
            Stress::None => {}
            Stress::Batches(rows) => database.batch_rows = rows,
            Stress::OneMessageBuffers => {
                engine.incoming_buffer_bytes = ONE_MESSAGE_BYTES;
                engine.worker_buffer_bytes = ONE_MESSAGE_BYTES;
                engine.result_batches_max = 1;
            }
            Stress::TinyQuanta => {
                engine.quantum = Duration::ZERO;
                engine.maintenance_rows = 4;
                engine.in_place = false;
            }
            Stress::Disturbed => engine.split_rows = 64,
            Stress::Spilling => database.work_mem_bytes = 1,
            // The limit is the engine's own: what else this process holds does not count.
            Stress::TinyMemory => (engine.memory_limit_bytes, engine.memory_watched) = (TINY_MEMORY_BYTES, false),
        }
        Instance::with_engine(engine, database)
    }
}

/// All variants, or twelve in which any two of the first three axes have all their pairs, and stress all its kinds.
fn variants(full: bool) -> Vec<Variant> {
    let mut variants = Vec::new();
    for (a, layout) in LAYOUTS.into_iter().enumerate() {
        for (b, partitions) in PARTITIONS.into_iter().enumerate() {
            for (c, nodes) in NODES.into_iter().enumerate() {
                for (d, stress) in STRESSES.into_iter().enumerate() {
                    if full || (c == (a + b) % 3 && d == (3 * a + b) % STRESSES.len()) {
                        variants.push(Variant { layout, partitions, nodes, stress });
                    }
                }
            }
        }
    }
    variants
}

fn title(variant: Option<Variant>) -> String {
    variant.map_or_else(|| "default".to_string(), |variant| variant.to_string())
}

/// What came of the files under some variants.
#[derive(Default)]
struct Outcome {
    checked: usize,
    failures: Vec<String>,
    /// Files that came to their end although there was little memory, and those that did not.
    fitted: usize,
    not_fitted: usize,
    /// What disturbers did.
    changes: u64,
    /// Bytes that went to temporary files where operators were told to use them.
    spilled: u64,
}

impl Outcome {
    fn run(&mut self, name: &str, text: &str, variant: Option<Variant>) {
        if variant.is_some_and(|variant| variant.stress == Stress::Disturbed) && text.contains(UNDISTURBED) {
            return;
        }
        let instance = variant.map_or_else(|| Instance::start(2, 1, DatabaseOptions::default()), Variant::start);
        let title = title(variant);
        let stress = variant.map_or(Stress::None, |variant| variant.stress);
        let engine = instance.database.engine();
        let disturber = (stress == Stress::Disturbed).then(|| Disturber::start(engine, self.checked as u64));
        let mut sessions = Sessions::new(&instance);
        let mut fits = true;
        for record in records(text) {
            self.checked += 1;
            let Err(problem) = check(&mut sessions, &record) else { continue };
            if stress == Stress::TinyMemory && problem.no_memory {
                // The rest of the file may build on what was refused.
                fits = false;
                break;
            }
            self.failures.push(format!("{name}:{} ({title})\n{}{}\n", record.line, record.sql, problem.text));
        }
        if stress == Stress::TinyMemory {
            self.fitted += usize::from(fits);
            self.not_fitted += usize::from(!fits);
        }
        if stress == Stress::Spilling {
            self.spilled += instance.database.temp_files().statistics().written_bytes;
        }
        if let Some(disturber) = disturber {
            self.changes += disturber.end();
        }
    }
}

#[test]
fn all_files_under_all_variants() {
    let only = std::env::var("SLT").ok();
    let full = std::env::var("ERIS_MATRIX").is_ok_and(|matrix| matrix == "full");
    let mut outcome = Outcome::default();
    let variants: Vec<Option<Variant>> = std::iter::once(None).chain(variants(full).into_iter().map(Some)).collect();
    for variant in variants {
        for file in files() {
            let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if only.as_ref().is_some_and(|only| !name.contains(only.as_str())) {
                continue;
            }
            let text = fs::read_to_string(&file).expect("a readable SQL test");
            let started = std::time::Instant::now();
            outcome.run(&name, &text, variant);
            if std::env::var("SLT_TIMES").is_ok() {
                eprintln!("{:>6} ms {name} ({})", started.elapsed().as_millis(), title(variant));
            }
        }
    }
    let Outcome { checked, failures, fitted, not_fitted, changes, spilled } = outcome;
    assert!(failures.is_empty(), "{} of {checked} records failed\n\n{}", failures.len(), failures.join("\n"));
    assert!(checked > 0, "records were checked");
    if only.is_none() {
        assert!(fitted > 0 && not_fitted > 0, "{fitted} files fitted into little memory, {not_fitted} did not");
        assert!(changes > 0, "nothing was disturbed");
        assert!(spilled > 0, "nothing went to temporary files");
    }
}
