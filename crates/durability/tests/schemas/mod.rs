//! Schemas of tables as tests like them: the first attribute is the primary key, or there is none.

use std::sync::Arc;

use eris_storage::{
    Attribute, AttributeId, ContainerId, DataType, IndexDefinition, IndexId, IndexKind, Layout, Schema, SchemaVersion,
};

pub fn attribute(name: &str, data_type: DataType, nullable: bool) -> Attribute {
    Attribute { name: name.into(), data_type, nullable }
}

pub fn schema(container: ContainerId, attributes: &[Attribute], keyed: bool, segment_rows: u32) -> Arc<Schema> {
    let key = IndexDefinition {
        id: IndexId(1),
        name: "pkey".into(),
        attributes: Box::new([AttributeId(0)]),
        unique: true,
        primary: true,
        kind: IndexKind::Ordered,
    };
    Arc::new(Schema {
        container,
        version: SchemaVersion(1),
        attributes: attributes.into(),
        indexes: if keyed { Box::new([key]) } else { Box::default() },
        layout: Layout::Default,
        physical: None,
        segment_rows,
    })
}
