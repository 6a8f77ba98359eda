//! Joins of two streams: which side is built, what is kept of it, and what the other side's rows become.

use std::collections::BTreeSet;
use std::sync::Arc;

use eris_operators::{BuildSpec, Expression, JoinKind};
use eris_query::{self as query, Join, Relation, Scalar, Unplanned, columns_of};
use eris_storage::DataType;

use super::estimate::{Estimate, share_of_pairs};
use super::graph::has_inner_joins;
use super::stream::{Places, Stream};
use super::{Compiler, Lowering, Needed};
use crate::native::{ProbePlan, SinkPlan, StepPlan};

/// How two streams are joined; columns are those of the batches.
pub(super) struct Matching {
    /// Keys of the side that is probed, and of the one that is built.
    pub probe_keys: Arc<[Expression]>,
    pub build_keys: Arc<[Expression]>,
    /// A further condition on both sides.
    pub residual: Option<Residual>,
    /// Whether NULL keys meet NULL keys.
    pub null_equal: bool,
}

/// A condition on rows of both sides.
pub(super) struct Residual {
    pub condition: Scalar,
    /// Where columns of the probed side are, and of the built side.
    pub probe: Places,
    pub build: Places,
}

impl Residual {
    /// The columns of the built side's batches that it refers to.
    fn build_columns(&self) -> impl Iterator<Item = usize> {
        columns_of([&self.condition]).into_iter().filter_map(|column| self.build.get(&column).copied())
    }

    /// Over the probed side's columns, then those of the built side that are kept.
    fn lower(&self, probe_width: usize, kept: &[usize]) -> Lowering<Expression> {
        query::lower(&self.condition, &|column| {
            let of_build = || {
                let own = self.build.get(&column)?;
                kept.iter().position(|kept| kept == own).map(|place| probe_width + place)
            };
            self.probe.get(&column).copied().or_else(of_build)
        })
    }
}

/// Two sides and the columns of theirs that are needed behind the join.
pub(super) struct Sides<'s> {
    pub probe: Stream,
    pub build: &'s Stream,
    /// Columns of the batches.
    pub probe_kept: Vec<usize>,
    pub build_kept: Vec<usize>,
}

impl Compiler<'_> {
    pub(super) fn join(&mut self, relation: &Relation, join: &Join, needed: &Needed) -> Lowering<Stream> {
        match join.kind {
            query::JoinKind::Inner | query::JoinKind::Semi | query::JoinKind::Anti { .. }
                if has_inner_joins(relation) =>
            {
                self.inner_joins(relation, needed)
            }
            _ => self.pair(join, needed),
        }
    }

    /// Builds one side and adds the probe to the other. The columns of the result: the kept ones of the probed side,
    /// then those of the built side, then a mark. Their places are the caller's to set.
    pub(super) fn probed(
        &mut self,
        sides: Sides<'_>,
        matching: &Matching,
        kind: JoinKind,
        keep_unmatched: bool,
    ) -> Lowering<(Stream, usize)> {
        let Sides { mut probe, build, probe_kept, build_kept } = sides;
        same_types(&matching.probe_keys, &matching.build_keys)?;
        let kept = kept_columns(&build_kept, matching.residual.as_ref());
        let place = |column: usize| kept.iter().position(|own| *own == column);
        let residual =
            matching.residual.as_ref().map(|residual| residual.lower(probe.types.len(), &kept)).transpose()?;
        let residual = residual.map(Arc::new);
        let needs_rows = !build_kept.is_empty() || residual.is_some() || keep_unmatched;
        let only_existence = matches!(kind, JoinKind::Semi | JoinKind::Anti | JoinKind::Mark { .. }) && !needs_rows;
        let spec = BuildSpec {
            keys: Arc::clone(&matching.build_keys),
            types: kept.iter().map(|column| build.types[*column]).collect(),
            columns: kept.clone().into(),
            keep_unmatched,
            existence: only_existence,
            null_equal: matching.null_equal,
        };
        let stage = self.end(build, SinkPlan::Build(spec));
        let build_columns: Vec<usize> = build_kept.iter().filter_map(|column| place(*column)).collect();
        probe.push(&StepPlan::Probe(ProbePlan {
            stage,
            kind,
            keys: Arc::clone(&matching.probe_keys),
            residual,
            probe_columns: probe_kept.clone().into(),
            build_columns: build_columns.into(),
            expected_shares: key_shares(&probe.estimate, &build.estimate, matching),
        }));
        let mut types: Vec<DataType> = probe_kept.iter().map(|column| probe.types[*column]).collect();
        types.extend(build_kept.iter().map(|column| build.types[*column]));
        let mut estimate = joined_estimate(&probe.estimate, &build.estimate, matching, kind, &probe_kept, &build_kept);
        if let JoinKind::Mark { .. } = kind {
            types.push(DataType::Boolean);
            estimate.columns.push(super::estimate::ColumnEstimate { distinct: 2.0, domain: 2.0 });
        }
        Ok((Stream { inputs: probe.inputs, places: Places::new(), types, estimate }, stage))
    }
}

/// The columns of a built side that are kept, in order: those that go on, and those that the residual sees.
pub(super) fn kept_columns(needed: &[usize], residual: Option<&Residual>) -> Vec<usize> {
    let mut kept: BTreeSet<usize> = needed.iter().copied().collect();
    kept.extend(residual.into_iter().flat_map(Residual::build_columns));
    kept.into_iter().collect()
}

/// Keys are compared as they lie in memory.
fn same_types(probe: &[Expression], build: &[Expression]) -> Lowering<()> {
    for (a, b) in probe.iter().zip(build) {
        let same = match (a.data_type(), b.data_type()) {
            (DataType::Decimal { scale: left, .. }, DataType::Decimal { scale: right, .. }) => {
                left == right && a.data_type().physical() == b.data_type().physical()
            }
            (left, right) => left == right,
        };
        if !same {
            return Err(Unplanned::because("a join of columns of different types"));
        }
    }
    Ok(())
}

/// The pairs of columns among the keys.
pub(super) fn column_pairs(probe: &[Expression], build: &[Expression]) -> Vec<(usize, usize)> {
    let pairs = probe.iter().zip(build).filter_map(|(a, b)| match (a, b) {
        (Expression::Column { index: a, .. }, Expression::Column { index: b, .. }) => Some((*a, *b)),
        _ => None,
    });
    pairs.collect()
}

/// Of each key's values among the probed rows, the share that is expected among the built ones.
fn key_shares(probe: &Estimate, build: &Estimate, matching: &Matching) -> Arc<[f64]> {
    let share = |(a, b): (&Expression, &Expression)| {
        let Expression::Column { index: a, .. } = a else { return 1.0 };
        let domain = probe.columns[*a].domain;
        let (distinct, domain) = match b {
            Expression::Column { index: b, .. } => {
                let column = &build.columns[*b];
                (column.distinct.min(build.rows), domain.max(column.domain))
            }
            _ => (build.rows, domain),
        };
        (distinct / domain.max(1.0)).clamp(0.0, 1.0)
    };
    matching.probe_keys.iter().zip(&*matching.build_keys).map(share).collect()
}

/// What a condition between two sides keeps when nothing is known of it.
const RESIDUAL_SHARE: f64 = 0.5;

fn joined_estimate(
    probe: &Estimate,
    build: &Estimate,
    matching: &Matching,
    kind: JoinKind,
    probe_kept: &[usize],
    build_kept: &[usize],
) -> Estimate {
    let pairs = column_pairs(&matching.probe_keys, &matching.build_keys);
    let computed = matching.probe_keys.len() - pairs.len();
    let mut share = share_of_pairs(probe, build, &pairs) * 0.01_f64.powi(computed as i32);
    if matching.residual.is_some() {
        share *= RESIDUAL_SHARE;
    }
    let all = probe.rows * build.rows * share;
    // Of the probed rows those with a partner.
    let met = met_share(probe, build, &pairs, all);
    let rows = match kind {
        JoinKind::Inner => all,
        JoinKind::Left => all.max(probe.rows),
        JoinKind::Semi => probe.rows * met,
        JoinKind::Anti | JoinKind::NullAwareAnti => probe.rows * (1.0 - met).max(0.01),
        JoinKind::Mark { .. } | JoinKind::Build => probe.rows,
    };
    let left = probe.chosen(probe_kept);
    let probe_once = build.is_unique(&pairs.iter().map(|(_, b)| *b).collect::<Vec<_>>());
    let build_once = probe.is_unique(&pairs.iter().map(|(a, _)| *a).collect::<Vec<_>>());
    let mut unique = Vec::new();
    if probe_once || !matches!(kind, JoinKind::Inner | JoinKind::Left) {
        unique.extend(left.unique.iter().cloned());
    }
    let mut columns = left.columns;
    if matches!(kind, JoinKind::Inner | JoinKind::Left) {
        let right = build.chosen(build_kept);
        columns.extend(right.columns);
        if build_once && kind == JoinKind::Inner {
            let moved = right.unique.into_iter().map(|mut key| {
                key.columns = key.columns.iter().map(|column| column + probe_kept.len()).collect();
                key
            });
            unique.extend(moved);
        }
    }
    for column in &mut columns {
        column.distinct = column.distinct.min(rows.max(1.0));
    }
    Estimate { rows, columns, unique, sample: None }
}

/// Which share of the probed rows has a partner.
fn met_share(probe: &Estimate, build: &Estimate, pairs: &[(usize, usize)], joined: f64) -> f64 {
    let by_rows = joined / probe.rows.max(1.0);
    let by_keys = match pairs {
        [(a, b)] => {
            let domain = probe.columns[*a].domain.max(build.columns[*b].domain).max(1.0);
            build.columns[*b].distinct / domain
        }
        _ => by_rows,
    };
    by_keys.min(by_rows).clamp(0.0, 1.0)
}
