//! Whole conversations cut into pieces of every size say the same.

use super::{bind, bytes, close, describe, execute, parse, query, read, startup, sync};
use crate::protocol::pipe::Conversation;
use crate::protocol::signal::Registry;

#[test]
fn the_answer_does_not_depend_on_how_the_bytes_arrive() {
    let mut stream = startup(&[("user", "eris")]);
    stream.extend(bytes([
        query("rows 4; begin"),
        parse("s", "echo 1"),
        describe(b'S', "s"),
        bind("p", "s", &[Some("Grüße, 世界")]),
        execute("p", 1),
        sync(),
        query("gibberish"),
        close(b'P', "p"),
        parse("", "rows 8"),
        bind("", "", &[]),
        execute("", 3),
        execute("", 3),
        sync(),
        query("copy"),
    ]));
    stream.extend(b"d\0\0\0\x06a\nc\0\0\0\x04X\0\0\0\x04");
    let converse = |piece: usize, write: usize| {
        let mut client = Conversation::new(&std::sync::Arc::new(Registry::default()), write);
        for part in stream.chunks(piece) {
            client.send(part);
        }
        let output = client.run();
        assert!(client.ended(), "the client said goodbye");
        (output, client.calls())
    };
    let (output, calls) = converse(stream.len(), stream.len());
    assert!(read(&output).contains(&"row Grüße, 世界".to_owned()));
    for piece in [1, 2, 3, 5, 7, 11, 64] {
        for write in [1, 13, 1000] {
            assert_eq!(converse(piece, write), (output.clone(), calls.clone()), "pieces of {piece}, writes of {write}");
        }
    }
}
