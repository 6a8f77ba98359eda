//! A server of its own for each test, and the PostgreSQL clients that talk to it.

#![allow(dead_code, reason = "each test uses a part of it")]

pub mod wire;

use std::net::SocketAddr;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::time::Duration;

use eris_engine::{Engine, EngineOptions};
use eris_platform::RealEnv;
use eris_server::{ServerHandle, Service, SqlHost};
use eris_sql::{Database, DatabaseOptions};

pub struct Server {
    pub engine: Engine,
    pub database: Database,
    pub handle: ServerHandle,
}

impl Server {
    pub fn start() -> Server {
        Server::with(EngineOptions { workers: 2, nodes: 1, ..EngineOptions::default() })
    }

    pub fn with(options: EngineOptions) -> Server {
        let engine = Engine::start(Arc::new(RealEnv::new()), options).unwrap();
        let database = Database::new(engine.clone(), DatabaseOptions::default()).unwrap();
        let address = SocketAddr::from(([127, 0, 0, 1], 0));
        let handle = Service::new(&engine, SqlHost::new(database.clone())).listen(address).unwrap();
        Server { engine, database, handle }
    }

    /// Bytes that are reserved now.
    pub fn memory_used(&self) -> u64 {
        self.engine.memory().used()
    }

    /// The same of one consumer.
    pub fn memory_of(&self, consumer: &str) -> u64 {
        let all = self.engine.memory().by_consumer();
        all.iter().filter(|(name, _)| *name == consumer).map(|(_, bytes)| bytes).sum()
    }

    /// Changes how many bytes may be reserved.
    pub fn limit_memory(&self, bytes: u64) {
        self.engine.memory().set_limit(bytes);
    }

    /// Waits until no more than `bytes` are reserved: what a statement held is given back when partitions have seen
    /// its end, and rows that nobody can see are collected later.
    pub fn wait_for_memory(&self, bytes: u64) {
        for _ in 0..4_000 {
            if self.memory_used() <= bytes {
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        panic!(
            "{} bytes stay reserved, {bytes} were before: {:?}",
            self.memory_used(),
            self.engine.memory().by_consumer()
        );
    }

    pub fn port(&self) -> u16 {
        self.handle.local_address().port()
    }

    /// `psql` without the settings of whoever runs the tests.
    pub fn psql(&self) -> Command {
        let mut command = Command::new("psql");
        command
            .args(["--no-psqlrc", "--quiet", "--host=127.0.0.1", "--username=eris", "--dbname=eris"])
            .arg(format!("--port={}", self.port()))
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("LC_ALL", "C.UTF-8")
            .env("PGCONNECT_TIMEOUT", "20")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    pub fn wait_for_connections(&self, count: usize) {
        for _ in 0..4_000 {
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
        let stopped = self.handle.stop();
        self.engine.shutdown();
        if !std::thread::panicking() {
            assert!(stopped, "all sessions end in time");
        }
    }
}

/// Whether a client is installed; if not, the reason to skip is printed.
pub fn installed(program: &str, arguments: &[&str], what: &str) -> bool {
    let probe = Command::new(program).args(arguments).stdout(Stdio::null()).stderr(Stdio::null()).status();
    let found = probe.is_ok_and(|status| status.success());
    if !found {
        println!("skipped: {what} is not installed");
    }
    found
}

/// Output and errors as text.
#[allow(dead_code, reason = "not every client's test needs it")]
pub fn texts(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (text(&output.stdout), text(&output.stderr))
}
