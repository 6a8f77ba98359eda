//! Messages of protocol 3.0: a tag byte, a big-endian length that counts itself, a body.
//!
//! ```text
//! 'B' | length: i32 | body: length - 4 bytes         (the startup message has no tag)
//! ```

use crate::connection::SqlFailure;
use crate::crowd;
use std::io::{self, Read};

/// Longest message a server may send; PostgreSQL's own limit on a row is 1 GiB.
const MESSAGE_BYTES_MAX: usize = 1 << 30;

/// Messages to the server, collected until one write sends them.
#[derive(Debug, Default)]
pub(super) struct Outgoing {
    bytes: Vec<u8>,
    /// Where the length of the open message stands.
    length_at: usize,
}

impl Outgoing {
    pub(super) fn message(&mut self, tag: u8, body: impl FnOnce(&mut Vec<u8>)) {
        self.bytes.push(tag);
        self.untagged(body);
    }

    pub(super) fn untagged(&mut self, body: impl FnOnce(&mut Vec<u8>)) {
        self.length_at = self.bytes.len();
        self.bytes.extend([0; 4]);
        body(&mut self.bytes);
        let length = (self.bytes.len() - self.length_at) as u32;
        self.bytes[self.length_at..self.length_at + 4].copy_from_slice(&length.to_be_bytes());
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(super) fn clear(&mut self) {
        self.bytes.clear();
    }
}

/// Appends a zero-terminated string.
pub(super) fn put_text(out: &mut Vec<u8>, text: &str) {
    out.extend(text.as_bytes());
    out.push(0);
}

pub(super) fn put_i16(out: &mut Vec<u8>, value: usize) {
    out.extend((value as i16).to_be_bytes());
}

/// Reads messages from a stream; the body of the last one stays in a buffer that is used again.
#[derive(Debug, Default)]
pub(super) struct Incoming {
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// Bytes that the stream gave so far.
    received: u64,
    /// Whether others go on with the thread until the stream is readable.
    pub(super) shares_thread: bool,
}

impl Incoming {
    pub(super) fn received_bytes(&self) -> u64 {
        self.received
    }

    /// The next message: its tag and its body.
    pub(super) async fn next(&mut self, stream: &mut impl Read) -> io::Result<(u8, Body<'_>)> {
        self.fill(stream, 5).await?;
        let head = &self.buffer[self.start..self.start + 5];
        let (tag, length) = (head[0], u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize);
        if !(4..=MESSAGE_BYTES_MAX).contains(&length) {
            return Err(io::Error::new(io::ErrorKind::InvalidData, format!("a message of {length} bytes")));
        }
        self.fill(stream, 1 + length).await?;
        let body = self.start + 5..self.start + 1 + length;
        self.start = body.end;
        Ok((tag, Body { bytes: &self.buffer[body] }))
    }

    /// Makes at least `count` unread bytes available.
    async fn fill(&mut self, stream: &mut impl Read, count: usize) -> io::Result<()> {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
        if self.start + count > self.buffer.len() {
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
            self.buffer.resize(self.buffer.len().max(count).max(1 << 16), 0);
        }
        while self.end - self.start < count {
            if self.shares_thread {
                crowd::until_readable().await;
            }
            match stream.read(&mut self.buffer[self.end..]) {
                Ok(0) => return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the server closed the connection")),
                Ok(read) => {
                    self.end += read;
                    self.received += read as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// The body of a message, read from front to back; reading past its end is a protocol violation.
#[derive(Debug, Clone, Copy)]
pub(super) struct Body<'a> {
    bytes: &'a [u8],
}

impl<'a> Body<'a> {
    pub(super) fn take(&mut self, count: usize) -> Result<&'a [u8], SqlFailure> {
        let (taken, rest) = self.bytes.split_at_checked(count).ok_or_else(too_short)?;
        self.bytes = rest;
        Ok(taken)
    }

    pub(super) fn u8(&mut self) -> Result<u8, SqlFailure> {
        Ok(self.take(1)?[0])
    }

    pub(super) fn i16(&mut self) -> Result<i16, SqlFailure> {
        let bytes = self.take(2)?;
        Ok(i16::from_be_bytes([bytes[0], bytes[1]]))
    }

    pub(super) fn i32(&mut self) -> Result<i32, SqlFailure> {
        let bytes = self.take(4)?;
        Ok(i32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    }

    /// A zero-terminated string.
    pub(super) fn text(&mut self) -> Result<&'a str, SqlFailure> {
        let end = self.bytes.iter().position(|&byte| byte == 0).ok_or_else(too_short)?;
        let text = std::str::from_utf8(&self.bytes[..end]);
        self.bytes = &self.bytes[end + 1..];
        text.map_err(|_| SqlFailure::new("08P01", "the server sent text that is not UTF-8"))
    }

    /// The fields of an `ErrorResponse`.
    pub(super) fn failure(mut self) -> Result<SqlFailure, SqlFailure> {
        let (mut sqlstate, mut message) = (String::new(), String::new());
        loop {
            match self.u8()? {
                0 => return Ok(SqlFailure { sqlstate, message }),
                b'C' => self.text()?.clone_into(&mut sqlstate),
                b'M' => self.text()?.clone_into(&mut message),
                _ => drop(self.text()?),
            }
        }
    }
}

fn too_short() -> SqlFailure {
    SqlFailure::new("08P01", "the server sent a message that is too short")
}
