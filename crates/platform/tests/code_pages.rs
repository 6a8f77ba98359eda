//! Code and constants of the program are given back while memory is tight. One test, because everything in a process
//! counts.
#![cfg(target_env = "gnu")]
#![expect(clippy::unwrap_used, reason = "a test that cannot set itself up shall fail")]

use std::fs;

use eris_platform::memory::RefusedBy;
use eris_platform::{CountingAllocator, MemoryController, MemoryPool};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

const PAGE_BYTES: usize = 4_096;

/// The test itself is little, and most of it is executed all the time.
static CONSTANTS: [u8; 4 << 20] = [7; 4 << 20];

/// The sum of a word of each page of this program's file that nobody can write to. Afterwards all are resident.
fn read_all_pages() -> (usize, u64) {
    let program = fs::read_link("/proc/self/exe").unwrap();
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let (mut pages, mut sum) = (0, 0_u64);
    for line in maps.lines().filter(|line| line.ends_with(&*program.to_string_lossy())) {
        let words: Vec<&str> = line.split_whitespace().collect();
        // The first pages of what was relocated can be read only, too, but are this process's own.
        if !words[1].starts_with("r-") || words[1].starts_with("r--") && line_is_relocated(words[0], &maps) {
            continue;
        }
        let (begin, end) = words[0].split_once('-').unwrap();
        let address = |text| usize::from_str_radix(text, 16).unwrap();
        for page in (address(begin)..address(end)).step_by(PAGE_BYTES) {
            // SAFETY: the page is mapped, can be read, and its bytes do not change.
            sum = sum.wrapping_add(unsafe { std::ptr::with_exposed_provenance::<u64>(page).read_volatile() });
            pages += 1;
        }
    }
    (pages, sum)
}

/// Whether what can be written to follows these addresses at once.
fn line_is_relocated(addresses: &str, maps: &str) -> bool {
    let (_, end) = addresses.split_once('-').unwrap();
    maps.lines().any(|line| line.starts_with(end) && line.contains(" rw-p "))
}

/// Pages of files that are resident.
fn resident_pages() -> usize {
    let text = fs::read_to_string("/proc/self/statm").unwrap();
    text.split_whitespace().nth(2).unwrap().parse().unwrap()
}

#[test]
fn code_that_is_not_executed_is_given_back_while_memory_is_tight() {
    let root = std::env::temp_dir().join(format!("eris-code-pages-{}", std::process::id()));
    fs::create_dir_all(root.join("proc/self")).unwrap();
    // Pages: as a whole, resident, of files.
    let observe = |resident_mib: usize, file_mib: usize| {
        let pages = |mib: usize| (mib << 20) / PAGE_BYTES;
        let text = format!("{} {} {} 1 0 1 0\n", pages(4_096), pages(resident_mib), pages(file_mib));
        fs::write(root.join("proc/self/statm"), text).unwrap();
    };
    let pool = MemoryPool::new(1 << 30);
    let controller = MemoryController::new(&pool, &root);
    let (pages, sum) = read_all_pages();
    assert!(pages > std::hint::black_box(&CONSTANTS).len() / PAGE_BYTES, "{pages} pages");
    // Whether most of them are resident still after this, where so much is seen.
    let stays = |resident_mib, file_mib, look: &dyn Fn()| {
        observe(resident_mib, file_mib);
        assert_eq!(read_all_pages(), (pages, sum));
        let before = resident_pages();
        look();
        resident_pages() + pages / 2 > before
    };
    let look = || {
        controller.look();
    };
    assert!(stays(800, 70, &look), "there is room");
    assert!(stays(1_000, 32, &look), "so much is executed all the time");
    assert!(!stays(1_000, 70, &look), "memory is tight, and most code is not executed");
    let reserve = || pool.reserve("columns").grow(300 << 20).unwrap_err();
    let refused = || assert_eq!(reserve().refused_by, RefusedBy::Unaccounted);
    assert!(!stays(800, 70, &refused), "somebody is refused");
    assert_eq!(read_all_pages(), (pages, sum), "what is used again is there again");
    fs::remove_dir_all(&root).unwrap();
}
