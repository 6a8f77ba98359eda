//! The memory controller over trees of files as the kernel writes them, and over the real process.
#![expect(clippy::unwrap_used, reason = "a test that cannot set itself up shall fail")]

use std::fs;
use std::path::{Path, PathBuf};

use eris_platform::memory::RefusedBy;
use eris_platform::memory_controller::{LimitReason, MemoryObserver};
use eris_platform::{MemoryController, MemoryPool, Nanos, Origin};

const MIB: u64 = 1 << 20;

/// A directory below which files are written; gone at the end.
struct Tree(PathBuf);

impl Tree {
    fn new(name: &str) -> Tree {
        let path = std::env::temp_dir().join(format!("eris-memory-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Tree(path)
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.0.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// The process's memory; the system counts it in pages.
    fn resident(&self, bytes: u64) {
        // The page of the system under test, which a tree cannot change.
        // SAFETY: the call reads a constant of the system.
        let page = u64::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap();
        self.write("proc/self/statm", &format!("9999999 {} 100 50 0 4000 0\n", bytes / page));
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).unwrap();
    }
}

#[test]
fn the_limit_follows_what_the_process_holds_unaccounted() {
    let tree = Tree::new("follows");
    let pool = MemoryPool::new(1_000 * MIB);
    let held = pool.reserve("columns");
    held.grow(300 * MIB).unwrap();
    tree.resident(400 * MIB);
    let controller = MemoryController::new(&pool, &tree.0);
    assert_eq!(controller.last(), None);
    let report = controller.look_if_due(Nanos::from_millis(5)).unwrap();
    assert_eq!((report.unaccounted_bytes, report.limit_bytes), (100 * MIB, 900 * MIB));
    assert_eq!((pool.limit(), pool.configured_limit()), (900 * MIB, 1_000 * MIB));
    let refused = held.grow(800 * MIB).unwrap_err();
    assert_eq!(refused.refused_by, RefusedBy::Unaccounted);

    // Not looked at again before its time; then the room is given back, and a limit that was changed meanwhile counts.
    tree.resident(300 * MIB);
    assert_eq!(controller.look_if_due(Nanos::from_millis(104)), None);
    assert_eq!(pool.limit(), 900 * MIB);
    pool.set_limit(2_000 * MIB);
    let report = controller.look_if_due(Nanos::from_millis(105)).unwrap();
    assert_eq!((report.limit_bytes, report.reason), (2_000 * MIB, LimitReason::Configured));
    assert_eq!(controller.last(), Some(report));
    assert_eq!(pool.limit(), 2_000 * MIB);
}

#[test]
fn nobody_is_refused_because_of_a_look_that_is_over() {
    let tree = Tree::new("over");
    let pool = MemoryPool::new(1_000 * MIB);
    let held = pool.reserve("columns");
    held.grow(300 * MIB).unwrap();
    tree.resident(600 * MIB);
    let controller = MemoryController::new(&pool, &tree.0);
    assert_eq!(controller.look().limit_bytes, 700 * MIB);
    let statement = pool.child(800 * MIB).reserve("hash join");
    assert_eq!(statement.grow(500 * MIB).unwrap_err().refused_by, RefusedBy::Unaccounted);

    tree.resident(310 * MIB);
    // Who is refused row after row does not look each time.
    std::thread::sleep(std::time::Duration::from_millis(2));
    statement.grow(500 * MIB).unwrap();
    assert_eq!(pool.limit(), 990 * MIB);
    // Before so much more is reserved there is a look in any case.
    tree.resident(900 * MIB);
    assert_eq!(statement.grow(400 * MIB).unwrap_err().refused_by, RefusedBy::Statement);
    assert_eq!(pool.limit(), 900 * MIB);
    // And a pool that nobody watches any more refuses by what was seen last.
    drop(controller);
    assert_eq!(held.grow(500 * MIB).unwrap_err().refused_by, RefusedBy::Unaccounted);
    assert_eq!(pool.limit(), 900 * MIB);
}

/// Whoever reserves allocates as much again that nobody accounts for, and no time passes between two looks.
#[test]
fn what_comes_along_with_reservations_is_seen_before_it_is_too_much() {
    let tree = Tree::new("along");
    let pool = MemoryPool::new(1_000 * MIB);
    tree.resident(20 * MIB);
    let controller = MemoryController::new(&pool, &tree.0);
    controller.look();
    let held = pool.reserve("columns");
    while held.grow(5 * MIB).is_ok() {
        tree.resident(20 * MIB + 2 * held.bytes());
    }
    let resident = 20 + 2 * held.bytes() / MIB;
    assert!((850..=1_000).contains(&resident), "{resident} MiB are resident");
}

/// What is given back and reserved anew is other memory to the allocator.
#[test]
fn who_reserves_a_little_again_and_again_is_seen() {
    let tree = Tree::new("again");
    let pool = MemoryPool::new(1_000 * MIB);
    tree.resident(100 * MIB);
    let controller = MemoryController::new(&pool, &tree.0);
    assert_eq!(controller.look().limit_bytes, 900 * MIB);
    tree.resident(400 * MIB);
    let held = pool.reserve("rows on the way");
    let before_look = (0..200).take_while(|_| {
        held.grow(5 * MIB).unwrap();
        held.shrink(5 * MIB);
        pool.limit() == 900 * MIB
    });
    // An eighth of the 900 that were free.
    assert_eq!(before_look.count(), 22);
    assert_eq!(pool.limit(), 600 * MIB);
}

#[test]
fn the_fullest_group_tightens_the_limit() {
    let tree = Tree::new("groups");
    tree.resident(100 * MIB);
    tree.write("proc/self/cgroup", "0::/shop/database\n");
    let group = |path: &str, limit: &str, current: u64, inactive: u64| {
        tree.write(&format!("sys/fs/cgroup/{path}memory.max"), &format!("{limit}\n"));
        tree.write(&format!("sys/fs/cgroup/{path}memory.current"), &format!("{}\n", current * MIB));
        let statistics = format!("anon 1\nfile 5\ninactive_file {}\nactive_file 7\n", inactive * MIB);
        tree.write(&format!("sys/fs/cgroup/{path}memory.stat"), &statistics);
    };
    group("shop/database/", &(800 * MIB).to_string(), 100, 0);
    // The parent is nearly full of others; 40 of what it holds are files that can go.
    group("shop/", &(1_000 * MIB).to_string(), 940, 40);
    group("", "max", 0, 0);
    let pool = MemoryPool::new(900 * MIB);
    let held = pool.reserve("columns");
    held.grow(100 * MIB).unwrap();
    let report = MemoryController::new(&pool, &tree.0).look();
    let group = report.observation.group.unwrap();
    assert_eq!((group.limit_bytes, group.held_bytes), (1_000 * MIB, 900 * MIB));
    assert_eq!((report.reason, report.limit_bytes), (LimitReason::Group, 200 * MIB));

    let tree = Tree::new("version-1");
    tree.resident(100 * MIB);
    tree.write("proc/self/cgroup", "4:memory:/database\n");
    tree.write("sys/fs/cgroup/memory/database/memory.limit_in_bytes", &format!("{}\n", 500 * MIB));
    tree.write("sys/fs/cgroup/memory/database/memory.usage_in_bytes", &format!("{}\n", 450 * MIB));
    tree.write("sys/fs/cgroup/memory/database/memory.stat", &format!("cache 1\ntotal_inactive_file {}\n", 50 * MIB));
    tree.write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    tree.write("sys/fs/cgroup/memory/memory.usage_in_bytes", "1\n");
    let group = MemoryObserver::new(&tree.0).observe().group.unwrap();
    assert_eq!((group.limit_bytes, group.held_bytes), (500 * MIB, 400 * MIB));
}

#[test]
fn a_system_that_does_not_tell_changes_nothing() {
    let tree = Tree::new("silent");
    let pool = MemoryPool::new(1_000 * MIB);
    let report = MemoryController::new(&pool, &tree.0).look();
    assert_eq!((report.limit_bytes, report.reason), (1_000 * MIB, LimitReason::Unobserved));
    assert_eq!((report.origin, report.observation.resident_bytes), (Origin::Unavailable, None));
    tree.write("proc/self/statm", "not a number\n");
    assert_eq!(MemoryObserver::new(&tree.0).observe().resident_bytes, None);
}

#[test]
fn the_real_process_is_seen() {
    let observer = MemoryObserver::new(Path::new("/"));
    let before = observer.observe().resident_bytes.unwrap();
    let held = std::hint::black_box(vec![1_u8; 64 << 20]);
    let after = observer.observe().resident_bytes.unwrap();
    assert!(after >= before + 60 * MIB, "{} more bytes are seen as {before} -> {after}", held.len());
}
