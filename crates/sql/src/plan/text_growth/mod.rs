//! Functions that make texts: what a call builds is bounded and reserved before it is built.
//!
//! ```text
//!   arguments of a batch -> growth: bytes of the result, at most
//!       more than a text may have          -> 54000
//!       planning, and more than 4 KiB      -> not folded: the call stays in the plan and runs with the statement
//!       not free in the database's memory  -> 53200
//!       else: reserve -> call -> the result, which keeps what it takes reserved as long as its buffers are there
//! ```
//! A text may have a gigabyte, as in PostgreSQL. The reservation goes along with a large result ([`charged`]): the
//! columns of a select list, the branches of a CASE and the stages of a query add up, whoever holds them.

mod charged;
mod growth;
mod join;

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use datafusion::arrow::compute::concat;
use datafusion::arrow::datatypes::FieldRef;
use datafusion::common::config::{ConfigEntry, ConfigExtension, ExtensionOptions};
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, DataFusionError, Result, ScalarValue, exec_err};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool, MemoryReservation};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl};
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};

use super::wrapping::says_as_inner;
use crate::errors::{SqlError, SqlState};

pub(crate) use charged::constant_texts;
use growth::{Bytes, Growth};

/// The longest text that a function makes, in bytes.
const TEXT_BYTES_MAX: u64 = 0x3fff_ffff;

/// A longer constant result is not computed while a statement is planned. So a plan's constants stay within what is
/// reserved for its text (a call of few tokens, with the copies that planning makes of its result), and planning, which
/// nothing interrupts, does not take long.
const FOLDED_BYTES_MAX: u64 = 4 << 10;

/// Calls that build less are not reserved: it would cost more than they do.
const FREE_BYTES: u64 = 16 << 10;

/// Where only a bound is known, rows are computed in slices for which it is at most this: each is reserved by the bound
/// and then takes what it really has.
const SLICE_BYTES: u64 = 4 << 20;

/// Says to functions that they are called while a statement is planned.
#[derive(Clone, Debug)]
pub(super) struct Planning;

impl ConfigExtension for Planning {
    const PREFIX: &'static str = "eris_planning";
}

impl ExtensionOptions for Planning {
    fn as_any(&self) -> &dyn std::any::Any {
        self
    }

    fn as_any_mut(&mut self) -> &mut dyn std::any::Any {
        self
    }

    fn cloned(&self) -> Box<dyn ExtensionOptions> {
        Box::new(self.clone())
    }

    fn set(&mut self, key: &str, _value: &str) -> Result<()> {
        exec_err!("no option {key}")
    }

    fn entries(&self) -> Vec<ConfigEntry> {
        Vec::new()
    }
}

/// A function that is bounded.
struct Bounded {
    inner: Arc<ScalarUDF>,
    growth: Growth,
    memory: Arc<dyn MemoryPool>,
}

impl fmt::Debug for Bounded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Bounded({})", self.inner.name())
    }
}

// Of one database there is one function of a name.
impl PartialEq for Bounded {
    fn eq(&self, other: &Self) -> bool {
        self.inner == other.inner
    }
}

impl Eq for Bounded {}

impl Hash for Bounded {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.inner.hash(state);
    }
}

/// The function, bounded if it makes texts.
pub(super) fn bounded(function: Arc<ScalarUDF>, memory: &Arc<dyn MemoryPool>) -> Arc<ScalarUDF> {
    match Growth::of(function.name()) {
        Some(growth) => {
            Arc::new(ScalarUDF::new_from_impl(Bounded { inner: function, growth, memory: Arc::clone(memory) }))
        }
        None => function,
    }
}

/// What makes texts in a plan, and is no bounded function yet, becomes one: the operator `||`, and calls that parts of
/// the syntax are planned as (`OVERLAY(a PLACING b FROM 1)`).
pub(super) struct TextCalls {
    joining: Arc<ScalarUDF>,
    memory: Arc<dyn MemoryPool>,
}

impl TextCalls {
    pub fn new(memory: &Arc<dyn MemoryPool>) -> Self {
        Self { joining: join::joining(memory), memory: Arc::clone(memory) }
    }

    /// The call for an expression whose operands have their types; `None`: it stays.
    pub fn rewrite(&self, expr: &Expr, columns: &DFSchema) -> Option<Expr> {
        match expr {
            Expr::BinaryExpr(pair) => join::as_call(pair, &self.joining, columns),
            Expr::ScalarFunction(call) if Growth::of(call.name()).is_some() && !call.func.inner().is::<Bounded>() => {
                let function = bounded(Arc::clone(&call.func), &self.memory);
                Some(Expr::ScalarFunction(ScalarFunction::new_udf(function, call.args.clone())))
            }
            _ => None,
        }
    }
}

/// The memory from which functions in this expression reserve what they build; `None`: there are none.
pub(super) fn memory_of(expression: &Arc<dyn PhysicalExpr>) -> Result<Option<Arc<dyn MemoryPool>>> {
    let mut found = None;
    expression.apply(|part| {
        let call = part.downcast_ref::<ScalarFunctionExpr>();
        if let Some(bounded) = call.and_then(|call| call.fun().inner().downcast_ref::<Bounded>()) {
            found = Some(Arc::clone(&bounded.memory));
            return Ok(TreeNodeRecursion::Stop);
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(found)
}

/// Reserves from the database's memory in the name of a function.
fn reserve(memory: &Arc<dyn MemoryPool>, name: &str, bytes: u64) -> Result<MemoryReservation> {
    let reservation = MemoryConsumer::new(name.to_string()).register(memory);
    reservation.try_grow(usize::try_from(bytes).unwrap_or(usize::MAX))?;
    Ok(reservation)
}

fn too_long() -> DataFusionError {
    let error = SqlError::new(SqlState::LIMIT_EXCEEDED, "requested length too large");
    DataFusionError::External(Box::new(error))
}

/// Some of the rows of a call.
fn rows_of(args: &ScalarFunctionArgs, from: usize, rows: usize) -> ScalarFunctionArgs {
    let part = |arg: &ColumnarValue| match arg {
        ColumnarValue::Array(array) => ColumnarValue::Array(array.slice(from, rows)),
        ColumnarValue::Scalar(scalar) => ColumnarValue::Scalar(scalar.clone()),
    };
    ScalarFunctionArgs { args: args.args.iter().map(part).collect(), number_rows: rows, ..args.clone() }
}

impl Bounded {
    /// Both halves of the rows, one after the other.
    fn halves(&self, args: &ScalarFunctionArgs) -> Result<ColumnarValue> {
        let (rows, half) = (args.number_rows, args.number_rows / 2);
        let first = self.invoke_with_args(rows_of(args, 0, half))?.into_array(half)?;
        let second = self.invoke_with_args(rows_of(args, half, rows - half))?.into_array(rows - half)?;
        Ok(ColumnarValue::Array(concat(&[&first, &second])?))
    }
}

impl ScalarUDFImpl for Bounded {
    says_as_inner!();

    fn aliases(&self) -> &[String] {
        self.inner.aliases()
    }

    fn schema_name(&self, args: &[Expr]) -> Result<String> {
        self.inner.schema_name(args)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        self.inner.return_field_from_args(args)
    }

    fn invoke_with_args(&self, mut args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let is_constant = args.args.iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
        if is_constant {
            // Some functions would make the same result for each row.
            args.number_rows = 1;
        }
        let rows = args.number_rows;
        let Bytes { longest, all, spread } = self.growth.bytes(&args.args, rows)?;
        if longest > TEXT_BYTES_MAX && self.growth.is_exact() {
            return Err(too_long());
        }
        if all > FOLDED_BYTES_MAX && args.config_options.extensions.get::<Planning>().is_some() {
            // What has no value while it is planned stays in the plan.
            return exec_err!("{} is computed when the statement runs", self.name());
        }
        if all > SLICE_BYTES && rows > 1 && !self.growth.is_exact() {
            return self.halves(&args);
        }
        // A single value is copied once on its way to what becomes of it.
        let bytes = all.saturating_mul(if is_constant { 2 } else { 1 }).saturating_add(spread);
        let reservation = if bytes < FREE_BYTES { None } else { Some(reserve(&self.memory, self.name(), bytes)?) };
        let made = self.inner.invoke_with_args(args)?;
        if longest > TEXT_BYTES_MAX && Growth::Same.bytes(std::slice::from_ref(&made), rows)?.longest > TEXT_BYTES_MAX {
            return Err(too_long());
        }
        Ok(match (made, reservation) {
            (ColumnarValue::Array(array), _) if is_constant => {
                ColumnarValue::Scalar(ScalarValue::try_from_array(&array, 0)?)
            }
            (ColumnarValue::Array(array), Some(reservation)) => {
                ColumnarValue::Array(charged::charged(array, reservation))
            }
            (value, _) => value,
        })
    }
}

#[cfg(test)]
mod tests;
