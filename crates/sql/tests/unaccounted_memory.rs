//! Accesses by key while the process holds more than is accounted: they are tried again when memory came back, on the
//! clock of the simulator.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use eris_engine::{EngineOptions, Simulation};
use eris_platform::{Env, MemoryController, Reservation};
use eris_sql::{Database, DatabaseOptions, Session, SessionOptions, SqlError};
use support::joined;

const LIMIT: u64 = 512 << 20;
/// More than half of the limit, which is what is in force at least.
const HELD: u64 = 300 << 20;
/// The three pauses before an access by key is tried again.
const PAUSES: Duration = Duration::from_millis(50 + 100 + 150);

/// What a system says of the process, below a directory of its own.
struct System(PathBuf);

impl System {
    fn new() -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let name = format!("eris-unaccounted-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let system = Self(std::env::temp_dir().join(name));
        fs::create_dir_all(system.0.join("proc/self")).unwrap();
        system
    }

    /// Says how many pages of the process are resident.
    fn resident(&self, pages: u64) {
        fs::write(self.0.join("proc/self/statm"), format!("99999999 {pages} 1 1 0 1 0\n")).unwrap();
    }
}

impl Drop for System {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

struct Watched {
    session: Option<Session>,
    database: Database,
    controller: Arc<MemoryController>,
    _held: Reservation,
    system: Arc<System>,
    simulation: Simulation,
}

impl Watched {
    /// A database of an empty table that holds much of its limit, and a process that holds nothing else yet.
    fn start(seed: u64) -> Self {
        let options = EngineOptions { workers: 2, nodes: 1, memory_limit_bytes: LIMIT, ..EngineOptions::default() };
        let mut simulation = Simulation::new(seed, options).expect("starts");
        let opening = Database::open(simulation.engine().clone(), DatabaseOptions::default());
        let database = simulation.block_on(opening).expect("ends").expect("it opens");
        let held = simulation.engine().memory().reserve("held");
        held.grow(HELD).expect("there is room");
        let system = Arc::new(System::new());
        system.resident(1);
        let controller = MemoryController::new(simulation.engine().memory(), &system.0);
        controller.look();
        let session = Some(database.session(SessionOptions::default()));
        let mut watched = Self { session, database, controller, _held: held, system, simulation };
        watched.run("CREATE TABLE t (id int PRIMARY KEY, text text)").0.expect("it is made");
        watched
    }

    /// From now on the process holds far more than is accounted; after some time it does not any more.
    fn hold_unaccounted(&self, until: Option<Duration>) {
        self.system.resident(4_000_000);
        let report = self.controller.look();
        assert!(report.limit_bytes < self.database.engine().memory().used(), "{report}");
        let Some(span) = until else { return };
        let (engine, system) = (self.database.engine().clone(), Arc::clone(&self.system));
        let controller = Arc::clone(&self.controller);
        self.database.engine().spawn(async move {
            engine.sleep_until(engine.env().now() + span).await;
            system.resident(1);
            controller.look();
        });
    }

    fn run(&mut self, sql: &str) -> (Result<Vec<String>, SqlError>, Duration) {
        let (mut session, text) = (self.session.take().expect("no statement runs"), sql.to_owned());
        let begun = self.simulation.env().now();
        let ran = async move {
            let answer = support::run(&mut session, &text, &[], None).await;
            (session, answer)
        };
        let (session, answer) = self.simulation.block_on(ran).expect("ends");
        self.session = Some(session);
        let rows = answer.map(|answer| answer.rows.iter().map(|row| joined(row)).collect());
        (rows, self.simulation.env().now() - begun)
    }
}

/// A row that needs memory of its own.
fn insert() -> String {
    format!("INSERT INTO t VALUES (1, '{}')", "x".repeat(300_000))
}

#[test]
fn an_access_by_key_that_unaccounted_memory_refused_is_tried_again() {
    for (seed, millis) in [0, 100, 300, 500].into_iter().enumerate() {
        let mut watched = Watched::start(seed as u64);
        watched.hold_unaccounted(Some(Duration::from_millis(millis)));
        let (inserted, took) = watched.run(&insert());
        inserted.unwrap_or_else(|error| panic!("the memory was back after {millis} ms: {error}"));
        assert!(took >= Duration::from_millis(millis), "there was no memory before: {took:?}");
        let (found, _) = watched.run("SELECT length(text) FROM t WHERE id = 1");
        assert_eq!(found.expect("it is found"), ["300000"]);
    }
}

#[test]
fn an_access_by_key_is_refused_after_three_retries_and_in_a_block_at_once() {
    let mut watched = Watched::start(10);
    watched.hold_unaccounted(None);
    let (refused, took) = watched.run(&insert());
    assert_eq!(refused.expect_err("there is no memory").sqlstate.as_str(), "53200");
    assert!(took >= PAUSES, "it was refused after {took:?}");
    watched.run("BEGIN").0.expect("a block begins");
    let (refused, took) = watched.run(&insert());
    assert_eq!(refused.expect_err("there is no memory").sqlstate.as_str(), "53200");
    assert!(took < PAUSES, "what came before it cannot be repeated, and it waited {took:?}");
    watched.run("ROLLBACK").0.expect("the block ends");
    // The session goes on.
    watched.system.resident(1);
    watched.controller.look();
    watched.run(&insert()).0.expect("there is memory");
}
