//! `eris demo`: the point of the system in about a minute.
//!
//! An embedded database loads TPC-H, answers the 22 queries, runs TATP transactions alone and beside the queries, and
//! then shows its living partitions, what the engine counted, and where time and memory went. Every answer is checked,
//! and a wrong one makes the command fail.

mod figures;
mod load;
mod partitions;
mod queries;
mod screen;
mod transactions;

use std::time::Instant;

use clap::Args;
use eris::Database;
use eris_bench::Instance;

use crate::demo::screen::{count, megabytes, seconds};
use crate::failure::Failure;
use crate::resources::Resources;

#[derive(Args, Clone, Debug)]
pub struct DemoArguments {
    /// Scale factor of TPC-H; answers are stored for 0.01, 0.1 and 1
    #[arg(long, value_name = "FACTOR", default_value_t = 0.1)]
    pub sf: f64,

    /// Subscribers of TATP
    #[arg(long, value_name = "N", default_value_t = 20_000)]
    pub subscribers: u32,

    /// How long the transactions run, alone and again beside the queries
    #[arg(long, value_name = "S", default_value_t = 8.0)]
    pub seconds: f64,

    #[command(flatten)]
    pub resources: Resources,
}

pub fn run(arguments: &DemoArguments) -> Result<(), Failure> {
    if !(arguments.sf > 0.0 && arguments.sf.is_finite()) {
        return Err(Failure::new("--sf is a positive number"));
    }
    if !(arguments.seconds > 0.0 && arguments.seconds < 3_600.0) || arguments.subscribers == 0 {
        return Err(Failure::new("--seconds and --subscribers are positive numbers"));
    }
    let start = Instant::now();
    let options = arguments.resources.options();
    let database = Database::open(options)?;
    println!(
        "ERIS {}: {} worker{} on {} node{}, at most {} of memory; started in {:.0} ms",
        env!("CARGO_PKG_VERSION"),
        options.workers,
        if options.workers == 1 { "" } else { "s" },
        options.nodes,
        if options.nodes == 1 { "" } else { "s" },
        megabytes(options.memory_limit_bytes),
        start.elapsed().as_secs_f64() * 1e3,
    );
    let instance = Instance::of(&database);

    screen::heading(&format!("TPC-H, scale factor {}", arguments.sf));
    let loading = load::tpch(&instance, arguments.sf, options.workers)?;
    let alone = queries::run(&instance, arguments.sf);
    alone.print();

    screen::heading(&format!("TATP, {} subscribers", count(u64::from(arguments.subscribers))));
    let tatp = transactions::Tatp::load(database.engine(), arguments.subscribers, options.workers)?;
    let transactions_alone = tatp.run(arguments.seconds)?;
    transactions::print("alone", &transactions_alone);
    let (beside, queries_beside) = tatp.run_beside(arguments.seconds, &instance, arguments.sf)?;
    transactions::print("beside the queries", &beside);
    println!(
        "  meanwhile {} queries were answered, {:.1} ms each (alone {:.1} ms)",
        count(queries_beside.answered),
        queries_beside.mean_ms(),
        alone.mean_ms(),
    );
    let consistency = tatp.check(&[&transactions_alone, &beside])?;
    println!(
        "  consistency of {} rows checked afterwards: {}",
        count(consistency.rows),
        if consistency.is_consistent() { "ok" } else { "VIOLATED" }
    );
    for example in &consistency.examples {
        println!("    {example}");
    }

    screen::heading("Living partitions");
    partitions::print(&database, &tatp);
    screen::heading("What the engine counted");
    figures::counters(database.engine());
    screen::heading("Where memory went");
    figures::memory(database.engine());
    screen::heading("Where time went");
    figures::time(
        start.elapsed(),
        &[
            ("loading TPC-H", loading),
            ("22 queries alone", alone.elapsed),
            ("  of that planning", alone.planning()),
            ("loading TATP", tatp.load_time()),
            ("transactions alone", transactions_alone.measured),
            ("transactions beside queries", beside.measured),
        ],
    );

    let wrong = alone.wrong() + queries_beside.wrong;
    database.close();
    println!();
    if wrong > 0 {
        return Err(Failure::Message(format!("{wrong} answers are wrong")));
    }
    if !consistency.is_consistent() {
        return Err(Failure::new("the transactions left the tables inconsistent"));
    }
    println!("All answers are {} and all tables consistent, after {}.", alone.verdict(), seconds(start.elapsed()));
    println!("Next: `eris shell` for SQL, `eris serve` for PostgreSQL clients, `eris bench` for figures.");
    Ok(())
}
