//! Queries about what there never is: policies, publications, inheritance, ...
//!
//! PostgreSQL's clients ask for these with everything that PostgreSQL's SQL has. A query that joins a table without
//! rows has no rows, whatever else it says; so it is answered without looking at the rest.

use std::ops::ControlFlow;

use crate::ast::{
    Expr, GroupByExpr, Ident, JoinOperator, ObjectName, ObjectNamePart, Query, Select, SelectItem, SetExpr,
    SetOperator, Statement, TableFactor, TableWithJoins, Visit, VisitMut, Visitor, VisitorMut,
};

/// Tables of `pg_catalog` that have no rows here.
const EMPTY: [&str; 24] = [
    "pg_auth_members",
    "pg_collation",
    "pg_default_acl",
    "pg_depend",
    "pg_description",
    "pg_enum",
    "pg_event_trigger",
    "pg_extension",
    "pg_foreign_data_wrapper",
    "pg_foreign_server",
    "pg_foreign_table",
    "pg_inherits",
    "pg_partitioned_table",
    "pg_policy",
    "pg_publication",
    "pg_publication_namespace",
    "pg_publication_rel",
    "pg_rewrite",
    "pg_sequence",
    "pg_shdescription",
    "pg_statistic_ext",
    "pg_subscription",
    "pg_trigger",
    "pg_user_mapping",
];

/// Functions that give a row for no rows, those that everybody uses.
const AGGREGATES: [&str; 10] =
    ["count", "sum", "avg", "min", "max", "string_agg", "array_agg", "bool_and", "bool_or", "every"];

/// Whether a table of `pg_catalog` with this name has no rows.
pub(super) fn is_empty(name: &str) -> bool {
    EMPTY.contains(&name)
}

/// Writes `pg_catalog.` before the names of tables without rows, but for those that a WITH around them means: from then
/// on such a table is one with its schema.
pub(super) fn qualify(statement: &mut Statement) {
    let _: ControlFlow<()> = statement.visit(&mut Qualify { named: Vec::new() });
}

/// The names that the WITHs of the queries around give.
struct Qualify {
    named: Vec<Vec<String>>,
}

impl VisitorMut for Qualify {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        let tables = query.with.iter().flat_map(|with| &with.cte_tables);
        self.named.push(tables.map(|table| folded(&table.alias.name)).collect());
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _query: &mut Query) -> ControlFlow<()> {
        self.named.pop();
        ControlFlow::Continue(())
    }

    fn pre_visit_relation(&mut self, name: &mut ObjectName) -> ControlFlow<()> {
        if let [part] = name.0.as_slice()
            && let Some(ident) = part.as_ident()
        {
            let own = folded(ident);
            let named = self.named.iter().flatten().any(|known| *known == own);
            // Outside of queries are the tables that are created and changed.
            if is_empty(&own) && !self.named.is_empty() && !named {
                name.0.insert(0, ObjectNamePart::Identifier(Ident::new("pg_catalog")));
            }
        }
        ControlFlow::Continue(())
    }
}

fn folded(ident: &Ident) -> String {
    if ident.quote_style.is_some() { ident.value.clone() } else { ident.value.to_lowercase() }
}

/// Whether a query has no rows because it joins a table that is always empty.
pub fn reads_nothing(query: &Query) -> bool {
    query.with.is_none() && body_is_empty(&query.body)
}

fn body_is_empty(body: &SetExpr) -> bool {
    match body {
        SetExpr::Select(select) => select_is_empty(select),
        SetExpr::Query(query) => reads_nothing(query),
        SetExpr::SetOperation { left, op, right, .. } => match op {
            SetOperator::Union => body_is_empty(left) && body_is_empty(right),
            SetOperator::Intersect => body_is_empty(left) || body_is_empty(right),
            SetOperator::Except | SetOperator::Minus => body_is_empty(left),
        },
        _ => false,
    }
}

fn select_is_empty(select: &Select) -> bool {
    let ungrouped = matches!(&select.group_by, GroupByExpr::Expressions(keys, _) if keys.is_empty());
    select.from.iter().any(from_is_empty) && !(ungrouped && (select.having.is_some() || aggregates(select)))
}

/// Whether one of these aggregates stands in the select list or HAVING, of the SELECT itself.
pub fn aggregates(select: &Select) -> bool {
    let find = &mut FindAggregate { depth: 0 };
    select.projection.visit(find).is_break() || select.having.visit(find).is_break()
}

/// Breaks at an aggregate that belongs to the SELECT itself, not to a query in it.
struct FindAggregate {
    depth: usize,
}

impl Visitor for FindAggregate {
    type Break = ();

    fn pre_visit_query(&mut self, _query: &Query) -> ControlFlow<()> {
        self.depth += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _query: &Query) -> ControlFlow<()> {
        self.depth -= 1;
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        match expr {
            Expr::Function(function)
                if self.depth == 0 && function.over.is_none() && is_one_of(&function.name, &AGGREGATES) =>
            {
                ControlFlow::Break(())
            }
            _ => ControlFlow::Continue(()),
        }
    }
}

fn from_is_empty(from: &TableWithJoins) -> bool {
    let mut empty = factor_is_empty(&from.relation);
    for join in &from.joins {
        match &join.join_operator {
            JoinOperator::Join(_) | JoinOperator::Inner(_) | JoinOperator::CrossJoin(_) => {
                empty |= factor_is_empty(&join.relation);
            }
            JoinOperator::Left(_) | JoinOperator::LeftOuter(_) => {}
            _ => empty = false,
        }
    }
    empty
}

fn factor_is_empty(factor: &TableFactor) -> bool {
    matches!(factor, TableFactor::Table { name, args: None, .. } if name.0.len() == 2 && is_one_of(name, &EMPTY))
}

fn is_one_of(name: &ObjectName, list: &[&str]) -> bool {
    let parts: Vec<String> =
        name.0.iter().filter_map(|part| part.as_ident()).map(|ident| ident.value.to_lowercase()).collect();
    match parts.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        [name] | ["pg_catalog", name] => list.contains(name),
        _ => false,
    }
}

/// A query with as many columns and no rows; `None` if the number of columns does not stand in the text.
pub(super) fn without_rows(query: &Query) -> Option<Box<Query>> {
    let mut body = query.body.as_ref();
    let select = loop {
        match body {
            SetExpr::Select(select) => break select,
            SetExpr::Query(query) => body = &query.body,
            SetExpr::SetOperation { left, .. } => body = left,
            _ => return None,
        }
    };
    let mut items = Vec::new();
    for item in &select.projection {
        let name = match item {
            SelectItem::ExprWithAlias { alias, .. } => alias.to_string(),
            SelectItem::UnnamedExpr(Expr::Identifier(ident)) => ident.to_string(),
            SelectItem::UnnamedExpr(Expr::CompoundIdentifier(parts)) => parts.last()?.to_string(),
            SelectItem::UnnamedExpr(_) => "\"?column?\"".to_string(),
            _ => return None,
        };
        items.push(format!("NULL::text AS {name}"));
    }
    let text = format!("SELECT {} WHERE false", items.join(", "));
    match super::parse(&text).ok()?.pop()?.ast {
        Statement::Query(query) => Some(query),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query(sql: &str) -> Query {
        match super::super::parse(sql).unwrap().remove(0).ast {
            Statement::Query(query) => *query,
            other => panic!("{other}"),
        }
    }

    #[test]
    fn what_is_joined_with_nothing_is_nothing() {
        for sql in [
            "SELECT a = ANY (b) FROM pg_catalog.pg_policy WHERE c",
            "SELECT 1 FROM pg_class c, pg_inherits i WHERE c.oid = i.inhparent",
            "SELECT 1 FROM pg_publication p JOIN pg_class c ON true UNION SELECT 2 FROM pg_publication_rel",
            "SELECT 1 FROM pg_trigger t LEFT JOIN pg_class c ON true",
            "SELECT a, count(*) FROM pg_trigger GROUP BY a",
            "SELECT (SELECT max(a) FROM t) FROM pg_trigger",
        ] {
            assert!(reads_nothing(&query(sql)), "{sql}");
        }
    }

    #[test]
    fn what_may_have_rows_is_looked_at() {
        for sql in [
            "SELECT 1 FROM pg_class",
            "SELECT 1 FROM pg_class c LEFT JOIN pg_inherits i ON true",
            "SELECT 1 FROM pg_inherits i RIGHT JOIN pg_class c ON true",
            "SELECT 1 FROM pg_inherits i FULL JOIN pg_class c ON true",
            "SELECT 1 FROM pg_policy UNION SELECT 1",
            "SELECT count(*) FROM pg_policy",
            "SELECT 1 FROM pg_policy HAVING true",
            "SELECT 1 FROM other.pg_policy",
            "SELECT EXISTS (SELECT 1 FROM pg_policy)",
            "WITH pg_policy AS (SELECT 1) SELECT * FROM pg_policy",
            "WITH x AS (SELECT 1) SELECT * FROM pg_policy",
        ] {
            assert!(!reads_nothing(&query(sql)), "{sql}");
        }
    }

    #[test]
    fn a_with_query_hides_a_table() {
        let sql = "WITH Pg_Policy AS (SELECT 1) SELECT (SELECT 2 FROM pg_policy), (SELECT 3 FROM pg_trigger), \
                   (SELECT 4 FROM PG_CATALOG.pg_policy)";
        let text = query(sql).to_string();
        let hidden = text.replace("WITH Pg_Policy AS (SELECT 1) ", "");
        let expected = "SELECT (SELECT 2 FROM pg_policy), (SELECT 3 FROM pg_catalog.pg_trigger), \
                        (SELECT 4 FROM PG_CATALOG.pg_policy)";
        assert_eq!(hidden, expected);
        assert_eq!(query("SELECT 1 FROM \"PG_POLICY\"").to_string(), "SELECT 1 FROM \"PG_POLICY\"");
        let insert = super::super::parse("INSERT INTO pg_policy SELECT 1 FROM pg_policy").unwrap().remove(0).ast;
        assert_eq!(insert.to_string(), "INSERT INTO pg_policy SELECT 1 FROM pg_catalog.pg_policy");
    }

    #[test]
    fn the_columns_stay() {
        let empty = without_rows(&query("SELECT a.\"B\", f(x), y AS z FROM pg_policy a")).unwrap();
        let expected = "SELECT NULL::TEXT AS \"B\", NULL::TEXT AS \"?column?\", NULL::TEXT AS z WHERE false";
        assert_eq!(empty.to_string(), expected);
        assert!(without_rows(&query("SELECT * FROM pg_policy")).is_none());
    }
}
