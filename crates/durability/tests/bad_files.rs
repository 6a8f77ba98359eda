//! Files that are not what they should be: each is refused with what is wrong, where, and what to do, and stays as it
//! is.

#![expect(clippy::expect_used, reason = "a test fails by panicking")]

mod schemas;
mod shelf;

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use eris_durability::{Damage, DurabilityError, DurabilityOptions, Stop, verify};
use eris_engine::{Durability, EngineError, EngineOptions, LogError, Simulation};
use eris_platform::simulated::{DiskFaults, FileFault};
use eris_platform::{Env, SimulatedEnv};
use shelf::{PATH, Shelf, TABLE, create_other, files, insert, is, log_file, open_or_panic, options, row, try_open};

/// A closed database with keys 0 to 39 in two log files and more.
fn closed_database() -> SimulatedEnv {
    let env = SimulatedEnv::new(1);
    let mut shelf = open_or_panic(&env);
    shelf.create();
    shelf.insert(0..40);
    shelf.close();
    env
}

/// The same with a checkpoint behind key 29.
fn with_checkpoint() -> SimulatedEnv {
    let env = SimulatedEnv::new(1);
    let mut shelf = open_or_panic(&env);
    shelf.create();
    shelf.insert(0..30);
    shelf.checkpoint();
    shelf.insert(30..40);
    shelf.close();
    env
}

/// What opening says; nothing is changed by it.
fn refusal(env: &SimulatedEnv) -> String {
    let before = files(env);
    let error = try_open(env, &options()).map(|_: Shelf| ()).expect_err("it is refused");
    let after = files(env);
    let names = |files: &[(String, Vec<u8>)]| files.iter().map(|(path, _)| path.clone()).collect::<Vec<_>>();
    assert_eq!(names(&after), names(&before), "a refused database stays as it is");
    for ((path, before), (_, after)) in before.iter().zip(&after).filter(|((path, _), _)| !is(path, "lock")) {
        assert!(before == after, "{path} of a refused database stays as it is");
    }
    error.to_string()
}

fn change(env: &SimulatedEnv, path: &str, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = env.simulated_files().contents(path).unwrap_or_else(|| panic!("{path} exists"));
    change(&mut bytes);
    env.simulated_files().insert(path, bytes);
}

#[test]
fn what_was_closed_is_there_again_and_again() {
    for env in [closed_database(), with_checkpoint()] {
        for round in 0..3 {
            let mut shelf = open_or_panic(&env);
            assert_eq!(shelf.keys(), (0..40 + round).collect::<Vec<_>>());
            shelf.insert(40 + round..41 + round);
            shelf.close();
        }
    }
}

#[test]
fn an_empty_table_and_no_table_are_there_again() {
    let env = SimulatedEnv::new(1);
    open_or_panic(&env).close();
    let mut shelf = open_or_panic(&env);
    shelf.create();
    shelf.close();
    let mut shelf = open_or_panic(&env);
    assert_eq!(shelf.keys(), Vec::<i64>::new());
    shelf.checkpoint();
    shelf.close();
    assert_eq!(open_or_panic(&env).keys(), Vec::<i64>::new());
}

/// The same, killed: nothing says that the end is one.
fn killed_database() -> SimulatedEnv {
    let env = SimulatedEnv::new(1);
    let mut shelf = open_or_panic(&env);
    shelf.create();
    shelf.insert(0..40);
    drop(shelf);
    env.kill_process();
    env
}

/// The last log file, and where its last byte is that is not zero.
fn last_log_file(env: &SimulatedEnv) -> (String, usize) {
    let logs = files(env).iter().filter(|(path, _)| is(path, "log")).count();
    let (path, bytes) = log_file(env, logs - 1);
    let end = bytes.iter().rposition(|byte| *byte != 0).expect("there are records") + 1;
    (path, end)
}

#[test]
fn a_torn_tail_is_the_end_and_is_told() {
    let env = killed_database();
    let (path, end) = last_log_file(&env);
    // A byte of the last record, and more of it.
    for cut in [end - 1, end - 20] {
        change(&env, &path, |bytes| bytes[cut..].fill(0));
        // Its body must not be whole by chance: the last byte that counts.
        change(&env, &path, |bytes| bytes[end - 12..].fill(0));
        let mut shelf = open_or_panic(&env);
        assert_eq!(shelf.keys(), (0..39).collect::<Vec<_>>());
        let report = shelf.database.as_ref().expect("open").recovery().clone();
        assert_eq!((report.stop, report.stop_file.as_deref()), (Stop::Torn, Some(path.as_ref())));
        assert!(report.bytes_after > 0 && report.records_after == 0, "{report:?}");
        assert_eq!((report.transactions, report.checkpoint_timestamp), (39, None));
        drop(shelf);
        env.lose_power();
    }
    let shorter = killed_database();
    change(&shorter, &path, |bytes| bytes.truncate(end - 12));
    assert_eq!(open_or_panic(&shorter).keys(), (0..39).collect::<Vec<_>>());
    let mut whole = open_or_panic(&killed_database());
    let report = whole.database.as_ref().expect("open").recovery().clone();
    assert_eq!((report.stop, report.bytes_after, whole.keys().len()), (Stop::End, 0, 40));
}

/// Verification finds a torn end to be no damage, and says of it what opening says.
#[test]
fn verification_tells_of_a_torn_end_what_opening_tells() {
    let env = killed_database();
    let told_by_verification = || {
        let mut simulation = Simulation::on(&env, EngineOptions::default()).expect("starts");
        let engine = simulation.engine().clone();
        let verified = simulation.block_on(async move { verify(&engine, Path::new(PATH), 20, |_| {}).await });
        let report = verified.expect("ends").expect("it can be looked at");
        assert_eq!(report.wrong, Vec::<String>::new());
        report.recovery.expect("it would be opened").told()
    };
    assert_eq!(told_by_verification(), None, "a kill alone leaves whole records");
    let (path, end) = last_log_file(&env);
    change(&env, &path, |bytes| bytes[end - 20..].fill(0));
    let told = told_by_verification().expect("there is something to tell");
    let words = ["the log ends with what was being written", "it stops at byte", &path, "with 0 whole records follow"];
    assert!(words.iter().all(|word| told.contains(word)), "{told}");
    let shelf = open_or_panic(&env);
    assert_eq!(shelf.database.as_ref().expect("open").recovery().told(), Some(told));
}

/// The last record of all, of a process that was killed: a bit of it is another one, and all of it was written.
#[test]
fn a_flipped_bit_in_the_last_record_is_refused_and_told() {
    let env = killed_database();
    let (path, end) = last_log_file(&env);
    let good = env.simulated_files().contents(&path).expect("there");
    let mut refused = 0;
    for byte in end - 60..end - 8 {
        change(&env, &path, |bytes| bytes[byte] ^= 0x10);
        if let Err(error) = try_open(&env, &options()).map(|_: Shelf| ()) {
            let text = error.to_string();
            assert!(text.contains("no crash leaves it like that") && text.contains("0 whole records"), "{text}");
            refused += 1;
        }
        env.kill_process();
        // What opening made.
        for (other, _) in files(&env).into_iter().filter(|(other, _)| is(other, "spare")) {
            env.files().remove(other.as_ref()).expect("there");
        }
        env.simulated_files().insert(&path, good.clone());
    }
    assert!(refused >= 40, "{refused} of 52");
    change(&env, &path, |bytes| bytes[end - 20] ^= 0x10);
    let told = DurabilityOptions { damage: Damage::EndThere, ..options() };
    let mut shelf = try_open(&env, &told).unwrap_or_else(|error| panic!("it opens: {error}"));
    assert_eq!(shelf.keys(), (0..39).collect::<Vec<_>>());
    assert_eq!(shelf.database.as_ref().expect("open").recovery().stop, Stop::Damage);
}

/// What was closed says so: whatever is wrong in front of that is damage, sectors that were lost included.
#[test]
fn what_was_closed_ends_nowhere_else() {
    let env = closed_database();
    let (path, end) = last_log_file(&env);
    // In front of the record that says that the log was closed.
    let closed = end.next_multiple_of(8) - 40;
    change(&env, &path, |bytes| bytes[closed - 60..closed].fill(0));
    let text = refusal(&env);
    assert!(text.contains("no whole record at position") && text.contains("1 whole records"), "{text}");
}

#[test]
fn damage_in_the_middle_is_refused_unless_told_otherwise() {
    let env = closed_database();
    let (path, _) = log_file(&env, 0);
    change(&env, &path, |bytes| bytes[1_500] ^= 1);
    let text = refusal(&env);
    assert!(text.starts_with(&format!("\"{path}\" is damaged at byte 1")), "{text}");
    assert!(text.contains("no whole record at position 1"), "{text}");
    assert!(text.ends_with("or open it with --damaged-log=end-there to leave out what stands behind"), "{text}");
    let told = DurabilityOptions { damage: Damage::EndThere, ..options() };
    let mut shelf = try_open(&env, &told).unwrap_or_else(|error| panic!("it opens: {error}"));
    let kept = shelf.keys();
    assert!(!kept.is_empty() && kept.len() < 40, "{kept:?}");
    assert_eq!(kept, (0..kept.len() as i64).collect::<Vec<_>>(), "what stands in front of the damage is there");
    shelf.insert(100..103);
    shelf.close();
    // What was left out is still on disk, and not read again.
    assert!(files(&env).iter().any(|(path, _)| path.contains(".abandoned")));
    let expected: Vec<i64> = kept.into_iter().chain(100..103).collect();
    assert_eq!(open_or_panic(&env).keys(), expected);
}

#[test]
fn a_file_whose_first_record_is_damaged_stays() {
    for place in [0, 1] {
        let env = closed_database();
        let (path, before) = log_file(&env, place);
        let record = before[64..].iter().position(|byte| *byte != 0).expect("there are records") + 64;
        for turn in 1..=2 {
            change(&env, &path, |bytes| bytes[record + 8] ^= 1);
            let damaged = env.simulated_files().contents(&path).expect("it is there");
            let told = DurabilityOptions { damage: Damage::EndThere, ..options() };
            let mut shelf = try_open(&env, &told).unwrap_or_else(|error| panic!("it opens: {error}"));
            if place == 0 {
                shelf.create();
            }
            shelf.insert(100..103);
            shelf.close();
            let aside = env.simulated_files().contents(format!("{path}.abandoned.{turn}"));
            assert_eq!(aside, Some(damaged), "{path} as it was, for the time {turn}");
            let keys = open_or_panic(&env).keys();
            assert!(keys.ends_with(&[100, 101, 102]) && keys.len() < 40, "{keys:?}");
        }
    }
}

/// What is put aside is told; what was put aside before, and what only has such a name, is not overwritten.
#[test]
fn what_is_put_aside_is_told_and_overwrites_nothing() {
    let env = closed_database();
    let (path, bytes) = log_file(&env, 0);
    let record = bytes[64..].iter().position(|byte| *byte != 0).expect("there are records") + 64;
    env.simulated_files().insert(format!("{path}.abandoned.2"), b"somebody's".to_vec());
    let aside = || files(&env).into_iter().filter(|(path, _)| path.contains(".abandoned.")).collect::<Vec<_>>();
    for number in [1, 3, 4] {
        let before = aside();
        change(&env, &path, |bytes| bytes[record + 8] ^= 1);
        let damaged = env.simulated_files().contents(&path).expect("it is there");
        let told = DurabilityOptions { damage: Damage::EndThere, ..options() };
        let mut shelf = try_open(&env, &told).unwrap_or_else(|error| panic!("it opens: {error}"));
        let told = shelf.database.as_ref().expect("open").recovery().put_aside.clone();
        let name = format!("{path}.abandoned.{number}");
        assert!(told.iter().any(|path| path == Path::new(&name)), "{name} is not among {told:?}");
        assert_eq!(env.simulated_files().contents(&name), Some(damaged), "{name} as it was");
        assert_eq!(aside().len(), before.len() + told.len(), "{told:?} is all that was put aside");
        for (path, bytes) in before {
            assert!(env.simulated_files().contents(&path) == Some(bytes), "{path} was overwritten");
        }
        shelf.create();
        shelf.insert(100..103);
        shelf.close();
    }
    let mut shelf = open_or_panic(&env);
    assert_eq!(shelf.keys(), [100, 101, 102]);
    assert!(shelf.database.as_ref().expect("open").recovery().put_aside.is_empty(), "it is told once");
}

/// The process is killed between a write and its sync, or after a sync that failed; the power goes later.
#[test]
fn what_can_be_read_is_durable_when_others_have_seen_it() {
    for fails in [false, true] {
        let env = SimulatedEnv::new(1);
        env.simulated_files().set_disk_faults(DiskFaults::all_lost());
        let mut shelf = open_or_panic(&env);
        shelf.create();
        shelf.insert(0..3);
        let engine = shelf.engine();
        let files = env.simulated_files();
        // The write comes, its sync does not.
        if fails {
            files.fail_at(files.operations() + 1, FileFault::Broken);
        } else {
            files.lose_power_at(files.operations() + 1);
        }
        let inserted = shelf.simulation.block_on(async move { insert(&engine, 3..4).await });
        assert!(!matches!(inserted, Ok(Ok(()))), "nobody was told of it");
        drop(shelf);
        env.kill_process();
        let mut shelf = open_or_panic(&env);
        assert_eq!(shelf.keys(), [0, 1, 2, 3], "it can be read");
        shelf.insert(4..5);
        drop(shelf);
        env.lose_power();
        assert_eq!(open_or_panic(&env).keys(), [0, 1, 2, 3, 4]);
    }
}

/// Commits that are told while the log is being closed are durable, too.
#[test]
fn what_is_accepted_while_the_log_is_closed_is_durable() {
    let env = SimulatedEnv::new(3);
    let mut shelf = open_or_panic(&env);
    shelf.create();
    let told = Arc::new(Mutex::new(Vec::new()));
    for client in 0..4 {
        let (engine, told) = (shelf.engine(), Arc::clone(&told));
        shelf.engine().spawn(async move {
            for number in 0..1_000 {
                let key = client * 1_000 + number;
                let mut transaction = engine.begin();
                transaction.set_durability(Durability::Asynchronous);
                let inserted = transaction.insert(TABLE, row(key, &format!("the text of row {key}"))).await;
                if inserted.is_err() || transaction.commit().await.is_err() {
                    return;
                }
                told.lock().expect("not poisoned").push(key);
            }
        });
    }
    let engine = shelf.engine();
    let pause = async move { engine.sleep_until(engine.env().now() + Duration::from_millis(2)).await };
    shelf.simulation.block_on(pause).expect("ends");
    let database = shelf.database.take().expect("open");
    shelf.simulation.block_on(async move { database.close().await }).expect("ends").expect("closes");
    drop(shelf);
    env.lose_power();
    let told = told.lock().expect("not poisoned").clone();
    let found = open_or_panic(&env).keys();
    assert!((1..4_000).contains(&told.len()), "{} were told", told.len());
    assert_eq!(told.iter().filter(|key| !found.contains(key)).count(), 0, "of {} that were told", told.len());
}

#[test]
fn a_log_file_that_is_gone_is_missed() {
    let env = closed_database();
    let (path, _) = log_file(&env, 1);
    env.files().remove(path.as_ref()).expect("removed");
    let text = refusal(&env);
    assert!(text.contains("but the log goes on to"), "{text}");
    let env = closed_database();
    let (path, _) = log_file(&env, 0);
    env.files().remove(path.as_ref()).expect("removed");
    let text = refusal(&env);
    assert!(text.contains("begins behind position 0") && text.contains("Restore"), "{text}");
}

#[test]
fn files_of_other_databases_and_newer_versions_are_refused() {
    let other = SimulatedEnv::new(2);
    let mut shelf = open_or_panic(&other);
    shelf.create();
    shelf.insert(0..3);
    shelf.checkpoint();
    shelf.close();
    let env = with_checkpoint();
    let (path, bytes) = log_file(&env, 0);
    let place = |name: &str| files(&env).iter().position(|(path, _)| path.ends_with(name)).expect("there");
    // The other's log under this one's name.
    let (_, foreign) = log_file(&other, 0);
    let good = env.simulated_files().contents(&path).expect("there");
    env.simulated_files().insert(&path, foreign);
    let text = refusal(&env);
    assert!(text.contains("is damaged at byte 0") && text.contains("belongs to another database"), "{text}");
    env.simulated_files().insert(&path, good);
    // A newer log, a newer manifest, a newer database.
    change(&env, &path, |bytes| bytes[8] = 9);
    assert!(refusal(&env).contains("has format 9, this version of ERIS reads up to 1; use the version"));
    env.simulated_files().insert(&path, bytes);
    let (manifest, bytes) = files(&env).swap_remove(place("manifest"));
    change(&env, &manifest, |bytes| {
        let text = String::from_utf8(bytes.clone()).expect("a text").replacen("\"format\":1", "\"format\":7", 1);
        let line = text.split_once('\n').expect("two lines").0;
        *bytes = format!("{line}\ncheck {:08x}\n", crc32c::crc32c(line.as_bytes())).into_bytes();
    });
    assert!(refusal(&env).contains("has format 7"));
    let theirs = other.simulated_files().contents(&manifest).expect("there");
    env.simulated_files().insert(&manifest, theirs);
    assert!(refusal(&env).contains("it belongs to another database"));
    env.simulated_files().insert(&manifest, bytes);
    let identity = format!("{PATH}/eris.db");
    change(&env, &identity, |bytes| {
        *bytes = String::from_utf8(bytes.clone()).expect("a text").replace(":1,", ":3,").into_bytes();
    });
    let text = refusal(&env);
    assert!(text.contains("eris.db\" has format 3"), "{text}");
}

#[test]
fn every_byte_of_a_checkpoint_counts() {
    let env = with_checkpoint();
    let data: Vec<_> =
        files(&env).into_iter().filter(|(path, _)| is(path, "data") || path.ends_with("manifest")).collect();
    assert_eq!(data.len(), 2);
    for (path, good) in data {
        for at in (0..good.len()).step_by(7) {
            // The rest of a header's 64 bytes is checked, too; padding there is none.
            change(&env, &path, |bytes| bytes[at] ^= 0x10);
            let text = refusal(&env);
            let told = text.contains("is damaged") || text.contains("has format") || text.contains("UTF-8");
            assert!(told, "byte {at} of {path}: {text}");
            env.simulated_files().insert(&path, good.clone());
        }
        for length in [0, 10, 63, 64, good.len() / 2, good.len() - 1] {
            change(&env, &path, |bytes| bytes.truncate(length));
            assert!(refusal(&env).contains(&path), "{length} bytes of {path}");
            env.simulated_files().insert(&path, good.clone());
        }
    }
}

#[test]
fn a_log_that_ends_in_front_of_its_checkpoint_does_not_belong_to_it() {
    let env = SimulatedEnv::new(1);
    // One file, so that the checkpoint begins in its middle.
    let large = DurabilityOptions { log_file_bytes: 64 << 10, ..options() };
    let mut shelf = try_open(&env, &large).unwrap_or_else(|error| panic!("it opens: {error}"));
    shelf.create();
    shelf.insert(0..30);
    shelf.checkpoint();
    shelf.close();
    let logs: Vec<_> = files(&env).into_iter().filter(|(path, _)| is(path, "log")).collect();
    // The first file alone, without a record.
    for (path, _) in &logs[1..] {
        env.files().remove(path.as_ref()).expect("removed");
    }
    change(&env, &logs[0].0, |bytes| bytes[64..].fill(0));
    let text = refusal(&env);
    assert!(text.contains("where the checkpoint ends: they do not belong together"), "{text}");
    for (path, good) in &logs {
        env.simulated_files().insert(path, good.clone());
    }
    for (path, _) in &logs {
        env.files().remove(path.as_ref()).expect("removed");
    }
    let text = refusal(&env);
    assert!(text.contains("has no log file") && text.contains("restore the directory from a backup"), "{text}");
}

#[test]
fn a_database_is_open_once() {
    let env = closed_database();
    let first = open_or_panic(&env);
    let text = try_open(&env, &options()).map(|_: Shelf| ()).expect_err("it is in use").to_string();
    assert!(text.contains("in use by process") && text.ends_with("stop that process first"), "{text}");
    first.close();
    open_or_panic(&env).close();
}

#[test]
fn other_directories_are_left_alone() {
    let env = SimulatedEnv::new(1);
    env.simulated_files().insert(format!("{PATH}/letter.txt"), b"dear".to_vec());
    let text = refusal(&env);
    assert!(text.contains("has files but no database (no \"eris.db\"); choose an empty or a new directory"), "{text}");
}

#[test]
fn a_disk_without_room_or_rights_says_so() {
    for (code, words) in [
        (libc::EACCES, "the user who runs ERIS must own the directory"),
        (libc::EROFS, "the file system is mounted read-only"),
        (libc::ENOSPC, "make room and try again"),
    ] {
        let error = std::io::Error::from_raw_os_error(code);
        let error = DurabilityError::Io { action: "create", path: PATH.into(), error };
        assert!(error.to_string().contains(words), "{error}");
    }
    let env = SimulatedEnv::new(1);
    env.simulated_files().set_capacity(Some(20));
    let text = try_open(&env, &options()).map(|_: Shelf| ()).expect_err("there is no room").to_string();
    assert!(text.contains("No space left on device") && text.contains("make room and try again"), "{text}");
    env.simulated_files().set_capacity(None);
    open_or_panic(&env).close();
}

/// Each operation of opening is refused once for want of rights: what is said names the place and what helps, and with
/// the rights the database is there.
#[test]
fn files_that_may_not_be_read_or_written_are_named_and_stay() {
    let mut refusals = 0;
    for operation in 0.. {
        let env = with_checkpoint();
        let at = env.simulated_files().operations() + operation;
        env.simulated_files().fail_at(at, FileFault::Denied);
        let opened = try_open(&env, &options());
        if env.simulated_files().operations() <= at {
            break;
        }
        if let Err(error) = opened {
            let text = error.to_string();
            assert!(text.contains(&format!("\"{PATH}")), "operation {operation} does not say where: {text}");
            let words = ["Permission denied", "the user who runs ERIS must own the directory"];
            assert!(words.iter().all(|word| text.contains(word)), "operation {operation}: {text}");
            refusals += 1;
        }
        env.kill_process();
        assert_eq!(open_or_panic(&env).keys(), (0..40).collect::<Vec<_>>(), "operation {operation}");
    }
    assert!(refusals > 20, "{refusals} operations of opening were refused");
}

#[test]
fn on_a_full_disk_a_database_is_opened_and_read() {
    let env = closed_database();
    let used: usize = files(&env).iter().map(|(_, bytes)| bytes.len()).sum();
    env.simulated_files().set_capacity(Some(used as u64 + 500));
    let mut shelf = open_or_panic(&env);
    let keys = shelf.keys();
    assert!(!keys.is_empty());
    let engine = shelf.engine();
    let next = keys.len() as i64;
    let attempt = |shelf: &mut Shelf| {
        let engine = engine.clone();
        shelf.simulation.block_on(async move { insert(&engine, next..next + 1).await }).expect("ends")
    };
    let refused = attempt(&mut shelf).expect_err("there is no room");
    assert!(matches!(refused, EngineError::Log(LogError::Full { .. })), "{refused}");
    let create = create_other(&engine).expect_err("nor for definitions");
    assert!(matches!(create, EngineError::Log(LogError::Full { .. })), "{create}");
    assert_eq!(shelf.keys(), keys);
    env.simulated_files().set_capacity(None);
    let later = shelf.engine();
    let sleep = async move { later.sleep_until(later.env().now() + Duration::from_secs(2)).await };
    shelf.simulation.block_on(sleep).expect("ends");
    attempt(&mut shelf).expect("there is room");
    create_other(&engine).expect("for definitions, too");
    let expected: Vec<i64> = (0..=next).collect();
    assert_eq!(shelf.keys(), expected);
    shelf.close();
    assert_eq!(open_or_panic(&env).keys(), expected);
}
