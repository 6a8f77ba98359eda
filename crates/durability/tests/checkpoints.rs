//! What checkpoints write, and what they name again.

#![expect(clippy::expect_used, reason = "a test fails by panicking")]

mod schemas;
mod shelf;

use std::collections::BTreeSet;
use std::time::Duration;

use eris_engine::PartitionHistory;
use eris_platform::SimulatedEnv;
use eris_platform::simulated::FileFault;
use eris_storage::{COLUMN, ENCODED, PhysicalLayout, ROW_STATIC, SegmentLayouts};
use shelf::{PATH, Shelf, TABLE, delete, files, is, open_or_panic, options, row, try_open};

/// Segments of 64 rows each.
const ROWS: i64 = 640;

fn loaded(env: &SimulatedEnv) -> Shelf {
    let mut shelf = open_or_panic(env);
    shelf.create();
    shelf.load(0..ROWS);
    shelf
}

#[test]
fn segments_are_written_once_even_across_a_restart() {
    let env = SimulatedEnv::new(1);
    let mut shelf = loaded(&env);
    let first = shelf.checkpoint();
    assert!(first.written_bytes > 20 * ROWS as u64 && first.reused_bytes == 0, "{first:?}");
    let second = shelf.checkpoint();
    assert!(second.reused_bytes > 20 * ROWS as u64 && second.written_bytes < 500, "{second:?}");
    shelf.close();
    for _ in 0..2 {
        let mut shelf = open_or_panic(&env);
        let again = shelf.checkpoint();
        assert_eq!(again.reused_bytes, second.reused_bytes, "{again:?}");
        assert!(again.written_bytes < 500, "{again:?}");
        shelf.close();
    }
    assert_eq!(open_or_panic(&env).keys(), (0..ROWS).collect::<Vec<_>>());
}

/// Who waits for the processor waits for a piece of a segment or of a large value, not for all of it.
#[test]
fn whoever_writes_a_checkpoint_breathes_every_few_bytes_and_columns() {
    let env = SimulatedEnv::new(8);
    let breaths = |shelf: &mut Shelf| {
        let before = env.simulated_files().breaths();
        let report = shelf.checkpoint();
        (env.simulated_files().breaths() - before, report.written_bytes)
    };
    let mut shelf = loaded(&env);
    let (of_segments, _) = breaths(&mut shelf);
    // Ten segments of a column of numbers and one of texts, which are read and stored, their checks and their bytes.
    assert!(of_segments >= 10 * (2 + 1 + 2 + 1 + 1), "{of_segments}");
    let engine = shelf.engine();
    let insertion = async move {
        let mut transaction = engine.begin();
        transaction.insert(TABLE, row(ROWS, &"long".repeat(1 << 20))).await?;
        transaction.commit().await
    };
    shelf.simulation.block_on(insertion).expect("ends").expect("inserts");
    let (of_value, written) = breaths(&mut shelf);
    assert!(written > 4 << 20, "{written}");
    assert!(of_value >= 2 * (written >> 16), "{of_value} for {written} bytes");
}

/// The modules that hold the table's sealed segments.
fn modules(shelf: &Shelf) -> BTreeSet<&'static str> {
    let partitions = shelf.engine().partitions();
    let of_table = partitions.iter().filter(|partition| partition.container == TABLE);
    of_table.flat_map(|partition| &partition.segments).filter(|it| it.sealed).map(|segment| segment.module).collect()
}

#[test]
fn segments_that_are_encoded_after_a_restart_are_not_written_again() {
    let env = SimulatedEnv::new(4);
    let mut shelf = loaded(&env);
    shelf.checkpoint();
    let before = shelf.checkpoint();
    shelf.close();
    let mut shelf = open_or_panic(&env);
    assert_eq!(modules(&shelf), [COLUMN].into(), "that takes less time");
    shelf.simulation.run_until_idle().expect("maintenance ends");
    assert_eq!(modules(&shelf), [ENCODED].into());
    let after = shelf.checkpoint();
    assert_eq!(after.reused_bytes, before.reused_bytes, "{after:?}");
    assert!(after.written_bytes < 500, "{after:?}");
    assert_eq!(shelf.keys(), (0..ROWS).collect::<Vec<_>>());
}

#[test]
fn rows_that_are_gone_stay_gone_in_segments_that_are_named_again() {
    let env = SimulatedEnv::new(2);
    let mut shelf = loaded(&env);
    shelf.checkpoint();
    let mut left: Vec<i64> = (0..ROWS).collect();
    for gone in [5..9, 130..140, 600..601] {
        left.retain(|key| !gone.contains(key));
        shelf.delete(gone);
        let report = shelf.checkpoint();
        assert!(report.reused_bytes > 0, "{report:?}");
        shelf.close();
        shelf = open_or_panic(&env);
        assert_eq!(shelf.keys(), left);
    }
}

/// The data files that are there.
fn data_files(env: &SimulatedEnv) -> Vec<String> {
    files(env).into_iter().map(|(path, _)| path).filter(|path| is(path, "data")).collect()
}

/// Time enough for maintenance, and too little for a checkpoint that nobody asks for.
fn rest(shelf: &mut Shelf) {
    let engine = shelf.engine();
    let slept = async move { engine.sleep_until(engine.env().now() + Duration::from_secs(10)).await };
    shelf.simulation.block_on(slept).expect("ends");
}

/// As long as half of a data file is needed it stays and is named again; then what is needed of it is written again,
/// and it goes.
#[test]
fn what_is_needed_of_a_sparse_file_is_written_again() {
    let env = SimulatedEnv::new(5);
    let mut shelf = loaded(&env);
    let first = shelf.checkpoint();
    let of_load = data_files(&env);
    assert_eq!(of_load.len(), 1);
    let all = first.written_bytes;
    // Segments of 64 rows go whole: four of ten, then three more.
    for (gone, is_named_again) in [(0..4 * 64, true), (4 * 64..7 * 64, false)] {
        let left: Vec<i64> = (gone.end..ROWS).collect();
        shelf.delete(gone);
        rest(&mut shelf);
        let report = shelf.checkpoint();
        rest(&mut shelf);
        assert_eq!(report.rows, left.len() as u64);
        assert_eq!(data_files(&env).contains(&of_load[0]), is_named_again, "{report:?}");
        if is_named_again {
            assert!(report.reused_bytes > all / 2 && report.written_bytes < 500, "{report:?}");
        } else {
            assert!(report.reused_bytes == 0 && report.written_bytes > all / 4, "{report:?}");
            assert_eq!(data_files(&env).len(), 1, "{:?}", data_files(&env));
        }
        shelf.close();
        shelf = open_or_panic(&env);
        assert_eq!(shelf.keys(), left);
    }
    // The new file is dense.
    let report = shelf.checkpoint();
    assert!(report.reused_bytes > all / 4 && report.written_bytes < 500, "{report:?}");
}

/// Rows of open segments: these are written by every checkpoint.
fn open_rows(shelf: &Shelf) -> u64 {
    let partitions = shelf.engine().partitions();
    let of_table = partitions.iter().filter(|partition| partition.container == TABLE);
    let open = of_table.flat_map(|partition| &partition.segments).filter(|segment| !segment.sealed);
    open.map(|segment| u64::from(segment.rows)).sum()
}

/// However many rows came one by one: at rest only a tail of less than a sixteenth of a segment is open, so that a
/// checkpoint writes what is new and little else.
#[test]
fn checkpoints_of_rows_that_came_one_by_one_write_them_once() {
    const TAIL_ROWS_MAX: u64 = 64 / 16;
    let env = SimulatedEnv::new(6);
    let mut shelf = open_or_panic(&env);
    shelf.create();
    let mut rows = 0;
    for new in [640, 3, 1, 62, 2, 0, 130] {
        shelf.insert(rows..rows + new);
        rows += new;
        rest(&mut shelf);
        let open = open_rows(&shelf);
        assert!(open < TAIL_ROWS_MAX, "{open} of {rows} rows are open at rest");
        let report = shelf.checkpoint();
        let bytes_max = 1_000 + 100 * (new as u64 + TAIL_ROWS_MAX);
        assert!(report.written_bytes < bytes_max, "{new} of {rows} rows are new: {report:?}");
        assert_eq!(report.rows, rows as u64);
    }
    assert!(rows > 800 && open_rows(&shelf) < TAIL_ROWS_MAX);
    drop(shelf);
    env.lose_power();
    assert_eq!(open_or_panic(&env).keys(), (0..rows).collect::<Vec<_>>());
}

/// Between a checkpoint's snapshot and the drop the log has changes of rows, which must be there when it is done again.
#[test]
fn a_table_may_lose_rows_and_go_while_a_checkpoint_is_taken() {
    for seed in 0..60 {
        let env = SimulatedEnv::new(seed);
        let mut shelf = loaded(&env);
        let (engine, database) = (shelf.engine(), shelf.database.take().expect("open"));
        let both = async move {
            let (dropper, pause) = (engine.clone(), Duration::from_micros(20 * seed));
            engine.spawn(async move {
                dropper.sleep_until(dropper.env().now() + pause).await;
                delete(&dropper, 3..5).await.expect("deletes");
                dropper.drop_container(TABLE).expect("drops");
            });
            database.checkpoint().await.expect("a checkpoint is taken");
            while engine.container(TABLE).is_some() {
                engine.sleep_until(engine.env().now() + Duration::from_millis(1)).await;
            }
            database
        };
        shelf.database = Some(shelf.simulation.block_on(both).expect("ends"));
        shelf.close();
        assert!(open_or_panic(&env).engine().container(TABLE).is_none(), "seed {seed}");
    }
}

/// What follows a checkpoint in which an operation of the disk failed.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Then {
    ProcessKilled,
    PowerLost,
    AnotherCheckpoint,
    AnotherFailure,
}

/// Each operation of the disk fails once while a checkpoint takes the place of another one.
#[test]
fn no_failing_operation_takes_the_files_that_are_named() {
    let endings = [Then::ProcessKilled, Then::PowerLost, Then::AnotherCheckpoint, Then::AnotherFailure];
    for (fault, then) in endings.into_iter().flat_map(|then| [(FileFault::Broken, then), (FileFault::NoSpace, then)]) {
        let mut failures = 0;
        for operation in 0.. {
            let env = SimulatedEnv::new(operation);
            let mut shelf = loaded(&env);
            shelf.checkpoint();
            shelf.delete(0..ROWS);
            shelf.load(ROWS..2 * ROWS);
            let left: Vec<i64> = (ROWS..2 * ROWS).collect();
            let fail = |after| env.simulated_files().fail_at(env.simulated_files().operations() + after, fault);
            let all = env.simulated_files().operations() + operation;
            fail(operation);
            let outcome = shelf.try_checkpoint();
            if env.simulated_files().operations() <= all {
                break;
            }
            failures += u32::from(outcome.is_err());
            let left_over = files(&env).into_iter().find(|(path, bytes)| is(path, "data") && bytes.is_empty());
            assert_eq!(left_over, None, "{outcome:?}");
            let what = format!("{fault:?} at operation {operation}, {then:?}: {outcome:?}");
            match then {
                Then::ProcessKilled | Then::PowerLost => {}
                Then::AnotherCheckpoint => {
                    let again = shelf.try_checkpoint();
                    let of_log = |outcome: &Result<_, _>| format!("{outcome:?}").contains("LogFailed");
                    assert!(again.is_ok() || of_log(&outcome) || fault == FileFault::NoSpace, "{what}; {again:?}");
                }
                Then::AnotherFailure => {
                    fail(operation);
                    // Whatever comes of it.
                    let _ = shelf.try_checkpoint();
                }
            }
            drop(shelf);
            if then == Then::PowerLost {
                env.lose_power();
            } else {
                env.kill_process();
            }
            assert_eq!(open_or_panic(&env).keys(), left, "{what}");
            env.lose_power();
            assert_eq!(open_or_panic(&env).keys(), left, "later, {what}");
        }
        assert!(failures > 5, "{fault:?}: {failures} operations failed");
    }
}

const HALF_A_CHECKPOINT: &[u8] = b"half a checkpoint";

/// What checkpoints leave behind that end in the middle: the first has the number of the next one.
fn leave_orphans(env: &SimulatedEnv) -> Vec<String> {
    let data = files(env).into_iter().filter(|(path, _)| is(path, "data")).map(|(path, _)| path);
    let last = data.max().expect("a checkpoint was taken");
    let number = last.rsplit('/').next().and_then(|name| name.strip_suffix(".data")?.parse::<u64>().ok());
    let number = number.expect("files are numbered");
    let orphans = (1..=2).map(|next| format!("{PATH}/checkpoint/{:08}.data", number + next)).collect::<Vec<_>>();
    for path in &orphans {
        env.simulated_files().insert(path, HALF_A_CHECKPOINT);
    }
    orphans
}

/// The same while a database is opened that ended without being closed, in the middle of a checkpoint. If it opens all
/// the same, the next checkpoint is taken, and what was left behind goes at the latest then.
#[test]
fn no_failing_operation_of_opening_takes_anything() {
    for fault in [FileFault::Broken, FileFault::NoSpace] {
        let (mut failures, mut stays) = (0, Vec::new());
        for operation in 0.. {
            let env = SimulatedEnv::new(operation);
            let mut shelf = loaded(&env);
            shelf.checkpoint();
            shelf.delete(0..ROWS / 2);
            shelf.insert(ROWS..ROWS + 50);
            drop(shelf);
            env.lose_power();
            let orphans = leave_orphans(&env);
            let left: Vec<i64> = (ROWS / 2..ROWS + 50).collect();
            let at = env.simulated_files().operations() + operation;
            env.simulated_files().fail_at(at, fault);
            let opened = try_open(&env, &options());
            if env.simulated_files().operations() <= at {
                break;
            }
            failures += u32::from(opened.is_err());
            if let Ok(mut shelf) = opened {
                let there = |orphan: &&String| {
                    env.simulated_files().contents(orphan).is_some_and(|bytes| bytes == HALF_A_CHECKPOINT)
                };
                let stayed = orphans.iter().filter(there).count();
                stays.extend((stayed > 0).then_some(stayed));
                // Without room it may be this one that fails.
                let of_fault = fault == FileFault::NoSpace && shelf.try_checkpoint().is_err();
                shelf.try_checkpoint().unwrap_or_else(|error| {
                    panic!("{fault:?} at operation {operation}: {error}, after {orphans:?} stayed, {of_fault}")
                });
                assert_eq!(orphans.iter().filter(there).count(), 0, "{fault:?} at operation {operation}");
            }
            env.kill_process();
            assert_eq!(open_or_panic(&env).keys(), left, "{fault:?} at operation {operation}");
            env.lose_power();
            assert_eq!(open_or_panic(&env).keys(), left, "{fault:?} at operation {operation}");
        }
        assert!(failures > 1, "{fault:?}: {failures} operations failed");
        stays.sort_unstable();
        // One cannot be removed, or the other, or they are not found.
        let expected: &[usize] = if fault == FileFault::Broken { &[1, 1, 2] } else { &[] };
        assert_eq!(stays, expected, "{fault:?}: how many orphans stay");
    }
}

#[test]
fn layouts_and_statistics_survive() {
    let env = SimulatedEnv::new(3);
    let mut shelf = loaded(&env);
    let engine = shelf.engine();
    let rows =
        SegmentLayouts { open: PhysicalLayout::single(ROW_STATIC, 2), sealed: PhysicalLayout::single(ROW_STATIC, 2) };
    let partition = engine.access_statistics(TABLE).expect("there is a table")[0].0;
    let layouts = rows.clone();
    let set = async move { engine.set_layout(TABLE, Some(partition), Some(layouts)).await };
    shelf.simulation.block_on(set).expect("ends").expect("sets");
    for _ in 0..3 {
        shelf.keys();
    }
    let before: Vec<_> = histories(&shelf);
    assert_eq!(before[0].layouts.as_deref(), Some(&rows));
    assert!(before[0].accesses.reads >= 3 && before[0].accesses.attributes[0].links >= 3, "{:?}", before[0]);
    shelf.checkpoint();
    let expected = histories(&shelf);
    shelf.close();
    let mut shelf = open_or_panic(&env);
    assert_eq!(histories(&shelf), expected);
    shelf.keys();
    assert!(histories(&shelf)[0].accesses.reads > expected[0].accesses.reads, "and they go on");
}

fn histories(shelf: &Shelf) -> Vec<PartitionHistory> {
    let of_table = |history: &PartitionHistory| history.container == TABLE;
    shelf.engine().partition_histories().into_iter().filter(of_table).collect()
}
