//! Expressions: a list of what may pass. Everything not on it is refused by name.

use super::type_names::sql_type_of;
use super::{Lowered, array_items, query, reads_nothing, refuse_if, windows};
use crate::ast::{
    BinaryOperator, CaseWhen, CastKind, CeilFloorKind, Expr, Function, FunctionArg, FunctionArgExpr,
    FunctionArgumentList, FunctionArguments, Interval, TypedString, UnaryOperator, Value, WindowFrameBound, WindowSpec,
    WindowType,
};
use crate::errors::SqlError;

/// Checks an expression and everything below it.
pub(super) fn check(expr: &Expr) -> Lowered<()> {
    let mut expr = expr;
    // Chains of operators lean to the left and may be thousands long: walk that side without recursion.
    loop {
        match expr {
            Expr::BinaryOp { left, op, right } => {
                check_operator(op)?;
                check_rows(left, op, right)?;
                check(right)?;
                expr = left;
            }
            other => return check_one(other),
        }
    }
}

fn check_all<'a>(list: impl IntoIterator<Item = &'a Expr>) -> Lowered<()> {
    list.into_iter().try_for_each(check)
}

/// Checks a comparison of rows: both sides have as many entries.
fn check_rows(left: &Expr, op: &BinaryOperator, right: &Expr) -> Lowered<()> {
    use BinaryOperator::{Eq, Gt, GtEq, Lt, LtEq, NotEq};
    match (left, right) {
        (Expr::Tuple(left), Expr::Tuple(right)) if matches!(op, Eq | NotEq | Lt | LtEq | Gt | GtEq) => {
            same_entries(left, right)
        }
        (Expr::Tuple(_), _) | (_, Expr::Tuple(_)) => Err(SqlError::unsupported(
            format!("the operator {op} of a row"),
            "Compare rows with rows, or column by column.",
        )),
        _ => Ok(()),
    }
}

fn same_entries(left: &[Expr], right: &[Expr]) -> Lowered<()> {
    if left.len() == right.len() {
        return Ok(());
    }
    Err(SqlError::new(crate::errors::SqlState::SYNTAX, "unequal number of entries in row expressions"))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Quantifier {
    Any,
    All,
}

/// Checks `left op ANY (right)`: of a subquery, or of an array that is written out.
fn check_quantified(left: &Expr, op: &BinaryOperator, quantifier: Quantifier, right: &Expr) -> Lowered<()> {
    use BinaryOperator::{Eq, NotEq, PGRegexIMatch, PGRegexMatch, PGRegexNotIMatch, PGRegexNotMatch};
    check_operator(op)?;
    let is_row = matches!(left, Expr::Tuple(_));
    let is_pattern = matches!(op, PGRegexMatch | PGRegexIMatch | PGRegexNotMatch | PGRegexNotIMatch);
    refuse_if(is_pattern, "a regular expression with ANY or ALL", "Join the patterns with OR or AND.")?;
    check(left)?;
    if let Expr::Subquery(subquery) = right {
        let is_in = matches!((op, quantifier), (Eq, Quantifier::Any) | (NotEq, Quantifier::All));
        refuse_if(
            is_row && !is_in,
            "this comparison of a row with ANY or ALL",
            "= ANY and <> ALL are planned; write EXISTS with a comparison of the columns.",
        )?;
        return query::check(subquery);
    }
    let Some(items) = array_items(right)? else {
        return Err(SqlError::unsupported(
            "ANY and ALL of an array that is not written out",
            "Write ARRAY[...], '{...}' or a subquery; with parameters, = ANY (ARRAY[$1, $2]).",
        ));
    };
    refuse_if(is_row, "ANY and ALL of a row and an array", "Write IN with a list of rows.")?;
    items.iter().try_for_each(check)
}

fn check_one(expr: &Expr) -> Lowered<()> {
    match expr {
        Expr::Identifier(_) | Expr::CompoundIdentifier(_) => Ok(()),
        Expr::Value(value) => check_value(&value.value),
        Expr::TypedString(TypedString { data_type, value, uses_odbc_syntax }) => {
            refuse_if(*uses_odbc_syntax, "ODBC escapes", "Write the literal in SQL.")?;
            check_type(data_type)?;
            check_value(&value.value)
        }
        Expr::Nested(inner)
        | Expr::IsFalse(inner)
        | Expr::IsNotFalse(inner)
        | Expr::IsTrue(inner)
        | Expr::IsNotTrue(inner)
        | Expr::IsNull(inner)
        | Expr::IsNotNull(inner)
        | Expr::IsUnknown(inner)
        | Expr::IsNotUnknown(inner) => check(inner),
        Expr::IsDistinctFrom(left, right) | Expr::IsNotDistinctFrom(left, right) => check_all([&**left, &**right]),
        Expr::InList { expr, list, negated: _ } => {
            for item in list {
                check_rows(expr, &BinaryOperator::Eq, item)?;
            }
            check(expr)?;
            check_all(list)
        }
        Expr::InSubquery { expr, subquery, negated: _ } => {
            check(expr)?;
            query::check(subquery)
        }
        Expr::Between { expr, negated: _, low, high } => check_all([&**expr, &**low, &**high]),
        Expr::Like { negated: _, any: true, expr, pattern, escape_char }
        | Expr::ILike { negated: _, any: true, expr, pattern, escape_char } => {
            refuse_if(escape_char.is_some(), "LIKE ANY with ESCAPE", "Join the patterns with OR.")?;
            check_quantified(expr, &BinaryOperator::PGLikeMatch, Quantifier::Any, pattern)
        }
        Expr::Like { negated: _, any: false, expr, pattern, escape_char: _ }
        | Expr::ILike { negated: _, any: false, expr, pattern, escape_char: _ } => check_all([&**expr, &**pattern]),
        Expr::UnaryOp { op, expr } => {
            match op {
                UnaryOperator::Plus | UnaryOperator::Minus | UnaryOperator::Not => {}
                other => {
                    return Err(SqlError::unsupported(format!("the operator {other}"), "Use the function instead."));
                }
            }
            check(expr)
        }
        Expr::Cast { kind, expr, data_type, array, format } => {
            match kind {
                CastKind::Cast | CastKind::DoubleColon => {}
                CastKind::TryCast | CastKind::SafeCast => {
                    return Err(SqlError::unsupported("TRY_CAST", "Write CAST and filter bad values before."));
                }
            }
            refuse_if(*array || format.is_some(), "CAST with FORMAT or ARRAY", "Write CAST(value AS type).")?;
            check_type(data_type)?;
            check(expr)
        }
        Expr::Extract { field: _, syntax: _, expr } => check(expr),
        Expr::Ceil { expr, field } | Expr::Floor { expr, field } => {
            let plain = matches!(field, CeilFloorKind::DateTimeField(crate::ast::DateTimeField::NoDateTime));
            refuse_if(!plain, "CEIL or FLOOR with a unit", "Use date_trunc or round.")?;
            check(expr)
        }
        Expr::Position { expr, r#in } => check_all([&**expr, &**r#in]),
        Expr::Substring { expr, substring_from, substring_for, special: _, shorthand: _ } => {
            check(expr)?;
            check_all(substring_from.iter().chain(substring_for).map(AsRef::as_ref))
        }
        Expr::Trim { trim_where: _, trim_what, expr, trim_characters } => {
            check(expr)?;
            check_all(trim_what.iter().map(AsRef::as_ref))?;
            check_all(trim_characters.iter().flatten())
        }
        Expr::Overlay { expr, overlay_what, overlay_from, overlay_for } => {
            check_all([&**expr, &**overlay_what, &**overlay_from])?;
            check_all(overlay_for.iter().map(AsRef::as_ref))
        }
        Expr::Case { case_token: _, end_token: _, operand, conditions, else_result } => {
            check_all(operand.iter().map(AsRef::as_ref))?;
            for CaseWhen { condition, result } in conditions {
                check_all([condition, result])?;
            }
            check_all(else_result.iter().map(AsRef::as_ref))
        }
        // It will be NULL.
        Expr::Subquery(subquery) if reads_nothing(subquery) => Ok(()),
        Expr::Exists { subquery, negated: _ } | Expr::Subquery(subquery) => query::check(subquery),
        Expr::GroupingSets(sets) | Expr::Cube(sets) | Expr::Rollup(sets) => check_all(sets.iter().flatten()),
        Expr::Tuple(list) => check_all(list),
        Expr::Interval(Interval {
            value,
            leading_field: _,
            leading_precision,
            last_field,
            fractional_seconds_precision,
        }) => {
            refuse_if(
                leading_precision.is_some() || last_field.is_some() || fractional_seconds_precision.is_some(),
                "a precision or range in INTERVAL",
                "Write interval '1 day' or interval '1' day.",
            )?;
            check(value)
        }
        Expr::Function(function) => check_function(function),
        Expr::BinaryOp { .. } => check(expr),
        Expr::AnyOp { left, compare_op, right, is_some: _ } => {
            check_quantified(left, compare_op, Quantifier::Any, right)
        }
        Expr::AllOp { left, compare_op, right } => check_quantified(left, compare_op, Quantifier::All, right),
        Expr::Collate { expr, collation } => {
            let name = collation.0.last().and_then(|part| part.as_ident()).map_or("", |ident| &ident.value);
            let bytes = name == "C" || name == "POSIX" || name.eq_ignore_ascii_case("default");
            refuse_if(!bytes, "COLLATE", "Text is ordered by its bytes (UTF-8, as collation \"C\").")?;
            check(expr)
        }
        Expr::SimilarTo { .. } => Err(SqlError::unsupported("SIMILAR TO", "Use LIKE or the operator ~.")),
        Expr::AtTimeZone { .. } => {
            Err(SqlError::unsupported("AT TIME ZONE", "Timestamps have no time zone: add an interval."))
        }
        other => Err(SqlError::unsupported(format!("the expression {}", shortened(other)), "Rewrite it.")),
    }
}

fn shortened(expr: &Expr) -> String {
    let text = expr.to_string();
    match text.char_indices().nth(60) {
        Some((at, _)) => format!("{}...", &text[..at]),
        None => text,
    }
}

fn check_type(data_type: &crate::ast::DataType) -> Lowered<()> {
    if matches!(data_type, crate::ast::DataType::Interval { .. }) {
        return Ok(());
    }
    sql_type_of(data_type).map(|_| ())
}

fn check_value(value: &Value) -> Lowered<()> {
    match value {
        Value::Number(..)
        | Value::SingleQuotedString(_)
        | Value::DollarQuotedString(_)
        | Value::EscapedStringLiteral(_)
        | Value::UnicodeStringLiteral(_)
        | Value::Boolean(_)
        | Value::Null => Ok(()),
        Value::Placeholder(name) => {
            let number = name.strip_prefix('$').and_then(|digits| digits.parse::<u32>().ok());
            match number {
                Some(1..=65_535) => Ok(()),
                _ => Err(SqlError::new(
                    crate::errors::SqlState::NO_SUCH_PARAMETER,
                    format!("there is no parameter {name}"),
                )
                .hint("Parameters are $1, $2, ...")),
            }
        }
        other => Err(SqlError::unsupported(format!("the literal {other}"), "Write '...' and cast it.")),
    }
}

/// What may be written `OPERATOR(pg_catalog.x)`.
pub const PLAIN_OPERATORS: [&str; 19] =
    ["=", "<>", "!=", "<", "<=", ">", ">=", "+", "-", "*", "/", "%", "||", "~", "~*", "!~", "!~*", "~~", "!~~"];

fn check_operator(op: &BinaryOperator) -> Lowered<()> {
    match op {
        BinaryOperator::Plus
        | BinaryOperator::Minus
        | BinaryOperator::Multiply
        | BinaryOperator::Divide
        | BinaryOperator::Modulo
        | BinaryOperator::StringConcat
        | BinaryOperator::Gt
        | BinaryOperator::Lt
        | BinaryOperator::GtEq
        | BinaryOperator::LtEq
        | BinaryOperator::Eq
        | BinaryOperator::NotEq
        | BinaryOperator::And
        | BinaryOperator::Or
        | BinaryOperator::BitwiseOr
        | BinaryOperator::BitwiseAnd
        | BinaryOperator::PGBitwiseXor
        | BinaryOperator::PGBitwiseShiftLeft
        | BinaryOperator::PGBitwiseShiftRight
        | BinaryOperator::PGRegexMatch
        | BinaryOperator::PGRegexIMatch
        | BinaryOperator::PGRegexNotMatch
        | BinaryOperator::PGRegexNotIMatch
        | BinaryOperator::PGLikeMatch
        | BinaryOperator::PGILikeMatch
        | BinaryOperator::PGNotLikeMatch
        | BinaryOperator::PGNotILikeMatch => Ok(()),
        BinaryOperator::PGCustomBinaryOperator(parts) => {
            let plain = matches!(parts.as_slice(), [schema, operator]
                if schema.eq_ignore_ascii_case("pg_catalog") && PLAIN_OPERATORS.contains(&operator.as_str()));
            refuse_if(!plain, "OPERATOR(...)", "Write the operator itself.")
        }
        other => Err(SqlError::unsupported(format!("the operator {other}"), "Use a function instead.")),
    }
}

fn check_function(function: &Function) -> Lowered<()> {
    let Function { name, uses_odbc_syntax, parameters, args, filter, null_treatment: _, over, within_group } = function;
    refuse_if(*uses_odbc_syntax, "ODBC escapes", "Call the function in SQL.")?;
    let is_all = matches!(name.0.as_slice(), [part] if part.to_string().eq_ignore_ascii_case("all"));
    refuse_if(is_all, "LIKE ALL", "Write ~~ ALL (...).")?;
    refuse_if(!matches!(parameters, FunctionArguments::None), "parameters before arguments", "Write f(arguments).")?;
    match args {
        FunctionArguments::None => {}
        FunctionArguments::Subquery(subquery) => query::check(subquery)?,
        FunctionArguments::List(FunctionArgumentList { duplicate_treatment: _, args, clauses }) => {
            for argument in args {
                let (FunctionArg::Unnamed(argument)
                | FunctionArg::Named { arg: argument, .. }
                | FunctionArg::ExprNamed { arg: argument, .. }) = argument;
                match argument {
                    FunctionArgExpr::Expr(expr) => check(expr)?,
                    FunctionArgExpr::Wildcard => {}
                    FunctionArgExpr::QualifiedWildcard(_) | FunctionArgExpr::WildcardWithOptions(_) => {
                        return Err(SqlError::unsupported(format!("{name}(table.*)"), "Write * or a column."));
                    }
                }
            }
            for clause in clauses {
                match clause {
                    crate::ast::FunctionArgumentClause::OrderBy(keys) => query::check_sort(keys)?,
                    other => {
                        return Err(SqlError::unsupported(format!("{other} inside {name}(...)"), "Leave it out."));
                    }
                }
            }
        }
    }
    if let Some(filter) = filter {
        check(filter)?;
        windows::refuse(filter.as_ref(), "FILTER")?;
    }
    windows::refuse_nested(function)?;
    match over {
        None | Some(WindowType::NamedWindow(_)) => {}
        Some(WindowType::WindowSpec(spec)) => check_window(spec)?,
    }
    query::check_sort(within_group)
}

/// Checks OVER (...).
pub(super) fn check_window(spec: &WindowSpec) -> Lowered<()> {
    let WindowSpec { window_name: _, partition_by, order_by, window_frame } = spec;
    check_all(partition_by)?;
    query::check_sort(order_by)?;
    if let Some(frame) = window_frame {
        for bound in std::iter::once(&frame.start_bound).chain(&frame.end_bound) {
            match bound {
                WindowFrameBound::CurrentRow
                | WindowFrameBound::Preceding(None)
                | WindowFrameBound::Following(None) => {}
                WindowFrameBound::Preceding(Some(expr)) | WindowFrameBound::Following(Some(expr)) => check(expr)?,
            }
        }
    }
    Ok(())
}
