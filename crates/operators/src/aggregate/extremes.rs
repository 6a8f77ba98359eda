//! The smallest or largest value of each group.
//!
//! Values of up to 64 bits are compared as integers in the same order; others as they are.

use eris_storage::{Column, ColumnBuilder, DataType, Value, Values};

use super::chosen::Chosen;

/// See the module.
#[derive(Debug)]
pub(super) enum Extremes {
    /// Of groups without a value it holds what every value beats.
    Numbers { best: Vec<i64>, largest: bool },
    /// NULL for groups without a value; how many bytes their texts have.
    Values { best: Vec<Value>, largest: bool, text_bytes: u64 },
}

/// An integer that is ordered as SQL orders floats; all NaNs are one, above everything else.
fn order_of_float(value: f64) -> i64 {
    let bits = if value.is_nan() { f64::NAN.to_bits() as i64 & i64::MAX } else { value.to_bits() as i64 };
    bits ^ (((bits >> 63) as u64) >> 1) as i64
}

fn float_of_order(order: i64) -> f64 {
    f64::from_bits((order ^ (((order >> 63) as u64) >> 1) as i64) as u64)
}

fn text_bytes_of(value: &Value) -> u64 {
    match value {
        Value::Text(text) => text.len() as u64,
        Value::Bytes(bytes) => bytes.len() as u64,
        _ => 0,
    }
}

impl Extremes {
    pub fn new(largest: bool, data_type: DataType) -> Self {
        use eris_storage::Physical;
        match data_type.physical() {
            Physical::Int128 | Physical::Bytes => Self::Values { best: Vec::new(), largest, text_bytes: 0 },
            Physical::Boolean
            | Physical::Int16
            | Physical::Int32
            | Physical::Int64
            | Physical::Float32
            | Physical::Float64 => Self::Numbers { best: Vec::new(), largest },
        }
    }

    pub fn group_bytes(&self) -> usize {
        match self {
            Self::Numbers { .. } => size_of::<i64>(),
            Self::Values { .. } => size_of::<Value>(),
        }
    }

    pub fn text_bytes(&self) -> u64 {
        match self {
            Self::Numbers { .. } => 0,
            Self::Values { text_bytes, .. } => *text_bytes,
        }
    }

    #[cfg(test)]
    pub fn allocated_bytes(&self) -> usize {
        match self {
            Self::Numbers { best, .. } => best.capacity() * size_of::<i64>(),
            Self::Values { best, .. } => best.capacity() * size_of::<Value>(),
        }
    }

    pub fn grow(&mut self, groups: usize, room: usize) {
        match self {
            Self::Numbers { best, largest } => {
                super::accumulator::grow(best, groups, room, if *largest { i64::MIN } else { i64::MAX });
            }
            Self::Values { best, .. } => super::accumulator::grow(best, groups, room, Value::Null),
        }
    }

    /// Takes a column's values that are not NULL.
    pub fn update(&mut self, input: &Column, groups: &[u32]) {
        match self {
            Self::Numbers { best, largest } => {
                let largest = *largest;
                macro_rules! each {
                    ($values:expr, $order:expr) => {
                        for (row, (value, group)) in $values.iter().zip(groups).enumerate() {
                            if !input.is_null(row) {
                                let (value, best) = ($order(*value), &mut best[*group as usize]);
                                *best = if largest { value.max(*best) } else { value.min(*best) };
                            }
                        }
                    };
                }
                match &input.values {
                    Values::Boolean(values) => each!(values, i64::from),
                    Values::Int16(values) => each!(values, i64::from),
                    Values::Int32(values) => each!(values, i64::from),
                    Values::Int64(values) => each!(values, |value: i64| value),
                    Values::Float32(values) => each!(values, |value: f32| order_of_float(f64::from(value))),
                    Values::Float64(values) => each!(values, order_of_float),
                    Values::Int128(_) | Values::Bytes(_) => unreachable!("{} is no number of 64 bits", input.data_type),
                }
            }
            Self::Values { best, largest, text_bytes } => {
                for (row, group) in groups.iter().enumerate() {
                    if input.is_null(row) {
                        continue;
                    }
                    let value = input.value(row);
                    let best = &mut best[*group as usize];
                    if best.is_null() || if *largest { value > *best } else { value < *best } {
                        *text_bytes = *text_bytes + text_bytes_of(&value) - text_bytes_of(best);
                        *best = value;
                    }
                }
            }
        }
    }

    /// The values of some groups; `any` says whether a group has one.
    pub fn column(&self, data_type: DataType, groups: &Chosen<'_>, any: impl Fn(usize) -> bool) -> Column {
        use eris_storage::Physical;
        if let Self::Numbers { best, .. } = self
            && groups.iter().all(&any)
        {
            let numbers = groups.iter().map(|group| best[group]);
            let values = match data_type.physical() {
                Physical::Int32 => Some(Values::Int32(numbers.map(|number| number as i32).collect())),
                Physical::Int64 => Some(Values::Int64(numbers.collect())),
                _ => None,
            };
            if let Some(values) = values {
                return Column { data_type, validity: None, values };
            }
        }
        let mut builder = ColumnBuilder::with_capacity(data_type, groups.len());
        for group in groups.iter() {
            match self {
                Self::Values { best, .. } => builder.push(&best[group]),
                Self::Numbers { .. } if !any(group) => builder.push_null(),
                Self::Numbers { best, .. } => {
                    let number = best[group];
                    match data_type.physical() {
                        Physical::Boolean => builder.push_bool(number as u8),
                        Physical::Int16 => builder.push_i16(number as i16),
                        Physical::Int32 => builder.push_i32(number as i32),
                        Physical::Int64 => builder.push_i64(number),
                        Physical::Int128 => builder.push_i128(i128::from(number)),
                        Physical::Float32 => builder.push_f32(float_of_order(number) as f32),
                        Physical::Float64 => builder.push_f64(float_of_order(number)),
                        Physical::Bytes => unreachable!("a number as {data_type}"),
                    }
                }
            }
        }
        builder.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_keep_their_order_and_value() {
        let ascending = [f64::NEG_INFINITY, -1.5, -0.0, 0.0, 1e-300, 2.0, f64::INFINITY, f64::NAN];
        for pair in ascending.windows(2) {
            assert!(order_of_float(pair[0]) < order_of_float(pair[1]), "{pair:?}");
        }
        for value in ascending {
            let back = float_of_order(order_of_float(value));
            assert!(back.to_bits() == value.to_bits() || (back.is_nan() && value.is_nan()), "{value}");
        }
        assert_eq!(order_of_float(-f64::NAN), order_of_float(f64::NAN));
    }
}
