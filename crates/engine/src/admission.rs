//! Admission control: how many statements of a class run at once, how many wait, and for how long.
//!
//! ```text
//!   admit --> running < running_max ----------------------------> Permit --(dropped)--> the first that waits
//!         \-> waiting < waiting_max --> queue, first in first out --> Permit     ^
//!          \-> refused: too many wait         \-> refused: waited too long      |
//!                                                                               |
//!   Permit --(refused memory)--> wait_for_memory: back into the queue, at the place of its first ticket
//! ```
//! A point statement does not wait behind scans: each class has a limit of its own. The limit stands in front of the
//! workers; what was admitted is scheduled by class inside every partition.
//!
//! A long statement that is refused memory while others run gives back what it holds and waits here until there is
//! room, or until none of its class runs any more; while one waits for memory, none that came later is admitted. So
//! statements that do not fit beside each other follow one another in the order in which they came. None waits with
//! memory, so that those that wait do not stop those that run.
//!
//! A statement that has not begun waits for room in the same queue (`wait_for_room`), because statements that run at
//! once spill what they would keep in memory if they ran one after another. After a while it may begin with less, but
//! only one such statement runs at a time.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use eris_platform::Nanos;
use thiserror::Error;

use crate::counters::Event;
use crate::lock::{Lock, lock};
use crate::runtime::Runtime;
use crate::timer::Sleep;

/// What a statement mainly does.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum StatementClass {
    /// Accesses by key.
    Point,
    /// Everything that reads many rows.
    Scan,
    /// Loads and index builds.
    Load,
}

/// All classes.
pub const STATEMENT_CLASSES: [StatementClass; 3] = [StatementClass::Point, StatementClass::Scan, StatementClass::Load];

/// The limits of one class.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClassLimit {
    /// Statements that run at once; at least 1.
    pub running_max: usize,
    /// Statements that wait.
    pub waiting_max: usize,
    /// How long each of them does.
    pub wait_max: Duration,
}

/// Limits by class; a class without one is never refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct AdmissionOptions {
    pub point: Option<ClassLimit>,
    pub scan: Option<ClassLimit>,
    pub load: Option<ClassLimit>,
}

impl AdmissionOptions {
    fn of(&self, class: StatementClass) -> Option<ClassLimit> {
        match class {
            StatementClass::Point => self.point,
            StatementClass::Scan => self.scan,
            StatementClass::Load => self.load,
        }
    }
}

/// A statement that may not run now; it may be tried again.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum AdmissionError {
    #[error("{running} statements of its class run and {waiting} wait: too many")]
    QueueFull { running: usize, waiting: usize },
    #[error("the statement waited {0:?} for others of its class to end")]
    TimedOut(Duration),
    #[error("the statement waited {0:?} for memory that others hold")]
    NoMemory(Duration),
}

/// The gates of all classes.
pub(crate) struct Admission {
    gates: [Option<Arc<Gate>>; STATEMENT_CLASSES.len()],
}

struct Gate {
    limit: Option<ClassLimit>,
    queue: Lock<Queue>,
}

#[derive(Default)]
struct Queue {
    running: usize,
    next_ticket: u64,
    /// By ticket: the first is the next.
    waiting: BTreeMap<u64, Waiting>,
    /// Tickets whose turn has come and whose statements do not know it yet; they count as running.
    called: Vec<u64>,
    /// A statement runs that began without room, after its wait.
    has_one_without_room: bool,
}

struct Waiting {
    waker: Waker,
    /// It ran before and was refused memory. It decides itself when it goes on.
    for_memory: bool,
}

/// How often the first that waits for memory looks whether there is some: not all that frees memory ends a statement.
const LOOK_INTERVAL: Duration = Duration::from_millis(5);

impl Admission {
    pub fn new(options: &AdmissionOptions) -> Self {
        // Point statements never wait for memory: without a limit they need no gate, and share nothing.
        let gate = |class| {
            let limit = options.of(class);
            let needed = limit.is_some() || class != StatementClass::Point;
            needed.then(|| Arc::new(Gate { limit, queue: Lock::default() }))
        };
        Self { gates: STATEMENT_CLASSES.map(gate) }
    }

    /// Waits for a place among the running statements of the class.
    pub fn admit(&self, runtime: &Arc<Runtime>, class: StatementClass) -> Admit {
        let gate = self.gates[class as usize].clone();
        let limit = gate.as_ref().and_then(|gate| gate.limit);
        let timeout = limit.map(|limit| {
            let sleep = Sleep::until(runtime, runtime.env.now() + limit.wait_max);
            (sleep, AdmissionError::TimedOut(limit.wait_max))
        });
        let runtime = gate.as_ref().map(|_| Arc::clone(runtime));
        Admit { runtime, gate, timeout, ticket: None }
    }

    /// Statements that run and that wait.
    pub fn counts(&self, class: StatementClass) -> (usize, usize) {
        self.gates[class as usize].as_ref().map_or((0, 0), |gate| {
            let queue = lock(&gate.queue);
            (queue.running, queue.waiting.len())
        })
    }
}

impl Gate {
    fn running_max(&self) -> usize {
        self.limit.map_or(usize::MAX, |limit| limit.running_max.max(1))
    }

    /// A statement ended, or one that waited left: the next ones may go on.
    fn leave(&self, running: usize, has_no_room: bool) {
        let wakers = {
            let mut queue = lock(&self.queue);
            assert!(queue.running >= running, "only a statement that runs ends");
            queue.running -= running;
            queue.has_one_without_room &= !has_no_room;
            self.call_next(&mut queue)
        };
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Gives free places to those that wait, in their order. One that waits for memory is asked to look.
    fn call_next(&self, queue: &mut Queue) -> Vec<Waker> {
        let mut wakers = Vec::new();
        while queue.running < self.running_max()
            && let Some(first) = queue.waiting.first_entry()
        {
            if first.get().for_memory {
                wakers.push(first.get().waker.clone());
                break;
            }
            let (ticket, waiting) = first.remove_entry();
            queue.running += 1;
            queue.called.push(ticket);
            wakers.push(waiting.waker);
        }
        wakers
    }

    /// One that waited, or was called, goes without a place.
    fn forget(&self, ticket: u64) {
        let called = {
            let mut queue = lock(&self.queue);
            queue.waiting.remove(&ticket);
            let place = queue.called.iter().position(|known| *known == ticket);
            place.map(|place| queue.called.swap_remove(place))
        };
        self.leave(usize::from(called.is_some()), false);
    }
}

/// See [`crate::Engine::admit`].
pub struct Admit {
    /// Counts its waits; none without a gate.
    runtime: Option<Arc<Runtime>>,
    gate: Option<Arc<Gate>>,
    timeout: Option<(Sleep, AdmissionError)>,
    /// Its place in the queue.
    ticket: Option<u64>,
}

impl Admit {
    /// Bounds the wait in the queue for a class without a limit of its own: [`AdmissionError::NoMemory`] after it.
    #[must_use]
    pub fn within(mut self, wait_max: Duration) -> Admit {
        if let (Some(runtime), None) = (&self.runtime, &self.timeout) {
            let sleep = Sleep::until(runtime, runtime.env.now() + wait_max);
            self.timeout = Some((sleep, AdmissionError::NoMemory(wait_max)));
        }
        self
    }
}

impl Future for Admit {
    type Output = Result<Permit, AdmissionError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let (Some(gate), Some(runtime)) = (&this.gate, &this.runtime) else { return Poll::Ready(Ok(Permit(None))) };
        let permit = |ticket| {
            let (runtime, gate) = (Arc::clone(runtime), Arc::clone(gate));
            Poll::Ready(Ok(Permit(Some(Place { runtime, gate, ticket, is_suspended: false, has_no_room: false }))))
        };
        {
            let mut queue = lock(&gate.queue);
            let Queue { running, next_ticket, waiting, called, .. } = &mut *queue;
            if let Some(ticket) = this.ticket {
                if let Some(place) = called.iter().position(|known| *known == ticket) {
                    called.swap_remove(place);
                    this.ticket = None;
                    return permit(ticket);
                }
                if let Some(waiting) = waiting.get_mut(&ticket) {
                    waiting.waker.clone_from(context.waker());
                }
            } else {
                let ticket = *next_ticket;
                *next_ticket += 1;
                if waiting.is_empty() && *running < gate.running_max() {
                    *running += 1;
                    return permit(ticket);
                }
                if gate.limit.is_some_and(|limit| waiting.len() >= limit.waiting_max) {
                    let (running, waiting) = (*running, waiting.len());
                    return Poll::Ready(Err(AdmissionError::QueueFull { running, waiting }));
                }
                waiting.insert(ticket, Waiting { waker: context.waker().clone(), for_memory: false });
                runtime.counters.add(Event::AdmissionWaits, 1);
                this.ticket = Some(ticket);
            }
        }
        // Its turn may have come between the two looks: leaving the queue then hands it on.
        match &mut this.timeout {
            Some((sleep, error)) => Pin::new(sleep).poll(context).map(|()| Err(*error)),
            None => Poll::Pending,
        }
    }
}

impl Drop for Admit {
    fn drop(&mut self) {
        if let (Some(gate), Some(ticket)) = (&self.gate, self.ticket) {
            gate.forget(ticket);
        }
    }
}

/// A place among the running statements of a class, until it is dropped.
pub struct Permit(Option<Place>);

struct Place {
    runtime: Arc<Runtime>,
    gate: Arc<Gate>,
    ticket: u64,
    /// Whether it does not count as running.
    is_suspended: bool,
    /// Whether it is the one that began without room.
    has_no_room: bool,
}

impl Permit {
    /// Whether other statements of the class run. Those that wait hold nothing.
    pub fn has_others(&self) -> bool {
        self.0.as_ref().is_some_and(|place| lock(&place.gate.queue).running > usize::from(!place.is_suspended))
    }

    /// The client took what it asked for, and may never ask for more: no statement waits for the end of this one.
    pub fn suspend(&mut self) {
        if let Some(place) = self.0.as_mut().filter(|place| !place.is_suspended) {
            place.is_suspended = true;
            place.gate.leave(1, std::mem::take(&mut place.has_no_room));
        }
    }

    /// The client asks for more. The statement holds memory already, so it does not wait.
    pub fn resume(&mut self) {
        if let Some(place) = self.0.as_mut().filter(|place| place.is_suspended) {
            place.is_suspended = false;
            lock(&place.gate.queue).running += 1;
        }
    }

    /// The statement was refused memory and has given back what it held. It waits until `bytes` are free, or until no
    /// other of its class runs (`None`: only for that), for `wait_max`; those that came later wait after it.
    pub fn wait_for_memory(self, bytes: Option<u64>, wait_max: Duration) -> WaitForMemory {
        self.wait(bytes, wait_max, None)
    }

    /// For a statement that has not begun: waits until `bytes` are free or no other runs, for `wait_max` at most. From
    /// the time `enough` it also begins with less, unless another statement has done so and still runs.
    pub fn wait_for_room(self, bytes: u64, enough: Nanos, wait_max: Duration) -> WaitForMemory {
        self.wait(Some(bytes), wait_max, Some(enough))
    }

    fn wait(mut self, bytes: Option<u64>, wait_max: Duration, enough: Option<Nanos>) -> WaitForMemory {
        self.resume();
        let place = self.0.take();
        let mut timeout = None;
        if let Some(Place { runtime, gate, ticket, has_no_room, .. }) = &place {
            timeout = Some(Sleep::until(runtime, runtime.env.now() + wait_max));
            lock(&gate.queue).waiting.insert(*ticket, Waiting { waker: Waker::noop().clone(), for_memory: true });
            runtime.counters.add(Event::AdmissionWaits, 1);
            gate.leave(1, *has_no_room);
        }
        let place = place.map(|place| Place { has_no_room: false, ..place });
        WaitForMemory { place, bytes, wait_max, enough, timeout, look: None }
    }
}

/// See [`Permit::wait_for_memory`].
pub struct WaitForMemory {
    /// To be had again; none: it was, or there is no gate.
    place: Option<Place>,
    bytes: Option<u64>,
    wait_max: Duration,
    /// The time from which it may begin with less.
    enough: Option<Nanos>,
    timeout: Option<Sleep>,
    look: Option<Sleep>,
}

impl Future for WaitForMemory {
    type Output = Result<Permit, AdmissionError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let Some(place) = &mut this.place else { return Poll::Ready(Ok(Permit(None))) };
        let (runtime, gate) = (&place.runtime, &place.gate);
        let is_first;
        let wakers = {
            let mut queue = lock(&gate.queue);
            is_first = queue.waiting.first_key_value().is_some_and(|(first, _)| *first == place.ticket);
            let has_room = queue.running == 0 || this.bytes.is_some_and(|bytes| runtime.memory.free() >= bytes);
            let waited = this.enough.is_some_and(|enough| runtime.env.now() >= enough);
            if is_first && queue.running < gate.running_max() && (has_room || waited && !queue.has_one_without_room) {
                queue.waiting.remove(&place.ticket);
                queue.running += 1;
                place.has_no_room = !has_room;
                queue.has_one_without_room |= !has_room;
                Some(gate.call_next(&mut queue))
            } else {
                if let Some(waiting) = queue.waiting.get_mut(&place.ticket) {
                    waiting.waker.clone_from(context.waker());
                }
                None
            }
        };
        if let Some(wakers) = wakers {
            wakers.into_iter().for_each(Waker::wake);
            return Poll::Ready(Ok(Permit(this.place.take())));
        }
        if this.timeout.as_mut().is_some_and(|timeout| Pin::new(timeout).poll(context).is_ready()) {
            return Poll::Ready(Err(AdmissionError::NoMemory(this.wait_max)));
        }
        // The others are woken when they are the first.
        if !is_first {
            this.look = None;
            return Poll::Pending;
        }
        loop {
            let again = || Sleep::until(runtime, runtime.env.now() + LOOK_INTERVAL);
            match Pin::new(this.look.get_or_insert_with(again)).poll(context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(()) => this.look = None,
            }
        }
    }
}

impl Drop for WaitForMemory {
    fn drop(&mut self) {
        if let Some(place) = &self.place {
            place.gate.forget(place.ticket);
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if let Some(place) = self.0.as_ref().filter(|place| !place.is_suspended) {
            place.gate.leave(1, place.has_no_room);
        }
    }
}

impl std::fmt::Debug for Permit {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Permit(limited: {})", self.0.is_some())
    }
}
