//! Bytes in place of a buffer of the engine's messages: each is decoded or is an error, and what was decoded is encoded
//! to the same bytes.

use eris_engine::message::MessageView;

/// Reads messages one behind the other until something is not one.
///
/// # Panics
/// If a decoded message is encoded differently, or has another number of commands than it says.
pub fn messages(bytes: &[u8]) {
    let mut at = 0;
    while let Ok((message, length)) = MessageView::decode(&bytes[at..]) {
        assert!(length > 0 && length <= bytes.len() - at, "a message lies within its bytes");
        let (mut count, mut command_bytes) = (0, 0);
        for command in message.commands() {
            count += 1;
            command_bytes += command.len();
        }
        assert_eq!(count, message.command_count, "every command is there");
        assert!(command_bytes <= length, "commands lie within their message");
        let mut again = Vec::new();
        message.encode(&mut again);
        assert_eq!(again, bytes[at..at + length], "bytes have one meaning");
        let owned = message.to_message();
        assert_eq!(owned.view(), message, "a copy is the same message");
        at += length;
    }
}
