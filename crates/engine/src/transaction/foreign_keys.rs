//! Foreign keys, checked: what a statement has to look up, when, and in which state of the database.
//!
//! ```text
//!   writes a child                                   takes a parent's key away
//!   1. writes the row                                1. ends the row: waits for key-share locks of others
//!   2. looks its key up in the parent,               2. looks for children with the key,
//!      locks the row: waits for whoever ended it        waits for whoever is about to delete one
//!   3. not found: 23503                              3. found: 23503, unless another row has the key (NO ACTION)
//! ```
//! Both look at a state that is newer than the snapshot: everything that is committed by then, and what the transaction
//! itself has written, the statement under way included ([`NO_STATEMENT`]). The two meet in the parent's row:
//!
//! - *The child's lock comes first.* The parent's end waits for it. Once the child's transaction is decided, so are its
//!   rows: if it committed, step 2 sees them, because its timestamp was taken before the wait was over and the state is
//!   taken after all timestamps so far are visible.
//! - *The parent's end comes first.* The child's step 2 finds the row (its end is undecided) and waits for the lock. If
//!   the end commits, it looks again in a newer state and does not find the row.
//!
//! One state for all of a step, not "the newest of each row": a row that is updated while a scan passes would be missed
//! at its old place (already ended) and at its new one (not yet begun). A row of the state that has ended since cannot
//! be locked; then the step is repeated in a newer state.
//!
//! Keys are gathered while an operation writes and looked up at its end, all at once. A check that did not pass stays
//! with the transaction, which cannot commit before its statement is rolled back.

use std::collections::BTreeSet;
use std::future::poll_fn;
use std::sync::Arc;

use eris_platform::Reservation;
use eris_storage::{AttributeId, Batch, Column, Key, Outcome, RowLock, StatementNumber, Value, key_of_row};

use super::Transaction;
use super::wait::until_visible;
use crate::container::Container;
use crate::dataflow::Work;
use crate::error::EngineError;
use crate::foreign_key::{ForeignKey, ReferentialAction, Side};
use crate::lookup::Lookup;
use crate::transactions::{SnapshotHandle, TransactionHold, TransactionObject, Wait};

/// Above all statements: its snapshot sees whatever the own transaction wrote, and none with it is rolled back before
/// the transaction ends. Only for reading: no word has this number.
const NO_STATEMENT: StatementNumber = StatementNumber(StatementNumber::MAX + 1);

/// Keys that have to be looked up.
pub(super) struct Check {
    key: Arc<ForeignKey>,
    side: Side,
    /// What the keys being gone means.
    action: ReferentialAction,
    /// Whose check it is: void with it; the parents' locks are this statement's, too.
    statement: StatementNumber,
    /// Distinct, without NULLs.
    keys: Batch,
    _memory: Reservation,
}

/// The checks of a transaction.
#[derive(Default)]
pub(super) struct Checks {
    open: Vec<Check>,
    held: bool,
}

impl Transaction {
    /// With `true`, foreign keys that allow it are not checked at the end of each operation but by
    /// [`Self::check_now`], at the latest by the commit: for statements of several operations, and for deferred
    /// constraints. `RESTRICT` is not put off.
    pub fn hold_checks(&mut self, held: bool) {
        self.checks.held = held;
    }

    /// Runs the checks that were put off. Those of earlier statements run again at the commit: what they found may be
    /// rolled back to a savepoint until then.
    pub async fn check_now(&mut self) -> Result<(), EngineError> {
        self.run_checks(|_| true).await?;
        let statement = self.statement;
        // Whatever takes back what a check of this statement relies on takes the statement back.
        self.checks.open.retain(|check| check.statement != statement);
        Ok(())
    }

    /// Before the commit.
    pub(super) async fn check_all(&mut self) -> Result<(), EngineError> {
        if self.checks.open.is_empty() {
            return Ok(());
        }
        Box::pin(self.run_checks(|_| true)).await?;
        self.checks.open.clear();
        Ok(())
    }

    /// At the end of an operation.
    pub(super) async fn check_operation(&mut self) -> Result<(), EngineError> {
        let held = self.checks.held;
        self.check_those(|check| !held || check.is_immediate()).await
    }

    /// Between the parts of a load: not those whose parents are loaded with them.
    pub(super) async fn check_part(&mut self) -> Result<(), EngineError> {
        let held = self.checks.held;
        self.check_those(|check| !check.key.is_own() && (!held || check.is_immediate())).await
    }

    async fn check_those(&mut self, which: impl Fn(&Check) -> bool) -> Result<(), EngineError> {
        if self.checks.open.is_empty() {
            return Ok(());
        }
        self.run_checks(&which).await?;
        self.checks.open.retain(|check| !which(check));
        Ok(())
    }

    /// Runs open checks and leaves them open; forgets those of statements that were rolled back.
    async fn run_checks(&mut self, which: impl Fn(&Check) -> bool) -> Result<(), EngineError> {
        let object = Arc::clone(self.hold.object());
        let counts = |check: &Check| object.outcome(check.statement) != Outcome::Aborted && !check.key.is_dropped();
        self.checks.open.retain(counts);
        for at in 0..self.checks.open.len() {
            let check = &self.checks.open[at];
            if !which(check) {
                continue;
            }
            let Check { key, side, action, statement, keys, .. } = check;
            let (key, side, action, statement, keys) = (Arc::clone(key), *side, *action, *statement, keys.clone());
            match self.check(&key, side, action, statement, &keys).await {
                // A table was dropped, and the constraint with it.
                Err(EngineError::NoSuchContainer(_)) if key.is_dropped() => {}
                result => result?,
            }
        }
        Ok(())
    }

    async fn check(
        &mut self,
        key: &ForeignKey,
        side: Side,
        action: ReferentialAction,
        statement: StatementNumber,
        keys: &Batch,
    ) -> Result<(), EngineError> {
        let all = 0..keys.rows as u32;
        let broken = match side {
            Side::Child => {
                let present = self.lock_keys(&key.parent_lookup(), statement, keys).await?;
                self.check_keys_are_old(&key.spec().parent, keys, false)?;
                all.into_iter().find(|row| !present.contains(row))
            }
            Side::Parent => {
                let referenced = self.lock_keys(&key.child_lookup(), statement, keys).await?;
                self.check_keys_are_old(&key.spec().child, keys, false)?;
                let rows: Vec<u32> = referenced.into_iter().collect();
                match action {
                    _ if rows.is_empty() => None,
                    ReferentialAction::Restrict => rows.first().copied(),
                    ReferentialAction::NoAction => {
                        let present = self.lock_keys(&key.parent_lookup(), statement, &keys.take(&rows)).await?;
                        self.check_keys_are_old(&key.spec().parent, &keys.take(&rows), false)?;
                        (0..).zip(&rows).find(|(place, _)| !present.contains(place)).map(|(_, row)| *row)
                    }
                }
            }
        };
        let Some(row) = broken else { return Ok(()) };
        // Who goes on all the same knows of both sides.
        let refused = keys.take(&[row]);
        for side in [&key.spec().parent, &key.spec().child] {
            self.check_keys_are_old(side, &refused, true)?;
        }
        Err(key.violation(&self.runtime, side, keys, row))
    }

    /// Finds which keys have a row by now, and locks one row of each against losing the key.
    async fn lock_keys(
        &mut self,
        lookup: &Lookup,
        statement: StatementNumber,
        keys: &Batch,
    ) -> Result<BTreeSet<u32>, EngineError> {
        let manager = self.hold.manager().clone();
        loop {
            until_visible(&manager, manager.last_taken()).await;
            let hold = TransactionHold::new(&manager, self.hold.object());
            let snapshot = Arc::new(SnapshotHandle::publish(hold, NO_STATEMENT));
            let results = self.send_lookup(lookup.clone(), keys, snapshot, |lookup, codec| Work::LockKeys {
                lookup,
                codec,
                lock: RowLock::KeyShare,
                statement,
            })?;
            match self.finish_change(results).await {
                Ok((batches, summary)) => match summary.blocked.holder {
                    None => return Ok(found_positions(&batches)),
                    Some(holder) => self.wait_for(holder).await?,
                },
                // A row was ended between two steps: a newer state says by what it was replaced, if it was.
                Err(error) if error.is_lost() => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Notes the keys of rows that were inserted, columns in schema order.
    pub(super) fn note_inserted(&mut self, container: &Container, rows: &Batch) -> Result<(), EngineError> {
        for key in container.foreign_keys(Side::Child) {
            let columns: Vec<Column> =
                key.attributes(Side::Child).iter().map(|id| rows.columns[id.index()].clone()).collect();
            let keys = Batch { columns: columns.into(), rows: rows.rows };
            self.note(&key, Side::Child, ReferentialAction::NoAction, keys)?;
        }
        Ok(())
    }

    /// Notes the keys of rows that were updated or deleted. `told` has their old values, and behind them as many new
    /// ones of an update; those of `sides` begin at column `first`.
    pub(super) fn note_changed(
        &mut self,
        sides: &[(Arc<ForeignKey>, Side)],
        told: &[Batch],
        first: usize,
        deleted: bool,
    ) -> Result<(), EngineError> {
        let mut first = first;
        for (key, side) in sides {
            let places: Vec<usize> = (first..first + key.attributes(*side).len()).collect();
            first += places.len();
            for batch in told {
                let old = batch.project(&places);
                let keys = if deleted {
                    old
                } else {
                    let half = batch.columns.len() / 2;
                    let new = batch.project(&places.iter().map(|place| half + place).collect::<Vec<_>>());
                    let all: Vec<usize> = (0..places.len()).collect();
                    let differs =
                        |row: &u32| key_of_row(&old, *row as usize, &all) != key_of_row(&new, *row as usize, &all);
                    let rows: Vec<u32> = (0..batch.rows as u32).filter(differs).collect();
                    match side {
                        Side::Child => new.take(&rows),
                        Side::Parent => old.take(&rows),
                    }
                };
                self.note(key, *side, key.action(deleted), keys)?;
            }
        }
        Ok(())
    }

    fn note(
        &mut self,
        key: &Arc<ForeignKey>,
        side: Side,
        action: ReferentialAction,
        keys: Batch,
    ) -> Result<(), EngineError> {
        let Some(keys) = distinct_keys(keys) else { return Ok(()) };
        let memory = self.memory().reserve("foreign keys");
        memory.grow(keys.bytes() as u64)?;
        let (key, statement) = (Arc::clone(key), self.statement);
        self.checks.open.push(Check { key, side, action, statement, keys, _memory: memory });
        Ok(())
    }

    /// Waits until somebody else's transaction has ended.
    pub(crate) async fn wait_until_decided(&mut self, object: Arc<TransactionObject>) -> Result<(), EngineError> {
        let wait = Wait::begin(self.hold.manager(), self.id(), object, NO_STATEMENT);
        let mut wait = wait.ok_or(EngineError::Deadlock)?;
        poll_fn(|context| wait.poll(context)).await;
        Ok(())
    }
}

impl Check {
    /// Whether it cannot be put off.
    fn is_immediate(&self) -> bool {
        self.side == Side::Parent && self.action == ReferentialAction::Restrict
    }
}

/// The sides of foreign keys that a change of `changed` (none: a deletion) concerns.
pub(super) fn concerned_sides(container: &Container, changed: Option<&[AttributeId]>) -> Vec<(Arc<ForeignKey>, Side)> {
    let mut sides = Vec::new();
    for side in [Side::Child, Side::Parent] {
        for key in container.foreign_keys(side) {
            let concerned = match changed {
                None => side == Side::Parent,
                Some(changed) => key.attributes(side).iter().any(|id| changed.contains(id)),
            };
            if concerned {
                sides.push((key, side));
            }
        }
    }
    sides
}

/// Each key once, without those that have a NULL in them; none if none is left.
pub(crate) fn distinct_keys(keys: Batch) -> Option<Batch> {
    let columns: Vec<usize> = (0..keys.columns.len()).collect();
    let mut seen: BTreeSet<Key> = BTreeSet::new();
    let full = |row: u32| !keys.columns.iter().any(|column| column.is_null(row as usize));
    let rows: Vec<u32> = (0..keys.rows as u32)
        .filter(|row| full(*row) && (keys.rows == 1 || seen.insert(key_of_row(&keys, *row as usize, &columns))))
        .collect();
    match rows.len() {
        0 => None,
        length if length == keys.rows => Some(keys),
        _ => Some(keys.take(&rows)),
    }
}

/// The first column of a lookup's answer.
pub(crate) fn found_positions(batches: &[Batch]) -> BTreeSet<u32> {
    let position = |batch: &Batch, row| match batch.value(row, 0) {
        Value::Int32(position) => position as u32,
        other => unreachable!("positions are integers, {other} is not"),
    };
    batches.iter().flat_map(|batch| (0..batch.rows).map(move |row| position(batch, row))).collect()
}
