//! The memory of table definitions: reserved when a table is made, refused with 53200, given back with the table.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::time::{Duration, Instant};

use eris_engine::EngineOptions;
use eris_sql::DatabaseOptions;
use support::Instance;

const LIMIT: u64 = 32 << 20;

/// What the definitions of all tables have reserved.
fn reserved(instance: &Instance) -> u64 {
    let consumers = instance.database.engine().memory().by_consumer();
    consumers.into_iter().find(|(name, _)| *name == "table definitions").map_or(0, |(_, bytes)| bytes)
}

/// Waits until definitions have so many bytes: statements and plans hold a table for a moment longer.
fn wait_for(instance: &Instance, bytes: u64) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while reserved(instance) != bytes && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(reserved(instance), bytes);
}

#[test]
fn definitions_are_reserved_and_refused_and_given_back() {
    let engine = EngineOptions { workers: 1, nodes: 1, memory_limit_bytes: LIMIT, ..EngineOptions::default() };
    let instance = Instance::with_engine(engine, DatabaseOptions::default());
    let mut client = instance.session();
    let columns: Vec<String> = (0..1_600).map(|number| format!("c{number} int")).collect();
    let columns = columns.join(", ");

    client.ok("CREATE TABLE small (id int PRIMARY KEY, a int)");
    let small = reserved(&instance);
    assert!(small > 0);
    client.ok("BEGIN");
    client.ok(&format!("CREATE TABLE w ({columns})"));
    assert!(reserved(&instance) > small + 1_600 * 100, "{} bytes", reserved(&instance));
    client.ok("ROLLBACK");
    wait_for(&instance, small);

    let mut names = Vec::new();
    let refused = loop {
        let name = format!("w{}", names.len());
        match client.run(&format!("CREATE TABLE {name} ({columns})")) {
            Ok(_) => names.push(name),
            Err(error) => break error,
        }
        assert!(names.len() < 1_000, "the definitions of a thousand tables do not fit into the limit");
    };
    assert_eq!(refused.sqlstate.as_str(), "53200", "{refused}");
    assert!(names.len() > 10, "{} tables", names.len());
    client.ok("TRUNCATE small");
    client.ok(&format!("DROP TABLE {}", names.join(", ")));
    wait_for(&instance, small);

    client.ok("CREATE INDEX further ON small (a)");
    assert!(reserved(&instance) > small);
    client.ok("DROP TABLE small");
    wait_for(&instance, 0);
}
