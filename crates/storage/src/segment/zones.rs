//! Smallest and largest value of each attribute of a sealed segment, for pruning.

use crate::batch::{ColumnView, RowsOf, ValidityView, ValuesView, view_prefix};
use crate::ids::AttributeId;
use crate::predicate::{Comparison, Condition, Test};
use crate::types::DataType;
use crate::value::{Value, order_f32, order_f64};

/// One attribute's zone.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Zone {
    /// Smallest and largest value that is not NULL; none if there is none.
    pub bounds: Option<(Value, Value)>,
    pub nulls: bool,
}

fn ends<S: Copy, K: Ord>(
    values: &[S],
    validity: ValidityView<'_>,
    rows: &RowsOf<'_>,
    order: impl Fn(S) -> K,
) -> Option<(S, S)> {
    fn fold<S: Copy, K: Ord>(values: impl Iterator<Item = S>, order: impl Fn(S) -> K) -> Option<(S, S)> {
        values.fold(None, |ends, value| match ends {
            None => Some((value, value)),
            Some((low, high)) => Some((
                if order(value) < order(low) { value } else { low },
                if order(value) > order(high) { value } else { high },
            )),
        })
    }
    match (rows, validity) {
        (RowsOf::Run(run), ValidityView::All) => fold(values[run.clone()].iter().copied(), order),
        (RowsOf::Run(run), bits) => fold(run.clone().filter(|row| bits.get(*row)).map(|row| values[row]), order),
        (RowsOf::List(list), bits) => {
            fold(list.iter().map(|row| *row as usize).filter(|row| bits.get(*row)).map(|row| values[row]), order)
        }
    }
}

fn bytes_ends<'a>(column: &ColumnView<'a>, rows: &RowsOf<'_>) -> Option<(&'a [u8], &'a [u8])> {
    let ValuesView::Bytes(views) = &column.values else { return None };
    // The rows of the two values, and how these begin: most others need not be looked at further.
    let mut ends: Option<[(u32, usize); 2]> = None;
    let mut add = |row: usize| {
        if !column.validity.get(row) {
            return;
        }
        let (prefix, value) = (view_prefix(views.views[row]), || views.get(row));
        let Some([low, high]) = &mut ends else {
            ends = Some([(prefix, row); 2]);
            return;
        };
        if prefix < low.0 || (prefix == low.0 && value() < views.get(low.1)) {
            *low = (prefix, row);
        }
        if prefix > high.0 || (prefix == high.0 && value() > views.get(high.1)) {
            *high = (prefix, row);
        }
    };
    match rows {
        RowsOf::Run(run) => run.clone().for_each(&mut add),
        RowsOf::List(list) => list.iter().for_each(|row| add(*row as usize)),
    }
    ends.map(|[(_, low), (_, high)]| (views.get(low), views.get(high)))
}

impl Zone {
    /// Widens the zone by a column's rows.
    pub(crate) fn add(&mut self, column: &ColumnView<'_>, rows: &RowsOf<'_>) {
        if let ValidityView::Bits { .. } = column.validity {
            self.nulls |= match rows {
                RowsOf::Run(run) => run.clone().any(|row| !column.validity.get(row)),
                RowsOf::List(list) => list.iter().any(|row| !column.validity.get(*row as usize)),
            };
        }
        let validity = column.validity;
        let ends = match (&column.values, column.data_type) {
            (ValuesView::Boolean(values), _) => {
                ends(values, validity, rows, |v| v).map(|(l, h)| (Value::Boolean(l != 0), Value::Boolean(h != 0)))
            }
            (ValuesView::Int16(values), _) => {
                ends(values, validity, rows, |v| v).map(|(l, h)| (Value::Int16(l), Value::Int16(h)))
            }
            (ValuesView::Int32(values), data_type) => {
                ends(values, validity, rows, |v| v).map(|(l, h)| match data_type {
                    DataType::Date => (Value::Date(l), Value::Date(h)),
                    _ => (Value::Int32(l), Value::Int32(h)),
                })
            }
            (ValuesView::Int64(values), data_type) => {
                ends(values, validity, rows, |v| v).map(|(l, h)| match data_type {
                    DataType::Timestamp => (Value::Timestamp(l), Value::Timestamp(h)),
                    DataType::Decimal { scale, .. } => {
                        let decimal = |v: i64| Value::Decimal { unscaled: i128::from(v), scale };
                        (decimal(l), decimal(h))
                    }
                    _ => (Value::Int64(l), Value::Int64(h)),
                })
            }
            (ValuesView::Int128(values), data_type) => {
                let scale = if let DataType::Decimal { scale, .. } = data_type { scale } else { 0 };
                let decimal = |unscaled| Value::Decimal { unscaled, scale };
                ends(values, validity, rows, |v| v).map(|(l, h)| (decimal(l), decimal(h)))
            }
            (ValuesView::Float32(values), _) => {
                ends(values, validity, rows, order_f32).map(|(l, h)| (Value::Float32(l), Value::Float32(h)))
            }
            (ValuesView::Float64(values), _) => {
                ends(values, validity, rows, order_f64).map(|(l, h)| (Value::Float64(l), Value::Float64(h)))
            }
            (ValuesView::Bytes(_), DataType::Text) => bytes_ends(column, rows).map(|(l, h)| {
                let text = |bytes: &[u8]| Value::Text(String::from_utf8_lossy(bytes).into());
                (text(l), text(h))
            }),
            (ValuesView::Bytes(_), _) => {
                bytes_ends(column, rows).map(|(l, h)| (Value::Bytes(l.into()), Value::Bytes(h.into())))
            }
        };
        self.bounds = match (self.bounds.take(), ends) {
            (bounds, None) => bounds,
            (None, ends) => ends,
            (Some((low, high)), Some((l, h))) => Some((low.min(l), high.max(h))),
        };
    }

    fn may_hold(&self, test: &Test) -> bool {
        if *test == Test::IsNull {
            return self.nulls;
        }
        let Some((low, high)) = &self.bounds else {
            // Only NULLs: every other test fails.
            return false;
        };
        match test {
            Test::IsNull | Test::IsNotNull | Test::CompareAttribute(..) => true,
            Test::Compare(_, Value::Null) => false,
            Test::Compare(Comparison::Equal, value) => low <= value && value <= high,
            Test::Compare(Comparison::NotEqual, value) => low != value || high != value,
            Test::Compare(Comparison::Less, value) => low < value,
            Test::Compare(Comparison::LessOrEqual, value) => low <= value,
            Test::Compare(Comparison::Greater, value) => high > value,
            Test::Compare(Comparison::GreaterOrEqual, value) => high >= value,
            Test::In(list) => list.iter().any(|value| !value.is_null() && low <= value && value <= high),
            Test::StartsWith(prefix) => match (low, high) {
                (Value::Text(low), Value::Text(high)) => {
                    let cut = |text: &str| text.as_bytes()[..text.len().min(prefix.len())].to_vec();
                    cut(low).as_slice() <= prefix.as_bytes() && prefix.as_bytes() <= cut(high).as_slice()
                }
                _ => true,
            },
        }
    }
}

/// Whether rows within these zones may satisfy all conditions.
pub(crate) fn may_qualify(zones: &[Zone], conditions: &[Condition]) -> bool {
    conditions.iter().all(|condition| {
        let AttributeId(attribute) = condition.attribute;
        zones.get(usize::from(attribute)).is_none_or(|zone| zone.may_hold(&condition.test))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::Batch;
    use eris_platform::SeededRandom;

    /// Values that share how they begin, are as long as a prefix, shorter or longer, and end with zeros.
    fn value(random: &mut SeededRandom) -> Value {
        let mut text: String = ["", "a", "ab\0", "abcd", "abcdefghijklmnop"][random.index(5)].to_string();
        let more = random.index(4);
        text.extend((0..more).map(|_| ['\0', 'a', 'b', 'é'][random.index(4)]));
        if random.below(8) == 0 { Value::Null } else { Value::Text(text.into()) }
    }

    #[test]
    fn the_ends_of_texts_are_those_of_all_of_them() {
        let mut random = SeededRandom::new(1);
        for _ in 0..2_000 {
            let count = 1 + random.index(6);
            let values: Vec<Vec<Value>> = (0..count).map(|_| vec![value(&mut random)]).collect();
            let column = Batch::from_rows(&[DataType::Text], &values).columns[0].clone();
            let from = random.index(count);
            let list: Vec<u32> = (from as u32..count as u32).rev().collect();
            let there = || values[from..].iter().map(|row| &row[0]).filter(|value| !value.is_null());
            let expected = there().min().cloned().zip(there().max().cloned());
            for rows in [RowsOf::Run(from..count), RowsOf::List(&list)] {
                let mut zone = Zone::default();
                zone.add(&column.view(), &rows);
                assert_eq!(zone.bounds, expected, "{values:?} from {from}");
            }
        }
    }
}
