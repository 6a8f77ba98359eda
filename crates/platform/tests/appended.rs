//! Files that grow and are written past the page cache: the same expectations of Linux and of the simulated machine.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io;
use std::path::{Path, PathBuf};

use eris_platform::files::DIRECT_ALIGN;
use eris_platform::simulated::FileFault;
use eris_platform::{AppendedFile, Env, Files, OpenMode, RealEnv, SeededRandom, SimulatedEnv};

/// Gives an environment with an empty directory `/data` of each kind: Linux with a file system on a disk and with one
/// in memory, where there is one, and the simulated machine.
fn in_all_worlds(name: &str, test: impl Fn(&dyn Env)) {
    for below in [std::env::temp_dir(), PathBuf::from("/dev/shm")] {
        let root = below.join(format!("eris-appended-{name}-{}", std::process::id()));
        if std::fs::create_dir_all(root.join("data")).is_ok() {
            test(&RealEnv::with_file_root(root.clone()));
            std::fs::remove_dir_all(root).unwrap();
        }
    }
    test(&simulated());
}

fn simulated() -> SimulatedEnv {
    let env = SimulatedEnv::new(0);
    env.files().create_directory(Path::new("/data")).unwrap();
    env
}

fn path() -> PathBuf {
    PathBuf::from("/data/rows")
}

fn contents(files: &dyn Files) -> Vec<u8> {
    let file = files.open_at(&path(), OpenMode::Read).unwrap();
    let mut bytes = vec![0; file.len().unwrap() as usize];
    file.read_exact_at(&mut bytes, 0).unwrap();
    bytes
}

#[test]
fn what_was_appended_is_there_after_each_sync_and_nothing_else() {
    in_all_worlds("syncs", |env| {
        let mut random = SeededRandom::new(7);
        let mut file = AppendedFile::create(env.files(), &path()).unwrap();
        let mut expected = Vec::new();
        assert!(file.is_empty());
        for _ in 0..60 {
            // Around the sizes at which something changes, and any.
            let piece = env.files().piece_bytes();
            let most = [1, DIRECT_ALIGN, piece, 3 * piece][random.index(4)];
            let length = if random.index(2) == 0 { most } else { random.index(most + 2) };
            let bytes: Vec<u8> = (0..length).map(|_| random.next_u32() as u8 | 1).collect();
            file.append(&bytes).unwrap();
            expected.extend(bytes);
            assert_eq!(file.len(), expected.len() as u64);
            if random.index(3) == 0 {
                file.sync().unwrap();
                assert!(contents(env.files()) == expected, "{} bytes differ", expected.len());
            }
        }
        file.sync().unwrap();
        file.sync().unwrap();
        assert!(contents(env.files()) == expected);
        let again = AppendedFile::create(env.files(), &path()).unwrap_err();
        assert_eq!(again.kind(), io::ErrorKind::AlreadyExists);
    });
}

#[test]
fn nothing_is_written_before_a_piece_is_full() {
    let env = simulated();
    let mut file = AppendedFile::create(env.files(), &path()).unwrap();
    let before = env.simulated_files().operations();
    for _ in 0..env.files().piece_bytes() / 64 {
        file.append(&[1; 64]).unwrap();
    }
    assert_eq!(env.simulated_files().operations(), before);
    file.append(&[1]).unwrap();
    assert_eq!(env.simulated_files().operations(), before + 1);
}

#[test]
fn a_write_that_failed_is_tried_again_by_the_next() {
    let env = simulated();
    let mut file = AppendedFile::create(env.files(), &path()).unwrap();
    let piece = env.files().piece_bytes();
    file.append(&vec![1; piece]).unwrap();
    let files = env.simulated_files();
    files.fail_at(files.operations(), FileFault::NoSpace);
    assert_eq!(file.append(&[2]).unwrap_err().raw_os_error(), Some(libc::ENOSPC));
    file.append(&[2]).unwrap();
    file.sync().unwrap();
    let mut expected = vec![1; piece];
    expected.push(2);
    assert!(contents(env.files()) == expected);
}

#[test]
fn a_disk_that_is_full_takes_whole_blocks_and_says_so() {
    let env = simulated();
    env.simulated_files().set_capacity(Some(3 * DIRECT_ALIGN as u64 + 100));
    let mut file = AppendedFile::create(env.files(), &path()).unwrap();
    file.append(&vec![1; 4 * DIRECT_ALIGN]).unwrap();
    assert_eq!(file.sync().unwrap_err().kind(), io::ErrorKind::StorageFull);
    assert_eq!(contents(env.files()).len(), 3 * DIRECT_ALIGN);
    env.simulated_files().set_capacity(None);
    file.sync().unwrap();
    assert_eq!(contents(env.files()), vec![1; 4 * DIRECT_ALIGN]);
}

/// As the kernel: so code that was seen to work in the simulated machine does on a disk.
#[test]
fn the_simulated_machine_refuses_what_is_not_aligned() {
    let env = simulated();
    let file = env.files().open_at(&path(), OpenMode::CreateDirect).unwrap();
    let buffer = vec![1; 3 * DIRECT_ALIGN];
    let aligned = &buffer[buffer.as_ptr().align_offset(DIRECT_ALIGN)..][..DIRECT_ALIGN];
    file.write_all_at(aligned, 0).unwrap();
    file.write_all_at(aligned, DIRECT_ALIGN as u64).unwrap();
    let refused = |result: io::Result<usize>| assert_eq!(result.unwrap_err().raw_os_error(), Some(libc::EINVAL));
    refused(file.write_at(aligned, 512));
    refused(file.write_at(&aligned[..512], 0));
    refused(file.write_at(&buffer[buffer.as_ptr().align_offset(DIRECT_ALIGN) + 1..][..DIRECT_ALIGN], 0));
    assert_eq!(contents(env.files()), vec![1; 2 * DIRECT_ALIGN]);
}

/// Where a write is refused for how it lies, as devices with larger blocks do, it goes through the cache.
#[test]
fn what_is_refused_past_the_cache_goes_through_it() {
    let root = std::env::temp_dir().join(format!("eris-appended-refused-{}", std::process::id()));
    std::fs::create_dir_all(root.join("data")).unwrap();
    let env = RealEnv::with_file_root(root.clone());
    let file = env.files().open_at(&path(), OpenMode::CreateDirect).unwrap();
    let buffer = vec![1; 3 * DIRECT_ALIGN];
    let aligned = &buffer[buffer.as_ptr().align_offset(DIRECT_ALIGN)..][..DIRECT_ALIGN];
    file.write_all_at(aligned, 0).unwrap();
    file.write_all_at(b"abc", DIRECT_ALIGN as u64).unwrap();
    file.write_all_at(&aligned[1..100], DIRECT_ALIGN as u64 + 3).unwrap();
    assert_eq!(file.read_at(&mut [0], 0).unwrap_err().raw_os_error(), Some(libc::EBADF), "it is there to be written");
    let expected = [aligned, b"abc", &aligned[1..100]].concat();
    assert!(contents(env.files()) == expected);
    std::fs::remove_dir_all(root).unwrap();
}

/// What was written past the page cache is not in it, on file systems of which it is known.
#[test]
fn the_page_cache_is_left_alone() {
    let root = std::env::temp_dir().join(format!("eris-appended-cache-{}", std::process::id()));
    std::fs::create_dir_all(root.join("data")).unwrap();
    let env = RealEnv::with_file_root(root.clone());
    let bytes = vec![1; 4 * env.files().piece_bytes()];
    let file = env.files().open_at(&path(), OpenMode::Create).unwrap();
    file.write_all_at(&bytes, 0).unwrap();
    assert!(pages_in_cache(&root.join("data/rows"), bytes.len()) > 0, "what is written as always is in the cache");
    env.files().remove(&path()).unwrap();
    let mut file = AppendedFile::create(env.files(), &path()).unwrap();
    file.append(&bytes).unwrap();
    file.sync().unwrap();
    if [EXT4, XFS].contains(&file_system_of(&root)) {
        assert_eq!(pages_in_cache(&root.join("data/rows"), bytes.len()), 0);
    }
    assert!(contents(env.files()) == bytes);
    std::fs::remove_dir_all(root).unwrap();
}

/// Numbers of file systems (`statfs`) that write past the cache when they say so, but for rare mount options.
const EXT4: u64 = 0xEF53;
const XFS: u64 = 0x5846_5342;

fn file_system_of(path: &Path) -> u64 {
    let path = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
    // SAFETY: all fields are numbers.
    let mut status: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: the path ends with a zero byte, and the kernel writes one structure.
    assert_eq!(unsafe { libc::statfs(path.as_ptr(), &raw mut status) }, 0);
    status.f_type as u64
}

/// Pages of the file's first bytes that are in memory.
fn pages_in_cache(path: &Path, bytes: usize) -> usize {
    use std::os::fd::AsRawFd;
    let file = std::fs::File::open(path).unwrap();
    // SAFETY: the call takes and gives numbers.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
    let mut resident = vec![0_u8; bytes.div_ceil(page)];
    // SAFETY: a mapping of a file that is so long, looked at with room for a byte per page, and given back.
    unsafe {
        let start = libc::mmap(std::ptr::null_mut(), bytes, libc::PROT_READ, libc::MAP_SHARED, file.as_raw_fd(), 0);
        assert_ne!(start, libc::MAP_FAILED);
        assert_eq!(libc::mincore(start, bytes, resident.as_mut_ptr()), 0);
        libc::munmap(start, bytes);
    }
    resident.iter().filter(|page| **page & 1 != 0).count()
}
