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
//! | `interval '1 day 04:05'`                  | `interval '1 day 04 hours 05 minutes 0 seconds'` |
//! | `1e300::float8`, `1e300`                  | `'1e300'::float8`: numerics have 38 digits |
//! | `OVER w`, `OVER (w ORDER BY a)`           | what `w` stands for         |
//! | `ROLLUP ((a, b), c)`                      | see [`grouping_sets`]       |
//! | `DISTINCT ON (1)`, `DISTINCT ON (name)`   | what the select list says   |
//! | `(a, b) = (c, d)`, `(a, b) IN ((c, d))`   | see [`rows`]                |
//! | `GROUP BY a ORDER BY name`                | see [`sorted_results`]      |
//! | `x = ANY (SELECT ...)`, `(a, b) IN (SELECT ...)`, `x < ALL (ARRAY[...])` | see [`quantifiers`] |
//! | `SELECT 1 FROM t HAVING a`                | `... HAVING (a) AND count(*) IS NOT NULL`: one group |

use eris_binder::RewriteQuery;

use super::{distinct_on, grouping_sets, precedence, quantifiers, result_names, rows, sorted_results};
use crate::ast::{
    BinaryOperator, CastKind, DataType, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArgumentList,
    FunctionArguments, GroupByExpr, Ident, LimitClause, ObjectName, ObjectNamePart, Query, Select, Value,
};
use crate::types::SqlType;

/// Digits that a numeric has at most.
const DIGITS_MAX: i64 = 38;

/// Changes a query in place; the front has let through only what is known here.
pub(super) fn normalize(query: &mut Query) {
    sorted_results::name_apart(query);
    eris_binder::rewrite_query(query, &mut Normalizing);
}

struct Normalizing;

impl RewriteQuery for Normalizing {
    fn query(&mut self, query: &mut Query) {
        crate::front::resolve_windows(query);
        sorted_results::name_apart_in_with(query);
        result_names::name_compared_items(&mut query.body);
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
        grouping_sets::write_out(select);
        count_one_group(select);
        distinct_on::name_keys(select);
        sorted_results::name_apart_in_from(select);
        result_names::name_items(select);
    }

    fn expression(&mut self, expr: &mut Expr) {
        precedence::repair(expr);
        rows::compare_entries(expr);
        quantifiers::write_out(expr);
        if let Expr::Value(value) = expr
            && let Value::Number(digits, _) = &value.value
            && !fits_numeric(digits)
        {
            *expr = double_precision(digits.clone());
        }
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
                *expr = call(ident.clone(), Vec::new());
            }
            Expr::Function(function) => unqualify(&mut function.name),
            Expr::Interval(interval) => {
                if let Expr::Value(value) = interval.value.as_mut()
                    && let Value::SingleQuotedString(text) = &mut value.value
                {
                    *text = in_units(text);
                }
            }
            Expr::Cast { expr: inner, data_type, .. } if is_float(data_type) => {
                if let Expr::Value(value) = inner.as_mut()
                    && let Value::Number(digits, _) = &value.value
                {
                    value.value = Value::SingleQuotedString(digits.clone());
                }
            }
            Expr::Subquery(query) if crate::front::reads_nothing(query) => {
                *expr = Expr::Value(Value::Null.with_empty_span());
            }
            Expr::Subquery(query) | Expr::InSubquery { subquery: query, .. } => sorted_results::name_apart(query),
            _ => {}
        }
    }
}

/// HAVING alone makes one group of all rows; the binder wants an aggregate for that.
fn count_one_group(select: &mut Select) {
    let is_grouped = !matches!(&select.group_by, GroupByExpr::Expressions(keys, _) if keys.is_empty());
    if is_grouped || crate::front::aggregates(select) {
        return;
    }
    select.having = select.having.take().map(|condition| {
        let all = FunctionArg::Unnamed(FunctionArgExpr::Wildcard);
        let count = call(Ident::new("count"), vec![all]);
        Expr::BinaryOp {
            left: Box::new(Expr::Nested(Box::new(condition))),
            op: BinaryOperator::And,
            right: Box::new(Expr::IsNotNull(Box::new(count))),
        }
    });
}

/// An interval's text with the times of day in it spelled out: `1 day 04:05:06.7` is `1 day 04 hours 05 minutes 06.7
/// seconds`.
fn in_units(text: &str) -> String {
    let spelled = |word: &str| -> Option<String> {
        let (sign, digits) = match word.strip_prefix('-') {
            Some(digits) => ("-", digits),
            None => ("", word.strip_prefix('+').unwrap_or(word)),
        };
        let mut parts = digits.split(':');
        let (hours, minutes, seconds) = (parts.next()?, parts.next()?, parts.next().unwrap_or("0"));
        let is_number = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit() || b == b'.');
        (parts.next().is_none() && [hours, minutes, seconds].into_iter().all(is_number))
            .then(|| format!("{sign}{hours} hours {sign}{minutes} minutes {sign}{seconds} seconds"))
    };
    let words = text.split_whitespace().map(|word| spelled(word).unwrap_or_else(|| word.to_string()));
    words.collect::<Vec<_>>().join(" ")
}

/// Whether a number has as many digits as a numeric can have.
fn fits_numeric(digits: &str) -> bool {
    let (mantissa, exponent) = digits.split_once(['e', 'E']).unwrap_or((digits, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let Ok(exponent) = exponent.parse::<i64>() else { return false };
    let (before, behind) = (whole.trim_start_matches('0').len() as i64 + exponent, fraction.len() as i64 - exponent);
    before.max(0) + behind.max(0) <= DIGITS_MAX
}

fn double_precision(digits: String) -> Expr {
    Expr::Cast {
        kind: CastKind::Cast,
        expr: Box::new(Expr::Value(Value::SingleQuotedString(digits).with_empty_span())),
        data_type: DataType::DoublePrecision,
        array: false,
        format: None,
    }
}

fn is_float(data_type: &DataType) -> bool {
    matches!(crate::front::sql_type_of(data_type), Ok(SqlType::Real | SqlType::Double))
}

/// Words that are functions without brackets; the parser knows the others.
fn is_session_word(word: &str) -> bool {
    word.eq_ignore_ascii_case("current_schema")
}

pub(super) fn call(name: Ident, args: Vec<FunctionArg>) -> Expr {
    Expr::Function(Function {
        name: ObjectName(vec![ObjectNamePart::Identifier(name)]),
        uses_odbc_syntax: false,
        parameters: FunctionArguments::None,
        args: FunctionArguments::List(FunctionArgumentList { duplicate_treatment: None, args, clauses: Vec::new() }),
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
            ("SELECT current_schema, \"CURRENT_SCHEMA\"", "SELECT current_schema(), \"CURRENT_SCHEMA\""),
            ("SELECT a FROM t WHERE pg_catalog.f(a)", "SELECT a FROM t WHERE f(a)"),
            (
                "SELECT a WHERE b = INTERVAL '1 day  -04:05:06.7'",
                "SELECT a WHERE b = INTERVAL '1 day -04 hours -05 minutes -06.7 seconds'",
            ),
            (
                "SELECT a WHERE b < 1e300 OR b = 1e10",
                "SELECT a WHERE b < CAST('1e300' AS DOUBLE PRECISION) OR b = 1e10",
            ),
            (
                "SELECT upper(a) AS x, -b AS a FROM t GROUP BY 1, b ORDER BY a, 1, 2 DESC",
                "SELECT upper(a) AS x, -b AS \"__column_1\" FROM t GROUP BY 1, b \
                 ORDER BY \"__column_1\", 1, \"__column_1\" DESC",
            ),
            (
                "SELECT upper(a) AS a, count(*) AS n FROM t GROUP BY a ORDER BY a, n",
                "SELECT upper(a) AS a, count(*) AS n FROM t GROUP BY a ORDER BY a, n",
            ),
            ("SELECT -a AS a FROM t ORDER BY a", "SELECT -a AS a FROM t ORDER BY a"),
            ("SELECT a FROM t HAVING a OR b", "SELECT a FROM t HAVING (a OR b) AND count(*) IS NOT NULL"),
            ("SELECT a FROM t HAVING max(a) > 1", "SELECT a FROM t HAVING max(a) > 1"),
            ("SELECT a FROM t GROUP BY a HAVING a", "SELECT a FROM t GROUP BY a HAVING a"),
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
            ("SELECT a, a, t.a", "SELECT a, a AS \"__column_1\", t.a AS \"__column_2\""),
            ("SELECT t.a, u.a, T.a", "SELECT t.a, u.a, T.a AS \"__column_2\""),
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
