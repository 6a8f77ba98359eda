//! One connection from its first byte to its last: start-up, then message after message.
//!
//! Everything here is a function of the bytes that arrive and of what the backend answers; there are no sockets, no
//! clock and no threads, so that tests and the fuzzer drive it with bytes from a buffer.

use std::borrow::Cow;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;

use eris_platform::MemoryPool;

use crate::protocol::backend::{Backend, Commit, TransactionStatus};
use crate::protocol::extended::Portals;
use crate::protocol::frames::Frame;
use crate::protocol::frontend::{self, Kind};
use crate::protocol::report::{Report, Severity, SqlState};
use crate::protocol::signal::{Registration, Registry};
use crate::protocol::startup::{self, Packet, Startup};
use crate::protocol::wire::{Failure, Stop, Transport, Wire, first_of};

/// What clients are told about at the start and when it changes, with what they hear if the backend has no opinion.
const REPORTED_SETTINGS: [(&str, &str); 13] = [
    ("server_version", "15.0"),
    ("server_encoding", "UTF8"),
    ("client_encoding", "UTF8"),
    ("application_name", ""),
    ("is_superuser", "on"),
    ("session_authorization", startup::USER),
    ("DateStyle", "ISO, MDY"),
    ("IntervalStyle", "postgres"),
    ("TimeZone", "UTC"),
    ("integer_datetimes", "on"),
    ("standard_conforming_strings", "on"),
    ("in_hot_standby", "off"),
    ("default_transaction_read_only", "off"),
];

/// Who is at the other end.
#[derive(Clone, Copy, Debug)]
pub struct Peer {
    /// The number of the connection, by which it is cancelled.
    pub process: u32,
    /// `None`: not of the network.
    pub address: Option<SocketAddr>,
}

/// Opens sessions for clients that were let in.
pub trait Host: Send + Sync {
    type Backend: Backend;

    fn open(&self, startup: &Startup, peer: &Peer) -> Result<Self::Backend, Report>;
}

/// What the message loop works on.
pub(crate) struct Connection<T, B: Backend> {
    pub(crate) wire: Wire<T>,
    pub(crate) backend: B,
    pub(crate) portals: Portals<B>,
    /// After an error in the extended protocol everything up to Sync is skipped.
    skip_to_sync: bool,
    /// Values of [`REPORTED_SETTINGS`] as the client knows them.
    told: Vec<String>,
}

/// Serves a client until one side ends it. Returns when all that was to be said is sent or the client is gone.
///
/// A client that has not introduced itself when `patience` resolves is dismissed.
pub async fn serve<T: Transport, H: Host>(
    transport: T,
    host: &H,
    registration: Registration,
    memory: &Arc<MemoryPool>,
    replies: &Arc<MemoryPool>,
    patience: impl Future<Output = ()> + Send,
) {
    let mut wire = Wire::new(transport, registration.signal.clone(), memory, replies);
    let greeting = first_of(greet(&mut wire, registration.registry()), patience).await.unwrap_or_else(|()| {
        Err(Report::fatal(SqlState::QUERY_CANCELED, "canceling authentication due to timeout").into())
    });
    let failure = match greeting {
        Ok(Some(startup)) => match open(&mut wire, host, &startup, &registration) {
            Ok(backend) => {
                registration.signal.attach(backend.interrupts());
                let mut connection =
                    Connection { wire, backend, portals: Portals::default(), skip_to_sync: false, told: Vec::new() };
                let failure = connection.run(&startup, &registration).await;
                let Connection { wire: mut rest, backend, portals, .. } = connection;
                drop(portals);
                farewell(&mut rest, failure).await;
                // The client hears first; an open transaction is rolled back either way.
                drop(rest);
                backend.close().await;
                return;
            }
            Err(failure) => failure,
        },
        Ok(None) => return,
        Err(failure) => failure,
    };
    farewell(&mut wire, failure).await;
}

/// Tells the client why, as far as it still listens.
async fn farewell<T: Transport>(wire: &mut Wire<T>, failure: Failure) {
    let report = match failure {
        Failure::Stop(Stop::Gone) => return,
        Failure::Stop(Stop::Dismissed) => wire.signal.dismissal(),
        Failure::Stop(Stop::Fatal(report)) | Failure::Statement(report) | Failure::Refused(_, report) => report,
    };
    wire.reply.report(&Report { severity: Severity::Fatal, ..report });
    wire.last_words().await;
}

/// Reads packets up to the start-up; `None` when the connection came only to cancel.
async fn greet<T: Transport>(wire: &mut Wire<T>, registry: &Registry) -> Result<Option<Startup>, Failure> {
    // One request for TLS and one for GSSAPI; a client that goes on asking is not one.
    for _ in 0..3 {
        let (packet, bytes) = loop {
            if let Some(body) = wire.frames.startup()? {
                break (startup::packet(body)?, body.len());
            }
            wire.receive().await?;
        };
        wire.frames.release_startup(bytes);
        match packet {
            Packet::EncryptionRequest => {
                wire.reply.encryption_refused();
                wire.flush().await?;
            }
            Packet::CancelRequest { process, secret } => {
                registry.cancel(process, secret);
                return Ok(None);
            }
            Packet::Startup(startup) => return Ok(Some(startup)),
        }
    }
    Err(Report::fatal(SqlState::PROTOCOL_VIOLATION, "too many requests for encryption, which is not supported").into())
}

fn open<T: Transport, H: Host>(
    wire: &mut Wire<T>,
    host: &H,
    startup: &Startup,
    registration: &Registration,
) -> Result<H::Backend, Failure> {
    // Not before: a client that is still asking for encryption would not understand why.
    registration.introduce()?;
    startup.check()?;
    let options = startup.protocol_options();
    if startup.minor_version > 0 || !options.is_empty() {
        wire.reply.negotiate_protocol_version(0, &options);
    }
    Ok(host.open(startup, &Peer { process: registration.process, address: wire.peer() })?)
}

impl<T: Transport, B: Backend> Connection<T, B> {
    /// Completes the start-up and works on messages; returns why it ended.
    async fn run(&mut self, startup: &Startup, registration: &Registration) -> Failure {
        if let Err(failure) = self.introduce(startup, registration).await {
            return failure;
        }
        loop {
            let failure = match self.step().await {
                Ok(()) => continue,
                Err(failure) => failure,
            };
            match failure {
                Failure::Statement(report) | Failure::Refused(_, report) => {
                    self.wire.reply.report(&report);
                    // A client may wait for it before it sends Sync, and its Flush is skipped.
                    if let Err(Failure::Stop(stop)) = self.wire.flush().await {
                        return stop.into();
                    }
                }
                Failure::Stop(_) => return failure,
            }
        }
    }

    async fn introduce(&mut self, startup: &Startup, registration: &Registration) -> Result<(), Failure> {
        for (name, value) in startup.settings()? {
            let assignment = format!("SET \"{}\" TO '{}'", name.replace('"', "\"\""), value.replace('\'', "''"));
            if let Some(statement) = self.backend.prepare(&assignment, &[])? {
                self.wire.watch(pin!(self.backend.execute(&statement, &[], Commit::WithText))).await?;
            }
        }
        self.backend.introduced();
        self.wire.reply.authentication_ok();
        self.tell_settings();
        self.wire.reply.backend_key_data(registration.process, registration.secret);
        self.wire.reply.ready_for_query(self.backend.status());
        self.wire.flush().await
    }

    /// Works on the next message. An error leaves the connection ready for the one after.
    async fn step(&mut self) -> Result<(), Failure> {
        // Answers of a pipeline without an end do not wait for its Sync.
        self.wire.flush_if_full().await?;
        self.wire.frames.text_bytes_max = self.backend.text_bytes_max();
        let (kind, result) = match self.wire.frame().await {
            Ok(frame) if self.skip_to_sync && !matches!(frame.kind, Kind::Sync | Kind::Terminate) => {
                self.wire.frames.release(&frame);
                return Ok(());
            }
            Ok(frame) => (frame.kind, self.dispatch(frame).await),
            Err(Failure::Refused(_, _)) if self.skip_to_sync => return Ok(()),
            Err(Failure::Refused(kind, report)) => (kind, Err(report.into())),
            Err(failure) => return Err(failure),
        };
        self.wire.signal.statement_ends();
        for notice in self.backend.take_notices() {
            self.wire.reply.report(&notice);
        }
        match result {
            // Cancelled because the connection ends: that is what the client is told, and nothing before it.
            Err(Failure::Statement(report))
                if self.wire.signal.is_stopping()
                    && [SqlState::QUERY_CANCELED, self.wire.signal.dismissal().sqlstate].contains(&report.sqlstate) =>
            {
                Err(Stop::Dismissed.into())
            }
            Err(Failure::Statement(report) | Failure::Refused(_, report)) => {
                self.backend.spoil();
                // Those that the transaction had changed are what they were.
                self.tell_settings();
                if matches!(kind, Kind::Query | Kind::FunctionCall) {
                    self.wire.reply.report(&report);
                    return self.ready().await;
                }
                self.skip_to_sync = kind.is_extended();
                Err(Failure::Statement(report))
            }
            other => other,
        }
    }

    async fn dispatch(&mut self, frame: Frame) -> Result<(), Failure> {
        match frame.kind {
            Kind::Query => {
                let script = frontend::query(self.wire.frames.body(&frame)).and_then(|sql| {
                    // As in PostgreSQL, a simple query ends the unnamed statement and portal.
                    self.portals.simple_query();
                    self.backend.script(sql)
                });
                self.wire.frames.release(&frame);
                self.simple(script?).await
            }
            Kind::Parse => self.parse(&frame),
            Kind::Bind => self.bind(&frame),
            Kind::Describe => self.describe(&frame),
            Kind::Execute => self.execute(frame).await,
            Kind::Close => self.close(&frame),
            Kind::Flush => {
                let result = frontend::empty(self.wire.frames.body(&frame));
                self.wire.frames.release(&frame);
                result?;
                self.wire.flush().await
            }
            Kind::Sync => {
                let result = frontend::empty(self.wire.frames.body(&frame));
                self.wire.frames.release(&frame);
                self.skip_to_sync = false;
                if let Err(report) = result {
                    self.backend.spoil();
                    self.wire.reply.report(&report);
                }
                self.ready().await
            }
            // What is left of a COPY that failed.
            Kind::CopyData | Kind::CopyDone | Kind::CopyFail => {
                self.wire.frames.release(&frame);
                Ok(())
            }
            Kind::FunctionCall => {
                self.wire.frames.release(&frame);
                Err(Report::error(SqlState::FEATURE_NOT_SUPPORTED, "the function call protocol is not supported")
                    .with_hint("Call the function in a SELECT.")
                    .into())
            }
            Kind::Terminate => Err(Stop::Gone.into()),
        }
    }

    /// Ends a cycle: what is still to be committed is, and the client may send its next request.
    pub(crate) async fn ready(&mut self) -> Result<(), Failure> {
        let synced = self.wire.watch(pin!(self.backend.sync())).await;
        if let Err(report) = synced {
            self.tell_settings();
            self.wire.reply.report(&report);
        }
        let status = self.backend.status();
        if status == TransactionStatus::Idle {
            self.portals.transaction_ends();
        }
        self.wire.reply.ready_for_query(status);
        self.wire.flush().await
    }

    /// Says that a statement is done, and what changed with it.
    pub(crate) fn complete(&mut self, tag: &str) {
        let word = tag.split_once(' ').map_or(tag, |(word, _)| word);
        if matches!(word, "SET" | "RESET" | "DISCARD" | "ROLLBACK" | "COMMIT") {
            self.tell_settings();
        }
        self.wire.reply.command_complete(tag);
    }

    fn tell_settings(&mut self) {
        let first = self.told.is_empty();
        for (index, (name, default)) in REPORTED_SETTINGS.iter().enumerate() {
            let value = self.backend.setting(name).unwrap_or(Cow::Borrowed(default));
            if first {
                self.wire.reply.parameter_status(name, &value);
                self.told.push(value.into_owned());
            } else if self.told[index] != value {
                self.wire.reply.parameter_status(name, &value);
                self.told[index] = value.into_owned();
            }
        }
    }
}
