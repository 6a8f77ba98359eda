//! The program's own code, as it counts in the memory of the process.
//!
//! The system maps code where it is executed, with what lies around that, and leaves it mapped: of a hundred megabytes
//! that are hardly executed once two thirds may be resident. Forgotten, what is executed next is mapped anew from the
//! page cache, in a microsecond or two for each 64 KiB.

use std::ffi::c_void;
use std::fs;
use std::sync::OnceLock;

/// Where code of files is mapped: addresses and bytes.
type Mappings = Vec<(usize, usize)>;

/// Has the system forget which pages of code it has mapped. Not beside a debugger: its breakpoints are changes of these
/// pages, and would go with them.
pub fn forget_pages() {
    static CODE: OnceLock<Mappings> = OnceLock::new();
    if is_traced(&fs::read_to_string("/proc/self/status").unwrap_or_default()) {
        return;
    }
    let code = CODE.get_or_init(|| mappings(&fs::read_to_string("/proc/self/maps").unwrap_or_default()));
    for (address, bytes) in code {
        // SAFETY: the pages hold what the file has, since they cannot be written to and nobody traces the process. Code
        // is mapped for as long as the process lives: this program closes no libraries.
        unsafe { libc::madvise(*address as *mut c_void, *bytes, libc::MADV_DONTNEED) };
    }
}

/// Whether somebody may change code, as `/proc/self/status` says; yes if it does not say.
fn is_traced(status: &str) -> bool {
    let tracer = status.lines().find_map(|line| line.strip_prefix("TracerPid:"));
    tracer.is_none_or(|tracer| tracer.trim() != "0")
}

/// The mappings of code, as `/proc/self/maps` lists them: `begin-end r-xp offset device inode path`.
fn mappings(maps: &str) -> Mappings {
    let code = maps.lines().filter_map(|line| {
        let mut fields = line.split_whitespace();
        let (range, rights, inode) = (fields.next()?, fields.next()?, fields.nth(2)?);
        let (begin, end) = range.split_once('-')?;
        let (begin, end) = (usize::from_str_radix(begin, 16).ok()?, usize::from_str_radix(end, 16).ok()?);
        (rights == "r-xp" && inode != "0").then(|| (begin, end.saturating_sub(begin)))
    });
    code.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_is_what_is_executed_of_files_and_not_written_to() {
        let maps = "55f1a51b6000-55f1a6f60000 r--p 00000000 fe:00 131 /bin/eris\n\
                    55f1a6f60000-55f1ad194000 r-xp 01da9000 fe:00 131 /bin/eris\n\
                    55f1ad194000-55f1ad55f000 r--p 07fdc000 fe:00 131 /bin/eris\n\
                    7f0725444000-7f072559a000 rwxp 00026000 fe:00 77 /lib/library with a name.so\n\
                    7f0725610000-7f0725684000 r-xp 00010000 fe:00 78 /lib/libm.so.6 (deleted)\n\
                    7ffff60a1000-7ffff60a3000 r-xp 00000000 00:00 0 [vdso]\n\
                    cut off";
        assert_eq!(mappings(maps), [(0x55f1_a6f6_0000, 0x623_4000), (0x7f07_2561_0000, 0x7_4000)]);
    }

    #[test]
    fn beside_a_debugger_nothing_is_forgotten() {
        assert!(!is_traced("Name:\teris\nTracerPid:\t0\nUid:\t0\n"));
        assert!(is_traced("Name:\teris\nTracerPid:\t4711\n") && is_traced("Name:\teris\n"));
    }

    #[test]
    fn forgotten_code_is_executed_as_before() {
        let resident = || {
            let pages = fs::read_to_string("/proc/self/statm").ok()?;
            pages.split_whitespace().nth(2)?.parse::<u64>().ok()
        };
        let before = resident();
        forget_pages();
        let after = resident();
        assert!(after < before, "{before:?} pages of files before, {after:?} after");
        assert_eq!((0..1_000).map(|number| number.to_string().len()).sum::<usize>(), 2_890);
    }
}
