//! 1-Storage: what lives inside one living partition.
//!
//! Rows live in segments; a segment's rows are held by an access path (an instance of a storage module), indexes by
//! others. A request is compiled to a micro-QEP, which scans and links access paths and hands out batches. How rows
//! come, change, move and go is drawn and argued in `docs/storage.md`.

mod address;
mod batch;
mod dictionary;
mod error;
mod ids;
mod key;
mod micro;
mod modules;
mod mvcc;
mod physical;
mod predicate;
mod schema;
mod segment;
mod store;
mod types;
mod value;

pub use address::RowAddress;
pub use batch::{
    BATCH_ROWS, Batch, Bitmap, BitmapBuilder, Buffer, CodedTexts, Column, ColumnBuilder, DictionaryTexts, FixedValue,
    NotRows, PackedRows, RowFormat, VIEW_INLINE_MAX, Values, ViewBuffer, Views,
};
pub use dictionary::{
    ContainerDictionaries, DICTIONARIES, DICTIONARY_BYTES_MAX, DICTIONARY_GROWTHS_MAX, DICTIONARY_TEXTS_MAX,
};
pub use error::StorageError;
pub use ids::{AttributeId, ContainerId, IndexId, PartitionId, RowOffset, SchemaVersion, SegmentNumber};
pub use key::{Key, KeyEncoder, KeyPart, key_of_row, key_of_values};
pub use micro::{AttributeTotals, MicroPlanDescription};
pub use modules::{
    AccessPath, AccessPathFactory, AccessPathScanState, AddressingMode, COLUMN, COLUMN_GROUP, COLUMN_SEGMENTS,
    COMPOSITE, Count, ENCODED, HASH_INDEX, INVERTED_INDEX, IndexPath, IndexScanState, Inserted, ORDERED_INDEX,
    PathAttribute, PathConfiguration, PathFilter, PathInstance, Properties, ROW_DYNAMIC, ROW_SPARSE, ROW_STATIC,
    Registry,
};
pub use mvcc::{Holder, Outcome, Outcomes, Snapshot, StatementNumber, Timestamp, TransactionId, Word, WordKind};
pub use physical::{LAYOUT_MEMBERS_MAX, LayoutMember, PhysicalLayout, SegmentLayouts};
pub use predicate::{Comparison, Condition, IndexOrder, Predicate, ReadRequest, Test};
pub use schema::{Attribute, IndexDefinition, IndexKind, Layout, SEGMENT_ROWS_DEFAULT, Schema, segment_bytes};
pub use segment::{BuildForm, BuildOptions, SealedSegment, SegmentIdentity};
pub use store::{
    AccessHistory, AccessStatistics, AttachCursor, AttributeStatistics, Found, Gateway, Horizon, IndexBuildCursor,
    LockedRows, LookupCursor, LookupRequest, Maintained, PinnedCursor, PinnedPartition, PinnedSegment, PositionOf,
    Progress, ReadCursor, RowLock, SegmentDescription, SplitBoundary, SplitMoved, SplitStep, Store, StoreCounters,
    StoreOptions, StoreStatistics, Written,
};
pub use types::{DECIMAL64_PRECISION_MAX, DataType, Physical};
pub use value::Value;
