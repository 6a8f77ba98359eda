//! Threads of the operating system.

use std::cell::Cell;
use std::io;
use std::mem;
use std::sync::mpsc;
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use crate::ids::CpuId;
use crate::limits;
use crate::threads::{ThreadHandle, ThreadPanicked, message_of};

/// Planning recurses deeper than the 2 MiB that Rust gives by default; pages never touched cost nothing.
const STACK_BYTES: usize = 16 << 20;

pub(super) fn spawn(
    name: &str,
    pin: Option<CpuId>,
    body: Box<dyn FnOnce() + Send>,
) -> io::Result<Box<dyn ThreadHandle>> {
    let (report_pinned, pinned) = mpsc::sync_channel(1);
    let thread = Builder::new().name(name.to_owned()).stack_size(STACK_BYTES).spawn(move || {
        let result = pin.map_or(Ok(()), |cpu| limits::set_affinity(&[cpu]));
        let failed = result.is_err();
        // The receiver waits below until this arrives.
        let _ = report_pinned.send(result);
        if !failed {
            body();
        }
    })?;
    match pinned.recv() {
        Ok(Ok(())) => Ok(Box::new(RealThread { name: name.to_owned(), thread })),
        Ok(Err(error)) => Err(error),
        Err(_) => Err(io::Error::other(format!("thread \"{name}\" ended before it started its work"))),
    }
}

/// How long a thread that works in bursts keeps the processor, and leaves it to others then.
const BURST: Duration = Duration::from_micros(25);
const REST: Duration = Duration::from_micros(50);

thread_local! {
    /// When the burst began, of a thread that works in bursts.
    static BURST_BEGAN: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// From now on the calling thread works in bursts: whoever it takes the processor from waits for one burst.
///
/// To give way instead (a low priority) does not help them: where they are busy all the time it gets the processor when
/// the scheduler ticks and keeps it until the next tick, for milliseconds.
pub(super) fn work_in_bursts() {
    take_short_turns();
    BURST_BEGAN.set(Some(Instant::now()));
}

/// The calling thread had nothing to do, or had to wait: a burst begins.
pub(super) fn rested() {
    if BURST_BEGAN.get().is_some() {
        BURST_BEGAN.set(Some(Instant::now()));
    }
}

/// Does something for which the calling thread may have to wait; if it had to, it has rested.
pub(super) fn resting_if_it_waits<T>(work: impl FnOnce() -> T) -> T {
    if BURST_BEGAN.get().is_none() {
        return work();
    }
    let before = waits();
    let done = work();
    if waits() != before {
        rested();
    }
    done
}

/// How often the calling thread had to wait so far.
fn waits() -> libc::c_long {
    // SAFETY: all fields are numbers.
    let mut usage: libc::rusage = unsafe { mem::zeroed() };
    // SAFETY: the call writes one structure.
    unsafe { libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage) };
    usage.ru_nvcsw
}

/// Rests if the calling thread works in bursts and this one was long enough.
pub(super) fn breathe() {
    if BURST_BEGAN.get().is_some_and(|began| began.elapsed() >= BURST) {
        std::thread::sleep(REST);
        rested();
    }
}

/// The shortest slice of processor time that Linux lets a thread ask for (6.12 and later).
const SHORT_SLICE: Duration = Duration::from_micros(100);

/// Asks for short turns on the processor, and so for early ones: of the threads that wait, Linux runs the one whose
/// turn would end first. It takes no privilege, and the share of the processor stays the same. An older system, or one
/// that refuses, leaves it as before.
pub(super) fn take_short_turns() {
    if let Some(attributes) = scheduling()
        && [libc::SCHED_OTHER, libc::SCHED_BATCH].contains(&(attributes.sched_policy as libc::c_int))
    {
        let attributes = libc::sched_attr { sched_runtime: SHORT_SLICE.as_nanos() as u64, ..attributes };
        // SAFETY: the call reads the attributes, which say how long they are; 0 is the calling thread.
        unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
    }
}

/// How the calling thread is scheduled.
fn scheduling() -> Option<libc::sched_attr> {
    // SAFETY: all fields are numbers.
    let mut attributes: libc::sched_attr = unsafe { mem::zeroed() };
    let bytes = size_of_val(&attributes);
    // SAFETY: the call writes no more than the bytes it is told of; 0 is the calling thread.
    let result = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attributes, bytes, 0) };
    (result == 0).then_some(attributes)
}

struct RealThread {
    name: String,
    thread: JoinHandle<()>,
}

impl ThreadHandle for RealThread {
    fn join(self: Box<Self>) -> Result<(), ThreadPanicked> {
        let RealThread { name, thread } = *self;
        thread.join().map_err(|payload| ThreadPanicked { thread: name, message: message_of(payload.as_ref()) })
    }

    fn is_finished(&self) -> bool {
        self.thread.is_finished()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_works_in_bursts_rests_behind_each_and_no_other_thread_does() {
        // Rests of so many calls, each behind a burst; every rest begins a new burst.
        let rests = |calls: u32| {
            let mut rests = 0;
            for _ in 0..calls {
                let began = BURST_BEGAN.get();
                while began.is_some_and(|began| began.elapsed() < BURST) {}
                breathe();
                rests += u32::from(BURST_BEGAN.get() != began);
            }
            rests
        };
        let in_bursts = std::thread::spawn(move || {
            work_in_bursts();
            let all = rests(3);
            // Who waited has rested; whoever takes the processor away between two lines only makes it try again.
            let went_on = |work: fn()| {
                (0..1_000).any(|_| {
                    let before = BURST_BEGAN.get();
                    resting_if_it_waits(work);
                    let began = BURST_BEGAN.get();
                    breathe();
                    BURST_BEGAN.get() == began && before != began
                })
            };
            (all, went_on(|| std::thread::sleep(BURST)), went_on(|| ()))
        });
        assert_eq!(in_bursts.join().unwrap(), (3, true, false));
        assert_eq!(rests(3), 0);
    }

    #[test]
    fn short_turns_change_the_slice_of_one_thread_and_nothing_else() {
        let of = |attributes: libc::sched_attr| {
            (attributes.sched_runtime, (attributes.sched_policy, attributes.sched_nice, attributes.sched_flags))
        };
        // Who may not look may not ask either.
        let Some(own) = scheduling() else { return };
        let (slice, kept) = of(own);
        let asked = std::thread::spawn(|| {
            // SAFETY: the call takes numbers only; 0 is the calling thread.
            unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, 10) };
            let before = scheduling().unwrap();
            take_short_turns();
            (before, scheduling().unwrap())
        });
        let (before, after) = asked.join().unwrap();
        assert_eq!(of(before).1, of(after).1);
        // Systems before 6.12 have no slices to ask for, and say 0.
        assert_eq!(of(after).0, if slice == 0 { 0 } else { SHORT_SLICE.as_nanos() as u64 });
        assert_eq!(of(scheduling().unwrap()), (slice, kept));
    }

    #[test]
    fn runs_pinned_and_reports_panics() {
        let allowed = limits::affinity().unwrap();
        let cpu = *allowed.last().unwrap();
        let (sender, receiver) = mpsc::channel();
        let thread = spawn("pinned", Some(cpu), Box::new(move || sender.send(limits::affinity()).unwrap())).unwrap();
        assert_eq!(receiver.recv().unwrap(), Some(vec![cpu]));
        thread.join().unwrap();

        let thread = spawn("broken", None, Box::new(|| panic!("on purpose {}", 7))).unwrap();
        let panicked = thread.join().unwrap_err();
        assert_eq!(panicked.to_string(), "thread \"broken\" panicked: on purpose 7");
    }

    #[test]
    fn a_cpu_that_does_not_exist_is_an_error() {
        for cpu in [1_000, 1_000_000] {
            let error = spawn("nowhere", Some(CpuId(cpu)), Box::new(|| unreachable!("never started"))).err().unwrap();
            assert!(error.to_string().contains(&format!("cpu {cpu}")), "{error}");
        }
    }
}
