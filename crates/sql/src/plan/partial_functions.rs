//! Mathematical functions that have no value for some arguments: an error, where DataFusion gives NaN or infinity.
//!
//! | function            | refused                                              | SQLSTATE |
//! |---------------------|------------------------------------------------------|----------|
//! | `sqrt`              | negative numbers                                     | 2201F    |
//! | `ln`, `log`, ...    | zero and negative numbers                            | 2201E    |
//! | `power`             | zero to a negative power, a negative number to a fraction | 2201F |
//! | `exp`, `power`      | what leaves the range of `double precision`          | 22003    |
//! | `asin`, `acos`, ... | numbers outside of the function's domain             | 22003    |
//! | `chr`               | 0 and what is no character                           | 54000    |

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType as ArrowType, FieldRef, Float64Type};
use datafusion::common::{DataFusionError, Result};
use datafusion::logical_expr::{ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl};

use super::wrapping::says_as_inner;
use crate::errors::{SqlError, SqlState};

/// What is wrong with a function's arguments, or its result; `None`: nothing.
type Check = fn(&[f64], f64) -> Option<SqlError>;

fn check_of(name: &str) -> Option<Check> {
    Some(match name {
        "sqrt" => |args, _| match args {
            [x, ..] if *x < 0.0 => Some(not_real("cannot take square root of a negative number")),
            _ => None,
        },
        "ln" | "log" | "log2" | "log10" => |args, _| args.iter().find_map(|x| logarithm(*x)),
        "power" => power,
        "exp" => |args, result| leaves_range(args, result),
        "asin" | "acos" => |args, _| outside(args, |x| x.abs() > 1.0),
        "acosh" => |args, _| outside(args, |x| x < 1.0),
        "atanh" => |args, _| outside(args, |x| x.abs() >= 1.0),
        "chr" => |args, _| match args {
            [0.0, ..] => Some(SqlError::new(SqlState::LIMIT_EXCEEDED, "null character not permitted")),
            [code, ..] if *code > f64::from(u32::from(char::MAX)) => {
                let message = format!("requested character too large for encoding: {code}");
                Some(SqlError::new(SqlState::LIMIT_EXCEEDED, message))
            }
            _ => None,
        },
        _ => return None,
    })
}

fn not_real(message: &str) -> SqlError {
    SqlError::new(SqlState::INVALID_POWER, message)
}

fn logarithm(x: f64) -> Option<SqlError> {
    let message = match x {
        0.0 => "cannot take logarithm of zero",
        x if x < 0.0 => "cannot take logarithm of a negative number",
        _ => return None,
    };
    Some(SqlError::new(SqlState::INVALID_LOGARITHM, message))
}

fn power(args: &[f64], result: f64) -> Option<SqlError> {
    match args {
        [0.0, exponent] if *exponent < 0.0 => Some(not_real("zero raised to a negative power is undefined")),
        [base, exponent] if *base < 0.0 && base.is_finite() && exponent.is_finite() && exponent.fract() != 0.0 => {
            Some(not_real("a negative number raised to a non-integer power yields a complex result"))
        }
        [0.0, _] => None,
        _ => leaves_range(args, result),
    }
}

fn leaves_range(args: &[f64], result: f64) -> Option<SqlError> {
    let finite = args.iter().all(|arg| arg.is_finite());
    (finite && (result.is_infinite() || result == 0.0)).then(|| SqlError::out_of_range("double precision"))
}

fn outside(args: &[f64], test: impl Fn(f64) -> bool) -> Option<SqlError> {
    args.iter().any(|arg| test(*arg)).then(|| SqlError::new(SqlState::OUT_OF_RANGE, "input is out of range"))
}

/// A function of DataFusion that is checked.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Checked {
    inner: Arc<ScalarUDF>,
    aliases: Vec<String>,
}

/// The function, checked if there is anything to check.
pub(super) fn checked(function: Arc<ScalarUDF>) -> Arc<ScalarUDF> {
    if check_of(function.name()).is_none() {
        return function;
    }
    let aliases = function.aliases().to_vec();
    Arc::new(ScalarUDF::new_from_impl(Checked { inner: function, aliases }))
}

impl ScalarUDFImpl for Checked {
    says_as_inner!();

    fn aliases(&self) -> &[String] {
        &self.aliases
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        self.inner.return_field_from_args(args)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let Some(check) = check_of(self.name()) else { return self.inner.invoke_with_args(args) };
        let scalar = args.args.iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
        let rows = if scalar { 1 } else { args.number_rows };
        let number = |value: &ColumnarValue| -> Result<ArrayRef> {
            Ok(cast(&value.clone().into_array(rows)?, &ArrowType::Float64)?)
        };
        let inputs = args.args.iter().map(number).collect::<Result<Vec<_>>>()?;
        let examine = |result: Option<&ArrayRef>| -> Result<()> {
            let mut values = vec![0.0; inputs.len()];
            for row in 0..rows {
                if inputs.iter().any(|input| input.is_null(row)) {
                    continue;
                }
                for (value, input) in values.iter_mut().zip(&inputs) {
                    *value = input.as_primitive::<Float64Type>().value(row);
                }
                let result = result.map_or(1.0, |result| result.as_primitive::<Float64Type>().value(row));
                if let Some(error) = check(&values, result) {
                    return Err(DataFusionError::External(Box::new(error)));
                }
            }
            Ok(())
        };
        // The arguments first: DataFusion has errors of its own for some.
        examine(None)?;
        let result = self.inner.invoke_with_args(args)?;
        if matches!(self.name(), "exp" | "power") {
            examine(Some(&number(&result)?))?;
        }
        Ok(result)
    }
}
