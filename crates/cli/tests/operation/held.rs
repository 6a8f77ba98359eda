//! Threads of a server that are held where they are, as a call that does not return would hold them.

use std::time::{Duration, Instant};

use super::PATIENCE;

/// Threads of a process whose names begin like this.
pub fn threads(process: u32, name: &str) -> Vec<libc::pid_t> {
    let entries = std::fs::read_dir(format!("/proc/{process}/task")).unwrap();
    let named =
        |path: &std::path::Path| std::fs::read_to_string(path.join("comm")).is_ok_and(|found| found.starts_with(name));
    let paths = entries.map(|entry| entry.unwrap().path()).filter(|path| named(path));
    paths.map(|path| path.file_name().unwrap().to_str().unwrap().parse().unwrap()).collect()
}

/// Stops threads of another process where they are, as a call that does not return would; false if that is not allowed.
pub fn hold(threads: &[libc::pid_t]) -> bool {
    threads.iter().all(|thread| {
        let nothing = std::ptr::null_mut::<libc::c_void>();
        // SAFETY: only the other process is touched, which is ours.
        unsafe {
            libc::ptrace(libc::PTRACE_SEIZE, *thread, nothing, nothing) == 0
                && libc::ptrace(libc::PTRACE_INTERRUPT, *thread, nothing, nothing) == 0
                && libc::waitpid(*thread, std::ptr::null_mut(), libc::__WALL) == *thread
        }
    })
}

/// Takes note of the end of threads that are held: before that their process is not over.
pub fn see_the_end(threads: &[libc::pid_t]) {
    let begun = Instant::now();
    for thread in threads {
        loop {
            let mut status = 0;
            // SAFETY: the status is a valid place for the result.
            let seen = unsafe { libc::waitpid(*thread, &raw mut status, libc::__WALL | libc::WNOHANG) };
            if seen == -1 || (seen == *thread && (libc::WIFEXITED(status) || libc::WIFSIGNALED(status))) {
                break;
            }
            if begun.elapsed() >= PATIENCE {
                // Otherwise nobody could wait for the process that is killed behind this.
                for thread in threads {
                    release(*thread);
                }
                panic!("it does not end");
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// Lets a thread go on.
pub fn release(thread: libc::pid_t) {
    let nothing = std::ptr::null_mut::<libc::c_void>();
    // SAFETY: only the other process is touched, which is ours.
    unsafe { libc::ptrace(libc::PTRACE_DETACH, thread, nothing, nothing) };
}
