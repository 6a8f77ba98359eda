//! What the fuzz targets of the server have in common: a client whose bytes come from the fuzzer, and what must hold
//! whatever they are.

use std::sync::Arc;

use eris_server::protocol::pipe::Conversation;
use eris_server::protocol::signal::Registry;

/// The start-up packet of an honest client.
pub const STARTUP: &[u8] = b"\0\0\0\x13\0\x03\0\0user\0eris\0\0";

/// Sends `stream` in pieces of `piece` bytes. `flags` choose how fast the client reads, whether statements are
/// cancelled between two pieces, and whether it is the client or the server that ends the connection.
pub fn converse(stream: &[u8], piece: u8, flags: u8) {
    let registry = Arc::new(Registry::default());
    let mut client = Conversation::new(&registry, 1 + usize::from(flags >> 2));
    let mut output = Vec::new();
    for part in stream.chunks(1 + usize::from(piece)) {
        client.send(part);
        output.extend(client.run());
        if flags & 1 != 0 {
            registry.cancel(1, 1);
            output.extend(client.run());
        }
    }
    if flags & 2 != 0 {
        registry.stop();
    } else {
        client.close();
    }
    output.extend(client.run());
    assert!(client.ended(), "a connection ends with its client, or with its server");
    assert!(registry.is_empty(), "a connection that ended is forgotten");
    assert_whole(&output);
}

/// Everything sent is an answer to a request for encryption, or a whole message.
fn assert_whole(mut output: &[u8]) {
    while let [b'N', tail @ ..] = output {
        // A notice starts with the same byte, and the length of one that is short enough to be real with two zeros.
        if tail.starts_with(&[0, 0]) {
            break;
        }
        output = tail;
    }
    while let [kind, a, b, c, d, ..] = output {
        assert!(kind.is_ascii_alphanumeric(), "kind {kind}");
        let length = u32::from_be_bytes([*a, *b, *c, *d]) as usize;
        assert!(length >= 4 && length < output.len(), "length {length} of {} bytes", output.len());
        output = &output[1 + length..];
    }
    assert!(output.is_empty(), "half a message: {output:?}");
}
