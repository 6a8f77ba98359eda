//! Our `sum` and `avg`, in place of DataFusion's, which wrap and give four digits.
//!
//! Integers and numerics are summed in 128 bits with a check; what leaves is checked against the type. Floating point
//! is left to DataFusion, and checked.
//!
//! | argument        | sum                     | avg                                |
//! |-----------------|-------------------------|------------------------------------|
//! | integers        | bigint                  | numeric(38, 10)                    |
//! | numeric(p, s)   | numeric(min(38, p+10), s) | numeric(38, s + 10)              |
//! | floating point  | double precision        | double precision                   |

mod exact;
mod floats;
mod groups;

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType as ArrowType, Field, FieldRef};
use datafusion::common::{Result, plan_err};
use datafusion::functions_aggregate::average::avg_udaf;
use datafusion::functions_aggregate::sum::sum_udaf;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, GroupsAccumulator, ReversedUDAF, Signature, Volatility,
};

use exact::ExactAccumulator;
use floats::{CheckedFloatGroups, CheckedFloats};
use groups::ExactGroups;

/// Digits that an average has behind the point beyond those of its argument.
pub(super) const AVERAGE_DIGITS: u8 = 10;
/// The largest scale of an average.
const AVERAGE_SCALE_MAX: u8 = 30;

/// `sum` or `avg`.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct ExactAggregate {
    average: bool,
    signature: Signature,
}

/// What an exact aggregate needs to know about its argument and result.
#[derive(Clone, Copy, Debug)]
struct Shape {
    average: bool,
    /// Scale of the argument; integers have 0.
    scale: u8,
    /// Precision and scale of the result; `None`: bigint.
    result: Option<(u8, u8)>,
}

/// Both functions.
pub(super) fn exact_aggregates() -> [Arc<AggregateUDF>; 2] {
    [false, true].map(|average| {
        let signature = Signature::user_defined(Volatility::Immutable);
        Arc::new(AggregateUDF::new_from_impl(ExactAggregate { average, signature }))
    })
}

/// The result type for an argument of a numeric type that is summed exactly.
pub(super) fn exact_result(average: bool, argument: &ArrowType) -> Option<ArrowType> {
    match (argument, average) {
        (ArrowType::Int64, false) => Some(ArrowType::Int64),
        (ArrowType::Int64, true) => Some(ArrowType::Decimal128(38, AVERAGE_DIGITS as i8)),
        (ArrowType::Decimal128(precision, scale), false) => {
            Some(ArrowType::Decimal128((precision + 10).min(38), *scale))
        }
        (ArrowType::Decimal128(_, scale), true) => {
            let scale = (*scale as u8 + AVERAGE_DIGITS).min(AVERAGE_SCALE_MAX).max(*scale as u8);
            Some(ArrowType::Decimal128(38, scale as i8))
        }
        _ => None,
    }
}

fn is_float(args: &AccumulatorArgs<'_>) -> bool {
    args.expr_fields.first().is_some_and(|field| *field.data_type() == ArrowType::Float64)
}

impl ExactAggregate {
    fn builtin(&self) -> Arc<AggregateUDF> {
        if self.average { avg_udaf() } else { sum_udaf() }
    }

    fn shape(&self, argument: &ArrowType) -> Option<Shape> {
        let scale = match argument {
            ArrowType::Decimal128(_, scale) => *scale as u8,
            _ => 0,
        };
        let result = match exact_result(self.average, argument)? {
            ArrowType::Decimal128(precision, scale) => Some((precision, scale as u8)),
            _ => None,
        };
        Some(Shape { average: self.average, scale, result })
    }

    fn shape_of(&self, args: &AccumulatorArgs<'_>) -> Option<Shape> {
        let argument = args.expr_fields.first()?.data_type();
        self.shape(argument).filter(|_| !args.is_distinct)
    }
}

impl AggregateUDFImpl for ExactAggregate {
    fn name(&self) -> &str {
        if self.average { "avg" } else { "sum" }
    }

    fn aliases(&self) -> &[String] {
        &[]
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[ArrowType]) -> Result<Vec<ArrowType>> {
        let [argument] = types else { return plan_err!("{} takes one argument", self.name()) };
        Ok(vec![match argument {
            ArrowType::Decimal128(..) => argument.clone(),
            ArrowType::Decimal32(p, s) | ArrowType::Decimal64(p, s) => ArrowType::Decimal128(*p, *s),
            integer if integer.is_integer() => ArrowType::Int64,
            float if float.is_floating() => ArrowType::Float64,
            ArrowType::Null => ArrowType::Int64,
            other => return plan_err!("No function matches {}({other})", self.name()),
        }])
    }

    fn return_type(&self, types: &[ArrowType]) -> Result<ArrowType> {
        let [argument] = types else { return plan_err!("{} takes one argument", self.name()) };
        match exact_result(self.average, argument) {
            Some(result) => Ok(result),
            None => self.builtin().return_type(types),
        }
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        let exact = args.input_fields.first().and_then(|field| self.shape(field.data_type()));
        match exact.filter(|_| !args.is_distinct) {
            Some(shape) => Ok(vec![
                Arc::new(Field::new(format!("{}[sum]", args.name), ArrowType::Decimal128(38, shape.scale as i8), true)),
                Arc::new(Field::new(format!("{}[count]", args.name), ArrowType::Int64, true)),
            ]),
            None => self.builtin().state_fields(args),
        }
    }

    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        if let Some(shape) = self.shape_of(&args) {
            return Ok(Box::new(ExactAccumulator::new(shape)));
        }
        let float = is_float(&args);
        let inner = self.builtin().accumulator(args)?;
        Ok(if float { Box::new(CheckedFloats { inner, special: false }) } else { inner })
    }

    fn create_sliding_accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        if let Some(shape) = self.shape_of(&args) {
            return Ok(Box::new(ExactAccumulator::new(shape)));
        }
        let float = is_float(&args);
        let inner = self.builtin().create_sliding_accumulator(args)?;
        Ok(if float { Box::new(CheckedFloats { inner, special: false }) } else { inner })
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs) -> bool {
        self.shape_of(&args).is_some() || self.builtin().groups_accumulator_supported(args)
    }

    fn create_groups_accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn GroupsAccumulator>> {
        if let Some(shape) = self.shape_of(&args) {
            return Ok(Box::new(ExactGroups::new(shape)));
        }
        let float = is_float(&args);
        let inner = self.builtin().create_groups_accumulator(args)?;
        Ok(if float { Box::new(CheckedFloatGroups { inner, special: false }) } else { inner })
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        AggregateOrderSensitivity::Insensitive
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        ReversedUDAF::Identical
    }
}
