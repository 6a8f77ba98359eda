//! The files of backups: what is left when one fails, at any operation of the disk; what is refused; what verification
//! finds.

#![expect(clippy::expect_used, reason = "a test fails by panicking")]

mod schemas;
mod shelf;

use std::path::Path;
use std::sync::Arc;

use eris_durability::{BackupReport, DurabilityError, DurabilityOptions, VerifyReport, back_up, restore, verify};
use eris_engine::{
    CancelHandle, Definition, EngineError, EngineOptions, ForeignKeySpec, KeySide, ReferentialAction, Simulation,
    SimulationError,
};
use eris_platform::simulated::FileFault;
use eris_platform::{Env, SimulatedEnv};
use eris_storage::{AttributeId, ContainerId};
use shelf::{PATH, Shelf, TABLE, create_other, files, files_at, insert, is, open_or_panic, options, row, try_open_at};

const BACKUP: &str = "/backup";
const RESTORED: &str = "/restored";

/// An open database with keys 0 to 39, some of them in a checkpoint, and with a dead row.
fn open_database(env: &SimulatedEnv) -> Shelf {
    let mut shelf = open_or_panic(env);
    shelf.create();
    shelf.load(0..64);
    shelf.insert(64..70);
    shelf.checkpoint();
    shelf.insert(70..75);
    shelf
}

fn all_keys() -> Vec<i64> {
    (0..75).collect()
}

type Outcome = Result<Result<BackupReport, DurabilityError>, SimulationError>;

fn try_back_up(shelf: &mut Shelf, path: &'static str) -> Outcome {
    let engine = shelf.engine();
    shelf.simulation.block_on(async move { back_up(&engine, Path::new(path), CancelHandle::default()).await })
}

/// A machine with a backup and nobody at work.
fn with_backup() -> SimulatedEnv {
    let env = SimulatedEnv::new(1);
    let mut shelf = open_database(&env);
    let report = try_back_up(&mut shelf, BACKUP).expect("ends").expect("is taken");
    assert_eq!(report.rows, 75);
    shelf.close();
    env
}

fn try_verify(env: &SimulatedEnv, path: &'static str) -> Result<VerifyReport, DurabilityError> {
    try_verify_in(&mut Simulation::on(env, EngineOptions::default()).expect("starts"), path)
}

fn try_verify_in(simulation: &mut Simulation, path: &'static str) -> Result<VerifyReport, DurabilityError> {
    let engine = simulation.engine().clone();
    simulation.block_on(async move { verify(&engine, Path::new(path), 10, |_| {}).await }).expect("ends")
}

/// What verification says is wrong, or why it does not look.
fn wrong(env: &SimulatedEnv, path: &'static str) -> Vec<String> {
    wrong_in(env, &mut Simulation::on(env, EngineOptions::default()).expect("starts"), path)
}

/// The same in an engine that is kept: it is not used, if files are damaged.
fn wrong_in(env: &SimulatedEnv, simulation: &mut Simulation, path: &'static str) -> Vec<String> {
    let before = files_at(env, path);
    let wrong = match try_verify_in(simulation, path) {
        Ok(report) => report.wrong,
        Err(error) => vec![error.to_string()],
    };
    assert!(before == files_at(env, path), "nothing is changed by looking");
    wrong
}

fn restored(env: &SimulatedEnv, from: &str, to: &str) -> Result<u64, DurabilityError> {
    let env: Arc<dyn Env> = Arc::new(env.clone());
    restore(&env, Path::new(from), Path::new(to)).map(|report| report.rows)
}

fn keys_at(env: &SimulatedEnv, path: &'static str) -> Vec<i64> {
    let mut shelf = try_open_at(env, path, &options()).unwrap_or_else(|error| panic!("{path} opens: {error}"));
    let keys = shelf.keys();
    shelf.close();
    keys
}

fn change(env: &SimulatedEnv, path: &str, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = env.simulated_files().contents(path).unwrap_or_else(|| panic!("{path} exists"));
    change(&mut bytes);
    env.simulated_files().insert(path, bytes);
}

/// Changes the text of a manifest, and its check with it.
fn rewrite(env: &SimulatedEnv, manifest: &str, from: &str, to: &str) {
    change(env, manifest, |bytes| {
        let text = String::from_utf8(bytes.clone()).expect("a text");
        assert!(text.contains(from), "{from} in {text}");
        let text = text.replacen(from, to, 1);
        let line = text.split_once('\n').expect("two lines").0;
        *bytes = format!("{line}\ncheck {:08x}\n", crc32c::crc32c(line.as_bytes())).into_bytes();
    });
}

/// That a database does not fit is no fault of its files.
#[test]
fn verification_without_the_memory_for_it_finds_no_damage() {
    let env = with_backup();
    let mut refused = 0;
    for limit in (14..24).map(|power| 1 << power) {
        let options = EngineOptions { memory_limit_bytes: limit, ..EngineOptions::default() };
        let Ok(mut simulation) = Simulation::on(&env, options) else { continue };
        match try_verify_in(&mut simulation, PATH) {
            Err(error) => {
                assert!(error.is_out_of_memory(), "{limit}: {error}");
                refused += 1;
            }
            Ok(report) => assert!(report.wrong.is_empty() && report.rows == 75, "{limit}: {report:?}"),
        }
    }
    assert!(refused > 0, "all limits were enough");
}

#[test]
fn a_backup_is_a_database_and_so_is_what_is_restored_of_it() {
    let env = with_backup();
    assert_eq!(restored(&env, BACKUP, RESTORED).expect("restores"), 75);
    for path in [BACKUP, RESTORED] {
        let report = try_verify(&env, path).expect("looks");
        assert_eq!((report.wrong.len(), report.rows, report.records, report.transactions), (0, 75, 0, 0));
        assert_eq!(keys_at(&env, path), all_keys());
    }
    let ids: Vec<_> = [PATH, BACKUP, RESTORED]
        .iter()
        .map(|path| env.simulated_files().contents(format!("{path}/eris.db")).expect("there"))
        .collect();
    assert!(ids[0] != ids[1] && ids[1] != ids[2] && ids[0] != ids[2], "each has an id of its own");
    let report = try_verify(&env, PATH).expect("looks");
    assert_eq!((report.wrong.len(), report.rows, report.transactions), (0, 75, 5), "{report:?}");
    assert!(report.records > 5 && report.blocks > 1, "{report:?}");
}

#[test]
fn a_database_in_memory_can_be_backed_up() {
    let env = SimulatedEnv::new(1);
    let mut shelf =
        Shelf { simulation: Simulation::on(&env, EngineOptions::default()).expect("starts"), database: None };
    shelf.create();
    shelf.insert(0..5);
    try_back_up(&mut shelf, BACKUP).expect("ends").expect("is taken");
    drop(shelf);
    assert_eq!(keys_at(&env, BACKUP), [0, 1, 2, 3, 4]);
}

/// Each operation of the disk fails once.
#[test]
fn a_backup_that_fails_leaves_nothing_and_the_database_works() {
    for (fault, exists) in [FileFault::Broken, FileFault::NoSpace].into_iter().flat_map(|it| [(it, false), (it, true)])
    {
        let mut failures = 0;
        for operation in 0.. {
            let env = SimulatedEnv::new(1);
            let mut shelf = open_database(&env);
            if exists {
                env.files().create_directory(BACKUP.as_ref()).expect("creates");
            }
            let at = env.simulated_files().operations() + operation;
            env.simulated_files().fail_at(at, fault);
            let Err(error) = try_back_up(&mut shelf, BACKUP).expect("ends") else {
                if env.simulated_files().operations() <= at {
                    break;
                }
                // Nothing that matters: who has the lock is told to people only.
                assert_eq!(wrong(&env, BACKUP), [""; 0], "operation {operation}");
                continue;
            };
            failures += 1;
            assert!(fault == FileFault::Broken || error.is_full(), "{error}");
            assert_eq!(env.files().exists(BACKUP.as_ref()), exists, "operation {operation}: {error}");
            if exists {
                assert!(files_at(&env, BACKUP).is_empty(), "operation {operation}: {error}");
                let left = env.files().list_directories(BACKUP.as_ref()).expect("lists");
                assert_eq!(left, [""; 0], "operation {operation}: {error}");
            }
            try_back_up(&mut shelf, BACKUP).expect("ends").expect("the next one is taken");
            assert_eq!(wrong(&env, BACKUP), [""; 0]);
            shelf.insert(75..76);
            shelf.checkpoint();
            shelf.close();
            assert_eq!(keys_at(&env, PATH), (0..76).collect::<Vec<_>>());
        }
        assert!(failures > 10, "{failures} operations failed");
    }
}

#[test]
fn a_disk_that_runs_full_refuses_the_backup_and_not_the_database() {
    let env = SimulatedEnv::new(1);
    let mut shelf = open_database(&env);
    let used: usize = files(&env).iter().map(|(_, bytes)| bytes.len()).sum();
    // A data file takes whole blocks.
    for room in (0..12_000).step_by(97) {
        env.simulated_files().set_capacity(Some((used + room) as u64));
        match try_back_up(&mut shelf, BACKUP).expect("ends") {
            Ok(_) => {
                env.simulated_files().set_capacity(None);
                assert!(room > 500, "{room} bytes are not enough");
                shelf.insert(75..76);
                shelf.close();
                return assert_eq!(keys_at(&env, BACKUP), all_keys());
            }
            Err(error) => assert!(error.is_full() && !env.files().exists(BACKUP.as_ref()), "{room}: {error}"),
        }
    }
    panic!("there was room enough");
}

/// The power goes at every operation: what is there then is a backup or none, and the database is.
#[test]
fn a_backup_that_the_power_ends_is_refused() {
    let (mut whole, mut refused) = (0, 0);
    for operation in 0.. {
        let env = SimulatedEnv::new(operation);
        let mut shelf = open_database(&env);
        env.lose_power_at(env.simulated_files().operations() + operation);
        let done = matches!(try_back_up(&mut shelf, BACKUP), Ok(Ok(_)));
        drop(shelf);
        env.lose_power();
        match try_verify(&env, BACKUP) {
            Ok(report) => {
                assert_eq!(report.wrong, [""; 0], "operation {operation}");
                assert_eq!(keys_at(&env, BACKUP), all_keys(), "operation {operation}");
                whole += 1;
            }
            Err(error) => {
                assert!(!done, "operation {operation}: {error}");
                refused += 1;
                let is_there = env.files().exists(format!("{BACKUP}/log").as_ref());
                let opened = try_open_at(&env, BACKUP, &options()).map(drop);
                match opened {
                    // A directory in which nothing was begun is an empty one.
                    Ok(()) => assert!(!is_there, "operation {operation}"),
                    Err(error) => assert!(matches!(error, DurabilityError::Unfinished { .. }), "{error}"),
                }
                assert!(restored(&env, BACKUP, RESTORED).is_err() || !is_there);
            }
        }
        assert_eq!(keys_at(&env, PATH), all_keys(), "operation {operation}");
        if done {
            break;
        }
    }
    assert!(whole > 0 && refused > 10, "{whole} backups were whole, {refused} none");
}

#[test]
fn every_byte_of_a_backup_counts() {
    let env = with_backup();
    let mut simulation = Simulation::on(&env, EngineOptions::default()).expect("starts");
    let all: Vec<_> = files_at(&env, BACKUP).into_iter().filter(|(path, _)| !is(path, "lock")).collect();
    assert_eq!(all.len(), 3, "an identity, a manifest, rows");
    for (path, good) in all {
        for at in 0..good.len() {
            change(&env, &path, |bytes| bytes[at] ^= 1 << (at % 8));
            let told = wrong_in(&env, &mut simulation, BACKUP);
            assert!(!told.is_empty(), "byte {at} of {path}");
            let error = restored(&env, BACKUP, RESTORED).expect_err("it is refused");
            assert!(!env.files().exists(RESTORED.as_ref()), "byte {at} of {path}: {error}");
            env.simulated_files().insert(&path, good.clone());
        }
        for length in [0, 10, 63, 64, good.len() / 2, good.len() - 1] {
            change(&env, &path, |bytes| bytes.truncate(length));
            assert!(wrong(&env, BACKUP)[0].contains(&path), "{length} bytes of {path}");
            restored(&env, BACKUP, RESTORED).expect_err("it is refused");
            env.simulated_files().insert(&path, good.clone());
        }
        env.files().remove(path.as_ref()).expect("removed");
        assert!(!wrong(&env, BACKUP).is_empty(), "without {path}");
        try_open_at(&env, BACKUP, &options()).map(drop).expect_err("it is not opened");
        restored(&env, BACKUP, RESTORED).expect_err("it is refused");
        env.simulated_files().insert(&path, good);
    }
    assert_eq!(wrong(&env, BACKUP), [""; 0]);
}

/// What opening passes over is looked at, too.
#[test]
fn what_nobody_needs_is_looked_at() {
    let env = SimulatedEnv::new(1);
    let large = DurabilityOptions { log_file_bytes: 64 << 10, ..options() };
    let mut shelf = try_open_at(&env, PATH, &large).unwrap_or_else(|error| panic!("it opens: {error}"));
    shelf.create();
    shelf.load(0..64);
    shelf.insert(64..70);
    shelf.checkpoint();
    // The rows of open segments are written again: their former block is not needed any more, the file is.
    shelf.insert(70..71);
    shelf.checkpoint();
    shelf.close();
    assert_eq!(wrong(&env, PATH), [""; 0]);
    let data = files(&env).into_iter().filter(|(path, _)| is(path, "data")).collect::<Vec<_>>();
    let (path, good) = &data[0];
    let mut found = 0;
    for at in 64..good.len() {
        change(&env, path, |bytes| bytes[at] ^= 4);
        assert!(wrong(&env, PATH).iter().any(|told| told.contains(path.as_str())), "byte {at} of {path}");
        found += u64::from(try_open_at(&env, PATH, &large).is_ok());
        env.lose_power();
        env.simulated_files().insert(path, good.clone());
    }
    assert!(found > 0, "opening does not need all blocks");
    let longer: Vec<u8> = good.iter().copied().chain([0]).collect();
    env.simulated_files().insert(path, longer);
    assert!(wrong(&env, PATH)[0].contains("the manifest says"), "{:?}", wrong(&env, PATH));
}

fn foreign_key(parent: ContainerId) -> ForeignKeySpec {
    let side = |container, name: &str| KeySide { container, name: name.into(), attributes: Box::new([AttributeId(0)]) };
    ForeignKeySpec {
        name: "planted".into(),
        child: side(TABLE, "child"),
        parent: side(parent, "parent"),
        on_delete: ReferentialAction::NoAction,
        on_update: ReferentialAction::NoAction,
    }
}

/// Files that are whole, and say what cannot be.
#[test]
fn inconsistencies_are_found() {
    let env = SimulatedEnv::new(1);
    let mut shelf = open_or_panic(&env);
    shelf.create();
    let engine = shelf.engine();
    create_other(&engine).expect("creates");
    shelf.insert(0..3);
    // Taken to hold, as a recovery does; the parent has no rows.
    let key = Definition::ForeignKey(foreign_key(ContainerId(3)));
    let planting = engine.clone();
    shelf.simulation.block_on(async move { planting.make(&key).await }).expect("ends").expect("makes");
    shelf.checkpoint();
    shelf.close();
    let told = wrong(&env, PATH);
    assert!(told.len() == 1 && told[0].contains("violates foreign key constraint \"planted\""), "{told:?}");

    let manifest = format!("{BACKUP}/checkpoint/manifest");
    let twice = SimulatedEnv::new(1);
    let mut shelf = open_or_panic(&twice);
    shelf.create();
    let engine = shelf.engine();
    shelf.insert(0..3);
    let text = async move {
        let mut transaction = engine.begin();
        transaction.insert(TABLE, row(7, "")).await?;
        transaction.commit().await.map(drop)
    };
    shelf.simulation.block_on(text).expect("ends").expect("inserts");
    try_back_up(&mut shelf, BACKUP).expect("ends").expect("is taken");
    shelf.close();
    assert_eq!(wrong(&twice, BACKUP), [""; 0]);
    // A row has no text.
    rewrite(&twice, &manifest, "\"nullable\":true", "\"nullable\":false");
    let told = wrong(&twice, BACKUP);
    assert!(told.len() == 1 && told[0].contains("text"), "{told:?}");
    rewrite(&twice, &manifest, "{\"name\":\"text\",\"data_type\":\"text\",\"nullable\":false}", "");
    assert!(!wrong(&twice, BACKUP).is_empty());
}

#[test]
fn targets_and_sources_that_cannot_be_are_refused() {
    let env = with_backup();
    let mut shelf = open_or_panic(&env);
    let mut refused = |path| try_back_up(&mut shelf, path).expect("ends").expect_err("it is refused").to_string();
    let text = refused(BACKUP);
    assert!(text.contains("\"/backup\" is not empty: it has \"eris.") && text.contains("choose an empty"), "{text}");
    let text = refused(PATH);
    assert!(text.contains("\"/db\" is not empty"), "{text}");
    let text = refused("/none/below");
    assert!(text.contains("\"/none\" does not exist"), "{text}");
    assert!(!env.files().exists("/none".as_ref()));
    let text = restored(&env, BACKUP, "/none/below").expect_err("it is refused").to_string();
    assert!(text.contains("\"/none\" does not exist"), "{text}");
    for inside in [BACKUP, "/backup/below", "/backup/log/../log"] {
        let text = restored(&env, BACKUP, inside).expect_err("it is the source").to_string();
        assert!(text.contains("lies in the directory of the database, \"/backup\""), "{text}");
    }
    env.simulated_files().insert("/file", b"dear".to_vec());
    let text = refused("/file");
    assert!(text.contains("/file") && text.contains("Not a directory"), "{text}");
    env.files().create_directory("/directories/one".as_ref()).expect("creates");
    let text = refused("/directories");
    assert!(text.contains("it has \"one\""), "{text}");
    // Whoever has it open.
    let text = restored(&env, PATH, RESTORED).expect_err("it is in use").to_string();
    assert!(text.contains("in use by process"), "{text}");
    let text = try_verify(&env, PATH).expect_err("it is in use").to_string();
    assert!(text.contains("in use by process"), "{text}");
    shelf.close();
    let text = restored(&env, PATH, RESTORED).expect_err("it has a log").to_string();
    assert!(text.contains("\"/db\" is no backup: there are commits in its log"), "{text}");
    assert!(text.contains("eris backup --db /db DIR"), "{text}");
    let text = restored(&env, BACKUP, "/directories").expect_err("it is not empty").to_string();
    assert!(text.contains("is not empty"), "{text}");
    let text = restored(&env, "/nowhere", RESTORED).expect_err("there is none").to_string();
    assert!(text.contains("/nowhere"), "{text}");
    for path in ["/directories", "/nowhere", "/file"] {
        try_verify(&env, path).expect_err("there is no database");
    }
    // A database that lost its identity is no new one.
    env.files().remove(format!("{BACKUP}/eris.db").as_ref()).expect("removed");
    let before = files_at(&env, BACKUP);
    let text = try_open_at(&env, BACKUP, &options()).map(drop).expect_err("it is refused").to_string();
    assert!(text.contains("has parts of a database but no \"eris.db\""), "{text}");
    let names = |files: Vec<(String, Vec<u8>)>| files.into_iter().map(|(path, _)| path).collect::<Vec<_>>();
    assert_eq!(names(files_at(&env, BACKUP)), names(before));
}

#[test]
fn a_backup_is_cancelled() {
    let env = SimulatedEnv::new(1);
    let mut shelf = open_database(&env);
    for pause in 0..30 {
        let (engine, cancel) = (shelf.engine(), CancelHandle::default());
        let (waiting, canceller) = (engine.clone(), cancel.clone());
        engine.spawn(async move {
            waiting.sleep_until(waiting.env().now() + std::time::Duration::from_micros(pause * 20)).await;
            canceller.cancel();
        });
        let cancelled =
            shelf.simulation.block_on(async move { back_up(&engine, Path::new(BACKUP), cancel).await }).expect("ends");
        match cancelled {
            Err(DurabilityError::Engine(EngineError::Cancelled)) => {
                assert!(!env.files().exists(BACKUP.as_ref()), "nothing is left");
            }
            Ok(_) => {
                assert!(pause > 0, "it was cancelled before it began");
                return;
            }
            Err(error) => panic!("{error}"),
        }
    }
}

/// Whoever waited for it goes, and it goes with them.
#[test]
fn a_backup_that_nobody_waits_for_leaves_nothing() {
    for steps in 0..60 {
        let env = SimulatedEnv::new(1);
        let mut shelf = open_database(&env);
        let engine = shelf.engine();
        let mut backup = Box::pin(async move { back_up(&engine, Path::new(BACKUP), CancelHandle::default()).await });
        let mut left = steps;
        let ended = std::future::poll_fn(move |context| {
            left -= 1;
            let polled = backup.as_mut().poll(context).map(drop);
            if left < 0 && polled.is_pending() { std::task::Poll::Ready(false) } else { polled.map(|()| true) }
        });
        let done = shelf.simulation.block_on(ended).expect("ends");
        shelf.simulation.run_until_idle().expect("comes to rest");
        if done {
            assert!(steps > 5, "it was dropped a few times");
            return assert_eq!(wrong(&env, BACKUP), [""; 0]);
        }
        assert!(!env.files().exists(BACKUP.as_ref()), "dropped after {steps} steps");
        shelf.close();
    }
    panic!("it came to no end");
}

/// Keeps what tests share from being unused.
#[test]
fn the_source_is_as_it_was() {
    let env = SimulatedEnv::new(1);
    let mut shelf = open_database(&env);
    let before: Vec<String> = files(&env).into_iter().map(|(path, _)| path).collect();
    try_back_up(&mut shelf, BACKUP).expect("ends").expect("is taken");
    let after: Vec<String> = files(&env).into_iter().map(|(path, _)| path).collect();
    assert_eq!(before, after, "neither a log file nor a checkpoint goes or comes");
    let engine = shelf.engine();
    shelf.simulation.block_on(async move { insert(&engine, 75..80).await }).expect("ends").expect("inserts");
    shelf.checkpoint();
    shelf.close();
    assert_eq!(keys_at(&env, PATH), (0..80).collect::<Vec<_>>());
    assert_eq!(keys_at(&env, BACKUP), all_keys());
}
