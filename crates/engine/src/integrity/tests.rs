//! Each thing that can be wrong is planted, and told in its words and no others.

use std::sync::Arc;

use eris_storage::{
    Attribute, AttributeId, Batch, Comparison, Condition, ContainerId, DataType, IndexDefinition, IndexId, IndexKind,
    Layout, Predicate, ReadRequest, Schema, SchemaVersion, Test, Value, key_of_values,
};

use crate::container::{Container, ContainerSpec};
use crate::engine::Engine;
use crate::foreign_key::{ForeignKeySpec, KeySide, ReferentialAction};
use crate::global_index::GlobalIndexSpec;
use crate::options::EngineOptions;
use crate::partition::Bounds;
use crate::partition_table::Partitioning;
use crate::sequence::{SequenceId, SequenceSpec, SequenceState};
use crate::simulator::Simulation;
use crate::transaction::Read;

const KEY: AttributeId = AttributeId(0);
const AMOUNT: AttributeId = AttributeId(1);

fn start() -> Simulation {
    Simulation::new(1, EngineOptions { workers: 1, nodes: 1, ..EngineOptions::default() }).expect("starts")
}

fn schema(container: ContainerId) -> Arc<Schema> {
    let attribute = |name: &str, nullable| Attribute { name: name.into(), data_type: DataType::Int64, nullable };
    let key = IndexDefinition {
        id: IndexId(1),
        name: "pkey".into(),
        attributes: Box::new([KEY]),
        unique: true,
        primary: true,
        kind: IndexKind::Ordered,
    };
    Arc::new(Schema {
        container,
        version: SchemaVersion(1),
        attributes: [attribute("key", false), attribute("amount", true)].into(),
        indexes: Box::new([key]),
        layout: Layout::Default,
        physical: None,
        segment_rows: 16,
    })
}

/// An empty container of keys and amounts, cut in front of these keys.
fn create(engine: &Engine, cuts: &[i64]) -> Arc<Container> {
    let schema = schema(engine.next_container_id());
    let spec = ContainerSpec { schema, partitioning: Partitioning::Range(Box::new([KEY])) };
    let cut = |key: &i64| key_of_values(&[(&Value::Int64(*key), DataType::Int64)]);
    engine.create_range_container(spec, &cuts.iter().map(cut).collect::<Vec<_>>()).expect("creates")
}

fn insert(simulation: &mut Simulation, container: ContainerId, rows: &[(i64, Option<i64>)]) {
    let value = |value: Option<i64>| value.map_or(Value::Null, Value::Int64);
    let rows: Vec<Vec<Value>> = rows.iter().map(|(key, amount)| vec![value(Some(*key)), value(*amount)]).collect();
    let engine = simulation.engine().clone();
    let inserted = async move {
        let mut transaction = engine.begin();
        transaction.insert(container, Batch::from_rows(&[DataType::Int64; 2], &rows)).await?;
        transaction.commit().await
    };
    simulation.block_on(inserted).expect("ends").expect("inserts");
    simulation.run_until_idle().expect("comes to rest");
}

fn delete(simulation: &mut Simulation, container: ContainerId, key: i64) {
    let test = Test::Compare(Comparison::Equal, Value::Int64(key));
    let predicate = Predicate { conditions: Arc::new([Condition { attribute: KEY, test }]) };
    let read = Read { container, request: ReadRequest { predicate, desired: Arc::from([]), order: None } };
    let engine = simulation.engine().clone();
    let deleted = async move {
        let mut transaction = engine.begin();
        let rows = transaction.delete(&read, None).await?;
        transaction.commit().await.map(|_| rows)
    };
    assert_eq!(simulation.block_on(deleted).expect("ends").expect("deletes"), 1);
    simulation.run_until_idle().expect("comes to rest");
}

fn found_up_to(simulation: &mut Simulation, wrong_max: usize) -> Vec<String> {
    let engine = simulation.engine().clone();
    simulation.block_on(async move { engine.check_integrity(wrong_max).await }).expect("ends").expect("reads")
}

fn found(simulation: &mut Simulation) -> Vec<String> {
    found_up_to(simulation, 20)
}

fn nothing() -> Vec<String> {
    Vec::new()
}

#[test]
fn a_partition_with_other_bounds_than_its_table_says() {
    let mut simulation = start();
    let container = create(simulation.engine(), &[10]);
    assert_eq!(found(&mut simulation), nothing());
    let table = container.table();
    table.entries()[1].partition.try_latch().expect("nobody is at it").bounds = Bounds::default();
    let id = container.id().0;
    let wrong = format!("partition 1 of container {id}: it has other bounds than the partition table says");
    assert_eq!(found(&mut simulation), [wrong]);
}

#[test]
fn rows_in_partitions_where_they_do_not_belong() {
    let mut simulation = start();
    let container = create(simulation.engine(), &[10]);
    insert(&mut simulation, container.id(), &[(1, None), (20, None), (30, None)]);
    assert_eq!(found(&mut simulation), nothing());
    {
        let table = container.table();
        let latched = |place: usize| table.entries()[place].partition.try_latch().expect("nobody is at it");
        let (mut one, mut other) = (latched(0), latched(1));
        std::mem::swap(&mut one.store, &mut other.store);
    }
    let wrong = |place| {
        let id = container.id().0;
        format!("partition {place} of container {id}: a row of it belongs to another partition")
    };
    assert_eq!(found(&mut simulation), [wrong(0), wrong(1)]);
    assert_eq!(found_up_to(&mut simulation, 1), [wrong(0)], "no more than were asked for");
}

#[test]
fn a_member_of_a_group_that_is_cut_otherwise() {
    let mut simulation = start();
    let engine = simulation.engine().clone();
    let (first, other) = (create(&engine, &[10]), create(&engine, &[20]));
    engine.create_container_alike(schema(engine.next_container_id()), &[KEY], &first).expect("it is alike");
    assert_eq!(found(&mut simulation), nothing());
    other.set_group(first.group().expect("there are two of it"));
    assert_eq!(found(&mut simulation), [format!("container {} is not cut as its group is", other.id().0)]);
}

#[test]
fn a_null_where_none_may_be() {
    let mut simulation = start();
    let container = create(simulation.engine(), &[]);
    insert(&mut simulation, container.id(), &[(1, Some(1)), (2, None)]);
    assert_eq!(found(&mut simulation), nothing());
    let mut schema = Schema::clone(&container.schema());
    schema.attributes.iter_mut().for_each(|attribute| attribute.nullable = false);
    container.set_schema(Arc::new(schema));
    let wrong = "a row has NULL in attribute \"amount\", which may not be NULL";
    assert_eq!(found(&mut simulation), [format!("partition 0 of container {}: {wrong}", container.id().0)]);
}

#[test]
fn a_partition_that_does_not_come_to_rest() {
    let mut simulation = start();
    let container = create(simulation.engine(), &[]);
    let (engine, id) = (simulation.engine().clone(), container.id());
    let under_way = async move {
        let mut transaction = engine.begin();
        let row = [Value::Int64(1), Value::Null].to_vec();
        transaction.insert(id, Batch::from_rows(&[DataType::Int64; 2], &[row])).await.map(|_| transaction)
    };
    let transaction = simulation.block_on(under_way).expect("ends").expect("inserts");
    assert_eq!(found(&mut simulation), [format!("partition 0 of container {}: it does not come to rest", id.0)]);
    simulation.block_on(async move { transaction.rollback() }).expect("ends");
    assert_eq!(found(&mut simulation), nothing());
}

/// A container of two rows with a global index of amounts: both.
fn indexed(simulation: &mut Simulation) -> (ContainerId, ContainerId) {
    let container = create(simulation.engine(), &[]).id();
    let spec = GlobalIndexSpec { container, name: "amounts".into(), attributes: Box::new([AMOUNT]), partitions: 2 };
    let hidden = simulation.engine().create_global_index(&spec).expect("there are no rows yet");
    insert(simulation, container, &[(1, Some(10)), (2, Some(20)), (3, None)]);
    assert_eq!(found(simulation), nothing());
    (container, hidden)
}

#[test]
fn a_global_index_that_lacks_has_more_or_misleads() {
    let told = |container: ContainerId, hidden: ContainerId, wrong: &str| {
        format!("global index {} of container {}: {wrong}", hidden.0, container.0)
    };
    let mut simulation = start();
    let (container, hidden) = indexed(&mut simulation);
    delete(&mut simulation, hidden, 10);
    let expected = ["a row has no entry", "it has 1 entries for 2 rows"].map(|wrong| told(container, hidden, wrong));
    assert_eq!(found(&mut simulation), expected);
    insert(&mut simulation, hidden, &[(10, Some(2))]);
    let misleads = "an entry leads to another partition than that of its row";
    assert_eq!(found(&mut simulation), [told(container, hidden, misleads)]);
    delete(&mut simulation, hidden, 10);
    insert(&mut simulation, hidden, &[(10, Some(1)), (30, Some(3))]);
    assert_eq!(found(&mut simulation), [told(container, hidden, "it has 3 entries for 2 rows")]);
}

#[test]
fn a_child_without_a_parent() {
    let mut simulation = start();
    let (parent, child) = (create(simulation.engine(), &[]).id(), create(simulation.engine(), &[]).id());
    insert(&mut simulation, parent, &[(1, None)]);
    insert(&mut simulation, child, &[(1, Some(1)), (2, Some(7)), (3, None)]);
    let side =
        |container, name: &str, attribute| KeySide { container, name: name.into(), attributes: Box::new([attribute]) };
    let spec = ForeignKeySpec {
        name: "refers".into(),
        child: side(child, "children", AMOUNT),
        parent: side(parent, "parents", KEY),
        on_delete: ReferentialAction::NoAction,
        on_update: ReferentialAction::NoAction,
    };
    simulation.engine().restore_foreign_key(&spec).expect("it is not looked at");
    let wrong = "insert or update on table \"children\" violates foreign key constraint \"refers\"";
    assert_eq!(found(&mut simulation), [wrong]);
    delete(&mut simulation, child, 2);
    assert_eq!(found(&mut simulation), nothing());
}

#[test]
fn a_sequence_beyond_its_bounds() {
    let mut simulation = start();
    let spec = |name: &str| SequenceSpec { minimum: 5, maximum: 10, start: 5, ..SequenceSpec::new(name) };
    for (number, (name, last)) in (1..).zip([("lowest", 5), ("highest", 10), ("low", 4), ("high", 11)]) {
        let state = SequenceState { last, is_called: true };
        simulation.engine().restore_sequence(SequenceId(number), &spec(name), state).expect("there is memory");
    }
    let wrong = ["low", "high"].map(|name| format!("sequence \"{name}\" is beyond its bounds"));
    assert_eq!(found(&mut simulation), wrong);
}
