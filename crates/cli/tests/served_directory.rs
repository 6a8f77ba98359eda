//! `eris serve --db` on directories that somebody else has, takes away, or does not give.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test fails by panicking")]

mod operation;
mod support;

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use eris_workloads::connection::{SqlConnection, SqlFailure};
use eris_workloads::postgres::PostgresConnection;
use operation::Process;
use support::{NOBODY, Place, Server, eris, serve};

fn count(connection: &mut PostgresConnection) -> Option<i64> {
    let answer = connection.execute("SELECT count(*) FROM t", &[]).unwrap();
    answer.rows[0][0].as_int()
}

/// What a server says that does not start; it ends with 1 and does not panic.
fn refusal(command: &mut Command) -> String {
    let output = command.stdout(Stdio::piped()).stderr(Stdio::piped()).output().unwrap();
    let (printed, errors) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert_eq!((output.status.code(), printed.as_str()), (Some(1), ""), "{errors}");
    assert!(errors.starts_with("error: ") && errors.lines().count() == 1, "{errors}");
    errors
}

#[test]
fn a_second_server_on_one_directory_is_refused_and_the_first_one_works() {
    let place = Place::new("served-twice");
    let directory = place.path("db");
    let first = Server::start(&directory);
    let mut connection = first.connect();
    connection.execute("CREATE TABLE t (id int PRIMARY KEY)", &[]).unwrap();
    let errors = refusal(&mut serve(eris(), &directory));
    let holder = format!("in use by process {}", first.process_id());
    assert!(errors.contains(&format!("\"{directory}\"")) && errors.contains(&holder), "{errors}");
    connection.execute("INSERT INTO t VALUES (1)", &[]).unwrap();
    connection.execute("CHECKPOINT", &[]).unwrap();
    drop(first);
    // The lock of a killed process is no lock.
    assert_eq!(count(&mut Server::start(&directory).connect()), Some(1));
}

/// The directory goes while it is served: commits and checkpoints say so at once; what is in memory can be read, and
/// nobody makes a directory that would look like a database.
#[test]
fn a_directory_that_vanishes_is_missed_and_not_made_again() {
    let place = Place::new("served-gone");
    let directory = place.path("db");
    let server = Process::start(serve(eris(), &directory)).unwrap_or_else(|(_, text)| panic!("{text}"));
    let mut connection = server.try_connect().unwrap();
    connection.execute("CREATE TABLE t (id int PRIMARY KEY, text text)", &[]).unwrap();
    connection.execute("INSERT INTO t VALUES (0, 'here')", &[]).unwrap();
    std::fs::remove_dir_all(&directory).unwrap();
    let missed = |failure: &SqlFailure| {
        let words = [&*directory, "is no longer the directory that was opened", "copy out what is needed"];
        failure.sqlstate == "58030" && words.iter().all(|word| failure.message.contains(word))
    };
    for id in 1..3 {
        let refused = connection.execute(&format!("INSERT INTO t VALUES ({id}, 'there')"), &[]);
        let refused = refused.expect_err("nobody would find it");
        assert!(missed(&refused), "{refused}");
    }
    let checkpoint = connection.execute("CHECKPOINT", &[]).expect_err("there is no place for it");
    assert!(missed(&checkpoint), "{checkpoint}");
    assert_eq!(count(&mut connection), Some(1), "what is in memory can be read");
    assert!(!Path::new(&directory).exists(), "nothing is made in its place");
    drop(connection);
    server.signal(libc::SIGTERM);
    let (_, told) = server.end();
    let lines = told.lines().filter(|line| line.contains("no more commits are accepted"));
    assert_eq!(lines.filter(|line| line.contains(&directory)).count(), 1, "{told}");
}

/// The log goes while the directory is served, and the directory stays: its files are removed, its directory is moved,
/// or a copy is put in its place. Commits say so at once, the end of the server says so if there were none, and what is
/// not there any more is no new database.
#[test]
fn a_log_that_vanishes_is_missed_and_not_begun_again() {
    for (number, what) in ["removed", "moved", "copied"].into_iter().enumerate() {
        for commits in [true, false] {
            let place = Place::new(&format!("served-log-{number}-{commits}"));
            let directory = place.path("db");
            let server = Process::start(serve(eris(), &directory)).unwrap_or_else(|(_, text)| panic!("{text}"));
            let mut connection = server.try_connect().unwrap();
            connection.execute("CREATE TABLE t (id int PRIMARY KEY)", &[]).unwrap();
            connection.execute("INSERT INTO t VALUES (0)", &[]).unwrap();
            let log = Path::new(&directory).join("log");
            let away = place.root().join("away");
            match what {
                "removed" => {
                    for entry in std::fs::read_dir(&log).unwrap() {
                        std::fs::remove_file(entry.unwrap().path()).unwrap();
                    }
                }
                "moved" => std::fs::rename(&log, &away).unwrap(),
                _ => {
                    std::fs::rename(&log, &away).unwrap();
                    std::fs::create_dir(&log).unwrap();
                    for entry in std::fs::read_dir(&away).unwrap() {
                        let entry = entry.unwrap();
                        std::fs::copy(entry.path(), log.join(entry.file_name())).unwrap();
                    }
                }
            }
            if commits {
                let refused = connection.execute("INSERT INTO t VALUES (1)", &[]).expect_err("nobody would find it");
                let says_what = refused.message.contains("is no longer the log file that was opened");
                assert!(refused.sqlstate == "58030" && says_what, "{what}: {refused}");
                let checkpoint = connection.execute("CHECKPOINT", &[]).expect_err("there is no log behind it");
                assert_eq!(checkpoint.sqlstate, "58030", "{what}: {checkpoint}");
            }
            assert_eq!(count(&mut connection), Some(1), "what is in memory can be read");
            drop(connection);
            server.signal(libc::SIGTERM);
            let (_, told) = server.end();
            let lines = told.lines().filter(|line| line.contains("no more commits are accepted"));
            let lines = lines.filter(|line| line.contains("is no longer the log file that was opened"));
            assert_eq!(lines.count(), 1, "{what}: {told}");
            if what == "copied" {
                continue;
            }
            let errors = refusal(&mut serve(eris(), &directory));
            assert!(errors.contains("the log of this database is gone"), "{what}: {errors}");
            let errors = refusal(Command::new(eris()).args(["verify", "--workers", "1", &directory]));
            assert!(errors.contains("the log of this database is gone"), "{what}: {errors}");
            if what == "moved" {
                std::fs::rename(&away, &log).unwrap();
                let server = Server::start(&directory);
                assert!(count(&mut server.connect()) >= Some(1), "what was told is there");
            }
        }
    }
}

/// The lock file goes while the directory is served: what is locked is the directory.
#[test]
fn a_second_server_is_refused_whether_there_is_a_lock_file_or_not() {
    let place = Place::new("served-unlocked");
    let directory = place.path("db");
    let first = Server::start(&directory);
    let mut connection = first.connect();
    connection.execute("CREATE TABLE t (id int PRIMARY KEY)", &[]).unwrap();
    std::fs::remove_file(Path::new(&directory).join("eris.lock")).unwrap();
    let errors = refusal(&mut serve(eris(), &directory));
    assert!(errors.contains(&format!("\"{directory}\" is in use")), "{errors}");
    for other in ["verify", "backup"] {
        let mut command = Command::new(eris());
        match other {
            "verify" => command.args(["verify", &directory]),
            _ => command.args(["backup", "--db", &directory, &place.path("backup")]),
        };
        let errors = refusal(&mut command);
        assert!(errors.contains("is in use"), "{other}: {errors}");
    }
    connection.execute("INSERT INTO t VALUES (1)", &[]).unwrap();
    drop(first);
    let second = Server::start(&directory);
    let mut connection = second.connect();
    assert_eq!(count(&mut connection), Some(1));
    let query = "SELECT stopped, transactions > 0, bytes_after, put_aside FROM eris.recovery";
    let answer = connection.execute(query, &[]).unwrap();
    assert_eq!(answer.rows.len(), 1);
    assert_eq!(answer.rows[0][2].as_int(), Some(0), "a killed server leaves whole records");
}

/// A directory, or a part of it, that the user may not use: refused with its name and what helps, and nothing changes.
#[test]
fn a_directory_without_rights_is_refused_by_name() {
    let place = Place::new("served-rights");
    let directory = place.path("db");
    let server = Server::start(&directory);
    server.connect().execute("CREATE TABLE t (id int PRIMARY KEY)", &[]).unwrap();
    drop(server);
    // SAFETY: it only says who runs this.
    let is_root = unsafe { libc::geteuid() } == 0;
    // The binary may lie where only this user goes.
    let binary = place.root().join("eris");
    if std::fs::hard_link(eris(), &binary).is_err() {
        std::fs::copy(eris(), &binary).unwrap();
    }
    let database = Path::new(&directory);
    for part in [database.to_path_buf(), database.join("log"), database.join("checkpoint"), database.join("eris.db")] {
        let before = std::fs::metadata(&part).unwrap().permissions();
        std::fs::set_permissions(&part, PermissionsExt::from_mode(0o000)).unwrap();
        let mut command = serve(&binary, &directory);
        if is_root {
            // Rights are nothing to root: it is somebody else who tries.
            command.uid(NOBODY).gid(NOBODY);
        }
        let errors = refusal(&mut command);
        std::fs::set_permissions(&part, before).unwrap();
        let words = ["Permission denied", &directory, "the user who runs ERIS must own the directory"];
        assert!(words.iter().all(|word| errors.contains(word)), "{}: {errors}", part.display());
    }
    assert_eq!(count(&mut Server::start(&directory).connect()), Some(0));
}
