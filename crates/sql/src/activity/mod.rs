//! What the sessions of a database are at, and how they are interrupted from outside: by a client's cancel request, by
//! another session ([`Activities::cancel`], [`Activities::terminate`]) or by a timeout.
//!
//! ```text
//!   session task       begins and ends statements ----------.
//!   its watchdog       timeouts -------------------------.  |
//!   other sessions     pg_cancel_backend, .._terminate  .|  |
//!                                                        v  v
//!                     Activity { state, statement, deadlines, why interrupted }  ---> pg_stat_activity
//!                          | cancel handle of the running statement      | listener
//!                          v                                             v
//!                     the engine: scans, waits, joins               the connection: waits for its client
//! ```
//! The state of a session is one value under one lock: whether a deadline has passed is decided under it, so a timeout
//! never hits the statement after the one that it was set for.

mod deadlines;
mod interruption;
mod registry;
mod session_activity;
mod watchdog;

pub use interruption::Interruption;
pub use registry::{Activities, FIRST_OWN_PROCESS};
pub use session_activity::{Activity, ActivityReport, Phase};

pub(crate) use deadlines::Timeouts;
