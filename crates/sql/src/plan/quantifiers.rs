//! ANY and ALL, put into words that the binder knows.
//!
//! | written                                   | bound                                            |
//! |-------------------------------------------|--------------------------------------------------|
//! | `x = ANY (SELECT ...)`                    | `x IN (SELECT ...)`                              |
//! | `x <> ALL (SELECT ...)`                   | `x NOT IN (SELECT ...)`                          |
//! | `x LIKE ANY (SELECT ...)`                 | `x ~~ ANY (SELECT ...)`                          |
//! | `x = ANY (ARRAY[a, b])`, `<> ALL`         | `x IN (a, b)`, `NOT IN`                          |
//! | `x < ANY (ARRAY[a, b])`, `ALL`            | `x < a OR x < b`, `AND`                          |
//! | `(a, b) IN (SELECT ...)`                  | `"(row) in"(a, b, EXISTS (SELECT ...))`          |
//!
//! The last is a function for want of anything that the binder takes more than one column for. What it and the other
//! comparisons with a subquery become, `analyze::quantified` says.

use crate::ast::{
    BinaryOperator, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArgumentList, FunctionArguments, Ident,
    ObjectName, ObjectNamePart, Query, UnaryOperator, Value,
};
use crate::front;

/// The function of a row and a subquery; SQL has no such name.
pub(super) const ROW_IN: &str = "(row) in";

/// Writes out one expression; the front has let through only what is known here.
pub(super) fn write_out(expr: &mut Expr) {
    if !is_known(expr) {
        return;
    }
    *expr = match std::mem::replace(expr, truth(false)) {
        Expr::AnyOp { left, compare_op, right, is_some: _ } => quantified(*left, compare_op, false, *right),
        Expr::AllOp { left, compare_op, right } => quantified(*left, compare_op, true, *right),
        Expr::Like { negated, any: true, expr, pattern, escape_char: _ } => {
            let op = if negated { BinaryOperator::PGNotLikeMatch } else { BinaryOperator::PGLikeMatch };
            quantified(*expr, op, false, *pattern)
        }
        Expr::ILike { negated, any: true, expr, pattern, escape_char: _ } => {
            let op = if negated { BinaryOperator::PGNotILikeMatch } else { BinaryOperator::PGILikeMatch };
            quantified(*expr, op, false, *pattern)
        }
        Expr::InSubquery { expr, subquery, negated } => membership(*expr, subquery, negated),
        other => other,
    };
}

fn is_known(expr: &Expr) -> bool {
    match expr {
        Expr::AnyOp { .. } | Expr::AllOp { .. } | Expr::Like { any: true, .. } | Expr::ILike { any: true, .. } => true,
        Expr::InSubquery { expr, .. } => matches!(expr.as_ref(), Expr::Tuple(_)),
        _ => false,
    }
}

/// `left op ANY (right)`, or ALL.
fn quantified(left: Expr, op: BinaryOperator, all: bool, right: Expr) -> Expr {
    match (right, &op) {
        (Expr::Subquery(subquery), BinaryOperator::Eq) if !all => membership(left, subquery, false),
        (Expr::Subquery(subquery), BinaryOperator::NotEq) if all => membership(left, subquery, true),
        // A subquery of a table that is always empty.
        (Expr::Value(value), _) if value.value == Value::Null => truth(all),
        (right, _) => {
            if let Ok(Some(items)) = front::array_items(&right) {
                return listed(left, &op, all, items);
            }
            let (left, right) = (Box::new(left), Box::new(right));
            if all {
                Expr::AllOp { left, compare_op: op, right }
            } else {
                Expr::AnyOp { left, compare_op: op, right, is_some: false }
            }
        }
    }
}

/// `left [NOT] IN (subquery)`.
fn membership(left: Expr, subquery: Box<Query>, negated: bool) -> Expr {
    let Expr::Tuple(entries) = left else { return Expr::InSubquery { expr: Box::new(left), subquery, negated } };
    let rows = Expr::Exists { subquery, negated: false };
    let args = entries.into_iter().chain([rows]).map(|arg| FunctionArg::Unnamed(FunctionArgExpr::Expr(arg)));
    let found = Expr::Function(Function {
        name: ObjectName(vec![ObjectNamePart::Identifier(Ident::with_quote('"', ROW_IN))]),
        uses_odbc_syntax: false,
        parameters: FunctionArguments::None,
        args: FunctionArguments::List(FunctionArgumentList {
            duplicate_treatment: None,
            args: args.collect(),
            clauses: Vec::new(),
        }),
        filter: None,
        null_treatment: None,
        over: None,
        within_group: Vec::new(),
    });
    if negated { Expr::UnaryOp { op: UnaryOperator::Not, expr: Box::new(found) } } else { found }
}

/// `left op` each of the items; of none it is false, or true for ALL.
fn listed(left: Expr, op: &BinaryOperator, all: bool, items: Vec<Expr>) -> Expr {
    if items.is_empty() {
        return truth(all);
    }
    if *op == if all { BinaryOperator::NotEq } else { BinaryOperator::Eq } {
        return Expr::InList { expr: Box::new(left), list: items, negated: all };
    }
    let compared = |item| Expr::BinaryOp {
        left: Box::new(left.clone()),
        op: op.clone(),
        right: Box::new(Expr::Nested(Box::new(item))),
    };
    let link = if all { BinaryOperator::And } else { BinaryOperator::Or };
    Expr::Nested(Box::new(linked(items.into_iter().map(compared).collect(), &link)))
}

/// The tests with a connective between them, as a tree that is no deeper than it must be: there may be many.
fn linked(mut tests: Vec<Expr>, link: &BinaryOperator) -> Expr {
    while tests.len() > 1 {
        let mut pairs = Vec::with_capacity(tests.len().div_ceil(2));
        let mut rest = tests.into_iter();
        while let Some(left) = rest.next() {
            pairs.push(match rest.next() {
                Some(right) => Expr::BinaryOp { left: Box::new(left), op: link.clone(), right: Box::new(right) },
                None => left,
            });
        }
        tests = pairs;
    }
    tests.pop().unwrap_or_else(|| truth(*link == BinaryOperator::And))
}

fn truth(value: bool) -> Expr {
    Expr::Value(Value::Boolean(value).with_empty_span())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ast::{SelectItem, SetExpr, Statement};

    fn written_out(condition: &str) -> String {
        let Some(Statement::Query(query)) =
            front::parse(&format!("SELECT {condition}")).unwrap().pop().map(|parsed| parsed.ast)
        else {
            panic!("{condition}")
        };
        let SetExpr::Select(mut select) = *query.body else { panic!("{condition}") };
        let Some(SelectItem::UnnamedExpr(mut expr)) = select.projection.pop() else { panic!("{condition}") };
        write_out(&mut expr);
        expr.to_string()
    }

    #[test]
    fn quantifiers_are_written_out() {
        for (condition, expected) in [
            ("a = ANY (SELECT b)", "a IN (SELECT b)"),
            ("a = SOME ((SELECT b))", "a IN (SELECT b)"),
            ("a <> ALL (SELECT b)", "a NOT IN (SELECT b)"),
            ("a <= ALL (SELECT b)", "a <= ALL(SELECT b)"),
            ("a NOT LIKE ANY (SELECT b)", "a !~~ ANY(SELECT b)"),
            ("(a, b) IN (SELECT c, d)", "\"(row) in\"(a, b, EXISTS (SELECT c, d))"),
            ("(a, b) <> ALL (SELECT c, d)", "NOT \"(row) in\"(a, b, EXISTS (SELECT c, d))"),
            ("a = ANY (ARRAY[1, b])", "a IN (1, b)"),
            ("a <> ALL ('{1,NULL}'::int[])", "a NOT IN ('1'::INT, NULL::INT)"),
            ("a < ALL (ARRAY[1, 2, 3])", "(a < (1) AND a < (2) AND a < (3))"),
            ("a ILIKE ANY ('{x%,y%}')", "(a ~~* ('x%') OR a ~~* ('y%'))"),
            ("a > ANY ('{}')", "false"),
            ("a = ALL ('{}')", "true"),
        ] {
            assert_eq!(written_out(condition), expected);
        }
    }
}
