//! Joins against nested loops over values: types x NULLs x duplicates x kinds x residuals x sizes x shapes of keys.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use eris_platform::{MemoryPool, SeededRandom};
use eris_storage::{BATCH_ROWS, Batch, Comparison, ContainerDictionaries, DataType, Value};

use super::*;
use crate::coded_batches::coded;
use crate::error::OperatorError;
use crate::pipeline::{Collector, PassedFilter, Pipeline, Sink, Step};

pub(super) const KINDS: [JoinKind; 8] = [
    JoinKind::Inner,
    JoinKind::Left,
    JoinKind::Semi,
    JoinKind::Anti,
    JoinKind::NullAwareAnti,
    JoinKind::Mark { null_aware: false },
    JoinKind::Mark { null_aware: true },
    JoinKind::Build,
];

/// Joins that were by ids of texts.
static BY_IDS: AtomicUsize = AtomicUsize::new(0);

/// How keys look: their types, and how a number below the number of keys becomes a key.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Shape {
    Dense,
    /// Few codes of a domain that has a sieve.
    Spread,
    Sparse,
    VerySparse,
    Dates,
    Decimals,
    Floats,
    Texts,
    Pair,
    WidePair,
    TextAndNumber,
    None,
}

pub(super) const SHAPES: [Shape; 12] = [
    Shape::Dense,
    Shape::Spread,
    Shape::Sparse,
    Shape::VerySparse,
    Shape::Dates,
    Shape::Decimals,
    Shape::Floats,
    Shape::Texts,
    Shape::Pair,
    Shape::WidePair,
    Shape::TextAndNumber,
    Shape::None,
];

impl Shape {
    pub(super) fn types(self) -> Vec<DataType> {
        match self {
            Self::Dense | Self::Spread => vec![DataType::Int32],
            Self::Sparse | Self::VerySparse => vec![DataType::Int64],
            Self::Dates => vec![DataType::Date],
            Self::Decimals => vec![DataType::Decimal { precision: 30, scale: 2 }],
            Self::Floats => vec![DataType::Float64],
            Self::Texts => vec![DataType::Text],
            Self::Pair => vec![DataType::Int32, DataType::Int16],
            Self::WidePair => vec![DataType::Int64, DataType::Int64],
            Self::TextAndNumber => vec![DataType::Text, DataType::Int32],
            Self::None => vec![],
        }
    }

    pub(super) fn key(self, n: u64) -> Vec<Value> {
        let text = |n: u64| {
            Value::Text(if n.is_multiple_of(2) { format!("k{n}") } else { format!("a longer key {n}") }.into())
        };
        match self {
            Self::Dense => vec![Value::Int32(n as i32 - 10)],
            Self::Spread => vec![Value::Int32(n as i32 * 5_003 - 20)],
            Self::Sparse => vec![Value::Int64(n as i64 * 1_000_003 - 7)],
            Self::VerySparse => vec![Value::Int64(n as i64 * 1_000_000_000_039)],
            Self::Dates => vec![Value::Date(n as i32 * 31)],
            Self::Decimals => vec![Value::Decimal { unscaled: (n as i128 - 3) << (n % 3 * 40), scale: 2 }],
            Self::Floats => vec![Value::Float64(match n {
                0 => f64::NAN,
                1 => 0.0,
                n => n as f64 / 3.0,
            })],
            Self::Texts => vec![text(n)],
            Self::Pair => vec![Value::Int32(n as i32 / 7), Value::Int16((n % 7) as i16)],
            Self::WidePair => vec![Value::Int64((n as i64 / 3) << 40), Value::Int64(((n % 3) as i64) << 41)],
            Self::TextAndNumber => vec![text(n / 5), Value::Int32((n % 5) as i32)],
            Self::None => vec![],
        }
    }
}

pub(super) fn column(index: usize, data_type: DataType) -> Expression {
    Expression::Column { index, data_type }
}

/// Keys, then an amount, then a text.
fn rows(random: &mut SeededRandom, shape: Shape, count: usize, keys: u64, nulls: bool) -> Vec<Vec<Value>> {
    (0..count)
        .map(|n| {
            let mut row = shape.key(random.below(keys));
            for value in &mut row {
                if nulls && random.below(8) == 0 {
                    *value = Value::Null;
                }
                // -0 and another NaN are the same keys.
                if let Value::Float64(number) = value
                    && random.below(2) == 0
                    && (*number == 0.0 || number.is_nan())
                {
                    *number = -*number;
                }
            }
            row.push(Value::Int64(random.below(100) as i64));
            let text = format!("row {n} of a table{}", "!".repeat(random.index(8)));
            row.push(if random.below(9) == 0 { Value::Null } else { Value::Text(text.into()) });
            row
        })
        .collect()
}

pub(super) fn types_of(shape: Shape) -> Vec<DataType> {
    let mut types = shape.types();
    types.extend([DataType::Int64, DataType::Text]);
    types
}

/// One join of two tables.
#[expect(clippy::struct_excessive_bools, reason = "all combinations are tested")]
pub(super) struct Case {
    pub shape: Shape,
    pub kind: JoinKind,
    pub build: Vec<Vec<Value>>,
    pub probe: Vec<Vec<Value>>,
    /// The amount of the probe row is less than that of the build row.
    pub residual: bool,
    pub null_equal: bool,
    pub keep_unmatched: bool,
    pub existence: bool,
    /// Filters of the keys take rows out before the probe.
    pub filtered: bool,
    pub threads: usize,
}

pub(super) type Rows = Vec<Vec<Value>>;

/// What the join gives; the build rows that were met, and those that were not.
pub(super) struct Outcome {
    pub joined: Rows,
    pub met: Rows,
    pub unmet: Rows,
}

impl Case {
    fn keys_equal(&self, a: &[Value], b: &[Value]) -> Option<bool> {
        let keys = self.shape.types().len();
        let mut unknown = false;
        for (a, b) in a[..keys].iter().zip(&b[..keys]) {
            match (a.is_null(), b.is_null()) {
                (false, false) if a != b => return Some(false),
                (false, false) => {}
                (both, other) if self.null_equal => {
                    if !(both && other) {
                        return Some(false);
                    }
                }
                _ => unknown = true,
            }
        }
        if unknown { None } else { Some(true) }
    }

    /// Nested loops.
    pub(super) fn reference(&self) -> Outcome {
        let amount = self.shape.types().len();
        let mut met = vec![false; self.build.len()];
        let mut joined = Vec::new();
        for probe in &self.probe {
            let (mut matched, mut unknown) = (false, false);
            for (build, met) in self.build.iter().zip(&mut met) {
                if self.residual && probe[amount] >= build[amount] {
                    continue;
                }
                match self.keys_equal(probe, build) {
                    Some(true) => {
                        matched = true;
                        *met = true;
                        if matches!(self.kind, JoinKind::Inner | JoinKind::Left) {
                            joined.push([probe.clone(), build.clone()].concat());
                        }
                    }
                    Some(false) => {}
                    None => unknown = true,
                }
            }
            match self.kind {
                JoinKind::Inner | JoinKind::Build => {}
                JoinKind::Left => {
                    if !matched {
                        joined.push([probe.clone(), vec![Value::Null; amount + 2]].concat());
                    }
                }
                JoinKind::Semi => {
                    if matched {
                        joined.push(probe.clone());
                    }
                }
                JoinKind::Anti => {
                    if !matched {
                        joined.push(probe.clone());
                    }
                }
                JoinKind::NullAwareAnti => {
                    if !matched && !unknown {
                        joined.push(probe.clone());
                    }
                }
                JoinKind::Mark { null_aware } => {
                    let mark = if !matched && unknown && null_aware { Value::Null } else { Value::Boolean(matched) };
                    joined.push([probe.clone(), vec![mark]].concat());
                }
            }
        }
        let of =
            |wanted| self.build.iter().zip(&met).filter(move |(_, met)| **met == wanted).map(|(row, _)| row.clone());
        Outcome { met: of(true).collect(), unmet: of(false).collect(), joined }
    }

    /// The join as it runs: both sides in batches of changing sizes, from as many threads.
    fn run(&self, pool: &Arc<MemoryPool>, seed: u64) -> Result<Outcome, OperatorError> {
        let types = types_of(self.shape);
        let keys: Arc<[Expression]> =
            self.shape.types().iter().enumerate().map(|(at, data_type)| column(at, *data_type)).collect();
        let all: Arc<[usize]> = (0..types.len()).collect();
        let (columns, kept): (Arc<[usize]>, Arc<[DataType]>) =
            if self.existence { (Arc::default(), Arc::default()) } else { (all.clone(), types.clone().into()) };
        let spec = BuildSpec {
            keys: keys.clone(),
            columns: columns.clone(),
            types: kept,
            keep_unmatched: self.keep_unmatched,
            existence: self.existence,
            null_equal: self.null_equal,
        };
        let filtered = if self.filtered { (0..keys.len()).collect() } else { Arc::default() };
        let build = Arc::new(JoinBuild::new(spec, pool, self.threads).with_filters(filtered));
        let into_build = Pipeline::new([], build.clone(), []);
        // Texts have no ids, or those of one or another dictionary, or some of each.
        let one = [0, 1].map(|_| Some(ContainerDictionaries::new(&MemoryPool::unlimited())));
        let origins = [&[None], &one[..1], &one[1..], &one[..], &[one[0].clone(), None]];
        let mut random = SeededRandom::new(seed);
        let mut origin = || origins[random.index(origins.len())];
        if self.shape.types().contains(&DataType::Text) && self.build.len() + self.probe.len() < 500 {
            // Texts that come once have ids if they are known.
            let both = self.build.iter().chain(&self.probe);
            let rows: Vec<Vec<Value>> = both.flat_map(|row| std::iter::repeat_n(row.clone(), 9)).collect();
            one.iter().flatten().for_each(|known| drop(coded(&Batch::from_rows(&types, &rows), known)));
        }
        feed(&into_build, &batches(&types, &self.build, origin(), seed), self.threads)?;
        BY_IDS.fetch_add(usize::from(build.kept()?.table.goes_by_ids()), Ordering::Relaxed);
        let amount = types.len() - 2;
        let residual = self.residual.then(|| {
            let less = Expression::Compare {
                comparison: Comparison::Less,
                left: Box::new(column(amount, DataType::Int64)),
                right: Box::new(column(types.len() + amount, DataType::Int64)),
            };
            Arc::new(less)
        });
        let pairs = matches!(self.kind, JoinKind::Inner | JoinKind::Left);
        let probe = Probe {
            build: build.clone(),
            kind: self.kind,
            keys,
            residual,
            probe_columns: all,
            build_columns: if pairs { columns } else { Arc::default() },
        };
        let collector = Arc::new(Collector::new(pool));
        let filters = (0..if self.filtered { probe.keys.len() } else { 0 }).map(|key| {
            let filter = build.filter(key)?;
            Ok(Step::Passed(Arc::new(PassedFilter::new(filter.clone(), key))))
        });
        let mut steps = filters.collect::<Result<Vec<Step>, OperatorError>>()?;
        steps.push(Step::Probe(Arc::new(probe)));
        let pipeline = Pipeline::new(steps, collector.clone(), []);
        feed(&pipeline, &batches(&types, &self.probe, origin(), seed + 1), self.threads)?;
        let (joined, _charged) = collector.take_output()?;
        let take = |met| {
            if !self.keep_unmatched {
                return Ok(Vec::new());
            }
            build.take_rows(met).map(|(batches, _charged)| rows_of(&batches))
        };
        Ok(Outcome { joined: rows_of(&joined), met: take(true)?, unmet: take(false)? })
    }

    fn check(&self, seed: u64) {
        let pool = MemoryPool::unlimited();
        let expected = self.reference();
        let found = self.run(&pool, seed).unwrap();
        let what = format!(
            "seed {seed}: {:?} {:?}, {} x {} rows, residual {}, null equal {}, keep {}, existence {}, filtered {}",
            self.shape,
            self.kind,
            self.build.len(),
            self.probe.len(),
            self.residual,
            self.null_equal,
            self.keep_unmatched,
            self.existence,
            self.filtered
        );
        assert_same(found.joined, expected.joined, &what);
        let marks_all = matches!(self.kind, JoinKind::Inner | JoinKind::Left | JoinKind::Build);
        if self.keep_unmatched && marks_all {
            assert_same(found.met, expected.met, &what);
            assert_same(found.unmet, expected.unmet, &what);
        }
        assert_eq!(pool.used(), 0, "{what}");
    }
}

pub(super) fn assert_same(mut found: Rows, mut expected: Rows, what: &str) {
    found.sort();
    expected.sort();
    assert_eq!(found.len(), expected.len(), "{what}");
    assert!(found == expected, "{what}");
}

pub(super) fn rows_of(batches: &[Batch]) -> Rows {
    assert!(batches.iter().all(|batch| batch.rows > 0 && batch.rows <= BATCH_ROWS));
    batches.iter().flat_map(|batch| (0..batch.rows).map(|row| batch.row(row))).collect()
}

/// Rows of one of the containers with these dictionaries, or of none.
pub(super) type Origin = Option<Arc<ContainerDictionaries>>;

pub(super) fn batches(types: &[DataType], rows: &[Vec<Value>], origins: &[Origin], seed: u64) -> Vec<Batch> {
    let mut random = SeededRandom::new(seed);
    let all = Batch::from_rows(types, rows);
    let (mut parts, mut at) = (Vec::new(), 0);
    while at < rows.len() {
        let most = if random.below(3) == 0 { 3 } else { 5_000 };
        let count = (1 + random.index(most)).min(rows.len() - at);
        let part = all.slice(at, count);
        parts.push(match &origins[random.index(origins.len())] {
            Some(dictionaries) => coded(&part, dictionaries),
            None => part,
        });
        at += count;
    }
    parts
}

/// Sends batches through a pipeline and finishes its sink.
fn feed(pipeline: &Pipeline, batches: &[Batch], threads: usize) -> Result<(), OperatorError> {
    let failed = Mutex::new(None);
    let each = |work: &(dyn Fn(usize) -> Result<(), OperatorError> + Sync), count: usize| {
        std::thread::scope(|scope| {
            for thread in 0..threads {
                let failed = &failed;
                scope.spawn(move || {
                    for at in (thread..count).step_by(threads) {
                        if let Err(error) = work(at) {
                            failed.lock().unwrap().get_or_insert(error);
                            return;
                        }
                    }
                });
            }
        });
        failed.lock().unwrap().take().map_or(Ok(()), Err)
    };
    each(
        &|at| {
            // Every other batch stops wherever it can.
            let mut flow = pipeline.start(batches[at].clone());
            while !flow.is_over() {
                pipeline.advance(&mut flow, &mut |_| panic!("nothing is emitted"), &mut || at % 2 == 0)?;
            }
            Ok(())
        },
        batches.len(),
    )?;
    loop {
        match pipeline.sink.finish_jobs()? {
            0 => return Ok(()),
            jobs => each(&|job| pipeline.sink.finish_job(job), jobs)?,
        }
    }
}

pub(super) fn case(seed: u64, shape: Shape, kind: JoinKind, [build, probe]: [usize; 2]) -> Case {
    let mut random = SeededRandom::new(seed);
    let most = build.max(probe).max(1) as u64;
    // Duplicates, or almost none; without keys all pairs meet.
    let keys = if random.below(2) == 0 { most * 2 } else { (most / 10).max(2) };
    let nulls = random.below(2) == 0;
    let null_aware = matches!(kind, JoinKind::NullAwareAnti | JoinKind::Mark { null_aware: true });
    let residual = random.below(2) == 0;
    let existence = !residual && !matches!(kind, JoinKind::Inner | JoinKind::Left) && random.below(2) == 0;
    let keep_unmatched = kind == JoinKind::Build || (null_aware && residual) || random.below(3) == 0;
    let null_equal = !null_aware && random.below(3) == 0;
    // Where rows without partner leave no trace.
    let may_be_filtered = matches!(kind, JoinKind::Inner | JoinKind::Semi | JoinKind::Build) && !null_equal;
    Case {
        shape,
        kind,
        filtered: may_be_filtered && random.below(2) == 0,
        build: rows(&mut random, shape, build, keys, nulls),
        probe: rows(&mut random, shape, probe, keys, nulls),
        residual,
        null_equal,
        existence: existence && !keep_unmatched,
        keep_unmatched,
        threads: 1 + random.index(2),
    }
}

#[test]
fn joins_agree_with_nested_loops() {
    let mut seed = 0;
    for shape in SHAPES {
        for kind in KINDS {
            let null_aware = matches!(kind, JoinKind::NullAwareAnti | JoinKind::Mark { null_aware: true });
            if null_aware && shape.types().len() != 1 {
                continue;
            }
            for sizes in [[0, 0], [0, 7], [7, 0], [1, 1], [1, 7], [7, 1], [7, 60], [300, 90], [90, 300]] {
                for _ in 0..4 {
                    seed += 1;
                    case(seed, shape, kind, sizes).check(seed);
                }
            }
        }
    }
    let by_ids = BY_IDS.load(Ordering::Relaxed);
    assert!(by_ids > 100, "only {by_ids} joins were by ids");
}

#[test]
fn joins_of_several_batches_agree_with_nested_loops() {
    let mut seed = 10_000;
    for shape in SHAPES.into_iter().filter(|shape| *shape != Shape::None) {
        for kind in [JoinKind::Inner, JoinKind::Left, JoinKind::Anti, JoinKind::Build] {
            for sizes in [[2_048, 900], [5_000, 400], [400, 5_000]] {
                seed += 1;
                case(seed, shape, kind, sizes).check(seed);
            }
        }
    }
}

fn numbers(rows: std::ops::Range<i64>) -> Vec<Vec<Value>> {
    rows.map(|n| vec![Value::Int32(n as i32), Value::Int64(n), Value::Text(format!("a text of row {n}").into())])
        .collect()
}

pub(super) fn plain(build: Rows, probe: Rows) -> Case {
    Case {
        shape: Shape::Dense,
        kind: JoinKind::Inner,
        build,
        probe,
        residual: false,
        null_equal: false,
        keep_unmatched: false,
        existence: false,
        filtered: false,
        threads: 2,
    }
}

#[test]
fn a_join_fails_within_its_memory_and_gives_everything_back() {
    let case = |shape| Case { shape, ..plain(numbers(0..9_000), numbers(0..3)) };
    for shape in [Shape::Dense, Shape::Pair] {
        let pool = MemoryPool::unlimited();
        let mut case = case(shape);
        if shape == Shape::Pair {
            for row in case.build.iter_mut().chain(&mut case.probe) {
                row.insert(1, Value::Int16(5));
            }
        }
        assert_eq!(case.run(&pool, 1).unwrap().joined.len(), 3);
        let peak = pool.peak();
        assert!(pool.used() == 0 && peak > 9_000 * 40);
        for limit in [0, 1_000, peak / 3, peak * 2 / 3] {
            let pool = MemoryPool::new(limit);
            assert!(matches!(case.run(&pool, 1), Err(OperatorError::Memory(_))), "{limit} of {peak}");
            assert_eq!(pool.used(), 0);
        }
    }
}

#[test]
fn a_join_that_is_not_built_or_has_other_keys_is_refused() {
    let pool = MemoryPool::unlimited();
    let spec = |keys: &[Expression]| BuildSpec {
        keys: keys.into(),
        columns: [0].into(),
        types: [DataType::Text].into(),
        keep_unmatched: false,
        existence: false,
        null_equal: false,
    };
    let texts = Batch::from_rows(&[DataType::Text], &[vec![Value::Text("a".into())]]);
    let build = Arc::new(JoinBuild::new(spec(&[column(0, DataType::Text)]), &pool, 1));
    let probe = |kind| {
        let probe = Probe {
            build: build.clone(),
            kind,
            keys: [column(0, DataType::Int32)].into(),
            residual: None,
            probe_columns: [0].into(),
            build_columns: [].into(),
        };
        let steps = [Step::Probe(Arc::new(probe))];
        let pipeline = Pipeline::new(steps, Arc::new(Collector::new(&pool)), []);
        let rows = Batch::from_rows(&[DataType::Int32], &[vec![Value::Int32(1)]]);
        pipeline.push(rows, &mut |_| Ok(()))
    };
    assert!(matches!(probe(JoinKind::Inner), Err(OperatorError::Internal(_))), "not built");
    let into_build = Pipeline::new([], build.clone(), []);
    feed(&into_build, &[texts], 1).unwrap();
    assert!(matches!(probe(JoinKind::Inner), Err(OperatorError::Internal(_))), "keys of another type");
    assert!(build.take_rows(true).is_err());
}
