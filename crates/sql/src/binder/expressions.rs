//! Expressions: each operand first, then the operator that takes such operands.

use eris_operators::{DatePart, Span};
use eris_query::resolve::Typing;
use eris_query::{Scalar, ScalarKind, TypeKind, Unplanned, call, common_type, is_aggregate};
use eris_storage::Value;

use super::scope::Scope;
use super::{Binder, Binding, COPIED_MAX, DEPTH_MAX, literals, moments};
use crate::ast::{
    BinaryOperator, CaseWhen, CastKind, DataType, DateTimeField, Expr, ExtractSyntax, Function, FunctionArg,
    FunctionArgExpr, FunctionArguments, TypedString, UnaryOperator,
};
use crate::front::{is_bare_numeric, sql_type_of};
use crate::plan::folded;
use crate::types::SqlType;

/// Comparisons of a list that is no list of constants, at most.
const COMPARED_ITEMS_MAX: usize = 8;

impl Binder<'_> {
    /// An expression over the columns of a scope. A literal may be left without a type.
    pub(super) fn expression(&mut self, expr: &Expr, scope: &Scope<'_>) -> Binding<Scalar> {
        self.within(expr, scope, DEPTH_MAX)
    }

    /// A truth value.
    pub(super) fn condition(&mut self, expr: &Expr, scope: &Scope<'_>) -> Binding<Scalar> {
        self.truth(expr, scope, DEPTH_MAX)
    }

    /// An expression with the type that it has if nothing else says one: literals are texts.
    pub(super) fn settled(&mut self, expr: &Expr, scope: &Scope<'_>) -> Binding<Scalar> {
        let scalar = self.expression(expr, scope)?;
        if scalar.sql_type == SqlType::Unknown { self.typed(scalar, SqlType::Text) } else { Ok(scalar) }
    }

    pub(super) fn truth(&mut self, expr: &Expr, scope: &Scope<'_>, depth: usize) -> Binding<Scalar> {
        let scalar = self.within(expr, scope, depth)?;
        match scalar.sql_type {
            SqlType::Boolean => Ok(scalar),
            SqlType::Unknown => self.typed(scalar, SqlType::Boolean),
            other => Err(Unplanned(format!("a condition of type {other}"))),
        }
    }

    pub(super) fn within(&mut self, expr: &Expr, scope: &Scope<'_>, depth: usize) -> Binding<Scalar> {
        let depth = depth.checked_sub(1).ok_or_else(|| Unplanned::because("an expression of many levels"))?;
        Ok(match expr {
            Expr::Nested(inner) => self.within(inner, scope, depth)?,
            Expr::Identifier(name) => scope.column(None, &folded(name))?,
            Expr::CompoundIdentifier(parts) => match parts.as_slice() {
                [table, name] => scope.column(Some(&folded(table)), &folded(name))?,
                _ => return Err(Unplanned(format!("the name {expr}"))),
            },
            Expr::Value(value) => literals::literal(self, &value.value)?,
            Expr::TypedString(TypedString { data_type, value, uses_odbc_syntax: false }) => {
                let text = literals::literal(self, &value.value)?;
                self.cast(text, data_type)?
            }
            Expr::UnaryOp { op, expr: operand } => self.prefix(*op, operand, scope, depth)?,
            Expr::BinaryOp { .. } => self.chain(expr, scope, depth)?,
            Expr::IsNull(input) => self.is_null(input, false, scope, depth)?,
            Expr::IsNotNull(input) => self.is_null(input, true, scope, depth)?,
            Expr::IsTrue(input) => self.is_truth(input, true, false, scope, depth)?,
            Expr::IsNotTrue(input) => self.is_truth(input, true, true, scope, depth)?,
            Expr::IsFalse(input) => self.is_truth(input, false, false, scope, depth)?,
            Expr::IsNotFalse(input) => self.is_truth(input, false, true, scope, depth)?,
            Expr::Between { expr: input, negated, low, high } => {
                let input = self.within(input, scope, depth)?;
                copied(&input, 2)?;
                let (low, high) = (self.within(low, scope, depth)?, self.within(high, scope, depth)?);
                let above = call(">=", vec![input.clone(), low], self)?;
                let below = call("<=", vec![input, high], self)?;
                let both = Scalar::and([above, below]);
                if *negated { both.negated() } else { both }
            }
            Expr::InList { expr: input, list, negated } => self.in_list(input, list, *negated, scope, depth)?,
            Expr::Like { negated, any: false, expr: input, pattern, escape_char: None } => {
                self.operator(if *negated { "!~~" } else { "~~" }, input, pattern, scope, depth)?
            }
            Expr::ILike { negated, any: false, expr: input, pattern, escape_char: None } => {
                self.operator(if *negated { "!~~*" } else { "~~*" }, input, pattern, scope, depth)?
            }
            Expr::Case { operand, conditions, else_result, case_token: _, end_token: _ } => {
                self.case(operand.as_deref(), conditions, else_result.as_deref(), scope, depth)?
            }
            Expr::Cast {
                kind: CastKind::Cast | CastKind::DoubleColon,
                expr: input,
                data_type,
                array: false,
                format: None,
            } => {
                let input = self.within(input, scope, depth)?;
                self.cast(input, data_type)?
            }
            Expr::Function(function) => self.function(function, scope, depth)?,
            Expr::Extract { field, syntax: ExtractSyntax::From, expr: moment } => {
                let moment = self.within(moment, scope, depth)?;
                extract(field, moment)?
            }
            Expr::Exists { subquery, negated } => self.exists(subquery, *negated, scope)?,
            Expr::InSubquery { expr: input, subquery, negated } => {
                let input = self.within(input, scope, depth)?;
                self.in_subquery(input, subquery, *negated, scope)?
            }
            Expr::Subquery(query) => self.value_of(query, scope)?,
            Expr::Substring { expr: text, substring_from: Some(start), substring_for: count, .. } => {
                let text = self.within(text, scope, depth)?;
                self.substring(text, start, count.as_deref(), scope, depth)?
            }
            other => return Err(Unplanned(format!("the expression {other}"))),
        })
    }

    fn operator(&mut self, name: &str, left: &Expr, right: &Expr, scope: &Scope<'_>, depth: usize) -> Binding<Scalar> {
        let operands = vec![self.within(left, scope, depth)?, self.within(right, scope, depth)?];
        call(name, operands, self)
    }

    fn prefix(&mut self, op: UnaryOperator, operand: &Expr, scope: &Scope<'_>, depth: usize) -> Binding<Scalar> {
        if op == UnaryOperator::Minus
            && let Some(digits) = written_number(operand)
        {
            return literals::number(digits, true);
        }
        match op {
            UnaryOperator::Not => Ok(self.truth(operand, scope, depth)?.negated()),
            UnaryOperator::Minus => {
                let operand = self.within(operand, scope, depth)?;
                call("-", vec![operand], self)
            }
            UnaryOperator::Plus => {
                let operand = self.within(operand, scope, depth)?;
                let is_number = operand.sql_type.kind().category() == eris_query::Category::Numeric;
                if is_number { Ok(operand) } else { Err(Unplanned(format!("+ of {}", operand.sql_type))) }
            }
            other => Err(Unplanned(format!("the operator {other}"))),
        }
    }

    /// Operators in a row: they lean to the left, and may be many.
    fn chain(&mut self, expr: &Expr, scope: &Scope<'_>, depth: usize) -> Binding<Scalar> {
        let mut links = Vec::new();
        let mut first = expr;
        while let Expr::BinaryOp { left, op, right } = first {
            links.push((op, right.as_ref()));
            first = left;
        }
        let is_logic = |op: &BinaryOperator| matches!(op, BinaryOperator::And | BinaryOperator::Or);
        // An AND or OR of many parts is one node; every other operator is a level more.
        let levels = links.iter().filter(|(op, _)| !is_logic(op)).count();
        if levels > depth {
            return Err(Unplanned::because("an expression of many levels"));
        }
        let mut scalar = self.within(first, scope, depth)?;
        let mut links = links.into_iter().rev().peekable();
        while let Some((op, right)) = links.next() {
            if is_logic(op) {
                let mut parts = vec![self.as_truth(scalar)?, self.truth(right, scope, depth)?];
                while let Some((_, right)) = links.next_if(|(next, _)| *next == op) {
                    parts.push(self.truth(right, scope, depth)?);
                }
                scalar = if *op == BinaryOperator::And { Scalar::and(parts) } else { Scalar::or(parts) };
                continue;
            }
            if let Some(span) = moments::span_of(right) {
                scalar = moments::moved(&scalar, op, span?)?;
                continue;
            }
            let name = operator_name(op).ok_or_else(|| Unplanned(format!("the operator {op}")))?;
            let right = self.within(right, scope, depth)?;
            scalar = call(name, vec![scalar, right], self)?;
        }
        Ok(scalar)
    }

    fn as_truth(&mut self, scalar: Scalar) -> Binding<Scalar> {
        match scalar.sql_type {
            SqlType::Boolean => Ok(scalar),
            SqlType::Unknown => self.typed(scalar, SqlType::Boolean),
            other => Err(Unplanned(format!("a condition of type {other}"))),
        }
    }

    fn is_null(&mut self, input: &Expr, negated: bool, scope: &Scope<'_>, depth: usize) -> Binding<Scalar> {
        let input = self.within(input, scope, depth)?;
        if input.sql_type == SqlType::Unknown {
            return Err(Unplanned::because("IS NULL of a literal"));
        }
        Ok(Scalar::condition(ScalarKind::IsNull { input: Box::new(input), negated }))
    }

    fn is_truth(
        &mut self,
        input: &Expr,
        truth: bool,
        negated: bool,
        scope: &Scope<'_>,
        depth: usize,
    ) -> Binding<Scalar> {
        let input = Box::new(self.truth(input, scope, depth)?);
        Ok(Scalar::condition(ScalarKind::IsTruth { input, truth, negated }))
    }

    /// Constants of the input's type are looked up; a few items of other kinds are compared one after the other.
    fn in_list(
        &mut self,
        input: &Expr,
        list: &[Expr],
        negated: bool,
        scope: &Scope<'_>,
        depth: usize,
    ) -> Binding<Scalar> {
        let input = self.within(input, scope, depth)?;
        if input.sql_type == SqlType::Unknown {
            return Err(Unplanned::because("IN of a literal"));
        }
        if list.len() > 1 && input.sql_type.kind() == TypeKind::Real {
            // One item is compared as double precision, several are brought to what they have in common.
            return Err(Unplanned::because("IN of a real"));
        }
        if input.as_column().is_none() {
            copied(&input, list.len())?;
        }
        let mut compared = Vec::with_capacity(list.len());
        for item in list {
            let item = self.within(item, scope, depth)?;
            compared.push(call("=", vec![input.clone(), item], self)?);
        }
        let is = if let Some((input, items)) = looked_up(&compared) {
            return Ok(Scalar::condition(ScalarKind::InList { input: Box::new(input), items, negated }));
        } else if compared.len() <= COMPARED_ITEMS_MAX {
            // What is computed is computed for every item.
            Scalar::or(compared)
        } else {
            return Err(Unplanned::because("a long list of expressions"));
        };
        Ok(if negated { is.negated() } else { is })
    }

    fn case(
        &mut self,
        operand: Option<&Expr>,
        conditions: &[CaseWhen],
        otherwise: Option<&Expr>,
        scope: &Scope<'_>,
        depth: usize,
    ) -> Binding<Scalar> {
        let operand = operand.map(|operand| self.within(operand, scope, depth)).transpose()?;
        operand.iter().try_for_each(|operand| copied(operand, conditions.len()))?;
        let mut branches = Vec::with_capacity(conditions.len());
        for CaseWhen { condition, result } in conditions {
            let condition = match &operand {
                None => self.truth(condition, scope, depth)?,
                Some(operand) => {
                    let value = self.within(condition, scope, depth)?;
                    call("=", vec![operand.clone(), value], self)?
                }
            };
            branches.push((condition, self.within(result, scope, depth)?));
        }
        let otherwise = otherwise.map(|otherwise| self.within(otherwise, scope, depth)).transpose()?;
        self.first_of(branches, otherwise, ElseComes::First)
    }

    /// A CASE whose results are brought to the type that they have in common.
    fn first_of(
        &mut self,
        mut branches: Vec<(Scalar, Scalar)>,
        mut otherwise: Option<Scalar>,
        comes: ElseComes,
    ) -> Binding<Scalar> {
        let types_of = |branches: &[(Scalar, Scalar)], otherwise: &Option<Scalar>| -> Vec<SqlType> {
            let mut types: Vec<SqlType> = branches.iter().map(|(_, result)| result.sql_type).collect();
            if let Some(otherwise) = otherwise {
                let at = if comes == ElseComes::First { 0 } else { types.len() };
                types.insert(at, otherwise.sql_type);
            }
            types
        };
        let mut types = types_of(&branches, &otherwise);
        if common_type(&types).is_some_and(|common| common.kind() == TypeKind::Numeric) {
            // A literal has the digits that are written: they are part of what all have in common.
            let results = branches.iter_mut().map(|(_, result)| result).chain(&mut otherwise);
            for result in results.filter(|result| result.sql_type == SqlType::Unknown) {
                match result.as_constant() {
                    None => return Err(Unplanned::because("a parameter beside numerics")),
                    Some(Value::Null) => {}
                    Some(_) => *result = self.typed(result.clone(), SqlType::NUMERIC)?,
                }
            }
            types = types_of(&branches, &otherwise);
        }
        let sql_type = common_type(&types).ok_or_else(|| Unplanned(format!("results of the types {types:?}")))?;
        let mut brought = Vec::with_capacity(branches.len());
        for (condition, result) in branches {
            brought.push((condition, self.brought(result, sql_type)?));
        }
        let otherwise = otherwise.map(|otherwise| self.brought(otherwise, sql_type)).transpose()?.map(Box::new);
        Ok(Scalar { kind: ScalarKind::Case { branches: brought, otherwise }, sql_type })
    }

    fn brought(&mut self, scalar: Scalar, to: SqlType) -> Binding<Scalar> {
        match scalar.sql_type {
            SqlType::Unknown => {
                let read = self.typed(scalar, to)?;
                Ok(read.cast(to))
            }
            _ => Ok(scalar.cast(to)),
        }
    }

    /// An explicit cast, as far as there is a kernel for it.
    fn cast(&mut self, input: Scalar, data_type: &DataType) -> Binding<Scalar> {
        let to = sql_type_of(data_type).map_err(Unplanned::because)?;
        let cuts = matches!(to, SqlType::Varchar(Some(_)) | SqlType::Char(_));
        let from = input.sql_type;
        if from == SqlType::Unknown {
            if cuts {
                return Err(Unplanned(format!("a cast that may cut a text to {to}")));
            }
            if matches!(input.kind, ScalarKind::Parameter(_)) {
                return self.typed(input, to);
            }
            let read = self.typed(input, to)?;
            return Ok(if is_bare_numeric(data_type) || read.sql_type.kind() != TypeKind::Numeric {
                read
            } else {
                fits(read.cast(to))?
            });
        }
        if from == to {
            return Ok(input);
        }
        // What a client or a text gives may not fit, and that is an error whether or not a row is found.
        let is_given = matches!(input.kind, ScalarKind::Parameter(_));
        if cuts || is_given || is_bare_numeric(data_type) {
            return Err(Unplanned(format!("a cast of {from} to {to}")));
        }
        let is_exact =
            |kind| matches!(kind, TypeKind::SmallInt | TypeKind::Integer | TypeKind::BigInt | TypeKind::Numeric);
        let is_text = |kind| matches!(kind, TypeKind::Text | TypeKind::Varchar);
        match (from.kind(), to.kind()) {
            // Rounding to an integer is no kernel's.
            (TypeKind::Numeric, TypeKind::SmallInt | TypeKind::Integer | TypeKind::BigInt) => {
                Err(Unplanned(format!("a cast of {from} to {to}")))
            }
            (one, other) if is_exact(one) && (is_exact(other) || other == TypeKind::Double) => fits(input.cast(to)),
            (TypeKind::Real, TypeKind::Double) => Ok(input.cast(to)),
            (one, other) if is_text(one) && is_text(other) => Ok(input.cast(to)),
            _ => Err(Unplanned(format!("a cast of {from} to {to}"))),
        }
    }

    fn function(&mut self, function: &Function, scope: &Scope<'_>, depth: usize) -> Binding<Scalar> {
        let unplanned = || Unplanned(format!("the function {}", function.name));
        let [part] = function.name.0.as_slice() else { return Err(unplanned()) };
        let name = part.as_ident().map(folded).ok_or_else(unplanned)?;
        if is_aggregate(&name) {
            return self.aggregate(&name, function, scope, depth);
        }
        let plain = function.filter.is_none()
            && function.over.is_none()
            && function.null_treatment.is_none()
            && function.within_group.is_empty()
            && matches!(function.parameters, FunctionArguments::None);
        let arguments = match &function.args {
            FunctionArguments::None => &[],
            FunctionArguments::List(list) if list.clauses.is_empty() && list.duplicate_treatment.is_none() => {
                list.args.as_slice()
            }
            _ => return Err(unplanned()),
        };
        if !plain {
            return Err(unplanned());
        }
        if arguments.is_empty() {
            return self.session_value(&name).ok_or_else(unplanned);
        }
        if name != "coalesce" {
            return Err(unplanned());
        }
        let mut values = Vec::with_capacity(arguments.len());
        for argument in arguments {
            let FunctionArg::Unnamed(FunctionArgExpr::Expr(argument)) = argument else { return Err(unplanned()) };
            values.push(self.within(argument, scope, depth)?);
        }
        self.coalesce(values)
    }

    fn substring(
        &mut self,
        text: Scalar,
        start: &Expr,
        count: Option<&Expr>,
        scope: &Scope<'_>,
        depth: usize,
    ) -> Binding<Scalar> {
        let refused = || Unplanned::because("substring with bounds that are computed");
        let text = match text.sql_type.kind() {
            TypeKind::Text | TypeKind::Varchar => text,
            TypeKind::Unknown => self.typed(text, SqlType::Text)?,
            _ => return Err(Unplanned(format!("substring of {}", text.sql_type))),
        };
        let mut bound = |expr: &Expr| match self.within(expr, scope, depth)?.as_constant() {
            Some(Value::Int32(value)) => Ok(i64::from(*value)),
            _ => Err(refused()),
        };
        let (start, count) = (bound(start)?, count.map(&mut bound).transpose()?);
        let span = Span::new(start, count).ok_or_else(refused)?;
        let kind = ScalarKind::Function { function: eris_query::Function::Substring(span), input: Box::new(text) };
        Ok(Scalar { kind, sql_type: SqlType::Text })
    }

    /// `CASE WHEN a IS NOT NULL THEN a ... ELSE last END`. What is computed twice must be cheap.
    fn coalesce(&mut self, mut values: Vec<Scalar>) -> Binding<Scalar> {
        let last = values.pop();
        let mut branches = Vec::with_capacity(values.len());
        for value in values {
            let cheap =
                matches!(value.kind, ScalarKind::Column(_) | ScalarKind::Constant(_) | ScalarKind::Parameter(_));
            if !cheap || value.sql_type == SqlType::Unknown {
                return Err(Unplanned::because("coalesce of an expression"));
            }
            let there = ScalarKind::IsNull { input: Box::new(value.clone()), negated: true };
            branches.push((Scalar::condition(there), value));
        }
        if branches.is_empty() {
            return Err(Unplanned::because("coalesce of one value"));
        }
        self.first_of(branches, last, ElseComes::Last)
    }
}

/// Refuses copies that would be too many.
fn copied(scalar: &Scalar, times: usize) -> Binding<()> {
    let is_small = scalar.size().saturating_mul(times) <= COPIED_MAX;
    if is_small { Ok(()) } else { Err(Unplanned::because("an expression that would be copied often")) }
}

/// Where the last result stands among those whose common type is looked for: of types that become each other the first
/// one counts, and PostgreSQL looks at ELSE before anything else.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ElseComes {
    First,
    Last,
}

/// `extract(field from moment)`.
fn extract(field: &DateTimeField, moment: Scalar) -> Binding<Scalar> {
    let part = match field {
        DateTimeField::Year => DatePart::Year,
        DateTimeField::Month => DatePart::Month,
        DateTimeField::Day => DatePart::Day,
        other => return Err(Unplanned(format!("extract {other}"))),
    };
    if !matches!(moment.sql_type, SqlType::Date | SqlType::Timestamp) {
        return Err(Unplanned(format!("extract from {}", moment.sql_type)));
    }
    let kind = ScalarKind::Function { function: eris_query::Function::Extract(part), input: Box::new(moment) };
    Ok(Scalar { kind, sql_type: SqlType::Integer })
}

/// The digits of a number, also in brackets.
fn written_number(expr: &Expr) -> Option<&str> {
    match expr {
        Expr::Nested(inner) => written_number(inner),
        Expr::Value(value) => match &value.value {
            crate::ast::Value::Number(digits, false) => Some(digits),
            _ => None,
        },
        _ => None,
    }
}

/// A constant that was cast, unless it does not fit: then the error is for others to tell.
fn fits(scalar: Scalar) -> Binding<Scalar> {
    match &scalar.kind {
        ScalarKind::Cast(input) if input.as_constant().is_some() => {
            Err(Unplanned::because("a constant that does not fit"))
        }
        _ => Ok(scalar),
    }
}

/// The input and the constants of comparisons all of which compare the same input with a constant of its type.
fn looked_up(compared: &[Scalar]) -> Option<(Scalar, Vec<Value>)> {
    let mut items = Vec::with_capacity(compared.len());
    let mut input: Option<&Scalar> = None;
    for comparison in compared {
        let ScalarKind::Call { operands, .. } = &comparison.kind else { return None };
        let [own, item] = operands.as_slice() else { return None };
        let own = own.kept_column().unwrap_or(own);
        if !input.get_or_insert(own).is_same(own) {
            return None;
        }
        let item = match own.sql_type.kind() {
            TypeKind::SmallInt | TypeKind::Integer | TypeKind::BigInt => item.clone().cast(own.sql_type),
            _ => item.clone(),
        };
        if own.sql_type.data_type().physical() != item.sql_type.data_type().physical()
            && own.sql_type.kind() != TypeKind::Numeric
        {
            return None;
        }
        items.push(item.as_constant()?.clone());
    }
    Some((input?.clone(), items))
}

/// The name that an operator has among the signatures.
fn operator_name(op: &BinaryOperator) -> Option<&'static str> {
    Some(match op {
        BinaryOperator::Eq => "=",
        BinaryOperator::NotEq => "<>",
        BinaryOperator::Lt => "<",
        BinaryOperator::LtEq => "<=",
        BinaryOperator::Gt => ">",
        BinaryOperator::GtEq => ">=",
        BinaryOperator::Plus => "+",
        BinaryOperator::Minus => "-",
        BinaryOperator::Multiply => "*",
        BinaryOperator::Divide => "/",
        BinaryOperator::Modulo => "%",
        BinaryOperator::PGLikeMatch => "~~",
        BinaryOperator::PGNotLikeMatch => "!~~",
        BinaryOperator::PGILikeMatch => "~~*",
        BinaryOperator::PGNotILikeMatch => "!~~*",
        _ => return None,
    })
}
