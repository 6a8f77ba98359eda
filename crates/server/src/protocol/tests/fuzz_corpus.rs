//! The inputs from which fuzzing starts, and those that once failed, through the targets' own functions.

#[path = "../../../../../fuzz/src/conversation.rs"]
mod conversation;

use std::path::Path;

fn run(target: &str, check: fn(&[u8])) {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let mut paths: Vec<_> = directory.read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    assert!(paths.len() >= 15, "{} holds a corpus", directory.display());
    for path in paths {
        println!("{}", path.display());
        let mut data = std::fs::read(&path).unwrap();
        // Each also with a client that reads slowly, that cancels, and that stays until the server stops.
        for flags in [data[1], 0, 1, 2, 255] {
            data[1] = flags;
            check(&data);
        }
    }
}

#[test]
fn conversations() {
    run("session", conversation::session);
}

#[test]
fn bytes() {
    run("protocol", conversation::protocol);
}
