//! Joins whose build side goes on in files give what nested loops give.

use std::sync::Arc;

use eris_platform::{MemoryPool, SeededRandom};
use eris_storage::{Batch, Comparison, ContainerDictionaries, DataType, Value};

use super::tests::{Case, KINDS, Outcome, SHAPES, Shape, assert_same, batches, case, column, plain, rows_of, types_of};
use super::{BuildSpec, JoinBuild, JoinKind, Probe, ProbeParts};
use crate::error::OperatorError;
use crate::expression::Expression;
use crate::pipeline::spilled::{Disk, fail_each_operation, give, rows_of_stream, write_out};
use crate::pipeline::{Collector, Pipeline, Sink, Step};
use crate::spill::{SpillOptions, SpillingSink};

/// Every batch is written, every part is divided once more.
const ALWAYS: SpillOptions = SpillOptions { held_bytes_max: Some(1), file_bytes_max: None };

impl Case {
    fn is_null_aware(&self) -> bool {
        matches!(self.kind, JoinKind::NullAwareAnti | JoinKind::Mark { null_aware: true })
    }

    fn probe_of(&self, build: &Arc<JoinBuild>, columns: usize) -> Probe {
        let amount = columns - 2;
        let less = Expression::Compare {
            comparison: Comparison::Less,
            left: Box::new(column(amount, DataType::Int64)),
            right: Box::new(column(columns + amount, DataType::Int64)),
        };
        let gives_pairs = matches!(self.kind, JoinKind::Inner | JoinKind::Left);
        Probe {
            build: Arc::clone(build),
            kind: self.kind,
            keys: build.spec.keys.clone(),
            residual: self.residual.then(|| Arc::new(less)),
            probe_columns: (0..columns).collect(),
            build_columns: if gives_pairs { build.spec.columns.clone() } else { Arc::default() },
        }
    }

    /// As the executor runs it; whether the build side was in files.
    fn run_in_files(
        &self,
        disk: &Disk,
        pool: &Arc<MemoryPool>,
        options: SpillOptions,
        seed: u64,
    ) -> Result<(Outcome, bool), OperatorError> {
        let types = types_of(self.shape);
        let spill = disk.spill(pool, options);
        let keys = self.shape.types().into_iter().enumerate().map(|(at, data_type)| column(at, data_type));
        let kept = if self.existence { 0 } else { types.len() };
        let spec = BuildSpec {
            keys: keys.collect(),
            columns: (0..kept).collect(),
            types: types[..kept].into(),
            keep_unmatched: self.keep_unmatched,
            existence: self.existence,
            null_equal: self.null_equal,
        };
        let build = JoinBuild::new(spec, pool, self.threads).with_filters((0..self.shape.types().len()).collect());
        let build = Arc::new(if self.is_null_aware() && self.residual { build } else { build.spilling_to(&spill) });
        // Some texts have ids: none has when it was written.
        let coded = [None, Some(ContainerDictionaries::new(&MemoryPool::unlimited()))];
        disk.block_on(async {
            give(&*build, &batches(&types, &self.build, &coded, seed), self.threads).await?;
            let is_in_files = build.spilling().is_some_and(SpillingSink::ends_in_files);
            if is_in_files {
                write_out(&*build, self.threads).await?;
                build.end_in_files()?;
            } else {
                crate::pipeline::finish(&*build, self.threads)?;
            }
            assert_eq!(build.is_in_files(), is_in_files);
            let mut outcome = Outcome { joined: Vec::new(), met: Vec::new(), unmet: Vec::new() };
            // Two probes of the same build side, as a UNION has them.
            let probe_rows = self.probe.split_at(self.probe.len() / 2);
            for (at, rows) in [probe_rows.0, probe_rows.1].into_iter().enumerate() {
                let probe = self.probe_of(&build, types.len());
                let mut rows = batches(&types, rows, &coded, seed + 1 + at as u64);
                if self.filtered && !probe.keys.is_empty() {
                    let passing = |batch: &Batch| {
                        let filter = build.filter(0)?;
                        Ok(batch.take(&filter.passing(&batch.columns[0])))
                    };
                    rows = rows.iter().map(passing).collect::<Result<_, OperatorError>>()?;
                    rows.retain(|batch| batch.rows > 0);
                }
                let joined = if is_in_files {
                    let parts = ProbeParts::new(probe, [].into(), pool, self.threads)?;
                    give(&parts, &rows, self.threads).await?;
                    write_out(&parts, self.threads).await?;
                    rows_of_stream(&mut *parts.take_stream()?).await?
                } else {
                    let collector = Arc::new(Collector::new(pool));
                    let pipeline = Pipeline::new([Step::Probe(Arc::new(probe))], collector.clone(), []);
                    rows.into_iter().try_for_each(|batch| pipeline.push(batch, &mut |_| Ok(())))?;
                    collector.take_output()?.0
                };
                outcome.joined.extend(rows_of(&joined));
            }
            if self.keep_unmatched {
                for (met, rows) in [(true, &mut outcome.met), (false, &mut outcome.unmet)] {
                    *rows = if is_in_files {
                        rows_of(&rows_of_stream(&mut *build.stream_rows(met)?).await?)
                    } else {
                        rows_of(&build.take_rows(met)?.0)
                    };
                }
            }
            Ok((outcome, is_in_files))
        })
    }

    /// Against nested loops; whether it was in files, and how often the files were written over, roughly.
    fn check_in_files(&self, memory: u64, options: SpillOptions, seed: u64) -> bool {
        let expected = self.reference();
        let (disk, pool) = (Disk::new(seed), MemoryPool::new(memory));
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
            self.filtered,
        );
        let (found, is_in_files) =
            self.run_in_files(&disk, &pool, options, seed).unwrap_or_else(|error| panic!("{error}: {what}"));
        assert_same(found.joined, expected.joined, &what);
        if self.keep_unmatched && matches!(self.kind, JoinKind::Inner | JoinKind::Left | JoinKind::Build) {
            assert_same(found.met, expected.met, &what);
            assert_same(found.unmet, expected.unmet, &what);
        }
        disk.settle();
        assert_eq!((pool.used(), disk.files.statistics().used_bytes), (0, 0), "{what}");
        is_in_files
    }
}

#[test]
fn joins_in_files_agree_with_nested_loops() {
    let (mut seed, mut in_files, mut all) = (0, 0, 0);
    for shape in SHAPES {
        for kind in KINDS {
            let null_aware = matches!(kind, JoinKind::NullAwareAnti | JoinKind::Mark { null_aware: true });
            if null_aware && shape.types().len() != 1 {
                continue;
            }
            for sizes in [[0, 7], [7, 0], [1, 7], [60, 60], [900, 300], [300, 900]] {
                seed += 1;
                let case = case(seed, shape, kind, sizes);
                all += 1;
                in_files += usize::from(case.check_in_files(u64::MAX, ALWAYS, seed));
            }
        }
    }
    assert!(in_files * 10 > all * 6, "{in_files} of {all} joins were in files");
}

/// Build rows of one key, and of none: they are joined in blocks, as little memory as there is.
#[test]
fn parts_of_one_key_are_joined_in_blocks() {
    let mut seed = 500;
    for shape in [Shape::Dense, Shape::Texts, Shape::Pair, Shape::None] {
        for kind in KINDS {
            for options in [ALWAYS, SpillOptions::default()] {
                seed += 1;
                let mut case = case(seed, shape, kind, [7_000, 30]);
                if case.is_null_aware() && (case.residual || shape.types().len() != 1) {
                    continue;
                }
                let keys = shape.types().len();
                let mut random = SeededRandom::new(seed);
                for row in &mut case.build {
                    // A few others, and NULLs where there were some.
                    if random.below(500) > 0 {
                        row.iter_mut().zip(shape.key(1)).take(keys).for_each(|(value, key)| *value = key);
                    }
                }
                for row in case.probe.iter_mut().step_by(3) {
                    row.iter_mut().zip(shape.key(1)).take(keys).for_each(|(value, key)| *value = key);
                }
                case.build.iter_mut().for_each(|row| row[keys + 1] = Value::Text("x".repeat(800).into()));
                let is_in_files =
                    case.check_in_files(if options == ALWAYS { u64::MAX } else { 4 << 20 }, options, seed);
                assert!(is_in_files || case.existence, "seed {seed}: {shape:?} {kind:?}");
            }
        }
    }
}

/// Many rows of many keys and little memory.
#[test]
fn build_sides_that_do_not_fit_are_joined_part_by_part() {
    for (seed, kind) in (700..).zip(KINDS) {
        let shape = [Shape::Sparse, Shape::Texts][seed as usize % 2];
        let mut case = case(seed, shape, kind, [15_000, 200]);
        (case.residual, case.existence) = (false, false);
        let mut random = SeededRandom::new(seed);
        for row in &mut case.build {
            row[0] = shape.key(random.below(10_000)).remove(0);
            row[2] = Value::Text("x".repeat(200).into());
        }
        case.probe.iter_mut().for_each(|row| row[0] = shape.key(random.below(15_000)).remove(0));
        assert!(case.check_in_files(3 << 20, SpillOptions::default(), seed), "{kind:?} fits");
    }
}

#[test]
fn a_row_that_is_larger_than_memory_is_refused() {
    let row = |key| vec![Value::Int32(key), Value::Int64(1), Value::Text("x".repeat(5 << 20).into())];
    let case = plain(vec![row(0)], vec![row(0)]);
    let (disk, pool) = (Disk::new(1), MemoryPool::new(4 << 20));
    let refused = case.run_in_files(&disk, &pool, SpillOptions::default(), 1).err();
    assert!(matches!(refused, Some(OperatorError::Memory(_))), "{refused:?}");
    disk.settle();
    assert_eq!((pool.used(), disk.files.statistics().used_bytes), (0, 0));
}

/// In parts, and in blocks.
#[test]
fn a_join_fails_by_itself_when_the_disk_does() {
    let options = SpillOptions { held_bytes_max: Some(300_000), file_bytes_max: None };
    for (kind, one_key) in
        [(JoinKind::Left, true), (JoinKind::Mark { null_aware: false }, true), (JoinKind::Left, false)]
    {
        let mut case = case(7, Shape::Texts, kind, [2_000, 300]);
        case.keep_unmatched = kind == JoinKind::Left;
        (case.existence, case.filtered, case.threads) = (false, false, 1);
        for row in &mut case.build {
            row[2] = Value::Text("x".repeat(200).into());
            if one_key {
                row[0] = Shape::Texts.key(1).remove(0);
            }
        }
        let expected = case.reference();
        fail_each_operation(20, |disk, pool| {
            let (found, is_in_files) = case.run_in_files(disk, pool, options, 7)?;
            assert!(is_in_files);
            assert_same(found.joined, expected.joined.clone(), "without a failure");
            Ok(())
        });
    }
}
