//! Parents and children under a foreign key, with ids of a sequence, while everything goes wrong.
//!
//! Clients insert, load, move, rename and delete at random, with savepoints and checks that are put off; whoever looks,
//! in any snapshot, sees no child without its parent. A sequence gives no value twice, none beyond its bounds, and ends
//! when it has given all that is not in somebody's cache. In step ([`run_kin_duet`]), who needs a parent waits for who
//! deletes it, and the other way round, until that one has decided, or has taken it back while its transaction is open.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use eris_engine::{
    CancelHandle, Engine, EngineError, IsolationLevel, ReferentialAction, Savepoint, Sequence, SequenceError,
    SequenceSpec, Simulation, Transaction,
};
use eris_platform::SeededRandom;
use eris_storage::StorageError;

use crate::chaos::{Chaos, Doom, drop_after};
use crate::families::{Answer, Do, Family, Making, SHAPES, Shape, answer_of, obey, orphans};

/// Families of duets have keys from here on; their children have others.
const DUET_PARENTS: i64 = 1_000;
const DUET_CHILDREN: i64 = 2_000;
/// Ids of a sequence begin here.
const FIRST_ID: i64 = 10_000;
/// After this on the virtual clock somebody who should go on is taken as lost.
const WATCHDOG: Duration = Duration::from_mins(1);
const POLL: Duration = Duration::from_micros(300);

/// What clients of one family share.
#[derive(Clone)]
pub struct Kin {
    pub engine: Engine,
    pub family: Family,
    pub chaos: Arc<Chaos>,
    keys: u64,
    ids: Arc<Sequence>,
    given: Arc<Mutex<BTreeSet<i64>>>,
}

impl Kin {
    /// Two tables or one, and the foreign key.
    pub fn create(simulation: &mut Simulation, random: &mut SeededRandom, chaos: &Arc<Chaos>) -> Result<Self, String> {
        let engine = simulation.engine().clone();
        let making = Making {
            shape: SHAPES[random.index(3)],
            indexed: random.chance(0.5),
            hash_partitions: [None, None, Some(1), Some(4)][random.index(4)],
            segment_rows: [4, 16, 64][random.index(3)],
        };
        let family = Family::create(&engine, making);
        let action = [ReferentialAction::NoAction, ReferentialAction::Restrict][random.index(2)];
        let (maker, spec) = (engine.clone(), family.spec(action));
        let made = simulation.block_on(async move { maker.create_foreign_key(&spec).await });
        made.map_err(|error| error.to_string())?.map_err(|error| error.to_string())?;
        let increment = [1_i64, 3, -2][random.index(3)];
        let last = FIRST_ID + increment.abs() * [10, 100_000][random.index(2)];
        let spec = SequenceSpec {
            increment,
            minimum: FIRST_ID,
            maximum: last,
            start: if increment > 0 { FIRST_ID } else { last },
            cache: [1, 4][random.index(2)],
            ..SequenceSpec::new("children_id_seq")
        };
        let ids = engine.create_sequence(&spec).map_err(|error| error.to_string())?;
        let keys = [5, 12, 40][random.index(3)];
        Ok(Self { engine, family, chaos: Arc::clone(chaos), keys, ids, given: Arc::default() })
    }

    /// A fresh id; none when there are no more.
    fn id(&self) -> Option<i64> {
        let spec = self.ids.spec();
        let mut given = self.given.lock().expect("one thread");
        match self.ids.next() {
            Ok(id) => {
                assert!((spec.minimum..=spec.maximum).contains(&id), "{id} is beyond the bounds of {spec:?}");
                assert!((id - spec.start) % spec.increment == 0, "{id} is no value of {spec:?}");
                assert!(given.insert(id), "{id} was given before by {spec:?}");
                Some(id)
            }
            Err(SequenceError::Exhausted { .. }) => {
                let all = (spec.maximum - spec.minimum) / spec.increment.abs() + 1;
                let cached = (self.engine.worker_count() as i64 + 1) * (spec.cache as i64 - 1);
                let given = given.len() as i64;
                assert!(given + cached >= all, "only {given} of {all} values were given by {spec:?}");
                self.chaos.count("sequence exhausted");
                None
            }
            Err(error) => panic!("a sequence that is there gives a value or ends: {error}"),
        }
    }

    fn order(&self, random: &mut SeededRandom) -> Do {
        let mut key = || random.below(self.keys) as i64;
        let (first, second, third) = (key(), key(), key());
        let own = self.family.shape == Shape::Own;
        let id = if own { first } else { first * 3 + third % 3 };
        let parent = |key: i64| (key > 0).then_some(key);
        match random.below(26) {
            0..5 => Do::Parents(vec![first]),
            5 => Do::Parents(vec![first, second]),
            6..8 => Do::Children(vec![(id, parent(second))]),
            8..11 => Do::Children(vec![(self.id().unwrap_or(id), parent(second))]),
            11 => Do::Children(vec![(id, parent(second)), (third, parent(first))]),
            12 => Do::Load(vec![(id, parent(second)), (third, parent(first)), (second, parent(third))]),
            13..16 => Do::DeleteParent(first),
            16..18 => Do::DeleteChild(id),
            18..20 => Do::Rename(first, second),
            20..22 => Do::Adopt(id, parent(second)),
            22..24 => Do::Touch(first),
            24 => Do::Hold(first % 3 > 0),
            _ => Do::Check,
        }
    }

    /// Statements at random; after an error some are taken back if there is a savepoint.
    async fn statements(&self, transaction: &mut Transaction, random: &mut SeededRandom) -> Result<(), EngineError> {
        let mut savepoints: Vec<Savepoint> = Vec::new();
        for _ in 0..=random.below(4) {
            if random.chance(0.3) {
                savepoints.push(transaction.savepoint());
            }
            transaction.next_statement();
            let done = obey(transaction, &self.family, &self.order(random)).await;
            let back = match &done {
                Ok(_) => random.chance(0.1),
                Err(_) => random.chance(0.8),
            };
            match done {
                Err(error) if savepoints.is_empty() || !back => return Err(error),
                Err(error) => self.chaos.expect(&error),
                Ok(_) => {}
            }
            if back && !savepoints.is_empty() {
                transaction.set_cancel(CancelHandle::default());
                let place = random.index(savepoints.len());
                transaction.rollback_to(&savepoints[place])?;
                savepoints.truncate(place + 1);
            }
        }
        Ok(())
    }

    /// No snapshot shows a child without its parent.
    ///
    /// # Panics
    /// If it does.
    pub async fn look(&self, level: IsolationLevel) -> Result<(), EngineError> {
        let mut reader = self.engine.begin_with(level);
        let rows = self.family.rows(&mut reader).await?;
        let at = reader.snapshot_timestamp();
        assert_eq!(orphans(&rows), [], "every child has its parent at {at:?}: {rows:?}");
        if rows.1.iter().any(|(_, parent)| parent.is_some()) {
            self.chaos.count("families seen");
        }
        Ok(())
    }
}

/// Runs transactions; every few of them somebody looks.
pub async fn run_kin_client(kin: Kin, transactions: u64, seed: u64) {
    let mut random = SeededRandom::new(seed);
    for _ in 0..transactions {
        let level = Chaos::level(&mut random);
        if random.chance(0.15)
            && let Err(error) = kin.look(level).await
        {
            kin.chaos.expect(&error);
        }
        let mut transaction = kin.engine.begin_with(level);
        transaction.set_lock_timeout(Chaos::lock_timeout(&mut random));
        let doom = kin.chaos.doom(&kin.engine, &mut transaction, &mut random);
        let commits = random.chance(0.85);
        let result = match doom {
            Doom::None | Doom::Cancelled => Some(kin.statements(&mut transaction, &mut random).await),
            Doom::DroppedAfter(span) => {
                drop_after(&kin.engine, span, kin.statements(&mut transaction, &mut random)).await
            }
        };
        match result {
            Some(Ok(())) if commits => {
                // Checks that were put off may fail.
                if let Err(error) = transaction.commit().await {
                    kin.chaos.expect(&error);
                }
            }
            Some(Err(error)) => {
                kin.chaos.expect(&error);
                transaction.rollback();
            }
            Some(Ok(())) | None => transaction.rollback(),
        }
        kin.chaos.finished();
    }
}

/// What the two of a round tell each other.
#[derive(Default)]
struct Stage {
    asked: AtomicBool,
    answered: AtomicBool,
    ended: AtomicU64,
    answer: Mutex<Option<Result<Answer, EngineError>>>,
}

fn is_for_want_of_memory(error: &EngineError) -> bool {
    let refused = matches!(error, EngineError::Memory(_) | EngineError::Storage(StorageError::Memory(_)));
    refused || matches!(error, EngineError::SnapshotTooOld)
}

/// One round after the other of who holds a parent and who asks for it.
pub async fn run_kin_duet(kin: Kin, number: i64, rounds: u64, seed: u64) {
    let mut random = SeededRandom::new(seed);
    for _ in 0..rounds {
        match round(&kin, number, &mut random).await {
            Ok(what) => kin.chaos.count(what),
            Err(error) if is_for_want_of_memory(&error) => kin.chaos.expect(&error),
            Err(error) => panic!("nobody is in the way of family {number}: {error}"),
        }
        kin.chaos.finished();
    }
}

async fn until(kin: &Kin, what: &str, done: impl Fn() -> bool) {
    let begun = kin.engine.env().now();
    while !done() {
        let now = kin.engine.env().now();
        assert!(now - begun < WATCHDOG, "{what}: nobody comes, in a family of {:?}", kin.family.shape);
        kin.engine.sleep_until(now + POLL).await;
    }
}

async fn round(kin: &Kin, number: i64, random: &mut SeededRandom) -> Result<&'static str, EngineError> {
    let (parent, child) = (DUET_PARENTS + number, DUET_CHILDREN + number);
    let level =
        |random: &mut SeededRandom| [IsolationLevel::ReadCommitted, IsolationLevel::RepeatableRead][random.index(2)];
    let mut before = kin.engine.begin_with(IsolationLevel::ReadCommitted);
    for order in [Do::DeleteChild(child), Do::DeleteParent(parent), Do::Parents(vec![parent])] {
        before.next_statement();
        obey(&mut before, &kin.family, &order).await?;
    }
    before.commit().await?;

    let (delete, insert) = (Do::DeleteParent(parent), Do::Children(vec![(child, Some(parent))]));
    let deletes = random.chance(0.5);
    let (holds, asks) = if deletes { (delete, insert) } else { (insert, delete) };
    let commits = random.chance(0.3);
    let mut holder = kin.engine.begin_with(level(random));
    let savepoint = holder.savepoint();
    obey(&mut holder, &kin.family, &holds).await?;
    let stage = Arc::new(Stage::default());
    let (asker, asked, asker_level) = (kin.clone(), Arc::clone(&stage), level(random));
    kin.engine.spawn(async move {
        let mut transaction = asker.engine.begin_with(asker_level);
        asked.asked.store(true, Ordering::Relaxed);
        let answer = obey(&mut transaction, &asker.family, &asks).await;
        *asked.answer.lock().expect("one thread") = Some(answer);
        asked.answered.store(true, Ordering::Relaxed);
        transaction.rollback();
        asked.ended.fetch_add(1, Ordering::Relaxed);
    });
    until(kin, "an asker asks", || stage.asked.load(Ordering::Relaxed)).await;
    let span = Duration::from_micros(random.below(3_000));
    kin.engine.sleep_until(kin.engine.env().now() + span).await;
    let early = stage.answered.load(Ordering::Relaxed);
    let answer = |stage: &Stage| stage.answer.lock().expect("one thread").take();
    if early {
        let answer = answer(&stage);
        let out_of_memory = matches!(&answer, Some(Err(error)) if is_for_want_of_memory(error));
        assert!(out_of_memory, "an asker did not wait (the parent is being deleted: {deletes}): {answer:?}");
        return Ok("family round spoiled");
    }
    if commits {
        holder.commit().await?;
        until(kin, "who waited for a commit", || stage.ended.load(Ordering::Relaxed) == 1).await;
    } else {
        holder.rollback_to(&savepoint).expect("it was not released");
        until(kin, "who waited for a savepoint", || stage.ended.load(Ordering::Relaxed) == 1).await;
        holder.rollback();
    }
    let expected = match (commits, deletes) {
        (false, _) => Answer::Count(1),
        (true, true) => Answer::Missing(parent),
        (true, false) => Answer::Referenced(parent),
    };
    match answer(&stage).expect("the asker has ended") {
        Err(error) if is_for_want_of_memory(&error) => kin.chaos.expect(&error),
        answer => {
            let found = answer.unwrap_or_else(|error| answer_of(&error));
            assert_eq!(found, expected, "family {number}, deleted by the holder: {deletes}, {:?}", kin.family.shape);
        }
    }
    Ok(if commits { "family released by a commit" } else { "family released by a savepoint" })
}
