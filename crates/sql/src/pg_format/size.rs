//! How many bytes a value has in PostgreSQL's encodings at most, without writing it: exact for what may be long.

use eris_storage::{Column, DataType, Values};

/// Digits, sign and point of the longest decimal, and anything else of a fixed size but a 128-bit number.
const FIXED_TEXT_BYTES: usize = 48;
/// The longest interval has 66.
const WIDE_TEXT_BYTES: usize = 72;
/// A numeric of 38 digits has eleven groups of four and eight bytes before.
const NUMERIC_BYTES: usize = 32;

/// Of [`text`](super::text).
pub fn text_bytes(column: &Column, row: usize) -> usize {
    match (&column.values, column.data_type) {
        (Values::Boolean(_), _) => 1,
        (Values::Int16(_), _) => 6,
        (Values::Int32(_) | Values::Float32(_), _) => 24,
        (Values::Int64(_) | Values::Float64(_), _) => FIXED_TEXT_BYTES,
        (Values::Int128(_), _) => WIDE_TEXT_BYTES,
        (Values::Bytes(views), DataType::Bytes) => 2 + 2 * views.get(row).len(),
        (Values::Bytes(views), _) => views.get(row).len(),
    }
}

/// Of [`binary`](super::binary).
pub fn binary_bytes(column: &Column, row: usize) -> usize {
    match &column.values {
        Values::Boolean(_) | Values::Int16(_) | Values::Int32(_) | Values::Float32(_) => 4,
        Values::Int64(_) | Values::Int128(_) | Values::Float64(_) => NUMERIC_BYTES,
        Values::Bytes(views) => views.get(row).len(),
    }
}

#[cfg(test)]
mod tests {
    use eris_storage::{Buffer, Value};

    use super::*;
    use crate::pg_format::{binary, pack_interval, text};
    use crate::types::SqlType;

    fn assert_covers(column: &Column, sql_type: SqlType) {
        for row in 0..column.len() {
            let (mut as_text, mut as_binary) = (Vec::new(), Vec::new());
            text(column, row, sql_type, &mut as_text);
            binary(column, row, sql_type, &mut as_binary);
            let at_most = text_bytes(column, row);
            assert!(as_text.len() <= at_most, "{}: {at_most}", String::from_utf8_lossy(&as_text));
            assert!(as_binary.len() <= binary_bytes(column, row), "{sql_type:?}: {}", as_binary.len());
        }
    }

    #[test]
    fn the_longest_values_are_covered() {
        let numeric = |precision, scale| SqlType::Numeric { precision, scale };
        let decimal = |precision, scale| DataType::Decimal { precision, scale };
        for (data_type, value, sql_type) in [
            (DataType::Int16, Value::Int16(i16::MIN), SqlType::SmallInt),
            (DataType::Int32, Value::Int32(i32::MIN), SqlType::Integer),
            (DataType::Int64, Value::Int64(i64::MIN), SqlType::BigInt),
            (DataType::Float32, Value::Float32(-f32::MIN_POSITIVE), SqlType::Real),
            (DataType::Float32, Value::Float32(-1.0 / 3_000.0), SqlType::Real),
            (DataType::Float64, Value::Float64(-f64::MIN_POSITIVE), SqlType::Double),
            (DataType::Float64, Value::Float64(-1.0 / 3_000.0), SqlType::Double),
            (decimal(38, 38), Value::Decimal { unscaled: -(10_i128.pow(38) - 1), scale: 38 }, numeric(38, 38)),
            (decimal(38, 37), Value::Decimal { unscaled: 10_i128.pow(38) - 1, scale: 37 }, numeric(38, 37)),
            (decimal(38, 1), Value::Decimal { unscaled: 10_i128.pow(38) - 1, scale: 1 }, numeric(38, 1)),
        ] {
            assert_covers(&Column::constant(data_type, &value, 1), sql_type);
        }
        let longest = pack_interval(i32::MIN, i32::MIN, i64::MIN);
        let values = Values::Int128(Buffer::from(vec![longest]));
        assert_covers(&Column { data_type: decimal(38, 0), validity: None, values }, SqlType::Interval);
    }

    #[test]
    fn long_values_are_told_exactly() {
        let long = "x".repeat(100_000);
        let texts = Column::constant(DataType::Text, &Value::Text(long.as_str().into()), 1);
        assert_eq!((text_bytes(&texts, 0), binary_bytes(&texts, 0)), (100_000, 100_000));
        let bytes = Column::constant(DataType::Bytes, &Value::Bytes(long.as_bytes().into()), 1);
        assert_eq!((text_bytes(&bytes, 0), binary_bytes(&bytes, 0)), (200_002, 100_000));
    }
}
