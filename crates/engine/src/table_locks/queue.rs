//! Locks that were not noted in a shard, and requests that wait, in the order in which they are to be granted.

use std::collections::BTreeMap;
use std::task::Waker;

use eris_storage::TransactionId;

use super::mode::{TableLockMode, TableLockModes};

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Queue {
    held: BTreeMap<TransactionId, TableLockModes>,
    waiters: Vec<Waiter>,
    last_ticket: u64,
}

#[derive(Debug)]
struct Waiter {
    ticket: u64,
    transaction: TransactionId,
    mode: TableLockMode,
    waker: Option<Waker>,
}

/// Those whose requests were granted, to be woken without any lock.
#[derive(Default)]
#[must_use]
pub(super) struct Wakers(Vec<Waker>);

impl Wakers {
    pub fn add(&mut self, waker: Option<Waker>) {
        self.0.extend(waker);
    }

    pub fn wake(self) {
        self.0.into_iter().for_each(Waker::wake);
    }
}

impl Queue {
    /// Where a new request stands: before the first who waits for what the transaction has, else at the end.
    pub fn place_for(&self, transaction: TransactionId, own: TableLockModes) -> usize {
        let waits_for_own = |waiter: &Waiter| waiter.transaction != transaction && waiter.mode.conflicts().meets(own);
        self.waiters.iter().position(waits_for_own).unwrap_or(self.waiters.len())
    }

    /// Whether nobody else has one of these modes, or wants it before this place.
    pub fn is_free(&self, transaction: TransactionId, conflicts: TableLockModes, place: usize) -> bool {
        self.blocking(transaction, conflicts, place).next().is_none()
    }

    /// Who has one of these modes, and who wants it before this place.
    pub fn blockers(&self, transaction: TransactionId, conflicts: TableLockModes, place: usize) -> Vec<TransactionId> {
        self.blocking(transaction, conflicts, place).collect()
    }

    fn blocking(
        &self,
        transaction: TransactionId,
        conflicts: TableLockModes,
        place: usize,
    ) -> impl Iterator<Item = TransactionId> + '_ {
        let held = self.held.iter().filter(move |(_, modes)| modes.meets(conflicts)).map(|(holder, _)| *holder);
        let before = self.waiters[..place].iter().filter(move |waiter| conflicts.has(waiter.mode));
        held.chain(before.map(|waiter| waiter.transaction)).filter(move |other| *other != transaction)
    }

    pub fn hold(&mut self, transaction: TransactionId, mode: TableLockMode) {
        let modes = self.held.entry(transaction).or_default();
        assert!(!modes.has(mode), "a transaction takes a lock of one mode once");
        *modes = modes.with(mode);
    }

    pub fn let_go(&mut self, transaction: TransactionId, mode: TableLockMode) {
        let Some(modes) = self.held.get_mut(&transaction).filter(|modes| modes.has(mode)) else {
            unreachable!("a lock is given back once")
        };
        *modes = modes.without(mode);
        if *modes == TableLockModes::NONE {
            self.held.remove(&transaction);
        }
    }

    /// Enters a request; its ticket.
    pub fn enter(&mut self, place: usize, transaction: TransactionId, mode: TableLockMode) -> u64 {
        self.last_ticket += 1;
        let ticket = self.last_ticket;
        self.waiters.insert(place, Waiter { ticket, transaction, mode, waker: None });
        ticket
    }

    /// The request at this place.
    pub fn at(&self, place: usize) -> Option<(TransactionId, TableLockMode)> {
        self.waiters.get(place).map(|waiter| (waiter.transaction, waiter.mode))
    }

    /// Grants the request at this place.
    pub fn grant(&mut self, place: usize) -> Option<Waker> {
        let waiter = self.waiters.remove(place);
        self.hold(waiter.transaction, waiter.mode);
        waiter.waker
    }

    /// The place of a request that waits.
    pub fn find(&self, ticket: u64) -> Option<(usize, TransactionId, TableLockMode)> {
        let place = self.waiters.iter().position(|waiter| waiter.ticket == ticket)?;
        let waiter = &self.waiters[place];
        Some((place, waiter.transaction, waiter.mode))
    }

    /// Whether the request waits still: then `waker` is woken when it is granted.
    pub fn await_grant(&mut self, ticket: u64, waker: &Waker) -> bool {
        let waiter = self.waiters.iter_mut().find(|waiter| waiter.ticket == ticket);
        waiter.map(|waiter| waiter.waker = Some(waker.clone())).is_some()
    }

    /// Takes a request out; false if it was granted before.
    pub fn leave(&mut self, ticket: u64) -> bool {
        self.find(ticket).map(|(place, ..)| self.waiters.remove(place)).is_some()
    }

    pub fn held(&self) -> impl Iterator<Item = (TransactionId, TableLockMode)> + '_ {
        self.held.iter().flat_map(|(transaction, modes)| modes.iter().map(move |mode| (*transaction, mode)))
    }

    pub fn waiting(&self) -> impl Iterator<Item = (TransactionId, TableLockMode)> + '_ {
        self.waiters.iter().map(|waiter| (waiter.transaction, waiter.mode))
    }
}
