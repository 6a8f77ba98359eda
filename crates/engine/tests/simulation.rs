//! Seeded histories over the whole engine on one thread, with faults, checked for everything that was promised.
//!
//! ```text
//!   accounts   change, rename, insert, delete, lock, load, read; a history with snapshots and commit timestamps is
//!              replayed by a checker that knows nothing of the engine ([`history`])
//!   lists      append and read; the order in which lists grew tells who depends on whom, without any timestamp
//!              ([`elle`]); a global index, a local one that comes and goes
//!   rings      rows whose keys go round, read in every way there is; those who hold and those who wait, in step
//!              ([`rings`])
//!   kin        parents and children under a foreign key, ids of a sequence ([`kin`])
//!   truncated  tables that are truncated, dropped and locked in every mode ([`truncations`])
//!   beside     partitions split, merge and move, alone or as a group, layouts and schemas change, containers vanish,
//!              a node dies, tasks and operators panic, statements are cancelled and dropped, workers stall, partitions
//!              stay latched, memory is refused at any reservation ([`chaos`], `eris_engine::FaultOptions`)
//! ```
//! Safety first, then liveness: when most transactions are through, faults stop, and what is left must end within a
//! bounded number of steps. Then nobody has work, indexes agree with rows, nothing is left of transactions, and when
//! all is dropped no byte is reserved. What the runs reached is counted; a kind that none reached fails the test.
//!
//! `ERIS_SEEDS=1000 ERIS_TRANSACTIONS=1000` make it long (`scripts/simulate engine 1000` runs several at a time);
//! `ERIS_SEED=n` replays one seed.

#![expect(clippy::expect_used, reason = "a test fails by panicking")]

mod accounts;
mod chaos;
mod coverage;
mod elle;
mod families;
mod history;
mod kin;
mod lists;
mod mover;
mod rings;
mod serial;
mod slow_log;
mod truncations;
mod world;

use coverage::Coverage;
use world::run_seed;

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// Fewer seeds need not reach everything.
const SEEDS_FOR_COVERAGE: u64 = 40;

#[test]
fn histories_are_isolated_as_promised() {
    let transactions = number("ERIS_TRANSACTIONS", 300);
    let mut coverage = Coverage::new();
    if let Some(seed) = std::env::var("ERIS_SEED").ok().and_then(|text| text.parse().ok()) {
        run_seed(seed, transactions, &mut coverage).expect("the seed is clean");
        println!("{coverage}");
        return;
    }
    let first = number("ERIS_FIRST_SEED", 1);
    let seeds = number("ERIS_SEEDS", 60);
    for seed in first..first + seeds {
        let replay = format!(
            "replay: ERIS_SEED={seed} ERIS_TRANSACTIONS={transactions} cargo test --release -p eris-engine \
             --test simulation histories -- --nocapture"
        );
        // What panics inside the engine's own steps comes through here, too.
        let run = std::panic::AssertUnwindSafe(|| run_seed(seed, transactions, &mut coverage));
        let outcome = std::panic::catch_unwind(run);
        if !matches!(outcome, Ok(Ok(()))) {
            println!("{coverage}");
        }
        match outcome {
            Ok(Ok(())) => {}
            Ok(Err(failure)) => panic!("seed {seed}: {failure}\n{replay}"),
            Err(panic) => {
                eprintln!("seed {seed} panicked\n{replay}");
                std::panic::resume_unwind(panic);
            }
        }
    }
    println!("{coverage}");
    // Who runs some of many seeds adds up what they reached.
    if seeds >= SEEDS_FOR_COVERAGE && std::env::var_os("ERIS_FIRST_SEED").is_none() {
        assert_eq!(coverage.missing(), Vec::<&str>::new(), "no run reached these");
    }
}

#[test]
fn one_seed_runs_the_same_twice() {
    let run = |seed| {
        let mut coverage = Coverage::new();
        run_seed(seed, 100, &mut coverage).expect("the seed is clean");
        coverage.to_string()
    };
    assert_eq!(run(4), run(4));
}
