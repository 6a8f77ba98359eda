//! What a container's rows look like and how they are to be stored.

use crate::ids::{AttributeId, ContainerId, IndexId, SchemaVersion};
use crate::modules::{COLUMN, ENCODED, ROW_STATIC};
use crate::physical::SegmentLayouts;
use crate::types::DataType;
use std::ops::RangeInclusive;
use std::sync::Arc;

/// Rows of a segment unless a container says otherwise (2^16: an offset fits in 16 bits where that helps, a column of
/// 8-byte values is half a megabyte and stays in a second-level cache).
pub const SEGMENT_ROWS_DEFAULT: u32 = 1 << 16;
/// The share of a database's memory that is enough for the rows of one segment, ...
const SEGMENT_SHARE: u64 = 32;
/// ... and its bounds.
const SEGMENT_BYTES: RangeInclusive<u64> = 256 << 10..=128 << 20;

/// A segment whose rows take so many bytes gets no more, in a database with this limit of memory: it is copied as a
/// whole when it is sealed, written and loaded.
pub fn segment_bytes(memory_limit: u64) -> u64 {
    (memory_limit / SEGMENT_SHARE).clamp(*SEGMENT_BYTES.start(), *SEGMENT_BYTES.end())
}

/// One attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attribute {
    pub name: Box<str>,
    pub data_type: DataType,
    pub nullable: bool,
}

/// What an index can be asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IndexKind {
    /// Keys, ranges of keys, and rows in key order.
    #[default]
    Ordered,
    /// Keys only: smaller, and faster at that.
    Hash,
    /// The same as an ordered one, for keys that many rows share: each is held once, and its rows' addresses packed.
    Inverted,
}

impl IndexKind {
    /// Whether rows come out of it in key order, and ranges of keys can be asked for.
    pub fn has_key_order(self) -> bool {
        match self {
            Self::Ordered | Self::Inverted => true,
            Self::Hash => false,
        }
    }
}

/// One local index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexDefinition {
    pub id: IndexId,
    pub name: Box<str>,
    pub attributes: Box<[AttributeId]>,
    pub unique: bool,
    pub primary: bool,
    pub kind: IndexKind,
}

impl IndexDefinition {
    /// Whether both say the same of rows, whatever their names.
    pub(crate) fn is_alike(&self, other: &Self) -> bool {
        let renamed = Self { name: other.name.clone(), primary: other.primary, ..self.clone() };
        renamed == *other
    }
}

/// How rows are stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Layout {
    /// Rows, open and sealed.
    Row,
    /// Columns, open and sealed.
    Column,
    /// Rows and columns alternating by segment number.
    Mixed,
    /// Open segments are rows, sealed ones encoded.
    #[default]
    Default,
}

impl Layout {
    /// The modules that hold open and sealed segments; none if that is up to a segment's number.
    pub(crate) fn modules(self) -> Option<SegmentModules> {
        let modules = |open, sealed| Some(SegmentModules { open, sealed });
        match self {
            Self::Row => modules(ROW_STATIC, ROW_STATIC),
            Self::Column => modules(COLUMN, COLUMN),
            Self::Mixed => None,
            Self::Default => modules(ROW_STATIC, ENCODED),
        }
    }
}

/// What a named layout stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SegmentModules {
    pub open: &'static str,
    pub sealed: &'static str,
}

/// The modules of [`Layout::Mixed`], by the parity of a segment's number.
pub(crate) const MIXED_MODULES: [&str; 2] = [ROW_STATIC, COLUMN];

/// A version of a container's schema; immutable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schema {
    pub container: ContainerId,
    pub version: SchemaVersion,
    pub attributes: Box<[Attribute]>,
    pub indexes: Box<[IndexDefinition]>,
    pub layout: Layout,
    /// Layouts set by hand, instead of `layout`, for new partitions and bulk loads; a partition may have its own
    /// ([`Store::set_layout`](crate::Store::set_layout)). They are no part of what the version stands for: no answer
    /// depends on them.
    pub physical: Option<Arc<SegmentLayouts>>,
    /// Rows of a full segment.
    pub segment_rows: u32,
}

impl Schema {
    /// The index that holds the primary key.
    pub fn primary_key(&self) -> Option<&IndexDefinition> {
        self.indexes.iter().find(|index| index.primary)
    }

    /// The attributes that tell rows apart: those of the primary key, or all of them. Rows that agree in all attributes
    /// are the same to every query, so that either may stand for the other.
    pub fn row_identity(&self) -> Box<[AttributeId]> {
        let is_never_null = |id: &AttributeId| self.attribute(*id).is_some_and(|attribute| !attribute.nullable);
        match self.primary_key() {
            Some(key) if key.attributes.iter().all(is_never_null) => key.attributes.clone(),
            _ => (0..self.attributes.len() as u16).map(AttributeId).collect(),
        }
    }

    /// The attribute, if the id is one of this schema's.
    pub fn attribute(&self, id: AttributeId) -> Option<&Attribute> {
        self.attributes.get(id.index())
    }

    /// The attribute with this name.
    pub fn attribute_named(&self, name: &str) -> Option<(AttributeId, &Attribute)> {
        let position = self.attributes.iter().position(|attribute| &*attribute.name == name)?;
        Some((AttributeId(position as u16), &self.attributes[position]))
    }

    /// The index with this id.
    pub fn index(&self, id: IndexId) -> Option<&IndexDefinition> {
        self.indexes.iter().find(|index| index.id == id)
    }

    /// The next version, with further attributes. Layouts set by hand hold them in their catch-all.
    #[must_use]
    pub fn with_attributes(&self, added: impl IntoIterator<Item = Attribute>) -> Self {
        let first = AttributeId(self.attributes.len() as u16);
        let attributes: Box<[Attribute]> = self.attributes.iter().cloned().chain(added).collect();
        let physical = self.physical.as_ref().map(|layouts| Arc::new(layouts.widened(first, attributes.len())));
        Self { version: SchemaVersion(self.version.0 + 1), attributes, physical, ..self.clone() }
    }

    /// The types of all attributes, in order.
    pub fn data_types(&self) -> Vec<DataType> {
        self.attributes.iter().map(|attribute| attribute.data_type).collect()
    }
}
