//! `eris bench commits`: what a durable commit of one row takes, beside what the disk and a round trip take.
//!
//! In each round the disk, the task API, an echo and SQL take turns, so that all meet the same machine and disk; then
//! many clients at once, over the task API and over SQL, beside what the log says it did.

mod disk;
mod echo;
mod over_sql;
mod over_tasks;
mod report;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use eris::DurabilityOptions;
use eris_durability::LogStatistics;
use eris_platform::SeededRandom;
use eris_workloads::connection::SqlConnection;
use eris_workloads::postgres::PostgresUrl;

pub use report::CommitsReport;

use crate::directory::NewDirectory;
use crate::error::BenchError;
use crate::instance::{Instance, InstanceOptions};
use disk::DiskProbe;
use echo::EchoProbe;
use over_sql::SqlClient;
use over_tasks::TaskClient;
use report::{Grouping, IDLE_RULE, ManyClients, OneClient, Rounds, SHOWN};

/// Commits that are not measured: they show how many bytes one writes.
const WARM_UP_COMMITS: u32 = 100;

#[derive(Debug, Clone, PartialEq)]
pub struct CommitsOptions {
    /// A new directory on the disk that is meant; removed at the end.
    pub directory: PathBuf,
    /// Rows of the table, cut among the clients so that none waits for another's row.
    pub accounts: u32,
    pub rounds: usize,
    /// Commits of one client in a round, as many over the task API as over SQL.
    pub commits: u32,
    /// Clients at once, and for how long in a round.
    pub clients: u32,
    pub seconds: f64,
    pub workers: usize,
    pub memory_limit_bytes: u64,
}

impl CommitsOptions {
    /// The defaults, in a directory.
    pub fn new(directory: PathBuf) -> Self {
        Self {
            directory,
            accounts: 100_000,
            rounds: 15,
            commits: 500,
            clients: 64,
            seconds: 2.0,
            workers: 2,
            memory_limit_bytes: 2 << 30,
        }
    }

    fn validate(&self) -> Result<(), BenchError> {
        let refuse = |message: &str| Err(BenchError::Options(message.to_owned()));
        if self.rounds == 0 || self.commits == 0 || self.clients == 0 {
            return refuse("--rounds, --commits and --clients are at least 1");
        }
        if self.accounts < self.clients || self.accounts > i32::MAX as u32 {
            return refuse("--accounts is at least --clients, and a 32-bit integer");
        }
        if !(self.seconds > 0.0 && self.seconds < 1e6) {
            return refuse("--seconds is a positive number");
        }
        Ok(())
    }

    /// The accounts of one client.
    fn keys(&self, client: u32) -> Keys {
        let count = self.accounts / self.clients;
        Keys { first: client * count, count }
    }
}

/// The accounts that a client updates: nobody else does.
#[derive(Clone, Copy, Debug)]
struct Keys {
    first: u32,
    count: u32,
}

impl Keys {
    /// An account and its new balance.
    fn draw(self, random: &mut SeededRandom) -> (i32, i64) {
        let key = u64::from(self.first) + random.below(u64::from(self.count));
        (key as i32, random.below(1_000_000_000) as i64)
    }
}

/// Nanoseconds of a transaction, and of its commit alone.
#[derive(Clone, Copy, Debug)]
struct Timed {
    whole_ns: u64,
    commit_ns: u64,
}

/// Runs the benchmark; `progress` gets a line per step.
pub fn commits(options: &CommitsOptions, progress: &mut dyn FnMut(&str)) -> Result<CommitsReport, BenchError> {
    options.validate()?;
    let directory = NewDirectory::create(&options.directory)?;
    let of_instance = InstanceOptions {
        workers: options.workers,
        nodes: 1,
        memory_limit_bytes: options.memory_limit_bytes,
        in_place: true,
        split_rows: None,
    };
    let instance = Instance::open(&of_instance, &directory.database(), &DurabilityOptions::default())?;
    let report = measure(&instance, options, &directory, progress);
    instance.shutdown();
    report
}

fn measure(
    instance: &Instance,
    options: &CommitsOptions,
    directory: &NewDirectory,
    progress: &mut dyn FnMut(&str),
) -> Result<CommitsReport, BenchError> {
    fill(instance, options.accounts)?;
    let server = instance.serve()?;
    let address = server.local_address();
    let url: PostgresUrl = format!("postgres://eris@{address}/eris")
        .parse()
        .map_err(|error| BenchError::Options(format!("the server's own address: {error}")))?;
    let container = instance.container("accounts")?;
    let task_clients: Vec<TaskClient> = (0..options.clients)
        .map(|client| TaskClient::new(instance.engine(), container, options.keys(client)))
        .collect();
    let mut sql_clients: Vec<SqlClient> =
        (0..options.clients).map(|client| SqlClient::connect(&url, options.keys(client))).collect::<Result<_, _>>()?;
    let files = instance.files()?;
    let log = || files.log().statistics();

    let before = log();
    over_tasks::one(&task_clients[0], WARM_UP_COMMITS)?;
    let commit_bytes = (log().bytes - before.bytes) / u64::from(WARM_UP_COMMITS);
    let traffic = sql_clients[0].traffic_bytes();
    sql_clients[0].run(WARM_UP_COMMITS)?;
    let request_bytes = (sql_clients[0].traffic_bytes().0 - traffic.0) / u64::from(WARM_UP_COMMITS);
    let answer_bytes = (sql_clients[0].traffic_bytes().1 - traffic.1) / u64::from(WARM_UP_COMMITS);
    let probe = |name: &str| DiskProbe::create(&directory.beside(name), commit_bytes as usize);
    let (mut disk, mut second) = (probe("disk-probe")?, probe("second-disk-probe")?);
    let mut echo = EchoProbe::connect(request_bytes as usize, answer_bytes as usize)?;

    let mut one: [Rounds; 6] = Default::default();
    let (mut by_tasks, mut by_sql) = (Grouping::default(), Grouping::default());
    let duration = Duration::from_secs_f64(options.seconds);
    for round in 0..options.rounds {
        progress(&format!("round {} of {}", round + 1, options.rounds));
        let [of_disk, of_two, of_task, of_task_commit, of_echo, of_sql] = &mut one;
        // Each takes each turn.
        for turn in 0..5 {
            match (round + turn) % 5 {
                0 => of_disk.add(disk.run(options.commits)?),
                1 => {
                    let timed = over_tasks::one(&task_clients[0], options.commits)?;
                    of_task.add(timed.iter().map(|timed| timed.whole_ns));
                    of_task_commit.add(timed.iter().map(|timed| timed.commit_ns));
                }
                2 => of_echo.add(echo.run(options.commits)?),
                3 => of_two.add(DiskProbe::run_both(&mut disk, &mut second, options.commits)?),
                _ => of_sql.add(sql_clients[0].run(options.commits)?),
            }
        }
        grouped(&mut by_tasks, &log, || over_tasks::many(&task_clients, duration))?;
        grouped(&mut by_sql, &log, || over_sql::many(&mut sql_clients, duration))?;
    }
    drop(sql_clients);
    server.stop();
    let [disk, two_files, task, task_commit, echo, sql] = &one;
    Ok(CommitsReport {
        benchmark: "commits",
        file_system: directory.file_system(),
        workers: options.workers,
        accounts: options.accounts,
        commit_bytes,
        request_bytes,
        answer_bytes,
        rounds: options.rounds,
        commits_per_round: options.commits,
        shown: SHOWN,
        one_client: OneClient {
            disk: disk.latencies(),
            disk_with_two_files: two_files.latencies(),
            task: task.latencies(),
            task_commit: task_commit.latencies(),
            echo: echo.latencies(),
            sql: sql.latencies(),
            task_above_disk: task.above(&[disk]),
            sql_above_disk_and_echo: sql.above(&[disk, echo]),
        },
        many_clients: ManyClients {
            clients: options.clients,
            seconds_per_round: options.seconds,
            idle_rule: IDLE_RULE,
            task: by_tasks.grouped(),
            sql: by_sql.grouped(),
        },
    })
}

/// Runs many clients, and notes what the log did meanwhile.
fn grouped(
    grouping: &mut Grouping,
    log: &dyn Fn() -> LogStatistics,
    run: impl FnOnce() -> Result<Vec<u64>, BenchError>,
) -> Result<(), BenchError> {
    let (before, begun) = (log(), Instant::now());
    let nanos = run()?;
    grouping.add(&nanos, begun.elapsed().as_secs_f64(), before, log());
    Ok(())
}

fn fill(instance: &Instance, accounts: u32) -> Result<(), BenchError> {
    instance.execute("CREATE TABLE accounts (id int PRIMARY KEY, balance bigint NOT NULL)")?;
    let ids: Vec<u32> = (0..accounts).collect();
    let mut pieces = ids.chunks(10_000).map(|ids| {
        let lines: Vec<String> = ids.iter().map(|id| format!("{id},0\n")).collect();
        lines.concat().into_bytes()
    });
    instance.connect().copy_in("COPY accounts FROM STDIN WITH (FORMAT csv)", &mut pieces)?;
    Ok(())
}
