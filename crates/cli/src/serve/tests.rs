//! A database at two addresses, asked over the wire; what a wait for signals that fails tells.

use std::io::Read;
use std::net::{Shutdown, TcpStream};

use eris::Options;

use super::*;

const PATIENCE: Duration = Duration::from_mins(1);
/// Asks to cancel what another connection does.
const CANCEL: u32 = 80_877_102;

/// A client that sees the process number that it is told.
struct Client {
    stream: TcpStream,
    process: u32,
    secret: u32,
}

struct Message {
    kind: u8,
    body: Vec<u8>,
}

impl Client {
    fn connect(server: &ServerHandle) -> Client {
        let stream = TcpStream::connect(server.local_address()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut client = Client { stream, process: 0, secret: 0 };
        client.stream.write_all(b"\0\0\0\x13\0\x03\0\0user\0eris\0\0").unwrap();
        let answers = client.answers();
        let key = &answers.iter().find(|message| message.kind == b'K').expect("the key of a session").body;
        client.process = number(&key[..4]);
        client.secret = number(&key[4..]);
        client
    }

    fn send(&mut self, sql: &str) {
        let length = (sql.len() as u32 + 5).to_be_bytes();
        self.stream.write_all(&[&b"Q"[..], &length, sql.as_bytes(), b"\0"].concat()).unwrap();
    }

    /// Up to the one that says that the server is ready, or to the end of the connection.
    fn answers(&mut self) -> Vec<Message> {
        let mut answers = Vec::new();
        let mut header = [0; 5];
        while self.stream.read_exact(&mut header).is_ok() {
            let mut body = vec![0; number(&header[1..]) as usize - 4];
            self.stream.read_exact(&mut body).unwrap();
            answers.push(Message { kind: header[0], body });
            if header[0] == b'Z' {
                break;
            }
        }
        answers
    }

    /// The first value of the first row.
    fn value(&mut self, sql: &str) -> String {
        self.send(sql);
        let answers = self.answers();
        let row = &answers.iter().find(|message| message.kind == b'D').expect("a row").body;
        let length = number(&row[2..6]) as usize;
        String::from_utf8(row[6..6 + length].to_vec()).unwrap()
    }

    /// The text of the error that is there instead of an answer.
    fn error(&mut self) -> String {
        let answers = self.answers();
        let error = answers.iter().find(|message| message.kind == b'E').expect("an error");
        String::from_utf8_lossy(&error.body).into_owned()
    }

    /// Whether an answer comes within a moment.
    fn is_answered(&self) -> bool {
        self.stream.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        let seen = self.stream.peek(&mut [0]).is_ok_and(|count| count > 0);
        self.stream.set_read_timeout(Some(PATIENCE)).unwrap();
        seen
    }
}

fn number(bytes: &[u8]) -> u32 {
    u32::from_be_bytes(bytes.try_into().unwrap())
}

/// Returns when the server has done what it does with the request.
fn cancel(server: &ServerHandle, process: u32, secret: u32) {
    let mut stream = TcpStream::connect(server.local_address()).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(&[16, CANCEL, process, secret].map(u32::to_be_bytes).concat()).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(stream.read_to_end(&mut Vec::new()).unwrap(), 0, "a cancel request is not answered");
}

/// The two addresses of `localhost` are not to be had everywhere; two of IPv4 are.
#[test]
fn connections_through_two_addresses_are_numbered_and_reached_as_one() {
    let options = Options { workers: 1, nodes: 1, memory_limit_bytes: 64 << 20, ..Options::default() };
    let database = Database::open(options).unwrap();
    let addresses = ["127.0.0.1:0", "127.0.0.2:0"].map(|address| address.parse().unwrap());
    let servers = listen(&database, &addresses).unwrap_or_else(|failure| panic!("{failure:?}"));
    let mut first = Client::connect(&servers[0]);
    let mut second = Client::connect(&servers[1]);
    assert_ne!(first.process, second.process);
    for client in [&mut first, &mut second] {
        assert_eq!(client.value("SELECT pg_backend_pid()"), client.process.to_string());
    }
    // A cancel request finds the session through the other address. One that comes before the statement does nothing.
    second.send("SELECT pg_sleep(600)");
    let begun = Instant::now();
    while !second.is_answered() {
        assert!(begun.elapsed() < PATIENCE, "the statement is not cancelled");
        cancel(&servers[0], second.process, second.secret);
    }
    assert!(second.error().contains("57014"));
    // The number that a client was told ends that client's session, and no other.
    assert_eq!(first.value(&format!("SELECT pg_terminate_backend({})", second.process)), "t");
    assert!(second.error().contains("57P01"));
    assert_eq!(first.value("SELECT 7"), "7");
    assert!(eris::stop_all(&servers));
    assert!(first.error().contains("57P01"));
    database.close();
}

#[test]
fn a_failed_wait_for_signals_is_told_as_what_it_is() {
    let failed = heard(Err(io::Error::from_raw_os_error(libc::EINVAL))).unwrap_err();
    assert!(failed.starts_with("cannot wait for signals: ") && failed.contains("os error 22"), "{failed}");
    assert!(heard(Ok(None)).unwrap_err().contains("did not end in time"));
    assert_eq!(heard(Ok(Some(Signal::Quit))), Ok(Signal::Quit));
}
