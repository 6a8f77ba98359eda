//! USING and NATURAL, written out: ON, and for a merged column what it stands for.
//!
//! | written, with `a (k, x)` and `b (k, y)` | bound                                                |
//! |-----------------------------------------|------------------------------------------------------|
//! | `SELECT k FROM a JOIN b USING (k)`      | `SELECT a.k FROM a JOIN b ON a.k = b.k`              |
//! | `SELECT * FROM a NATURAL RIGHT JOIN b`  | `SELECT b.k, a.x, b.y FROM a RIGHT JOIN b ON ...`    |
//! | `SELECT k FROM a FULL JOIN b USING (k)` | `SELECT coalesce(a.k, b.k) AS k FROM a FULL JOIN ...` |
//!
//! DataFusion's binder takes the left column of a join for the merged one, whichever side has no partner, and knows one
//! such join at a time.

use datafusion::arrow::datatypes::DataType as ArrowType;
use eris_binder::{Level, RewriteLevel, RewriteQuery, rewrite_level, rewrite_query};

use super::normalize::call;
use super::result_names::{folded, name_of};
use crate::arrow_view::sql_type_of_arrow;
use crate::ast::{
    BinaryOperator, Cte, Distinct, Expr, FunctionArg, FunctionArgExpr, Ident, JoinConstraint, JoinOperator, ObjectName,
    OrderBy, OrderByKind, Query, Select, SelectItem, SelectItemQualifiedWildcardKind, SetExpr, TableFactor,
    TableWithJoins, Value, With,
};
use crate::errors::{SqlError, SqlState};
use crate::front::template;
use crate::types::SqlType;

/// Names and types of a query's columns.
pub(super) type BindColumns<'a> = dyn Fn(Query) -> Result<Vec<(String, ArrowType)>, SqlError> + 'a;

/// Writes a query's joins out. Their relations are bound one by one for it.
pub(super) fn write_out(query: &mut Query, bind: &BindColumns<'_>) -> Result<(), SqlError> {
    if !has_merged(query) {
        return Ok(());
    }
    let mut writer = Writer { bind, tables: Vec::new(), scopes: Vec::new(), refused: None };
    writer.query(query);
    if let Some(error) = writer.refused {
        return Err(error);
    }
    if has_merged(query) {
        return Err(SqlError::unsupported("USING and NATURAL here", "Write ON."));
    }
    Ok(())
}

/// What a FROM has.
#[derive(Debug, Default)]
struct Scope {
    /// What may be named without its table; in this order in `*`.
    visible: Vec<Visible>,
    /// What `name.*` stands for, by name.
    tables: Vec<(String, Vec<SelectItem>)>,
}

#[derive(Debug)]
struct Visible {
    name: String,
    /// What it stands for.
    expr: Expr,
    data_type: ArrowType,
    /// It stands for columns of several types.
    mixed: bool,
    merged: bool,
}

impl Scope {
    fn merges(&self) -> bool {
        self.visible.iter().any(|column| column.merged)
    }

    fn extend(&mut self, other: Self) {
        self.visible.extend(other.visible);
        self.tables.extend(other.tables);
    }

    /// Writes `*` and `name.*` out.
    fn spell_out(&self, items: &mut Vec<SelectItem>) {
        let written = std::mem::take(items).into_iter().flat_map(|item| match &item {
            SelectItem::Wildcard(_) => {
                self.visible.iter().map(|column| named(column.expr.clone(), &column.name)).collect()
            }
            SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::ObjectName(name), _) => {
                let mut tables = self.tables.iter().filter(|(table, _)| *table == last_name(name));
                tables.next().map_or_else(|| vec![item], |(_, columns)| columns.clone())
            }
            _ => vec![item],
        });
        *items = written.collect();
    }
}

/// Goes through a query from the outside to the inside and writes its joins out. What cannot be is kept in `refused`,
/// the first time, because walks over texts do not end early.
struct Writer<'a> {
    bind: &'a BindColumns<'a>,
    /// Those of WITH, around what is visited.
    tables: Vec<Cte>,
    /// Of the SELECTs around what is visited; none where nothing merged can be meant.
    scopes: Vec<Option<Scope>>,
    refused: Option<SqlError>,
}

impl Writer<'_> {
    /// The body of a query. ORDER BY is the SELECT's if it is one: that of a set operation means results only.
    fn set(&mut self, body: &mut SetExpr, order_by: &mut Option<OrderBy>) {
        match body {
            SetExpr::Select(select) => self.select(select, order_by),
            SetExpr::Query(query) => RewriteLevel::query(self, query),
            SetExpr::SetOperation { left, right, .. } => {
                self.set(left, &mut None);
                self.set(right, &mut None);
            }
            other => rewrite_level(Level::Body(other), self),
        }
    }

    fn select(&mut self, select: &mut Select, order_by: &mut Option<OrderBy>) {
        let mut from = std::mem::take(&mut select.from);
        let scope = self.from(&mut from);
        if let Some(scope) = scope.as_ref().filter(|scope| scope.merges()) {
            scope.spell_out(&mut select.projection);
        }
        self.scopes.push(scope);
        let names: Vec<Option<String>> = select.projection.iter().map(name_of_item).collect();
        self.name_results(&names, select, order_by);
        rewrite_level(Level::Select(select), self);
        for (item, name) in select.projection.iter_mut().zip(names) {
            if let (SelectItem::UnnamedExpr(expr), Some(name)) = (&*item, name)
                && name_of(expr).as_ref() != Some(&name)
            {
                *item = SelectItem::ExprWithAlias { expr: expr.clone(), alias: Ident::with_quote('"', name) };
            }
        }
        self.scopes.pop();
        select.from = from;
    }

    /// Writes keys of ORDER BY and DISTINCT ON out. A name means a result before it means a column.
    fn name_results(&mut self, names: &[Option<String>], select: &mut Select, order_by: &mut Option<OrderBy>) {
        let place = |writer: &Self, key: &Expr| match key {
            Expr::Identifier(key) if writer.merged(key).is_some() => {
                names.iter().position(|name| name.as_ref() == Some(&folded(key)))
            }
            _ => None,
        };
        if let Some(Distinct::On(keys)) = &mut select.distinct {
            for key in keys {
                if let Some(at) = place(self, key) {
                    *key = number(at + 1);
                }
            }
        }
        let Some(OrderBy { kind: OrderByKind::Expressions(keys), .. }) = order_by else { return };
        for key in keys {
            match place(self, &key.expr).map(|at| (at, &select.projection[at])) {
                None => rewrite_level(Level::Expression(&mut key.expr), self),
                Some((_, SelectItem::UnnamedExpr(Expr::Identifier(_)) | SelectItem::ExprWithAlias { .. })) => {}
                Some((_, SelectItem::UnnamedExpr(expr @ Expr::CompoundIdentifier(_)))) => key.expr = expr.clone(),
                Some((at, _)) => key.expr = number(at + 1),
            }
        }
    }

    /// Writes the joins of a FROM out. Returns its columns if expressions may name a merged one.
    fn from(&mut self, from: &mut [TableWithJoins]) -> Option<Scope> {
        for tables in &mut *from {
            self.within(tables);
        }
        let merging = from.iter().any(joins_by_name);
        if !merging && !self.scopes.iter().flatten().any(Scope::merges) {
            for tables in from {
                self.conditions(tables);
            }
            return None;
        }
        let mut scope = Scope::default();
        for tables in from {
            match self.joined(tables) {
                Ok(joined) => scope.extend(joined),
                Err(error) => {
                    // Without anything merged of its own it is bound as it is: whatever is wrong is said then.
                    self.refused = self.refused.take().or(merging.then_some(error));
                    return None;
                }
            }
        }
        Some(scope)
    }

    /// Subqueries of a FROM.
    fn within(&mut self, tables: &mut TableWithJoins) {
        let joined = tables.joins.iter_mut().map(|join| &mut join.relation);
        for factor in std::iter::once(&mut tables.relation).chain(joined) {
            match factor {
                TableFactor::Derived { subquery, .. } => RewriteLevel::query(self, subquery),
                TableFactor::NestedJoin { table_with_joins, alias } => {
                    if alias.is_some() && joins_by_name(table_with_joins) {
                        let mut subquery = Box::new(everything_in(table_with_joins.as_ref().clone()));
                        RewriteLevel::query(self, &mut subquery);
                        *factor = TableFactor::Derived { lateral: false, subquery, alias: alias.take(), sample: None };
                    } else {
                        self.within(table_with_joins);
                    }
                }
                _ => {}
            }
        }
    }

    /// Subqueries of the conditions of a FROM.
    fn conditions(&mut self, tables: &mut TableWithJoins) {
        if let TableFactor::NestedJoin { table_with_joins, .. } = &mut tables.relation {
            self.conditions(table_with_joins);
        }
        for join in &mut tables.joins {
            if let TableFactor::NestedJoin { table_with_joins, .. } = &mut join.relation {
                self.conditions(table_with_joins);
            }
            if let Some((_, JoinConstraint::On(condition))) = constraint_of(&mut join.join_operator) {
                rewrite_level(Level::Expression(condition), self);
            }
        }
    }

    /// Writes joins out. Returns their columns.
    fn joined(&mut self, tables: &mut TableWithJoins) -> Result<Scope, SqlError> {
        let mut left = self.columns(&mut tables.relation)?;
        for join in &mut tables.joins {
            let right = self.columns(&mut join.relation)?;
            let Some((side, constraint)) = constraint_of(&mut join.join_operator) else {
                left.extend(right);
                continue;
            };
            let names = match constraint {
                JoinConstraint::Using(names) => names.iter().map(last_name).collect(),
                JoinConstraint::Natural => names_of_both(&left.visible, &right.visible),
                JoinConstraint::On(condition) => {
                    left.extend(right);
                    self.scopes.push(Some(left));
                    rewrite_level(Level::Expression(condition), self);
                    left = self.scopes.pop().flatten().unwrap_or_default();
                    continue;
                }
                JoinConstraint::None => {
                    left.extend(right);
                    continue;
                }
            };
            let condition;
            (left.visible, condition) = merge(left.visible, right.visible, &names, side)?;
            left.tables.extend(right.tables);
            *constraint = JoinConstraint::On(condition);
        }
        Ok(left)
    }

    /// The columns of a relation, or of joins in parentheses, which are written out.
    fn columns(&mut self, factor: &mut TableFactor) -> Result<Scope, SqlError> {
        let qualifier = match factor {
            TableFactor::NestedJoin { table_with_joins, alias: None } => return self.joined(table_with_joins),
            TableFactor::Table { alias: Some(alias), .. }
            | TableFactor::Derived { alias: Some(alias), .. }
            | TableFactor::NestedJoin { alias: Some(alias), .. } => Some(alias.name.clone()),
            TableFactor::Table { name, .. } => name.0.last().and_then(|part| part.as_ident()).cloned(),
            _ => None,
        };
        let visible = |(name, data_type): (String, ArrowType)| {
            let column = Ident::with_quote('"', name.clone());
            let expr = match &qualifier {
                Some(qualifier) => Expr::CompoundIdentifier(vec![qualifier.clone(), column]),
                None => Expr::Identifier(column),
            };
            Visible { name, expr, data_type, mixed: false, merged: false }
        };
        let visible: Vec<Visible> = self.bound(factor)?.into_iter().map(visible).collect();
        let items = visible.iter().map(|column| SelectItem::UnnamedExpr(column.expr.clone())).collect();
        let tables = qualifier.iter().map(|name| (folded(name), Vec::clone(&items))).collect();
        Ok(Scope { visible, tables })
    }

    /// Names and types of a relation's columns.
    fn bound(&self, factor: &TableFactor) -> Result<Vec<(String, ArrowType)>, SqlError> {
        let bind = |factor: TableFactor| {
            let mut query = everything_in(TableWithJoins { relation: factor, joins: Vec::new() });
            query.with = self.with();
            (self.bind)(query)
        };
        let error = match bind(factor.clone()) {
            Err(error) if !self.scopes.is_empty() => error,
            done => return done,
        };
        // It may refer to a query around it, which is not bound here; most do in WHERE.
        let mut unconditional = factor.clone();
        if let TableFactor::Derived { subquery, .. } = &mut unconditional
            && let SetExpr::Select(select) = subquery.body.as_mut()
        {
            select.selection = None;
        }
        bind(unconditional).map_err(|_| error)
    }

    /// All tables of WITH that can be read here.
    fn with(&self) -> Option<With> {
        let name = |table: &Cte| folded(&table.alias.name);
        let hidden = |at: usize| self.tables[at + 1..].iter().any(|inner| name(inner) == name(&self.tables[at]));
        let tables: Vec<Cte> =
            (0..self.tables.len()).filter(|at| !hidden(*at)).map(|at| self.tables[at].clone()).collect();
        let mut with = template("WITH x AS (SELECT 1) SELECT * FROM x").with?;
        with.cte_tables = tables;
        (!with.cte_tables.is_empty()).then_some(with)
    }

    /// What a name stands for, if it is that of a merged column.
    fn merged(&self, ident: &Ident) -> Option<Expr> {
        let name = folded(ident);
        for scope in self.scopes.iter().rev() {
            let mut named = scope.as_ref()?.visible.iter().filter(|column| column.name == name);
            if let Some(column) = named.next() {
                let mut expr = column.expr.clone();
                if let Expr::CompoundIdentifier(parts) = &mut expr {
                    for part in parts {
                        part.span = ident.span;
                    }
                }
                return (column.merged && named.next().is_none()).then_some(expr);
            }
        }
        None
    }
}

impl RewriteLevel for Writer<'_> {
    fn query(&mut self, query: &mut Query) {
        let outside = self.tables.len();
        for table in query.with.iter_mut().flat_map(|with| &mut with.cte_tables) {
            RewriteLevel::query(self, &mut table.query);
            self.tables.push(table.clone());
        }
        self.set(&mut query.body, &mut query.order_by);
        self.tables.truncate(outside);
    }

    fn expression(&mut self, expr: &mut Expr) {
        if let Expr::Identifier(ident) = expr
            && let Some(merged) = self.merged(ident)
        {
            *expr = merged;
        }
    }
}

fn has_merged(query: &mut Query) -> bool {
    struct Finding(bool);

    impl RewriteQuery for Finding {
        fn query(&mut self, _: &mut Query) {}

        fn select(&mut self, select: &mut Select) {
            self.0 |= select.from.iter().any(joins_by_name);
        }

        fn expression(&mut self, _: &mut Expr) {}
    }

    let mut finding = Finding(false);
    rewrite_query(query, &mut finding);
    finding.0
}

/// Whether a table of FROM has columns that are merged, also if it hides them behind a name of its own.
fn joins_by_name(tables: &TableWithJoins) -> bool {
    let within = |factor: &TableFactor| match factor {
        TableFactor::NestedJoin { table_with_joins, .. } => joins_by_name(table_with_joins),
        _ => false,
    };
    let by_name = |operator: &JoinOperator| match operator {
        JoinOperator::Join(constraint)
        | JoinOperator::Inner(constraint)
        | JoinOperator::CrossJoin(constraint)
        | JoinOperator::Left(constraint)
        | JoinOperator::LeftOuter(constraint)
        | JoinOperator::Right(constraint)
        | JoinOperator::RightOuter(constraint)
        | JoinOperator::FullOuter(constraint) => {
            matches!(constraint, JoinConstraint::Using(_) | JoinConstraint::Natural)
        }
        _ => false,
    };
    within(&tables.relation) || tables.joins.iter().any(|join| within(&join.relation) || by_name(&join.join_operator))
}

/// The sides of a join that have all their rows in its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kept {
    Left,
    Right,
    Both,
}

fn constraint_of(operator: &mut JoinOperator) -> Option<(Kept, &mut JoinConstraint)> {
    match operator {
        JoinOperator::Join(constraint)
        | JoinOperator::Inner(constraint)
        | JoinOperator::CrossJoin(constraint)
        | JoinOperator::Left(constraint)
        | JoinOperator::LeftOuter(constraint) => Some((Kept::Left, constraint)),
        JoinOperator::Right(constraint) | JoinOperator::RightOuter(constraint) => Some((Kept::Right, constraint)),
        JoinOperator::FullOuter(constraint) => Some((Kept::Both, constraint)),
        _ => None,
    }
}

/// The columns of a join by names, merged ones first, and its condition.
fn merge(
    mut left: Vec<Visible>,
    mut right: Vec<Visible>,
    names: &[String],
    kept: Kept,
) -> Result<(Vec<Visible>, Expr), SqlError> {
    let mut columns = Vec::with_capacity(left.len() + right.len());
    let mut condition = None;
    for (at, name) in names.iter().enumerate() {
        if names[..at].contains(name) {
            let message = format!("column name \"{name}\" appears more than once in USING clause");
            return Err(SqlError::new(SqlState::DUPLICATE_COLUMN, message).about(&[name]));
        }
        let (own, other) = (take(&mut left, name, "left")?, take(&mut right, name, "right")?);
        check_comparable(&own.data_type, &other.data_type)?;
        let equal = Expr::BinaryOp {
            left: Box::new(own.expr.clone()),
            op: BinaryOperator::Eq,
            right: Box::new(other.expr.clone()),
        };
        condition = Some(match condition {
            None => equal,
            Some(others) => Expr::BinaryOp { left: Box::new(others), op: BinaryOperator::And, right: Box::new(equal) },
        });
        // Where one side is kept, the other one's column is NULL whenever the first one's is; beside another type
        // COALESCE has that of both.
        let alike = own.data_type == other.data_type && !own.mixed && !other.mixed;
        let expr = match kept {
            Kept::Left if alike => own.expr,
            Kept::Right if alike => other.expr,
            Kept::Left | Kept::Both => coalesce(own.expr, other.expr),
            Kept::Right => coalesce(other.expr, own.expr),
        };
        columns.push(Visible { name: name.clone(), expr, data_type: own.data_type, mixed: !alike, merged: true });
    }
    columns.extend(left);
    columns.extend(right);
    Ok((columns, condition.unwrap_or_else(|| Expr::Value(Value::Boolean(true).with_empty_span()))))
}

fn take(columns: &mut Vec<Visible>, name: &str, side: &str) -> Result<Visible, SqlError> {
    let mut named = (0..columns.len()).filter(|at| columns[*at].name == name);
    let Some(at) = named.next() else {
        let message = format!("column \"{name}\" specified in USING clause does not exist in {side} table");
        return Err(SqlError::new(SqlState::NO_SUCH_COLUMN, message).about(&[name]));
    };
    if named.next().is_some() {
        let message = format!("common column name \"{name}\" appears more than once in {side} table");
        return Err(SqlError::new(SqlState::AMBIGUOUS_COLUMN, message).about(&[name]));
    }
    Ok(columns.remove(at))
}

/// A text has no equality with something else.
fn check_comparable(one: &ArrowType, other: &ArrowType) -> Result<(), SqlError> {
    if let (Ok(one), Ok(other)) = (sql_type_of_arrow(one), sql_type_of_arrow(other))
        && (one == SqlType::Text) != (other == SqlType::Text)
    {
        let message = format!("JOIN/USING types {one} and {other} cannot be matched");
        let hint = "Cast one of them in a subquery, or write ON with a cast.";
        return Err(SqlError::new(SqlState::TYPE_MISMATCH, message).hint(hint));
    }
    Ok(())
}

fn last_name(name: &ObjectName) -> String {
    name.0.last().and_then(|part| part.as_ident()).map(folded).unwrap_or_default()
}

/// In the order of the left side.
fn names_of_both(left: &[Visible], right: &[Visible]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for Visible { name, .. } in left {
        if !names.contains(name) && right.iter().any(|column| column.name == *name) {
            names.push(name.clone());
        }
    }
    names
}

/// What a column stands for, by the column's name.
fn named(expr: Expr, name: &str) -> SelectItem {
    match expr {
        Expr::Identifier(_) | Expr::CompoundIdentifier(_) => SelectItem::UnnamedExpr(expr),
        _ => SelectItem::ExprWithAlias { expr, alias: Ident::with_quote('"', name) },
    }
}

/// The name that a result gets from an item, if it is one column.
fn name_of_item(item: &SelectItem) -> Option<String> {
    match item {
        SelectItem::UnnamedExpr(expr) => name_of(expr),
        SelectItem::ExprWithAlias { alias, .. } => Some(folded(alias)),
        _ => None,
    }
}

fn number(number: usize) -> Expr {
    Expr::Value(Value::Number(number.to_string(), false).with_empty_span())
}

fn coalesce(one: Expr, other: Expr) -> Expr {
    let arguments = [one, other].map(|expr| FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)));
    call(Ident::new("coalesce"), arguments.into())
}

/// `SELECT * FROM tables`
fn everything_in(tables: TableWithJoins) -> Query {
    let mut query = template("SELECT * FROM x");
    if let SetExpr::Select(select) = query.body.as_mut() {
        select.from = vec![tables];
    }
    query
}
