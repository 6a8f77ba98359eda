//! The stored answers of the 22 queries, by DuckDB on the rows of our generator.

use super::queries::{QUERY_COUNT, QueryNumber};
use crate::answers::{Answer, AnswerShape, answer_texts};

/// Scale factor and answer files; a result at any other scale factor has no stored answer.
const ANSWERS: [(f64, [&str; QUERY_COUNT]); 4] = [
    (0.01, answer_texts!("tpch/sf0.01")),
    (0.1, answer_texts!("tpch/sf0.1")),
    (1.0, answer_texts!("tpch/sf1")),
    (5.0, answer_texts!("tpch/sf5")),
];

/// The right answer with the validation parameters, or `None` when there is none for this scale factor.
pub fn stored_answer(query: QueryNumber, scale_factor: f64) -> Option<Answer> {
    let (_, texts) = ANSWERS.iter().find(|(stored, _)| (stored - scale_factor).abs() < 1e-12)?;
    let answer = Answer::parse(texts[query.index()]);
    assert!(answer.is_some(), "the stored answer of {} at scale factor {scale_factor} is malformed", query.name());
    answer
}

/// The shape of the query's answers on any data and with any parameters. That of scale factor 1 says it all, because
/// no answer is empty there and no column is NULL everywhere.
pub fn answer_shape(query: QueryNumber) -> AnswerShape {
    let Some(answer) = stored_answer(query, 1.0) else { unreachable!("answers are stored for scale factor 1") };
    answer.shape().clone()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answers::CellKind;

    #[test]
    fn all_stored_answers_are_well_formed() {
        for query in QueryNumber::all() {
            for (scale_factor, _) in &ANSWERS {
                let answer = stored_answer(query, *scale_factor).unwrap();
                assert!(!answer.shape().kinds().is_empty(), "{} at {scale_factor}", query.name());
            }
            assert_eq!(stored_answer(query, 0.5), None);
        }
    }

    /// The specification's own answers for scale factor 1, printed with two decimals, agree with the stored ones.
    #[test]
    fn the_official_answers_agree() {
        for query in QueryNumber::all() {
            let official = tpchgen::q_and_a::answers_sf1::answer(i32::from(query.get())).unwrap();
            let official: Vec<&str> = official.lines().filter(|line| !line.trim().is_empty()).skip(1).collect();
            let stored = stored_answer(query, 1.0).unwrap();
            let Some(rows) = stored.rows() else { continue };
            assert_eq!(official.len(), rows.len(), "{}", query.name());
            for (official, stored_row) in official.iter().zip(rows) {
                for ((official, stored), kind) in official.split('|').zip(stored_row).zip(stored.shape().kinds()) {
                    let (official, stored) = (official.trim(), stored.trim());
                    let equal = match kind {
                        CellKind::Text => official == stored,
                        // Published as 348406.02, where all engines and the digits of the data say 348406.05.
                        _ if query.get() == 17 => stored.starts_with("348406.05"),
                        _ => {
                            let (official, stored): (f64, f64) = (official.parse().unwrap(), stored.parse().unwrap());
                            (official - stored).abs() <= 0.00501 + 1e-9 * official.abs()
                        }
                    };
                    assert!(equal, "{}: {official} {stored}", query.name());
                }
            }
        }
    }
}
