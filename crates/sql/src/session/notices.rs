//! What clients are told beside the outcome of a statement: PostgreSQL's notices and warnings, where it has them.

use super::session::Session;
use crate::errors::SqlState;

/// Something that the client should know and that is no error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// A warning, rather than a remark.
    pub is_warning: bool,
    /// Its code.
    pub sqlstate: SqlState,
    /// One sentence without a full stop.
    pub message: String,
}

impl Notice {
    /// PostgreSQL's word for how grave it is.
    pub fn severity(&self) -> &'static str {
        if self.is_warning { "WARNING" } else { "NOTICE" }
    }
}

impl Session {
    /// What came up since the last call. A statement that is not asked about loses its notices to the next one.
    pub fn take_notices(&mut self) -> Vec<Notice> {
        let mut notices = std::mem::take(&mut self.notices);
        notices.append(&mut self.lock_warnings());
        notices
    }

    pub(super) fn notice(&mut self, sqlstate: SqlState, message: impl Into<String>) {
        self.notices.push(Notice { is_warning: false, sqlstate, message: message.into() });
    }

    pub(super) fn warning(&mut self, sqlstate: SqlState, message: impl Into<String>) {
        self.notices.push(Notice { is_warning: true, sqlstate, message: message.into() });
    }
}
