//! The counting allocator as the allocator of a process. One test, because everything in a process counts.

use std::sync::mpsc;

use eris_platform::allocator::heap_bytes;
use eris_platform::memory_controller::MemoryObserver;
use eris_platform::{CountingAllocator, SeededRandom};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

const MIB: u64 = 1 << 20;

#[test]
fn what_threads_allocate_and_others_free_adds_up() {
    let before = heap_bytes().expect("the allocator is in use");
    let mut held = vec![1_u8; 8 << 20];
    assert!((8 * MIB..9 * MIB).contains(&(heap_bytes().unwrap() - before)));
    held.truncate(2 << 20);
    held.shrink_to_fit();
    assert!((2 * MIB..3 * MIB).contains(&(heap_bytes().unwrap() - before)), "what realloc gave back is counted");
    drop(held);

    let mut grown: Vec<u32> = vec![0];
    while grown.len() < 16 << 20 {
        grown.extend(grown.len() as u32..2 * grown.len() as u32);
        let (bytes, counted) = (4 * grown.capacity() as u64, heap_bytes().unwrap() - before);
        assert!((bytes..bytes + MIB).contains(&counted), "{bytes} bytes are held, {counted} counted");
    }
    assert!(grown.iter().zip(0..).all(|(value, place)| *value == place), "what was there has moved along");
    drop(grown);

    let [page, wide] = [32 << 10, 64 << 10].map(|bytes| std::alloc::Layout::from_size_align(bytes, 4_096).unwrap());
    // SAFETY: the layouts are those of the block, which is written before it is read and freed once.
    unsafe {
        let block = std::alloc::alloc(page);
        block.write_bytes(7, page.size());
        let block = std::alloc::realloc(block, page, wide.size());
        assert!((block as usize).is_multiple_of(wide.align()), "a block that grows keeps its alignment");
        assert!(std::slice::from_raw_parts(block, page.size()).iter().all(|byte| *byte == 7));
        std::alloc::dealloc(block, wide);
    }

    // More threads than slots, one after the other, while their blocks are freed by this one.
    for round in 0..20 {
        let (sender, receiver) = mpsc::channel();
        std::thread::scope(|scope| {
            for number in 0..10 {
                let sender = sender.clone();
                scope.spawn(move || {
                    let mut random = SeededRandom::new(round * 10 + number);
                    for _ in 0..200 {
                        sender.send(vec![7_u8; 1 + random.below(4_000) as usize]).unwrap();
                    }
                });
            }
        });
        drop(sender);
        let blocks: Vec<Vec<u8>> = receiver.iter().collect();
        let bytes: usize = blocks.iter().map(Vec::len).sum();
        let counted = heap_bytes().unwrap() - before;
        assert!(counted >= bytes as u64, "{bytes} bytes are held, {counted} counted");
        drop(blocks);
        let left = heap_bytes().unwrap().abs_diff(before);
        assert!(left < MIB / 4, "{left} bytes are counted and gone in round {round}");
    }
    let seen = MemoryObserver::new(std::path::Path::new("/")).observe();
    assert!(seen.heap_bytes.is_some_and(|heap| heap <= seen.resident_bytes.unwrap()), "{seen:?}");

    if cfg!(not(target_env = "gnu")) {
        return;
    }
    let resident = || MemoryObserver::new(std::path::Path::new("/")).observe().resident_bytes.unwrap();
    let blocks: Vec<Vec<u8>> = (0..4_096).map(|_| vec![7_u8; 32 << 10]).collect();
    let with_blocks = resident();
    drop(blocks);
    eris_platform::allocator::give_back();
    let without = resident();
    assert!(without + 96 * MIB < with_blocks, "{with_blocks} bytes were resident with 128 MiB, {without} are without");
}
