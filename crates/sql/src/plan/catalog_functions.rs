//! Functions about names, as PostgreSQL's clients call them: `format_type`, `pg_get_indexdef` and the like.
//!
//! Those that look something up carry what there is when the statement is planned, so such a plan holds for the moment
//! only.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use datafusion::arrow::array::{Array, ArrayRef, AsArray, BooleanArray, StringArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType as ArrowType, Int64Type};
use datafusion::common::{Result, ScalarValue, exec_err};
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};

use super::bind::SessionValues;
use crate::catalog::CatalogVersion;
use crate::views::{FIRST_USER_OID, constraint_definition, index_definition, index_oid, type_name};

/// What a function answers for its first argument, or its first two.
#[derive(Debug, PartialEq, Eq, Hash)]
enum Answer {
    /// Texts by object id.
    Known(BTreeMap<i64, String>),
    /// A type's name by its id and modifier.
    TypeName,
    /// The first argument, which is text already.
    Same,
    /// Whether an object is found without its schema: those of users are.
    Visible,
    /// This.
    Always(&'static str),
    /// NULL.
    Nothing,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct CatalogFunction {
    name: String,
    answer: Answer,
    signature: Signature,
}

/// Finds a function by name; notes if the plan depends on the names there are.
pub(super) fn catalog_function(
    name: &str,
    catalog: &CatalogVersion,
    values: &SessionValues,
    used: &AtomicBool,
) -> Option<Arc<ScalarUDF>> {
    let (answer, arguments) = match name {
        "format_type" => (Answer::TypeName, 2..=2),
        "pg_get_expr" => (Answer::Same, 2..=3),
        "pg_get_indexdef" => (Answer::Known(index_definitions(catalog)), 1..=3),
        "pg_get_constraintdef" => (Answer::Known(constraint_definitions(catalog)), 1..=2),
        "pg_get_userbyid" => (Answer::Known([(10, values.user.clone())].into()), 1..=1),
        "pg_table_is_visible" => (Answer::Visible, 1..=1),
        "pg_encoding_to_char" => (Answer::Always("UTF8"), 1..=1),
        "array_to_string" => (Answer::Same, 2..=2),
        "obj_description" | "col_description" | "shobj_description" => (Answer::Nothing, 1..=2),
        _ => return None,
    };
    used.store(true, Ordering::Relaxed);
    let counts = arguments.map(datafusion::logical_expr::TypeSignature::Any).collect();
    let signature = Signature::one_of(counts, Volatility::Stable);
    Some(Arc::new(ScalarUDF::new_from_impl(CatalogFunction { name: name.to_string(), answer, signature })))
}

fn index_definitions(catalog: &CatalogVersion) -> BTreeMap<i64, String> {
    let tables = catalog.tables();
    tables
        .flat_map(|table| {
            let indexes = table.schema.indexes.iter();
            indexes.map(move |index| (index_oid(table, index.id), index_definition(table, index)))
        })
        .collect()
}

fn constraint_definitions(catalog: &CatalogVersion) -> BTreeMap<i64, String> {
    let tables = catalog.tables();
    tables
        .flat_map(|table| {
            let constraints = table.constraints();
            constraints.map(move |index| (index_oid(table, index.id), constraint_definition(table, index)))
        })
        .collect()
}

impl ScalarUDFImpl for CatalogFunction {
    fn name(&self) -> &str {
        &self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _types: &[ArrowType]) -> Result<ArrowType> {
        Ok(if self.answer == Answer::Visible { ArrowType::Boolean } else { ArrowType::Utf8 })
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let scalar = args.args.iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
        let rows = if scalar { 1 } else { args.number_rows };
        let arrays = args.args.into_iter().map(|arg| arg.into_array(rows)).collect::<Result<Vec<ArrayRef>>>()?;
        let Some(first) = arrays.first() else { return exec_err!("{} takes an argument", self.name) };
        let result = self.answers(first, arrays.get(1), rows)?;
        if scalar {
            return Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&result, 0)?));
        }
        Ok(ColumnarValue::Array(result))
    }
}

impl CatalogFunction {
    fn answers(&self, first: &ArrayRef, second: Option<&ArrayRef>, rows: usize) -> Result<ArrayRef> {
        let numbers = |array: &ArrayRef| cast(array, &ArrowType::Int64);
        Ok(match &self.answer {
            Answer::Known(texts) => {
                let oids = numbers(first)?;
                let oids = oids.as_primitive::<Int64Type>();
                Arc::new(oids.iter().map(|oid| texts.get(&oid?).cloned()).collect::<StringArray>())
            }
            Answer::TypeName => {
                let oids = numbers(first)?;
                let modifiers = second.map(numbers).transpose()?;
                let modifier = |row: usize| match &modifiers {
                    Some(array) if array.is_valid(row) => array.as_primitive::<Int64Type>().value(row),
                    _ => -1,
                };
                let names = oids.as_primitive::<Int64Type>().iter().enumerate();
                Arc::new(names.map(|(row, oid)| Some(type_name(oid?, modifier(row)))).collect::<StringArray>())
            }
            Answer::Same => cast(first, &ArrowType::Utf8)?,
            Answer::Visible => {
                let oids = numbers(first)?;
                let oids = oids.as_primitive::<Int64Type>();
                Arc::new(oids.iter().map(|oid| Some(oid? >= FIRST_USER_OID)).collect::<BooleanArray>())
            }
            Answer::Always(text) => Arc::new((0..rows).map(|_| Some(*text)).collect::<StringArray>()),
            Answer::Nothing => Arc::new(StringArray::new_null(rows)),
        })
    }
}
