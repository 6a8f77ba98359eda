//! A batch whose pairs with build rows are walked through, a batch of pairs at a time.
//!
//! There may be as many pairs as both sides have rows, multiplied. Whoever walks can stop between any two pieces: all
//! that is to be known to go on is here.

use std::sync::Arc;

use eris_storage::{BATCH_ROWS, Batch, Column, Value};

use super::JoinKind;
use super::kept::{Kept, NULL_ROW};
use super::pairs::{Pairs, Walk};
use super::probe::{Probe, one_key};
use super::residual::passing;
use super::table::NO_ROW;
use crate::error::OperatorError;

/// How far a batch got.
#[derive(Debug)]
pub(crate) struct Probing {
    probe: Arc<Probe>,
    batch: Batch,
    walking: Walking,
}

#[derive(Debug)]
enum Walking {
    /// All pairs; those that pass are joined, or mark build rows.
    Pairs {
        walk: Walk,
        /// Whether each probe row passed with a partner; empty if nobody wants to know.
        matched: Vec<bool>,
    },
    /// Whether each row has a partner.
    Marks(Marks),
}

/// The residual is tested on each row and its first partner, then on the rows that failed and their next one, and so
/// on.
#[derive(Debug)]
struct Marks {
    /// What is known of each row.
    known: Vec<Option<bool>>,
    /// What is tested next.
    pairs: Pairs,
    keys: Vec<Column>,
    /// Of a NOT IN, when no row is left that may have a partner: how many rows each was tested with that would be one
    /// if a NULL were equal to it.
    nulls: Option<Vec<usize>>,
}

/// What a piece of the walk gives.
#[derive(Debug)]
pub(crate) enum Walked {
    /// Rows, maybe none, and there may be more.
    Piece(Batch),
    /// The last rows.
    Last(Batch),
}

impl Probing {
    pub(super) fn pairs(probe: &Arc<Probe>, batch: Batch, walk: Walk) -> Box<Self> {
        let matched = if let JoinKind::Left = probe.kind { vec![false; batch.rows] } else { Vec::new() };
        Box::new(Self { probe: Arc::clone(probe), batch, walking: Walking::Pairs { walk, matched } })
    }

    pub(super) fn marks(probe: &Arc<Probe>, batch: Batch, keys: Vec<Column>, firsts: &[u32]) -> Box<Self> {
        let known = vec![Some(false); batch.rows];
        let marks = Marks { known, pairs: Pairs::of_firsts(firsts, false), keys, nulls: None };
        Box::new(Self { probe: Arc::clone(probe), batch, walking: Walking::Marks(marks) })
    }

    /// What it holds, with room for the pairs of one piece.
    pub(crate) fn bytes(&self) -> usize {
        let rows = self.batch.rows.max(BATCH_ROWS);
        self.batch.bytes() + rows * size_of::<[u32; 4]>()
    }

    /// Goes on, by a batch of pairs at most.
    pub(crate) fn next(&mut self, parameters: &[Value]) -> Result<Walked, OperatorError> {
        let Self { probe, batch, walking } = self;
        let kept = probe.build.kept()?;
        match walking {
            Walking::Pairs { walk, matched } => {
                let Some(pairs) = walk.next(probe.order(kept)) else {
                    return Ok(Walked::Last(probe.of_pairs(kept, batch, &without_partner(matched))));
                };
                let pairs = match passing(probe, kept, batch, &pairs, parameters)? {
                    Some(rows) if rows.len() < pairs.len() => pairs.take(&rows),
                    _ => pairs,
                };
                if !matched.is_empty() {
                    pairs.probe.iter().for_each(|row| matched[*row as usize] = true);
                }
                Ok(Walked::Piece(probe.of_pairs(kept, batch, &pairs)))
            }
            Walking::Marks(marks) => {
                if marks.pairs.len() == 0 && probe.kind.is_null_aware() && marks.nulls.is_none() {
                    marks.start_nulls(kept)?;
                }
                if marks.pairs.len() == 0 {
                    return Ok(Walked::Last(probe.of_marks(batch, &marks.known)));
                }
                marks.test(probe, kept, batch, parameters)?;
                Ok(Walked::Piece(Batch::new([], 0)))
            }
        }
    }
}

impl Marks {
    fn test(&mut self, probe: &Probe, kept: &Kept, batch: &Batch, parameters: &[Value]) -> Result<(), OperatorError> {
        let passed = passing(probe, kept, batch, &self.pairs, parameters)?.unwrap_or_default();
        let mut passed = passed.into_iter().peekable();
        let order = probe.order(kept);
        let mut rest = Pairs::default();
        for at in 0..self.pairs.len() {
            let (row, build) = (self.pairs.probe[at], self.pairs.build[at]);
            if passed.next_if_eq(&(at as u32)).is_some() {
                self.known[row as usize] = if self.nulls.is_none() { Some(true) } else { None };
                continue;
            }
            let next = match &mut self.nulls {
                None => order.behind(build),
                Some(tested) => {
                    let tested = &mut tested[row as usize];
                    *tested += 1;
                    null_candidate(kept, one_key(&self.keys)?, row as usize, *tested)
                }
            };
            if next != NO_ROW {
                rest.push(row, next - 1);
            }
        }
        self.pairs = rest;
        Ok(())
    }

    /// Rows without a partner might have one if NULLs were known.
    fn start_nulls(&mut self, kept: &Kept) -> Result<(), OperatorError> {
        let key = one_key(&self.keys)?;
        if kept.null_keys && kept.null_rows.is_empty() {
            return Err(OperatorError::Internal("NOT IN with a residual keeps rows whose key is NULL".to_string()));
        }
        let first = |row: usize| match self.known[row] {
            Some(true) => NO_ROW,
            _ => null_candidate(kept, key, row, 0),
        };
        let firsts: Vec<u32> = (0..self.known.len()).map(first).collect();
        self.pairs = Pairs::of_firsts(&firsts, false);
        self.nulls = Some(vec![0; firsts.len()]);
        Ok(())
    }
}

/// Of the build rows that a row might be equal to because of a NULL the one with a number, plus one. A NULL may be
/// equal to any row; any row may be equal to those whose key is NULL.
fn null_candidate(kept: &Kept, key: &Column, row: usize, at: usize) -> u32 {
    let build = if key.is_null(row) { (at < kept.rows).then_some(at as u32) } else { kept.null_rows.get(at).copied() };
    build.map_or(NO_ROW, |build| build + 1)
}

fn without_partner(matched: &[bool]) -> Pairs {
    let mut pairs = Pairs::default();
    for (row, _) in matched.iter().enumerate().filter(|(_, matched)| !**matched) {
        pairs.push(row as u32, NULL_ROW);
    }
    pairs
}
