//! All sessions of a database.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use eris_platform::Nanos;

use super::interruption::Interruption;
use super::session_activity::{Activity, ActivityReport};
use crate::session::SessionOptions;

/// Sessions that no connection numbers have numbers from here: connections count from 1 and stay below.
pub const FIRST_OWN_PROCESS: u32 = 1 << 30;

/// The sessions of a database, by their numbers.
#[derive(Default)]
pub struct Activities {
    sessions: Mutex<BTreeMap<u32, Arc<Activity>>>,
}

impl fmt::Debug for Activities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.sessions().keys()).finish()
    }
}

impl Activities {
    fn sessions(&self) -> MutexGuard<'_, BTreeMap<u32, Arc<Activity>>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A new session. It has the number that its options ask for, which no other session may have: the client was told
    /// that number, and would cancel or terminate the other session with it.
    pub(crate) fn add(&self, options: &SessionOptions, now: Nanos) -> Arc<Activity> {
        let mut sessions = self.sessions();
        let wanted = options.process.filter(|process| {
            let is_taken = sessions.contains_key(process);
            debug_assert!(!is_taken, "two sessions are given the number {process}: one registry numbers connections");
            // Where that is not checked, the session that is there keeps its number and its place in the map.
            !is_taken
        });
        let process = wanted.unwrap_or_else(|| {
            let last = sessions.last_key_value().map_or(0, |(last, _)| *last);
            let next = last.wrapping_add(1).max(FIRST_OWN_PROCESS) & (i32::MAX as u32);
            let free = |process: &u32| *process > 0 && !sessions.contains_key(process);
            [next].into_iter().chain(FIRST_OWN_PROCESS..=u32::MAX).find(free).unwrap_or(next)
        });
        let activity = Arc::new(Activity::new(process, options, now));
        sessions.insert(process, Arc::clone(&activity));
        activity
    }

    pub(crate) fn remove(&self, process: u32) {
        self.sessions().remove(&process);
    }

    /// Ends what a session runs; false if there is no such session.
    pub fn cancel(&self, process: u32) -> bool {
        self.interrupt(process, Interruption::UserRequest)
    }

    /// Ends a session; false if there is no such session.
    pub fn terminate(&self, process: u32) -> bool {
        self.interrupt(process, Interruption::Administrator)
    }

    fn interrupt(&self, process: u32, why: Interruption) -> bool {
        let activity = self.sessions().get(&process).cloned();
        activity.inspect(|activity| activity.interrupt(why)).is_some()
    }

    /// All of them, in the order of their numbers.
    pub fn reports(&self) -> Vec<ActivityReport> {
        let sessions: Vec<_> = self.sessions().values().cloned().collect();
        sessions.iter().map(|activity| activity.report()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "two sessions are given the number 7")]
    fn a_connection_is_never_given_another_number_than_it_was_told() {
        let activities = Activities::default();
        let options = SessionOptions { process: Some(7), ..SessionOptions::default() };
        let _first = activities.add(&options, Nanos::ZERO);
        let _second = activities.add(&options, Nanos::ZERO);
    }

    #[test]
    fn sessions_without_a_connection_have_numbers_that_no_connection_has() {
        let activities = Activities::default();
        let connection = SessionOptions { process: Some(FIRST_OWN_PROCESS - 1), ..SessionOptions::default() };
        assert_eq!(activities.add(&connection, Nanos::ZERO).process, FIRST_OWN_PROCESS - 1);
        for number in 0..3 {
            let own = activities.add(&SessionOptions::default(), Nanos::ZERO);
            assert_eq!(own.process, FIRST_OWN_PROCESS + number);
        }
        activities.remove(FIRST_OWN_PROCESS - 1);
        assert_eq!(activities.add(&connection, Nanos::ZERO).process, FIRST_OWN_PROCESS - 1);
    }
}
