//! The schema of a container moves while commands are under way: each of them meets the right rows or is told so, in
//! an error after which it may be made anew. A container that is dropped under them answers them first.
//!
//! ```text
//!   node 0, keys below 200                   node 1, keys from 200 on
//!   answers its part                         stands still: the command waits there, and so does the change of schema,
//!                                            which goes before it when the node goes on
//! ```

#![expect(clippy::expect_used, reason = "a test fails by panicking")]

mod accounts;

use std::future::Future;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use eris_engine::{
    Coalescing, Container, ContainerSpec, Engine, EngineError, EngineOptions, LockWait, Partitioning, Read, Simulation,
    Transaction,
};
use eris_platform::NodeId;
use eris_storage::{
    Attribute, AttributeId, Batch, ContainerId, DataType, IndexDefinition, IndexId, IndexKind, IndexOrder, Layout,
    ReadRequest, RowLock, Schema, SchemaVersion, StorageError, Value, key_of_values,
};

use accounts::{AMOUNT, KEY, SetAmount, SetKey, by_key, by_position, everything, integers, lookup, pairs, row, schema};

const HERE: NodeId = NodeId(0);
const THERE: NodeId = NodeId(1);
const ROWS: i64 = 400;
const CUT: i64 = 200;
const BY_AMOUNT: IndexId = IndexId(2);

/// A container that is cut between the two nodes, with an index over the amounts.
struct Bench {
    simulation: Simulation,
    engine: Engine,
    id: ContainerId,
}

fn with_index(schema: Schema) -> Schema {
    let by_amount = IndexDefinition {
        id: BY_AMOUNT,
        name: "accounts_amount".into(),
        attributes: Box::new([AMOUNT]),
        unique: false,
        primary: false,
        kind: IndexKind::Ordered,
    };
    Schema { indexes: schema.indexes.iter().cloned().chain([by_amount]).collect(), ..schema }
}

/// The next version, without that index.
fn without_index(schema: &Schema) -> Arc<Schema> {
    let indexes = schema.indexes.iter().filter(|index| index.id != BY_AMOUNT).cloned().collect();
    Arc::new(Schema { version: SchemaVersion(schema.version.0 + 1), indexes, ..schema.clone() })
}

/// The next version, with an attribute more.
fn wider(schema: &Schema) -> Arc<Schema> {
    let more = Attribute { name: "more".into(), data_type: DataType::Int64, nullable: true };
    let attributes = schema.attributes.iter().cloned().chain([more]).collect();
    Arc::new(Schema { version: SchemaVersion(schema.version.0 + 1), attributes, ..schema.clone() })
}

fn wide_row(key: i64) -> Batch {
    let types = [DataType::Int64, DataType::Int64, DataType::Text, DataType::Int64];
    Batch::from_rows(&types, &[vec![Value::Int64(key), Value::Int64(key * 10), Value::Null, Value::Int64(1)]])
}

fn by_amount(id: ContainerId) -> Read {
    let order = Some(IndexOrder { index: BY_AMOUNT, descending: false });
    Read { container: id, request: ReadRequest { order, ..everything(id).request } }
}

fn expected() -> Vec<(i64, i64)> {
    (0..ROWS).map(|key| (key, key * 10)).collect()
}

fn sorted(mut rows: Vec<(i64, i64)>) -> Vec<(i64, i64)> {
    rows.sort_unstable();
    rows
}

type Slot<T> = Arc<Mutex<Option<T>>>;

fn take<T>(slot: &Slot<T>) -> Option<T> {
    slot.lock().expect("one thread").take()
}

impl Bench {
    fn new(seed: u64) -> Self {
        let options = EngineOptions { workers: 2, nodes: 2, parallel_rows: 1_000_000, ..EngineOptions::default() };
        let mut simulation = Simulation::new(seed, options).expect("starts");
        let engine = simulation.engine().clone();
        let schema = Arc::new(with_index(schema(engine.next_container_id(), Layout::Row, 16)));
        let id = schema.container;
        let spec = ContainerSpec { schema, partitioning: Partitioning::Range(Box::new([KEY])) };
        // As many partitions as a load wants: it makes no others, and waits for these.
        let cuts = [CUT / 2, CUT, CUT + CUT / 2].map(|key| key_of_values(&[(&Value::Int64(key), DataType::Int64)]));
        engine.create_range_container(spec, &cuts).expect("created");
        let loader = engine.clone();
        let load = async move {
            let mut transaction = loader.begin();
            for key in 0..ROWS {
                transaction.insert(id, row(key, key * 10, None)).await.expect("inserted");
                transaction.next_statement();
            }
            transaction.commit().await.expect("committed");
        };
        simulation.block_on(load).expect("runs");
        simulation.run_until_idle().expect("comes to rest");
        let homes: Vec<NodeId> = engine.partitions().iter().map(|partition| partition.home).collect();
        assert_eq!(homes, [HERE, HERE, THERE, THERE]);
        Self { simulation, engine, id }
    }

    fn container(&self) -> Arc<Container> {
        self.engine.container(self.id).expect("it is there")
    }

    /// Starts a task on node 0; its value, once there is one.
    fn start<T: Send + 'static>(&self, future: impl Future<Output = T> + Send + 'static) -> Slot<T> {
        let slot = Slot::default();
        let result = Arc::clone(&slot);
        self.engine.spawn_on(HERE, async move {
            let value = future.await;
            *result.lock().expect("one thread") = Some(value);
        });
        slot
    }

    /// Sends a command while node 1 stands still, then moves the schema; what became of the command.
    fn under_way<T, F>(&mut self, next: Arc<Schema>, command: impl FnOnce(Transaction, ContainerId) -> F) -> T
    where
        T: Send + 'static,
        F: Future<Output = T> + Send + 'static,
    {
        self.simulation.stop_node(THERE);
        let answer = self.start(command(self.engine.begin(), self.id));
        self.simulation.run_until_idle().expect("runs");
        assert!(answer.lock().expect("one thread").is_none(), "node 1 has not answered");
        let mover = self.engine.clone();
        let moved = self.start(async move { mover.drop_index(next).await });
        self.simulation.run_until_idle().expect("runs");
        self.simulation.resume_node(THERE);
        self.simulation.run_until_idle().expect("runs");
        take(&moved).expect("it is through").expect("nothing stands in the way");
        take(&answer).expect("it is answered")
    }

    fn rows(&mut self) -> Vec<(i64, i64)> {
        let (reader, id) = (self.engine.clone(), self.id);
        let read = async move {
            let mut transaction = reader.begin();
            pairs(&transaction.scan(everything(id), None).expect("there").collect().await.expect("read"))
        };
        sorted(self.simulation.block_on(read).expect("runs"))
    }

    /// Nothing is left of anybody.
    fn end(mut self, expected: &[(i64, i64)]) {
        assert_eq!(self.rows(), expected);
        self.simulation.run_until_idle().expect("comes to rest");
        self.simulation.check_partitions().expect("the partitions are whole");
        let statistics = self.engine.statistics();
        assert_eq!((statistics.known_transactions, statistics.snapshots), (0, 0));
        self.engine.drop_container(self.id).expect("it is there");
        self.simulation.run_until_idle().expect("comes to rest");
        assert_eq!(self.engine.memory().used(), 0, "{:?}", self.engine.memory().by_consumer());
    }
}

fn is_moved<T>(answer: Result<T, EngineError>) -> bool {
    match answer {
        Err(error @ (EngineError::SchemaMoved | EngineError::Storage(StorageError::SchemaMoved))) => {
            error.is_retryable()
        }
        _ => false,
    }
}

/// An ordered scan names its index: where that is gone by then, the scan cannot be answered.
#[test]
fn an_ordered_scan_is_told_that_its_index_was_dropped() {
    let mut bench = Bench::new(1);
    let next = without_index(&bench.container().schema());
    let answer = bench.under_way(next, |mut transaction, id| async move {
        transaction.scan(by_amount(id), None).expect("there").collect().await
    });
    assert!(is_moved(answer), "the index is gone");
    bench.end(&expected());
}

/// All others name attributes, and find their rows without the index.
#[test]
fn other_commands_find_their_rows_without_the_dropped_index() {
    for command in 0..5 {
        let mut bench = Bench::new(command);
        let next = without_index(&bench.container().schema());
        let rows = bench.under_way(next, |mut transaction, id| async move {
            let all = everything(id);
            let rows = match command {
                0 => {
                    let found = transaction.scan(all, None).expect("there").collect().await.expect("read");
                    assert_eq!(sorted(pairs(&found)), expected());
                    ROWS as u64
                }
                1 => {
                    let keys: Vec<i64> = (0..ROWS).map(|key| key * 10).collect();
                    let lookup = lookup(id, AMOUNT, Coalescing::Sender);
                    let results = transaction.lookup_many(lookup, &integers(&keys), None).expect("there");
                    let found = by_position(keys.len(), &results.collect().await.expect("read"));
                    assert_eq!(found.concat(), expected());
                    ROWS as u64
                }
                2 => transaction.update(&all, Arc::new(SetAmount(7))).await.expect("updated"),
                3 => transaction.delete(&all, None).await.expect("deleted"),
                _ => {
                    let locked = transaction.lock_rows(&all, RowLock::Share, LockWait::Wait).await.expect("locked");
                    assert_eq!(sorted(pairs(&locked)), expected());
                    ROWS as u64
                }
            };
            transaction.rollback();
            rows
        });
        assert_eq!(rows, ROWS as u64, "command {command} meets each row once");
        bench.end(&expected());
    }
}

/// Rows travel with all attributes that they had when they were sent.
#[test]
fn rows_of_an_old_schema_are_refused() {
    let insert = |mut transaction: Transaction, id| async move {
        let refused = transaction.insert(id, row(ROWS, 0, None)).await;
        transaction.rollback();
        refused
    };
    let load = |mut transaction: Transaction, id| async move {
        let mut bulk = transaction.bulk(id).expect("there");
        let rows: Vec<Batch> = (ROWS..ROWS + 50).map(|key| row(key, 0, None)).collect();
        bulk.append(Batch::concat(&rows)).await?;
        let refused = bulk.finish().await;
        transaction.rollback();
        refused
    };
    // The row's new key is of the other partition.
    let rename = |mut transaction: Transaction, id| async move {
        let refused = transaction.update(&by_key(id, CUT), Arc::new(SetKey(-1))).await;
        transaction.rollback();
        refused
    };
    for command in 0..3 {
        let mut bench = Bench::new(command);
        let next = wider(&bench.container().schema());
        let answer = match command {
            0 => bench.under_way(next, insert),
            1 => bench.under_way(next, load),
            _ => bench.under_way(next, rename),
        };
        assert!(is_moved(answer), "command {command} sent rows of three attributes, there are four");
        let (engine, id) = (bench.engine.clone(), bench.id);
        let again = async move {
            let mut transaction = engine.begin();
            transaction.insert(id, wide_row(ROWS)).await.expect("inserted");
            transaction.next_statement();
            transaction.update(&by_key(id, ROWS), Arc::new(SetKey(-1))).await.expect("updated");
            transaction.commit().await.expect("committed");
        };
        bench.simulation.block_on(again).expect("runs");
        bench.end(&[vec![(-1, ROWS * 10)], expected()].concat());
    }
}

/// While the schema moves, some partitions are at the new version and the container is at the old one.
#[test]
fn what_runs_in_place_half_way_is_told_or_right() {
    for widens in [false, true] {
        let mut bench = Bench::new(9);
        let schema = bench.container().schema();
        let next = if widens { wider(&schema) } else { without_index(&schema) };
        bench.simulation.stop_node(THERE);
        let mover = bench.engine.clone();
        let moved = bench.start(async move { mover.drop_index(next).await });
        bench.simulation.run_until_idle().expect("runs");
        assert!(moved.lock().expect("one thread").is_none(), "node 1 has not moved");
        let (engine, id) = (bench.engine.clone(), bench.id);
        let answers = bench.start(async move {
            let mut transaction = engine.begin();
            let inserted = transaction.insert(id, row(-1, -10, None)).await;
            transaction.rollback();
            let mut transaction = engine.begin();
            let read = by_key(id, 7);
            let order = Some(IndexOrder { index: BY_AMOUNT, descending: false });
            let ordered = ReadRequest { order, ..read.request.clone() };
            let ordered = transaction.read(&Read { container: id, request: ordered }).await;
            let found = pairs(&transaction.read(&read).await.expect("read"));
            (inserted, ordered, found)
        });
        bench.simulation.run_until_idle().expect("runs");
        let (inserted, ordered, found) = take(&answers).expect("node 0 answers alone");
        assert_eq!(found, [(7, 70)]);
        if widens {
            assert!(is_moved(inserted), "the partition is wider than the row");
            assert_eq!(pairs(&ordered.expect("the index is there")), [(7, 70)]);
        } else {
            assert_eq!(inserted.expect("a row is as wide as before"), 1);
            assert!(is_moved(ordered), "the index is gone");
        }
        bench.simulation.resume_node(THERE);
        bench.simulation.run_until_idle().expect("runs");
        take(&moved).expect("it is through").expect("nothing stands in the way");
        bench.end(&expected());
    }
}

/// Who is under way when a container is dropped finishes; who comes later is told.
#[test]
fn commands_under_way_finish_on_a_container_that_vanished() {
    let mut bench = Bench::new(3);
    bench.simulation.stop_node(THERE);
    let (id, mut reader, mut writer) = (bench.id, bench.engine.begin(), bench.engine.begin());
    let read = bench.start(async move {
        let found = transaction_scan(&mut reader, id).await;
        (found, reader.read(&by_key(id, 7)).await)
    });
    let written = bench.start(async move {
        let rows = writer.update(&everything(id), Arc::new(SetAmount(7))).await;
        (rows, writer.commit().await)
    });
    bench.simulation.run_until_idle().expect("runs");
    bench.engine.drop_container(id).expect("it is there");
    bench.simulation.run_until_idle().expect("runs");
    assert!(bench.engine.memory().used() > 0, "commands under way keep their partitions");
    bench.simulation.resume_node(THERE);
    bench.simulation.run_until_idle().expect("comes to rest");
    let (found, later) = take(&read).expect("it is answered");
    assert_eq!(sorted(found.expect("read")), expected());
    assert!(matches!(later, Err(EngineError::NoSuchContainer(gone)) if gone == id), "{later:?}");
    let (rows, committed) = take(&written).expect("it is answered");
    assert_eq!(rows.expect("updated"), ROWS as u64);
    assert!(
        matches!(committed, Err(EngineError::ContainerReplaced(gone)) if gone == id),
        "its rows are gone: {committed:?}"
    );
    bench.simulation.run_until_idle().expect("comes to rest");
    let statistics = bench.engine.statistics();
    assert_eq!((statistics.known_transactions, statistics.snapshots), (0, 0));
    assert_eq!(bench.engine.memory().used(), 0, "{:?}", bench.engine.memory().by_consumer());
}

async fn transaction_scan(transaction: &mut Transaction, id: ContainerId) -> Result<Vec<(i64, i64)>, EngineError> {
    Ok(pairs(&transaction.scan(everything(id), None)?.collect().await?))
}

/// A partition that is being cut waits with the move until the cut is made, and both halves move.
#[test]
fn halves_of_a_partition_that_is_cut_meanwhile_move_too() {
    const FEW: i64 = 200;
    const MOVES: usize = 20;
    let mut splits = 0;
    for seed in 0..40 {
        // A row is copied at a time.
        let options =
            EngineOptions { workers: 2, nodes: 1, split_rows: 12, maintenance_rows: 1, ..EngineOptions::default() };
        let mut simulation = Simulation::new(seed, options).expect("starts");
        let engine = simulation.engine().clone();
        let schema = Arc::new(schema(engine.next_container_id(), Layout::Row, 16));
        let id = schema.container;
        let spec = ContainerSpec { schema, partitioning: Partitioning::Range(Box::new([KEY])) };
        let container = engine.create_container(spec).expect("created");
        let (work, moving) = (engine.clone(), Arc::clone(&container));
        let outcome = simulation.block_on(async move {
            let mut transaction = work.begin();
            // Not in the order of keys: that makes partitions above, and cuts none.
            let rows: Vec<Batch> = (0..FEW).map(|key| row(key * 7 % FEW, key, None)).collect();
            transaction.insert(id, Batch::concat(&rows)).await?;
            transaction.commit().await?;
            let mut counts = Vec::new();
            for _ in 0..MOVES {
                work.drop_index(wider(&moving.schema())).await?;
                counts.push(moving.partition_count());
                work.sleep_until(work.env().now() + Duration::from_micros(work.env().random_u64() % 300)).await;
            }
            Ok::<_, EngineError>(counts)
        });
        let counts = outcome.expect("runs").expect("moved");
        splits += counts.windows(2).filter(|pair| pair[0] < pair[1]).count();
        simulation.run_until_idle().expect("comes to rest");
        let last = AttributeId(container.schema().attributes.len() as u16 - 1);
        let read = async move {
            let request = ReadRequest { desired: Arc::new([KEY, last]), ..everything(id).request };
            let mut transaction = engine.begin();
            let found = transaction.scan(Read { container: id, request }, None)?.collect().await?;
            Ok::<_, EngineError>(found.iter().map(|batch| batch.rows).sum::<usize>())
        };
        let found = simulation.block_on(read).expect("runs");
        assert_eq!(found.expect("every partition has the attribute"), FEW as usize, "seed {seed}");
    }
    assert!(splits > 40, "{splits} partitions were cut between the moves");
}
