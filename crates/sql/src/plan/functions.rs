//! Functions that answer about the session: `version()`, `current_user`, `current_setting('x')` and the like.
//!
//! Their values are those of the session that plans the statement, so a statement that calls one is planned again for
//! every execution.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use datafusion::arrow::datatypes::DataType as ArrowType;
use datafusion::common::{DataFusionError, Result, ScalarValue, exec_err};
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};

use super::bind::SessionValues;
use crate::errors::SqlError;

/// A function without arguments whose value is known when the statement is planned.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Known {
    name: String,
    value: String,
    signature: Signature,
}

impl ScalarUDFImpl for Known {
    fn name(&self) -> &str {
        &self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _types: &[ArrowType]) -> Result<ArrowType> {
        Ok(ArrowType::Utf8View)
    }

    fn invoke_with_args(&self, _args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        Ok(ColumnarValue::Scalar(ScalarValue::Utf8View(Some(self.value.clone()))))
    }
}

/// `current_setting(name)` over the settings as they are now.
#[derive(Debug, PartialEq, Eq, Hash)]
struct CurrentSetting {
    settings: Vec<[String; 3]>,
    signature: Signature,
}

impl ScalarUDFImpl for CurrentSetting {
    fn name(&self) -> &'static str {
        "current_setting"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _types: &[ArrowType]) -> Result<ArrowType> {
        Ok(ArrowType::Utf8View)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let name = match args.args.first() {
            Some(ColumnarValue::Scalar(value)) => value.try_as_str().flatten().map(str::to_lowercase),
            _ => return exec_err!("current_setting takes a constant"),
        };
        let Some(name) = name else { return Ok(ColumnarValue::Scalar(ScalarValue::Utf8View(None))) };
        match self.settings.iter().find(|[known, ..]| *known == name) {
            Some([_, value, _]) => Ok(ColumnarValue::Scalar(ScalarValue::Utf8View(Some(value.clone())))),
            None => Err(DataFusionError::External(Box::new(SqlError::new(
                crate::errors::SqlState::NO_SUCH_OBJECT,
                format!("unrecognized configuration parameter \"{name}\""),
            )))),
        }
    }
}

/// Finds a session function by name and notes that the plan depends on the session.
pub(super) fn session_function(name: &str, values: &SessionValues, used: &AtomicBool) -> Option<Arc<ScalarUDF>> {
    let known = |value: &str| {
        used.store(true, Ordering::Relaxed);
        let signature = Signature::exact(vec![], Volatility::Stable);
        Some(Arc::new(ScalarUDF::new_from_impl(Known { name: name.to_string(), value: value.to_string(), signature })))
    };
    match name {
        "version" => known(&values.version),
        "current_user" | "session_user" | "user" | "current_role" => known(&values.user),
        "current_database" | "current_catalog" => known(&values.database),
        "current_schema" => known("public"),
        "current_setting" => {
            used.store(true, Ordering::Relaxed);
            let signature = Signature::string(1, Volatility::Stable);
            Some(Arc::new(ScalarUDF::new_from_impl(CurrentSetting { settings: values.settings.clone(), signature })))
        }
        "now" | "current_timestamp" | "current_date" | "current_time" | "today" => {
            // DataFusion's own, but their value is fixed when the statement is planned.
            used.store(true, Ordering::Relaxed);
            None
        }
        _ => None,
    }
}
