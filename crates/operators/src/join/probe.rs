//! The step that looks rows up in what was built.

use std::sync::Arc;

use eris_storage::{BATCH_ROWS, Batch, Column, Value};

use super::kept::{Kept, NULL_ROW};
use super::output::{joined, marked, rows_only};
use super::pairs::{Order, Pairs, Walk};
use super::residual::passing;
use super::table::{Found, NO_ROW};
use super::{JoinBuild, JoinKind};
use crate::error::OperatorError;
use crate::expression::Expression;
use crate::pipeline::Emitting;

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

/// Takes what a probe makes of a batch.
pub(crate) type Next<'a> = dyn FnMut(Batch, &mut Emitting<'_>) -> Result<(), OperatorError> + 'a;

/// One batch on its way through a probe.
struct Probing<'a> {
    probe: &'a Probe,
    kept: &'a Kept,
    batch: &'a Batch,
    keys: &'a [Column],
    /// Which rows have a partner, where the others do not matter; `None`: the first partners are those of all rows.
    rows: Option<Vec<u32>>,
    /// The first partner of each row, plus one.
    firsts: Vec<u32>,
    order: Order<'a>,
    parameters: &'a [Value],
}

impl Probe {
    /// Hands to `next` what becomes of a batch, in pieces of at most a batch. `emit` is asked between pieces whether to
    /// go on.
    pub(crate) fn run(
        &self,
        batch: &Batch,
        parameters: &[Value],
        emit: &mut Emitting<'_>,
        next: &mut Next<'_>,
    ) -> Result<(), OperatorError> {
        let kept = self.build.kept()?;
        for start in (0..batch.rows).step_by(BATCH_ROWS) {
            let piece;
            let batch = if batch.rows <= BATCH_ROWS {
                batch
            } else {
                piece = batch.slice(start, BATCH_ROWS.min(batch.rows - start));
                &piece
            };
            let keys = self.keys.iter().map(|key| key.column(batch, parameters));
            let keys = keys.collect::<Result<Vec<_>, _>>()?;
            if keys.len() != self.build.spec.keys.len() || !kept.table.accepts(&keys) {
                return Err(OperatorError::Internal("the keys of a join differ in type".to_string()));
            }
            let null_equal = self.build.spec.null_equal;
            let (rows, firsts, order) = if keys.is_empty() {
                let first = if kept.rows == 0 { NO_ROW } else { 1 };
                (None, vec![first; batch.rows], Order::All(kept.rows as u32))
            } else if self.wants_partners_only() {
                let Found { rows, firsts } = kept.table.find_partners(&keys, batch.rows, null_equal);
                (Some(rows), firsts, Order::Chain(kept))
            } else {
                (None, kept.table.find(&keys, batch.rows, null_equal), Order::Chain(kept))
            };
            Probing { probe: self, kept, batch, keys: &keys, rows, firsts, order, parameters }.run(emit, next)?;
        }
        Ok(())
    }

    /// Whether rows without a partner do not matter.
    fn wants_partners_only(&self) -> bool {
        match self.kind {
            JoinKind::Inner | JoinKind::Build => true,
            JoinKind::Semi => self.residual.is_none(),
            JoinKind::Left | JoinKind::Anti | JoinKind::NullAwareAnti | JoinKind::Mark { .. } => false,
        }
    }
}

/// Asks whether the query goes on.
fn goes_on(emit: &mut Emitting<'_>) -> Result<(), OperatorError> {
    emit(Batch::new([], 0))
}

impl Probing<'_> {
    fn run(self, emit: &mut Emitting<'_>, next: &mut Next<'_>) -> Result<(), OperatorError> {
        match self.probe.kind {
            JoinKind::Inner => self.pairs(false, emit, next),
            JoinKind::Left => self.pairs(true, emit, next),
            JoinKind::Semi => match &self.rows {
                Some(rows) => self.hand_on_rows(rows, emit, next),
                None => self.rows(emit, next, |mark| mark == Some(true)),
            },
            JoinKind::Anti => self.rows(emit, next, |mark| mark != Some(true)),
            JoinKind::NullAwareAnti => self.rows(emit, next, |mark| mark == Some(false)),
            JoinKind::Mark { .. } => {
                let marks = self.marks(emit)?;
                next(marked(self.probe, self.batch, &marks), emit)
            }
            JoinKind::Build => self.meet(emit),
        }
    }

    fn rows(
        &self,
        emit: &mut Emitting<'_>,
        next: &mut Next<'_>,
        stays: impl Fn(Option<bool>) -> bool,
    ) -> Result<(), OperatorError> {
        let marks = self.marks(emit)?;
        let rows: Vec<u32> = (0..marks.len() as u32).filter(|row| stays(marks[*row as usize])).collect();
        self.hand_on_rows(&rows, emit, next)
    }

    fn hand_on_rows(&self, rows: &[u32], emit: &mut Emitting<'_>, next: &mut Next<'_>) -> Result<(), OperatorError> {
        if rows.is_empty() { Ok(()) } else { next(rows_only(self.probe, self.batch, rows), emit) }
    }

    /// Whether each build row has at most one partner among the walked.
    fn is_unique(&self) -> bool {
        match self.order {
            Order::Chain(kept) => kept.is_unique(),
            Order::All(rows) => rows <= 1,
        }
    }

    fn pairs(mut self, unmatched: bool, emit: &mut Emitting<'_>, next: &mut Next<'_>) -> Result<(), OperatorError> {
        let tested = self.probe.residual.is_some();
        if self.is_unique() && !tested {
            let pairs = match self.rows.take() {
                Some(rows) => Pairs::of_found(Found { rows, firsts: std::mem::take(&mut self.firsts) }),
                None => Pairs::of_firsts(&self.firsts, unmatched),
            };
            self.note_met(&pairs);
            return self.hand_on(&pairs, emit, next);
        }
        let mut matched = if unmatched { vec![false; self.batch.rows] } else { Vec::new() };
        let mut walk = Walk::new(self.rows.as_deref(), &self.firsts, self.order);
        while let Some(pairs) = walk.next() {
            let pairs = match passing(self.probe, self.kept, self.batch, &pairs, self.parameters)? {
                Some(rows) if rows.len() < pairs.len() => pairs.take(&rows),
                _ => pairs,
            };
            self.note_met(&pairs);
            if unmatched {
                pairs.probe.iter().for_each(|row| matched[*row as usize] = true);
            }
            self.hand_on(&pairs, emit, next)?;
            goes_on(emit)?;
        }
        let mut rest = Pairs::default();
        for (row, matched) in matched.into_iter().enumerate() {
            if !matched {
                rest.push(row as u32, NULL_ROW);
            }
        }
        self.hand_on(&rest, emit, next)
    }

    fn hand_on(&self, pairs: &Pairs, emit: &mut Emitting<'_>, next: &mut Next<'_>) -> Result<(), OperatorError> {
        if pairs.len() == 0 { Ok(()) } else { next(joined(self.probe, self.kept, self.batch, pairs), emit) }
    }

    fn note_met(&self, pairs: &Pairs) {
        if self.probe.build.spec.keep_unmatched {
            pairs.build.iter().filter(|row| **row != NULL_ROW).for_each(|row| self.kept.meet(*row));
        }
    }

    /// Marks build rows only.
    fn meet(&self, emit: &mut Emitting<'_>) -> Result<(), OperatorError> {
        if !self.probe.build.spec.keep_unmatched {
            return Err(OperatorError::Internal("a join that does not note which rows are met".to_string()));
        }
        if self.probe.residual.is_none() && !self.probe.keys.is_empty() {
            for first in &self.firsts {
                let mut at = *first;
                // Whoever met the first met the whole chain.
                while at != NO_ROW && !self.kept.is_met(at - 1) {
                    self.kept.meet(at - 1);
                    at = self.kept.behind(at - 1);
                }
            }
            return Ok(());
        }
        let mut walk = Walk::new(self.rows.as_deref(), &self.firsts, self.order);
        while let Some(pairs) = walk.next() {
            match passing(self.probe, self.kept, self.batch, &pairs, self.parameters)? {
                Some(rows) => self.note_met(&pairs.take(&rows)),
                None => self.note_met(&pairs),
            }
            goes_on(emit)?;
        }
        Ok(())
    }

    /// Whether each row has a partner; where NULLs are looked at, `None` if it might have one.
    fn marks(&self, emit: &mut Emitting<'_>) -> Result<Vec<Option<bool>>, OperatorError> {
        let null_aware = match self.probe.kind {
            JoinKind::NullAwareAnti | JoinKind::Mark { null_aware: true } => true,
            JoinKind::Inner
            | JoinKind::Left
            | JoinKind::Semi
            | JoinKind::Anti
            | JoinKind::Mark { null_aware: false }
            | JoinKind::Build => false,
        };
        let mut marks: Vec<Option<bool>> = self.firsts.iter().map(|first| Some(*first != NO_ROW)).collect();
        if self.probe.residual.is_some() {
            let order = self.order;
            marks = vec![Some(false); self.batch.rows];
            self.test(emit, &mut marks, Some(true), &self.firsts, |row, _| order.behind(row))?;
        }
        if null_aware {
            self.mark_unknown(emit, &mut marks)?;
        }
        Ok(marks)
    }

    /// Rows whose partner might be a NULL, or that are NULL themselves.
    fn mark_unknown(&self, emit: &mut Emitting<'_>, marks: &mut [Option<bool>]) -> Result<(), OperatorError> {
        let [key] = self.keys else {
            return Err(OperatorError::Internal(format!("NOT IN over {} keys", self.keys.len())));
        };
        let Kept { any, null_keys, null_rows, rows, .. } = self.kept;
        if self.probe.residual.is_none() {
            for (row, mark) in marks.iter_mut().enumerate() {
                if *mark == Some(false) && (*null_keys || (*any && key.is_null(row))) {
                    *mark = None;
                }
            }
            return Ok(());
        }
        if *null_keys && null_rows.is_empty() {
            return Err(OperatorError::Internal("NOT IN with a residual keeps rows whose key is NULL".to_string()));
        }
        // A NULL may be equal to any row; any row may be equal to those whose key is NULL.
        let candidate = |row: usize, at: usize| {
            let build = if key.is_null(row) { (at < *rows).then_some(at as u32) } else { null_rows.get(at).copied() };
            build.map_or(NO_ROW, |build| build + 1)
        };
        let first = |row: usize| if marks[row] == Some(true) { NO_ROW } else { candidate(row, 0) };
        let firsts: Vec<u32> = (0..marks.len()).map(first).collect();
        let mut round = vec![0; marks.len()];
        self.test(emit, marks, None, &firsts, |_, row| {
            round[row] += 1;
            candidate(row, round[row])
        })
    }

    /// Tests the residual on each row and its first partner, then on the rows that failed and their next one
    /// (`behind` the build row, for the probe row), and so on; rows that pass get `mark`.
    fn test(
        &self,
        emit: &mut Emitting<'_>,
        marks: &mut [Option<bool>],
        mark: Option<bool>,
        firsts: &[u32],
        mut behind: impl FnMut(u32, usize) -> u32,
    ) -> Result<(), OperatorError> {
        let mut pairs = Pairs::of_firsts(firsts, false);
        while pairs.len() > 0 {
            let passed = passing(self.probe, self.kept, self.batch, &pairs, self.parameters)?.unwrap_or_default();
            let mut passed = passed.into_iter().peekable();
            let mut rest = Pairs::default();
            for at in 0..pairs.len() {
                let (row, build) = (pairs.probe[at], pairs.build[at]);
                if passed.next_if_eq(&(at as u32)).is_some() {
                    marks[row as usize] = mark;
                    continue;
                }
                let next = behind(build, row as usize);
                if next != NO_ROW {
                    rest.push(row, next - 1);
                }
            }
            pairs = rest;
            goes_on(emit)?;
        }
        Ok(())
    }
}
