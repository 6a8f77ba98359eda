//! Which foreign keys a container has, on either side.

use std::sync::atomic::Ordering;
use std::sync::{Arc, RwLock};

use eris_storage::ContainerId;

use super::{ForeignKey, ForeignKeyError, ForeignKeySpec, Side};
use crate::container::Container;
use crate::lock::{read, write};

/// The list; how long it is stands in the container's [`crate::write_rules::WriteRules`], which writes look at first.
#[derive(Debug)]
pub(crate) struct References(RwLock<Arc<[Arc<ForeignKey>]>>);

impl Default for References {
    fn default() -> Self {
        Self(RwLock::new(Arc::from([])))
    }
}

impl Container {
    /// Its foreign keys in which it has this side.
    pub(crate) fn foreign_keys(&self, side: Side) -> Vec<Arc<ForeignKey>> {
        if !self.rules().known().has_references() {
            return Vec::new();
        }
        read(&self.references().0).iter().filter(|key| key.is_of(side, self.id())).cloned().collect()
    }

    pub(super) fn add_foreign_key(&self, key: &Arc<ForeignKey>) -> Result<(), ForeignKeyError> {
        let mut list = write(&self.references().0);
        let ForeignKeySpec { name, child, .. } = &key.spec;
        if list.iter().any(|other| other.spec.child.container == child.container && other.spec.name == *name) {
            return Err(ForeignKeyError::Exists { name: name.clone(), child: child.name.clone() });
        }
        *list = list.iter().cloned().chain([Arc::clone(key)]).collect();
        self.count_reference();
        Ok(())
    }

    pub(super) fn remove_foreign_key(&self, key: &Arc<ForeignKey>) {
        let mut list = write(&self.references().0);
        let before = list.len();
        *list = list.iter().filter(|other| !Arc::ptr_eq(other, key)).cloned().collect();
        if list.len() < before {
            self.discount_reference();
        }
    }
}

impl ForeignKey {
    fn is_of(&self, side: Side, container: ContainerId) -> bool {
        match side {
            Side::Child => self.spec.child.container == container,
            Side::Parent => self.spec.parent.container == container,
        }
    }

    pub(super) fn mark_dropped(&self) {
        self.dropped.store(true, Ordering::Release);
    }
}
