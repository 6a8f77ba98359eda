//! Bytes in the files of a database, under checks that are right, as somebody may write them who means harm: the
//! database is refused or opens; what opened once opens again and has the same rows.
//!
//! ```text
//!   input := where u8 | what
//!   where    log        what := records, each kind u8 | timestamp u8 | length u16 | body; behind those that are there
//!            block      what := which u8 | body in place of the block's
//!            manifest   what := text in place of the manifest
//!            identity   what := text in place of eris.db
//!            bytes      what := which u8 | offset u16 | bytes that go over those of a file, without another check
//! ```

use std::path::Path;
use std::sync::{Arc, OnceLock};

use eris_durability::{DurabilityError, DurabilityOptions, open};
use eris_engine::{ContainerSpec, Definition, Engine, EngineError, EngineOptions, Partitioning, Read, Simulation};
use eris_platform::{Env, SimulatedEnv};
use eris_storage::{
    Attribute, AttributeId, Batch, ContainerId, DataType, IndexDefinition, IndexId, IndexKind, Layout, Predicate,
    ReadRequest, Schema, SchemaVersion, Value,
};

const PATH: &str = "/db";
const DIRECTORIES: [&str; 3] = ["/db", "/db/log", "/db/checkpoint"];
/// Whatever sizes the bytes speak of.
const MEMORY_BYTES: u64 = 64 << 20;
const LOG_HEADER_BYTES: usize = 64;
const RECORD_HEADER_BYTES: usize = 40;

/// Paths and contents.
pub type FileSet = Vec<(String, Vec<u8>)>;

/// What became of an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// There is no such place.
    Nothing,
    Refused,
    Opened,
}

/// Puts the input into the files of a small database and opens it.
///
/// # Panics
/// If what opened does not open again with the same rows.
pub fn files(input: &[u8]) -> Verdict {
    let Some(changed) = changed_files(input) else { return Verdict::Nothing };
    let env = SimulatedEnv::new(1);
    for (path, bytes) in changed {
        env.simulated_files().insert(path, bytes);
    }
    let Some(first) = rows_when_opened(&env) else { return Verdict::Refused };
    assert_eq!(rows_when_opened(&env).as_ref(), Some(&first), "it is as it was");
    Verdict::Opened
}

fn changed_files(input: &[u8]) -> Option<FileSet> {
    let (place, rest) = input.split_first()?;
    let mut set = base().clone();
    match place {
        b'l' => append_records(&mut set, rest)?,
        b'b' => replace_block(&mut set, rest)?,
        b'm' => replace_manifest(&mut set, &String::from_utf8_lossy(rest).replace('\n', " ")),
        b'i' => content(&mut set, "eris.db")?.1 = rest.to_vec(),
        b'x' => {
            let (which, rest) = rest.split_first()?;
            let (offset, rest) = rest.split_first_chunk::<2>()?;
            let which = *which as usize % set.len();
            let offset = u16::from_le_bytes(*offset) as usize;
            let bytes = &mut set[which].1;
            bytes.iter_mut().skip(offset).zip(rest).for_each(|(byte, new)| *byte = *new);
        }
        _ => return None,
    }
    Some(set)
}

fn content<'s>(set: &'s mut FileSet, end: &str) -> Option<&'s mut (String, Vec<u8>)> {
    set.iter_mut().rfind(|(path, _)| path.ends_with(end))
}

/// The id that checks begin with.
fn check_of_id(set: &FileSet) -> u32 {
    let (_, text) = set.iter().find(|(path, _)| path.ends_with("eris.db")).expect("the base has it");
    let identity: serde_json::Value = serde_json::from_slice(text).expect("the base is whole");
    let id = identity["database"].as_str().and_then(|id| u64::from_str_radix(id, 16).ok()).expect("a number");
    crc32c::crc32c(&id.to_le_bytes())
}

fn number(bytes: &[u8]) -> usize {
    bytes.iter().rev().fold(0, |number, byte| number << 8 | usize::from(*byte))
}

fn append_records(set: &mut FileSet, mut input: &[u8]) -> Option<()> {
    let check = check_of_id(set);
    let (_, log) = content(set, ".log")?;
    let first = number(&log[24..32]);
    let mut at = LOG_HEADER_BYTES;
    while let length @ 1.. = number(&log[at + 4..at + 8]) {
        at += length.next_multiple_of(8);
    }
    log.truncate(at);
    while let Some(([kind, timestamp, low, high], rest)) = input.split_first_chunk::<4>() {
        let (body, rest) = rest.split_at(number(&[*low, *high]).min(rest.len()));
        input = rest;
        let mut record = vec![0; RECORD_HEADER_BYTES];
        let position = (first + at - LOG_HEADER_BYTES) as u64;
        record[4..8].copy_from_slice(&((RECORD_HEADER_BYTES + body.len()) as u32).to_le_bytes());
        record[8..16].copy_from_slice(&position.to_le_bytes());
        record[24..32].copy_from_slice(&(1_000 + u64::from(*timestamp)).to_le_bytes());
        record[32] = *kind;
        record.extend_from_slice(body);
        let check = crc32c::crc32c_append(check, &record[4..]);
        record[..4].copy_from_slice(&check.to_le_bytes());
        record.resize(record.len().next_multiple_of(8), 0);
        at += record.len();
        log.extend_from_slice(&record);
    }
    Some(())
}

fn manifest(set: &mut FileSet) -> Option<serde_json::Value> {
    let (_, text) = content(set, "manifest")?;
    let line = text.split(|byte| *byte == b'\n').next()?;
    serde_json::from_slice(line).ok()
}

fn replace_manifest(set: &mut FileSet, line: &str) {
    if let Some((_, text)) = content(set, "manifest") {
        *text = format!("{line}\ncheck {:08x}\n", crc32c::crc32c(line.as_bytes())).into_bytes();
    }
}

fn replace_block(set: &mut FileSet, input: &[u8]) -> Option<()> {
    let (which, body) = input.split_first()?;
    let check = check_of_id(set);
    let mut manifest = manifest(set)?;
    let (_, data) = content(set, ".data")?;
    let blocks = manifest["blocks"].as_array_mut()?;
    let count = blocks.len();
    let block = &mut blocks[(*which & 0x7f) as usize % count];
    let is_live = which & 0x80 != 0 && !block["live"].is_null();
    let place = &mut block[if is_live { "live" } else { "place" }];
    let (file, offset, length) = (place["file"].as_u64()?, data.len() as u64, 16 + body.len() as u64);
    place["offset"] = offset.into();
    place["length"] = length.into();
    let mut bytes = vec![0; 4];
    bytes.extend_from_slice(&if is_live { 2_u32 } else { 1 }.to_le_bytes());
    bytes.extend_from_slice(&length.to_le_bytes());
    bytes.extend_from_slice(body);
    let check = crc32c::crc32c_append(crc32c::crc32c_append(check, &file.to_le_bytes()), &offset.to_le_bytes());
    let check = crc32c::crc32c_append(check, &bytes[4..]);
    bytes[..4].copy_from_slice(&check.to_le_bytes());
    data.extend_from_slice(&bytes);
    replace_manifest(set, &manifest.to_string());
    Some(())
}

/// Opens it; how many rows each container has, and closes it. None: refused.
fn rows_when_opened(env: &SimulatedEnv) -> Option<Vec<(ContainerId, usize)>> {
    let options = EngineOptions { memory_limit_bytes: MEMORY_BYTES, memory_watched: false, ..EngineOptions::default() };
    let mut simulation = Simulation::on(env, options).expect("starts");
    let engine = simulation.engine().clone();
    let opened = simulation.block_on(async move {
        let options = DurabilityOptions { log_file_bytes: 4 << 10, ..DurabilityOptions::default() };
        let database = open(&engine, Path::new(PATH), &options, |_| {}).await?;
        let mut rows = Vec::new();
        for container in containers(&engine) {
            rows.push((container, count(&engine, container).await?));
        }
        database.close().await?;
        Ok::<_, DurabilityError>(rows)
    });
    opened.expect("it comes to an end").ok()
}

fn containers(engine: &Engine) -> Vec<ContainerId> {
    let id = |definition| match definition {
        Definition::Container { schema, .. } => Some(schema.container),
        _ => None,
    };
    engine.definitions().into_iter().filter_map(id).collect()
}

async fn count(engine: &Engine, container: ContainerId) -> Result<usize, EngineError> {
    let mut reader = engine.begin();
    let attributes = reader.schema_of(container)?.attributes.len() as u16;
    let desired = (0..attributes).map(AttributeId).collect();
    let request = ReadRequest { predicate: Predicate::all(), desired, order: None };
    let batches = reader.scan(Read { container, request }, None)?.collect().await?;
    // Every value is looked at.
    Ok(batches.iter().map(|batch| (0..batch.rows).filter(|row| !batch.row(*row).is_empty()).count()).sum())
}

/// A closed database: one table with a key, one without, rows in a checkpoint and rows in the log.
pub fn base() -> &'static FileSet {
    static BASE: OnceLock<FileSet> = OnceLock::new();
    BASE.get_or_init(|| {
        let env = SimulatedEnv::new(7);
        let mut simulation = Simulation::on(&env, EngineOptions::default()).expect("starts");
        let engine = simulation.engine().clone();
        let made = simulation.block_on(async move {
            let options = DurabilityOptions { log_file_bytes: 4 << 10, ..DurabilityOptions::default() };
            let database = open(&engine, Path::new(PATH), &options, |_| {}).await?;
            for keyed in [true, false] {
                let schema = schema(engine.next_container_id(), keyed);
                let partitioning = if keyed {
                    Partitioning::Range(Box::new([AttributeId(0)]))
                } else {
                    Partitioning::Size { partitions: 2 }
                };
                let container = engine.create_container(ContainerSpec { schema, partitioning })?.id();
                insert(&engine, container, 0..20).await?;
            }
            database.checkpoint().await.expect("there is room");
            for container in containers(&engine) {
                insert(&engine, container, 20..24).await?;
            }
            database.close().await?;
            Ok::<_, DurabilityError>(())
        });
        made.expect("ends").expect("a new database");
        let mut set = FileSet::new();
        for directory in DIRECTORIES {
            for name in env.files().list(directory.as_ref()).unwrap_or_default() {
                let path = format!("{directory}/{name}");
                let Some(bytes) = env.simulated_files().contents(&path) else { continue };
                set.push((path, bytes));
            }
        }
        set
    })
}

fn schema(container: ContainerId, keyed: bool) -> Arc<Schema> {
    let attribute = |name: &str, data_type, nullable| Attribute { name: name.into(), data_type, nullable };
    let key = IndexDefinition {
        id: IndexId(1),
        name: "pkey".into(),
        attributes: Box::new([AttributeId(0)]),
        unique: true,
        primary: true,
        kind: IndexKind::Ordered,
    };
    Arc::new(Schema {
        container,
        version: SchemaVersion(1),
        attributes: Box::new([attribute("key", DataType::Int64, false), attribute("text", DataType::Text, true)]),
        indexes: if keyed { Box::new([key]) } else { Box::default() },
        layout: Layout::Default,
        physical: None,
        segment_rows: 8,
    })
}

async fn insert(engine: &Engine, container: ContainerId, keys: std::ops::Range<i64>) -> Result<(), EngineError> {
    let row = |key| vec![Value::Int64(key), Value::Text(format!("row {key}, longer than what fits").into())];
    let rows: Vec<_> = keys.map(row).collect();
    let mut transaction = engine.begin();
    transaction.insert(container, Batch::from_rows(&[DataType::Int64, DataType::Text], &rows)).await?;
    transaction.commit().await.map(drop)
}
