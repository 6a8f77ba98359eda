//! `eris backup`: of a database that is served, by its server; of one that nobody has open, by this process.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use clap::Args;
use eris::{BackupReport, DurabilityError, OpenError};
use eris_workloads::connection::{SqlConnection, SqlValue};
use eris_workloads::postgres::{CancelToken, PostgresConnection, PostgresUrl};

use crate::directory::Directory;
use crate::failure::Failure;
use crate::resources::Resources;
use crate::shell::print;
use crate::signals::Signals;

/// What a process exits with that Ctrl-C ended.
const INTERRUPTED: i32 = 130;
/// A server that has not answered is asked again to cancel after this time.
const ASKED_AGAIN: Duration = Duration::from_millis(100);

#[derive(Args, Clone, Debug)]
pub struct BackupArguments {
    /// Where the backup is written: a directory that is missing or empty
    #[arg(value_name = "DIR")]
    pub target: PathBuf,

    /// The server whose database is backed up, while it works; it writes the directory itself
    #[arg(long, value_name = "URL", default_value = "postgres://eris@127.0.0.1:5433/eris", conflicts_with = "db")]
    pub url: String,

    /// Back up the database in this directory, which nobody has open
    #[arg(long, value_name = "SOURCE")]
    pub db: Option<PathBuf>,

    #[command(flatten)]
    pub resources: Resources,
}

pub fn run(arguments: &BackupArguments) -> Result<(), Failure> {
    let target = std::path::absolute(&arguments.target)
        .map_err(|error| Failure::Message(format!("{}: {error}", arguments.target.display())))?;
    let (timestamp, rows, bytes) = match &arguments.db {
        Some(source) => {
            if !source.is_dir() {
                return Err(Failure::Message(format!("\"{}\" is no directory with a database", source.display())));
            }
            let directory = Directory { db: Some(source.clone()), ..Directory::default() };
            let opened = directory.try_open(&arguments.resources).map_err(|error| match error {
                OpenError::Files(DurabilityError::InUse { directory, holder, address }) => Failure::Message(format!(
                    "the database in \"{}\" is in use{}; {}: eris backup --url postgres://eris@{}/eris {}",
                    directory.display(),
                    holder.map(|holder| format!(" by {holder}")).unwrap_or_default(),
                    address.map_or("if that is a server, have it back it up", |_| "have its server back it up"),
                    address.map_or("ADDRESS:PORT".to_owned(), |address| address.to_string()),
                    arguments.target.display()
                )),
                other => other.into(),
            });
            let database = opened?;
            let backed_up = database.back_up(&target);
            database.close();
            let BackupReport { timestamp, rows, bytes, .. } = backed_up?;
            (timestamp, rows, bytes)
        }
        None => by_server(&arguments.url, &target)?,
    };
    let directory = target.display();
    print(&format!(
        "backed up to {directory}: {rows} rows, those of the catalog included, {bytes} bytes, all commits up to \
         timestamp {timestamp}\n"
    ))?;
    Ok(())
}

/// Has a server write it; gives timestamp, rows and bytes.
fn by_server(url: &str, target: &std::path::Path) -> Result<(u64, u64, u64), Failure> {
    let url: PostgresUrl = url.parse().map_err(|error| Failure::Message(format!("--url: {error}")))?;
    let server = Arc::<OnceLock<CancelToken>>::default();
    cancel_on(Signals::block()?, Arc::clone(&server));
    let Some(path) = target.to_str() else {
        return Err(Failure::Message(format!("\"{}\" is not UTF-8: choose another name", target.display())));
    };
    let mut connection = PostgresConnection::connect(&url).map_err(|failure| {
        Failure::Message(format!(
            "{}; name the server with --url, or the directory of a database that nobody serves with --db",
            failure.message
        ))
    })?;
    if let Some(token) = connection.cancel_token() {
        let _ = server.set(token);
    }
    let sql = format!("BACKUP TO '{}'", path.replace('\'', "''"));
    let answer = connection.execute(&sql, &[]).map_err(|failure| match failure.sqlstate.as_str() {
        "57014" => Failure::new("the backup is cancelled; nothing is left of it"),
        _ => Failure::Message(failure.message),
    })?;
    let numbers: Option<Vec<u64>> = answer
        .rows
        .first()
        .and_then(|row| row.iter().map(|value| SqlValue::as_int(value).map(|number| number as u64)).collect());
    match numbers.as_deref() {
        Some([timestamp, rows, bytes]) => Ok((*timestamp, *rows, *bytes)),
        _ => Err(Failure::new("the server's answer is not that of a backup")),
    }
}

/// A signal goes to the server as soon as it is at work. In front of that, or once more, it ends this process.
///
/// A server does not hear a request that comes before the statement that it is for, nor says so. It is asked again
/// until it answers the statement, which ends this process.
fn cancel_on(signals: Signals, server: Arc<OnceLock<CancelToken>>) {
    thread::spawn(move || {
        let first = signals.wait();
        let asked = server.get().copied().filter(|server| first.is_ok() && server.cancel().is_ok());
        if let Some(server) = asked {
            thread::spawn(move || {
                loop {
                    thread::sleep(ASKED_AGAIN);
                    // Where it fails there is no answer to wait for: the other thread finds that out.
                    let _ = server.cancel();
                }
            });
            let _ = signals.wait();
        }
        std::process::exit(INTERRUPTED);
    });
}
