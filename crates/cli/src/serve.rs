//! `eris serve`: a database for PostgreSQL clients, until SIGINT or SIGTERM.

use std::io::Write;
use std::net::SocketAddr;
use std::sync::Arc;

use clap::Args;
use eris::{Database, ServeError};

use crate::failure::Failure;
use crate::resources::Resources;
use crate::signals::Signals;

#[derive(Args, Clone, Debug)]
pub struct ServeArguments {
    /// Where to listen; a loopback address, as there is no authentication yet
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:5433")]
    pub listen: SocketAddr,

    #[command(flatten)]
    pub resources: Resources,
}

pub fn run(arguments: &ServeArguments) -> Result<(), Failure> {
    let signals = Arc::new(Signals::block()?);
    let database = Database::open(arguments.resources.options())?;
    let server = database.serve(arguments.listen).map_err(|error| match error {
        ServeError::Listen { address, source } if source.kind() == std::io::ErrorKind::AddrInUse => {
            Failure::Message(format!("{address} is in use by another process; choose a port with --listen"))
        }
        other => Failure::new(other),
    })?;
    let address = server.local_address();
    say(&format!("eris accepts connections on {address} (user eris, database eris, no password)"));
    signals.wait()?;
    say("eris stops");
    // Whoever is in a hurry signals again.
    let again = signals.clone();
    std::thread::spawn(move || {
        if again.wait().is_ok() {
            std::process::exit(130);
        }
    });
    if !server.stop() {
        return Err(Failure::new("some sessions did not end in time"));
    }
    database.close();
    Ok(())
}

/// One line, at once, even into a pipe. A reader that is gone does not stop the server.
fn say(line: &str) {
    let mut output = std::io::stdout().lock();
    let _ = writeln!(output, "{line}").and_then(|()| output.flush());
}
