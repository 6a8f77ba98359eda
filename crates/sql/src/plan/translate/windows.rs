//! Window functions and their frames.
//!
//! A RANGE with an offset compares keys with a value: that of the current row, and the offset on top or less. Both
//! are computed, as a type in which no sum leaves its range:
//!
//! | key                 | compared as   |
//! |---------------------|---------------|
//! | smallint, integer   | bigint        |
//! | bigint              | numeric(20)   |
//! | numeric(p, s)       | numeric(38, s) |
//! | double precision    | the same      |
//! | date, timestamp     | timestamp     |

use datafusion::arrow::datatypes::{DataType as ArrowType, IntervalUnit, TimeUnit};
use datafusion::common::ScalarValue;
use datafusion::logical_expr::expr::{NullTreatment, WindowFunction as WindowExpr};
use datafusion::logical_expr::{
    BinaryExpr, Cast, Expr, Operator, SortExpr, Window as WindowNode, WindowFrame, WindowFrameBound, WindowFrameUnits,
    WindowFunctionDefinition,
};
use eris_operators::{
    AggregateFunction, ArithmeticOperator, Expression, Frame, FrameBound, FrameUnit, SortKey, WindowCall,
    WindowFunction,
};
use eris_query::{Relation, Scalar, ScalarKind, Unplanned, Window, WindowItem};
use eris_storage::{DataType, Value};

use super::aggregates::function_named;
use super::expressions::{Columns, lower, lower_all};
use super::scalars::unaliased;
use super::{Node, Scope, Translator};
use crate::arrow_view::sql_type_of_arrow;
use crate::native::scalar_value;
use crate::plan::Lowering;
use crate::types::SqlType;

/// A window function of a node.
struct Call {
    function: WindowExpr,
    item: eris_query::ColumnId,
    result: SqlType,
}

impl Call {
    /// Whether two see the same partitions in the same order.
    fn is_beside(&self, other: &Self) -> bool {
        let (own, others) = (&self.function.params, &other.function.params);
        own.partition_by == others.partition_by && own.order_by == others.order_by
    }
}

/// What a window looks at.
#[derive(Default)]
struct Looked(Vec<Expression>);

impl Looked {
    fn add(&mut self, expression: Expression) -> usize {
        self.0.push(expression);
        self.0.len() - 1
    }
}

/// The order within partitions.
struct Order<'p> {
    /// Its keys.
    by: &'p [&'p SortExpr],
    /// The keys of the partition, then those of the order.
    keys: &'p [SortKey],
}

fn is_constant(expr: &Expr) -> bool {
    matches!(unaliased(expr), Expr::Literal(..))
}

impl Translator {
    pub(super) fn window(&mut self, window: &WindowNode) -> Lowering<Node> {
        let Node { relation, mut columns } = self.node(&window.input)?;
        let schema = window.input.schema();
        let scope = Scope::of(schema, &columns);
        let mut left = Vec::with_capacity(window.window_expr.len());
        for (at, expr) in window.window_expr.iter().enumerate() {
            let expr = self.without_subqueries(unaliased(expr))?;
            let Expr::WindowFunction(function) = expr else { return Err(Unplanned(format!("window {expr}"))) };
            let result = sql_type_of_arrow(window.schema.field(columns.len() + at).data_type())?;
            left.push(Call { function: *function, item: self.new_column(), result });
        }
        let items: Vec<_> = left.iter().map(|call| call.item).collect();
        let mut windows = Vec::new();
        while let Some(first) = left.first() {
            let mut beside: Vec<bool> = left.iter().map(|call| call.is_beside(first)).rev().collect();
            let (calls, others): (Vec<Call>, Vec<Call>) = left.drain(..).partition(|_| beside.pop() == Some(true));
            windows.push(window_of(&calls, scope.columns())?);
            left = others;
        }
        columns.extend(items);
        Ok(Node { relation: Relation::Window { input: Box::new(relation), windows }, columns })
    }
}

/// Functions that see the same partitions in the same order.
fn window_of(calls: &[Call], scope: Columns<'_>) -> Lowering<Window> {
    let mut looked = Looked::default();
    let params = calls.first().map(|call| &call.function.params);
    let partition = params.into_iter().flat_map(|params| &params.partition_by).filter(|key| !is_constant(key));
    let order = params.into_iter().flat_map(|params| &params.order_by).filter(|key| !is_constant(&key.expr));
    let order: Vec<&SortExpr> = order.collect();
    let mut keys = Vec::new();
    for key in partition {
        keys.push(SortKey { column: looked.add(lower(key, scope)?), descending: false, nulls_first: false });
    }
    let partition_keys = keys.len();
    for key in &order {
        let column = looked.add(lower(&key.expr, scope)?);
        keys.push(SortKey { column, descending: !key.asc, nulls_first: key.nulls_first });
    }
    let order = Order { by: &order, keys: &keys };
    let mut items = Vec::with_capacity(calls.len());
    for call in calls {
        items.push(WindowItem { column: call.item, call: window_call(call, &order, scope, &mut looked)? });
    }
    let scalar = |expression: Expression| {
        let sql_type = SqlType::of(expression.data_type());
        let kind = match expression {
            Expression::Column { index, .. } => ScalarKind::Column(eris_query::ColumnId(index as u32)),
            expression => ScalarKind::Lowered(expression),
        };
        Scalar { kind, sql_type }
    };
    Ok(Window { inputs: looked.0.into_iter().map(scalar).collect(), keys, partition_keys, items })
}

fn window_call(call: &Call, order: &Order<'_>, scope: Columns<'_>, looked: &mut Looked) -> Lowering<WindowCall> {
    let params = &call.function.params;
    if params.distinct || params.null_treatment == Some(NullTreatment::IgnoreNulls) {
        return Err(Unplanned(format!("window {}", call.function.fun.name())));
    }
    let function = match &call.function.fun {
        WindowFunctionDefinition::AggregateUDF(aggregate) => {
            let Some(function) = function_named(aggregate.name()) else {
                return Err(Unplanned(format!("window aggregate {}", aggregate.name())));
            };
            folded(function, &params.args, params.filter.as_deref(), scope, looked)?
        }
        WindowFunctionDefinition::WindowUDF(function) => of_rows(function.name(), &params.args, scope, looked)?,
    };
    let frame =
        if function.has_frame() { frame(&params.window_frame, order, scope, looked)? } else { Frame::PARTITION };
    Ok(WindowCall { function, frame, result: call.result.data_type() })
}

/// An aggregate; what a filter takes away is NULL to it.
fn folded(
    function: AggregateFunction,
    args: &[Expr],
    filter: Option<&Expr>,
    scope: Columns<'_>,
    looked: &mut Looked,
) -> Lowering<WindowFunction> {
    let [argument] = args else { return Err(Unplanned::because("a window aggregate of several arguments")) };
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
        Some(filter) => Expression::only_where(lower(filter, scope)?, argument),
    };
    Ok(WindowFunction::Aggregate { function, input: Some(looked.add(argument)) })
}

fn is_null(expression: &Expression) -> bool {
    matches!(expression, Expression::Constant { value: Value::Null, .. })
}

/// A function of the rows around a row.
fn of_rows(name: &str, args: &[Expr], scope: Columns<'_>, looked: &mut Looked) -> Lowering<WindowFunction> {
    let refused = || Unplanned(format!("window function {name}"));
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

/// A frame; columns of values are looked at, too.
fn frame(frame: &WindowFrame, order: &Order<'_>, scope: Columns<'_>, looked: &mut Looked) -> Lowering<Frame> {
    let unit = match frame.units {
        WindowFrameUnits::Rows => FrameUnit::Rows,
        // Bounds of RANGE without offsets are those of groups of peers.
        WindowFrameUnits::Range | WindowFrameUnits::Groups => FrameUnit::Groups,
    };
    let mut bound = |bound: &WindowFrameBound| {
        let (offset, before) = match bound {
            WindowFrameBound::CurrentRow => return Ok(FrameBound::Current),
            bound if bound.is_unbounded() => return Ok(FrameBound::Unbounded),
            WindowFrameBound::Preceding(offset) => (offset, true),
            WindowFrameBound::Following(offset) => (offset, false),
        };
        match (frame.units, offset) {
            (WindowFrameUnits::Rows | WindowFrameUnits::Groups, ScalarValue::UInt64(Some(count))) if before => {
                Ok(FrameBound::Preceding(*count))
            }
            (WindowFrameUnits::Rows | WindowFrameUnits::Groups, ScalarValue::UInt64(Some(count))) => {
                Ok(FrameBound::Following(*count))
            }
            (WindowFrameUnits::Range, offset) => value_bound(offset, before, order, scope, looked),
            _ => Err(Unplanned(format!("a frame's offset {offset}"))),
        }
    };
    let (start, end) = (bound(&frame.start_bound)?, bound(&frame.end_bound)?);
    Ok(Frame { unit, start, end })
}

fn value_bound(
    offset: &ScalarValue,
    before: bool,
    order: &Order<'_>,
    scope: Columns<'_>,
    looked: &mut Looked,
) -> Lowering<FrameBound> {
    let ([by], [.., key]) = (order.by, order.keys) else {
        return Err(Unplanned::because("RANGE with an offset and a constant order"));
    };
    let key = *key;
    // Before is less, unless the order descends.
    let operator = if before == key.descending { ArithmeticOperator::Add } else { ArithmeticOperator::Subtract };
    let (compared, bound) = match offset {
        ScalarValue::IntervalMonthDayNano(Some(_)) => moments(by, operator, offset, scope)?,
        _ => numbers(by, operator, offset, scope)?,
    };
    let key = SortKey { column: looked.add(compared), ..key };
    Ok(FrameBound::Value { key, bound: looked.add(bound) })
}

fn numbers(
    by: &SortExpr,
    operator: ArithmeticOperator,
    offset: &ScalarValue,
    scope: Columns<'_>,
) -> Lowering<(Expression, Expression)> {
    let refused = || Unplanned(format!("a frame's offset {offset} beside {}", by.expr));
    let key = lower(&by.expr, scope)?;
    let value = scalar_value(offset).ok_or_else(refused)?;
    let (data_type, value) = match (key.data_type(), value) {
        (DataType::Int16, Value::Int16(value)) => (DataType::Int64, Value::Int64(value.into())),
        (DataType::Int32, Value::Int32(value)) => (DataType::Int64, Value::Int64(value.into())),
        (DataType::Int64, Value::Int64(value)) => {
            (DataType::Decimal { precision: 20, scale: 0 }, Value::Decimal { unscaled: value.into(), scale: 0 })
        }
        (DataType::Decimal { scale, .. }, value @ Value::Decimal { .. }) => {
            (DataType::Decimal { precision: 38, scale }, value)
        }
        (DataType::Float64, value @ Value::Float64(_)) => (DataType::Float64, value),
        _ => return Err(refused()),
    };
    let compared = if key.data_type() == data_type { key } else { key.cast(data_type).map_err(|_| refused())? };
    let left = Box::new(compared.clone());
    let right = Box::new(Expression::Constant { value, data_type });
    Ok((compared, Expression::Arithmetic { operator, left, right, data_type }))
}

fn moments(
    by: &SortExpr,
    operator: ArithmeticOperator,
    offset: &ScalarValue,
    scope: Columns<'_>,
) -> Lowering<(Expression, Expression)> {
    const TIMESTAMP: ArrowType = ArrowType::Timestamp(TimeUnit::Microsecond, None);
    debug_assert_eq!(offset.data_type(), ArrowType::Interval(IntervalUnit::MonthDayNano));
    let moment = Expr::Cast(Cast::new(Box::new(by.expr.clone()), TIMESTAMP));
    let op = if operator == ArithmeticOperator::Add { Operator::Plus } else { Operator::Minus };
    let offset = Expr::Literal(offset.clone(), None);
    let sum = Expr::BinaryExpr(BinaryExpr::new(Box::new(moment.clone()), op, Box::new(offset)));
    Ok((lower(&moment, scope)?, lower(&sum, scope)?))
}
