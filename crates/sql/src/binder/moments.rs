//! `date '1995-01-01' + interval '3' month` and the like: constants that are computed while they are bound.

use eris_query::{Scalar, Unplanned};
use eris_storage::Value;

use super::Binding;
use crate::ast::{self, BinaryOperator, DateTimeField, Expr, Interval};
use crate::pg_format::{checked_date, date_of, day_of_month_cut};
use crate::types::SqlType;

/// Whole months and days.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Span {
    months: i64,
    days: i64,
}

/// The interval that an expression is, if it is one of whole months and days.
pub(super) fn span_of(expr: &Expr) -> Option<Binding<Span>> {
    let Expr::Interval(interval) = expr else { return None };
    Some(read(interval).ok_or_else(|| Unplanned(format!("the interval {interval}"))))
}

fn read(interval: &Interval) -> Option<Span> {
    let Interval {
        value,
        leading_field,
        leading_precision: None,
        last_field: None,
        fractional_seconds_precision: None,
    } = interval
    else {
        return None;
    };
    let Expr::Value(value) = value.as_ref() else { return None };
    let ast::Value::SingleQuotedString(text) = &value.value else { return None };
    let mut span = Span::default();
    if let Some(field) = leading_field {
        let unit = match field {
            DateTimeField::Year | DateTimeField::Years => "year",
            DateTimeField::Month | DateTimeField::Months => "month",
            DateTimeField::Day | DateTimeField::Days => "day",
            _ => return None,
        };
        span.add(text.trim(), unit)?;
        return Some(span);
    }
    let words: Vec<&str> = text.split_ascii_whitespace().collect();
    if words.is_empty() || words.len() % 2 == 1 {
        return None;
    }
    for pair in words.chunks(2) {
        span.add(pair[0], &pair[1].to_ascii_lowercase())?;
    }
    Some(span)
}

impl Span {
    fn add(&mut self, count: &str, unit: &str) -> Option<()> {
        let count = i64::from(count.parse::<i32>().ok()?);
        match unit.strip_suffix('s').unwrap_or(unit) {
            "year" => self.months += count * 12,
            "month" | "mon" => self.months += count,
            "week" => self.days += count * 7,
            "day" => self.days += count,
            _ => return None,
        }
        Some(())
    }
}

/// A date with an interval added or subtracted.
pub(super) fn moved(moment: &Scalar, op: &BinaryOperator, span: Span) -> Binding<Scalar> {
    let refused = || Unplanned(format!("an interval beside a {}", moment.sql_type));
    let sign = match op {
        BinaryOperator::Plus => 1,
        BinaryOperator::Minus => -1,
        _ => return Err(refused()),
    };
    let Some(Value::Date(days)) = moment.as_constant() else { return Err(refused()) };
    let (year, month, day) = date_of(i64::from(*days));
    let months = year * 12 + i64::from(month) - 1 + sign * span.months;
    let month = u32::try_from(months.rem_euclid(12) + 1).map_err(Unplanned::because)?;
    let days = day_of_month_cut(months.div_euclid(12), month, day) + sign * span.days;
    let days = checked_date(i128::from(days)).map_err(Unplanned::because)?;
    Ok(Scalar::constant(Value::Date(days), SqlType::Date))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::front::template;
    use crate::pg_format::parse_date;

    fn span(text: &str) -> Option<Span> {
        let query = template(&format!("SELECT {text}"));
        let ast::SetExpr::Select(select) = query.body.as_ref() else { return None };
        let [ast::SelectItem::UnnamedExpr(expr)] = select.projection.as_slice() else { return None };
        span_of(expr).and_then(Result::ok)
    }

    #[test]
    fn whole_months_and_days_are_read() {
        for (text, months, days) in [
            ("interval '3' month", 3, 0),
            ("interval '90 day'", 0, 90),
            ("interval '1 year 2 mons -3 days'", 14, -3),
            ("interval '2 weeks'", 0, 14),
            ("interval '-1' year", -12, 0),
        ] {
            assert_eq!(span(text), Some(Span { months, days }), "{text}");
        }
        for text in ["interval '1 hour'", "interval '1'", "interval 'P1D'", "interval '1.5 days'", "interval '1' hour"]
        {
            assert_eq!(span(text), None, "{text}");
        }
    }

    #[test]
    fn months_end_at_their_last_day() {
        for (date, op, text, expected) in [
            ("2020-01-31", BinaryOperator::Plus, "interval '1' month", "2020-02-29"),
            ("2020-03-31", BinaryOperator::Minus, "interval '1 month 1 day'", "2020-02-28"),
            ("1998-12-01", BinaryOperator::Minus, "interval '90 day'", "1998-09-02"),
            ("0001-01-01", BinaryOperator::Plus, "interval '12' month", "0002-01-01"),
        ] {
            let value = |text| Value::Date(parse_date(text).unwrap());
            let date = Scalar::constant(value(date), SqlType::Date);
            let found = moved(&date, &op, span(text).unwrap()).unwrap();
            assert_eq!(found.as_constant(), Some(&value(expected)), "{date:?} {op} {text}");
        }
    }
}
