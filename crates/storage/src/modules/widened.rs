//! A path that is older than some attributes of the schema: all of its rows lack them.
//!
//! It wraps what there was, whatever module made it, and answers for the added attributes itself: UNDEFINED, read as
//! NULL. Nothing is copied; sealing, compaction and split write rows with all attributes elsewhere, where the added
//! ones are plain NULL.

use super::{AccessPath, AccessPathScanState, PathFilter};
use crate::batch::{Batch, Column, ColumnBuilder, FixedValue};
use crate::error::StorageError;
use crate::ids::AttributeId;
use crate::predicate::{Condition, Test};
use eris_platform::MemoryExceeded;
use std::ops::Range;

/// Something that holds a path: the path itself, or a sealed segment that pins share.
pub(crate) trait HoldsPath: Send + Sync {
    fn held(&self) -> &dyn AccessPath;
    /// The path, if nobody else has it.
    fn held_mut(&mut self) -> Option<&mut dyn AccessPath>;
    /// No insert will follow.
    fn freeze(&mut self);
}

impl HoldsPath for Box<dyn AccessPath> {
    fn held(&self) -> &dyn AccessPath {
        &**self
    }

    fn held_mut(&mut self) -> Option<&mut dyn AccessPath> {
        Some(&mut **self)
    }

    fn freeze(&mut self) {
        (**self).freeze();
    }
}

/// See the module's documentation.
pub(crate) struct WidenedPath<H> {
    inner: H,
    /// Attributes from this one on are added ones.
    known: AttributeId,
}

impl<H: HoldsPath> WidenedPath<H> {
    /// `inner` holds the attributes below `known`, and is asked for others from now on.
    pub(crate) fn new(inner: H, known: AttributeId) -> Self {
        Self { inner, known }
    }

    fn is_added(&self, attribute: AttributeId) -> bool {
        attribute >= self.known
    }

    /// The conditions the inner path has to test; none if no row can satisfy those on added attributes.
    fn inner_part(&self, filter: PathFilter<'_>) -> Option<Vec<u16>> {
        let mut selected = Vec::with_capacity(filter.selected.len());
        for position in filter.selected {
            let Condition { attribute, test } = &filter.conditions[usize::from(*position)];
            let compared = match test {
                Test::CompareAttribute(_, other) => self.is_added(*other),
                Test::Compare(..) | Test::In(_) | Test::IsNull | Test::IsNotNull | Test::StartsWith(_) => false,
            };
            match (self.is_added(*attribute) || compared, test) {
                (false, _) => selected.push(*position),
                (true, Test::IsNull) => {}
                (true, _) => return None,
            }
        }
        Some(selected)
    }
}

impl<H: HoldsPath> AccessPath for WidenedPath<H> {
    fn module(&self) -> &'static str {
        self.inner.held().module()
    }

    fn rows(&self) -> u32 {
        self.inner.held().rows()
    }

    fn insert(&mut self, _rows: &Batch, _range: Range<usize>) -> Result<(), StorageError> {
        unreachable!("rows of a wider schema go to a path of their own")
    }

    fn scan(
        &self,
        state: &mut AccessPathScanState,
        filter: PathFilter<'_>,
        window: Range<u32>,
        found: &mut Vec<u32>,
    ) -> Result<(), StorageError> {
        let Some(selected) = self.inner_part(filter) else { return Ok(()) };
        self.inner.held().scan(state, PathFilter { selected: &selected, ..filter }, window, found)
    }

    fn retain(
        &self,
        state: &mut AccessPathScanState,
        filter: PathFilter<'_>,
        offsets: &mut Vec<u32>,
    ) -> Result<(), StorageError> {
        let Some(selected) = self.inner_part(filter) else {
            offsets.clear();
            return Ok(());
        };
        self.inner.held().retain(state, PathFilter { selected: &selected, ..filter }, offsets)
    }

    fn link(&self, attribute: AttributeId, offsets: &[u32], out: &mut ColumnBuilder) {
        if self.is_added(attribute) {
            for _ in offsets {
                out.push_null();
            }
        } else {
            self.inner.held().link(attribute, offsets, out);
        }
    }

    fn is_undefined(&self, attribute: AttributeId, offset: u32) -> bool {
        self.is_added(attribute) || self.inner.held().is_undefined(attribute, offset)
    }

    fn shared(&self, attribute: AttributeId, run: Range<u32>) -> Option<Column> {
        if self.is_added(attribute) { None } else { self.inner.held().shared(attribute, run) }
    }

    fn gather(&self, attribute: AttributeId, offsets: &[u32]) -> Option<Column> {
        if self.is_added(attribute) { None } else { self.inner.held().gather(attribute, offsets) }
    }

    // An update gives a row all attributes, so it writes a version elsewhere: `updates_in_place` says no. What was
    // overwritten before the schema gained attributes may still have to be restored.
    fn exchange(&mut self, attribute: AttributeId, offset: u32, new: FixedValue) -> FixedValue {
        match self.inner.held_mut() {
            Some(path) if attribute < self.known => path.exchange(attribute, offset, new),
            Some(_) | None => unreachable!("{attribute} of row {offset} was never overwritten"),
        }
    }

    fn freeze(&mut self) {
        self.inner.freeze();
    }

    fn refused_encoding(&self) -> Option<&MemoryExceeded> {
        self.inner.held().refused_encoding()
    }

    fn encodings(&self, visit: &mut dyn FnMut(AttributeId, &'static str, u64)) {
        self.inner.held().encodings(visit);
    }

    fn bytes(&self) -> u64 {
        self.inner.held().bytes()
    }
}
