//! Clients that leave in the middle of COMMIT: the transaction is there as a whole or not at all, for the server that
//! goes on and for one that opens the directory after a kill.

use std::collections::BTreeSet;
use std::io::{Error, Read, Write};
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::time::Duration;

use eris_workloads::connection::{SqlConnection, SqlValue};

use super::{PATIENCE, Process};
use crate::support::{Place, eris, serve};

/// Transactions of one life of the server.
const TRANSACTIONS: i64 = 48;
const LIVES: i64 = 3;
/// Rows that each of them inserts, into two tables.
const ROWS: i64 = 4;

/// A client that may leave at any byte.
struct Client(TcpStream);

impl Client {
    fn connect(server: &Process) -> Client {
        let address = server.url.rsplit_once('@').unwrap().1.split('/').next().unwrap();
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut client = Client(stream);
        client.0.write_all(b"\0\0\0\x13\0\x03\0\0user\0eris\0\0").unwrap();
        client.read_answer();
        client
    }

    fn send(&mut self, sql: &str) {
        let message = [&b"Q"[..], &(sql.len() as u32 + 5).to_be_bytes(), sql.as_bytes(), b"\0"].concat();
        self.0.write_all(&message).unwrap();
    }

    /// Reads until the server is ready for more.
    fn read_answer(&mut self) {
        loop {
            let mut head = [0; 5];
            self.0.read_exact(&mut head).unwrap();
            let mut body = vec![0; u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize - 4];
            self.0.read_exact(&mut body).unwrap();
            assert_ne!(head[0], b'E', "{}", String::from_utf8_lossy(&body));
            if head[0] == b'Z' {
                return;
            }
        }
    }

    fn run(&mut self, sql: &str) {
        self.send(sql);
        self.read_answer();
    }

    /// Everything of a transaction but the answer to its COMMIT.
    fn ask_for_commit(server: &Process, number: i64) -> Client {
        let mut client = Client::connect(server);
        client.run("BEGIN");
        for row in 1..ROWS {
            client.run(&format!("INSERT INTO a VALUES ({}, {number})", number * ROWS + row));
        }
        client.run(&format!("INSERT INTO b VALUES ({number})"));
        client.send("COMMIT");
        client
    }

    /// Leaves, and the server is told so by a reset: what it was sent and has not read is gone.
    fn reset(self) {
        let linger = libc::linger { l_onoff: 1, l_linger: 0 };
        let (fd, bytes) = (self.0.as_raw_fd(), size_of::<libc::linger>() as libc::socklen_t);
        // SAFETY: the descriptor is open, and the call reads one structure of the size that it is told.
        let set = unsafe { libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_LINGER, (&raw const linger).cast(), bytes) };
        assert_eq!(set, 0, "{}", Error::last_os_error());
    }
}

/// The transactions that are there, each of them whole, in one snapshot.
fn whole(server: &Process) -> BTreeSet<i64> {
    let sql = "SELECT number, count(*) FROM (SELECT number FROM a UNION ALL SELECT number FROM b) r GROUP BY number";
    let answer = server.try_connect().unwrap().execute(sql, &[]).unwrap();
    let number = |row: &Vec<SqlValue>| {
        let (number, rows) = (row[0].as_int().unwrap(), row[1].as_int().unwrap());
        assert_eq!(rows, ROWS, "transaction {number} is not whole");
        number
    };
    answer.rows.iter().map(number).collect()
}

fn start(directory: &str) -> Process {
    Process::start(serve(eris(), directory)).unwrap_or_else(|(status, text)| panic!("{status}: {text}"))
}

#[test]
fn a_commit_whose_client_left_is_whole_or_nothing() {
    let place = Place::new("operation-departed");
    let directory = place.path("db");
    let (mut told, mut seen) = (BTreeSet::new(), BTreeSet::new());
    for life in 0..LIVES {
        let server = start(&directory);
        if life == 0 {
            server.run("CREATE TABLE a (id bigint PRIMARY KEY, number bigint)").unwrap();
            server.run("CREATE TABLE b (number bigint PRIMARY KEY)").unwrap();
        }
        let found = whole(&server);
        assert!(found.is_superset(&seen), "what was visible is durable: {found:?} of {seen:?}");
        assert!(found.is_superset(&told), "what was told is durable: {found:?} of {told:?}");
        let numbers = life * TRANSACTIONS..(life + 1) * TRANSACTIONS - 1;
        for number in numbers.clone() {
            let mut client = Client::ask_for_commit(&server, number);
            // Later each time, up to a millisecond.
            std::thread::sleep(Duration::from_micros((number % TRANSACTIONS / 4 * 100) as u64));
            match number % 4 {
                0 => client.reset(),
                1 => {
                    client.read_answer();
                    told.insert(number);
                }
                _ => drop(client),
            }
        }
        // The server goes on, and no lock stays.
        seen = whole(&server);
        assert!(seen.is_superset(&told), "what was told is visible: {seen:?} of {told:?}");
        server.run("UPDATE a SET number = number WHERE number >= 0").unwrap();
        // The client leaves, and the server is killed, at once.
        drop(Client::ask_for_commit(&server, numbers.end));
        drop(server);
    }
    let server = start(&directory);
    let found = whole(&server);
    assert!(found.is_superset(&seen) && found.is_superset(&told), "{found:?} of {seen:?} and {told:?}");
    println!("{} of {} transactions are there, {} were told", found.len(), LIVES * TRANSACTIONS, told.len());
    server.stop();
}
