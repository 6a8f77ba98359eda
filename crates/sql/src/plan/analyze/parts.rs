//! Parts of timestamps, exactly.
//!
//! | function                                   | DataFusion              | here, as PostgreSQL          |
//! |--------------------------------------------|-------------------------|------------------------------|
//! | `extract(second from x)`, and smaller ones | whole numbers           | numeric, with the fraction   |
//! | `extract(epoch from x)`                    | floating point          | numeric, with six digits     |
//! | `date_trunc(unit, x)`                      | in nanoseconds          | in microseconds: all years   |

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, AsArray, Decimal128Array, TimestampMicrosecondArray};
use datafusion::arrow::compute::{CastOptions, cast, cast_with_options};
use datafusion::arrow::datatypes::{
    DataType as ArrowType, Field, FieldRef, IntervalMonthDayNanoType, IntervalUnit, TimeUnit, TimestampMicrosecondType,
};
use datafusion::common::{DFSchema, Result, ScalarValue};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{
    Cast, ColumnarValue, Expr, ExprSchemable, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl,
};

use super::functions::Function;
use crate::pg_format::{MICROS_OF_DAY, date_of, days_of};
use crate::plan::wrapping::says_as_inner;

const TIMESTAMP: ArrowType = ArrowType::Timestamp(TimeUnit::Microsecond, None);
const MICROS_OF_MINUTE: i64 = 60_000_000;

/// A part that has a fraction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Part {
    Second,
    Milliseconds,
    Microseconds,
    Epoch,
}

impl Part {
    fn named(name: &str) -> Option<Self> {
        Some(match name {
            "second" | "seconds" | "sec" | "secs" => Self::Second,
            "millisecond" | "milliseconds" => Self::Milliseconds,
            "microsecond" | "microseconds" => Self::Microseconds,
            "epoch" => Self::Epoch,
            _ => return None,
        })
    }

    pub fn result(self) -> ArrowType {
        match self {
            Self::Second => ArrowType::Decimal128(8, 6),
            Self::Milliseconds => ArrowType::Decimal128(8, 3),
            Self::Microseconds => ArrowType::Decimal128(8, 0),
            Self::Epoch => ArrowType::Decimal128(19, 6),
        }
    }

    pub fn of(self, array: &ArrayRef) -> Result<ArrayRef> {
        let micros = array.as_primitive::<TimestampMicrosecondType>();
        let parts = micros.iter().map(|micros| {
            micros.map(|micros| {
                i128::from(if self == Self::Epoch { micros } else { micros.rem_euclid(MICROS_OF_MINUTE) })
            })
        });
        let parts: Decimal128Array = parts.collect();
        Ok(Arc::new(parts.with_data_type(self.result())))
    }
}

/// What a timestamp is cut to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Unit {
    /// Microseconds that divide a day.
    Micros(i64),
    Week,
    /// Months that divide a year.
    Months(u32),
    /// Years; centuries and millennia begin with year 1.
    Years(i64),
}

impl Unit {
    fn named(name: &str) -> Option<Self> {
        Some(match name {
            "microsecond" | "microseconds" => Self::Micros(1),
            "millisecond" | "milliseconds" => Self::Micros(1_000),
            "second" => Self::Micros(1_000_000),
            "minute" => Self::Micros(MICROS_OF_MINUTE),
            "hour" => Self::Micros(60 * MICROS_OF_MINUTE),
            "day" => Self::Micros(MICROS_OF_DAY),
            "week" => Self::Week,
            "month" => Self::Months(1),
            "quarter" => Self::Months(3),
            "year" => Self::Years(1),
            "decade" => Self::Years(10),
            "century" => Self::Years(100),
            "millennium" => Self::Years(1_000),
            _ => return None,
        })
    }

    fn cut(self, micros: i64) -> i64 {
        let days = micros.div_euclid(MICROS_OF_DAY);
        let day = match self {
            Self::Micros(unit) => return micros - micros.rem_euclid(unit),
            // Day 0 was a Thursday.
            Self::Week => days - (days + 3).rem_euclid(7),
            Self::Months(months) => {
                let (year, month, _) = date_of(days);
                days_of(year, month - (month - 1) % months, 1).unwrap_or(days)
            }
            Self::Years(years) => {
                let (year, ..) = date_of(days);
                let first = i64::from(years > 10);
                days_of(year - (year - first).rem_euclid(years), 1, 1).unwrap_or(days)
            }
        };
        day.saturating_mul(MICROS_OF_DAY)
    }

    pub fn truncate(self, array: &ArrayRef) -> Result<ArrayRef> {
        let micros = array.as_primitive::<TimestampMicrosecondType>();
        let cut: TimestampMicrosecondArray = micros.unary(|micros| self.cut(micros));
        Ok(Arc::new(cut))
    }
}

/// How long intervals are.
pub(super) fn span(array: &ArrayRef) -> Result<ArrayRef> {
    let array = cast(array, &ArrowType::Interval(IntervalUnit::MonthDayNano))?;
    let spans = array.as_primitive::<IntervalMonthDayNanoType>().iter().map(|interval| {
        interval.map(|interval| {
            let days = i128::from(interval.months) * 30 + i128::from(interval.days);
            days * i128::from(MICROS_OF_DAY) + i128::from(interval.nanoseconds / 1_000)
        })
    });
    Ok(Arc::new(spans.collect::<Decimal128Array>().with_precision_and_scale(38, 0)?))
}

fn is_moment(data_type: &ArrowType) -> bool {
    matches!(data_type, ArrowType::Date32 | ArrowType::Timestamp(_, None))
}

/// A call of `date_trunc` as one of ours.
pub(super) fn truncated(function: &ScalarFunction, columns: &DFSchema) -> Option<Expr> {
    let [Expr::Literal(name, _), moment] = function.args.as_slice() else { return None };
    let unit = Unit::named(&ScalarValue::try_as_str(name)??.to_lowercase())?;
    is_moment(&moment.get_type(columns).ok()?)
        .then(|| Function::Truncate(unit).call(Expr::Cast(Cast::new(Box::new(moment.clone()), TIMESTAMP))))
}

/// `date_part`: DataFusion's, but for the parts above.
#[derive(Debug, PartialEq, Eq, Hash)]
struct DatePart {
    inner: Arc<ScalarUDF>,
}

/// The function `date_part`, which `extract` calls.
pub(in crate::plan) fn date_part() -> Arc<ScalarUDF> {
    Arc::new(ScalarUDF::new_from_impl(DatePart { inner: datafusion::functions::datetime::date_part() }))
}

impl ScalarUDFImpl for DatePart {
    says_as_inner!();

    fn aliases(&self) -> &[String] {
        self.inner.aliases()
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        let name = args.scalar_arguments.first().copied().flatten().and_then(|name| name.try_as_str().flatten());
        let moment = args.arg_fields.get(1).is_some_and(|field| is_moment(field.data_type()));
        match name.and_then(|name| Part::named(&name.to_lowercase())) {
            Some(part) if moment => Ok(Arc::new(Field::new(self.name(), part.result(), true))),
            _ => self.inner.return_field_from_args(args),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let part = match args.args.first() {
            Some(ColumnarValue::Scalar(name)) => {
                name.try_as_str().flatten().and_then(|name| Part::named(&name.to_lowercase()))
            }
            _ => None,
        };
        let (Some(part), Some(moment)) = (part, args.args.get(1).filter(|arg| is_moment(&arg.data_type()))) else {
            return self.inner.invoke_with_args(args);
        };
        let of = |array: &ArrayRef| -> Result<ArrayRef> {
            let checked = CastOptions { safe: false, ..CastOptions::default() };
            part.of(&cast_with_options(array, &TIMESTAMP, &checked)?)
        };
        Ok(match moment {
            ColumnarValue::Array(array) => ColumnarValue::Array(of(array)?),
            ColumnarValue::Scalar(value) => {
                ColumnarValue::Scalar(ScalarValue::try_from_array(&of(&value.to_array()?)?, 0)?)
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pg_format::{parse_timestamp, write_timestamp};

    fn cut(unit: &str, text: &str) -> String {
        let mut out = Vec::new();
        write_timestamp(Unit::named(unit).unwrap().cut(parse_timestamp(text).unwrap()), &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn timestamps_are_cut() {
        let text = "2024-08-29 12:34:56.789012";
        for (unit, expected) in [
            ("milliseconds", "2024-08-29 12:34:56.789"),
            ("second", "2024-08-29 12:34:56"),
            ("hour", "2024-08-29 12:00:00"),
            ("day", "2024-08-29 00:00:00"),
            ("week", "2024-08-26 00:00:00"),
            ("month", "2024-08-01 00:00:00"),
            ("quarter", "2024-07-01 00:00:00"),
            ("year", "2024-01-01 00:00:00"),
            ("decade", "2020-01-01 00:00:00"),
            ("century", "2001-01-01 00:00:00"),
            ("millennium", "2001-01-01 00:00:00"),
        ] {
            assert_eq!(cut(unit, text), expected, "{unit}");
        }
        assert_eq!(cut("month", "1200-05-06 01:02:03"), "1200-05-01 00:00:00");
        assert_eq!(cut("week", "1969-12-31 23:00"), "1969-12-29 00:00:00");
        assert_eq!(cut("century", "2000-12-31"), "1901-01-01 00:00:00");
    }
}
