//! Windows: where functions over them may stand, what WINDOW and OVER say together, and which frames there are.
//!
//! The binder knows `OVER w` in a select list, and takes no notice of `w` in `OVER (w ORDER BY a)`. So both become
//! windows without a name ([`resolve`]), in a select list and in the ORDER BY behind it.

use std::ops::ControlFlow;

use super::Lowered;
use crate::ast::{
    Expr, Function, Ident, NamedWindowDefinition, NamedWindowExpr, OrderBy, Query, Select, UnaryOperator, Value, Visit,
    VisitMut, Visitor, VisitorMut, WindowFrame, WindowFrameBound, WindowFrameUnits, WindowSpec, WindowType,
};
use crate::errors::{SqlError, SqlState};

fn wrong(message: impl Into<String>) -> SqlError {
    SqlError::new(SqlState::MISPLACED_WINDOW, message)
}

fn folded(ident: &Ident) -> String {
    if ident.quote_style.is_some() { ident.value.clone() } else { ident.value.to_lowercase() }
}

/// Visits the calls with OVER outside of subqueries.
struct Calls<F> {
    subqueries: usize,
    visit: F,
}

impl<F: FnMut(&WindowType) -> Lowered<()>> Visitor for Calls<F> {
    type Break = SqlError;

    fn pre_visit_query(&mut self, _query: &Query) -> ControlFlow<SqlError> {
        self.subqueries += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _query: &Query) -> ControlFlow<SqlError> {
        self.subqueries -= 1;
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<SqlError> {
        match expr {
            Expr::Function(Function { over: Some(over), .. }) if self.subqueries == 0 => match (self.visit)(over) {
                Ok(()) => ControlFlow::Continue(()),
                Err(error) => ControlFlow::Break(error),
            },
            _ => ControlFlow::Continue(()),
        }
    }
}

fn each_call(part: &impl Visit, visit: impl FnMut(&WindowType) -> Lowered<()>) -> Lowered<()> {
    match part.visit(&mut Calls { subqueries: 0, visit }) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(error) => Err(error),
    }
}

/// Refuses window functions where there are no rows of a window yet, or no more.
pub(super) fn refuse(part: &impl Visit, place: &str) -> Lowered<()> {
    each_call(part, |_| Err(wrong(format!("window functions are not allowed in {place}"))))
}

/// Refuses window functions among the arguments of one.
pub(super) fn refuse_nested(function: &Function) -> Lowered<()> {
    if function.over.is_none() {
        return Ok(());
    }
    each_call(&function.args, |_| Err(wrong("window function calls cannot be nested")))
}

/// Checks what a select list and the ORDER BY behind it say about windows.
pub(super) fn check(select: &Select, order_by: Option<&OrderBy>) -> Lowered<()> {
    let named = Named::of(&select.named_window)?;
    for (_, spec) in &named.0 {
        check_spec(spec)?;
    }
    let check = |over: &WindowType| check_spec(&named.resolved(over)?);
    each_call(&select.projection, check)?;
    each_call(&select.distinct, check)?;
    order_by.map_or(Ok(()), |order_by| each_call(order_by, check))
}

/// Puts what names stand for in their place. What [`check`] would refuse stays.
pub(crate) fn resolve(query: &mut Query) {
    struct Resolving {
        named: Named,
        subqueries: usize,
    }
    impl VisitorMut for Resolving {
        type Break = ();

        fn pre_visit_query(&mut self, _query: &mut Query) -> ControlFlow<()> {
            self.subqueries += 1;
            ControlFlow::Continue(())
        }

        fn post_visit_query(&mut self, _query: &mut Query) -> ControlFlow<()> {
            self.subqueries -= 1;
            ControlFlow::Continue(())
        }

        fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
            if let Expr::Function(Function { over: Some(over), .. }) = expr
                && self.subqueries == 0
                && let Ok(spec) = self.named.resolved(over)
            {
                *over = WindowType::WindowSpec(spec);
            }
            ControlFlow::Continue(())
        }
    }
    let crate::ast::SetExpr::Select(select) = query.body.as_mut() else { return };
    let Ok(named) = Named::of(&select.named_window) else { return };
    let mut resolving = Resolving { named, subqueries: 0 };
    let _: ControlFlow<()> = VisitMut::visit(&mut select.projection, &mut resolving);
    let _: ControlFlow<()> = VisitMut::visit(&mut select.distinct, &mut resolving);
    let _: ControlFlow<()> = VisitMut::visit(&mut query.order_by, &mut resolving);
    select.named_window.clear();
}

/// The windows of a WINDOW clause, each without the name of another.
struct Named(Vec<(String, WindowSpec)>);

impl Named {
    fn of(definitions: &[NamedWindowDefinition]) -> Lowered<Self> {
        let mut named = Self(Vec::new());
        for NamedWindowDefinition(name, expr) in definitions {
            let name = folded(name);
            if named.0.iter().any(|(known, _)| *known == name) {
                return Err(wrong(format!("window \"{name}\" is already defined")));
            }
            let spec = match expr {
                NamedWindowExpr::NamedWindow(other) => named.find(other)?.clone(),
                NamedWindowExpr::WindowSpec(spec) => named.completed(spec)?,
            };
            named.0.push((name, spec));
        }
        Ok(named)
    }

    fn find(&self, name: &Ident) -> Lowered<&WindowSpec> {
        let name = folded(name);
        let found = self.0.iter().find(|(known, _)| *known == name);
        found.map(|(_, spec)| spec).ok_or_else(|| {
            SqlError::new(SqlState::NO_SUCH_OBJECT, format!("window \"{name}\" does not exist")).about(&[&name])
        })
    }

    fn resolved(&self, over: &WindowType) -> Lowered<WindowSpec> {
        match over {
            WindowType::NamedWindow(name) => self.find(name).cloned(),
            WindowType::WindowSpec(spec) => self.completed(spec),
        }
    }

    /// A window with what the one that it names says.
    fn completed(&self, spec: &WindowSpec) -> Lowered<WindowSpec> {
        let Some(name) = &spec.window_name else { return Ok(spec.clone()) };
        let base = self.find(name)?;
        let name = folded(name);
        if !spec.partition_by.is_empty() {
            return Err(wrong(format!("cannot override PARTITION BY clause of window \"{name}\"")));
        }
        if !spec.order_by.is_empty() && !base.order_by.is_empty() {
            return Err(wrong(format!("cannot override ORDER BY clause of window \"{name}\"")));
        }
        if base.window_frame.is_some() {
            let error = wrong(format!("cannot copy window \"{name}\" because it has a frame clause"));
            let only_name = spec.order_by.is_empty() && spec.window_frame.is_none();
            return Err(if only_name { error.hint("Omit the parentheses in this OVER clause.") } else { error });
        }
        let order_by = if spec.order_by.is_empty() { &base.order_by } else { &spec.order_by };
        Ok(WindowSpec {
            window_name: None,
            partition_by: base.partition_by.clone(),
            order_by: order_by.clone(),
            window_frame: spec.window_frame.clone(),
        })
    }
}

/// Checks a window without the name of another.
fn check_spec(spec: &WindowSpec) -> Lowered<()> {
    for expr in spec.partition_by.iter().chain(spec.order_by.iter().map(|key| &key.expr)) {
        refuse(expr, "window definitions")?;
    }
    let Some(frame) = &spec.window_frame else { return Ok(()) };
    check_bounds(frame)?;
    let bounds = || std::iter::once(&frame.start_bound).chain(&frame.end_bound);
    let has_offset = bounds().any(|bound| offset(bound).is_some());
    match frame.units {
        WindowFrameUnits::Range if has_offset && spec.order_by.len() != 1 => {
            return Err(wrong("RANGE with offset PRECEDING/FOLLOWING requires exactly one ORDER BY column"));
        }
        WindowFrameUnits::Groups if spec.order_by.is_empty() => {
            return Err(wrong("GROUPS mode requires an ORDER BY clause"));
        }
        WindowFrameUnits::Rows | WindowFrameUnits::Range | WindowFrameUnits::Groups => {}
    }
    for (bound, side) in bounds().zip(["starting", "ending"]) {
        if let Some(expr) = offset(bound) {
            check_offset(expr, frame.units, side)?;
        }
    }
    Ok(())
}

fn offset(bound: &WindowFrameBound) -> Option<&Expr> {
    match bound {
        WindowFrameBound::Preceding(Some(expr)) | WindowFrameBound::Following(Some(expr)) => Some(expr),
        WindowFrameBound::CurrentRow | WindowFrameBound::Preceding(None) | WindowFrameBound::Following(None) => None,
    }
}

fn check_bounds(frame: &WindowFrame) -> Lowered<()> {
    use WindowFrameBound::{CurrentRow, Following, Preceding};
    Err(wrong(match (&frame.start_bound, &frame.end_bound) {
        (Following(None), _) => "frame start cannot be UNBOUNDED FOLLOWING",
        (_, Some(Preceding(None))) => "frame end cannot be UNBOUNDED PRECEDING",
        (Following(Some(_)), None) => "frame starting from following row cannot end with current row",
        (CurrentRow, Some(Preceding(Some(_)))) => "frame starting from current row cannot have preceding rows",
        (Following(Some(_)), Some(Preceding(Some(_)) | CurrentRow)) => {
            "frame starting from following row cannot have preceding rows"
        }
        _ => return Ok(()),
    }))
}

/// Offsets are constants: numbers of rows or groups, or what is taken from a key.
fn check_offset(expr: &Expr, units: WindowFrameUnits, side: &str) -> Lowered<()> {
    let is_range = units == WindowFrameUnits::Range;
    let negative = || {
        let message = if is_range {
            "invalid preceding or following size in window function".to_string()
        } else {
            format!("frame {side} offset must not be negative")
        };
        Err(SqlError::new(SqlState::INVALID_FRAME_SIZE, message))
    };
    match expr {
        Expr::Value(value) => match &value.value {
            Value::Number(digits, _) if is_range || digits.parse::<u64>().is_ok() => return Ok(()),
            Value::SingleQuotedString(text) if is_range && text.trim_start().starts_with('-') => return negative(),
            Value::SingleQuotedString(_) if is_range => return Ok(()),
            Value::Null => {
                let message = format!("frame {side} offset must not be null");
                return Err(SqlError::new(SqlState::NULL_NOT_ALLOWED, message));
            }
            _ => {}
        },
        Expr::Interval(interval) if is_range => {
            if let Expr::Value(value) = interval.value.as_ref() {
                return match &value.value {
                    Value::SingleQuotedString(text) if text.trim_start().starts_with('-') => negative(),
                    _ => Ok(()),
                };
            }
        }
        Expr::UnaryOp { op: UnaryOperator::Minus, expr } if matches!(expr.as_ref(), Expr::Value(_)) => {
            return negative();
        }
        _ => {}
    }
    Err(SqlError::unsupported("a frame's offset that is not a constant", "Write a number, or an interval for RANGE."))
}
