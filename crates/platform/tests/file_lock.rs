//! A lock and the end of its process. Alone in this file: a process that is being started holds, for a moment, what the
//! one that starts it has open, so other tests of locks would fail now and then.

use std::io;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use eris_platform::{Env, RealEnv};

const LOCKED: &str = "ERIS_TEST_LOCKED";

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
