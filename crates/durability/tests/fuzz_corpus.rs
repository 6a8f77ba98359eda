//! The inputs of the fuzz target `files`, without a fuzzer, and some that a seed changes.

#![expect(clippy::expect_used, reason = "a test fails by panicking")]

#[path = "../../../fuzz/src/files.rs"]
mod files;

use std::collections::BTreeMap;
use std::path::Path;

use eris_platform::SeededRandom;
use eris_platform::test_load;
use files::{Verdict, files};

/// Inputs that are made of those of the corpus.
const CHANGED: u64 = 300;

fn corpus() -> Vec<(String, Vec<u8>)> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/files");
    let entries = std::fs::read_dir(&directory).expect("the corpus is there");
    let read = |entry: std::io::Result<std::fs::DirEntry>| {
        let path = entry.expect("a file").path();
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        (name, std::fs::read(path).expect("readable"))
    };
    let mut inputs: Vec<_> = entries.map(read).collect();
    inputs.sort();
    inputs
}

#[test]
fn the_corpus_of_files_is_opened_or_refused_as_its_names_say() {
    let mut verdicts: BTreeMap<bool, usize> = BTreeMap::new();
    for (name, bytes) in corpus() {
        let opens = name.starts_with("opens");
        assert_eq!(files(&bytes) == Verdict::Opened, opens, "{name}");
        *verdicts.entry(opens).or_default() += 1;
    }
    assert!(verdicts.values().all(|count| *count >= 5) && verdicts.len() == 2, "{verdicts:?}");
}

#[test]
fn changed_inputs_are_opened_or_refused() {
    let corpus = corpus();
    let mut random = SeededRandom::new(1);
    let (mut opened, mut refused) = (0, 0);
    for _ in 0..test_load(CHANGED) {
        let mut input = corpus[random.index(corpus.len())].1.clone();
        for _ in 0..=random.index(3) {
            let place = random.index(input.len());
            match random.index(3) {
                0 => input[place] = random.next_u32() as u8,
                1 => input[place] ^= 1 << random.index(8),
                _ => input.truncate(place + 1),
            }
        }
        match files(&input) {
            Verdict::Opened => opened += 1,
            Verdict::Refused => refused += 1,
            Verdict::Nothing => {}
        }
    }
    assert!(opened > 0 && refused > 0, "{opened} opened, {refused} refused");
}
