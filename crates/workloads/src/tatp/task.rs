//! The seven transactions over the task API of the bare engine, and the four containers they run on.
//!
//! The containers are partitioned by `s_id`, so that all rows of a subscriber lie alike. A subscriber given by number
//! is looked up through the global index on `sub_nbr`, which says in which partition it is.

use super::population::Population;
use super::schema::{BIT_1, ColumnType, DATA_A, Table, VLR_LOCATION};
use super::transactions::{Completed, ForwardingChange, ForwardingKey, Transaction};
use crate::connection::{Rows, SqlValue};
use crate::set_constant;
use eris_engine::{
    ContainerSpec, Durability, Engine, EngineError, GlobalIndexSpec, Partitioning, Read, RowChange,
    Transaction as EngineTransaction,
};
use eris_storage::{
    Attribute, AttributeId, Batch, Comparison, Condition, ContainerId, DataType, IndexDefinition, IndexId, IndexKind,
    Layout, PackedRows, Predicate, ReadRequest, SEGMENT_ROWS_DEFAULT, Schema, SchemaVersion, StorageError, Test, Value,
};
use std::ops::Range;
use std::sync::Arc;

/// Subscribers whose rows make one batch of a load.
const SUBSCRIBERS_PER_BATCH: usize = 4_096;
/// As many as a table gets by splitting.
const INDEX_PARTITIONS_PER_WORKER: usize = 2;

const S_ID: AttributeId = AttributeId(0);
const SUB_NBR: AttributeId = AttributeId(1);
const SF_TYPE: AttributeId = AttributeId(1);
const AI_TYPE: AttributeId = AttributeId(1);
const IS_ACTIVE: AttributeId = AttributeId(2);
const START_TIME: AttributeId = AttributeId(2);
const END_TIME: AttributeId = AttributeId(3);
const NUMBERX: AttributeId = AttributeId(4);

/// How the containers are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StorageOptions {
    pub layout: Layout,
    pub segment_rows: u32,
    /// Partitions of every container, by hash of `s_id`; `None` starts with one range and lets it split.
    pub partitions: Option<usize>,
    /// Hash instead of ordered indexes on the keys of which no range is asked for.
    pub hashed_keys: bool,
}

impl Default for StorageOptions {
    fn default() -> Self {
        Self { layout: Layout::Default, segment_rows: SEGMENT_ROWS_DEFAULT, partitions: None, hashed_keys: false }
    }
}

/// The four containers of one engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Containers {
    ids: [ContainerId; 4],
}

impl Containers {
    /// Creates the four containers, empty.
    pub fn create(engine: &Engine, options: StorageOptions) -> Result<Self, EngineError> {
        let mut ids = [ContainerId(0); 4];
        for (id, table) in ids.iter_mut().zip(Table::ALL) {
            *id = engine.next_container_id();
            let key: Box<[AttributeId]> = Box::new([S_ID]);
            let partitioning = match options.partitions {
                None => Partitioning::Range(key),
                Some(partitions) => Partitioning::Hash { attributes: key, partitions },
            };
            engine.create_container(ContainerSpec { schema: Arc::new(schema(table, *id, options)), partitioning })?;
        }
        engine.create_global_index(&GlobalIndexSpec {
            container: ids[Table::Subscriber as usize],
            name: "subscriber_sub_nbr".into(),
            attributes: Box::new([SUB_NBR]),
            partitions: options.partitions.unwrap_or(INDEX_PARTITIONS_PER_WORKER * engine.worker_count()),
        })?;
        Ok(Self { ids })
    }

    pub fn of(&self, table: Table) -> ContainerId {
        self.ids[table as usize]
    }

    /// Fills the containers by bulk loads, one transaction per container.
    pub async fn load(&self, engine: &Engine, population: &Population) -> Result<(), EngineError> {
        let order = population.insertion_order();
        for table in Table::ALL {
            let types = data_types(table);
            let mut transaction = engine.begin();
            let mut bulk = transaction.bulk(self.of(table))?;
            for ids in order.chunks(SUBSCRIBERS_PER_BATCH) {
                let subscribers = ids.iter().map(|s_id| population.rows_of(*s_id));
                let rows: Vec<Vec<Value>> = subscribers
                    .flat_map(|rows| rows.of(table).iter().map(|row| stored_row(table, row)).collect::<Vec<_>>())
                    .collect();
                if !rows.is_empty() {
                    bulk.append(Batch::from_rows(&types, &rows)).await?;
                }
            }
            bulk.finish().await?;
            transaction.commit().await?;
        }
        Ok(())
    }

    /// All columns of the rows of a range of subscribers, for the consistency check.
    pub async fn rows(&self, engine: &Engine, table: Table, subscribers: Range<u32>) -> Result<Rows, EngineError> {
        let bound = |comparison, s_id: u32| condition(S_ID, comparison, Value::Int32(s_id as i32));
        let conditions =
            [bound(Comparison::GreaterOrEqual, subscribers.start), bound(Comparison::Less, subscribers.end)];
        let all = (0..table.columns().len()).map(|column| AttributeId(column as u16)).collect();
        let mut transaction = engine.begin();
        let batches = transaction.read(&self.read(table, conditions, &all)).await?;
        transaction.rollback();
        let rows = batches.iter().flat_map(|batch| (0..batch.rows).map(|row| batch.row(row)));
        Ok(rows.map(|row| row.into_iter().map(sql_value).collect()).collect())
    }

    fn read(&self, table: Table, conditions: impl Into<Arc<[Condition]>>, desired: &Arc<[AttributeId]>) -> Read {
        let predicate = Predicate::new(conditions);
        Read {
            container: self.of(table),
            request: ReadRequest { predicate, desired: Arc::clone(desired), order: None },
        }
    }
}

fn schema(table: Table, container: ContainerId, options: StorageOptions) -> Schema {
    let attributes = table.columns().iter().map(|column| Attribute {
        name: column.name.into(),
        data_type: data_type(column.column_type),
        nullable: false,
    });
    let key = (0..table.key_columns()).map(|column| AttributeId(column as u16));
    let whole_key = match table {
        Table::Subscriber | Table::AccessInfo => true,
        Table::SpecialFacility | Table::CallForwarding => false,
    };
    let primary = IndexDefinition {
        id: IndexId(0),
        name: format!("{}_pkey", table.name()).into(),
        attributes: key.collect(),
        unique: true,
        primary: true,
        kind: if options.hashed_keys && whole_key { IndexKind::Hash } else { IndexKind::Ordered },
    };
    Schema {
        container,
        version: SchemaVersion(1),
        attributes: attributes.collect(),
        indexes: Box::new([primary]),
        layout: options.layout,
        physical: None,
        segment_rows: options.segment_rows,
    }
}

fn data_type(column_type: ColumnType) -> DataType {
    match column_type {
        ColumnType::SmallInt => DataType::Int16,
        ColumnType::Integer => DataType::Int32,
        ColumnType::Varchar(_) => DataType::Text,
    }
}

fn data_types(table: Table) -> Vec<DataType> {
    table.columns().iter().map(|column| data_type(column.column_type)).collect()
}

fn stored_row(table: Table, row: &[SqlValue]) -> Vec<Value> {
    let values = row.iter().zip(table.columns()).map(|(value, column)| match (value, column.column_type) {
        (SqlValue::Int(value), ColumnType::SmallInt) => Value::Int16(*value as i16),
        (SqlValue::Int(value), ColumnType::Integer) => Value::Int32(*value as i32),
        (SqlValue::Text(text), ColumnType::Varchar(_)) => Value::Text(text.as_str().into()),
        (value, _) => unreachable!("the population has {value:?} in column {}", column.name),
    });
    values.collect()
}

fn sql_value(value: Value) -> SqlValue {
    match value {
        Value::Int16(value) => SqlValue::Int(i64::from(value)),
        Value::Int32(value) => SqlValue::Int(i64::from(value)),
        Value::Text(text) => SqlValue::Text(text.into()),
        other => unreachable!("no TATP column holds {other:?}"),
    }
}

fn condition(attribute: AttributeId, comparison: Comparison, value: Value) -> Condition {
    Condition { attribute, test: Test::Compare(comparison, value) }
}

fn equal(attribute: AttributeId, value: Value) -> Condition {
    condition(attribute, Comparison::Equal, value)
}

fn s_id_is(s_id: i64) -> Condition {
    equal(S_ID, Value::Int32(s_id as i32))
}

fn small(value: i64) -> Value {
    Value::Int16(value as i16)
}

fn set(attribute: usize, data_type: DataType, value: Value) -> Arc<dyn RowChange> {
    set_constant(AttributeId(attribute as u16), data_type, value)
}

/// Runs transactions as tasks; the lists of desired attributes are made once.
#[derive(Clone)]
pub struct TaskClient {
    engine: Engine,
    containers: Containers,
    durability: Durability,
    subscriber_data: Arc<[AttributeId]>,
    access_data: Arc<[AttributeId]>,
    s_id: Arc<[AttributeId]>,
    sf_type: Arc<[AttributeId]>,
    is_active: Arc<[AttributeId]>,
    numberx: Arc<[AttributeId]>,
    nothing: Arc<[AttributeId]>,
    /// What the last read found.
    rows: PackedRows,
}

impl TaskClient {
    pub fn new(engine: &Engine, containers: Containers) -> Self {
        let columns = |columns: Range<u16>| columns.map(AttributeId).collect();
        Self {
            engine: engine.clone(),
            containers,
            durability: Durability::default(),
            subscriber_data: columns(0..Table::Subscriber.columns().len() as u16),
            access_data: columns(2..6),
            s_id: Arc::new([S_ID]),
            sf_type: Arc::new([SF_TYPE]),
            is_active: Arc::new([IS_ACTIVE]),
            numberx: Arc::new([NUMBERX]),
            nothing: Arc::new([]),
            rows: PackedRows::default(),
        }
    }

    /// When its commits are told.
    #[must_use]
    pub fn with_durability(self, durability: Durability) -> Self {
        Self { durability, ..self }
    }

    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Runs a transaction once; the caller repeats it when the error is retryable.
    pub async fn run(&mut self, transaction: &Transaction) -> Result<Completed, EngineError> {
        let mut engine_transaction = self.engine.begin();
        engine_transaction.set_durability(self.durability);
        match self.body(&mut engine_transaction, transaction).await {
            Ok((completed, End::Commit)) => engine_transaction.commit().await.map(|_| completed),
            Ok((completed, End::Rollback)) => {
                engine_transaction.rollback();
                Ok(completed)
            }
            Err(error) => {
                engine_transaction.rollback();
                match error {
                    EngineError::Storage(StorageError::DuplicateKey { .. }) => Ok(Completed::REJECTED),
                    other => Err(other),
                }
            }
        }
    }

    async fn body(
        &mut self,
        running: &mut EngineTransaction,
        transaction: &Transaction,
    ) -> Result<(Completed, End), EngineError> {
        match transaction {
            Transaction::GetSubscriberData { s_id } => {
                let read = self.containers.read(Table::Subscriber, [s_id_is(*s_id)], &self.subscriber_data);
                running.read_rows(&read, &mut self.rows).await?;
                Ok((Completed::found(!self.rows.is_empty()), End::Commit))
            }
            Transaction::GetNewDestination { s_id, sf_type, start_time, end_time } => {
                let found = self.new_destination(running, *s_id, *sf_type, *start_time, *end_time).await?;
                Ok((Completed::found(found), End::Commit))
            }
            Transaction::GetAccessData { s_id, ai_type } => {
                let key = [s_id_is(*s_id), equal(AI_TYPE, small(*ai_type))];
                let read = self.containers.read(Table::AccessInfo, key, &self.access_data);
                running.read_rows(&read, &mut self.rows).await?;
                Ok((Completed::found(!self.rows.is_empty()), End::Commit))
            }
            Transaction::UpdateSubscriberData { s_id, bit_1, sf_type, data_a } => {
                let subscriber = self.containers.read(Table::Subscriber, [s_id_is(*s_id)], &self.nothing);
                let subscribers = running.update(&subscriber, set(BIT_1, DataType::Int16, small(*bit_1))).await?;
                running.next_statement();
                let key = [s_id_is(*s_id), equal(SF_TYPE, small(*sf_type))];
                let facility = self.containers.read(Table::SpecialFacility, key, &self.nothing);
                let facilities = running.update(&facility, set(DATA_A, DataType::Int16, small(*data_a))).await?;
                Ok(commit_if(subscribers == 1 && facilities == 1, Completed::found(true)))
            }
            Transaction::UpdateLocation { sub_nbr, vlr_location } => {
                let by_number = [equal(SUB_NBR, Value::Text(sub_nbr.as_str().into()))];
                let subscriber = self.containers.read(Table::Subscriber, by_number, &self.nothing);
                let location = Value::Int32(*vlr_location as i32);
                let updated = running.update(&subscriber, set(VLR_LOCATION, DataType::Int32, location)).await?;
                Ok(commit_if(updated == 1, Completed::found(true)))
            }
            Transaction::InsertCallForwarding { sub_nbr, sf_type, start_time, end_time, numberx } => {
                let Some(s_id) = self.id_of(running, sub_nbr).await? else {
                    return Ok((Completed::EMPTY, End::Rollback));
                };
                running.next_statement();
                let types = self.containers.read(Table::SpecialFacility, [s_id_is(s_id)], &self.sf_type);
                running.read_rows(&types, &mut self.rows).await?;
                running.next_statement();
                let row = [
                    SqlValue::Int(s_id),
                    SqlValue::Int(*sf_type),
                    SqlValue::Int(*start_time),
                    SqlValue::Int(*end_time),
                    SqlValue::Text(numberx.clone()),
                ];
                let rows =
                    Batch::from_rows(&data_types(Table::CallForwarding), &[stored_row(Table::CallForwarding, &row)]);
                running.insert(self.containers.of(Table::CallForwarding), rows).await?;
                let key = ForwardingKey { s_id, sf_type: *sf_type, start_time: *start_time };
                Ok((Completed::changed(key, ForwardingChange::Added), End::Commit))
            }
            Transaction::DeleteCallForwarding { sub_nbr, sf_type, start_time } => {
                let Some(s_id) = self.id_of(running, sub_nbr).await? else {
                    return Ok((Completed::EMPTY, End::Rollback));
                };
                running.next_statement();
                let row = [s_id_is(s_id), equal(SF_TYPE, small(*sf_type)), equal(START_TIME, small(*start_time))];
                let forwarding = self.containers.read(Table::CallForwarding, row, &self.nothing);
                let deleted = running.delete(&forwarding, None).await?;
                let key = ForwardingKey { s_id, sf_type: *sf_type, start_time: *start_time };
                Ok(commit_if(deleted == 1, Completed::changed(key, ForwardingChange::Removed)))
            }
        }
    }

    /// The join of facility and forwardings: both by key, on the subscriber's partitions.
    async fn new_destination(
        &mut self,
        running: &mut EngineTransaction,
        s_id: i64,
        sf_type: i64,
        start_time: i64,
        end_time: i64,
    ) -> Result<bool, EngineError> {
        let key = [s_id_is(s_id), equal(SF_TYPE, small(sf_type))];
        let facility = self.containers.read(Table::SpecialFacility, key, &self.is_active);
        running.read_rows(&facility, &mut self.rows).await?;
        if self.rows.is_empty() || self.rows.i16(0, 0) != 1 {
            return Ok(false);
        }
        let conditions = [
            s_id_is(s_id),
            equal(SF_TYPE, small(sf_type)),
            condition(START_TIME, Comparison::LessOrEqual, small(start_time)),
            condition(END_TIME, Comparison::Greater, small(end_time)),
        ];
        let forwarding = self.containers.read(Table::CallForwarding, conditions, &self.numberx);
        running.read_rows(&forwarding, &mut self.rows).await?;
        Ok(!self.rows.is_empty())
    }

    async fn id_of(&mut self, running: &mut EngineTransaction, sub_nbr: &str) -> Result<Option<i64>, EngineError> {
        let by_number = [equal(SUB_NBR, Value::Text(sub_nbr.into()))];
        let subscriber = self.containers.read(Table::Subscriber, by_number, &self.s_id);
        running.read_rows(&subscriber, &mut self.rows).await?;
        Ok((!self.rows.is_empty()).then(|| i64::from(self.rows.i32(0, 0))))
    }
}

enum End {
    Commit,
    Rollback,
}

fn commit_if(hit: bool, completed: Completed) -> (Completed, End) {
    if hit { (completed, End::Commit) } else { (Completed::EMPTY, End::Rollback) }
}
