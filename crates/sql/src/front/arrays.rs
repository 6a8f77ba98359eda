//! Arrays that are written out behind ANY and ALL: lists in another spelling.
//!
//! | written                | items                           |
//! |------------------------|---------------------------------|
//! | `ARRAY[a, b]`          | `a`, `b`                        |
//! | `'{1, NULL, "x y"}'`   | `'1'`, NULL, `'x y'`            |
//! | either with `::t[]`    | each item with `::t`            |

use super::Lowered;
use crate::ast::{Array, ArrayElemTypeDef, CastKind, DataType, Expr, Value};
use crate::errors::{SqlError, SqlState};

/// The items of an array, if it is written out. Each is an expression like the others of its query.
pub fn array_items(expr: &Expr) -> Lowered<Option<Vec<Expr>>> {
    match expr {
        Expr::Nested(inner) => array_items(inner),
        Expr::Array(Array { elem, named: true }) => Ok(Some(elem.clone())),
        Expr::Value(value) => match &value.value {
            Value::SingleQuotedString(text) => Ok(Some(items_of_text(text)?)),
            _ => Ok(None),
        },
        Expr::Cast { kind, expr, data_type: DataType::Array(of), array: false, format: None } => match of {
            ArrayElemTypeDef::SquareBracket(data_type, _) => {
                let items = array_items(expr)?;
                Ok(items.map(|items| items.into_iter().map(|item| cast(kind, item, data_type)).collect()))
            }
            ArrayElemTypeDef::None | ArrayElemTypeDef::AngleBracket(_) | ArrayElemTypeDef::Parenthesis(_) => Ok(None),
        },
        _ => Ok(None),
    }
}

fn cast(kind: &CastKind, item: Expr, data_type: &DataType) -> Expr {
    Expr::Cast { kind: kind.clone(), expr: Box::new(item), data_type: data_type.clone(), array: false, format: None }
}

/// The items of `{a, b}`, PostgreSQL's text of an array with one dimension.
fn items_of_text(text: &str) -> Lowered<Vec<Expr>> {
    let malformed = |detail: &str| {
        SqlError::new(SqlState::INVALID_TEXT, format!("malformed array literal: \"{text}\"")).detail(detail)
    };
    let inner = text.trim().strip_prefix('{').and_then(|rest| rest.strip_suffix('}'));
    let inner = inner.ok_or_else(|| malformed("An array of one dimension is written {a, b}."))?;
    let mut items = Vec::new();
    let mut rest = inner.trim_start();
    if rest.is_empty() {
        return Ok(items);
    }
    loop {
        let (item, behind) = next_item(rest).map_err(malformed)?;
        items.push(Expr::Value(item.map_or(Value::Null, Value::SingleQuotedString).with_empty_span()));
        match behind.chars().next() {
            None => return Ok(items),
            Some(',') => rest = behind[1..].trim_start(),
            Some(_) => return Err(malformed("Unexpected text behind an item.")),
        }
    }
}

/// The first item of a text, `None` for NULL, and the text behind it: nothing or a comma follows an item.
fn next_item(text: &str) -> Result<(Option<String>, &str), &'static str> {
    let mut item = String::new();
    let is_quoted = text.starts_with('"');
    let mut chars = text.char_indices().skip(usize::from(is_quoted));
    // Where what is kept of the item ends: spaces behind it are none of it, unless they were escaped.
    let mut kept = 0;
    let mut was_escaped = false;
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => {
                let (_, escaped) = chars.next().ok_or("Unexpected end of the text.")?;
                item.push(escaped);
                kept = item.len();
                was_escaped = true;
            }
            '"' if is_quoted => return Ok((Some(item), text[at + 1..].trim_start())),
            _ if is_quoted => item.push(c),
            '"' | '{' | '}' => return Err("Quotes and braces within an item are escaped."),
            ',' => return unquoted(item, kept, was_escaped, &text[at..]),
            _ => {
                item.push(c);
                if !c.is_ascii_whitespace() {
                    kept = item.len();
                }
            }
        }
    }
    if is_quoted { Err("Unexpected end of the text.") } else { unquoted(item, kept, was_escaped, "") }
}

/// An item without quotes: NULL means none, and it is not empty.
fn unquoted(
    mut item: String,
    kept: usize,
    was_escaped: bool,
    behind: &str,
) -> Result<(Option<String>, &str), &'static str> {
    item.truncate(kept);
    if item.is_empty() {
        return Err("An empty item is written \"\".");
    }
    let is_null = !was_escaped && item.eq_ignore_ascii_case("null");
    Ok(((!is_null).then_some(item), behind))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn items(text: &str) -> Result<String, String> {
        let items = items_of_text(text).map_err(|error| error.message)?;
        Ok(items.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn texts_of_arrays_are_read_as_postgresql_does() {
        for (text, expected) in [
            ("{}", ""),
            (" { } ", ""),
            ("{1,2}", "'1' '2'"),
            ("{ 1 , two words ,NULL, null }", "'1' 'two words' NULL NULL"),
            (r#"{"a,b" , "NULL","","\"",\NULL,a\,b,x\ }"#, r#"'a,b' 'NULL' '' '"' 'NULL' 'a,b' 'x '"#),
        ] {
            assert_eq!(items(text).as_deref(), Ok(expected), "{text}");
        }
        for text in ["", "1,2", "{1,2", "{1,,2}", "{1,}", "{{1},{2}}", "{\"a}", "{\"a\"b}", "{a\"b\"}", "{a\\"] {
            assert!(items(text).unwrap_err().starts_with("malformed array literal"), "{text}");
        }
    }
}
