//! Who asks for what the holder has.

use std::sync::atomic::Ordering;
use std::time::Duration;

use eris_engine::{EngineError, IsolationLevel, LockWait, Transaction};
use eris_platform::SeededRandom;
use eris_storage::{AttributeId, StorageError};

use super::super::{CODE, KEY, RING, Row, Write, batch, equal, rows_of};
use super::plan::{Ask, Must, OWN, Take};
use super::{Duet, Release, must};
use crate::chaos::drop_after;

/// An asker that gives up does so within this time.
const PATIENCE_MICROS_MAX: u64 = 8_000;

/// Asks once; says what is wrong with the answer.
pub async fn ask(duet: &Duet, asker: usize, mut random: SeededRandom) -> Result<(), String> {
    let stage = &duet.stage;
    duet.until("the holder holds", |stage| stage.held.load(Ordering::Relaxed) || stage.spoiled.load(Ordering::Relaxed))
        .await;
    if duet.is_spoiled() {
        return Ok(());
    }
    let (ask, level) = duet.asks[asker];
    let mut transaction = duet.engine().begin_with(level);
    let patience = Duration::from_micros(random.below(PATIENCE_MICROS_MAX));
    let (times_out, is_dropped) = (random.chance(0.08), random.chance(0.08));
    if times_out {
        transaction.set_lock_timeout(Some(patience));
    }
    stage.asked.fetch_add(1, Ordering::Relaxed);
    let answer = if is_dropped {
        drop_after(duet.engine(), patience, operation(duet, &mut transaction, ask, asker)).await
    } else {
        Some(operation(duet, &mut transaction, ask, asker).await)
    };
    let released = stage.released.load(Ordering::Relaxed);
    if must(duet, asker) == Must::Pass {
        stage.passed.fetch_add(1, Ordering::Relaxed);
    }
    stage.through.fetch_add(1, Ordering::Relaxed);
    let Some(answer) = answer else { return Ok(()) };
    let got = answer.is_ok();
    judge(duet, asker, &answer, released)?;
    if got && duet.together {
        let all = duet.asks.len() as u64;
        let met = duet.until("those who share a row meet", |stage| stage.through.load(Ordering::Relaxed) == all);
        met.await;
        duet.rings.chaos.count("duet shared a lock");
    }
    if got && random.chance(0.4) {
        // What it has moves meanwhile.
        let span = Duration::from_micros(random.below(PATIENCE_MICROS_MAX));
        duet.engine().sleep_until(duet.engine().env().now() + span).await;
    }
    if got && duet.commits {
        transaction.commit().await.expect("a commit that conflicts nowhere succeeds");
    } else {
        transaction.rollback();
    }
    Ok(())
}

fn is_taken(error: &EngineError) -> bool {
    matches!(error, EngineError::Storage(StorageError::DuplicateKey { .. }))
}

/// Whether an answer fits to what the holder did.
fn judge(duet: &Duet, asker: usize, answer: &Result<u64, EngineError>, released: bool) -> Result<(), String> {
    let (ask, level) = duet.asks[asker];
    let wrong = |what: &str| Err(format!("asker {asker} {what}: {answer:?}. {}", duet.describe()));
    if duet.is_spoiled() {
        return Ok(());
    }
    let waits = must(duet, asker) == Must::Wait;
    let (before, after) = (duet.rows(), duet.outcome());
    let of = |rows: &[Row]| ask.result(rows, |place| duet.place(place));
    let mut right = vec![of(&after)];
    let repeatable = level == IsolationLevel::RepeatableRead;
    if !waits || repeatable {
        right.push(of(&before));
    }
    let found = match answer {
        Ok(rows) => Ok(*rows),
        Err(error) if is_taken(error) => Err(()),
        Err(EngineError::Deadlock) if duet.release == Release::AfterError => return Ok(()),
        Err(EngineError::Deadlock) => return wrong("meets a deadlock that there is none of"),
        Err(error) if error.is_retryable() => {
            // A load does not begin again.
            let written = before != after || (duet.take == Take::Replace && duet.release == Release::Commit);
            let may_lose = (repeatable || matches!(ask, Ask::LoadKey(_))) && written;
            return if may_lose { Ok(()) } else { wrong("lost against nobody") };
        }
        // Several may wait for each other.
        Err(EngineError::LockTimeout) if must(duet, asker) == Must::Pass && duet.asks.len() == 1 => {
            return wrong("waited for nobody");
        }
        Err(error) => {
            duet.rings.chaos.expect(error);
            return Ok(());
        }
    };
    if waits && !released {
        return wrong("did not wait");
    }
    if waits {
        duet.rings.chaos.count("duet waited");
    }
    if right.contains(&found) { Ok(()) } else { wrong("got what nobody has") }
}

async fn operation(duet: &Duet, transaction: &mut Transaction, ask: Ask, asker: usize) -> Result<u64, EngineError> {
    let container = duet.rings.container;
    let own = duet.place(OWN + asker as i64);
    let of = |attribute: AttributeId, place: i64| equal(container, attribute, duet.place(place));
    let fresh = |key, code| batch(&[Row { key, code, ..Row::new(duet.ring(), 3 + asker as i64, 0) }]);
    let put = |key, code| Write::Put { key, code }.change();
    match ask {
        Ask::Touch => transaction.update(&of(KEY, 0), Write::Touch { noted: false }.change()).await,
        Ask::Recode => transaction.update(&of(KEY, 0), put(None, Some(own))).await,
        Ask::Rename => transaction.update(&of(KEY, 0), put(Some(own), None)).await,
        Ask::Delete => transaction.delete(&of(KEY, 0), None).await,
        Ask::Lock(lock) => count(transaction.lock_rows(&of(KEY, 0), lock, LockWait::Wait).await),
        Ask::LockByCode(lock) => count(transaction.lock_rows(&of(CODE, 0), lock, LockWait::Wait).await),
        Ask::InsertKey(number) => transaction.insert(container, fresh(duet.place(number), own)).await,
        Ask::InsertCode(number) => transaction.insert(container, fresh(own, duet.place(number))).await,
        Ask::LoadKey(number) => {
            let mut bulk = transaction.bulk(container)?;
            bulk.append(fresh(duet.place(number), own)).await?;
            bulk.finish().await
        }
        Ask::RenameOther => transaction.update(&of(KEY, 1), put(Some(duet.place(2)), None)).await,
        Ask::RecodeOther => transaction.update(&of(KEY, 1), put(None, Some(duet.place(2)))).await,
        Ask::TouchAll => {
            let all = equal(container, RING, duet.ring());
            transaction.update(&all, Write::Touch { noted: true }.change()).await
        }
        Ask::LockAll(lock) => {
            let all = equal(container, RING, duet.ring());
            count(transaction.lock_rows(&all, lock, LockWait::Wait).await)
        }
    }
}

fn count(locked: Result<Vec<eris_storage::Batch>, EngineError>) -> Result<u64, EngineError> {
    Ok(rows_of(&locked?, 0).len() as u64)
}
