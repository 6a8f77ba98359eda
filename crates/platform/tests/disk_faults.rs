//! What the simulated disk forgets when the power is lost, and what it never does. Every property is checked over many
//! seeds, together with that each outcome it allows occurs.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use eris_platform::simulated::{DiskFaults, FailedSync, FileFault, PerMille, SimulatedFiles, Unsynced};
use eris_platform::{Env, Files, OpenMode, PositionedFile, SeededRandom, SimulatedEnv, io_queue, test_load};

const SECTOR: usize = 512;

fn machine(seed: u64) -> (SimulatedEnv, SimulatedFiles) {
    let env = SimulatedEnv::new(seed);
    let files = env.simulated_files().clone();
    files.create_directory(Path::new("/data")).unwrap();
    (env, files)
}

fn path(name: &str) -> PathBuf {
    Path::new("/data").join(name)
}

fn create(files: &SimulatedFiles, name: &str, bytes: &[u8]) -> Arc<dyn PositionedFile> {
    let file = files.open_at(&path(name), OpenMode::Create).unwrap();
    file.write_all_at(bytes, 0).unwrap();
    file
}

/// A file that is durable with its name.
fn create_durable(files: &SimulatedFiles, name: &str, bytes: &[u8]) -> Arc<dyn PositionedFile> {
    let file = create(files, name, bytes);
    file.sync_data().unwrap();
    files.sync_directory(Path::new("/data")).unwrap();
    file
}

fn contents(files: &SimulatedFiles, name: &str) -> Vec<u8> {
    files.contents(path(name)).unwrap_or_else(|| panic!("{name} is gone"))
}

fn code<T>(result: io::Result<T>) -> Option<i32> {
    result.err().and_then(|error| error.raw_os_error())
}

/// How often each outcome occurred.
#[derive(Default)]
struct Outcomes(BTreeMap<&'static str, u64>);

impl Outcomes {
    fn note(&mut self, outcome: &'static str) {
        *self.0.entry(outcome).or_default() += 1;
    }

    /// Under a reduced load rare ones may be missing.
    fn expect(&self, outcomes: &[&'static str]) {
        assert!(self.0.keys().all(|outcome| outcomes.contains(outcome)), "{:?}", self.0);
        let missing = outcomes.iter().any(|outcome| !self.0.contains_key(outcome));
        assert!(!missing || test_load(8) < 8, "{:?} are not {outcomes:?}", self.0);
    }
}

#[test]
fn sectors_are_old_or_new_or_torn() {
    let mut outcomes = Outcomes::default();
    for seed in 0..test_load(200) {
        let (_, files) = machine(seed);
        let file = create_durable(&files, "table", &[1; 16 * SECTOR]);
        file.write_all_at(&[2; 8 * SECTOR], 4 * SECTOR as u64).unwrap();
        file.write_all_at(&[3; 4 * SECTOR], 6 * SECTOR as u64).unwrap();
        files.lose_power();
        let bytes = contents(&files, "table");
        assert_eq!(bytes.len(), 16 * SECTOR);
        for (sector, bytes) in bytes.chunks(SECTOR).enumerate() {
            let newest = match sector {
                6..10 => 3,
                4..12 => 2,
                _ => 1,
            };
            let (first, last) = (bytes[0], bytes[SECTOR - 1]);
            let cut = bytes.partition_point(|byte| *byte == first);
            assert!(bytes[cut..].iter().all(|byte| *byte == last), "seed {seed}: sector {sector} is a mixture");
            assert!(last <= first && first <= newest, "seed {seed}: {first} and {last} in sector {sector}");
            outcomes.note(match (first, last) {
                _ if newest == 1 => "untouched",
                _ if first != last => "torn",
                (1, _) => "old",
                (2, _) if newest == 3 => "between",
                _ => "new",
            });
        }
    }
    outcomes.expect(&["untouched", "torn", "old", "between", "new"]);
}

#[test]
fn the_end_of_a_log_is_a_part_of_what_was_appended() {
    let mut outcomes = Outcomes::default();
    for seed in 0..test_load(300) {
        let (_, files) = machine(seed);
        let log = create_durable(&files, "log", &[7; 700]);
        log.write_all_at(&[8; 100], 700).unwrap();
        log.write_all_at(&[9; 5 * SECTOR], 800).unwrap();
        files.lose_power();
        let bytes = contents(&files, "log");
        assert!(bytes[..700].iter().all(|byte| *byte == 7), "seed {seed}: what was synced is gone");
        assert!((700..=800 + 5 * SECTOR).contains(&bytes.len()), "seed {seed}: {} bytes", bytes.len());
        let appended = bytes[700..].iter().enumerate();
        let mut lost = false;
        for (position, byte) in appended {
            assert!(*byte == 0 || *byte == if position < 100 { 8 } else { 9 }, "seed {seed}: {byte} at {position}");
            lost |= *byte == 0;
        }
        outcomes.note(match bytes.len() {
            700 => "not extended",
            800 => "the first",
            length if length < 800 + 5 * SECTOR => "a part of the second",
            _ if lost => "all, with zeros",
            _ => "all",
        });
    }
    outcomes.expect(&["not extended", "the first", "a part of the second", "all, with zeros", "all"]);
}

/// What a truncation cut off comes back with the truncation undone, or not at all.
#[test]
fn truncations_keep_their_order_with_lengths() {
    let mut outcomes = Outcomes::default();
    for seed in 0..test_load(300) {
        let (_, files) = machine(seed);
        let log = create_durable(&files, "log", &[1; 8 * SECTOR]);
        log.set_len(700).unwrap();
        log.write_all_at(&[2; 5 * SECTOR], 700).unwrap();
        files.lose_power();
        let bytes = contents(&files, "log");
        assert!(bytes[..700].iter().all(|byte| *byte == 1));
        let behind = &bytes[700..];
        if bytes.len() == 8 * SECTOR {
            assert!(behind.iter().all(|byte| *byte == 1), "seed {seed}: a write after a lost truncation survived");
            outcomes.note("not truncated");
        } else {
            assert!(bytes.len() <= 700 + 5 * SECTOR, "seed {seed}: {} bytes", bytes.len());
            assert!(!behind.contains(&1), "seed {seed}: old bytes behind a truncation");
            outcomes.note(if behind.is_empty() { "truncated" } else { "written again" });
        }
    }
    outcomes.expect(&["not truncated", "truncated", "written again"]);
}

/// Random work with crashes, beside a record of what each byte may be.
#[test]
fn every_byte_is_one_of_its_states_since_the_last_sync() {
    for seed in 0..test_load(300) {
        let mut random = SeededRandom::new(seed);
        let (_, files) = machine(seed);
        drop(create_durable(&files, "file", b""));
        let mut states: Vec<BTreeSet<u8>> = Vec::new();
        let mut lengths = BTreeSet::from([0_usize]);
        for crash in 0..4 {
            let file = files.open_at(&path("file"), OpenMode::Write).unwrap();
            for _ in 0..random.between(0, 12) {
                let offset = random.index(3_000);
                match random.below(5) {
                    0 => {
                        file.sync_data().unwrap();
                        let now = contents(&files, "file");
                        lengths = BTreeSet::from([now.len()]);
                        states = now.iter().map(|byte| BTreeSet::from([*byte])).collect();
                    }
                    1 => file.set_len(offset as u64).unwrap(),
                    _ => {
                        let byte = 1 + random.below(250) as u8;
                        file.write_all_at(&vec![byte; random.index(1_500)], offset as u64).unwrap();
                    }
                }
                let now = contents(&files, "file");
                lengths.insert(now.len());
                // Where the file ends, zeros begin as soon as it is extended again.
                let length_max = lengths.last().copied().unwrap_or(0);
                states.resize_with(states.len().max(length_max), || BTreeSet::from([0]));
                for (position, states) in states.iter_mut().enumerate() {
                    states.insert(now.get(position).copied().unwrap_or(0));
                }
            }
            let before = contents(&files, "file");
            files.lose_power();
            let after = contents(&files, "file");
            let what = format!("seed {seed}, crash {crash}");
            let range = lengths.first().copied().unwrap_or(0)..=lengths.last().copied().unwrap_or(0);
            assert!(range.contains(&after.len()), "{what}: {} bytes, not {range:?}", after.len());
            for (position, byte) in after.iter().enumerate() {
                assert!(states[position].contains(byte), "{what}: {byte} at {position}, not {:?}", states[position]);
            }
            if lengths.len() == 1 && states.iter().all(|states| states.len() == 1) {
                assert_eq!(after, before, "{what}: everything was synced");
            }
            lengths = BTreeSet::from([after.len()]);
            states = after.iter().map(|byte| BTreeSet::from([*byte])).collect();
        }
    }
}

#[test]
fn nothing_or_everything_is_lost_on_demand() {
    for seed in 0..test_load(40) {
        let (_, files) = machine(seed);
        let table = create_durable(&files, "table", &[1; 3 * SECTOR]);
        files.set_disk_faults(DiskFaults::nothing_lost());
        table.write_all_at(&[2; 2 * SECTOR], 100).unwrap();
        create(&files, "unsynced", b"here");
        let before = contents(&files, "table");
        files.lose_power();
        assert_eq!((contents(&files, "table"), contents(&files, "unsynced")), (before.clone(), b"here".to_vec()));
        files.set_disk_faults(DiskFaults::all_lost());
        let table = files.open_at(&path("table"), OpenMode::Write).unwrap();
        table.write_all_at(&[3; 5 * SECTOR], 100).unwrap();
        table.set_len(7).unwrap();
        files.remove(&path("unsynced")).unwrap();
        files.rename(&path("table"), &path("renamed")).unwrap();
        create(&files, "table", b"another");
        files.lose_power();
        assert_eq!((contents(&files, "table"), contents(&files, "unsynced")), (before, b"here".to_vec()));
        assert_eq!(files.list(Path::new("/data")).unwrap(), ["table", "unsynced"]);
    }
}

#[test]
fn probabilities_are_obeyed() {
    for (lost, torn, expected) in [(0, 0, "new"), (1_000, 0, "old"), (0, 1_000, "torn"), (1_000, 1_000, "torn")] {
        let (_, files) = machine(1);
        let unsynced = Unsynced::Random { lost: PerMille(lost), torn: PerMille(torn) };
        files.set_disk_faults(DiskFaults { unsynced, ..DiskFaults::default() });
        let file = create_durable(&files, "table", &[1; 30 * SECTOR]);
        file.write_all_at(&[2; 30 * SECTOR], 0).unwrap();
        files.lose_power();
        for sector in contents(&files, "table").chunks(SECTOR) {
            let found = match (sector[0], sector[SECTOR - 1]) {
                (2, 2) => "new",
                (1, 1) => "old",
                _ => "torn",
            };
            assert_eq!(found, expected, "lost {lost}, torn {torn}");
        }
    }
}

#[test]
fn a_failed_sync_loses_what_it_was_to_write() {
    for seed in 0..test_load(40) {
        for faults in [DiskFaults::default(), DiskFaults::nothing_lost(), DiskFaults::all_lost()] {
            for failed_sync in [FailedSync::LosesWrites, FailedSync::KeepsWrites] {
                let (_, files) = machine(seed);
                files.set_disk_faults(DiskFaults { failed_sync, ..faults });
                let log = create_durable(&files, "log", &[1; SECTOR]);
                log.write_all_at(&[2; 2 * SECTOR], 0).unwrap();
                files.fail_at(files.operations(), FileFault::Broken);
                assert_eq!(code(log.sync_data()), Some(libc::EIO));
                log.sync_data().unwrap();
                log.write_all_at(&[3; 10], 2 * SECTOR as u64).unwrap();
                log.sync_all().unwrap();
                let seen = contents(&files, "log");
                assert_eq!((seen[0], seen.len()), (2, 2 * SECTOR + 10), "readers see what was written");
                files.lose_power();
                let bytes = contents(&files, "log");
                assert_eq!(bytes.len(), 2 * SECTOR + 10);
                assert_eq!(bytes[2 * SECTOR..], [3; 10], "what was written after the failure is durable");
                match failed_sync {
                    FailedSync::LosesWrites => {
                        assert!(bytes[..SECTOR].iter().all(|byte| *byte == 1), "seed {seed}: a lost write is back");
                        assert!(bytes[SECTOR..2 * SECTOR].iter().all(|byte| *byte == 0));
                    }
                    FailedSync::KeepsWrites => assert!(bytes[..2 * SECTOR].iter().all(|byte| *byte == 2)),
                }
            }
        }
    }
}

#[test]
fn names_survive_in_order_and_for_sure_once_synced() {
    let mut outcomes = Outcomes::default();
    for seed in 0..test_load(200) {
        let (_, files) = machine(seed);
        let names: Vec<String> = (0..6).map(|number| format!("segment-{number}")).collect();
        for (number, name) in names.iter().enumerate() {
            create(&files, name, b"x").sync_data().unwrap();
            if number == 2 {
                files.sync_directory(Path::new("/data")).unwrap();
            }
        }
        files.lose_power();
        let left = files.list(Path::new("/data")).unwrap();
        assert!(left.len() >= 3, "seed {seed}: a durable name is gone");
        assert_eq!(left, names[..left.len()], "seed {seed}: a later name survived an earlier one");
        assert!(left.iter().all(|name| contents(&files, name) == b"x"), "synced bytes of a new name are gone");
        outcomes.note(["no new name", "some", "some", "all"][left.len() - 3]);
    }
    outcomes.expect(&["no new name", "some", "all"]);
}

#[test]
fn a_rename_is_done_or_not() {
    let mut outcomes = Outcomes::default();
    for seed in 0..test_load(200) {
        let (_, files) = machine(seed);
        create_durable(&files, "checkpoint", b"old");
        create_durable(&files, "checkpoint.new", b"new");
        files.rename(&path("checkpoint.new"), &path("checkpoint")).unwrap();
        let synced = seed % 2 == 0;
        if synced {
            files.sync_directory(Path::new("/data")).unwrap();
        }
        files.lose_power();
        let (names, bytes) = (files.list(Path::new("/data")).unwrap(), contents(&files, "checkpoint"));
        outcomes.note(match (synced, names.len(), &*bytes) {
            (true, 1, b"new") => "durable",
            (false, 1, b"new") => "survived",
            (false, 2, b"old") => "undone",
            _ => panic!("seed {seed}, synced {synced}: {names:?}, checkpoint holds {bytes:?}"),
        });
    }
    outcomes.expect(&["durable", "survived", "undone"]);
}

/// A rename from one directory to another has two names or none never; syncing one of the two is enough.
#[test]
fn a_rename_between_directories_is_one_step() {
    let mut outcomes = Outcomes::default();
    for seed in 0..test_load(300) {
        let (_, files) = machine(seed);
        files.create_directory(&path("old")).unwrap();
        files.create_directory(&path("new")).unwrap();
        create(&files, "old/before", b"");
        create(&files, "old/file", b"moved");
        create(&files, "new/before", b"");
        files.rename(&path("old/file"), &path("new/file")).unwrap();
        create(&files, "old/after", b"");
        let synced = [None, Some("old"), Some("new")][(seed % 3) as usize];
        if let Some(synced) = synced {
            files.sync_directory(&path(synced)).unwrap();
        }
        files.lose_power();
        let old = files.list(&path("old")).unwrap().join(" ");
        let new = files.list(&path("new")).unwrap().join(" ");
        outcomes.note(match (synced, &*old, &*new) {
            (_, "after before", "before file") => "all",
            (None | Some("new"), "before", "before file") => "moved",
            (None, "before file", "before" | "") => "not moved",
            (None, "before" | "", "before" | "") => "never there",
            _ => panic!("seed {seed}, synced {synced:?}: {old:?} and {new:?}"),
        });
    }
    outcomes.expect(&["all", "moved", "not moved", "never there"]);
}

#[test]
fn a_removed_file_may_come_back() {
    let mut outcomes = Outcomes::default();
    for seed in 0..test_load(100) {
        let (_, files) = machine(seed);
        let file = create_durable(&files, "segment", b"durable");
        files.remove(&path("segment")).unwrap();
        let synced = seed % 2 == 0;
        if synced {
            files.sync_directory(Path::new("/data")).unwrap();
        }
        file.sync_data().unwrap();
        files.lose_power();
        outcomes.note(match (synced, files.contents(path("segment"))) {
            (true, None) => "durably gone",
            (false, None) => "gone",
            (false, Some(bytes)) => {
                assert_eq!(bytes, b"durable");
                "back"
            }
            (true, Some(_)) => panic!("seed {seed}: a file came back after the sync"),
        });
    }
    outcomes.expect(&["durably gone", "gone", "back"]);
}

#[test]
fn handles_and_locks_end_with_the_power() {
    let (env, files) = machine(0);
    let file = create_durable(&files, "file", b"x");
    let mut reader = files.open(&path("file")).unwrap();
    let lock = files.lock(&path("lock")).unwrap();
    env.lose_power();
    let operations = files.operations();
    assert_eq!(code(file.read_at(&mut [0], 0)), Some(libc::EIO));
    assert_eq!(code(file.write_at(b"y", 0)), Some(libc::EIO));
    assert_eq!(code(file.len()), Some(libc::EIO));
    assert_eq!(code(file.set_len(0)), Some(libc::EIO));
    assert_eq!(code(file.sync_data()), Some(libc::EIO));
    assert_eq!(code(file.sync_all()), Some(libc::EIO));
    assert_eq!(code(reader.read(&mut [0])), Some(libc::EIO));
    assert_eq!(code(lock.write_contents(b"1")), Some(libc::EIO));
    assert_eq!(files.operations(), operations, "the dead do nothing");
    let again = files.lock(&path("lock")).unwrap();
    drop((lock, file, reader));
    assert_eq!(code(files.lock(&path("lock"))), Some(libc::EWOULDBLOCK), "a dead lock ended a living one");
    drop(again);
    files.lock(&path("lock")).unwrap();
    assert_eq!(contents(&files, "file"), b"x");
}

#[test]
fn what_a_killed_process_leaves_is_read_and_still_lost_with_the_power() {
    let (env, files) = machine(1);
    files.set_disk_faults(DiskFaults::all_lost());
    let file = create_durable(&files, "file", b"old");
    let lock = files.lock(&path("lock")).unwrap();
    file.write_all_at(b"new", 0).unwrap();
    create(&files, "other", b"other").sync_data().unwrap();
    files.lose_power_at(files.operations());
    assert_eq!(code(file.sync_data()), Some(libc::EIO), "it ends there");
    env.kill_process();
    assert!(!files.is_powerless());
    assert_eq!(code(file.write_all_at(b"more", 0)), Some(libc::EIO), "nobody has this handle");
    drop(lock);
    files.lock(&path("lock")).unwrap();
    assert_eq!((contents(&files, "file"), contents(&files, "other")), (b"new".to_vec(), b"other".to_vec()));
    env.lose_power();
    assert_eq!(contents(&files, "file"), b"old");
    assert!(!files.exists(&path("other")));
    let room = || files.available_bytes(Path::new("/data")).unwrap();
    files.set_capacity(Some(1_000));
    let before = room();
    let open = create(&files, "removed", &[1; 500]);
    files.remove(&path("removed")).unwrap();
    assert_eq!(room(), before - 500, "somebody has it open");
    env.kill_process();
    assert_eq!(room(), before);
    drop(open);
}

#[test]
fn the_power_is_lost_in_the_middle() {
    for done in 0..6 {
        let (env, files) = machine(3);
        files.set_disk_faults(DiskFaults::nothing_lost());
        let queue = env.io_queue("log").unwrap();
        files.lose_power_at(files.operations() + done);
        assert_eq!(env.is_powerless(), done == 0);
        let mut task = io_queue::run(&queue, |files| {
            let file = files.open_at(Path::new("/data/new"), OpenMode::Create)?;
            file.write_all_at(b"bytes", 0)?;
            file.sync_data()?;
            files.rename(Path::new("/data/new"), Path::new("/data/log"))?;
            files.sync_directory(Path::new("/data"))
        });
        env.advance_to(env.next_io().unwrap());
        assert_eq!(env.run_io(), 1);
        let Poll::Ready(Ok(result)) = poll(&mut task) else { panic!("the job ran and its task knows nothing") };
        assert_eq!(code(result), if done < 5 { Some(libc::EIO) } else { None });
        assert!(env.is_powerless(), "there is power again, or for longer than planned");
        assert_eq!(code(files.open_at(&path("more"), OpenMode::Create)), Some(libc::EIO));
        assert_eq!(code(files.available_bytes(Path::new("/data"))), Some(libc::EIO));
        env.lose_power();
        assert!(!env.is_powerless());
        let names = files.list(Path::new("/data")).unwrap();
        let expected: &[&str] = match done {
            0 => &[],
            1..4 => &["new"],
            _ => &["log"],
        };
        assert_eq!(names, expected, "after {done} operations");
        if let Some(name) = names.first() {
            assert_eq!(contents(&files, name), if done > 1 { &b"bytes"[..] } else { b"" });
        }
    }
}

fn poll<T>(task: &mut io_queue::IoTask<T>) -> Poll<io::Result<T>> {
    std::pin::Pin::new(task).poll(&mut Context::from_waker(Waker::noop()))
}

#[test]
fn no_space_hits_what_takes_space() {
    let (_, files) = machine(0);
    let file = create(&files, "file", b"0123456789");
    let next_fails = || files.fail_at(files.operations(), FileFault::NoSpace);
    next_fails();
    // None of these takes space, so the fault waits.
    file.write_all_at(b"in place", 0).unwrap();
    file.set_len(9).unwrap();
    file.sync_data().unwrap();
    files.sync_directory(Path::new("/data")).unwrap();
    files.create_directory(Path::new("/data")).unwrap();
    file.read_exact_at(&mut [0; 9], 0).unwrap();
    assert_eq!(code(file.write_at(b"xy", 8)), Some(libc::ENOSPC));
    next_fails();
    assert_eq!(code(file.set_len(10)), Some(libc::ENOSPC));
    next_fails();
    assert_eq!(code(files.rename(&path("file"), &path("renamed"))), Some(libc::ENOSPC));
    next_fails();
    assert_eq!(code(files.open_at(&path("new"), OpenMode::Create)), Some(libc::ENOSPC));
    next_fails();
    assert_eq!(code(files.lock(&path("lock"))), Some(libc::ENOSPC));
    next_fails();
    assert_eq!(code(files.create_directory(&path("below"))), Some(libc::ENOSPC));
    assert_eq!(files.list(Path::new("/data")).unwrap(), ["file"]);
    assert_eq!(contents(&files, "file"), b"in place8");
}

#[test]
fn the_disk_is_full() {
    let (_, files) = machine(0);
    files.set_capacity(Some(1_000));
    let first = create(&files, "first", &[1; 600]);
    assert_eq!(files.available_bytes(Path::new("/data")).unwrap(), 400);
    let second = files.open_at(&path("second"), OpenMode::Create).unwrap();
    assert_eq!(second.write_at(&[2; 500], 0).unwrap(), 400, "what fits is written");
    assert_eq!(code(second.write_at(&[2; 100], 400)), Some(libc::ENOSPC));
    assert_eq!(code(second.write_all_at(&[2; 100], 350)), Some(libc::ENOSPC));
    assert_eq!(code(second.set_len(401)), Some(libc::ENOSPC));
    first.write_all_at(&[3; 600], 0).unwrap();
    files.remove(&path("first")).unwrap();
    assert_eq!(files.available_bytes(Path::new("/data")).unwrap(), 0, "an open file still takes space");
    drop(first);
    assert_eq!(files.available_bytes(Path::new("/data")).unwrap(), 600);
    second.set_len(1_000).unwrap();
    assert_eq!(code(second.write_at(b"x", 5_000)), Some(libc::ENOSPC));
    files.set_capacity(None);
    second.write_all_at(b"x", 5_000).unwrap();
    assert_eq!(code(second.set_len(u64::MAX)), Some(libc::EFBIG));
    assert_eq!(code(second.write_at(b"xx", u64::MAX)), Some(libc::EFBIG));
    assert_eq!(second.len().unwrap(), 5_001);
}

/// The same seed leaves the same image, and the disk takes nothing from the randomness of others.
#[test]
fn crashes_are_given_by_the_seed() {
    let image = |seed| {
        let (env, files) = machine(seed);
        let table = create_durable(&files, "table", &[1; 30 * SECTOR]);
        for number in 0..20 {
            table.write_all_at(&[2; 3 * SECTOR], number * 1_000).unwrap();
            create(&files, &format!("segment-{number}"), &[3; 5_000]);
        }
        env.lose_power();
        let names = files.list(Path::new("/data")).unwrap();
        let bytes: Vec<_> = names.iter().map(|name| contents(&files, name)).collect();
        (names, bytes, env.random_u64())
    };
    assert_eq!(image(1), image(1));
    assert_ne!(image(1).1, image(2).1);
    let mut expected = SeededRandom::new(1);
    let _network = expected.fork();
    assert_eq!(image(1).2, expected.next_u64(), "recorded seeds mean something else now");
}
