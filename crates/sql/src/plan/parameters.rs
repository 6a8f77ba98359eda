//! The types of a statement's parameters: declared by the client, inferred from where they stand, or text.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType as ArrowType, Field, FieldRef};
use datafusion::logical_expr::LogicalPlan;
use eris_binder::{Text, visit_expressions};

use super::analyze::parameters_of_rows;
use super::errors::datafusion_error;
use crate::arrow_view::{arrow_type, sql_type_of_arrow};
use crate::ast::{self, Expr, Value};
use crate::errors::{SqlError, SqlState};
use crate::types::SqlType;

/// Types by position; `None` is not known yet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ParameterTypes(pub Vec<Option<SqlType>>);

impl ParameterTypes {
    /// What the client declared; "unknown" is nothing.
    pub fn declared(types: &[Option<SqlType>]) -> Self {
        Self(types.iter().map(|known| known.filter(|known| *known != SqlType::Unknown)).collect())
    }

    /// The type of parameter `index`.
    pub fn get(&self, index: usize) -> Option<SqlType> {
        self.0.get(index).copied().flatten()
    }

    /// Notes a type unless one is known.
    pub fn suggest(&mut self, index: usize, sql_type: SqlType) {
        self.make_room(index);
        self.0[index].get_or_insert(sql_type);
    }

    /// Makes room for a parameter, whose type may never be known.
    pub fn make_room(&mut self, index: usize) {
        if self.0.len() <= index {
            self.0.resize(index + 1, None);
        }
    }

    /// Makes room for every parameter that the statement names.
    pub fn cover<'a>(&mut self, text: impl Into<Text<'a>>) {
        visit_expressions(text, &mut |expr| {
            if let Some(index) = bare_parameter(expr) {
                self.make_room(index);
            }
        });
    }

    /// As DataFusion's binder wants them.
    pub fn fields(&self) -> Vec<Option<FieldRef>> {
        self.0
            .iter()
            .map(|known| {
                let known = (*known)?;
                Some(Arc::new(Field::new("", arrow_type(known.data_type()), true)))
            })
            .collect()
    }

    /// Takes over what the binder inferred. Integer types come from literals as 64 bits; that is kept.
    pub fn infer(&mut self, plan: &LogicalPlan) -> Result<(), SqlError> {
        let mut inferred =
            Vec::from_iter(eris_binder::parameter_types(plan).map_err(|error| datafusion_error(&error))?);
        if !self.is_complete() {
            let of_rows = parameters_of_rows(plan).map_err(|error| datafusion_error(&error))?;
            inferred.extend(of_rows.into_iter().map(|(name, data_type)| (name, Some(data_type))));
        }
        for (name, data_type) in inferred {
            let Some(index) = index_of(&name) else { continue };
            self.make_room(index);
            if let Some(data_type) = data_type.filter(|data_type| *data_type != ArrowType::Null) {
                self.0[index].get_or_insert(sql_type_of_arrow(&data_type)?);
            }
        }
        Ok(())
    }

    /// Whether a type is still open.
    pub fn is_complete(&self) -> bool {
        self.0.iter().all(Option::is_some)
    }

    /// Everything still open is text, as in PostgreSQL.
    pub fn finish(&self) -> Vec<SqlType> {
        self.0.iter().map(|known| known.unwrap_or(SqlType::Text)).collect()
    }
}

/// `$3` is parameter 2.
pub(super) fn index_of(name: &str) -> Option<usize> {
    name.strip_prefix('$')?.parse::<usize>().ok()?.checked_sub(1)
}

/// The index of an expression that is nothing but a parameter.
pub(super) fn bare_parameter(expr: &Expr) -> Option<usize> {
    match expr {
        Expr::Value(value) => match &value.value {
            Value::Placeholder(name) => index_of(name),
            _ => None,
        },
        Expr::Nested(inner) => bare_parameter(inner),
        _ => None,
    }
}

/// LIMIT and OFFSET take bigint, also those of queries within; casts say their type themselves.
pub(super) fn suggest_from_query(query: &mut ast::Query, types: &mut ParameterTypes) {
    eris_binder::rewrite_query(query, &mut Limits(types));
    suggest_from_casts(&*query, types);
}

/// Looks at the LIMIT of every query.
struct Limits<'a>(&'a mut ParameterTypes);

impl eris_binder::RewriteQuery for Limits<'_> {
    fn query(&mut self, query: &mut ast::Query) {
        let Some(ast::LimitClause::LimitOffset { limit, offset, .. }) = &query.limit_clause else { return };
        for expr in limit.iter().chain(offset.as_ref().map(|offset| &offset.value)) {
            if let Some(index) = bare_parameter(expr) {
                self.0.suggest(index, SqlType::BigInt);
            }
        }
    }

    fn select(&mut self, _select: &mut ast::Select) {}

    fn expression(&mut self, _expr: &mut Expr) {}
}

/// `$1::date` is a date.
pub(super) fn suggest_from_casts<'a>(text: impl Into<Text<'a>>, types: &mut ParameterTypes) {
    visit_expressions(text, &mut |expr| {
        if let Expr::Cast { expr, data_type, .. } = expr
            && let Some(index) = bare_parameter(expr)
            && let Ok(sql_type) = crate::front::sql_type_of(data_type)
        {
            types.suggest(index, sql_type);
        }
    });
}

/// The error for a wrong number of values.
pub(crate) fn wrong_count(expected: usize, given: usize) -> SqlError {
    SqlError::new(
        SqlState::PROTOCOL,
        format!("bind message supplies {given} parameters, but the statement requires {expected}"),
    )
}
