//! The 22 queries of TPC-H, one after the other, as one task of the engine.
//!
//! No thread but the workers has anything to do meanwhile: a client's would take the processor from the workers whose
//! latencies are measured. So answers stay as they come and are checked when nothing is measured any more.

use std::collections::BTreeMap;

use eris_sql::{Database, SessionOptions, SqlError};

use super::heartbeat::{Heartbeat, Seen};
use crate::analytics::{Query, Verdict, judged, unlike_any_other};
use crate::instance::{Instance, TimedBatches, failure, timed_query};

/// Each query's, in the order of the queries, with what its snapshot saw of the heartbeat.
pub(super) type Answers = Vec<Result<(TimedBatches, Seen), SqlError>>;

pub(super) struct Stream<'q> {
    database: Database,
    heartbeat: Heartbeat,
    queries: Vec<(&'q Query, Verdict<'q>)>,
    passes: usize,
    /// How many answers were `ok`, `unchecked` or whatever else there is to say, with the query's name.
    answers: BTreeMap<String, u64>,
    right: bool,
}

/// The queries once.
pub(super) struct Pass {
    /// From each text to its last row, together.
    pub total_ms: f64,
    pub seen: Vec<Seen>,
}

impl<'q> Stream<'q> {
    pub fn new(instance: &Instance, queries: &'q [Query], heartbeat: &Heartbeat) -> Self {
        Self {
            database: instance.sql().clone(),
            heartbeat: heartbeat.clone(),
            queries: queries.iter().map(|query| (query, Verdict::new(query))).collect(),
            passes: 0,
            answers: BTreeMap::new(),
            right: true,
        }
    }

    /// The next pass, for a task of the engine; its answers are to be checked.
    pub fn pass(&mut self) -> impl Future<Output = Answers> + Send + 'static + use<> {
        let (database, heartbeat, repetition) = (self.database.clone(), self.heartbeat.clone(), self.passes);
        self.passes += 1;
        let texts: Vec<String> =
            self.queries.iter().map(|(query, _)| unlike_any_other(&query.sql, repetition)).collect();
        async move {
            let mut answers = Answers::with_capacity(texts.len());
            for sql in &texts {
                answers.push(ask(&database, &heartbeat, sql).await);
            }
            answers
        }
    }

    pub fn check(&mut self, answers: Answers) -> Pass {
        let mut pass = Pass { total_ms: 0.0, seen: Vec::new() };
        for ((query, verdict), answer) in self.queries.iter_mut().zip(answers) {
            let answer = answer.map(|(batches, seen)| {
                pass.seen.push(seen);
                batches.into_answer()
            });
            let result = judged(query, verdict, answer.map_err(|error| failure(&error)));
            pass.total_ms += result.median_ms;
            self.right &= result.is_right();
            let said = if result.is_right() { result.answer } else { format!("{} {}", result.name, result.answer) };
            *self.answers.entry(said).or_default() += 1;
        }
        pass
    }

    /// What was said of all answers, and whether none was wrong.
    pub fn into_answers(self) -> (BTreeMap<String, u64>, bool) {
        (self.answers, self.right)
    }
}

async fn ask(database: &Database, heartbeat: &Heartbeat, sql: &str) -> Result<(TimedBatches, Seen), SqlError> {
    let now = || database.engine().env().now();
    let mut session = database.session(SessionOptions::default());
    let seen = heartbeat.begin_block(&mut session).await?;
    let answer = timed_query(&mut session, sql, 1, now).await?;
    timed_query(&mut session, "COMMIT", 1, now).await?;
    session.close().await;
    Ok((answer, seen))
}
