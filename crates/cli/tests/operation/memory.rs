//! A process with a memory limit, as the operating system counts it: one statement at a time, and many sessions whose
//! statements do not fit together.

use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::ScopedJoinHandle;

use eris_workloads::connection::{SqlConnection, SqlFailure, SqlValue};
use eris_workloads::postgres::PostgresConnection;

use super::Process;
use crate::support::{Place, eris, serve};

/// Rows of the table; its columns take about 60 bytes of each.
const ROWS: i64 = 400_000;
/// The least limit that bounds the process, not only what is accounted for.
const LIMIT: u64 = 256 << 20;

/// The most memory that a process ever had resident.
fn peak_bytes(server: &Process) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.child.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().strip_suffix(" kB").unwrap().parse::<u64>().unwrap() * 1024
}

fn run(session: &mut PostgresConnection, sql: &str) -> Result<Vec<Vec<Option<i64>>>, SqlFailure> {
    let answer = session.execute(sql, &[])?;
    Ok(answer.rows.iter().map(|row| row.iter().map(SqlValue::as_int).collect()).collect())
}

/// A server under the limit, with a table that takes a small part of it.
fn filled(place: &Place) -> Process {
    let mut command = serve(eris(), &place.path("db"));
    command.args(["--memory-limit", &LIMIT.to_string()]);
    let server = Process::start(command).unwrap_or_else(|(_, text)| panic!("{text}"));
    let mut session = server.try_connect().unwrap();
    let digits: Vec<String> = (0..10).map(|n| format!("({n})")).collect();
    for sql in [
        "CREATE TABLE digits (n bigint PRIMARY KEY)".to_owned(),
        format!("INSERT INTO digits VALUES {}", digits.join(", ")),
        "CREATE TABLE t (id bigint PRIMARY KEY, k bigint, name text)".to_owned(),
    ] {
        session.execute(&sql, &[]).unwrap_or_else(|error| panic!("{sql}: {error}"));
    }
    let places = "a.n * 10000 + b.n * 1000 + c.n * 100 + d.n * 10 + e.n";
    for first in (0..ROWS).step_by(100_000) {
        let sql = format!(
            "INSERT INTO t SELECT {first} + n, (n + {first}) * 7919 % {ROWS}, 'row ' || CAST(n AS text) || ' of many' \
             FROM (SELECT {places} AS n FROM digits a, digits b, digits c, digits d, digits e) numbers"
        );
        session.execute(&sql, &[]).unwrap_or_else(|error| panic!("{sql}: {error}"));
    }
    server
}

/// Statements over ten times the rows of the table, with their one row of answer.
fn too_large() -> [(&'static str, Vec<Option<i64>>); 4] {
    let sum = Some((0..ROWS).sum::<i64>());
    let copies = Some(10 * ROWS);
    [
        (
            "SELECT id, n FROM (SELECT id, d.n, repeat(name, 4) AS long FROM t, digits d) s ORDER BY long, id, n \
             OFFSET 3999999",
            vec![Some(ROWS - 1), Some(9)],
        ),
        (
            "SELECT count(least), sum(many) FROM (SELECT k * 10 + d.n AS g, count(*) AS many, min(name) AS least \
             FROM t, digits d GROUP BY 1) groups",
            vec![copies, copies],
        ),
        (
            "SELECT count(*), sum(a.k) / 10 FROM (SELECT k, n, name FROM t, digits d) a \
             JOIN (SELECT k, n, name FROM t, digits d) b ON a.k = b.k AND a.n = b.n AND a.name <> ''",
            vec![copies, sum],
        ),
        (
            "SELECT count(name), sum(place) FROM (SELECT rank() OVER (PARTITION BY k ORDER BY d.n) AS place, name \
             FROM t, digits d) ranked",
            vec![copies, Some(55 * ROWS)],
        ),
    ]
}

#[test]
fn one_statement_after_the_other_keeps_the_process_within_its_limit() {
    let place = Place::new("operation-memory");
    let server = filled(&place);
    let mut session = server.try_connect().unwrap();
    for (sql, expected) in too_large() {
        assert_eq!(run(&mut session, sql).unwrap_or_else(|error| panic!("{sql}: {error}")), [expected], "{sql}");
        assert!(peak_bytes(&server) <= LIMIT, "{} bytes resident after {sql}", peak_bytes(&server));
    }
    // Without files some of them do not fit, and leave nothing behind.
    session.execute("SET temp_file_limit = 0", &[]).unwrap();
    let mut refused = 0;
    for (sql, expected) in too_large() {
        match run(&mut session, sql) {
            Ok(rows) => assert_eq!(rows, [expected], "{sql}"),
            Err(error) => {
                assert_eq!(error.sqlstate, "53400", "{sql}: {error}");
                refused += 1;
            }
        }
        assert!(peak_bytes(&server) <= LIMIT, "{} bytes resident after {sql}", peak_bytes(&server));
    }
    assert!(refused >= 2, "{refused} of them need files");
    session.execute("RESET temp_file_limit", &[]).unwrap();
    let (sql, expected) = &too_large()[1];
    assert_eq!(run(&mut session, sql).unwrap(), std::slice::from_ref(expected));
    // The view tells where the process stands.
    let told = run(
        &mut session,
        "SELECT configured_bytes, in_force_bytes, accounted_bytes, resident_bytes \
                                  FROM eris.memory_limit",
    )
    .unwrap();
    let [Some(configured), Some(in_force), Some(accounted), Some(resident)] = told[0][..] else { panic!("{told:?}") };
    assert_eq!(configured, LIMIT as i64);
    assert!(in_force <= configured && (0..configured).contains(&accounted), "{told:?}");
    assert!((1..=peak_bytes(&server) as i64).contains(&resident), "{told:?}");
    drop(session);
    server.stop();
}

/// Sessions of which few have room at once: each is answered right or refused, and rows are found and changed beside
/// them.
#[test]
fn many_sessions_at_the_edge_of_the_limit_are_answered_or_refused() {
    const SESSIONS: i64 = 100;
    let place = Place::new("operation-memory-many");
    let server = filled(&place);
    let (answered, refused, over) = (Mutex::new(0), Mutex::new(Vec::new()), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let sorts: Vec<_> = (0..SESSIONS)
            .map(|number| {
                let (server, answered, refused) = (&server, &answered, &refused);
                scope.spawn(move || {
                    let mut session = server.try_connect().unwrap();
                    let last = ROWS - 1 - number;
                    let sql = format!("SELECT id FROM t ORDER BY id + 0, name OFFSET {last}");
                    match run(&mut session, &sql) {
                        Ok(rows) => {
                            assert!(rows.iter().map(|row| row[0]).eq((last..ROWS).map(Some)), "{rows:?}");
                            *answered.lock().unwrap() += 1;
                        }
                        Err(error) => refused.lock().unwrap().push(error),
                    }
                    match run(&mut session, "SELECT count(*) FROM digits") {
                        Ok(found) => assert_eq!(found, [[Some(10)]], "the session goes on"),
                        Err(error) => refused.lock().unwrap().push(error),
                    }
                })
            })
            .collect();
        let short = scope.spawn(|| {
            let mut session = server.try_connect().unwrap();
            let (mut done, mut refused) = (0, 0);
            while !over.load(Ordering::Relaxed) {
                let id = done * 48_271 % ROWS;
                for sql in
                    [format!("UPDATE t SET k = k + 1 WHERE id = {id}"), format!("SELECT id FROM t WHERE id = {id}")]
                {
                    match run(&mut session, &sql) {
                        Ok(found) => assert!(found.is_empty() || found == [[Some(id)]], "{sql}: {found:?}"),
                        Err(error) => {
                            assert_eq!(error.sqlstate, "53200", "{sql}: {error}");
                            refused += 1;
                        }
                    }
                }
                done += 1;
            }
            (done, refused)
        });
        let ended: Vec<_> = sorts.into_iter().map(ScopedJoinHandle::join).collect();
        over.store(true, Ordering::Relaxed);
        assert!(ended.into_iter().all(|sort| sort.is_ok()));
        // Memory that the allocator caches may keep the limit below what is used for longer than a change is retried.
        let (done, refused) = short.join().unwrap();
        assert!(done > 0 && refused * 50 <= done, "{refused} of {done} rows were refused");
    });
    let (answered, refused) = (answered.into_inner().unwrap(), refused.into_inner().unwrap());
    assert!(answered > 0, "{refused:?}");
    // Those that waited for a minute are told so; a machine that is slow has many of them.
    assert!(refused.iter().all(|error| error.sqlstate == "53200"), "{refused:?}");
    // 230 to 250 MiB as measured; between two looks of a worker that lost its processor it may be more.
    assert!(peak_bytes(&server) <= LIMIT + LIMIT / 8, "{} bytes resident", peak_bytes(&server));
    println!("{answered} answered, {} refused, {} bytes resident at most", refused.len(), peak_bytes(&server));
    server.stop();
    assert!(!Path::new(&place.path("db/temp")).exists() || no_files(&place.path("db/temp")));
}

fn no_files(directory: &str) -> bool {
    std::fs::read_dir(directory).unwrap().next().is_none()
}
