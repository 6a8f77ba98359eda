//! What storage modules cost, as 004 measures them (section 5.3.1, figures 5.12 to 5.15 and 5.17 to 5.19; section
//! 5.2.2, figures 5.3 to 5.6): `cargo bench -p eris-storage --bench modules`. One JSON array on stdout; times are
//! nanoseconds of this thread per element, the best of some runs.
//!
//! `--elements N` sets the largest number of elements (default 16 Mi), `--only WORD` runs the parts whose name contains
//! the word, `--test` runs everything with tiny inputs.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a benchmark fails by panicking")]

mod access_methods;
mod encodings;
mod indexes;
mod report;
mod rows;

use report::Report;

/// A name, and what measures elements up to a number.
type Part = (&'static str, fn(usize, &mut Report));

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let after = |name: &str| {
        let position = arguments.iter().position(|argument| argument == name)?;
        arguments.get(position + 1)
    };
    let tiny = arguments.iter().any(|argument| argument == "--test");
    let default = if tiny { 4_096 } else { 16 << 20 };
    let elements = after("--elements").map_or(default, |number| number.parse().unwrap());
    let only = after("--only").map_or("", String::as_str);
    let mut report = Report::new(if tiny { 1 } else { 3 });
    let parts: [Part; 5] = [
        ("rows", rows::run),
        ("indexes", indexes::run),
        ("indexes with shared keys", indexes::run_shared),
        ("access methods", access_methods::run),
        ("encodings", encodings::run),
    ];
    for (name, run) in parts {
        if name.contains(only) {
            run(elements, &mut report);
        }
    }
    report.print();
}
