//! The forms in which results are printed.

use clap::ValueEnum;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Aligned columns, as in psql
    Table,
    /// A line for each value, as with psql's `\x`
    Expanded,
    /// Comma-separated values with a header
    Csv,
    /// One array of objects per result
    Json,
}

impl Format {
    pub fn name(self) -> &'static str {
        match self {
            Format::Table => "table",
            Format::Expanded => "expanded",
            Format::Csv => "csv",
            Format::Json => "json",
        }
    }

    pub fn from_name(name: &str) -> Option<Format> {
        Format::value_variants().iter().copied().find(|format| format.name() == name)
    }
}
