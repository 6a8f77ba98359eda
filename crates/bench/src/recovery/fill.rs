//! Filling a directory that is to be recovered, and leaving it open.

use std::sync::{Arc, mpsc};
use std::time::Instant;

use eris_engine::{Durability, Engine, EngineError, yield_now};
use eris_storage::{Batch, ContainerId, DataType, Value};
use serde::{Deserialize, Serialize};

use super::{RecoverFrom, RecoveryOptions};
use crate::analytics::{AnalyticsOptions, load};
use crate::error::BenchError;
use crate::instance::Instance;

/// Tasks that insert rows, each in transactions of its own.
const WRITERS: u64 = 8;
/// Transactions that a writer begins before it lets others work.
const TURN: u64 = 32;
const NOTE: &str = "the text of an entry, which is about as long as comments and names of others together";

const ENTRIES: &str =
    "CREATE TABLE entries (id bigint PRIMARY KEY, account int NOT NULL, amount bigint NOT NULL, note text NOT NULL)";

/// How the bytes of table data are counted.
pub(super) const COUNTED: &str =
    "values of the rows that are there: 4 or 8 bytes for a number or a date, its own bytes for a text";

/// What a directory was filled with; every commit of it is durable.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Filled {
    pub rows: u64,
    pub value_bytes: u64,
    pub seconds: f64,
}

/// Fills a new directory and takes a checkpoint, if it is to have one. The database is still open then: it is up to
/// the caller how it ends.
pub fn fill(options: &RecoveryOptions) -> Result<(Instance, Filled), BenchError> {
    let begun = Instant::now();
    let instance = options.open()?;
    let (rows, value_bytes) = match options.from {
        RecoverFrom::Checkpoint | RecoverFrom::Load => {
            let (scale_factor, workers) = (options.scale_factor, options.workers);
            let of_load = AnalyticsOptions { scale_factor, workers, ..AnalyticsOptions::default() };
            let loaded = load(&instance, &of_load)?;
            (loaded.rows, loaded.value_bytes)
        }
        RecoverFrom::Transactions => insert_one_by_one(&instance, options.transactions)?,
    };
    if options.from == RecoverFrom::Checkpoint {
        let files = Arc::clone(instance.files()?);
        instance.engine().block_on(async move { files.checkpoint().await })??;
    }
    let engine = instance.engine().clone();
    instance.engine().block_on(async move { engine.sync_log().await })??;
    Ok((instance, Filled { rows, value_bytes, seconds: begun.elapsed().as_secs_f64() }))
}

/// So many transactions that insert a row each; gives rows and their bytes.
fn insert_one_by_one(instance: &Instance, transactions: u64) -> Result<(u64, u64), BenchError> {
    instance.execute(ENTRIES)?;
    let container = instance.container("entries")?;
    let (sender, receiver) = mpsc::channel();
    for first in 0..WRITERS {
        let (engine, sender) = (instance.engine().clone(), sender.clone());
        instance.engine().spawn(async move {
            // The receiver waits below, unless one has failed already.
            let _ = sender.send(insert(&engine, container, (first..transactions).step_by(WRITERS as usize)).await);
        });
    }
    drop(sender);
    for inserted in receiver {
        inserted?;
    }
    let row_bytes = size_of::<i64>() + size_of::<i32>() + size_of::<i64>() + NOTE.len();
    Ok((transactions, transactions * row_bytes as u64))
}

async fn insert(engine: &Engine, container: ContainerId, ids: impl Iterator<Item = u64>) -> Result<(), EngineError> {
    let types = [DataType::Int64, DataType::Int32, DataType::Int64, DataType::Text];
    for (number, id) in (1..).zip(ids) {
        let row = vec![
            Value::Int64(id as i64),
            Value::Int32((id % 1_000) as i32),
            Value::Int64(id as i64 * 7),
            Value::Text(NOTE.into()),
        ];
        let mut transaction = engine.begin();
        // The log is synced at the end.
        transaction.set_durability(Durability::Asynchronous);
        transaction.insert(container, Batch::from_rows(&types, &[row])).await?;
        transaction.commit().await?;
        if number % TURN == 0 {
            yield_now().await;
        }
    }
    Ok(())
}
