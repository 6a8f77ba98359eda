//! Expressions: natively where there is a kernel, otherwise as a foreign expression over the columns it needs.
//!
//! A kernel is only taken if it means what the expression means to DataFusion after its rules and ours (see
//! [`analyze`](crate::plan)) have run: types are those that coercion has brought about, and casts that lose values have
//! been marked.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType as ArrowType, Field, Schema as ArrowSchema, TimeUnit};
use datafusion::common::tree_node::Transformed;
use datafusion::common::{Column, DFSchema, DataFusionError, ExprSchema, ScalarValue};
use datafusion::execution::context::ExecutionProps;
use datafusion::logical_expr::expr::{InList, Like, Placeholder, ScalarFunction};
use datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion::logical_expr::{Between, BinaryExpr, Case, Cast, Expr, ExprSchemable, Operator};
use datafusion::physical_expr::create_physical_expr;
use eris_operators::{ArithmeticOperator, DatePart, Expression, LikePattern, Span, ValueSet};
use eris_query::Unplanned;
use eris_storage::{Comparison, DataType, Value};

use crate::arrow_view::sql_type_of_arrow;
use crate::native::{Converted, PhysicalForeign, comparable, scalar_value};
use crate::plan::Lowering;
use crate::plan::checked::CheckedArithmetic;
use crate::plan::parameters::index_of;
use crate::plan::text_growth::{memory_of, shown};

/// Lists longer than this in which there are columns are left to DataFusion.
const IN_LIST_MAX: usize = 8;

/// The columns that expressions refer to.
#[derive(Clone, Copy)]
pub(super) struct Columns<'a> {
    pub schema: &'a DFSchema,
    /// By position in the schema the column's number, if it is there.
    pub map: &'a [Option<usize>],
}

impl Columns<'_> {
    fn position(&self, column: &Column) -> Lowering<usize> {
        let index = self.schema.maybe_index_of_column(column);
        index
            .and_then(|index| self.map[index])
            .ok_or_else(|| Unplanned::because(format!("column {column} is elsewhere")))
    }

    fn arrow_type(&self, expr: &Expr) -> Lowering<ArrowType> {
        expr.get_type(self.schema).map_err(Unplanned::because)
    }

    fn data_type(&self, expr: &Expr) -> Lowering<DataType> {
        Ok(sql_type_of_arrow(&self.arrow_type(expr)?)?.data_type())
    }

    /// The type of an expression whose values are those of one of our types, no fewer and no others.
    fn plain_type(&self, expr: &Expr) -> Lowering<Option<DataType>> {
        let arrow = self.arrow_type(expr)?;
        Ok(if is_plain(&arrow) { Some(sql_type_of_arrow(&arrow)?.data_type()) } else { None })
    }
}

/// Whether values of an Arrow type are those of one of our types; others are only held as one.
fn is_plain(arrow: &ArrowType) -> bool {
    match arrow {
        ArrowType::Boolean
        | ArrowType::Int16
        | ArrowType::Int32
        | ArrowType::Int64
        | ArrowType::Float32
        | ArrowType::Float64
        | ArrowType::Date32
        | ArrowType::Timestamp(TimeUnit::Microsecond, None)
        | ArrowType::Utf8
        | ArrowType::LargeUtf8
        | ArrowType::Utf8View
        | ArrowType::Binary
        | ArrowType::LargeBinary
        | ArrowType::BinaryView => true,
        ArrowType::Decimal128(_, scale) => *scale >= 0,
        _ => false,
    }
}

/// Lowers an expression.
pub(super) fn lower(expr: &Expr, columns: Columns<'_>) -> Lowering<Expression> {
    match native(expr, columns)? {
        Some(expression) => Ok(expression),
        None => foreign(expr, columns),
    }
}

/// Lowers several.
pub(super) fn lower_all<'e>(
    exprs: impl IntoIterator<Item = &'e Expr>,
    columns: Columns<'_>,
) -> Lowering<Arc<[Expression]>> {
    exprs.into_iter().map(|expr| lower(expr, columns)).collect()
}

/// `None`: there is no native kernel for the expression itself.
fn native(expr: &Expr, columns: Columns<'_>) -> Lowering<Option<Expression>> {
    let boxed = |expr: &Expr| Ok::<_, Unplanned>(Box::new(lower(expr, columns)?));
    Ok(Some(match expr {
        Expr::Alias(alias) => return native_or_foreign(&alias.expr, columns),
        Expr::Column(column) => {
            Expression::Column { index: columns.position(column)?, data_type: columns.data_type(expr)? }
        }
        Expr::Literal(scalar, _) => match scalar_value(scalar) {
            Some(value) => Expression::Constant { value, data_type: columns.data_type(expr)? },
            None => return Ok(None),
        },
        Expr::Placeholder(Placeholder { id, .. }) => {
            let index = index_of(id).ok_or_else(|| Unplanned::because(format!("parameter {id}")))?;
            Expression::Parameter { index, data_type: columns.data_type(expr)? }
        }
        Expr::Not(inner) => Expression::Not(boxed(inner)?),
        Expr::IsNull(inner) => Expression::IsNull { input: boxed(inner)?, negated: false },
        Expr::IsNotNull(inner) => Expression::IsNull { input: boxed(inner)?, negated: true },
        Expr::IsTrue(inner) => return is_truth(inner, Some(true), false, columns),
        Expr::IsNotTrue(inner) => return is_truth(inner, Some(true), true, columns),
        Expr::IsFalse(inner) => return is_truth(inner, Some(false), false, columns),
        Expr::IsNotFalse(inner) => return is_truth(inner, Some(false), true, columns),
        Expr::IsUnknown(inner) => return is_truth(inner, None, false, columns),
        Expr::IsNotUnknown(inner) => return is_truth(inner, None, true, columns),
        Expr::BinaryExpr(BinaryExpr { op: op @ (Operator::And | Operator::Or), .. }) => {
            let mut parts = Vec::new();
            flatten(expr, *op, &mut parts);
            let parts = parts.into_iter().map(|part| lower(part, columns)).collect::<Lowering<Vec<_>>>()?;
            if *op == Operator::And { Expression::and(parts) } else { Expression::or(parts) }
        }
        Expr::BinaryExpr(BinaryExpr { left, op, right }) => {
            if let Some(comparison) = comparison_of(*op) {
                return compare(comparison, left, right, columns);
            }
            let same = match op {
                Operator::IsDistinctFrom => false,
                Operator::IsNotDistinctFrom => true,
                _ => return decimal_arithmetic(expr, left, *op, right, columns),
            };
            let Some((left, right)) = comparable_operands(left, right, columns)? else { return Ok(None) };
            Expression::Distinct { left, right, same }
        }
        Expr::Negative(inner) => match columns.plain_type(inner)? {
            // No numeric is without its negative, so this cannot fail.
            Some(data_type @ DataType::Decimal { scale, .. }) => {
                let zero = Expression::Constant { value: Value::Decimal { unscaled: 0, scale }, data_type };
                let (operator, left, right) = (ArithmeticOperator::Subtract, Box::new(zero), boxed(inner)?);
                Expression::Arithmetic { operator, left, right, data_type }
            }
            _ => return Ok(None),
        },
        Expr::Between(Between { expr, negated, low, high }) => {
            let (Some(above), Some(below)) = (
                compare(Comparison::GreaterOrEqual, expr, low, columns)?,
                compare(Comparison::LessOrEqual, expr, high, columns)?,
            ) else {
                return Ok(None);
            };
            let both = Expression::and([above, below]);
            if *negated { Expression::Not(Box::new(both)) } else { both }
        }
        Expr::InList(list) => return in_list(list, columns),
        Expr::Like(like) => return self::like(like, columns),
        Expr::Case(case) => return self::case(expr, case, columns),
        Expr::ScalarFunction(function) => return self::function(expr, function, columns),
        Expr::Cast(Cast { expr: inner, .. }) => {
            let (from, to) = (columns.data_type(inner)?, columns.data_type(expr)?);
            if from == to {
                // Between Arrow's three kinds of strings: one kind here.
                return native_or_foreign(inner, columns);
            }
            if let Expr::Literal(scalar, _) = inner.as_ref()
                && let Some(Converted::Exact(value)) = scalar_value(scalar).and_then(|value| comparable(&value, to))
            {
                return Ok(Some(Expression::Constant { value, data_type: to }));
            }
            if columns.plain_type(inner)?.is_none() || columns.plain_type(expr)?.is_none() {
                return Ok(None);
            }
            return Ok(lower(inner, columns)?.cast(to).ok());
        }
        _ => return Ok(None),
    }))
}

fn native_or_foreign(expr: &Expr, columns: Columns<'_>) -> Lowering<Option<Expression>> {
    lower(expr, columns).map(Some)
}

fn flatten<'e>(expr: &'e Expr, op: Operator, parts: &mut Vec<&'e Expr>) {
    // Chains lean to the left; the right sides are short.
    let mut rights = Vec::new();
    let mut expr = expr;
    while let Expr::BinaryExpr(BinaryExpr { left, op: own, right }) = expr {
        if *own != op {
            break;
        }
        rights.push(right.as_ref());
        expr = left;
    }
    parts.push(expr);
    parts.extend(rights.into_iter().rev());
}

/// A comparison operator.
fn comparison_of(op: Operator) -> Option<Comparison> {
    Some(match op {
        Operator::Eq => Comparison::Equal,
        Operator::NotEq => Comparison::NotEqual,
        Operator::Lt => Comparison::Less,
        Operator::LtEq => Comparison::LessOrEqual,
        Operator::Gt => Comparison::Greater,
        Operator::GtEq => Comparison::GreaterOrEqual,
        _ => return None,
    })
}

/// Two operands that kernels compare: of one type, or both decimals.
fn comparable_operands(
    left: &Expr,
    right: &Expr,
    columns: Columns<'_>,
) -> Lowering<Option<(Box<Expression>, Box<Expression>)>> {
    let (left_type, right_type) = (columns.data_type(left)?, columns.data_type(right)?);
    let decimals = matches!((left_type, right_type), (DataType::Decimal { .. }, DataType::Decimal { .. }));
    if left_type != right_type && !decimals {
        return Ok(None);
    }
    Ok(Some((Box::new(lower(left, columns)?), Box::new(lower(right, columns)?))))
}

fn compare(comparison: Comparison, left: &Expr, right: &Expr, columns: Columns<'_>) -> Lowering<Option<Expression>> {
    let operands = comparable_operands(left, right, columns)?;
    Ok(operands.map(|(left, right)| Expression::Compare { comparison, left, right }))
}

/// `IS [NOT] TRUE`, `FALSE` or (`None`) `UNKNOWN`.
fn is_truth(input: &Expr, truth: Option<bool>, negated: bool, columns: Columns<'_>) -> Lowering<Option<Expression>> {
    if columns.arrow_type(input)? != ArrowType::Boolean {
        return Ok(None);
    }
    let input = Box::new(lower(input, columns)?);
    Ok(Some(match truth {
        Some(truth) => Expression::IsTruth { input, truth, negated },
        None => Expression::IsNull { input, negated },
    }))
}

/// Constants are looked up; a short list of anything else is compared with one after the other.
fn in_list(list: &InList, columns: Columns<'_>) -> Lowering<Option<Expression>> {
    let InList { expr, list, negated } = list;
    if let Some(data_type) = columns.plain_type(expr)? {
        let constants = list.iter().map(|item| match lower(item, columns)? {
            Expression::Constant { value, .. } => Ok::<_, Unplanned>(Some(value)),
            _ => Ok(None),
        });
        if let Some(values) = constants.collect::<Lowering<Option<Vec<Value>>>>()?
            && let Some(set) = ValueSet::new(data_type, &values)
        {
            let input = Box::new(lower(expr, columns)?);
            return Ok(Some(Expression::InList { input, set: Arc::new(set), negated: *negated }));
        }
    }
    if list.len() > IN_LIST_MAX && list.iter().any(Expr::any_column_refs) {
        return Ok(None);
    }
    let mut parts = Vec::with_capacity(list.len());
    for item in list {
        match compare(Comparison::Equal, expr, item, columns)? {
            Some(part) => parts.push(part),
            None => return Ok(None),
        }
    }
    let any = Expression::or(parts);
    Ok(Some(if *negated { Expression::Not(Box::new(any)) } else { any }))
}

/// LIKE with a constant pattern and the escape that DataFusion knows.
fn like(like: &Like, columns: Columns<'_>) -> Lowering<Option<Expression>> {
    let Like { negated, expr, pattern, escape_char, case_insensitive } = like;
    if columns.plain_type(expr)? != Some(DataType::Text) || escape_char.unwrap_or('\\') != '\\' {
        return Ok(None);
    }
    let Some(text) = literal_text(pattern) else { return Ok(None) };
    let Some(pattern) = LikePattern::new(text, Some('\\'), *case_insensitive) else { return Ok(None) };
    let input = Box::new(lower(expr, columns)?);
    Ok(Some(Expression::Like { input, pattern: Arc::new(pattern), negated: *negated }))
}

/// The text of a literal, also below casts between Arrow's kinds of strings.
fn literal_text(expr: &Expr) -> Option<&str> {
    match expr {
        Expr::Literal(scalar, _) => scalar.try_as_str()?,
        Expr::Cast(cast) if cast.field.data_type().is_string() => literal_text(&cast.expr),
        _ => None,
    }
}

/// A result of a CASE: of its type, or NULL.
fn case_result(expr: &Expr, data_type: DataType, columns: Columns<'_>) -> Lowering<Option<Expression>> {
    if let Expr::Literal(scalar, _) = expr
        && scalar.is_null()
    {
        return Ok(Some(Expression::Constant { value: Value::Null, data_type }));
    }
    if columns.plain_type(expr)? == Some(data_type) { lower(expr, columns).map(Some) } else { Ok(None) }
}

fn case(expr: &Expr, case: &Case, columns: Columns<'_>) -> Lowering<Option<Expression>> {
    let Some(data_type) = columns.plain_type(expr)? else { return Ok(None) };
    // Computed again for each branch.
    if case.expr.as_ref().is_some_and(|operand| operand.is_volatile()) {
        return Ok(None);
    }
    let mut branches = Vec::with_capacity(case.when_then_expr.len());
    for (when, then) in &case.when_then_expr {
        let condition = match case.expr.as_deref() {
            // A condition that is kept apart from others by this operand.
            None | Some(Expr::Literal(ScalarValue::Boolean(Some(true)), _)) => {
                if columns.arrow_type(when)? != ArrowType::Boolean {
                    return Ok(None);
                }
                Some(lower(when, columns)?)
            }
            Some(operand) => compare(Comparison::Equal, operand, when, columns)?,
        };
        let (Some(condition), Some(then)) = (condition, case_result(then, data_type, columns)?) else {
            return Ok(None);
        };
        branches.push((condition, then));
    }
    let otherwise = match case.else_expr.as_deref() {
        None => None,
        Some(otherwise) => match case_result(otherwise, data_type, columns)? {
            Some(otherwise) => Some(Box::new(otherwise)),
            None => return Ok(None),
        },
    };
    Ok(Some(Expression::Case { branches: branches.into(), otherwise, data_type }))
}

/// NULL if both are equal, else the first.
fn nullif(expr: &Expr, value: &Expr, other: &Expr, columns: Columns<'_>) -> Lowering<Option<Expression>> {
    let Some(data_type) = columns.plain_type(expr)? else { return Ok(None) };
    if value.is_volatile() || columns.plain_type(value)? != Some(data_type) {
        return Ok(None);
    }
    let Some(equal) = compare(Comparison::Equal, value, other, columns)? else { return Ok(None) };
    let branches = [(equal, Expression::Constant { value: Value::Null, data_type })].into();
    let otherwise = Some(Box::new(lower(value, columns)?));
    Ok(Some(Expression::Case { branches, otherwise, data_type }))
}

fn function(expr: &Expr, function: &ScalarFunction, columns: Columns<'_>) -> Lowering<Option<Expression>> {
    let name = function.func.name();
    match (name, function.args.as_slice()) {
        // What these say is said to DataFusion's rules.
        ("kept" | "maybe", [argument]) => native_or_foreign(argument, columns),
        ("nullif", [value, other]) => nullif(expr, value, other, columns),
        ("date_part", [part, moment]) => extract(expr, part, moment, columns),
        ("substr", [text, start]) => substring(text, start, None, columns),
        ("substr", [text, start, count]) => substring(text, start, Some(count), columns),
        (name, [left, right]) => match CheckedArithmetic::operator_of(name) {
            Some(operator) => checked_arithmetic(expr, operator, left, right, columns),
            None => Ok(None),
        },
        _ => Ok(None),
    }
}

fn extract(expr: &Expr, part: &Expr, moment: &Expr, columns: Columns<'_>) -> Lowering<Option<Expression>> {
    let part = match literal_text(part).map(str::to_lowercase).as_deref() {
        Some("year") => DatePart::Year,
        Some("month") => DatePart::Month,
        Some("day") => DatePart::Day,
        _ => return Ok(None),
    };
    let is_moment = matches!(columns.plain_type(moment)?, Some(DataType::Date | DataType::Timestamp));
    if !is_moment || columns.arrow_type(expr)? != ArrowType::Int32 {
        return Ok(None);
    }
    Ok(Some(Expression::Extract { part, input: Box::new(lower(moment, columns)?) }))
}

fn substring(text: &Expr, start: &Expr, count: Option<&Expr>, columns: Columns<'_>) -> Lowering<Option<Expression>> {
    let bound = |expr: &Expr| match expr {
        Expr::Literal(ScalarValue::Int64(Some(value)), _) => Some(*value),
        _ => None,
    };
    if columns.plain_type(text)? != Some(DataType::Text) {
        return Ok(None);
    }
    let span = match (bound(start), count.map(bound)) {
        (Some(start), None) => Span::new(start, None),
        (Some(start), Some(Some(count))) => Span::new(start, Some(count)),
        (None, _) | (_, Some(None)) => None,
    };
    let Some(span) = span else { return Ok(None) };
    Ok(Some(Expression::Substring { input: Box::new(lower(text, columns)?), span }))
}

/// A call of one of the checked functions: of numbers of one type, or of decimals.
fn checked_arithmetic(
    expr: &Expr,
    operator: ArithmeticOperator,
    left: &Expr,
    right: &Expr,
    columns: Columns<'_>,
) -> Lowering<Option<Expression>> {
    let types = (columns.plain_type(left)?, columns.plain_type(right)?);
    let Some(data_type) = columns.plain_type(expr)? else { return Ok(None) };
    match (data_type, types) {
        (DataType::Decimal { .. }, (Some(DataType::Decimal { .. }), Some(DataType::Decimal { .. }))) => {}
        (_, (Some(left), Some(right))) if left == data_type && right == data_type => {}
        _ => return Ok(None),
    }
    let (left, right) = (Box::new(lower(left, columns)?), Box::new(lower(right, columns)?));
    Ok(Some(Expression::Arithmetic { operator, left, right, data_type }))
}

fn decimal_arithmetic(
    expr: &Expr,
    left: &Expr,
    op: Operator,
    right: &Expr,
    columns: Columns<'_>,
) -> Lowering<Option<Expression>> {
    let operator = match op {
        Operator::Plus => ArithmeticOperator::Add,
        Operator::Minus => ArithmeticOperator::Subtract,
        Operator::Multiply => ArithmeticOperator::Multiply,
        _ => return Ok(None),
    };
    let is_decimal = |expr: &Expr| Ok::<_, Unplanned>(matches!(columns.data_type(expr)?, DataType::Decimal { .. }));
    let data_type = match expr.get_type(columns.schema).map_err(Unplanned::because)? {
        ArrowType::Decimal128(precision, scale) if scale >= 0 => DataType::Decimal { precision, scale: scale as u8 },
        _ => return Ok(None),
    };
    if !is_decimal(left)? || !is_decimal(right)? {
        return Ok(None);
    }
    let (left, right) = (Box::new(lower(left, columns)?), Box::new(lower(right, columns)?));
    Ok(Some(Expression::Arithmetic { operator, left, right, data_type }))
}

/// A DataFusion expression over the columns and parameters that it mentions.
fn foreign(expr: &Expr, columns: Columns<'_>) -> Lowering<Expression> {
    let result_type = expr.get_type(columns.schema).map_err(Unplanned::because)?;
    let result = sql_type_of_arrow(&result_type)?;
    let mut used: Vec<(Column, Field)> = Vec::new();
    let mut parameters: Vec<(usize, Field)> = Vec::new();
    let text = shown(expr);
    let rewritten = eris_binder::rewrite_expression(expr.clone(), &mut |expr| match &expr {
        Expr::Column(column) => {
            let field = columns.schema.field_from_column(column)?.as_ref().clone();
            let at = if let Some(at) = used.iter().position(|(known, _)| known == column) {
                at
            } else {
                used.push((column.clone(), field));
                used.len() - 1
            };
            Ok(Transformed::yes(Expr::Column(Column::from_name(format!("c{at}")))))
        }
        Expr::Placeholder(Placeholder { id, .. }) => {
            let data_type = expr.get_type(columns.schema)?;
            let index = index_of(id).ok_or_else(|| DataFusionError::Plan(format!("parameter {id}")))?;
            if !parameters.iter().any(|(known, _)| *known == index) {
                parameters.push((index, Field::new(format!("p{index}"), data_type, true)));
            }
            Ok(Transformed::yes(Expr::Column(Column::from_name(format!("p{index}")))))
        }
        Expr::Exists(_)
        | Expr::InSubquery(_)
        | Expr::ScalarSubquery(_)
        | Expr::SetComparison(_)
        | Expr::OuterReferenceColumn(..)
        | Expr::AggregateFunction(_)
        | Expr::WindowFunction(_) => Err(DataFusionError::Plan("a subquery or aggregate in an expression".into())),
        _ => Ok(Transformed::no(expr)),
    })
    .map_err(Unplanned::because)?;
    let mut fields: Vec<Field> =
        used.iter().enumerate().map(|(at, (_, field))| field.clone().with_name(format!("c{at}"))).collect();
    fields.extend(parameters.iter().map(|(_, field)| field.clone()));
    let schema = Arc::new(ArrowSchema::new(fields));
    let df_schema = DFSchema::try_from(Arc::clone(&schema)).map_err(Unplanned::because)?;
    let expression =
        create_physical_expr(&rewritten, &df_schema, &ExecutionProps::new(), &PhysicalPlanningContext::default())
            .map_err(Unplanned::because)?;
    let positions = used.iter().map(|(column, _)| columns.position(column)).collect::<Lowering<Vec<_>>>()?;
    let parameters = parameters
        .iter()
        .map(|(index, field)| Ok((*index, sql_type_of_arrow(field.data_type())?.data_type())))
        .collect::<Lowering<Vec<_>>>()?;
    let memory = memory_of(&expression).map_err(Unplanned::because)?;
    Ok(Expression::Foreign(Arc::new(PhysicalForeign {
        expression,
        is_volatile: expr.is_volatile(),
        memory,
        columns: positions.into(),
        parameters: parameters.into(),
        schema,
        result,
        text,
    })))
}
