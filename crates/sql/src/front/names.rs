//! Names: folding, and qualified names that mean something here.

use super::{Lowered, TableName};
use crate::ast::{Ident, ObjectName, ObjectNamePart};
use crate::errors::{SqlError, SqlState};

/// Names longer than this are refused rather than cut: PostgreSQL cuts at 63 bytes, silently but for a notice.
const NAME_BYTES_MAX: usize = 63;

/// Folds to lower case unless quoted.
pub(super) fn fold(ident: &Ident) -> Lowered<String> {
    let name = if ident.quote_style.is_some() { ident.value.clone() } else { ident.value.to_lowercase() };
    if name.len() > NAME_BYTES_MAX {
        return Err(SqlError::new(
            SqlState::from_text("42622").unwrap_or(SqlState::SYNTAX),
            format!("identifier \"{name}\" is longer than {NAME_BYTES_MAX} bytes"),
        ));
    }
    Ok(name)
}

fn parts(name: &ObjectName) -> Lowered<Vec<String>> {
    name.0
        .iter()
        .map(|part| match part {
            ObjectNamePart::Identifier(ident) => fold(ident),
            ObjectNamePart::Function(_) => {
                Err(SqlError::unsupported("a function as part of a name", "Write the name."))
            }
        })
        .collect()
}

/// `table` or `schema.table`.
pub(crate) fn table_name(name: &ObjectName) -> Lowered<TableName> {
    let mut parts = parts(name)?;
    let Some(last) = parts.pop() else { return Err(SqlError::syntax("", None)) };
    let schema = parts.pop();
    match parts.as_slice() {
        [] => Ok(TableName { schema, name: last }),
        [database] if database == "eris" => Ok(TableName { schema, name: last }),
        _ => Err(SqlError::unsupported(format!("a reference to another database ({name})"), "Name the table only.")),
    }
}

/// A name of one part.
pub(super) fn simple_name(name: &ObjectName) -> Lowered<String> {
    let mut parts = parts(name)?;
    match (parts.pop(), parts.is_empty()) {
        (Some(name), true) => Ok(name),
        _ => Err(SqlError::unsupported(format!("the qualified name {name}"), "Write the last part only.")),
    }
}

/// A setting's name: parts joined by points.
pub(super) fn setting_name(name: &ObjectName) -> Lowered<String> {
    Ok(parts(name)?.join(".").to_lowercase())
}

/// Several names.
pub(super) fn fold_all(idents: &[Ident]) -> Lowered<Vec<String>> {
    idents.iter().map(fold).collect()
}
