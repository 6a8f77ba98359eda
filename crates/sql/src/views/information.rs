//! Schema `information_schema`: the standard's names for what there is.

use std::sync::Arc;

use super::postgres::default_text;
use super::{Columns, Named, Rows, View};
use crate::catalog::Table;
use crate::types::SqlType;

pub(super) const VIEWS: [View; 2] = [("columns", columns), ("tables", tables)];

fn tables(known: &Named<'_>) -> Columns {
    let database = known.database.to_string();
    Rows::new(known.catalog.tables().collect())
        .text("table_catalog", |_| database.clone())
        .text("table_schema", |_| "public".to_string())
        .text("table_name", |table: &&Arc<Table>| table.name.clone())
        .text("table_type", |_| "BASE TABLE".to_string())
        .text("is_insertable_into", |_| "YES".to_string())
        .columns
}

fn columns(known: &Named<'_>) -> Columns {
    let list: Vec<(&Arc<Table>, usize)> = known
        .catalog
        .tables()
        .flat_map(|table| (0..table.columns.len()).map(move |position| (table, position)))
        .collect();
    let database = known.database.to_string();
    let sql_type = |table: &Arc<Table>, position: usize| table.columns[position].sql_type;
    Rows::new(list)
        .text("table_catalog", |_| database.clone())
        .text("table_schema", |_| "public".to_string())
        .text("table_name", |(table, _)| table.name.clone())
        .text("column_name", |(table, position)| table.columns[*position].name.clone())
        .integer("ordinal_position", |(_, position)| *position as i64 + 1)
        .text_or_null("column_default", |(table, position)| default_text(table, *position))
        .text("is_nullable", |(table, position)| {
            (if table.columns[*position].not_null { "NO" } else { "YES" }).to_string()
        })
        .text("data_type", |(table, position)| match sql_type(table, *position) {
            timestamp @ SqlType::Timestamp => timestamp.to_string(),
            other => other.base_name().to_string(),
        })
        .integer_or_null("character_maximum_length", |(table, position)| match sql_type(table, *position) {
            SqlType::Varchar(Some(length)) | SqlType::Char(Some(length)) => Some(i64::from(length)),
            _ => None,
        })
        .integer_or_null("numeric_precision", |(table, position)| match sql_type(table, *position) {
            SqlType::SmallInt => Some(16),
            SqlType::Integer => Some(32),
            SqlType::BigInt => Some(64),
            SqlType::Real => Some(24),
            SqlType::Double => Some(53),
            SqlType::Numeric { precision, .. } => Some(i64::from(precision)),
            _ => None,
        })
        .integer_or_null("numeric_scale", |(table, position)| match sql_type(table, *position) {
            SqlType::SmallInt | SqlType::Integer | SqlType::BigInt => Some(0),
            SqlType::Numeric { scale, .. } => Some(i64::from(scale)),
            _ => None,
        })
        .columns
}
