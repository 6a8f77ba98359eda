//! Directories of temporary files that are elsewhere, in the way, gone or not to be written to, and settings that
//! contradict each other.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

use eris_workloads::connection::{SqlConnection, SqlFailure, SqlValue};
use eris_workloads::postgres::PostgresConnection;

use super::Process;
use crate::support::{Place, eris, serve};

/// Rows of the table that is sorted.
const ROWS: i64 = 4_000;

fn start(directory: &str, options: &[&str]) -> Result<Process, String> {
    let mut command = serve(eris(), directory);
    command.args(options);
    Process::start(command).map_err(|(status, text)| {
        assert_eq!(status.code(), Some(1), "{text}");
        assert!(text.contains("error: ") && !text.contains("panicked"), "{text}");
        text
    })
}

fn server(directory: &str, options: &[&str]) -> Process {
    start(directory, options).unwrap_or_else(|text| panic!("{text}"))
}

/// A server with a table, and a session whose sorts go on in temporary files at once.
fn filled(directory: &str, options: &[&str]) -> (Process, PostgresConnection) {
    let server = server(directory, options);
    let mut session = server.try_connect().unwrap();
    let digits: Vec<String> = (0..10).map(|n| format!("({n})")).collect();
    for sql in [
        "CREATE TABLE digits (n int PRIMARY KEY)",
        &format!("INSERT INTO digits VALUES {}", digits.join(", ")),
        "CREATE TABLE t (id int PRIMARY KEY, text text)",
        "INSERT INTO t SELECT a.n * 1000 + b.n * 100 + c.n * 10 + d.n, repeat('text', 20) \
         FROM digits a, digits b, digits c, digits d WHERE a.n < 4",
        "SET work_mem = '1B'",
    ] {
        session.execute(sql, &[]).unwrap_or_else(|error| panic!("{sql}: {error}"));
    }
    (server, session)
}

/// Sorts the table, which needs a temporary file, and looks at the answer.
fn sort(session: &mut PostgresConnection) -> Result<(), SqlFailure> {
    let answer = session.execute("SELECT id FROM t ORDER BY text, id DESC", &[])?;
    let found = answer.rows.iter().map(|row| row[0].as_int());
    assert!(found.eq((0..ROWS).rev().map(Some)), "{} rows", answer.rows.len());
    Ok(())
}

fn count(session: &mut PostgresConnection) -> Option<i64> {
    session.execute("SELECT count(*) FROM t", &[]).unwrap().rows[0].first().and_then(SqlValue::as_int)
}

#[test]
fn a_sort_goes_on_in_another_file_system() {
    let place = Place::new("operation-temp-elsewhere");
    let elsewhere = Path::new("/dev/shm");
    let device = |path: &Path| path.metadata().ok().map(|found| found.dev());
    if device(elsewhere).is_none_or(|found| device(place.root()) == Some(found)) {
        println!("skipped: /dev/shm is no other file system");
        return;
    }
    let temp = elsewhere.join(format!("eris-operation-temp-{}", std::process::id()));
    let (server, mut session) = filled(&place.path("db"), &["--temp-dir", temp.to_str().unwrap()]);
    sort(&mut session).unwrap();
    session.execute("SET temp_file_limit = 0", &[]).unwrap();
    assert_eq!(sort(&mut session).unwrap_err().sqlstate, "53400", "it needs a file");
    assert_eq!(std::fs::read_dir(&temp).unwrap().count(), 0, "it was made, and its files have no names");
    drop(session);
    server.stop();
    std::fs::remove_dir(&temp).unwrap();
}

#[test]
fn a_directory_that_is_removed_is_made_again_or_missed() {
    let place = Place::new("operation-temp-removed");
    let (above, temp) = (place.path("above"), place.path("above/temp"));
    std::fs::create_dir(&above).unwrap();
    let (server, mut session) = filled(&place.path("db"), &["--temp-dir", &temp]);
    sort(&mut session).unwrap();
    std::fs::remove_dir(&temp).unwrap();
    sort(&mut session).unwrap();
    assert!(Path::new(&temp).is_dir(), "it is made again");
    std::fs::remove_dir(&temp).unwrap();
    std::fs::remove_dir(&above).unwrap();
    for _ in 0..2 {
        let missed = sort(&mut session).unwrap_err();
        assert_eq!(missed.sqlstate, "58P01", "{missed}");
        assert!(missed.message.contains(&format!("{above} does not exist")), "{missed}");
        assert_eq!(count(&mut session), Some(ROWS), "the session goes on");
        assert_eq!(server.run("SELECT count(*) FROM t").unwrap(), Some(ROWS), "and so do others");
    }
    assert!(!Path::new(&above).exists(), "nothing is made where nothing is");
    std::fs::create_dir(&above).unwrap();
    sort(&mut session).unwrap();
    drop(session);
    server.stop();
}

/// Root may write to any directory by its mode, but file systems of the kernel take no files from root either.
#[test]
fn a_directory_that_is_not_written_to_is_refused_at_the_start() {
    let place = Place::new("operation-temp-read-only");
    let file = place.path("file");
    std::fs::write(&file, "").unwrap();
    let below = format!("{file}/temp");
    for temp in ["/sys/kernel", "/sys/eris-temp", "/proc", "/proc/eris-temp", &below] {
        if temp.starts_with("/sys") && !Path::new("/sys/kernel").exists() {
            println!("skipped: there is no {temp}");
            continue;
        }
        let text = start(&place.path("db"), &["--temp-dir", temp]).map(drop).unwrap_err();
        assert!(text.contains(temp) && text.contains("choose a") && text.contains("--temp-dir"), "{temp}: {text}");
    }
}

#[test]
fn a_file_is_no_directory_of_temporary_files() {
    let place = Place::new("operation-temp-file");
    let file = place.path("file");
    std::fs::write(&file, "mine").unwrap();
    let text = start(&place.path("db"), &["--temp-dir", &file]).map(drop).unwrap_err();
    assert!(text.contains(&file) && text.contains("Not a directory") && text.contains("--temp-dir"), "{text}");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "mine");
}

/// Parts of the database's directory are refused, but for the one that is for temporary files; what is left of them is
/// all that is removed there.
#[test]
fn parts_of_the_database_are_no_directories_of_temporary_files() {
    let place = Place::new("operation-temp-log");
    let (directory, temp) = (place.path("db"), place.path("db/temp"));
    for part in ["db", "db/log", "db/checkpoint"].map(|part| place.path(part)) {
        let text = start(&directory, &["--temp-dir", &part]).map(drop).unwrap_err();
        let words = ["a part of the directory of the database", "--temp-dir", &part, &temp];
        assert!(words.iter().all(|word| text.contains(word)), "{part}: {text}");
    }
    let (server, mut session) = filled(&directory, &["--temp-dir", &temp]);
    sort(&mut session).unwrap();
    session.execute("INSERT INTO t VALUES (-1, '')", &[]).unwrap();
    drop(session);
    server.stop();
    let left = Path::new(&temp).join("spill-0123456789abcdef-0.tmp");
    std::fs::write(&left, "left").unwrap();
    let server = self::server(&directory, &["--temp-dir", &temp]);
    assert!(!left.exists());
    assert_eq!(server.run("SELECT count(*) FROM t").unwrap(), Some(ROWS + 1));
    server.stop();
}

#[test]
fn the_limit_of_temporary_files_is_none_or_nothing() {
    let place = Place::new("operation-temp-limit");
    let (server, mut session) = filled(&place.path("db"), &["--temp-file-limit", "0"]);
    let limit =
        |session: &mut PostgresConnection| session.execute("SHOW temp_file_limit", &[]).unwrap().rows[0][0].to_string();
    assert_eq!(limit(&mut session), "0B");
    let refused = sort(&mut session).unwrap_err();
    assert_eq!(refused.sqlstate, "53400", "{refused}");
    assert_eq!(count(&mut session), Some(ROWS), "the session goes on");
    session.execute("SET temp_file_limit = -1", &[]).unwrap();
    sort(&mut session).unwrap();
    session.execute("SET temp_file_limit = 0", &[]).unwrap();
    assert_eq!(sort(&mut session).unwrap_err().sqlstate, "53400");
    drop(session);
    server.stop();
    let (server, mut session) = filled(&place.path("other"), &["--temp-file-limit", "-1"]);
    assert_eq!(limit(&mut session), "-1");
    sort(&mut session).unwrap();
    drop(session);
    server.stop();
}

/// What a statement may hold, and old versions, may be more than there is: then there is as much as there is.
#[test]
fn settings_above_the_memory_limit_are_allowed() {
    let place = Place::new("operation-temp-settings");
    let options = ["--memory-limit", "64M", "--old-version-memory-limit", "1G"];
    let (server, mut session) = filled(&place.path("db"), &options);
    session.execute("SET work_mem = '100GB'", &[]).unwrap();
    sort(&mut session).unwrap();
    session.execute("UPDATE t SET text = 'other'", &[]).unwrap();
    assert_eq!(count(&mut session), Some(ROWS));
    drop(session);
    server.stop();
}

/// A database that is larger than the memory limit is not opened, whether its rows are in the log or in a checkpoint;
/// with more memory nothing of it is missing.
#[test]
fn a_database_larger_than_the_memory_limit_is_refused_and_not_harmed() {
    let place = Place::new("operation-temp-larger");
    for checkpoint in [false, true] {
        let directory = place.path(if checkpoint { "checkpoint" } else { "log" });
        let (server, mut session) = filled(&directory, &["--memory-limit", "256M"]);
        session.execute("CREATE TABLE large (id int PRIMARY KEY, text text)", &[]).unwrap();
        // Every text is another one, and none can be packed well.
        let text = "repeat(CAST((a.id * 10 + b.n) * CAST(7919 AS bigint) * 104729 AS text), 60)";
        let fill = format!("INSERT INTO large SELECT a.id * 10 + b.n, {text} FROM t a, digits b");
        session.execute(&fill, &[]).unwrap_or_else(|error| panic!("{error}"));
        if checkpoint {
            session.execute("CHECKPOINT", &[]).unwrap();
        }
        drop(session);
        server.stop();
        for _ in 0..2 {
            let text = start(&directory, &["--memory-limit", "12M"]).map(drop).unwrap_err();
            let words = ["does not fit", "12582912 bytes", "--memory-limit", &directory];
            assert!(words.iter().all(|word| text.contains(word)), "{text}");
        }
        let mut refused = 0;
        for limit in ["12M", "24M", "256M"] {
            let mut command = Command::new(eris());
            let output = command.args(["verify", "--memory-limit", limit, &directory]).output().unwrap();
            let (printed, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
            let does_not_fit = output.status.code() == Some(1) && errors.contains("does not fit");
            assert!(does_not_fit || printed.contains("is whole"), "{limit}: {printed}{errors}");
            refused += usize::from(does_not_fit);
        }
        assert!((1..3).contains(&refused), "{refused}");
        let server = self::server(&directory, &["--memory-limit", "256M"]);
        let all = "SELECT count(*) FROM large WHERE length(text) >= 60";
        assert_eq!(server.run(all).unwrap(), Some(10 * ROWS));
        server.run("INSERT INTO large VALUES (-1, '')").unwrap();
        server.stop();
    }
}
