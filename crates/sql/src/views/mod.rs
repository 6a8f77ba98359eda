//! Views of the system: what the engine tells about itself (`eris`), and the names there are, as PostgreSQL's clients
//! ask for them (`pg_catalog`, `information_schema`).
//!
//! A view is a function from what is known to one batch, taken when a statement is planned.

mod activity;
mod eris;
mod information;
mod oids;
mod postgres;

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, Int32Array, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray};
use datafusion::arrow::datatypes::{Field, Schema as ArrowSchema};
use datafusion::catalog::TableProvider;
use datafusion::datasource::MemTable;
use eris_durability::RecoveryReport;
use eris_engine::Engine;

use crate::activity::Activities;
use crate::catalog::CatalogVersion;
use crate::front::TableName;

pub(crate) use oids::{FIRST_USER_OID, index_oid};
pub(crate) use postgres::{constraint_definition, index_definition, type_name};

/// What views are made of.
#[derive(Clone, Copy)]
pub struct Named<'a> {
    /// Partitions, memory, counters.
    pub engine: &'a Engine,
    /// How the database was opened, if it has files.
    pub recovery: Option<&'a RecoveryReport>,
    /// Sessions.
    pub activities: &'a Activities,
    /// Tables and indexes.
    pub catalog: &'a CatalogVersion,
    /// The session's user.
    pub user: &'a str,
    /// The session's database.
    pub database: &'a str,
}

type Columns = Vec<(&'static str, ArrayRef)>;

/// A view: name and content.
type View = (&'static str, fn(&Named<'_>) -> Columns);

/// The views of a schema.
fn views_of(schema: &str) -> &'static [View] {
    match schema {
        "eris" => &eris::VIEWS,
        "pg_catalog" => &postgres::VIEWS,
        "information_schema" => &information::VIEWS,
        _ => &[],
    }
}

fn find(name: &TableName) -> Option<&'static View> {
    // As in PostgreSQL `pg_catalog` is searched first for names without a schema.
    let schema = name.schema.as_deref().unwrap_or("pg_catalog");
    views_of(schema).iter().find(|(known, _)| *known == name.name)
}

/// Whether there is a view of this name.
pub fn is_view(name: &TableName) -> bool {
    find(name).is_some()
}

/// The names of all views of a schema.
pub fn view_names(schema: &str) -> impl Iterator<Item = &'static str> {
    views_of(schema).iter().map(|(name, _)| *name)
}

/// The view of this name, as it is now.
pub fn system_view(name: &TableName, known: &Named<'_>) -> Option<Arc<dyn TableProvider>> {
    let (_, content) = find(name)?;
    let columns = content(known);
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

/// Rows as columns.
struct Rows<R> {
    rows: Vec<R>,
    columns: Columns,
}

impl<R> Rows<R> {
    fn new(rows: Vec<R>) -> Self {
        Self { rows, columns: Vec::new() }
    }

    fn text(mut self, name: &'static str, value: impl Fn(&R) -> String) -> Self {
        let column = self.rows.iter().map(|row| Some(value(row))).collect::<StringArray>();
        self.columns.push((name, Arc::new(column)));
        self
    }

    fn text_or_null(mut self, name: &'static str, value: impl Fn(&R) -> Option<String>) -> Self {
        let column = self.rows.iter().map(value).collect::<StringArray>();
        self.columns.push((name, Arc::new(column)));
        self
    }

    fn integer(mut self, name: &'static str, value: impl Fn(&R) -> i64) -> Self {
        let column = self.rows.iter().map(|row| Some(value(row))).collect::<Int64Array>();
        self.columns.push((name, Arc::new(column)));
        self
    }

    fn integer_or_null(mut self, name: &'static str, value: impl Fn(&R) -> Option<i64>) -> Self {
        let column = self.rows.iter().map(value).collect::<Int64Array>();
        self.columns.push((name, Arc::new(column)));
        self
    }

    fn small_integer(mut self, name: &'static str, value: impl Fn(&R) -> Option<i32>) -> Self {
        let column = self.rows.iter().map(value).collect::<Int32Array>();
        self.columns.push((name, Arc::new(column)));
        self
    }

    /// Microseconds since 1970.
    fn timestamp(mut self, name: &'static str, value: impl Fn(&R) -> Option<i64>) -> Self {
        let column = self.rows.iter().map(value).collect::<TimestampMicrosecondArray>();
        self.columns.push((name, Arc::new(column)));
        self
    }

    fn truth(mut self, name: &'static str, value: impl Fn(&R) -> bool) -> Self {
        let column = self.rows.iter().map(|row| Some(value(row))).collect::<datafusion::arrow::array::BooleanArray>();
        self.columns.push((name, Arc::new(column)));
        self
    }
}
