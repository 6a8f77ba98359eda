//! The inputs of the fuzz target `message`, without a fuzzer.

#[path = "../../../fuzz/src/message.rs"]
mod message;

use std::path::Path;

use eris_engine::message::MessageView;

#[test]
fn the_corpus_of_messages_is_decoded_or_refused() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/message");
    let (mut decoded, mut refused) = (0, 0);
    for entry in std::fs::read_dir(&directory).expect("the corpus is there") {
        let bytes = std::fs::read(entry.expect("a file").path()).expect("readable");
        message::messages(&bytes);
        match MessageView::decode(&bytes) {
            Ok(_) => decoded += 1,
            Err(_) => refused += 1,
        }
    }
    assert!(decoded >= 9 && refused >= 8, "{decoded} decoded, {refused} refused");
}
