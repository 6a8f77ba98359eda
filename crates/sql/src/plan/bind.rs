//! Queries bound and optimised by DataFusion.

use std::sync::atomic::Ordering;

use datafusion::common::JoinConstraint;
use datafusion::logical_expr::{ExprSchemable, Join, LogicalPlan};
use datafusion::sql::planner::ParserOptions;

use super::context::Context;
use super::errors::datafusion_error;
use super::normalize::normalize;
use super::parameters::{ParameterTypes, suggest_from_query};
use super::planner::Planner;
use super::result_names;
use crate::arrow_view::{field_sql_type, sql_type_of_arrow};
use crate::ast::{Query, Statement};
use crate::catalog::CatalogVersion;
use crate::errors::{SqlError, SqlState};
use crate::session::ColumnDescription;
use crate::types::SqlType;

/// What functions about the session answer.
#[derive(Clone, Debug, Default)]
pub struct SessionValues {
    /// `version()`
    pub version: String,
    /// `current_user`
    pub user: String,
    /// `current_database()`
    pub database: String,
    /// Names, values and descriptions of all settings.
    pub settings: Vec<[String; 3]>,
}

/// A bound and optimised query.
#[derive(Clone, Debug)]
pub struct BoundQuery {
    /// The optimised plan; parameters are placeholders.
    pub plan: LogicalPlan,
    /// Its result.
    pub columns: Vec<ColumnDescription>,
    /// The types of its parameters.
    pub parameters: Vec<SqlType>,
    /// The plan holds only for this session and moment.
    pub momentary: bool,
}

/// How SQL text is read: numbers with a point are numerics, as in PostgreSQL.
fn options() -> ParserOptions {
    ParserOptions::new().with_parse_float_as_decimal(true).with_map_string_types_to_utf8view(true)
}

impl Planner {
    /// Binds and optimises a query.
    pub fn bind_query(
        &self,
        query: &Query,
        catalog: &CatalogVersion,
        values: &SessionValues,
        mut types: ParameterTypes,
    ) -> Result<BoundQuery, SqlError> {
        let mut query = query.clone();
        types.cover(&query);
        suggest_from_query(&mut query, &mut types);
        let shown = result_names::shown_names(&query);
        normalize(&mut query);
        let context = Context::new(self, catalog, values);
        let statement = Statement::Query(Box::new(query));
        let mut plan = bind(&context, &statement, &types)?;
        check_using(&plan)?;
        let before = types.clone();
        types.infer(&plan)?;
        if !types.is_complete() || types != before {
            // A parameter may stand in two places, one of which says its type: bind again with everything known.
            types = ParameterTypes(types.finish().into_iter().map(Some).collect());
            plan = bind(&context, &statement, &types)?;
        }
        let momentary = context.momentary.load(Ordering::Relaxed);
        let plan = self.optimize(&plan, momentary)?;
        let planned = plan.schema().fields().iter().map(|field| field.name().clone()).collect();
        let names = result_names::apply(shown, planned);
        let columns = names
            .into_iter()
            .zip(plan.schema().fields())
            .map(|(name, field)| Ok(ColumnDescription { name, sql_type: field_sql_type(field)? }))
            .collect::<Result<Vec<_>, SqlError>>()?;
        Ok(BoundQuery { plan, columns, parameters: types.finish(), momentary })
    }
}

/// Refuses USING and NATURAL where a text would be compared with something else: there is no such equality.
fn check_using(plan: &LogicalPlan) -> Result<(), SqlError> {
    let mut refused = None;
    let visited = eris_binder::visit_nodes(plan, &mut |node| {
        let LogicalPlan::Join(Join { left, right, on, join_constraint: JoinConstraint::Using, .. }) = node else {
            return Ok(());
        };
        for (one, other) in on {
            let types = [one.get_type(left.schema())?, other.get_type(right.schema())?];
            if let [Ok(one), Ok(other)] = types.map(|data_type| sql_type_of_arrow(&data_type))
                && (one == SqlType::Text) != (other == SqlType::Text)
            {
                let message = format!("JOIN/USING types {one} and {other} cannot be matched");
                let hint = "Cast one of them in a subquery, or write ON with a cast.";
                refused = Some(SqlError::new(SqlState::TYPE_MISMATCH, message).hint(hint));
            }
        }
        Ok(())
    });
    visited.map_err(|error| datafusion_error(&error))?;
    refused.map_or(Ok(()), Err)
}

fn bind(context: &Context<'_>, statement: &Statement, types: &ParameterTypes) -> Result<LogicalPlan, SqlError> {
    eris_binder::bind(context, statement.clone(), types.fields(), options()).map_err(|error| datafusion_error(&error))
}
