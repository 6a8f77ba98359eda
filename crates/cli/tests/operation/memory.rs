//! A process with a memory limit, as the operating system counts it: one statement at a time, and many sessions whose
//! statements do not fit together.

use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

use eris_workloads::connection::{SharedThread, SqlConnection, SqlFailure, SqlResult, SqlValue};
use eris_workloads::crowd::{self, Member};
use eris_workloads::postgres::PostgresConnection;

use super::{PATIENCE, Process};
use crate::support::{Place, eris, serve};

/// Rows of the table; its columns take about 60 bytes of each.
const ROWS: i64 = 400_000;
/// The least limit that bounds the process, not only what is accounted for.
pub(super) const LIMIT: u64 = 256 << 20;

/// The most memory that a process ever had resident.
pub(super) fn peak_bytes(server: &Process) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.child.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().strip_suffix(" kB").unwrap().parse::<u64>().unwrap() * 1024
}

fn numbers(answer: &SqlResult) -> Vec<Vec<Option<i64>>> {
    answer.rows.iter().map(|row| row.iter().map(SqlValue::as_int).collect()).collect()
}

fn run(session: &mut PostgresConnection, sql: &str) -> Result<Vec<Vec<Option<i64>>>, SqlFailure> {
    session.execute(sql, &[]).map(|answer| numbers(&answer))
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

/// Rows of 200 kB that do not fit, some that do, and lines without end of many sessions: refused or stored, and within
/// the limit.
#[test]
fn long_rows_that_are_copied_keep_the_process_within_its_limit() {
    const SESSIONS: usize = 20;
    const PIECE: usize = 64 << 10;
    let place = Place::new("operation-memory-copy");
    let server = filled(&place);
    let mut session = server.try_connect().unwrap();
    session.execute("CREATE TABLE texts (id bigint PRIMARY KEY, name text)", &[]).unwrap();
    let row = |id: u64| {
        let word = format!("{:016x}", id.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        format!("{id},{}\n", word.repeat(200_000 / word.len())).into_bytes()
    };
    let copy = "COPY texts FROM STDIN (FORMAT csv)";
    let refused = session.copy_in(copy, &mut (0..1_500).map(row)).unwrap_err();
    assert_eq!(refused.sqlstate, "53200", "{refused}");
    assert!(peak_bytes(&server) <= LIMIT + LIMIT / 8, "{} bytes resident", peak_bytes(&server));
    std::thread::scope(|scope| {
        for _ in 0..SESSIONS {
            scope.spawn(|| {
                let mut session = server.try_connect().unwrap();
                // Fifty megabytes of a field that does not end.
                let mut line = std::iter::once(b"1,\"".to_vec()).chain((0..800).map(|_| vec![b'x'; PIECE]));
                let refused = session.copy_in(copy, &mut line).unwrap_err();
                // Those that had the memory hear that the quote is missing.
                assert!(["53200", "22P04"].contains(&refused.sqlstate.as_str()), "{refused}");
                session.execute("SHOW work_mem", &[]).unwrap_or_else(|error| panic!("it goes on: {error}"));
            });
        }
    });
    assert!(peak_bytes(&server) <= LIMIT + LIMIT / 8, "{} bytes resident", peak_bytes(&server));
    // What those held is given back soon.
    let begun = Instant::now();
    loop {
        match session.copy_in(copy, &mut (0..100).map(row)) {
            Ok(rows) => break assert_eq!(rows, 100),
            Err(error) => assert!(error.sqlstate == "53200" && begun.elapsed() < PATIENCE, "{error}"),
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(run(&mut session, "SELECT count(*) FROM texts").unwrap(), [[Some(100)]]);
    assert!(peak_bytes(&server) <= LIMIT + LIMIT / 8, "{} bytes resident", peak_bytes(&server));
    println!("{} bytes resident at most", peak_bytes(&server));
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

/// Lets this process have so many descriptors; false if the system does not.
fn allow_descriptors(count: u64) -> bool {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: both calls get a valid pointer to a limit.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) != 0 {
            return false;
        }
        if limit.rlim_cur >= count {
            return true;
        }
        limit.rlim_cur = count;
        limit.rlim_max >= count && libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) == 0
    }
}

/// Temporary files that a server has open. They have no names any more, so its directory shows none of them.
fn open_temp_files(server: &Process) -> usize {
    let descriptors = std::fs::read_dir(format!("/proc/{}/fd", server.child.id())).unwrap();
    // Those that are closed meanwhile lead nowhere.
    let paths = descriptors.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
    paths.filter(|path| path.to_string_lossy().contains("/temp/spill-")).count()
}

/// What the server accounts for, unless it has no memory to say so.
pub fn accounted_bytes(session: &mut PostgresConnection) -> Option<i64> {
    run(session, "SELECT accounted_bytes FROM eris.memory_limit").ok()?[0][0]
}

/// The same once it stays as it is: maintenance seals rows that came a moment ago.
fn accounted_at_rest(session: &mut PostgresConnection) -> i64 {
    let (begun, mut last, mut same) = (Instant::now(), None, 0);
    while same < 10 && begun.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(50));
        let now = accounted_bytes(session);
        same = if now == last { same + 1 } else { 0 };
        last = now;
    }
    last.expect("nobody else is there who needs memory")
}

/// What a session of many was told.
type Answer = Result<SqlResult, SqlFailure>;

/// As many sessions as there may be, each with a sort of some five megabytes: far more than the limit together. Each is
/// answered right or refused, rows are found beside them, and at the end nothing of them is left.
#[test]
fn as_many_sessions_as_there_may_be_are_answered_or_refused() {
    /// One of a thousand is for what is done beside them.
    const SESSIONS: usize = 999;
    /// Each has a socket and a second descriptor of it to wait with.
    const DESCRIPTORS: u64 = 3_000;
    const SORTED: i64 = 20_000;
    /// Half of what one of their statements starts with, and a few bytes of each session.
    const SLACK: i64 = 2 << 20;
    if !allow_descriptors(DESCRIPTORS) {
        println!("skipped: a process may not have {DESCRIPTORS} descriptors (ulimit -n)");
        return;
    }
    let place = Place::new("operation-memory-most");
    let server = filled(&place);
    let mut beside = server.try_connect().unwrap();
    let key = format!("id * 7919 % {SORTED}");
    let text = format!("lpad(CAST({key} AS text), 6, '0') || ' of many rows'");
    for sql in [
        "CREATE TABLE wide (id bigint PRIMARY KEY, k bigint, text text)".to_owned(),
        format!("INSERT INTO wide SELECT id, {key}, {text} FROM t WHERE id < {SORTED}"),
    ] {
        beside.execute(&sql, &[]).unwrap_or_else(|error| panic!("{sql}: {error}"));
    }
    let rows = |number: usize| 1 + number as i64 % 10;
    let sort = |number: usize| {
        let offset = SORTED - rows(number);
        format!("SELECT k FROM (SELECT k, repeat(text, 10) AS long FROM wide) s ORDER BY long DESC OFFSET {offset}")
    };
    let sorted = |number: usize| (0..rows(number)).rev().map(|k| [Some(k)]).collect::<Vec<_>>();
    for number in 0..10 {
        assert_eq!(run(&mut beside, &sort(number)).unwrap(), sorted(number));
    }
    let before = accounted_at_rest(&mut beside);
    let connect = |number: usize| {
        let mut session = server.try_connect().unwrap_or_else(|error| panic!("session {number}: {error}"));
        session.execute("SET memory_wait_timeout = '30s'", &[]).unwrap();
        if number.is_multiple_of(4) {
            // It goes on in files, however much memory there is.
            session.execute("SET work_mem = '1MB'", &[]).unwrap();
        }
        session
    };
    let mut sessions: Vec<_> = (0..SESSIONS).map(connect).collect();
    let refused = server.try_connect().map(drop).unwrap_err();
    assert_eq!(refused.sqlstate, "53300", "no more sessions are possible: {refused}");
    let members: Vec<Member<'_, (Answer, Answer)>> = sessions
        .iter_mut()
        .enumerate()
        .map(|(number, session)| {
            let (socket, sql) = (session.socket().unwrap(), sort(number));
            let work = Box::pin(async move {
                let answer = session.ask(&sql).await;
                (answer, session.ask("SELECT n FROM digits WHERE n = 7").await)
            });
            Member { socket, work: work as _ }
        })
        .collect();
    let over = AtomicBool::new(false);
    let (ended, reader) = std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let (mut done, mut refused, mut files) = (0_i64, 0_i64, 0_usize);
            while !over.load(Ordering::Relaxed) {
                let id = done * 48_271 % ROWS;
                match run(&mut beside, &format!("SELECT id FROM t WHERE id = {id}")) {
                    Ok(found) => assert_eq!(found, [[Some(id)]]),
                    Err(error) => {
                        assert_eq!(error.sqlstate, "53200", "{error}");
                        refused += 1;
                    }
                }
                if done % 8 == 0 {
                    files = files.max(open_temp_files(&server));
                }
                done += 1;
            }
            (done, refused, files)
        });
        let ended = crowd::run(members);
        over.store(true, Ordering::Relaxed);
        (ended, reader.join())
    });
    let (mut answered, mut refused) = (0, Vec::new());
    for (number, (answer, next)) in ended.unwrap().into_iter().enumerate() {
        match answer {
            Ok(answer) => {
                assert_eq!(numbers(&answer), sorted(number), "session {number}");
                answered += 1;
            }
            Err(error) => refused.push(error),
        }
        match next {
            Ok(found) => assert_eq!(numbers(&found), [[Some(7)]], "session {number} goes on"),
            Err(error) => refused.push(error),
        }
    }
    assert!(refused.iter().all(|error| error.sqlstate == "53200"), "{refused:?}");
    // As above; the files show that they are seen.
    let (done, not_read, files) = reader.unwrap();
    assert!(answered > 0 && files > 0, "{answered} answered, {files} temporary files at once, {refused:?}");
    assert!(done > 0 && not_read * 50 <= done, "{not_read} of {done} rows were refused");
    drop(sessions);
    let begun = Instant::now();
    loop {
        let (after, files) = (accounted_bytes(&mut beside), open_temp_files(&server));
        if files == 0 && after.is_some_and(|bytes| bytes <= before + SLACK) {
            break;
        }
        let left = format!("{after:?} bytes are accounted for, {before} were before, and {files} files are open");
        assert!(begun.elapsed() < PATIENCE, "{left}");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(peak_bytes(&server) <= LIMIT + LIMIT / 8, "{} bytes resident", peak_bytes(&server));
    println!(
        "{answered} answered, {} refused, {done} rows read, {files} files at once, {} bytes resident at most",
        refused.len(),
        peak_bytes(&server)
    );
    drop(beside);
    server.stop();
    assert!(no_files(&place.path("db/temp")));
}
