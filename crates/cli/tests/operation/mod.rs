//! What an operator, and a client, may do to a server: special files, rights, signals, limits of the system, leaving.

mod definitions;
mod departed_clients;
mod files;
mod full;
mod held;
mod limits;
mod memory;
mod recovery;
mod signals;
mod temp_files;

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use eris_workloads::connection::{SqlConnection, SqlFailure, SqlValue};
use eris_workloads::postgres::{PostgresConnection, PostgresUrl};

/// Long enough for a busy machine; what takes this long has stopped.
const PATIENCE: Duration = Duration::from_mins(1);

/// A server with all that can be given to a process.
pub struct Process {
    child: Child,
    url: String,
    /// Open, so that what it says finds a reader.
    errors: ChildStderr,
}

impl Process {
    /// Starts it; what it says if it does not.
    pub fn start(mut command: Command) -> Result<Process, (ExitStatus, String)> {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut errors = child.stderr.take().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let Some((address, _)) =
            line.strip_prefix("eris accepts connections on ").and_then(|rest| rest.split_once(" ("))
        else {
            let mut text = String::new();
            errors.read_to_string(&mut text).unwrap();
            return Err((child.wait().unwrap(), text));
        };
        Ok(Process { child, url: format!("postgres://eris@{address}/eris"), errors })
    }

    pub fn try_connect(&self) -> Result<PostgresConnection, SqlFailure> {
        PostgresConnection::connect(&self.url.parse::<PostgresUrl>().unwrap())
    }

    fn run(&self, sql: &str) -> Result<Option<i64>, SqlFailure> {
        let answer = self.try_connect()?.execute(sql, &[])?;
        Ok(answer.rows.first().and_then(|row| row.first()).and_then(SqlValue::as_int))
    }

    pub fn signal(&self, signal: libc::c_int) {
        // SAFETY: the process is ours and has not been waited for.
        assert_eq!(unsafe { libc::kill(self.child.id() as i32, signal) }, 0);
    }

    /// How it ends, in time, and what it had to say.
    pub fn end(mut self) -> (ExitStatus, String) {
        let begun = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(begun.elapsed() < PATIENCE, "it does not end");
            std::thread::sleep(Duration::from_millis(10));
        };
        let mut text = String::new();
        self.errors.read_to_string(&mut text).unwrap();
        (status, text)
    }

    /// Ends it politely, which succeeds.
    fn stop(self) -> String {
        self.signal(libc::SIGTERM);
        let (status, text) = self.end();
        assert_eq!(status.code(), Some(0), "{text}");
        text
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What `work` gives on a thread of its own: it may never give anything.
fn within_patience<T: Send + 'static>(what: &str, work: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || sender.send(work()));
    receiver.recv_timeout(PATIENCE).unwrap_or_else(|error| panic!("{what}: {error}"))
}

/// Has a process changed before its program starts, by system calls alone.
fn beforehand(command: &mut Command, change: impl FnMut() -> std::io::Result<()> + Send + Sync + 'static) {
    // SAFETY: between fork and exec only system calls are made.
    unsafe { command.pre_exec(change) };
}
