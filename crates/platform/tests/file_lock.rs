//! A lock and the processes around it: the end of its own, and the life of one that this starts. One at a time and in a
//! file of their own: a process that is being started holds, for a moment, what the one that starts it has open, so
//! other tests of locks would fail now and then.

use std::io;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use eris_platform::{Env, RealEnv};

const LOCKED: &str = "ERIS_TEST_LOCKED";

/// Held by the test that runs.
static ALONE: Mutex<()> = Mutex::new(());

/// What the other process of the test below does.
#[test]
#[ignore = "runs as a child"]
fn hold_a_lock_until_killed() {
    let Some(path) = std::env::var_os(LOCKED) else { return };
    let lock = RealEnv::new().files().lock(Path::new(&path)).unwrap();
    lock.write_contents(b"mine").unwrap();
    thread::sleep(Duration::from_mins(1));
}

#[test]
fn a_lock_ends_with_its_process() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let locked = std::env::temp_dir().join(format!("eris-file-lock-{}", std::process::id()));
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "hold_a_lock_until_killed", "--ignored"])
        .env(LOCKED, &locked)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    while std::fs::read(&locked).ok().as_deref() != Some(b"mine") {
        assert!(child.try_wait().unwrap().is_none(), "the child ended without the lock");
        thread::sleep(Duration::from_millis(1));
    }
    let env = RealEnv::new();
    let error = env.files().lock(&locked).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
    assert_eq!(env.files().lock_holder(&locked), Some(child.id()));
    child.kill().unwrap();
    child.wait().unwrap();
    env.files().lock(&locked).unwrap();
    std::fs::remove_file(&locked).unwrap();
}

/// A directory, and a file, each locked in every way: the program runs on when its parent gives the lock back.
#[test]
fn a_lock_is_not_inherited_by_a_program_that_its_process_starts() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let root = std::env::temp_dir().join(format!("eris-inherited-lock-{}", std::process::id()));
    let (directory, file) = (root.join("db"), root.join("file"));
    std::fs::create_dir_all(&directory).unwrap();
    std::fs::write(&file, "").unwrap();
    let env = RealEnv::new();
    let files = env.files();
    for (path, way) in
        [(&directory, "existing"), (&directory, "shared"), (&file, "existing"), (&file, "shared"), (&file, "made")]
    {
        let taken = match way {
            "existing" => files.lock_existing(path),
            "shared" => files.lock_shared(path),
            _ => files.lock(path),
        };
        let held = taken.unwrap();
        // When this returns the program runs.
        let mut child = Command::new("sleep").arg("60").stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
        drop(held);
        let again = files.lock_existing(path).map(drop);
        let ended = child.try_wait().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(ended.is_none(), "{way}: the program ended too soon to say anything");
        assert!(again.is_ok(), "{way} {}: {again:?}", path.display());
    }
    std::fs::remove_dir_all(root).unwrap();
}
