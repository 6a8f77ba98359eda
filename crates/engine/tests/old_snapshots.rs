//! Old versions have a bound: the oldest snapshot is revoked, its reader fails and never sees a wrong row, and no
//! writer is refused memory for it.

#![expect(clippy::expect_used, reason = "a test fails by panicking")]

mod accounts;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use accounts::{AMOUNT, KEY, between, by_key, everything, pairs, row, schema};
use eris_engine::IsolationLevel::{ReadCommitted, RepeatableRead, Serializable};
use eris_engine::{
    Change, ContainerSpec, Engine, EngineError, EngineOptions, Event, IsolationLevel, Partitioning, RowChange,
    Simulation, Transaction,
};
use eris_platform::{SeededRandom, test_load};
use eris_storage::{AttributeId, Batch, ContainerId, DataType, Layout, PinnedCursor, Value};

const NOTE: AttributeId = AttributeId(2);
const KEYS: i64 = 48;
/// A round with a note makes versions of this many bytes and more.
const NOTE_BYTES: usize = 600;

/// Gives every row the number of the round; a long note keeps it from being overwritten in place.
struct Stamp {
    round: i64,
    attributes: &'static [AttributeId],
}

impl Stamp {
    fn with_note(round: i64) -> Self {
        Self { round, attributes: &[AMOUNT, NOTE] }
    }

    fn in_place(round: i64) -> Self {
        Self { round, attributes: &[AMOUNT] }
    }
}

impl RowChange for Stamp {
    fn inputs(&self) -> usize {
        2
    }

    fn attributes(&self) -> &[AttributeId] {
        self.attributes
    }

    fn apply(&self, batch: &Batch) -> Result<Change, EngineError> {
        let note = "n".repeat(NOTE_BYTES);
        let types = [DataType::Int64, DataType::Text];
        let new = [Value::Int64(self.round), Value::Text(note.into())];
        let columns = self.attributes.len();
        let rows = vec![new[..columns].to_vec(); batch.rows];
        let values = Batch::from_rows(&types[..columns], &rows);
        Ok(Change { rows: None, attributes: self.attributes.into(), values })
    }
}

fn options(limit: u64, memory: u64) -> EngineOptions {
    EngineOptions {
        workers: 3,
        memory_limit_bytes: memory,
        memory_watched: false,
        old_version_limit_bytes: Some(limit),
        old_snapshot_grace: Duration::ZERO,
        quantum: Duration::from_micros(20),
        ..EngineOptions::default()
    }
}

async fn create(engine: &Engine, partitions: usize) -> ContainerId {
    let container = engine.next_container_id();
    let schema = Arc::new(schema(container, Layout::Default, 16));
    let partitioning = Partitioning::Hash { attributes: Box::new([KEY]), partitions };
    engine.create_container(ContainerSpec { schema, partitioning }).expect("the id is fresh");
    let mut transaction = engine.begin();
    for key in 0..KEYS {
        transaction.insert(container, row(key, 0, None)).await.expect("keys are distinct");
    }
    transaction.commit().await.expect("nothing conflicts");
    container
}

async fn sleep(engine: &Engine, micros: u64) {
    engine.sleep_until(engine.env().now() + Duration::from_micros(micros)).await;
}

/// All rows, in one of the ways there are.
async fn read_all(
    engine: &Engine,
    transaction: &mut Transaction,
    container: ContainerId,
    random: &mut SeededRandom,
) -> Result<Vec<(i64, i64)>, EngineError> {
    let read = everything(container);
    let mut rows = match random.index(4) {
        0 => transaction.read(&read).await.map(|batches| pairs(&batches))?,
        1 => {
            // Results that wait, and a cursor that is saved meanwhile.
            let mut results = transaction.scan(read, None)?;
            let mut rows = Vec::new();
            while let Some(batch) = results.next().await? {
                rows.extend(pairs(&[batch]));
                sleep(engine, random.below(300)).await;
            }
            rows
        }
        2 => {
            let mut rows = Vec::new();
            for key in 0..KEYS {
                rows.extend(pairs(&transaction.read(&by_key(container, key)).await?));
            }
            rows
        }
        _ => {
            let pinned = transaction.pin(container, &read.request).await?;
            let handle = transaction.snapshot_handle();
            sleep(engine, random.below(2_000)).await;
            let mut rows = pairs(&pinned.open);
            for segment in &pinned.segments {
                let mut cursor = PinnedCursor::default();
                while let Some(batch) = segment.scan(&handle.snapshot(), &read.request, &mut cursor, 7)? {
                    handle.check()?;
                    rows.extend(pairs(&[batch]));
                }
            }
            handle.check()?;
            rows
        }
    };
    rows.sort_unstable();
    Ok(rows)
}

fn one_round(rows: &[(i64, i64)]) -> bool {
    let mut rows = rows.to_vec();
    rows.sort_unstable();
    rows.iter().map(|(key, _)| *key).eq(0..KEYS) && rows.windows(2).all(|two| two[0].1 == two[1].1)
}

/// What became of the readers.
#[derive(Default)]
struct Readers {
    whole: AtomicU64,
    too_old: AtomicU64,
}

/// Reads again and again in one transaction. Whatever it is told is of one snapshot, or an error.
async fn reader(
    engine: Engine,
    container: ContainerId,
    mut random: SeededRandom,
    level: IsolationLevel,
    readers: Arc<Readers>,
) {
    for _ in 0..6 {
        let mut transaction = engine.begin_with(level);
        let mut known: Option<Vec<(i64, i64)>> = None;
        let looks = 1 + random.below(5);
        let mut outcome = Ok(());
        for _ in 0..looks {
            match read_all(&engine, &mut transaction, container, &mut random).await {
                Ok(rows) => {
                    assert!(one_round(&rows), "a snapshot shows one round: {rows:?}");
                    let before = known.get_or_insert_with(|| rows.clone());
                    assert!(level == ReadCommitted || *before == rows, "a snapshot stays what it is");
                }
                Err(error) => {
                    outcome = Err(error);
                    break;
                }
            }
            sleep(&engine, random.below(6_000)).await;
            transaction.next_statement();
        }
        match outcome {
            Ok(()) => {
                readers.whole.fetch_add(1, Ordering::Relaxed);
                // What it read was right, so its end is, too.
                transaction.commit().await.expect("it wrote nothing");
            }
            Err(EngineError::SnapshotTooOld) => {
                readers.too_old.fetch_add(1, Ordering::Relaxed);
                if level != ReadCommitted {
                    transaction.next_statement();
                    let again = transaction.read(&everything(container)).await;
                    assert!(matches!(again, Err(EngineError::SnapshotTooOld)), "it stays revoked: {again:?}");
                }
                transaction.rollback();
            }
            Err(error) if error.is_retryable() => transaction.rollback(),
            Err(error) => panic!("{error}"),
        }
    }
}

/// Stamps all rows, again and again; is never refused.
async fn writer(engine: Engine, container: ContainerId, mut random: SeededRandom, rounds: i64) {
    for round in 1..=rounds {
        let mut transaction = engine.begin_with(ReadCommitted);
        let in_place = random.index(4) == 0;
        let stamp = if in_place { Stamp::in_place(round) } else { Stamp::with_note(round) };
        let updated = transaction.update(&everything(container), Arc::new(stamp)).await.expect("a writer goes on");
        assert_eq!(updated, KEYS as u64);
        transaction.commit().await.expect("a writer goes on");
        sleep(&engine, random.below(400)).await;
    }
}

/// Readers of all levels beside a writer, with a bound that is passed every few rounds.
#[test]
fn a_revoked_snapshot_shows_nothing_wrong() {
    let readers = Arc::new(Readers::default());
    let mut revoked = 0;
    for seed in 1..=test_load(24) {
        let mut simulation = Simulation::new(seed, options(100_000, 64 << 20)).expect("starts");
        let engine = simulation.engine().clone();
        let mut random = SeededRandom::new(seed);
        let partitions = 1 + random.index(4);
        let (opened, at) = (engine.clone(), random.next_u64());
        let of_readers = Arc::clone(&readers);
        let run = async move {
            let container = create(&opened, partitions).await;
            let mut random = SeededRandom::new(at);
            let left = Arc::new(AtomicU64::new(0));
            for level in [ReadCommitted, RepeatableRead, RepeatableRead, Serializable] {
                let task =
                    reader(opened.clone(), container, SeededRandom::new(random.next_u64()), level, of_readers.clone());
                left.fetch_add(1, Ordering::Relaxed);
                let left = Arc::clone(&left);
                opened.spawn(async move {
                    task.await;
                    left.fetch_sub(1, Ordering::Relaxed);
                });
            }
            writer(opened.clone(), container, SeededRandom::new(random.next_u64()), 80).await;
            while left.load(Ordering::Relaxed) > 0 {
                sleep(&opened, 1_000).await;
            }
        };
        simulation.block_on(run).expect("the run ends");
        simulation.run_until_idle().expect("comes to rest");
        simulation.check_partitions().expect("indexes agree with rows");
        let statistics = engine.statistics();
        assert_eq!((statistics.snapshots, statistics.known_transactions), (0, 0), "seed {seed}");
        revoked += statistics.event(Event::SnapshotsRevoked);
    }
    let (whole, too_old) = (readers.whole.load(Ordering::Relaxed), readers.too_old.load(Ordering::Relaxed));
    println!("{revoked} snapshots revoked, {too_old} transactions failed, {whole} ended well");
    assert!(revoked > 0 && too_old > 0 && whole > 0, "{revoked}, {too_old}, {whole}");
}

/// Rounds of a writer beside an idle transaction, under a limit of memory that a few of them fill.
fn idle(limit: u64, level: IsolationLevel) -> (Engine, Simulation, ContainerId, Transaction) {
    let mut simulation = Simulation::new(7, options(limit, 24 << 20)).expect("starts");
    let engine = simulation.engine().clone();
    let setting = engine.clone();
    let set = async move {
        let container = create(&setting, 2).await;
        let mut idle = setting.begin_with(level);
        assert!(one_round(&pairs(&idle.read(&between(container, 0, KEYS)).await.expect("read"))));
        (container, idle)
    };
    let (container, idle) = simulation.block_on(set).expect("the task ends");
    (engine, simulation, container, idle)
}

/// 60 MB of versions, in 24 MB.
const MANY_ROUNDS: i64 = 2_000;

#[test]
fn a_writer_is_not_refused_for_an_idle_snapshot() {
    for (level, limit) in [(RepeatableRead, 4 << 20), (Serializable, 4 << 20), (RepeatableRead, 1 << 40)] {
        let (engine, mut simulation, container, mut idle) = idle(limit, level);
        // With the largest limit it is the end of memory that counts.
        let work = engine.clone();
        let (before, after) = simulation
            .block_on(async move {
                let before = work.snapshots();
                writer(work.clone(), container, SeededRandom::new(1), MANY_ROUNDS).await;
                let mut second = work.begin();
                let rows = pairs(&second.read(&everything(container)).await.expect("a new snapshot is in force"));
                assert!(rows.iter().all(|(_, round)| *round == MANY_ROUNDS));
                (before, idle.read(&everything(container)).await.map(|batches| pairs(&batches)))
            })
            .expect("the writer is through");
        assert_eq!(before.len(), 1, "{before:?}");
        assert!(before[0].is_oldest && !before[0].is_internal);
        assert!(matches!(after, Err(EngineError::SnapshotTooOld)), "{after:?}");
        assert!(engine.statistics().event(Event::SnapshotsRevoked) > 0);
    }
}

/// At READ COMMITTED nothing is lost between two statements.
#[test]
fn an_idle_transaction_at_read_committed_goes_on() {
    let (engine, mut simulation, container, mut idle) = idle(2 << 20, ReadCommitted);
    let work = engine.clone();
    let rows = simulation.block_on(async move {
        writer(work.clone(), container, SeededRandom::new(1), 300).await;
        idle.next_statement();
        pairs(&idle.read(&everything(container)).await.expect("a new snapshot is in force"))
    });
    assert!(rows.expect("the writer is through").iter().all(|(_, round)| *round == 300));
    assert!(engine.statistics().event(Event::SnapshotsRevoked) > 0, "its snapshot was in the way");
}

/// A snapshot that the database takes for itself stays, and so do younger ones: to revoke these gains nothing.
#[test]
fn an_internal_snapshot_is_not_revoked() {
    let (engine, mut simulation, container, idle) = idle(1 << 20, RepeatableRead);
    idle.rollback();
    let work = engine.clone();
    let rounds = simulation.block_on(async move {
        let (mut internal, mut younger) = (work.begin_internal(), work.begin());
        let first = pairs(&internal.read(&everything(container)).await.expect("read"));
        writer(work.clone(), container, SeededRandom::new(1), 100).await;
        let cost = work.snapshots()[0];
        assert!(cost.is_oldest && cost.is_internal && cost.old_version_bytes > 1 << 20, "{cost:?}");
        assert!(one_round(&first));
        (
            pairs(&internal.read(&everything(container)).await.expect("read")),
            pairs(&younger.read(&everything(container)).await.expect("read")),
        )
    });
    let (internal, younger) = rounds.expect("the writer is through");
    assert!(internal.iter().chain(&younger).all(|(_, round)| *round == 0));
    assert_eq!(engine.statistics().event(Event::SnapshotsRevoked), 0);
}

/// Without a bound it is as it was: the writer is refused in the end.
#[test]
fn without_a_bound_the_writer_is_refused() {
    let (engine, mut simulation, container, mut idle) = idle(0, RepeatableRead);
    assert_eq!(engine.old_version_limit(), None);
    let work = engine.clone();
    let refused = simulation.block_on(async move {
        for round in 1..=MANY_ROUNDS {
            let mut transaction = work.begin_with(ReadCommitted);
            if let Err(error) = transaction.update(&everything(container), Arc::new(Stamp::with_note(round))).await {
                // There may be no memory for the read either.
                let read = idle.read(&everything(container)).await;
                assert!(!matches!(read, Err(EngineError::SnapshotTooOld)), "its snapshot is in force");
                return Some(error);
            }
            transaction.commit().await.expect("nothing conflicts");
        }
        None
    });
    let refused = refused.expect("the task ends").expect("memory ends");
    assert!(refused.to_string().contains("memory"), "{refused}");
}
