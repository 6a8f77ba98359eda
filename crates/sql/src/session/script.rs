//! From a text to statements that are ready to run: bounded, charged, and one after the other.
//!
//! ```text
//!   text -- bytes, statements -->  piece  -- tokens, list items, memory -->  tree  -- size, memory -->  plan
//!           refused: 54000                   54000, 53200                            54001, 54011, 53200
//! ```
//! A text of several statements is read twice: first each is parsed and forgotten, so that one mistake anywhere keeps
//! all of it from running, and then each is parsed and planned when those before it have run. So a text takes the
//! memory of itself and of one statement, however many it has.
//!
//! Parsing and planning allocate without asking; what they take is reserved here before they begin, as so many bytes
//! for each token, each byte of text and each part of the plan, and given back when the plan is there. What stands
//! before and after a statement is not read; blanks and comments within it cost what the tokenizer keeps of them. The
//! factors cover what `tests/planning_memory.rs` measures. This goes with the planner that it stands in front of.

use std::collections::VecDeque;
use std::sync::Arc;

use eris_platform::Reservation;

use super::prepared::{Literals, Prepared, placed};
use super::session::Session;
use super::statement::{Planned, kind_of};
use super::states::Place;
use super::template::Template;
use crate::catalog::CatalogVersion;
use crate::errors::{SqlError, SqlState};
use crate::front::{self, Bounds, Cutter, ParsedStatement, Piece, Size};
use crate::types::SqlType;

/// Bytes of the tokenizer's and the parser's trees for each token. A token itself has ninety, and is held three times.
const TOKEN_BYTES: u64 = 700;
/// Bytes of the tokenizer's for each blank or comment, which is a token held three times and makes no tree.
const BLANK_BYTES: u64 = 300;
/// Bytes for each byte of a comment: in its token, which is held as often and has grown to its length, and in the text.
const COMMENT_BYTES: u64 = 6;
/// Bytes for each other byte of text: tokenizer, parser and planner copy a long string, also into the name of a column.
const TEXT_BYTES: u64 = 22;
/// Bytes of the plan, its copies under way and its schemas for each part of a statement.
const PART_BYTES: u64 = 2_000;
/// A statement that takes less is not charged: honest ones by the thousand would all wait for one counter, and as a
/// worker plans one at a time there are no more of them than workers.
const FREE_BYTES: u64 = 16 << 20;
/// Nor is the text of several statements that is not longer: in a full database, `BEGIN; DROP TABLE t; COMMIT` works.
const FREE_TEXT_BYTES: u64 = 64 << 10;

/// The statements of a text, of which none has run that [`Session::next_of`] has not given.
#[derive(Debug)]
pub struct Script {
    /// Parsed or planned already; most texts have one statement.
    ready: VecDeque<Ready>,
    /// The text, from byte `at` on, which has `before` characters before it.
    text: Box<str>,
    at: usize,
    before: usize,
    /// Statements given so far, and of the whole text.
    index: usize,
    count: usize,
    /// The text's own bytes.
    _memory: Option<Reservation>,
}

#[derive(Debug)]
enum Ready {
    Planned(Arc<Prepared>),
    Parsed(Box<ParsedStatement>),
}

impl Script {
    fn of(ready: impl Into<VecDeque<Ready>>) -> Self {
        let ready = ready.into();
        let count = ready.len();
        Self { ready, text: Box::default(), at: 0, before: 0, index: 0, count, _memory: None }
    }
}

impl Session {
    /// Looks at a text before its first statement runs: its bounds, and whether all of it can be parsed. As an error in
    /// the execution of a statement, an error here ends the open transaction.
    pub fn script(&mut self, sql: &str) -> Result<Script, SqlError> {
        self.heard(sql, |session| session.read(sql))
    }

    /// The next statement of a text, planned against names as they are now; the one before it has run.
    pub fn next_of(&mut self, script: &mut Script) -> Result<Option<Arc<Prepared>>, SqlError> {
        let piece = Cutter::from(&script.text, script.at).next();
        let text: Box<str> = piece.map(|piece| script.text[piece.range].into()).unwrap_or_default();
        if text.is_empty() {
            // What is left was read before, if anything is.
            return self.plan_next(script);
        }
        self.heard(&text, |session| session.plan_next(script))
    }

    /// Prepares a text of one statement, or of none.
    pub fn prepare_one(
        &mut self,
        sql: &str,
        parameter_types: &[Option<SqlType>],
    ) -> Result<Option<Arc<Prepared>>, SqlError> {
        let mut only = if Cutter::new(sql).nth(1).is_some() { None } else { Some(self.parse(sql, parameter_types)?) };
        match &mut only {
            Some(statements) if statements.len() < 2 => Ok(statements.pop()),
            _ => {
                self.spoil();
                let message = "cannot insert multiple commands into a prepared statement";
                Err(SqlError::new(SqlState::SYNTAX, message))
            }
        }
    }

    /// Parses and plans all statements of a text; runs none. Types of parameters may be declared, others are inferred.
    ///
    /// Plans are made against the catalog as it is: in `CREATE TABLE t (...); INSERT INTO t ...` the second statement
    /// is planned when it runs. As an error in the execution of a statement, an error here ends the open transaction.
    pub fn parse(&mut self, sql: &str, parameter_types: &[Option<SqlType>]) -> Result<Vec<Arc<Prepared>>, SqlError> {
        self.heard(sql, |session| session.parse_and_plan(sql, parameter_types))
    }

    /// Reads a text that others see, unless the session is to end. An error ends the open transaction.
    fn heard<T>(&mut self, text: &str, read: impl FnOnce(&mut Self) -> Result<T, SqlError>) -> Result<T, SqlError> {
        self.activity.check()?;
        self.begin_statement(text);
        let mut result = read(self).map_err(|error| self.activity.explain(error));
        // Planning does not hear of it while it goes on.
        if result.is_ok()
            && let Some(why) = self.activity.pending()
        {
            result = Err(why.error());
        }
        if result.is_err() {
            self.spoil();
        }
        self.rest();
        result
    }

    fn parse_and_plan(
        &mut self,
        sql: &str,
        parameter_types: &[Option<SqlType>],
    ) -> Result<Vec<Arc<Prepared>>, SqlError> {
        if let Some(prepared) = self.cached(sql, parameter_types)? {
            return Ok(vec![prepared]);
        }
        let bounds = self.settings.bounds();
        bounds.check_text(sql.len())?;
        let mut parsed = Vec::new();
        let (mut before, mut from) = (0, 0);
        for piece in Cutter::new(sql) {
            before += sql[from..piece.range.start].chars().count();
            from = piece.range.start;
            let (statements, charge) = self.parse_piece(sql, &piece, before, &bounds)?;
            parsed.extend(statements.into_iter().map(|statement| (statement, charge.bytes())));
            bounds.check_statements(parsed.len())?;
        }
        let count = parsed.len();
        let mut prepared = Vec::with_capacity(count);
        for (index, (statement, charged)) in parsed.into_iter().enumerate() {
            let place = Place { index, count };
            let charge = self.database.engine().memory().reserve(PLANNING);
            reserve(&charge, charged)?;
            prepared.push(self.plan_statement(sql, statement, parameter_types, place, &charge, true)?);
        }
        Ok(prepared)
    }

    /// The plan of a text that is known as a whole.
    fn cached(&mut self, sql: &str, parameter_types: &[Option<SqlType>]) -> Result<Option<Arc<Prepared>>, SqlError> {
        let catalog = self.overlay.version(self.database.catalog())?;
        let lanes = self.settings.lanes();
        let planned = self.database.plan_cache().find(sql, parameter_types, catalog.number, lanes);
        Ok(planned.map(|planned| {
            let offset = sql.find(&planned.text).map_or(0, |start| sql[..start].chars().count());
            Arc::new(Prepared { planned, place: Place::ALONE, offset, literals: None, _memory: None })
        }))
    }

    fn read(&mut self, sql: &str) -> Result<Script, SqlError> {
        if let Some(prepared) = self.cached(sql, &[])? {
            return Ok(Script::of([Ready::Planned(prepared)]));
        }
        let bounds = self.settings.bounds();
        bounds.check_text(sql.len())?;
        if let Some(prepared) = self.with_shared_plan(sql)? {
            return Ok(Script::of([Ready::Planned(prepared)]));
        }
        // Before any is parsed: this reads as fast as memory does.
        let pieces = Cutter::new(sql).take(bounds.statements.saturating_add(1)).count();
        bounds.check_statements(pieces)?;
        let (mut count, mut before, mut from) = (0, 0, 0);
        for piece in Cutter::new(sql) {
            before += sql[from..piece.range.start].chars().count();
            from = piece.range.start;
            let (statements, charge) = self.parse_piece(sql, &piece, before, &bounds)?;
            count += statements.len();
            bounds.check_statements(count)?;
            if let ([_], 1) = (statements.as_slice(), pieces) {
                let mut statements = statements;
                let Some(statement) = statements.pop() else { break };
                let only = self.plan_statement(sql, statement, &[], Place::ALONE, &charge, false)?;
                return Ok(Script::of([Ready::Planned(only)]));
            }
        }
        let memory = self.database.engine().memory().reserve("query text");
        if sql.len() as u64 > FREE_TEXT_BYTES {
            memory.grow(sql.len() as u64).map_err(|exceeded| SqlError::out_of_memory(&exceeded))?;
        }
        let text = if count == 0 { Box::default() } else { sql.into() };
        Ok(Script { ready: VecDeque::new(), text, at: 0, before: 0, index: 0, count, _memory: Some(memory) })
    }

    /// The plan that a text shares with those that differ in their literals alone; `None` if there is none, or it has
    /// to be planned as it is.
    fn with_shared_plan(&mut self, sql: &str) -> Result<Option<Arc<Prepared>>, SqlError> {
        let lanes = self.settings.lanes();
        let Some(template) = Template::of(sql).filter(|_| lanes.own_binder) else { return Ok(None) };
        let catalog = self.overlay.version(self.database.catalog())?;
        let cache = self.database.plan_cache();
        let planned = match cache.find(&template.text, &template.types, catalog.number, lanes) {
            Some(planned) => Some(planned),
            None if cache.has_no_template(&template.text, &template.types) => None,
            None => {
                let planned = self.plan_template(&template, &catalog);
                let cache = self.database.plan_cache();
                match &planned {
                    Some(planned) => cache.keep(&template.text, planned),
                    None => cache.note_no_template(&template.text, &template.types),
                }
                planned
            }
        };
        // One that was found may be what a client has prepared.
        let Some(planned) = planned.filter(|planned| planned.is_shared() && template.fits(&planned.parameters)) else {
            return Ok(None);
        };
        let Some(values) = template.values(&planned.parameters) else { return Ok(None) };
        if !planned.can_store(&values) {
            return Ok(None);
        }
        let offset = sql.len() - sql.trim_ascii_start().len();
        let literals = Literals { text: sql.trim_ascii().into(), values: values.into() };
        let place = Place::ALONE;
        Ok(Some(Arc::new(Prepared { planned, place, offset, literals: Some(literals), _memory: None })))
    }

    /// Plans a template. What is wrong with it is told of the text itself.
    fn plan_template(&mut self, template: &Template, catalog: &CatalogVersion) -> Option<Arc<Planned>> {
        let bounds = self.settings.bounds();
        let piece = Cutter::new(&template.text).next()?;
        let (mut statements, _charge) = self.parse_piece(&template.text, &piece, 0, &bounds).ok()?;
        let ParsedStatement { text, ast, .. } = statements.pop().filter(|_| statements.is_empty())?;
        bounds.check_size(&Size::of(&ast)).ok()?;
        let command = front::lower(&ast).ok()?;
        self.block.step(kind_of(&command), Place::ALONE).ok()?;
        let planned = self.plan_in(text, command, &template.types, catalog).ok()?;
        Some(planned).filter(|planned| planned.is_shared() && template.fits(&planned.parameters))
    }

    fn plan_next(&mut self, script: &mut Script) -> Result<Option<Arc<Prepared>>, SqlError> {
        let bounds = self.settings.bounds();
        let mut charge = self.database.engine().memory().reserve(PLANNING);
        if script.ready.is_empty()
            && let Some(piece) = Cutter::from(&script.text, script.at).next()
        {
            script.before += script.text[script.at..piece.range.start].chars().count();
            let (statements, charged) = self.parse_piece(&script.text, &piece, script.before, &bounds)?;
            script.ready.extend(statements.into_iter().map(|statement| Ready::Parsed(Box::new(statement))));
            charge = charged;
            script.before += script.text[piece.range.clone()].chars().count();
            script.at = piece.range.end;
        }
        let place = Place { index: script.index, count: script.count };
        script.index += 1;
        Ok(match script.ready.pop_front() {
            None => None,
            Some(Ready::Planned(prepared)) => Some(prepared),
            Some(Ready::Parsed(statement)) => {
                Some(self.plan_statement(&script.text, *statement, &[], place, &charge, false)?)
            }
        })
    }

    /// Parses what was cut from a text, `before` characters from its beginning, with what that takes reserved.
    fn parse_piece(
        &self,
        sql: &str,
        piece: &Piece,
        before: usize,
        bounds: &Bounds,
    ) -> Result<(Vec<ParsedStatement>, Reservation), SqlError> {
        bounds.check_piece(piece)?;
        let charge = self.database.engine().memory().reserve(PLANNING);
        reserve(&charge, parsing_bytes(piece))?;
        let mut statements = front::parse_within(&sql[piece.range.clone()], bounds).map_err(|error| {
            let position = error.position.map(|position| position + before);
            error.at(position)
        })?;
        for statement in &mut statements {
            statement.offset += before;
        }
        Ok((statements, charge))
    }

    /// Plans one statement of a text, or takes the plan that there is.
    fn plan_statement(
        &mut self,
        sql: &str,
        statement: ParsedStatement,
        parameter_types: &[Option<SqlType>],
        place: Place,
        charge: &Reservation,
        later: bool,
    ) -> Result<Arc<Prepared>, SqlError> {
        let catalog = self.overlay.version(self.database.catalog())?;
        let cache = self.database.plan_cache();
        let ParsedStatement { text, offset, ast } = statement;
        let cached = cache.find(&text, parameter_types, catalog.number, self.settings.lanes());
        let planned = if let Some(planned) = cached {
            planned
        } else {
            let size = Size::of(&ast);
            self.settings.bounds().check_size(&size)?;
            reserve(charge, charge.bytes().saturating_add((size.parts as u64).saturating_mul(PART_BYTES)))?;
            let command = front::lower(&ast)?;
            drop(ast);
            if place.index == 0 {
                // A failed block names nothing that could be wrong with its statements.
                self.block.step(kind_of(&command), place)?;
            }
            // Later statements of a text may need what earlier ones create: they are planned when they run.
            let again = (later && place.index > 0).then(|| command.clone());
            match (self.plan_in(text.clone(), command, parameter_types, &catalog), again) {
                (Ok(planned), _) => {
                    cache.keep(&text, &planned);
                    if place.count == 1 && text != sql {
                        cache.keep(sql, &planned);
                    }
                    planned
                }
                (Err(_), Some(command)) => Arc::new(Planned::later(text, command, parameter_types)),
                (Err(error), None) => return Err(placed(error, &text, offset)),
            }
        };
        Ok(Arc::new(Prepared { planned, place, offset, literals: None, _memory: None }))
    }
}

/// What parsing takes at most.
fn parsing_bytes(piece: &Piece) -> u64 {
    let of = |count: usize, each: u64| (count as u64).saturating_mul(each);
    of(piece.tokens, TOKEN_BYTES)
        .saturating_add(of(piece.blanks, BLANK_BYTES))
        .saturating_add(of(piece.comment_bytes, COMMENT_BYTES))
        .saturating_add(of(piece.range.len() - piece.comment_bytes, TEXT_BYTES))
}

/// What the bytes of parsing and planning are called in `eris.memory`.
const PLANNING: &str = "parsing and planning";

/// Has so many bytes reserved, as far as they are worth it.
fn reserve(charge: &Reservation, bytes: u64) -> Result<(), SqlError> {
    if bytes <= FREE_BYTES {
        return Ok(());
    }
    charge.resize(bytes).map_err(|exceeded| SqlError::out_of_memory(&exceeded))
}
