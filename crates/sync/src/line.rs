//! Keeps what different threads write apart.

use std::ops::Deref;

/// A value on cache lines of its own. Two lines, because Intel's prefetcher fetches them in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Line<T>(pub T);

impl<T> Deref for Line<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}
