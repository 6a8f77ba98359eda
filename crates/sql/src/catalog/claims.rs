//! Who changes the indexes of which container: one transaction at a time, until it ends.
//!
//! An index is built in the partitions when CREATE INDEX runs, but named when its transaction commits. In between, the
//! container has an index that the published table does not know; a second change would build on it.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use eris_storage::ContainerId;

/// The containers that are claimed.
#[derive(Clone, Debug, Default)]
pub struct IndexClaims {
    claimed: Arc<Mutex<BTreeSet<ContainerId>>>,
}

/// The right to change a container's indexes; given back when dropped.
#[derive(Debug)]
pub struct IndexClaim {
    claims: IndexClaims,
    container: ContainerId,
}

impl IndexClaims {
    /// The right, unless another transaction has it.
    pub fn claim(&self, container: ContainerId) -> Option<IndexClaim> {
        let mut claimed = self.claimed.lock().unwrap_or_else(PoisonError::into_inner);
        claimed.insert(container).then(|| IndexClaim { claims: self.clone(), container })
    }
}

impl IndexClaim {
    /// On which container.
    pub fn container(&self) -> ContainerId {
        self.container
    }
}

impl Drop for IndexClaim {
    fn drop(&mut self) {
        let mut claimed = self.claims.claimed.lock().unwrap_or_else(PoisonError::into_inner);
        claimed.remove(&self.container);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_container_is_claimed_once_until_the_claim_is_dropped() {
        let claims = IndexClaims::default();
        let first = claims.claim(ContainerId(7)).unwrap();
        assert!(claims.claim(ContainerId(7)).is_none());
        assert!(claims.claim(ContainerId(8)).is_some());
        drop(first);
        assert_eq!(claims.claim(ContainerId(7)).unwrap().container(), ContainerId(7));
    }
}
