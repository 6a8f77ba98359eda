//! From commands to plans.
//!
//! ```text
//!   Command --binder, rules of eris-query--------------------------------------> TypedPlan
//!           --DataFusion's binder and optimiser--> logical plan --translate----> TypedPlan | reason why not
//!
//!   TypedPlan --task-----> plan of access primitives that the task runs itself
//!             --compile--> macro-QEP: dataflows with barriers between them
//!   reason why not ------> fallback plan
//! ```
//! The first way is tried first ([`crate::binder`], `bound`); DataFusion takes what it does not bind, and says what is
//! wrong with a statement. DML, DDL, accesses and everything that runs natively is planned here.

mod access;
mod aggregates;
mod analyze;
mod arithmetic;
mod backend_functions;
mod bind;
mod bound;
mod catalog_functions;
mod checked;
mod compile;
mod constants;
mod context;
mod distinct_on;
mod dml;
mod errors;
mod extremes;
mod functions;
mod grouping_sets;
mod letter_case;
mod marks;
mod merged_columns;
mod normalize;
mod parameters;
mod partial_functions;
mod planner;
mod precedence;
mod quantifiers;
mod result_names;
mod rows;
mod rules;
mod sentences;
mod sorted_results;
mod source;
mod task;
mod text_growth;
mod translate;
mod typed;
mod types;
mod window_functions;
mod wrapping;

pub use bind::{BoundQuery, KnowsSession, LazySessionValues, SessionValues, tables_of};
pub(crate) use bound::OwnQuery;
pub use compile::{compile, is_native};
pub use dml::{Constant, PlannedWrite, Scope, plan_delete, plan_insert, plan_update};
pub use errors::{arrow_error, datafusion_error, engine_error, operator_error, storage_error};
pub use parameters::ParameterTypes;
pub(crate) use parameters::wrong_count;
pub use planner::Planner;
pub(crate) use result_names::{folded, name_of};
pub use rules::physical_rules;
pub use source::{ScanTarget, TableSourceProvider};
pub(crate) use text_growth::{HeldConstants, constant_texts};
pub use translate::condition_of;
pub use typed::{Lowering, TypedPlan};
