//! Duets: one holds something, others ask for it, and who has to wait for whom is known beforehand ([`plan`]).
//!
//! ```text
//!   holder    begins, takes (row, key, code, lock) ..... waits for those who need not wait ..... gives back
//!   askers                    ask .. through at once, or wait ............................. through ..
//!   holder    its transaction stays open until every asker is through, then ends
//! ```
//! What is given back may be a statement or all behind a savepoint: then an asker that is not woken at that moment
//! waits for a transaction that waits for the asker, and both stand still until the watchdog tells. An asker that must
//! wait and gets through before is told, too, and so is an answer that does not fit to what the holder did in the end.

mod asking;
mod holding;
mod plan;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use eris_engine::{Engine, EngineError, IsolationLevel};
use eris_platform::SeededRandom;
use eris_storage::StorageError;

use super::{DUETS, RING, Rings, Row, batch, equal, rows_of};
use plan::{ASKS, Ask, Must, TAKES, Take};

/// A round counts as so many transactions.
pub const TRANSACTIONS_OF_A_ROUND: u64 = 5;

/// After this on the virtual clock somebody who should go on is taken as lost.
const WATCHDOG: Duration = Duration::from_mins(1);
/// Keys and codes of a duet.
const PLACES_OF_A_DUET: i64 = 64;
const POLL: Duration = Duration::from_micros(300);

/// How a holder gives back what it has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Release {
    /// To a savepoint; the transaction stays open.
    ToSavepoint,
    /// The same after a statement that failed.
    AfterError,
    /// The statement loses against another transaction and begins again, without doing anything.
    Restart,
    Commit,
    Rollback,
    /// The transaction is dropped as it is.
    Drop,
}

const RELEASES: [Release; 9] = [
    Release::ToSavepoint,
    Release::ToSavepoint,
    Release::ToSavepoint,
    Release::AfterError,
    Release::Restart,
    Release::Restart,
    Release::Commit,
    Release::Rollback,
    Release::Drop,
];

/// What holder and askers of a round tell each other.
#[derive(Default)]
pub struct Stage {
    held: AtomicBool,
    released: AtomicBool,
    /// Something went wrong that is part of the game: nothing is asked of this round any more.
    spoiled: AtomicBool,
    asked: AtomicU64,
    /// Of those who need not wait.
    passed: AtomicU64,
    through: AtomicU64,
    /// Askers whose task has ended.
    ended: AtomicU64,
}

/// One round.
pub struct Duet {
    rings: Rings,
    number: i64,
    take: Take,
    release: Release,
    /// With the level at which each asks.
    asks: Vec<(Ask, IsolationLevel)>,
    /// Those who get a lock keep it until all have got theirs.
    together: bool,
    /// The only asker commits what it did.
    commits: bool,
    stage: Stage,
}

impl Duet {
    fn new(rings: &Rings, number: i64, random: &mut SeededRandom) -> Self {
        let take = TAKES[random.index(TAKES.len())];
        let mut release = RELEASES[random.index(RELEASES.len())];
        if release == Release::Restart && !take.may_restart() {
            release = Release::ToSavepoint;
        }
        let together = random.chance(0.15);
        let level = |random: &mut SeededRandom| {
            [IsolationLevel::ReadCommitted, IsolationLevel::RepeatableRead][random.index(2)]
        };
        let asks: Vec<(Ask, IsolationLevel)> = if together {
            (0..2 + random.index(2)).map(|_| (plan::shared(random), level(random))).collect()
        } else {
            let asks = [1, 1, 2, 3][random.index(4)];
            let mut draw = |number: usize| loop {
                let ask = ASKS[random.index(ASKS.len())];
                // Two that want several rows could wait for each other.
                if !ask.is_of_several() || (number == 0 && release != Release::Restart) {
                    return (ask, level(random));
                }
            };
            (0..asks).map(&mut draw).collect()
        };
        let commits = asks.len() == 1 && random.chance(0.4);
        Self { rings: rings.clone(), number, take, release, asks, together, commits, stage: Stage::default() }
    }

    fn ring(&self) -> i64 {
        DUETS + self.number
    }

    /// The n-th key, or code, of this duet.
    fn place(&self, place: i64) -> i64 {
        self.ring() * PLACES_OF_A_DUET + place
    }

    /// The rows as they are before.
    fn rows(&self) -> Vec<Row> {
        let row = |id| Row { key: self.place(id), code: self.place(id), ..Row::new(self.ring(), id, 0) };
        vec![row(0), row(1), row(plan::EXTRA)]
    }

    /// The rows as they are when the holder has ended.
    fn outcome(&self) -> Vec<Row> {
        let place = |place| self.place(place);
        match self.release {
            Release::Commit => self.take.apply(&self.rows(), place),
            Release::Restart => {
                let mut rows = self.rows();
                rows[2].touches += 1;
                rows
            }
            Release::ToSavepoint | Release::AfterError | Release::Rollback | Release::Drop => self.rows(),
        }
    }

    fn engine(&self) -> &Engine {
        &self.rings.engine
    }

    fn describe(&self) -> String {
        let Self { take, release, asks, stage, .. } = self;
        let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
        format!(
            "duet {}: {take:?}, {release:?}, askers {asks:?}: {} asked, {} passed, {} through, released: {}\n{:?}",
            self.number,
            count(&stage.asked),
            count(&stage.passed),
            count(&stage.through),
            stage.released.load(Ordering::Relaxed),
            self.engine().statistics().waiting_transactions,
        )
    }

    /// Until this holds, or the round is spoiled.
    ///
    /// # Panics
    /// After a time in which everybody who may go on has gone on.
    async fn until(&self, what: &str, done: impl Fn(&Stage) -> bool) {
        let begun = self.engine().env().now();
        while !done(&self.stage) {
            let now = self.engine().env().now();
            assert!(now - begun < WATCHDOG, "{what}: nobody comes. {}", self.describe());
            self.engine().sleep_until(now + POLL).await;
        }
    }

    fn spoil(&self, error: &EngineError) {
        self.rings.chaos.expect(error);
        self.stage.spoiled.store(true, Ordering::Relaxed);
    }

    fn is_spoiled(&self) -> bool {
        self.stage.spoiled.load(Ordering::Relaxed)
    }

    /// The rows as they are before, whatever the last round left.
    async fn prepare(&self) -> Result<(), EngineError> {
        let mut transaction = self.engine().begin_with(IsolationLevel::ReadCommitted);
        transaction.delete(&equal(self.rings.container, RING, self.ring()), None).await?;
        transaction.next_statement();
        transaction.insert(self.rings.container, batch(&self.rows())).await?;
        transaction.commit().await.map(drop)
    }

    /// What the round left: rows, and all ways to them.
    async fn check(&self, expected: Option<Vec<Row>>) -> Result<(), EngineError> {
        let mut transaction = self.engine().begin_with(IsolationLevel::ReadCommitted);
        let container = self.rings.container;
        let rows = rows_of(&transaction.read(&equal(container, RING, self.ring())).await?, 0);
        if let Some(expected) = expected {
            assert_eq!(rows, expected, "{}", self.describe());
        }
        for place in 0..plan::PLACES {
            for attribute in [super::KEY, super::CODE] {
                let place = self.place(place);
                let found = rows_of(&transaction.read(&equal(container, attribute, place)).await?, 0);
                let of = |row: &&Row| [row.key, row.code][usize::from(attribute.0)] == place;
                let expected: Vec<Row> = rows.iter().filter(of).copied().collect();
                assert_eq!(found, expected, "{attribute:?} = {place}: {}", self.describe());
            }
        }
        Ok(())
    }
}

/// Tells that an asker's task ended, however it did.
struct AskerEnded(Arc<Duet>, Arc<Mutex<Option<String>>>);

impl Drop for AskerEnded {
    fn drop(&mut self) {
        if std::thread::panicking() {
            *self.1.lock().expect("one thread") = Some(format!("an asker panicked, see above. {}", self.0.describe()));
        }
        self.0.stage.ended.fetch_add(1, Ordering::Relaxed);
    }
}

/// Rounds, one after the other, until there were enough.
pub async fn run_duet(rings: Rings, number: i64, rounds: u64, seed: u64, failed: Arc<Mutex<Option<String>>>) {
    let mut random = SeededRandom::new(seed);
    for _ in 0..rounds {
        let duet = Arc::new(Duet::new(&rings, number, &mut random));
        if let Err(error) = duet.prepare().await {
            assert!(is_for_want_of_memory(&error), "nobody is in the way of {}: {error}", duet.describe());
            finished(&rings);
            continue;
        }
        let askers = duet.asks.len();
        for asker in 0..askers {
            let (duet, random) = (Arc::clone(&duet), random.fork());
            let failed = Arc::clone(&failed);
            rings.engine.spawn(async move {
                let ended = AskerEnded(Arc::clone(&duet), Arc::clone(&failed));
                if let Err(wrong) = asking::ask(&duet, asker, random).await {
                    *failed.lock().expect("one thread") = Some(wrong);
                }
                drop(ended);
            });
        }
        let kept = holding::hold(&duet, &mut random).await;
        duet.until("askers end", |stage| stage.ended.load(Ordering::Relaxed) == askers as u64).await;
        let expected = kept.filter(|_| !duet.commits && !duet.is_spoiled());
        if let Err(error) = duet.check(expected).await {
            assert!(is_for_want_of_memory(&error), "a read waits for nobody: {error}");
        }
        if !duet.is_spoiled() {
            rings.chaos.count(match duet.release {
                Release::ToSavepoint | Release::AfterError => "duet released by a savepoint",
                Release::Restart => "duet released by a restart",
                Release::Commit => "duet released by a commit",
                Release::Rollback | Release::Drop => "duet released by a rollback",
            });
        }
        finished(&rings);
    }
}

fn finished(rings: &Rings) {
    (0..TRANSACTIONS_OF_A_ROUND).for_each(|_| rings.chaos.finished());
}

fn is_for_want_of_memory(error: &EngineError) -> bool {
    let refused = matches!(error, EngineError::Memory(_) | EngineError::Storage(StorageError::Memory(_)));
    refused || matches!(error, EngineError::SnapshotTooOld)
}

/// Whether an asker has to wait, given what the holder has.
fn must(duet: &Duet, asker: usize) -> Must {
    let of = |asker: usize| plan::must(duet.take, duet.asks[asker].0);
    // Who waits may have what another one wants.
    let others_pass = (0..duet.asks.len()).all(|other| of(other) == Must::Pass);
    match of(asker) {
        Must::Pass if !others_pass && !duet.together => Must::Either,
        must => must,
    }
}
