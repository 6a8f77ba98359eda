//! Where the memory of arenas lies, on whatever machine the tests run, and where the kernel refuses to say.
#![expect(clippy::unwrap_used, reason = "a test that cannot set itself up shall fail")]

use std::path::Path;

use eris_platform::arena::NumaPlacement;
use eris_platform::{Arena, ArenaOptions, MemoryPool, NodeId, Origin, Topology};

const MIB: usize = 1 << 20;

fn arena_on(node: NodeId) -> Arena {
    let options = ArenaOptions { memory_node: Some(node), huge_pages: false, consumer: "columns" };
    Arena::with_options(NodeId(0), &MemoryPool::unlimited(), options)
}

/// The first node of this machine if its kernel places memory, which containers and small kernels may not.
fn placing_node() -> Option<NodeId> {
    let node = Topology::read(Path::new("/")).nodes[0].id;
    let arena = arena_on(node);
    let block = arena.allocate_bytes(64, 64).unwrap();
    let placed = arena.numa_placement() == Some(NumaPlacement::Bound(node)) && block.location().unavailable.is_none();
    if !placed {
        eprintln!("skipped: this kernel does not place memory by node: {:?}", arena.remark());
    }
    placed.then_some(node)
}

#[test]
fn touched_bytes_are_found_and_untouched_ones_lie_nowhere() {
    let Some(node) = placing_node() else { return };
    let arena = arena_on(node);
    let mut large = arena.allocate_bytes(4 * MIB, 64).unwrap();
    let mut small = arena.allocate_bytes(5_000, 64).unwrap();
    assert_eq!(large.location().untouched_bytes, 4 << 20);
    large[..MIB].fill(1);
    small.fill(2);
    let location = large.location();
    let on_all: u64 = location.by_node.values().sum();
    assert_eq!((on_all, location.untouched_bytes), (1 << 20, 3 << 20), "{location}");
    // Two or three pages of the region are the small block's.
    let whole = arena.location();
    let touched: u64 = whole.by_node.values().sum();
    assert!(((1 << 20) + 8_192..=(1 << 20) + 12_288).contains(&touched), "{whole}");
    assert_eq!(touched + whole.untouched_bytes, (4 << 20) + (2 << 20), "the block and one region");
    assert_eq!(whole.origin(), Origin::Measured);
    drop(large);
    assert!(arena.location().untouched_bytes < 2 << 20, "a block that is gone is not looked for");
}

#[test]
fn moving_keeps_the_bytes_and_says_where_they_are() {
    let Some(node) = placing_node() else { return };
    let arena = arena_on(node);
    let mut blocks = Vec::new();
    for (fill, length) in [(1_u8, 100), (2, 9_000), (3, 200_000), (4, 3 * MIB)] {
        let mut block = arena.allocate_bytes(length, 64).unwrap();
        block.fill(fill);
        blocks.push((fill, block));
    }
    let before = arena.location();
    assert_eq!(arena.migrate(node), before, "everything is there already");
    assert_eq!(arena.memory_node(), Some(node));
    for (fill, block) in &blocks {
        let moved = block.migrate(node);
        // Only pages of its own: none of the smallest, all of the largest.
        let bytes: u64 = moved.by_node.values().sum();
        assert!(bytes <= block.footprint_bytes() as u64, "{moved}");
        assert_eq!(bytes > 0, block.len() > 100, "{moved}");
        assert!(block.iter().all(|byte| byte == fill), "a moved block has its bytes");
        let copy = block.copy_to(&arena).unwrap();
        assert!(copy.len() == block.len() && copy.iter().all(|byte| byte == fill));
    }
    let nowhere = blocks[3].1.migrate(NodeId(900));
    assert!(nowhere.unavailable.unwrap().contains("no NUMA node 900"));
    assert!(blocks[3].1.iter().all(|&byte| byte == 4));
}

#[test]
fn interleaving_over_one_node_is_that_node() {
    let Some(node) = placing_node() else { return };
    let arena = Arena::interleaved(NodeId(0), &MemoryPool::unlimited(), &[node]);
    let mut block = arena.allocate_bytes(100, 64).unwrap();
    block.fill(1);
    assert_eq!(arena.numa_placement(), Some(NumaPlacement::Interleaved(vec![node])));
    assert_eq!(arena.memory_node(), None);
    assert_eq!(block.location().bytes_on(node), 4_096);
    // A node beyond what can be addressed is left out, one the machine does not have is refused.
    let arena = Arena::interleaved(NodeId(0), &MemoryPool::unlimited(), &[NodeId(u16::MAX), NodeId(900)]);
    let block = arena.allocate_bytes(100, 64).unwrap();
    let Some(NumaPlacement::Unbound(reason)) = arena.numa_placement() else { panic!("spread over no node") };
    assert!(reason.contains("[NodeId(900)]"), "{reason}");
    drop(block);
}

/// Lets this thread's calls of the two system calls fail with `error`, as kernels without NUMA and containers do.
fn refuse_placement(error: libc::c_int) {
    let statement = |code: u32, k: u32, jt: u8, jf: u8| libc::sock_filter { code: code as u16, jt, jf, k };
    let refuse = libc::SECCOMP_RET_ERRNO | error as u32;
    let mut program = [
        // The number of the system call is the first word.
        statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        statement(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, libc::SYS_mbind as u32, 1, 0),
        statement(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, libc::SYS_move_pages as u32, 0, 1),
        statement(libc::BPF_RET | libc::BPF_K, refuse, 0, 0),
        statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW, 0, 0),
    ];
    let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: the program lives during the call; it concerns this thread only, which ends with the test.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        assert_eq!(libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const filter), 0);
    }
}

#[test]
fn a_kernel_that_refuses_is_unavailable_and_memory_works() {
    for error in [libc::ENOSYS, libc::EPERM] {
        std::thread::spawn(move || {
            refuse_placement(error);
            let arena = arena_on(NodeId(0));
            let mut block = arena.allocate_bytes(3 * MIB, 64).unwrap();
            let mut small = arena.allocate_bytes(10_000, 64).unwrap();
            block.fill(7);
            small.fill(8);
            let text = std::io::Error::from_raw_os_error(error).to_string();
            let Some(NumaPlacement::Unbound(reason)) = arena.numa_placement() else { panic!("nothing was refused") };
            assert!(reason.contains(&text), "{reason}");
            let location = arena.location();
            assert_eq!(location.origin(), Origin::Unavailable);
            assert!(location.unavailable.clone().unwrap().contains(&text), "{location}");
            assert!(location.by_node.is_empty(), "no figure is made up: {location}");
            assert!(arena.remark().unwrap().contains("placed by the system"));
            assert_eq!(arena.migrate(NodeId(0)).origin(), Origin::Unavailable);
            assert_eq!(small.migrate(NodeId(0)).origin(), Origin::Unavailable);
            assert!(block.iter().all(|&byte| byte == 7) && small.iter().all(|&byte| byte == 8));
            assert!(small.copy_to(&arena).unwrap().iter().all(|&byte| byte == 8), "copying remains");
        })
        .join()
        .unwrap();
    }
}
