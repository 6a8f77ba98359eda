//! `eris serve --db` on directories that somebody else has, takes away, or does not give.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use eris_workloads::connection::{SqlConnection, SqlFailure};
use eris_workloads::postgres::{PostgresConnection, PostgresUrl};

/// A user that owns nothing.
const NOBODY: u32 = 65_534;

/// A directory of one test, gone with it.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Place {
        let path = std::env::temp_dir().join(format!("eris-served-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Place(path)
    }

    fn database(&self) -> String {
        self.0.join("db").to_str().unwrap().to_owned()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn serve(binary: &Path, directory: &str) -> Command {
    let mut command = Command::new(binary);
    command.args(["serve", "--workers", "1", "--listen", "127.0.0.1:0", "--db", directory]).stdin(Stdio::null());
    command
}

fn eris() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_eris"))
}

/// A server, ended with the value.
struct Server {
    process: Child,
    url: PostgresUrl,
}

impl Server {
    fn start(directory: &str) -> Server {
        let mut process = serve(eris(), directory).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address =
            line.strip_prefix("eris accepts connections on ").and_then(|rest| rest.split_once(" (")).unwrap().0;
        let url = format!("postgres://eris@{address}/eris").parse().unwrap();
        Server { process, url }
    }

    fn connect(&self) -> PostgresConnection {
        PostgresConnection::connect(&self.url).unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

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
    let place = Place::new("twice");
    let directory = place.database();
    let first = Server::start(&directory);
    let mut connection = first.connect();
    connection.execute("CREATE TABLE t (id int PRIMARY KEY)", &[]).unwrap();
    let errors = refusal(&mut serve(eris(), &directory));
    let holder = format!("in use by process {}", first.process.id());
    assert!(errors.contains(&format!("\"{directory}\"")) && errors.contains(&holder), "{errors}");
    connection.execute("INSERT INTO t VALUES (1)", &[]).unwrap();
    connection.execute("CHECKPOINT", &[]).unwrap();
    drop(first);
    // The lock of a killed process is no lock.
    assert_eq!(count(&mut Server::start(&directory).connect()), Some(1));
}

/// The directory goes while it is served: checkpoints, and sooner or later commits, say so; what is in memory can be
/// read, and nobody makes a directory that would look like a database.
#[test]
fn a_directory_that_vanishes_is_missed_and_not_made_again() {
    let place = Place::new("gone");
    let directory = place.database();
    let server = Server::start(&directory);
    let mut connection = server.connect();
    connection.execute("CREATE TABLE t (id int PRIMARY KEY, text text)", &[]).unwrap();
    connection.execute("INSERT INTO t VALUES (0, 'here')", &[]).unwrap();
    std::fs::remove_dir_all(&directory).unwrap();
    let missed = |failure: &SqlFailure| failure.message.contains("No such file or directory");
    let checkpoint = connection.execute("CHECKPOINT", &[]).expect_err("there is no place for it");
    assert!(missed(&checkpoint) && checkpoint.message.contains(&directory), "{checkpoint}");
    // A log file is open that has no name any more; the next one can have none.
    let text = "x".repeat(1 << 20);
    let mut committed = 1;
    let refused = (1..100).find_map(|id| {
        let inserted = connection.execute(&format!("INSERT INTO t VALUES ({id}, '{text}')"), &[]);
        committed += i64::from(inserted.is_ok());
        inserted.err()
    });
    let refused = refused.expect("no log file follows");
    assert!(missed(&refused) && refused.message.contains("could not be extended"), "{refused}");
    assert_eq!(refused.sqlstate, "58030", "{refused}");
    // The log has not ended: what fits into the file that is there is committed.
    connection.execute("INSERT INTO t VALUES (100, 'short')", &[]).unwrap();
    assert_eq!(count(&mut connection), Some(committed + 1), "what is in memory can be read");
    let again = connection.execute(&format!("INSERT INTO t VALUES (101, '{text}')"), &[]).expect_err("as before");
    assert_eq!((again.sqlstate.as_str(), missed(&again)), ("58030", true), "{again}");
    assert!(!Path::new(&directory).exists(), "nothing is made in its place");
}

/// A directory, or a part of it, that the user may not use: refused with its name and what helps, and nothing changes.
#[test]
fn a_directory_without_rights_is_refused_by_name() {
    let place = Place::new("rights");
    let directory = place.database();
    let server = Server::start(&directory);
    server.connect().execute("CREATE TABLE t (id int PRIMARY KEY)", &[]).unwrap();
    drop(server);
    // SAFETY: it only says who runs this.
    let is_root = unsafe { libc::geteuid() } == 0;
    // The binary may lie where only this user goes.
    let binary = place.0.join("eris");
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
