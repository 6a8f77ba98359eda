//! The names that an expression may use.

use std::sync::Arc;

use eris_query::{ColumnId, Scalar, ScannedColumn, Unplanned};
use eris_storage::AttributeId;

use super::Binding;
use crate::catalog::Table;

/// The tables of a FROM.
#[derive(Default)]
pub(super) struct Scope {
    sources: Vec<Source>,
}

/// A table by the name that it has in the statement.
struct Source {
    name: String,
    table: Arc<Table>,
    /// Its first column; the others follow.
    first: u32,
}

impl Scope {
    /// Adds a table; its columns get the next numbers.
    pub fn add(&mut self, table: &Arc<Table>, name: &str, next: &mut u32) -> Vec<ScannedColumn> {
        let first = *next;
        *next += table.columns.len() as u32;
        self.sources.push(Source { name: name.to_string(), table: Arc::clone(table), first });
        let columns = table.columns.iter().enumerate();
        columns
            .map(|(at, column)| ScannedColumn {
                column: ColumnId(first + at as u32),
                attribute: AttributeId(at as u16),
                sql_type: column.sql_type,
            })
            .collect()
    }

    /// The column of a name, of a table or of any.
    pub fn column(&self, table: Option<&str>, name: &str) -> Binding<Scalar> {
        let mut found = None;
        for source in self.sources.iter().filter(|source| table.is_none_or(|table| source.name == table)) {
            if let Some((attribute, column)) = source.table.column(name) {
                if found.is_some() {
                    return Err(Unplanned(format!("column reference \"{name}\" is ambiguous")));
                }
                let id = ColumnId(source.first + u32::from(attribute.0));
                found = Some(Scalar::column(id, column.sql_type));
            }
        }
        found.ok_or_else(|| Unplanned(format!("column \"{name}\" does not exist")))
    }

    /// The columns that `*` or `table.*` stands for, with their names.
    pub fn all(&self, table: Option<&str>) -> Binding<Vec<(String, Scalar)>> {
        let mut all = Vec::new();
        for source in self.sources.iter().filter(|source| table.is_none_or(|table| source.name == table)) {
            all.extend(source.table.columns.iter().enumerate().map(|(at, column)| {
                (column.name.clone(), Scalar::column(ColumnId(source.first + at as u32), column.sql_type))
            }));
        }
        if all.is_empty() { Err(Unplanned::because("* of no table")) } else { Ok(all) }
    }
}
