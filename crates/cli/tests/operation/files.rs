//! Files that keep their readers, directories that are not there or in the way, and who may look at a database.

use std::ffi::CString;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use eris_workloads::connection::{SqlConnection, SqlFailure};
use eris_workloads::postgres::PostgresUrl;

use super::held::{hold, release, see_the_end, threads};
use super::{PATIENCE, Process, beforehand, within_patience};
use crate::support::{Place, eris, serve};

fn server(directory: &str) -> Process {
    Process::start(serve(eris(), directory)).unwrap_or_else(|(status, text)| panic!("{status}: {text}"))
}

fn make_fifo(path: &str) {
    let name = CString::new(path).unwrap();
    // SAFETY: the name ends with a zero byte.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
}

/// A terminal that nobody types at: the descriptor of its other side, and its name.
fn terminal() -> (libc::c_int, String) {
    let mut name = [0_u8; 64];
    // SAFETY: the descriptor is checked before it is used, and the name has room for its length.
    let control = unsafe {
        let control = libc::posix_openpt(libc::O_RDWR | libc::O_NOCTTY);
        assert!(control >= 0, "{}", std::io::Error::last_os_error());
        assert_eq!((libc::grantpt(control), libc::unlockpt(control)), (0, 0));
        assert_eq!(libc::ptsname_r(control, name.as_mut_ptr().cast(), name.len()), 0);
        control
    };
    let end = name.iter().position(|byte| *byte == 0).unwrap();
    (control, std::str::from_utf8(&name[..end]).unwrap().to_owned())
}

/// As many statements at once as there are workers: each would keep one. All are refused in the same way, a session
/// beside them is answered, and the server ends as it should.
#[test]
fn special_files_are_refused_and_stop_nobody() {
    let place = Place::new("operation-special");
    let server = server(&place.path("db"));
    server.run("CREATE TABLE t (id int PRIMARY KEY)").unwrap();
    let mut beside = server.try_connect().unwrap();
    let [fifo, link, socket, looped] = ["fifo", "link", "socket", "loop"].map(|name| place.path(name));
    make_fifo(&fifo);
    symlink("fifo", &link).unwrap();
    symlink("loop", &looped).unwrap();
    let _listener = UnixListener::bind(&socket).unwrap();
    let (control, terminal) = terminal();
    let (missing, below) = (place.path("none/file"), place.path("fifo/file"));
    let cases = [
        (&*fifo, "42809", "a FIFO"),
        (&link, "42809", "a FIFO"),
        (&socket, "42809", "a socket"),
        (&terminal, "42809", "a terminal"),
        ("/dev/zero", "42809", "a character device"),
        ("/dev/full", "42809", "a character device"),
        ("/proc/kmsg", "42809", "a file that the kernel makes up"),
        ("/proc/self/status", "42809", "a file that the kernel makes up"),
        ("/dev", "42809", "Is a directory"),
        (&below, "42809", "Not a directory"),
        (&looped, "58030", "symbolic links"),
        (&missing, "58P01", "No such file"),
    ];
    for (path, sqlstate, says) in cases {
        if path == "/proc/kmsg" && std::fs::File::open(path).is_err() {
            println!("skipped: only root may read {path}");
            continue;
        }
        let statements: Vec<_> = (0..2)
            .map(|_| {
                let (url, path) = (server.url.clone(), path.to_owned());
                std::thread::spawn(move || {
                    let mut connection =
                        eris_workloads::postgres::PostgresConnection::connect(&url.parse::<PostgresUrl>().unwrap())
                            .unwrap();
                    connection.execute(&format!("COPY t FROM '{path}'"), &[]).err()
                })
            })
            .collect();
        let failures = within_patience(path, move || {
            statements.into_iter().map(|statement| statement.join().unwrap()).collect::<Vec<Option<SqlFailure>>>()
        });
        for failure in failures {
            let failure = failure.unwrap_or_else(|| panic!("{path} was read"));
            assert_eq!(failure.sqlstate, sqlstate, "{path}: {failure}");
            assert!(failure.message.contains(says) && failure.message.contains(path), "{path}: {failure}");
        }
        // To a file it is not written at all; a backup needs a directory.
        let refused = server.run(&format!("COPY t TO '{path}'")).unwrap_err();
        assert_eq!(refused.sqlstate, "0A000", "{path}: {refused}");
        let url = server.url.clone();
        let backup = format!("BACKUP TO '{path}'");
        let refused = within_patience(&backup.clone(), move || {
            let connected = eris_workloads::postgres::PostgresConnection::connect(&url.parse::<PostgresUrl>().unwrap());
            connected.unwrap().execute(&backup, &[]).unwrap_err()
        });
        assert!(["42809", "58P02", "58P01", "58030"].contains(&&*refused.sqlstate), "{path}: {refused}");
        assert_eq!(beside.execute("SELECT count(*) FROM t", &[]).unwrap().rows[0][0].as_int(), Some(0));
    }
    drop(beside);
    server.stop();
    // SAFETY: the descriptor is ours.
    unsafe { libc::close(control) };
}

/// The files of the database or backup in a directory.
fn files_of(directory: &str) -> Vec<String> {
    let mut files = Vec::new();
    for part in [directory.to_owned(), format!("{directory}/log"), format!("{directory}/checkpoint")] {
        let paths = std::fs::read_dir(part).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_file());
        files.extend(paths.map(|path| path.to_str().unwrap().to_owned()));
    }
    files
}

/// Whether one of these files ends like this.
fn has(files: &[String], end: &str) -> bool {
    files.iter().any(|path| path.ends_with(end))
}

/// Puts a FIFO in the place of a file while `look` looks; then the file is where it was.
fn as_fifo(file: &str, aside: &str, look: impl FnOnce()) {
    std::fs::rename(file, aside).unwrap();
    make_fifo(file);
    look();
    std::fs::remove_file(file).unwrap();
    std::fs::rename(aside, file).unwrap();
}

/// A special file in the place of any of the database's own is refused when it is opened, and not waited for.
#[test]
fn a_special_file_in_the_database_is_refused() {
    let place = Place::new("operation-own");
    let directory = place.path("db");
    let server = self::server(&directory);
    // Rows of a checkpoint, and one of the log alone.
    for sql in ["CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1)", "CHECKPOINT"] {
        server.run(sql).unwrap();
    }
    server.run("INSERT INTO t VALUES (2)").unwrap();
    server.stop();
    let files = files_of(&directory);
    let ends = ["/eris.db", "/eris.lock", ".log", "/manifest", ".data"];
    assert!(ends.iter().all(|end| has(&files, end)), "{files:?}");
    for file in files.iter().filter(|file| ends.iter().any(|end| file.ends_with(end))) {
        as_fifo(file, &place.path("aside"), || {
            let of_thread = directory.clone();
            let refused = within_patience(file, move || Process::start(serve(eris(), &of_thread)).map(drop));
            let (status, text) = refused.err().unwrap_or_else(|| panic!("it opens with a FIFO for {file}"));
            assert_eq!(status.code(), Some(1), "{text}");
            assert!(text.contains("a FIFO") && text.contains(file), "{file}: {text}");
        });
    }
    let server = self::server(&directory);
    assert_eq!(server.run("SELECT count(*) FROM t").unwrap(), Some(2), "nothing was changed");
    server.stop();
}

/// The same of a backup, of which nothing is restored then.
#[test]
fn a_special_file_in_a_backup_is_refused() {
    let place = Place::new("operation-own-backup");
    let [directory, backup, restored] = ["db", "backup", "restored"].map(|name| place.path(name));
    let server = self::server(&directory);
    for sql in ["CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1)", &format!("BACKUP TO '{backup}'")] {
        server.run(sql).unwrap();
    }
    server.stop();
    let restore = |file: &str| {
        let arguments = [backup.clone(), restored.clone()];
        let text = within_patience(file, move || refusal(&["restore", &arguments[0], &arguments[1]]));
        assert!(text.contains("a FIFO") && text.contains(file), "{file}: {text}");
        assert!(!Path::new(&restored).exists(), "{file}: nothing is left of it");
    };
    let files = files_of(&backup);
    let ends = ["/eris.db", "/manifest", ".data"];
    assert!(ends.iter().all(|end| has(&files, end)), "{files:?}");
    for file in files.iter().filter(|file| ends.iter().any(|end| file.ends_with(end))) {
        as_fifo(file, &place.path("aside"), || restore(file));
    }
    // Its log is empty.
    let log = format!("{backup}/log/{:016x}.log", 0);
    make_fifo(&log);
    restore(&log);
    std::fs::remove_file(&log).unwrap();
    assert!(Command::new(eris()).args(["restore", &backup, &restored]).status().unwrap().success());
}

#[test]
fn a_copy_of_a_file_is_cancelled() {
    let place = Place::new("operation-cancelled");
    let server = server(&place.path("db"));
    server.run("CREATE TABLE t (id int PRIMARY KEY, text text)").unwrap();
    let file = place.path("rows");
    let rows: String = (0..3_000_000).map(|id| format!("{id}\ttext\n")).collect::<Vec<_>>().concat();
    std::fs::write(&file, rows).unwrap();
    let mut connection = server.try_connect().unwrap();
    let token = connection.cancel_token().unwrap();
    let running = std::thread::spawn(move || connection.execute(&format!("COPY t FROM '{file}'"), &[]).err());
    let begun = Instant::now();
    // A request that comes before the statement is not heard.
    while !running.is_finished() {
        assert!(begun.elapsed() < PATIENCE, "it goes on");
        token.cancel().unwrap();
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(running.join().unwrap().expect("it is cancelled").sqlstate, "57014");
    assert_eq!(server.run("SELECT count(*) FROM t").unwrap(), Some(0));
    server.stop();
}

/// The thread that reads a file is held, as by a disk that does not answer: its statement waits, others do not, and a
/// cancel ends it.
#[test]
fn a_file_that_does_not_answer_keeps_its_own_statement() {
    let place = Place::new("operation-held");
    let server = server(&place.path("db"));
    server.run("CREATE TABLE t (id int PRIMARY KEY, text text)").unwrap();
    let file = place.path("rows");
    let rows: String = (0..3_000_000).map(|id| format!("{id}\ttext\n")).collect::<Vec<_>>().concat();
    std::fs::write(&file, rows).unwrap();
    let mut connection = server.try_connect().unwrap();
    let token = connection.cancel_token().unwrap();
    let running = std::thread::spawn(move || connection.execute(&format!("COPY t FROM '{file}'"), &[]).err());
    let begun = Instant::now();
    let readers = loop {
        let readers = threads(server.child.id(), "eris-copy");
        if !readers.is_empty() {
            break readers;
        }
        assert!(begun.elapsed() < PATIENCE && !running.is_finished(), "a thread of its own reads it");
    };
    if !hold(&readers) {
        println!("skipped: no thread may be held ({})", std::io::Error::last_os_error());
        return;
    }
    // As many sessions as there are workers, and more.
    for _ in 0..8 {
        assert_eq!(server.run("SELECT count(*) FROM t").unwrap(), Some(0));
    }
    assert!(!running.is_finished(), "it waits");
    token.cancel().unwrap();
    assert_eq!(within_patience("the cancel", || running.join().unwrap()).expect("it is cancelled").sqlstate, "57014");
    assert_eq!(server.run("SELECT count(*) FROM t").unwrap(), Some(0));
    server.signal(libc::SIGTERM);
    see_the_end(&readers);
    let (status, text) = server.end();
    assert_eq!(status.code(), Some(0), "{text}");
}

/// The threads that write checkpoints, backups and the log are held, as a disk holds them that does not answer: what
/// waits for one of them waits and can be cancelled, and other sessions go on.
#[test]
fn a_disk_that_does_not_answer_keeps_what_waits_for_it() {
    let place = Place::new("operation-disk");
    let server = server(&place.path("db"));
    let process = server.child.id();
    server.run("CREATE TABLE t (id bigint PRIMARY KEY, text text)").unwrap();
    let file = place.path("rows");
    let rows: String = (0..300_000).map(|id| format!("{id}\ta text of row {id}\n")).collect::<Vec<_>>().concat();
    std::fs::write(&file, rows).unwrap();
    server.run(&format!("COPY t FROM '{file}'")).unwrap();
    // As many sessions as there are workers, and more.
    let others_go_on =
        |rows| (0..8).for_each(|_| assert_eq!(server.run("SELECT count(*) FROM t").unwrap(), Some(rows)));
    let statements = ["CHECKPOINT".to_owned(), format!("BACKUP TO '{}'", place.path("backup"))];
    for (name, (statement, id)) in ["eris-checkpoint", "eris-backup"].into_iter().zip(statements.into_iter().zip(1..)) {
        let mut connection = server.try_connect().unwrap();
        let token = connection.cancel_token().unwrap();
        let running = std::thread::spawn(move || connection.execute(&statement, &[]).err());
        let begun = Instant::now();
        let writers = loop {
            let writers = threads(process, name);
            if !writers.is_empty() {
                break writers;
            }
            assert!(begun.elapsed() < PATIENCE && !running.is_finished(), "{name} writes it");
        };
        if !hold(&writers) {
            println!("skipped: no thread may be held ({})", std::io::Error::last_os_error());
            return;
        }
        server.run(&format!("INSERT INTO t VALUES (-{id}, 'beside')")).unwrap();
        others_go_on(300_000 + id);
        assert!(!running.is_finished(), "{name}: it waits");
        token.cancel().unwrap();
        let refused = within_patience("the cancel", || running.join().unwrap()).expect("it is cancelled");
        assert_eq!(refused.sqlstate, "57014", "{name}");
        writers.into_iter().for_each(release);
    }
    let log = threads(process, "eris-log");
    assert!(!log.is_empty() && hold(&log));
    let mut connection = server.try_connect().unwrap();
    let commit = std::thread::spawn(move || connection.execute("INSERT INTO t VALUES (-3, 'waits')", &[]).err());
    others_go_on(300_002);
    assert!(!commit.is_finished(), "a commit waits for the log");
    server.signal(libc::SIGTERM);
    see_the_end(&log);
    let (status, text) = server.end();
    assert_eq!(status.code(), Some(1), "{text}");
    assert!(commit.join().unwrap().is_some(), "it was not told to be committed");
}

fn refusal(arguments: &[&str]) -> String {
    let output = Command::new(eris()).args(arguments).output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{arguments:?}: {text}");
    text
}

/// Nothing is made where nothing is, and the directory that is missing is named.
#[test]
fn a_missing_parent_is_named_and_not_made() {
    let place = Place::new("operation-parent");
    let (directory, missing) = (place.path("db"), place.path("a/b"));
    let target = format!("{missing}/c");
    let server = server(&directory);
    let refused = server.run(&format!("BACKUP TO '{target}'")).unwrap_err();
    assert_eq!(refused.sqlstate, "58P01", "{refused}");
    assert!(refused.message.contains(&format!("\"{missing}\" does not exist")), "{refused}");
    let backup = place.path("backup");
    server.run(&format!("BACKUP TO '{backup}'")).unwrap();
    server.stop();
    for arguments in [
        &["serve", "--listen", "127.0.0.1:0", "--workers", "1", "--db", &target][..],
        &["shell", "--workers", "1", "--db", &target, "-c", "SELECT 1"],
        &["backup", "--workers", "1", "--db", &directory, &target],
        &["restore", &backup, &target],
    ] {
        let text = refusal(arguments);
        assert!(text.contains(&format!("\"{missing}\" does not exist")), "{arguments:?}: {text}");
    }
    assert!(!Path::new(&place.path("a")).exists(), "nothing is made");
}

fn modes(directory: &Path, into: &mut Vec<(String, u32)>) {
    let mode = std::fs::metadata(directory).unwrap().permissions().mode() & 0o7777;
    into.push((directory.display().to_string(), mode));
    if directory.is_dir() {
        for entry in std::fs::read_dir(directory).unwrap() {
            modes(&entry.unwrap().path(), into);
        }
    }
}

/// Asserts that other users may do nothing in a directory.
fn assert_private(directory: &str) {
    let mut found = Vec::new();
    modes(Path::new(directory), &mut found);
    assert!(found.len() > 4, "{found:?}");
    for (path, mode) in found {
        let expected = if Path::new(&path).is_dir() { 0o700 } else { 0o600 };
        assert_eq!(mode, expected, "{path} has mode {mode:o}");
    }
}

#[test]
fn databases_and_backups_belong_to_their_user() {
    let place = Place::new("operation-rights");
    let [directory, backup, restored] = ["db", "backup", "restored"].map(|name| place.path(name));
    let mut command = serve(eris(), &directory);
    beforehand(&mut command, || {
        // SAFETY: it takes and gives a number.
        unsafe { libc::umask(0) };
        Ok(())
    });
    let server = Process::start(command).unwrap_or_else(|(_, text)| panic!("{text}"));
    for sql in ["CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1)", "CHECKPOINT"] {
        server.run(sql).unwrap();
    }
    server.run(&format!("BACKUP TO '{backup}'")).unwrap();
    assert_eq!(server.stop(), "");
    assert!(Command::new(eris()).args(["restore", &backup, &restored]).status().unwrap().success());
    for directory in [&directory, &backup, &restored] {
        assert_private(directory);
    }
    // As a copy may be, or a version of ERIS left it that kept to the mask.
    let mut found = Vec::new();
    modes(Path::new(&directory), &mut found);
    for (path, mode) in found {
        std::fs::set_permissions(path, PermissionsExt::from_mode(mode | (mode >> 3) & 0o055 | (mode >> 6) & 0o055))
            .unwrap();
    }
    let server = self::server(&directory);
    assert_eq!(server.run("SELECT id FROM t").unwrap(), Some(1));
    let text = server.stop();
    assert!(text.contains("could be used by other users (mode 0755)") && text.contains(&directory), "{text}");
    assert_private(&directory);
    assert_eq!(self::server(&directory).stop(), "", "it is told once");
}

#[test]
fn backups_into_the_database_are_refused() {
    let place = Place::new("operation-inside");
    let [directory, backup, link] = ["db", "backup", "link"].map(|name| place.path(name));
    let server = server(&directory);
    server.run("CREATE TABLE t (id int PRIMARY KEY)").unwrap();
    symlink(&directory, &link).unwrap();
    let inside = ["", "/new", "/log/new", "/checkpoint/new", "/../link/new", "/../db/./log/../new"];
    for target in inside.iter().flat_map(|inside| [format!("{directory}{inside}"), format!("{link}{inside}")]) {
        let refused = server.run(&format!("BACKUP TO '{target}'")).unwrap_err();
        assert_eq!(refused.sqlstate, "42P17", "{target}: {refused}");
        assert!(refused.message.contains("outside"), "{target}: {refused}");
    }
    server.run(&format!("BACKUP TO '{backup}'")).unwrap();
    server.stop();
    for inside in ["new", "log/new"] {
        let text = refusal(&["backup", "--workers", "1", "--db", &directory, &format!("{directory}/{inside}")]);
        assert!(text.contains("lies in the directory of the database"), "{text}");
        let text = refusal(&["restore", &backup, &format!("{backup}/{inside}")]);
        assert!(text.contains("lies in the directory of the database"), "{text}");
    }
    self::server(&directory).stop();
}
