//! `pg_sleep`: a query that waits before it answers.
//!
//! Sleeping is the session's business, not an expression's: an expression would hold a worker. So the items of a select
//! list without FROM that are `pg_sleep(seconds)` are taken out; what is left is a query like any other.
//!
//! ```text
//!   SELECT 1, pg_sleep(x), now()  -->  sleep for SELECT x::double precision, then SELECT 1, '' AS pg_sleep, now()
//! ```

use std::sync::Arc;
use std::time::Duration;

use eris_binder::visit_expressions;
use eris_platform::Nanos;
use eris_storage::Value;

use super::plans::QueryPlan;
use super::session::Session;
use crate::ast::{self, Expr, Ident, SelectItem, SetExpr};
use crate::errors::SqlError;
use crate::plan::{ParameterTypes, Scope};

/// What a sleep is cut into, so that a cancel is seen soon after it is asked for.
const SLICE: Duration = Duration::from_millis(10);
/// The longest sleep: some thirty years.
const SECONDS_MAX: f64 = 1e9;

/// A query that sleeps first.
#[derive(Clone, Debug)]
pub(super) struct SleepPlan {
    /// Gives the seconds of every sleep.
    pub seconds: QueryPlan,
    /// What is answered then.
    pub query: QueryPlan,
}

/// A query with sleeps taken apart.
pub(super) struct Sleeping {
    seconds: ast::Query,
    query: ast::Query,
}

impl SleepPlan {
    pub fn make(sleeping: &Sleeping, types: ParameterTypes, scope: Scope<'_>) -> Result<Self, SqlError> {
        let bind = |query, types| scope.planner.bind_query(query, scope.catalog, scope.values, types);
        let seconds = bind(&sleeping.seconds, types)?;
        // Both queries get all parameters; what one says about their types holds for the other.
        let types = ParameterTypes(seconds.parameters.iter().copied().map(Some).collect());
        let query = bind(&sleeping.query, types)?;
        let mut plan =
            Self { seconds: QueryPlan::make(seconds, scope.lanes)?, query: QueryPlan::make(query, scope.lanes)? };
        if plan.query.parameters.len() < plan.seconds.parameters.len() {
            plan.query.parameters.clone_from(&plan.seconds.parameters);
        }
        plan.seconds.parameters.clone_from(&plan.query.parameters);
        Ok(plan)
    }
}

fn is_sleep(expr: &Expr) -> bool {
    matches!(expr, Expr::Function(function)
        if matches!(function.name.to_string().to_lowercase().as_str(), "pg_sleep" | "pg_catalog.pg_sleep"))
}

/// The argument of `pg_sleep(seconds)`.
fn argument(expr: &Expr) -> Option<&Expr> {
    let Expr::Function(function) = expr else { return None };
    let ast::FunctionArguments::List(list) = &function.args else { return None };
    match list.args.as_slice() {
        [ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(seconds))] => Some(seconds),
        _ => None,
    }
}

/// Takes the sleeps out of a query; `None` if there are none.
pub(super) fn split_sleep(query: &ast::Query) -> Result<Option<Sleeping>, SqlError> {
    let mut sleeps = 0;
    visit_expressions(query, &mut |expr| sleeps += usize::from(is_sleep(expr)));
    if sleeps == 0 {
        return Ok(None);
    }
    let (mut seconds, mut rest) = (query.clone(), query.clone());
    let mut found = Vec::new();
    if let SetExpr::Select(select) = rest.body.as_mut()
        && select.from.is_empty()
    {
        for item in &mut select.projection {
            let (SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. }) = &*item else { continue };
            let Some(argument) = Some(expr).filter(|expr| is_sleep(expr)).and_then(|expr| argument(expr)) else {
                continue;
            };
            found.push(SelectItem::UnnamedExpr(as_double(argument)));
            let alias = match item {
                SelectItem::ExprWithAlias { alias, .. } => alias.clone(),
                _ => Ident::new("pg_sleep"),
            };
            let nothing = Expr::Value(ast::Value::SingleQuotedString(String::new()).with_empty_span());
            *item = SelectItem::ExprWithAlias { expr: nothing, alias };
        }
    }
    if found.len() < sleeps {
        return Err(SqlError::unsupported(
            "pg_sleep inside an expression or beside FROM",
            "Write SELECT pg_sleep(seconds), other values.",
        ));
    }
    // Order does not matter to a sum, and may name what is no longer there.
    seconds.order_by = None;
    if let SetExpr::Select(select) = seconds.body.as_mut() {
        select.projection = found;
    }
    Ok(Some(Sleeping { seconds, query: rest }))
}

fn as_double(expr: &Expr) -> Expr {
    Expr::Cast {
        kind: ast::CastKind::Cast,
        expr: Box::new(expr.clone()),
        data_type: ast::DataType::DoublePrecision,
        array: false,
        format: None,
    }
}

impl Session {
    /// Sleeps as long as the plan says.
    pub(super) async fn sleep(&mut self, plan: &SleepPlan, parameters: &Arc<[Value]>) -> Result<(), SqlError> {
        let mut source = self.query(&plan.seconds, parameters).await?;
        let mut total = 0.0;
        while let Some(batch) = source.next().await? {
            for row in 0..batch.rows {
                total += batch.row(row).iter().map(seconds_of).sum::<f64>();
            }
        }
        self.sleep_for(total.min(SECONDS_MAX)).await
    }

    async fn sleep_for(&mut self, seconds: f64) -> Result<(), SqlError> {
        let cancel = self.transaction().cancel_handle();
        let engine = self.database.engine();
        let end = engine.env().now().0.saturating_add(Duration::from_secs_f64(seconds).as_nanos() as u64);
        loop {
            if cancel.is_cancelled() {
                return Err(SqlError::cancelled());
            }
            let now = engine.env().now().0;
            if now >= end {
                return Ok(());
            }
            engine.sleep_until(Nanos(end.min(now + SLICE.as_nanos() as u64))).await;
        }
    }
}

fn seconds_of(value: &Value) -> f64 {
    match value {
        Value::Float64(seconds) if !seconds.is_nan() => seconds.clamp(0.0, SECONDS_MAX),
        _ => 0.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(sql: &str) -> Result<Option<[String; 2]>, SqlError> {
        let statement = crate::front::parse(sql)?.remove(0).ast;
        let ast::Statement::Query(query) = statement else { panic!("{sql} is no query") };
        let split = split_sleep(&query)?;
        Ok(split.map(|Sleeping { seconds, query }| [seconds.to_string(), query.to_string()]))
    }

    #[test]
    fn sleeps_are_taken_out_of_the_select_list() {
        assert_eq!(split("select 1"), Ok(None));
        let [seconds, query] = split("select 1, PG_SLEEP(0.5) as nap, pg_sleep($1)").unwrap().unwrap();
        assert_eq!(seconds, "SELECT CAST(0.5 AS DOUBLE PRECISION), CAST($1 AS DOUBLE PRECISION)");
        assert_eq!(query, "SELECT 1, '' AS nap, '' AS pg_sleep");
    }

    #[test]
    fn sleeps_elsewhere_are_refused() {
        for sql in [
            "select pg_sleep(1) from t",
            "select 1 where pg_sleep(1) is null",
            "select length(pg_sleep(1))",
            "select pg_sleep(1, 2)",
            "select (select pg_sleep(1))",
        ] {
            assert_eq!(split(sql).unwrap_err().sqlstate.as_str(), "0A000", "{sql}");
        }
    }
}
