//! A database of one table on a simulated machine, opened and closed as tests like.

#![allow(dead_code, reason = "each test uses a part of it")]

use std::path::Path;
use std::sync::Arc;

use eris_durability::{CheckpointReport, Database, DurabilityError, DurabilityOptions, open};
use eris_engine::{ContainerSpec, Engine, EngineError, EngineOptions, Partitioning, Read, Simulation};
use eris_platform::{Env, SimulatedEnv};
use eris_storage::{
    AttributeId, Batch, Comparison, Condition, ContainerId, DataType, Predicate, ReadRequest, Schema, Test, Value,
};

use crate::schemas::{attribute, schema};

pub const PATH: &str = "/db";
pub const TABLE: ContainerId = ContainerId(2);

/// A machine with an engine, and the database if it could be opened.
pub struct Shelf {
    pub simulation: Simulation,
    pub database: Option<Database>,
}

pub fn options() -> DurabilityOptions {
    DurabilityOptions { log_file_bytes: 2 << 10, ..DurabilityOptions::default() }
}

/// Opens what is there.
pub fn try_open(env: &SimulatedEnv, options: &DurabilityOptions) -> Result<Shelf, DurabilityError> {
    try_open_at(env, PATH, options)
}

/// Opens what is elsewhere.
pub fn try_open_at(
    env: &SimulatedEnv,
    path: &'static str,
    options: &DurabilityOptions,
) -> Result<Shelf, DurabilityError> {
    let mut simulation = Simulation::on(env, EngineOptions::default()).expect("starts");
    let (engine, options) = (simulation.engine().clone(), options.clone());
    let opened = simulation.block_on(async move { open(&engine, Path::new(path), &options, |_| {}).await });
    let database = Some(opened.expect("opening comes to its end")?);
    Ok(Shelf { simulation, database })
}

pub fn open_or_panic(env: &SimulatedEnv) -> Shelf {
    try_open(env, &options()).unwrap_or_else(|error| panic!("the database opens: {error}"))
}

fn table(container: ContainerId) -> Arc<Schema> {
    let attributes = [attribute("key", DataType::Int64, false), attribute("text", DataType::Text, true)];
    schema(container, &attributes, true, 64)
}

pub fn row(key: i64, text: &str) -> Batch {
    Batch::from_rows(
        &[DataType::Int64, DataType::Text],
        &[vec![Value::Int64(key), if text.is_empty() { Value::Null } else { Value::Text(text.into()) }]],
    )
}

pub fn create(engine: &Engine) -> Result<(), EngineError> {
    let id = engine.next_container_id();
    assert_eq!(id, TABLE);
    let partitioning = Partitioning::Range(Box::new([AttributeId(0)]));
    engine.create_container(ContainerSpec { schema: table(id), partitioning }).map(drop)
}

pub fn create_other(engine: &Engine) -> Result<(), EngineError> {
    let partitioning = Partitioning::Range(Box::new([AttributeId(0)]));
    engine.create_container(ContainerSpec { schema: table(engine.next_container_id()), partitioning }).map(drop)
}

pub async fn insert(engine: &Engine, keys: std::ops::Range<i64>) -> Result<(), EngineError> {
    for key in keys {
        let mut transaction = engine.begin();
        transaction.insert(TABLE, row(key, &format!("the text of row {key}"))).await?;
        transaction.commit().await?;
    }
    Ok(())
}

pub async fn delete(engine: &Engine, keys: std::ops::Range<i64>) -> Result<(), EngineError> {
    let mut transaction = engine.begin();
    for key in keys {
        transaction.next_statement();
        let test = Test::Compare(Comparison::Equal, Value::Int64(key));
        let conditions = Arc::new([Condition { attribute: AttributeId(0), test }]);
        let request = ReadRequest { predicate: Predicate { conditions }, desired: Arc::from([]), order: None };
        assert_eq!(transaction.delete(&Read { container: TABLE, request }, None).await?, 1);
    }
    transaction.commit().await.map(drop)
}

pub async fn keys(engine: &Engine) -> Result<Vec<i64>, EngineError> {
    let mut reader = engine.begin();
    let request =
        ReadRequest { predicate: Predicate::all(), desired: Arc::new([AttributeId(0), AttributeId(1)]), order: None };
    let mut keys = Vec::new();
    for batch in reader.scan(Read { container: TABLE, request }, None)?.collect().await? {
        for row in 0..batch.rows {
            let (Value::Int64(key), Value::Text(text)) = (batch.value(row, 0), batch.value(row, 1)) else {
                panic!("a key and a text")
            };
            assert_eq!(*text, *format!("the text of row {key}"));
            keys.push(key);
        }
    }
    keys.sort_unstable();
    Ok(keys)
}

impl Shelf {
    pub fn engine(&self) -> Engine {
        self.simulation.engine().clone()
    }

    pub fn create(&mut self) {
        let engine = self.engine();
        create(&engine).expect("creates");
    }

    pub fn insert(&mut self, keys: std::ops::Range<i64>) {
        let engine = self.engine();
        self.simulation.block_on(async move { insert(&engine, keys).await }).expect("ends").expect("inserts");
    }

    pub fn keys(&mut self) -> Vec<i64> {
        let engine = self.engine();
        self.simulation.block_on(async move { keys(&engine).await }).expect("ends").expect("reads")
    }

    /// Inserts rows as segments.
    pub fn load(&mut self, keys: std::ops::Range<i64>) {
        let engine = self.engine();
        let load = async move {
            let mut transaction = engine.begin();
            let mut load = transaction.bulk(TABLE)?;
            for key in keys {
                load.append(row(key, &format!("the text of row {key}"))).await?;
            }
            load.finish().await?;
            transaction.commit().await
        };
        self.simulation.block_on(load).expect("ends").expect("loads");
    }

    pub fn delete(&mut self, keys: std::ops::Range<i64>) {
        let engine = self.engine();
        self.simulation.block_on(async move { delete(&engine, keys).await }).expect("ends").expect("deletes");
    }

    pub fn try_checkpoint(&mut self) -> Result<CheckpointReport, Arc<DurabilityError>> {
        let database = self.database.take().expect("open");
        let (outcome, database) =
            self.simulation.block_on(async move { (database.checkpoint().await, database) }).expect("ends");
        self.database = Some(database);
        outcome
    }

    pub fn checkpoint(&mut self) -> CheckpointReport {
        self.try_checkpoint().expect("a checkpoint is taken")
    }

    pub fn close(mut self) {
        if let Some(database) = self.database.take() {
            self.simulation.block_on(async move { database.close().await }).expect("ends").expect("closes");
        }
    }
}

/// Whether a file's name has this extension.
pub fn is(path: &str, extension: &str) -> bool {
    Path::new(path).extension().is_some_and(|found| found == extension)
}

/// Every file below the database's directory, with its bytes.
pub fn files(env: &SimulatedEnv) -> Vec<(String, Vec<u8>)> {
    files_at(env, PATH)
}

/// The same of another directory.
pub fn files_at(env: &SimulatedEnv, path: &str) -> Vec<(String, Vec<u8>)> {
    let mut found = Vec::new();
    for directory in [path.to_owned(), format!("{path}/log"), format!("{path}/checkpoint")] {
        for name in env.files().list(directory.as_ref()).unwrap_or_default() {
            let path = format!("{directory}/{name}");
            let bytes = env.simulated_files().contents(&path).expect("it is listed");
            found.push((path, bytes));
        }
    }
    found
}

/// A file of the log, by its place among them.
pub fn log_file(env: &SimulatedEnv, place: usize) -> (String, Vec<u8>) {
    let logs = files(env).into_iter().filter(|(path, _)| is(path, "log"));
    logs.collect::<Vec<_>>().swap_remove(place)
}
