//! Databases that lose their power or their process at any moment, on a disk that loses, tears and reorders what was
//! not synced.
//!
//! A seed is a database of a few lives ([`life`]). In each life clients work until the power goes, anywhere: between
//! two steps of workers, between two operations of the disk, while the database is opened. Then it is opened again on
//! what is left, and looked at:
//!
//! ```text
//!   bank      what was told to be durable is there, what was rolled back is not, no commit is missing in front of one
//!             that is there, each is there as a whole or not at all; texts are those of their rows, no child is
//!             without its parent, values of a sequence are not given twice ([`bank`], [`books`])
//!   scribes   transactions at all levels saw what they may see, over all lives ([`scribes`], [`elle`])
//!   plots     containers, indexes, attributes, layouts, foreign keys and sequences that come, change and go, the
//!             catalog that names them, rows of all types ([`plots`])
//!   each      indexes agree with rows, foreign keys are enforced; what was there after one crash is there after the
//!             next
//! ```
//! `ERIS_SEEDS=1000 ERIS_TRANSACTIONS=1000` make it long; `ERIS_SEED=n` replays one seed.

#![expect(clippy::expect_used, reason = "a test fails by panicking")]

mod bank;
mod books;
#[path = "../../engine/tests/elle/mod.rs"]
mod elle;
mod life;
mod plots;
mod reached;
mod schemas;
mod scribes;

use life::Life;
use reached::Reached;

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

#[test]
fn nothing_acknowledged_is_lost_and_nothing_else_is_there() {
    let transactions = number("ERIS_TRANSACTIONS", 300);
    let (first, seeds) = match std::env::var("ERIS_SEED").ok().and_then(|text| text.parse().ok()) {
        Some(seed) => (seed, 1),
        None => (number("ERIS_FIRST_SEED", 1), number("ERIS_SEEDS", 40)),
    };
    let mut reached = Reached::default();
    for seed in first..first + seeds {
        let run = std::panic::AssertUnwindSafe(|| Life::run(seed, transactions, &mut reached));
        if let Err(panic) = std::panic::catch_unwind(run) {
            eprintln!(
                "seed {seed} failed; replay: ERIS_SEED={seed} ERIS_TRANSACTIONS={transactions} cargo test --release \
                 -p eris-durability --test crashes nothing -- --nocapture"
            );
            std::panic::resume_unwind(panic);
        }
    }
    println!("{reached}");
    if seeds >= 40 && std::env::var_os("ERIS_FIRST_SEED").is_none() {
        reached.check();
    }
}

#[test]
fn a_seed_runs_the_same_twice() {
    let run = || {
        let mut reached = Reached::default();
        Life::run(3, 100, &mut reached);
        reached.to_string()
    };
    assert_eq!(run(), run());
}
