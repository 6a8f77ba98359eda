//! One access path of a composite, and the linkage attribute of a path that is addressed by its own handles.

use super::steps::ConditionShape;
use crate::batch::{Batch, Column, ColumnBuilder};
use crate::error::StorageError;
use crate::ids::AttributeId;
use crate::modules::{AccessPath, AccessPathScanState, PathFilter};
use eris_platform::memory::{MemoryPool, Reservation};
use std::ops::Range;
use std::sync::Arc;

/// Rows up to which handles are looked up without a heap allocation.
const HANDLES_INLINE: usize = 16;

/// Rows for which room is made at first in a linkage attribute.
const LINKAGE_ROWS_FIRST: usize = 64;

/// The handles of an indirect path's rows, by offset.
pub(super) struct Linkage {
    handles: Vec<u32>,
    memory: Reservation,
}

impl Linkage {
    fn new(memory: &Arc<MemoryPool>) -> Self {
        Self { handles: Vec::new(), memory: memory.reserve("linkage attributes") }
    }

    fn reserve(&mut self, more: usize) -> Result<(), StorageError> {
        let (len, capacity) = (self.handles.len(), self.handles.capacity());
        if len + more > capacity {
            let wanted = (len + more).max(capacity * 2).max(LINKAGE_ROWS_FIRST);
            self.memory.grow(((wanted - capacity) * size_of::<u32>()) as u64)?;
            self.handles.reserve_exact(wanted - len);
        }
        Ok(())
    }

    fn of(&self, offset: u32) -> u32 {
        self.handles[offset as usize]
    }

    /// Calls `with` with the handles of some rows.
    fn with_handles<T>(&self, offsets: &[u32], with: impl FnOnce(&[u32]) -> T) -> T {
        if offsets.len() > HANDLES_INLINE {
            return with(&offsets.iter().map(|offset| self.of(*offset)).collect::<Vec<u32>>());
        }
        let mut handles = [0; HANDLES_INLINE];
        for (handle, offset) in handles.iter_mut().zip(offsets) {
            *handle = self.of(*offset);
        }
        with(&handles[..offsets.len()])
    }
}

/// One of the paths.
pub(super) struct Member {
    pub path: Box<dyn AccessPath>,
    /// By attribute id.
    holds: Box<[bool]>,
    pub attribute_count: usize,
    /// For a path that is addressed by handles.
    pub linkage: Option<Linkage>,
}

impl Member {
    /// A path that holds these of `count` attributes.
    pub(super) fn new(path: Box<dyn AccessPath>, ids: &[AttributeId], count: usize, memory: &Arc<MemoryPool>) -> Self {
        let mut holds = vec![false; count];
        for id in ids {
            holds[id.index()] = true;
        }
        let linkage = path.gives_handles().then(|| Linkage::new(memory));
        Self { path, holds: holds.into(), attribute_count: ids.len(), linkage }
    }

    pub(super) fn holds(&self, id: AttributeId) -> bool {
        self.holds.get(id.index()).copied().unwrap_or(false)
    }

    /// Whether it can test a condition on these attributes alone.
    pub(super) fn can_test(&self, (attribute, other): ConditionShape) -> bool {
        self.holds(attribute) && other.is_none_or(|other| self.holds(other))
    }

    pub(super) fn insert(&mut self, rows: &Batch, range: Range<usize>) -> Result<(), StorageError> {
        let Some(linkage) = &mut self.linkage else { return self.path.insert(rows, range) };
        linkage.reserve(range.len())?;
        let before = linkage.handles.len();
        let inserted = self.path.insert_with_handles(rows, range.clone(), &mut linkage.handles);
        if inserted.is_err() {
            linkage.handles.truncate(before);
            return inserted;
        }
        assert!(linkage.handles.len() == before + range.len(), "{} gives a handle per row", self.path.module());
        Ok(())
    }

    /// Appends the offsets of a window's rows that qualify.
    pub(super) fn scan(
        &self,
        state: &mut AccessPathScanState,
        scratch: &mut Vec<u32>,
        filter: PathFilter<'_>,
        window: Range<u32>,
        found: &mut Vec<u32>,
    ) -> Result<(), StorageError> {
        if self.linkage.is_none() {
            return self.path.scan(state, filter, window, found);
        }
        let from = found.len();
        found.extend(window);
        self.retain(state, scratch, filter, found, from)
    }

    /// Keeps those of the offsets from position `from` on that qualify.
    pub(super) fn retain(
        &self,
        state: &mut AccessPathScanState,
        scratch: &mut Vec<u32>,
        filter: PathFilter<'_>,
        offsets: &mut Vec<u32>,
        from: usize,
    ) -> Result<(), StorageError> {
        let Some(linkage) = &self.linkage else {
            if from == 0 {
                return self.path.retain(state, filter, offsets);
            }
            scratch.clear();
            scratch.extend(&offsets[from..]);
            self.path.retain(state, filter, scratch)?;
            offsets.truncate(from);
            offsets.extend_from_slice(scratch);
            return Ok(());
        };
        scratch.clear();
        scratch.extend(offsets[from..].iter().map(|offset| linkage.of(*offset)));
        self.path.retain(state, filter, scratch)?;
        // What is left is in the order of the rows, and rows of one handle qualify together: both lists in step.
        let mut kept = from;
        let mut handles = scratch.iter().peekable();
        for position in from..offsets.len() {
            let offset = offsets[position];
            if handles.next_if(|handle| **handle == linkage.of(offset)).is_some() {
                offsets[kept] = offset;
                kept += 1;
            }
        }
        assert!(handles.next().is_none(), "{} keeps handles in their order", self.path.module());
        offsets.truncate(kept);
        Ok(())
    }

    pub(super) fn link(&self, attribute: AttributeId, offsets: &[u32], out: &mut ColumnBuilder) {
        match &self.linkage {
            None => self.path.link(attribute, offsets, out),
            Some(linkage) => linkage.with_handles(offsets, |handles| self.path.link(attribute, handles, out)),
        }
    }

    pub(super) fn gather(&self, attribute: AttributeId, offsets: &[u32]) -> Option<Column> {
        match &self.linkage {
            None => self.path.gather(attribute, offsets),
            Some(linkage) => linkage.with_handles(offsets, |handles| self.path.gather(attribute, handles)),
        }
    }

    pub(super) fn bytes(&self) -> u64 {
        self.path.bytes() + self.linkage.as_ref().map_or(0, |linkage| linkage.memory.bytes())
    }
}
