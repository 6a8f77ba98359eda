//! Anonymous memory of the operating system, bound to a NUMA node.

use std::io;
use std::ptr::NonNull;

use super::pages::Policy;
use crate::ids::NodeId;

/// What memory is counted in. The systems this runs on have 4 KiB pages; larger ones only round further.
pub(super) const PAGE_BYTES: usize = 4096;

#[derive(Clone, Copy, Debug)]
pub(super) struct MapOptions {
    pub(super) policy: Policy,
    pub(super) huge_pages: bool,
}

/// Where mapped memory lies.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NumaPlacement {
    /// On this NUMA node of the operating system, as long as it has free memory.
    Bound(NodeId),
    /// Page by page on each of these NUMA nodes in turn.
    Interleaved(Vec<NodeId>),
    /// Wherever the kernel puts it (the node of the thread that first touches a page), for this reason.
    Unbound(String),
}

/// `None` if the sum is beyond the address space.
pub(super) fn round_to_pages(bytes: usize) -> Option<usize> {
    bytes.checked_next_multiple_of(PAGE_BYTES).filter(|&bytes| isize::try_from(bytes).is_ok())
}

/// Zeroed, private, readable and writable memory; unmapped on drop.
pub(super) struct Mapping {
    start: NonNull<u8>,
    bytes: usize,
    pub(super) placement: NumaPlacement,
}

// SAFETY: the mapping is plain memory that belongs to its owner alone.
unsafe impl Send for Mapping {}
// SAFETY: a shared mapping hands out nothing but its address.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `bytes` (whole pages), starting at a multiple of `align` (a power of two, at least a page).
    pub(super) fn new(bytes: usize, align: usize, options: MapOptions) -> io::Result<Mapping> {
        assert!(bytes > 0 && bytes.is_multiple_of(PAGE_BYTES), "a mapping has whole pages, not {bytes} bytes");
        assert!(align.is_power_of_two() && align >= PAGE_BYTES, "a mapping cannot be aligned to {align} bytes");
        // Mapped with slack for the alignment, which is given back at once.
        let slack = align - PAGE_BYTES;
        let total = bytes.checked_add(slack).ok_or(io::ErrorKind::OutOfMemory)?;
        let address = map_anonymous(total)?;
        let before = address.as_ptr().align_offset(align);
        // SAFETY: `before <= slack`, so start and end of the aligned part lie within the mapping.
        let start = unsafe { address.add(before) };
        if before > 0 {
            // SAFETY: these pages were just mapped and nobody knows them.
            unsafe { unmap(address, before) };
        }
        if slack > before {
            // SAFETY: as above; `start + bytes` begins the unused rest.
            unsafe { unmap(start.add(bytes), slack - before) };
        }
        let mapping = Mapping { start, bytes, placement: options.policy.apply(start, bytes) };
        if options.huge_pages {
            // A wish; a kernel without transparent huge pages refuses it, and nothing depends on it.
            // SAFETY: the range is ours, and the advice does not change its contents.
            unsafe { libc::madvise(start.as_ptr().cast(), bytes, libc::MADV_HUGEPAGE) };
        }
        Ok(mapping)
    }

    pub(super) fn start(&self) -> NonNull<u8> {
        self.start
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the owner of the mapping is gone, so nobody refers to its memory.
        unsafe { unmap(self.start, self.bytes) };
    }
}

fn map_anonymous(bytes: usize) -> io::Result<NonNull<u8>> {
    // SAFETY: a new anonymous mapping at an address of the kernel's choice touches nothing that exists.
    let address = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            bytes,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
            -1,
            0,
        )
    };
    if address == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    NonNull::new(address.cast()).ok_or_else(|| io::ErrorKind::OutOfMemory.into())
}

/// # Safety
/// The pages are mapped and nobody uses them any more.
unsafe fn unmap(start: NonNull<u8>, bytes: usize) {
    // SAFETY: by the caller.
    let result = unsafe { libc::munmap(start.as_ptr().cast(), bytes) };
    assert_eq!(result, 0, "pages of an arena cannot be unmapped: {}", io::Error::last_os_error());
}
