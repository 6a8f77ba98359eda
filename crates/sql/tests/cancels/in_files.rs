//! A statement that goes on in temporary files hears that it is cancelled there, and leaves none.

use std::thread;
use std::time::{Duration, Instant};

use eris_sql::DatabaseOptions;

use super::{HEARD_MAX, ROWS, big_rows};
use crate::support::{Client, Instance};

/// A statement may be over before it is cancelled, but not so often in a row.
const TRIES_MAX: usize = 100;

/// Runs a statement and cancels it once it has written to files; how many bytes it had written by then.
fn cancelled_in_files(instance: &Instance, mut client: Client, sql: &'static str) -> (Client, u64) {
    let files = instance.database.temp_files();
    for _ in 0..TRIES_MAX {
        let before = files.statistics().written_bytes;
        let written = || files.statistics().written_bytes - before;
        let handle = client.session().cancel_handle();
        let running = thread::spawn(move || {
            let answer = client.run(sql).map(drop);
            (client, answer)
        });
        let begun = Instant::now();
        while written() == 0 && !running.is_finished() {
            assert!(begun.elapsed() < HEARD_MAX, "{sql} writes to files");
            thread::sleep(Duration::from_micros(100));
        }
        let written_by_then = written();
        while !running.is_finished() {
            handle.cancel();
            thread::sleep(Duration::from_millis(1));
            assert!(begun.elapsed() < HEARD_MAX, "{sql} goes on");
        }
        let (back, answer) = running.join().unwrap();
        client = back;
        match answer {
            Err(error) if error.sqlstate.as_str() == "57014" => return (client, written_by_then),
            Err(error) => panic!("{sql}: {error}"),
            Ok(()) => assert!(written() > 0, "{sql} fits into memory"),
        }
    }
    panic!("{sql} is always over before it is cancelled")
}

#[test]
fn a_statement_in_files_is_cancelled_and_leaves_none() {
    let instance = Instance::start(2, 1, DatabaseOptions::default());
    let files = instance.database.temp_files();
    let mut client = instance.session();
    client.ok("CREATE TABLE big (id int PRIMARY KEY, n int, s text)");
    client.run_with("COPY big FROM STDIN (FORMAT csv)", &[], Some(&big_rows())).unwrap();
    client.ok("SET work_mem = '64kB'");
    for sql in [
        "SELECT s, n FROM big ORDER BY s DESC, n",
        "SELECT s, count(*), sum(n) FROM big GROUP BY s",
        "SELECT count(*), sum(a.id) FROM big a JOIN big b ON a.n = b.n",
        "SELECT sum(w) FROM (SELECT sum(n) OVER (PARTITION BY n % 7 ORDER BY s) AS w FROM big) x",
    ] {
        let (back, written) = cancelled_in_files(&instance, client, sql);
        client = back;
        assert!(written > 0, "{sql} was cancelled before it wrote to files");
        // The queue of the files lets go of them a moment after its answer.
        let deadline = Instant::now() + HEARD_MAX;
        while files.statistics().used_bytes > 0 {
            assert!(Instant::now() < deadline, "{sql} leaves files: {:?}", files.statistics());
            thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(client.rows("SELECT count(*) FROM big"), [ROWS.to_string()], "the session goes on");
    }
}
