//! A client of the bank.

use std::sync::{Arc, Mutex};

use eris_engine::{Durability, Engine, EngineError, Sequence};
use eris_platform::SeededRandom;

use crate::bank::{Bank, End, transact};
use crate::books::{Books, Told};

/// Runs transactions one after the other.
pub struct Client {
    pub engine: Engine,
    pub bank: Bank,
    pub sequence: Arc<Sequence>,
    pub known: Arc<Mutex<Books>>,
    pub number: i64,
    pub random: SeededRandom,
    pub left: u64,
}

impl Client {
    /// Gives an error behind which it had no more to do.
    pub async fn run(mut self) -> Result<(), EngineError> {
        for _ in 0..self.left {
            let txn = self.known.lock().expect("not poisoned").begin(self.number);
            let known = Arc::clone(&self.known);
            let committing = move || known.lock().expect("not poisoned").committing(txn);
            let ended =
                transact(&self.engine, self.bank, &self.sequence, txn, self.number, &mut self.random, committing).await;
            let mut known = self.known.lock().expect("not poisoned");
            match ended.map_err(|error| (Told::by(&error), error)) {
                Ok(End::Committed { timestamp, durability }) => {
                    known.committed(txn, timestamp, durability == Durability::Synchronous);
                }
                Ok(End::RolledBack) | Err((Told::RolledBack, _)) => known.rolled_back(txn),
                // It may be there or not: the books know it as one that commits, or has not come so far.
                Err((Told::Nothing, error)) => return Err(error),
                Err((Told::Full | Told::NoValue, error)) => {
                    known.rolled_back(txn);
                    return Err(error);
                }
            }
        }
        Ok(())
    }
}
