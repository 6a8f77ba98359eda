//! The 22 queries in PostgreSQL's dialect, one template each, and the specification's validation parameters.
//!
//! A template names its parameters in braces; other benchmarks on the same tables fill in theirs. Deviations the
//! specification allows: Q15 uses a WITH clause instead of a view, row limits are LIMIT clauses, and Q13 names the
//! columns of its derived table by aliases. Q11's fraction is 0.0001 / scale factor.

macro_rules! query_texts {
    ($($number:literal)*) => {
        [$(include_str!(concat!("queries/q", $number, ".sql"))),*]
    };
}

const TEXTS: [&str; QUERY_COUNT] = query_texts!(1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22);

/// The specification's validation parameters, from Q1 on. Two of them are pieces of SQL that only other benchmarks
/// change: the end of Q10's range and a filter of the lines that Q18 counts.
const VALIDATION: [&[(&str, &str)]; QUERY_COUNT] = [
    &[("delta", "90")],
    &[("size", "15"), ("type", "BRASS"), ("region", "EUROPE")],
    &[("segment", "BUILDING"), ("date", "1995-03-15")],
    &[("date", "1993-07-01")],
    &[("region", "ASIA"), ("date", "1994-01-01")],
    &[("date", "1994-01-01"), ("discount", "0.06"), ("quantity", "24")],
    &[("nation1", "FRANCE"), ("nation2", "GERMANY"), ("first", "1995-01-01"), ("last", "1996-12-31")],
    &[
        ("nation", "BRAZIL"),
        ("region", "AMERICA"),
        ("first", "1995-01-01"),
        ("last", "1996-12-31"),
        ("type", "ECONOMY ANODIZED STEEL"),
    ],
    &[("colour", "green")],
    &[("date", "1993-10-01"), ("end", "date '1993-10-01' + interval '3' month")],
    &[("nation", "GERMANY")],
    &[("mode1", "MAIL"), ("mode2", "SHIP"), ("date", "1994-01-01")],
    &[("word1", "special"), ("word2", "requests")],
    &[("date", "1995-09-01")],
    &[("date", "1996-01-01")],
    &[("brand", "Brand#45"), ("type", "MEDIUM POLISHED"), ("sizes", "49, 14, 23, 45, 19, 3, 36, 9")],
    &[("brand", "Brand#23"), ("container", "MED BOX")],
    &[("quantity", "300"), ("filter", "")],
    &[
        ("brand1", "Brand#12"),
        ("brand2", "Brand#23"),
        ("brand3", "Brand#34"),
        ("quantity1", "1"),
        ("quantity2", "10"),
        ("quantity3", "20"),
    ],
    &[("colour", "forest"), ("date", "1994-01-01"), ("nation", "CANADA")],
    &[("nation", "SAUDI ARABIA")],
    &[("codes", "'13', '31', '23', '29', '30', '18', '17'")],
];

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

    /// The text to run at a scale factor, with the validation parameters.
    pub fn sql(self, scale_factor: f64) -> String {
        self.sql_with(scale_factor, VALIDATION[self.index()].iter().copied())
    }

    /// The text with parameters by name.
    ///
    /// # Panics
    /// If the template has other parameters.
    pub(crate) fn sql_with<'a>(
        self,
        scale_factor: f64,
        parameters: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> String {
        let mut sql = TEXTS[self.index()].trim_end().replace("{fraction}", &fraction(scale_factor));
        for (name, value) in parameters {
            let placeholder = format!("{{{name}}}");
            assert!(sql.contains(&placeholder), "{} has no parameter {name}", self.name());
            sql = sql.replace(&placeholder, value);
        }
        assert!(!sql.contains('{'), "{} has a parameter without a value: {sql}", self.name());
        sql
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
