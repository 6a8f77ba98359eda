//! What COPY holds unaccounted. In a process of its own: it is the process's memory that is looked at.

#![cfg(target_env = "gnu")]
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::fmt::Write as _;
use std::io::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use eris_engine::{Engine, EngineOptions};
use eris_platform::CountingAllocator;
use eris_platform::allocator::heap_bytes;
use eris_sql::{DatabaseOptions, Outcome, Session, SessionOptions, SqlError};
use support::Instance;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

const MIB: u64 = 1 << 20;
/// Bytes of a long text.
const TEXT_BYTES: usize = 200_000;
/// Batches under way, what the vectors of an open segment have beside what they need, and the test's own bytes.
const UNACCOUNTED_MAX: u64 = 48 * MIB;

/// Tests look at the memory of the process: one at a time.
static ALONE: Mutex<()> = Mutex::new(());

fn instance(limit: u64) -> Instance {
    let engine = EngineOptions {
        workers: 2,
        nodes: 1,
        memory_limit_bytes: limit,
        // What is unaccounted is looked at here.
        memory_watched: false,
        ..EngineOptions::default()
    };
    Instance::with_engine(engine, DatabaseOptions::default())
}

fn unaccounted(engine: &Engine) -> u64 {
    heap_bytes().expect("counted").saturating_sub(engine.memory().used())
}

/// A row with a long text that is that of no other.
fn row(id: u64) -> String {
    let mut row = format!("{id}\t");
    let word = format!("{:016x}", id.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    row.push_str(&word.repeat(TEXT_BYTES / word.len()));
    row.push('\n');
    row
}

async fn start<'s>(session: &'s mut Session, sql: &str) -> eris_sql::CopyIn<'s> {
    let statement = session.parse(sql, &[]).unwrap().pop().expect("a statement");
    match session.execute(&statement, &[]).await.unwrap() {
        Outcome::CopyIn(copy) => copy,
        _ => panic!("{sql} takes no data"),
    }
}

/// Copies so many long rows; what came of it, and the most that was unaccounted meanwhile.
fn copy_rows(instance: &Instance, rows: u64) -> (Result<(), SqlError>, u64) {
    let engine = instance.database.engine().clone();
    let mut session = instance.database.session(SessionOptions::default());
    let looking = engine.clone();
    let copy = async move {
        let before = unaccounted(&looking);
        let mut most = 0;
        let mut copy = start(&mut session, "COPY t FROM STDIN").await;
        for id in 0..rows {
            for piece in row(id).as_bytes().chunks(32 << 10) {
                if let Err(error) = copy.data(piece).await {
                    return (Err(error), most);
                }
                most = most.max(unaccounted(&looking).saturating_sub(before));
            }
        }
        (copy.finish().await.map(drop), most)
    };
    engine.block_on(copy).expect("the engine runs")
}

fn wait_for_memory(engine: &Engine, bytes: u64) {
    let patience = Instant::now() + Duration::from_secs(30);
    while engine.memory().used() > bytes {
        let consumers = engine.memory().by_consumer();
        assert!(Instant::now() < patience, "more than {bytes} bytes stay reserved: {consumers:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// More than the limit is refused, less is stored, and on the way little is held that was not reserved.
#[test]
fn long_rows_are_reserved_while_they_are_copied() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let instance = instance(256 * MIB);
    let engine = instance.database.engine();
    let mut client = instance.session();
    client.ok("CREATE TABLE t (id bigint PRIMARY KEY, name text)");
    let before = engine.memory().used();
    let (copied, most) = copy_rows(&instance, 1_500);
    let error = copied.expect_err("300 MB do not fit into 256 MiB");
    assert_eq!(error.sqlstate.as_str(), "53200", "{error}");
    assert!(error.hint.as_deref().is_some_and(|hint| hint.contains("--memory-limit")), "{error}");
    assert!(most <= UNACCOUNTED_MAX, "{most} bytes were held unaccounted");
    // An open segment is left, with room for rows of 1/32 of the limit.
    wait_for_memory(engine, before + 9 * MIB);
    assert_eq!(client.rows("SELECT count(*) FROM t"), ["0"]);
    let (copied, most) = copy_rows(&instance, 200);
    copied.expect("40 MB fit");
    assert!(most <= UNACCOUNTED_MAX, "{most} bytes were held unaccounted");
    let bytes = 200 * (TEXT_BYTES / 16 * 16);
    assert_eq!(client.rows("SELECT count(*), sum(length(name)) FROM t"), [format!("200|{bytes}")]);
    let copying = engine.memory().by_consumer().into_iter().find(|(name, _)| *name == "copy");
    assert_eq!(copying, Some(("copy", 0)));
}

/// The same from a file, which is read in pieces.
#[test]
fn long_rows_of_a_file_are_reserved_while_they_are_copied() {
    const ROWS: u64 = 500;
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let path = std::env::temp_dir().join(format!("eris-copy-memory-{}", std::process::id()));
    let mut file = std::io::BufWriter::new(std::fs::File::create(&path).unwrap());
    (0..ROWS).for_each(|id| file.write_all(row(id).as_bytes()).unwrap());
    drop(file.into_inner().unwrap());
    let instance = instance(512 * MIB);
    let engine = instance.database.engine().clone();
    let mut client = instance.session();
    client.ok("CREATE TABLE t (id bigint PRIMARY KEY, name text)");
    let before = unaccounted(&engine);
    let over = AtomicBool::new(false);
    let most = std::thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            let mut most = 0;
            while !over.load(Ordering::Relaxed) {
                most = most.max(unaccounted(&engine).saturating_sub(before));
                std::thread::sleep(Duration::from_micros(500));
            }
            most
        });
        let copied = client.run(&format!("COPY t FROM '{}'", path.display()));
        over.store(true, Ordering::Relaxed);
        std::fs::remove_file(&path).unwrap();
        copied.expect("100 MB fit");
        watcher.join().expect("it watches")
    });
    assert_eq!(client.rows("SELECT count(*) FROM t"), [ROWS.to_string()]);
    assert!(most <= UNACCOUNTED_MAX, "{most} bytes were held unaccounted");
}

/// Lines that never end, of many sessions at once: those for which there is no memory are refused, and the sessions go
/// on. Nothing of them stays reserved.
#[test]
fn lines_without_end_are_reserved_and_refused() {
    const SESSIONS: usize = 8;
    const LINE_BYTES: usize = 40 << 20;
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let limit = 64 * MIB;
    let instance = instance(limit);
    let engine = instance.database.engine().clone();
    instance.session().ok("CREATE TABLE t (id bigint PRIMARY KEY, name text)");
    let used_before = engine.memory().used();
    let mut sessions: Vec<Session> =
        (0..SESSIONS).map(|_| instance.database.session(SessionOptions::default())).collect();
    let looking = engine.clone();
    let work = async move {
        let before = unaccounted(&looking);
        let (mut most, mut refused) = (0, Vec::new());
        let mut copies = Vec::new();
        for (number, session) in sessions.iter_mut().enumerate() {
            let sql = if number % 2 == 0 { "COPY t FROM STDIN" } else { "COPY t FROM STDIN (FORMAT csv)" };
            let mut copy = start(session, sql).await;
            copy.data(if number % 2 == 0 { b"1\t" } else { b"1,\"\n" }).await.unwrap();
            copies.push(Some(copy));
        }
        let piece = vec![b'x'; 64 << 10];
        for _ in 0..LINE_BYTES / piece.len() {
            for copy in &mut copies {
                if let Some(some) = copy
                    && let Err(error) = some.data(&piece).await
                {
                    refused.push(error);
                    *copy = None;
                }
            }
            most = most.max(unaccounted(&looking).saturating_sub(before));
        }
        for copy in copies.into_iter().flatten() {
            assert_eq!(copy.fail("enough").await.sqlstate.as_str(), "57014");
        }
        let mut counted = Vec::new();
        for session in &mut sessions {
            counted.push(support::run(session, "SELECT count(*) FROM t", &[], None).await.map(|answer| answer.rows));
        }
        (most, refused, counted)
    };
    let (most, refused, counted) = engine.block_on(work).expect("the engine runs");
    assert!(!refused.is_empty() && refused.len() <= SESSIONS, "{} are refused", refused.len());
    for error in &refused {
        assert_eq!(error.sqlstate.as_str(), "53200", "{error}");
        assert_eq!(error.context.as_deref(), Some("COPY t, line 1"), "{error}");
    }
    assert!(most <= UNACCOUNTED_MAX / 2, "{most} bytes were held unaccounted");
    assert!(engine.memory().peak() <= limit);
    for rows in counted {
        assert_eq!(rows.expect("the session goes on"), [[Some("0".to_owned())]]);
    }
    wait_for_memory(&engine, used_before + MIB);
}

/// A row that is wrong after many that are right: nothing of them stays, nor anything reserved.
#[test]
fn an_error_in_the_middle_leaves_nothing_reserved() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let instance = instance(256 * MIB);
    let mut client = instance.session();
    client.ok("CREATE TABLE t (id bigint PRIMARY KEY, name text)");
    let memory = instance.database.engine().memory();
    let before = memory.used();
    let mut data = String::new();
    (0..2_000).for_each(|id| writeln!(data, "{id},{}", "x".repeat(2_000)).unwrap());
    data.push_str("no number,x\n");
    for _ in 0..3 {
        let error = client.run_with("COPY t FROM STDIN (FORMAT csv)", &[], Some(&data)).unwrap_err();
        assert_eq!(error.sqlstate.as_str(), "22P02", "{error}");
        assert_eq!(memory.by_consumer().into_iter().find(|(name, _)| *name == "copy"), Some(("copy", 0)));
        assert_eq!(client.rows("SELECT count(*) FROM t"), ["0"]);
    }
    wait_for_memory(instance.database.engine(), before + 4 * MIB);
}
