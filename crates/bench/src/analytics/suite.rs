//! What is loaded and asked: TPC-H, or JCC-H with one of its sets of parameters.

use crate::error::BenchError;
use eris_workloads::answers::Answer;
use eris_workloads::jcch::{self, ParameterSet, Population, WORKLOAD_QUERIES, WORKLOAD_SEED};
use eris_workloads::tpch::{self, Chunks, QueryNumber, Table, TablePart};
use std::io;
use std::path::{Path, PathBuf};

/// Tables and queries that belong together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Suite {
    Tpch,
    Jcch {
        parameters: ParameterSet,
        /// The 200 queries of the workload instead of one of each number.
        workload: bool,
    },
}

/// A query to run, and the right answer, if it is known: as it is stored, or as a fresh load says (`churn`).
#[derive(Debug, Clone)]
pub struct Query {
    /// Unlike those of the other queries: `q1`, or `001-q14` in a workload.
    pub name: String,
    pub number: QueryNumber,
    pub sql: String,
    pub stored: Option<Answer>,
}

/// Makes the rows of a suite at a scale factor.
#[derive(Debug, Clone, Copy)]
pub enum Generator {
    Tpch { scale_factor: f64 },
    Jcch(Population),
}

impl Suite {
    /// As the command line and reports call it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tpch => "tpch",
            Self::Jcch { .. } => "jcch",
        }
    }

    /// As people call it.
    pub(super) fn title(self) -> &'static str {
        match self {
            Self::Tpch => "TPC-H",
            Self::Jcch { .. } => "JCC-H",
        }
    }

    /// The set of parameters, where there is a choice.
    pub fn parameters(self) -> Option<ParameterSet> {
        match self {
            Self::Tpch => None,
            Self::Jcch { parameters, .. } => Some(parameters),
        }
    }

    pub fn is_workload(self) -> bool {
        matches!(self, Self::Jcch { workload: true, .. })
    }

    /// The generator of its rows.
    ///
    /// # Errors
    /// If there are no rows of this scale factor.
    pub fn generator(self, scale_factor: f64) -> Result<Generator, BenchError> {
        match self {
            Self::Tpch if scale_factor > 0.0 && scale_factor.is_finite() => Ok(Generator::Tpch { scale_factor }),
            Self::Tpch => Err(BenchError::Options("--sf is a positive number".to_owned())),
            Self::Jcch { .. } => match Population::new(scale_factor) {
                Ok(population) => Ok(Generator::Jcch(population)),
                Err(error) => Err(BenchError::Options(format!("--sf: {error}"))),
            },
        }
    }

    /// Its queries, in the order to run them.
    pub fn queries(self, scale_factor: f64) -> Vec<Query> {
        match self {
            Self::Tpch => {
                let query = |number: QueryNumber| Query {
                    name: number.name(),
                    number,
                    sql: number.sql(scale_factor),
                    stored: tpch::stored_answer(number, scale_factor),
                };
                QueryNumber::all().map(query).collect()
            }
            Self::Jcch { parameters, workload: false } => {
                let drawn = jcch::each_query(parameters, WORKLOAD_SEED).into_iter();
                let query = drawn.map(|query| Query {
                    name: query.number.name(),
                    number: query.number,
                    sql: query.sql(scale_factor),
                    stored: jcch::stored_answer(query.number, parameters, scale_factor),
                });
                query.collect()
            }
            Self::Jcch { parameters, workload: true } => {
                let drawn = jcch::workload(parameters, WORKLOAD_SEED, WORKLOAD_QUERIES).into_iter();
                let query = drawn.zip(1..).map(|(query, position)| Query {
                    name: format!("{position:03}-{}", query.number.name()),
                    number: query.number,
                    sql: query.sql(scale_factor),
                    stored: None,
                });
                query.collect()
            }
        }
    }
}

impl Generator {
    /// The rows of a part of a table.
    pub fn rows(&self, table: Table, part: TablePart) -> Chunks {
        match self {
            Self::Tpch { scale_factor } => tpch::generate(table, *scale_factor, part),
            Self::Jcch(population) => jcch::generate(table, population, part),
        }
    }

    /// Where rows are kept as files for peers, from one run to the next.
    pub(super) fn kept_directory(&self) -> PathBuf {
        let name = match self {
            Self::Tpch { scale_factor } => format!("eris-tpch-sf{scale_factor}"),
            Self::Jcch(population) => format!("eris-jcch-sf{}", population.scale_factor()),
        };
        std::env::temp_dir().join(name)
    }

    /// Writes schema, queries and, unless they are there already, rows.
    pub(super) fn write_directory(&self, directory: &Path) -> io::Result<()> {
        match self {
            Self::Tpch { scale_factor } => tpch::dump::write_directory(directory, *scale_factor),
            Self::Jcch(population) => jcch::dump::write_directory(directory, population),
        }
    }

    /// Writes schema and queries, for rows that came from somewhere else.
    pub(super) fn write_texts(&self, directory: &Path) -> io::Result<()> {
        match self {
            Self::Tpch { scale_factor } => tpch::dump::write_texts(directory, *scale_factor),
            Self::Jcch(population) => jcch::dump::write_texts(directory, population),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    const JCCH: [Suite; 4] = [
        Suite::Jcch { parameters: ParameterSet::Normal, workload: false },
        Suite::Jcch { parameters: ParameterSet::Skewed, workload: false },
        Suite::Jcch { parameters: ParameterSet::Normal, workload: true },
        Suite::Jcch { parameters: ParameterSet::Skewed, workload: true },
    ];

    #[test]
    fn queries_have_names_of_their_own() {
        for (suite, count) in [Suite::Tpch].into_iter().chain(JCCH).zip([22, 22, 22, 200, 200]) {
            let queries = suite.queries(0.01);
            let names: BTreeSet<&str> = queries.iter().map(|query| query.name.as_str()).collect();
            assert_eq!((queries.len(), names.len()), (count, count), "{suite:?}");
            assert!(queries.iter().all(|query| query.name.ends_with(&query.number.name())), "{names:?}");
        }
    }

    #[test]
    fn answers_are_stored_for_one_of_each_query() {
        for suite in [Suite::Tpch].into_iter().chain(JCCH) {
            let stored =
                |scale_factor| suite.queries(scale_factor).iter().filter(|query| query.stored.is_some()).count();
            assert_eq!(stored(0.01), if suite.is_workload() { 0 } else { 22 }, "{suite:?}");
            assert_eq!(stored(0.05), 0, "{suite:?}");
        }
    }

    #[test]
    fn scale_factors_without_rows_are_refused() {
        for (suite, scale_factor, says) in [
            (Suite::Tpch, 0.0, "--sf is a positive number"),
            (Suite::Tpch, f64::NAN, "--sf is a positive number"),
            (JCCH[0], 0.001, "--sf: scale factor 0.001 is not a multiple of 0.0005 from 0.0025"),
            (JCCH[3], f64::NAN, "--sf: scale factor NaN"),
        ] {
            let refused = suite.generator(scale_factor).err().map(|error| error.to_string()).unwrap_or_default();
            assert!(refused.starts_with(says), "{refused}");
        }
    }

    #[test]
    fn suites_do_not_share_a_directory() {
        let directory = |suite: Suite| suite.generator(0.01).unwrap().kept_directory();
        assert_ne!(directory(Suite::Tpch), directory(JCCH[0]));
        assert_eq!(directory(JCCH[0]), directory(JCCH[3]), "the rows are the same");
    }
}
