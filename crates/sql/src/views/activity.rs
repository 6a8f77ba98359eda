//! What sessions are at: `pg_stat_activity`.

use std::net::SocketAddr;

use eris_platform::Nanos;

use super::oids::FIRST_USER_OID;
use super::postgres::OWNER;
use super::{Columns, Named, Rows};
use crate::activity::{ActivityReport, Phase};

/// What a session waits for, in PostgreSQL's words: type and event.
fn wait_of(report: &ActivityReport, known: &Named<'_>) -> Option<(&'static str, &'static str)> {
    if report.phase != Phase::Active {
        return Some(("Client", "ClientRead"));
    }
    let (transaction, ..) = report.transaction?;
    known.engine.waits_for(transaction).map(|_| ("Lock", "transactionid"))
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
