//! Every operator on every pair of types, beside what PostgreSQL takes for them.

use eris_query::{ResolveError, Signature, TypeKind, operators_named, resolve};

/// Pairs without a line have no operator (42883).
const POSTGRESQL: &str = include_str!("postgresql_operators.txt");

const KINDS: [TypeKind; 14] = [
    TypeKind::SmallInt,
    TypeKind::Integer,
    TypeKind::BigInt,
    TypeKind::Real,
    TypeKind::Double,
    TypeKind::Numeric,
    TypeKind::Date,
    TypeKind::Timestamp,
    TypeKind::Text,
    TypeKind::Varchar,
    TypeKind::Char,
    TypeKind::Boolean,
    TypeKind::Bytea,
    TypeKind::Unknown,
];

fn ours(name: &str, left: TypeKind, right: TypeKind) -> String {
    match resolve(name, &[left, right]) {
        Ok(found) => format!("{:?} {:?}", found.arguments[0], found.arguments[1]),
        Err(ResolveError::NoSuchOperator) => "42883".to_string(),
        Err(ResolveError::Ambiguous) => "42725".to_string(),
    }
}

fn of_postgresql(name: &str, left: TypeKind, right: TypeKind) -> String {
    let beginning = format!("{name} {left:?} {right:?} ");
    let line = POSTGRESQL.lines().find_map(|line| line.strip_prefix(&beginning));
    line.unwrap_or("42883").to_string()
}

/// Whether PostgreSQL takes an operator that is not planned here: sums of dates, patterns of bytes, `jsonb`.
fn is_unplanned(name: &str, theirs: &str) -> bool {
    let is_planned =
        |signature: &&Signature| format!("{:?} {:?}", signature.arguments[0], signature.arguments[1]) == theirs;
    !theirs.starts_with(|first: char| first.is_ascii_digit())
        && operators_named(name, 2).iter().find(is_planned).is_none()
}

#[test]
fn operators_are_those_that_postgresql_takes() {
    let mut wrong = Vec::new();
    for name in ["=", "<", "+", "-", "*", "/", "%", "~~"] {
        for left in KINDS {
            for right in KINDS {
                let (ours, theirs) = (ours(name, left, right), of_postgresql(name, left, right));
                let agree = match theirs.as_str() {
                    // It took one of this type, and found the literal to be no date.
                    "22007" if name == "=" || name == "<" => ours.starts_with("Date") || ours.starts_with("Timestamp"),
                    "22007" => ours == "42883",
                    // With sums of dates there are two that take it.
                    "42725" if left == TypeKind::Date || right == TypeKind::Date => ours == "42883",
                    // Only of numbers is left; a call of it is refused.
                    "42725" if left == right => ours == "Double Double" || ours == "42725",
                    other if is_unplanned(name, other) => ours == "42883",
                    other => ours == other,
                };
                if !agree {
                    wrong.push(format!("{left:?} {name} {right:?}: {ours}, PostgreSQL {theirs}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
}
