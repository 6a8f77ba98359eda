//! Definitions as JSON: the form in which the log and checkpoints keep them.
//!
//! The structures here are the format; those of the engine may change without it. Unknown fields are refused: whoever
//! writes more raises the format version.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use eris_engine::{
    Definition, ForeignKeySpec, GlobalIndexSpec, KeySide, Partitioning, ReferentialAction, SequenceId, SequenceSpec,
    SequenceState,
};
use eris_storage::{
    Attribute, AttributeId, ContainerId, DataType, IndexDefinition, IndexId, IndexKind, Key, Layout, LayoutMember,
    PhysicalLayout, Schema, SchemaVersion, SegmentLayouts,
};
use serde::{Deserialize, Serialize};

/// A definition, as JSON.
pub(crate) fn to_text(definition: &Definition) -> String {
    serde_json::to_string(&Stored::of(definition)).unwrap_or_else(|_| unreachable!("numbers and texts are JSON"))
}

/// What `to_text` wrote, or why it is no definition.
pub(crate) fn from_text(text: &[u8]) -> Result<Definition, String> {
    let stored: Stored = serde_json::from_slice(text).map_err(|error| error.to_string())?;
    stored.definition()
}

/// The note of who opened the log.
pub(crate) fn start(unix_micros: i64) -> String {
    let start = Start { version: env!("CARGO_PKG_VERSION").to_owned(), unix_micros };
    serde_json::to_string(&start).unwrap_or_else(|_| unreachable!("numbers and texts are JSON"))
}

#[derive(Serialize, Deserialize)]
struct Start {
    version: String,
    unix_micros: i64,
}

#[derive(Serialize, Deserialize)]
#[serde(tag = "define", rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum Stored {
    Container { schema: StoredSchema, partitioning: StoredPartitioning, cuts: Vec<String>, like: Option<u32> },
    ContainerDropped { container: u32 },
    Schema { schema: StoredSchema },
    Layouts { container: u32, layouts: Option<StoredLayouts> },
    GlobalIndex { container: u32, name: String, attributes: Vec<u16>, partitions: usize, hidden: u32 },
    ForeignKey { name: String, child: StoredSide, parent: StoredSide, on_delete: Action, on_update: Action },
    ForeignKeyDropped { child: u32, name: String },
    Sequence { id: u32, sequence: StoredSequence, last: i64, is_called: bool },
    SequenceDropped { id: u32 },
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct StoredSchema {
    container: u32,
    version: u32,
    attributes: Vec<StoredAttribute>,
    indexes: Vec<StoredIndex>,
    layout: StoredLayout,
    layouts: Option<StoredLayouts>,
    segment_rows: u32,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredAttribute {
    name: String,
    data_type: StoredType,
    nullable: bool,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum StoredType {
    Boolean,
    Int16,
    Int32,
    Int64,
    Float32,
    Float64,
    Decimal { precision: u8, scale: u8 },
    Date,
    Timestamp,
    Text,
    Bytes,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredIndex {
    id: u32,
    name: String,
    attributes: Vec<u16>,
    unique: bool,
    primary: bool,
    kind: StoredIndexKind,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum StoredIndexKind {
    Ordered,
    Hash,
    Inverted,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum StoredLayout {
    Row,
    Column,
    Mixed,
    Default,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct StoredLayouts {
    open: Vec<StoredMember>,
    sealed: Vec<StoredMember>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredMember {
    module: String,
    attributes: Vec<u16>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum StoredPartitioning {
    Range { attributes: Vec<u16> },
    Hash { attributes: Vec<u16>, partitions: usize },
    Size { partitions: usize },
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct StoredSide {
    container: u32,
    name: String,
    attributes: Vec<u16>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Action {
    NoAction,
    Restrict,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct StoredSequence {
    name: String,
    increment: i64,
    minimum: i64,
    maximum: i64,
    start: i64,
    cache: u64,
    cycle: bool,
}

fn numbers(ids: &[AttributeId]) -> Vec<u16> {
    ids.iter().map(|id| id.0).collect()
}

fn ids(numbers: Vec<u16>) -> Box<[AttributeId]> {
    numbers.into_iter().map(AttributeId).collect()
}

pub(crate) fn to_hex(bytes: &[u8]) -> String {
    let digit = |half: u8| char::from_digit(u32::from(half), 16).unwrap_or_else(|| unreachable!("half a byte"));
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

pub(crate) fn from_hex(text: &str) -> Result<Vec<u8>, String> {
    let digit = |at: usize| text.get(at..at + 2).and_then(|pair| u8::from_str_radix(pair, 16).ok());
    let bytes: Option<Vec<u8>> = (0..text.len()).step_by(2).map(digit).collect();
    bytes.ok_or_else(|| format!("\"{text}\" is not hexadecimal"))
}

impl Stored {
    pub(crate) fn of(definition: &Definition) -> Self {
        match definition {
            Definition::Container { schema, partitioning, cuts, like } => Self::Container {
                schema: StoredSchema::of(schema),
                partitioning: StoredPartitioning::of(partitioning),
                cuts: cuts.iter().map(|cut| to_hex(cut.as_bytes())).collect(),
                like: like.map(|like| like.0),
            },
            Definition::ContainerDropped(id) => Self::ContainerDropped { container: id.0 },
            Definition::Schema(schema) => Self::Schema { schema: StoredSchema::of(schema) },
            Definition::Layouts(container, layouts) => {
                Self::Layouts { container: container.0, layouts: layouts.as_deref().map(StoredLayouts::of) }
            }
            Definition::GlobalIndex(spec, hidden) => Self::GlobalIndex {
                container: spec.container.0,
                name: spec.name.to_string(),
                attributes: numbers(&spec.attributes),
                partitions: spec.partitions,
                hidden: hidden.0,
            },
            Definition::ForeignKey(spec) => Self::ForeignKey {
                name: spec.name.to_string(),
                child: StoredSide::of(&spec.child),
                parent: StoredSide::of(&spec.parent),
                on_delete: Action::of(spec.on_delete),
                on_update: Action::of(spec.on_update),
            },
            Definition::ForeignKeyDropped(child, name) => {
                Self::ForeignKeyDropped { child: child.0, name: name.to_string() }
            }
            Definition::Sequence(id, spec, state) => Self::Sequence {
                id: id.0,
                sequence: StoredSequence::of(spec),
                last: state.last,
                is_called: state.is_called,
            },
            Definition::SequenceDropped(id) => Self::SequenceDropped { id: id.0 },
        }
    }

    pub(crate) fn definition(self) -> Result<Definition, String> {
        Ok(match self {
            Self::Container { schema, partitioning, cuts, like } => {
                let cuts: Result<Box<[Key]>, String> =
                    cuts.iter().map(|cut| from_hex(cut).map(|bytes| Key::from_bytes(&bytes))).collect();
                Definition::Container {
                    schema: Arc::new(schema.schema()),
                    partitioning: partitioning.partitioning(),
                    cuts: cuts?,
                    like: like.map(ContainerId),
                }
            }
            Self::ContainerDropped { container } => Definition::ContainerDropped(ContainerId(container)),
            Self::Schema { schema } => Definition::Schema(Arc::new(schema.schema())),
            Self::Layouts { container, layouts } => {
                Definition::Layouts(ContainerId(container), layouts.map(|layouts| Arc::new(layouts.layouts())))
            }
            Self::GlobalIndex { container, name, attributes, partitions, hidden } => {
                let (container, name, attributes) = (ContainerId(container), name.into(), ids(attributes));
                Definition::GlobalIndex(
                    GlobalIndexSpec { container, name, attributes, partitions },
                    ContainerId(hidden),
                )
            }
            Self::ForeignKey { name, child, parent, on_delete, on_update } => Definition::ForeignKey(ForeignKeySpec {
                name: name.into(),
                child: child.side(),
                parent: parent.side(),
                on_delete: on_delete.action(),
                on_update: on_update.action(),
            }),
            Self::ForeignKeyDropped { child, name } => Definition::ForeignKeyDropped(ContainerId(child), name.into()),
            Self::Sequence { id, sequence, last, is_called } => {
                Definition::Sequence(SequenceId(id), sequence.spec(), SequenceState { last, is_called })
            }
            Self::SequenceDropped { id } => Definition::SequenceDropped(SequenceId(id)),
        })
    }
}

impl StoredSchema {
    fn of(schema: &Schema) -> Self {
        let attribute = |attribute: &Attribute| StoredAttribute {
            name: attribute.name.to_string(),
            data_type: StoredType::of(attribute.data_type),
            nullable: attribute.nullable,
        };
        let index = |index: &IndexDefinition| StoredIndex {
            id: index.id.0,
            name: index.name.to_string(),
            attributes: numbers(&index.attributes),
            unique: index.unique,
            primary: index.primary,
            kind: match index.kind {
                IndexKind::Ordered => StoredIndexKind::Ordered,
                IndexKind::Hash => StoredIndexKind::Hash,
                IndexKind::Inverted => StoredIndexKind::Inverted,
            },
        };
        Self {
            container: schema.container.0,
            version: schema.version.0,
            attributes: schema.attributes.iter().map(attribute).collect(),
            indexes: schema.indexes.iter().map(index).collect(),
            layout: match schema.layout {
                Layout::Row => StoredLayout::Row,
                Layout::Column => StoredLayout::Column,
                Layout::Mixed => StoredLayout::Mixed,
                Layout::Default => StoredLayout::Default,
            },
            layouts: schema.physical.as_deref().map(StoredLayouts::of),
            segment_rows: schema.segment_rows,
        }
    }

    fn schema(self) -> Schema {
        let attribute = |stored: StoredAttribute| Attribute {
            name: stored.name.into(),
            data_type: stored.data_type.data_type(),
            nullable: stored.nullable,
        };
        let index = |stored: StoredIndex| IndexDefinition {
            id: IndexId(stored.id),
            name: stored.name.into(),
            attributes: ids(stored.attributes),
            unique: stored.unique,
            primary: stored.primary,
            kind: match stored.kind {
                StoredIndexKind::Ordered => IndexKind::Ordered,
                StoredIndexKind::Hash => IndexKind::Hash,
                StoredIndexKind::Inverted => IndexKind::Inverted,
            },
        };
        Schema {
            container: ContainerId(self.container),
            version: SchemaVersion(self.version),
            attributes: self.attributes.into_iter().map(attribute).collect(),
            indexes: self.indexes.into_iter().map(index).collect(),
            layout: match self.layout {
                StoredLayout::Row => Layout::Row,
                StoredLayout::Column => Layout::Column,
                StoredLayout::Mixed => Layout::Mixed,
                StoredLayout::Default => Layout::Default,
            },
            physical: self.layouts.map(|layouts| Arc::new(layouts.layouts())),
            segment_rows: self.segment_rows,
        }
    }
}

impl StoredType {
    fn of(data_type: DataType) -> Self {
        match data_type {
            DataType::Boolean => Self::Boolean,
            DataType::Int16 => Self::Int16,
            DataType::Int32 => Self::Int32,
            DataType::Int64 => Self::Int64,
            DataType::Float32 => Self::Float32,
            DataType::Float64 => Self::Float64,
            DataType::Decimal { precision, scale } => Self::Decimal { precision, scale },
            DataType::Date => Self::Date,
            DataType::Timestamp => Self::Timestamp,
            DataType::Text => Self::Text,
            DataType::Bytes => Self::Bytes,
        }
    }

    fn data_type(self) -> DataType {
        match self {
            Self::Boolean => DataType::Boolean,
            Self::Int16 => DataType::Int16,
            Self::Int32 => DataType::Int32,
            Self::Int64 => DataType::Int64,
            Self::Float32 => DataType::Float32,
            Self::Float64 => DataType::Float64,
            Self::Decimal { precision, scale } => DataType::Decimal { precision, scale },
            Self::Date => DataType::Date,
            Self::Timestamp => DataType::Timestamp,
            Self::Text => DataType::Text,
            Self::Bytes => DataType::Bytes,
        }
    }
}

impl StoredLayouts {
    pub(crate) fn of(layouts: &SegmentLayouts) -> Self {
        let members = |layout: &PhysicalLayout| {
            let member = |member: &LayoutMember| StoredMember {
                module: member.module.to_string(),
                attributes: numbers(&member.attributes),
            };
            layout.members().iter().map(member).collect()
        };
        Self { open: members(&layouts.open), sealed: members(&layouts.sealed) }
    }

    pub(crate) fn layouts(self) -> SegmentLayouts {
        let layout = |members: Vec<StoredMember>| {
            let member = |member: StoredMember| LayoutMember {
                module: member.module.into(),
                attributes: ids(member.attributes),
            };
            PhysicalLayout::new(members.into_iter().map(member).collect::<Vec<_>>())
        };
        SegmentLayouts { open: layout(self.open), sealed: layout(self.sealed) }
    }
}

impl StoredPartitioning {
    fn of(partitioning: &Partitioning) -> Self {
        match partitioning {
            Partitioning::Range(attributes) => Self::Range { attributes: numbers(attributes) },
            Partitioning::Hash { attributes, partitions } => {
                Self::Hash { attributes: numbers(attributes), partitions: *partitions }
            }
            Partitioning::Size { partitions } => Self::Size { partitions: *partitions },
        }
    }

    fn partitioning(self) -> Partitioning {
        match self {
            Self::Range { attributes } => Partitioning::Range(ids(attributes)),
            Self::Hash { attributes, partitions } => Partitioning::Hash { attributes: ids(attributes), partitions },
            Self::Size { partitions } => Partitioning::Size { partitions },
        }
    }
}

impl StoredSide {
    fn of(side: &KeySide) -> Self {
        Self { container: side.container.0, name: side.name.to_string(), attributes: numbers(&side.attributes) }
    }

    fn side(self) -> KeySide {
        KeySide { container: ContainerId(self.container), name: self.name.into(), attributes: ids(self.attributes) }
    }
}

impl Action {
    fn of(action: ReferentialAction) -> Self {
        match action {
            ReferentialAction::NoAction => Self::NoAction,
            ReferentialAction::Restrict => Self::Restrict,
        }
    }

    fn action(self) -> ReferentialAction {
        match self {
            Self::NoAction => ReferentialAction::NoAction,
            Self::Restrict => ReferentialAction::Restrict,
        }
    }
}

impl StoredSequence {
    fn of(spec: &SequenceSpec) -> Self {
        let SequenceSpec { name, increment, minimum, maximum, start, cache, cycle } = spec.clone();
        Self { name: name.into(), increment, minimum, maximum, start, cache, cycle }
    }

    fn spec(self) -> SequenceSpec {
        let Self { name, increment, minimum, maximum, start, cache, cycle } = self;
        SequenceSpec { name: name.into(), increment, minimum, maximum, start, cache, cycle }
    }
}
