//! The stored answers of the 22 queries in both parameter sets, by DuckDB on the rows of our generator.

use super::parameters::ParameterSet;
use crate::answers::{Answer, answer_texts};
use crate::tpch::{QUERY_COUNT, QueryNumber};

type Texts = [&'static str; QUERY_COUNT];

/// Scale factor and answer files with normal and with skewed parameters.
const ANSWERS: [(f64, Texts, Texts); 3] = [
    (0.01, answer_texts!("jcch/normal/sf0.01"), answer_texts!("jcch/skewed/sf0.01")),
    (1.0, answer_texts!("jcch/normal/sf1"), answer_texts!("jcch/skewed/sf1")),
    (5.0, answer_texts!("jcch/normal/sf5"), answer_texts!("jcch/skewed/sf5")),
];

/// The right answer of a query of [`each_query`](super::each_query) with the seed of the workload, or `None` when there
/// is none for this scale factor.
pub fn stored_answer(query: QueryNumber, set: ParameterSet, scale_factor: f64) -> Option<Answer> {
    let (_, normal, skewed) = ANSWERS.iter().find(|(stored, ..)| (stored - scale_factor).abs() < 1e-12)?;
    let texts = match set {
        ParameterSet::Normal => normal,
        ParameterSet::Skewed => skewed,
    };
    let answer = Answer::parse(texts[query.index()]);
    assert!(answer.is_some(), "the stored answer of {} at scale factor {scale_factor} is malformed", query.name());
    answer
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answers::CellKind;
    use crate::tpch::answer_shape;

    #[test]
    fn all_stored_answers_are_well_formed() {
        for query in QueryNumber::all() {
            for set in ParameterSet::ALL {
                for (scale_factor, ..) in &ANSWERS {
                    let answer = stored_answer(query, set, *scale_factor).unwrap();
                    let (kinds, expected) = (answer.shape().kinds(), answer_shape(query));
                    // Of a column without values the file says text.
                    let mut pairs = kinds.iter().zip(expected.kinds());
                    let alike = pairs.all(|(stored, expected)| stored == expected || *stored == CellKind::Text);
                    assert!(alike && kinds.len() == expected.kinds().len(), "{} {}", query.name(), set.name());
                }
                assert_eq!(stored_answer(query, set, 0.5), None);
            }
        }
    }

    /// What is populous makes other answers: a parameter set that was mistaken for the other one would be noticed.
    #[test]
    fn the_sets_have_different_answers() {
        let differ = |query: &QueryNumber| {
            let [normal, skewed] = ParameterSet::ALL.map(|set| stored_answer(*query, set, 0.01));
            normal != skewed
        };
        let alike: Vec<QueryNumber> = QueryNumber::all().filter(|query| !differ(query)).collect();
        assert!(alike.len() <= 2, "{alike:?}");
    }
}
