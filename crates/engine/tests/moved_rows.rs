//! Rows that an update sends to other partitions: charged to the statement, grouped by target, with credits.

#![expect(clippy::expect_used, reason = "a test fails by panicking")]

mod accounts;

use std::sync::Arc;

use accounts::{KEY, everything, row, schema};
use eris_engine::{Change, ContainerSpec, EngineError, EngineOptions, Event, Partitioning, RowChange, Simulation};
use eris_storage::{AttributeId, Batch, ContainerId, DataType, Layout, Value};

const ROWS: i64 = 4_000;
const SEGMENT_ROWS: u32 = 128;
const PARTITIONS: usize = 4;

/// Every key becomes another one, which most often belongs to another partition.
struct Shift;

impl RowChange for Shift {
    fn inputs(&self) -> usize {
        2
    }

    fn attributes(&self) -> &[AttributeId] {
        &[KEY]
    }

    fn apply(&self, batch: &Batch) -> Result<Change, EngineError> {
        let shifted = (0..batch.rows).map(|row| match batch.value(row, 0) {
            Value::Int64(key) => vec![Value::Int64(key + ROWS)],
            other => panic!("{other:?} is no key"),
        });
        let values = Batch::from_rows(&[DataType::Int64], &shifted.collect::<Vec<_>>());
        Ok(Change { rows: None, attributes: Box::new([KEY]), values })
    }
}

/// What an update of all keys took.
struct Taken {
    result: Result<u64, EngineError>,
    peak_bytes: u64,
    credit_waits: u64,
    messages: u64,
}

fn update_all_keys(seed: u64, rows_on_the_way_max: u64, limit: u64) -> Taken {
    let options = EngineOptions { workers: 2, in_place: false, rows_on_the_way_max, ..EngineOptions::default() };
    let mut simulation = Simulation::new(seed, options).expect("starts");
    let engine = simulation.engine().clone();
    let container = engine.next_container_id();
    let partitioning = Partitioning::Hash { attributes: Box::new([KEY]), partitions: PARTITIONS };
    let schema = Arc::new(schema(container, Layout::Row, SEGMENT_ROWS));
    engine.create_container(ContainerSpec { schema, partitioning }).expect("created");
    let count = |event: Event| {
        let events = engine.statistics().events;
        events.iter().find(|(known, _)| *known == event).map_or(0, |(_, count)| *count)
    };
    let task = engine.clone();
    let fill = async move {
        let mut transaction = task.begin();
        let rows: Vec<Batch> = (0..ROWS).map(|key| row(key, key, None)).collect();
        transaction.insert(container, Batch::concat(&rows)).await.expect("inserted");
        transaction.commit().await.expect("committed");
    };
    simulation.block_on(fill).expect("runs");
    simulation.run_until_idle().expect("comes to rest");
    let before = (count(Event::CreditWaits), count(Event::LocalMessages));
    let task = engine.clone();
    let update = async move {
        let mut transaction = task.begin();
        transaction.set_memory_limit(Some(limit));
        let result = transaction.update(&everything(container), Arc::new(Shift)).await;
        let peak_bytes = transaction.memory().peak();
        assert_eq!(transaction.memory().used(), 0, "what was on the way is given back");
        match &result {
            Ok(_) => transaction.commit().await.map(|_| ()).expect("committed"),
            Err(_) => transaction.rollback(),
        }
        (result, peak_bytes)
    };
    let (result, peak_bytes) = simulation.block_on(update).expect("runs");
    simulation.run_until_idle().expect("comes to rest");
    simulation.check_partitions().expect("the indexes agree with the rows");
    let keys = keys(&mut simulation, container);
    let first = if result.is_ok() { ROWS } else { 0 };
    assert!(keys.into_iter().eq(first..first + ROWS), "every row is there once");
    let (credit_waits, messages) = (count(Event::CreditWaits) - before.0, count(Event::LocalMessages) - before.1);
    Taken { result, peak_bytes, credit_waits, messages }
}

fn keys(simulation: &mut Simulation, container: ContainerId) -> Vec<i64> {
    let engine = simulation.engine().clone();
    let read = async move {
        let mut transaction = engine.begin();
        let rows = transaction.scan(everything(container), None).expect("starts").collect().await.expect("read");
        let mut keys: Vec<i64> = accounts::pairs(&rows).into_iter().map(|(key, _)| key).collect();
        keys.sort_unstable();
        keys
    };
    simulation.block_on(read).expect("runs")
}

#[test]
fn an_update_waits_for_the_rows_that_it_sent() {
    for seed in 0..8 {
        let free = update_all_keys(seed, u64::MAX, u64::MAX);
        let credit = update_all_keys(seed, 1, u64::MAX);
        let rows = [free.result.expect("updated"), credit.result.expect("updated")];
        assert_eq!(rows, [ROWS as u64; 2]);
        assert_eq!(free.credit_waits, 0);
        assert!(credit.credit_waits > 0);
        assert!(credit.peak_bytes * 4 < free.peak_bytes, "{} of {} bytes", credit.peak_bytes, free.peak_bytes);
    }
}

#[test]
fn rows_on_the_way_are_charged_to_the_statement() {
    let taken = update_all_keys(1, u64::MAX, 20_000);
    let Err(EngineError::Memory(refused)) = taken.result else { panic!("{:?}", taken.result) };
    assert_eq!((refused.consumer, refused.limit), ("rows on the way", 20_000));
    assert!(taken.peak_bytes <= 20_000);
}

#[test]
fn rows_to_one_partition_go_in_one_message() {
    let taken = update_all_keys(2, u64::MAX, u64::MAX);
    // A batch is at most a segment's rows; each goes to at most the other partitions.
    let batches = ROWS as u64 / u64::from(SEGMENT_ROWS) + 2 * PARTITIONS as u64;
    assert!(taken.messages <= batches * PARTITIONS as u64, "{} messages", taken.messages);
}
