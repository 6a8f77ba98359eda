//! Literals and parameters: the types that they have, and those that they are given.

use eris_query::numeric::digits_of_value;
use eris_query::resolve::Typing;
use eris_query::{Scalar, ScalarKind, TypeKind, Unplanned};
use eris_storage::Value;

use super::{Binder, Binding};
use crate::ast;
use crate::pg_format::{parse_decimal, parse_text};
use crate::types::SqlType;

/// A literal, or a parameter with the type that is known of it.
pub(super) fn literal(binder: &mut Binder<'_>, value: &ast::Value) -> Binding<Scalar> {
    Ok(match value {
        ast::Value::Number(digits, false) => number(digits, false)?,
        ast::Value::SingleQuotedString(text) | ast::Value::EscapedStringLiteral(text) => {
            Scalar::constant(Value::Text(text.as_str().into()), SqlType::Unknown)
        }
        ast::Value::Boolean(truth) => Scalar::constant(Value::Boolean(*truth), SqlType::Boolean),
        ast::Value::Null => Scalar::constant(Value::Null, SqlType::Unknown),
        ast::Value::Placeholder(name) => {
            let index = name.strip_prefix('$').and_then(|digits| digits.parse::<usize>().ok());
            let index = index.and_then(|number| number.checked_sub(1));
            let index = index.ok_or_else(|| Unplanned(format!("parameter {name}")))?;
            binder.types.make_room(index);
            Scalar::parameter(index, binder.types.get(index).unwrap_or(SqlType::Unknown))
        }
        other => return Err(Unplanned(format!("the literal {other}"))),
    })
}

/// A number with its sign: the narrowest of `integer` and `bigint` that holds it, else a numeric.
pub(crate) fn number(digits: &str, negative: bool) -> Binding<Scalar> {
    if !digits.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') {
        return Err(Unplanned(format!("the number {digits}")));
    }
    let decimal = parse_decimal(digits).ok_or_else(|| Unplanned(format!("the number {digits}")))?;
    let unscaled = if negative { -decimal.unscaled } else { decimal.unscaled };
    if !digits.contains('.') {
        if let Ok(value) = i32::try_from(unscaled) {
            return Ok(Scalar::constant(Value::Int32(value), SqlType::Integer));
        }
        if let Ok(value) = i64::try_from(unscaled) {
            return Ok(Scalar::constant(Value::Int64(value), SqlType::BigInt));
        }
    }
    numeric(unscaled, decimal.scale)
}

fn numeric(unscaled: i128, scale: u8) -> Binding<Scalar> {
    let sql_type = digits_of_value(unscaled, scale);
    let sql_type = sql_type.ok_or_else(|| Unplanned(format!("the number {unscaled}e-{scale}")))?;
    Ok(Scalar::constant(Value::Decimal { unscaled, scale }, sql_type))
}

impl Typing for Binder<'_> {
    /// Reads a literal as a value of the type, or says that a parameter has it.
    fn typed(&mut self, scalar: Scalar, sql_type: SqlType) -> Binding<Scalar> {
        match scalar.kind {
            ScalarKind::Constant(Value::Null) => Ok(Scalar::constant(Value::Null, sql_type)),
            ScalarKind::Constant(Value::Text(text)) => read(&text, sql_type),
            ScalarKind::Parameter(index) => {
                self.types.suggest(index, sql_type);
                let known = self.types.get(index).unwrap_or(sql_type);
                Ok(Scalar::parameter(index, known))
            }
            _ => Err(Unplanned::because("an expression without a type")),
        }
    }
}

/// A text as a value of a type. A numeric has the digits that are written; other modifiers do not count either: what
/// is compared with a `varchar(3)` may be longer.
fn read(text: &str, sql_type: SqlType) -> Binding<Scalar> {
    if let SqlType::Numeric { .. } = sql_type {
        let decimal = parse_decimal(text).ok_or_else(|| Unplanned(format!("\"{text}\" as numeric")))?;
        return numeric(decimal.unscaled, decimal.scale);
    }
    let plain = match sql_type.kind() {
        TypeKind::Varchar | TypeKind::Char => SqlType::Text,
        _ => sql_type,
    };
    let value = parse_text(plain, text).map_err(Unplanned::because)?;
    let shown = match sql_type.kind() {
        TypeKind::Varchar => SqlType::Varchar(None),
        TypeKind::Char => SqlType::Char(None),
        _ => sql_type,
    };
    Ok(Scalar::constant(value, shown))
}
