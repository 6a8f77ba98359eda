//! `SET parallelism` reaches the partitions. What it does there is tested in the engine; answers, in `slt`.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::time::Duration;

use eris_engine::{EngineOptions, Event};
use eris_sql::DatabaseOptions;
use support::Instance;

#[test]
fn a_statement_holds_its_scans_back_and_no_other_does() {
    // No partition is read at one go, so each is asked while another one is under way.
    let engine = EngineOptions { workers: 2, quantum: Duration::ZERO, in_place: false, ..EngineOptions::default() };
    let database = DatabaseOptions { partitions: 7, segment_rows: 8, ..DatabaseOptions::default() };
    let instance = Instance::with_engine(engine, database);
    let mut client = instance.session();
    client.ok("CREATE TABLE t (id int PRIMARY KEY, x int)");
    let rows: Vec<String> = (0..700).map(|id| format!("({id}, {})", id % 10)).collect();
    client.ok(&format!("INSERT INTO t VALUES {}", rows.join(", ")));
    let stalls = || instance.database.engine().statistics().event(Event::Stalls);
    // Groups hand nothing on, so there is no other reason to be put aside.
    for (setting, holds_back) in [("0", false), ("1", true), ("2", false), ("1", true)] {
        client.ok(&format!("SET parallelism = {setting}"));
        let before = stalls();
        assert_eq!(client.rows("SELECT x, count(*) FROM t WHERE x < 2 GROUP BY x ORDER BY x"), ["0|70", "1|70"]);
        assert_eq!(stalls() > before, holds_back, "parallelism = {setting}");
    }
}
