//! `eris bench recovery` as a process with little data: another process fills the directory and is killed.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test fails by panicking")]

use std::process::{Command, Stdio};

#[test]
fn what_a_killed_process_wrote_is_recovered() {
    let directory = std::env::temp_dir().join(format!("eris-bench-recovery-{}", std::process::id()));
    for (from, transactions) in [("checkpoint", 0..=0), ("load", 8..=100), ("transactions", 500..=600)] {
        let output = Command::new(env!("CARGO_BIN_EXE_eris"))
            .args(["bench", "recovery", "--sf", "0.01", "--transactions", "500", "--repeat", "1", "--from", from])
            .args(["--memory-limit", "1G", "--db"])
            .arg(&directory)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let [told, errors] = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
        assert!(output.status.success(), "{from}: {:?} {errors}", output.status);
        let report: serde_json::Value = serde_json::from_str(&told).unwrap();
        assert_eq!((&report["from"], &report["right"]), (&from.into(), &true.into()), "{report}");
        assert!(transactions.contains(&report["transactions"].as_u64().unwrap()), "{report}");
        assert!(!directory.exists(), "what was written stays");
    }
}

#[test]
fn a_directory_that_exists_is_refused() {
    let output = Command::new(env!("CARGO_BIN_EXE_eris"))
        .args(["bench", "recovery", "--db"])
        .arg(std::env::temp_dir())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && errors.contains("it exists"), "{errors}");
}
