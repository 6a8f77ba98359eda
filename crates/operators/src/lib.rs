//! Relational micro-operators on batches: what runs inside a partition between the data gateway and the task, and the
//! merging that the task does with what partitions emit.
//!
//! - [`Expression`]: columns, constants, parameters, checked arithmetic, comparisons, three-valued logic, CASE, LIKE,
//!   IN, parts of dates and texts, casts of numbers; everything else is a [`ForeignExpr`], the hole that the SQL layer
//!   fills.
//! - [`FilterProject`]: filter, projection and limit of one partition's batches.
//! - [`Aggregate`]: grouped and ungrouped aggregates of one partition; [`AggregateMerge`] joins them in the task.
//! - [`Pipeline`]: the steps ([`Step`]) of a query's stage and its [`Sink`]: [`Emit`], [`Collector`], [`JoinBuild`]
//!   (which [`Probe`] looks rows up in, and whose [`KeyFilter`] a [`PassedFilter`] asks long before), [`GroupBy`],
//!   [`SortSink`], [`WindowSink`].
//! - [`SortKeys`]: the order of rows, for the sort at the end of a task.

mod aggregate;
mod arithmetic;
mod assembly;
#[cfg(test)]
mod coded_batches;
mod error;
mod expression;
mod filter_project;
mod hash;
mod join;
mod logic;
mod pipeline;
mod settings;
mod sort;
mod spill;
mod window;

pub use aggregate::{Aggregate, AggregateCall, AggregateFunction, AggregateMerge, GroupBy, GroupCall};
pub use arithmetic::{ArithmeticOperator, exact_average};
pub use error::OperatorError;
pub use expression::{DatePart, Datum, Expression, ForeignExpr, LikePattern, Narrowed, Span, ValueSet, flipped};
pub use filter_project::{FilterProject, select};
pub use join::{BuildSpec, JoinBuild, JoinKind, KeyFilter, Probe, ProbeParts, SpillingCollector};
pub use pipeline::{Collector, Emit, Flow, PassedFilter, Pipeline, RowCounts, Sink, Step};
pub use settings::{AGGREGATION_INPUT, AggregationInput, SETTINGS};
pub use sort::{SortKey, SortKeys, SortSink};
pub use spill::{Awaited, KeptRows, LimitedRows, RowStream, Spill, SpillOptions, SpillingSink, WaitingRows};
pub use window::{Frame, FrameBound, FrameUnit, WindowCall, WindowFunction, WindowSink, WindowSpec};
