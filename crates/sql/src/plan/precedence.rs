//! `a IS DISTINCT FROM b AND c`: what binds how tightly.
//!
//! The parser reads everything behind FROM as the right operand. AND and OR bind less tightly than that, so they are
//! taken out of the operand, and out of what encloses it, from the leaves up:
//!
//! ```text
//!   a IS DISTINCT FROM (b AND c)      (a IS DISTINCT FROM b) AND c
//!   p AND (q OR r)                    (p AND q) OR r                 where nobody wrote the brackets
//!   NOT (q AND r)                     (NOT q) AND r                  likewise
//! ```

use crate::ast::{BinaryOperator, Expr, UnaryOperator};

/// The operator of an AND or OR without brackets.
fn connective(expr: &Expr) -> Option<&BinaryOperator> {
    match expr {
        Expr::BinaryOp { op: op @ (BinaryOperator::And | BinaryOperator::Or), .. } => Some(op),
        _ => None,
    }
}

/// Puts `wrap` around the leftmost operand of the connectives of an expression, as long as `looser` holds for them.
fn around_first(expr: Expr, looser: &dyn Fn(&BinaryOperator) -> bool, wrap: &mut dyn FnMut(Expr) -> Expr) -> Expr {
    match expr {
        Expr::BinaryOp { left, op: op @ (BinaryOperator::And | BinaryOperator::Or), right } if looser(&op) => {
            let left = Box::new(around_first(*left, looser, wrap));
            Expr::BinaryOp { left, op, right }
        }
        other => wrap(other),
    }
}

/// Repairs one expression whose operands are in order.
pub(super) fn repair(expr: &mut Expr) {
    let any = |_: &BinaryOperator| true;
    let or = |op: &BinaryOperator| *op == BinaryOperator::Or;
    let is_broken = match expr {
        Expr::IsDistinctFrom(_, operand) | Expr::IsNotDistinctFrom(_, operand) => connective(operand).is_some(),
        Expr::UnaryOp { op: UnaryOperator::Not, expr: operand } => connective(operand).is_some(),
        Expr::BinaryOp { op: BinaryOperator::And, right, .. } => connective(right).is_some_and(or),
        _ => false,
    };
    if !is_broken {
        return;
    }
    let whole = std::mem::replace(expr, Expr::Value(crate::ast::Value::Null.with_empty_span()));
    *expr = match whole {
        Expr::IsDistinctFrom(left, right) => {
            around_first(*right, &any, &mut |right| Expr::IsDistinctFrom(left.clone(), Box::new(right)))
        }
        Expr::IsNotDistinctFrom(left, right) => {
            around_first(*right, &any, &mut |right| Expr::IsNotDistinctFrom(left.clone(), Box::new(right)))
        }
        Expr::UnaryOp { op, expr } => around_first(*expr, &any, &mut |expr| Expr::UnaryOp { op, expr: Box::new(expr) }),
        Expr::BinaryOp { left, op, right } => around_first(*right, &or, &mut |right| Expr::BinaryOp {
            left: left.clone(),
            op: op.clone(),
            right: Box::new(right),
        }),
        other => other,
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ast::{Parser, PostgreSqlDialect, Query, SetExpr, Statement};

    struct Repairing;

    impl eris_binder::RewriteQuery for Repairing {
        fn query(&mut self, _query: &mut Query) {}

        fn select(&mut self, _select: &mut crate::ast::Select) {}

        fn expression(&mut self, expr: &mut Expr) {
            repair(expr);
        }
    }

    fn repaired(condition: &str) -> String {
        let mut statements = Parser::parse_sql(&PostgreSqlDialect {}, &format!("SELECT {condition}")).unwrap();
        let Some(Statement::Query(mut query)) = statements.pop() else { panic!("{condition}") };
        eris_binder::rewrite_query(&mut query, &mut Repairing);
        bracketed(&query)
    }

    fn bracketed(query: &Query) -> String {
        fn text(expr: &Expr) -> String {
            match expr {
                Expr::BinaryOp { left, op, right } => format!("({} {op} {})", text(left), text(right)),
                Expr::IsDistinctFrom(left, right) => format!("({} / {})", text(left), text(right)),
                Expr::IsNotDistinctFrom(left, right) => format!("({} ~ {})", text(left), text(right)),
                Expr::UnaryOp { op, expr } => format!("({op} {})", text(expr)),
                Expr::Nested(inner) => format!("[{}]", text(inner)),
                other => other.to_string(),
            }
        }
        let SetExpr::Select(select) = query.body.as_ref() else { panic!("{query}") };
        match &select.projection[0] {
            crate::ast::SelectItem::UnnamedExpr(expr) => text(expr),
            other => panic!("{other}"),
        }
    }

    #[test]
    fn and_and_or_bind_less_than_is_distinct_from() {
        for (condition, expected) in [
            ("a IS DISTINCT FROM b AND c", "((a / b) AND c)"),
            ("a IS DISTINCT FROM b + 1 AND c OR d", "(((a / (b + 1)) AND c) OR d)"),
            ("p AND a IS DISTINCT FROM b OR d", "((p AND (a / b)) OR d)"),
            ("p OR a IS DISTINCT FROM b AND d", "(p OR ((a / b) AND d))"),
            ("NOT a IS NOT DISTINCT FROM b AND c", "((NOT (a ~ b)) AND c)"),
            ("a IS DISTINCT FROM b OR c IS DISTINCT FROM d AND e", "((a / b) OR ((c / d) AND e))"),
            ("a IS DISTINCT FROM (b AND c)", "(a / [(b AND c)])"),
            ("p AND (q OR r)", "(p AND [(q OR r)])"),
            ("NOT (q OR r) AND s", "((NOT [(q OR r)]) AND s)"),
        ] {
            assert_eq!(repaired(condition), expected, "{condition}");
        }
    }
}
