//! `||` as a function: so it is bounded as all functions that make texts are.

use std::sync::Arc;

use datafusion::arrow::array::ArrayRef;
use datafusion::arrow::compute::kernels::concat_elements::concat_elements_dyn;
use datafusion::arrow::datatypes::{DataType as ArrowType, Field, FieldRef};
use datafusion::common::{DFSchema, Result, ScalarValue, exec_err, plan_err};
use datafusion::execution::memory_pool::MemoryPool;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::{
    BinaryExpr, ColumnarValue, Expr, ExprSchemable, Operator, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF,
    ScalarUDFImpl, Signature, Volatility,
};

/// What the function is called.
pub(super) const NAME: &str = "||";

/// Two texts, or two strings of bytes, of one type: NULL if one of them is.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Join {
    signature: Signature,
}

/// The function, bounded.
pub(super) fn joining(memory: &Arc<dyn MemoryPool>) -> Arc<ScalarUDF> {
    let join = Join { signature: Signature::user_defined(Volatility::Immutable) };
    super::bounded(Arc::new(ScalarUDF::new_from_impl(join)), memory)
}

/// The call for an operator whose operands have been given one type; `None`: it is another operator.
pub(super) fn as_call(pair: &BinaryExpr, function: &Arc<ScalarUDF>, columns: &DFSchema) -> Option<Expr> {
    if pair.op != Operator::StringConcat {
        return None;
    }
    let types = [pair.left.get_type(columns).ok()?, pair.right.get_type(columns).ok()?];
    let args = vec![pair.left.as_ref().clone(), pair.right.as_ref().clone()];
    (types[0] == types[1] && is_joined(&types[0]))
        .then(|| Expr::ScalarFunction(ScalarFunction::new_udf(Arc::clone(function), args)))
}

/// The operator that such a call was; `None`: it is something else.
pub(super) fn as_operator(expr: &Expr) -> Option<Expr> {
    let Expr::ScalarFunction(call) = expr else { return None };
    let [left, right] = call.args.as_slice() else { return None };
    (call.name() == NAME).then(|| {
        let (left, right) = (Box::new(left.clone()), Box::new(right.clone()));
        Expr::BinaryExpr(BinaryExpr::new(left, Operator::StringConcat, right))
    })
}

fn is_joined(data_type: &ArrowType) -> bool {
    use ArrowType::{Binary, BinaryView, LargeBinary};
    data_type.is_string() || matches!(data_type, Binary | LargeBinary | BinaryView)
}

fn both<'a>(left: &'a ScalarValue, right: &'a ScalarValue) -> Option<(&'a str, &'a str)> {
    Some((left.try_as_str().flatten()?, right.try_as_str().flatten()?))
}

impl ScalarUDFImpl for Join {
    fn name(&self) -> &'static str {
        NAME
    }

    /// As the operator's, so that no column changes its name.
    fn schema_name(&self, args: &[Expr]) -> Result<String> {
        let [left, right] = args else { return plan_err!("|| takes two arguments") };
        Ok(format!("{} || {}", left.schema_name(), right.schema_name()))
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[ArrowType]) -> Result<Vec<ArrowType>> {
        match types {
            [left, right] if left == right && is_joined(left) => Ok(types.to_vec()),
            _ => plan_err!("|| takes two texts of one type"),
        }
    }

    fn return_type(&self, types: &[ArrowType]) -> Result<ArrowType> {
        if let [left, _] = types { Ok(left.clone()) } else { plan_err!("|| takes two arguments") }
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        let [left, right] = args.arg_fields else { return plan_err!("|| takes two arguments") };
        let nullable = left.is_nullable() || right.is_nullable();
        Ok(Arc::new(Field::new(self.name(), left.data_type().clone(), nullable)))
    }

    fn is_strict(&self) -> bool {
        true
    }

    /// NULL where one of them always is.
    fn simplify(&self, args: Vec<Expr>, _context: &SimplifyContext) -> Result<ExprSimplifyResult> {
        let null = args.iter().find_map(|arg| match arg {
            Expr::Literal(value, _) if value.is_null() && is_joined(&value.data_type()) => Some(value.clone()),
            _ => None,
        });
        Ok(null.map_or(ExprSimplifyResult::Original(args), |null| {
            ExprSimplifyResult::Simplified(Expr::Literal(null, None))
        }))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [left, right] = args.args.as_slice() else { return exec_err!("|| takes two arguments") };
        if let (ColumnarValue::Scalar(left), ColumnarValue::Scalar(right)) = (left, right) {
            let data_type = args.return_field.data_type();
            if left.is_null() || right.is_null() {
                return Ok(ColumnarValue::Scalar(ScalarValue::try_from(data_type)?));
            }
            if let Some((left, right)) = both(left, right) {
                let joined = Some([left, right].concat());
                return Ok(ColumnarValue::Scalar(match data_type {
                    ArrowType::Utf8View => ScalarValue::Utf8View(joined),
                    ArrowType::LargeUtf8 => ScalarValue::LargeUtf8(joined),
                    _ => ScalarValue::Utf8(joined),
                }));
            }
        }
        let is_constant = args.args.iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
        let rows = if is_constant { 1 } else { args.number_rows };
        let (left, right): (ArrayRef, ArrayRef) = (left.to_array(rows)?, right.to_array(rows)?);
        let joined = concat_elements_dyn(&left, &right)?;
        if is_constant {
            return Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&joined, 0)?));
        }
        Ok(ColumnarValue::Array(joined))
    }
}
