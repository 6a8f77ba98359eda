//! How large the plan of a statement may become: counted on its tree, before anything is written out.
//!
//! Short texts stand for large plans. A query of WITH is planned once for each place that names it, and within those of
//! another query of WITH that is named twice, four times, and so on. `x BETWEEN a AND b` is `x >= a AND x <= b`, so
//! that thirty within each other are a thousand million. [`Size::parts`] counts what is there when all of this is done:
//!
//! | written                              | counts as                                        |
//! |--------------------------------------|--------------------------------------------------|
//! | an expression                        | 1, and what it consists of                       |
//! | a table                              | 1 and [`RELATION_PARTS`]                         |
//! | the name of a query of WITH          | the whole query                                  |
//! | `x BETWEEN a AND b`                  | `x` twice, `a`, `b`                              |
//! | `x op ANY (ARRAY[...])`, `IN` of rows, a short list of `IN` | `x` for each item, and the items |
//! | `CASE x WHEN ...`                    | `x` for each branch, and the branches            |
//! | `nullif`, `coalesce`, rows compared  | twice what they consist of                       |
//! | `CUBE`, `ROLLUP`, `GROUPING SETS`    | all keys for each set                            |

use std::ops::ControlFlow;

use crate::ast::{
    BinaryOperator, Expr, FunctionArguments, GroupByExpr, ObjectName, Query, Select, Statement, Visit, Visitor,
};

/// A table brings a node, a schema and a filter.
const RELATION_PARTS: usize = 8;
/// Planning time doubles with each level of subqueries in expressions (15 levels took 0.27 s, 21 took 11.9 s). Three
/// for each level reaches the default bound of parts with the twelfth.
const PLANNINGS: usize = 3;
/// A list of IN that is not longer may become a comparison for each item.
const COMPARED_ITEMS_MAX: usize = 8;
/// Grouping sets of one query at most; more are refused later.
const SETS_MAX: usize = 4_096;

/// The size of a statement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Size {
    /// Expressions and relations, written out.
    pub parts: usize,
    /// Relations, written out.
    pub relations: usize,
    /// Queries, weighted by [`PLANNINGS`] for each level of expressions they are nested in: a measure of planning time.
    pub plannings: usize,
    /// Operators, calls and branches of one expression, at most.
    pub terms: usize,
    /// AND and OR of one condition, at most.
    pub conditions: usize,
    /// Items of one select list, or columns of a table that is created, at most.
    pub columns: usize,
}

impl Size {
    /// Counts a statement.
    pub fn of(statement: &Statement) -> Self {
        let mut count = Count { frames: vec![Frame::default()], columns: 0, terms: 0, conditions: 0 };
        if let Statement::CreateTable(table) = statement {
            count.columns = table.columns.len();
        }
        let _: ControlFlow<()> = statement.visit(&mut count);
        let whole = count.frames.pop().unwrap_or_default();
        let Count { terms, conditions, columns, .. } = count;
        let Frame { parts, relations, plannings, .. } = whole;
        Self { parts, relations, plannings, terms, conditions, columns }
    }
}

/// What is known of a query or an expression whose parts are being visited.
#[derive(Debug, Default)]
struct Frame {
    parts: usize,
    relations: usize,
    /// Of queries in it, those in expressions [`PLANNINGS`] times.
    plannings: usize,
    terms: usize,
    conditions: usize,
    /// Of an expression: the parts of the first expression in it.
    first: Option<usize>,
    /// Of a query: those of its WITH, by name, as far as they were visited.
    with: Vec<(String, Option<(usize, usize)>)>,
    is_query: bool,
}

struct Count {
    frames: Vec<Frame>,
    terms: usize,
    conditions: usize,
    columns: usize,
}

impl Count {
    fn top(&mut self) -> &mut Frame {
        match self.frames.len() {
            0 => unreachable!("the frame of the statement stays"),
            count => &mut self.frames[count - 1],
        }
    }

    fn push(&mut self, frame: Frame) {
        self.frames.push(frame);
    }

    fn pop(&mut self) -> Frame {
        self.frames.pop().unwrap_or_default()
    }

    /// The query of WITH that a name means here.
    fn named(&self, name: &str) -> Option<(usize, usize)> {
        let mut named = self.frames.iter().rev().flat_map(|frame| frame.with.iter().rev());
        named.find_map(|(known, size)| size.filter(|_| known == name))
    }
}

impl Visitor for Count {
    type Break = ();

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<()> {
        let tables = query.with.iter().flat_map(|with| &with.cte_tables);
        let with = tables.map(|table| (table.alias.name.value.to_lowercase(), None)).collect();
        self.push(Frame { with, is_query: true, ..Frame::default() });
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _query: &Query) -> ControlFlow<()> {
        let Frame { parts, relations, plannings, .. } = self.pop();
        let outer = self.top();
        let times = if outer.is_query { 1 } else { PLANNINGS };
        outer.plannings = outer.plannings.saturating_add(plannings.saturating_add(1).saturating_mul(times));
        // The queries of WITH come before everything else of the query that they belong to.
        if let Some((_, size)) = outer.with.iter_mut().find(|(_, size)| size.is_none()) {
            *size = Some((parts, relations));
        } else {
            outer.parts = outer.parts.saturating_add(parts).saturating_add(1);
            outer.relations = outer.relations.saturating_add(relations);
            outer.first.get_or_insert(parts);
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &Select) -> ControlFlow<()> {
        self.columns = self.columns.max(select.projection.len());
        if let GroupByExpr::Expressions(keys, _) = &select.group_by {
            let mut sets = 1_usize;
            let mut entries = 0_usize;
            for key in keys {
                let (own, width) = match key {
                    Expr::Cube(elements) => (1_usize << elements.len().min(12), elements.len()),
                    Expr::Rollup(elements) => (elements.len() + 1, elements.len()),
                    Expr::GroupingSets(elements) => (elements.len(), elements.iter().map(Vec::len).max().unwrap_or(0)),
                    _ => (1, 1),
                };
                sets = sets.saturating_mul(own).min(SETS_MAX);
                entries = entries.saturating_add(width);
            }
            if sets > 1 {
                let parts = sets.saturating_mul(entries);
                self.top().parts = self.top().parts.saturating_add(parts);
            }
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_relation(&mut self, name: &ObjectName) -> ControlFlow<()> {
        let own = match name.0.as_slice() {
            [part] => part.as_ident().map(|ident| ident.value.to_lowercase()),
            _ => None,
        };
        let (parts, relations) = own.and_then(|own| self.named(&own)).unwrap_or((0, 1));
        let top = self.top();
        top.parts = top.parts.saturating_add(parts).saturating_add(RELATION_PARTS);
        top.relations = top.relations.saturating_add(relations.max(1));
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, _expr: &Expr) -> ControlFlow<()> {
        self.push(Frame::default());
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        let Frame { parts, relations, plannings, terms, conditions, first, .. } = self.pop();
        let first = first.unwrap_or(0);
        let more = match expr {
            Expr::Between { .. } => first,
            Expr::AnyOp { right, .. } | Expr::AllOp { right, .. } => first.saturating_mul(items(right)),
            Expr::Like { any: true, pattern, .. } | Expr::ILike { any: true, pattern, .. } => {
                first.saturating_mul(items(pattern))
            }
            Expr::InList { expr, list, .. } if matches!(**expr, Expr::Tuple(_)) || list.len() <= COMPARED_ITEMS_MAX => {
                first.saturating_mul(list.len())
            }
            Expr::Case { operand: Some(_), conditions, .. } => first.saturating_mul(conditions.len()),
            Expr::Function(function) if doubles(&function.name) => parts,
            Expr::BinaryOp { left, .. } if matches!(**left, Expr::Tuple(_)) => parts,
            _ => 0,
        };
        let is_link = matches!(expr, Expr::BinaryOp { op: BinaryOperator::And | BinaryOperator::Or, .. });
        let own_terms = match expr {
            _ if is_link => 0,
            Expr::BinaryOp { .. } | Expr::Cast { .. } | Expr::UnaryOp { .. } => 1,
            Expr::Case { conditions, .. } => conditions.len(),
            Expr::Function(function) => match &function.args {
                FunctionArguments::List(list) => list.args.len().max(1),
                _ => 1,
            },
            _ => 0,
        };
        let rows = match expr {
            Expr::InList { expr, list, .. } if matches!(**expr, Expr::Tuple(_)) => list.len(),
            _ => 0,
        };
        let conditions = conditions + usize::from(is_link) + rows;
        self.conditions = self.conditions.max(conditions);
        let terms = terms.saturating_add(own_terms);
        self.terms = self.terms.max(terms);
        // Of a chain of AND and OR each link is an expression of its own.
        let handed_on = if is_link { 0 } else { terms };
        let parts = parts.saturating_add(more).saturating_add(1);
        let outer = self.top();
        outer.parts = outer.parts.saturating_add(parts);
        outer.relations = outer.relations.saturating_add(relations);
        outer.plannings = outer.plannings.saturating_add(plannings);
        if !outer.is_query {
            outer.terms = outer.terms.saturating_add(handed_on);
            outer.conditions += conditions;
        }
        outer.first.get_or_insert(parts);
        ControlFlow::Continue(())
    }
}

/// Items of an array that is written out.
fn items(array: &Expr) -> usize {
    match super::array_items(array) {
        Ok(Some(items)) => items.len(),
        _ => 1,
    }
}

/// Functions that become CASE with an argument in two places.
fn doubles(name: &ObjectName) -> bool {
    let last = name.0.last().and_then(|part| part.as_ident()).map(|ident| ident.value.to_lowercase());
    last.is_some_and(|name| ["nullif", "coalesce", "greatest", "least", "nvl", "ifnull", "nvl2"].contains(&&*name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size(sql: &str) -> Size {
        Size::of(&super::super::parse(sql).unwrap().remove(0).ast)
    }

    #[test]
    fn queries_of_with_count_wherever_they_are_named() {
        let size_of = |doublings: usize| {
            let mut sql = "WITH c0 AS (SELECT 1 AS x)".to_string();
            for at in 1..=doublings {
                sql.push_str(&format!(", c{at} AS (SELECT a.x FROM c{0} a, C{0} b)", at - 1));
            }
            size(&format!("{sql} SELECT * FROM c{doublings}"))
        };
        assert_eq!((size_of(1).relations, size_of(10).relations), (2, 1 << 10));
        assert!(size_of(30).parts > 1 << 30);
        assert_eq!(size_of(100).relations, usize::MAX, "it stops at the largest number");
        // A name means the innermost query of that name.
        let hidden = size("WITH a AS (SELECT 1 FROM t, t, t) SELECT * FROM (WITH a AS (SELECT 2) SELECT * FROM a) b");
        assert_eq!(hidden.relations, 1);
    }

    #[test]
    fn what_is_written_out_counts_as_often() {
        let nested = |depth: usize| {
            let expr = (0..depth).fold("a".to_string(), |expr, _| format!("({expr} BETWEEN 1 AND 2)"));
            size(&format!("SELECT {expr}")).parts
        };
        assert!(nested(20) > 1 << 20 && nested(20) < 1 << 24, "{}", nested(20));
        let any = size("SELECT (a + 1 + 1 + 1) < ANY (ARRAY[1, 2, 3, 4, 5, 6, 7, 8])").parts;
        assert!((60..100).contains(&any), "{any}");
        let lists = |depth: usize| {
            let expr = (0..depth).fold("a".to_string(), |expr, _| format!("({expr} IN (a, b, c, d, e, f, g, h))"));
            size(&format!("SELECT {expr}")).parts
        };
        assert!(lists(8) > 1 << 24 && lists(1) < 40, "{}", lists(1));
        assert!(size("SELECT 1 FROM t GROUP BY CUBE (a, b, c, d, e, f, g, h)").parts > 256 * 8);
        assert!(size("SELECT nullif(nullif(nullif(nullif(a, 1), 1), 1), 1)").parts > 16 * 2);
    }

    #[test]
    fn subqueries_within_each_other_count_by_their_depth() {
        let nested = |depth: usize, open: &str, close: &str| {
            let query = (0..depth).fold("SELECT 1".to_string(), |query, _| format!("SELECT {open}({query}){close}"));
            size(&query).plannings
        };
        assert!(nested(5, "EXISTS ", "") < 2_000 && nested(12, "EXISTS ", "") > 1 << 19);
        assert!(nested(14, "1 + ", "") > 1 << 22 && nested(14, "1 IN ", "") > 1 << 22);
        assert!(nested(20, "* FROM ", " q") < 1_000, "in FROM each is planned once");
    }

    #[test]
    fn terms_are_those_of_one_expression() {
        assert_eq!(size("SELECT a + b + c, a + b").terms, 2);
        assert_eq!(size("SELECT 1 WHERE a + 1 > 2 AND b > 1 AND c * d * e * f > 1").terms, 4);
        assert_eq!(size("SELECT CASE WHEN a THEN 1 WHEN b THEN 2 END + (SELECT a + b + c + d)").terms, 3);
        assert_eq!(size("SELECT 1, 2, 3 UNION SELECT 1, 2, 3").columns, 3);
        assert_eq!(size("CREATE TABLE t (a int, b int)").columns, 2);
    }
}
