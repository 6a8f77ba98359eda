//! A row into which the time is committed again and again: how old the newest commit is that a query sees.
//!
//! ```text
//!   writer   stamp = now ── update, commit ── the commit is told ── pause ── stamp = now ── ...
//!   query    told stamp? ── BEGIN ── SELECT stamp ── age = now - stamp ── the query ── COMMIT
//! ```
//! The SELECT and the query behind it have one snapshot, so the age is that of the newest commit which the query itself
//! sees, when it starts. It is never too small: the stamp is taken before its commit begins, and the age when the stamp
//! has been read. The pause between two commits is part of it. A snapshot that lacks a commit which had been told
//! before the block began is *stale*; there must be none.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use eris_engine::{Engine, EngineError, Read};
use eris_platform::Nanos;
use eris_sql::{Session, SqlError};
use eris_storage::{AttributeId, ContainerId, DataType, Predicate, ReadRequest, Value};
use eris_workloads::connection::SqlValue;
use eris_workloads::histogram::Histogram;
use eris_workloads::set_constant;

use crate::error::BenchError;
use crate::instance::{Instance, timed_query};

pub(super) const RULE: &str = "from before the commit of the newest stamp that a query's snapshot has until the stamp \
                               was read in the query's transaction, just before the query; a stamp about every 100 us";
/// From the end of a commit to the next stamp: half a quantum. It costs two or three per cent of a worker.
const PAUSE: Duration = Duration::from_micros(100);

const ID: AttributeId = AttributeId(0);
const STAMP: AttributeId = AttributeId(1);

/// The row, and what was told of it.
#[derive(Clone)]
pub(super) struct Heartbeat {
    engine: Engine,
    container: ContainerId,
    /// The newest stamp whose commit was told, in nanoseconds of the engine's clock.
    told: Arc<AtomicU64>,
}

/// What a snapshot sees.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    pub age: Duration,
    pub stale: bool,
}

impl Heartbeat {
    pub fn create(instance: &Instance) -> Result<Self, BenchError> {
        instance.execute("CREATE TABLE heartbeat (id int PRIMARY KEY, stamp bigint NOT NULL)")?;
        instance.execute("INSERT INTO heartbeat VALUES (1, 0)")?;
        let container = instance.container("heartbeat")?;
        Ok(Self { engine: instance.engine().clone(), container, told: Arc::default() })
    }

    /// Begins a block with one snapshot and says what the snapshot sees.
    pub async fn begin_block(&self, session: &mut Session) -> Result<Seen, SqlError> {
        let now = || self.engine.env().now();
        let told = self.told.load(Ordering::Acquire);
        timed_query(session, "BEGIN ISOLATION LEVEL REPEATABLE READ", 1, now).await?;
        // The block's first statement that reads: it takes the snapshot.
        let read = timed_query(session, "SELECT stamp FROM heartbeat WHERE id = 1", 1, now).await?;
        let at = now();
        let rows = read.into_answer().rows;
        let stamp = rows.first().and_then(|row| row.first()).and_then(SqlValue::as_int).unwrap_or(0) as u64;
        Ok(Seen { age: at - Nanos(stamp), stale: stamp < told })
    }

    async fn beat(&self) -> Result<(), EngineError> {
        let predicate = Predicate::equal(ID, Value::Int32(1));
        let request = ReadRequest { predicate, desired: Arc::new([]), order: None };
        let read = Read { container: self.container, request };
        let stamp = self.engine.env().now().0;
        let change = set_constant(STAMP, DataType::Int64, Value::Int64(stamp as i64));
        let mut transaction = self.engine.begin();
        let changed = transaction.update(&read, change).await?;
        assert_eq!(changed, 1, "the heartbeat is one row");
        transaction.commit().await?;
        self.told.store(stamp, Ordering::Release);
        Ok(())
    }

    /// Begins to beat; the first time before this returns.
    pub fn start(&self) -> Result<Beating, EngineError> {
        let first = self.clone();
        self.engine.block_on(async move { first.beat().await })??;
        let stop = Arc::new(AtomicBool::new(false));
        let (sender, ended) = mpsc::channel();
        let (heartbeat, told_stop) = (self.clone(), Arc::clone(&stop));
        self.engine.spawn(async move {
            // The receiver waits for it; it is gone only if the run is.
            let _ = sender.send(heartbeat.beat_until(&told_stop).await);
        });
        Ok(Beating { stop, ended })
    }

    /// The times from the end of one commit to that of the next.
    async fn beat_until(&self, stop: &AtomicBool) -> Result<Histogram, EngineError> {
        let env = Arc::clone(self.engine.env());
        let mut intervals = Histogram::default();
        let mut last = env.now();
        while !stop.load(Ordering::Acquire) {
            self.engine.sleep_until(last + PAUSE).await;
            self.beat().await?;
            let told = env.now();
            intervals.record(told.0 - last.0);
            last = told;
        }
        Ok(intervals)
    }
}

/// A heartbeat that is on until this ends.
pub(super) struct Beating {
    stop: Arc<AtomicBool>,
    ended: mpsc::Receiver<Result<Histogram, EngineError>>,
}

impl Beating {
    /// Ends it; the times from one commit to the next.
    pub fn end(self) -> Result<Histogram, EngineError> {
        self.stop.store(true, Ordering::Release);
        let lost = |_| EngineError::OperatorPanicked("the heartbeat ended without a result".to_owned());
        self.ended.recv().map_err(lost)?
    }
}

impl Drop for Beating {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
    }
}
