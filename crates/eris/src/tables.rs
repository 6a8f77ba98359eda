//! The tables of a database, for people.

use eris_sql::catalog::Table;
use eris_storage::IndexDefinition;

/// A table and what belongs to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableDescription {
    pub name: String,
    pub columns: Vec<TableColumn>,
    pub indexes: Vec<TableIndex>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableColumn {
    pub name: String,
    /// As SQL writes it.
    pub type_name: String,
    pub nullable: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableIndex {
    pub name: String,
    pub columns: Vec<String>,
    pub unique: bool,
    pub primary: bool,
}

impl TableDescription {
    pub(crate) fn of(table: &Table) -> TableDescription {
        let columns = table.columns.iter().map(|column| TableColumn {
            name: column.name.clone(),
            type_name: column.sql_type.to_string(),
            nullable: !column.not_null,
        });
        let index = |definition: &IndexDefinition| TableIndex {
            name: definition.name.to_string(),
            columns: definition.attributes.iter().map(|id| table.columns[usize::from(id.0)].name.clone()).collect(),
            unique: definition.unique,
            primary: definition.primary,
        };
        TableDescription {
            name: table.name.clone(),
            columns: columns.collect(),
            indexes: table.schema.indexes.iter().map(index).collect(),
        }
    }
}
