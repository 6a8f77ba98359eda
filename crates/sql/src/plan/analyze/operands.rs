//! Operands of different types, brought together as PostgreSQL does it, before DataFusion's own coercion.
//!
//! | operands                                | PostgreSQL                 | DataFusion                     |
//! |-----------------------------------------|----------------------------|--------------------------------|
//! | floating point beside another number    | both as double precision   | as numeric of few digits, as `real` |
//! | CASE, coalesce, UNION of numbers        | the widest of integers, numeric, real, double | numeric |
//! | a text literal beside another type      | is read as that type       | compared as text               |
//! | a text, date or boolean beside a number | no such operator: 42883    | some cast                      |
//! | sums of dates, times, intervals         | see [`moments`](super::moments) | in nanoseconds            |

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType as ArrowType, IntervalUnit, TimeUnit};
use datafusion::common::{DFSchema, DataFusionError, Result, ScalarValue};
use datafusion::logical_expr::expr::{InList, InSubquery, ScalarFunction};
use datafusion::logical_expr::{Between, BinaryExpr, Case, Cast, Expr, ExprSchemable, Operator, Subquery, lit, when};
use eris_operators::ArithmeticOperator;

use super::functions::Function;
use super::moments::moment;
use super::parts::truncated;
use super::{rounding, set_operations, shifts};
use crate::arrow_view::sql_type_of_arrow;
use crate::errors::{SqlError, SqlState};
use crate::pg_format::parse_decimal;
use crate::plan::checked::{CheckedArithmetic, decimal_of_integer};

const TIMESTAMP: ArrowType = ArrowType::Timestamp(TimeUnit::Microsecond, None);

/// How wide a number's type is; a value of one can be one of every wider type.
fn width(data_type: &ArrowType) -> Option<u8> {
    Some(match data_type {
        ArrowType::Int8 | ArrowType::Int16 | ArrowType::UInt8 => 0,
        ArrowType::Int32 | ArrowType::UInt16 => 1,
        ArrowType::Int64 | ArrowType::UInt32 | ArrowType::UInt64 => 2,
        ArrowType::Decimal128(..) | ArrowType::Decimal256(..) => 3,
        ArrowType::Float32 => 4,
        ArrowType::Float64 => 5,
        _ => return None,
    })
}

/// What PostgreSQL has one set of comparison operators for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Family {
    Number,
    Text,
    Time,
    Interval,
    Boolean,
    Bytes,
}

fn family(data_type: &ArrowType) -> Option<Family> {
    Some(match data_type {
        ArrowType::Utf8 | ArrowType::LargeUtf8 | ArrowType::Utf8View => Family::Text,
        ArrowType::Date32 | ArrowType::Timestamp(..) => Family::Time,
        ArrowType::Interval(_) => Family::Interval,
        ArrowType::Boolean => Family::Boolean,
        ArrowType::Binary | ArrowType::BinaryView => Family::Bytes,
        other => {
            width(other)?;
            Family::Number
        }
    })
}

/// The text of a literal without a type.
pub(super) fn untyped(expr: &Expr) -> Option<&str> {
    match expr {
        Expr::Literal(value @ (ScalarValue::Utf8(_) | ScalarValue::Utf8View(_)), _) => value.try_as_str()?,
        _ => None,
    }
}

/// The text of a numeric or integer literal.
fn digits(expr: &Expr) -> Option<String> {
    match expr {
        Expr::Literal(ScalarValue::Decimal128(Some(value), _, scale), _) => {
            Some(format!("{value}e{}", -i16::from(*scale)))
        }
        Expr::Literal(ScalarValue::Decimal256(Some(value), _, scale), _) => {
            Some(format!("{value}e{}", -i16::from(*scale)))
        }
        Expr::Literal(ScalarValue::Int64(Some(value)), _) => Some(value.to_string()),
        Expr::Negative(inner) => Some(format!("-{}", digits(inner)?)),
        _ => None,
    }
}

/// A number as floating point; constants exactly.
pub(in crate::plan) fn as_float(expr: &Expr, to: &ArrowType) -> Expr {
    if let Some(digits) = digits(expr) {
        let value = match to {
            ArrowType::Float32 => digits.parse().ok().map(|value| ScalarValue::Float32(Some(value))),
            _ => digits.parse().ok().map(|value| ScalarValue::Float64(Some(value))),
        };
        if let Some(value) = value {
            return Expr::Literal(value, None);
        }
    }
    Expr::Cast(Cast::new(Box::new(expr.clone()), to.clone()))
}

/// A text literal as a value of the type beside it.
fn read_as(expr: &Expr, other: &ArrowType) -> Option<Expr> {
    let text = untyped(expr)?;
    match family(other)? {
        Family::Text => None,
        // With the digits that it has: as a value of the column's type it would be rounded.
        Family::Number if width(other) == Some(3) => match parse_decimal(text) {
            Some(decimal) => {
                let precision = decimal.unscaled.unsigned_abs().to_string().len().max(usize::from(decimal.scale));
                let value =
                    ScalarValue::Decimal128(Some(decimal.unscaled), precision.max(1) as u8, decimal.scale as i8);
                (precision <= 38).then_some(Expr::Literal(value, None))
            }
            None => Some(Expr::Cast(Cast::new(Box::new(expr.clone()), other.clone()))),
        },
        _ => Some(Expr::Cast(Cast::new(Box::new(expr.clone()), other.clone()))),
    }
}

fn compares(op: Operator) -> bool {
    use Operator::{Eq, Gt, GtEq, IsDistinctFrom, IsNotDistinctFrom, Lt, LtEq, NotEq};
    matches!(op, Eq | NotEq | Lt | LtEq | Gt | GtEq | IsDistinctFrom | IsNotDistinctFrom)
}

/// Two operands of a comparison or of `+ - *`; `None`: they may stay.
fn pair(left: &Expr, op: Operator, right: &Expr, columns: &DFSchema) -> Result<Option<(Expr, Expr)>> {
    let (Ok(left_type), Ok(right_type)) = (left.get_type(columns), right.get_type(columns)) else { return Ok(None) };
    if compares(op) {
        match (untyped(left).is_some(), untyped(right).is_some()) {
            (true, false) => return Ok(read_as(left, &right_type).map(|left| (left, right.clone()))),
            (false, true) => return Ok(read_as(right, &left_type).map(|right| (left.clone(), right))),
            _ => {}
        }
        if let (Some(left), Some(right)) = (family(&left_type), family(&right_type))
            && left != right
        {
            return Err(no_operator(&left_type, op, &right_type));
        }
    }
    let cast = |expr: &Expr, to: &ArrowType| Expr::Cast(Cast::new(Box::new(expr.clone()), to.clone()));
    match (&left_type, &right_type) {
        (ArrowType::Date32, time) if is_timestamp(time) => return Ok(Some((cast(left, &TIMESTAMP), right.clone()))),
        (time, ArrowType::Date32) if is_timestamp(time) => return Ok(Some((left.clone(), cast(right, &TIMESTAMP)))),
        (ArrowType::Interval(_), ArrowType::Interval(_)) if compares(op) => {
            return Ok(Some((Function::Span.call(left.clone()), Function::Span.call(right.clone()))));
        }
        _ => {}
    }
    let is_float = |width: u8| width >= 4;
    let (Some(left_width), Some(right_width)) = (width(&left_type), width(&right_type)) else { return Ok(None) };
    if is_float(left_width) == is_float(right_width) {
        return Ok(None);
    }
    Ok(Some((as_float(left, &ArrowType::Float64), as_float(right, &ArrowType::Float64))))
}

fn type_name(arrow: &ArrowType) -> String {
    sql_type_of_arrow(arrow).map_or_else(|_| arrow.to_string(), |known| known.base_name().to_string())
}

fn no_operator(left: &ArrowType, op: Operator, right: &ArrowType) -> DataFusionError {
    let message = format!("operator does not exist: {} {op} {}", type_name(left), type_name(right));
    let hint = "No operator matches the given argument types. You might need to add explicit type casts.";
    DataFusionError::External(Box::new(SqlError::new(SqlState::NO_SUCH_FUNCTION, message).hint(hint)))
}

/// The type that several values have in common, if DataFusion would choose another one: numbers of which one is
/// floating point and one is not of that type, dates and timestamps.
fn common_type(types: &[ArrowType]) -> Option<ArrowType> {
    let known = || types.iter().filter(|known| **known != ArrowType::Null);
    if known().all(|known| family(known) == Some(Family::Time)) {
        return known()
            .any(|known| *known == ArrowType::Date32)
            .then(|| known().find(|known| is_timestamp(known)))?
            .cloned();
    }
    let widths: Vec<u8> = known().map(width).collect::<Option<Vec<_>>>()?;
    let widest = *widths.iter().max()?;
    let common = if widest == 5 { ArrowType::Float64 } else { ArrowType::Float32 };
    (widest >= 4 && widths.iter().any(|known| *known != widest)).then_some(common)
}

/// The numeric that different numerics, or integers and numerics, have in common.
fn common_numeric(types: &[ArrowType]) -> Option<ArrowType> {
    let known: Vec<&ArrowType> = types.iter().filter(|known| **known != ArrowType::Null).collect();
    let is_numeric = |known: &&ArrowType| matches!(known, ArrowType::Decimal128(..));
    if !differ(&known) || !known.iter().any(is_numeric) {
        return None;
    }
    let digits = known.iter().map(|known| decimal_of_integer(known)).collect::<Option<Vec<_>>>()?;
    let scale = digits.iter().map(|(_, scale)| *scale).max()?;
    let whole = digits.iter().map(|(precision, scale)| *precision as i8 - scale).max()?;
    Some(ArrowType::Decimal128(((whole + scale) as u8).min(38), scale))
}

fn differ(types: &[&ArrowType]) -> bool {
    types.windows(2).any(|pair| pair[0] != pair[1])
}

/// The integer that different integers have in common.
fn common_integer(types: &[ArrowType]) -> Option<ArrowType> {
    let known: Vec<&ArrowType> = types.iter().filter(|known| **known != ArrowType::Null).collect();
    let integers = known.iter().all(|known| known.is_signed_integer());
    if integers && differ(&known) { widest(types) } else { None }
}

/// The type that several values have in common, beside literals without one or not. `None`: they may stay as they are.
///
/// DataFusion would find one where this does, but later: what stands around the values, or refers to them from a
/// subquery, has been looked at by then.
pub(super) fn common(types: &[ArrowType], literals: bool) -> Option<ArrowType> {
    let found = common_type(types).or_else(|| common_numeric(types)).or_else(|| common_integer(types));
    found.or_else(|| if literals { widest(types) } else { None })
}

fn is_timestamp(data_type: &ArrowType) -> bool {
    matches!(data_type, ArrowType::Timestamp(_, None))
}

/// The widest of several types of one family but text.
fn widest(types: &[ArrowType]) -> Option<ArrowType> {
    let known = types.iter().filter(|known| !matches!(family(known), None | Some(Family::Text)));
    known.max_by_key(|known| width(known)).cloned()
}

/// Refuses values that have no type in common.
pub(super) fn same_family(what: &str, types: &[ArrowType]) -> Result<()> {
    let mut known = types.iter().filter_map(|known| Some((family(known)?, known)));
    let Some((first, first_type)) = known.next() else { return Ok(()) };
    match known.find(|(other, _)| *other != first) {
        None => Ok(()),
        Some((_, other)) => {
            let message = format!("{what} types {} and {} cannot be matched", type_name(first_type), type_name(other));
            Err(DataFusionError::External(Box::new(SqlError::new(SqlState::TYPE_MISMATCH, message))))
        }
    }
}

/// What several expressions have in common: the type that they are brought to. `None`: they may stay.
pub(super) fn together<'e>(
    what: &str,
    exprs: impl Iterator<Item = &'e Expr> + Clone,
    columns: &DFSchema,
) -> Result<Option<ArrowType>> {
    // A literal without a type has no part in finding it.
    let literals = exprs.clone().any(|expr| untyped(expr).is_some());
    let types = exprs.filter(|expr| untyped(expr).is_none()).map(|expr| expr.get_type(columns));
    let Ok(types) = types.collect::<Result<Vec<_>>>() else { return Ok(None) };
    same_family(what, &types)?;
    Ok(common(&types, literals))
}

/// An expression as a value of a wider type.
pub(super) fn widened(expr: &Expr, to: &ArrowType, columns: &DFSchema) -> Expr {
    match expr.get_type(columns) {
        Ok(ArrowType::Null) | Err(_) => expr.clone(),
        Ok(own) if own == *to => expr.clone(),
        Ok(_) => match read_as(expr, to) {
            Some(read) => read,
            None if to.is_floating() => as_float(expr, to),
            None => Expr::Cast(Cast::new(Box::new(expr.clone()), to.clone())),
        },
    }
}

/// An expression whose operands are brought together; `None`: it stays.
pub(super) fn bring_together(expr: &Expr, columns: &DFSchema) -> Result<Option<Expr>> {
    match expr {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) => binary(left, *op, right, columns),
        Expr::Between(between) => self::between(between, columns),
        Expr::InList(list) => in_list(list, columns),
        Expr::Case(case) => self::case(case, columns),
        Expr::InSubquery(predicate) => in_subquery(predicate, columns),
        Expr::ScalarFunction(function) => self::function(function, columns),
        Expr::WindowFunction(function) => shifts::bring_together(function, columns),
        _ => Ok(None),
    }
}

/// A sum, difference or comparison whose operands are brought together; `None`: it stays.
pub(in crate::plan) fn binary(left: &Expr, op: Operator, right: &Expr, columns: &DFSchema) -> Result<Option<Expr>> {
    let arithmetic = matches!(op, Operator::Plus | Operator::Minus | Operator::Multiply);
    if !arithmetic && !compares(op) {
        return Ok(None);
    }
    if arithmetic && let Some(moment) = sum_of_times(left, op, right, columns) {
        return Ok(Some(moment));
    }
    Ok(pair(left, op, right, columns)?
        .map(|(left, right)| Expr::BinaryExpr(BinaryExpr::new(Box::new(left), op, Box::new(right)))))
}

/// A sum or difference of dates, timestamps and intervals.
pub(in crate::plan) fn sum_of_times(left: &Expr, op: Operator, right: &Expr, columns: &DFSchema) -> Option<Expr> {
    let (left_type, right_type) = (left.get_type(columns).ok()?, right.get_type(columns).ok()?);
    // A text beside a timestamp is one in a difference, and an interval in a sum; beside a date it is a date.
    let beside = |expr: &Expr, own: ArrowType, other: &ArrowType| {
        let read = match (untyped(expr), op) {
            (Some(_), Operator::Minus) if family(other) == Some(Family::Time) => other.clone(),
            (Some(_), Operator::Plus) if is_timestamp(other) => ArrowType::Interval(IntervalUnit::MonthDayNano),
            _ => return (expr.clone(), own),
        };
        (Expr::Cast(Cast::new(Box::new(expr.clone()), read.clone())), read)
    };
    let (left, left_type) = beside(left, left_type, &right_type);
    let (right, right_type) = beside(right, right_type, &left_type);
    moment(&left, op, &right, (&left_type, &right_type))
}

fn between(between: &Between, columns: &DFSchema) -> Result<Option<Expr>> {
    let Between { expr, negated, low, high } = between;
    let above = pair(expr, Operator::GtEq, low, columns)?;
    let below = pair(expr, Operator::LtEq, high, columns)?;
    if above.is_none() && below.is_none() {
        return Ok(None);
    }
    let (above, low) = above.unwrap_or_else(|| (expr.as_ref().clone(), low.as_ref().clone()));
    let (below, high) = below.unwrap_or_else(|| (expr.as_ref().clone(), high.as_ref().clone()));
    if above == below {
        let (expr, low, high) = (Box::new(above), Box::new(low), Box::new(high));
        return Ok(Some(Expr::Between(Between { expr, negated: *negated, low, high })));
    }
    let both = above.gt_eq(low).and(below.lt_eq(high));
    Ok(Some(if *negated { Expr::Not(Box::new(both)) } else { both }))
}

fn in_list(list: &InList, columns: &DFSchema) -> Result<Option<Expr>> {
    let InList { expr, list: items, negated } = list;
    let Ok(own) = expr.get_type(columns) else { return Ok(None) };
    let mut changed = false;
    let mut read = Vec::with_capacity(items.len());
    for item in items {
        let typed = read_as(item, &own);
        changed |= typed.is_some();
        read.push(typed.unwrap_or_else(|| item.clone()));
    }
    let types = read.iter().map(|item| item.get_type(columns)).collect::<Result<Vec<_>>>();
    let Ok(types) = types else { return Ok(None) };
    for other in &types {
        if let (Some(one), Some(two)) = (family(&own), family(other))
            && one != two
            && untyped(expr).is_none()
        {
            return Err(no_operator(&own, Operator::Eq, other));
        }
    }
    // Several items become one array, whose type is the one that all of them and the operand have in common; one item
    // is an equality.
    let all: Vec<ArrowType> = std::iter::once(own.clone()).chain(types.iter().cloned()).collect();
    let common = if items.len() > 1 { common_type(&all) } else { None };
    let compared = match common_type(&all) {
        Some(time) if is_timestamp(&time) => Some(time),
        Some(_) if common.is_none() || own == ArrowType::Float64 => Some(ArrowType::Float64),
        _ => common,
    };
    let Some(compared) = compared else {
        let list = InList { expr: expr.clone(), list: read, negated: *negated };
        return Ok(changed.then_some(Expr::InList(list)));
    };
    let expr = Box::new(widened(expr, &compared, columns));
    let list = read.iter().map(|item| widened(item, &compared, columns)).collect();
    Ok(Some(Expr::InList(InList { expr, list, negated: *negated })))
}

fn case(case: &Case, columns: &DFSchema) -> Result<Option<Expr>> {
    let mut new = case.clone();
    let mut changed = false;
    if let Some(operand) = &mut new.expr {
        let whens = case.when_then_expr.iter().map(|(when, _)| when).chain(&case.expr).map(AsRef::as_ref);
        if let Some(common) = together("CASE", whens, columns)? {
            changed = true;
            let common = if common.is_floating() { ArrowType::Float64 } else { common };
            **operand = widened(operand, &common, columns);
            for (when, _) in &mut new.when_then_expr {
                **when = widened(when, &common, columns);
            }
        }
    }
    let results = case.when_then_expr.iter().map(|(_, then)| then).chain(&case.else_expr).map(AsRef::as_ref);
    if let Some(common) = together("CASE", results, columns)? {
        changed = true;
        for result in new.when_then_expr.iter_mut().map(|(_, then)| then).chain(&mut new.else_expr) {
            **result = widened(result, &common, columns);
        }
    }
    Ok(changed.then_some(Expr::Case(new)))
}

fn function(function: &ScalarFunction, columns: &DFSchema) -> Result<Option<Expr>> {
    let name = function.name();
    let call = |args| Some(Expr::ScalarFunction(ScalarFunction::new_udf(Arc::clone(&function.func), args)));
    match name {
        "coalesce" | "greatest" | "least" => {
            let to = together(&name.to_uppercase(), function.args.iter(), columns)?;
            Ok(to.and_then(|to| call(function.args.iter().map(|arg| widened(arg, &to, columns)).collect())))
        }
        "date_trunc" => Ok(truncated(function, columns)),
        // Its type is another one than DataFusion's, so what stands beside it must know it.
        "ceil" | "floor" | "round" | "trunc" => Ok(rounding::rewrite(function, columns)),
        "checked_add" | "checked_subtract" | "checked_multiply" => Ok(of_numerics(function, columns)),
        // As the comparison that it is.
        "nullif" => match function.args.as_slice() {
            [value, other] if !value.is_volatile() => {
                let Some((left, right)) = pair(value, Operator::Eq, other, columns)? else { return Ok(None) };
                Ok(Some(when(left.eq(right), Expr::Literal(ScalarValue::Null, None)).otherwise(value.clone())?))
            }
            _ => Ok(None),
        },
        "concat" | "concat_ws" => {
            let is_boolean = |arg: &Expr| matches!(arg.get_type(columns), Ok(ArrowType::Boolean));
            if !function.args.iter().any(is_boolean) {
                return Ok(None);
            }
            let letter = |arg: &Expr| when(arg.clone(), lit("t")).when(!arg.clone(), lit("f")).end();
            let args = function.args.iter().map(|arg| if is_boolean(arg) { letter(arg) } else { Ok(arg.clone()) });
            Ok(call(args.collect::<Result<Vec<_>>>()?))
        }
        _ => Ok(None),
    }
}

/// Arithmetic that was planned for integers, if an operand is a numeric by now: numerics have operators of their own.
fn of_numerics(function: &ScalarFunction, columns: &DFSchema) -> Option<Expr> {
    let [left, right] = function.args.as_slice() else { return None };
    let types = [left.get_type(columns).ok()?, right.get_type(columns).ok()?];
    if types.iter().any(ArrowType::is_floating) || !types.iter().any(|own| matches!(own, ArrowType::Decimal128(..))) {
        return None;
    }
    let op = match CheckedArithmetic::operator_of(function.name())? {
        ArithmeticOperator::Add => Operator::Plus,
        ArithmeticOperator::Subtract => Operator::Minus,
        ArithmeticOperator::Multiply => Operator::Multiply,
        ArithmeticOperator::Divide | ArithmeticOperator::Modulo => return None,
    };
    Some(Expr::BinaryExpr(BinaryExpr::new(Box::new(left.clone()), op, Box::new(right.clone()))))
}

fn in_subquery(predicate: &InSubquery, columns: &DFSchema) -> Result<Option<Expr>> {
    let InSubquery { expr, subquery, negated } = predicate;
    let Ok(own) = expr.get_type(columns) else { return Ok(None) };
    let [field] = subquery.subquery.schema().fields().as_ref() else { return Ok(None) };
    if let (Some(one), Some(two)) = (family(&own), family(field.data_type()))
        && one != two
        && untyped(expr).is_none()
    {
        return Err(no_operator(&own, Operator::Eq, field.data_type()));
    }
    let (Some(own_width), Some(other_width)) = (width(&own), width(field.data_type())) else { return Ok(None) };
    if (own_width >= 4) == (other_width >= 4) {
        return Ok(None);
    }
    let expr = Box::new(widened(expr, &ArrowType::Float64, columns));
    let subquery = Subquery {
        subquery: Arc::new(set_operations::projected(&subquery.subquery, &[Some(ArrowType::Float64)])?),
        outer_ref_columns: subquery.outer_ref_columns.clone(),
        spans: subquery.spans.clone(),
    };
    Ok(Some(Expr::InSubquery(InSubquery::new(expr, subquery, *negated))))
}
