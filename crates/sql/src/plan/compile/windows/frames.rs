//! The frames of windows.
//!
//! A RANGE with an offset compares keys with a value: that of the current row, and the offset on top or less. Both
//! become columns, of a type in which no sum leaves its range:
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
use datafusion::logical_expr::{
    BinaryExpr, Cast, Expr, Operator, SortExpr, WindowFrame, WindowFrameBound, WindowFrameUnits,
};
use eris_operators::{ArithmeticOperator, Expression, Frame, FrameBound, FrameUnit, SortKey};
use eris_storage::{DataType, Value};

use super::Looked;
use crate::native::scalar_value;
use crate::plan::lower::{Columns, Lowering, NotNative, lower};

/// The order within partitions.
pub(super) struct Order<'p> {
    /// Its keys.
    pub keys: &'p [&'p SortExpr],
    /// How many keys the partition has, which come before.
    pub first: usize,
}

/// A frame; columns of values are looked at, too.
pub(super) fn frame(
    frame: &WindowFrame,
    order: &Order<'_>,
    keys: &[SortKey],
    scope: Columns<'_>,
    looked: &mut Looked,
) -> Lowering<Frame> {
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
            (WindowFrameUnits::Range, offset) => value_bound(offset, before, order, keys, scope, looked),
            _ => Err(NotNative(format!("a frame's offset {offset}"))),
        }
    };
    let (start, end) = (bound(&frame.start_bound)?, bound(&frame.end_bound)?);
    Ok(Frame { unit, start, end })
}

fn value_bound(
    offset: &ScalarValue,
    before: bool,
    order: &Order<'_>,
    keys: &[SortKey],
    scope: Columns<'_>,
    looked: &mut Looked,
) -> Lowering<FrameBound> {
    let [by] = order.keys else { return Err(NotNative("RANGE with an offset and a constant order".to_string())) };
    let key = keys[order.first];
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
    let refused = || NotNative(format!("a frame's offset {offset} beside {}", by.expr));
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
