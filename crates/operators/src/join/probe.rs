//! The step that looks rows up in what was built.

use std::sync::Arc;

use eris_storage::{Batch, Column, Value};

use super::kept::{Kept, NULL_ROW};
use super::output::{joined, marked, rows_only};
use super::pairs::{Order, Pairs, Walk};
use super::probing::Probing;
use super::table::{Found, NO_ROW};
use super::{JoinBuild, JoinKind};
use crate::error::OperatorError;
use crate::expression::Expression;

/// Looks the rows of batches up in a build side. Its output: probe columns, then build columns (or the mark).
#[derive(Clone, Debug)]
pub struct Probe {
    /// What they are looked up in; built by an earlier stage.
    pub build: Arc<JoinBuild>,
    /// What becomes of them.
    pub kind: JoinKind,
    /// Over the probe batch, as many as the build side has; none: every pair of rows meets.
    pub keys: Arc<[Expression]>,
    /// What else a pair has to satisfy: over all columns of the probe batch, then the kept columns of the build side.
    pub residual: Option<Arc<Expression>>,
    /// Columns of the probe batch that stay.
    pub probe_columns: Arc<[usize]>,
    /// Kept columns of the build side that come behind them.
    pub build_columns: Arc<[usize]>,
}

/// What becomes of a batch.
pub(crate) enum Probed {
    /// One batch, which may have no rows.
    Batch(Batch),
    /// Pairs of rows that are walked through, a batch of them at a time.
    Pairs(Box<Probing>),
}

impl Probe {
    /// Looks up a batch of at most [`BATCH_ROWS`](eris_storage::BATCH_ROWS).
    pub(crate) fn start(self: &Arc<Self>, batch: Batch, parameters: &[Value]) -> Result<Probed, OperatorError> {
        let keys = self.keys.iter().map(|key| key.column(&batch, parameters)).collect::<Result<Vec<_>, _>>()?;
        self.start_keyed(batch, keys)
    }

    /// The same with keys that were computed before.
    pub(super) fn start_keyed(self: &Arc<Self>, batch: Batch, keys: Vec<Column>) -> Result<Probed, OperatorError> {
        let kept = self.build.kept()?;
        if keys.len() != self.build.spec.keys.len() || !kept.table.accepts(&keys) {
            return Err(OperatorError::Internal("the keys of a join differ in type".to_string()));
        }
        let tested = self.residual.is_some();
        if let JoinKind::Inner | JoinKind::Left = self.kind
            && !tested
            && self.order(kept).is_unique()
        {
            let pairs = self.unique_pairs(kept, &keys, batch.rows);
            return Ok(Probed::Batch(self.of_pairs(kept, &batch, &pairs)));
        }
        if let JoinKind::Semi = self.kind
            && !tested
            && !keys.is_empty()
        {
            let rows = kept.table.find_partners(&keys, batch.rows, self.null_equal()).rows;
            return Ok(Probed::Batch(self.of_rows(&batch, &rows)));
        }
        if let JoinKind::Build = self.kind
            && !self.build.spec.keep_unmatched
        {
            return Err(OperatorError::Internal("a join that does not note which rows are met".to_string()));
        }
        Ok(match self.kind {
            JoinKind::Build if !tested && !keys.is_empty() => {
                let Found { firsts, .. } = kept.table.find_partners(&keys, batch.rows, self.null_equal());
                meet_chains(kept, &firsts);
                Probed::Batch(Batch::new([], 0))
            }
            JoinKind::Inner | JoinKind::Build if !keys.is_empty() => {
                let Found { rows, firsts } = kept.table.find_partners(&keys, batch.rows, self.null_equal());
                Probed::Pairs(Probing::pairs(self, batch, Walk::new(Some(rows), firsts)))
            }
            JoinKind::Inner | JoinKind::Left | JoinKind::Build => {
                let firsts = self.firsts(kept, &keys, batch.rows);
                Probed::Pairs(Probing::pairs(self, batch, Walk::new(None, firsts)))
            }
            JoinKind::Semi | JoinKind::Anti | JoinKind::NullAwareAnti | JoinKind::Mark { .. } => {
                let firsts = self.firsts(kept, &keys, batch.rows);
                if tested {
                    return Ok(Probed::Pairs(Probing::marks(self, batch, keys, &firsts)));
                }
                let mut marks: Vec<Option<bool>> = firsts.iter().map(|first| Some(*first != NO_ROW)).collect();
                if self.kind.is_null_aware() {
                    let key = one_key(&keys)?;
                    for (row, mark) in marks.iter_mut().enumerate() {
                        if *mark == Some(false) && (kept.null_keys || (kept.any && key.is_null(row))) {
                            *mark = None;
                        }
                    }
                }
                Probed::Batch(self.of_marks(&batch, &marks))
            }
        })
    }

    fn null_equal(&self) -> bool {
        self.build.spec.null_equal
    }

    /// How the build rows follow each other that a row might meet.
    pub(super) fn order<'k>(&self, kept: &'k Kept) -> Order<'k> {
        if self.keys.is_empty() { Order::All(kept.rows as u32) } else { Order::Chain(kept) }
    }

    /// The first partner of each row, plus one.
    fn firsts(&self, kept: &Kept, keys: &[Column], rows: usize) -> Vec<u32> {
        if keys.is_empty() {
            let first = if kept.rows == 0 { NO_ROW } else { 1 };
            return vec![first; rows];
        }
        kept.table.find(keys, rows, self.null_equal())
    }

    fn unique_pairs(&self, kept: &Kept, keys: &[Column], rows: usize) -> Pairs {
        if let JoinKind::Left = self.kind {
            return Pairs::of_firsts(&self.firsts(kept, keys, rows), true);
        }
        if keys.is_empty() {
            return Pairs::of_firsts(&self.firsts(kept, keys, rows), false);
        }
        Pairs::of_found(kept.table.find_partners(keys, rows, self.null_equal()))
    }

    /// What becomes of pairs that meet; their build rows are marked, where that matters.
    pub(super) fn of_pairs(&self, kept: &Kept, batch: &Batch, pairs: &Pairs) -> Batch {
        if self.build.spec.keep_unmatched {
            pairs.build.iter().filter(|row| **row != NULL_ROW).for_each(|row| kept.meet(*row));
        }
        match self.kind {
            JoinKind::Build => Batch::new([], 0),
            _ if pairs.len() == 0 => Batch::new([], 0),
            _ => joined(self, kept, batch, pairs),
        }
    }

    fn of_rows(&self, batch: &Batch, rows: &[u32]) -> Batch {
        if rows.is_empty() { Batch::new([], 0) } else { rows_only(self, batch, rows) }
    }

    /// What becomes of a batch of which is known whether each row has a partner; `None`: it might have one.
    pub(super) fn of_marks(&self, batch: &Batch, marks: &[Option<bool>]) -> Batch {
        let stays: fn(Option<bool>) -> bool = match self.kind {
            JoinKind::Semi => |mark| mark == Some(true),
            JoinKind::Anti => |mark| mark != Some(true),
            JoinKind::NullAwareAnti => |mark| mark == Some(false),
            JoinKind::Mark { .. } => return marked(self, batch, marks),
            JoinKind::Inner | JoinKind::Left | JoinKind::Build => unreachable!("they want all partners"),
        };
        let rows: Vec<u32> = (0..marks.len() as u32).filter(|row| stays(marks[*row as usize])).collect();
        self.of_rows(batch, &rows)
    }
}

/// The key of a NOT IN.
pub(super) fn one_key(keys: &[Column]) -> Result<&Column, OperatorError> {
    match keys {
        [key] => Ok(key),
        _ => Err(OperatorError::Internal(format!("NOT IN over {} keys", keys.len()))),
    }
}

/// Marks all rows of chains.
fn meet_chains(kept: &Kept, firsts: &[u32]) {
    for first in firsts {
        let mut at = *first;
        // Whoever met the first met the whole chain.
        while at != NO_ROW && !kept.is_met(at - 1) {
            kept.meet(at - 1);
            at = kept.behind(at - 1);
        }
    }
}
