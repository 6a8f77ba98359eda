//! Functions whose result may be far longer than their arguments: bounded, and reserved before it is built.
//!
//! A text may have a gigabyte (54000 otherwise), as in PostgreSQL. What a call builds for a batch is reserved from the
//! database's memory (53200 otherwise) until it is built; after that it is the operator's to account for.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, StringViewArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType as ArrowType, FieldRef, Int64Type};
use datafusion::common::{DataFusionError, Result};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool};
use datafusion::logical_expr::{ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl};

use super::wrapping::says_as_inner;
use crate::errors::{SqlError, SqlState};

/// The longest text that a function makes, in bytes.
const TEXT_BYTES_MAX: u64 = 0x3fff_ffff;

/// How long the result for a row gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Growth {
    /// `repeat(text, times)`
    Repeat,
    /// `lpad(text, length, fill)`, `rpad`: `length` is in characters.
    Pad,
    /// `replace(text, from, to)`
    Replace,
}

/// A function of DataFusion that is bounded.
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

/// The function, bounded if its result can grow.
pub(super) fn bounded(function: Arc<ScalarUDF>, memory: &Arc<dyn MemoryPool>) -> Arc<ScalarUDF> {
    let growth = match function.name() {
        "repeat" => Growth::Repeat,
        "lpad" | "rpad" => Growth::Pad,
        "replace" => Growth::Replace,
        _ => return function,
    };
    Arc::new(ScalarUDF::new_from_impl(Bounded { inner: function, growth, memory: Arc::clone(memory) }))
}

fn texts(array: &ArrayRef) -> Result<StringViewArray> {
    Ok(cast(array, &ArrowType::Utf8View)?.as_string_view().clone())
}

impl Growth {
    /// Bytes of the longest result of a row, and of all.
    fn bytes(self, args: &[ArrayRef], rows: usize) -> Result<(u64, u64)> {
        let Some(first) = args.first() else { return Ok((0, 0)) };
        let text = texts(first)?;
        let numbers = match args.get(1) {
            Some(second) if self != Self::Replace => Some(cast(second, &ArrowType::Int64)?),
            _ => None,
        };
        let count = |row: usize| match &numbers {
            Some(numbers) if numbers.is_valid(row) => {
                u64::try_from(numbers.as_primitive::<Int64Type>().value(row)).unwrap_or(0)
            }
            _ => 0,
        };
        let others = args.iter().skip(1).filter(|arg| arg.data_type().is_string()).map(texts);
        let others = others.collect::<Result<Vec<_>>>()?;
        let (mut longest, mut all) = (0, 0_u64);
        for row in 0..rows {
            if args.iter().any(|arg| arg.is_null(row)) {
                continue;
            }
            let own = text.value(row);
            let bytes = match self {
                Self::Repeat => count(row).saturating_mul(own.len() as u64),
                Self::Pad => {
                    let ascii = own.is_ascii() && others.iter().all(|fill| fill.value(row).is_ascii());
                    count(row).saturating_mul(if ascii { 1 } else { 4 })
                }
                Self::Replace => match others.as_slice() {
                    [from, to] => replaced_bytes(own, from.value(row), to.value(row)),
                    _ => own.len() as u64,
                },
            };
            longest = longest.max(bytes);
            all = all.saturating_add(bytes);
        }
        Ok((longest, all))
    }
}

fn replaced_bytes(text: &str, from: &str, to: &str) -> u64 {
    let length = text.len() as u64;
    if from.is_empty() || to.len() <= from.len() {
        return length;
    }
    length.saturating_add((text.matches(from).count() as u64).saturating_mul((to.len() - from.len()) as u64))
}

impl ScalarUDFImpl for Bounded {
    says_as_inner!();

    fn aliases(&self) -> &[String] {
        self.inner.aliases()
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        self.inner.return_field_from_args(args)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let scalar = args.args.iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
        let rows = if scalar { 1 } else { args.number_rows };
        let arrays = args.args.iter().map(|arg| arg.clone().into_array(rows)).collect::<Result<Vec<_>>>()?;
        let (longest, all) = self.growth.bytes(&arrays, rows)?;
        if longest > TEXT_BYTES_MAX {
            let error = SqlError::new(SqlState::LIMIT_EXCEEDED, "requested length too large");
            return Err(DataFusionError::External(Box::new(error)));
        }
        let reservation = MemoryConsumer::new(self.name().to_string()).register(&self.memory);
        reservation.try_grow(usize::try_from(all).unwrap_or(usize::MAX))?;
        let result = self.inner.invoke_with_args(args);
        reservation.free();
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replacing_grows_by_what_is_found() {
        assert_eq!(replaced_bytes("abcabc", "b", "xyz"), "axyzcaxyzc".len() as u64);
        assert_eq!(replaced_bytes("abc", "", "xyz"), 3);
        assert_eq!(replaced_bytes("aaa", "aa", "b"), 3);
    }
}
