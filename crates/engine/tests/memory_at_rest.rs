//! Workers that have nothing to do give memory back to the system that was freed. In a process of its own: it is the
//! process's memory that is looked at.

#![cfg(target_env = "gnu")]
#![expect(clippy::expect_used, reason = "a test fails by panicking")]

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use eris_engine::{Engine, EngineOptions};
use eris_platform::memory_controller::MemoryObserver;
use eris_platform::{CountingAllocator, RealEnv};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

const MIB: u64 = 1 << 20;

fn resident() -> u64 {
    MemoryObserver::new(Path::new("/")).observe().resident_bytes.expect("the system tells")
}

#[test]
fn idle_workers_give_memory_back() {
    let options = EngineOptions { workers: 2, ..EngineOptions::default() };
    let engine = Engine::start(Arc::new(RealEnv::new()), options).expect("starts");
    let before = resident();
    let (sender, receiver) = channel();
    engine.spawn(async move {
        let blocks: Vec<Vec<u8>> = (0..8_192).map(|_| vec![7; 32 << 10]).collect();
        sender.send(resident()).expect("somebody listens");
        drop(blocks);
    });
    let most = receiver.recv().expect("the task runs");
    assert!(most > before + 200 * MIB, "{most} bytes with 256 MiB, {before} before");
    // mimalloc by itself keeps what nobody asks for.
    let patience = Instant::now() + Duration::from_mins(1);
    while resident() > before + 64 * MIB {
        assert!(Instant::now() < patience, "{} bytes stay resident, {before} were before", resident());
        std::thread::sleep(Duration::from_millis(50));
    }
    engine.shutdown();
}
