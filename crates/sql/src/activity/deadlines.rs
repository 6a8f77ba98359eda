//! The moments at which a session is interrupted, of which most never come.

use eris_platform::Nanos;

use super::interruption::Interruption;
use crate::settings::SessionSettings;

/// The timeouts of a session as its settings have them, in nanoseconds; `None`: for ever.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Timeouts {
    pub statement: Option<u64>,
    pub transaction: Option<u64>,
    pub idle_in_transaction: Option<u64>,
    pub idle: Option<u64>,
}

impl Timeouts {
    pub fn of(settings: &SessionSettings) -> Self {
        let nanoseconds = |timeout: eris_platform::settings::Timeout| {
            timeout.duration().map(|duration| u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX))
        };
        Self {
            statement: nanoseconds(settings.statement_timeout()),
            transaction: nanoseconds(settings.transaction_timeout()),
            idle_in_transaction: nanoseconds(settings.idle_in_transaction_timeout()),
            idle: nanoseconds(settings.idle_session_timeout()),
        }
    }
}

/// What is to end when, in the engine's time; `u64::MAX`: never.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deadlines {
    statement: u64,
    transaction: u64,
    idle: u64,
    idle_means: Interruption,
}

impl Default for Deadlines {
    fn default() -> Self {
        Self { statement: u64::MAX, transaction: u64::MAX, idle: u64::MAX, idle_means: Interruption::IdleSession }
    }
}

fn after(from: Nanos, timeout: Option<u64>) -> u64 {
    timeout.map_or(u64::MAX, |timeout| from.0.saturating_add(timeout))
}

impl Deadlines {
    pub fn statement_begins(&mut self, now: Nanos, timeouts: &Timeouts) {
        self.idle = u64::MAX;
        self.statement = after(now, timeouts.statement);
    }

    pub fn statement_ends(&mut self) {
        self.statement = u64::MAX;
    }

    /// Of a transaction that began at this time; `None`: there is none.
    pub fn transaction_since(&mut self, began: Option<Nanos>, timeouts: &Timeouts) {
        self.transaction = began.map_or(u64::MAX, |began| after(began, timeouts.transaction));
    }

    pub fn idle_since(&mut self, now: Nanos, in_transaction: bool, timeouts: &Timeouts) {
        let (timeout, means) = if in_transaction {
            (timeouts.idle_in_transaction, Interruption::IdleInTransaction)
        } else {
            (timeouts.idle, Interruption::IdleSession)
        };
        (self.idle, self.idle_means) = (after(now, timeout), means);
    }

    /// The next moment at which something is to end.
    pub fn next(&self) -> u64 {
        self.statement.min(self.transaction).min(self.idle)
    }

    /// What has to end by now, the session before the statement; each is told once.
    pub fn take_due(&mut self, now: Nanos) -> Option<Interruption> {
        let due = [
            (&mut self.transaction, Interruption::TransactionTimeout),
            (&mut self.idle, self.idle_means),
            (&mut self.statement, Interruption::StatementTimeout),
        ];
        due.into_iter().find(|(deadline, _)| **deadline <= now.0).map(|(deadline, why)| {
            *deadline = u64::MAX;
            why
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_due_first_is_told_once_and_the_session_goes_before_the_statement() {
        let timeouts =
            Timeouts { statement: Some(10), transaction: Some(25), idle_in_transaction: Some(5), idle: Some(7) };
        let mut deadlines = Deadlines::default();
        assert_eq!((deadlines.next(), deadlines.take_due(Nanos(u64::MAX - 1))), (u64::MAX, None));
        deadlines.transaction_since(Some(Nanos(100)), &timeouts);
        deadlines.statement_begins(Nanos(100), &timeouts);
        assert_eq!((deadlines.next(), deadlines.take_due(Nanos(109))), (110, None));
        assert_eq!(deadlines.take_due(Nanos(110)), Some(Interruption::StatementTimeout));
        assert_eq!(deadlines.take_due(Nanos(110)), None);
        deadlines.statement_begins(Nanos(120), &timeouts);
        assert_eq!(deadlines.take_due(Nanos(130)), Some(Interruption::TransactionTimeout));
        deadlines.statement_ends();
        deadlines.idle_since(Nanos(130), true, &timeouts);
        assert_eq!(deadlines.take_due(Nanos(135)), Some(Interruption::IdleInTransaction));
        deadlines.transaction_since(None, &timeouts);
        deadlines.idle_since(Nanos(140), false, &timeouts);
        assert_eq!(deadlines.next(), 147);
        deadlines.statement_begins(Nanos(141), &Timeouts::default());
        assert_eq!(deadlines.next(), u64::MAX, "a session that works is not idle");
    }
}
