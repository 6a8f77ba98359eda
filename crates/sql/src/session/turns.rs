//! Whether a statement runs now or after others, and what becomes of one that is refused memory.
//!
//! ```text
//!   long statement --> admitted in order of arrival, with what it needs to go on in files --> runs --> done
//!                             ^                           | refused memory, no row sent yet
//!                             |                           v
//!            room again, or   |      rolled back; what ended statements left is vacated first
//!            alone at last    +---- waits in its old place ----> memory_wait_timeout: 53200
//! ```
//! A statement is tried again only if others ran beside it, or if more is free than when it began: one that is too
//! large by itself is refused at once. No statement waits with memory or locks, as its transaction was rolled back: so
//! only a statement outside of a transaction block waits. Accesses by key are tried again when memory came back, but do
//! not wait. If a statement that writes is refused what is kept for the oldest snapshot, that one is revoked.

use std::sync::Arc;
use std::time::Duration;

use eris_engine::{AdmissionError, MemoryUse, Permit, StatementClass};
use eris_platform::{MemoryPool, Nanos, Reservation};

use super::cancel::unless_cancelled;
use super::plans::{QueryBody, QueryPlan};
use super::session::Session;
use super::statement::{Body, Planned};
use super::states::Block;
use crate::errors::{SqlError, SqlState};
use crate::native::{ChangePlan, InsertRows};

/// What the pool calls that which statements start with.
const STATEMENTS: &str = "statements";
/// How long a refused statement waits at most until what ended statements held is given back: half of the time that it
/// may wait at all, within these bounds.
const RECLAIM_MAX: Duration = Duration::from_secs(5);
const RECLAIM_MIN: Duration = Duration::from_millis(20);
/// A statement begins beside others when this share of the limit is free. With less, statements that run at once spill
/// what they would keep in memory if they ran one after another.
const ROOM_SHARE: u64 = 3;
/// A statement that has waited this long for room may begin with less.
const ROOM_WAIT: Duration = Duration::from_millis(500);
/// A statement is tried again if this share of the limit came free since it began.
const WORTH_SHARE: u64 = 64;
/// It is tried beside others so often; then alone.
const TRIES_BESIDE_OTHERS: u32 = 2;
const TRIES_MAX: u32 = 4;
/// Pause before an access by key is retried, times the number of tries so far.
const ALLOCATOR_PAUSE: Duration = Duration::from_millis(50);
/// A failed statement that took less than this part of the limit leaves as much room as there was.
const TAKEN_SHARE: u64 = 32;

/// The place of a statement among those that run.
pub(super) struct Turn {
    /// Of a long one.
    permit: Option<Permit>,
    /// What it reserved before it started; given back while it waits.
    floor: Option<Reservation>,
    may_try_again: bool,
    writes: bool,
    tries: u32,
    /// Of `memory_wait_timeout`: waiting before it began and after each refusal takes from it.
    wait_left: Duration,
    /// What was free when it began.
    free_before: u64,
    used_before: u64,
}

impl Turn {
    /// Whether an error in front of its first row may be mended by trying again.
    pub fn looks_ahead(&self) -> bool {
        self.permit.is_some()
    }

    /// The client has what it asked for: others do not wait until it asks for more.
    pub fn suspend(&mut self) {
        if let Some(permit) = &mut self.permit {
            permit.suspend();
        }
    }

    pub fn resume(&mut self) {
        if let Some(permit) = &mut self.permit {
            permit.resume();
        }
    }

    /// The statement holds no memory any more: its place is free.
    pub fn end(&mut self) {
        (self.permit, self.floor) = (None, None);
    }
}

/// Whether so little is free that a statement would wait for others.
pub(super) fn is_short(memory: &MemoryPool) -> bool {
    memory.free() < memory.limit() / ROOM_SHARE
}

impl Planned {
    /// Whether it may need more memory than a few rows do.
    fn is_long(&self) -> bool {
        // Queries of views alone skip admission, so that an operator can look at an overloaded server.
        let query = |plan: &QueryPlan| !matches!(plan.body, QueryBody::Native(_)) && plan.reads_tables;
        match &self.body {
            Body::Query(plan) => query(plan),
            Body::Insert(plan) => matches!(&plan.rows, InsertRows::Query(_)),
            Body::Change(ChangePlan::Keyed(_)) => true,
            Body::Change(ChangePlan::Update(plan)) => {
                plan.access.as_ref().is_some_and(|access| access.conditions.is_empty())
            }
            Body::Change(ChangePlan::Delete(plan)) => {
                plan.access.as_ref().is_some_and(|access| access.conditions.is_empty())
            }
            Body::Sleep(_) | Body::Utility => false,
        }
    }

    /// Whether a long one has operators that hold rows, and not only a place in partitions.
    fn may_spill(&self) -> bool {
        !matches!(self.body, Body::Change(ChangePlan::Update(_) | ChangePlan::Delete(_)))
    }
}

impl Session {
    /// What the statement works with comes from here on from what is for statements of its kind.
    pub(super) fn use_memory_for(&mut self, planned: &Planned) {
        self.memory_use = match &planned.body {
            Body::Utility => MemoryUse::Any,
            _ if planned.is_long() => MemoryUse::Long,
            _ => MemoryUse::Short,
        };
    }

    /// Waits for the statement's turn. A transaction that holds something does not wait here.
    pub(super) async fn take_turn(&mut self, planned: &Planned) -> Result<Turn, SqlError> {
        let engine = self.database.engine().clone();
        let may_try_again = self.block == Block::Idle && !matches!(planned.body, Body::Utility);
        let is_long = planned.is_long();
        let deadline = engine.env().now() + self.settings.memory_wait_timeout();
        let (permit, floor) = if is_long && may_try_again {
            let permit = self.admit(planned.may_spill()).await?;
            if planned.may_spill() {
                let (permit, floor) = self.start(permit, deadline).await?;
                (Some(permit), floor)
            } else {
                (Some(permit), None)
            }
        } else if is_long && planned.may_spill() {
            (None, Some(floor_of(engine.memory())?))
        } else {
            (None, None)
        };
        let memory = engine.memory();
        let (free_before, used_before) = (memory.free(), memory.used());
        let writes = matches!(planned.body, Body::Insert(_) | Body::Change(_));
        let wait_left = deadline.since(engine.env().now());
        Ok(Turn { permit, floor, may_try_again, writes, tries: 0, wait_left, free_before, used_before })
    }

    /// Admits a long statement: beside others once there is room for it, or after [`ROOM_WAIT`] with less.
    async fn admit(&self, may_spill: bool) -> Result<Permit, SqlError> {
        let (engine, cancel) = (self.database.engine(), self.activity.handle());
        let (came, wait_max) = (engine.env().now(), self.settings.memory_wait_timeout());
        let admitted = unless_cancelled(&cancel, engine.admit(StatementClass::Scan).within(wait_max)).await?;
        let permit = admitted.map_err(|error| refused(&error))?;
        let room = engine.memory().limit() / ROOM_SHARE;
        if !may_spill || wait_max.is_zero() || !permit.has_others() || engine.memory().free() >= room {
            return Ok(permit);
        }
        let left = wait_max.saturating_sub(engine.env().now().since(came));
        let waits = permit.wait_for_room(room, came + ROOM_WAIT, left);
        unless_cancelled(&cancel, waits).await?.map_err(|error| refused(&error))
    }

    /// Reserves what a statement starts with, if need be when others have ended. One that is alone starts without it.
    async fn start(&self, mut permit: Permit, deadline: Nanos) -> Result<(Permit, Option<Reservation>), SqlError> {
        let (engine, cancel) = (self.database.engine(), self.activity.handle());
        loop {
            if let Ok(floor) = floor_of(engine.memory()) {
                return Ok((permit, Some(floor)));
            }
            // Those that wait hold nothing that would be given back.
            if !permit.has_others() {
                return Ok((permit, None));
            }
            let left = deadline.since(engine.env().now());
            let waits = permit.wait_for_memory(Some(engine.memory().floor_of_statement()), left);
            permit = unless_cancelled(&cancel, waits).await?.map_err(|error| self.waited_in_vain(error))?;
        }
    }

    /// The last of several waits ended with its time, which was that of all.
    fn waited_in_vain(&self, error: AdmissionError) -> SqlError {
        refused(&match error {
            AdmissionError::NoMemory(_) => AdmissionError::NoMemory(self.settings.memory_wait_timeout()),
            other => other,
        })
    }

    /// Waits until what ended statements held is given back. A long statement takes the time from its wait.
    async fn reclaim(&self, turn: &Turn, deadline: Nanos) -> Result<(), SqlError> {
        let (engine, cancel) = (self.database.engine(), self.activity.handle());
        let left = deadline.since(engine.env().now());
        let wait_max = if turn.permit.is_some() { (left / 2).clamp(RECLAIM_MIN, RECLAIM_MAX) } else { RECLAIM_MAX };
        unless_cancelled(&cancel, engine.reclaim_memory(wait_max)).await
    }

    /// A statement failed before it gave any row. `Ok`: what it did was taken back, and it is to be tried again.
    pub(super) async fn await_turn_again(&mut self, turn: &mut Turn, error: SqlError) -> Result<(), SqlError> {
        turn.tries += 1;
        if error.sqlstate != SqlState::OUT_OF_MEMORY || !turn.may_try_again || turn.tries >= TRIES_MAX {
            return Err(error);
        }
        let engine = self.database.engine().clone();
        let memory = engine.memory();
        let beside_others = turn.permit.as_ref().is_some_and(Permit::has_others);
        let taken = memory.used().saturating_sub(turn.used_before).max(memory.limit() / WORTH_SHARE);
        let cancel = self.activity.handle();
        let deadline = engine.env().now() + turn.wait_left;
        self.take_back().await;
        self.reclaim(turn, deadline).await?;
        let worth = memory.limit() / WORTH_SHARE;
        let has_more = memory.free() >= turn.free_before.saturating_add(worth);
        if !has_more && turn.writes && engine.revoke_oldest_snapshot() {
            // A writer is not refused what an old snapshot keeps.
            self.reclaim(turn, deadline).await?;
            turn.wait_left = deadline.since(engine.env().now());
            (turn.free_before, turn.used_before) = (memory.free(), memory.used());
            return Ok(());
        }
        if !has_more && turn.permit.is_none() && memory.limit() < memory.configured_limit() {
            // Cached memory, which the allocator is about to release, has tightened the limit: retry after a pause.
            let until = engine.env().now() + ALLOCATOR_PAUSE * turn.tries;
            unless_cancelled(&cancel, engine.sleep_until(until)).await?;
            return Ok(());
        }
        if !has_more && !beside_others {
            return Err(error);
        }
        if !has_more && let Some(permit) = turn.permit.take() {
            let left = deadline.since(engine.env().now());
            let bytes = (turn.tries < TRIES_BESIDE_OTHERS).then(|| turn.free_before + taken / 2);
            let starts_with_floor = turn.floor.take().is_some();
            let waited = unless_cancelled(&cancel, permit.wait_for_memory(bytes, left)).await?;
            let mut permit = waited.map_err(|error| self.waited_in_vain(error))?;
            if starts_with_floor {
                (permit, turn.floor) = self.start(permit, deadline).await?;
            }
            turn.permit = Some(permit);
        }
        turn.wait_left = deadline.since(engine.env().now());
        (turn.free_before, turn.used_before) = (memory.free(), memory.used());
        Ok(())
    }

    /// What a refused statement held is given back in front of other work, while its client goes on.
    pub(super) fn free_what_failed(&self) {
        let engine = self.database.engine();
        let taken = engine.memory().used().saturating_sub(self.memory_before);
        if taken >= engine.memory().limit() / TAKEN_SHARE {
            engine.reclaim_memory_soon(RECLAIM_MAX);
        }
    }
}

/// What a long statement starts with.
fn floor_of(memory: &Arc<MemoryPool>) -> Result<Reservation, SqlError> {
    let floor = memory.working().reserve(STATEMENTS);
    floor.grow(memory.floor_of_statement()).map_err(SqlError::out_of_memory)?;
    Ok(floor)
}

fn refused(error: &AdmissionError) -> SqlError {
    let refused = SqlError::out_of_memory(error);
    match error {
        AdmissionError::NoMemory(_) => {
            refused.hint("Raise --memory-limit or memory_wait_timeout, or run less at the same time.")
        }
        AdmissionError::QueueFull { .. } | AdmissionError::TimedOut(_) => refused.hint("Run less at the same time."),
    }
}
