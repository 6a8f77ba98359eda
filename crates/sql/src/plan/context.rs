//! What DataFusion's binder asks for while it resolves names.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use datafusion::arrow::datatypes::DataType as ArrowType;
use datafusion::common::config::ConfigOptions;
use datafusion::common::{DataFusionError, Result, TableReference};
use datafusion::datasource::provider_as_source;
use datafusion::logical_expr::planner::{ContextProvider, ExprPlanner, TypePlanner};
use datafusion::logical_expr::{AggregateUDF, HigherOrderUDF, ScalarUDF, TableSource, WindowUDF};

use super::analyze::row_in;
use super::backend_functions::backend_function;
use super::bind::SessionValues;
use super::catalog_functions::catalog_function;
use super::functions::session_function;
use super::planner::Planner;
use super::quantifiers::ROW_IN;
use super::source::TableSourceProvider;
use crate::catalog::CatalogVersion;
use crate::front::TableName;

/// Names for one statement.
pub(super) struct Context<'a> {
    pub planner: &'a Planner,
    pub catalog: &'a CatalogVersion,
    pub values: &'a SessionValues,
    /// Set when the plan depends on the session or the time.
    pub momentary: AtomicBool,
}

impl<'a> Context<'a> {
    pub fn new(planner: &'a Planner, catalog: &'a CatalogVersion, values: &'a SessionValues) -> Self {
        Self { planner, catalog, values, momentary: AtomicBool::new(false) }
    }
}

impl ContextProvider for Context<'_> {
    fn get_table_source(&self, name: TableReference) -> Result<Arc<dyn TableSource>> {
        let name = TableName { schema: name.schema().map(str::to_string), name: name.table().to_string() };
        if let Some(view) = self.planner.system_view(&name, self.catalog, self.values) {
            self.momentary.store(true, Ordering::Relaxed);
            return Ok(provider_as_source(view));
        }
        let table = self.catalog.table(&name).map_err(|error| DataFusionError::External(Box::new(error)))?;
        Ok(provider_as_source(Arc::new(TableSourceProvider::new(Arc::clone(table), self.planner.rows_of(table)))))
    }

    fn get_expr_planners(&self) -> &[Arc<dyn ExprPlanner>] {
        self.planner.expr_planners()
    }

    fn get_type_planner(&self) -> Option<Arc<dyn TypePlanner>> {
        Some(Arc::new(super::types::Types))
    }

    fn get_function_meta(&self, name: &str) -> Option<Arc<ScalarUDF>> {
        session_function(name, self.values, &self.momentary)
            .or_else(|| backend_function(name, self.planner.activities(), self.values, &self.momentary))
            .or_else(|| catalog_function(name, self.catalog, self.values, &self.momentary))
            .or_else(|| self.planner.state().scalar_functions().get(name).cloned())
            .or_else(|| (name == ROW_IN).then(|| Arc::new(row_in())))
    }

    fn get_higher_order_meta(&self, name: &str) -> Option<Arc<HigherOrderUDF>> {
        self.planner.state().higher_order_functions().get(name).cloned()
    }

    fn get_aggregate_meta(&self, name: &str) -> Option<Arc<AggregateUDF>> {
        self.planner.state().aggregate_functions().get(name).cloned()
    }

    fn get_window_meta(&self, name: &str) -> Option<Arc<WindowUDF>> {
        self.planner.state().window_functions().get(name).cloned()
    }

    fn get_variable_type(&self, _variable_names: &[String]) -> Option<ArrowType> {
        None
    }

    fn options(&self) -> &ConfigOptions {
        self.planner.state().config_options()
    }

    fn udf_names(&self) -> Vec<String> {
        sorted(self.planner.state().scalar_functions().keys())
    }

    fn higher_order_function_names(&self) -> Vec<String> {
        sorted(self.planner.state().higher_order_functions().keys())
    }

    fn udaf_names(&self) -> Vec<String> {
        sorted(self.planner.state().aggregate_functions().keys())
    }

    fn udwf_names(&self) -> Vec<String> {
        sorted(self.planner.state().window_functions().keys())
    }
}

/// Suggestions must not depend on the order of a hash table.
fn sorted<'a>(names: impl Iterator<Item = &'a String>) -> Vec<String> {
    let mut names: Vec<String> = names.cloned().collect();
    names.sort_unstable();
    names
}
