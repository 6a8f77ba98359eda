//! The 22 queries in PostgreSQL's dialect with the specification's validation parameters, one file each.
//!
//! Deviations the specification allows: Q15 uses a WITH clause instead of a view, row limits are LIMIT clauses, and
//! Q13 names the columns of its derived table by aliases. Q11's fraction is 0.0001 / scale factor.

macro_rules! query_texts {
    ($($number:literal)*) => {
        [$(include_str!(concat!("queries/q", $number, ".sql"))),*]
    };
}

const TEXTS: [&str; QUERY_COUNT] = query_texts!(1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22);

pub const QUERY_COUNT: usize = 22;

/// Number of a query, 1 to 22.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueryNumber(u8);

impl QueryNumber {
    /// `None` unless the number is between 1 and 22.
    pub fn new(number: u8) -> Option<Self> {
        (1..=QUERY_COUNT as u8).contains(&number).then_some(Self(number))
    }

    pub fn all() -> impl Iterator<Item = Self> {
        (1..=QUERY_COUNT as u8).map(Self)
    }

    pub fn get(self) -> u8 {
        self.0
    }

    /// Position in a table of all queries.
    pub fn index(self) -> usize {
        usize::from(self.0) - 1
    }

    /// `q1` to `q22`, as reports name it.
    pub fn name(self) -> String {
        format!("q{}", self.0)
    }

    /// The text to run at a scale factor.
    pub fn sql(self, scale_factor: f64) -> String {
        TEXTS[self.index()].trim_end().replace("{fraction}", &fraction(scale_factor))
    }
}

/// 0.0001 / scale factor in plain decimal notation: `0.0001`, `0.01`, `0.00003333333333`.
fn fraction(scale_factor: f64) -> String {
    // Fourteen places keep ten significant digits up to scale factor 1,000; trailing zeros say nothing.
    let text = format!("{:.14}", 0.0001 / scale_factor);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_parameter_is_left_open() {
        for query in QueryNumber::all() {
            let sql = query.sql(1.0);
            assert!(!sql.contains([':', '{', ';']), "{}: {sql}", query.name());
            assert!(sql.starts_with("select") || sql.starts_with("with"), "{}", query.name());
        }
    }

    #[test]
    fn the_fraction_of_q11_follows_the_scale_factor() {
        assert_eq!(fraction(1.0), "0.0001");
        assert_eq!(fraction(0.1), "0.001");
        assert_eq!(fraction(0.01), "0.01");
        assert_eq!(fraction(3.0), "0.00003333333333");
        assert!(QueryNumber::new(11).unwrap().sql(10.0).contains("* 0.00001\n"));
    }

    #[test]
    fn numbers_outside_are_refused() {
        assert_eq!(QueryNumber::new(0), None);
        assert_eq!(QueryNumber::new(23), None);
    }
}
