//! Values of all types, each made of where it stands, so that a wrong one is noticed.

use eris_storage::{DataType, Value};

/// Every type there is.
pub const TYPES: [DataType; 13] = [
    DataType::Boolean,
    DataType::Int16,
    DataType::Int32,
    DataType::Int64,
    DataType::Float32,
    DataType::Float64,
    DataType::Decimal { precision: 9, scale: 2 },
    DataType::Decimal { precision: 18, scale: 0 },
    DataType::Decimal { precision: 30, scale: 4 },
    DataType::Date,
    DataType::Timestamp,
    DataType::Text,
    DataType::Bytes,
];

/// What a row with this key, written the `age`th time, has at this place; one in six is NULL.
pub fn value_of(data_type: DataType, key: i64, age: i64, place: usize) -> Value {
    let mut mixed = (key as u64) << 40 ^ (age as u64) << 20 ^ place as u64;
    // The finaliser of MurmurHash3: neighbours have nothing in common.
    mixed = (mixed ^ mixed >> 33).wrapping_mul(0xFF51_AFD7_ED55_8CCD);
    mixed = (mixed ^ mixed >> 33).wrapping_mul(0xC4CE_B9FE_1A85_EC53);
    mixed ^= mixed >> 33;
    let kind = mixed % 6;
    let bits = mixed / 6;
    match data_type {
        _ if kind == 0 => Value::Null,
        DataType::Boolean => Value::Boolean(bits % 2 == 1),
        DataType::Int16 => Value::Int16(bits as i16),
        DataType::Int32 => Value::Int32(bits as i32),
        DataType::Int64 => Value::Int64(mixed as i64),
        DataType::Float32 if kind == 1 => Value::Float32(f32::NAN),
        DataType::Float32 => Value::Float32(bits as i32 as f32 / 8.0),
        DataType::Float64 if kind == 1 => Value::Float64(f64::INFINITY),
        DataType::Float64 => Value::Float64(mixed as i64 as f64 / 1024.0),
        DataType::Decimal { precision, scale } => {
            let unscaled = i128::from(mixed as i64) * i128::from(bits) % 10_i128.pow(u32::from(precision));
            Value::Decimal { unscaled, scale }
        }
        DataType::Date => Value::Date(bits as i32 % 1_000_000),
        DataType::Timestamp => Value::Timestamp(mixed as i64 / 64),
        DataType::Text => {
            let words = format!("{age}th äge of {key} at {place}, ");
            Value::Text(words.chars().cycle().take((bits % 60) as usize).collect())
        }
        DataType::Bytes => Value::Bytes((0..bits % 40).map(|byte| (bits >> (byte % 50)) as u8).collect()),
    }
}
