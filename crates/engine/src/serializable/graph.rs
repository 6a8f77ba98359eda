//! Who depends on whom, who may not commit, and who is forgotten when.
//!
//! ```text
//!   active ──── prepared ──┬── committed ──> forgotten, once no snapshot in use is older
//!      └───────────┤       └── in doubt
//!               aborted: gone at once
//! ```
//! A transaction is *prepared* when it decided to commit, before its record goes to the log: from then on it is
//! nobody's victim, whatever becomes of the record. Its timestamp is taken behind that, so of two transactions the one
//! that was committed before the other was prepared has the smaller one; of two that were prepared together nobody
//! knows.
//!
//! A transaction is *in doubt* when the log ended while its record was on the way: nobody sees what it wrote before the
//! database is opened again, and then it may be there. So it counts as committed behind all others, and every reader
//! that comes has missed it.
//!
//! **The rule.** `one -rw-> two -rw-> three` is dangerous if `three` is prepared or committed and may have committed
//! before the other two; unless `one` writes nothing and has a snapshot that does not see `three`. (A cycle comes back
//! to a reader by what it saw, from somebody who committed before its snapshot, and `three` is the first of the cycle.)
//! It is applied when the last of three things happens, whichever that is: either edge comes, or `three` is prepared.
//!
//! **The victim** is the pivot; if it is prepared, then whoever is about to complete the structure, which is active.
//!
//! **Forgotten** is who committed in front of every snapshot in use: new readers see it, old ones are gone. What stays
//! is, with those that depended on it, when the first of such committed. Who wrote nothing matters only to pivots
//! with older snapshots than its own, so it goes by its snapshot instead of its timestamp.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use eris_storage::{Timestamp, TransactionId};

use super::tracked::{Doom, TrackedTransaction};
use crate::lock::{Lock, lock};

/// When a transaction commits of which nobody knows whether it does: no snapshot sees it.
const IN_DOUBT: Timestamp = Timestamp(u64::MAX);

/// What the rules did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Judged {
    /// Transactions that were doomed.
    pub doomed: u64,
    /// Structures that are not dangerous because their reader writes nothing.
    pub spared: u64,
}

/// See the [module](self).
#[derive(Debug, Default)]
pub(crate) struct ConflictGraph {
    inner: Lock<Nodes>,
    /// Whether there are committed transactions to forget; looked at by every commit.
    has_committed: AtomicBool,
}

#[derive(Debug, Default)]
struct Nodes {
    by_id: BTreeMap<TransactionId, Node>,
    /// The snapshots of active and prepared transactions.
    undecided: BTreeSet<(Timestamp, TransactionId)>,
    /// Committed transactions by what a snapshot has to see, so that they are forgotten.
    committed: BTreeSet<(Timestamp, TransactionId)>,
    /// Numbers what is prepared and committed.
    events: u64,
}

#[derive(Debug)]
struct Node {
    tracked: Arc<TrackedTransaction>,
    snapshot: Timestamp,
    state: State,
    /// It said so, or committed without a write.
    read_only: bool,
    /// Who read what this one wrote, and did not see it.
    incoming: BTreeSet<TransactionId>,
    /// Whose writes this one did not see.
    outgoing: BTreeSet<TransactionId>,
    /// The first commit among those of `outgoing` that are forgotten.
    first_out: Option<Timestamp>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Active,
    /// With the event's number.
    Prepared(u64),
    Committed {
        timestamp: Timestamp,
        event: u64,
    },
}

impl ConflictGraph {
    /// Starts tracking a transaction with the snapshot that `publish` publishes. Both are one step for whoever forgets.
    #[cold]
    pub fn begin<S>(
        &self,
        tracked: &Arc<TrackedTransaction>,
        publish: impl FnOnce() -> S,
        timestamp: impl FnOnce(&S) -> Timestamp,
    ) -> S {
        let nodes = &mut *lock(&self.inner);
        let published = publish();
        let snapshot = timestamp(&published);
        nodes.undecided.insert((snapshot, tracked.id));
        nodes.by_id.insert(tracked.id, Node::new(Arc::clone(tracked), snapshot));
        published
    }

    /// A transaction that has read and written nothing begins once more, with the snapshot that `publish` publishes.
    #[cold]
    pub fn renew<S>(
        &self,
        transaction: TransactionId,
        publish: impl FnOnce() -> S,
        timestamp: impl FnOnce(&S) -> Timestamp,
    ) -> S {
        let nodes = &mut *lock(&self.inner);
        let published = publish();
        let snapshot = timestamp(&published);
        if let Some(node) = nodes.by_id.get_mut(&transaction) {
            assert!(node.incoming.is_empty() && node.outgoing.is_empty(), "it depends on nobody yet");
            nodes.undecided.remove(&(node.snapshot, transaction));
            nodes.undecided.insert((snapshot, transaction));
            node.snapshot = snapshot;
        }
        published
    }

    /// The transaction says that it will write nothing.
    pub fn declare_read_only(&self, transaction: TransactionId) {
        let nodes = &mut *lock(&self.inner);
        if let Some(node) = nodes.by_id.get_mut(&transaction).filter(|node| !node.tracked.has_written()) {
            node.read_only = true;
        }
    }

    /// `reader` did not see what these wrote.
    pub fn add_writers(&self, reader: TransactionId, writers: &BTreeSet<TransactionId>) -> Judged {
        if writers.is_empty() {
            return Judged::default();
        }
        let nodes = &mut *lock(&self.inner);
        let mut judged = Judged::default();
        for writer in writers {
            nodes.add_edge(reader, *writer, &mut judged);
        }
        judged
    }

    /// These did not see what `writer` wrote.
    pub fn add_readers(&self, writer: TransactionId, readers: &BTreeSet<TransactionId>) -> Judged {
        if readers.is_empty() {
            return Judged::default();
        }
        let nodes = &mut *lock(&self.inner);
        let mut judged = Judged::default();
        for reader in readers {
            nodes.add_edge(*reader, writer, &mut judged);
        }
        judged
    }

    /// The transaction may be part of a structure of which nothing more is known.
    pub fn doom(&self, transaction: TransactionId) -> Judged {
        let nodes = &*lock(&self.inner);
        let active = nodes.by_id.get(&transaction).filter(|node| node.state == State::Active);
        let doomed = active.is_some_and(|node| node.tracked.doom(Doom::Pivot));
        Judged { doomed: u64::from(doomed), spared: 0 }
    }

    /// The transaction is about to commit, unless it is doomed now.
    pub fn prepare(&self, transaction: TransactionId) -> Judged {
        let nodes = &mut *lock(&self.inner);
        let mut judged = Judged::default();
        nodes.prepare(transaction, &mut judged);
        judged
    }

    /// It commits at this timestamp, which nobody sees yet. Who has written nothing may have an older one.
    pub fn commit(&self, transaction: TransactionId, timestamp: Timestamp) {
        let nodes = &mut *lock(&self.inner);
        if nodes.commit(transaction, timestamp) {
            self.has_committed.store(true, Ordering::Relaxed);
        }
    }

    /// Whether it commits is found out when the database is opened again.
    pub fn doubt(&self, transaction: TransactionId) {
        self.commit(transaction, IN_DOUBT);
    }

    /// It rolls back, and is forgotten.
    pub fn abort(&self, transaction: TransactionId) {
        let removed = lock(&self.inner).remove(transaction, None);
        if let Some(node) = removed {
            node.tracked.forget();
        }
    }

    /// A commit is visible by now, perhaps: forgets those that nobody can have missed. Asked for behind every commit,
    /// because it may be the one of somebody else that makes an earlier one visible.
    #[inline]
    pub fn forget_if_any(&self, visible: impl FnOnce() -> Timestamp) {
        if self.has_committed.load(Ordering::Relaxed) {
            self.forget(visible);
        }
    }

    #[cold]
    fn forget(&self, visible: impl FnOnce() -> Timestamp) {
        let mut forgotten = Vec::new();
        {
            let nodes = &mut *lock(&self.inner);
            // A snapshot is published with the lock held, so no older one comes.
            let horizon = nodes.undecided.first().map_or_else(visible, |(oldest, _)| *oldest);
            while let Some((seen_from, transaction)) = nodes.committed.first().copied() {
                if seen_from > horizon {
                    break;
                }
                nodes.committed.pop_first();
                forgotten.extend(nodes.remove_committed(transaction));
            }
            self.has_committed.store(!nodes.committed.is_empty(), Ordering::Relaxed);
        }
        for node in forgotten {
            node.tracked.forget();
        }
    }

    /// Committed transactions that wrote something and that this one's snapshot does not see.
    pub fn committed_since(&self, transaction: TransactionId) -> BTreeSet<TransactionId> {
        let nodes = &*lock(&self.inner);
        let Some(own) = nodes.by_id.get(&transaction) else { return BTreeSet::new() };
        let missed = nodes.committed.range((Timestamp(own.snapshot.0 + 1), TransactionId(0))..);
        missed.map(|(_, id)| *id).filter(|id| !nodes.by_id[id].read_only).collect()
    }

    /// Transactions that are known.
    pub fn count(&self) -> u64 {
        lock(&self.inner).by_id.len() as u64
    }
}

impl Node {
    fn new(tracked: Arc<TrackedTransaction>, snapshot: Timestamp) -> Self {
        Self {
            tracked,
            snapshot,
            state: State::Active,
            read_only: false,
            incoming: BTreeSet::new(),
            outgoing: BTreeSet::new(),
            first_out: None,
        }
    }

    fn commit_timestamp(&self) -> Option<Timestamp> {
        match self.state {
            State::Committed { timestamp, .. } => Some(timestamp),
            State::Active | State::Prepared(_) => None,
        }
    }

    /// Whether it is committed with a smaller timestamp than the other one has, or will have.
    fn commits_before(&self, other: &Self) -> bool {
        let State::Committed { timestamp, event } = self.state else { return false };
        match other.state {
            State::Active => true,
            State::Prepared(prepared) => event < prepared,
            State::Committed { timestamp: later, .. } => timestamp < later,
        }
    }

    /// The snapshot that does not see what it wrote is older; of one that wrote nothing: that matters.
    fn ends_behind(&self, snapshot: Timestamp) -> bool {
        if self.read_only { self.snapshot > snapshot } else { self.commit_timestamp().is_none_or(|it| it > snapshot) }
    }
}

impl Nodes {
    fn add_edge(&mut self, reader: TransactionId, writer: TransactionId, judged: &mut Judged) {
        let (Some(from), Some(to)) = (self.by_id.get(&reader), self.by_id.get(&writer)) else { return };
        if from.tracked.is_doomed() || to.tracked.is_doomed() || !from.ends_behind(to.snapshot) {
            return;
        }
        if !to.ends_behind(from.snapshot) || from.outgoing.contains(&writer) {
            return;
        }
        self.node_mut(reader).outgoing.insert(writer);
        self.node_mut(writer).incoming.insert(reader);
        let (from, to) = (&self.by_id[&reader], &self.by_id[&writer]);
        let to_pivot = self.is_first_edge_dangerous(from, to, judged);
        let from_pivot = to.state != State::Active && self.is_second_edge_dangerous(from, to, judged);
        if !to_pivot && !from_pivot {
            return;
        }
        let (victim, why) = match (to.state, from_pivot) {
            (State::Active, _) => (to, Doom::Pivot),
            (_, true) => (from, Doom::Pivot),
            (_, false) => (from, Doom::Reader),
        };
        if victim.state == State::Active {
            judged.doomed += u64::from(victim.tracked.doom(why));
        }
    }

    /// With an edge from `one` to `two`: whether it completes a structure whose pivot is `two`.
    fn is_first_edge_dangerous(&self, one: &Node, two: &Node, judged: &mut Judged) -> bool {
        let known = two.outgoing.iter().any(|three| is_dangerous(one, two, &self.by_id[three], judged));
        // Forgotten ones committed before every snapshot in use, and so before the pivot if that is undecided.
        known
            || two.first_out.is_some_and(|first| {
                let pivot_was_first = two.commit_timestamp().is_some_and(|it| it < first);
                let reader_was_first = !one.read_only && one.commit_timestamp().is_some_and(|it| it < first);
                !pivot_was_first && !reader_was_first && is_seen_if_read_only(one, Some(first), judged)
            })
    }

    /// With an edge from `two` to `three`: whether it completes a structure whose pivot is `two`.
    fn is_second_edge_dangerous(&self, two: &Node, three: &Node, judged: &mut Judged) -> bool {
        two.incoming.iter().any(|one| is_dangerous(&self.by_id[one], two, three, judged))
    }

    fn prepare(&mut self, transaction: TransactionId, judged: &mut Judged) {
        self.events += 1;
        let event = self.events;
        let Some(node) = self.by_id.get_mut(&transaction) else { return };
        if node.tracked.is_doomed() {
            return;
        }
        node.state = State::Prepared(event);
        if !node.tracked.has_written() {
            node.read_only = true;
            return;
        }
        // Planted: whoever is about to commit may become part of a structure until it has committed.
        if cfg!(feature = "bug_ssi_no_prepare") {
            node.state = State::Active;
            return;
        }
        let three = &self.by_id[&transaction];
        let pivots = three.incoming.iter().map(|pivot| &self.by_id[pivot]);
        let pivots: Vec<&Node> = pivots.filter(|pivot| self.is_second_edge_dangerous(pivot, three, judged)).collect();
        if pivots.iter().any(|pivot| pivot.state != State::Active) {
            judged.doomed += u64::from(three.tracked.doom(Doom::Committer));
            self.node_mut(transaction).state = State::Active;
            return;
        }
        for pivot in pivots {
            judged.doomed += u64::from(pivot.tracked.doom(Doom::Pivot));
        }
    }

    /// False if it is not known.
    fn commit(&mut self, transaction: TransactionId, timestamp: Timestamp) -> bool {
        self.events += 1;
        let event = self.events;
        let Some(node) = self.by_id.get_mut(&transaction) else { return false };
        node.state = State::Committed { timestamp, event };
        let seen_from = if node.read_only { node.snapshot } else { timestamp };
        let undecided = (node.snapshot, transaction);
        self.undecided.remove(&undecided);
        self.committed.insert((seen_from, transaction));
        if cfg!(feature = "bug_ssi_no_prepare") {
            let three = &self.by_id[&transaction];
            let mut judged = Judged::default();
            for pivot in three.incoming.iter().map(|pivot| &self.by_id[pivot]) {
                if self.is_second_edge_dangerous(pivot, three, &mut judged) {
                    pivot.tracked.doom(Doom::Pivot);
                }
            }
        }
        #[cfg(feature = "bug_ssi_forgets_committed_reader")]
        self.by_id[&transaction].tracked.forget_reads();
        true
    }

    /// A committed transaction is forgotten.
    fn remove_committed(&mut self, transaction: TransactionId) -> Option<Node> {
        let node = self.by_id.get(&transaction)?;
        let timestamp = node.commit_timestamp().filter(|_| !node.read_only);
        self.remove(transaction, timestamp)
    }

    /// Takes out a transaction; those that missed what it wrote keep its timestamp.
    fn remove(&mut self, transaction: TransactionId, timestamp: Option<Timestamp>) -> Option<Node> {
        let node = self.by_id.remove(&transaction)?;
        self.undecided.remove(&(node.snapshot, transaction));
        for reader in &node.incoming {
            let reader = self.node_mut(*reader);
            reader.outgoing.remove(&transaction);
            reader.first_out = [reader.first_out, timestamp].into_iter().flatten().min();
        }
        for writer in &node.outgoing {
            self.node_mut(*writer).incoming.remove(&transaction);
        }
        Some(node)
    }

    fn node_mut(&mut self, transaction: TransactionId) -> &mut Node {
        self.by_id.get_mut(&transaction).unwrap_or_else(|| unreachable!("both ends of an edge are known"))
    }
}

/// Whether `three` may have committed first; see the [module](self).
fn is_dangerous(one: &Node, two: &Node, three: &Node, judged: &mut Judged) -> bool {
    if three.state == State::Active || one.tracked.is_doomed() || two.tracked.is_doomed() {
        return false;
    }
    if two.commits_before(three) {
        return false;
    }
    if one.tracked.id == three.tracked.id {
        return true;
    }
    (one.read_only || !one.commits_before(three)) && is_seen_if_read_only(one, three.commit_timestamp(), judged)
}

/// Whether a reader that writes nothing sees who committed first; of others that is not asked.
fn is_seen_if_read_only(one: &Node, first: Option<Timestamp>, judged: &mut Judged) -> bool {
    let is_seen = !one.read_only || first.is_some_and(|first| first <= one.snapshot);
    judged.spared += u64::from(!is_seen);
    is_seen
}

#[cfg(test)]
mod tests {
    use super::*;
    use eris_platform::MemoryPool;

    struct Bench {
        graph: ConflictGraph,
        tracked: Vec<Arc<TrackedTransaction>>,
    }

    impl Bench {
        /// Transactions 1, 2, ... with these snapshots, which all write.
        fn new(snapshots: &[u64]) -> Self {
            let bench = Self { graph: ConflictGraph::default(), tracked: Vec::new() };
            snapshots.iter().fold(bench, |mut bench, snapshot| {
                let id = TransactionId(bench.tracked.len() as u64 + 1);
                let tracked = Arc::new(TrackedTransaction::new(id, &MemoryPool::unlimited()));
                tracked.write(&Arc::default(), eris_storage::ContainerId(1), None, 1);
                bench.graph.begin(&tracked, || (), |()| Timestamp(*snapshot));
                bench.tracked.push(tracked);
                bench
            })
        }

        fn edge(&self, reader: u64, writer: u64) -> &Self {
            self.graph.add_writers(TransactionId(reader), &BTreeSet::from([TransactionId(writer)]));
            self
        }

        fn prepare(&self, transaction: u64) -> &Self {
            self.graph.prepare(TransactionId(transaction));
            self
        }

        fn commit(&self, transaction: u64, timestamp: u64) -> &Self {
            self.graph.commit(TransactionId(transaction), Timestamp(timestamp));
            self
        }

        fn doomed(&self) -> Vec<(u64, Doom)> {
            self.tracked.iter().filter_map(|tracked| Some((tracked.id.0, tracked.doomed()?))).collect()
        }
    }

    #[test]
    fn the_pivot_fails_whichever_edge_comes_last() {
        let bench = Bench::new(&[3, 3, 3]);
        bench.edge(1, 2).edge(2, 3);
        assert_eq!(bench.doomed(), []);
        bench.prepare(3).commit(3, 4);
        assert_eq!(bench.doomed(), [(2, Doom::Pivot)]);
        for edges in [[(1, 2), (2, 3)], [(2, 3), (1, 2)]] {
            let bench = Bench::new(&[3, 3, 3]);
            bench.prepare(3).commit(3, 4);
            for (reader, writer) in edges {
                bench.edge(reader, writer);
            }
            assert_eq!(bench.doomed(), [(2, Doom::Pivot)], "{edges:?}");
        }
    }

    #[test]
    fn nobody_who_is_prepared_is_a_victim() {
        let bench = Bench::new(&[3, 3, 3]);
        bench.edge(2, 3).prepare(2).edge(1, 2).prepare(3);
        assert_eq!(bench.doomed(), [(3, Doom::Committer)]);
        let bench = Bench::new(&[3, 3, 3]);
        bench.edge(2, 3).prepare(3).prepare(2).edge(1, 2);
        assert_eq!(bench.doomed(), [(1, Doom::Reader)]);
    }

    #[test]
    fn who_was_committed_before_another_was_prepared_came_first() {
        // The pivot, or the reader.
        let bench = Bench::new(&[3, 3, 3]);
        bench.edge(2, 3).prepare(2).commit(2, 4).prepare(3).edge(1, 2);
        assert_eq!(bench.doomed(), []);
        let bench = Bench::new(&[3, 3, 3]);
        bench.edge(1, 2).prepare(1).commit(1, 4).prepare(3).edge(2, 3);
        assert_eq!(bench.doomed(), []);
        // 3 has a smaller timestamp than 2, and nobody knows it yet.
        let bench = Bench::new(&[3, 3, 3]);
        bench.edge(2, 3).prepare(3).prepare(2).commit(2, 5).edge(1, 2);
        assert_eq!(bench.doomed(), [(1, Doom::Reader)]);
    }

    #[test]
    fn who_writes_nothing_fails_only_behind_the_first_to_commit() {
        for (snapshot, doomed) in [(3, &[][..]), (4, &[(2, Doom::Pivot)])] {
            let bench = Bench::new(&[0, 3, 3]);
            bench.edge(2, 3).prepare(3).commit(3, 4);
            let tracked = Arc::new(TrackedTransaction::new(TransactionId(9), &MemoryPool::unlimited()));
            bench.graph.begin(&tracked, || (), |()| Timestamp(snapshot));
            bench.graph.declare_read_only(tracked.id);
            bench.edge(9, 2);
            assert_eq!(bench.doomed(), doomed, "snapshot {snapshot}");
        }
    }

    #[test]
    fn who_is_in_doubt_is_missed_by_all_who_come() {
        let begin = |bench: &Bench, id: u64, snapshot: u64| {
            let tracked = Arc::new(TrackedTransaction::new(TransactionId(id), &MemoryPool::unlimited()));
            bench.graph.begin(&tracked, || (), |()| Timestamp(snapshot));
            bench.graph.declare_read_only(tracked.id);
            tracked
        };
        let bench = Bench::new(&[3, 3]);
        bench.edge(1, 2).prepare(2).commit(2, 4).prepare(1);
        bench.graph.doubt(TransactionId(1));
        bench.graph.forget_if_any(|| Timestamp(100));
        assert_eq!(bench.graph.count(), 1, "2 is seen by all, 1 by nobody");
        let reader = begin(&bench, 9, 50);
        bench.edge(9, 1);
        assert_eq!(reader.doomed(), Some(Doom::Reader), "it saw 2, which 1 did not, and misses 1");
        let bench = Bench::new(&[3]);
        bench.prepare(1);
        bench.graph.doubt(TransactionId(1));
        let reader = begin(&bench, 9, 50);
        bench.edge(9, 1).prepare(9);
        assert_eq!(reader.doomed(), None, "1 missed nobody");
    }

    #[test]
    fn the_committed_stay_until_every_snapshot_sees_them() {
        let bench = Bench::new(&[3, 3]);
        bench.prepare(1).commit(1, 4);
        bench.graph.forget_if_any(|| Timestamp(4));
        assert_eq!(bench.graph.count(), 2, "the other one does not see it");
        bench.prepare(2).commit(2, 5);
        bench.graph.forget_if_any(|| Timestamp(4));
        assert_eq!(bench.graph.count(), 1, "who begins now does not see 5");
        bench.graph.forget_if_any(|| Timestamp(5));
        assert_eq!(bench.graph.count(), 0);
    }
}
