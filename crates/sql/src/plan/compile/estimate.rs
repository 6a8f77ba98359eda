//! How many rows are expected, and how many different values their columns have.
//!
//! Tables are known by a sample ([`crate::statistics`]). Conditions are evaluated on it, which sees what goes together
//! and how often a text matches; behind a join there is no sample, only numbers: a key that is unique on one side meets
//! each row of the other once (004 has no statistics; the rules are those of System R, with the containment of keys).

use std::collections::BTreeSet;

use eris_operators::{Expression, select};
use eris_storage::{Batch, Value};

/// What is expected of rows.
#[derive(Clone, Debug)]
pub(super) struct Estimate {
    /// How many.
    pub rows: f64,
    /// Of each column of the batches.
    pub columns: Vec<ColumnEstimate>,
    /// Sets of columns whose values together are in one row only.
    pub unique: Vec<UniqueKey>,
    /// Some of the rows.
    pub sample: Option<Batch>,
}

/// Columns whose values together are in one row only.
#[derive(Clone, Debug)]
pub(super) struct UniqueKey {
    /// The columns.
    pub columns: BTreeSet<usize>,
    /// How many rows there would be without conditions.
    pub domain: f64,
}

impl UniqueKey {
    /// Where the columns are after a projection; `None` if one is not there any more.
    fn moved(&self, place: impl Fn(&usize) -> Option<usize>) -> Option<Self> {
        Some(Self { columns: self.columns.iter().map(place).collect::<Option<_>>()?, domain: self.domain })
    }
}

/// What is expected of a column.
#[derive(Clone, Copy, Debug)]
pub(super) struct ColumnEstimate {
    /// Different values among the rows.
    pub distinct: f64,
    /// Different values that there would be without conditions: what a key is compared with.
    pub domain: f64,
}

/// The share that a condition keeps of which nothing is known.
const UNKNOWN_SHARE: f64 = 0.25;

impl Estimate {
    /// Rows of which only the number is known.
    pub fn unknown(rows: f64, columns: usize) -> Self {
        let column = ColumnEstimate { distinct: rows.max(1.0), domain: rows.max(1.0) };
        Self { rows, columns: vec![column; columns], unique: Vec::new(), sample: None }
    }

    /// Behind a condition.
    pub fn filtered(&self, condition: &Expression, parameters: &[Value]) -> Self {
        let judged = self.sample.as_ref().filter(|sample| sample.rows > 0).and_then(|sample| {
            let kept = select(condition, sample, parameters).ok()?;
            Some((kept.len() as f64 / sample.rows as f64, sample.take(&kept), sample.rows))
        });
        match judged {
            // None of so few says only that it is rare.
            Some((0.0, _, rows)) => self.scaled(0.5 / rows as f64, self.sample.clone()),
            Some((share, kept, _)) => self.scaled(share, Some(kept)),
            None => self.scaled(UNKNOWN_SHARE, None),
        }
    }

    /// A share of the rows.
    pub fn scaled(&self, share: f64, sample: Option<Batch>) -> Self {
        let rows = self.rows * share;
        let columns = self
            .columns
            .iter()
            .map(|column| ColumnEstimate { distinct: left_of(column.distinct, self.rows, rows), ..*column })
            .collect();
        Self { rows, columns, unique: self.unique.clone(), sample }
    }

    /// With other columns, some of which are columns of before.
    pub fn projected(&self, expressions: &[Expression], sources: &[Option<usize>]) -> Self {
        let computed = ColumnEstimate { distinct: self.rows.max(1.0), domain: self.rows.max(1.0) };
        let columns = sources.iter().map(|source| source.map_or(computed, |column| self.columns[column])).collect();
        let place = |column: &usize| sources.iter().position(|source| *source == Some(*column));
        let unique = self.unique.iter().filter_map(|key| key.moved(place)).collect();
        let sample = self.sample.as_ref().and_then(|sample| {
            let columns = expressions.iter().map(|expression| expression.column(sample, &[]).ok());
            Some(Batch::new(columns.collect::<Option<Vec<_>>>()?, sample.rows))
        });
        Self { rows: self.rows, columns, unique, sample }
    }

    /// Of the columns given, in this order.
    pub fn chosen(&self, columns: &[usize]) -> Self {
        let place = |column: &usize| columns.iter().position(|chosen| chosen == column);
        Self {
            rows: self.rows,
            columns: columns.iter().map(|column| self.columns[*column]).collect(),
            unique: self.unique.iter().filter_map(|key| key.moved(place)).collect(),
            sample: self.sample.as_ref().map(|sample| sample.project(columns)),
        }
    }

    /// Whether rows differ in these columns.
    pub fn is_unique(&self, columns: &[usize]) -> bool {
        self.unique.iter().any(|key| key.columns.iter().all(|column| columns.contains(column)))
    }
}

/// How many of `distinct` values are left when of `rows` rows only `kept` are: those that are in none of the others.
fn left_of(distinct: f64, rows: f64, kept: f64) -> f64 {
    if rows <= 0.0 || distinct <= 0.0 {
        return 1.0;
    }
    let of_each = rows / distinct;
    let share = (kept / rows).clamp(0.0, 1.0);
    (distinct * (1.0 - (1.0 - share).powf(of_each))).clamp(1.0, distinct.max(1.0))
}

/// Which share of all pairs of rows agree in these columns (left, right).
pub(super) fn share_of_pairs(left: &Estimate, right: &Estimate, pairs: &[(usize, usize)]) -> f64 {
    if pairs.is_empty() {
        return 1.0;
    }
    let (lefts, rights): (Vec<usize>, Vec<usize>) = pairs.iter().copied().unzip();
    let key = |side: &Estimate, columns: &[usize]| {
        let keys = side.unique.iter().filter(|key| key.columns.iter().all(|column| columns.contains(column)));
        keys.map(|key| key.domain).reduce(f64::min)
    };
    match (key(left, &lefts), key(right, &rights)) {
        (Some(domain), None) | (None, Some(domain)) => 1.0 / domain.max(1.0),
        (Some(left_domain), Some(right_domain)) => 1.0 / left_domain.max(right_domain).max(1.0),
        (None, None) => {
            let share = |(a, b): &(usize, usize)| 1.0 / left.columns[*a].domain.max(right.columns[*b].domain).max(1.0);
            let mut shares: Vec<f64> = pairs.iter().map(share).collect();
            // Columns that go together are not independent: the most selective one counts fully, others less and less.
            shares.sort_by(f64::total_cmp);
            shares.iter().zip([1.0, 0.5, 0.25, 0.125]).map(|(share, weight)| share.powf(weight)).product()
        }
    }
}
