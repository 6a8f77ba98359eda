//! A client of the server whose bytes come from the fuzzer, and what must hold whatever they are.

use std::sync::Arc;

use eris_server::protocol::pipe::Conversation;
use eris_server::protocol::signal::Registry;

/// The start-up packet of an honest client.
const STARTUP: &[u8] = b"\0\0\0\x13\0\x03\0\0user\0eris\0\0";

/// The types of message that records may have.
const KINDS: &[u8] = b"QPBDECHSdcfFX";

/// Bytes as they come against framing, start-up and decoding.
///
/// ```text
///   piece size | flags | bytes to send
/// ```
pub fn protocol(data: &[u8]) {
    let [piece, flags, bytes @ ..] = data else { return };
    converse(bytes, *piece, *flags);
    converse(&[STARTUP, bytes].concat(), *piece, *flags);
}

/// Messages in any order against the session states. They are framed here, so that the fuzzer spends its time behind
/// the frames; a record may also hold several statements of the scripted backend's language.
///
/// ```text
///   piece size | flags | records...        record: kind | length of the body | body
/// ```
pub fn session(data: &[u8]) {
    let [piece, flags, records @ ..] = data else { return };
    let mut stream = STARTUP.to_vec();
    let mut rest = records;
    while let [kind, length, tail @ ..] = rest {
        let (body, tail) = tail.split_at(usize::from(*length).min(tail.len()));
        stream.push(KINDS[usize::from(*kind) % KINDS.len()]);
        stream.extend_from_slice(&(body.len() as u32 + 4).to_be_bytes());
        stream.extend_from_slice(body);
        rest = tail;
    }
    converse(&stream, *piece, *flags);
}

/// Sends `stream` in pieces of `piece` bytes. `flags` choose how fast the client reads, whether statements are
/// cancelled between two pieces, and whether it is the client or the server that ends the connection.
fn converse(stream: &[u8], piece: u8, flags: u8) {
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
        client.endpoint.stop();
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
