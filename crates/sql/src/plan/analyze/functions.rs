//! The functions that rewrites put into plans. They have no names in SQL.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, Decimal128Array, StringViewBuilder, UInt32Array};
use datafusion::arrow::compute::{cast, take};
use datafusion::arrow::datatypes::{DataType as ArrowType, Decimal128Type, Field, FieldRef, Float32Type, Float64Type};
use datafusion::common::{DataFusionError, Result, ScalarValue, exec_err, plan_err};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use eris_storage::ColumnBuilder;

use super::parts::{Unit, span};
use super::rounding::Rounding;
use crate::arrow_view::{arrow_type, column_from_arrow, column_to_arrow, sql_type_of_arrow};
use crate::errors::{SqlError, SqlState};
use crate::pg_format;
use crate::types::SqlType;

/// What a function does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Function {
    /// A number without digits behind the point.
    Whole(Rounding),
    /// PostgreSQL's text of a value.
    Text,
    /// The value of a text.
    Parse(SqlType),
    /// As much of a text as the type holds.
    Cut(SqlType),
    /// A value as a column of the type stores it.
    Stored(SqlType),
    /// A timestamp without what is smaller than a unit.
    Truncate(Unit),
    /// How long an interval is, in microseconds: months have 30 days, days 24 hours.
    Span,
    /// The same, but nullable.
    Maybe,
    /// The same: what is computed below is not moved above.
    Kept,
    /// A float with one zero and one NaN.
    Plain,
    /// The one value of a list; more are an error.
    OnlyRow,
}

impl Function {
    pub fn name(self) -> &'static str {
        match self {
            Self::Whole(_) => "whole",
            Self::Text => "as_text",
            Self::Parse(_) => "parsed",
            Self::Cut(_) => "cut",
            Self::Stored(_) => "stored",
            Self::Truncate(_) => "truncated",
            Self::Span => "span",
            Self::Maybe => "maybe",
            Self::Kept => "kept",
            Self::Plain => "plain",
            Self::OnlyRow => "only_row",
        }
    }

    /// A call of the function.
    pub fn call(self, argument: Expr) -> Expr {
        let signature = Signature::any(1, Volatility::Immutable);
        let udf = Arc::new(ScalarUDF::new_from_impl(Called { function: self, signature }));
        Expr::ScalarFunction(ScalarFunction::new_udf(udf, vec![argument]))
    }

    fn return_type(self, argument: &ArrowType) -> Result<ArrowType> {
        Ok(match (self, argument) {
            (Self::Text | Self::Cut(_), _) => ArrowType::Utf8View,
            (Self::Parse(sql_type) | Self::Stored(sql_type), _) => arrow_type(sql_type.data_type()),
            // Rounding up may need a digit more: 9.5 is a numeric(2, 1), 10 is not a numeric(1, 0).
            (Self::Whole(_), ArrowType::Decimal128(precision, scale)) => {
                ArrowType::Decimal128((*precision as i8 - scale + 1).clamp(1, 38) as u8, 0)
            }
            (Self::Truncate(_), _) => arrow_type(SqlType::Timestamp.data_type()),
            (Self::Span, _) => ArrowType::Decimal128(38, 0),
            (Self::OnlyRow, ArrowType::List(element)) => element.data_type().clone(),
            (Self::Whole(_) | Self::Maybe | Self::Kept | Self::Plain | Self::OnlyRow, same) => same.clone(),
        })
    }

    fn apply(self, array: &ArrayRef, to: &ArrowType) -> Result<ArrayRef> {
        match self {
            Self::Whole(rounding) => whole(array, rounding, to),
            Self::Text => as_text(array),
            Self::Parse(sql_type) => parsed(array, sql_type),
            Self::Cut(sql_type) => cut(array, sql_type),
            Self::Stored(sql_type) => stored(array, sql_type),
            Self::Truncate(unit) => unit.truncate(array),
            Self::Span => span(array),
            Self::Maybe | Self::Kept => Ok(Arc::clone(array)),
            Self::Plain => Ok(plain(array)),
            Self::OnlyRow => only_row(array),
        }
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Called {
    function: Function,
    signature: Signature,
}

impl ScalarUDFImpl for Called {
    fn name(&self) -> &'static str {
        self.function.name()
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[ArrowType]) -> Result<ArrowType> {
        let [argument] = types else { return plan_err!("{} takes one argument", self.name()) };
        self.function.return_type(argument)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        let [argument] = args.arg_fields else { return plan_err!("{} takes one argument", self.name()) };
        // As nullable as a cast: a schema that was made with one stays true.
        let nullable = argument.is_nullable() || matches!(self.function, Function::Maybe | Function::OnlyRow);
        let field = Field::new(self.name(), self.function.return_type(argument.data_type())?, nullable);
        // What else is known about a column stays known.
        let kept = if self.function == Function::Maybe { argument.metadata().clone() } else { [].into() };
        Ok(Arc::new(field.with_metadata(kept)))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let Some(argument) = args.args.into_iter().next() else {
            return exec_err!("{} takes one argument", self.name());
        };
        let to = args.return_field.data_type();
        match argument {
            ColumnarValue::Array(array) => Ok(ColumnarValue::Array(self.function.apply(&array, to)?)),
            ColumnarValue::Scalar(value) => {
                let result = self.function.apply(&value.to_array()?, to)?;
                Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&result, 0)?))
            }
        }
    }
}

fn external(error: SqlError) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}

fn plain(array: &ArrayRef) -> ArrayRef {
    let single = |value: f32| if value.is_nan() { f32::NAN } else { value + 0.0 };
    let double = |value: f64| if value.is_nan() { f64::NAN } else { value + 0.0 };
    match array.data_type() {
        ArrowType::Float32 => Arc::new(array.as_primitive::<Float32Type>().unary::<_, Float32Type>(single)),
        ArrowType::Float64 => Arc::new(array.as_primitive::<Float64Type>().unary::<_, Float64Type>(double)),
        _ => Arc::clone(array),
    }
}

fn whole(array: &ArrayRef, rounding: Rounding, to: &ArrowType) -> Result<ArrayRef> {
    Ok(match (array.data_type(), to) {
        (ArrowType::Decimal128(_, scale), ArrowType::Decimal128(precision, 0)) => {
            let divisor = 10_i128.pow(u32::from(scale.unsigned_abs()));
            let values = array.as_primitive::<Decimal128Type>();
            let whole: Decimal128Array = values.unary(|unscaled| rounding.whole(unscaled, divisor));
            Arc::new(whole.with_precision_and_scale(*precision, 0)?)
        }
        (ArrowType::Float32, _) => {
            Arc::new(array.as_primitive::<Float32Type>().unary::<_, Float32Type>(f32::round_ties_even))
        }
        (ArrowType::Float64, _) => {
            Arc::new(array.as_primitive::<Float64Type>().unary::<_, Float64Type>(f64::round_ties_even))
        }
        (other, _) => return exec_err!("{other} cannot be rounded"),
    })
}

fn only_row(array: &ArrayRef) -> Result<ArrayRef> {
    let lists = array.as_list::<i32>();
    let offsets = lists.value_offsets();
    let mut rows: Vec<Option<u32>> = Vec::with_capacity(lists.len());
    for row in 0..lists.len() {
        let values = if lists.is_null(row) { 0 } else { offsets[row + 1] - offsets[row] };
        rows.push(match values {
            0 => None,
            1 => Some(offsets[row] as u32),
            _ => {
                return Err(external(SqlError::new(
                    SqlState::CARDINALITY_VIOLATION,
                    "more than one row returned by a subquery used as an expression",
                )));
            }
        });
    }
    Ok(take(lists.values(), &UInt32Array::from(rows), None)?)
}

fn as_text(array: &ArrayRef) -> Result<ArrayRef> {
    let sql_type = sql_type_of_arrow(array.data_type()).map_err(external)?;
    let column = column_from_arrow(array, sql_type).map_err(external)?;
    let mut out = StringViewBuilder::with_capacity(array.len());
    let mut text = Vec::new();
    for row in 0..array.len() {
        if array.is_null(row) {
            out.append_null();
            continue;
        }
        text.clear();
        pg_format::text(&column, row, sql_type, &mut text);
        out.append_value(String::from_utf8_lossy(&text));
    }
    Ok(Arc::new(out.finish()))
}

/// Text of any of Arrow's kinds, row by row.
fn texts(array: &ArrayRef) -> Result<ArrayRef> {
    Ok(cast(array, &ArrowType::Utf8View)?)
}

fn parsed(array: &ArrayRef, sql_type: SqlType) -> Result<ArrayRef> {
    let texts = texts(array)?;
    let mut values = ColumnBuilder::with_capacity(sql_type.data_type(), array.len());
    for text in texts.as_string_view() {
        match text {
            None => values.push_null(),
            Some(text) => values.push(&pg_format::parse_text(sql_type, text).map_err(external)?),
        }
    }
    Ok(column_to_arrow(&values.finish()))
}

fn stored(array: &ArrayRef, sql_type: SqlType) -> Result<ArrayRef> {
    let from = sql_type_of_arrow(array.data_type()).map_err(external)?;
    let column = column_from_arrow(array, from).map_err(external)?;
    let stored = crate::native::store_as(&column, from, sql_type).map_err(external)?;
    Ok(column_to_arrow(&stored))
}

fn cut(array: &ArrayRef, sql_type: SqlType) -> Result<ArrayRef> {
    let limit = match sql_type {
        SqlType::Varchar(Some(limit)) | SqlType::Char(Some(limit)) => limit as usize,
        _ => usize::MAX,
    };
    let texts = texts(array)?;
    let mut out = StringViewBuilder::with_capacity(array.len());
    for text in texts.as_string_view() {
        let Some(text) = text else {
            out.append_null();
            continue;
        };
        let end = text.char_indices().nth(limit).map_or(text.len(), |(at, _)| at);
        let text = &text[..end];
        out.append_value(if matches!(sql_type, SqlType::Char(_)) { text.trim_end_matches(' ') } else { text });
    }
    Ok(Arc::new(out.finish()))
}
