//! Spellings of PostgreSQL that DataFusion's binder does not know, put into ones that it does.
//!
//! | written                                   | bound                       |
//! |-------------------------------------------|-----------------------------|
//! | `FETCH FIRST n ROWS ONLY`                 | `LIMIT n`                   |
//! | `a OPERATOR(pg_catalog.~) b`              | `a ~ b`                     |
//! | `a COLLATE "C"`, `COLLATE "default"`      | `a`: it is the only one     |
//! | `current_schema`                          | `current_schema()`          |
//! | `pg_catalog.f(a)`                         | `f(a)`                      |
//! | `(SELECT count(*) ...) AS x`              | its column is named `count` |
//! | `(SELECT a FROM pg_policy)`               | `NULL`: it is always empty  |
//! | `a IS DISTINCT FROM b AND c`              | see [`precedence`]          |

use eris_binder::RewriteQuery;

use super::{precedence, result_names};
use crate::ast::{
    BinaryOperator, Expr, Function, FunctionArgumentList, FunctionArguments, Ident, LimitClause, ObjectName,
    ObjectNamePart, Query, Select, Value,
};

/// Changes a query in place; the front has let through only what is known here.
pub(super) fn normalize(query: &mut Query) {
    eris_binder::rewrite_query(query, &mut Normalizing);
}

struct Normalizing;

impl RewriteQuery for Normalizing {
    fn query(&mut self, query: &mut Query) {
        let Some(fetch) = query.fetch.take() else { return };
        let one = || Expr::Value(Value::Number("1".to_string(), false).with_empty_span());
        let count = fetch.quantity.unwrap_or_else(one);
        match &mut query.limit_clause {
            Some(LimitClause::LimitOffset { limit, .. }) => *limit = Some(count),
            other => {
                *other = Some(LimitClause::LimitOffset { limit: Some(count), offset: None, limit_by: Vec::new() });
            }
        }
    }

    fn select(&mut self, select: &mut Select) {
        result_names::name_items(select);
    }

    fn expression(&mut self, expr: &mut Expr) {
        precedence::repair(expr);
        match expr {
            Expr::BinaryOp { op, .. } => {
                if let BinaryOperator::PGCustomBinaryOperator(parts) = op
                    && let Some(plain) = parts.last().and_then(|name| operator(name))
                {
                    *op = plain;
                }
            }
            Expr::Collate { expr: inner, .. } => {
                let inner = std::mem::replace(inner.as_mut(), Expr::Value(Value::Null.with_empty_span()));
                *expr = inner;
            }
            Expr::Identifier(ident) if ident.quote_style.is_none() && is_session_word(&ident.value) => {
                *expr = call(ident.clone());
            }
            Expr::Function(function) => unqualify(&mut function.name),
            Expr::Subquery(query) if crate::front::reads_nothing(query) => {
                *expr = Expr::Value(Value::Null.with_empty_span());
            }
            _ => {}
        }
    }
}

/// Words that are functions without brackets; the parser knows the others.
fn is_session_word(word: &str) -> bool {
    word.eq_ignore_ascii_case("current_schema")
}

fn call(name: Ident) -> Expr {
    Expr::Function(Function {
        name: ObjectName(vec![ObjectNamePart::Identifier(name)]),
        uses_odbc_syntax: false,
        parameters: FunctionArguments::None,
        args: FunctionArguments::List(FunctionArgumentList {
            duplicate_treatment: None,
            args: Vec::new(),
            clauses: Vec::new(),
        }),
        filter: None,
        null_treatment: None,
        over: None,
        within_group: Vec::new(),
    })
}

fn unqualify(name: &mut ObjectName) {
    let is_catalog =
        |part: &ObjectNamePart| part.as_ident().is_some_and(|ident| ident.value.eq_ignore_ascii_case("pg_catalog"));
    if name.0.len() == 2 && is_catalog(&name.0[0]) {
        name.0.remove(0);
    }
}

/// The operators that may be written `OPERATOR(pg_catalog.x)`.
pub(super) fn operator(name: &str) -> Option<BinaryOperator> {
    Some(match name {
        "=" => BinaryOperator::Eq,
        "<>" | "!=" => BinaryOperator::NotEq,
        "<" => BinaryOperator::Lt,
        "<=" => BinaryOperator::LtEq,
        ">" => BinaryOperator::Gt,
        ">=" => BinaryOperator::GtEq,
        "+" => BinaryOperator::Plus,
        "-" => BinaryOperator::Minus,
        "*" => BinaryOperator::Multiply,
        "/" => BinaryOperator::Divide,
        "%" => BinaryOperator::Modulo,
        "||" => BinaryOperator::StringConcat,
        "~" => BinaryOperator::PGRegexMatch,
        "~*" => BinaryOperator::PGRegexIMatch,
        "!~" => BinaryOperator::PGRegexNotMatch,
        "!~*" => BinaryOperator::PGRegexNotIMatch,
        "~~" => BinaryOperator::PGLikeMatch,
        "!~~" => BinaryOperator::PGNotLikeMatch,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ast::Statement;

    fn normalized(sql: &str) -> String {
        let Some(Statement::Query(mut query)) = crate::front::parse(sql).unwrap().pop().map(|parsed| parsed.ast) else {
            panic!("{sql} is no query")
        };
        normalize(&mut query);
        query.to_string()
    }

    #[test]
    fn spellings_become_ones_that_are_bound() {
        for (sql, expected) in [
            ("SELECT a FROM t OFFSET 2 FETCH NEXT 3 ROWS ONLY", "SELECT a FROM t LIMIT 3 OFFSET 2"),
            ("SELECT a FROM t FETCH FIRST ROW ONLY", "SELECT a FROM t LIMIT 1"),
            ("SELECT a WHERE b OPERATOR(pg_catalog.~) 'x' COLLATE \"C\"", "SELECT a WHERE b ~ 'x'"),
            ("SELECT current_schema, \"current_schema\"", "SELECT current_schema(), \"current_schema\""),
            ("SELECT a FROM t WHERE pg_catalog.f(a)", "SELECT a FROM t WHERE f(a)"),
        ] {
            assert_eq!(normalized(sql), expected);
        }
    }

    #[test]
    fn items_are_named_as_postgres_names_them() {
        for (sql, expected) in [
            (
                "SELECT max(a), max(b), a + 1",
                "SELECT max(a) AS \"max\", max(b) AS \"__column_1\", a + 1 AS \"__column_2\"",
            ),
            ("SELECT a, a, t.a", "SELECT a, a AS \"__column_1\", t.a"),
            ("SELECT upper(a), a AS upper", "SELECT upper(a) AS \"__column_0\", a AS upper"),
            ("SELECT *, upper(a)", "SELECT *, upper(a) AS \"__column_1\""),
            ("SELECT x.max FROM (SELECT max(a) FROM t) x", "SELECT x.max FROM (SELECT max(a) AS \"max\" FROM t) x"),
            (
                "SELECT max(a) FROM t GROUP BY b HAVING max(a) > 1",
                "SELECT max(a) AS \"__column_0\" FROM t GROUP BY b HAVING max(a) > 1",
            ),
        ] {
            assert_eq!(normalized(sql), expected);
        }
    }

    #[test]
    fn every_operator_that_passes_is_known() {
        for name in crate::front::PLAIN_OPERATORS {
            assert!(operator(name).is_some(), "{name}");
        }
    }
}
