//! A directory, and servers on databases in it.

#![allow(dead_code, reason = "each test uses a part")]

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use eris_workloads::postgres::{PostgresConnection, PostgresUrl};

/// A user that owns nothing.
pub const NOBODY: u32 = 65_534;

pub fn eris() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_eris"))
}

/// A directory of one test, gone with it.
pub struct Place(PathBuf);

impl Place {
    /// No two tests give the same name.
    pub fn new(name: &str) -> Place {
        let path = std::env::temp_dir().join(format!("eris-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Place(path)
    }

    pub fn root(&self) -> &Path {
        &self.0
    }

    pub fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// `eris serve` of a binary on a database, with a free port.
pub fn serve(binary: &Path, directory: &str) -> Command {
    let mut command = Command::new(binary);
    command.args(["serve", "--workers", "2", "--listen", "127.0.0.1:0", "--db", directory]).stdin(Stdio::null());
    command
}

/// A server, killed with the value.
pub struct Server {
    process: Child,
    pub url: String,
}

impl Server {
    pub fn start(directory: &str) -> Server {
        Server::start_with(directory, &[])
    }

    pub fn start_with(directory: &str, options: &[&str]) -> Server {
        let mut process = serve(eris(), directory).args(options).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address =
            line.strip_prefix("eris accepts connections on ").and_then(|rest| rest.split_once(" (")).unwrap().0;
        Server { process, url: format!("postgres://eris@{address}/eris") }
    }

    pub fn connect(&self) -> PostgresConnection {
        PostgresConnection::connect(&self.url.parse::<PostgresUrl>().unwrap()).unwrap()
    }

    pub fn process_id(&self) -> u32 {
        self.process.id()
    }

    /// Ends it politely.
    pub fn stop(mut self) {
        // SAFETY: the process is ours and has not been waited for.
        let signalled = unsafe { libc::kill(self.process.id() as i32, libc::SIGTERM) };
        assert_eq!((signalled, self.process.wait().unwrap().code()), (0, Some(0)));
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
