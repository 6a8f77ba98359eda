//! PostgreSQL's encodings of values: what goes over the wire, and what COPY and literals are read from.
//!
//! Text first: every type has one text form, which `text` writes and `parse_text` reads. Binary is the form of
//! PostgreSQL's `*send`/`*recv` functions (big endian, dates from 2000-01-01, numerics in base 10,000).

mod binary;
mod binary_parse;
mod datetime;
mod float;
mod interval;
mod numeric;
mod parse;
mod size;
mod text;

pub use binary::binary;
pub use binary_parse::parse_binary;
pub use datetime::{
    MICROS_OF_DAY, checked_date, checked_timestamp, date_of, day_of_month_cut, days_of, parse_date, parse_timestamp,
    write_date, write_timestamp,
};
pub use interval::{pack_interval, unpack_interval, write_interval};
pub use numeric::{DecimalText, divide_rounded, parse_decimal, rescale, write_decimal};
pub use parse::{fit_text, parse_text};
pub use size::{binary_bytes, text_bytes};
pub use text::{text, value_text};
