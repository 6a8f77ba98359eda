//! The build side's way into files.

use std::sync::{Arc, OnceLock};

use super::divide::Dividing;
use super::part::{BuildInFiles, Part};
use crate::error::OperatorError;
use crate::join::key_filter::KeyFilter;
use crate::spill::Spill;

/// Rows of a build side that go to files.
#[derive(Debug)]
pub(in crate::join) struct ExternalBuild {
    pub dividing: Dividing,
    ended: OnceLock<BuildInFiles>,
}

impl ExternalBuild {
    /// Of rows with so many keys.
    pub fn new(spill: &Spill, keys: usize) -> Self {
        Self { dividing: Dividing::new(spill, keys), ended: OnceLock::new() }
    }

    /// What is probed part by part, when everything is written.
    pub fn ended(&self) -> Option<&BuildInFiles> {
        self.ended.get()
    }

    /// Ends it, when everything is written.
    pub fn end(&self, seen: (bool, bool), filters: Vec<(usize, Arc<KeyFilter>)>) -> Result<(), OperatorError> {
        let (lanes, file) = self.dividing.finish()?;
        // Without keys there is one part, which cannot be divided.
        let is_dividable = lanes.len() > 1;
        let parts = lanes.into_iter().map(|lane| Part::new(lane, 0, is_dividable)).collect();
        let ended = BuildInFiles { parts, file, spill: self.dividing.spill.clone(), seen, filters };
        self.ended.set(ended).map_err(|_| OperatorError::Internal("a build side ends twice".to_string()))
    }
}
