//! What sessions are at: `pg_stat_activity`, and what snapshots their transactions have: `eris.transactions`.

use std::net::SocketAddr;

use eris_engine::{SnapshotDescription, WaitReason};
use eris_platform::Nanos;

use super::oids::FIRST_USER_OID;
use super::postgres::OWNER;
use super::{Columns, Named, Rows};
use crate::activity::{ActivityReport, Phase};
use crate::settings::level_name;

/// What a session waits for, in PostgreSQL's words: type and event.
fn wait_of(report: &ActivityReport, known: &Named<'_>) -> Option<(&'static str, &'static str)> {
    if report.phase != Phase::Active {
        return Some(("Client", "ClientRead"));
    }
    let (transaction, ..) = report.transaction?;
    known.engine.waits_for(transaction).map(|reason| match reason {
        WaitReason::Transaction => ("Lock", "transactionid"),
        WaitReason::TableLock => ("Lock", "relation"),
    })
}

/// Microseconds since 1970 of a moment in the engine's time.
pub(super) fn unix_micros(known: &Named<'_>) -> impl Fn(Nanos) -> i64 {
    let env = known.engine.env();
    let (now, unix) = (env.now().0, env.unix_micros());
    move |time: Nanos| unix.saturating_sub(i64::try_from(now.saturating_sub(time.0) / 1_000).unwrap_or(i64::MAX))
}

pub(super) fn sessions(known: &Named<'_>) -> Columns {
    let at = unix_micros(known);
    let client = |report: &ActivityReport| report.client.map(|client: SocketAddr| client.ip().to_string());
    Rows::new(known.activities.reports())
        .integer("datid", |_| FIRST_USER_OID - 1)
        .text("datname", |report| report.database.clone())
        .small_integer("pid", |report| Some(report.process as i32))
        .small_integer("leader_pid", |_| None)
        .integer("usesysid", |_| OWNER)
        .text("usename", |report| report.user.clone())
        .text("application_name", |report| report.application_name.clone())
        .text_or_null("client_addr", client)
        .text_or_null("client_hostname", |_| None)
        .small_integer("client_port", |report| report.client.map(|client| i32::from(client.port())))
        .timestamp("backend_start", |report| Some(at(report.started)))
        .timestamp("xact_start", |report| report.transaction_started.map(&at))
        .timestamp("query_start", |report| report.query_started.map(&at))
        .timestamp("state_change", |report| Some(at(report.phase_began)))
        .text_or_null("wait_event_type", |report| wait_of(report, known).map(|(kind, _)| kind.to_string()))
        .text_or_null("wait_event", |report| wait_of(report, known).map(|(_, event)| event.to_string()))
        .text("state", |report| report.phase.name().to_string())
        .integer_or_null("backend_xid", |report| report.transaction.map(|(id, ..)| id.0 as i64))
        .integer_or_null("backend_xmin", |report| report.transaction.map(|(_, snapshot, _)| snapshot.0 as i64))
        .integer_or_null("query_id", |_| None)
        .text("query", |report| report.query.clone())
        .text("backend_type", |_| "client backend".to_string())
        .columns
}

/// An open transaction: of a session, or one that the database has for itself.
struct Open {
    session: Option<ActivityReport>,
    /// None if it has none yet, or if that was revoked.
    snapshot: Option<SnapshotDescription>,
}

impl Open {
    /// When the session took its snapshot.
    fn taken(&self) -> Option<Nanos> {
        let (_, _, taken) = self.session.as_ref()?.transaction?;
        self.snapshot.map(|_| taken)
    }
}

/// Which transaction has which snapshot, and what the oldest one costs.
pub(super) fn transactions(known: &Named<'_>) -> Columns {
    let (at, now) = (unix_micros(known), known.engine.env().now());
    let snapshots = known.engine.snapshots();
    let is_open = |report: &ActivityReport| report.transaction.is_some() || report.transaction_started.is_some();
    let mut rows = Vec::new();
    for session in known.activities.reports().into_iter().filter(is_open) {
        // The oldest that it has: an open cursor may have another one than the present statement.
        let of = |it: &&SnapshotDescription| session.transaction.is_some_and(|(id, ..)| it.transaction == id);
        let snapshot = snapshots.iter().find(of).copied();
        rows.push(Open { session: Some(session), snapshot });
    }
    let internal = snapshots.iter().filter(|snapshot| snapshot.is_internal);
    rows.extend(internal.map(|snapshot| Open { session: None, snapshot: Some(*snapshot) }));
    let session = |row: &Open| row.session.clone();
    let age_ms = |taken: Nanos| i64::try_from(now.0.saturating_sub(taken.0) / 1_000_000).unwrap_or(i64::MAX);
    Rows::new(rows)
        .small_integer("pid", |row| row.session.as_ref().map(|session| session.process as i32))
        .text_or_null("usename", |row| session(row).map(|session| session.user))
        .text_or_null("application_name", |row| session(row).map(|session| session.application_name))
        .timestamp("xact_start", |row| row.session.as_ref()?.transaction_started.map(&at))
        .text_or_null("isolation", |row| {
            let session = row.session.as_ref()?;
            session.transaction.map(|_| level_name(session.level).to_string())
        })
        .text("state", |row| row.session.as_ref().map_or("internal", |it| it.phase.name()).to_string())
        .integer_or_null("snapshot", |row| row.snapshot.map(|snapshot| snapshot.timestamp.0 as i64))
        .integer_or_null("snapshot_age_ms", |row| row.taken().map(age_ms))
        .truth("holds_oldest", |row| row.snapshot.is_some_and(|snapshot| snapshot.is_oldest))
        .integer("old_version_bytes", |row| row.snapshot.map_or(0, |snapshot| snapshot.old_version_bytes as i64))
        .text_or_null("query", |row| session(row).map(|session| session.query))
        .columns
}
