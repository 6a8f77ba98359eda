//! Real sockets and real workers, with scripted sessions behind them.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use eris_engine::{EngineOptions, Simulation};
use eris_platform::RealEnv;
use postgres_protocol::message::backend::Message as Answer;
use postgres_protocol::message::frontend;

use super::*;
use crate::protocol::scripted::ScriptedHost;

const PATIENCE: Duration = Duration::from_secs(20);

struct Server {
    engine: Engine,
    service: Service<ScriptedHost>,
    handle: ServerHandle,
}

impl Server {
    fn start() -> Server {
        let options = EngineOptions { workers: 2, nodes: 2, ..EngineOptions::default() };
        let engine = Engine::start(Arc::new(RealEnv::new()), options).unwrap();
        let service = Service::new(&engine, ScriptedHost::default());
        let handle = service.listen(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        Server { engine, service, handle }
    }

    fn connect(&self) -> Client {
        Client::connect(&self.handle)
    }

    fn session(&self) -> Client {
        Client::session(&self.handle)
    }

    fn wait_for_connections(&self, count: usize) {
        for _ in 0..2_000 {
            if self.handle.connections() == count {
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        panic!("{} connections instead of {count}", self.handle.connections());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        assert!(self.handle.stop(), "all sessions end in time");
        self.engine.shutdown();
    }
}

struct Client {
    stream: TcpStream,
    received: BytesMut,
}

impl Client {
    fn connect(handle: &ServerHandle) -> Client {
        let stream = TcpStream::connect(handle.local_address()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Client { stream, received: BytesMut::new() }
    }

    fn session(handle: &ServerHandle) -> Client {
        let mut client = Client::connect(handle);
        let mut startup = BytesMut::new();
        frontend::startup_message([("user", "eris")], &mut startup).unwrap();
        client.stream.write_all(&startup).unwrap();
        client.until_ready();
        client
    }

    fn send(&mut self, sql: &str) {
        let mut bytes = BytesMut::new();
        frontend::query(sql, &mut bytes).unwrap();
        self.stream.write_all(&bytes).unwrap();
    }

    /// The next answer; `None` when the server closed.
    fn answer(&mut self) -> Option<Answer> {
        loop {
            if let Some(answer) = Answer::parse(&mut self.received).unwrap() {
                return Some(answer);
            }
            let mut bytes = [0; 4096];
            match self.stream.read(&mut bytes).unwrap() {
                0 => return None,
                count => self.received.extend_from_slice(&bytes[..count]),
            }
        }
    }

    fn until_ready(&mut self) -> Vec<Answer> {
        let mut answers = Vec::new();
        loop {
            let answer = self.answer().expect("the server answers");
            let ready = matches!(answer, Answer::ReadyForQuery(_));
            answers.push(answer);
            if ready {
                return answers;
            }
        }
    }

    fn query(&mut self, sql: &str) -> Vec<Answer> {
        self.send(sql);
        self.until_ready()
    }

    fn rows(&mut self, count: usize) {
        let answers = self.query(&format!("rows {count}"));
        assert_eq!(answers.iter().filter(|answer| matches!(answer, Answer::DataRow(_))).count(), count);
    }
}

fn sqlstate(answer: &Answer) -> String {
    let Answer::ErrorResponse(response) = answer else { panic!("an answer that is no error") };
    crate::protocol::tests::field(response.fields(), b'C')
}

#[test]
fn clients_are_served_side_by_side() {
    let server = Server::start();
    let mut clients: Vec<_> = (0..8).map(|_| server.session()).collect();
    clients[0].send("wait");
    for client in &mut clients[1..] {
        client.rows(3_000);
    }
    assert_eq!(server.handle.connections(), 8);
    clients.truncate(1);
    server.wait_for_connections(1);
    drop(clients);
    server.wait_for_connections(0);
}

#[test]
fn silence_and_garbage_disturb_nobody() {
    let server = Server::start();
    let mut silent: Vec<_> = (0..20).map(|_| server.connect()).collect();
    for client in &mut silent[10..] {
        client.stream.write_all(b"\0\0\0").unwrap();
    }
    for noise in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0xff; 5000], b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03"] {
        let mut client = server.connect();
        client.stream.write_all(noise).unwrap();
        assert!(sqlstate(&client.answer().unwrap()).starts_with('0'));
        assert!(client.answer().is_none(), "and closes");
    }
    server.session().rows(100);
    let mut client = server.session();
    client.stream.write_all(&vec![0xff; 100_000]).unwrap();
    assert_eq!(sqlstate(&client.answer().unwrap()), "08P01");
    assert!(client.answer().is_none());
    server.wait_for_connections(20);
    drop(silent);
    server.wait_for_connections(0);
}

#[test]
fn a_client_that_goes_in_the_middle_of_its_rows_is_forgotten() {
    let server = Server::start();
    for _ in 0..5 {
        let mut client = server.session();
        for _ in 0..20 {
            client.send("rows 10000");
        }
        client.answer();
    }
    server.wait_for_connections(0);
    server.session().rows(10);
}

#[test]
fn a_stopping_server_tells_its_clients() {
    let server = Server::start();
    let mut idle = server.session();
    let mut busy = server.session();
    // More rows than are collected before they are sent: the first of them says that the request has been read. A
    // request that nobody has read when the server closes would reset the connection.
    busy.send("rows 3000; wait");
    assert!(busy.answer().is_some());
    drop(server);
    assert_eq!(sqlstate(&idle.answer().unwrap()), "57P01");
    assert!(idle.answer().is_none());
    let mut last = busy.answer();
    while let Some(answer) = busy.answer() {
        last = Some(answer);
    }
    assert_eq!(sqlstate(&last.unwrap()), "57P01");
}

#[test]
fn a_listener_that_stops_leaves_the_clients_of_another_one() {
    let server = Server::start();
    let second = server.service.listen(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    let mut stays = server.session();
    let mut goes = Client::session(&second);
    assert_eq!((server.handle.connections(), second.connections()), (1, 1));
    assert!(second.stop());
    assert_eq!(sqlstate(&goes.answer().unwrap()), "57P01");
    stays.rows(10);
    server.session().rows(10);
    // Another one may be added later.
    let third = server.service.listen(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    Client::session(&third).rows(10);
    assert!(third.stop());
}

/// In simulated time, as connections that never end are waited for.
#[test]
fn listeners_that_are_stopped_together_take_no_longer_than_one() {
    let options = EngineOptions { workers: 1, nodes: 1, ..EngineOptions::default() };
    let mut simulation = Simulation::new(1, options).unwrap();
    let engine = simulation.engine().clone();
    let service = Service::new(&engine, ScriptedHost::default());
    let servers = [5432, 5433, 5434].map(|port| service.listen(SocketAddr::from(([127, 0, 0, 1], port))).unwrap());
    let held = [0, 1].map(|index: usize| servers[index].endpoint.admit(0).ok().unwrap());
    let begun = engine.env().now();
    let ended = end_all(&servers);
    assert!(held.iter().all(|registration| registration.signal.is_stopping()), "all are asked before one is awaited");
    assert!(!simulation.block_on(ended).unwrap());
    let taken = Duration::from_nanos(engine.env().now().as_nanos() - begun.as_nanos());
    assert!(STOP_TIMEOUT <= taken && taken < STOP_TIMEOUT + Duration::from_secs(1), "{taken:?}");
    drop(held);
    assert!(simulation.block_on(end_all(&servers)).unwrap(), "nobody is left");
}

#[test]
fn addresses_that_are_not_ours_are_refused() {
    let server = Server::start();
    let refused = server.service.listen(SocketAddr::from(([0, 0, 0, 0], 0)));
    assert!(refused.err().unwrap().to_string().contains("no authentication"));
    let busy = server.service.listen(server.handle.local_address());
    assert!(matches!(busy, Err(ServeError::Listen { .. })));
}
