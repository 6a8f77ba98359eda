//! The manners in which a client runs a statement: simple, extended, prepared, through a portal, as COPY; with cancel
//! requests and disconnects in between.

use eris_platform::simulated::FileFault;

use crate::client::Client;
use crate::history::Outcome;
use crate::model::{Answer, FAILED_BLOCK, TextRow};
use crate::requests::{self, Binding, Requests};
use crate::statement::{CopyEnd, Parameter, Query, Sql, Statement, copy_lines};
use crate::wire::{Done, Reply, ResultFormat, Trouble};

const OID_BIGINT: u32 = 20;
const OID_TEXT: u32 = 25;
/// One in so many requests is followed by a disconnect, or by a cancel request.
const HANG_UP_SHARE: u64 = 150;
const CANCEL_SHARE: u64 = 40;
/// One in so many requests is followed by a fault of the disk, where there are any.
const SPOILED_SHARE: u64 = 30;

/// The unnamed portal of an unnamed statement without parameters.
const PLAIN: Binding<'static> =
    Binding { portal: "", statement: "", parameters: &[], parameters_in_binary: false, result_in_binary: false };

/// How a whole transaction is sent at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Batch {
    /// One Query message with several statements.
    OneText,
    /// The extended protocol with one Sync.
    Pipeline,
}

/// The messages of a whole transaction; with BEGIN and COMMIT if it is `wrapped`.
pub fn batch(batch: Batch, statements: &[Statement], wrapped: bool) -> Vec<u8> {
    let mut texts: Vec<String> = statements.iter().map(Sql::inline).collect();
    if wrapped {
        texts.insert(0, "BEGIN".to_owned());
        texts.push("COMMIT".to_owned());
    }
    match batch {
        Batch::OneText => requests::query(&texts.join("; ")),
        Batch::Pipeline => {
            let mut requests = Requests::default();
            for text in texts {
                requests.parse("", &text, &[]);
                requests.bind(PLAIN);
                requests.execute("", 0);
            }
            requests.sync();
            requests.take()
        }
    }
}

pub fn failed(sqlstate: String, rows: Vec<TextRow>) -> Outcome {
    Outcome::Failed { sqlstate, rows: sorted(rows) }
}

fn sorted(mut rows: Vec<TextRow>) -> Vec<TextRow> {
    rows.sort();
    rows
}

/// What a statement answered, with its tag checked.
pub fn answered(statement: &Statement, done: &Done) -> Result<Outcome, Trouble> {
    let word = match statement {
        Statement::Insert { .. } | Statement::InsertNull { .. } | Statement::InsertSelect { .. } => "INSERT 0 ",
        Statement::Update { .. } => "UPDATE ",
        Statement::Delete { .. } => "DELETE ",
        Statement::Copy { .. } => "COPY ",
        Statement::Select { .. } | Statement::DivideByZero | Statement::Nowhere => "SELECT ",
        Statement::Truncate { .. } => "TRUNCATE TABLE",
        Statement::Lock { .. } => "LOCK TABLE",
        Statement::Side { drops: false } => "CREATE TABLE",
        Statement::Side { drops: true } => "DROP TABLE",
    };
    let wrong = || Trouble::Broken(format!("{statement:?} is answered with {done:?}"));
    if !word.ends_with(' ') {
        return if done.tag == word { Ok(Outcome::Answered(Answer::Changed(0))) } else { Err(wrong()) };
    }
    let count: u64 = done.tag.strip_prefix(word).and_then(|count| count.parse().ok()).ok_or_else(wrong)?;
    if word != "SELECT " {
        return Ok(Outcome::Answered(Answer::Changed(count)));
    }
    if count != done.rows.len() as u64 || !is_in_order(statement, &done.rows) {
        return Err(wrong());
    }
    Ok(Outcome::Answered(Answer::Rows(sorted(done.rows.clone()))))
}

/// Whether rows come in the order that was asked for: the largest amounts first, then by id.
fn is_in_order(statement: &Statement, rows: &[TextRow]) -> bool {
    let integer = |row: &TextRow, column: usize| row[column].as_ref().and_then(|text| text.parse::<i64>().ok());
    let place = |row: &TextRow| (std::cmp::Reverse(integer(row, 2)), integer(row, 0));
    let sorted = matches!(statement, Statement::Select { query: Query::Sorted, .. });
    !sorted || rows.is_sorted_by_key(place)
}

/// A statement as messages of the extended protocol, up to Bind.
struct Prepared {
    requests: Requests,
    /// The name under which it is kept, and its text, if it is new.
    name: Option<(String, String)>,
    format: ResultFormat,
}

impl Client {
    /// Sends a request; now and then hangs up, or asks to cancel what it has sent. `step` is the first statement that
    /// a cancel would concern.
    pub async fn submit(&mut self, bytes: &[u8], step: Option<usize>) -> Result<(), Trouble> {
        self.say("sent", bytes);
        if self.random.below(HANG_UP_SHARE) == 0 {
            let whole = self.random.below(3) > 0;
            let until = if whole { bytes.len() } else { self.random.index(bytes.len()) };
            self.wire()?.send(&bytes[..until]).await?;
            return self.hang_up().await;
        }
        self.spoil_disk();
        self.wire()?.send(bytes).await?;
        if let Some(step) = step
            && self.random.below(CANCEL_SHARE) == 0
        {
            self.cancel(step).await?;
        }
        Ok(())
    }

    /// Now and then an operation on a temporary file fails soon.
    fn spoil_disk(&mut self) {
        let Some(files) = &self.world.disk else { return };
        if self.random.below(SPOILED_SHARE) == 0 {
            let fault = [FileFault::NoSpace, FileFault::Broken][self.random.index(2)];
            files.fail_at(files.operations() + self.random.below(6), fault);
        }
    }

    async fn hang_up(&mut self) -> Result<(), Trouble> {
        if self.random.below(2) == 0 {
            self.pause(500).await;
        }
        self.world.count("disconnects");
        self.hung_up = true;
        let how = self.random.below(3);
        if let Some(connection) = self.connection.take() {
            connection.hang_up(how).await;
        }
        Err(Trouble::Gone)
    }

    async fn cancel(&mut self, step: usize) -> Result<(), Trouble> {
        if self.random.below(3) > 0 {
            self.pause(500).await;
        }
        self.world.count("cancel requests");
        self.say("cancels", &[]);
        self.note_cancel(step);
        self.wire()?.cancel().await;
        Ok(())
    }

    /// Runs a statement in some manner; false if it failed.
    pub async fn perform(&mut self, statement: Statement, in_block: bool) -> Result<bool, Trouble> {
        if statement.is_copy() {
            let extended = self.random.below(3) == 0;
            return self.copy(statement, extended, in_block).await;
        }
        match self.random.below(20) {
            0..=8 => self.simple(statement, in_block).await,
            9..=11 if statement.is_query() => self.portal(statement, in_block).await,
            _ => self.extended(statement, in_block).await,
        }
    }

    /// Notes the outcome of the one statement that a reply answers.
    fn note_reply(&mut self, step: usize, statement: &Statement, reply: Reply) -> Result<bool, Trouble> {
        if let Some(sqlstate) = reply.error {
            self.note(step, failed(sqlstate, reply.rows));
            return Ok(false);
        }
        let [done] = reply.done.as_slice() else {
            return Err(Trouble::Broken(format!("{statement:?} is answered with {reply:?}")));
        };
        self.note(step, answered(statement, done)?);
        Ok(true)
    }

    async fn simple(&mut self, statement: Statement, in_block: bool) -> Result<bool, Trouble> {
        let step = self.push_step(statement.clone());
        self.submit(&requests::query(&Sql::inline(&statement)), Some(step)).await?;
        let reply = self.wire()?.reply().await?;
        Self::check_status(&reply, in_block)?;
        self.note_reply(step, &statement, reply)
    }

    /// Parse, if it is not prepared already, and Bind.
    fn prepare(&mut self, statement: &Statement, portal: &str) -> Prepared {
        let sql = Sql::with_parameters(statement);
        let parameters_in_binary = self.random.below(2) == 0;
        let oid = |parameter: &Parameter| match parameter {
            Parameter::Integer(_) => OID_BIGINT,
            Parameter::Text(_) => OID_TEXT,
        };
        let oids: Vec<u32> = sql.parameters.iter().map(oid).collect();
        let mut requests = Requests::default();
        let mut new = None;
        let mut name = String::new();
        if self.random.below(3) == 0 {
            let undeclared = !parameters_in_binary && self.random.below(2) == 0;
            requests.parse("", &sql.text, if undeclared { &[] } else { &oids });
        } else if let Some(known) = self.prepared.get(&sql.text) {
            name.clone_from(known);
        } else {
            // Whoever binds it later may do so in binary form, so its types are declared.
            name = format!("statement {}", self.prepared.len());
            requests.parse(&name, &sql.text, &oids);
            new = Some((name.clone(), sql.text.clone()));
        }
        if self.random.below(4) == 0 {
            requests.describe_statement(&name);
        }
        let plain = matches!(statement, Statement::Select { query: Query::Rows | Query::Some(_) | Query::Sorted, .. });
        let result_in_binary = plain && self.random.below(2) == 0;
        let format = if result_in_binary { ResultFormat::Binary } else { ResultFormat::Text };
        let parameters = &sql.parameters;
        requests.bind(Binding { portal, statement: &name, parameters, parameters_in_binary, result_in_binary });
        Prepared { requests, name: new, format }
    }

    async fn extended(&mut self, statement: Statement, in_block: bool) -> Result<bool, Trouble> {
        let step = self.push_step(statement.clone());
        let mut prepared = self.prepare(&statement, "");
        prepared.requests.execute("", 0);
        prepared.requests.sync();
        self.submit(&prepared.requests.take(), Some(step)).await?;
        let wire = self.wire()?;
        wire.format = prepared.format;
        let reply = wire.reply().await;
        wire.format = ResultFormat::Text;
        let reply = reply?;
        if let (Some((name, text)), true) = (prepared.name, reply.parsed) {
            self.prepared.insert(text, name);
        }
        Self::check_status(&reply, in_block)?;
        self.note_reply(step, &statement, reply)
    }

    /// Fetches the rows of a query piece by piece; in a block, sometimes with another statement in between.
    async fn portal(&mut self, statement: Statement, in_block: bool) -> Result<bool, Trouble> {
        let step = self.push_step(statement.clone());
        self.portals += 1;
        let named = in_block && self.random.below(3) > 0;
        let portal = if named { format!("portal {}", self.portals) } else { String::new() };
        let mut prepared = self.prepare(&statement, &portal);
        let (new, format) = (prepared.name.take(), prepared.format);
        let mut requests = prepared.requests;
        let mut rows = Vec::new();
        self.world.count("portals");
        let mut first = true;
        loop {
            let limit = 1 + self.random.below(8) as i32;
            requests.execute(&portal, limit);
            requests.flush();
            self.submit(&requests.take(), Some(step)).await?;
            let wire = self.wire()?;
            wire.format = format;
            let reply = wire.executed().await;
            wire.format = ResultFormat::Text;
            let reply = reply?;
            if std::mem::take(&mut first)
                && let (Some((name, text)), true) = (&new, reply.parsed)
            {
                self.prepared.insert(text.clone(), name.clone());
            }
            if let Some(sqlstate) = reply.error.clone() {
                rows.extend(reply.rows);
                let reply = self.sync(reply.error).await?;
                Self::check_status(&reply, in_block)?;
                self.note(step, failed(sqlstate, rows));
                return Ok(false);
            }
            rows.extend(reply.rows);
            if let Some(done) = reply.done.into_iter().next() {
                rows.extend(done.rows);
                if !is_in_order(&statement, &rows) {
                    return Err(Trouble::Broken(format!("{statement:?} is answered with {rows:?}")));
                }
                self.note(step, Outcome::Answered(Answer::Rows(sorted(rows))));
                break;
            }
            match self.random.below(8) {
                0 => {
                    if self.random.below(2) == 0 {
                        requests.close_portal(&portal);
                    }
                    self.note(step, Outcome::Partly(sorted(rows)));
                    break;
                }
                1..=2 if named => {
                    let reply = self.sync(None).await?;
                    Self::check_status(&reply, in_block)?;
                    let other = self.statement();
                    self.world.count("statements between two parts of a portal");
                    // PostgreSQL refuses to truncate what a portal reads.
                    if !other.is_copy() && !other.defines() && !self.simple(other, in_block).await? {
                        return self.failed_portal(&portal, step, rows).await;
                    }
                    self.note_read_ahead(step);
                }
                _ => {}
            }
        }
        requests.sync();
        self.wire()?.send(&requests.take()).await?;
        let reply = self.wire()?.reply().await?;
        Self::check_status(&reply, in_block)?;
        Ok(true)
    }

    /// A portal fails with its block.
    async fn failed_portal(&mut self, portal: &str, step: usize, rows: Vec<TextRow>) -> Result<bool, Trouble> {
        let mut requests = Requests::default();
        requests.execute(portal, 0);
        self.submit(&requests.take(), None).await?;
        let reply = self.sync(None).await?;
        Self::check_status(&reply, true)?;
        match reply.error {
            Some(sqlstate) if sqlstate == FAILED_BLOCK => self.note(step, Outcome::Partly(sorted(rows))),
            _ => return Err(Trouble::Broken(format!("a portal of a failed block answers {reply:?}"))),
        }
        Ok(false)
    }

    /// Ends a cycle of the extended protocol that failed with `error`, if it did.
    async fn sync(&mut self, error: Option<String>) -> Result<Reply, Trouble> {
        let mut requests = Requests::default();
        requests.sync();
        let wire = self.wire()?;
        wire.send(&requests.take()).await?;
        let mut reply = wire.reply().await?;
        if error.is_some() && reply.error.is_some() {
            return Err(Trouble::Broken(format!("a second error after {error:?}: {reply:?}")));
        }
        reply.error = error.or(reply.error);
        Ok(reply)
    }

    /// COPY FROM STDIN; the data in pieces of any size.
    pub async fn copy(&mut self, statement: Statement, extended: bool, in_block: bool) -> Result<bool, Trouble> {
        let step = self.push_step(statement.clone());
        let Statement::Copy { rows, end, .. } = &statement else { unreachable!("a COPY") };
        let text = Sql::inline(&statement);
        let mut requests = Requests::default();
        if extended {
            requests.parse("", &text, &[]);
            requests.bind(PLAIN);
            requests.execute("", 0);
            requests.flush();
        } else {
            requests.query(&text);
        }
        self.submit(&requests.take(), Some(step)).await?;
        let wire = self.wire()?;
        let begun = if extended { wire.executed().await? } else { wire.reply_or_copy().await? };
        if !begun.copy_in {
            let reply = if extended { self.sync(begun.error).await? } else { begun };
            Self::check_status(&reply, in_block)?;
            return self.note_reply(step, &statement, reply);
        }
        let lines = copy_lines(rows, *end);
        let mut left = lines.as_bytes();
        while !left.is_empty() {
            let length = 1 + self.random.index(left.len());
            let (piece, rest) = left.split_at(length);
            left = rest;
            requests.copy_data(piece);
            self.submit(&requests.take(), Some(step)).await?;
        }
        match end {
            CopyEnd::Fail => requests.copy_fail(),
            CopyEnd::Done | CopyEnd::BadLine => requests.copy_done(),
        }
        if extended {
            requests.sync();
        }
        self.submit(&requests.take(), Some(step)).await?;
        let reply = self.wire()?.reply().await?;
        Self::check_status(&reply, in_block)?;
        self.note_reply(step, &statement, reply)
    }
}
