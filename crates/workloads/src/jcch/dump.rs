//! Writes a scale factor as a directory that other systems can load: schema and `.tbl` files as those of TPC-H, the 22
//! queries in each of the two parameter sets, and the workload.
//!
//! ```text
//! schema.sql  lineitem.tbl  ...          as for TPC-H
//! normal/q1.sql  ...  skewed/q22.sql     one query each
//! normal/workload.sql                    200 statements, each ended by a semicolon, in the order to run them
//! ```

use super::generate::generate;
use super::parameters::ParameterSet;
use super::population::Population;
use super::workload::{WORKLOAD_QUERIES, WORKLOAD_SEED, each_query, workload};
use crate::tpch::TablePart;
use crate::tpch::dump::{write_schema, write_tables};
use std::fs;
use std::io;
use std::path::Path;

/// Writes the texts and, unless they are complete already, the data files.
pub fn write_directory(directory: &Path, population: &Population) -> io::Result<()> {
    write_texts(directory, population)?;
    write_tables(directory, |table| generate(table, population, TablePart::WHOLE))
}

/// Writes only the schema and the queries.
pub fn write_texts(directory: &Path, population: &Population) -> io::Result<()> {
    write_schema(directory)?;
    let scale_factor = population.scale_factor();
    for set in ParameterSet::ALL {
        let directory = directory.join(set.name());
        fs::create_dir_all(&directory)?;
        for query in each_query(set, WORKLOAD_SEED) {
            fs::write(directory.join(format!("{}.sql", query.number.name())), query.sql(scale_factor))?;
        }
        let queries = workload(set, WORKLOAD_SEED, WORKLOAD_QUERIES);
        let statements: Vec<String> = queries.iter().map(|query| query.sql(scale_factor) + ";\n").collect();
        fs::write(directory.join("workload.sql"), statements.concat())?;
    }
    Ok(())
}
