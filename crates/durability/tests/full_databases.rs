//! A database that ran full is opened with the same limit, whatever filled it.

#![expect(clippy::expect_used, reason = "a test fails by panicking")]

mod schemas;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use eris_durability::{Database, DurabilityOptions, open};
use eris_engine::{ContainerSpec, Engine, EngineError, EngineOptions, Partitioning, Read, RowFilter, Simulation};
use eris_platform::{SeededRandom, SimulatedEnv};
use eris_storage::{AttributeId, Batch, ContainerId, DataType, Predicate, ReadRequest, Value};
use schemas::{attribute, schema};

const LIMIT: u64 = 24 << 20;
const TABLE: ContainerId = ContainerId(2);

/// How rows come.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    /// A few at a time.
    Rows,
    /// As segments.
    Segments,
    /// A few at a time, each of 50,000 bytes.
    Wide,
}

struct Full {
    simulation: Simulation,
    database: Database,
}

impl Full {
    fn open(env: &SimulatedEnv) -> Self {
        let options = EngineOptions { memory_limit_bytes: LIMIT, workers: 2, nodes: 1, ..EngineOptions::default() };
        let mut simulation = Simulation::on(env, options).expect("starts");
        let engine = simulation.engine().clone();
        // Only those that are asked for.
        let durability = DurabilityOptions {
            checkpoint_log_bytes: u64::MAX,
            checkpoint_interval: Duration::from_hours(1_000_000),
            ..DurabilityOptions::default()
        };
        let opened = simulation.block_on(async move { open(&engine, Path::new("/db"), &durability, |_| {}).await });
        Self { simulation, database: opened.expect("opening ends").expect("the database opens") }
    }

    fn run<T: Send + 'static, F: Future<Output = T> + Send + 'static>(&mut self, work: impl FnOnce(Engine) -> F) -> T {
        let engine = self.simulation.engine().clone();
        self.simulation.block_on(work(engine)).expect("the work ends")
    }

    /// Lets maintenance do what it can.
    fn settle(&mut self) {
        self.run(|engine| async move { engine.reclaim_memory(Duration::from_secs(10)).await });
    }

    fn checkpoint(mut self) -> Self {
        let database = self.database;
        let (taken, database) = self
            .simulation
            .block_on(async move { (database.checkpoint().await, database) })
            .expect("the checkpoint ends");
        taken.expect("a checkpoint is taken");
        self.database = database;
        self
    }
}

/// Rows whose texts do not compress.
fn rows(first: i64, count: i64, bytes: usize, random: &mut SeededRandom) -> Batch {
    let mut text = |_| {
        let text: String = (0..bytes).map(|_| char::from(b' ' + (random.next_u64() % 90) as u8)).collect();
        Value::Text(text.into())
    };
    let rows: Vec<Vec<Value>> = (first..first + count).map(|key| vec![Value::Int64(key), text(key)]).collect();
    Batch::from_rows(&[DataType::Int64, DataType::Text], &rows)
}

async fn create(engine: Engine) -> Result<(), EngineError> {
    let attributes = [attribute("key", DataType::Int64, false), attribute("text", DataType::Text, true)];
    let schema = schema(engine.next_container_id(), &attributes, true, 1 << 14);
    let partitioning = Partitioning::Range(Box::new([AttributeId(0)]));
    engine.create_container(ContainerSpec { schema, partitioning }).map(drop)
}

/// Commits rows until they are refused; gives how many there are.
async fn fill(engine: Engine, way: Way, from: i64, seed: u64) -> Result<i64, EngineError> {
    let mut random = SeededRandom::new(seed);
    let (count, bytes) = match way {
        Way::Rows => (20, 200),
        Way::Segments => (4_096, 100),
        Way::Wide => (4, 50_000),
    };
    let mut next = from;
    loop {
        let mut transaction = engine.begin();
        let batch = rows(next, count, bytes, &mut random);
        let written = match way {
            Way::Segments => {
                let mut load = transaction.bulk(TABLE)?;
                match load.append(batch).await {
                    Ok(()) => load.finish().await,
                    Err(error) => Err(error),
                }
            }
            Way::Rows | Way::Wide => transaction.insert(TABLE, batch).await,
        };
        match written {
            Ok(_) => transaction.commit().await?,
            Err(error) if error.is_out_of_memory() => {
                transaction.rollback();
                return Ok(next);
            }
            Err(error) => return Err(error),
        };
        next += count;
    }
}

async fn count(engine: Engine) -> Result<i64, EngineError> {
    // It is open; to read all rows at once is another thing.
    engine.memory().set_limit(2 * LIMIT);
    let mut reader = engine.begin();
    let request = ReadRequest { predicate: Predicate::all(), desired: Arc::new([AttributeId(0)]), order: None };
    let mut results = reader.scan(Read { container: TABLE, request }, None)?;
    let mut rows = 0;
    while let Some(batch) = results.next().await? {
        rows += batch.rows as i64;
    }
    Ok(rows)
}

/// Two of three rows.
struct Most;

impl RowFilter for Most {
    fn select(&self, batch: &Batch) -> Result<Vec<u32>, EngineError> {
        let is_one = |row: &u32| !matches!(batch.columns[0].value(*row as usize), Value::Int64(key) if key % 3 == 0);
        Ok((0..batch.rows as u32).filter(is_one).collect())
    }
}

/// Deletes these rows, or all.
async fn delete(engine: Engine, rows: Option<Arc<dyn RowFilter>>) -> Result<i64, EngineError> {
    let mut transaction = engine.begin();
    let request = ReadRequest { predicate: Predicate::all(), desired: Arc::from([AttributeId(0)]), order: None };
    let deleted = transaction.delete(&Read { container: TABLE, request }, rows).await?;
    transaction.commit().await?;
    Ok(deleted as i64)
}

fn filled(env: &SimulatedEnv, ways: &[Way], seed: u64) -> (Full, i64) {
    let mut full = Full::open(env);
    full.run(create).expect("creates");
    let mut next = 0;
    // Again, when what came is sealed.
    for round in 0..3 {
        for way in ways {
            let (way, from) = (*way, next);
            next = full.run(move |engine| fill(engine, way, from, seed + round)).expect("fills");
        }
        full.settle();
    }
    (full, next)
}

const WAYS: [&[Way]; 4] = [&[Way::Rows], &[Way::Segments], &[Way::Wide], &[Way::Segments, Way::Rows]];

#[test]
fn a_full_database_is_opened_with_the_limit_that_it_had() {
    for (seed, ways) in (1..).zip(WAYS) {
        let env = SimulatedEnv::new(seed);
        let (full, rows) = filled(&env, ways, seed);
        drop(full);
        for _ in 0..2 {
            let mut full = Full::open(&env);
            assert!(full.simulation.engine().memory().peak() <= LIMIT, "{ways:?}");
            assert_eq!(full.run(count).expect("counts"), rows, "{ways:?}");
            let engine = full.simulation.engine().clone();
            engine.memory().set_limit(LIMIT);
            let (used, kept) = (engine.memory().used(), LIMIT / 16);
            let more = engine.memory().reserve("rows");
            assert!(more.grow((LIMIT - used).saturating_sub(kept / 2).max(1)).is_err(), "what is kept is kept");
        }
    }
}

#[test]
fn a_full_database_is_opened_behind_its_checkpoint_with_the_limit_that_it_had() {
    for (seed, ways) in (11..).zip(WAYS) {
        let env = SimulatedEnv::new(seed);
        let (full, rows) = filled(&env, ways, seed);
        drop(full.checkpoint());
        let mut full = Full::open(&env);
        assert_eq!(full.run(count).expect("counts"), rows, "{ways:?}");
        // What came after the checkpoint, too.
        full.simulation.engine().memory().set_limit(LIMIT);
        let more = full.run(move |engine| fill(engine, Way::Rows, rows, seed)).expect("fills");
        drop(full);
        assert_eq!(Full::open(&env).run(count).expect("counts"), more, "{ways:?}");
    }
}

#[test]
fn a_database_that_was_full_and_emptied_is_opened_with_the_limit_that_it_had() {
    for (seed, ways) in (21..).zip(WAYS) {
        let env = SimulatedEnv::new(seed);
        let (mut full, rows) = filled(&env, ways, seed);
        assert_eq!(full.run(|engine| delete(engine, None)).expect("deletes"), rows, "{ways:?}");
        full.settle();
        let again = full.run(move |engine| fill(engine, Way::Rows, rows, seed)).expect("fills");
        assert!(again > rows, "there is room again");
        drop(full);
        let mut full = Full::open(&env);
        assert_eq!(full.run(count).expect("counts"), again - rows, "{ways:?}");
    }
}

/// Rows between others are deleted with little memory, at first and when that is done again.
#[test]
fn a_full_database_of_which_two_of_three_rows_were_deleted_is_opened_with_the_limit_that_it_had() {
    for (seed, ways) in (31..).zip(WAYS) {
        let env = SimulatedEnv::new(seed);
        let (mut full, rows) = filled(&env, ways, seed);
        let deleted = full.run(|engine| delete(engine, Some(Arc::new(Most)))).expect("deletes");
        let left = (rows + 2) / 3;
        assert_eq!(deleted, rows - left, "{ways:?}");
        drop(full);
        let mut full = Full::open(&env);
        assert!(full.simulation.engine().memory().peak() <= LIMIT, "{ways:?}");
        assert_eq!(full.run(count).expect("counts"), left, "{ways:?}");
        full.simulation.engine().memory().set_limit(LIMIT);
        assert_eq!(full.run(|engine| delete(engine, None)).expect("deletes"), left, "{ways:?}");
        drop(full);
        assert_eq!(Full::open(&env).run(count).expect("counts"), 0, "{ways:?}");
    }
}
