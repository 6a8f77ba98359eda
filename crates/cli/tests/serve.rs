//! `eris serve` started as it is printed everywhere, and asked over the wire.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// A server, ended with the value.
struct Server {
    process: Child,
    addresses: Vec<SocketAddr>,
}

impl Server {
    fn start(arguments: &[&str]) -> Server {
        let mut process = Command::new(env!("CARGO_BIN_EXE_eris"))
            .arg("serve")
            .args(arguments)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let listening =
            line.strip_prefix("eris accepts connections on ").and_then(|rest| rest.split_once(" (")).unwrap().0;
        let addresses = listening.split(" and ").map(|address| address.parse().unwrap()).collect();
        Server { process, addresses }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Sends queries in the simple protocol; the answer's bytes up to the end of the connection, as far as they are text.
fn ask(address: SocketAddr, queries: &[&str]) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_mins(1))).unwrap();
    let mut bytes = b"\0\0\0\x13\0\x03\0\0user\0eris\0\0".to_vec();
    for sql in queries {
        bytes.extend([&b"Q"[..], &(sql.len() as u32 + 5).to_be_bytes(), sql.as_bytes(), b"\0"].concat());
    }
    bytes.extend(b"X\0\0\0\x04");
    stream.write_all(&bytes).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    String::from_utf8_lossy(&answer).into_owned()
}

#[test]
fn a_name_for_this_machine_is_an_address() {
    let server = Server::start(&["--workers", "1", "--listen", "localhost:0"]);
    assert!(server.addresses.iter().all(|address| address.ip().is_loopback()));
    for address in &server.addresses {
        assert!(ask(*address, &["SELECT 'here' || ' it is'"]).contains("here it is"));
    }
}

/// The smallest limit that is accepted is enough to work with; the one below it is refused by name.
#[test]
fn the_smallest_memory_limit_is_enough_for_a_table() {
    let refused = Command::new(env!("CARGO_BIN_EXE_eris"))
        .args(["serve", "--workers", "2", "--listen", "127.0.0.1:0", "--memory-limit", "1000"])
        .output()
        .unwrap();
    let errors = String::from_utf8(refused.stderr).unwrap();
    assert_eq!((refused.status.code(), refused.stdout.len()), (Some(1), 0), "{errors}");
    let smallest = errors.split("at least ").nth(1).and_then(|rest| rest.split(' ').next()).unwrap();
    let smallest: u64 = smallest.parse().unwrap();
    let limit = smallest.to_string();
    let server = Server::start(&["--workers", "2", "--listen", "127.0.0.1:0", "--memory-limit", &limit]);
    let rows: Vec<String> = (0..1_000).map(|id| format!("({id}, 'name of {id}')")).collect();
    let answer = ask(
        server.addresses[0],
        &[
            "CREATE TABLE t (id int PRIMARY KEY, name text)",
            &format!("INSERT INTO t VALUES {}", rows.join(", ")),
            "UPDATE t SET name = 'other' WHERE id < 10",
            "SELECT a.name || ' and ' || count(*) FROM t a JOIN t b ON a.name = b.name \
             GROUP BY a.name ORDER BY count(*) DESC LIMIT 1",
            "DELETE FROM t",
            "DROP TABLE t",
        ],
    );
    assert!(
        answer.contains("other and 100") && answer.contains("DELETE 1000") && !answer.contains("SERROR"),
        "{answer}"
    );
    let below = (smallest - 1).to_string();
    let refused = Command::new(env!("CARGO_BIN_EXE_eris"))
        .args(["serve", "--workers", "2", "--memory-limit", &below])
        .output()
        .unwrap();
    assert!(String::from_utf8(refused.stderr).unwrap().contains(&limit));
}
