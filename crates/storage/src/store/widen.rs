//! A schema that gains attributes: no row is touched.
//!
//! Every segment's path is wrapped in one that answers for the added attributes (UNDEFINED, read as NULL), which costs
//! a step per segment. The tail is closed, because its path cannot take wider rows; the next row opens another.

use super::Store;
use crate::address::RowAddress;
use crate::batch::RowFormat;
use crate::error::StorageError;
use crate::ids::AttributeId;
use crate::modules::{AccessPath, WidenedPath};
use crate::schema::Schema;
use crate::segment::{OpenRows, SealedSegment, State};
use std::sync::Arc;

impl Store {
    /// Checks that the attributes of another version of the schema are those of this one and further ones that may be
    /// NULL, and answers for the latter from now on.
    pub(super) fn widen(&mut self, schema: &Schema) -> Result<(), StorageError> {
        let (old, new) = (&Arc::clone(&self.schema).attributes, &schema.attributes);
        if old == new {
            return Ok(());
        }
        if !new.starts_with(old) || !new[old.len()..].iter().all(|attribute| attribute.nullable) {
            let reason = "attributes of a container with rows cannot change, only nullable ones be added".to_owned();
            return Err(StorageError::InvalidRequest { reason });
        }
        if let Some(layouts) = &schema.physical {
            layouts.check(new, self.modules)?;
        }
        if self.split.is_some() {
            return Err(StorageError::Busy { reason: "the partition is being split" });
        }
        if !self.attaching.is_empty() {
            return Err(StorageError::Busy { reason: "rows are being attached" });
        }
        let known = AttributeId(old.len() as u16);
        // A job half done would seal or move rows as they were.
        if let Some(job) = self.job.take() {
            self.candidates.insert(job.number());
        }
        if let Some(tail) = self.tail.take() {
            if self.segment(tail).is_some_and(|segment| segment.rows() == 0) {
                self.drop_segment(tail);
            } else {
                self.candidates.insert(tail);
            }
        }
        for slot in &mut self.segments {
            let Some(mut segment) = slot.take() else { continue };
            segment.state = match segment.state {
                State::Open { rows: OpenRows::Own { layout, path }, words } => {
                    let path: Box<dyn AccessPath> = Box::new(WidenedPath::new(path, known));
                    State::Open { rows: OpenRows::Own { layout, path }, words }
                }
                State::Open { rows: OpenRows::Thawed(segment), words } => {
                    State::Open { rows: OpenRows::Thawed(SealedSegment::widened(segment, known, new.len())), words }
                }
                State::Sealed { segment, begin, deletes } => {
                    State::Sealed { segment: SealedSegment::widened(segment, known, new.len()), begin, deletes }
                }
            };
            *slot = Some(segment);
        }
        self.all_attributes = (0..new.len() as u16).map(AttributeId).collect();
        self.row_format = Arc::new(RowFormat::new(new.iter().map(|attribute| attribute.data_type)));
        self.layouts.widen(known, schema);
        self.usage.widen(new.len());
        Ok(())
    }

    /// Whether a row was written before an attribute was added, and not since; none if there is no such row. SQL does
    /// not tell it from NULL.
    pub fn is_undefined(&self, row: RowAddress, attribute: AttributeId) -> Option<bool> {
        let segment = self.segment(row.segment())?;
        let known = row.offset().0 < segment.rows() && self.schema.attribute(attribute).is_some();
        known.then(|| segment.path().is_undefined(attribute, row.offset().0))
    }

    /// Refuses a segment of another version of the schema.
    pub(super) fn check_attributes(&self, segment: &Arc<SealedSegment>) -> Result<(), StorageError> {
        let same = segment.attributes() == self.schema.attributes.len();
        same.then_some(()).ok_or(StorageError::SchemaMoved)
    }
}
