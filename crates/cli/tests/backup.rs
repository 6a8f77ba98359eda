//! `eris backup`, `eris restore` and `eris verify` as processes, on real files: while clients work, and on what is no
//! database.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use eris_workloads::connection::{SqlConnection, SqlFailure};
use eris_workloads::postgres::PostgresConnection;
use support::{NOBODY, Place, Server, eris};

const ACCOUNTS: i64 = 50;
const START: i64 = 1_000;
const CLIENTS: i64 = 3;

fn output(arguments: &[&str]) -> Output {
    Command::new(eris()).args(arguments).stdin(Stdio::null()).output().unwrap()
}

fn texts(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (text(&output.stdout), text(&output.stderr))
}

fn succeeds(arguments: &[&str]) -> String {
    let output = output(arguments);
    let (printed, errors) = texts(&output);
    assert!(output.status.success(), "{arguments:?}: {errors}");
    printed
}

/// What a command that fails says; it ends with 1 and does not panic.
fn refusal(arguments: &[&str]) -> String {
    let output = output(arguments);
    let (printed, errors) = texts(&output);
    assert_eq!((output.status.code(), printed.as_str()), (Some(1), ""), "{arguments:?}: {errors}");
    errors
}

/// What a query answers, line by line, without the names of columns.
fn ask(directory: &str, sql: &str) -> Vec<String> {
    let printed = succeeds(&["shell", "--workers", "1", "--format", "csv", "--db", directory, "-c", sql]);
    printed.lines().skip(1).map(str::to_owned).collect()
}

/// With checkpoints all the time.
fn start(place: &Place) -> Server {
    Server::start_with(&place.path("db"), &["--checkpoint-bytes", "200K"])
}

fn run(server: &Server, sql: &str) {
    server.connect().execute(sql, &[]).unwrap_or_else(|error| panic!("{sql}: {error}"));
}

/// Money goes from one account to another, and a row of the journal says so, in one transaction.
fn transfer(connection: &mut PostgresConnection, client: i64, number: i64) -> Result<(), SqlFailure> {
    let (from, to, amount) = ((client + number) % ACCOUNTS, (client * 7 + number * 3) % ACCOUNTS, number % 9);
    connection.begin()?;
    for (account, change) in [(from, -amount), (to, amount)] {
        connection.execute(&format!("UPDATE accounts SET balance = balance + {change} WHERE id = {account}"), &[])?;
    }
    let row = format!("INSERT INTO journal VALUES ({client}, {number}, {from}, {to}, {amount})");
    connection.execute(&row, &[])?;
    connection.commit()
}

/// Tables come and go, and rows of a table say which there are.
fn define(connection: &mut PostgresConnection, number: i64) -> Result<(), SqlFailure> {
    let mut run = |sql: String| connection.execute(&sql, &[]).map(drop);
    let rows = 1 + number % 5;
    run("BEGIN".to_owned())?;
    run(format!("CREATE TABLE made_{number} (id int PRIMARY KEY, other int)"))?;
    run(format!("INSERT INTO made_{number} SELECT id, 0 FROM accounts WHERE id < {rows}"))?;
    run(format!("INSERT INTO made VALUES ({number}, {rows})"))?;
    run("COMMIT".to_owned())?;
    run(format!("CREATE INDEX by_other_{number} ON made_{number} (other)"))?;
    if number % 4 > 0 {
        run("BEGIN".to_owned())?;
        run(format!("DELETE FROM made WHERE number = {number}"))?;
        run(format!("DROP TABLE made_{number}"))?;
        run("COMMIT".to_owned())?;
    } else {
        run(format!("DROP INDEX by_other_{number}"))?;
    }
    run("TRUNCATE emptied".to_owned())
}

/// Whether what is there is a state that there was; gives the transfers of each client.
fn check_copy(directory: &str) -> Vec<u64> {
    let number = |text: &String| text.parse::<i64>().unwrap();
    let sum = ask(directory, "SELECT sum(balance) FROM accounts");
    assert_eq!(number(&sum[0]), ACCOUNTS * START, "money came or went");
    let mut balances = vec![START; ACCOUNTS as usize];
    for line in ask(directory, "SELECT sender, receiver, amount FROM journal") {
        let [from, to, amount] = line.split(',').map(|text| text.parse::<i64>().unwrap()).collect::<Vec<_>>()[..]
        else {
            panic!("three numbers: {line}")
        };
        balances[from as usize] -= amount;
        balances[to as usize] += amount;
    }
    let found = ask(directory, "SELECT balance FROM accounts ORDER BY id");
    assert_eq!(found.iter().map(number).collect::<Vec<_>>(), balances, "the journal and the accounts disagree");
    let mut of_clients = Vec::new();
    for client in 0..CLIENTS {
        let sql = format!("SELECT count(*), coalesce(max(number), 0) FROM journal WHERE client = {client}");
        let line = ask(directory, &sql).remove(0);
        let (count, last) = line.split_once(',').unwrap();
        assert_eq!(count, last, "transfers of client {client} have a gap");
        of_clients.push(count.parse().unwrap());
    }
    let made = ask(directory, "SELECT number, made FROM made ORDER BY number");
    for line in &made {
        let (table, rows) = line.split_once(',').unwrap();
        assert_eq!(ask(directory, &format!("SELECT count(*) FROM made_{table}")), [rows], "table made_{table}");
    }
    let names = "SELECT count(*) FROM information_schema.tables WHERE table_name LIKE 'made\\_%'";
    assert_eq!(ask(directory, names), [made.len().to_string()], "as many tables as rows name");
    of_clients
}

fn prepare(server: &Server) {
    run(server, "CREATE TABLE accounts (id bigint PRIMARY KEY, balance bigint NOT NULL)");
    run(
        server,
        "CREATE TABLE journal (client bigint, number bigint, sender bigint, receiver bigint, amount bigint, \
         PRIMARY KEY (client, number))",
    );
    run(server, "CREATE TABLE made (number bigint PRIMARY KEY, made bigint)");
    run(server, "CREATE TABLE emptied (id bigint)");
    let rows: Vec<String> = (0..ACCOUNTS).map(|id| format!("({id}, {START})")).collect();
    run(server, &format!("INSERT INTO accounts VALUES {}", rows.join(", ")));
}

#[test]
fn backups_of_a_server_that_works() {
    let place = Place::new("backup-works");
    let server = start(&place);
    prepare(&server);
    let over = Arc::new(AtomicBool::new(false));
    let told: Arc<[AtomicU64; CLIENTS as usize]> = Arc::default();
    let mut threads = Vec::new();
    for client in 0..CLIENTS {
        let (mut connection, over, told) = (server.connect(), Arc::clone(&over), Arc::clone(&told));
        threads.push(thread::spawn(move || {
            let mut number = 1;
            while !over.load(Ordering::Relaxed) {
                match transfer(&mut connection, client, number) {
                    Ok(()) => {
                        told[client as usize].store(number as u64, Ordering::SeqCst);
                        number += 1;
                    }
                    Err(error) if error.is_retryable() => connection.rollback().unwrap(),
                    Err(error) => panic!("client {client}: {error}"),
                }
            }
        }));
    }
    let (mut connection, ending) = (server.connect(), Arc::clone(&over));
    threads.push(thread::spawn(move || {
        for number in 1.. {
            if ending.load(Ordering::Relaxed) {
                break;
            }
            match define(&mut connection, number) {
                Ok(()) => {}
                Err(error) if error.is_retryable() => connection.rollback().unwrap(),
                Err(error) => panic!("definitions: {error}"),
            }
        }
    }));
    let now = || told.iter().map(|told| told.load(Ordering::SeqCst)).collect::<Vec<_>>();
    let mut bounds = Vec::new();
    for round in 0..4 {
        thread::sleep(std::time::Duration::from_millis(300));
        let (target, before) = (place.path(&format!("backup-{round}")), now());
        let printed = succeeds(&["backup", "--url", &server.url, &target]);
        assert!(printed.contains(&format!("backed up to {target}: ")) && printed.contains("timestamp"), "{printed}");
        bounds.push((target, before, now()));
    }
    over.store(true, Ordering::Relaxed);
    for thread in threads {
        thread.join().unwrap();
    }
    // Nobody works: the last one has all.
    let (last, all) = (place.path("last"), now());
    succeeds(&["backup", "--url", &server.url, &last]);
    bounds.push((last, all.clone(), all));
    let mut states = Vec::new();
    for (target, before, after) in bounds {
        let report = succeeds(&["verify", "--workers", "1", &target]);
        assert!(report.contains("is whole") && report.contains("0 transactions behind the checkpoint"), "{report}");
        let restored = format!("{target}-restored");
        succeeds(&["restore", &target, &restored]);
        let transfers = check_copy(&restored);
        for ((has, before), after) in transfers.iter().zip(&before).zip(&after) {
            assert!(has >= before && *has <= after + 1, "{has} transfers, {before} before and {after} behind");
        }
        assert_eq!(check_copy(&target), transfers, "what is restored is what was backed up");
        states.push(transfers);
    }
    assert!(states.windows(2).all(|pair| pair[0].iter().zip(&pair[1]).all(|(one, next)| one <= next)), "{states:?}");
    // The source says the same as its last backup.
    server.stop();
    assert!(succeeds(&["verify", "--workers", "1", &place.path("db")]).contains("is whole"));
    assert_eq!(check_copy(&place.path("db")), *states.last().unwrap());
    for sql in ["SELECT * FROM accounts ORDER BY id", "SELECT * FROM journal ORDER BY client, number"] {
        assert_eq!(ask(&place.path("db"), sql), ask(&place.path("last-restored"), sql), "{sql}");
    }
}

/// Ctrl-C while a server does not answer ends the process.
#[test]
fn a_backup_without_an_answer_is_interrupted() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("postgres://eris@{}/eris", silent.local_addr().unwrap());
    let mut process = Command::new(eris()).args(["backup", "--url", &url, "/none"]).spawn().unwrap();
    let connection = silent.accept().unwrap();
    // SAFETY: the process is ours and has not been waited for.
    unsafe { libc::kill(process.id() as i32, libc::SIGINT) };
    assert_eq!(process.wait().unwrap().code(), Some(130));
    drop(connection);
}

/// A message of a server.
fn message(tag: u8, body: &[u8]) -> Vec<u8> {
    [&[tag], (body.len() as u32 + 4).to_be_bytes().as_slice(), body].concat()
}

/// A server does not hear a request to cancel that comes before the statement: Ctrl-C asks until there is an answer.
#[test]
fn a_server_that_does_not_hear_that_a_backup_is_interrupted_is_asked_again() {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("postgres://eris@{}/eris", server.local_addr().unwrap());
    let process = Command::new(eris()).args(["backup", "--url", &url, "/none"]).stderr(Stdio::piped()).spawn().unwrap();
    let (mut session, mut bytes) = (server.accept().unwrap().0, [0; 4_096]);
    assert!(session.read(&mut bytes).unwrap() > 8, "it introduces itself");
    let key = [7u32, 9].map(u32::to_be_bytes).concat();
    session.write_all(&[message(b'R', &[0; 4]), message(b'K', &key), message(b'Z', b"I")].concat()).unwrap();
    assert!(session.read(&mut bytes).unwrap() > 8, "it asks for a backup");
    // SAFETY: the process is ours and has not been waited for.
    unsafe { libc::kill(process.id() as i32, libc::SIGINT) };
    server.set_nonblocking(true).unwrap();
    let mut requests = 0;
    for _ in 0..2_000 {
        requests += u32::from(server.accept().is_ok());
        if requests == 3 {
            break;
        }
        thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(requests, 3, "how often it asks to cancel");
    let error = message(b'E', b"SERROR\0C57014\0Mcanceling statement due to user request\0\0");
    session.write_all(&[error, message(b'Z', b"I")].concat()).unwrap();
    let output = process.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "error: the backup is cancelled; nothing is left of it\n");
}

/// Ctrl-C at any moment: there is a backup, or nothing.
#[test]
fn a_backup_that_is_interrupted_leaves_nothing() {
    let place = Place::new("backup-interrupted");
    let server = start(&place);
    run(&server, "CREATE TABLE t (id bigint PRIMARY KEY, other bigint)");
    run(&server, "INSERT INTO t VALUES (0, 7)");
    for doubled in 0..18 {
        run(&server, &format!("INSERT INTO t SELECT id + {}, other FROM t", 1 << doubled));
    }
    let target = place.path("copy");
    let mut cancelled = 0;
    for _ in 0..50 {
        let process = Command::new(eris())
            .args(["backup", "--url", &server.url, &target])
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut looks = 0..10_000;
        while !Path::new(&target).exists() && looks.next().is_some() {
            thread::sleep(Duration::from_millis(1));
        }
        // SAFETY: the process is ours and has not been waited for.
        unsafe { libc::kill(process.id() as i32, libc::SIGINT) };
        let output = process.wait_with_output().unwrap();
        if output.status.success() {
            assert_eq!(ask(&target, "SELECT count(*) FROM t"), ["262144"]);
            std::fs::remove_dir_all(&target).unwrap();
            continue;
        }
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(said, "error: the backup is cancelled; nothing is left of it\n");
        assert!(!Path::new(&target).exists());
        cancelled += 1;
        if cancelled == 3 {
            return;
        }
    }
    panic!("{cancelled} of 50 backups were cancelled");
}

#[test]
fn backup_is_a_statement() {
    let place = Place::new("backup-statement");
    let server = start(&place);
    run(&server, "CREATE TABLE t (id int PRIMARY KEY)");
    run(&server, "INSERT INTO t VALUES (1), (2)");
    let mut connection = server.connect();
    let answer = connection.execute(&format!("BACKUP TO '{}'", place.path("one")), &[]).unwrap();
    let numbers: Vec<i64> = answer.rows[0].iter().map(|value| value.as_int().unwrap()).collect();
    assert!(matches!(numbers[..], [timestamp, rows, bytes] if timestamp > 0 && rows > 2 && bytes > 100), "{numbers:?}");
    std::fs::write(place.path("file"), "dear").unwrap();
    let mut state = |sql: &str| connection.execute(sql, &[]).map(drop).expect_err(sql);
    for (target, expected) in [
        (place.path("one"), "58P02"),
        (place.path("db"), "42P17"),
        (place.path("none/below"), "58P01"),
        (place.path("file"), "42809"),
        ("/sys/eris-backup".to_owned(), "42501"),
        ("relative".to_owned(), "42602"),
        (String::new(), "42602"),
    ] {
        let error = state(&format!("BACKUP TO '{target}'"));
        assert_eq!(error.sqlstate, expected, "{target}: {error}");
    }
    for sql in ["BACKUP", "BACKUP TO", "BACKUP TO one", "BACKUP '/one'", "BACKUP TO '/one' now", "BACKUP TO '/a', '/b'"]
    {
        assert_eq!(state(sql).sqlstate, "42601", "{sql}");
    }
    state("BEGIN; BACKUP TO '/one'");
    let mut connection = server.connect();
    connection.begin().unwrap();
    let error = connection.execute(&format!("BACKUP TO '{}'", place.path("two")), &[]).unwrap_err();
    assert_eq!(error.sqlstate, "25001", "{error}");
    connection.rollback().unwrap();
    assert!(!Path::new(&place.path("two")).exists());
    connection
        .execute(&format!("backup to E'{}'", place.path("it''s").replace('\'', "''").replace("''''", "''")), &[])
        .unwrap();
    server.stop();
    assert_eq!(ask(&place.path("one"), "SELECT id FROM t ORDER BY id"), ["1", "2"]);
    assert_eq!(ask(&place.path("it's"), "SELECT id FROM t ORDER BY id"), ["1", "2"]);
}

/// A closed database with a table of some rows.
fn closed(place: &Place) -> String {
    let directory = place.path("db");
    let sql = "CREATE TABLE t (id int PRIMARY KEY, name text); \
               INSERT INTO t VALUES (1, 'one'), (2, 'two'), (3, NULL); CHECKPOINT; INSERT INTO t VALUES (4, 'four')";
    succeeds(&["shell", "--workers", "1", "--db", &directory, "-c", sql]);
    directory
}

#[test]
fn closed_databases_are_backed_up_without_a_server() {
    let place = Place::new("backup-closed");
    let directory = closed(&place);
    let backup = place.path("backup");
    succeeds(&["backup", "--workers", "1", "--db", &directory, &backup]);
    let restored = place.path("restored");
    assert!(succeeds(&["restore", &backup, &restored]).contains(&format!("serve it with: eris serve --db {restored}")));
    for copy in [&directory, &backup, &restored] {
        assert_eq!(ask(copy, "SELECT name FROM t WHERE id <> 3 ORDER BY id"), ["one", "two", "four"]);
    }
    // Relative to where it is called.
    let output = Command::new(eris())
        .args(["backup", "--workers", "1", "--db", "db", "relative"])
        .current_dir(place.root())
        .output()
        .unwrap();
    assert!(output.status.success() && Path::new(&place.path("relative/eris.db")).is_file());
    let server = Server::start(&directory);
    let errors = refusal(&["backup", "--db", &directory, &place.path("other")]);
    let hint = format!("eris backup --url {} {}", server.url, place.path("other"));
    assert!(errors.contains("is in use by process") && errors.contains(&hint), "the port is its own: {errors}");
    for command in [&["verify", &directory][..], &["restore", &directory, &place.path("other")]] {
        let errors = refusal(command);
        assert!(errors.contains("is in use by process"), "{errors}");
    }
    server.stop();
    assert!(!Path::new(&place.path("other")).exists());
}

#[test]
fn places_that_cannot_be_are_refused() {
    let place = Place::new("backup-places");
    let directory = closed(&place);
    let backup = place.path("backup");
    succeeds(&["backup", "--workers", "1", "--db", &directory, &backup]);
    std::fs::create_dir_all(place.path("full/of")).unwrap();
    let errors = refusal(&["backup", "--db", &directory, &place.path("full")]);
    assert!(errors.contains("is not empty: it has \"of\""), "{errors}");
    assert!(refusal(&["restore", &backup, &place.path("full")]).contains("is not empty"));
    let errors = refusal(&["restore", &backup, &backup]);
    assert!(errors.contains("lies in the directory"), "{errors}");
    for target in [place.path("none/below"), "/proc/eris-backup".to_owned()] {
        for command in [&["backup", "--db", &directory, &target][..], &["restore", &backup, &target]] {
            let errors = refusal(command);
            let is_named = errors.contains("No such file or directory") || errors.contains("none\" does not exist");
            assert!(is_named, "{command:?}: {errors}");
        }
    }
    let errors = refusal(&["backup", "--db", &place.path("nowhere"), &place.path("new")]);
    assert!(errors.contains("is no directory with a database"), "{errors}");
    for command in [&["verify", &place.path("nowhere")][..], &["restore", &place.path("nowhere"), &place.path("new")]] {
        assert!(refusal(command).contains("No such file or directory"), "{command:?}");
    }
    let errors = refusal(&["verify", &place.path("full")]);
    assert!(errors.contains("no \"eris.db\""), "{errors}");
    let errors = refusal(&["restore", &directory, &place.path("new")]);
    assert!(errors.contains("is no backup: there are commits in its log"), "{errors}");
    let errors = refusal(&["backup", "--url", "postgres://eris@127.0.0.1:1/eris", &place.path("new")]);
    assert!(errors.contains("cannot connect to 127.0.0.1:1") && errors.contains("--db"), "{errors}");
    assert!(!Path::new(&place.path("new")).exists() && !Path::new(&place.path("nowhere")).exists());
    assert_eq!(ask(&backup, "SELECT count(*) FROM t"), ["4"]);
}

/// Every file with its bytes.
fn contents(directory: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    for below in ["", "log", "checkpoint"] {
        for entry in std::fs::read_dir(Path::new(directory).join(below)).unwrap() {
            let path = entry.unwrap().path();
            if path.is_file() {
                found.push((path.clone(), std::fs::read(&path).unwrap()));
            }
        }
    }
    found.sort();
    found
}

#[test]
fn verification_needs_the_right_to_read_and_no_other() {
    let place = Place::new("backup-reads");
    let directory = closed(&place);
    let before = contents(&directory);
    // Its owner lets others read it: a database is made for its owner alone.
    let readable = Command::new("chmod").args(["-R", "a+rX", &directory]).status().unwrap();
    assert!(readable.success());
    // SAFETY: it only says who runs this.
    let is_root = unsafe { libc::geteuid() } == 0;
    // The binary may lie where only this user goes.
    let binary = place.root().join("eris");
    if std::fs::hard_link(eris(), &binary).is_err() {
        std::fs::copy(eris(), &binary).unwrap();
    }
    let other = |arguments: &[&str]| {
        let mut command = Command::new(&binary);
        command.args(arguments).stdin(Stdio::null());
        if is_root {
            command.uid(NOBODY).gid(NOBODY);
        }
        command.output().unwrap()
    };
    let output = other(&["verify", "--workers", "1", &directory]);
    let (printed, errors) = texts(&output);
    assert!(output.status.success() && printed.contains("1 tables with 4 rows"), "{printed}{errors}");
    assert_eq!(contents(&directory), before, "nothing is changed by looking");
    if is_root {
        let output = other(&["restore", &directory, &place.path("theirs")]);
        let (_, errors) = texts(&output);
        assert_eq!(output.status.code(), Some(1), "{errors}");
        let output = other(&["backup", "--workers", "1", "--db", &directory, &place.path("theirs")]);
        let (_, errors) = texts(&output);
        assert!(errors.contains("Permission denied") && errors.contains("must own the directory"), "{errors}");
    }
}

#[test]
fn damage_is_found() {
    let place = Place::new("backup-damage");
    let directory = closed(&place);
    for (path, good) in contents(&directory) {
        let name = path.to_str().unwrap();
        let is = |extension: &str| path.extension().is_some_and(|found| found == extension);
        if is("lock") || good.is_empty() {
            continue;
        }
        // What a crash left of a log's end is no damage: its beginning is cut off here.
        for length in if is("log") { vec![10, 63] } else { vec![good.len() / 2, good.len() - 1] } {
            std::fs::write(&path, &good[..length]).unwrap();
            let errors = refusal(&["verify", "--workers", "1", &directory]);
            assert!(errors.contains("is damaged"), "{length} bytes of {name}: {errors}");
            std::fs::write(&path, &good).unwrap();
        }
    }
    assert!(succeeds(&["verify", "--workers", "1", &directory]).contains("is whole"));
    std::fs::remove_dir_all(Path::new(&directory).join("checkpoint")).unwrap();
    assert!(!refusal(&["verify", "--workers", "1", &directory]).is_empty());
}

#[test]
fn what_contradicts_itself_is_found() {
    let place = Place::new("backup-contradicts");
    let directory = closed(&place);
    let options = || eris::Options { workers: 1, ..eris::Options::default() };
    let open = || {
        let durability = eris::DurabilityOptions::default();
        eris::Database::open_directory(Path::new(&directory), options(), &durability, |_| {}).unwrap()
    };
    let database = open();
    let container = database.sql().catalog().current().find("t").unwrap().container();
    // A foreign key that nobody has looked at, and for which there is no parent.
    database.connect().execute("CREATE TABLE parent (id int PRIMARY KEY)").unwrap();
    let parent = database.sql().catalog().current().find("parent").unwrap().container();
    let side = |container, name: &str| eris_engine::KeySide {
        container,
        name: name.into(),
        attributes: Box::new([eris_storage::AttributeId(0)]),
    };
    let key = eris_engine::Definition::ForeignKey(eris_engine::ForeignKeySpec {
        name: "planted".into(),
        child: side(container, "t"),
        parent: side(parent, "parent"),
        on_delete: eris_engine::ReferentialAction::NoAction,
        on_update: eris_engine::ReferentialAction::NoAction,
    });
    let engine = database.engine().clone();
    database.engine().block_on(async move { engine.make(&key).await }).unwrap().unwrap();
    database.connect().execute("CHECKPOINT").unwrap();
    database.close();
    let errors = refusal(&["verify", "--workers", "1", &directory]);
    assert!(errors.contains("is damaged: 1 finding\n") && errors.contains("\"planted\""), "{errors}");
    // A name without a table.
    let database = open();
    database.engine().drop_container(container).unwrap();
    database.close();
    let errors = refusal(&["verify", "--workers", "1", &directory]);
    assert!(errors.contains("table \"t\"") && errors.contains("does not exist"), "{errors}");
}
