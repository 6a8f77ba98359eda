//! For tests: batches whose texts come from shared dictionaries, as scans of sealed segments give them.

use std::sync::Arc;

use eris_platform::MemoryPool;
use eris_storage::{
    Attribute, Batch, BuildForm, BuildOptions, ContainerDictionaries, ContainerId, Layout, Schema, SchemaVersion,
    SealedSegment,
};

/// The same rows out of a segment of a container with these dictionaries.
pub(crate) fn coded(batch: &Batch, dictionaries: &Arc<ContainerDictionaries>) -> Batch {
    let attributes = batch.columns.iter().enumerate().map(|(at, column)| Attribute {
        name: format!("a{at}").into(),
        data_type: column.data_type,
        nullable: true,
    });
    let schema = Schema {
        container: ContainerId(1),
        version: SchemaVersion(1),
        attributes: attributes.collect(),
        indexes: Box::default(),
        layout: Layout::Default,
        physical: None,
        segment_rows: 1 << 16,
    };
    let memory = &MemoryPool::unlimited();
    let options = BuildOptions { memory, dictionaries: Some(dictionaries), arena: None, form: BuildForm::AsLaidOut };
    let segment = SealedSegment::build_in(&schema, batch, &options).expect("memory is not limited");
    segment.to_rows(&schema)
}

/// How many columns of a batch have ids.
pub(crate) fn coded_columns(batch: &Batch) -> usize {
    batch.columns.iter().filter(|column| column.coded().is_some()).count()
}
