//! Types on both sides of the border.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType as ArrowType, Field, Schema as ArrowSchema, SchemaRef, TimeUnit};
use eris_storage::{DataType, Schema};

use crate::errors::SqlError;
use crate::types::SqlType;

/// The Arrow type of a storage type.
pub fn arrow_type(data_type: DataType) -> ArrowType {
    match data_type {
        DataType::Boolean => ArrowType::Boolean,
        DataType::Int16 => ArrowType::Int16,
        DataType::Int32 => ArrowType::Int32,
        DataType::Int64 => ArrowType::Int64,
        DataType::Float32 => ArrowType::Float32,
        DataType::Float64 => ArrowType::Float64,
        DataType::Decimal { precision, scale } => ArrowType::Decimal128(precision, scale as i8),
        DataType::Date => ArrowType::Date32,
        DataType::Timestamp => ArrowType::Timestamp(TimeUnit::Microsecond, None),
        DataType::Text => ArrowType::Utf8View,
        DataType::Bytes => ArrowType::BinaryView,
    }
}

/// The key under which a field carries the SQL type of a column, where it says more than the Arrow type.
const SQL_TYPE_KEY: &str = "eris.type";

/// A container's schema as Arrow's. A primary key column is not nullable.
pub fn arrow_schema(schema: &Schema, sql_types: &[SqlType]) -> SchemaRef {
    let fields: Vec<Field> = schema
        .attributes
        .iter()
        .zip(sql_types)
        .map(|(attribute, sql_type)| {
            let field = Field::new(&*attribute.name, arrow_type(attribute.data_type), attribute.nullable);
            mark_sql_type(field, *sql_type)
        })
        .collect();
    Arc::new(ArrowSchema::new(fields))
}

/// Notes the SQL type with a field, so that `varchar(10)` is still that in a result's description.
pub fn mark_sql_type(field: Field, sql_type: SqlType) -> Field {
    let text = match sql_type {
        SqlType::Varchar(length) => format!("varchar {}", length.unwrap_or(0)),
        SqlType::Char(length) => format!("char {}", length.unwrap_or(0)),
        _ => return field,
    };
    field.with_metadata([(SQL_TYPE_KEY.to_string(), text)].into())
}

/// The SQL type of a result's field.
pub fn field_sql_type(field: &Field) -> Result<SqlType, SqlError> {
    let noted = field.metadata().get(SQL_TYPE_KEY).and_then(|text| {
        let (name, length) = text.split_once(' ')?;
        let length = Some(length.parse::<u32>().ok()?).filter(|length| *length > 0);
        match name {
            "varchar" => Some(SqlType::Varchar(length)),
            "char" => Some(SqlType::Char(length)),
            _ => None,
        }
    });
    match noted {
        Some(sql_type) => Ok(sql_type),
        None => sql_type_of_arrow(field.data_type()),
    }
}

/// The SQL type that a result column of an Arrow type is shown as; types without one are refused.
pub fn sql_type_of_arrow(arrow: &ArrowType) -> Result<SqlType, SqlError> {
    Ok(match arrow {
        ArrowType::Null | ArrowType::Utf8 | ArrowType::LargeUtf8 | ArrowType::Utf8View => SqlType::Text,
        ArrowType::Boolean => SqlType::Boolean,
        ArrowType::Int8 | ArrowType::Int16 | ArrowType::UInt8 => SqlType::SmallInt,
        ArrowType::Int32 | ArrowType::UInt16 => SqlType::Integer,
        ArrowType::Int64 | ArrowType::UInt32 | ArrowType::UInt64 => SqlType::BigInt,
        ArrowType::Float16 | ArrowType::Float32 => SqlType::Real,
        ArrowType::Float64 => SqlType::Double,
        ArrowType::Decimal32(precision, scale)
        | ArrowType::Decimal64(precision, scale)
        | ArrowType::Decimal128(precision, scale)
            if *scale >= 0 =>
        {
            SqlType::Numeric { precision: *precision, scale: *scale as u8 }
        }
        ArrowType::Decimal256(_, scale) if (0..=38).contains(scale) => {
            SqlType::Numeric { precision: 38, scale: *scale as u8 }
        }
        ArrowType::Date32 | ArrowType::Date64 => SqlType::Date,
        ArrowType::Timestamp(_, None) => SqlType::Timestamp,
        ArrowType::Binary | ArrowType::LargeBinary | ArrowType::BinaryView | ArrowType::FixedSizeBinary(_) => {
            SqlType::Bytea
        }
        ArrowType::Interval(_) | ArrowType::Duration(_) => SqlType::Interval,
        ArrowType::Dictionary(_, values) => sql_type_of_arrow(values)?,
        other => {
            return Err(SqlError::unsupported(format!("a result of type {other}"), "Cast it to one of the SQL types."));
        }
    })
}
