//! Temporary files: where they lie, how much may be written there, and rows that wait in them for their client.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::future::{Future, poll_fn};
use std::path::PathBuf;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use eris_engine::{Engine, EngineOptions, Event};
use eris_platform::TempDirectory;
use eris_sql::{DatabaseOptions, Outcome, SessionOptions};
use eris_storage::Value;
use support::{Client, Instance};

const SORT: &str = "SELECT id FROM t ORDER BY text, id DESC";

fn filled(options: DatabaseOptions) -> (Instance, Client) {
    let instance = Instance::start(2, 1, options);
    let mut client = instance.session();
    client.ok("CREATE TABLE t (id int PRIMARY KEY, text text)");
    let lines: String = (0..3_000).map(|id| format!("{id},text\n")).collect::<Vec<_>>().concat();
    client.run_with("COPY t FROM STDIN (FORMAT csv)", &[], Some(&lines)).unwrap();
    client.ok("SET work_mem = '1B'");
    (instance, client)
}

/// With 0 a statement that needs a file fails, and one that needs none does not; -1 is no limit.
#[test]
fn a_limit_of_nothing_is_for_statements_that_need_files() {
    let (_instance, mut client) = filled(DatabaseOptions::default());
    assert_eq!(client.rows("SHOW temp_file_limit"), ["-1"]);
    client.ok("SET temp_file_limit = 0");
    assert_eq!(client.rows("SHOW temp_file_limit"), ["0B"]);
    assert_eq!(client.state(SORT), "53400");
    assert_eq!(client.rows("SELECT count(*) FROM t"), ["3000"]);
    client.ok("SET temp_file_limit = -1");
    assert_eq!(client.rows(SORT).len(), 3_000);
    drop(client);
    let (_instance, mut client) =
        filled(DatabaseOptions { temp_file_limit_bytes: Some(0), ..DatabaseOptions::default() });
    assert_eq!(client.rows("SHOW temp_file_limit"), ["0B"]);
    assert_eq!(client.state(SORT), "53400");
    client.ok("SET temp_file_limit = '1GB'");
    assert_eq!(client.rows(SORT).len(), 3_000);
    client.ok("RESET temp_file_limit");
    assert_eq!(client.state(SORT), "53400");
}

/// A directory that others share: what they called similarly stays.
#[test]
fn files_of_others_stay_in_a_shared_directory() {
    let path: PathBuf = std::env::temp_dir().join(format!("eris-shared-temp-{}", std::process::id()));
    std::fs::create_dir_all(&path).unwrap();
    for name in ["spill-over.tmp", "spill-0123456789abcdef-7.tmp"] {
        std::fs::write(path.join(name), "").unwrap();
    }
    let (instance, mut client) = filled(DatabaseOptions::default());
    let directory = TempDirectory { path: path.clone(), is_own: false, keeps_free_bytes: 0 };
    instance.database.keep_temp_files_in(directory).unwrap();
    assert_eq!(client.rows(SORT).len(), 3_000);
    let left: Vec<_> = std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["spill-over.tmp"]);
    std::fs::remove_dir_all(&path).unwrap();
}

/// A quarter of a million rows of 100 bytes and more, made of 500.
const MANY_WIDE_ROWS: &str = "SELECT a.n * 500 + b.n AS k, lpad((b.n * 500 + a.n)::text, 100, '0') AS t FROM s a, s b";

/// What a future gives within this time, which is none for one that waits for ever.
async fn within<T>(engine: &Engine, time: Duration, future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    let mut late = pin!(engine.sleep_until(engine.env().now() + time));
    poll_fn(|context| {
        if let Poll::Ready(done) = future.as_mut().poll(context) {
            return Poll::Ready(Some(done));
        }
        late.as_mut().poll(context).map(|()| None)
    })
    .await
}

/// What rows hold, in memory and in files, that a client does not take while others want memory; then it takes them:
/// the first column of all. `prepare` is run before.
fn taken_late(instance: &Instance, prepare: &str, sql: &str) -> ([u64; 2], Vec<i64>) {
    let mut session = instance.database.session(SessionOptions::default());
    let (engine, files) = (instance.database.engine().clone(), instance.database.temp_files());
    let (prepare, sql) = (prepare.to_string(), sql.to_string());
    let running = engine.clone();
    let work = async move {
        support::run(&mut session, &prepare, &[], None).await.unwrap();
        let memory = running.memory();
        let before = memory.used();
        let statement = session.parse(&sql, &[]).unwrap().remove(0);
        let Ok(Outcome::Rows(mut rows)) = session.execute(&statement, &[]).await else { panic!("{sql}") };
        // Memory is not short yet.
        let patience = Duration::from_millis(800);
        assert!(within(&running, patience, rows.are_in_the_way()).await.is_none(), "{sql}");
        let others = memory.reserve("others");
        others.grow(memory.free() - memory.limit() / 8).unwrap();
        while within(&running, patience, rows.are_in_the_way()).await.is_some() {
            rows.set_aside().await.unwrap();
        }
        let held = memory.used().saturating_sub(before + others.bytes());
        let held = [held, files.statistics().used_bytes];
        let mut taken = Vec::new();
        while let Some(batch) = rows.next().await.unwrap() {
            taken.extend((0..batch.rows).map(|row| match batch.value(row, 0) {
                Value::Int32(n) => i64::from(n),
                Value::Int64(n) => n,
                other => panic!("{other:?}"),
            }));
        }
        assert_eq!(rows.finish().await.unwrap().to_string(), format!("SELECT {}", taken.len()));
        (held, taken)
    };
    engine.block_on(work).unwrap()
}

/// Rows of a sort, of a join that is still under way, and such that were collected give way to others when their client
/// takes its time; each comes once, in order. Where files are not to be had they stay, and nothing is lost.
#[test]
fn rows_that_wait_for_their_client_are_set_aside() {
    let engine = EngineOptions {
        workers: 2,
        nodes: 1,
        memory_limit_bytes: 128 << 20,
        // What else this process holds does not count.
        memory_watched: false,
        ..EngineOptions::default()
    };
    let instance = Instance::with_engine(engine, DatabaseOptions::default());
    let mut client = instance.session();
    client.ok("CREATE TABLE s (n int PRIMARY KEY)");
    let lines: String = (0..500).map(|n| format!("{n}\n")).collect::<Vec<_>>().concat();
    client.run_with("COPY s FROM STDIN (FORMAT csv)", &[], Some(&lines)).unwrap();
    let sorted = format!("SELECT k, t FROM ({MANY_WIDE_ROWS}) q ORDER BY t");
    let in_order: Vec<i64> = (0..500).flat_map(|b| (0..500).map(move |a| a * 500 + b)).collect();
    let ([held, in_files], taken) = taken_late(&instance, "SELECT 1", &sorted);
    assert!(held < 4 << 20 && in_files > 1 << 20, "{held} bytes held, {in_files} in files");
    assert!(taken == in_order);
    for (prepare, in_files_max) in [("SET temp_file_limit = 0", 0), ("SET temp_file_limit = '256kB'", 256 << 10)] {
        let ([held, in_files], taken) = taken_late(&instance, prepare, &sorted);
        assert!(held > 20 << 20 && in_files <= in_files_max, "{prepare}: {held} bytes held, {in_files} in files");
        assert!(taken == in_order, "{prepare}");
    }
    client.ok("CREATE TABLE wide (k int, t text)");
    client.ok(&format!("INSERT INTO wide {MANY_WIDE_ROWS}"));
    for (sql, count) in [
        ("SELECT v.k, w.t FROM wide v JOIN wide w ON v.k = w.k", 250_000),
        ("SELECT v.k, w.t FROM wide v JOIN wide w ON v.k = w.k OFFSET 1000 LIMIT 200000", 200_000),
        ("SELECT k, t FROM wide UNION ALL SELECT -k, t FROM wide", 500_000),
    ] {
        let ([held, in_files], taken) = taken_late(&instance, "SELECT 1", sql);
        assert!(held < 4 << 20 && in_files > 1 << 20, "{sql}: {held} bytes held, {in_files} in files");
        assert_eq!(taken.len(), count, "{sql}");
    }
}

/// If a sink in files hands back each batch, the polls per batch do not grow with the number of batches: joins of joins
/// of 16 times as many rows cost about 16 times the polls, not 256 times.
#[test]
fn batches_that_are_handed_back_cost_rounds_of_few() {
    let instance = Instance::start(2, 1, DatabaseOptions::default());
    let mut client = instance.session();
    client.ok("SET work_mem = '1B'");
    let mut polls = |rows: i32| {
        client.ok("DROP TABLE IF EXISTS r");
        client.ok("CREATE TABLE r (k int PRIMARY KEY, a int, b int)");
        let lines: String = (0..rows).map(|k| format!("{k},{},{}\n", k / 2, k % 100)).collect::<Vec<_>>().concat();
        client.run_with("COPY r FROM STDIN (FORMAT csv)", &[], Some(&lines)).unwrap();
        let polled = || instance.database.engine().statistics().event(Event::TaskPolls);
        let before = polled();
        let sql = "SELECT x.b, count(*) FROM r x JOIN r y ON x.k = y.k JOIN r z ON y.a = z.k GROUP BY x.b";
        assert_eq!(client.rows(sql).len(), 100);
        polled() - before
    };
    let (few, many) = (polls(2_000), polls(32_000));
    assert!(many < few * 64, "{few} polls for 2,000 rows, {many} for 32,000");
}
