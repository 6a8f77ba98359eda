//! Writes a scale factor as a directory that other systems can load: `schema.sql`, `q1.sql` to `q22.sql` and one
//! `.tbl` file per table. Peers and the stored answers run on exactly these rows and texts.

use super::generate::{TablePart, generate};
use super::queries::QueryNumber;
use super::rows::Chunks;
use super::schema::Table;
use super::tbl::write_chunk;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::Path;

/// Writes the texts and, unless they are complete already, the data files.
pub fn write_directory(directory: &Path, scale_factor: f64) -> io::Result<()> {
    write_texts(directory, scale_factor)?;
    write_tables(directory, |table| generate(table, scale_factor, TablePart::WHOLE))
}

/// Writes the data files that are not complete already.
///
/// A table's file appears under its name only when it is complete, so an interrupted run is repaired by the next one.
pub(crate) fn write_tables(directory: &Path, rows: impl Fn(Table) -> Chunks) -> io::Result<()> {
    for table in Table::ALL {
        let path = directory.join(format!("{}.tbl", table.name()));
        if path.is_file() {
            continue;
        }
        let unfinished = directory.join(format!("{}.tbl.unfinished", table.name()));
        let mut out = BufWriter::with_capacity(1 << 20, File::create(&unfinished)?);
        for chunk in rows(table) {
            write_chunk(&mut out, &chunk)?;
        }
        out.flush()?;
        fs::rename(&unfinished, &path)?;
    }
    Ok(())
}

/// Writes only the schema and the queries, for data that came from somewhere else.
pub fn write_texts(directory: &Path, scale_factor: f64) -> io::Result<()> {
    write_schema(directory)?;
    for query in QueryNumber::all() {
        fs::write(directory.join(format!("{}.sql", query.name())), query.sql(scale_factor))?;
    }
    Ok(())
}

/// Writes the schema into a directory, which is made if there is none.
pub(crate) fn write_schema(directory: &Path) -> io::Result<()> {
    fs::create_dir_all(directory)?;
    let statements: Vec<String> = Table::ALL.iter().map(|table| table.create_statement("") + ";\n").collect();
    fs::write(directory.join("schema.sql"), statements.concat())
}
