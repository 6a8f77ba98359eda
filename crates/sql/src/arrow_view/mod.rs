//! The border to Arrow: our batches have its memory layout without the crate, so most columns cross it without a copy.
//!
//! | storage                        | Arrow                     | crossing                         |
//! |--------------------------------|---------------------------|----------------------------------|
//! | boolean (a byte each)          | Boolean (bits)            | packed, unpacked                 |
//! | integers, floats, date, timestamp | the same               | shared                           |
//! | decimal up to 18 digits (i64)  | Decimal128                | widened, narrowed with a check   |
//! | decimal above (i128)           | Decimal128                | shared                           |
//! | text, bytes (views)            | `Utf8View`, `BinaryView`      | shared                           |
//!
//! Types that storage does not have (unsigned integers, other time units, plain strings) are brought to the nearest one
//! when they come back; lists, structs and the like are refused.

mod from_arrow;
mod to_arrow;
mod types;

pub use from_arrow::{batch_from_arrow, column_from_arrow};
pub use to_arrow::{batch_to_arrow, column_to_arrow, column_to_arrow_as};
pub use types::{arrow_schema, arrow_type, field_sql_type, mark_sql_type, sql_type_of_arrow};
