//! Who is told how transactions ended: checkers of histories, which cannot know it from a client that hung up.

use eris_storage::Timestamp;

use super::session::SessionOptions;

/// A transaction that ended.
#[derive(Clone, Copy, Debug)]
pub struct EndedTransaction<'a> {
    /// Whose it was.
    pub session: &'a SessionOptions,
    /// It saw commits up to this one.
    pub snapshot: Timestamp,
    /// When it committed; `None` if it was rolled back. One that wrote nothing names a commit of others.
    pub committed: Option<Timestamp>,
}

/// Is told, once it is set with [`crate::Database::observe`].
pub trait TransactionObserver: Send + Sync {
    /// A session committed or rolled back. A transaction that ends with its session in the middle of a COPY is not
    /// told of; it is rolled back.
    fn transaction_ended(&self, ended: &EndedTransaction<'_>);
}
