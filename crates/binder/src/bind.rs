//! Binding a statement: names become tables, functions and types.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, FieldRef};
use datafusion::common::config::ConfigOptions;
use datafusion::common::{Result, TableReference};
use datafusion::logical_expr::planner::{ContextProvider, ExprPlanner, TypePlanner};
use datafusion::logical_expr::{AggregateUDF, HigherOrderUDF, LogicalPlan, ScalarUDF, TableSource, WindowUDF};
use datafusion::sql::planner::{ParserOptions, PlannerContext, SqlToRel};
use datafusion::sql::sqlparser::ast::Statement;

/// A sized stand-in for a trait object, which is what the binder asks for.
struct Names<'a>(&'a dyn ContextProvider);

impl ContextProvider for Names<'_> {
    fn get_table_source(&self, name: TableReference) -> Result<Arc<dyn TableSource>> {
        self.0.get_table_source(name)
    }

    fn get_expr_planners(&self) -> &[Arc<dyn ExprPlanner>] {
        self.0.get_expr_planners()
    }

    fn get_type_planner(&self) -> Option<Arc<dyn TypePlanner>> {
        self.0.get_type_planner()
    }

    fn get_function_meta(&self, name: &str) -> Option<Arc<ScalarUDF>> {
        self.0.get_function_meta(name)
    }

    fn get_higher_order_meta(&self, name: &str) -> Option<Arc<HigherOrderUDF>> {
        self.0.get_higher_order_meta(name)
    }

    fn get_aggregate_meta(&self, name: &str) -> Option<Arc<AggregateUDF>> {
        self.0.get_aggregate_meta(name)
    }

    fn get_window_meta(&self, name: &str) -> Option<Arc<WindowUDF>> {
        self.0.get_window_meta(name)
    }

    fn get_variable_type(&self, variable_names: &[String]) -> Option<DataType> {
        self.0.get_variable_type(variable_names)
    }

    fn options(&self) -> &ConfigOptions {
        self.0.options()
    }

    fn udf_names(&self) -> Vec<String> {
        self.0.udf_names()
    }

    fn higher_order_function_names(&self) -> Vec<String> {
        self.0.higher_order_function_names()
    }

    fn udaf_names(&self) -> Vec<String> {
        self.0.udaf_names()
    }

    fn udwf_names(&self) -> Vec<String> {
        self.0.udwf_names()
    }
}

/// Binds a statement. `parameters` are the known types of `$1`, `$2`, ...
pub fn bind(
    names: &dyn ContextProvider,
    statement: Statement,
    parameters: Vec<Option<FieldRef>>,
    options: ParserOptions,
) -> Result<LogicalPlan> {
    let mut planning = PlannerContext::new().with_prepare_param_data_types(parameters);
    SqlToRel::new_with_options(&Names(names), options).sql_statement_to_plan_with_context(statement, &mut planning)
}
