//! The order of two rows, without copying values out.

use std::cmp::Ordering;

use eris_storage::{Column, Values};

use super::{SortKey, SortKeys};

/// An integer that is ordered as SQL orders floats: all NaNs are one, above everything else; -0 is 0.
fn order_of_float(value: f64) -> u64 {
    let bits = if value.is_nan() { f64::NAN.to_bits() & (u64::MAX >> 1) } else { (value + 0.0).to_bits() };
    bits ^ (((bits as i64) >> 63) as u64 | 1 << 63)
}

/// Whether two floats are one value to SQL.
pub(crate) fn same_float(a: f64, b: f64) -> bool {
    order_of_float(a) == order_of_float(b)
}

/// The order of two values of a column that are not NULL.
pub(crate) fn compare_values(column: &Column, a: usize, b: usize) -> Ordering {
    match &column.values {
        Values::Boolean(values) => values[a].cmp(&values[b]),
        Values::Int16(values) => values[a].cmp(&values[b]),
        Values::Int32(values) => values[a].cmp(&values[b]),
        Values::Int64(values) => values[a].cmp(&values[b]),
        Values::Int128(values) => values[a].cmp(&values[b]),
        Values::Float32(values) => order_of_float(values[a].into()).cmp(&order_of_float(values[b].into())),
        Values::Float64(values) => order_of_float(values[a]).cmp(&order_of_float(values[b])),
        Values::Bytes(views) => views.get(a).cmp(views.get(b)),
    }
}

/// Where a value that is not NULL comes beside one of another column of the same type, by the direction of a key.
pub(crate) fn compare_between(key: SortKey, column: &Column, a: usize, other: &Column, b: usize) -> Ordering {
    let ordering = match (&column.values, &other.values) {
        (Values::Boolean(x), Values::Boolean(y)) => x[a].cmp(&y[b]),
        (Values::Int16(x), Values::Int16(y)) => x[a].cmp(&y[b]),
        (Values::Int32(x), Values::Int32(y)) => x[a].cmp(&y[b]),
        (Values::Int64(x), Values::Int64(y)) => x[a].cmp(&y[b]),
        (Values::Int128(x), Values::Int128(y)) => x[a].cmp(&y[b]),
        (Values::Float32(x), Values::Float32(y)) => order_of_float(x[a].into()).cmp(&order_of_float(y[b].into())),
        (Values::Float64(x), Values::Float64(y)) => order_of_float(x[a]).cmp(&order_of_float(y[b])),
        (Values::Bytes(x), Values::Bytes(y)) => x.get(a).cmp(y.get(b)),
        _ => unreachable!("{} beside {}", column.data_type, other.data_type),
    };
    if key.descending { ordering.reverse() } else { ordering }
}

impl SortKey {
    fn compare(self, column: &Column, a: usize, b: usize) -> Ordering {
        match (column.is_null(a), column.is_null(b)) {
            (true, true) => Ordering::Equal,
            (true, false) if self.nulls_first => Ordering::Less,
            (true, false) => Ordering::Greater,
            (false, true) if self.nulls_first => Ordering::Greater,
            (false, true) => Ordering::Less,
            (false, false) => {
                let ordering = compare_values(column, a, b);
                if self.descending { ordering.reverse() } else { ordering }
            }
        }
    }

    /// A number for each row that is never larger for a row that comes first. NULLs may share theirs with the extreme
    /// values, long texts with others that begin alike.
    pub(super) fn ranks(self, column: &Column) -> Vec<u64> {
        fn of_integer(value: i64) -> u64 {
            value as u64 ^ 1 << 63
        }
        macro_rules! ranks {
            ($values:expr, $rank:expr) => {
                if self.descending {
                    $values.iter().map(|value| !$rank(*value)).collect::<Vec<u64>>()
                } else {
                    $values.iter().map(|value| $rank(*value)).collect::<Vec<u64>>()
                }
            };
        }
        let mut ranks = match &column.values {
            Values::Boolean(values) => ranks!(values, u64::from),
            Values::Int16(values) => ranks!(values, |value: i16| of_integer(value.into())),
            Values::Int32(values) => ranks!(values, |value: i32| of_integer(value.into())),
            Values::Int64(values) => ranks!(values, of_integer),
            Values::Int128(values) => {
                ranks!(values, |value: i128| { of_integer(value.clamp(i64::MIN.into(), i64::MAX.into()) as i64) })
            }
            Values::Float32(values) => ranks!(values, |value: f32| order_of_float(value.into())),
            Values::Float64(values) => ranks!(values, order_of_float),
            Values::Bytes(views) => {
                let rank = |row: usize| {
                    let bytes = views.get(row);
                    let mut first = [0; 8];
                    let length = bytes.len().min(8);
                    first[..length].copy_from_slice(&bytes[..length]);
                    let rank = u64::from_be_bytes(first);
                    if self.descending { !rank } else { rank }
                };
                (0..views.len()).map(rank).collect()
            }
        };
        if column.validity.is_some() {
            let null = if self.nulls_first { 0 } else { u64::MAX };
            for (row, rank) in ranks.iter_mut().enumerate() {
                if column.is_null(row) {
                    *rank = null;
                }
            }
        }
        ranks
    }

    /// Whether equal [ranks](Self::ranks) are equal values.
    pub(super) fn ranks_are_exact(column: &Column) -> bool {
        let exact = match &column.values {
            Values::Boolean(_)
            | Values::Int16(_)
            | Values::Int32(_)
            | Values::Int64(_)
            | Values::Float32(_)
            | Values::Float64(_) => true,
            Values::Int128(_) | Values::Bytes(_) => false,
        };
        exact && column.null_count() == 0
    }
}

impl SortKeys {
    /// The order of two rows of columns.
    pub(super) fn compare(&self, columns: &[Column], a: usize, b: usize) -> Ordering {
        let mut each = self.0.iter().map(|key| key.compare(&columns[key.column], a, b));
        each.find(|ordering| ordering.is_ne()).unwrap_or(Ordering::Equal)
    }

    /// What rows are sorted by before anything else is looked at.
    pub(super) fn ranks(&self, columns: &[Column], rows: usize) -> Vec<u64> {
        self.0.first().map_or_else(|| vec![0; rows], |key| key.ranks(&columns[key.column]))
    }

    /// The order of two rows with their ranks; rows that compare equal stay in their order.
    #[inline]
    pub(super) fn compare_ranked(&self, columns: &[Column], exact: bool, a: &(u64, u32), b: &(u64, u32)) -> Ordering {
        match a.0.cmp(&b.0) {
            Ordering::Equal if exact => a.1.cmp(&b.1),
            Ordering::Equal => self.compare(columns, a.1 as usize, b.1 as usize).then(a.1.cmp(&b.1)),
            decided => decided,
        }
    }

    /// Whether ranks say all.
    pub(super) fn ranks_are_exact(&self, columns: &[Column]) -> bool {
        match &*self.0 {
            [] => true,
            [only] => SortKey::ranks_are_exact(&columns[only.column]),
            _ => false,
        }
    }
}
