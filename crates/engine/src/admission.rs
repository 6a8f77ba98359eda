//! Admission control: how many statements of a class run at once, how many wait, and for how long.
//!
//! ```text
//!   admit --> running < running_max ----------------------------> Permit --(dropped)--> the first that waits
//!         \-> waiting < waiting_max --> queue, first in first out --> Permit
//!          \-> refused: too many wait         \-> refused: waited too long
//! ```
//! A point statement does not wait behind scans: each class has a limit of its own. The limit stands in front of the
//! workers; what was admitted is scheduled by class inside every partition.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

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
}

/// The gates of all classes.
pub(crate) struct Admission {
    gates: [Option<Arc<Gate>>; STATEMENT_CLASSES.len()],
}

struct Gate {
    limit: ClassLimit,
    queue: Lock<Queue>,
}

#[derive(Default)]
struct Queue {
    running: usize,
    next_ticket: u64,
    waiting: VecDeque<(u64, Waker)>,
    /// Tickets whose turn has come and who do not know it yet; they count as running.
    called: Vec<u64>,
}

impl Admission {
    pub fn new(options: &AdmissionOptions) -> Self {
        let gate = |class| options.of(class).map(|limit| Arc::new(Gate { limit, queue: Lock::default() }));
        Self { gates: STATEMENT_CLASSES.map(gate) }
    }

    /// Waits for a place among the running statements of the class.
    pub fn admit(&self, runtime: &Arc<Runtime>, class: StatementClass) -> Admit {
        let gate = self.gates[class as usize].clone();
        let deadline = gate.as_ref().map(|gate| runtime.env.now() + gate.limit.wait_max);
        let timeout = deadline.map(|deadline| Sleep::until(runtime, deadline));
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
    /// Gives the place of a statement that ended to the first that waits.
    fn leave(&self) {
        let waker = {
            let mut queue = lock(&self.queue);
            assert!(queue.running > 0, "only a statement that runs ends");
            match queue.waiting.pop_front() {
                None => {
                    queue.running -= 1;
                    None
                }
                Some((ticket, waker)) => {
                    queue.called.push(ticket);
                    Some(waker)
                }
            }
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// See [`crate::Engine::admit`].
pub struct Admit {
    /// Counts its waits; none without a limit.
    runtime: Option<Arc<Runtime>>,
    gate: Option<Arc<Gate>>,
    timeout: Option<Sleep>,
    /// Its place in the queue.
    ticket: Option<u64>,
}

impl Future for Admit {
    type Output = Result<Permit, AdmissionError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let Some(gate) = this.gate.clone() else { return Poll::Ready(Ok(Permit { gate: None })) };
        let limit = gate.limit;
        {
            let mut queue = lock(&gate.queue);
            let Queue { running, next_ticket, waiting, called } = &mut *queue;
            match this.ticket {
                Some(ticket) => {
                    if let Some(place) = called.iter().position(|known| *known == ticket) {
                        called.swap_remove(place);
                        this.ticket = None;
                        drop(queue);
                        return Poll::Ready(Ok(Permit { gate: Some(gate) }));
                    }
                    if let Some((_, waker)) = waiting.iter_mut().find(|(known, _)| *known == ticket) {
                        waker.clone_from(context.waker());
                    }
                }
                None if *running < limit.running_max.max(1) => {
                    *running += 1;
                    drop(queue);
                    return Poll::Ready(Ok(Permit { gate: Some(gate) }));
                }
                None if waiting.len() >= limit.waiting_max => {
                    return Poll::Ready(Err(AdmissionError::QueueFull { running: *running, waiting: waiting.len() }));
                }
                None => {
                    let ticket = *next_ticket;
                    *next_ticket += 1;
                    waiting.push_back((ticket, context.waker().clone()));
                    if let Some(runtime) = &this.runtime {
                        runtime.counters.add(Event::AdmissionWaits, 1);
                    }
                    this.ticket = Some(ticket);
                }
            }
        }
        let timed_out = this.timeout.as_mut().is_some_and(|timeout| Pin::new(timeout).poll(context).is_ready());
        // Its turn may have come between the two looks: leaving the queue then hands it on.
        if timed_out { Poll::Ready(Err(AdmissionError::TimedOut(limit.wait_max))) } else { Poll::Pending }
    }
}

impl Drop for Admit {
    fn drop(&mut self) {
        let (Some(gate), Some(ticket)) = (&self.gate, self.ticket) else { return };
        let called = {
            let mut queue = lock(&gate.queue);
            queue.waiting.retain(|(known, _)| *known != ticket);
            let place = queue.called.iter().position(|known| *known == ticket);
            place.map(|place| queue.called.swap_remove(place))
        };
        if called.is_some() {
            gate.leave();
        }
    }
}

/// A place among the running statements of a class, until it is dropped.
pub struct Permit {
    gate: Option<Arc<Gate>>,
}

impl Drop for Permit {
    fn drop(&mut self) {
        if let Some(gate) = &self.gate {
            gate.leave();
        }
    }
}

impl std::fmt::Debug for Permit {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Permit(limited: {})", self.gate.is_some())
    }
}
