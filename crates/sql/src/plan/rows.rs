//! Comparisons of rows, entry by entry.
//!
//! ```text
//!   (a, b) = (c, d)     a = c AND b = d
//!   (a, b) <> (c, d)    a <> c OR b <> d
//!   (a, b) < (c, d)     a < c OR (a = c AND b < d)
//!   (a, b) IN (r, s)    (a, b) = r OR (a, b) = s
//! ```
//! With NULL in an entry this is PostgreSQL's answer: NULL unless the other entries decide.

use crate::ast::{BinaryOperator, Expr, UnaryOperator, Value};

fn binary(left: Expr, op: BinaryOperator, right: Expr) -> Expr {
    Expr::BinaryOp { left: Box::new(left), op, right: Box::new(right) }
}

fn nested(expr: Expr) -> Expr {
    Expr::Nested(Box::new(expr))
}

fn truth(value: bool) -> Expr {
    Expr::Value(Value::Boolean(value).with_empty_span())
}

/// `left op right` for rows of as many entries.
fn compared(left: &[Expr], op: &BinaryOperator, right: &[Expr]) -> Option<Expr> {
    use BinaryOperator::{And, Eq, Gt, GtEq, Lt, LtEq, NotEq, Or};
    let pairs = || left.iter().cloned().zip(right.iter().cloned());
    let each = |op: BinaryOperator, link: BinaryOperator| {
        pairs().map(|(left, right)| binary(left, op.clone(), right)).reduce(|all, next| binary(all, link.clone(), next))
    };
    let strict = match op {
        Eq => return each(Eq, And),
        NotEq => return each(NotEq, Or),
        Lt | LtEq => Lt,
        Gt | GtEq => Gt,
        _ => return None,
    };
    let mut result: Option<Expr> = None;
    for (left, right) in left.iter().zip(right).rev() {
        let (left, right) = (left.clone(), right.clone());
        result = Some(match result {
            None => binary(left, op.clone(), right),
            Some(rest) => {
                let equal = binary(left.clone(), Eq, right.clone());
                let later = nested(binary(equal, And, nested(rest)));
                binary(binary(left, strict.clone(), right), Or, later)
            }
        });
    }
    result
}

/// Takes a comparison of rows apart; other expressions stay.
pub(super) fn compare_entries(expr: &mut Expr) {
    let new = match &*expr {
        Expr::BinaryOp { left, op, right } => match (left.as_ref(), right.as_ref()) {
            (Expr::Tuple(left), Expr::Tuple(right)) if left.len() == right.len() => compared(left, op, right),
            _ => None,
        },
        Expr::InList { expr: row, list, negated } => match row.as_ref() {
            Expr::Tuple(row) => {
                let found = list
                    .iter()
                    .filter_map(|item| match item {
                        Expr::Tuple(item) if item.len() == row.len() => compared(row, &BinaryOperator::Eq, item),
                        _ => None,
                    })
                    .reduce(|all, next| binary(all, BinaryOperator::Or, nested(next)))
                    .unwrap_or_else(|| truth(false));
                Some(if *negated {
                    Expr::UnaryOp { op: UnaryOperator::Not, expr: Box::new(nested(found)) }
                } else {
                    found
                })
            }
            _ => None,
        },
        _ => None,
    };
    if let Some(new) = new {
        *expr = nested(new);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ast::{SelectItem, SetExpr, Statement};

    fn compared_text(condition: &str) -> String {
        let Some(Statement::Query(query)) =
            crate::front::parse(&format!("SELECT {condition}")).unwrap().pop().map(|parsed| parsed.ast)
        else {
            panic!("{condition}")
        };
        let SetExpr::Select(mut select) = *query.body else { panic!("{condition}") };
        let Some(SelectItem::UnnamedExpr(mut expr)) = select.projection.pop() else { panic!("{condition}") };
        compare_entries(&mut expr);
        expr.to_string()
    }

    #[test]
    fn rows_are_compared_by_entry() {
        for (condition, expected) in [
            ("(a, b) = (1, 2)", "(a = 1 AND b = 2)"),
            ("(a, b, c) <> (1, 2, 3)", "(a <> 1 OR b <> 2 OR c <> 3)"),
            ("(a, b) < (1, 2)", "(a < 1 OR (a = 1 AND (b < 2)))"),
            ("(a, b) >= (1, 2)", "(a > 1 OR (a = 1 AND (b >= 2)))"),
            ("(a, b) IN ((1, 2), (3, 4))", "(a = 1 AND b = 2 OR (a = 3 AND b = 4))"),
            ("(a, b) NOT IN ((1, 2))", "(NOT (a = 1 AND b = 2))"),
            ("a = 1", "a = 1"),
        ] {
            assert_eq!(compared_text(condition), expected);
        }
    }
}
