//! The names that an expression may use.

use std::sync::Arc;

use eris_query::{ColumnId, Scalar, ScannedColumn, Unplanned};
use eris_storage::AttributeId;

use super::{Binding, OutputColumn};
use crate::catalog::Table;

/// The tables of a FROM, and what is seen from there of the queries that it stands in.
#[derive(Default)]
pub(super) struct Scope<'o> {
    sources: Vec<Source>,
    outside: Option<&'o Scope<'o>>,
}

/// Columns by the name that they have in common.
struct Source {
    name: String,
    columns: Columns,
}

enum Columns {
    /// Of a table.
    Table {
        table: Arc<Table>,
        /// Its first column; the others follow.
        first: u32,
    },
    /// Of a subquery.
    Results(Vec<OutputColumn>),
}

impl Source {
    /// Calls `found` with each column of a name.
    fn columns_named(&self, name: &str, found: &mut dyn FnMut(Scalar)) {
        match &self.columns {
            Columns::Table { table, first } => {
                if let Some((attribute, column)) = table.column(name) {
                    found(Scalar::column(ColumnId(first + u32::from(attribute.0)), column.sql_type));
                }
            }
            Columns::Results(results) => results
                .iter()
                .filter(|result| result.name == name)
                .for_each(|result| found(Scalar::column(result.column, result.sql_type))),
        }
    }

    /// All columns with their names.
    fn all(&self) -> Vec<(String, Scalar)> {
        match &self.columns {
            Columns::Table { table, first } => {
                let column = |(at, column): (usize, &crate::catalog::TableColumn)| {
                    (column.name.clone(), Scalar::column(ColumnId(first + at as u32), column.sql_type))
                };
                table.columns.iter().enumerate().map(column).collect()
            }
            Columns::Results(results) => {
                let column =
                    |result: &OutputColumn| (result.name.clone(), Scalar::column(result.column, result.sql_type));
                results.iter().map(column).collect()
            }
        }
    }
}

impl<'o> Scope<'o> {
    /// Without tables so far, below another one.
    pub fn below(outside: Option<&'o Self>) -> Self {
        Self { sources: Vec::new(), outside }
    }

    /// Without tables, below the same one.
    pub fn beside(&self) -> Self {
        Self::below(self.outside)
    }

    /// Adds a table; its columns get the next numbers.
    pub fn add(&mut self, table: &Arc<Table>, name: &str, next: &mut u32) -> Binding<Vec<ScannedColumn>> {
        let first = *next;
        *next += table.columns.len() as u32;
        self.push(Source { name: name.to_string(), columns: Columns::Table { table: Arc::clone(table), first } })?;
        let columns = table.columns.iter().enumerate();
        let scanned = columns.map(|(at, column)| ScannedColumn {
            column: ColumnId(first + at as u32),
            attribute: AttributeId(at as u16),
            sql_type: column.sql_type,
        });
        Ok(scanned.collect())
    }

    /// Adds the results of a subquery.
    pub fn add_results(&mut self, name: &str, results: Vec<OutputColumn>) -> Binding<()> {
        self.push(Source { name: name.to_string(), columns: Columns::Results(results) })
    }

    /// Adds the tables of another scope.
    pub fn extend(&mut self, other: Scope<'_>) -> Binding<()> {
        other.sources.into_iter().try_for_each(|source| self.push(source))
    }

    fn push(&mut self, source: Source) -> Binding<()> {
        if self.sources.iter().any(|known| known.name == source.name) {
            return Err(Unplanned(format!("table name \"{}\" specified more than once", source.name)));
        }
        self.sources.push(source);
        Ok(())
    }

    fn sources<'s>(&'s self, table: Option<&'s str>) -> impl Iterator<Item = &'s Source> {
        self.sources.iter().filter(move |source| table.is_none_or(|table| source.name == table))
    }

    /// The column of a name, of a table or of any; `None`: there is none.
    pub fn find(&self, table: Option<&str>, name: &str) -> Binding<Option<Scalar>> {
        let mut all = Vec::new();
        let mut is_own = false;
        for source in self.sources(table) {
            is_own = table.is_some();
            source.columns_named(name, &mut |column| all.push(column));
        }
        if all.is_empty() && is_own {
            return Ok(None);
        }
        if all.len() > 1 {
            return Err(Unplanned(format!("column reference \"{name}\" is ambiguous")));
        }
        match (all.pop(), self.outside) {
            (None, Some(outside)) => outside.find(table, name),
            (found, _) => Ok(found),
        }
    }

    /// Whether one of its own columns has this name.
    pub fn has(&self, name: &str) -> bool {
        let mut found = false;
        self.sources.iter().for_each(|source| source.columns_named(name, &mut |_| found = true));
        found
    }

    /// The column of a name, of a table or of any.
    pub fn column(&self, table: Option<&str>, name: &str) -> Binding<Scalar> {
        self.find(table, name)?.ok_or_else(|| Unplanned(format!("column \"{name}\" does not exist")))
    }

    /// The columns that `*` or `table.*` stands for, with their names.
    pub fn all(&self, table: Option<&str>) -> Binding<Vec<(String, Scalar)>> {
        let all: Vec<(String, Scalar)> = self.sources(table).flat_map(Source::all).collect();
        if all.is_empty() { Err(Unplanned::because("* of no table")) } else { Ok(all) }
    }
}
