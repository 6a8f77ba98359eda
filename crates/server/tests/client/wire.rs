//! A client that speaks the protocol itself, and therefore also wrongly: no driver would send what it sends.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use super::Server;

const PATIENCE: Duration = Duration::from_mins(1);
/// Asks to cancel what another connection does.
const CANCEL: u32 = 80_877_102;

/// What the server said up to a point.
#[derive(Debug, Default)]
pub struct Reply {
    pub rows: Vec<Vec<Option<String>>>,
    pub tags: Vec<String>,
    pub errors: Vec<Error>,
    /// `I`dle, in a `T`ransaction or in a failed (`E`) one; `None` if the connection ended instead.
    pub status: Option<char>,
}

/// An `ErrorResponse`.
#[derive(Debug, Default, Clone)]
pub struct Error {
    pub sqlstate: String,
    pub message: String,
    pub detail: String,
    pub hint: String,
    pub context: String,
}

impl Reply {
    /// The SQLSTATE of the first error; empty if there is none.
    pub fn sqlstate(&self) -> &str {
        self.errors.first().map_or("", |error| &error.sqlstate)
    }

    /// The first value of the first row.
    pub fn value(&self) -> &str {
        self.rows.first().and_then(|row| row[0].as_deref()).unwrap_or("")
    }
}

/// A connection.
pub struct Wire {
    pub stream: TcpStream,
    address: std::net::SocketAddr,
    key: Vec<u8>,
}

impl Wire {
    /// Connects without a word.
    pub fn silent(server: &Server) -> Wire {
        let address = server.handle.local_address();
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        Wire { stream, address, key: Vec::new() }
    }

    /// Connects and introduces itself.
    pub fn start(server: &Server) -> Wire {
        Wire::start_with(server, &[])
    }

    /// The same with parameters besides user and database.
    pub fn start_with(server: &Server, others: &[(&str, &str)]) -> Wire {
        let mut wire = Wire::silent(server);
        let mut parameters = b"user\0eris\0database\0eris\0".to_vec();
        for (name, value) in others {
            parameters.extend([name.as_bytes(), b"\0", value.as_bytes(), b"\0"].concat());
        }
        parameters.push(0);
        let length = (parameters.len() + 8) as u32;
        wire.send(&[&length.to_be_bytes()[..], &[0, 3, 0, 0], &parameters].concat());
        assert_eq!(wire.until_ready().status, Some('I'));
        wire
    }

    /// Sends bytes as they are.
    pub fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    /// Sends bytes to a server that may have closed already.
    pub fn try_send(&mut self, bytes: &[u8]) {
        let _ = self.stream.write_all(bytes);
    }

    /// Sends a query and reads the answer.
    pub fn query(&mut self, sql: &str) -> Reply {
        self.send(&query(sql));
        self.until_ready()
    }

    /// A query that must succeed.
    pub fn run(&mut self, sql: &str) -> Reply {
        let reply = self.query(sql);
        assert!(reply.errors.is_empty(), "{sql}: {:?}", reply.errors);
        reply
    }

    /// Sends a COPY and data for it, and reads the answer.
    pub fn copy(&mut self, sql: &str, data: &[u8]) -> Reply {
        self.send(&query(sql));
        // A server that has failed reads on to the end of the data; both sides stay in step.
        for part in data.chunks(32 << 10) {
            self.send(&message(b'd', part));
        }
        self.send(&message(b'c', b""));
        self.until_ready()
    }

    /// From a second connection, asks to cancel what this one does.
    pub fn cancel(&self) {
        let mut other = TcpStream::connect(self.address).unwrap();
        other.write_all(&[&16_u32.to_be_bytes()[..], &CANCEL.to_be_bytes(), &self.key].concat()).unwrap();
        let mut rest = Vec::new();
        other.read_to_end(&mut rest).unwrap();
        assert!(rest.is_empty(), "a cancel request is not answered");
    }

    /// Reads until the server is ready, asks for data, or closes.
    pub fn until_ready(&mut self) -> Reply {
        let mut reply = Reply::default();
        while let Some((kind, body)) = self.message() {
            match kind {
                b'D' => reply.rows.push(values(&body)),
                b'C' => reply.tags.push(text(&body)),
                b'E' => reply.errors.push(error(&body)),
                b'K' => self.key = body,
                b'G' => reply.tags.push("COPY data".to_owned()),
                b'Z' => {
                    reply.status = Some(char::from(body[0]));
                    return reply;
                }
                _ => {}
            }
        }
        reply
    }

    /// The kind of the next message.
    pub fn until_message(&mut self) -> u8 {
        self.message().expect("the connection lives").0
    }

    fn message(&mut self) -> Option<(u8, Vec<u8>)> {
        let mut head = [0; 5];
        if !self.read(&mut head) {
            return None;
        }
        let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
        let mut body = vec![0; length - 4];
        assert!(self.read(&mut body), "a message is sent whole");
        Some((head[0], body))
    }

    fn read(&mut self, into: &mut [u8]) -> bool {
        match self.stream.read_exact(into) {
            Ok(()) => true,
            Err(error) if matches!(error.kind(), ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset) => false,
            Err(error) => panic!("no answer: {error}"),
        }
    }
}

/// A message of the protocol.
pub fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    [&[kind][..], &(body.len() as u32 + 4).to_be_bytes(), body].concat()
}

/// A Query message.
pub fn query(sql: &str) -> Vec<u8> {
    message(b'Q', &[sql.as_bytes(), b"\0"].concat())
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap().trim_end_matches('\0').to_owned()
}

fn values(body: &[u8]) -> Vec<Option<String>> {
    let mut rest = &body[2..];
    let mut values = Vec::new();
    while let [a, b, c, d, tail @ ..] = rest {
        if let Ok(length) = usize::try_from(i32::from_be_bytes([*a, *b, *c, *d])) {
            values.push(Some(text(&tail[..length])));
            rest = &tail[length..];
        } else {
            values.push(None);
            rest = tail;
        }
    }
    values
}

fn error(body: &[u8]) -> Error {
    let mut error = Error::default();
    for field in body.split(|byte| *byte == 0).filter(|field| !field.is_empty()) {
        let value = text(&field[1..]);
        match field[0] {
            b'C' => error.sqlstate = value,
            b'M' => error.message = value,
            b'D' => error.detail = value,
            b'H' => error.hint = value,
            b'W' => error.context = value,
            _ => {}
        }
    }
    error
}
