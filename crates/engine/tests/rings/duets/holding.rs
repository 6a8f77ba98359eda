//! Who holds something, waits for those who need not wait, and gives it back.

use std::sync::atomic::Ordering;
use std::time::Duration;

use eris_engine::{EngineError, IsolationLevel, LockWait, Read, Transaction};
use eris_platform::SeededRandom;

use super::super::{CODE, KEY, RING, Row, Write, batch, equal, rows_of};
use super::plan::{Ask, EXTRA, Must, OWN, Take};
use super::{Duet, Release, Stage, must};

/// How long it holds, mostly; at times much longer.
const HOLDS_MICROS_MAX: u64 = 4_000;
const HOLDS_LONG: Duration = Duration::from_millis(60);

/// Plays the holder's part. Gives what the rows are in the end, unless something went wrong that is part of the game.
pub async fn hold(duet: &Duet, random: &mut SeededRandom) -> Option<Vec<Row>> {
    let stage = &duet.stage;
    let kept = play(duet, random).await;
    if let Err(error) = &kept {
        duet.spoil(error);
    }
    // Whoever waits is let go, at the latest, with the transaction, which is gone by now.
    stage.released.store(true, Ordering::Relaxed);
    kept.ok()
}

async fn play(duet: &Duet, random: &mut SeededRandom) -> Result<Vec<Row>, EngineError> {
    let stage = &duet.stage;
    let askers = duet.asks.len() as u64;
    let restarts = duet.release == Release::Restart;
    let repeatable = !restarts && random.chance(0.5);
    let level = if repeatable { IsolationLevel::RepeatableRead } else { IsolationLevel::ReadCommitted };
    let mut transaction = duet.engine().begin_with(level);
    let savepoint = matches!(duet.release, Release::ToSavepoint | Release::AfterError).then(|| transaction.savepoint());
    if let Err(error) = take(duet, &mut transaction, random).await {
        // Released before anybody may go on.
        stage.released.store(true, Ordering::Relaxed);
        return Err(error);
    }
    if restarts {
        touch_extra(duet).await?;
    }
    stage.held.store(true, Ordering::Relaxed);
    duet.until("askers ask", |stage| stage.asked.load(Ordering::Relaxed) == askers).await;
    let span = if random.chance(0.05) { HOLDS_LONG } else { Duration::from_micros(random.below(HOLDS_MICROS_MAX)) };
    duet.engine().sleep_until(duet.engine().env().now() + span).await;
    let passing = (0..duet.asks.len()).filter(|asker| must(duet, *asker) == Must::Pass).count() as u64;
    let passed = |stage: &Stage| stage.passed.load(Ordering::Relaxed) == passing;
    duet.until("who need not wait gets through", passed).await;
    if random.chance(0.4) {
        let span = Duration::from_micros(random.below(HOLDS_MICROS_MAX));
        duet.engine().sleep_until(duet.engine().env().now() + span).await;
    }
    if !restarts && !duet.commits {
        look(duet, &mut transaction).await?;
    }
    match duet.release {
        Release::ToSavepoint => {}
        Release::AfterError => {
            // The key of row 1, which is there unless the holder or an asker took it away.
            transaction.next_statement();
            let row = Row { key: duet.place(1), code: duet.place(OWN + 19), ..Row::new(duet.ring(), 8, 0) };
            let inserted = transaction.insert(duet.rings.container, batch(&[row])).await;
            let goes = duet.take == Take::DeleteAll || duet.asks.iter().any(|(ask, _)| *ask == Ask::RenameOther);
            match inserted {
                Err(_) => duet.rings.chaos.count("duet met an error"),
                Ok(_) => assert!(goes, "two rows have one key. {}", duet.describe()),
            }
        }
        Release::Restart => {
            let lost = transaction.update(&extra(duet), Write::Touch { noted: false }.change()).await;
            let error = match lost {
                Err(error) if error.is_retryable() => error,
                Err(error) => return Err(error),
                Ok(rows) => panic!("{rows} rows are changed whose newest version the snapshot does not see"),
            };
            stage.released.store(true, Ordering::Relaxed);
            transaction.restart_statement(error).await.expect("a statement that lost begins again");
        }
        Release::Commit => {
            stage.released.store(true, Ordering::Relaxed);
            transaction.commit().await.expect("a commit that conflicts nowhere succeeds");
            return Ok(duet.outcome());
        }
        Release::Rollback => {
            stage.released.store(true, Ordering::Relaxed);
            transaction.rollback();
            return Ok(duet.outcome());
        }
        Release::Drop => {
            stage.released.store(true, Ordering::Relaxed);
            drop(transaction);
            return Ok(duet.outcome());
        }
    }
    stage.released.store(true, Ordering::Relaxed);
    if let Some(savepoint) = savepoint {
        transaction.rollback_to(&savepoint).expect("it was not released");
    }
    // The transaction is open, and nothing is held any more.
    duet.until("everybody gets through", |stage| stage.through.load(Ordering::Relaxed) == askers).await;
    if random.chance(0.5) {
        transaction.commit().await.expect("a commit that conflicts nowhere succeeds");
    } else {
        transaction.rollback();
    }
    Ok(duet.outcome())
}

fn extra(duet: &Duet) -> Read {
    equal(duet.rings.container, KEY, duet.place(EXTRA))
}

async fn touch_extra(duet: &Duet) -> Result<(), EngineError> {
    let mut other = duet.engine().begin();
    other.update(&extra(duet), Write::Touch { noted: false }.change()).await?;
    other.commit().await.map(drop)
}

/// The holder sees what it did, and nobody has changed it.
async fn look(duet: &Duet, transaction: &mut Transaction) -> Result<(), EngineError> {
    transaction.next_statement();
    let rows = rows_of(&transaction.read(&equal(duet.rings.container, RING, duet.ring())).await?, 0);
    let expected = duet.take.apply(&duet.rows(), |place| duet.place(place));
    assert_eq!(rows, expected, "the holder's rows. {}", duet.describe());
    Ok(())
}

async fn take(duet: &Duet, transaction: &mut Transaction, random: &mut SeededRandom) -> Result<(), EngineError> {
    let container = duet.rings.container;
    let attribute = [KEY, CODE][random.index(2)];
    let first = equal(container, attribute, duet.place(0));
    let all = equal(container, RING, duet.ring());
    let (key, code) = (Some(duet.place(2)), Some(duet.place(2)));
    let fresh = |key: i64, code: i64| {
        batch(&[Row { key: duet.place(key), code: duet.place(code), ..Row::new(duet.ring(), 2, 0) }])
    };
    let rows = match duet.take {
        Take::Touch { noted } => transaction.update(&first, Write::Touch { noted }.change()).await?,
        Take::Recode => transaction.update(&first, Write::Put { key: None, code }.change()).await?,
        Take::Rename => transaction.update(&first, Write::Put { key, code: None }.change()).await?,
        Take::Both => transaction.update(&first, Write::Put { key, code }.change()).await?,
        Take::Delete => transaction.delete(&first, None).await?,
        Take::DeleteAll => transaction.delete(&all, None).await?,
        Take::Replace => {
            let deleted = transaction.delete(&first, None).await?;
            transaction.next_statement();
            assert_eq!(transaction.insert(container, batch(&duet.rows()[..1])).await?, 1);
            deleted
        }
        Take::Insert => transaction.insert(container, fresh(2, 2)).await?,
        Take::InsertCode => transaction.insert(container, fresh(3, 2)).await?,
        Take::Load => {
            let mut bulk = transaction.bulk(container)?;
            bulk.append(fresh(2, 2)).await?;
            bulk.finish().await?
        }
        Take::Lock(lock) => rows_of(&transaction.lock_rows(&first, lock, LockWait::Wait).await?, 0).len() as u64,
        Take::LockAll(lock) => rows_of(&transaction.lock_rows(&all, lock, LockWait::Wait).await?, 0).len() as u64,
    };
    let of_all = matches!(duet.take, Take::DeleteAll | Take::LockAll(_));
    assert_eq!(rows, if of_all { 3 } else { 1 }, "the holder takes its rows. {}", duet.describe());
    Ok(())
}
