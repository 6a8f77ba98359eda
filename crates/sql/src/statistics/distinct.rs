//! How many different values a column has, from a sample.
//!
//! The estimate is Duj1 of Haas et al., *Sampling-Based Estimation of the Number of Distinct Values of an Attribute*
//! (VLDB 1995): values seen once say how many were not seen. Bounds of whole numbers say how many there can be.
//!
//! A sample is made of windows of rows that lie one behind the other. Equal values there (the lines of an order) count
//! as one: they say how long such runs are, not that the value is frequent.

use std::collections::BTreeMap;

use eris_storage::{Column, Value};

/// Different values among `rows` rows of which `sample` are some.
pub(super) fn distinct_values<'b>(
    sample: &Column,
    bounds: impl Iterator<Item = (&'b Value, &'b Value)>,
    rows: f64,
) -> f64 {
    // By value: its runs.
    let mut seen: BTreeMap<Value, u32> = BTreeMap::new();
    let (mut values, mut before) = (0.0, None);
    for row in (0..sample.len()).filter(|row| !sample.is_null(*row)) {
        let value = sample.value(row);
        values += 1.0;
        if before.as_ref() != Some(&value) {
            *seen.entry(value.clone()).or_default() += 1;
            before = Some(value);
        }
    }
    let examined = f64::from(seen.values().sum::<u32>());
    if examined == 0.0 {
        return 1.0;
    }
    let rows_max = rows;
    let rows = rows * examined / values;
    let once = seen.values().filter(|count| **count == 1).count() as f64;
    let different = seen.len() as f64;
    let share = (examined / rows.max(examined)).min(1.0);
    let unseen = (1.0 - (1.0 - share) * once / examined).max(f64::MIN_POSITIVE);
    let estimate = (different / unseen).min(rows_max.max(different));
    let mut domain: Option<(f64, f64)> = None;
    for (low, high) in bounds {
        if let (Some(low), Some(high)) = (whole(low), whole(high)) {
            domain = Some(domain.map_or((low, high), |(least, most)| (least.min(low), most.max(high))));
        }
    }
    let possible = domain.map_or(f64::INFINITY, |(low, high)| high - low + 1.0);
    estimate.min(possible).max(different.min(possible)).max(1.0)
}

fn whole(value: &Value) -> Option<f64> {
    Some(match value {
        Value::Int16(v) => f64::from(*v),
        Value::Int32(v) | Value::Date(v) => f64::from(*v),
        Value::Int64(v) | Value::Timestamp(v) => *v as f64,
        Value::Decimal { unscaled, .. } => *unscaled as f64,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use eris_storage::{Batch, DataType};

    use super::*;

    fn column(values: impl Iterator<Item = i64>) -> Column {
        let rows: Vec<Vec<Value>> = values.map(|value| vec![Value::Int64(value)]).collect();
        Batch::from_rows(&[DataType::Int64], &rows).columns[0].clone()
    }

    #[test]
    fn few_values_many_values_and_bounds() {
        let few = distinct_values(&column((0..2_000).map(|n| n % 7)), std::iter::empty(), 1e6);
        assert!((few - 7.0).abs() < 0.01, "{few}");
        let all_different = distinct_values(&column(0..2_000), std::iter::empty(), 1e6);
        assert!(all_different > 9e5, "{all_different}");
        let bounds = [(Value::Int64(1), Value::Int64(50)), (Value::Int64(20), Value::Int64(3_000))];
        let bounded = distinct_values(&column(0..2_000), bounds.iter().map(|(low, high)| (low, high)), 1e6);
        assert!((bounded - 3_000.0).abs() < 0.01, "{bounded}");
        let twice = distinct_values(&column((0..2_000).map(|n| n % 1_000)), std::iter::empty(), 1e6);
        assert!((twice - 1_000.0).abs() < 0.01, "each was seen twice, so there are no others: {twice}");
        let in_pairs = distinct_values(&column((0..2_000).map(|n| n / 2)), std::iter::empty(), 1e6);
        assert!((4e5..6e5).contains(&in_pairs), "each has two rows, one behind the other: {in_pairs}");
    }
}
