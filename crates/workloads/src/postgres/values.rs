//! Values on the wire: which types travel in binary, and how both formats are read and written.

use crate::connection::{SqlFailure, SqlValue};

/// Object id of a PostgreSQL type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TypeOid(pub u32);

impl TypeOid {
    const BOOL: Self = Self(16);
    const INT8: Self = Self(20);
    const INT2: Self = Self(21);
    const INT4: Self = Self(23);
    const TEXT: Self = Self(25);
    const FLOAT4: Self = Self(700);
    const FLOAT8: Self = Self(701);
    const BPCHAR: Self = Self(1042);
    const VARCHAR: Self = Self(1043);

    fn is_integer(self) -> bool {
        matches!(self, Self::INT2 | Self::INT4 | Self::INT8)
    }

    fn is_float(self) -> bool {
        matches!(self, Self::FLOAT4 | Self::FLOAT8)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    Text,
    Binary,
}

impl Format {
    pub(super) fn code(self) -> i16 {
        match self {
            Self::Text => 0,
            Self::Binary => 1,
        }
    }
}

/// The format in which a result column of this type is asked for.
pub(super) fn result_format(oid: TypeOid) -> Format {
    let text = matches!(oid, TypeOid::TEXT | TypeOid::VARCHAR | TypeOid::BPCHAR);
    if oid.is_integer() || oid.is_float() || oid == TypeOid::BOOL || text { Format::Binary } else { Format::Text }
}

/// The format in which `write_parameter` writes a value for a parameter of this type.
pub(super) fn parameter_format(value: &SqlValue, oid: TypeOid) -> Format {
    let binary = match value {
        SqlValue::Int(_) => oid.is_integer(),
        SqlValue::Float(_) => oid == TypeOid::FLOAT8,
        SqlValue::Bool(_) => oid == TypeOid::BOOL,
        SqlValue::Null | SqlValue::Text(_) => false,
    };
    if binary { Format::Binary } else { Format::Text }
}

/// Appends a parameter's bytes without length; NULL has none and is the caller's business.
pub(super) fn write_parameter(out: &mut Vec<u8>, value: &SqlValue, oid: TypeOid) -> Result<(), SqlFailure> {
    let out_of_range = || SqlFailure::new("22003", format!("{value} is out of range for the parameter's type"));
    match (value, oid) {
        (SqlValue::Int(value), TypeOid::INT2) => {
            out.extend(i16::try_from(*value).map_err(|_| out_of_range())?.to_be_bytes());
        }
        (SqlValue::Int(value), TypeOid::INT4) => {
            out.extend(i32::try_from(*value).map_err(|_| out_of_range())?.to_be_bytes());
        }
        (SqlValue::Int(value), TypeOid::INT8) => out.extend(value.to_be_bytes()),
        (SqlValue::Float(value), TypeOid::FLOAT8) => out.extend(value.to_be_bytes()),
        (SqlValue::Bool(value), TypeOid::BOOL) => out.push(u8::from(*value)),
        (SqlValue::Text(text), _) => out.extend(text.as_bytes()),
        (SqlValue::Null, _) => {}
        (other, _) => out.extend(other.to_string().as_bytes()),
    }
    Ok(())
}

/// Reads one field of a row.
pub(super) fn read_field(bytes: &[u8], oid: TypeOid, format: Format) -> Result<SqlValue, SqlFailure> {
    let value = match format {
        Format::Binary => read_binary(bytes, oid),
        Format::Text => std::str::from_utf8(bytes).ok().and_then(|text| read_text(text, oid)),
    };
    value.ok_or_else(|| SqlFailure::new("08P01", format!("a field of type {} has a malformed value", oid.0)))
}

fn read_binary(bytes: &[u8], oid: TypeOid) -> Option<SqlValue> {
    Some(match oid {
        TypeOid::INT2 => SqlValue::Int(i64::from(i16::from_be_bytes(bytes.try_into().ok()?))),
        TypeOid::INT4 => SqlValue::Int(i64::from(i32::from_be_bytes(bytes.try_into().ok()?))),
        TypeOid::INT8 => SqlValue::Int(i64::from_be_bytes(bytes.try_into().ok()?)),
        TypeOid::FLOAT4 => SqlValue::Float(f64::from(f32::from_be_bytes(bytes.try_into().ok()?))),
        TypeOid::FLOAT8 => SqlValue::Float(f64::from_be_bytes(bytes.try_into().ok()?)),
        TypeOid::BOOL => SqlValue::Bool(*bytes.first()? != 0),
        _ => SqlValue::Text(std::str::from_utf8(bytes).ok()?.to_owned()),
    })
}

fn read_text(text: &str, oid: TypeOid) -> Option<SqlValue> {
    Some(if oid.is_integer() {
        SqlValue::Int(text.parse().ok()?)
    } else if oid.is_float() {
        SqlValue::Float(text.parse().ok()?)
    } else if oid == TypeOid::BOOL {
        SqlValue::Bool(text == "t")
    } else {
        SqlValue::Text(text.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn binary_values_round_trip() {
        let cases = [
            (SqlValue::Int(-7), TypeOid::INT2),
            (SqlValue::Int(1 << 30), TypeOid::INT4),
            (SqlValue::Int(i64::MIN), TypeOid::INT8),
            (SqlValue::Float(0.1), TypeOid::FLOAT8),
            (SqlValue::Bool(true), TypeOid::BOOL),
        ];
        for (value, oid) in cases {
            assert_eq!(parameter_format(&value, oid), Format::Binary);
            assert_eq!(result_format(oid), Format::Binary);
            let mut bytes = Vec::new();
            write_parameter(&mut bytes, &value, oid).unwrap();
            assert_eq!(read_field(&bytes, oid, Format::Binary).unwrap(), value);
        }
    }

    #[test]
    fn an_integer_too_large_for_its_parameter_is_refused() {
        let failure = write_parameter(&mut Vec::new(), &SqlValue::Int(40_000), TypeOid::INT2).unwrap_err();
        assert_eq!(failure.sqlstate, "22003");
    }

    #[test]
    fn malformed_fields_are_refused() {
        assert!(read_field(&[1, 2, 3], TypeOid::INT4, Format::Binary).is_err());
        assert!(read_field(b"12x", TypeOid::INT4, Format::Text).is_err());
        assert!(read_field(&[0xff], TypeOid::TEXT, Format::Binary).is_err());
    }
}
