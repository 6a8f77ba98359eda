//! Right answers of queries, and the check of a result against them.
//!
//! An answer is stored (`bench/answers`, made by DuckDB on the rows of our generators, part of the binary) or is what
//! another system said a moment ago. Results are compared in a canonical form: *exact* columns (counts, keys, decimal
//! sums) are decimal numbers without trailing zeros and must be equal; *approximate* ones (averages and quotients,
//! which DuckDB gives as doubles) may differ by 1e-9 relative; text and dates must be equal. Rows must be in the order
//! of the query as far as its ORDER BY goes, and equal as multisets.

/// The texts of the 22 files of a directory below `bench/answers`.
macro_rules! answer_texts {
    ($directory:literal) => {
        answer_texts!($directory: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22)
    };
    ($directory:literal: $($number:literal)*) => {
        [$(include_str!(concat!("../../../../bench/answers/", $directory, "/q", $number, ".csv"))),*]
    };
}

mod answer;
mod stored;
mod values;

pub(crate) use answer_texts;

pub use answer::{Answer, AnswerMismatch, AnswerShape, CellKind};
