//! A log that takes its time: commits are decided when somebody says so.

#![allow(dead_code, reason = "each test uses a part of it")]

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::thread::ThreadId;

use eris_engine::{Commit, CommitLog, Definition, Engine, LogError, PendingCommit};
use eris_platform::NodeId;
use eris_storage::TransactionId;

/// Keeps nothing of what it gets but who waits for it.
#[derive(Clone, Default)]
pub struct SlowLog {
    under_way: Arc<Mutex<UnderWay>>,
    is_awaited: Arc<AtomicBool>,
    /// How often each thread asked whether it is.
    asked: Arc<Mutex<Vec<(ThreadId, u64)>>>,
}

#[derive(Default)]
struct UnderWay {
    commits: VecDeque<PendingCommit>,
    /// Commits are decided at once.
    fast: bool,
}

impl SlowLog {
    /// Becomes the log of an engine.
    pub fn attach(&self, engine: &Engine) {
        engine.attach_log(Arc::new(self.clone()));
    }

    /// Workers of the first node look for what it tells, or do not.
    pub fn await_it(&self, awaits: bool) {
        self.is_awaited.store(awaits, Ordering::SeqCst);
    }

    /// How often threads asked whether they should look for what it tells: each worker that has nothing to do asks
    /// before it goes to sleep, and over and over while it looks.
    pub fn asked(&self) -> Vec<(ThreadId, u64)> {
        self.asked.lock().expect("nobody panics").clone()
    }

    /// Commits that wait.
    pub fn len(&self) -> usize {
        self.under_way.lock().expect("nobody panics").commits.len()
    }

    /// Decides the oldest commit; false if there is none.
    pub fn decide(&self, outcome: Result<(), LogError>) -> bool {
        let oldest = self.under_way.lock().expect("nobody panics").commits.pop_front();
        oldest.map(|commit| commit.decide(outcome)).is_some()
    }

    /// Decides the youngest commit, in front of those that came before.
    pub fn decide_youngest(&self) {
        let youngest = self.under_way.lock().expect("nobody panics").commits.pop_back();
        youngest.expect("a commit waits").decide(Ok(()));
    }

    /// From now on there is nothing to wait for.
    pub fn hurry(&self) {
        self.under_way.lock().expect("nobody panics").fast = true;
        while self.decide(Ok(())) {}
    }
}

impl CommitLog for SlowLog {
    fn poll_commit(&self, _context: &mut Context<'_>, commit: &mut Option<Commit>) -> Poll<Result<(), LogError>> {
        let pending = commit.take().expect("a commit").take_timestamp();
        let mut under_way = self.under_way.lock().expect("nobody panics");
        if under_way.fast {
            drop(under_way);
            pending.decide(Ok(()));
        } else {
            under_way.commits.push_back(pending);
        }
        Poll::Ready(Ok(()))
    }

    fn poll_part(
        &self,
        _context: &mut Context<'_>,
        _transaction: TransactionId,
        operations: &mut Vec<u8>,
    ) -> Poll<Result<(), LogError>> {
        operations.clear();
        Poll::Ready(Ok(()))
    }

    fn rolled_back(&self, _transaction: TransactionId) {}

    fn define(&self, _definition: &Definition) -> Result<(), LogError> {
        Ok(())
    }

    fn about_to_tell(&self) -> Option<NodeId> {
        let thread = std::thread::current().id();
        let mut asked = self.asked.lock().expect("nobody panics");
        match asked.iter_mut().find(|(known, _)| *known == thread) {
            Some((_, times)) => *times += 1,
            None => asked.push((thread, 1)),
        }
        self.is_awaited.load(Ordering::SeqCst).then_some(NodeId(0))
    }

    fn poll_durable(&self, _context: &mut Context<'_>, _ticket: &mut Option<u64>) -> Poll<Result<(), LogError>> {
        Poll::Ready(Ok(()))
    }
}
