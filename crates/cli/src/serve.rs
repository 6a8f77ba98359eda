//! `eris serve`: a database for PostgreSQL clients, until SIGINT or SIGTERM.

use std::io::{ErrorKind, Write};
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;

use clap::Args;
use eris::{Database, ServeError, ServerHandle};

use crate::directory::Directory;
use crate::failure::Failure;
use crate::resources::Resources;
use crate::signals::Signals;

#[derive(Args, Clone, Debug)]
pub struct ServeArguments {
    /// Where to listen; a loopback address or a name for some, as there is no authentication yet
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:5433")]
    pub listen: String,

    #[command(flatten)]
    pub directory: Directory,

    #[command(flatten)]
    pub resources: Resources,
}

pub fn run(arguments: &ServeArguments) -> Result<(), Failure> {
    let signals = Arc::new(Signals::block()?);
    let addresses = addresses(&arguments.listen)?;
    allow_descriptors();
    let database = arguments.directory.open(&arguments.resources)?;
    let servers = listen(&database, &addresses)?;
    let listening: Vec<String> = servers.iter().map(|server| server.local_address().to_string()).collect();
    let listening = listening.join(" and ");
    say(&format!("eris accepts connections on {listening} (user eris, database eris, no password)"));
    signals.wait()?;
    say("eris stops");
    // Whoever is in a hurry signals again.
    let again = signals.clone();
    std::thread::spawn(move || {
        if again.wait().is_ok() {
            std::process::exit(130);
        }
    });
    let ended: Vec<bool> = servers.iter().map(ServerHandle::stop).collect();
    if ended.contains(&false) {
        return Err(Failure::new("some sessions did not end in time"));
    }
    database.close();
    Ok(())
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

/// As many sockets as the system lets this process have: the usual 1,024 are fewer than the connections there may be.
fn allow_descriptors() {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: both calls get a valid pointer to a limit. If they fail, there are as many descriptors as before.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) == 0 {
            limit.rlim_cur = limit.rlim_max;
            libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit);
        }
    }
}

/// One line, at once, even into a pipe. A reader that is gone does not stop the server.
fn say(line: &str) {
    let mut output = std::io::stdout().lock();
    let _ = writeln!(output, "{line}").and_then(|()| output.flush());
}
