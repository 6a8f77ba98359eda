//! The verdict on the answers to one query.
//!
//! Where an answer is stored, ERIS and its peers are compared with that. Where none is, the peers are compared with
//! what ERIS answered first, and a peer that says something else is named. Without peers such an answer stays
//! `unchecked`, except for its columns and the order of its rows.

use super::peers::PeerKind;
use super::suite::Query;
use eris_workloads::answers::{Answer, AnswerMismatch};
use eris_workloads::connection::SqlValue;
use eris_workloads::tpch::answer_shape;

pub(super) const OK: &str = "ok";
pub(super) const UNCHECKED: &str = "unchecked";

pub(crate) struct Verdict<'q> {
    query: &'q Query,
    /// The first answer of ERIS, where none is stored.
    own: Option<Answer>,
    peers_agree: usize,
    difference: Option<String>,
}

impl<'q> Verdict<'q> {
    pub fn new(query: &'q Query) -> Self {
        Self { query, own: None, peers_agree: 0, difference: None }
    }

    fn answer(&self) -> Option<&Answer> {
        self.query.stored.as_ref().or(self.own.as_ref())
    }

    /// What is to be said of an answer of ERIS alone.
    pub fn on_own(&mut self, rows: &[Vec<SqlValue>]) -> String {
        let checked = match self.answer() {
            Some(answer) => answer.check(rows),
            None => Answer::of_result(answer_shape(self.query.number), rows).map(|answer| self.own = Some(answer)),
        };
        match checked {
            Ok(()) if self.query.stored.is_some() => OK.to_owned(),
            Ok(()) => UNCHECKED.to_owned(),
            Err(mismatch) => format!("wrong: {mismatch}"),
        }
    }

    /// Whether a peer's answer is right, or that of ERIS if none is stored.
    pub fn on_peer(&mut self, peer: PeerKind, rows: &[Vec<SqlValue>]) -> bool {
        let Some(answer) = self.answer() else { return false };
        let checked = if peer.prints_all_digits() { answer.check(rows) } else { answer.check_as_printed(rows) };
        match &checked {
            Ok(()) => self.peers_agree += 1,
            Err(mismatch) if self.query.stored.is_none() => {
                self.difference.get_or_insert_with(|| difference(peer, mismatch));
            }
            Err(_) => {}
        }
        checked.is_ok()
    }

    /// What is to be said in the end of an answer that was right as far as it was checked.
    pub fn in_the_end(self) -> String {
        match self.difference {
            Some(difference) => difference,
            None if self.query.stored.is_some() || self.peers_agree > 0 => OK.to_owned(),
            None => UNCHECKED.to_owned(),
        }
    }
}

/// A peer's answer beside that of ERIS.
fn difference(peer: PeerKind, mismatch: &AnswerMismatch) -> String {
    let what = match mismatch {
        AnswerMismatch::RowCount { expected, actual } => format!("{actual} rows there, {expected} here"),
        AnswerMismatch::ColumnCount { expected, actual } => format!("{actual} columns there, {expected} here"),
        AnswerMismatch::Order { row } => format!("its row {row} and the next one are not in the query's order"),
        AnswerMismatch::Value { column, expected, actual } => {
            format!("column {column}: {actual} there, {expected} here")
        }
        AnswerMismatch::Hash { .. } => "other rows".to_owned(),
    };
    format!("differs from {}: {what}", peer.name())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analytics::suite::Suite;

    /// Q14: one approximate value.
    fn query(scale_factor: f64) -> Query {
        Suite::Tpch.queries(scale_factor).swap_remove(13)
    }

    fn percent(text: &str) -> Vec<Vec<SqlValue>> {
        vec![vec![SqlValue::Text(text.to_owned())]]
    }

    #[test]
    fn a_stored_answer_is_what_counts() {
        let query = query(0.01);
        let mut verdict = Verdict::new(&query);
        assert_eq!(verdict.on_own(&percent("15.48654581228407")), "ok");
        assert!(!verdict.on_peer(PeerKind::DuckDb, &percent("15.5")));
        assert!(verdict.on_peer(PeerKind::DuckDb, &percent("15.4865458122840701")));
        let column_0 = "wrong: column 0: 15.5 where 15.48654581228407 is right";
        assert_eq!(verdict.on_own(&percent("15.5")), column_0);
        assert_eq!(verdict.in_the_end(), "ok", "a wrong peer makes no answer wrong");
    }

    #[test]
    fn without_one_the_peers_have_to_agree() {
        let query = query(0.05);
        let verdict = |peers: &[(PeerKind, &str)]| {
            let mut verdict = Verdict::new(&query);
            assert_eq!(verdict.on_own(&percent("15.48654581228407")), "unchecked");
            let right = peers.iter().filter(|(peer, text)| verdict.on_peer(*peer, &percent(text))).count();
            (verdict.in_the_end(), right)
        };
        assert_eq!(verdict(&[]), ("unchecked".to_owned(), 0));
        let all_digits = (PeerKind::DuckDb, "15.48654581228407");
        let few_digits = (PeerKind::Hyper, "15.486546");
        assert_eq!(verdict(&[all_digits, few_digits]), ("ok".to_owned(), 2));
        let difference = "differs from duckdb: column 0: 15.486546 there, 15.48654581228407 here".to_owned();
        assert_eq!(verdict(&[few_digits, (PeerKind::DuckDb, "15.486546")]), (difference, 1));
    }

    #[test]
    fn what_cannot_be_right_is_wrong_without_any_comparison() {
        let query = query(0.05);
        let mut verdict = Verdict::new(&query);
        assert_eq!(verdict.on_own(&[vec![]]), "wrong: 0 columns where 1 are right");
        assert!(!verdict.on_peer(PeerKind::DuckDb, &percent("15.5")), "there is nothing to compare it with");
        assert_eq!(verdict.on_own(&percent("1")), "unchecked");
        assert_eq!(verdict.on_own(&percent("2")), "wrong: column 0: 2 where 1 is right", "as the first time");
    }
}
