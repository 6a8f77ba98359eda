//! What is locked is the file or directory itself, whatever its name: on Linux and on the simulated machine.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use eris_platform::{Env, Files, OpenMode, RealEnv, SimulatedEnv};

/// Runs a test in a directory of Linux, and in one of the simulated machine; it is told how somebody else moves a
/// directory there.
fn in_both_worlds(test: impl Fn(&dyn Files, &Path, &dyn Fn(&Path, &Path))) {
    let root = real_root();
    test(RealEnv::new().files(), &root, &|from, to| std::fs::rename(from, to).unwrap());
    std::fs::remove_dir_all(root).unwrap();
    let env = SimulatedEnv::new(1);
    env.files().create_directory(Path::new("/data")).unwrap();
    test(env.files(), Path::new("/data"), &|from, to| env.simulated_files().move_directory(from, to));
}

fn real_root() -> PathBuf {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let root = std::env::temp_dir().join(format!("eris-locks-{}-{count}", std::process::id()));
    std::fs::create_dir_all(&root).unwrap();
    root.canonicalize().unwrap()
}

fn create(files: &dyn Files, path: &Path, bytes: &[u8]) {
    files.open_at(path, OpenMode::Create).unwrap().write_all_at(bytes, 0).unwrap();
}

fn is_taken<T>(lock: io::Result<T>) -> bool {
    lock.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
}

#[test]
fn a_locked_directory_stays_locked_whatever_its_name() {
    in_both_worlds(|files, root, move_directory| {
        let (here, there) = (root.join("db"), root.join("moved"));
        files.create_directory(&here.join("log")).unwrap();
        create(files, &here.join("log/1"), b"one");
        let held = files.lock_existing(&here).unwrap();
        assert!(held.is_in_place().unwrap());
        assert_eq!(held.moved_to(), Some(here.clone()));
        assert!(is_taken(files.lock_existing(&here)) && is_taken(files.lock_shared(&here)));
        assert!(held.write_contents(b"mine").is_err(), "a directory has no contents of that kind");
        move_directory(&here, &there);
        assert!(!held.is_in_place().unwrap());
        assert_eq!(held.moved_to(), Some(there.clone()));
        assert!(is_taken(files.lock_existing(&there)), "it is the same directory");
        assert_eq!(files.read_to_string(&there.join("log/1")).unwrap(), "one");
        // Another one in its place.
        files.create_directory(&here).unwrap();
        assert!(!held.is_in_place().unwrap());
        drop(files.lock_existing(&here).unwrap());
        files.remove_directory(&here).unwrap();
        move_directory(&there, &here);
        assert!(held.is_in_place().unwrap(), "it is back");
        drop(held);
        let shared = [files.lock_shared(&here).unwrap(), files.lock_shared(&here).unwrap()];
        assert!(is_taken(files.lock_existing(&here)));
        drop(shared);
        let held = files.lock_existing(&here).unwrap();
        files.remove(&here.join("log/1")).unwrap();
        files.remove_directory(&here.join("log")).unwrap();
        files.remove_directory(&here).unwrap();
        assert_eq!((held.is_in_place().unwrap(), held.moved_to()), (false, None));
        assert_eq!(files.lock_existing(&here).err().unwrap().kind(), io::ErrorKind::NotFound);
    });
}

#[test]
fn a_file_that_was_replaced_is_not_the_one_that_is_locked() {
    in_both_worlds(|files, root, _| {
        let (path, other) = (root.join("file"), root.join("other"));
        assert_eq!(files.lock_existing(&path).err().unwrap().kind(), io::ErrorKind::NotFound, "and none is made");
        assert!(!files.exists(&path));
        create(files, &path, b"first");
        let held = files.lock_existing(&path).unwrap();
        assert!(is_taken(files.lock(&path)) && held.is_in_place().unwrap());
        create(files, &other, b"second");
        files.rename(&other, &path).unwrap();
        assert_eq!((held.is_in_place().unwrap(), held.moved_to()), (false, None));
        let again = files.lock(&path).unwrap();
        assert!(again.is_in_place().unwrap());
        files.remove(&path).unwrap();
        assert!(!again.is_in_place().unwrap());
    });
}

#[test]
fn a_file_system_without_locks_for_directories_says_so() {
    let env = SimulatedEnv::new(1);
    let (files, path) = (env.files(), Path::new("/data"));
    files.create_directory(path).unwrap();
    env.simulated_files().refuse_directory_locks(true);
    for refused in [files.lock_existing(path), files.lock_shared(path)] {
        assert_eq!(refused.err().unwrap().kind(), io::ErrorKind::Unsupported);
    }
    create(files, &path.join("file"), b"");
    drop(files.lock_existing(&path.join("file")).unwrap());
}

#[test]
fn a_dead_process_holds_no_directory() {
    let env = SimulatedEnv::new(1);
    let (files, path) = (env.files(), Path::new("/data"));
    files.create_directory(path).unwrap();
    let dead = files.lock_existing(path).unwrap();
    env.simulated_files().kill_process();
    let held = files.lock_existing(path).unwrap();
    assert!(dead.is_in_place().is_err());
    drop(dead);
    assert!(is_taken(files.lock_existing(path)), "a dead lock ended a living one");
    drop(held);
}

/// Links lead to what is locked; a FIFO is not waited for.
#[test]
fn links_find_the_same_lock_and_a_fifo_is_refused() {
    let root = real_root();
    let env = RealEnv::new();
    let files = env.files();
    let (directory, link) = (root.join("db"), root.join("link"));
    std::fs::create_dir(&directory).unwrap();
    std::os::unix::fs::symlink(&directory, &link).unwrap();
    let held = files.lock_existing(&link).unwrap();
    assert!(is_taken(files.lock_existing(&directory)) && held.is_in_place().unwrap());
    assert_eq!(files.lock_holder(&directory), Some(std::process::id()));
    // The link leads elsewhere.
    std::fs::remove_file(&link).unwrap();
    std::os::unix::fs::symlink(&root, &link).unwrap();
    assert!(!held.is_in_place().unwrap());
    assert_eq!(files.lock_holder(&root), None);
    let (file, second) = (directory.join("file"), root.join("second"));
    std::fs::write(&file, "").unwrap();
    std::fs::hard_link(&file, &second).unwrap();
    let of_file = files.lock_existing(&file).unwrap();
    assert!(is_taken(files.lock(&second)), "one file of two names");
    drop(of_file);
    let fifo = root.join("fifo");
    let name = std::ffi::CString::new(fifo.to_str().unwrap()).unwrap();
    // SAFETY: the name ends with a zero byte.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
    for refused in [files.lock(&fifo), files.lock_existing(&fifo), files.lock_shared(&fifo)] {
        assert!(refused.is_err());
    }
    std::fs::remove_dir_all(root).unwrap();
}

/// The same of an open file that is not locked: its name may lead elsewhere, or nowhere, and it is what it was.
#[test]
fn an_open_file_is_told_from_another_of_its_name() {
    in_both_worlds(|files, root, move_directory| {
        let (log, away) = (root.join("log"), root.join("away"));
        files.create_directory(&log).unwrap();
        let path = log.join("1");
        let open = files.open_at(&path, OpenMode::Create).unwrap();
        let identity = open.identity().unwrap();
        let reopened = files.open_at(&path, OpenMode::Read).unwrap();
        assert_eq!((files.identity(&path).unwrap(), reopened.identity().unwrap()), (identity, identity));
        assert_eq!(open.moved_to(), Some(path.clone()));
        assert!(files.identity(&log).unwrap() != identity, "a directory is no file in it");
        // With its directory, and a copy comes in its place.
        move_directory(&log, &away);
        assert_eq!(files.identity(&path).unwrap_err().kind(), io::ErrorKind::NotFound);
        assert_eq!((open.identity().unwrap(), open.moved_to()), (identity, Some(away.join("1"))));
        files.create_directory(&log).unwrap();
        create(files, &path, b"");
        assert!(files.identity(&path).unwrap() != identity);
        assert_eq!(files.identity(&away.join("1")).unwrap(), identity);
        // By itself: while it is open, nothing else is taken for it.
        files.remove(&away.join("1")).unwrap();
        create(files, &away.join("1"), b"");
        assert!(files.identity(&away.join("1")).unwrap() != identity);
        assert_eq!((open.identity().unwrap(), open.moved_to()), (identity, None));
        create(files, &away.join("2"), b"");
        files.rename(&away.join("2"), &path).unwrap();
        assert!(files.identity(&path).unwrap() != identity);
    });
}
