//! `eris bench kv` as a process with little data: the file with its figures has what users read.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test fails by panicking")]

use std::process::{Command, Stdio};

#[test]
fn figures_of_a_tiny_run() {
    let path = std::env::temp_dir().join(format!("eris-bench-kv-{}.json", std::process::id()));
    for variant in [&["--coalesced"][..], &["--access", "scan"], &["--baseline", "pinned"], &["--baseline", "shared"]] {
        let output = Command::new(env!("CARGO_BIN_EXE_eris"))
            .args(["bench", "kv", "--pairs", "2000", "--seconds", "0.1", "--warm-up", "0", "--workers", "2", "--json"])
            .arg(&path)
            .args(variant)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let errors = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "{variant:?}: {:?} {errors}", output.status);
        assert_eq!(String::from_utf8(output.stdout).unwrap(), "", "figures go to the file");
        let report: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(report["benchmark"], "kv", "{variant:?}");
        let [all, each] = ["throughput_per_s", "per_worker_per_s"].map(|name| report[name].as_f64().unwrap());
        // On a busy machine no transaction may have ended in time: then both are zero.
        assert!(all >= 0.0 && (each * 2.0 - all).abs() < 1e-6, "{variant:?}: {all} of workers with {each} each");
    }
}
