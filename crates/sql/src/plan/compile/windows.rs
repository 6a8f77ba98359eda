//! Window functions: a stage for those of a node that see the same partitions in the same order.
//!
//! What they look at becomes columns first: keys, arguments, and for RANGE with an offset what keys are compared with
//! ([`frames`]).

mod frames;

use datafusion::common::DFSchema;
use datafusion::logical_expr::expr::{NullTreatment, WindowFunction as WindowExpr};
use datafusion::logical_expr::{Expr, SortExpr, Window, WindowFunctionDefinition};
use eris_operators::{
    AggregateFunction, Expression, Frame, FrameBound, SortKey, SortKeys, WindowCall, WindowFunction, WindowSpec,
};
use eris_storage::{DataType, Value};

use super::estimate::{ColumnEstimate, Estimate};
use super::relational::only_where;
use super::stream::{Stream, referred};
use super::{Compiler, Needed};
use crate::arrow_view::sql_type_of_arrow;
use crate::native::{SinkPlan, Source};
use crate::plan::lower::{Columns, Lowering, NotNative, aggregate_function, lower, lower_all, unaliased};
use frames::{Order, frame};

/// A window function of a node.
struct Call {
    /// Its position in the node's schema.
    position: usize,
    function: WindowExpr,
    result: DataType,
}

impl Call {
    /// Whether two see the same partitions in the same order.
    fn is_beside(&self, other: &Self) -> bool {
        let (own, others) = (&self.function.params, &other.function.params);
        own.partition_by == others.partition_by && own.order_by == others.order_by
    }

    fn referred(&self, schema: &DFSchema) -> Lowering<Needed> {
        referred([&Expr::WindowFunction(Box::new(self.function.clone()))], schema)
    }
}

/// The expressions that become columns, by number until they are.
#[derive(Default)]
pub(super) struct Looked {
    expressions: Vec<Expression>,
}

impl Looked {
    fn add(&mut self, expression: Expression) -> usize {
        self.expressions.push(expression);
        self.expressions.len() - 1
    }
}

fn is_constant(expr: &Expr) -> bool {
    matches!(unaliased(expr), Expr::Literal(..))
}

impl Compiler<'_> {
    pub(super) fn window(&mut self, window: &Window, needed: &Needed) -> Lowering<Stream> {
        let schema = window.input.schema();
        let width = schema.fields().len();
        let mut left = Vec::new();
        for position in needed.range(width..) {
            let expr = self.without_subqueries(unaliased(&window.window_expr[position - width]))?;
            let Expr::WindowFunction(function) = expr else { return Err(NotNative(format!("window {expr}"))) };
            let result = sql_type_of_arrow(window.schema.field(*position).data_type())?.data_type();
            left.push(Call { position: *position, function: *function, result });
        }
        let mut wanted: Needed = needed.range(..width).copied().collect();
        for call in &left {
            wanted.extend(call.referred(schema)?);
        }
        let mut stream = self.stream(&window.input, &wanted)?;
        stream.columns.resize(window.schema.fields().len(), None);
        while let Some(first) = left.first() {
            let (calls, others): (Vec<Call>, Vec<Call>) = {
                let is_beside: Vec<bool> = left.iter().map(|call| call.is_beside(first)).collect();
                let mut beside = is_beside.into_iter();
                left.drain(..).partition(|_| beside.next() == Some(true))
            };
            left = others;
            // What is needed behind this stage: for the result, and for other windows.
            let mut later = needed.clone();
            for call in &left {
                later.extend(call.referred(schema)?);
            }
            stream = self.windows(stream, schema, &calls, &later)?;
        }
        Ok(stream)
    }

    /// One stage.
    fn windows(&mut self, mut stream: Stream, schema: &DFSchema, calls: &[Call], later: &Needed) -> Lowering<Stream> {
        let Some(Call { function, .. }) = calls.first() else { return Ok(stream) };
        let map = stream.columns[..schema.fields().len()].to_vec();
        let scope = Stream::scope(schema, &map);
        let mut looked = Looked::default();
        let partition: Vec<&Expr> = function.params.partition_by.iter().filter(|key| !is_constant(key)).collect();
        let order: Vec<&SortExpr> = function.params.order_by.iter().filter(|key| !is_constant(&key.expr)).collect();
        let mut keys = Vec::new();
        for key in lower_all(partition.iter().copied(), scope)?.iter() {
            keys.push(SortKey { column: looked.add(key.clone()), descending: false, nulls_first: false });
        }
        for key in &order {
            let column = looked.add(lower(&key.expr, scope)?);
            keys.push(SortKey { column, descending: !key.asc, nulls_first: key.nulls_first });
        }
        let order = Order { keys: &order, first: partition.len() };
        let lowered = calls.iter().map(|call| window_call(call, &order, &keys, scope, &mut looked));
        let mut lowered = lowered.collect::<Lowering<Vec<WindowCall>>>()?;
        let places = stream.with_columns(looked.expressions);
        for key in &mut keys {
            key.column = places[key.column];
        }
        for call in &mut lowered {
            call.function = placed(call.function, &places);
            for bound in [&mut call.frame.start, &mut call.frame.end] {
                if let FrameBound::Value { key, bound } = bound {
                    (key.column, *bound) = (places[key.column], places[*bound]);
                }
            }
        }
        let mut kept: Vec<usize> = Vec::new();
        let mut columns = vec![None; stream.columns.len()];
        for position in later {
            if let Some(column) = stream.columns[*position] {
                let known = kept.iter().position(|known| *known == column);
                columns[*position] = Some(known.unwrap_or_else(|| {
                    kept.push(column);
                    kept.len() - 1
                }));
            }
        }
        let mut types: Vec<DataType> = kept.iter().map(|column| stream.types[*column]).collect();
        let mut estimate = Estimate { sample: None, ..stream.estimate.chosen(&kept) };
        for (at, call) in calls.iter().enumerate() {
            columns[call.position] = Some(kept.len() + at);
            types.push(call.result);
            let rows = estimate.rows.max(1.0);
            estimate.columns.push(ColumnEstimate { distinct: rows, domain: rows });
        }
        let spec = WindowSpec {
            keys: SortKeys(keys.into()),
            partition_keys: partition.len(),
            kept: kept.into(),
            calls: lowered.into(),
        };
        let stage = self.end(&stream, SinkPlan::Window(spec));
        Ok(Stream::of(Source::Stage(stage), columns, types, estimate))
    }
}

/// The function with the places of its columns.
fn placed(function: WindowFunction, places: &[usize]) -> WindowFunction {
    let place = |column: usize| places[column];
    match function {
        WindowFunction::RowNumber
        | WindowFunction::Rank
        | WindowFunction::DenseRank
        | WindowFunction::PercentRank
        | WindowFunction::CumeDist => function,
        WindowFunction::Ntile { buckets } => WindowFunction::Ntile { buckets: place(buckets) },
        WindowFunction::Shift { value, offset, default, ahead } => {
            WindowFunction::Shift { value: place(value), offset: offset.map(place), default: default.map(place), ahead }
        }
        WindowFunction::FirstValue { value } => WindowFunction::FirstValue { value: place(value) },
        WindowFunction::LastValue { value } => WindowFunction::LastValue { value: place(value) },
        WindowFunction::NthValue { value, number } => {
            WindowFunction::NthValue { value: place(value), number: place(number) }
        }
        WindowFunction::Aggregate { function, input } => {
            WindowFunction::Aggregate { function, input: input.map(place) }
        }
    }
}

/// A call over numbers of looked at expressions.
fn window_call(
    call: &Call,
    order: &Order<'_>,
    keys: &[SortKey],
    scope: Columns<'_>,
    looked: &mut Looked,
) -> Lowering<WindowCall> {
    let params = &call.function.params;
    if params.distinct || params.null_treatment == Some(NullTreatment::IgnoreNulls) {
        return Err(NotNative(format!("window {}", call.function.fun.name())));
    }
    let function = match &call.function.fun {
        WindowFunctionDefinition::AggregateUDF(aggregate) => {
            let Some(function) = aggregate_function(aggregate.name()) else {
                return Err(NotNative(format!("window aggregate {}", aggregate.name())));
            };
            folded(function, &params.args, params.filter.as_deref(), scope, looked)?
        }
        WindowFunctionDefinition::WindowUDF(function) => of_rows(function.name(), &params.args, scope, looked)?,
    };
    let frame =
        if function.has_frame() { frame(&params.window_frame, order, keys, scope, looked)? } else { Frame::PARTITION };
    Ok(WindowCall { function, frame, result: call.result })
}

/// An aggregate; what a filter takes away is NULL to it.
fn folded(
    function: AggregateFunction,
    args: &[Expr],
    filter: Option<&Expr>,
    scope: Columns<'_>,
    looked: &mut Looked,
) -> Lowering<WindowFunction> {
    let [argument] = args else { return Err(NotNative("a window aggregate of several arguments".to_string())) };
    let counts_rows =
        function == AggregateFunction::Count && matches!(argument, Expr::Literal(value, _) if !value.is_null());
    let argument = match (counts_rows, filter) {
        (true, None) => {
            return Ok(WindowFunction::Aggregate { function: AggregateFunction::CountAll, input: None });
        }
        (true, Some(_)) => Expression::Constant { value: Value::Boolean(true), data_type: DataType::Boolean },
        (false, _) => lower(argument, scope)?,
    };
    let argument = match filter {
        None => argument,
        Some(filter) => only_where(lower(filter, scope)?, argument),
    };
    Ok(WindowFunction::Aggregate { function, input: Some(looked.add(argument)) })
}

fn is_null(expression: &Expression) -> bool {
    matches!(expression, Expression::Constant { value: Value::Null, .. })
}

/// A function of the rows around a row.
fn of_rows(name: &str, args: &[Expr], scope: Columns<'_>, looked: &mut Looked) -> Lowering<WindowFunction> {
    let refused = || NotNative(format!("window function {name}"));
    let args = lower_all(args, scope)?;
    let integer = |expression: &Expression, looked: &mut Looked| match expression.data_type() {
        _ if is_null(expression) => {
            Ok(looked.add(Expression::Constant { value: Value::Null, data_type: DataType::Int32 }))
        }
        DataType::Int16 | DataType::Int32 | DataType::Int64 => Ok(looked.add(expression.clone())),
        _ => Err(refused()),
    };
    Ok(match (name, &*args) {
        ("row_number", []) => WindowFunction::RowNumber,
        ("rank", []) => WindowFunction::Rank,
        ("dense_rank", []) => WindowFunction::DenseRank,
        ("percent_rank", []) => WindowFunction::PercentRank,
        ("cume_dist", []) => WindowFunction::CumeDist,
        ("ntile", [buckets]) => WindowFunction::Ntile { buckets: integer(buckets, looked)? },
        ("first_value", [value]) => WindowFunction::FirstValue { value: looked.add(value.clone()) },
        ("last_value", [value]) => WindowFunction::LastValue { value: looked.add(value.clone()) },
        ("nth_value", [value, number]) => {
            let value = looked.add(value.clone());
            WindowFunction::NthValue { value, number: integer(number, looked)? }
        }
        ("lag" | "lead", [value, rest @ ..]) => {
            let own = value.data_type();
            let value = looked.add(value.clone());
            let offset = rest.first().map(|offset| integer(offset, looked)).transpose()?;
            let default = match rest.get(1) {
                None => None,
                Some(default) if is_null(default) => None,
                Some(default) if default.data_type() == own => Some(looked.add(default.clone())),
                Some(_) => return Err(refused()),
            };
            WindowFunction::Shift { value, offset, default, ahead: name == "lead" }
        }
        _ => return Err(refused()),
    })
}
