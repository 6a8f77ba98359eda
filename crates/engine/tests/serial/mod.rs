//! Whether SERIALIZABLE transactions could have run one after another: with snapshots and commit timestamps known, who
//! has to come before whom is plain.

use std::collections::BTreeMap;

/// What a statement looked at.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Looked {
    Key(i64),
    Amount(i64),
    All,
}

/// A transaction that committed.
#[derive(Debug)]
pub struct Party {
    pub snapshot: u64,
    /// Of no meaning if it wrote nothing.
    pub committed: u64,
    pub looks: Vec<Looked>,
    /// By key, the amounts before and after.
    pub writes: BTreeMap<i64, (Option<i64>, Option<i64>)>,
}

impl Party {
    /// It looked at something that the other one wrote, and did not see it.
    fn missed(&self, other: &Self) -> bool {
        let concerns = |look: &Looked| {
            other.writes.iter().any(|(key, (old, new))| match *look {
                Looked::Key(known) => known == *key,
                Looked::Amount(amount) => [*old, *new].contains(&Some(amount)),
                Looked::All => true,
            })
        };
        other.committed > self.snapshot && self.looks.iter().any(concerns)
    }

    /// It comes before the other one in every serial order.
    fn precedes(&self, other: &Self) -> bool {
        let seen = !self.writes.is_empty() && self.committed <= other.snapshot;
        let overwritten =
            self.committed < other.committed && self.writes.keys().any(|key| other.writes.contains_key(key));
        seen || (overwritten && !self.writes.is_empty()) || self.missed(other)
    }
}

/// Takes away whom nobody has to precede, until nobody is left.
pub fn check(parties: &[Party]) -> Result<(), String> {
    let mut before: Vec<usize> = Vec::with_capacity(parties.len());
    let precede = |at: usize, other: usize| at != other && parties[at].precedes(&parties[other]);
    before.extend((0..parties.len()).map(|at| (0..parties.len()).filter(|other| precede(*other, at)).count()));
    let mut free: Vec<usize> = (0..parties.len()).filter(|at| before[*at] == 0).collect();
    let mut left = parties.len();
    while let Some(at) = free.pop() {
        left -= 1;
        for other in (0..parties.len()).filter(|other| precede(at, *other)) {
            before[other] -= 1;
            if before[other] == 0 {
                free.push(other);
            }
        }
    }
    if left == 0 {
        return Ok(());
    }
    let cycle: Vec<&Party> = (0..parties.len()).filter(|at| before[*at] > 0).map(|at| &parties[at]).collect();
    Err(format!("G2 among SERIALIZABLE transactions, each of which comes behind another one: {cycle:?}"))
}
