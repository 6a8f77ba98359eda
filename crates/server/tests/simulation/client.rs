//! A client: transactions at random, over the wire, in every manner the protocol knows; what it sees goes into the
//! history.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use eris_engine::Engine;
use eris_platform::SeededRandom;
use eris_platform::simulated::{SimulatedFiles, SimulatedNetwork};

use crate::generate::{Generator, Live, Shape};
use crate::history::{End, Observed, Outcome, Record, Step};
use crate::manner;
use crate::model::{DUPLICATE_TABLE, NO_TABLE, OUT_OF_MEMORY, SERIALIZATION};
use crate::requests;
use crate::statement::{Statement, Table};
use crate::wire::{Connection, FAILED, IDLE, IN_BLOCK, Reply, Trouble};

/// What a COMMIT says that cannot change the names.
const REFUSED_NAMES: [&str; 4] = [SERIALIZATION, DUPLICATE_TABLE, NO_TABLE, OUT_OF_MEMORY];

/// What the clients of a run share.
pub struct World {
    pub engine: Engine,
    pub network: SimulatedNetwork,
    /// The disk of temporary files, if it is to fail now and then.
    pub disk: Option<SimulatedFiles>,
    pub port: u16,
    pub shape: Shape,
    pub live: Live,
    pub observed: Arc<Observed>,
    pub records: Mutex<Vec<Record>>,
    /// Counts moments.
    pub clock: AtomicU64,
    /// The last commit that a client has heard of.
    pub acknowledged: AtomicU64,
    /// The server was told to stop: connections may end at any moment.
    pub stopping: AtomicBool,
    /// Transactions done.
    pub done: AtomicU64,
    pub events: Mutex<BTreeMap<&'static str, u64>>,
    /// What each client sent last, for the case that it waits for ever.
    pub doing: Mutex<BTreeMap<u64, String>>,
}

impl World {
    pub fn count(&self, event: &'static str) {
        *self.events.lock().expect("one thread").entry(event).or_default() += 1;
    }

    fn tick(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::Relaxed)
    }
}

pub struct Client {
    pub world: Arc<World>,
    pub random: SeededRandom,
    number: u64,
    connections: u64,
    pub connection: Option<Connection>,
    /// Named prepared statements of the connection, by their texts.
    pub prepared: BTreeMap<String, String>,
    /// The transaction under way.
    record: Option<Record>,
    /// Whether it was this client that ended the connection.
    pub hung_up: bool,
    pub portals: u64,
}

impl Client {
    pub fn new(world: Arc<World>, number: u64, seed: u64) -> Client {
        Client {
            world,
            random: SeededRandom::new(seed),
            number,
            connections: 0,
            connection: None,
            prepared: BTreeMap::new(),
            record: None,
            hung_up: false,
            portals: 0,
        }
    }

    /// Runs transactions; an error is a violation of the protocol.
    pub async fn run(mut self, transactions: u64) -> Result<(), String> {
        for _ in 0..transactions {
            if let Err(trouble) = self.one().await {
                self.lost(trouble)?;
                if self.world.stopping.load(Ordering::Relaxed) {
                    return Ok(());
                }
            }
            self.world.done.fetch_add(1, Ordering::Relaxed);
        }
        if let Some(connection) = self.connection.take() {
            connection.hang_up(1).await;
        }
        Ok(())
    }

    /// Fills the tables.
    pub async fn load(mut self) -> Result<(), String> {
        for table in Table::ALL {
            let loaded = async {
                self.connect().await?;
                let mut random = self.random.fork();
                let statement = self.generator().load(table, &mut random);
                self.begin_record(false);
                let loaded = self.copy(statement, false, false).await?;
                self.end_record(if loaded { End::Committed } else { End::RolledBack });
                Ok::<(), Trouble>(())
            };
            if let Err(trouble) = loaded.await {
                self.lost(trouble)?;
            }
        }
        Ok(())
    }

    /// The connection is gone, with the transaction that was under way.
    fn lost(&mut self, trouble: Trouble) -> Result<(), String> {
        let record = self.record.take();
        if let Trouble::Broken(what) = trouble {
            return Err(format!("{what}\nin {record:?}"));
        }
        if !self.hung_up && !self.world.stopping.load(Ordering::Relaxed) {
            return Err(format!("the server hung up in {record:?}"));
        }
        self.connection = None;
        if let Some(record) = record.filter(|record| !record.steps.is_empty()) {
            self.keep(record);
        }
        Ok(())
    }

    fn keep(&self, record: Record) {
        self.world.records.lock().expect("one thread").push(record);
    }

    async fn connect(&mut self) -> Result<(), Trouble> {
        if self.connection.is_some() {
            return Ok(());
        }
        self.connections += 1;
        self.hung_up = false;
        self.prepared.clear();
        let name = format!("client {} connection {}", self.number, self.connections);
        self.connection = Some(Connection::open(&self.world.network, self.world.port, name).await?);
        Ok(())
    }

    /// Says what the client does now.
    pub fn say(&self, what: &str, bytes: &[u8]) {
        let bytes: String = String::from_utf8_lossy(bytes).chars().filter(|letter| !letter.is_control()).collect();
        self.world.doing.lock().expect("one thread").insert(self.number, format!("{what} {bytes}"));
    }

    /// The connection, while there is one.
    pub fn wire(&mut self) -> Result<&mut Connection, Trouble> {
        self.connection.as_mut().ok_or(Trouble::Gone)
    }

    pub fn generator(&self) -> Generator<'_> {
        Generator { shape: self.world.shape, live: &self.world.live }
    }

    pub fn statement(&mut self) -> Statement {
        let mut random = self.random.fork();
        self.generator().statement(&mut random)
    }

    async fn one(&mut self) -> Result<(), Trouble> {
        self.connect().await?;
        if self.random.below(20) == 0 {
            self.pause(2_000).await;
        }
        match self.random.below(20) {
            0..=7 => {
                self.begin_record(false);
                let statement = self.statement();
                let succeeded = self.perform(statement, false).await?;
                self.end_record(if succeeded { End::Committed } else { End::RolledBack });
            }
            8..=16 => self.block().await?,
            17..=18 => self.batch(manner::Batch::OneText).await?,
            _ => self.batch(manner::Batch::Pipeline).await?,
        }
        Ok(())
    }

    /// Lets time pass.
    pub async fn pause(&mut self, micros_max: u64) {
        let engine = &self.world.engine;
        let span = Duration::from_micros(self.random.below(micros_max));
        engine.sleep_until(engine.env().now().saturating_add(span)).await;
    }

    // ---- the record of the transaction under way

    fn begin_record(&mut self, read_only: bool) {
        let connection = self.connection.as_ref().map_or_else(String::new, |connection| connection.name.clone());
        self.record = Some(Record {
            told_from: self.world.observed.count(&connection),
            told_until: None,
            connection,
            read_only,
            steps: Vec::new(),
            end: End::Unknown,
            began: self.world.tick(),
            ended: u64::MAX,
            acknowledged: self.world.acknowledged.load(Ordering::Relaxed),
        });
    }

    fn end_record(&mut self, end: End) {
        let Some(mut record) = self.record.take() else { return };
        record.end = end;
        record.ended = self.world.tick();
        let told = self.world.observed.list(&record.connection);
        record.told_until = Some(told.len());
        if let (End::Committed, Some(committed)) = (end, told.last().and_then(|told| told.committed)) {
            self.world.acknowledged.fetch_max(committed, Ordering::Relaxed);
        }
        self.keep(record);
    }

    /// Notes a statement before it is sent; its number is for [`Self::note`].
    pub fn push_step(&mut self, statement: Statement) -> usize {
        let steps = self.record.as_mut().map(|record| &mut record.steps).expect("a transaction under way");
        let told_after = steps.len();
        steps.push(Step { statement, outcome: Outcome::Unknown, cancelled: false, told_after });
        told_after
    }

    /// Notes what came of a statement.
    pub fn note(&mut self, step: usize, outcome: Outcome) {
        let record = self.record.as_mut().expect("a transaction under way");
        // A server that stops cancels what runs.
        record.steps[step].cancelled |= self.world.stopping.load(Ordering::Relaxed);
        self.world.live.learn(&record.steps[step].statement, &outcome);
        record.steps[step].outcome = outcome;
    }

    /// Notes that the rows of a statement were read ahead to make room for the one that was sent last: a request to
    /// cancel that one may have met this one, and an error is told later.
    pub fn note_read_ahead(&mut self, step: usize) {
        let record = self.record.as_mut().expect("a transaction under way");
        record.steps[step].cancelled |= record.steps.last().is_some_and(|last| last.cancelled);
        record.steps[step].told_after = record.steps.len() - 1;
    }

    /// Notes that a cancel request was sent for the statements from this one on.
    pub fn note_cancel(&mut self, from: usize) {
        let record = self.record.as_mut().expect("a transaction under way");
        for step in &mut record.steps[from..] {
            step.cancelled = true;
        }
    }

    /// Statements from this one on never ran.
    fn forget_steps(&mut self, from: usize) {
        self.record.as_mut().expect("a transaction under way").steps.truncate(from);
    }

    // ---- transactions

    /// What the server must say after a statement.
    pub fn check_status(reply: &Reply, in_block: bool) -> Result<(), Trouble> {
        let expected = match (in_block, reply.error.is_some()) {
            (false, _) => IDLE,
            (true, false) => IN_BLOCK,
            (true, true) => FAILED,
        };
        if reply.status == Some(expected) {
            return Ok(());
        }
        Err(Trouble::Broken(format!("the server says {:?} where it is {expected}: {reply:?}", reply.status)))
    }

    /// A statement without result: BEGIN and its relatives.
    async fn command(&mut self, text: &str, tag: &str, status: u8) -> Result<(), Trouble> {
        self.submit(&requests::query(text), None).await?;
        let reply = self.wire()?.reply().await?;
        let tags: Vec<&str> = reply.done.iter().map(|done| done.tag.as_str()).collect();
        if tags == [tag] && reply.status == Some(status) {
            return Ok(());
        }
        Err(Trouble::Broken(format!("{text} is answered with {reply:?}")))
    }

    /// BEGIN, some statements, COMMIT or ROLLBACK.
    async fn block(&mut self) -> Result<(), Trouble> {
        let read_only = self.random.below(12) == 0;
        let begin =
            ["BEGIN", "BEGIN ISOLATION LEVEL READ COMMITTED", "START TRANSACTION ISOLATION LEVEL REPEATABLE READ"]
                [self.random.index(3)];
        let mode = match (read_only, begin) {
            (false, _) => "",
            (true, "BEGIN") => " READ ONLY",
            (true, _) => ", READ ONLY",
        };
        self.begin_record(read_only);
        self.command(&format!("{begin}{mode}"), "BEGIN", IN_BLOCK).await?;
        let mut failed = false;
        for _ in 0..=self.random.below(5) {
            let statement =
                if self.random.below(14) == 0 { Generator::lock(&mut self.random.fork()) } else { self.statement() };
            failed |= !self.perform(statement, true).await?;
            if failed && self.random.below(3) > 0 {
                break;
            }
        }
        self.end_block(failed).await
    }

    async fn end_block(&mut self, failed: bool) -> Result<(), Trouble> {
        let commits = self.random.below(7) > 0;
        let (text, tag) = match (commits, failed) {
            (true, false) => ("COMMIT", "COMMIT"),
            (true, true) => ("COMMIT", "ROLLBACK"),
            (false, _) => ("ROLLBACK", "ROLLBACK"),
        };
        if commits && !failed && self.defines() {
            return self.commit_names().await;
        }
        self.command(text, tag, IDLE).await?;
        self.end_record(if commits && !failed { End::Committed } else { End::RolledBack });
        Ok(())
    }

    /// Whether the transaction under way has changed names.
    fn defines(&self) -> bool {
        self.record.as_ref().is_some_and(|record| record.steps.iter().any(|step| step.statement.defines()))
    }

    /// COMMIT of a transaction that changed names, which may be refused as another one took them first.
    async fn commit_names(&mut self) -> Result<(), Trouble> {
        self.submit(&requests::query("COMMIT"), None).await?;
        let reply = self.wire()?.reply().await?;
        let tags: Vec<&str> = reply.done.iter().map(|done| done.tag.as_str()).collect();
        let end = match (&reply.error, tags.as_slice()) {
            (None, ["COMMIT"]) => End::Committed,
            (Some(error), []) if REFUSED_NAMES.contains(&error.as_str()) => End::RolledBack,
            _ => return Err(Trouble::Broken(format!("COMMIT is answered with {reply:?}"))),
        };
        if reply.status != Some(IDLE) {
            return Err(Trouble::Broken(format!("COMMIT is answered with {reply:?}")));
        }
        self.world.count(if end == End::Committed { "names committed" } else { "names refused" });
        self.end_record(end);
        Ok(())
    }

    /// A whole transaction at once.
    async fn batch(&mut self, batch: manner::Batch) -> Result<(), Trouble> {
        let wrapped = batch == manner::Batch::Pipeline || self.random.below(2) == 0;
        self.begin_record(false);
        let count = 1 + self.random.index(5);
        let mut statements = Vec::new();
        while statements.len() < count {
            let statement = self.statement();
            // A COMMIT that refuses names would be told of within a batch.
            if !statement.is_copy() && !statement.defines() {
                self.push_step(statement.clone());
                statements.push(statement);
            }
        }
        self.submit(&manner::batch(batch, &statements, wrapped), Some(0)).await?;
        let mut reply = self.wire()?.reply().await?;
        if wrapped {
            // BEGIN and COMMIT are no steps.
            if reply.done.first().is_none_or(|done| done.tag != "BEGIN") {
                return Err(Trouble::Broken(format!("{statements:?} are answered with {reply:?}")));
            }
            reply.done.remove(0);
            if reply.error.is_none() && reply.done.pop().is_none_or(|done| done.tag != "COMMIT") {
                return Err(Trouble::Broken(format!("no COMMIT in {reply:?}")));
            }
        }
        Self::check_status(&reply, wrapped && reply.error.is_some())?;
        if reply.done.len() + usize::from(reply.error.is_some()) > statements.len()
            || (reply.error.is_none() && reply.done.len() < statements.len())
        {
            return Err(Trouble::Broken(format!("{statements:?} are answered with {reply:?}")));
        }
        self.forget_steps(reply.done.len() + usize::from(reply.error.is_some()));
        for (step, done) in reply.done.iter().enumerate() {
            self.note(step, manner::answered(&statements[step], done)?);
        }
        let Some(sqlstate) = reply.error else {
            self.end_record(End::Committed);
            return Ok(());
        };
        self.note(reply.done.len(), manner::failed(sqlstate, reply.rows));
        if wrapped {
            return self.end_block(true).await;
        }
        self.end_record(End::RolledBack);
        Ok(())
    }
}
