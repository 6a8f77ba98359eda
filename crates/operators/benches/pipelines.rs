//! What joins, grouping and sorting cost: `cargo bench -p eris-operators`. Prints one line per measurement (best of
//! several) and a hash of the results; `--test` runs it with tiny inputs, `--threads 2` feeds sinks from two threads,
//! `--texts` measures texts of segments alone.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a benchmark fails by panicking")]

#[path = "pipelines/texts.rs"]
mod texts;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use eris_operators::{
    AggregateCall, AggregateFunction, BuildSpec, Expression, GroupBy, JoinBuild, JoinKind, OperatorError, Pipeline,
    Probe, Sink, SortKey, SortKeys, SortSink, Step,
};
use eris_platform::memory::MemoryPool;
use eris_platform::{Reservation, SeededRandom};
use eris_storage::{BATCH_ROWS, Batch, Buffer, Column, ColumnBuilder, DataType, Value, Values};

const REPEATS: usize = 5;

fn integers(values: impl Iterator<Item = i64>) -> Column {
    Column { data_type: DataType::Int64, validity: None, values: Values::Int64(values.collect::<Buffer<i64>>()) }
}

fn column(index: usize) -> Expression {
    Expression::Column { index, data_type: DataType::Int64 }
}

/// Consecutive batches of as many rows as a scan gives.
fn batches(rows: usize, columns: impl Fn(std::ops::Range<usize>) -> Vec<Column>) -> Vec<Batch> {
    let starts = (0..rows).step_by(BATCH_ROWS);
    let batch = |start: usize| {
        let range = start..(start + BATCH_ROWS).min(rows);
        Batch::new(columns(range.clone()), range.len())
    };
    starts.map(batch).collect()
}

/// Counts what arrives.
#[derive(Debug, Default)]
struct Counting {
    rows: AtomicU64,
    sum: AtomicU64,
}

impl Sink for Counting {
    fn consume(
        &self,
        batch: Batch,
        _emit: &mut dyn FnMut(Batch) -> Result<(), OperatorError>,
    ) -> Result<(), OperatorError> {
        self.rows.fetch_add(batch.rows as u64, Ordering::Relaxed);
        if let Some(Values::Int64(values)) = batch.columns.last().map(|column| &column.values) {
            let sum = values.iter().fold(0_u64, |sum, value| sum.wrapping_add(*value as u64));
            self.sum.fetch_add(sum, Ordering::Relaxed);
        }
        Ok(())
    }

    fn finish_jobs(&self) -> Result<usize, OperatorError> {
        Ok(0)
    }

    fn finish_job(&self, _job: usize) -> Result<(), OperatorError> {
        Ok(())
    }

    fn take_output(&self) -> Result<(Vec<Batch>, Option<Reservation>), OperatorError> {
        Ok((Vec::new(), None))
    }
}

/// Feeds a pipeline and finishes its sink.
fn feed(steps: &[Step], sink: Arc<dyn Sink>, batches: &[Batch], threads: usize) {
    let pipeline = Pipeline::new(steps, sink, []);
    let each = |work: &(dyn Fn(usize) + Sync), count: usize| {
        if threads == 1 {
            return (0..count).for_each(work);
        }
        let next = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    loop {
                        let at = next.fetch_add(1, Ordering::Relaxed) as usize;
                        if at >= count {
                            return;
                        }
                        work(at);
                    }
                });
            }
        });
    };
    each(&|at| pipeline.push(batches[at].clone(), &mut |_| Ok(())).unwrap(), batches.len());
    loop {
        match pipeline.sink.finish_jobs().unwrap() {
            0 => return,
            jobs => each(&|job| pipeline.sink.finish_job(job).unwrap(), jobs),
        }
    }
}

/// Feeds a sink alone, by this thread.
fn feed_rows(sink: Arc<dyn Sink>, steps: &[Step], batches: impl Iterator<Item = Batch>) {
    let pipeline = Pipeline::new(steps.to_vec(), sink, []);
    batches.for_each(|batch| pipeline.push(batch, &mut |_| Ok(())).unwrap());
    loop {
        match pipeline.sink.finish_jobs().unwrap() {
            0 => return,
            jobs => (0..jobs).for_each(|job| pipeline.sink.finish_job(job).unwrap()),
        }
    }
}

/// Time that this thread has run: what other processes take is not counted. Wall time where several threads run.
fn now(threads: usize) -> f64 {
    let schedstat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    match schedstat.split(' ').next().and_then(|ran| ran.parse::<f64>().ok()) {
        Some(ran) if threads == 1 => ran / 1e9,
        _ => START.elapsed().as_secs_f64(),
    }
}

static START: std::sync::LazyLock<Instant> = std::sync::LazyLock::new(Instant::now);

fn report(name: &str, threads: usize, rows: usize, hash: u64, mut run: impl FnMut() -> u64) {
    let mut best = f64::MAX;
    for _ in 0..REPEATS {
        let start = now(threads);
        assert_eq!(run(), hash, "{name}");
        best = best.min(now(threads) - start);
    }
    println!("{name:<44} {:>7.2} ns/row {:>9.2} ms   result {hash}", best * 1e9 / rows as f64, best * 1e3);
}

fn spec(keys: &[usize], columns: &[usize], existence: bool) -> BuildSpec {
    BuildSpec {
        keys: keys.iter().map(|key| column(*key)).collect(),
        columns: columns.into(),
        types: vec![DataType::Int64; columns.len()].into(),
        keep_unmatched: false,
        existence,
        null_equal: false,
    }
}

/// Builds, then probes; keys are `spread` apart.
fn join(name: &str, build: &[Batch], probe: &[Batch], keys: &[usize], existence: bool, threads: usize) {
    let pool = MemoryPool::unlimited();
    let rows = |batches: &[Batch]| batches.iter().map(|batch| batch.rows).sum::<usize>();
    let columns: &[usize] = if existence { &[] } else { &[1] };
    let built = || {
        let join = Arc::new(JoinBuild::new(spec(keys, columns, existence), &pool, threads));
        feed(&[], join.clone(), build, threads);
        join
    };
    report(&format!("{name}: build"), threads, rows(build), 0, || {
        drop(built());
        0
    });
    let join = built();
    let kind = if existence { JoinKind::Semi } else { JoinKind::Inner };
    let probing = Probe {
        build: join.clone(),
        kind,
        keys: keys.iter().map(|key| column(*key)).collect(),
        residual: None,
        probe_columns: [1].into(),
        build_columns: if existence { [].into() } else { [0].into() },
    };
    let steps = [Step::Probe(Arc::new(probing))];
    let run = || {
        let counting = Arc::new(Counting::default());
        feed(&steps, counting.clone(), probe, threads);
        counting.rows.load(Ordering::Relaxed) ^ counting.sum.load(Ordering::Relaxed)
    };
    let hash = run();
    report(&format!("{name}: probe"), threads, rows(probe), hash, run);
}

/// The least that a join of parents and children by position would cost, were a child told where its parent is: the
/// parent's value is fetched from there, nothing else.
fn by_position(name: &str, parents: &[Batch], children: &[Batch]) {
    let numbers = |batch: &Batch, column: usize| match &batch.columns[column].values {
        Values::Int64(values) => values.to_vec(),
        other => unreachable!("{other:?}"),
    };
    let fetched: Vec<i64> = parents.iter().flat_map(|batch| numbers(batch, 1)).collect();
    let run = || {
        let counting = Arc::new(Counting::default());
        let pushed = children.iter().map(|batch| {
            let Values::Int64(positions) = &batch.columns[0].values else { unreachable!("positions are integers") };
            let values = integers(positions.iter().map(|position| fetched[*position as usize]));
            Batch::new(vec![batch.columns[1].clone(), values], batch.rows)
        });
        feed_rows(counting.clone(), &[], pushed);
        counting.rows.load(Ordering::Relaxed) ^ counting.sum.load(Ordering::Relaxed)
    };
    let hash = run();
    report(name, 1, children.iter().map(|batch| batch.rows).sum(), hash, run);
}

fn call(function: AggregateFunction, index: usize) -> AggregateCall {
    let input = (function != AggregateFunction::CountAll).then(|| column(index));
    AggregateCall { function, input, result: DataType::Int64 }
}

fn group(name: &str, input: &[Batch], groups: &[Expression], calls: &[AggregateCall], threads: usize) {
    let pool = MemoryPool::unlimited();
    let run = || {
        let sink = Arc::new(GroupBy::new(groups.into(), calls.into(), [].into(), &pool, threads));
        feed(&[], sink.clone(), input, threads);
        sink.take_output().unwrap().0.iter().map(|batch| batch.rows as u64).sum()
    };
    let hash = run();
    report(name, threads, input.iter().map(|batch| batch.rows).sum(), hash, run);
}

fn sort(name: &str, input: &[Batch], limit: Option<usize>, threads: usize) {
    let pool = MemoryPool::unlimited();
    let keys = SortKeys([SortKey { column: 0, descending: false, nulls_first: false }].into());
    let run = || {
        let sink = Arc::new(SortSink::new(keys.clone(), limit, &pool, threads));
        feed(&[], sink.clone(), input, threads);
        let (sorted, _charged) = sink.take_output().unwrap();
        sorted.iter().map(|batch| batch.rows as u64).sum()
    };
    let hash = run();
    report(name, threads, input.iter().map(|batch| batch.rows).sum(), hash, run);
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let tiny = arguments.iter().any(|argument| argument == "--test");
    let threads = arguments.iter().position(|argument| argument == "--threads");
    let threads = threads.and_then(|at| arguments.get(at + 1)).map_or(1, |threads| threads.parse().unwrap());
    let (small, large) = if tiny { (1_500, 6_000) } else { (1_500_000, 6_000_000) };
    let mut random = SeededRandom::new(7);
    let shuffled: Vec<i64> = {
        let mut keys: Vec<i64> = (0..small as i64).collect();
        for at in (1..keys.len()).rev() {
            keys.swap(at, random.index(at + 1));
        }
        keys
    };
    let foreign: Vec<i64> = (0..large).map(|_| random.below(small as u64) as i64).collect();
    let numbers = |range: std::ops::Range<usize>| integers(range.map(|row| row as i64 % 1_000));
    let tables = |factor: i64| {
        let build =
            batches(small, |range| vec![integers(range.clone().map(|row| shuffled[row] * factor)), numbers(range)]);
        let clustered =
            batches(large, |range| vec![integers(range.clone().map(|row| row as i64 / 4 * factor)), numbers(range)]);
        let scattered =
            batches(large, |range| vec![integers(range.clone().map(|row| foreign[row] * factor)), numbers(range)]);
        (build, clustered, scattered)
    };
    let (build, clustered, scattered) = tables(1);
    println!("{threads} threads, {small} and {large} rows");
    texts::run(large);
    if arguments.iter().any(|argument| argument == "--texts") {
        return;
    }
    let ordered = batches(small, |range| vec![integers(range.clone().map(|row| row as i64)), numbers(range)]);
    join("dense keys in order, clustered", &ordered, &clustered, &[0], false, threads);
    by_position("positions that are known, clustered", &ordered, &clustered);
    drop(ordered);
    join("dense keys, clustered", &build, &clustered, &[0], false, threads);
    join("dense keys, scattered", &build, &scattered, &[0], false, threads);
    join("dense keys, existence, scattered", &build, &scattered, &[0], true, threads);
    group("1.5 M groups, clustered", &clustered, &[column(0)], &[call(AggregateFunction::Sum, 1)], threads);
    group("1.5 M groups, scattered", &scattered, &[column(0)], &[call(AggregateFunction::Sum, 1)], threads);
    drop((build, clustered));
    sort("sort by an integer", &scattered, None, threads);
    sort("top 100 by an integer", &scattered, Some(100), threads);
    drop(scattered);
    let (build, clustered, scattered) = tables(1_009);
    join("hashed keys, clustered", &build, &clustered, &[0], false, threads);
    join("hashed keys, scattered", &build, &scattered, &[0], false, threads);
    join("hashed keys, existence, scattered", &build, &scattered, &[0], true, threads);
    drop((clustered, scattered));
    let flags = ["A", "N"];
    let lines = batches(large, |range| {
        let text = |shift: u32| {
            let mut builder = ColumnBuilder::with_capacity(DataType::Text, range.len());
            for row in range.clone() {
                let mixed = (row as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> shift;
                builder.push(&Value::Text(flags[(mixed % 2) as usize].into()));
            }
            builder.finish()
        };
        let mut columns = vec![text(40), text(41)];
        columns.extend((0..5).map(|_| numbers(range.clone())));
        columns
    });
    let text = |index| Expression::Column { index, data_type: DataType::Text };
    let sums: Vec<AggregateCall> = (2..7).map(|index| call(AggregateFunction::Sum, index)).collect();
    group("few groups of two texts, 5 sums", &lines, &[text(0), text(1)], &sums, threads);
    group("no groups, 5 sums", &lines, &[], &sums, threads);
}
