//! SIGINT and SIGTERM as values, for commands that end in an orderly way.
//!
//! The signals are blocked before any other thread starts, so that all threads inherit the mask, and one thread waits
//! for them: no code ever runs inside a signal handler.

use std::io;
use std::mem::MaybeUninit;

/// From now on the process ends quietly, as other tools do, when nobody reads what it prints (`eris demo | head`).
/// For commands that write to people only: a pipe to another process would end them as well.
pub fn end_with_the_reader() {
    // SAFETY: the default action is no handler, so no code of this process runs in one.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
}

/// A request to end, or to interrupt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// Ctrl-C.
    Interrupt,
    Terminate,
}

/// The right to wait for signals.
pub struct Signals {
    set: libc::sigset_t,
}

impl Signals {
    /// Blocks the signals in this thread and those it starts. To be called before any thread is started.
    pub fn block() -> io::Result<Signals> {
        let mut set = MaybeUninit::uninit();
        // SAFETY: `sigemptyset` initialises the whole set behind the valid pointer, the others change or read it.
        let (set, result) = unsafe {
            libc::sigemptyset(set.as_mut_ptr());
            libc::sigaddset(set.as_mut_ptr(), libc::SIGINT);
            libc::sigaddset(set.as_mut_ptr(), libc::SIGTERM);
            let result = libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), std::ptr::null_mut());
            (set.assume_init(), result)
        };
        if result == 0 { Ok(Signals { set }) } else { Err(io::Error::from_raw_os_error(result)) }
    }

    /// Waits for the next signal.
    pub fn wait(&self) -> io::Result<Signal> {
        let mut number = 0;
        // SAFETY: the set was initialised by `block`, and `number` is a valid place for the result.
        let result = unsafe { libc::sigwait(&raw const self.set, &raw mut number) };
        match (result, number) {
            (0, libc::SIGINT) => Ok(Signal::Interrupt),
            (0, _) => Ok(Signal::Terminate),
            (error, _) => Err(io::Error::from_raw_os_error(error)),
        }
    }
}
