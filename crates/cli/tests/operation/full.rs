//! A database that was filled up to its memory limit is opened again with the same limit, whether it was told to end or
//! not, and can be emptied.

use std::time::{Duration, Instant};

use eris_workloads::connection::SqlConnection;
use eris_workloads::postgres::PostgresConnection;

use super::memory::{LIMIT, accounted_bytes, peak_bytes};
use super::{PATIENCE, Process};
use crate::support::{Place, eris, serve};

/// Rows that are copied at a time.
const ROWS: i64 = 50_000;

fn start(place: &Place) -> Process {
    let mut command = serve(eris(), &place.path("db"));
    command.args(["--memory-limit", &LIMIT.to_string()]);
    Process::start(command).unwrap_or_else(|(_, text)| panic!("{text}"))
}

/// Ends it as a machine does that loses its power, and opens its database again.
fn start_again(server: Process, place: &Place) -> Process {
    server.signal(libc::SIGKILL);
    server.end();
    start(place)
}

/// Copies rows until there is no memory for more.
fn fill(session: &mut PostgresConnection, columns: impl Fn(u64) -> String) -> i64 {
    let mut rows = 0;
    loop {
        let line = |id| format!("{id}\t{}\n", columns(id as u64));
        let lines = (rows..rows + ROWS).map(line).collect::<Vec<_>>().concat();
        match session.copy_in("COPY t FROM STDIN", &mut std::iter::once(lines.into_bytes())) {
            Ok(copied) => rows += copied as i64,
            Err(error) => {
                assert_eq!(error.sqlstate, "53200", "{error}");
                return rows;
            }
        }
    }
}

#[test]
fn a_full_database_is_opened_by_a_process_with_the_limit_that_it_had() {
    let place = Place::new("operation-full");
    let mut server = start(&place);
    let mut session = server.try_connect().unwrap();
    session.execute("CREATE TABLE t (id bigint PRIMARY KEY, k int, name text)", &[]).unwrap();
    let rows = fill(&mut session, |id| format!("{}\t{:016x}", id % 97, id.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
    assert!(rows >= 20 * ROWS, "{rows} rows");
    let peak = |server: &Process| {
        let bytes = peak_bytes(server);
        assert!(bytes <= LIMIT + LIMIT / 32, "{bytes} bytes resident");
        bytes
    };
    println!("{rows} rows, {} bytes resident", peak(&server));
    for checkpoint in [false, true] {
        if checkpoint {
            session.execute("CHECKPOINT", &[]).unwrap();
        }
        drop(session);
        server = start_again(server, &place);
        println!("opened, {} bytes resident, behind a checkpoint: {checkpoint}", peak(&server));
        session = server.try_connect().unwrap();
        assert_eq!(server.run("SELECT count(*) FROM t").unwrap(), Some(rows));
        let last = format!("SELECT k FROM t WHERE id = {}", rows - 1);
        assert_eq!(server.run(&last).unwrap(), Some((rows - 1) % 97));
    }
    // Two of three, so that no more than two lie beside each other; then all.
    let kept = (rows + 2) / 3;
    for (condition, deleted, left) in [("id % 3 > 0", rows - kept, kept), ("true", kept, 0)] {
        let delete = format!("DELETE FROM t WHERE {condition}");
        let before = accounted_bytes(&mut session).unwrap();
        assert_eq!(session.execute(&delete, &[]).unwrap().rows_affected, deleted as u64);
        // What is left moves together, so that most of the memory is free again.
        let begun = Instant::now();
        while accounted_bytes(&mut session).is_none_or(|bytes| bytes > before * 2 / 3) {
            assert!(begun.elapsed() < PATIENCE, "where {condition}: {before} bytes were accounted and still are");
            std::thread::sleep(Duration::from_millis(50));
        }
        println!("deleted where {condition}, {} bytes resident", peak(&server));
        assert_eq!(server.run("SELECT count(*) FROM t").unwrap(), Some(left));
    }
    drop(session);
    server = start_again(server, &place);
    println!("emptied and opened, {} bytes resident", peak(&server));
    assert_eq!(server.run("SELECT count(*) FROM t").unwrap(), Some(0));
    server.run("INSERT INTO t VALUES (1, 2, 'three')").unwrap();
    server.stop();
}
