//! What may be there of something that one builder changes, step by step.

/// The state that was last known to be durable, and behind it those that changes since then were to lead to, in the
/// order in which they were asked for. After a crash it is one of them, because a log ends somewhere.
#[derive(Debug)]
pub struct Ledger<S> {
    states: Vec<S>,
}

/// What a crash left of the changes that were under way.
#[derive(Clone, Copy, Debug, Default)]
pub struct UnderWay {
    pub there: u64,
    pub lost: u64,
}

impl<S: Clone> Ledger<S> {
    pub fn new(state: S) -> Self {
        Self { states: vec![state] }
    }

    /// As its builder sees it.
    pub fn last(&self) -> &S {
        &self.states[self.states.len() - 1]
    }

    /// It is about to be changed.
    pub fn ask(&mut self, state: S) {
        self.states.push(state);
    }

    /// The last change was refused, as a whole.
    pub fn refused(&mut self) {
        assert!(self.states.len() > 1, "a change was asked for");
        self.states.pop();
    }

    /// The last change is on disk, and so is what came before it.
    pub fn durable(&mut self) {
        self.states.drain(..self.states.len() - 1);
    }

    /// Finds the last state that is there, which is durable then.
    pub fn recover(&mut self, is_there: impl Fn(&S) -> bool) -> Option<UnderWay> {
        let place = self.states.iter().rposition(is_there)?;
        let lost = (self.states.len() - 1 - place) as u64;
        self.states = vec![self.states[place].clone()];
        Some(UnderWay { there: place as u64, lost })
    }

    pub fn states(&self) -> &[S] {
        &self.states
    }
}
