//! Drops resident pages of the program's own file, its code and constants, so that their memory can hold data.
//!
//! ```text
//! executed once   |==64 KiB==|        |==64 KiB==|==64 KiB==|      resident, although most is not needed again
//! dropped         |          |        |          |          |      still in the kernel's page cache
//! executed again  |==64 KiB==|                                     mapped by a minor fault
//! ```
//! Start-up and planning touch many times the code that executes a plan.

use std::ffi::{c_int, c_void};
use std::{ptr, slice};

/// Assumed size of the code that execution keeps in use: it returns at once, so dropping less than this gains nothing.
pub const EXECUTED_BYTES: u64 = 32 << 20;

/// Drops all pages of the program's read-only segments. The next access maps them again.
pub fn give_back() {
    // SAFETY: the callback has the signature that the function demands, and ignores its data.
    unsafe { libc::dl_iterate_phdr(Some(give_back_of), ptr::null_mut()) };
}

/// Called for the program first; a result other than 0 ends the iteration there.
///
/// # Safety
/// `object` points to the description of a mapped object.
unsafe extern "C" fn give_back_of(object: *mut libc::dl_phdr_info, _size: usize, _data: *mut c_void) -> c_int {
    // SAFETY: by the caller.
    let object = unsafe { &*object };
    // SAFETY: a mapped object's headers are mapped, and there are as many as it says.
    let segments = unsafe { slice::from_raw_parts(object.dlpi_phdr, usize::from(object.dlpi_phnum)) };
    // SAFETY: the call reads a constant of the system.
    let page_bytes = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4_096);
    // Relocated constants lie in a writable segment: their pages differ from the file and must stay.
    for segment in
        segments.iter().filter(|segment| segment.p_type == libc::PT_LOAD && segment.p_flags & libc::PF_W == 0)
    {
        let begin = (object.dlpi_addr + segment.p_vaddr) as usize;
        let first = begin / page_bytes * page_bytes;
        let bytes = begin + segment.p_memsz as usize - first;
        // SAFETY: these pages were never written, so the kernel maps the same bytes again from the file.
        unsafe { libc::madvise(ptr::without_provenance_mut(first), bytes, libc::MADV_DONTNEED) };
    }
    1
}
