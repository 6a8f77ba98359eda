//! The eight tables, filled in parallel: generated rows straight into the containers, or `.tbl` files.
//!
//! Every part is a task of the engine with a bulk load and a transaction of its own. Generating and parsing happen in
//! the tasks too, so as many parts as workers keep all of them busy.

use super::options::AnalyticsOptions;
use super::suite::Generator;
use crate::error::BenchError;
use crate::instance::Instance;
use eris_engine::Engine;
use eris_storage::{Batch, ContainerId};
use eris_workloads::tpch::tbl::{TblError, TblReader, table_files};
use eris_workloads::tpch::{Chunk, Table, TablePart};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// One source of rows.
enum Source {
    Generated { generator: Generator, part: TablePart },
    File(PathBuf),
}

/// Batches, each with the bytes of its values.
pub(super) type Rows = Box<dyn Iterator<Item = Result<(u64, Batch), TblError>> + Send>;

/// What was loaded.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Loaded {
    pub rows: u64,
    /// Bytes of the values alone: 4 or 8 for a number or a date, as many as it has for a text.
    pub value_bytes: u64,
    pub took: Duration,
}

fn with_value_bytes(chunk: Chunk) -> (u64, Batch) {
    (chunk.value_bytes(), chunk.into_batch())
}

impl Source {
    fn open(self, table: Table) -> Result<Rows, TblError> {
        match self {
            Self::Generated { generator, part } => {
                Ok(Box::new(generator.rows(table, part).map(|chunk| Ok(with_value_bytes(chunk)))))
            }
            Self::File(path) => {
                let mut reader = TblReader::open(&path, table)?;
                Ok(Box::new(std::iter::from_fn(move || {
                    reader.next_chunk().map(|chunk| chunk.map(with_value_bytes)).transpose()
                })))
            }
        }
    }
}

/// Creates and fills all tables.
pub fn load(instance: &Instance, options: &AnalyticsOptions) -> Result<Loaded, BenchError> {
    let start = Instant::now();
    let generator = options.suite.generator(options.scale_factor)?;
    let storage_options = options.storage_options();
    for table in Table::ALL {
        instance.execute(&table.create_statement(&storage_options))?;
    }
    let mut loads: Vec<(Table, Source)> = Vec::new();
    for table in Table::ALL {
        if let Some(directory) = &options.data {
            loads.extend(table_files(directory, table)?.into_iter().map(|path| (table, Source::File(path))));
        } else {
            let count = options.workers.max(1) as u32;
            let parts = (0..count).map(|index| TablePart { index, count });
            loads.extend(parts.map(|part| (table, Source::Generated { generator, part })));
        }
    }
    let (sender, receiver) = mpsc::channel();
    for (table, source) in loads {
        let container = instance.container(table.name())?;
        let (engine, sender) = (instance.engine().clone(), sender.clone());
        instance.engine().spawn(async move {
            let loaded = load_part(&engine, container, table, source).await;
            // The receiver waits below for all parts, unless one has failed already.
            let _ = sender.send(loaded);
        });
    }
    drop(sender);
    let mut all = Loaded::default();
    for loaded in receiver {
        let (rows, value_bytes) = loaded?;
        all.rows += rows;
        all.value_bytes += value_bytes;
    }
    Ok(Loaded { took: start.elapsed(), ..all })
}

/// Gives the rows of the part, and the bytes of their values.
async fn load_part(
    engine: &Engine,
    container: ContainerId,
    table: Table,
    source: Source,
) -> Result<(u64, u64), BenchError> {
    load_rows(engine, container, source.open(table)?).await
}

/// Loads rows in a transaction of their own; how many there were, and the bytes of their values.
pub(super) async fn load_rows(engine: &Engine, container: ContainerId, rows: Rows) -> Result<(u64, u64), BenchError> {
    let mut transaction = engine.begin();
    let mut bulk = transaction.bulk(container)?;
    let mut value_bytes = 0;
    for batch in rows {
        let (bytes, batch) = batch?;
        value_bytes += bytes;
        bulk.append(batch).await?;
    }
    let rows = bulk.finish().await?;
    transaction.commit().await?;
    Ok((rows, value_bytes))
}

/// Links the data files of a directory into another one.
pub(super) fn link_files(from: &Path, to: &Path) -> Result<(), BenchError> {
    for table in Table::ALL {
        let files = table_files(from, table)?;
        let [file] = files.as_slice() else {
            let message = format!("peers read one file per table; {} has {}", table.name(), files.len());
            return Err(BenchError::Options(message));
        };
        let link = to.join(format!("{}.tbl", table.name()));
        if link.symlink_metadata().is_ok() {
            std::fs::remove_file(&link)?;
        }
        std::os::unix::fs::symlink(file.canonicalize()?, link)?;
    }
    Ok(())
}
