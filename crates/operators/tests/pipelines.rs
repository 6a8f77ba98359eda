//! Pipelines through the engine: containers of several partitions are scanned into a join's build side, probed by
//! another scan, grouped and sorted, on threads and under the simulator.

#![expect(clippy::expect_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::sync::Arc;

use eris_engine::{ContainerSpec, Engine, EngineError, EngineOptions, MicroOperator, Partitioning, Read, Simulation};
use eris_operators::{
    AggregateCall, AggregateFunction, BuildSpec, Collector, Emit, Expression, GroupBy, JoinBuild, JoinKind,
    OperatorError, Pipeline, Probe, Sink, SortKey, SortKeys, SortSink, Step,
};
use eris_platform::{Env, RealEnv};
use eris_storage::{
    Attribute, AttributeId, Batch, ContainerId, DataType, Layout, Predicate, ReadRequest, Schema, SchemaVersion, Value,
};

const ORDERS: i64 = 3_000;

fn column(index: usize) -> Expression {
    Expression::Column { index, data_type: DataType::Int64 }
}

/// Two columns of integers, in seven partitions.
async fn table(engine: &Engine, rows: impl Iterator<Item = [i64; 2]>) -> ContainerId {
    let container = engine.next_container_id();
    let attribute = |name: &str| Attribute { name: name.into(), data_type: DataType::Int64, nullable: false };
    let schema = Schema {
        container,
        version: SchemaVersion(1),
        attributes: Box::new([attribute("key"), attribute("value")]),
        indexes: Box::new([]),
        layout: Layout::Column,
        physical: None,
        segment_rows: 1_024,
    };
    let partitioning = Partitioning::Hash { attributes: Box::new([AttributeId(0)]), partitions: 7 };
    engine.create_container(ContainerSpec { schema: Arc::new(schema), partitioning }).expect("created");
    let rows: Vec<Vec<Value>> = rows.map(|row| row.map(Value::Int64).to_vec()).collect();
    let mut transaction = engine.begin();
    let mut bulk = transaction.bulk(container).expect("the container exists");
    bulk.append(Batch::from_rows(&[DataType::Int64; 2], &rows)).await.expect("rows fit");
    bulk.finish().await.expect("rows fit");
    transaction.commit().await.expect("nothing conflicts");
    container
}

/// Runs a scan through a pipeline and finishes its sink; what it emitted.
async fn stage(engine: &Engine, container: ContainerId, pipeline: &Pipeline) -> Result<Vec<Batch>, EngineError> {
    let request = ReadRequest {
        predicate: Predicate { conditions: Arc::new([]) },
        desired: Arc::new([AttributeId(0), AttributeId(1)]),
        order: None,
    };
    let mut transaction = engine.begin();
    let operator: Arc<dyn MicroOperator> = Arc::new(pipeline.clone());
    let emitted = transaction.scan(Read { container, request }, Some(operator))?.collect().await?;
    loop {
        match pipeline.sink.finish_jobs()? {
            0 => return Ok(emitted),
            jobs => (0..jobs).try_for_each(|job| pipeline.sink.finish_job(job))?,
        }
    }
}

fn pipeline(steps: Vec<Step>, sink: Arc<dyn Sink>) -> Pipeline {
    Pipeline::new(steps, sink, [])
}

#[test]
fn batches_that_are_too_long_are_cut_and_stay_in_order() {
    for batch_rows in 1..=8 {
        let cutting = Pipeline { batch_rows, ..pipeline(vec![], Arc::new(Emit)) };
        let rows: Vec<Vec<Value>> = (0..7).map(|row| vec![Value::Int64(row)]).collect();
        let mut emitted = Vec::new();
        let emit = &mut |batch: Batch| {
            emitted.push(batch);
            Ok(())
        };
        cutting.push(Batch::from_rows(&[DataType::Int64], &rows), emit).expect("nothing fails");
        let lengths: Vec<usize> = emitted.iter().map(|batch| batch.rows).collect();
        let cut: Vec<usize> = (0..7).step_by(batch_rows).map(|start| batch_rows.min(7 - start)).collect();
        assert_eq!(lengths, cut);
        assert_eq!(Batch::concat(&emitted), Batch::from_rows(&[DataType::Int64], &rows));
    }
}

/// select o.value, count(*), sum(l.value) from lines l join orders o on l.key = o.key group by o.value order by 3 desc
async fn query(engine: Engine) {
    let orders = table(&engine, (0..ORDERS).map(|key| [key * 3, key % 10])).await;
    let lines = table(&engine, (0..ORDERS * 4).map(|line| [line, line % 1_000])).await;
    let memory = engine.memory().counted();
    let spec = BuildSpec {
        keys: [column(0)].into(),
        columns: [1].into(),
        types: [DataType::Int64].into(),
        keep_unmatched: false,
        existence: false,
        null_equal: false,
    };
    let build = Arc::new(JoinBuild::new(spec, &memory, 2));
    stage(&engine, orders, &pipeline(vec![], build.clone())).await.expect("builds");
    let probe = Probe {
        build,
        kind: JoinKind::Inner,
        keys: [column(0)].into(),
        residual: None,
        probe_columns: [1].into(),
        build_columns: [0].into(),
    };
    let probe = Step::Probe(Arc::new(probe));
    let call = |function, input| AggregateCall { function, input, result: DataType::Int64 };
    let calls = [call(AggregateFunction::CountAll, None), call(AggregateFunction::Sum, Some(column(0)))];
    let grouping = Arc::new(GroupBy::new([column(1)].into(), calls.into(), [].into(), &memory, 2));
    stage(&engine, lines, &pipeline(vec![probe.clone()], grouping.clone())).await.expect("groups");
    let (groups, of_groups) = grouping.take_output().expect("groups");
    let keys = SortKeys([SortKey { column: 2, descending: true, nulls_first: false }].into());
    let sorting = Arc::new(SortSink::new(keys, None, &memory, 2));
    let into_sort = pipeline(vec![], sorting.clone());
    groups.into_iter().try_for_each(|batch| into_sort.push(batch, &mut |_| Ok(()))).expect("sorts");
    loop {
        match sorting.finish_jobs().expect("sorts") {
            0 => break,
            jobs => (0..jobs).try_for_each(|job| sorting.finish_job(job)).expect("sorts"),
        }
    }
    let (sorted, of_sorted) = sorting.take_output().expect("sorts");
    let found: Vec<Vec<Value>> = sorted.iter().flat_map(|batch| (0..batch.rows).map(|row| batch.row(row))).collect();
    let mut expected: BTreeMap<i64, (i64, i64)> = BTreeMap::new();
    for line in (0..ORDERS * 4).filter(|line| line % 3 == 0 && line / 3 < ORDERS) {
        let group = expected.entry(line / 3 % 10).or_default();
        *group = (group.0 + 1, group.1 + line % 1_000);
    }
    assert!(found.windows(2).all(|pair| pair[0][2] >= pair[1][2]), "{found:?}");
    assert_eq!(found.len(), expected.len());
    for row in found {
        let [Value::Int64(group), Value::Int64(count), Value::Int64(sum)] = row[..] else { panic!("{row:?}") };
        assert_eq!(expected[&group], (count, sum), "group {group}");
    }
    let streamed = stage(&engine, lines, &pipeline(vec![probe.clone()], Arc::new(Emit))).await.expect("streams");
    assert_eq!(streamed.iter().map(|batch| batch.rows as i64).sum::<i64>(), ORDERS);
    let kept = Arc::new(Collector::new(&memory));
    stage(&engine, lines, &pipeline(vec![probe], kept.clone())).await.expect("collects");
    let (batches, charged) = kept.take_output().expect("collects");
    assert_eq!(batches.iter().map(|batch| batch.rows as i64).sum::<i64>(), ORDERS);
    assert!(charged.is_some_and(|charged| charged.bytes() >= 16 * ORDERS as u64));
    drop((kept, grouping, sorting, into_sort, of_groups, of_sorted));
    // A sink whose limit is too small fails the scan, with the error that it gave.
    let small = Arc::new(Collector::new(&memory.child(1_000)));
    let failed = stage(&engine, lines, &pipeline(vec![], small)).await;
    assert!(matches!(failed, Err(EngineError::Memory(_))), "{failed:?}");
    let divided = Expression::Arithmetic {
        operator: eris_operators::ArithmeticOperator::Divide,
        left: Box::new(column(1)),
        right: Box::new(column(1)),
        data_type: DataType::Int64,
    };
    let divides = pipeline(vec![Step::Project([divided].into())], Arc::new(Emit));
    let failed = stage(&engine, lines, &divides).await.expect_err("some are zero");
    assert!(matches!(failed.foreign(), Some(OperatorError::DivisionByZero)), "{failed:?}");
    assert_eq!(memory.used(), 0);
}

#[test]
fn a_query_runs_under_the_simulator() {
    for seed in 0..5 {
        let options = EngineOptions { workers: 2, ..EngineOptions::default() };
        let mut simulation = Simulation::new(seed, options).expect("starts");
        let engine = simulation.engine().clone();
        simulation.block_on(query(engine)).expect("ends");
    }
}

#[test]
fn a_query_runs_on_threads() {
    let options = EngineOptions { workers: 2, ..EngineOptions::default() };
    let env: Arc<dyn Env> = Arc::new(RealEnv::new());
    let engine = Engine::start(env, options).expect("starts");
    engine.block_on(query(engine.clone())).expect("runs");
    engine.shutdown();
}
