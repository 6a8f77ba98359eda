//! Temporary files: what is written is read, nothing of them stays, and what goes wrong is told by its cause.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use eris_platform::simulated::{FileFault, SimulatedFiles};
use eris_platform::{
    Env, Extent, IoTask, RealEnv, SimulatedEnv, TempBudget, TempDirectory, TempFile, TempFileError, TempFiles,
};

const DIRECTORY: &str = "/db/temp";

fn directory(keeps_free_bytes: u64) -> TempDirectory {
    TempDirectory { path: PathBuf::from(DIRECTORY), is_own: false, keeps_free_bytes }
}

fn simulated(env: &SimulatedEnv) -> Arc<TempFiles> {
    env.simulated_files().insert("/db/eris.db", "");
    TempFiles::new(Arc::new(env.clone()), directory(0))
}

/// Lets the simulated disk work until the task is done.
fn finish<T>(env: &SimulatedEnv, mut task: IoTask<Result<T, TempFileError>>) -> Result<T, TempFileError> {
    loop {
        match Pin::new(&mut task).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(result) => return result.expect("the queue keeps its jobs"),
            Poll::Pending => {
                let due = env.next_io().expect("the job waits in a queue");
                env.advance_to(due);
                env.run_io();
            }
        }
    }
}

fn write(env: &SimulatedEnv, file: &TempFile, bytes: &[u8]) -> Result<Extent, TempFileError> {
    let (extent, task) = file.append(bytes.to_vec())?;
    finish(env, task).map(|()| extent)
}

fn names(files: &SimulatedFiles) -> Vec<String> {
    eris_platform::Files::list(files, Path::new(DIRECTORY)).unwrap_or_default()
}

#[test]
fn pieces_are_read_and_the_space_is_free_afterwards() {
    let env = SimulatedEnv::new(1);
    let temp = simulated(&env);
    let budget = TempBudget::new(None);
    let file = temp.create(&budget).unwrap();
    let pieces: Vec<Vec<u8>> = (0..20_u8).map(|n| vec![n; usize::from(n) * 100]).collect();
    let extents: Vec<Extent> = pieces.iter().map(|piece| write(&env, &file, piece).unwrap()).collect();
    assert!(names(env.simulated_files()).is_empty(), "an open file has no name");
    for (piece, extent) in pieces.iter().zip(&extents).rev() {
        assert_eq!(finish(&env, file.read(*extent)).unwrap(), *piece);
    }
    assert_eq!((budget.used(), temp.statistics().used_bytes), (19_000, 19_000));
    drop(file);
    assert_eq!((budget.used(), budget.written(), temp.statistics().used_bytes), (0, 19_000, 0));
    assert_eq!((temp.statistics().files, temp.statistics().written_bytes), (1, 19_000));
    // The space itself is given back by the queue.
    env.simulated_files().set_capacity(Some(20_000));
    while let Some(due) = env.next_io() {
        env.advance_to(due);
        env.run_io();
    }
    let again = temp.create(&budget).unwrap();
    write(&env, &again, &vec![1; 19_500]).unwrap();
}

#[test]
fn each_cause_has_its_own_error() {
    let env = SimulatedEnv::new(2);
    let temp = simulated(&env);
    let files = env.simulated_files();
    let budget = TempBudget::new(Some(1_000));
    let file = temp.create(&budget).unwrap();
    write(&env, &file, &[7; 900]).unwrap();
    let refused = file.append(vec![7; 101]).err();
    assert_eq!(refused, Some(TempFileError::Limit { limit_bytes: 1_000 }));
    let extent = write(&env, &file, &[7; 100]).unwrap();

    files.fail_at(files.operations(), FileFault::Broken);
    assert!(matches!(finish(&env, file.read(extent)), Err(TempFileError::Io { action: "read", .. })));
    assert_eq!(finish(&env, file.read(extent)).unwrap(), [7; 100]);
    let beyond = Extent { offset: extent.offset, bytes: 101 };
    assert!(matches!(finish(&env, file.read(beyond)), Err(TempFileError::Short { .. })));

    let unlimited = TempBudget::new(None);
    for (fault, is_full) in [(FileFault::NoSpace, true), (FileFault::Broken, false), (FileFault::Denied, false)] {
        // Each operation of the first write in turn: creating the file, taking its name, writing.
        for operation in 0..3 {
            let file = temp.create(&unlimited).unwrap();
            files.fail_at(files.operations() + operation, fault);
            match write(&env, &file, &[1; 10]) {
                Err(TempFileError::Full { directory, .. }) => assert!(is_full && directory == Path::new(DIRECTORY)),
                Err(TempFileError::Io { os_error, .. }) => {
                    let expected = if fault == FileFault::Denied { libc::EACCES } else { libc::EIO };
                    assert!(!is_full && os_error == Some(expected), "{fault:?} at {operation}: {os_error:?}");
                }
                other => panic!("{fault:?} at {operation}: {other:?}"),
            }
        }
    }
}

#[test]
fn a_full_disk_and_one_that_others_need_are_full() {
    let env = SimulatedEnv::new(3);
    env.simulated_files().insert("/db/eris.db", "");
    let budget = TempBudget::new(None);
    env.simulated_files().set_capacity(Some(64 << 20));
    let piece = vec![3; 4 << 20];
    for (keeps_free_bytes, fits) in [(0, 15..=16), (32 << 20, 8..=12)] {
        let temp = TempFiles::new(Arc::new(env.clone()), directory(keeps_free_bytes));
        let file = temp.create(&budget).unwrap();
        let mut pieces = 0;
        let refused = loop {
            match write(&env, &file, &piece) {
                Ok(_) => pieces += 1,
                Err(error) => break error,
            }
        };
        assert!(fits.contains(&pieces), "{pieces} pieces, {keeps_free_bytes} kept: {refused}");
        assert!(matches!(refused, TempFileError::Full { .. }), "{refused}");
        drop((file, temp));
        while let Some(due) = env.next_io() {
            env.advance_to(due);
            env.run_io();
        }
    }
}

#[test]
fn what_a_killed_process_left_is_removed_and_nothing_else() {
    let env = SimulatedEnv::new(4);
    let temp = simulated(&env);
    assert_eq!(temp.clear().unwrap(), 0, "there is no directory yet");
    let left = ["spill-0123456789abcdef-0.tmp", "spill-ffffffffffffffff-18446744073709551615.tmp"];
    let mut others = [
        "mine.txt",
        "spill-.tmp",
        "spill-0.tmp",
        "spill-0123456789ABCDEF-0.tmp",
        "spill-0123456789abcde-0.tmp",
        "spill-0123456789abcdef-.tmp",
        "spill-0123456789abcdef-0.tmp.old",
        "spill-0123456789abcdef-0x.tmp",
        "spill-0123456789abcdef-1-2.tmp",
        "spill-0123456789abcdef0-0.tmp",
        "spill-over-of-last-year.tmp",
    ];
    others.sort_unstable();
    for name in left.iter().chain(&others) {
        env.simulated_files().insert(Path::new(DIRECTORY).join(name), "left");
    }
    assert_eq!(temp.clear().unwrap(), 2);
    assert_eq!(names(env.simulated_files()), others);
}

#[test]
fn what_may_not_be_removed_stays_and_the_rest_is_removed() {
    let env = SimulatedEnv::new(6);
    let temp = simulated(&env);
    let files = env.simulated_files();
    let left = [1, 2, 3].map(|number| format!("spill-0123456789abcdef-{number}.tmp"));
    for name in &left {
        files.insert(Path::new(DIRECTORY).join(name), "left");
    }
    // Its first operation lists the directory, the others remove one file each.
    files.fail_at(files.operations() + 2, FileFault::Denied);
    assert_eq!(temp.clear().unwrap(), 2);
    assert_eq!(names(files), left[1..2]);
    files.fail_at(files.operations() + 1, FileFault::Broken);
    assert_eq!(temp.clear().unwrap_err().raw_os_error(), Some(libc::EIO), "a broken disk is told of");
}

#[test]
fn space_is_left_to_others_by_many_small_files_too() {
    let env = SimulatedEnv::new(7);
    env.simulated_files().insert("/db/eris.db", "");
    env.simulated_files().set_capacity(Some(64 << 20));
    let temp = TempFiles::new(Arc::new(env.clone()), directory(32 << 20));
    let (budget, piece) = (TempBudget::new(None), vec![3; 1 << 20]);
    let mut held = Vec::new();
    let refused = loop {
        let file = temp.create(&budget).unwrap();
        match write(&env, &file, &piece) {
            Ok(_) => held.push(file),
            Err(error) => break error,
        }
    };
    assert!(matches!(refused, TempFileError::Full { .. }), "{refused}");
    assert!((30..=32).contains(&held.len()), "{} files of 1 MiB in 32", held.len());
    // Others take what was left: nothing more is written, and it is again when there is room.
    let file = temp.create(&budget).unwrap();
    assert!(write(&env, &file, &[1]).is_err());
    held.truncate(10);
    while let Some(due) = env.next_io() {
        env.advance_to(due);
        env.run_io();
    }
    write(&env, &temp.create(&budget).unwrap(), &piece).unwrap();
}

#[test]
fn a_directory_is_made_but_not_the_one_it_is_in() {
    let env = SimulatedEnv::new(5);
    let temp = TempFiles::new(Arc::new(env.clone()), directory(0));
    let file = temp.create(&TempBudget::new(None)).unwrap();
    let error = write(&env, &file, b"x").unwrap_err();
    assert!(error.to_string().contains("/db does not exist"), "{error}");
    assert!(matches!(error, TempFileError::Io { os_error: Some(libc::ENOENT), .. }), "{error:?}");
}

#[test]
fn real_files_are_nowhere_to_be_seen_and_a_directory_of_ones_own_goes() {
    let root = std::env::temp_dir().join(format!("eris-temp-files-{}", std::process::id()));
    std::fs::create_dir_all(&root).unwrap();
    let path = root.join("temp");
    let env: Arc<dyn Env> = Arc::new(RealEnv::new());
    let temp = TempFiles::new(env, TempDirectory { path: path.clone(), is_own: true, keeps_free_bytes: 0 });
    let file = temp.create(&TempBudget::new(None)).unwrap();
    let (extent, task) = file.append(b"a piece".to_vec()).unwrap();
    wait(task).unwrap();
    assert_eq!(std::fs::read_dir(&path).unwrap().count(), 0);
    assert_eq!(wait(file.read(extent)).unwrap(), b"a piece");
    drop(file);
    drop(temp);
    // A job that was under way may have dropped the last reference.
    let deadline = Instant::now() + Duration::from_secs(20);
    while path.exists() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(!path.exists());
    std::fs::remove_dir(&root).unwrap();
}

fn wait<T>(mut task: IoTask<Result<T, TempFileError>>) -> Result<T, TempFileError> {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let polled = Pin::new(&mut task).poll(&mut Context::from_waker(Waker::noop()));
        match polled {
            Poll::Ready(result) => return result.map_err(|error: io::Error| panic!("{error}")).unwrap(),
            Poll::Pending if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(1)),
            Poll::Pending => panic!("the disk does not answer"),
        }
    }
}

/// A probe leaves no file, and no directory that was not there.
#[test]
fn a_probe_says_whether_files_can_be_made_and_leaves_nothing() {
    let root = std::env::temp_dir().join(format!("eris-probe-{}", std::process::id()));
    let files = |path: PathBuf| {
        let directory = TempDirectory { path, is_own: false, keeps_free_bytes: 0 };
        TempFiles::new(Arc::new(RealEnv::new()), directory)
    };
    assert!(matches!(files(root.join("temp")).probe(), Err(TempFileError::Io { .. })), "nothing is above it");
    std::fs::create_dir(&root).unwrap();
    files(root.join("temp")).probe().unwrap();
    files(root.clone()).probe().unwrap();
    assert_eq!(std::fs::read_dir(&root).unwrap().count(), 0);
    std::fs::remove_dir(&root).unwrap();
    assert!(matches!(files(PathBuf::from("/proc")).probe(), Err(TempFileError::Io { .. })));
    let env = SimulatedEnv::new(9);
    let temp = simulated(&env);
    env.simulated_files().set_capacity(Some(0));
    temp.probe().unwrap();
}
