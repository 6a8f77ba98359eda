//! Native plans: access primitives, micro-operators, and what the task does with their results.
//!
//! A plan is made once and run many times. Running one binds parameters into slots, asks the engine, and computes on
//! the batches that come back; DataFusion is not called, except for foreign expressions on whole batches.

mod access;
mod conditions;
mod convert;
mod dataflows;
mod describe;
mod foreign;
mod held;
mod keyed;
mod node;
mod rows;
mod run;
mod write;

pub use access::{Access, Bound, Expected};
pub use conditions::{ConditionTemplate, Slot, TestTemplate};
pub use convert::{Converted, assign, comparable, scalar_value};
pub use dataflows::{
    Actuals, Input, LimitPlan, MacroQep, PassedFilterPlan, ProbePlan, Scalar, SinkPlan, Source, Stage, StepPlan,
    describe_dataflows, start_dataflows,
};
pub use describe::{accesses, describe};
pub use foreign::PhysicalForeign;
pub use held::Held;
pub use keyed::{ChangePlan, FoundRows, KeyedPlan};
pub use node::{Node, SortSpec};
pub use rows::NativeRows;
pub use run::{RunContext, run, start};
pub use write::{DeletePlan, InsertPlan, InsertRows, UpdatePlan, store_as};
