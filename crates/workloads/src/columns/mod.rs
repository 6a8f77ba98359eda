//! One container of two integer columns, as large as one likes: what scans and point reads beside them are measured on.
//!
//! Row `n` has the key `n` and the value [`value_of`]`(n)`, so that every sum and every point read can be checked.

mod bandwidth;
mod noise;
mod point_reads;
mod scan;

use eris_engine::{ContainerSpec, Engine, EngineError, Partitioning};
use eris_storage::{
    Attribute, AttributeId, Batch, Buffer, Column, ContainerId, DataType, IndexDefinition, IndexId, IndexKind, Layout,
    SEGMENT_ROWS_DEFAULT, Schema, SchemaVersion, Values,
};
use std::ops::Range;
use std::sync::Arc;

pub use bandwidth::BandwidthProbe;
pub use noise::machine_noise;
pub use point_reads::{PointReads, PointReadsOptions, capacity, run_point_reads, run_point_reads_beside};
pub use scan::{expected_sum, sum_values};

const KEY: AttributeId = AttributeId(0);
const VALUE: AttributeId = AttributeId(1);

/// Rows of one batch of a load: whole segments, so that sealing copies nothing twice.
const LOAD_ROWS: u64 = SEGMENT_ROWS_DEFAULT as u64;

/// The value of a row: spread over 40 bits, so that a billion of them sum up without an overflow.
pub fn value_of(row: u64) -> i64 {
    (row.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 24) as i64
}

/// Which columns a container has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// The values alone, by size: nothing but the column to scan.
    ValuesOnly { partitions: usize },
    /// Key and value by ranges of the key, with a primary key.
    Keyed,
}

/// Creates and fills a container of `rows` rows.
pub async fn create(engine: &Engine, shape: Shape, rows: u64) -> Result<ContainerId, EngineError> {
    let container = engine.next_container_id();
    let attribute = |name: &str| Attribute { name: name.into(), data_type: DataType::Int64, nullable: false };
    let primary = IndexDefinition {
        id: IndexId(0),
        name: "pairs_pkey".into(),
        attributes: Box::new([KEY]),
        unique: true,
        primary: true,
        kind: IndexKind::Ordered,
    };
    let (attributes, indexes, partitioning): (Box<[_]>, Box<[_]>, _) = match shape {
        Shape::ValuesOnly { partitions } => {
            (Box::new([attribute("value")]), Box::new([]), Partitioning::Size { partitions })
        }
        Shape::Keyed => (
            Box::new([attribute("key"), attribute("value")]),
            Box::new([primary]),
            Partitioning::Range(Box::new([KEY])),
        ),
    };
    let schema = Schema {
        container,
        version: SchemaVersion(1),
        attributes,
        indexes,
        layout: Layout::Default,
        physical: None,
        segment_rows: SEGMENT_ROWS_DEFAULT,
    };
    engine.create_container(ContainerSpec { schema: Arc::new(schema), partitioning })?;
    let mut transaction = engine.begin();
    let mut bulk = transaction.bulk(container)?;
    for first in (0..rows).step_by(LOAD_ROWS as usize) {
        bulk.append(batch(shape, first..rows.min(first + LOAD_ROWS))).await?;
    }
    bulk.finish().await?;
    transaction.commit().await?;
    Ok(container)
}

fn batch(shape: Shape, rows: Range<u64>) -> Batch {
    let column =
        |values: Buffer<i64>| Column { data_type: DataType::Int64, validity: None, values: Values::Int64(values) };
    let values = column(rows.clone().map(value_of).collect());
    let count = (rows.end - rows.start) as usize;
    match shape {
        Shape::ValuesOnly { .. } => Batch::new([values], count),
        Shape::Keyed => Batch::new([column(rows.map(|row| row as i64).collect()), values], count),
    }
}
