//! What is reserved for constant texts while an expression is evaluated.

use std::cell::RefCell;
use std::marker::PhantomData;

use datafusion::execution::memory_pool::MemoryReservation;

/// What a thread holds for the expressions that it evaluates: one inside another, seldom.
struct Held {
    expressions: usize,
    constants: Vec<MemoryReservation>,
}

thread_local! {
    static HELD: RefCell<Held> = const { RefCell::new(Held { expressions: 0, constants: Vec::new() }) };
}

/// While this is there, what is reserved for the constants that this thread computes stays reserved.
pub(crate) struct HeldConstants {
    /// Those before are of an expression around this one.
    from: usize,
    /// It stays on its thread.
    _thread: PhantomData<*const ()>,
}

impl HeldConstants {
    /// Of the expression that is evaluated now.
    #[must_use]
    pub fn open() -> Self {
        let from = HELD.with_borrow_mut(|held| {
            held.expressions += 1;
            held.constants.len()
        });
        Self { from, _thread: PhantomData }
    }
}

impl Drop for HeldConstants {
    fn drop(&mut self) {
        let given_back = HELD.with_borrow_mut(|held| {
            held.expressions -= 1;
            held.constants.split_off(self.from)
        });
        drop(given_back);
    }
}

/// Holds what is reserved for a constant of so many bytes until its expression is evaluated; without one it goes.
pub(super) fn hold(reservation: MemoryReservation, bytes: usize) {
    HELD.with_borrow_mut(|held| {
        if held.expressions > 0 {
            reservation.resize(bytes);
            held.constants.push(reservation);
        }
    });
}
