//! What `synchronous_commit` makes COMMIT wait for, and what a log that failed makes of it: on a simulated disk whose
//! sync takes as long as the test wants it to.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use eris_durability::DurabilityOptions;
use eris_engine::{EngineOptions, Simulation};
use eris_platform::simulated::{DiskFaults, FileFault, PerMille, Unsynced};
use eris_platform::{Env, SimulatedEnv};
use eris_sql::{Database, DatabaseOptions, Session, SessionOptions, SqlError};
use support::joined;

/// How long the disk takes for whatever it is given.
const LATENCY: Duration = Duration::from_secs(2);
/// How long an asynchronous commit waits for others before it is written.
const DELAY: Duration = Duration::from_mins(1);

struct Durable {
    env: SimulatedEnv,
    simulation: Simulation,
    database: Database,
    session: Option<Session>,
}

impl Durable {
    fn open(env: &SimulatedEnv) -> Self {
        let mut simulation = Simulation::on(env, EngineOptions::default()).expect("starts");
        let engine = simulation.engine().clone();
        let opened = async move {
            let options = DurabilityOptions { asynchronous_delay: DELAY, ..DurabilityOptions::default() };
            let files = eris_durability::open(&engine, Path::new("/db"), &options, |_| {}).await.expect("it opens");
            let database = Database::open(engine, DatabaseOptions::default()).await.expect("it opens");
            database.attach_files(Arc::new(files));
            database
        };
        let database = simulation.block_on(opened).expect("ends");
        let session = Some(database.session(SessionOptions::default()));
        Self { env: env.clone(), simulation, database, session }
    }

    /// Runs a text; its rows, and how long it took.
    fn run(&mut self, sql: &str) -> (Result<Vec<String>, SqlError>, Duration) {
        let (mut session, text, begun) =
            (self.session.take().expect("no statement runs"), sql.to_owned(), self.env.now());
        let ran = async move {
            let answer = support::run(&mut session, &text, &[], None).await;
            (session, answer)
        };
        let (session, answer) = self.simulation.block_on(ran).expect("ends");
        self.session = Some(session);
        (answer.map(|answer| answer.rows.iter().map(|row| joined(row)).collect()), self.env.now() - begun)
    }

    fn ok(&mut self, sql: &str) -> Duration {
        let (answer, took) = self.run(sql);
        answer.unwrap_or_else(|error| panic!("{sql}: {error}"));
        took
    }

    /// Asked one by one: what sorts runs outside of the simulation.
    fn ids(&mut self) -> Vec<String> {
        (0..10).flat_map(|id| self.run(&format!("SELECT id FROM t WHERE id = {id}")).0.expect("reads")).collect()
    }

    fn state(&mut self, sql: &str) -> String {
        self.run(sql).0.expect_err(sql).sqlstate.to_string()
    }
}

/// Nothing that was not synced survives, and whatever the disk is asked for takes its time.
fn slow_machine(seed: u64) -> SimulatedEnv {
    let env = SimulatedEnv::new(seed);
    let faults = DiskFaults {
        latency_min: LATENCY,
        latency_max: LATENCY,
        slow: PerMille(0),
        unsynced: Unsynced::Lost,
        ..DiskFaults::default()
    };
    env.simulated_files().set_disk_faults(faults);
    env
}

#[test]
fn commit_waits_for_the_sync_with_on_and_does_not_with_off() {
    // What is set, how, and whether the commit waits.
    let cases = [
        ("SET synchronous_commit = on", "INSERT INTO t VALUES (2)", true),
        ("SET synchronous_commit = local", "INSERT INTO t VALUES (2)", true),
        ("SET synchronous_commit = off", "INSERT INTO t VALUES (2)", false),
        ("SET synchronous_commit = off", "BEGIN; INSERT INTO t VALUES (2); COMMIT", false),
        ("SET synchronous_commit = off; RESET synchronous_commit", "INSERT INTO t VALUES (2)", true),
        ("SELECT 1", "BEGIN; SET LOCAL synchronous_commit = off; INSERT INTO t VALUES (2); COMMIT", false),
        (
            "BEGIN; SET LOCAL synchronous_commit = off; INSERT INTO t VALUES (3); COMMIT; DELETE FROM t WHERE id = 3",
            "INSERT INTO t VALUES (2)",
            true,
        ),
    ];
    for (seed, (setting, change, waits)) in cases.into_iter().enumerate() {
        let env = slow_machine(seed as u64);
        let mut durable = Durable::open(&env);
        durable.ok("CREATE TABLE t (id int PRIMARY KEY)");
        durable.ok("INSERT INTO t VALUES (1)");
        durable.ok(setting);
        let syncs = |durable: &Durable| durable.database.files().expect("it has files").log().statistics().syncs;
        let before = syncs(&durable);
        let took = durable.ok(change);
        assert_eq!(took >= LATENCY, waits, "{setting}; {change}: took {took:?}");
        assert_eq!(syncs(&durable) - before, u64::from(waits), "{setting}; {change}: its own sync");
        assert_eq!(durable.ids(), ["1", "2"], "it is visible at once");
        drop(durable);
        env.lose_power();
        let left = Durable::open(&env).ids();
        assert_eq!(left.len(), if waits { 2 } else { 1 }, "{setting}; {change}: {left:?} survive at once");
    }
}

/// Each word by what it shows and whether a commit waits with it; others are refused and change nothing.
#[test]
fn words_for_synchronous_commit_mean_on_or_off_and_others_are_refused() {
    let env = slow_machine(40);
    let mut durable = Durable::open(&env);
    durable.ok("CREATE TABLE t (id int PRIMARY KEY)");
    let words = [
        ("on", "on"),
        ("off", "off"),
        ("local", "local"),
        ("'OFF'", "off"),
        ("remote_write", "remote_write"),
        ("false", "off"),
        ("remote_apply", "remote_apply"),
        ("0", "off"),
        ("true", "on"),
        ("'no'", "off"),
        ("'yes'", "on"),
        ("1", "on"),
        ("'Local'", "local"),
    ];
    for (id, (word, shown)) in words.into_iter().enumerate() {
        durable.ok(&format!("SET synchronous_commit = {word}"));
        let show = |durable: &mut Durable| durable.run("SHOW synchronous_commit").0.expect("it is shown");
        assert_eq!(show(&mut durable), [shown], "{word}");
        let took = durable.ok(&format!("INSERT INTO t VALUES ({id})"));
        assert_eq!(took >= LATENCY, shown != "off", "{word}: a commit took {took:?}");
        for refused in ["maybe", "2", "'-1'", "''", "'on, off'"] {
            assert_eq!(durable.state(&format!("SET synchronous_commit = {refused}")), "22023", "{refused}");
            assert_eq!(show(&mut durable), [shown], "{refused} changed it");
        }
    }
}

#[test]
fn a_commit_that_does_not_wait_is_durable_a_while_later() {
    let env = slow_machine(20);
    let mut durable = Durable::open(&env);
    durable.ok("CREATE TABLE t (id int PRIMARY KEY)");
    durable.ok("SET synchronous_commit = off");
    assert!(durable.ok("INSERT INTO t VALUES (1)") < LATENCY);
    let engine = durable.database.engine().clone();
    let pause = async move { engine.sleep_until(engine.env().now() + DELAY + LATENCY * 2).await };
    durable.simulation.block_on(pause).expect("ends");
    drop(durable);
    env.lose_power();
    assert_eq!(Durable::open(&env).ids(), ["1"]);
}

#[test]
fn after_a_failed_sync_every_commit_says_58030_and_queries_go_on() {
    let env = slow_machine(30);
    let mut durable = Durable::open(&env);
    durable.ok("CREATE TABLE t (id int PRIMARY KEY)");
    durable.ok("INSERT INTO t VALUES (1)");
    let files = env.simulated_files();
    // A commit is a write and a sync.
    files.fail_at(files.operations() + 1, FileFault::Broken);
    for change in [
        "INSERT INTO t VALUES (2)",
        "INSERT INTO t VALUES (3)",
        "SET synchronous_commit = off; INSERT INTO t VALUES (4)",
        "DELETE FROM t",
        "CREATE TABLE u (id int)",
        "CHECKPOINT",
    ] {
        assert_eq!(durable.state(change), "58030", "{change}");
    }
    let (refused, _) = durable.run("INSERT INTO t VALUES (5)");
    let words = refused.expect_err("the log has failed").to_string();
    assert!(words.contains("no more commits are accepted") && words.contains("Input/output error"), "{words}");
    assert_eq!(durable.ids(), ["1"], "what was told is there");
}
