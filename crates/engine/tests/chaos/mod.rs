//! What goes wrong above the machine: statements that are cancelled, tasks that are dropped or panic, operators that
//! panic, containers that vanish and schemas that move under statements; and which errors are part of the game.

mod tasks;

use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Once};
use std::task::Poll;
use std::time::Duration;

use eris_engine::{
    CancelHandle, Change, Engine, EngineError, IsolationLevel, MicroOperator, OperatorState, Output, RowChange,
    Transaction,
};
use eris_platform::SeededRandom;
use eris_storage::{AttributeId, Batch, Gateway, StorageError, Timestamp};

use crate::lists::{LENGTH, LIST};

pub use tasks::{move_schemas, panic_in_tasks, vanish_containers};

/// What every panic that is part of the game says.
pub const INJECTED: &str = "a fault of the simulation";

/// What is shared by all clients of a run.
#[derive(Default)]
pub struct Chaos {
    calm: AtomicBool,
    moments: AtomicU64,
    finished: AtomicU64,
    counts: Mutex<BTreeMap<&'static str, u64>>,
}

/// What will become of a transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Doom {
    None,
    Cancelled,
    DroppedAfter(Duration),
}

/// The longest time until a doomed transaction is cancelled or dropped.
const DOOM_MICROS_MAX: u64 = 3_000;

impl Chaos {
    /// From now on clients do nothing wrong.
    pub fn calm_down(&self) {
        self.calm.store(true, Ordering::Relaxed);
    }

    pub fn is_calm(&self) -> bool {
        self.calm.load(Ordering::Relaxed)
    }

    /// A number that is given once: of a moment, of an element.
    pub fn tick(&self) -> u64 {
        self.moments.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// A client is through with a transaction.
    pub fn finished(&self) {
        self.finished.fetch_add(1, Ordering::Relaxed);
    }

    pub fn transactions_finished(&self) -> u64 {
        self.finished.load(Ordering::Relaxed)
    }

    pub fn count(&self, what: &'static str) {
        *self.counts.lock().expect("one thread").entry(what).or_default() += 1;
    }

    pub fn counts(&self) -> BTreeMap<&'static str, u64> {
        self.counts.lock().expect("one thread").clone()
    }

    /// Whether this goes wrong now; counted if it does.
    pub fn strikes(&self, what: &'static str, probability: f64, random: &mut SeededRandom) -> bool {
        let strikes = !self.is_calm() && random.chance(probability);
        if strikes {
            self.count(what);
        }
        strikes
    }

    /// Draws what will become of a transaction, and sees to it.
    pub fn doom(&self, engine: &Engine, transaction: &mut Transaction, random: &mut SeededRandom) -> Doom {
        if self.is_calm() {
            return Doom::None;
        }
        let span = Duration::from_micros(random.below(DOOM_MICROS_MAX));
        match random.below(20) {
            0 | 1 => {
                let handle = CancelHandle::default();
                transaction.set_cancel(handle.clone());
                let sleep = engine.sleep_until(engine.env().now() + span);
                engine.spawn(async move {
                    sleep.await;
                    handle.cancel();
                });
                Doom::Cancelled
            }
            2 => Doom::DroppedAfter(span),
            _ => Doom::None,
        }
    }

    /// Any level.
    pub fn level(random: &mut SeededRandom) -> IsolationLevel {
        use IsolationLevel::{ReadCommitted, RepeatableRead, Serializable};
        [ReadCommitted, RepeatableRead, Serializable][random.index(3)]
    }

    /// What became of a commit: nothing but the order of SERIALIZABLE transactions stands in its way, unless it was
    /// cancelled before its record was in the log.
    ///
    /// # Panics
    /// If something else did.
    pub fn committed(&self, result: Result<Timestamp, EngineError>) -> Option<Timestamp> {
        match result {
            Ok(timestamp) => Some(timestamp),
            Err(error @ (EngineError::Unserializable { .. } | EngineError::Cancelled)) => {
                self.expect(&error);
                None
            }
            Err(error) => panic!("a commit that conflicts nowhere succeeds: {error}"),
        }
    }

    pub fn lock_timeout(random: &mut SeededRandom) -> Option<Duration> {
        let timeouts = [None, None, None, Some(0), Some(1), Some(50)];
        timeouts[random.index(timeouts.len())].map(Duration::from_millis)
    }

    /// Counts an error that is part of the game.
    ///
    /// # Panics
    /// If it is not.
    pub fn expect(&self, error: &EngineError) {
        let what = match error {
            EngineError::Memory(_) | EngineError::Storage(StorageError::Memory(_)) => "out of memory",
            EngineError::Cancelled => "statement cancelled",
            EngineError::OperatorPanicked(text) if text == INJECTED => "operator panicked, told",
            EngineError::LockTimeout | EngineError::LockNotAvailable | EngineError::TableLockNotAvailable(_) => {
                "lock not obtained"
            }
            EngineError::NoSuchContainer(_) => "container vanished",
            EngineError::SchemaMoved | EngineError::Storage(StorageError::SchemaMoved) => "schema moved",
            EngineError::Storage(StorageError::DuplicateKey { .. }) => "duplicate key",
            EngineError::ForeignKeyViolation(_) => "foreign key kept",
            EngineError::Unserializable { .. } => "unserializable",
            EngineError::SnapshotTooOld => "snapshot too old",
            error if error.is_retryable() => "lost",
            error => panic!("unexpected error: {error}"),
        };
        self.count(what);
    }
}

/// Runs a future for at most this long, then drops it wherever it is.
pub async fn drop_after<T>(engine: &Engine, span: Duration, future: impl Future<Output = T>) -> Option<T> {
    let mut sleep = pin!(engine.sleep_until(engine.env().now() + span));
    let mut future = pin!(future);
    poll_fn(|context| {
        if let Poll::Ready(value) = future.as_mut().poll(context) {
            return Poll::Ready(Some(value));
        }
        sleep.as_mut().poll(context).map(|()| None)
    })
    .await
}

/// Panics that are part of the game are not printed.
pub fn silence_injected_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if panic.payload().downcast_ref::<&str>() != Some(&INJECTED) {
                before(panic);
            }
        }));
    });
}

struct PanickingAppend;

impl RowChange for PanickingAppend {
    fn inputs(&self) -> usize {
        3
    }

    fn attributes(&self) -> &[AttributeId] {
        &[LIST, LENGTH]
    }

    fn apply(&self, _batch: &Batch) -> Result<Change, EngineError> {
        std::panic::panic_any(INJECTED)
    }
}

/// A change of lists that panics.
pub fn panicking_append() -> Arc<dyn RowChange> {
    Arc::new(PanickingAppend)
}

/// An operator that panics at its first batch, after it has handed it on.
pub struct Panicking;

impl MicroOperator for Panicking {
    fn open(&self) -> Box<dyn OperatorState> {
        Box::new(Panicking)
    }
}

impl OperatorState for Panicking {
    fn batch(&mut self, gateway: Gateway, output: &mut Output<'_>) -> Result<(), EngineError> {
        output.emit(gateway.batch)?;
        std::panic::panic_any(INJECTED)
    }

    fn finish(&mut self, _output: &mut Output<'_>) -> Result<(), EngineError> {
        Ok(())
    }
}
