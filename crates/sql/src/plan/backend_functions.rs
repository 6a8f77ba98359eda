//! Functions about sessions: `pg_backend_pid()`, `pg_cancel_backend(pid)`, `pg_terminate_backend(pid)`.
//!
//! The last two do something each time they are evaluated, so they are never folded into a constant.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use datafusion::arrow::array::{AsArray, BooleanArray};
use datafusion::arrow::datatypes::{DataType as ArrowType, Int64Type};
use datafusion::common::utils::take_function_args;
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
    let interrupt = |name, reach| {
        ScalarUDF::new_from_impl(Interrupt {
            name,
            reach,
            parts: Parts { activities: Arc::clone(activities), warnings: Arc::clone(&values.warnings) },
            signature: Signature::exact(vec![ArrowType::Int64], Volatility::Volatile),
        })
    };
    let function = match name {
        "pg_backend_pid" => ScalarUDF::new_from_impl(OwnProcess {
            process: values.process as i32,
            signature: Signature::exact(vec![], Volatility::Stable),
        }),
        "pg_cancel_backend" => interrupt("pg_cancel_backend", Activities::cancel),
        "pg_terminate_backend" => interrupt("pg_terminate_backend", Activities::terminate),
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

/// Interrupts another session: its statement, or all of it.
struct Interrupt {
    name: &'static str,
    /// False if there is no such session.
    reach: fn(&Activities, u32) -> bool,
    parts: Parts,
    signature: Signature,
}

impl fmt::Debug for Interrupt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

// Functions are compared by name and signature: the rest is the session's, in which a plan stays.
impl PartialEq for Interrupt {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name && self.signature == other.signature
    }
}

impl Eq for Interrupt {}

impl Hash for Interrupt {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
        self.signature.hash(state);
    }
}

impl ScalarUDFImpl for Interrupt {
    fn name(&self) -> &'static str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _types: &[ArrowType]) -> Result<ArrowType> {
        Ok(ArrowType::Boolean)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let is_scalar = args.args.iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
        let rows = if is_scalar { 1 } else { args.number_rows };
        let processes = take_function_args(self.name, args.args)?;
        let [processes] = processes.map(|processes| processes.into_array(rows));
        let answers: BooleanArray = processes?
            .as_primitive::<Int64Type>()
            .iter()
            .map(|process| {
                let process = process?;
                let found = u32::try_from(process).is_ok_and(|number| (self.reach)(&self.parts.activities, number));
                if !found {
                    self.parts.not_there(process);
                }
                Some(found)
            })
            .collect();
        if is_scalar {
            return Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&answers, 0)?));
        }
        Ok(ColumnarValue::Array(Arc::new(answers)))
    }
}
