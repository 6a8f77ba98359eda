//! The directory of temporary files, and how much may be written there.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::path::PathBuf;

use eris_platform::TempDirectory;
use eris_sql::DatabaseOptions;
use support::{Client, Instance};

const SORT: &str = "SELECT id FROM t ORDER BY text, id DESC";

fn filled(options: DatabaseOptions) -> (Instance, Client) {
    let instance = Instance::start(2, 1, options);
    let mut client = instance.session();
    client.ok("CREATE TABLE t (id int PRIMARY KEY, text text)");
    let lines: String = (0..3_000).map(|id| format!("{id},text\n")).collect::<Vec<_>>().concat();
    client.run_with("COPY t FROM STDIN (FORMAT csv)", &[], Some(&lines)).unwrap();
    client.ok("SET work_mem = '1B'");
    (instance, client)
}

/// With 0 a statement that needs a file fails, and one that needs none does not; -1 is no limit.
#[test]
fn a_limit_of_nothing_is_for_statements_that_need_files() {
    let (_instance, mut client) = filled(DatabaseOptions::default());
    assert_eq!(client.rows("SHOW temp_file_limit"), ["-1"]);
    client.ok("SET temp_file_limit = 0");
    assert_eq!(client.rows("SHOW temp_file_limit"), ["0B"]);
    assert_eq!(client.state(SORT), "53400");
    assert_eq!(client.rows("SELECT count(*) FROM t"), ["3000"]);
    client.ok("SET temp_file_limit = -1");
    assert_eq!(client.rows(SORT).len(), 3_000);
    drop(client);
    let (_instance, mut client) =
        filled(DatabaseOptions { temp_file_limit_bytes: Some(0), ..DatabaseOptions::default() });
    assert_eq!(client.rows("SHOW temp_file_limit"), ["0B"]);
    assert_eq!(client.state(SORT), "53400");
    client.ok("SET temp_file_limit = '1GB'");
    assert_eq!(client.rows(SORT).len(), 3_000);
    client.ok("RESET temp_file_limit");
    assert_eq!(client.state(SORT), "53400");
}

/// A directory that others share: what they called similarly stays.
#[test]
fn files_of_others_stay_in_a_shared_directory() {
    let path: PathBuf = std::env::temp_dir().join(format!("eris-shared-temp-{}", std::process::id()));
    std::fs::create_dir_all(&path).unwrap();
    for name in ["spill-over.tmp", "spill-0123456789abcdef-7.tmp"] {
        std::fs::write(path.join(name), "").unwrap();
    }
    let (instance, mut client) = filled(DatabaseOptions::default());
    let directory = TempDirectory { path: path.clone(), is_own: false, keeps_free_bytes: 0 };
    instance.database.keep_temp_files_in(directory).unwrap();
    assert_eq!(client.rows(SORT).len(), 3_000);
    let left: Vec<_> = std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["spill-over.tmp"]);
    std::fs::remove_dir_all(&path).unwrap();
}
