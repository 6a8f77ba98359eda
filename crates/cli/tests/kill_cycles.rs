//! A few cycles of `scripts/kill_cycles`: the server is killed while it works, and has what it acknowledged afterwards.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::PathBuf;
use std::process::{Command, Stdio};

/// What the script prints, as it is.
fn kill_cycles(arguments: &[&str]) -> Option<String> {
    let python = Command::new("python3").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if !python.is_ok_and(|status| status.success()) {
        println!("skipped: python3 is not installed");
        return None;
    }
    let script: PathBuf = [env!("CARGO_MANIFEST_DIR"), "..", "..", "scripts", "kill_cycles"].iter().collect();
    let output = Command::new("python3")
        .arg(script)
        .args(["--binary", env!("CARGO_BIN_EXE_eris")])
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let texts = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    assert!(output.status.success(), "{arguments:?}: {}\n{}", texts[0], texts[1]);
    Some(texts[0].clone())
}

/// Seeds 1 to 3: a kill during a checkpoint, kills during recovery, a clean stop.
#[test]
fn what_was_acknowledged_survives() {
    let arguments = ["--cycles", "3", "--acknowledgements", "200", "--seed", "1"];
    let Some(printed) = kill_cycles(&arguments) else { return };
    let report: serde_json::Value = serde_json::from_str(&printed).unwrap();
    assert_eq!(report["cycles"], 3, "{report}");
    assert!(report["acknowledged"].as_u64().unwrap() >= 600 && report["checked"].as_u64().unwrap() >= 600, "{report}");
    assert!(report["retries"]["40001"].as_u64() > Some(0), "SERIALIZABLE clients meet each other: {report}");
    assert_eq!(report["second_servers_refused"], 3, "{report}");
    assert!(report["emptied_beside_writers"]["truncate"].as_u64() > Some(0), "{report}");
    assert!(report["sorts_in_files"].as_u64() > Some(0), "{report}");
    for violation in ["lost", "phantom", "half"] {
        assert_eq!(report[violation], 0, "{report}");
    }
}

#[test]
fn a_directory_that_cannot_be_written_is_refused() {
    let Some(printed) = kill_cycles(&["--read-only-directory"]) else { return };
    let report: serde_json::Value = serde_json::from_str(&printed).unwrap();
    // SAFETY: it only says who runs this.
    let is_root = unsafe { libc::geteuid() } == 0;
    if let Some(reason) = report["skipped"].as_str() {
        // Nothing can be kept from root but by a file system of its own.
        assert!(!is_root, "it was not tried: {reason}");
        println!("skipped: {reason}");
        return;
    }
    for (name, directory) in [("db", "DIR/db"), ("empty", "DIR/empty"), ("missing", "DIR/missing")] {
        let said = report["said"][name].as_str().unwrap_or_else(|| panic!("nothing was said of {name}: {report}"));
        let is_reason = ["read-only", "denied"].iter().any(|reason| said.to_lowercase().contains(reason));
        assert!(said.starts_with("error: ") && said.contains(directory) && is_reason, "{name}: {said}");
    }
}
