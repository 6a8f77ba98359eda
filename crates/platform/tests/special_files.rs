//! What is no regular file is refused at once, what is created belongs to one user, and where a directory lies.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use eris_platform::{Env, FileKind, Files, NotRegular, OpenMode, RealEnv, io_queue};

/// What a whole process has one of: the mask of its new files.
static MASK: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    MASK.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A directory, gone with the value.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Place {
        let path = std::env::temp_dir().join(format!("eris-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Place(path)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn fifo(&self) -> PathBuf {
        let path = self.path("fifo");
        let name = CString::new(path.as_os_str().as_bytes()).unwrap();
        // SAFETY: the name ends with a zero byte.
        assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
        path
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A terminal that a program may be given: the side that controls it, and the name of the other.
fn terminal() -> (libc::c_int, PathBuf) {
    let mut name = [0_u8; 64];
    // SAFETY: the descriptor is checked before it is used, and the name has room for its length.
    let control = unsafe {
        let control = libc::posix_openpt(libc::O_RDWR | libc::O_NOCTTY);
        assert!(control >= 0, "{}", io::Error::last_os_error());
        assert_eq!((libc::grantpt(control), libc::unlockpt(control)), (0, 0));
        assert_eq!(libc::ptsname_r(control, name.as_mut_ptr().cast(), name.len()), 0);
        control
    };
    let end = name.iter().position(|byte| *byte == 0).unwrap();
    (control, PathBuf::from(std::str::from_utf8(&name[..end]).unwrap()))
}

type Opening = fn(&dyn Files, &Path) -> io::Result<()>;

/// Every way to open a file that exists.
const OPENINGS: [(&str, Opening); 7] = [
    ("read", |files, path| files.open(path).map(drop)),
    ("create", |files, path| files.create(path).map(drop)),
    ("read as text", |files, path| files.read_to_string(path).map(drop)),
    ("read at", |files, path| files.open_at(path, OpenMode::Read).map(drop)),
    ("write at", |files, path| files.open_at(path, OpenMode::Write).map(drop)),
    ("lock", |files, path| files.lock(path).map(drop)),
    ("share a lock", |files, path| files.lock_shared(path).map(drop)),
];

#[test]
fn what_is_no_regular_file_is_refused_at_once_and_by_name() {
    let _alone = alone();
    let place = Place::new("special");
    let (control, terminal) = terminal();
    let socket = place.path("socket");
    let _listener = UnixListener::bind(&socket).unwrap();
    let link = place.path("link");
    symlink("fifo", &link).unwrap();
    for (path, kind, says) in [
        (place.fifo(), FileKind::Fifo, "a FIFO"),
        (link, FileKind::Fifo, "a FIFO"),
        (socket, FileKind::Socket, "a socket"),
        (terminal, FileKind::Terminal, "a terminal"),
        ("/dev/ptmx".into(), FileKind::Terminal, "a terminal"),
        ("/dev/zero".into(), FileKind::CharacterDevice, "a character device"),
        ("/dev/full".into(), FileKind::CharacterDevice, "a character device"),
        ("/proc/self/status".into(), FileKind::Kernel, "the kernel"),
    ] {
        for (how, opening) in OPENINGS {
            let (sender, receiver) = mpsc::channel();
            let of_thread = path.clone();
            // Whoever opens a FIFO as it is opened by default waits for ever.
            std::thread::spawn(move || sender.send(opening(RealEnv::new().files(), &of_thread)));
            let outcome = match receiver.recv_timeout(Duration::from_mins(1)) {
                Err(RecvTimeoutError::Timeout) => panic!("{} waits to {how}", path.display()),
                outcome => outcome.unwrap(),
            };
            let error = outcome.unwrap_err();
            if error.kind() == io::ErrorKind::PermissionDenied {
                continue;
            }
            assert!(NotRegular::is(&error), "{}, {how}: {error}", path.display());
            assert_eq!(error.to_string(), NotRegular(kind).to_string(), "{}, {how}", path.display());
            assert!(error.to_string().contains(says), "{}, {how}: {error}", path.display());
        }
    }
    // SAFETY: the descriptor is ours.
    unsafe { libc::close(control) };
    symlink("loop", place.path("loop")).unwrap();
    let env = RealEnv::new();
    let looped = env.files().open(&place.path("loop")).err().unwrap();
    assert_eq!(looped.raw_os_error(), Some(libc::ELOOP));
    assert_eq!(env.files().open(&place.0).err().unwrap().raw_os_error(), Some(libc::EISDIR));
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

#[test]
fn what_is_created_belongs_to_one_user_whatever_the_mask() {
    let _alone = alone();
    let place = Place::new("modes");
    let env = RealEnv::new();
    let files = env.files();
    for mask in [0, 0o022, 0o377] {
        let within = place.path(&format!("{mask:o}"));
        // SAFETY: it takes and gives a number; nobody else makes files meanwhile.
        let before = unsafe { libc::umask(mask) };
        files.create_directory(&within.join("deep/er")).unwrap();
        files.create(&within.join("created")).unwrap();
        files.open_at(&within.join("new"), OpenMode::Create).unwrap();
        files.open_at(&within.join("direct"), OpenMode::CreateDirect).unwrap();
        files.lock(&within.join("locked")).unwrap();
        // SAFETY: as above.
        unsafe { libc::umask(before) };
        for (name, expected) in
            [("", 0o700), ("deep/er", 0o700), ("created", 0o600), ("new", 0o600), ("direct", 0o600), ("locked", 0o600)]
        {
            assert_eq!(mode(&within.join(name)), expected, "{name} with a mask of {mask:o}");
        }
    }
}

#[test]
fn rights_of_others_are_taken_and_told() {
    let _alone = alone();
    let place = Place::new("rights");
    let env = RealEnv::new();
    let file = place.path("file");
    std::fs::write(&file, "").unwrap();
    for (before, after, told) in [(0o644, 0o600, Some(0o644)), (0o700, 0o700, None), (0o2750, 0o2700, Some(0o2750))] {
        std::fs::set_permissions(&file, PermissionsExt::from_mode(before)).unwrap();
        assert_eq!(env.files().restrict(&file).unwrap(), told);
        assert_eq!(mode(&file), after, "of {before:o}");
    }
    assert_eq!(env.files().restrict(&place.path("none")).unwrap_err().kind(), io::ErrorKind::NotFound);
}

#[test]
fn a_directory_is_found_under_each_of_its_names() {
    let _alone = alone();
    let place = Place::new("within");
    let env = RealEnv::new();
    let database = place.path("db");
    std::fs::create_dir_all(database.join("log")).unwrap();
    std::fs::create_dir_all(place.path("beside")).unwrap();
    symlink(&database, place.path("link")).unwrap();
    symlink(database.join("log"), place.path("beside/log")).unwrap();
    for (path, expected) in [
        ("db", true),
        ("db/new", true),
        ("db/log/new", true),
        ("db/none/new", true),
        ("link/new", true),
        ("link/../db/new", true),
        ("beside/../db/new", true),
        ("beside/log/new", true),
        ("beside/new", false),
        ("db/../new", false),
        ("dbx", false),
        ("none/new", false),
        ("", false),
    ] {
        let path = place.path(path);
        assert_eq!(env.files().is_within(&path, &database).unwrap(), expected, "{}", path.display());
        assert_eq!(env.files().is_within(&path, &place.path("link")).unwrap(), expected, "{}", path.display());
    }
    assert!(!env.files().is_within(&database, &place.path("gone")).unwrap());
}

#[test]
fn a_queue_that_is_released_is_not_waited_for() {
    let env = RealEnv::new();
    let queue = env.io_queue("held").unwrap();
    let (start, started) = mpsc::channel::<()>();
    let (end, ended) = mpsc::channel();
    queue.submit(Box::new(move |_| started.recv().unwrap()));
    queue.submit(Box::new(move |_| end.send(()).unwrap()));
    let held = Arc::downgrade(&queue);
    io_queue::release(&queue);
    drop(queue);
    assert!(ended.try_recv().is_err(), "its jobs have not run");
    start.send(()).unwrap();
    ended.recv_timeout(Duration::from_mins(1)).unwrap();
    while held.strong_count() > 0 {
        std::thread::yield_now();
    }
}
