//! From a stream of bytes to whole messages.
//!
//! ```text
//!   kind (1 byte) | length (4 bytes, big endian, counts itself, not the kind) | body
//! ```
//!
//! The kind and the length are judged as soon as they are there, before anything is allocated for the body, and the
//! buffer only ever grows by bytes that did arrive: announcing a gigabyte costs the sender a gigabyte. An emptied
//! buffer gives its memory back, so an idle connection holds next to none.

use std::ops::Range;

use crate::protocol::frontend::Kind;
use crate::protocol::report::{Report, SqlState};

/// Longest start-up packet, as in PostgreSQL.
pub const STARTUP_BYTES_MAX: usize = 10_000;
/// Longest message that carries statements or data. A value is at most this long.
pub const MESSAGE_BYTES_MAX: usize = 1 << 30;
/// Longest message of any other kind.
pub const SMALL_MESSAGE_BYTES_MAX: usize = 10_000;
/// What a Parse message has beside its text: the types of parameters, and a name.
const PARSE_BYTES_MAX: usize = 1 << 19;
/// Memory that an emptied buffer may keep between two messages.
const KEPT_BYTES_MAX: usize = 1 << 14;
/// Memory that an emptied buffer may keep through a wait for the client.
pub(crate) const IDLE_BYTES_MAX: usize = 1 << 10;

/// One whole message inside the buffer.
#[derive(Debug)]
pub struct Frame {
    pub kind: Kind,
    body: Range<usize>,
}

/// Bytes received and not used yet.
#[derive(Debug)]
pub struct Frames {
    bytes: Vec<u8>,
    /// Everything before this is used.
    start: usize,
    /// Bytes still to come that nobody wants.
    unwanted: usize,
    /// The longest query text that is wanted.
    pub(crate) text_bytes_max: usize,
}

impl Default for Frames {
    fn default() -> Self {
        Frames { bytes: Vec::new(), start: 0, unwanted: 0, text_bytes_max: MESSAGE_BYTES_MAX }
    }
}

impl Frames {
    /// Takes over what arrived.
    pub fn push(&mut self, arrived: &[u8]) {
        let unwanted = self.unwanted.min(arrived.len());
        self.unwanted -= unwanted;
        let arrived = &arrived[unwanted..];
        if self.start > 0 && self.bytes.len() + arrived.len() > self.bytes.capacity() {
            self.bytes.drain(..self.start);
            self.start = 0;
        }
        self.bytes.extend_from_slice(arrived);
    }

    /// Bytes that wait to be used.
    pub fn waiting(&self) -> usize {
        self.bytes.len() - self.start
    }

    /// Memory the buffer holds.
    pub fn capacity(&self) -> usize {
        self.bytes.capacity()
    }

    /// Bytes of the message that is arriving, if it is a query text that is longer than wanted: its header says so.
    pub fn beyond(&self) -> Option<usize> {
        let rest = &self.bytes[self.start..];
        let beside = match Kind::from_byte(*rest.first()?)? {
            Kind::Query => 5,
            Kind::Parse => PARSE_BYTES_MAX,
            _ => return None,
        };
        let bytes = usize::try_from(length_at(rest, 1)?).ok()?;
        (bytes <= MESSAGE_BYTES_MAX && bytes > self.text_bytes_max.saturating_add(beside)).then_some(bytes)
    }

    /// Gives up the message that is arriving, and what is still to come of it; `None` if none is.
    pub fn give_up(&mut self) -> Option<Kind> {
        let rest = &self.bytes[self.start..];
        let kind = Kind::from_byte(*rest.first()?)?;
        let bytes = 1 + length_at(rest, 1)? as usize;
        if bytes <= rest.len() {
            return None;
        }
        self.unwanted = bytes - rest.len();
        self.bytes = Vec::new();
        self.start = 0;
        Some(kind)
    }

    pub fn body(&self, frame: &Frame) -> &[u8] {
        &self.bytes[frame.body.clone()]
    }

    /// Forgets a message and everything before it.
    pub fn release(&mut self, frame: &Frame) {
        self.use_up(frame.body.end);
    }

    /// The next message, when it is there as a whole. A broken frame is fatal: nobody knows where the next one starts.
    pub fn next(&self) -> Result<Option<Frame>, Report> {
        let rest = &self.bytes[self.start..];
        let Some(first) = rest.first() else { return Ok(None) };
        let Some(kind) = Kind::from_byte(*first) else {
            let name = first.escape_ascii();
            return Err(fatal(format!("invalid frontend message type {first} ('{name}')")));
        };
        let Some(length) = length_at(rest, 1) else { return Ok(None) };
        let most = limit(kind);
        if !(4..=most as i64).contains(&length) {
            return Err(fatal(format!("invalid message length {length} for {kind:?}: it must be from 4 to {most}")));
        }
        let end = 1 + length as usize;
        if rest.len() < end {
            return Ok(None);
        }
        Ok(Some(Frame { kind, body: self.start + 5..self.start + end }))
    }

    /// The start-up packet (no kind byte), when it is there as a whole; it is used up by [`Frames::release_startup`].
    pub fn startup(&self) -> Result<Option<&[u8]>, Report> {
        let rest = &self.bytes[self.start..];
        let Some(length) = length_at(rest, 0) else { return Ok(None) };
        if !(8..=STARTUP_BYTES_MAX as i64).contains(&length) {
            return Err(fatal(format!(
                "invalid length {length} of startup packet: it must be from 8 to {STARTUP_BYTES_MAX}"
            )));
        }
        Ok(rest.get(4..length as usize))
    }

    pub fn release_startup(&mut self, body_bytes: usize) {
        self.use_up(self.start + 4 + body_bytes);
    }

    fn use_up(&mut self, until: usize) {
        assert!(until <= self.bytes.len(), "a message that is used up must have arrived");
        self.start = until;
        if self.start == self.bytes.len() {
            self.start = 0;
            self.bytes.clear();
            if self.bytes.capacity() > KEPT_BYTES_MAX {
                self.bytes = Vec::new();
            }
        }
    }

    /// Gives memory back before a wait of unknown length.
    pub fn rest(&mut self) {
        if self.waiting() == 0 && self.bytes.capacity() > IDLE_BYTES_MAX {
            self.bytes = Vec::new();
        }
    }
}

fn limit(kind: Kind) -> usize {
    match kind {
        Kind::Query | Kind::Parse | Kind::Bind | Kind::CopyData | Kind::FunctionCall => MESSAGE_BYTES_MAX,
        Kind::Describe
        | Kind::Execute
        | Kind::Close
        | Kind::Flush
        | Kind::Sync
        | Kind::CopyDone
        | Kind::CopyFail
        | Kind::Terminate => SMALL_MESSAGE_BYTES_MAX,
    }
}

fn length_at(bytes: &[u8], offset: usize) -> Option<i64> {
    let word = bytes.get(offset..offset + 4)?;
    Some(i64::from(word.iter().fold(0u32, |word, byte| word << 8 | u32::from(*byte)) as i32))
}

fn fatal(message: String) -> Report {
    Report::fatal(SqlState::PROTOCOL_VIOLATION, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_come_out_whole_whatever_the_pieces() {
        let stream = b"Q\0\0\0\x0dselect 1\0S\0\0\0\x04X\0\0\0\x04";
        for piece in 1..stream.len() {
            let mut frames = Frames::default();
            let mut seen = Vec::new();
            for part in stream.chunks(piece) {
                frames.push(part);
                while let Some(frame) = frames.next().unwrap() {
                    seen.push((frame.kind, frames.body(&frame).to_vec()));
                    frames.release(&frame);
                }
            }
            let expected =
                vec![(Kind::Query, b"select 1\0".to_vec()), (Kind::Sync, Vec::new()), (Kind::Terminate, Vec::new())];
            assert_eq!(seen, expected, "pieces of {piece}");
            assert_eq!(frames.waiting(), 0);
        }
    }

    #[test]
    fn bad_frames_are_refused_before_their_body() {
        for bytes in [&b"\x16\x03\x01"[..], b"Q\xff\xff\xff\xff", b"Q\0\0\0\x03", b"Q\x40\0\0\x01", b"S\0\0\x27\x11"] {
            let mut frames = Frames::default();
            frames.push(bytes);
            let error = frames.next().unwrap_err();
            assert_eq!(error.sqlstate, SqlState::PROTOCOL_VIOLATION);
            assert_eq!(error.severity, crate::protocol::report::Severity::Fatal);
        }
    }

    #[test]
    fn a_large_announcement_allocates_nothing() {
        let mut frames = Frames::default();
        frames.push(b"Q\x3f\xff\xff\xff");
        assert!(frames.next().unwrap().is_none());
        assert!(frames.bytes.capacity() < 64);
    }

    #[test]
    fn a_message_given_up_takes_only_itself() {
        let mut frames = Frames::default();
        frames.push(b"Q\0\0\0\x09ab");
        assert_eq!(frames.give_up(), Some(Kind::Query));
        assert_eq!(frames.capacity(), 0);
        frames.push(b"c");
        assert!(frames.next().unwrap().is_none());
        frames.push(b"deS\0\0\0\x04");
        assert_eq!(frames.next().unwrap().unwrap().kind, Kind::Sync);
        assert_eq!(frames.give_up(), None, "a whole message is not given up");
    }

    #[test]
    fn a_text_that_is_too_long_is_seen_in_its_header() {
        let mut frames = Frames { text_bytes_max: 1_000, ..Frames::default() };
        for (header, beyond) in [
            (&b"Q\0\0\x03\xed"[..], None),
            (b"Q\0\0\x03\xee", Some(1_006)),
            (b"P\0\0\x03\xee", None),
            (b"P\x06\0\0\0", Some(6 << 24)),
            (b"B\x06\0\0\0", None),
            (b"Q\x06\0\0", None),
        ] {
            frames.push(header);
            assert_eq!(frames.beyond(), beyond, "{header:?}");
            frames.use_up(header.len());
        }
    }

    #[test]
    fn an_emptied_buffer_gives_its_memory_back() {
        let mut frames = Frames::default();
        frames.push(b"d\0\x01\0\x04");
        frames.push(&vec![b'x'; 1 << 16]);
        let frame = frames.next().unwrap().unwrap();
        frames.release(&frame);
        assert_eq!(frames.bytes.capacity(), 0);
    }
}
