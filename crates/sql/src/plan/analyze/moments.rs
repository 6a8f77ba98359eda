//! Sums and differences of dates, timestamps and intervals, in microseconds and checked.
//!
//! | operands                     | result                                                                  |
//! |------------------------------|-------------------------------------------------------------------------|
//! | date - date                  | integer, the days between                                               |
//! | date + integer, date - integer | date                                                                  |
//! | timestamp - timestamp        | interval of days and a time of day                                      |
//! | timestamp + interval, -      | timestamp: months first (the day is cut to the last one), then days, then time  |
//! | interval * integer           | interval, each field times the integer                                  |
//! | date + interval, -           | the same from midnight on; a date if the interval is a constant without time |
//!
//! DataFusion computes these in nanoseconds, which end in 2262.

use std::sync::Arc;

use datafusion::arrow::array::{
    ArrayRef, AsArray, Date32Array, Int32Array, IntervalMonthDayNanoArray, TimestampMicrosecondArray,
};
use datafusion::arrow::datatypes::{
    DataType as ArrowType, Date32Type, Int64Type, IntervalMonthDayNano, IntervalMonthDayNanoType, IntervalUnit,
    TimeUnit, TimestampMicrosecondType,
};
use datafusion::common::{DataFusionError, Result, ScalarValue, exec_err};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{
    Cast, ColumnarValue, Expr, Operator, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use crate::errors::{SqlError, SqlState};
use crate::pg_format::{MICROS_OF_DAY, checked_date, checked_timestamp, date_of, day_of_month_cut};

const TIMESTAMP: ArrowType = ArrowType::Timestamp(TimeUnit::Microsecond, None);
const INTERVAL: ArrowType = ArrowType::Interval(IntervalUnit::MonthDayNano);

/// Which sum or difference; `sign` is that of the second operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Moment {
    /// date - date
    DaysBetween,
    /// date + integer
    Days { sign: i64 },
    /// timestamp - timestamp
    TimeBetween,
    /// timestamp + interval; as a date if it stays at midnight.
    Shift { sign: i64, date: bool },
    /// interval * integer
    Times,
}

impl Moment {
    fn operands(self) -> [ArrowType; 2] {
        match self {
            Self::DaysBetween => [ArrowType::Date32, ArrowType::Date32],
            Self::Days { .. } => [ArrowType::Date32, ArrowType::Int64],
            Self::TimeBetween => [TIMESTAMP, TIMESTAMP],
            Self::Shift { date: true, .. } => [ArrowType::Date32, INTERVAL],
            Self::Shift { date: false, .. } => [TIMESTAMP, INTERVAL],
            Self::Times => [INTERVAL, ArrowType::Int64],
        }
    }

    fn result(self) -> ArrowType {
        match self {
            Self::DaysBetween => ArrowType::Int32,
            Self::Days { .. } | Self::Shift { date: true, .. } => ArrowType::Date32,
            Self::TimeBetween | Self::Times => INTERVAL,
            Self::Shift { date: false, .. } => TIMESTAMP,
        }
    }
}

/// The sum or difference that `left op right` is, if it is one of these.
pub(super) fn moment(left: &Expr, op: Operator, right: &Expr, types: (&ArrowType, &ArrowType)) -> Option<Expr> {
    let sign = match (op, types) {
        (Operator::Plus, _) => 1,
        (Operator::Minus, _) => -1,
        (Operator::Multiply, (ArrowType::Interval(_), number)) if number.is_integer() => {
            return Some(call(Moment::Times, left, right));
        }
        (Operator::Multiply, (number, ArrowType::Interval(_))) if number.is_integer() => {
            return Some(call(Moment::Times, right, left));
        }
        _ => return None,
    };
    let is_time = |data_type: &ArrowType| matches!(data_type, ArrowType::Timestamp(_, None));
    let (moment, left, right) = match types {
        (ArrowType::Date32, ArrowType::Date32) if sign < 0 => (Moment::DaysBetween, left, right),
        (ArrowType::Date32, number) if number.is_integer() => (Moment::Days { sign }, left, right),
        (number, ArrowType::Date32) if number.is_integer() && sign > 0 => (Moment::Days { sign }, right, left),
        (from, to)
            if sign < 0
                && (is_time(from) || is_time(to))
                && (is_time(from) || *from == ArrowType::Date32)
                && (is_time(to) || *to == ArrowType::Date32) =>
        {
            (Moment::TimeBetween, left, right)
        }
        (ArrowType::Date32, ArrowType::Interval(_)) => (Moment::Shift { sign, date: is_of_days(right) }, left, right),
        (ArrowType::Interval(_), ArrowType::Date32) if sign > 0 => {
            (Moment::Shift { sign, date: is_of_days(left) }, right, left)
        }
        (from, ArrowType::Interval(_)) if is_time(from) => (Moment::Shift { sign, date: false }, left, right),
        (ArrowType::Interval(_), to) if is_time(to) && sign > 0 => (Moment::Shift { sign, date: false }, right, left),
        _ => return None,
    };
    Some(call(moment, left, right))
}

fn call(moment: Moment, left: &Expr, right: &Expr) -> Expr {
    let args =
        [left, right].into_iter().zip(moment.operands()).map(|(operand, wanted)| cast(operand, wanted)).collect();
    let signature = Signature::exact(moment.operands().to_vec(), Volatility::Immutable);
    let udf = Arc::new(ScalarUDF::new_from_impl(Computed { moment, signature }));
    Expr::ScalarFunction(ScalarFunction::new_udf(udf, args))
}

fn cast(expr: &Expr, to: ArrowType) -> Expr {
    Expr::Cast(Cast::new(Box::new(expr.clone()), to))
}

/// A constant interval of months and days.
fn is_of_days(expr: &Expr) -> bool {
    matches!(expr, Expr::Literal(ScalarValue::IntervalMonthDayNano(Some(interval)), _) if interval.nanoseconds == 0)
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Computed {
    moment: Moment,
    signature: Signature,
}

impl ScalarUDFImpl for Computed {
    fn name(&self) -> &'static str {
        match self.moment {
            Moment::DaysBetween => "days_between",
            Moment::Days { sign: 1 } => "later_by_days",
            Moment::Days { .. } => "earlier_by_days",
            Moment::TimeBetween => "time_between",
            Moment::Times => "times",
            Moment::Shift { sign: 1, .. } => "later_by",
            Moment::Shift { .. } => "earlier_by",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _types: &[ArrowType]) -> Result<ArrowType> {
        Ok(self.moment.result())
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let scalar = args.args.iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
        let rows = if scalar { 1 } else { args.number_rows };
        let arrays = args.args.into_iter().map(|arg| arg.into_array(rows)).collect::<Result<Vec<ArrayRef>>>()?;
        let [left, right] = arrays.as_slice() else { return exec_err!("{} takes two arguments", self.name()) };
        let result = compute(self.moment, left, right).map_err(|error| DataFusionError::External(Box::new(error)))?;
        if scalar {
            return Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&result, 0)?));
        }
        Ok(ColumnarValue::Array(result))
    }
}

/// Both values of each row where neither is NULL.
fn pairs<A, B, R>(
    left: impl Iterator<Item = Option<A>>,
    right: impl Iterator<Item = Option<B>>,
    compute: impl Fn(A, B) -> std::result::Result<R, SqlError>,
) -> std::result::Result<Vec<Option<R>>, SqlError> {
    left.zip(right)
        .map(|(left, right)| match (left, right) {
            (Some(left), Some(right)) => compute(left, right).map(Some),
            _ => Ok(None),
        })
        .collect()
}

fn compute(moment: Moment, left: &ArrayRef, right: &ArrayRef) -> std::result::Result<ArrayRef, SqlError> {
    let dates = |array: &ArrayRef| array.as_primitive::<Date32Type>().clone();
    let timestamps = |array: &ArrayRef| array.as_primitive::<TimestampMicrosecondType>().clone();
    Ok(match moment {
        Moment::DaysBetween => {
            let days = pairs(dates(left).iter(), dates(right).iter(), |from, to| {
                from.checked_sub(to).ok_or_else(|| SqlError::out_of_range("integer"))
            })?;
            Arc::new(Int32Array::from(days))
        }
        Moment::Days { sign } => {
            let numbers = right.as_primitive::<Int64Type>();
            let days = pairs(dates(left).iter(), numbers.iter(), |date, days| {
                checked_date(i128::from(date) + i128::from(sign) * i128::from(days))
            })?;
            Arc::new(Date32Array::from(days))
        }
        Moment::TimeBetween => {
            let spans = pairs(timestamps(left).iter(), timestamps(right).iter(), |from, to| Ok(between(from, to)))?;
            Arc::new(IntervalMonthDayNanoArray::from(spans))
        }
        Moment::Times => {
            let factors = right.as_primitive::<Int64Type>();
            let spans = pairs(left.as_primitive::<IntervalMonthDayNanoType>().iter(), factors.iter(), times)?;
            Arc::new(IntervalMonthDayNanoArray::from(spans))
        }
        Moment::Shift { sign, date } => {
            let intervals = right.as_primitive::<IntervalMonthDayNanoType>();
            if date {
                let days = pairs(dates(left).iter(), intervals.iter(), |date, interval| {
                    let micros = shifted(i128::from(date) * i128::from(MICROS_OF_DAY), interval, sign);
                    checked_date(micros.div_euclid(i128::from(MICROS_OF_DAY)))
                })?;
                Arc::new(Date32Array::from(days))
            } else {
                let micros = pairs(timestamps(left).iter(), intervals.iter(), |time, interval| {
                    checked_timestamp(shifted(i128::from(time), interval, sign))
                })?;
                Arc::new(TimestampMicrosecondArray::from(micros))
            }
        }
    })
}

/// An interval several times over.
fn times(interval: IntervalMonthDayNano, factor: i64) -> std::result::Result<IntervalMonthDayNano, SqlError> {
    let whole = |part: i32| i64::from(part).checked_mul(factor).and_then(|part| i32::try_from(part).ok());
    let time = interval.nanoseconds.checked_mul(factor);
    match (whole(interval.months), whole(interval.days), time) {
        (Some(months), Some(days), Some(time)) => Ok(IntervalMonthDayNano::new(months, days, time)),
        _ => Err(SqlError::new(SqlState::DATETIME_OVERFLOW, "interval out of range")),
    }
}

/// The days and the time of day between two timestamps; both have one sign.
fn between(from: i64, to: i64) -> IntervalMonthDayNano {
    let micros = i128::from(from) - i128::from(to);
    let day = i128::from(MICROS_OF_DAY);
    IntervalMonthDayNano::new(0, (micros / day) as i32, (micros % day) as i64 * 1_000)
}

/// A point in time moved by an interval, unchecked: 128 bits hold all there are.
fn shifted(micros: i128, interval: IntervalMonthDayNano, sign: i64) -> i128 {
    let day = i128::from(MICROS_OF_DAY);
    let (mut days, time) = (micros.div_euclid(day) as i64, micros.rem_euclid(day));
    if interval.months != 0 {
        let (year, month, day_of_month) = date_of(days);
        let months = year * 12 + i64::from(month) - 1 + sign * i64::from(interval.months);
        days = day_of_month_cut(months.div_euclid(12), months.rem_euclid(12) as u32 + 1, day_of_month);
    }
    let sign = i128::from(sign);
    let days = i128::from(days) + sign * i128::from(interval.days);
    days * day + time + sign * i128::from(interval.nanoseconds / 1_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_reach_over_all_timestamps() {
        let ends = between(i64::MAX, i64::MIN);
        assert_eq!(ends.days, 213_503_982);
        assert_eq!(between(-1, 0), IntervalMonthDayNano::new(0, 0, -1_000));
        assert_eq!(between(MICROS_OF_DAY * 2, 1), IntervalMonthDayNano::new(0, 1, (MICROS_OF_DAY - 1) * 1_000));
    }

    #[test]
    fn the_last_day_of_a_month_stays_in_it() {
        let day = i128::from(MICROS_OF_DAY);
        let january = 30 * day + 5;
        let month = IntervalMonthDayNano::new(1, 0, 0);
        assert_eq!(shifted(january, month, 1), 58 * day + 5);
        assert_eq!(shifted(january, month, -1), -day + 5);
        let mixed = IntervalMonthDayNano::new(13, -1, 2_000);
        assert_eq!(shifted(0, mixed, 1), (365 + 31 - 1) * day + 2);
    }
}
