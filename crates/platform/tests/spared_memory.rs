//! Large blocks that are mappings of their own. One test, because everything in a process counts.
#![expect(clippy::unwrap_used, reason = "a test that cannot set itself up shall fail")]

use eris_platform::{CountingAllocator, SeededRandom, allocator};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

const MIB: usize = 1 << 20;

/// A figure of `/proc/self/status`, in MiB.
fn status_mib(name: &str) -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    line.trim_start_matches(':').trim().strip_suffix(" kB").unwrap().parse::<usize>().unwrap() / 1024
}

/// Vectors that grow, shrink, move between threads and go; each number is where it was put.
fn grow_and_shrink(seed: u64, handed: &std::sync::Mutex<Vec<Vec<usize>>>) {
    let mut random = SeededRandom::new(seed);
    let check = |block: &[usize]| {
        let step = block.len() / 100 + 1;
        assert!(block.iter().enumerate().step_by(step).all(|(at, value)| *value == at));
    };
    let mut own: Vec<Vec<usize>> = Vec::new();
    for _ in 0..400 {
        match random.index(6) {
            0 => own.push((0..random.index(2 * MIB)).collect()),
            1 if !own.is_empty() => {
                let block = own.swap_remove(random.index(own.len()));
                check(&block);
                handed.lock().unwrap().push(block);
            }
            2 => own.extend(handed.lock().unwrap().pop()),
            3 if !own.is_empty() => drop(own.swap_remove(random.index(own.len()))),
            4 if !own.is_empty() => {
                let at = random.index(own.len());
                let block = &mut own[at];
                block.truncate(random.index(block.len() + 1));
                block.shrink_to_fit();
            }
            _ if !own.is_empty() => {
                let at = random.index(own.len());
                let more = random.index(MIB);
                let block = &mut own[at];
                block.reserve_exact(more);
                block.extend(block.len()..block.len() + more);
            }
            _ => {}
        }
        for block in &own {
            check(block);
        }
        own.truncate(6);
    }
}

/// A vector that is grown to 200 MiB, from 128 to 256 at the end.
fn grows_without_copies_and_goes() {
    // The peak is counted from here on.
    std::fs::write("/proc/self/clear_refs", "5").unwrap();
    let rest = status_mib("VmRSS");
    let mut numbers: Vec<usize> = Vec::new();
    for number in 0..25 * MIB {
        numbers.push(number);
    }
    let peak = status_mib("VmHWM").saturating_sub(rest);
    assert!((200..230).contains(&peak), "{peak} MiB resident at most for 200");
    assert!(numbers.iter().enumerate().all(|(at, number)| at == *number));
    drop(numbers);
    let left = status_mib("VmRSS").saturating_sub(rest);
    assert!(left < 10, "{left} MiB are still resident");
}

#[test]
fn large_blocks_grow_without_copies_and_are_given_back_when_they_are_freed() {
    // Blocks of before, which are freed or grow after.
    let before: Vec<Vec<usize>> = (0..4).map(|at| (0..MIB * at).collect()).collect();
    allocator::map_blocks_grown_to(0);
    allocator::keep(false);
    let counted = allocator::heap_bytes().unwrap();

    grows_without_copies_and_goes();
    assert!(vec![0_u8; 64 * MIB].iter().all(|byte| *byte == 0));

    // What the kernel cannot move as a whole is copied.
    let mut numbers: Vec<usize> = (0..MIB).collect();
    // SAFETY: it concerns what a dump of the process has, and the pages lie within the block.
    let advised = unsafe { libc::madvise(numbers.as_mut_ptr().cast(), 1 << 20, libc::MADV_DONTDUMP) };
    assert_eq!(advised, 0);
    numbers.extend(MIB..5 * MIB);
    assert!(numbers.iter().enumerate().all(|(at, number)| at == *number));
    drop(numbers);

    // More blocks than the table has slots.
    let mut many: Vec<Vec<u8>> = (0..4_200).map(|_| vec![0; MIB]).collect();
    for (at, block) in many.iter_mut().enumerate() {
        block[at] = 7;
    }
    many[4_199].resize(8 * MIB, 9);
    assert!(many.iter().enumerate().all(|(at, block)| block[at] == 7 && block[at + 1] == 0));
    assert_eq!((many[4_199][MIB - 1], many[4_199][8 * MIB - 1]), (0, 9));
    drop(many);
    // Those slots are free again.
    grows_without_copies_and_goes();

    let handed = std::sync::Mutex::new(before);
    std::thread::scope(|scope| {
        for seed in 0..4 {
            let handed = &handed;
            scope.spawn(move || grow_and_shrink(seed, handed));
        }
    });
    drop(handed);
    let left = allocator::heap_bytes().unwrap();
    assert!(left + 40 * MIB as u64 <= counted, "{left} bytes are counted, {counted} before");
}
