//! `eris serve`: a database for PostgreSQL clients, until SIGINT or SIGTERM. What each signal does: docs/operation.md.

use std::io::{self, ErrorKind, Write};
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use eris::{Database, ServeError, ServerHandle};
use eris_platform::limits;
use eris_platform::messages::tell;

use crate::call_thread::CallThread;
use crate::directory::Directory;
use crate::failure::Failure;
use crate::log_file::LogFile;
use crate::resources::Resources;
use crate::signals::{Signal, Signals};

#[derive(Args, Clone, Debug)]
pub struct ServeArguments {
    /// Where to listen; a loopback address or a name for some, as there is no authentication yet
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:5433")]
    pub listen: String,

    /// Append messages to this file instead of standard error; SIGHUP opens it again
    #[arg(long, value_name = "FILE")]
    pub log: Option<PathBuf>,

    #[command(flatten)]
    pub directory: Directory,

    #[command(flatten)]
    pub resources: Resources,
}

/// A server whose workers or disk do not answer ends so long after it was asked to, in any case.
const END_MAX: Duration = Duration::from_secs(9);
/// A process that ends at once waits so long at most until standard error has taken its last words.
const LAST_WORDS_MAX: Duration = Duration::from_millis(900);
/// What a process exits with that a second Ctrl-C ended, or SIGQUIT.
const INTERRUPTED: libc::c_int = 130;
const QUIT: libc::c_int = 131;

pub fn run(arguments: &ServeArguments) -> Result<(), Failure> {
    let signals = Signals::block_for_server()?;
    let log = arguments.log.as_deref().map(LogFile::begin).transpose()?.map(Arc::new);
    let served = serve(arguments, signals, log.as_ref());
    if let (Some(log), Err(Failure::Message(message))) = (&log, &served) {
        // In the log, and, when the process ends, where it was started.
        tell(format_args!("error: {message}"));
        log.end();
    }
    served
}

fn serve(arguments: &ServeArguments, signals: Signals, log: Option<&Arc<LogFile>>) -> Result<(), Failure> {
    let addresses = addresses(&arguments.listen)?;
    allow_descriptors(arguments.resources.options().workers)?;
    let stop = Stop::watch(signals, log.cloned())?;
    let database = arguments.directory.open(&arguments.resources)?;
    let servers = listen(&database, &addresses)?;
    let listening: Vec<String> = servers.iter().map(|server| server.local_address().to_string()).collect();
    let listening = listening.join(" and ");
    say(&format!("eris accepts connections on {listening} (user eris, database eris, no password)"), log);
    stop.wait();
    say("eris stops", log);
    // Together: one after the other, each with its time to stop, could take longer than `END_MAX`.
    let ended = eris::stop_all(&servers);
    // Whether or not they ended: what is committed is durable after this.
    database.close();
    if !ended {
        return Err(Failure::new("some sessions did not end in time; their transactions are rolled back"));
    }
    Ok(())
}

/// The thread that waits for signals, and what it has heard.
struct Stop(mpsc::Receiver<()>);

impl Stop {
    /// Started before all others, so that it is there whatever they do.
    fn watch(signals: Signals, log: Option<Arc<LogFile>>) -> Result<Stop, Failure> {
        let (asked, wait) = mpsc::channel();
        thread::Builder::new()
            .name("eris-signals".to_owned())
            .stack_size(256 << 10)
            .spawn(move || hear(&signals, log.as_ref(), &CallThread::default(), &asked))
            .map_err(|error| Failure::Message(format!("cannot start a thread: {error}; see ulimit -u and -v")))?;
        Ok(Stop(wait))
    }

    /// Returns when the server is asked to stop.
    fn wait(&self) {
        // The thread ends with the process only; without it nobody could ask.
        let _ = self.0.recv();
    }
}

/// SIGHUP opens the log again; the first SIGTERM or SIGINT stops the server, and so does, at once, the second one or
/// SIGQUIT, or the time. What ends at once loses nothing that a client was told: that is in the log, and opening the
/// database reads it.
///
/// Whatever may block is left to `calls`: this thread has to be there for the next signal.
fn hear(signals: &Signals, log: Option<&Arc<LogFile>>, calls: &CallThread, asked: &mpsc::Sender<()>) {
    let mut deadline: Option<Instant> = None;
    loop {
        let result = match deadline {
            Some(deadline) => Ok(signals.wait_until(deadline)),
            None => signals.wait().map(Some),
        };
        match heard(result) {
            Ok(Signal::HangUp) => match log.cloned() {
                Some(log) => calls.begin(move || log.reopen()),
                None => calls.begin(|| tell("SIGHUP: there is nothing to be read again, as there is no --log")),
            },
            Ok(Signal::Quit) => end_at_once("SIGQUIT", QUIT, calls),
            Ok(Signal::Interrupt | Signal::Terminate) if deadline.is_some() => {
                end_at_once("asked twice", INTERRUPTED, calls)
            }
            Ok(Signal::Interrupt | Signal::Terminate) => {
                deadline = Some(Instant::now() + END_MAX);
                let _ = asked.send(());
            }
            Err(why) => end_at_once(&why, 1, calls),
        }
    }
}

/// The signal that came; otherwise why the process ends without one.
fn heard(result: io::Result<Option<Signal>>) -> Result<Signal, String> {
    match result {
        Ok(Some(signal)) => Ok(signal),
        Ok(None) => Err("some work did not end in time: a worker is stuck, or the disk does not answer".to_owned()),
        // Without signals the server cannot be asked to stop.
        Err(error) => Err(format!("cannot wait for signals: {error}")),
    }
}

/// Waits for no other thread, which may be stuck, but a moment for the one that writes the last words.
fn end_at_once(why: &str, code: libc::c_int, calls: &CallThread) -> ! {
    let words = format!("ends at once ({why}); everything that clients were told is committed is in the log");
    // Words that standard error does not take in time are lost.
    calls.finish(LAST_WORDS_MAX, move || tell(words));
    // SAFETY: no code of this process runs after it.
    unsafe { libc::_exit(code) }
}

/// The addresses that `text` names. Whether they may be listened on is checked where that is done, but for all of them
/// before the first.
fn addresses(text: &str) -> Result<Vec<SocketAddr>, Failure> {
    let example = "an address and a port are needed, such as 127.0.0.1:5433 or localhost:5433";
    let resolved = text.to_socket_addrs().map_err(|error| {
        let known = text.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        let hint = if known { "use an address, such as 127.0.0.1, or a name that this machine knows" } else { example };
        Failure::Message(format!("--listen {text}: {error}; {hint}"))
    })?;
    let mut addresses = Vec::new();
    for address in resolved {
        if !address.ip().is_loopback() {
            return Err(Failure::new(ServeError::NotLoopback(address)));
        }
        if !addresses.contains(&address) {
            addresses.push(address);
        }
    }
    if addresses.is_empty() {
        return Err(Failure::Message(format!("--listen {text} has no address; {example}")));
    }
    Ok(addresses)
}

/// Listens on all of the addresses that this machine has: `localhost` may name one of IPv6 where there is no IPv6.
fn listen(database: &Database, addresses: &[SocketAddr]) -> Result<Vec<ServerHandle>, Failure> {
    let mut servers = Vec::new();
    let mut absent = None;
    for address in addresses {
        match database.serve(*address) {
            Ok(server) => servers.push(server),
            Err(ServeError::Listen { address, source }) if source.kind() == ErrorKind::AddrInUse => {
                return Err(Failure::Message(format!(
                    "{address} is in use by another process: end it, or choose another port with --listen {}:PORT",
                    address.ip()
                )));
            }
            Err(ServeError::Listen { address, source }) if source.kind() == ErrorKind::PermissionDenied => {
                return Err(Failure::Message(format!(
                    "cannot listen on {address}: {source}; choose a port above 1023 with --listen"
                )));
            }
            Err(error @ ServeError::Listen { .. }) => absent = Some(error),
            Err(other) => return Err(Failure::new(other)),
        }
    }
    match absent {
        Some(error) if servers.is_empty() => Err(Failure::new(error)),
        _ => Ok(servers),
    }
}

/// Has as many descriptors as the system lets this process have: the usual 1,024 are fewer than the connections there
/// may be. Too few for the database's own files, and for a client, are refused.
fn allow_descriptors(workers: usize) -> Result<(), Failure> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: both calls get a valid pointer to a limit. If they fail, there are as many descriptors as before.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) == 0 {
            limit.rlim_cur = limit.rlim_max;
            libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit);
        }
    }
    let needed = eris::own_descriptors(workers) + 1;
    match limits::descriptors() {
        Some(given) if given < needed => Err(Failure::Message(format!(
            "this process may have {given} files and sockets open; a server with {workers} workers needs at least \
             {needed}: raise ulimit -n"
        ))),
        _ => Ok(()),
    }
}

/// One line, at once, even into a pipe, and in the log if there is one. A reader that is gone does not stop the server.
fn say(line: &str, log: Option<&Arc<LogFile>>) {
    if log.is_some() {
        tell(line.trim_start_matches("eris "));
    }
    let mut output = io::stdout().lock();
    let _ = writeln!(output, "{line}").and_then(|()| output.flush());
}

#[cfg(test)]
mod tests;
