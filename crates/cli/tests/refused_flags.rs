//! Flags that cannot be: one line that says why, on the error stream, before anything is started.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test fails by panicking")]

use std::process::{Command, Stdio};

/// What `eris` says when it refuses.
fn refusal(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_eris")).args(arguments).stdin(Stdio::null()).output().unwrap();
    let (printed, errors) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert!(matches!(output.status.code(), Some(1 | 2)), "{arguments:?}: {:?} {errors}", output.status);
    assert_eq!(printed, "", "{arguments:?}");
    assert!(errors.starts_with("error: ") && !errors.contains("panicked"), "{arguments:?}: {errors}");
    errors
}

fn assert_refused(arguments: &[&str], says: &[&str]) {
    let errors = refusal(arguments);
    for part in says {
        assert!(errors.contains(part), "{arguments:?} says {part}: {errors}");
    }
}

#[test]
fn no_workers() {
    for command in [&["serve", "--listen", "127.0.0.1:0"][..], &["shell", "-c", "SELECT 1"], &["demo"]] {
        assert_refused(&[command, &["--workers", "0"]].concat(), &["workers", "0"]);
    }
}

#[test]
fn fewer_workers_than_nodes() {
    assert_refused(&["serve", "--listen", "127.0.0.1:0", "--workers", "2", "--nodes", "3"], &["2 workers", "3 nodes"]);
    assert_refused(&["serve", "--listen", "127.0.0.1:0", "--nodes", "0"], &["node"]);
    assert_refused(&["serve", "--listen", "127.0.0.1:0", "--workers", "many"], &["many", "--workers"]);
}

#[test]
fn addresses_that_others_can_reach() {
    for address in ["0.0.0.0:0", "[::]:0", "192.0.2.1:5433"] {
        assert_refused(&["serve", "--listen", address], &[address, "authentication", "loopback"]);
    }
    assert_refused(&["serve", "--listen", "localhost"], &["localhost", "--listen", "localhost:5433"]);
    assert_refused(&["serve", "--listen", "no-such-name.invalid:5433"], &["no-such-name.invalid", "127.0.0.1"]);
}

#[test]
fn an_address_that_is_taken() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    assert_refused(&["serve", "--listen", &address], &[&address, "in use", "--listen 127.0.0.1:PORT"]);
}

#[test]
fn memory_that_is_none() {
    assert_refused(&["serve", "--memory-limit", "0"], &["0 bytes"]);
    assert_refused(&["serve", "--memory-limit", "5 bananas"], &["bananas"]);
    assert_refused(&["serve", "--memory-limit=-1"], &["-1"]);
    assert_refused(&["serve", "--temp-file-limit", "-2"], &["-2", "--temp-file-limit"]);
}

#[test]
fn figures_that_cannot_be_written() {
    let file = env!("CARGO_MANIFEST_PATH");
    for path in ["/no/such/directory/f.json", &format!("{file}/f.json"), env!("CARGO_MANIFEST_DIR")] {
        for benchmark in ["tpch", "jcch", "tatp", "kv"] {
            // The defaults would run for a minute.
            assert_refused(&["bench", benchmark, "--json", path], &[path, "cannot write the figures"]);
        }
    }
}

#[test]
fn key_value_options_that_are_none() {
    for (arguments, says) in [
        (&["--access", "hash"][..], &["hash", "--access"][..]),
        (&["--partitioned", "both"], &["both", "--partitioned"]),
        (&["--locality", "near"], &["near", "--locality"]),
        (&["--baseline", "atomic"], &["atomic", "--baseline"]),
        (&["--pairs", "0"], &["at least one pair"]),
        (&["--seconds", "0"], &["seconds are a positive number"]),
        (&["--nodes", "3", "--workers", "2"], &["at most as many nodes"]),
        (&["--partitions", "1", "--nodes", "2"], &["each node has a partition"]),
        (&["--locality", "local", "--partitioned", "value"], &["need partitions by key"]),
    ] {
        assert_refused(&[&["bench", "kv"], arguments].concat(), says);
    }
}

#[test]
fn analytical_benchmarks_that_are_none() {
    for (arguments, says) in [
        (&["tpch", "--sf", "0"][..], &["--sf is a positive number"][..]),
        (&["tpch", "--parameters", "skewed"], &["--parameters"]),
        (&["jcch", "--sf", "0.0012"], &["--sf", "0.0012", "multiple of 0.0005 from 0.0025"]),
        (&["jcch", "--sf", "NaN"], &["--sf", "NaN", "multiple of 0.0005"]),
        (&["jcch", "--parameters", "odd"], &["odd", "--parameters", "normal, skewed"]),
        (&["jcch", "--refresh", "many"], &["many", "--refresh"]),
        (&["jcch", "--sf", "0.01", "--churn", "1", "--peers", "duckdb"], &["--churn", "fresh load"]),
        (&["jcch", "--sf", "0.01", "--repeat", "0"], &["--repeat is at least 1"]),
        (&["jcch", "--sf", "0.01", "--data", "/nonexistent"], &["no region.tbl in /nonexistent"]),
    ] {
        assert_refused(&[&["bench"], arguments].concat(), says);
    }
}
