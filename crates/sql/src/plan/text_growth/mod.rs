//! Functions that make texts: what a call builds is bounded and reserved before it is built.
//!
//! ```text
//!   arguments of a batch -> growth: bytes of the result, at most
//!       more than a text may have          -> 54000
//!       planning, and more than 4 KiB      -> not folded: the call stays in the plan and runs with the statement
//!       not free in the database's memory  -> 53200
//!       else: reserve -> call -> the result:
//!           rows      -> keeps what it takes reserved as long as its buffers are there, if it is large
//!           constant  -> stays reserved until the expression that it is a part of is evaluated
//! ```
//! A text may have a gigabyte, as in PostgreSQL. The reservation goes along with a large result of many rows
//! ([`charged`]): the columns of a select list, the branches of a CASE and the stages of a query add up, whoever holds
//! them. A constant has no buffer that could carry it; [`held`] keeps it where our operators evaluate an expression.
//! DataFusion's operators do not say when they do: there it goes when the call returns.

mod charged;
mod growth;
mod held;
mod join;

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef};
use datafusion::arrow::compute::concat;
use datafusion::arrow::datatypes::{DataType as ArrowType, FieldRef};
use datafusion::common::config::{ConfigEntry, ConfigExtension, ExtensionOptions};
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, DataFusionError, Result, ScalarValue, exec_err};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool, MemoryReservation};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::{ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl};
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};

use super::wrapping::says_as_inner;
use crate::errors::{SqlError, SqlState};

pub(crate) use charged::constant_texts;
use growth::{Bytes, Growth};
pub(crate) use held::HeldConstants;

/// The longest text that a function makes, in bytes.
const TEXT_BYTES_MAX: u64 = 0x3fff_ffff;

/// A longer constant result is not computed while a statement is planned. So a plan's constants stay within what is
/// reserved for its text (a call of few tokens, with the copies that planning makes of its result), and planning, which
/// nothing interrupts, does not take long.
const FOLDED_BYTES_MAX: u64 = 4 << 10;

/// Where only a bound is known, a constant is computed while a statement is planned if the bound is at most this; its
/// real length then tells whether it stays in the plan.
const TRIED_BYTES_MAX: u64 = 64 << 10;

/// Calls that build less are not reserved: it would cost more than they do.
const FREE_BYTES: u64 = 16 << 10;

/// Where only a bound is known, rows are computed in slices for which it is at most this, or of one row: each is
/// reserved by the bound, and by what it really has as soon as it is there.
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

/// An expression as it is shown: `||` between its operands, as it was written.
pub(super) fn shown(expression: &Expr) -> String {
    let as_operator = expression
        .clone()
        .transform_up(|expr| Ok(join::as_operator(&expr).map_or_else(|| Transformed::no(expr), Transformed::yes)));
    as_operator.map_or_else(|_| expression.to_string(), |shown| shown.data.to_string())
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
    /// What the function makes, none of it too long.
    fn made(&self, args: ScalarFunctionArgs, longest: u64) -> Result<ColumnarValue> {
        let rows = args.number_rows;
        let made = self.inner.invoke_with_args(args)?;
        if longest > TEXT_BYTES_MAX && Growth::Same.bytes(std::slice::from_ref(&made), rows)?.longest > TEXT_BYTES_MAX {
            return Err(too_long());
        }
        Ok(made)
    }

    /// What has no value while it is planned stays in the plan.
    fn later<T>(&self) -> Result<T> {
        exec_err!("{} is computed when the statement runs", self.name())
    }

    /// The rows in slices, put together; all of it is in one reservation.
    fn in_slices(&self, args: &ScalarFunctionArgs) -> Result<ArrayRef> {
        let reservation = reserve(&self.memory, self.name(), 0)?;
        let mut slices = Vec::new();
        self.halves(args, &mut slices, &reservation)?;
        if !matches!(slices[0].data_type(), ArrowType::Utf8View | ArrowType::BinaryView) {
            // They are copied; views stay over the same bytes.
            reservation.try_grow(reservation.size())?;
        }
        let parts: Vec<&dyn Array> = slices.iter().map(AsRef::as_ref).collect();
        let whole = concat(&parts)?;
        drop(slices);
        Ok(charged::charged(whole, reservation))
    }

    fn halves(
        &self,
        args: &ScalarFunctionArgs,
        slices: &mut Vec<ArrayRef>,
        reservation: &MemoryReservation,
    ) -> Result<()> {
        let (rows, half) = (args.number_rows, args.number_rows / 2);
        self.slice(rows_of(args, 0, half), slices, reservation)?;
        self.slice(rows_of(args, half, rows - half), slices, reservation)
    }

    /// One slice, if its bound is small enough; else both halves of it.
    fn slice(
        &self,
        args: ScalarFunctionArgs,
        slices: &mut Vec<ArrayRef>,
        reservation: &MemoryReservation,
    ) -> Result<()> {
        let rows = args.number_rows;
        let Bytes { longest, all, spread } = self.growth.bytes(&args.args, rows)?;
        if all > SLICE_BYTES && rows > 1 {
            return self.halves(&args, slices, reservation);
        }
        let before = reservation.size();
        reservation.try_grow(usize::try_from(all.saturating_add(spread)).unwrap_or(usize::MAX))?;
        let made = self.made(args, longest)?.into_array(rows)?;
        reservation.resize(before + charged::data_bytes(&made));
        slices.push(made);
        Ok(())
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

    fn simplify(&self, args: Vec<Expr>, context: &SimplifyContext) -> Result<ExprSimplifyResult> {
        // What others become would not be bounded.
        if self.inner.name() == join::NAME {
            return self.inner.simplify(args, context);
        }
        Ok(ExprSimplifyResult::Original(args))
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
        let is_planning = args.config_options.extensions.get::<Planning>().is_some();
        if is_planning && all > if self.growth.is_exact() { FOLDED_BYTES_MAX } else { TRIED_BYTES_MAX } {
            return self.later();
        }
        if all > SLICE_BYTES && rows > 1 && !self.growth.is_exact() {
            return Ok(ColumnarValue::Array(self.in_slices(&args)?));
        }
        let times = match self.name() {
            // Its buffer is doubled as it grows: the old one is there beside the new one.
            "concat" | "concat_ws" => 3,
            // A single value is copied once on its way to what becomes of it.
            _ if is_constant => 2,
            _ => 1,
        };
        let bytes = all.saturating_mul(times).saturating_add(spread);
        let reservation = if bytes < FREE_BYTES { None } else { Some(reserve(&self.memory, self.name(), bytes)?) };
        let made = self.made(args, longest)?;
        if is_planning && Growth::Same.bytes(std::slice::from_ref(&made), rows)?.all > FOLDED_BYTES_MAX {
            return self.later();
        }
        let made = if let ColumnarValue::Array(array) = &made
            && is_constant
        {
            ColumnarValue::Scalar(ScalarValue::try_from_array(array, 0)?)
        } else {
            made
        };
        let Some(reservation) = reservation else { return Ok(made) };
        Ok(match made {
            ColumnarValue::Array(array) => ColumnarValue::Array(charged::charged(array, reservation)),
            ColumnarValue::Scalar(scalar) => {
                held::hold(reservation, growth::constant_bytes(&scalar).map_or(0, <[u8]>::len));
                ColumnarValue::Scalar(scalar)
            }
        })
    }
}

#[cfg(test)]
mod tests;
