//! Queries: every clause is looked at; what DataFusion would drop or does not plan is refused.

use super::{Lowered, expressions, refuse_if, windows};
use crate::ast::{
    Cte, Distinct, Fetch, GroupByExpr, Join, JoinConstraint, JoinOperator, LimitClause, NamedWindowExpr, OrderBy,
    OrderByExpr, OrderByKind, Query, Select, SelectFlavor, SelectItem, SelectItemQualifiedWildcardKind, SetExpr,
    SetOperator, SetQuantifier, TableAlias, TableFactor, TableWithJoins, WildcardAdditionalOptions, With,
};
use crate::errors::SqlError;

const NO_LOCKS: &str = "Snapshot isolation finds conflicting writers by itself: run the UPDATE and retry on 40001.";

/// Checks a whole query.
pub(super) fn check(query: &Query) -> Lowered<()> {
    let Query {
        with,
        body,
        order_by,
        limit_clause,
        fetch: _,
        locks: _,
        for_clause: _,
        settings: _,
        format_clause: _,
        pipe_operators: _,
    } = query;
    check_tail(query)?;
    if let Some(With { with_token: _, recursive, cte_tables }) = with {
        refuse_if(*recursive, "WITH RECURSIVE", "Expand the recursion in the application.")?;
        for Cte { alias, query, from, materialized, closing_paren_token: _ } in cte_tables {
            check_alias(Some(alias))?;
            refuse_if(from.is_some(), "FROM inside WITH", "Leave it out.")?;
            refuse_if(materialized.is_some(), "MATERIALIZED", "The planner decides: leave it out.")?;
            check(query)?;
        }
    }
    check_body(body)?;
    if let SetExpr::Select(select) = body.as_ref() {
        windows::check(select, order_by.as_ref())?;
    }
    if let Some(OrderBy { kind, interpolate }) = order_by {
        refuse_if(interpolate.is_some(), "INTERPOLATE", "Leave it out.")?;
        match kind {
            OrderByKind::All(_) => return Err(SqlError::unsupported("ORDER BY ALL", "List the columns.")),
            OrderByKind::Expressions(keys) => check_sort(keys)?,
        }
    }
    match limit_clause {
        None => {}
        Some(LimitClause::LimitOffset { limit, offset, limit_by }) => {
            refuse_if(!limit_by.is_empty(), "LIMIT ... BY", "Use a window function.")?;
            if let Some(limit) = limit {
                expressions::check(limit)?;
                windows::refuse(limit, "LIMIT")?;
            }
            if let Some(offset) = offset {
                expressions::check(&offset.value)?;
                windows::refuse(&offset.value, "OFFSET")?;
            }
        }
        Some(LimitClause::OffsetCommaLimit { .. }) => {
            return Err(SqlError::unsupported("LIMIT offset, count", "Write LIMIT count OFFSET offset."));
        }
    }
    Ok(())
}

/// What stands behind a query's body besides ORDER BY and LIMIT: all of it is refused.
pub(super) fn check_tail(query: &Query) -> Lowered<()> {
    refuse_if(!query.locks.is_empty(), "SELECT ... FOR UPDATE/SHARE", NO_LOCKS)?;
    if let Some(Fetch { with_ties, percent, quantity }) = &query.fetch {
        refuse_if(*with_ties || *percent, "FETCH FIRST with TIES or PERCENT", "Write FETCH FIRST n ROWS ONLY.")?;
        quantity.iter().try_for_each(expressions::check)?;
    }
    refuse_if(
        query.for_clause.is_some()
            || query.settings.is_some()
            || query.format_clause.is_some()
            || !query.pipe_operators.is_empty(),
        "FOR, SETTINGS, FORMAT or a pipe operator",
        "Leave it out.",
    )
}

fn check_body(body: &SetExpr) -> Lowered<()> {
    // Chains of UNION lean to the left and may be long: walk them without recursion.
    let mut body = body;
    loop {
        match body {
            SetExpr::SetOperation { left, op, set_quantifier, right } => {
                refuse_if(*op == SetOperator::Minus, "MINUS", "Write EXCEPT.")?;
                match set_quantifier {
                    SetQuantifier::All | SetQuantifier::Distinct | SetQuantifier::None => {}
                    SetQuantifier::ByName | SetQuantifier::AllByName | SetQuantifier::DistinctByName => {
                        return Err(SqlError::unsupported("UNION BY NAME", "List the columns in the same order."));
                    }
                }
                check_body(right)?;
                body = left;
            }
            SetExpr::Select(select) => return check_select(select),
            SetExpr::Query(query) => return check(query),
            SetExpr::Values(values) => {
                refuse_if(values.explicit_row, "VALUES ROW(...)", "Write VALUES (...).")?;
                let entries = || values.rows.iter().flat_map(|row| &row.content);
                entries().try_for_each(expressions::check)?;
                return entries().try_for_each(|entry| windows::refuse(entry, "VALUES"));
            }
            SetExpr::Table(_) => {
                return Err(SqlError::unsupported("TABLE name", "Write SELECT * FROM name."));
            }
            SetExpr::Insert(_) | SetExpr::Update(_) | SetExpr::Delete(_) | SetExpr::Merge(_) => {
                return Err(SqlError::unsupported("a data-changing statement inside WITH", "Run it on its own."));
            }
        }
    }
}

fn check_select(select: &Select) -> Lowered<()> {
    let Select {
        select_token: _,
        optimizer_hints,
        distinct,
        select_modifiers,
        top,
        top_before_distinct: _,
        projection,
        exclude,
        into,
        from,
        lateral_views,
        prewhere,
        selection,
        connect_by,
        group_by,
        cluster_by,
        distribute_by,
        sort_by,
        having,
        named_window,
        qualify,
        window_before_qualify: _,
        value_table_mode,
        flavor,
    } = select;
    refuse_if(into.is_some(), "SELECT ... INTO", "Write CREATE TABLE, then INSERT ... SELECT.")?;
    refuse_if(top.is_some(), "SELECT TOP", "Write LIMIT.")?;
    refuse_if(qualify.is_some(), "QUALIFY", "Filter in an outer query.")?;
    refuse_if(
        !optimizer_hints.is_empty()
            || select_modifiers.is_some()
            || exclude.is_some()
            || !lateral_views.is_empty()
            || prewhere.is_some()
            || !connect_by.is_empty()
            || !cluster_by.is_empty()
            || !distribute_by.is_empty()
            || !sort_by.is_empty()
            || value_table_mode.is_some(),
        "this clause of another SQL dialect",
        "Use standard SELECT ... FROM ... WHERE ... GROUP BY ... HAVING ... ORDER BY ... LIMIT.",
    )?;
    match flavor {
        SelectFlavor::Standard => {}
        SelectFlavor::FromFirst | SelectFlavor::FromFirstNoSelect => {
            return Err(SqlError::unsupported("FROM before SELECT", "Write SELECT first."));
        }
    }
    match distinct {
        None | Some(Distinct::All | Distinct::Distinct) => {}
        Some(Distinct::On(keys)) => keys.iter().try_for_each(expressions::check)?,
    }
    projection.iter().try_for_each(check_item)?;
    from.iter().try_for_each(check_from)?;
    if let Some(condition) = selection {
        expressions::check(condition)?;
        windows::refuse(condition, "WHERE")?;
    }
    match group_by {
        GroupByExpr::All(_) => return Err(SqlError::unsupported("GROUP BY ALL", "List the columns.")),
        GroupByExpr::Expressions(keys, modifiers) => {
            refuse_if(!modifiers.is_empty(), "GROUP BY ... WITH", "Write GROUP BY ROLLUP (...).")?;
            keys.iter().try_for_each(expressions::check)?;
            windows::refuse(keys, "GROUP BY")?;
        }
    }
    if let Some(condition) = having {
        expressions::check(condition)?;
        windows::refuse(condition, "HAVING")?;
    }
    for window in named_window {
        match &window.1 {
            NamedWindowExpr::WindowSpec(spec) => expressions::check_window(spec)?,
            NamedWindowExpr::NamedWindow(_) => {}
        }
    }
    Ok(())
}

fn check_item(item: &SelectItem) -> Lowered<()> {
    match item {
        SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, alias: _ } => expressions::check(expr),
        SelectItem::ExprWithAliases { .. } => Err(SqlError::unsupported("several aliases", "Write one alias.")),
        SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::ObjectName(_), options) => {
            check_wildcard(options)
        }
        SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::Expr(_), _) => {
            Err(SqlError::unsupported("expression.*", "Name the fields."))
        }
        SelectItem::Wildcard(options) => check_wildcard(options),
    }
}

fn check_wildcard(options: &WildcardAdditionalOptions) -> Lowered<()> {
    let WildcardAdditionalOptions {
        wildcard_token: _,
        opt_ilike,
        opt_exclude,
        opt_except,
        opt_replace,
        opt_rename,
        opt_alias,
    } = options;
    refuse_if(
        opt_ilike.is_some()
            || opt_exclude.is_some()
            || opt_except.is_some()
            || opt_replace.is_some()
            || opt_rename.is_some()
            || opt_alias.is_some(),
        "* with EXCEPT, REPLACE, RENAME or LIKE",
        "List the columns.",
    )
}

/// Checks one item of FROM.
pub(super) fn check_from(from: &TableWithJoins) -> Lowered<()> {
    let TableWithJoins { relation, joins } = from;
    check_relation(relation)?;
    for Join { relation, global, join_operator } in joins {
        refuse_if(*global, "GLOBAL JOIN", "Write JOIN.")?;
        check_relation(relation)?;
        match join_operator {
            JoinOperator::Join(constraint)
            | JoinOperator::Inner(constraint)
            | JoinOperator::Left(constraint)
            | JoinOperator::LeftOuter(constraint)
            | JoinOperator::Right(constraint)
            | JoinOperator::RightOuter(constraint)
            | JoinOperator::FullOuter(constraint)
            | JoinOperator::CrossJoin(constraint) => match constraint {
                JoinConstraint::On(condition) => {
                    expressions::check(condition)?;
                    windows::refuse(condition, "JOIN conditions")?;
                }
                JoinConstraint::Using(_) | JoinConstraint::Natural | JoinConstraint::None => {}
            },
            JoinOperator::Semi(_)
            | JoinOperator::LeftSemi(_)
            | JoinOperator::RightSemi(_)
            | JoinOperator::Anti(_)
            | JoinOperator::LeftAnti(_)
            | JoinOperator::RightAnti(_) => {
                return Err(SqlError::unsupported("SEMI JOIN and ANTI JOIN", "Write EXISTS or NOT EXISTS."));
            }
            JoinOperator::CrossApply
            | JoinOperator::OuterApply
            | JoinOperator::AsOf { .. }
            | JoinOperator::StraightJoin(_)
            | JoinOperator::ArrayJoin
            | JoinOperator::LeftArrayJoin
            | JoinOperator::InnerArrayJoin => {
                return Err(SqlError::unsupported("this kind of join", "Use INNER, LEFT, RIGHT, FULL or CROSS JOIN."));
            }
        }
    }
    Ok(())
}

/// Checks one relation of FROM.
pub(super) fn check_relation(relation: &TableFactor) -> Lowered<()> {
    match relation {
        TableFactor::Table {
            name: _,
            alias,
            args,
            with_hints,
            version,
            with_ordinality,
            partitions,
            json_path,
            sample,
            index_hints,
        } => {
            check_alias(alias.as_ref())?;
            refuse_if(args.is_some(), "a function in FROM", "Only tables and subqueries can be read from.")?;
            refuse_if(sample.is_some(), "TABLESAMPLE", "Filter with random() < fraction.")?;
            refuse_if(*with_ordinality, "WITH ORDINALITY", "Use row_number() over ().")?;
            refuse_if(
                !with_hints.is_empty()
                    || version.is_some()
                    || !partitions.is_empty()
                    || json_path.is_some()
                    || !index_hints.is_empty(),
                "a hint, version, partition or path behind a table",
                "Leave it out.",
            )
        }
        TableFactor::Derived { lateral, subquery, alias, sample } => {
            refuse_if(*lateral, "LATERAL", "Write a join or a correlated scalar subquery.")?;
            refuse_if(sample.is_some(), "TABLESAMPLE", "Filter with random() < fraction.")?;
            check_alias(alias.as_ref())?;
            check(subquery)
        }
        TableFactor::NestedJoin { table_with_joins, alias } => {
            check_alias(alias.as_ref())?;
            check_from(table_with_joins)
        }
        other => Err(SqlError::unsupported(
            format!("{other} in FROM"),
            "Only tables, subqueries and joins of them can be read from.",
        )),
    }
}

fn check_alias(alias: Option<&TableAlias>) -> Lowered<()> {
    let Some(TableAlias { explicit: _, name: _, columns, at }) = alias else { return Ok(()) };
    refuse_if(at.is_some(), "AT in an alias", "Leave it out.")?;
    refuse_if(
        columns.iter().any(|column| column.data_type.is_some()),
        "a type in a table's alias",
        "Cast the columns instead.",
    )
}

/// Checks ORDER BY keys.
pub(super) fn check_sort(keys: &[OrderByExpr]) -> Lowered<()> {
    for OrderByExpr { expr, options: _, with_fill } in keys {
        refuse_if(with_fill.is_some(), "WITH FILL", "Leave it out.")?;
        expressions::check(expr)?;
    }
    Ok(())
}
