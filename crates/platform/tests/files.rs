//! Files at positions, directories, locks and I/O queues: the same expectations of Linux and of the simulated machine.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fmt::Debug;
use std::future::Future;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

use eris_platform::{
    Env, FileLock, Files, IoQueue, OpenMode, PositionedFile, RealEnv, SeededRandom, SimulatedEnv, io_queue, test_load,
};

/// An environment with an empty directory `/data`, and how to let its I/O happen.
struct World {
    env: Arc<dyn Env>,
    simulated: Option<SimulatedEnv>,
    /// Where `/` is, to be removed at the end.
    root: Option<PathBuf>,
}

impl World {
    fn real() -> World {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let root = std::env::temp_dir().join(format!("eris-positioned-{}-{count}", std::process::id()));
        std::fs::create_dir_all(root.join("data")).unwrap();
        World { env: Arc::new(RealEnv::with_file_root(root.clone())), simulated: None, root: Some(root) }
    }

    fn simulated(seed: u64) -> World {
        let env = SimulatedEnv::new(seed);
        env.files().create_directory(Path::new("/data")).unwrap();
        World { env: Arc::new(env.clone()), simulated: Some(env), root: None }
    }

    fn files(&self) -> &dyn Files {
        self.env.files()
    }

    /// Lets one more job run, or gives real ones time to.
    fn let_io_happen(&self) {
        let Some(env) = &self.simulated else { return thread::park_timeout(Duration::from_millis(100)) };
        let due = env.next_io().expect("nothing is under way that could end this wait");
        env.advance_to(due);
        assert!(env.run_io() > 0, "a job that is due did not run");
    }

    fn wait_for(&self, done: impl Fn() -> bool) {
        while !done() {
            self.let_io_happen();
        }
    }

    fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        let waker = Waker::from(Arc::new(Unparker { thread: thread::current(), woken: AtomicBool::new(true) }));
        let mut future = pin!(future);
        loop {
            if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
                return value;
            }
            self.let_io_happen();
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if let Some(root) = &self.root {
            let _ = std::fs::remove_dir_all(root);
        }
    }
}

struct Unparker {
    thread: Thread,
    woken: AtomicBool,
}

impl Wake for Unparker {
    fn wake(self: Arc<Self>) {
        self.woken.store(true, Ordering::Relaxed);
        self.thread.unpark();
    }
}

fn in_both_worlds(test: impl Fn(&World)) {
    test(&World::real());
    test(&World::simulated(0));
}

fn path(name: &str) -> PathBuf {
    Path::new("/data").join(name)
}

/// The error as its code.
fn code<T: Debug>(result: io::Result<T>) -> i32 {
    let error = result.expect_err("this should have failed");
    error.raw_os_error().unwrap_or_else(|| panic!("an error without a code: {error}"))
}

fn create(files: &dyn Files, name: &str, bytes: &[u8]) -> Arc<dyn PositionedFile> {
    let file = files.open_at(&path(name), OpenMode::Create).unwrap();
    file.write_all_at(bytes, 0).unwrap();
    file
}

fn contents(file: &dyn PositionedFile) -> Vec<u8> {
    let mut bytes = vec![0; file.len().unwrap() as usize];
    file.read_exact_at(&mut bytes, 0).unwrap();
    bytes
}

#[test]
fn modes_say_what_may_be_done() {
    in_both_worlds(|world| {
        let files = world.files();
        for mode in [OpenMode::Read, OpenMode::Write] {
            assert_eq!(code(files.open_at(&path("log"), mode)), libc::ENOENT);
        }
        let log = create(files, "log", b"0123456789");
        let existing = files.open_at(&path("log"), OpenMode::Create).unwrap_err();
        assert_eq!((existing.kind(), existing.raw_os_error()), (io::ErrorKind::AlreadyExists, Some(libc::EEXIST)));
        let reader = files.open_at(&path("log"), OpenMode::Read).unwrap();
        assert_eq!(code(reader.write_at(b"x", 0)), libc::EBADF);
        assert_eq!(code(reader.set_len(1)), libc::EINVAL);
        let writer = files.open_at(&path("log"), OpenMode::Write).unwrap();
        writer.write_all_at(b"ab", 4).unwrap();
        for file in [&log, &reader, &writer] {
            assert_eq!(contents(&**file), b"0123ab6789", "a write is seen through every handle");
            file.sync_data().and_then(|()| file.sync_all()).unwrap();
        }
        for mode in [OpenMode::Read, OpenMode::Write] {
            assert_eq!(code(files.open_at(Path::new("/data"), mode)), libc::EISDIR);
            assert_eq!(code(files.open_at(&path("log/below"), mode)), libc::ENOTDIR);
        }
        assert_eq!(code(files.open_at(Path::new("/data"), OpenMode::Create)), libc::EEXIST);
        assert_eq!(code(files.open_at(&path("nowhere/log"), OpenMode::Create)), libc::ENOENT);
        assert_eq!(code(files.open_at(&path("log/below"), OpenMode::Create)), libc::ENOTDIR);
    });
}

#[test]
fn positions_beyond_the_end() {
    in_both_worlds(|world| {
        let file = create(world.files(), "sparse", b"abc");
        assert!(!file.is_empty().unwrap());
        let mut buffer = [9; 4];
        assert_eq!(file.read_at(&mut buffer, 1).unwrap(), 2, "the end cuts a read short");
        assert_eq!(buffer, [b'b', b'c', 9, 9]);
        assert_eq!(file.read_at(&mut buffer, 3).unwrap(), 0);
        assert_eq!(file.read_at(&mut buffer, 1 << 40).unwrap(), 0);
        assert_eq!(file.read_exact_at(&mut buffer, 1).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        assert_eq!(file.write_at(b"", 100).unwrap(), 0);
        assert_eq!(file.len().unwrap(), 3, "no bytes extend no file");
        file.write_all_at(b"z", 6).unwrap();
        assert_eq!(contents(&*file), b"abc\0\0\0z");
        file.set_len(2).unwrap();
        file.set_len(5).unwrap();
        assert_eq!(contents(&*file), b"ab\0\0\0", "what was cut off does not come back");
        file.set_len(0).unwrap();
        assert!(file.is_empty().unwrap());
    });
}

#[test]
fn names_change_and_files_stay() {
    in_both_worlds(|world| {
        let files = world.files();
        let old = create(files, "checkpoint", b"old");
        let new = create(files, "checkpoint.new", b"new");
        files.rename(&path("checkpoint.new"), &path("checkpoint")).unwrap();
        assert!(!files.exists(&path("checkpoint.new")));
        assert_eq!(files.read_to_string(&path("checkpoint")).unwrap(), "new");
        assert_eq!((contents(&*old), contents(&*new)), (b"old".to_vec(), b"new".to_vec()));
        new.write_all_at(b"NEW", 0).unwrap();
        assert_eq!(files.read_to_string(&path("checkpoint")).unwrap(), "NEW");
        files.rename(&path("checkpoint"), &path("checkpoint")).unwrap();
        assert_eq!(code(files.rename(&path("none"), &path("checkpoint"))), libc::ENOENT);
        assert_eq!(code(files.rename(&path("checkpoint"), &path("none/checkpoint"))), libc::ENOENT);
        files.create_directory(&path("archive")).unwrap();
        assert_eq!(code(files.rename(&path("checkpoint"), &path("archive"))), libc::EISDIR);
        assert_eq!(code(files.rename(&path("checkpoint"), Path::new("/data"))), libc::ENOTEMPTY);
        assert_eq!(code(files.rename(&path("none"), &path("checkpoint/below"))), libc::ENOTDIR);
        files.rename(&path("checkpoint"), &path("archive/checkpoint")).unwrap();
        files.remove(&path("archive/checkpoint")).unwrap();
        assert_eq!(contents(&*new), b"NEW", "an open file outlives its name");
        assert_eq!(code(files.remove(&path("archive/checkpoint"))), libc::ENOENT);
        assert_eq!(code(files.remove(&path("archive"))), libc::EISDIR);
    });
}

#[test]
fn directories_are_listed_in_order() {
    in_both_worlds(|world| {
        let files = world.files();
        assert!(files.list(Path::new("/data")).unwrap().is_empty());
        for name in ["10", "9", "ä", "B", "a"] {
            create(files, name, b"");
        }
        files.create_directory(&path("deep/er/est")).unwrap();
        files.create_directory(&path("deep/er")).unwrap();
        create(files, "deep/below", b"");
        assert_eq!(files.list(Path::new("/data")).unwrap(), ["10", "9", "B", "a", "ä"]);
        assert_eq!(files.list(&path("deep")).unwrap(), ["below"]);
        assert_eq!(files.list(&path("deep/../deep/./er/")).unwrap(), [""; 0]);
        assert_eq!(code(files.list(&path("none"))), libc::ENOENT);
        assert_eq!(code(files.list(&path("a"))), libc::ENOTDIR);
        assert_eq!(code(files.create_directory(&path("a"))), libc::EEXIST);
        assert_eq!(code(files.create_directory(&path("a/b/c"))), libc::ENOTDIR);
        files.sync_directory(Path::new("/data")).unwrap();
        files.sync_directory(Path::new("/")).unwrap();
        assert_eq!(code(files.sync_directory(&path("a"))), libc::ENOTDIR);
        assert_eq!(code(files.sync_directory(&path("none"))), libc::ENOENT);
        let available = files.available_bytes(&path("a")).unwrap();
        assert!(available > 1_000_000, "only {available} bytes are left");
        assert_eq!(code(files.available_bytes(&path("none"))), libc::ENOENT);
    });
}

#[test]
fn a_name_that_is_not_text_is_named() {
    use std::os::unix::ffi::OsStrExt;
    in_both_worlds(|world| {
        let name = Path::new(std::ffi::OsStr::from_bytes(b"/data/segment-\xff"));
        world.files().open_at(name, OpenMode::Create).unwrap();
        let error = world.files().list(Path::new("/data")).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        assert!(error.to_string().contains("segment-\u{fffd}"), "{error}");
    });
}

#[test]
fn relative_paths_create_directories_too() {
    let name = format!("eris-relative-{}", std::process::id());
    let files = RealEnv::new();
    // Relative to the directory of the process, which is that of the crate.
    files.files().create_directory(&Path::new(&name).join("below")).unwrap();
    files.files().sync_directory(Path::new("")).unwrap();
    assert!(Path::new(&name).join("below").is_dir());
    std::fs::remove_dir_all(&name).unwrap();
}

#[test]
fn a_lock_is_held_once() {
    in_both_worlds(|world| {
        let files = world.files();
        let held = files.lock(&path("lock")).unwrap();
        held.write_contents(b"a long process id").and_then(|()| held.write_contents(b"4711")).unwrap();
        assert_eq!(files.read_to_string(&path("lock")).unwrap(), "4711");
        let error = files.lock(&path("lock")).err().unwrap();
        assert_eq!((error.kind(), error.raw_os_error()), (io::ErrorKind::WouldBlock, Some(libc::EWOULDBLOCK)));
        let other = files.lock(&path("other")).unwrap();
        drop(held);
        let held = files.lock(&path("lock")).unwrap();
        assert_eq!(files.read_to_string(&path("lock")).unwrap(), "4711", "locking leaves the contents");
        assert_eq!(code(files.lock(&path("lock"))), libc::EWOULDBLOCK);
        drop((held, other));
        assert_eq!(code(files.lock(&path("none/lock"))), libc::ENOENT);
        assert_eq!(code(files.lock(Path::new("/data"))), libc::EISDIR);
    });
}

#[test]
fn a_shared_lock_keeps_out_who_would_have_it_alone() {
    in_both_worlds(|world| {
        let files = world.files();
        assert_eq!(code(files.lock_shared(&path("lock"))), libc::ENOENT);
        let held = files.lock(&path("lock")).unwrap();
        assert_eq!(code(files.lock_shared(&path("lock"))), libc::EWOULDBLOCK);
        drop(held);
        let shared = [files.lock_shared(&path("lock")).unwrap(), files.lock_shared(&path("lock")).unwrap()];
        assert!(shared[0].write_contents(b"mine").is_err(), "it was opened to be read");
        let [first, second] = shared;
        drop(first);
        assert_eq!(code(files.lock(&path("lock"))), libc::EWOULDBLOCK);
        drop(second);
        files.lock(&path("lock")).unwrap();
    });
}

#[test]
fn empty_directories_are_removed() {
    in_both_worlds(|world| {
        let files = world.files();
        files.create_directory(&path("b/c")).unwrap();
        files.create_directory(&path("a")).unwrap();
        create(files, "file", b"");
        create(files, "a/file", b"");
        assert_eq!(files.list_directories(Path::new("/data")).unwrap(), ["a", "b"]);
        assert_eq!(code(files.list_directories(&path("file"))), libc::ENOTDIR);
        for full in ["a", "b"] {
            assert_eq!(code(files.remove_directory(&path(full))), libc::ENOTEMPTY);
        }
        files.remove(&path("a/file")).unwrap();
        for empty in ["a", "b/c", "b"] {
            files.remove_directory(&path(empty)).unwrap();
        }
        assert_eq!(files.list_directories(Path::new("/data")).unwrap(), [""; 0]);
        assert_eq!(code(files.remove_directory(&path("b"))), libc::ENOENT);
        assert_eq!(code(files.remove_directory(&path("file"))), libc::ENOTDIR);
    });
}

/// Operations drawn at random do the same in both worlds, mistakes included.
#[test]
fn random_operations_agree() {
    let (mut succeeded, mut failed) = (0, 0);
    for seed in 0..test_load(40) {
        let mut random = SeededRandom::new(seed);
        let (real, simulated) = (World::real(), World::simulated(seed));
        let mut real_state = Handles::default();
        let mut simulated_state = Handles::default();
        for step in 0..200 {
            let draw: [u64; 4] = std::array::from_fn(|_| random.next_u64());
            let expected = real_state.apply(real.files(), draw);
            let found = simulated_state.apply(simulated.files(), draw);
            assert_eq!(found, expected, "seed {seed}, step {step}, operation {}", draw[0] % OPERATIONS);
            if expected.is_ok() { succeeded += 1 } else { failed += 1 }
        }
    }
    assert!(4 * succeeded.min(failed) > failed + succeeded, "{succeeded} operations succeeded, {failed} not");
}

const OPERATIONS: u64 = 12;

#[derive(Default)]
struct Handles {
    files: Vec<Arc<dyn PositionedFile>>,
    locks: Vec<Box<dyn FileLock>>,
}

impl Handles {
    /// What the operation of this draw answers: the bytes or names it gives, or the error's code.
    fn apply(&mut self, files: &dyn Files, draw: [u64; 4]) -> Result<Vec<u8>, Option<i32>> {
        let [operation, first, second, third] = draw;
        let directory = |draw: u64| Path::new(["/data", "/data/a", "/data/a/b", "/data/f0"][(draw % 4) as usize]);
        let name = |draw: u64| directory(draw).join(["f0", "f1", "a"][(draw / 4 % 3) as usize]);
        let file = self.files.get((first % 4) as usize).cloned();
        let nothing = |()| Vec::new();
        let result = match (operation % OPERATIONS, file) {
            (0, _) => files.create_directory(directory(first)).map(nothing),
            // Directories keep their names in the simulated world.
            (1, _) if files.list(&name(first)).is_ok() => Ok(Vec::new()),
            (1, _) => files.rename(&name(first), &name(second)).map(nothing),
            (2, _) => files.remove(&name(first)).map(nothing),
            (3, _) => files.list(directory(first)).map(|names| names.join("/").into_bytes()),
            (4, _) => files.sync_directory(directory(first)).map(nothing),
            (5, _) if second % 4 == 0 => {
                self.locks.clear();
                Ok(Vec::new())
            }
            (5, _) => files.lock(&name(first)).map(|lock| {
                self.locks.push(lock);
                Vec::new()
            }),
            (6, _) if second % 4 == 0 => files.create(&name(first)).map(|_| Vec::new()),
            (6, _) => files.read_to_string(&name(first)).map(String::into_bytes),
            (7, Some(file)) => file.write_at(&vec![third as u8 | 1; (second % 900) as usize], third % 2_000).map(count),
            (8, Some(file)) => {
                let mut buffer = vec![0; (second % 3_000) as usize];
                file.read_at(&mut buffer, third % 2_000).map(|read| buffer[..read].to_vec())
            }
            (9, Some(file)) => file.set_len(second % 2_000).map(nothing),
            (10, Some(file)) => file.sync_data().and_then(|()| file.len()).map(|bytes| count(bytes as usize)),
            _ => {
                let mode = [OpenMode::Read, OpenMode::Write, OpenMode::Create][(second % 3) as usize];
                files.open_at(&name(first), mode).map(|opened| {
                    match self.files.get_mut((third % 4) as usize) {
                        Some(file) => *file = opened,
                        None => self.files.push(opened),
                    }
                    Vec::new()
                })
            }
        };
        result.map_err(|error| error.raw_os_error())
    }
}

fn count(bytes: usize) -> Vec<u8> {
    bytes.to_le_bytes().to_vec()
}

#[test]
fn jobs_run_in_order_and_queues_do_not_wait_for_each_other() {
    in_both_worlds(|world| {
        let queues = ["log", "checkpoint"].map(|name| world.env.io_queue(name).unwrap());
        let done: [Arc<Mutex<Vec<u64>>>; 2] = Default::default();
        let (release, released) = mpsc::channel::<()>();
        if world.simulated.is_none() {
            // The first queue is busy until the second is through.
            queues[0].submit(Box::new(move |_| released.recv().unwrap()));
        }
        for number in 0..1_000 {
            for (queue, done) in queues.iter().zip(&done) {
                let done = Arc::clone(done);
                queue.submit(Box::new(move |_| done.lock().unwrap().push(number)));
            }
        }
        let through = |queue: usize| done[queue].lock().unwrap().len() == 1_000;
        world.wait_for(|| through(1));
        let _ = release.send(());
        world.wait_for(|| through(0));
        for done in &done {
            assert!(done.lock().unwrap().iter().copied().eq(0..1_000));
        }
    });
}

#[test]
fn jobs_submit_jobs() {
    fn chain(queue: &Arc<dyn IoQueue>, left: u64, done: Arc<Mutex<Vec<u64>>>) {
        let again = Arc::clone(queue);
        queue.submit(Box::new(move |_| {
            done.lock().unwrap().push(left);
            if left > 0 {
                chain(&again, left - 1, done);
            }
        }));
    }
    in_both_worlds(|world| {
        let queue = world.env.io_queue("log").unwrap();
        let done = Arc::default();
        chain(&queue, 100, Arc::clone(&done));
        world.wait_for(|| done.lock().unwrap().len() == 101);
        assert!(done.lock().unwrap().iter().copied().eq((0..=100).rev()));
    });
}

#[test]
fn a_panic_ends_its_job_only() {
    in_both_worlds(|world| {
        let queue = world.env.io_queue("log").unwrap();
        queue.submit(Box::new(|_| panic!("on purpose")));
        let broken = io_queue::run(&queue, |_| -> u64 { panic!("on purpose {}", 2) });
        let fine = io_queue::run(&queue, |_| 7_u64);
        let error = world.block_on(broken).unwrap_err();
        assert!(error.to_string().contains("panicked"), "{error}");
        assert_eq!(world.block_on(fine).unwrap(), 7);
    });
}

#[test]
fn tasks_resolve_to_what_their_job_returns() {
    in_both_worlds(|world| {
        let queue = world.env.io_queue("log").unwrap();
        let written = world.block_on(io_queue::run(&queue, |files| -> io::Result<u64> {
            let log = files.open_at(&path("log"), OpenMode::Create)?;
            log.write_all_at(b"record", 0)?;
            log.sync_data()?;
            files.sync_directory(Path::new("/data"))?;
            log.len()
        }));
        assert_eq!(written.unwrap().unwrap(), 6);
        assert_eq!(world.files().read_to_string(&path("log")).unwrap(), "record");
        // A task that is dropped has no say in whether its job runs.
        let done = Arc::new(AtomicBool::new(false));
        let job = Arc::clone(&done);
        drop(io_queue::run(&queue, move |_| job.store(true, Ordering::Relaxed)));
        world.wait_for(|| done.load(Ordering::Relaxed));
    });
}

#[test]
fn a_task_is_woken_once_it_is_ready() {
    in_both_worlds(|world| {
        let queue = world.env.io_queue("log").unwrap();
        let (release, released) = mpsc::channel::<()>();
        let gate = io_queue::run(&queue, move |_| released.recv().is_ok());
        let mut task = pin!(io_queue::run(&queue, |_| 1));
        let unparker = || Arc::new(Unparker { thread: thread::current(), woken: AtomicBool::new(false) });
        let (first, second) = (unparker(), unparker());
        for unparker in [&first, &second] {
            let waker = Waker::from(Arc::clone(unparker));
            assert!(task.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        }
        drop(release);
        world.block_on(gate).unwrap();
        world.wait_for(|| second.woken.load(Ordering::Relaxed));
        assert!(!first.woken.load(Ordering::Relaxed), "only the last poll is to be woken");
        let ready = task.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert!(matches!(ready, Poll::Ready(Ok(1))));
    });
}

#[test]
fn what_waits_is_run_when_a_queue_is_dropped() {
    in_both_worlds(|world| {
        let queue = world.env.io_queue("log").unwrap();
        let done = Arc::new(AtomicU64::new(0));
        for _ in 0..100 {
            let done = Arc::clone(&done);
            queue.submit(Box::new(move |_| {
                thread::sleep(Duration::from_micros(10));
                done.fetch_add(1, Ordering::Relaxed);
            }));
        }
        drop(queue);
        if world.simulated.is_none() {
            assert_eq!(done.load(Ordering::Relaxed), 100, "the drop waits for the jobs");
        }
        world.wait_for(|| done.load(Ordering::Relaxed) == 100);
    });
}

#[test]
fn a_job_may_drop_the_last_reference_to_its_queue() {
    in_both_worlds(|world| {
        let queue = world.env.io_queue("log").unwrap();
        let done = Arc::new(AtomicBool::new(false));
        let (own, after) = (Arc::clone(&queue), Arc::clone(&done));
        let (release, released) = mpsc::channel::<()>();
        queue.submit(Box::new(move |_| {
            let _ = released.recv();
            own.submit(Box::new(move |_| after.store(true, Ordering::Relaxed)));
            drop(own);
        }));
        drop(queue);
        drop(release);
        world.wait_for(|| done.load(Ordering::Relaxed));
    });
}

/// Threads that submit at once: nothing is lost, and each keeps its order.
#[test]
fn many_submitters() {
    let env = RealEnv::new();
    let queue = env.io_queue("log").unwrap();
    let done: Arc<Mutex<Vec<(u64, u64)>>> = Arc::default();
    let rounds = test_load(5_000);
    thread::scope(|scope| {
        for submitter in 0..4 {
            let (queue, done) = (&queue, &done);
            scope.spawn(move || {
                for number in 0..rounds {
                    let done = Arc::clone(done);
                    queue.submit(Box::new(move |_| done.lock().unwrap().push((submitter, number))));
                    if number % 64 == 0 {
                        // Lets the queue run empty now and then.
                        thread::sleep(Duration::from_micros(20));
                    }
                }
            });
        }
    });
    drop(queue);
    let done = done.lock().unwrap();
    for submitter in 0..4 {
        let numbers = done.iter().filter(|(by, _)| *by == submitter).map(|(_, number)| *number);
        assert!(numbers.eq(0..rounds), "submitter {submitter} lost jobs or their order");
    }
}
