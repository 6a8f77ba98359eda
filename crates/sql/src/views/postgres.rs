//! Schema `pg_catalog`: the tables in which PostgreSQL's clients look up names, as far as `psql` needs them.
//!
//! Columns that nothing here could ever fill (access rights, storage parameters) are left out or constant. Tables that
//! would always be empty are not here at all, see [`crate::front::reads_nothing`].

use std::sync::Arc;

use eris_storage::{IndexDefinition, IndexKind};

use super::oids::{FIRST_USER_OID, index_oid, table_oid};
use super::{Columns, Named, Rows, View, activity, view_names};
use crate::catalog::{ColumnDefault, Table};
use crate::pg_format::value_text;
use crate::types::SqlType;

pub(super) const VIEWS: [View; 11] = [
    ("pg_am", access_methods),
    ("pg_attrdef", defaults),
    ("pg_attribute", attributes),
    ("pg_class", classes),
    ("pg_constraint", constraints),
    ("pg_database", databases),
    ("pg_index", indexes),
    ("pg_namespace", namespaces),
    ("pg_roles", roles),
    ("pg_stat_activity", activity::sessions),
    ("pg_type", types),
];

pub(super) const OWNER: i64 = 10;
const CATALOG_SCHEMA: i64 = 11;
const PUBLIC_SCHEMA: i64 = 2_200;
const INFORMATION_SCHEMA: i64 = 13_000;
const ERIS_SCHEMA: i64 = 13_001;
/// Views of schema `eris` are numbered from here.
const FIRST_VIEW: i64 = 13_100;
const HEAP: i64 = 2;
const BTREE: i64 = 403;
const HASH: i64 = 405;
/// Not one of PostgreSQL's.
const INVERTED: i64 = 13_002;

/// Oid and name of the access method of an index.
fn access_method(kind: IndexKind) -> (i64, &'static str) {
    match kind {
        IndexKind::Ordered => (BTREE, "btree"),
        IndexKind::Hash => (HASH, "hash"),
        IndexKind::Inverted => (INVERTED, "inverted"),
    }
}

fn indexes_of<'a>(known: &Named<'a>) -> Vec<(&'a Arc<Table>, &'a IndexDefinition)> {
    let tables = known.catalog.tables();
    tables.flat_map(|table| table.schema.indexes.iter().map(move |index| (table, index))).collect()
}

fn is_constraint(table: &Table, index: &IndexDefinition) -> bool {
    table.constraints().any(|constraint| constraint.id == index.id)
}

/// Names of columns as in a definition.
fn column_list(table: &Table, index: &IndexDefinition) -> String {
    let names: Vec<String> =
        index.attributes.iter().map(|attribute| quoted(&table.columns[attribute.index()].name)).collect();
    names.join(", ")
}

/// A name with quotes, if it needs them.
fn quoted(name: &str) -> String {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    if name.chars().all(plain) && !name.starts_with(|c: char| c.is_ascii_digit()) {
        name.to_string()
    } else {
        format!("\"{}\"", name.replace('"', "\"\""))
    }
}

/// What `pg_get_indexdef` answers.
pub(crate) fn index_definition(table: &Table, index: &IndexDefinition) -> String {
    let unique = if index.unique { "UNIQUE " } else { "" };
    let (_, method) = access_method(index.kind);
    format!(
        "CREATE {unique}INDEX {} ON public.{} USING {method} ({})",
        quoted(&index.name),
        quoted(&table.name),
        column_list(table, index)
    )
}

/// What `pg_get_constraintdef` answers.
pub(crate) fn constraint_definition(table: &Table, index: &IndexDefinition) -> String {
    let kind = if index.primary { "PRIMARY KEY" } else { "UNIQUE" };
    format!("{kind} ({})", column_list(table, index))
}

/// A default as SQL text.
pub(super) fn default_text(table: &Table, position: usize) -> Option<String> {
    let column = &table.columns[position];
    match &column.default {
        ColumnDefault::Moment(expr) => Some(expr.to_string()),
        ColumnDefault::Value(value) => {
            let text = value_text(value)?;
            Some(match column.sql_type {
                SqlType::SmallInt | SqlType::Integer | SqlType::BigInt | SqlType::Numeric { .. } => text,
                SqlType::Boolean => (if text == "t" { "true" } else { "false" }).to_string(),
                other => format!("'{}'::{}", text.replace('\'', "''"), other.base_name()),
            })
        }
    }
}

/// What `format_type` answers for a type's id and modifier.
pub(crate) fn type_name(oid: i64, modifier: i64) -> String {
    let Some(sql_type) = u32::try_from(oid).ok().and_then(SqlType::from_oid) else { return "???".to_string() };
    let length = u32::try_from(modifier - 4).ok();
    let with_modifier = match (sql_type, length) {
        (SqlType::Numeric { .. }, Some(packed)) => {
            SqlType::Numeric { precision: (packed >> 16) as u8, scale: (packed & 0xffff) as u8 }
        }
        (SqlType::Varchar(_), length) => SqlType::Varchar(length),
        (SqlType::Char(_), length) => SqlType::Char(length),
        (other, _) => other,
    };
    with_modifier.to_string()
}

fn access_methods(_known: &Named<'_>) -> Columns {
    let kinds = [IndexKind::Ordered, IndexKind::Hash, IndexKind::Inverted];
    let indexes = kinds.map(access_method).map(|(oid, name)| (oid, name, "i"));
    Rows::new([(HEAP, "heap", "t")].into_iter().chain(indexes).collect())
        .integer("oid", |row| row.0)
        .text("amname", |row| row.1.to_string())
        .text("amtype", |row| row.2.to_string())
        .columns
}

fn namespaces(_known: &Named<'_>) -> Columns {
    let schemas = vec![
        (CATALOG_SCHEMA, "pg_catalog"),
        (PUBLIC_SCHEMA, "public"),
        (INFORMATION_SCHEMA, "information_schema"),
        (ERIS_SCHEMA, "eris"),
    ];
    Rows::new(schemas)
        .integer("oid", |row| row.0)
        .text("nspname", |row| row.1.to_string())
        .integer("nspowner", |_| OWNER)
        .text_or_null("nspacl", |_| None)
        .columns
}

fn roles(known: &Named<'_>) -> Columns {
    Rows::new(vec![known.user.to_string()])
        .integer("oid", |_| OWNER)
        .text("rolname", String::clone)
        .truth("rolsuper", |_| true)
        .truth("rolinherit", |_| true)
        .truth("rolcreaterole", |_| false)
        .truth("rolcreatedb", |_| false)
        .truth("rolcanlogin", |_| true)
        .truth("rolreplication", |_| false)
        .truth("rolbypassrls", |_| true)
        .integer("rolconnlimit", |_| -1)
        .text_or_null("rolvaliduntil", |_| None)
        .columns
}

fn databases(known: &Named<'_>) -> Columns {
    Rows::new(vec![known.database.to_string()])
        .integer("oid", |_| FIRST_USER_OID - 1)
        .text("datname", String::clone)
        .integer("datdba", |_| OWNER)
        .integer("encoding", |_| 6)
        .text("datlocprovider", |_| "c".to_string())
        .truth("datistemplate", |_| false)
        .truth("datallowconn", |_| true)
        .integer("datconnlimit", |_| -1)
        .text("datcollate", |_| "C".to_string())
        .text("datctype", |_| "C".to_string())
        .text_or_null("daticulocale", |_| None)
        .text_or_null("datacl", |_| None)
        .columns
}

/// A relation of `pg_class`.
struct Class {
    oid: i64,
    name: String,
    schema: i64,
    kind: &'static str,
    method: i64,
    attributes: usize,
    has_index: bool,
    rows: i64,
}

fn classes(known: &Named<'_>) -> Columns {
    let mut list: Vec<Class> = Vec::new();
    for table in known.catalog.tables() {
        list.push(Class {
            oid: table_oid(table),
            name: table.name.clone(),
            schema: PUBLIC_SCHEMA,
            kind: "r",
            method: HEAP,
            attributes: table.columns.len(),
            has_index: !table.schema.indexes.is_empty(),
            rows: known.engine.container(table.container()).map_or(0, |container| container.rows() as i64),
        });
    }
    for (table, index) in indexes_of(known) {
        list.push(Class {
            oid: index_oid(table, index.id),
            name: index.name.to_string(),
            schema: PUBLIC_SCHEMA,
            kind: "i",
            method: access_method(index.kind).0,
            attributes: index.attributes.len(),
            has_index: false,
            rows: 0,
        });
    }
    for (oid, name) in (FIRST_VIEW..).zip(view_names("eris")) {
        let name = name.to_string();
        list.push(Class {
            oid,
            name,
            schema: ERIS_SCHEMA,
            kind: "v",
            method: 0,
            attributes: 0,
            has_index: false,
            rows: 0,
        });
    }
    Rows::new(list)
        .integer("oid", |row| row.oid)
        .text("relname", |row| row.name.clone())
        .integer("relnamespace", |row| row.schema)
        .integer("reltype", |_| 0)
        .integer("reloftype", |_| 0)
        .integer("relowner", |_| OWNER)
        .integer("relam", |row| row.method)
        .integer("reltablespace", |_| 0)
        .integer("reltuples", |row| row.rows)
        .integer("reltoastrelid", |_| 0)
        .truth("relhasindex", |row| row.has_index)
        .truth("relisshared", |_| false)
        .text("relpersistence", |_| "p".to_string())
        .text("relkind", |row| row.kind.to_string())
        .integer("relnatts", |row| row.attributes as i64)
        .integer("relchecks", |_| 0)
        .truth("relhasrules", |_| false)
        .truth("relhastriggers", |_| false)
        .truth("relhassubclass", |_| false)
        .truth("relrowsecurity", |_| false)
        .truth("relforcerowsecurity", |_| false)
        .truth("relispopulated", |_| true)
        .text("relreplident", |_| "d".to_string())
        .truth("relispartition", |_| false)
        .text_or_null("reloptions", |_| None)
        .text_or_null("relacl", |_| None)
        .text_or_null("relpartbound", |_| None)
        .columns
}

fn columns_of<'a>(known: &Named<'a>) -> Vec<(&'a Arc<Table>, usize)> {
    known.catalog.tables().flat_map(|table| (0..table.columns.len()).map(move |position| (table, position))).collect()
}

fn attributes(known: &Named<'_>) -> Columns {
    Rows::new(columns_of(known))
        .integer("attrelid", |(table, _)| table_oid(table))
        .text("attname", |(table, position)| table.columns[*position].name.clone())
        .integer("atttypid", |(table, position)| i64::from(table.columns[*position].sql_type.oid()))
        .integer("attlen", |(table, position)| i64::from(table.columns[*position].sql_type.typlen()))
        .integer("attnum", |(_, position)| *position as i64 + 1)
        .integer("atttypmod", |(table, position)| i64::from(table.columns[*position].sql_type.typmod()))
        .truth("attnotnull", |(table, position)| table.columns[*position].not_null)
        .truth("atthasdef", |(table, position)| default_text(table, *position).is_some())
        .text("attidentity", |_| String::new())
        .text("attgenerated", |_| String::new())
        .truth("attisdropped", |_| false)
        .integer("attcollation", |_| 0)
        .columns
}

fn defaults(known: &Named<'_>) -> Columns {
    let mut list = columns_of(known);
    list.retain(|(table, position)| default_text(table, *position).is_some());
    Rows::new(list)
        .integer("adrelid", |(table, _)| table_oid(table))
        .integer("adnum", |(_, position)| *position as i64 + 1)
        .text_or_null("adbin", |(table, position)| default_text(table, *position))
        .columns
}

fn indexes(known: &Named<'_>) -> Columns {
    Rows::new(indexes_of(known))
        .integer("indexrelid", |(table, index)| index_oid(table, index.id))
        .integer("indrelid", |(table, _)| table_oid(table))
        .integer("indnatts", |(_, index)| index.attributes.len() as i64)
        .truth("indisunique", |(_, index)| index.unique)
        .truth("indisprimary", |(_, index)| index.primary)
        .truth("indisclustered", |_| false)
        .truth("indisvalid", |_| true)
        .truth("indisready", |_| true)
        .truth("indislive", |_| true)
        .truth("indisreplident", |_| false)
        .text("indkey", |(_, index)| {
            let numbers: Vec<String> =
                index.attributes.iter().map(|attribute| (attribute.index() + 1).to_string()).collect();
            numbers.join(" ")
        })
        .columns
}

fn constraints(known: &Named<'_>) -> Columns {
    let mut list = indexes_of(known);
    list.retain(|(table, index)| is_constraint(table, index));
    Rows::new(list)
        .integer("oid", |(table, index)| index_oid(table, index.id))
        .text("conname", |(_, index)| index.name.to_string())
        .integer("connamespace", |_| PUBLIC_SCHEMA)
        .text("contype", |(_, index)| (if index.primary { "p" } else { "u" }).to_string())
        .truth("condeferrable", |_| false)
        .truth("condeferred", |_| false)
        .truth("convalidated", |_| true)
        .integer("conrelid", |(table, _)| table_oid(table))
        .integer("conindid", |(table, index)| index_oid(table, index.id))
        .integer("confrelid", |_| 0)
        .columns
}

fn types(_known: &Named<'_>) -> Columns {
    let list = vec![
        (SqlType::Boolean, "bool", "B"),
        (SqlType::Bytea, "bytea", "U"),
        (SqlType::BigInt, "int8", "N"),
        (SqlType::SmallInt, "int2", "N"),
        (SqlType::Integer, "int4", "N"),
        (SqlType::Text, "text", "S"),
        (SqlType::Real, "float4", "N"),
        (SqlType::Double, "float8", "N"),
        (SqlType::Char(None), "bpchar", "S"),
        (SqlType::Varchar(None), "varchar", "S"),
        (SqlType::Date, "date", "D"),
        (SqlType::Timestamp, "timestamp", "D"),
        (SqlType::Interval, "interval", "T"),
        (SqlType::NUMERIC, "numeric", "N"),
    ];
    Rows::new(list)
        .integer("oid", |row| i64::from(row.0.oid()))
        .text("typname", |row| row.1.to_string())
        .integer("typnamespace", |_| CATALOG_SCHEMA)
        .integer("typowner", |_| OWNER)
        .integer("typlen", |row| i64::from(row.0.typlen()))
        .text("typtype", |_| "b".to_string())
        .text("typcategory", |row| row.2.to_string())
        .text("typdelim", |_| ",".to_string())
        .integer("typrelid", |_| 0)
        .integer("typelem", |_| 0)
        .integer("typarray", |_| 0)
        .integer("typbasetype", |_| 0)
        .integer("typtypmod", |_| -1)
        .integer("typcollation", |_| 0)
        .truth("typnotnull", |_| false)
        .columns
}
