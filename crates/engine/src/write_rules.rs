//! What a write to a container owes besides its rows: entries in global indexes, checks of foreign keys.
//!
//! All of it is one word, so that a write to a container without either looks at it once before and once behind:
//! ```text
//!   63             32 31               1  0
//!  | foreign keys     | foreign keys    | has global |
//!  | ever added       | now             | indexes    |
//! ```
//! Relaxed loads do. The lists are read under their locks. Behind a write, a foreign key that was added in front of
//! somebody's question who has written to the container ([`crate::transactions`]) is seen, because the answer and the
//! word of the write are under one lock: either the question finds the writer, or the writer finds the foreign key.

use std::sync::atomic::{AtomicU64, Ordering};

const INDEXED: u64 = 1;
const REFERENCE: u64 = 1 << 1;
const ADDED: u64 = 1 << 32;

/// The word of a container.
#[derive(Debug, Default)]
pub(crate) struct WriteRules {
    word: AtomicU64,
}

/// What was known of it at some time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct KnownRules(u64);

impl WriteRules {
    #[inline]
    pub fn known(&self) -> KnownRules {
        KnownRules(self.word.load(Ordering::Relaxed))
    }

    /// There are global indexes.
    pub fn set_indexed(&self) {
        self.word.fetch_or(INDEXED, Ordering::Release);
    }

    /// There is a foreign key more.
    pub fn add_reference(&self) {
        let before = self.word.fetch_add(ADDED + REFERENCE, Ordering::AcqRel);
        assert!((before % ADDED) / REFERENCE < (ADDED / REFERENCE) - 1, "a container has fewer than 2^31 foreign keys");
    }

    /// There is a foreign key less.
    pub fn remove_reference(&self) {
        let before = self.word.fetch_sub(REFERENCE, Ordering::AcqRel);
        assert!(KnownRules(before).has_references(), "a foreign key is removed once");
    }
}

impl KnownRules {
    /// Whether rows are all that is written.
    #[inline]
    pub fn is_plain(self) -> bool {
        self.0.is_multiple_of(ADDED)
    }

    pub fn has_global_indexes(self) -> bool {
        self.0 & INDEXED != 0
    }

    pub fn has_references(self) -> bool {
        self.0 % ADDED >= REFERENCE
    }

    /// Whether foreign keys were added since.
    #[inline]
    pub fn misses(self, later: Self) -> bool {
        self.0 / ADDED != later.0 / ADDED
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_misses_what_was_added_and_not_what_was_removed() {
        let rules = WriteRules::default();
        let plain = rules.known();
        rules.add_reference();
        let referred = rules.known();
        assert!(plain.is_plain() && !referred.is_plain() && referred.has_references());
        assert!(plain.misses(referred));
        rules.remove_reference();
        rules.set_indexed();
        let indexed = rules.known();
        assert!(!referred.misses(indexed) && plain.misses(indexed));
        assert!(indexed.has_global_indexes() && !indexed.has_references() && !indexed.is_plain());
    }
}
