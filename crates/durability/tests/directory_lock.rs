//! A directory belongs to whoever has it open, whatever becomes of its name and of the files in it: others are kept
//! out, and commits that nobody would find again are refused.

#![expect(clippy::expect_used, reason = "a test fails by panicking")]

mod schemas;
mod shelf;

use eris_durability::DurabilityError;
use eris_engine::{EngineError, LogError};
use eris_platform::{Env, SimulatedEnv};
use shelf::{PATH, Shelf, files, insert, is, open_or_panic, options, try_open, try_open_at};

const LOCK: &str = "/db/eris.lock";
const IDENTITY: &str = "/db/eris.db";
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

fn refused_checkpoint(shelf: &mut Shelf) -> String {
    let refused = shelf.try_checkpoint().expect_err("there is no place for it");
    assert!(matches!(*refused, DurabilityError::Lost { .. }), "{refused}");
    refused.to_string()
}

fn refused_opening(env: &SimulatedEnv, path: &'static str) -> String {
    let refused = try_open_at(env, path, &options()).map(|_: Shelf| ()).expect_err("somebody has it");
    assert!(matches!(refused, DurabilityError::InUse { .. }), "{refused}");
    refused.to_string()
}

#[test]
fn without_its_lock_file_a_directory_is_still_in_use() {
    for has_directory_locks in [true, false] {
        let env = SimulatedEnv::new(1);
        env.simulated_files().refuse_directory_locks(!has_directory_locks);
        let mut shelf = open_database(&env);
        env.files().remove(LOCK.as_ref()).expect("is there");
        refused_opening(&env, PATH);
        shelf.insert(3..5);
        shelf.checkpoint();
        let holder = env.files().read_to_string(LOCK.as_ref()).ok();
        assert_eq!(holder, Some(format!("process {}", std::process::id())), "the next checkpoint made it again");
        assert!(refused_opening(&env, PATH).contains(&format!("in use by process {}", std::process::id())));
        shelf.close();
        assert_eq!(open_or_panic(&env).keys(), (0..5).collect::<Vec<_>>());
    }
}

/// Somebody has locked a lock file of their own: an older version that knows of no other lock.
#[test]
fn a_lock_file_of_another_process_ends_the_log() {
    let env = SimulatedEnv::new(1);
    let mut shelf = open_database(&env);
    env.files().remove(LOCK.as_ref()).expect("is there");
    let other = env.files().lock(LOCK.as_ref()).expect("it is a new file");
    let told = refused_checkpoint(&mut shelf);
    assert!(told.contains("is locked by another process") && told.contains("Stop both"), "{told}");
    assert_eq!(refused_commit(&mut shelf, 3), told);
    assert_eq!(shelf.keys(), [0, 1, 2], "what is there can be read");
    drop((shelf, other));
    assert_eq!(open_or_panic(&env).keys(), [0, 1, 2]);
}

/// The names of all files of the database.
fn names(env: &SimulatedEnv) -> Vec<String> {
    files(env).into_iter().map(|(path, _)| path).collect()
}

/// Commits rows from this one on, until one is refused for good: its key, and what it hears.
fn commit_until_refused(shelf: &mut Shelf, first: i64) -> (i64, String) {
    // A log file takes a fraction of these.
    for key in first..first + 200 {
        let engine = shelf.engine();
        let inserted = shelf.simulation.block_on(async move { insert(&engine, key..key + 1).await }).expect("ends");
        match inserted {
            Ok(()) => {}
            Err(EngineError::Log(LogError::Failed { reason, is_over: true })) => return (key, reason.to_string()),
            Err(other) => panic!("row {key} is refused for good, and not with {other:?}"),
        }
    }
    panic!("log files were made, and nobody looked at the lock")
}

/// Commits that fit into the log file that there is do not look at the lock file. But no further one is made or named,
/// however full that one was when another process came, and whether or not the next one lay ready.
#[test]
fn a_lock_file_of_another_process_is_found_before_there_is_another_log_file() {
    let mut told_at_once = 0;
    for rows in 3..40 {
        let env = SimulatedEnv::new(1);
        let mut shelf = open_database(&env);
        shelf.insert(3..rows);
        env.files().remove(LOCK.as_ref()).expect("is there");
        let other = env.files().lock(LOCK.as_ref()).expect("it is a new file");
        let before = names(&env);
        let (refused, told) = commit_until_refused(&mut shelf, rows);
        assert!(told.contains("is locked by another process") && told.contains("Stop both"), "{told}");
        assert_eq!(names(&env), before, "no log file is made or named after {rows} rows");
        assert_eq!(refused_commit(&mut shelf, refused + 1), told);
        assert_eq!(shelf.keys(), (0..refused).collect::<Vec<_>>(), "what was told can be read");
        told_at_once += usize::from(refused == rows);
        drop((shelf, other));
        let kept = open_or_panic(&env).keys();
        assert!(kept.starts_with(&(0..refused).collect::<Vec<_>>()), "{refused} rows were told of: {kept:?}");
        assert!(kept.len() as i64 <= refused + 1, "what was not told may be there, and nothing else: {kept:?}");
    }
    assert!(told_at_once < 30, "commits that need no other log file go on");
}

/// Where nobody else came, the next log file has the lock file made again, without a checkpoint.
#[test]
fn a_lock_file_that_is_gone_is_made_again_with_the_next_log_file() {
    let env = SimulatedEnv::new(1);
    let mut shelf = open_database(&env);
    env.files().remove(LOCK.as_ref()).expect("is there");
    let before = names(&env).iter().filter(|path| is(path, "log")).count();
    shelf.insert(3..60);
    assert!(names(&env).iter().filter(|path| is(path, "log")).count() > before, "there is another log file");
    let holder = env.files().read_to_string(LOCK.as_ref()).ok();
    assert_eq!(holder, Some(format!("process {}", std::process::id())));
    refused_opening(&env, PATH);
    shelf.close();
    assert_eq!(open_or_panic(&env).keys(), (0..60).collect::<Vec<_>>());
}

#[test]
fn a_directory_that_was_moved_takes_no_commits() {
    for is_replaced in [false, true] {
        let env = SimulatedEnv::new(1);
        let mut shelf = open_database(&env);
        env.simulated_files().move_directory(PATH, ELSEWHERE);
        let mut other = is_replaced.then(|| {
            let mut other = open_or_panic(&env);
            other.create();
            other.insert(10..12);
            other
        });
        let before = files(&env);
        let told = refused_commit(&mut shelf, 3);
        let words = ["is no longer the directory that was opened", "that is now \"/elsewhere\"", "move it back"];
        assert!(words.iter().all(|word| told.contains(word)), "{told}");
        assert_eq!(refused_checkpoint(&mut shelf), told);
        assert_eq!(refused_commit(&mut shelf, 4), told);
        assert!(files(&env) == before, "nothing is changed where it was");
        refused_opening(&env, ELSEWHERE);
        if let Some(other) = &mut other {
            other.insert(12..13);
            other.checkpoint();
            assert_eq!(other.keys(), [10, 11, 12]);
        }
        drop((shelf, other));
        env.kill_process();
        let mut moved = try_open_at(&env, ELSEWHERE, &options()).unwrap_or_else(|error| panic!("it opens: {error}"));
        let kept = moved.keys();
        assert!(kept.starts_with(&[0, 1, 2]) && kept.len() < 5, "what was told, and maybe what was not: {kept:?}");
        if is_replaced {
            assert_eq!(open_or_panic(&env).keys(), [10, 11, 12]);
        }
    }
}

/// A further log file is made, named and filled only where the others are.
#[test]
fn a_directory_that_was_moved_gets_no_further_log_file() {
    let env = SimulatedEnv::new(1);
    let mut shelf = open_database(&env);
    env.simulated_files().move_directory(PATH, ELSEWHERE);
    env.files().create_directory(format!("{PATH}/log").as_ref()).expect("is made");
    env.files().create_directory(format!("{PATH}/checkpoint").as_ref()).expect("is made");
    for key in 3..40 {
        refused_commit(&mut shelf, key);
    }
    refused_checkpoint(&mut shelf);
    assert!(files(&env).is_empty(), "{:?}", files(&env).iter().map(|(path, _)| path.clone()).collect::<Vec<_>>());
}

#[test]
fn a_directory_of_another_database_takes_no_commits() {
    let other = SimulatedEnv::new(2);
    open_database(&other).close();
    let env = SimulatedEnv::new(1);
    let mut shelf = open_database(&env);
    let text = other.simulated_files().contents(IDENTITY).expect("is there");
    env.files().remove(IDENTITY.as_ref()).expect("is there");
    env.simulated_files().insert(IDENTITY, text);
    let told = refused_commit(&mut shelf, 3);
    assert!(told.contains("is of another database now"), "{told}");
    assert_eq!(refused_checkpoint(&mut shelf), told);
}

/// The same is found where the file is another one of the same name, and nobody commits.
#[test]
fn a_database_that_lost_its_name_says_how_to_get_it_back() {
    let env = SimulatedEnv::new(1);
    let mut shelf = open_database(&env);
    env.files().remove(IDENTITY.as_ref()).expect("is there");
    let told = refused_checkpoint(&mut shelf);
    assert!(told.contains("was removed: without it the directory is no database"), "{told}");
    assert_eq!(refused_commit(&mut shelf, 3), told);
    drop(shelf);
    let line = told.split_once("that says ").expect("it says what").1;
    env.simulated_files().insert(IDENTITY, format!("{line}\n"));
    let mut shelf = open_or_panic(&env);
    assert!(shelf.keys().starts_with(&[0, 1, 2]));
    // Written again by a tool that puts whole files in place: the directory itself is locked, so nothing is lost.
    let text = env.simulated_files().contents(IDENTITY).expect("is there");
    env.files().remove(IDENTITY.as_ref()).expect("is there");
    env.simulated_files().insert(IDENTITY, text);
    shelf.insert(10..11);
    refused_opening(&env, PATH);
}

#[test]
fn who_only_reads_keeps_out_who_would_write() {
    let env = SimulatedEnv::new(1);
    open_database(&env).close();
    let reader = env.files().lock_shared(PATH.as_ref()).expect("nobody has it");
    refused_opening(&env, PATH);
    drop(reader);
    drop(try_open(&env, &options()).unwrap_or_else(|error| panic!("it opens: {error}")));
}
