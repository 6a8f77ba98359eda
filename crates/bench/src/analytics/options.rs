//! What is asked of the benchmark.

use super::peers::PeerKind;
use super::suite::Suite;
use crate::error::BenchError;
use crate::instance::InstanceOptions;
use eris_workloads::tpch::Table;
use eris_workloads::tpch::tbl::table_files;
use std::path::PathBuf;

#[derive(Debug, Clone, PartialEq)]
pub struct AnalyticsOptions {
    pub suite: Suite,
    pub scale_factor: f64,
    /// A directory of `.tbl` files; without one the rows are generated straight into the tables.
    pub data: Option<PathBuf>,
    pub workers: usize,
    pub nodes: usize,
    pub partitions: Option<usize>,
    pub layout: Option<String>,
    pub segment_rows: Option<u32>,
    /// A partition with more rows than this is split.
    pub split_rows: Option<u64>,
    /// Clients that insert, change and delete rows beside the queries, see `refresh`.
    pub refresh_clients: usize,
    /// Random transactions before the queries, whose answers are then those of a fresh load, see `churn`.
    pub churn: u64,
    pub memory_limit_bytes: u64,
    /// An operator that holds more goes on in temporary files.
    pub work_mem_bytes: Option<u64>,
    pub repeat: usize,
    pub peers: Vec<PeerKind>,
}

impl Default for AnalyticsOptions {
    fn default() -> Self {
        Self {
            suite: Suite::Tpch,
            scale_factor: 1.0,
            data: None,
            workers: 2,
            nodes: 1,
            partitions: None,
            layout: None,
            segment_rows: None,
            split_rows: None,
            refresh_clients: 0,
            churn: 0,
            memory_limit_bytes: 16 << 30,
            work_mem_bytes: None,
            repeat: 3,
            peers: Vec::new(),
        }
    }
}

impl AnalyticsOptions {
    pub(super) fn validate(&self) -> Result<(), BenchError> {
        if self.repeat == 0 {
            return Err(BenchError::Options("--repeat is at least 1".to_owned()));
        }
        if self.churn > 0 && !self.peers.is_empty() {
            let message = "--churn leaves rows that no peer has: answers are compared with those of a fresh load";
            return Err(BenchError::Options(message.to_owned()));
        }
        self.suite.generator(self.scale_factor)?;
        if let Some(directory) = &self.data {
            for table in Table::ALL {
                table_files(directory, table)?;
            }
        }
        Ok(())
    }

    pub(super) fn instance_options(&self) -> InstanceOptions {
        InstanceOptions {
            workers: self.workers,
            nodes: self.nodes,
            memory_limit_bytes: self.memory_limit_bytes,
            in_place: true,
            split_rows: self.split_rows,
        }
    }

    /// What stands between the parentheses of each table's WITH clause.
    pub(super) fn storage_options(&self) -> String {
        let layout = self.layout.as_ref().map(|layout| format!("layout = {layout}"));
        let partitions = self.partitions.map(|partitions| format!("partitions = {partitions}"));
        let segment_rows = self.segment_rows.map(|rows| format!("segment_rows = {rows}"));
        [layout, partitions, segment_rows].into_iter().flatten().collect::<Vec<_>>().join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn storage_options_are_those_given() {
        let mut options = AnalyticsOptions::default();
        assert_eq!(options.storage_options(), "");
        options.layout = Some("mixed".to_owned());
        options.segment_rows = Some(1_000);
        assert_eq!(options.storage_options(), "layout = mixed, segment_rows = 1000");
    }

    #[test]
    fn impossible_options_are_refused() {
        for options in [
            AnalyticsOptions { scale_factor: 0.0, ..AnalyticsOptions::default() },
            AnalyticsOptions { repeat: 0, ..AnalyticsOptions::default() },
            AnalyticsOptions { churn: 1, peers: vec![PeerKind::DuckDb], ..AnalyticsOptions::default() },
        ] {
            assert!(matches!(options.validate(), Err(BenchError::Options(_))), "{options:?}");
        }
    }
}
