//! Schema `eris`: what the engine tells about itself, as tables.
//!
//! A view is a function from the engine's statistics to one batch, taken when a statement is planned.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, BooleanArray, Int64Array, RecordBatch, StringArray};
use datafusion::arrow::datatypes::{Field, Schema as ArrowSchema};
use datafusion::catalog::TableProvider;
use datafusion::datasource::MemTable;
use eris_engine::{EVENTS, Engine};

use crate::front::TableName;
use crate::settings::SETTINGS;

type Columns = Vec<(&'static str, ArrayRef)>;

/// A view: name and content.
type View = (&'static str, fn(&Engine) -> Columns);

const VIEWS: [View; 5] = [
    ("counters", counters),
    ("memory", memory),
    ("partitions", partitions),
    ("segments", segments),
    ("settings", settings),
];

/// The view of this name, as it is now.
pub fn system_view(name: &TableName, engine: &Engine) -> Option<Arc<dyn TableProvider>> {
    if name.schema.as_deref() != Some("eris") {
        return None;
    }
    let (_, content) = VIEWS.iter().find(|(known, _)| *known == name.name)?;
    let columns = content(engine);
    let fields: Vec<Field> =
        columns.iter().map(|(name, array)| Field::new(*name, array.data_type().clone(), true)).collect();
    let schema = Arc::new(ArrowSchema::new(fields));
    let arrays = columns.into_iter().map(|(_, array)| array).collect();
    let batch = RecordBatch::try_new(Arc::clone(&schema), arrays).ok()?;
    let table = MemTable::try_new(schema, vec![vec![batch]]).ok()?;
    Some(Arc::new(table))
}

fn integers(values: impl IntoIterator<Item = u64>) -> ArrayRef {
    Arc::new(values.into_iter().map(|value| Some(value as i64)).collect::<Int64Array>())
}

fn texts(values: impl IntoIterator<Item = String>) -> ArrayRef {
    Arc::new(values.into_iter().map(Some).collect::<StringArray>())
}

fn counters(engine: &Engine) -> Columns {
    let statistics = engine.statistics();
    let mut rows: Vec<(String, u64)> =
        EVENTS.iter().map(|event| (event.name().to_string(), statistics.event(*event))).collect();
    rows.push(("transactions committed".to_string(), statistics.committed));
    rows.push(("transactions aborted".to_string(), statistics.aborted));
    rows.push(("snapshots published".to_string(), statistics.snapshots));
    vec![
        ("name", texts(rows.iter().map(|(name, _)| name.clone()))),
        ("value", integers(rows.iter().map(|(_, value)| *value))),
    ]
}

fn memory(engine: &Engine) -> Columns {
    let consumers = engine.memory().by_consumer();
    vec![
        ("consumer", texts(consumers.iter().map(|(name, _)| (*name).to_string()))),
        ("bytes", integers(consumers.iter().map(|(_, bytes)| *bytes))),
    ]
}

fn partitions(engine: &Engine) -> Columns {
    let list = engine.partitions();
    vec![
        ("partition", integers(list.iter().map(|partition| partition.id.0))),
        ("container", integers(list.iter().map(|partition| u64::from(partition.container.0)))),
        ("node", integers(list.iter().map(|partition| u64::from(partition.home.0)))),
        ("rows", integers(list.iter().map(|partition| partition.rows))),
        ("bytes", integers(list.iter().map(|partition| partition.bytes))),
    ]
}

fn segments(engine: &Engine) -> Columns {
    let list: Vec<_> = engine
        .partitions()
        .into_iter()
        .flat_map(|partition| {
            let (id, container) = (partition.id.0, u64::from(partition.container.0));
            partition.segments.into_iter().map(move |segment| (id, container, segment))
        })
        .collect();
    vec![
        ("partition", integers(list.iter().map(|(partition, ..)| *partition))),
        ("container", integers(list.iter().map(|(_, container, _)| *container))),
        ("segment", integers(list.iter().map(|(.., segment)| u64::from(segment.number.0)))),
        ("sealed", Arc::new(list.iter().map(|(.., segment)| Some(segment.sealed)).collect::<BooleanArray>())),
        ("module", texts(list.iter().map(|(.., segment)| segment.module.to_string()))),
        ("rows", integers(list.iter().map(|(.., segment)| u64::from(segment.rows)))),
        ("dead_rows", integers(list.iter().map(|(.., segment)| u64::from(segment.dead_rows)))),
        ("bytes", integers(list.iter().map(|(.., segment)| segment.bytes))),
    ]
}

fn settings(_engine: &Engine) -> Columns {
    vec![
        ("name", texts(SETTINGS.iter().map(|setting| setting.name.to_string()))),
        ("type", texts(SETTINGS.iter().map(|setting| setting.type_name().to_string()))),
        ("default", texts(SETTINGS.iter().map(|setting| setting.default_text()))),
        ("description", texts(SETTINGS.iter().map(|setting| setting.description()))),
    ]
}
