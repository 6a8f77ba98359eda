//! Limits of the system: on files, address space, descriptors, threads.

use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

use eris_workloads::connection::{SqlConnection, SqlFailure};
use eris_workloads::postgres::PostgresConnection;

use super::{Process, beforehand};
use crate::support::{NOBODY, Place, eris, serve};

type Resource = libc::__rlimit_resource_t;

fn limited(command: &mut Command, resource: Resource, bytes: u64) {
    beforehand(command, move || {
        let limit = libc::rlimit { rlim_cur: bytes, rlim_max: bytes };
        // SAFETY: the call reads one structure.
        if unsafe { libc::setrlimit(resource, &raw const limit) } == 0 {
            Ok(())
        } else {
            Err(std::io::Error::last_os_error())
        }
    });
}

/// Of a process that runs.
fn limit_files(server: &Process, bytes: u64) {
    let limit = libc::rlimit { rlim_cur: bytes, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: the call reads one structure; what was before is not asked for.
    let set =
        unsafe { libc::prlimit(server.child.id() as i32, libc::RLIMIT_FSIZE, &raw const limit, std::ptr::null_mut()) };
    assert_eq!(set, 0, "{}", std::io::Error::last_os_error());
}

const ROWS: &str = "INSERT INTO t SELECT a.n * 100 + b.n, repeat('text', 200) FROM numbers a, numbers b";

fn fill(server: &Process) {
    let numbers: Vec<String> = (0..100).map(|n| format!("({n})")).collect();
    for sql in [
        "CREATE TABLE numbers (n int PRIMARY KEY)",
        &format!("INSERT INTO numbers VALUES {}", numbers.join(", ")),
        "CREATE TABLE t (id int PRIMARY KEY, text text)",
        ROWS,
    ] {
        server.run(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
    }
}

#[test]
fn a_limit_on_files_is_a_full_disk_and_no_end() {
    let place = Place::new("operation-fsize");
    let server = Process::start(serve(eris(), &place.path("db"))).unwrap_or_else(|(_, text)| panic!("{text}"));
    fill(&server);
    limit_files(&server, 4096);
    for sql in ["CHECKPOINT".to_owned(), format!("BACKUP TO '{}'", place.path("backup"))] {
        let refused = server.run(&sql).unwrap_err();
        assert_eq!(refused.sqlstate, "53100", "{sql}: {refused}");
        assert_eq!(server.run("SELECT count(*) FROM t").unwrap(), Some(10_000));
    }
    limit_files(&server, libc::RLIM_INFINITY);
    server.run("CHECKPOINT").unwrap();
    server.run(&format!("BACKUP TO '{}'", place.path("backup"))).unwrap();
    server.stop();
    // No log file can be made: what is there can be read, and nothing is committed.
    let other = Process::start(serve(eris(), &place.path("other"))).unwrap_or_else(|(_, text)| panic!("{text}"));
    other.run("CREATE TABLE t (id int PRIMARY KEY)").unwrap();
    other.stop();
    let mut command = serve(eris(), &place.path("other"));
    limited(&mut command, libc::RLIMIT_FSIZE, 1 << 20);
    let server = Process::start(command).unwrap_or_else(|(_, text)| panic!("{text}"));
    for sql in ["INSERT INTO t VALUES (1)", "CREATE TABLE u (id int PRIMARY KEY)"] {
        let refused = server.run(sql).unwrap_err();
        assert_eq!(refused.sqlstate, "53100", "{sql}: {refused}");
    }
    assert_eq!(server.run("SELECT count(*) FROM t").unwrap(), Some(0));
    assert!(server.stop().contains("no room for a log file"));
}

/// Sorts all rows, and looks at the answer.
fn sort(session: &mut PostgresConnection) -> Result<(), SqlFailure> {
    let answer = session.execute("SELECT id FROM t ORDER BY text, id DESC", &[])?;
    let found = answer.rows.iter().map(|row| row[0].as_int());
    assert!(found.eq((0..10_000_i64).rev().map(Some)), "{} rows", answer.rows.len());
    Ok(())
}

/// Temporary files meet the limit while they are written: the statement fails as on a full disk, and nothing else.
#[test]
fn a_sort_in_files_that_meets_a_limit_on_files_fails_alone() {
    let place = Place::new("operation-fsize-sort");
    let server = Process::start(serve(eris(), &place.path("db"))).unwrap_or_else(|(_, text)| panic!("{text}"));
    fill(&server);
    let mut session = server.try_connect().unwrap();
    session.execute("SET work_mem = '1B'", &[]).unwrap();
    sort(&mut session).unwrap();
    limit_files(&server, 512);
    for _ in 0..2 {
        let refused = sort(&mut session).unwrap_err();
        assert_eq!(refused.sqlstate, "53100", "{refused}");
        let answer = session.execute("SELECT count(*) FROM t", &[]).unwrap();
        assert_eq!(answer.rows[0][0].as_int(), Some(10_000), "the session goes on");
        assert_eq!(server.run("SELECT count(*) FROM t").unwrap(), Some(10_000), "and so do others");
    }
    limit_files(&server, libc::RLIM_INFINITY);
    sort(&mut session).unwrap();
    session.execute("INSERT INTO t VALUES (-1, '')", &[]).unwrap();
    drop(session);
    server.stop();
}

#[test]
fn too_little_address_space_is_a_message() {
    let place = Place::new("operation-space");
    for (megabytes, memory, says) in [
        (256, "64M", "ulimit -v"),
        (400, "64M", "ulimit -v"),
        (767, "64M", "ulimit -v"),
        (790, "1G", "does not fit into the address space"),
        (790, "512M", "does not fit into the address space"),
        (860, "256M", "does not fit into the address space"),
    ] {
        let mut command = serve(eris(), &place.path("db"));
        command.args(["--memory-limit", memory]);
        limited(&mut command, libc::RLIMIT_AS, megabytes << 20);
        let (status, text) = Process::start(command).map(drop).unwrap_err();
        assert_eq!(status.code(), Some(1), "{megabytes} MB: {status} {text}");
        assert!(text.starts_with("error: ") && text.lines().count() == 1 && text.contains(says), "{text}");
    }
    // With just enough for a database it starts, with a limit that fits; what is too much later is refused.
    let mut command = Command::new(eris());
    command.args(["serve", "--workers", "2", "--listen", "127.0.0.1:0"]);
    limited(&mut command, libc::RLIMIT_AS, 768 << 20);
    let server = Process::start(command).unwrap_or_else(|(status, text)| panic!("{status}: {text}"));
    fill(&server);
    let refused = (1..100).find_map(|round| {
        let id = format!("{round} * 10000 + a.n * 100 + b.n");
        let text = format!("repeat(CAST(7919 * ({id}) AS text), 500)");
        server.run(&format!("INSERT INTO t SELECT {id}, {text} FROM numbers a, numbers b")).err()
    });
    let refused = refused.expect("there is no room for gigabytes");
    assert_eq!(refused.sqlstate, "53200", "{refused}");
    server.run("DROP TABLE t").unwrap();
    assert_eq!(server.run("SELECT count(*) FROM numbers").unwrap(), Some(100));
    server.stop();
}

/// A server starts with the largest memory limit for which there is room, and what it does then fits, too: threads of
/// the fallback lane and of files, their allocators, and what several sessions hold. Of data (`ulimit -d`) as of all.
#[test]
fn what_a_server_needs_fits_into_the_address_space_with_which_it_starts() {
    let place = Place::new("operation-fitting-space");
    for (resource, directory) in [(libc::RLIMIT_AS, "db"), (libc::RLIMIT_DATA, "db-data")] {
        let mut command = serve(eris(), &place.path(directory));
        command.args(["--memory-limit", "256M"]);
        limited(&mut command, resource, 880 << 20);
        let server = Process::start(command).unwrap_or_else(|(status, text)| panic!("{status}: {text}"));
        fill(&server);
        for round in 1..10 {
            let id = format!("{round} * 10000 + a.n * 100 + b.n");
            let rows = format!("INSERT INTO t SELECT {id}, repeat('text', 150) FROM numbers a, numbers b");
            server.run(&rows).unwrap_or_else(|error| panic!("round {round}: {error}"));
        }
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let mut session = server.try_connect().unwrap();
                    for sql in [
                        "SELECT count(*) FROM eris.memory",
                        "SELECT count(*) FROM pg_class",
                        "SELECT stddev(n) FROM numbers",
                        "SELECT id, text FROM t ORDER BY text, id DESC LIMIT 70000",
                        "SELECT count(*) FROM (SELECT text || CAST(id AS text), count(*) FROM t GROUP BY 1) groups",
                    ] {
                        if let Err(refused) = session.execute(sql, &[]) {
                            assert_eq!(refused.sqlstate, "53200", "{sql}: {refused}");
                        }
                    }
                });
            }
        });
        assert_eq!(server.run("SELECT count(*) FROM t").unwrap(), Some(100_000));
        server.stop();
    }
    // Without a limit that was given the one that is chosen fits beside the workers that were.
    let mut command = Command::new(eris());
    command.args(["serve", "--workers", "6", "--listen", "127.0.0.1:0"]);
    limited(&mut command, libc::RLIMIT_AS, 1_000 << 20);
    let server = Process::start(command).unwrap_or_else(|(status, text)| panic!("{status}: {text}"));
    assert!(server.run("SELECT count(*) FROM eris.memory").unwrap() > Some(0));
    server.stop();
}

fn processor_ticks(process: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
    let fields: Vec<&str> = text.rsplit_once(')').unwrap().1.split_whitespace().collect();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}

#[test]
fn few_descriptors_leave_the_database_its_own() {
    let place = Place::new("operation-descriptors");
    for descriptors in [8, 16, 32] {
        let mut command = serve(eris(), &place.path("none"));
        limited(&mut command, libc::RLIMIT_NOFILE, descriptors);
        let (status, text) = Process::start(command).map(drop).unwrap_err();
        assert_eq!(status.code(), Some(1), "{text}");
        assert!(text.contains("ulimit -n") && text.contains(&descriptors.to_string()), "{text}");
    }
    let mut command = serve(eris(), &place.path("db"));
    limited(&mut command, libc::RLIMIT_NOFILE, 40);
    let server = Process::start(command).unwrap_or_else(|(_, text)| panic!("{text}"));
    let mut first = server.try_connect().unwrap();
    first.execute("CREATE TABLE t (id int PRIMARY KEY, text text)", &[]).unwrap();
    let (mut held, mut refused) = (Vec::new(), Vec::new());
    for _ in 0..60 {
        match server.try_connect() {
            Ok(connection) => held.push(connection),
            Err(failure) => refused.push(failure),
        }
    }
    assert!(held.len() >= 4 && refused.len() > 40, "{} held", held.len());
    assert!(refused.iter().all(|failure| failure.sqlstate == "53300"), "{:?}", refused[0]);
    // With every place taken the log has its files, and so has a checkpoint.
    let text = "x".repeat(1 << 20);
    for id in 0..40 {
        let row = format!("INSERT INTO t VALUES ({id}, '{text}')");
        first.execute(&row, &[]).unwrap_or_else(|error| panic!("row {id}: {error}"));
    }
    first.execute("CHECKPOINT", &[]).unwrap();
    // Sockets that wait to be accepted keep no worker busy.
    let address = server.url.rsplit_once('@').unwrap().1.split('/').next().unwrap().to_owned();
    let waiting: Vec<_> = (0..40).filter_map(|_| std::net::TcpStream::connect(&address).ok()).collect();
    std::thread::sleep(Duration::from_millis(200));
    let before = processor_ticks(server.child.id());
    std::thread::sleep(Duration::from_secs(2));
    let ticks = processor_ticks(server.child.id()) - before;
    // A hundred are a second of one processor.
    assert!(ticks < 100, "{ticks} hundredths of a second in two seconds");
    drop((waiting, held));
    assert_eq!(first.execute("SELECT count(*) FROM t", &[]).unwrap().rows[0][0].as_int(), Some(40));
    drop(first);
    server.stop();
}

#[test]
fn too_few_threads_are_a_message() {
    // SAFETY: it only says who runs this.
    if unsafe { libc::geteuid() } != 0 {
        println!("skipped: the limit is on all processes of a user, and only root can be another one");
        return;
    }
    let place = Place::new("operation-threads");
    std::os::unix::fs::chown(place.root(), Some(NOBODY), Some(NOBODY)).unwrap();
    let binary = place.root().join("eris");
    if std::fs::hard_link(eris(), &binary).is_err() {
        std::fs::copy(eris(), &binary).unwrap();
    }
    for threads in [1, 2, 3] {
        let mut command = serve(&binary, &place.path("db"));
        command.uid(NOBODY).gid(NOBODY);
        limited(&mut command, libc::RLIMIT_NPROC, threads);
        let (status, text) = Process::start(command).map(drop).unwrap_err();
        assert_eq!(status.code(), Some(1), "{status} {text}");
        assert!(text.starts_with("error: ") && !text.contains("panicked"), "{text}");
    }
}
