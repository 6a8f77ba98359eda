//! Functions about sessions: `pg_backend_pid()`, `pg_cancel_backend(pid)`, `pg_terminate_backend(pid)`.
//!
//! The last two do something each time they are evaluated, so they are never folded into a constant.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use datafusion::arrow::array::{Array, ArrayRef, AsArray, BooleanArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType as ArrowType, Int64Type};
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};

use super::bind::SessionValues;
use crate::activity::Activities;
use crate::errors::SqlState;
use crate::session::Notice;

/// Finds a function by name; notes that the plan depends on the session.
pub(super) fn backend_function(
    name: &str,
    activities: &Arc<Activities>,
    values: &SessionValues,
    used: &AtomicBool,
) -> Option<Arc<ScalarUDF>> {
    let parts = || Parts { activities: Arc::clone(activities), warnings: Arc::clone(&values.warnings) };
    let function = match name {
        "pg_backend_pid" => ScalarUDF::new_from_impl(OwnProcess {
            process: values.process as i32,
            signature: Signature::exact(vec![], Volatility::Stable),
        }),
        "pg_cancel_backend" => ScalarUDF::new_from_impl(Cancel {
            parts: parts(),
            signature: Signature::exact(vec![ArrowType::Int64], Volatility::Volatile),
        }),
        "pg_terminate_backend" => ScalarUDF::new_from_impl(Terminate {
            parts: parts(),
            signature: Signature::exact(vec![ArrowType::Int64], Volatility::Volatile),
        }),
        _ => return None,
    };
    used.store(true, Ordering::Relaxed);
    Some(Arc::new(function))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct OwnProcess {
    process: i32,
    signature: Signature,
}

impl ScalarUDFImpl for OwnProcess {
    fn name(&self) -> &'static str {
        "pg_backend_pid"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _types: &[ArrowType]) -> Result<ArrowType> {
        Ok(ArrowType::Int32)
    }

    fn invoke_with_args(&self, _args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        Ok(ColumnarValue::Scalar(ScalarValue::Int32(Some(self.process))))
    }
}

/// What the functions reach others with.
#[derive(Clone)]
struct Parts {
    activities: Arc<Activities>,
    warnings: Arc<Mutex<Vec<Notice>>>,
}

impl Parts {
    fn warn(&self, message: String) {
        let notice = Notice { is_warning: true, sqlstate: SqlState::WARNING, message };
        self.warnings.lock().unwrap_or_else(PoisonError::into_inner).push(notice);
    }

    fn not_there(&self, process: i64) {
        self.warn(format!("PID {process} is not a PostgreSQL server process"));
    }
}

/// Functions are compared by what they are called and declared as.
macro_rules! compared_by_signature {
    ($function:ident) => {
        impl fmt::Debug for $function {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.name())
            }
        }

        impl PartialEq for $function {
            fn eq(&self, other: &Self) -> bool {
                self.signature == other.signature
            }
        }

        impl Eq for $function {}

        impl Hash for $function {
            fn hash<H: Hasher>(&self, state: &mut H) {
                self.signature.hash(state);
            }
        }
    };
}

struct Cancel {
    parts: Parts,
    signature: Signature,
}

compared_by_signature!(Cancel);

impl ScalarUDFImpl for Cancel {
    fn name(&self) -> &'static str {
        "pg_cancel_backend"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _types: &[ArrowType]) -> Result<ArrowType> {
        Ok(ArrowType::Boolean)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let arguments = Arguments::of(args)?;
        let answers = arguments.processes().map(|process| {
            let process = process?;
            let found = u32::try_from(process).is_ok_and(|process| self.parts.activities.cancel(process));
            if !found {
                self.parts.not_there(process);
            }
            Some(found)
        });
        arguments.answer(answers.collect())
    }
}

struct Terminate {
    parts: Parts,
    signature: Signature,
}

compared_by_signature!(Terminate);

impl ScalarUDFImpl for Terminate {
    fn name(&self) -> &'static str {
        "pg_terminate_backend"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _types: &[ArrowType]) -> Result<ArrowType> {
        Ok(ArrowType::Boolean)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let arguments = Arguments::of(args)?;
        let answers = arguments.processes().map(|process| {
            let process = process?;
            let found = u32::try_from(process).is_ok_and(|process| self.parts.activities.terminate(process));
            if !found {
                self.parts.not_there(process);
            }
            Some(found)
        });
        arguments.answer(answers.collect())
    }
}

/// Process ids, row by row.
struct Arguments {
    columns: Vec<ArrayRef>,
    rows: usize,
    is_scalar: bool,
}

impl Arguments {
    fn of(args: ScalarFunctionArgs) -> Result<Self> {
        let is_scalar = args.args.iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
        let rows = if is_scalar { 1 } else { args.number_rows };
        let columns =
            args.args.into_iter().map(|arg| cast(&arg.into_array(rows)?, &ArrowType::Int64).map_err(Into::into));
        Ok(Self { columns: columns.collect::<Result<_>>()?, rows, is_scalar })
    }

    fn processes(&self) -> impl Iterator<Item = Option<i64>> + '_ {
        (0..self.rows).map(|row| self.value(0, row))
    }

    fn value(&self, column: usize, row: usize) -> Option<i64> {
        let numbers = self.columns.get(column)?.as_primitive::<Int64Type>();
        numbers.is_valid(row).then(|| numbers.value(row))
    }

    fn answer(&self, answers: BooleanArray) -> Result<ColumnarValue> {
        if self.is_scalar {
            return Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&answers, 0)?));
        }
        Ok(ColumnarValue::Array(Arc::new(answers)))
    }
}
