//! Signals as values, for commands that end in an orderly way, and those that must do no harm.
//!
//! The signals are blocked before any other thread starts, so that all threads inherit the mask, and one thread waits
//! for them: no code ever runs inside a signal handler.

use std::io;
use std::mem::MaybeUninit;
use std::time::{Duration, Instant};

/// From now on the process ends quietly, as other tools do, when nobody reads what it prints (`eris demo | head`).
/// For commands that write to people only: a pipe to another process would end them as well.
pub fn end_with_the_reader() {
    // SAFETY: the default action is no handler, so no code of this process runs in one.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
}

/// From now on a file that would become larger than the process may make it (`ulimit -f`) is an error of the write, as
/// a full disk is. The default is to end the process.
pub fn bear_limits_on_files() {
    ignore(libc::SIGXFSZ);
}

fn ignore(signal: libc::c_int) {
    // SAFETY: to ignore a signal is no handler, so no code of this process runs in one.
    unsafe { libc::signal(signal, libc::SIG_IGN) };
}

/// What would end a server, or stop it, and says nothing to it.
const MEANINGLESS: [libc::c_int; 10] = [
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGALRM,
    libc::SIGVTALRM,
    libc::SIGPROF,
    libc::SIGIO,
    libc::SIGPWR,
    libc::SIGSTKFLT,
    // Of a terminal that it was started from.
    libc::SIGTTIN,
    libc::SIGTTOU,
];

/// A request to end, to interrupt, or to begin something anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// Ctrl-C.
    Interrupt,
    Terminate,
    /// At once.
    Quit,
    /// Settings and files have changed, or a terminal is gone.
    HangUp,
}

/// The right to wait for signals.
pub struct Signals {
    set: libc::sigset_t,
}

impl Signals {
    /// Blocks SIGINT and SIGTERM in this thread and those it starts. To be called before any thread is started.
    pub fn block() -> io::Result<Signals> {
        Self::block_all(&[libc::SIGINT, libc::SIGTERM])
    }

    /// Blocks the signals that mean something to a server, and ignores the others that would end or stop it.
    pub fn block_for_server() -> io::Result<Signals> {
        MEANINGLESS.into_iter().chain(libc::SIGRTMIN()..=libc::SIGRTMAX()).for_each(ignore);
        Self::block_all(&[libc::SIGINT, libc::SIGTERM, libc::SIGQUIT, libc::SIGHUP])
    }

    fn block_all(signals: &[libc::c_int]) -> io::Result<Signals> {
        let mut set = MaybeUninit::uninit();
        // SAFETY: `sigemptyset` initialises the whole set behind the valid pointer, the others change or read it.
        let (set, result) = unsafe {
            libc::sigemptyset(set.as_mut_ptr());
            for signal in signals {
                libc::sigaddset(set.as_mut_ptr(), *signal);
            }
            let result = libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), std::ptr::null_mut());
            (set.assume_init(), result)
        };
        if result == 0 { Ok(Signals { set }) } else { Err(io::Error::from_raw_os_error(result)) }
    }

    /// Waits for the next signal.
    pub fn wait(&self) -> io::Result<Signal> {
        let mut number = 0;
        // SAFETY: the set was initialised by `block_all`, and `number` is a valid place for the result.
        match unsafe { libc::sigwait(&raw const self.set, &raw mut number) } {
            0 => Ok(signal(number)),
            error => Err(io::Error::from_raw_os_error(error)),
        }
    }

    /// Waits for the next signal until `deadline`; none if none came.
    pub fn wait_until(&self, deadline: Instant) -> Option<Signal> {
        loop {
            let left = deadline.checked_duration_since(Instant::now()).unwrap_or(Duration::ZERO);
            let time = libc::timespec { tv_sec: left.as_secs().cast_signed(), tv_nsec: i64::from(left.subsec_nanos()) };
            // SAFETY: the set was initialised by `block_all`; nothing is told but the number; the time is valid.
            let number = unsafe { libc::sigtimedwait(&raw const self.set, std::ptr::null_mut(), &raw const time) };
            if number > 0 {
                return Some(signal(number));
            }
            // A debugger may have interrupted it.
            if left.is_zero() {
                return None;
            }
        }
    }
}

fn signal(number: libc::c_int) -> Signal {
    match number {
        libc::SIGINT => Signal::Interrupt,
        libc::SIGQUIT => Signal::Quit,
        libc::SIGHUP => Signal::HangUp,
        _ => Signal::Terminate,
    }
}
