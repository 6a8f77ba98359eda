//! Queries bound and optimised by DataFusion.

use std::cell::OnceCell;
use std::ops::Deref;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use datafusion::logical_expr::LogicalPlan;
use datafusion::sql::planner::ParserOptions;

use super::constants::constant_bytes;
use super::context::Context;
use super::errors::datafusion_error;
use super::merged_columns;
use super::normalize::normalize;
use super::parameters::{ParameterTypes, suggest_from_query};
use super::planner::Planner;
use super::result_names;
use super::translate::{table_of, translate};
use super::typed::{Lowering, TypedPlan};
use crate::arrow_view::field_sql_type;
use crate::ast::{Query, Statement};
use crate::catalog::{CatalogVersion, Table};
use crate::errors::SqlError;
use crate::session::{ColumnDescription, Notice};
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
    /// `pg_backend_pid()`
    pub process: u32,
    /// Where functions leave their warnings.
    pub warnings: Arc<Mutex<Vec<Notice>>>,
}

/// What knows them.
pub trait KnowsSession {
    /// The values as they are now.
    fn session_values(&self) -> SessionValues;
}

/// The values of a session, taken from it once a statement asks for one: settings alone are many.
pub struct LazySessionValues<'s> {
    session: &'s dyn KnowsSession,
    taken: OnceCell<SessionValues>,
}

impl<'s> LazySessionValues<'s> {
    /// Of this session.
    pub fn of(session: &'s dyn KnowsSession) -> Self {
        Self { session, taken: OnceCell::new() }
    }
}

impl Deref for LazySessionValues<'_> {
    type Target = SessionValues;

    fn deref(&self) -> &SessionValues {
        self.taken.get_or_init(|| self.session.session_values())
    }
}

/// A bound and optimised query.
#[derive(Clone, Debug)]
pub struct BoundQuery {
    /// The optimised plan; parameters are placeholders.
    pub plan: LogicalPlan,
    /// The tables that the query names, those among them that the optimiser took out of the plan.
    pub tables: Arc<[Arc<Table>]>,
    /// Its result.
    pub columns: Vec<ColumnDescription>,
    /// The types of its parameters.
    pub parameters: Vec<SqlType>,
    /// The plan holds only for this session and moment.
    pub momentary: bool,
    /// Bytes of its constants.
    pub constant_bytes: usize,
}

impl BoundQuery {
    /// The same in relations of our own, if there are some for it.
    pub fn typed(&self) -> Lowering<TypedPlan> {
        translate(&self.plan, self.parameters.len())
    }
}

/// The tables that a plan reads, subqueries included, each once.
pub fn tables_of(plan: &LogicalPlan) -> Result<Vec<Arc<Table>>, SqlError> {
    let mut tables: Vec<Arc<Table>> = Vec::new();
    eris_binder::visit_scans(plan, &mut |scan| {
        if let Ok(table) = table_of(scan)
            && !tables.iter().any(|known| known.container() == table.container())
        {
            tables.push(table);
        }
        Ok(())
    })
    .map_err(|error| datafusion_error(&error))?;
    Ok(tables)
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
        let context = Context::new(self, catalog, values);
        merged_columns::write_out(&mut query, &|mut relation| {
            normalize(&mut relation);
            let plan = bind(&context, &Statement::Query(Box::new(relation)), &types)?;
            let plan = self.analyze(plan)?;
            let columns = plan.schema().fields().iter();
            Ok(columns.map(|field| (field.name().clone(), field.data_type().clone())).collect())
        })?;
        let shown = result_names::shown_names(&query);
        result_names::number_beside_columns(&mut query);
        normalize(&mut query);
        let statement = Statement::Query(Box::new(query));
        let mut plan = bind(&context, &statement, &types)?;
        let before = types.clone();
        types.infer(&plan)?;
        if !types.is_complete() || types != before {
            // A parameter may stand in two places, one of which says its type: bind again with everything known.
            types = ParameterTypes(types.finish().into_iter().map(Some).collect());
            plan = bind(&context, &statement, &types)?;
        }
        let momentary = context.momentary.load(Ordering::Relaxed);
        // Before the optimiser takes out what gives no rows. What nothing refers to in WITH is not there even now.
        let tables = tables_of(&plan)?.into();
        let plan = self.optimize(&plan, momentary)?;
        let planned = plan.schema().fields().iter().map(|field| field.name().clone()).collect();
        let names = result_names::apply(shown, planned);
        let columns = names
            .into_iter()
            .zip(plan.schema().fields())
            .map(|(name, field)| Ok(ColumnDescription { name, sql_type: field_sql_type(field)? }))
            .collect::<Result<Vec<_>, SqlError>>()?;
        let constant_bytes = constant_bytes(&plan).map_err(|error| datafusion_error(&error))?;
        Ok(BoundQuery { plan, tables, columns, parameters: types.finish(), momentary, constant_bytes })
    }
}

fn bind(context: &Context<'_>, statement: &Statement, types: &ParameterTypes) -> Result<LogicalPlan, SqlError> {
    eris_binder::bind(context, statement.clone(), types.fields(), options()).map_err(|error| datafusion_error(&error))
}
