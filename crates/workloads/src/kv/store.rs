//! The store of pairs: one container, cut into equal ranges from the start, that nothing splits.

use std::ops::Range;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use eris_engine::{
    ContainerSpec, Engine, EngineError, EngineOptions, LocalMemory, Lookup, Partitioning, Results, Transaction,
};
use eris_platform::{Env, NodeId};
use eris_storage::{
    Attribute, AttributeId, Batch, Buffer, Column, ContainerId, DataType, IndexDefinition, IndexId, IndexKind, Key,
    LookupRequest, SEGMENT_ROWS_DEFAULT, Schema, SchemaVersion, Value, Values, key_of_values,
};

use super::options::{Access, Baseline, KvError, KvOptions, Locality, PartitionedBy};
use super::value_of;

pub(crate) const KEY: AttributeId = AttributeId(0);
pub(crate) const VALUE: AttributeId = AttributeId(1);

/// Pairs of one batch of the load.
const LOAD_BATCH: usize = 65_536;

/// An engine with the pairs.
#[derive(Debug, Clone)]
pub struct KvStore {
    engine: Engine,
    container: ContainerId,
    pairs: u64,
    /// The keys of each node, by node.
    node_keys: Arc<[Range<u64>]>,
}

/// A column of integers without NULLs.
pub fn integers(values: Vec<i64>) -> Column {
    Column { data_type: DataType::Int64, validity: None, values: Values::Int64(Buffer::from_owner(values)) }
}

impl KvStore {
    /// Options of an engine whose partitions stay as they are and that sends everything by message.
    pub fn engine_options(options: &KvOptions) -> EngineOptions {
        EngineOptions {
            workers: options.workers,
            nodes: options.engine_nodes(),
            memory_limit_bytes: options.memory_limit_bytes,
            in_place: false,
            direct_append: options.direct_append,
            // Columns in arenas of their nodes would not be spread.
            local_memory: match options.baseline {
                Some(Baseline::Interleaved) => LocalMemory::Off,
                Some(Baseline::Shared | Baseline::Pinned) | None => LocalMemory::Auto,
            },
            split_rows: u64::MAX,
            split_bytes: u64::MAX,
            parallel_rows: u64::MAX,
            // A transaction's answers may all wait at once: one for each lookup.
            result_batches_max: 2 * super::LOOKUPS_PER_TRANSACTION,
            quantum: Duration::from_millis(1),
            ..EngineOptions::default()
        }
    }

    /// Starts an engine and fills it.
    pub fn load(env: Arc<dyn Env>, options: &KvOptions) -> Result<Self, KvError> {
        let engine = Engine::start(env, Self::engine_options(options))?;
        let store = Self::create(&engine, options)?;
        let (sender, receiver) = mpsc::channel();
        let tasks = options.workers as u64;
        for task in 0..tasks {
            let (store, sender) = (store.clone(), sender.clone());
            let keys = options.pairs * task / tasks..options.pairs * (task + 1) / tasks;
            engine.spawn(async move {
                // The receiver waits below; it is gone only if the load is.
                let _ = sender.send(store.fill(keys).await);
            });
        }
        drop(sender);
        let mut filled = 0;
        while let Ok(result) = receiver.recv() {
            result?;
            filled += 1;
        }
        if filled < tasks {
            return Err(EngineError::OperatorPanicked("a load ended without a result".to_owned()).into());
        }
        Ok(store)
    }

    /// Creates the container, empty.
    pub fn create(engine: &Engine, options: &KvOptions) -> Result<Self, EngineError> {
        let container = engine.next_container_id();
        let partitions = options.partition_count() as u64;
        let cut = |partition: u64| options.pairs * partition / partitions;
        let (attribute, cuts): (_, Vec<Key>) = match options.partitioned_by {
            PartitionedBy::Key => (KEY, (1..partitions).map(|partition| key_of(cut(partition) as i64)).collect()),
            PartitionedBy::Value => {
                let bound = |partition: u64| {
                    (i128::from(i64::MIN) + (1_i128 << 64) * i128::from(partition) / i128::from(partitions)) as i64
                };
                (VALUE, (1..partitions).map(|partition| key_of(bound(partition))).collect())
            }
        };
        let partitioning = Partitioning::Range(Box::new([attribute]));
        let schema = Arc::new(schema(container, options));
        engine.create_range_container(ContainerSpec { schema, partitioning }, &cuts)?;
        let nodes = options.engine_nodes() as u64;
        // Partition p is on node p * nodes / partitions.
        let first_of = |node: u64| (node * partitions).div_ceil(nodes);
        let node_keys = (0..nodes).map(|node| match options.partitioned_by {
            PartitionedBy::Key => cut(first_of(node))..cut(first_of(node + 1)),
            PartitionedBy::Value => 0..options.pairs,
        });
        Ok(Self { engine: engine.clone(), container, pairs: options.pairs, node_keys: node_keys.collect() })
    }

    /// Writes the pairs of some keys.
    pub(crate) async fn fill(&self, mut keys: impl Iterator<Item = u64> + Send) -> Result<(), EngineError> {
        let mut transaction = self.engine.begin();
        let mut bulk = transaction.bulk(self.container)?;
        loop {
            let keys: Vec<i64> = keys.by_ref().take(LOAD_BATCH).map(|key| key as i64).collect();
            if keys.is_empty() {
                break;
            }
            let values = keys.iter().map(|key| value_of(*key)).collect();
            let rows = keys.len();
            bulk.append(Batch::new([integers(keys), integers(values)], rows)).await?;
        }
        bulk.finish().await?;
        transaction.commit().await?;
        Ok(())
    }

    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    pub fn pairs(&self) -> u64 {
        self.pairs
    }

    /// The keys that a task on `node` looks up.
    pub fn keys_for(&self, node: NodeId, locality: Locality) -> Range<u64> {
        let home = locality.home(node.0 as usize, self.node_keys.len());
        home.map_or(0..self.pairs, |home| self.node_keys[home].clone())
    }

    /// The values of some keys.
    pub fn look_up(
        &self,
        transaction: &mut Transaction,
        keys: Vec<i64>,
        coalescing: eris_engine::Coalescing,
    ) -> Result<Results, EngineError> {
        let request = LookupRequest { attributes: Arc::new([KEY]), desired: Arc::new([VALUE]) };
        let rows = keys.len();
        let lookup = Lookup { container: self.container, request, coalescing };
        transaction.lookup_many(lookup, &Batch::new([integers(keys)], rows), None)
    }

    pub fn container(&self) -> ContainerId {
        self.container
    }
}

fn key_of(value: i64) -> Key {
    key_of_values(&[(&Value::Int64(value), DataType::Int64)])
}

fn schema(container: ContainerId, options: &KvOptions) -> Schema {
    let attribute = |name: &str| Attribute { name: name.into(), data_type: DataType::Int64, nullable: false };
    let index = |kind| IndexDefinition {
        id: IndexId(1),
        name: "pairs_pkey".into(),
        attributes: Box::new([KEY]),
        unique: true,
        primary: true,
        kind,
    };
    Schema {
        container,
        version: SchemaVersion(1),
        attributes: Box::new([attribute("key"), attribute("value")]),
        indexes: match options.access {
            Access::Index => Box::new([index(IndexKind::Hash)]),
            Access::OrderedIndex => Box::new([index(IndexKind::Ordered)]),
            Access::Scan => Box::new([]),
        },
        layout: options.layout,
        physical: None,
        segment_rows: SEGMENT_ROWS_DEFAULT,
    }
}
