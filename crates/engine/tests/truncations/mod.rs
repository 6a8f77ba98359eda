//! Tables that are truncated, dropped and locked in every mode, while others fill, read and lock them.
//!
//! ```text
//!   TRUNCATE   lock_to_replace(old) ── a new container, a row in the catalog ── commit, its locks kept
//!              ── the name means the new one ── drop the old one ── give the locks back      (as a session does it)
//!   DROP       the same, and for a while the name means nothing
//! ```
//! Elements are written once, so a table at a snapshot is what was inserted by commits up to it and after the last
//! truncation among them: every read is compared with that. What a committed transaction inserted must be there unless
//! a later commit truncated the table; a transaction that wrote to a table holds off its truncation, so it commits.
//! What SERIALIZABLE transactions did has an order ([`history`]). No two of them ever hold locks that conflict
//! ([`Holders`]), and whoever waits in a circle is told so: with the others the run would not end.

mod client;
mod history;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use eris_engine::{Container, ContainerSpec, Engine, Partitioning, TableLockMode};
use eris_platform::SeededRandom;
use eris_storage::{ContainerId, Layout};

use crate::accounts::{self, KEY};
use crate::chaos::Chaos;

pub use client::run_truncation_client;
pub use history::TruncationHistory;

/// Names of tables; with two of them transactions wait in circles.
pub const TABLES: usize = 2;

/// What clients of these tables share.
#[derive(Clone)]
pub struct Truncations {
    pub engine: Engine,
    pub chaos: Arc<Chaos>,
    pub history: Arc<Mutex<TruncationHistory>>,
    /// Has a row for each truncation, and is never truncated itself.
    catalog: ContainerId,
    names: Arc<Mutex<[Option<ContainerId>; TABLES]>>,
    holders: Arc<Mutex<Holders>>,
    layout: Layout,
    segment_rows: u32,
    partitions: Option<usize>,
}

impl Truncations {
    /// The tables, empty.
    pub fn create(engine: &Engine, random: &mut SeededRandom, chaos: &Arc<Chaos>) -> Result<Self, String> {
        let mut made = Self {
            engine: engine.clone(),
            chaos: Arc::clone(chaos),
            history: Arc::default(),
            catalog: ContainerId(0),
            names: Arc::default(),
            holders: Arc::default(),
            layout: [Layout::Row, Layout::Column, Layout::Mixed, Layout::Default][random.index(4)],
            segment_rows: [4, 16, 64][random.index(3)],
            partitions: [None, Some(1), Some(3)][random.index(3)],
        };
        made.catalog = made.container()?.id();
        let names = [made.container()?.id(), made.container()?.id()];
        *made.names.lock().expect("one thread") = names.map(Some);
        Ok(made)
    }

    /// An empty container that no name means.
    fn container(&self) -> Result<Arc<Container>, String> {
        let id = self.engine.next_container_id();
        let schema = Arc::new(accounts::schema(id, self.layout, self.segment_rows));
        let partitioning = match self.partitions {
            Some(partitions) => Partitioning::Hash { attributes: Box::new([KEY]), partitions },
            None => Partitioning::Range(Box::new([KEY])),
        };
        self.engine.create_container(ContainerSpec { schema, partitioning }).map_err(|error| error.to_string())
    }

    /// What a name means now; nothing while the table is dropped.
    fn meaning(&self, table: usize) -> Option<ContainerId> {
        self.names.lock().expect("one thread")[table]
    }

    fn set_meaning(&self, table: usize, meaning: Option<ContainerId>) {
        self.names.lock().expect("one thread")[table] = meaning;
    }

    async fn pause(&self, random: &mut SeededRandom, micros_max: u64) {
        let span = Duration::from_micros(1 + random.below(micros_max));
        self.engine.sleep_until(self.engine.env().now() + span).await;
    }

    /// All containers, with the table that each is.
    pub fn containers(&self) -> [(Option<usize>, ContainerId); TABLES + 1] {
        let names = *self.names.lock().expect("one thread");
        let named = |table: usize| (Some(table), names[table].expect("who drops a table makes it anew"));
        [(None, self.catalog), named(0), named(1)]
    }
}

/// Who holds which table locks, as the clients know: noted after they were granted, forgotten before they are given
/// back.
#[derive(Default)]
struct Holders {
    held: Vec<(u64, ContainerId, TableLockMode)>,
}

/// What one transaction holds; forgotten with it.
struct OwnLocks {
    holders: Arc<Mutex<Holders>>,
    owner: u64,
}

impl OwnLocks {
    /// Notes a lock that was granted.
    ///
    /// # Panics
    /// If somebody else holds one that is in conflict with it.
    fn add(&self, container: ContainerId, mode: TableLockMode) {
        let in_conflict = {
            let mut holders = self.holders.lock().expect("one thread");
            let others = holders.held.iter().filter(|(owner, held, _)| *owner != self.owner && *held == container);
            let modes: Vec<TableLockMode> = others.map(|(_, _, other)| *other).collect();
            holders.held.push((self.owner, container, mode));
            modes.into_iter().find(|other| mode.conflicts_with(*other))
        };
        if let Some(other) = in_conflict {
            panic!("{} of {container:?} was granted while another holds {}", mode.name(), other.name());
        }
    }

    fn count(&self) -> usize {
        let holders = self.holders.lock().expect("one thread");
        holders.held.iter().filter(|(owner, _, _)| *owner == self.owner).count()
    }

    /// Forgets all but the first ones.
    fn truncate(&self, count: usize) {
        let mut own = 0;
        self.holders.lock().expect("one thread").held.retain(|(owner, _, _)| {
            own += usize::from(*owner == self.owner);
            *owner != self.owner || own <= count
        });
    }
}

impl Drop for OwnLocks {
    fn drop(&mut self) {
        self.truncate(0);
    }
}
