//! Pages of the program's file: its code and its constants.
//!
//! ```text
//! executed once   |==64 KiB==|        |==64 KiB==|==64 KiB==|      resident, although most is not needed again
//! given back      |          |        |          |          |      the kernel's cache of the file has them still
//! executed again  |==64 KiB==|                                     mapped by a fault of a microsecond or two
//! ```
//! What starts the process and what plans a statement is many times the code that then runs it.

use std::ffi::{c_int, c_void};
use std::ptr;

/// What is executed all the time, and comes back at once.
pub const EXECUTED_BYTES: u64 = 32 << 20;

/// Gives pages of the program's file back that nobody can write to. Who executes or reads them has them again.
pub fn give_back() {
    // SAFETY: the callback is as the function demands, and needs no data.
    unsafe { libc::dl_iterate_phdr(Some(give_back_of), ptr::null_mut()) };
}

/// Of the program, which comes first; what is not 0 ends the iteration.
///
/// # Safety
/// `object` describes an object that is mapped.
unsafe extern "C" fn give_back_of(object: *mut libc::dl_phdr_info, _size: usize, _data: *mut c_void) -> c_int {
    // SAFETY: by the caller.
    let object = unsafe { &*object };
    let (mut header, count) = (object.dlpi_phdr, object.dlpi_phnum);
    // SAFETY: the object has so many headers, which lie in memory that is mapped.
    let page_bytes = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4_096);
    for _ in 0..count {
        // SAFETY: as above.
        let segment = unsafe { &*header };
        // Relocated constants are in a segment that was written to.
        if segment.p_type == libc::PT_LOAD && segment.p_flags & libc::PF_W == 0 {
            let begin = (object.dlpi_addr + segment.p_vaddr) as usize;
            let first = begin / page_bytes * page_bytes;
            let bytes = begin + segment.p_memsz as usize - first;
            // SAFETY: pages of a file that were never written to: the kernel maps the same bytes when they are used.
            unsafe { libc::madvise(ptr::without_provenance_mut(first), bytes, libc::MADV_DONTNEED) };
        }
        // SAFETY: at most one behind the last.
        header = unsafe { header.add(1) };
    }
    1
}
