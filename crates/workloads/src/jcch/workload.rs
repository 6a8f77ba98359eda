//! Queries with drawn parameters: one of each number, or a workload of many in random order.
//!
//! The experiments with memory traces run 200 random queries of 21, without Q21, and a reduced workload: those of the
//! 200, 85 in number, that do not read the table orders. Which queries these were, and whether with skewed parameters,
//! is not known. Ours is the one of a seed for which 85 are left; its parameters are skewed unless asked otherwise,
//! because the traces show more accesses to what is populous in 1993 and 1994.

use super::parameters::{Parameter, ParameterSet, draw_parameters};
use crate::tpch::QueryNumber;
use eris_platform::SeededRandom;

/// Queries of the workload.
pub const WORKLOAD_QUERIES: usize = 200;

/// The seed of the workload: the first one that leaves 85 queries without orders, where 95 are to be expected.
pub const WORKLOAD_SEED: u64 = 198;

/// The query that is not part of the workload.
const LEFT_OUT: u8 = 21;

/// The queries that do not read the table orders.
const WITHOUT_ORDERS: [u8; 10] = [1, 2, 6, 11, 14, 15, 16, 17, 19, 20];

/// A query with its parameters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DrawnQuery {
    pub number: QueryNumber,
    pub set: ParameterSet,
    pub parameters: Vec<Parameter>,
}

impl DrawnQuery {
    pub fn draw(number: QueryNumber, set: ParameterSet, random: &mut SeededRandom) -> Self {
        Self { number, set, parameters: draw_parameters(number, set, random) }
    }

    /// The text to run at a scale factor.
    pub fn sql(&self, scale_factor: f64) -> String {
        let parameters = self.parameters.iter().map(|(name, value)| (*name, value.as_str()));
        self.number.sql_with(scale_factor, parameters)
    }

    pub fn reads_orders(&self) -> bool {
        !WITHOUT_ORDERS.contains(&self.number.get())
    }
}

/// One of each of the 22 queries.
pub fn each_query(set: ParameterSet, seed: u64) -> Vec<DrawnQuery> {
    let mut random = SeededRandom::new(seed);
    QueryNumber::all().map(|number| DrawnQuery::draw(number, set, &mut random)).collect()
}

/// Random queries of all but Q21. The same seed gives the same numbers in the same order, whatever the set.
pub fn workload(set: ParameterSet, seed: u64, count: usize) -> Vec<DrawnQuery> {
    let numbers: Vec<QueryNumber> = QueryNumber::all().filter(|number| number.get() != LEFT_OUT).collect();
    let mut order = SeededRandom::new(seed);
    let mut values = SeededRandom::new(order.next_u64());
    let mut draw = || DrawnQuery::draw(numbers[order.index(numbers.len())], set, &mut values);
    (0..count).map(|_| draw()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_workload_is_the_one_of_the_experiments() {
        for set in ParameterSet::ALL {
            let queries = workload(set, WORKLOAD_SEED, WORKLOAD_QUERIES);
            assert_eq!(queries.len(), 200);
            assert!(queries.iter().all(|query| query.number.get() != 21));
            assert_eq!(queries.iter().filter(|query| !query.reads_orders()).count(), 85);
            assert_eq!(queries, workload(set, WORKLOAD_SEED, WORKLOAD_QUERIES), "the same seed, the same queries");
        }
        let numbers = |set| -> Vec<_> { workload(set, 7, 50).iter().map(|query| query.number).collect() };
        assert_eq!(numbers(ParameterSet::Normal), numbers(ParameterSet::Skewed));
    }

    #[test]
    fn all_queries_but_one_occur_equally_often() {
        let mut counts = [0usize; 22];
        for query in workload(ParameterSet::Skewed, 1, 21_000) {
            counts[query.number.index()] += 1;
        }
        assert_eq!(counts[20], 0);
        // Five standard deviations of a binomial distribution with 21,000 trials.
        let others = counts.iter().enumerate().filter(|(index, _)| *index != 20);
        assert!(others.clone().all(|(_, count)| count.abs_diff(1_000) < 155), "{counts:?}");
    }

    #[test]
    fn the_texts_tell_which_queries_read_orders() {
        for set in ParameterSet::ALL {
            for query in each_query(set, 3) {
                let sql = query.sql(1.0);
                assert_eq!(query.reads_orders(), sql.contains("orders"), "{}", query.number.name());
            }
        }
    }
}
