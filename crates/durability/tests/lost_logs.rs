//! A log that is removed, moved or replaced, while the database is open or not: what was told is not lost without a
//! word.

#![expect(clippy::expect_used, reason = "a test fails by panicking")]

mod schemas;
mod shelf;

use std::path::Path;

use eris_durability::{Directory, DurabilityError, verify};
use eris_engine::{EngineError, LogError};
use eris_platform::simulated::{DiskFaults, FileFault, Unsynced};
use eris_platform::{Env, SimulatedEnv};
use shelf::{PATH, Shelf, files, insert, is, open_or_panic, options, try_open};

const LOG: &str = "/db/log";
const ELSEWHERE: &str = "/elsewhere";

fn open_database(env: &SimulatedEnv) -> Shelf {
    let mut shelf = open_or_panic(env);
    shelf.create();
    shelf.insert(0..3);
    shelf
}

/// What a commit hears after which none is accepted.
fn refused_commit(shelf: &mut Shelf, key: i64) -> String {
    let engine = shelf.engine();
    let inserted = shelf.simulation.block_on(async move { insert(&engine, key..key + 1).await }).expect("ends");
    match inserted {
        Err(EngineError::Log(LogError::Failed { reason, is_over: true })) => reason.to_string(),
        other => panic!("it is refused for good, and not {other:?}"),
    }
}

/// What closing says that finds the log gone.
fn refused_close(mut shelf: Shelf) -> String {
    let database = shelf.database.take().expect("open");
    let closed = shelf.simulation.block_on(async move { database.close().await }).expect("ends");
    closed.expect_err("what was committed is not found again").to_string()
}

fn refused_opening(env: &SimulatedEnv) -> String {
    let before: Vec<String> = names(env, "").filter(|path| !is(path, "lock")).collect();
    let refused = try_open(env, &options()).map(|_: Shelf| ()).expect_err("its log is gone");
    assert!(matches!(refused, DurabilityError::NoLog { .. }), "{refused}");
    let after: Vec<String> = names(env, "").filter(|path| !is(path, "lock")).collect();
    assert_eq!(after, before, "nothing is made in its place");
    refused.to_string()
}

/// The paths of all files of the database of which this is a part.
fn names(env: &SimulatedEnv, part: &str) -> impl Iterator<Item = String> {
    files(env).into_iter().map(|(path, _)| path).filter(move |path| path.contains(part))
}

fn remove_log_files(env: &SimulatedEnv) {
    for path in names(env, LOG) {
        env.files().remove(path.as_ref()).expect("is there");
    }
}

/// Copies the files of the log, as they are, into a directory.
fn copy_log(env: &SimulatedEnv, from: &str, to: &str) {
    for name in env.files().list(from.as_ref()).expect("a directory") {
        let bytes = env.simulated_files().contents(format!("{from}/{name}")).expect("is there");
        env.simulated_files().insert(format!("{to}/{name}"), bytes);
    }
}

#[test]
fn a_log_file_that_was_removed_takes_no_commits() {
    for is_reopened in [false, true] {
        let env = SimulatedEnv::new(1);
        let mut shelf = open_database(&env);
        if is_reopened {
            // The last file with a name is one of the process before.
            shelf.close();
            shelf = open_or_panic(&env);
        }
        remove_log_files(&env);
        let told = refused_commit(&mut shelf, 3);
        let words = ["is no longer the log file that was opened: that was removed", "copy out what is needed", LOG];
        assert!(words.iter().all(|word| told.contains(word)), "{told}");
        let checkpoint = shelf.try_checkpoint().expect_err("it would be useless without the log behind it");
        assert!(checkpoint.to_string().contains(&told), "{checkpoint}");
        assert_eq!(refused_commit(&mut shelf, 4), told);
        assert_eq!(shelf.keys(), [0, 1, 2], "what was told can be read");
        drop(shelf);
        env.kill_process();
        let told = refused_opening(&env);
        assert!(told.contains("\"/db/log\" has no log file: the log of this database is gone"), "{told}");
        assert!(told.contains("restore the directory from a backup; for a new database choose"), "{told}");
    }
}

/// Whatever is at its place then: nothing, another directory, a copy.
#[test]
fn a_log_directory_that_was_moved_takes_no_commits() {
    for place in ["nothing", "directory", "copy"] {
        let env = SimulatedEnv::new(1);
        let mut shelf = open_database(&env);
        env.simulated_files().move_directory(LOG, ELSEWHERE);
        match place {
            "nothing" => {}
            "directory" => env.files().create_directory(LOG.as_ref()).expect("is made"),
            _ => copy_log(&env, ELSEWHERE, LOG),
        }
        let before = files(&env);
        for key in 3..60 {
            let told = refused_commit(&mut shelf, key);
            let words = ["is no longer the log file that was opened", "that is now \"/elsewhere/", "move it back"];
            assert!(words.iter().all(|word| told.contains(word)), "{place}: {told}");
        }
        assert!(shelf.try_checkpoint().is_err());
        assert!(refused_close(shelf).contains("\"/elsewhere/"));
        assert!(files(&env) == before, "{place}: nothing is made in its place");
        if place == "nothing" {
            assert!(refused_opening(&env).contains("\"/db/log\" is missing"));
        } else {
            env.simulated_files().move_directory(LOG, "/useless");
        }
        env.simulated_files().move_directory(ELSEWHERE, LOG);
        let kept = open_or_panic(&env).keys();
        assert!(kept.starts_with(&[0, 1, 2]) && kept.len() < 5, "{place}: what was told is there: {kept:?}");
    }
}

/// Nobody commits: closing finds it.
#[test]
fn a_database_that_is_closed_says_that_its_log_is_gone() {
    for rows in [0, 3] {
        let env = SimulatedEnv::new(1);
        open_database(&env).close();
        let mut shelf = open_or_panic(&env);
        shelf.insert(3..3 + rows);
        remove_log_files(&env);
        let told = refused_close(shelf);
        assert!(told.contains("is no longer the log file that was opened: that was removed"), "{told}");
        refused_opening(&env);
    }
}

/// A checkpoint that would need a log behind it is not taken, also if no commit has found out.
#[test]
fn no_checkpoint_is_taken_behind_a_log_that_is_gone() {
    let env = SimulatedEnv::new(1);
    let mut shelf = open_database(&env);
    remove_log_files(&env);
    let told = shelf.try_checkpoint().expect_err("there is no log");
    assert!(matches!(*told, DurabilityError::Lost { .. }), "{told}");
    assert_eq!(refused_commit(&mut shelf, 3), told.to_string());
}

/// The file that lies ready is no longer there: no commit is told that would need it.
#[test]
fn a_spare_file_that_was_removed_is_missed() {
    let env = SimulatedEnv::new(1);
    let mut shelf = open_database(&env);
    let mut key = 3;
    while names(&env, ".spare").count() == 0 {
        shelf.insert(key..key + 1);
        key += 1;
    }
    for path in names(&env, ".spare") {
        env.files().remove(path.as_ref()).expect("is there");
    }
    let told = loop {
        let engine = shelf.engine();
        match shelf.simulation.block_on(async move { insert(&engine, key..key + 1).await }).expect("ends") {
            Ok(()) => key += 1,
            Err(error) => break error.to_string(),
        }
    };
    assert!(told.contains(".spare\" is no longer the log file that was opened: that was removed"), "{told}");
    drop(shelf);
    assert!(open_or_panic(&env).keys().starts_with(&(0..key).collect::<Vec<_>>()));
}

/// Log files come and go all the time: nobody takes that for a loss.
#[test]
fn log_files_that_come_and_go_are_no_loss() {
    let env = SimulatedEnv::new(1);
    let mut shelf = open_database(&env);
    let mut seen = Vec::new();
    for key in 3..200 {
        shelf.insert(key..key + 1);
        if key % 7 == 0 {
            shelf.checkpoint();
        }
        seen.extend(names(&env, ".log"));
        if key % 31 == 0 {
            shelf.close();
            shelf = open_or_panic(&env);
        }
    }
    seen.sort_unstable();
    seen.dedup();
    assert!(seen.len() > names(&env, ".log").count() + 5, "{} log files came and went", seen.len());
    shelf.close();
    assert_eq!(open_or_panic(&env).keys(), (0..200).collect::<Vec<_>>());
}

/// What `eris verify` says of it.
fn try_verify(env: &SimulatedEnv) -> Result<(), DurabilityError> {
    let mut simulation = eris_engine::Simulation::on(env, eris_engine::EngineOptions::default()).expect("starts");
    let engine = simulation.engine().clone();
    let verified = simulation.block_on(async move { verify(&engine, Path::new(PATH), 20, |_| {}).await });
    verified.expect("ends").map(|report| assert_eq!(report.wrong, Vec::<String>::new()))
}

#[test]
fn a_database_without_its_log_is_not_opened_as_a_new_one() {
    for is_empty in [false, true] {
        let env = SimulatedEnv::new(1);
        let mut shelf = open_or_panic(&env);
        if !is_empty {
            shelf.create();
            shelf.insert(0..3);
        }
        shelf.close();
        try_verify(&env).expect("it is whole");
        env.simulated_files().move_directory(LOG, ELSEWHERE);
        let told = refused_opening(&env);
        assert!(told.contains("\"/db/log\" is missing: the log of this database is gone"), "{told}");
        assert_eq!(try_verify(&env).expect_err("nor is it whole").to_string(), told);
        env.files().create_directory(LOG.as_ref()).expect("is made");
        let told = refused_opening(&env);
        assert!(told.contains("\"/db/log\" has no log file: the log of this database is gone"), "{told}");
        assert_eq!(try_verify(&env).expect_err("nor is it whole").to_string(), told);
        env.files().remove_directory(LOG.as_ref()).expect("is empty");
        env.simulated_files().move_directory(ELSEWHERE, LOG);
        drop(open_or_panic(&env));
    }
}

/// The power goes at each operation of the disk while a database is made, and again while it is made again, or
/// operations fail: it is opened as new afterwards, and takes commits.
#[test]
fn a_database_whose_making_was_interrupted_is_made_again() {
    let mut interrupted = 0;
    for unsynced in [Unsynced::Lost, Unsynced::Kept] {
        for (operation, is_failure) in (0..40).flat_map(|operation| [(operation, false), (operation, true)]) {
            let env = SimulatedEnv::new(operation);
            let disk = env.simulated_files();
            disk.set_disk_faults(DiskFaults { unsynced, ..DiskFaults::default() });
            for attempt in 0..3 {
                let at = disk.operations() + operation + attempt;
                if is_failure {
                    disk.fail_at(at, FileFault::Broken);
                } else {
                    disk.lose_power_at(at);
                }
                let made = Directory::open(&(std::sync::Arc::new(env.clone()) as _), Path::new(PATH));
                interrupted += u64::from(made.is_err());
                drop(made);
                disk.lose_power();
            }
            let mut shelf = open_or_panic(&env);
            shelf.create();
            shelf.insert(0..3);
            shelf.close();
            assert_eq!(open_or_panic(&env).keys(), [0, 1, 2]);
        }
    }
    assert!(interrupted > 100, "{interrupted} were interrupted");
}

/// What an earlier version wrote says nothing of a log: without one it is opened, but not without the directory that it
/// made in front of another.
#[test]
fn a_database_of_an_earlier_version_needs_no_log_file() {
    let env = SimulatedEnv::new(1);
    let earlier = "{\"kind\":\"ERIS database\",\"format\":1,\"database\":\"00000000000000ab\"}\n";
    env.simulated_files().insert("/db/eris.db", earlier);
    let mut shelf = open_or_panic(&env);
    shelf.create();
    shelf.insert(0..3);
    shelf.close();
    assert_eq!(open_or_panic(&env).keys(), [0, 1, 2]);
    assert_eq!(env.simulated_files().contents("/db/eris.db").as_deref(), Some(earlier.as_bytes()));
    env.simulated_files().move_directory(LOG, ELSEWHERE);
    assert!(refused_opening(&env).contains("\"/db/log\" is missing"));
    env.files().create_directory(LOG.as_ref()).expect("is made");
    drop(open_or_panic(&env));
}
