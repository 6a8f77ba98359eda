//! A planned query: native, or for the fallback lane.

use std::sync::Arc;

use datafusion::logical_expr::LogicalPlan;
use eris_engine::CancelHandle;
use eris_query::Unplanned;
use eris_storage::Value;

use super::prepared::ColumnDescription;
use crate::ast;
use crate::catalog::Table;
use crate::database::Database;
use crate::errors::SqlError;
use crate::native::{MacroQep, Node};
use crate::plan::{BoundQuery, Lowering, OwnQuery, ParameterTypes, Scope, TypedPlan, compile, is_native, tables_of};
use crate::settings::Lanes;
use crate::types::SqlType;

/// How a query runs.
#[derive(Clone, Debug)]
pub enum QueryBody {
    /// On micro-operators and in the task.
    Native(Node),
    /// On dataflows, which are compiled for each execution by what tables hold then.
    Dataflows(Arc<TypedPlan>),
    /// On DataFusion's operators.
    Fallback {
        /// The optimised plan, with parameters as placeholders.
        plan: LogicalPlan,
        /// Why.
        reason: Unplanned,
    },
}

/// A planned query.
#[derive(Clone, Debug)]
pub struct QueryPlan {
    /// How it runs.
    pub body: QueryBody,
    /// Its result.
    pub columns: Arc<[ColumnDescription]>,
    /// The types of its parameters.
    pub parameters: Vec<SqlType>,
    /// The tables that it names.
    pub tables: Arc<[Arc<Table>]>,
    /// Whether its plan reads any of them: of `SELECT ... FROM t WHERE false` the optimiser leaves none.
    pub reads_tables: bool,
}

/// A planned query, and what else its statement has to know.
#[derive(Debug)]
pub struct PlannedQuery {
    /// The plan.
    pub plan: QueryPlan,
    /// It holds for this session and moment only.
    pub momentary: bool,
    /// Our own binder bound it.
    pub is_bound_here: bool,
    /// Bytes of the constants that were computed for it.
    pub constant_bytes: usize,
}

impl PlannedQuery {
    /// Plans a query: by our own binder if it can, else by DataFusion.
    pub fn of(query: &ast::Query, scope: Scope<'_>, types: ParameterTypes) -> Result<Self, SqlError> {
        if let Ok(OwnQuery { plan, columns, known }) = scope.own_query(query, types.clone())
            && let Ok(body) = native_body(plan)
        {
            scope.planner.note_bound_here();
            let reads_tables = !known.tables.is_empty();
            let (parameters, tables) = (known.parameters, known.tables);
            let plan = QueryPlan { body, columns, parameters, tables, reads_tables };
            return Ok(Self { plan, momentary: known.momentary, is_bound_here: true, constant_bytes: 0 });
        }
        let bound = scope.planner.bind_query(query, scope.catalog, scope.values, types)?;
        let (momentary, constant_bytes) = (bound.momentary, bound.constant_bytes);
        let plan = QueryPlan::make(bound, scope.lanes)?;
        Ok(Self { plan, momentary, is_bound_here: false, constant_bytes })
    }
}

impl QueryPlan {
    /// Lowers a bound query; refuses it if it is not native and may not fall back.
    pub fn make(bound: BoundQuery, lanes: Lanes) -> Result<Self, SqlError> {
        let reads_tables = !tables_of(&bound.plan)?.is_empty();
        let native =
            if lanes.native { bound.typed().and_then(native_body) } else { Err(Unplanned::because("native = off")) };
        let body = match native {
            Ok(body) => body,
            Err(reason) if lanes.fallback => QueryBody::Fallback { plan: bound.plan, reason },
            Err(reason) => {
                return Err(SqlError::unsupported(
                    format!("a plan that is not native ({reason})"),
                    "The fallback lane is switched off: rewrite the query, or SET fallback = on if it is there.",
                ));
            }
        };
        Ok(Self {
            body,
            columns: bound.columns.into(),
            parameters: bound.parameters,
            tables: bound.tables,
            reads_tables,
        })
    }

    /// The dataflows of one execution.
    pub async fn compile(
        &self,
        plan: &TypedPlan,
        database: &Database,
        cancel: &CancelHandle,
        parameters: &[Value],
    ) -> Result<MacroQep, SqlError> {
        let statistics = database.statistics().of(database.engine(), &plan.tables, cancel).await?;
        compile(plan, &statistics, parameters)
            .map_err(|reason| SqlError::internal(format!("a plan that was native is not any more: {reason}")))
    }

    /// Whether no DataFusion node runs.
    pub fn is_native(&self) -> bool {
        matches!(self.body, QueryBody::Native(_) | QueryBody::Dataflows(_))
    }

    /// The SQL types of the result.
    pub fn types(&self) -> Vec<SqlType> {
        self.columns.iter().map(|column| column.sql_type).collect()
    }
}

/// Point accesses and streams stay with the task; what looks at many rows becomes dataflows.
fn native_body(plan: TypedPlan) -> Lowering<QueryBody> {
    match plan.in_task() {
        Ok(node) if !node.groups_many() => Ok(QueryBody::Native(node)),
        lowered => match is_native(&plan) {
            Ok(()) => Ok(QueryBody::Dataflows(Arc::new(plan))),
            Err(reason) => lowered.map(QueryBody::Native).map_err(|_| reason),
        },
    }
}
