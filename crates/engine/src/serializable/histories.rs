//! Small random histories of snapshot isolation, against a checker that looks at all of a history: what committed has
//! a serial order, in which nobody comes before somebody who had ended when it began.
//!
//! The model has rows, snapshots and commits that take their time: prepared, with a timestamp, decided and visible are
//! steps of their own, and others step in between.

use std::collections::BTreeMap;
use std::sync::Arc;

use eris_platform::{MemoryPool, SeededRandom, test_load};
use eris_storage::{
    Attribute, AttributeId, Comparison, Condition, ContainerId, DataType, IndexDefinition, IndexId, IndexKind, Layout,
    Predicate, Schema, SchemaVersion, Test, Timestamp, TransactionId, Value,
};

use super::access::RowWrite;
use super::{AccessRegistry, ConflictGraph, TrackedTransaction};

const ID: AttributeId = AttributeId(0);
const GROUP: AttributeId = AttributeId(1);
const IDS: u64 = 4;
const GROUPS: u64 = 3;
const TRANSACTIONS: usize = 7;
const AT_ONCE: usize = 4;
/// Early enough for others to come behind it.
const LAST_LOG_END: u64 = 25;

fn schema() -> Schema {
    let attribute = |name: &str| Attribute { name: name.into(), data_type: DataType::Int64, nullable: false };
    let key = IndexDefinition {
        id: IndexId(1),
        name: "pkey".into(),
        attributes: Box::new([ID]),
        unique: true,
        primary: true,
        kind: IndexKind::Ordered,
    };
    Schema {
        container: ContainerId(1),
        version: SchemaVersion(1),
        attributes: Box::new([attribute("id"), attribute("group")]),
        indexes: Box::new([key]),
        layout: Layout::Default,
        physical: None,
        segment_rows: 64,
    }
}

type Row = (i64, i64);

/// What is read: the model's own idea of a predicate.
#[derive(Clone, Copy, Debug)]
enum Seen {
    Key(i64),
    Group(i64),
    KeyInGroup(i64, i64),
    From(i64),
    All,
}

impl Seen {
    fn random(random: &mut SeededRandom) -> Self {
        let (id, group) = (random.below(IDS) as i64, random.below(GROUPS) as i64);
        match random.below(10) {
            0..4 => Self::Key(id),
            4..6 => Self::Group(group),
            6 => Self::KeyInGroup(id, group),
            7..9 => Self::From(id),
            _ => Self::All,
        }
    }

    fn has(self, (id, group): Row) -> bool {
        match self {
            Self::Key(known) => id == known,
            Self::Group(known) => group == known,
            Self::KeyInGroup(known, of) => id == known && group == of,
            Self::From(least) => id >= least,
            Self::All => true,
        }
    }

    fn predicate(self) -> Predicate {
        let is = |attribute, comparison, value| Condition {
            attribute,
            test: Test::Compare(comparison, Value::Int64(value)),
        };
        let equal = Comparison::Equal;
        Predicate::new(match self {
            Self::Key(id) => vec![is(ID, equal, id)],
            Self::Group(group) => vec![is(GROUP, equal, group)],
            Self::KeyInGroup(id, group) => vec![is(GROUP, equal, group), is(ID, equal, id)],
            Self::From(id) => vec![is(ID, Comparison::GreaterOrEqual, id)],
            Self::All => vec![],
        })
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    Active,
    Prepared,
    /// It has a timestamp that is not decided.
    Stamped,
    /// Decided; its timestamp is not finished.
    Decided,
    Committed,
    /// The log ended under it: nobody sees it, and it may have committed.
    InDoubt,
    Aborted,
}

#[derive(Debug)]
struct Party {
    tracked: Arc<TrackedTransaction>,
    phase: Phase,
    declared: bool,
    snapshot: u64,
    timestamp: u64,
    begun: u64,
    ended: u64,
    reads: Vec<Seen>,
    /// By id: before and after.
    writes: Vec<(Option<Row>, Option<Row>)>,
}

struct Model {
    random: SeededRandom,
    schema: Schema,
    memory: Arc<MemoryPool>,
    graph: ConflictGraph,
    registry: Arc<AccessRegistry>,
    entries_max: usize,
    slow: usize,
    parties: Vec<Party>,
    /// Committed versions by id: timestamp and row, ascending.
    versions: BTreeMap<i64, Vec<(u64, Option<Row>)>>,
    finished: Vec<bool>,
    clock: u64,
    /// When the log ends, if it does.
    log_ends: Option<u64>,
    coarsened: u64,
    spared: u64,
}

impl Model {
    fn new(seed: u64) -> Self {
        let mut random = SeededRandom::new(seed);
        let entries_max = [0, 1, 2, 1_000, 1_000][random.index(5)];
        let slow = random.index(TRANSACTIONS);
        let memory = MemoryPool::new([500, 1 << 20, 1 << 20][random.index(3)]);
        let log_ends = random.chance(0.3).then(|| random.below(LAST_LOG_END));
        Self {
            random,
            schema: schema(),
            memory,
            graph: ConflictGraph::default(),
            registry: Arc::default(),
            entries_max,
            slow,
            parties: Vec::new(),
            versions: BTreeMap::new(),
            // Timestamps begin with 2.
            finished: vec![true, true],
            clock: 0,
            log_ends,
            coarsened: 0,
            spared: 0,
        }
    }

    fn has_log_ended(&self) -> bool {
        self.log_ends.is_some_and(|end| self.clock > end)
    }

    fn visible(&self) -> u64 {
        self.finished.iter().take_while(|finished| **finished).count() as u64 - 1
    }

    fn begin(&mut self) {
        let id = TransactionId(self.parties.len() as u64 + 1);
        let tracked = Arc::new(TrackedTransaction::new(id, &self.memory));
        let snapshot = self.graph.begin(&tracked, || self.visible(), |visible| Timestamp(*visible));
        let declared = self.random.chance(0.15);
        if declared {
            self.graph.declare_read_only(id);
        }
        let (reads, writes) = (Vec::new(), Vec::new());
        let (phase, begun) = (Phase::Active, self.clock);
        self.parties.push(Party {
            tracked,
            phase,
            declared,
            snapshot,
            timestamp: 0,
            begun,
            ended: u64::MAX,
            reads,
            writes,
        });
    }

    fn step(&mut self, at: usize) {
        self.clock += 1;
        match self.parties[at].phase {
            Phase::Active if self.parties[at].tracked.is_doomed() => self.abort(at),
            Phase::Active => match self.random.below(20) {
                0..9 => self.read(at),
                9..14 if !self.parties[at].declared => self.write(at),
                19 => self.abort(at),
                _ => self.prepare(at),
            },
            Phase::Prepared if self.random.chance(0.05) => self.abort(at),
            Phase::Prepared if self.parties[at].writes.is_empty() => {
                self.graph.commit(self.parties[at].tracked.id, Timestamp(2));
                self.end(at, Phase::Committed);
            }
            Phase::Prepared if self.has_log_ended() => self.abort(at),
            Phase::Prepared => {
                self.parties[at].timestamp = self.finished.len() as u64;
                self.finished.push(false);
                self.parties[at].phase = Phase::Stamped;
            }
            Phase::Stamped if self.has_log_ended() => {
                self.finished[self.parties[at].timestamp as usize] = true;
                self.graph.doubt(self.parties[at].tracked.id);
                self.end(at, Phase::InDoubt);
            }
            // One whose record is on its way for long, while others come and go.
            Phase::Stamped if at == self.slow && self.random.chance(0.9) => {}
            Phase::Stamped if self.random.chance(0.1) => {
                self.finished[self.parties[at].timestamp as usize] = true;
                self.abort(at);
            }
            Phase::Stamped => {
                let party = &mut self.parties[at];
                self.graph.commit(party.tracked.id, Timestamp(party.timestamp));
                party.phase = Phase::Decided;
                for (old, new) in &party.writes {
                    let id = old.or(*new).expect("a row").0;
                    self.versions.entry(id).or_default().push((party.timestamp, *new));
                }
            }
            Phase::Decided => {
                self.finished[self.parties[at].timestamp as usize] = true;
                self.end(at, Phase::Committed);
            }
            Phase::Committed | Phase::InDoubt | Phase::Aborted => {}
        }
    }

    fn end(&mut self, at: usize, phase: Phase) {
        self.parties[at].phase = phase;
        self.graph.forget_if_any(|| Timestamp(self.visible()));
    }

    fn abort(&mut self, at: usize) {
        self.graph.abort(self.parties[at].tracked.id);
        self.end(at, Phase::Aborted);
    }

    fn read(&mut self, at: usize) {
        let seen = Seen::random(&mut self.random);
        let party = &mut self.parties[at];
        party.reads.push(seen);
        let met = party.tracked.read(&self.registry, &self.schema, &seen.predicate(), self.entries_max);
        self.coarsened += u64::from(met.coarsened);
        self.spared += self.graph.add_writers(party.tracked.id, &met.others).spared;
    }

    /// The row as the transaction sees it.
    fn current(&self, at: usize, id: i64) -> Option<Row> {
        let party = &self.parties[at];
        let own = party.writes.iter().rfind(|(old, new)| old.or(*new).is_some_and(|row| row.0 == id));
        if let Some((_, new)) = own {
            return *new;
        }
        let versions = self.versions.get(&id)?;
        versions.iter().filter(|(timestamp, _)| *timestamp <= party.snapshot).max_by_key(|it| it.0)?.1
    }

    fn write(&mut self, at: usize) {
        let id = self.random.below(IDS) as i64;
        let concerns =
            |party: &Party| party.writes.iter().any(|(old, new)| old.or(*new).is_some_and(|row| row.0 == id));
        let undecided = [Phase::Active, Phase::Prepared, Phase::Stamped];
        let others = (0..self.parties.len()).filter(|other| *other != at);
        if others.map(|other| &self.parties[other]).any(|party| undecided.contains(&party.phase) && concerns(party)) {
            // It would have to wait.
            return;
        }
        let newest = self.versions.get(&id).and_then(|versions| versions.iter().map(|it| it.0).max());
        if newest.is_some_and(|newest| newest > self.parties[at].snapshot) {
            // The first updater wins.
            return self.abort(at);
        }
        let old = self.current(at, id);
        let new = (old.is_none() || self.random.chance(0.8)).then(|| (id, self.random.below(GROUPS) as i64));
        let image = |row: Option<Row>| row.map(|(id, group)| [Value::Int64(id), Value::Int64(group)].into());
        let party = &mut self.parties[at];
        party.writes.push((old, new));
        let write = RowWrite { transaction: party.tracked.id, old: image(old), new: image(new) };
        // Now and then as a load does.
        let writes = self.random.chance(0.95).then(|| vec![write]);
        let met = party.tracked.write(&self.registry, self.schema.container, writes, self.entries_max);
        self.coarsened += u64::from(met.coarsened);
        self.spared += self.graph.add_readers(party.tracked.id, &met.others).spared;
    }

    fn prepare(&mut self, at: usize) {
        let party = &mut self.parties[at];
        self.spared += self.graph.prepare(party.tracked.id).spared;
        if party.tracked.is_doomed() {
            return self.abort(at);
        }
        party.phase = Phase::Prepared;
    }

    fn run(&mut self) {
        loop {
            let open = |party: &Party| !matches!(party.phase, Phase::Committed | Phase::InDoubt | Phase::Aborted);
            let running: Vec<usize> = (0..self.parties.len()).filter(|at| open(&self.parties[*at])).collect();
            if self.parties.len() < TRANSACTIONS && running.len() < AT_ONCE && self.random.chance(0.3) {
                self.clock += 1;
                self.begin();
            } else if !running.is_empty() {
                let at = running[self.random.index(running.len())];
                self.step(at);
            } else if self.parties.len() == TRANSACTIONS {
                break;
            }
            // Whoever is committed and visible has its answer.
            let (visible, clock) = (self.visible(), self.clock);
            for party in self.parties.iter_mut().filter(|party| party.phase == Phase::Committed) {
                if party.timestamp <= visible {
                    party.ended = party.ended.min(clock);
                }
            }
        }
    }

    /// How many are in doubt.
    fn in_doubt(&self) -> usize {
        self.parties.iter().filter(|party| party.phase == Phase::InDoubt).count()
    }

    /// The edges of all that committed, from whatever was written and read. Of those in doubt so many did, the first of
    /// them in the log.
    fn check(&self, recovered: usize) -> Result<(), String> {
        let of = |phase| self.parties.iter().filter(move |party| party.phase == phase);
        let mut in_doubt: Vec<&Party> = of(Phase::InDoubt).collect();
        in_doubt.sort_by_key(|party| party.timestamp);
        let committed: Vec<&Party> = of(Phase::Committed).chain(in_doubt.into_iter().take(recovered)).collect();
        let depends = |from: &Party, to: &Party| {
            let missed = |seen: &Seen| {
                to.writes
                    .iter()
                    .any(|(old, new)| old.is_some_and(|row| seen.has(row)) || new.is_some_and(|row| seen.has(row)))
            };
            let is_unseen = to.phase == Phase::InDoubt || to.timestamp > from.snapshot;
            let rw = is_unseen && from.reads.iter().any(missed);
            let visible = from.phase == Phase::Committed && from.timestamp > 0 && from.timestamp <= to.snapshot;
            rw || visible || from.ended < to.begun
        };
        // Takes away whom nobody precedes until nobody is left.
        let mut left = committed;
        while !left.is_empty() {
            let precedes = |party: &&Party, other: &&Party| !std::ptr::eq(*party, *other) && depends(party, other);
            let first = (0..left.len()).find(|at| !left.iter().any(|other| precedes(other, &left[*at])));
            match first {
                Some(at) => drop(left.remove(at)),
                None => return Err(format!("a cycle among {left:#?}")),
            }
        }
        Ok(())
    }
}

#[test]
fn what_commits_has_a_serial_order() {
    let (mut committed, mut doomed, mut coarsened, mut spared, mut in_doubt) = (0, 0, 0, 0, 0);
    for seed in 1..=test_load(20_000) {
        let mut model = Model::new(seed);
        model.run();
        for recovered in 0..=model.in_doubt() {
            if let Err(wrong) = model.check(recovered) {
                panic!("seed {seed}: {wrong}");
            }
        }
        in_doubt += model.in_doubt();
        assert_eq!(model.graph.count(), model.in_doubt() as u64, "seed {seed}: something is left");
        if model.in_doubt() == 0 {
            assert!(model.registry.is_empty(), "seed {seed}: something is left");
            assert_eq!(model.memory.used(), 0, "seed {seed}");
        }
        committed += model.parties.iter().filter(|party| party.phase == Phase::Committed).count();
        doomed += model.parties.iter().filter(|party| party.tracked.is_doomed()).count();
        coarsened += model.coarsened;
        spared += model.spared;
    }
    println!("{committed} committed, {doomed} doomed, {coarsened} coarse, {spared} spared, {in_doubt} in doubt");
    assert!(committed > doomed && doomed > 0 && coarsened > 0 && spared > 0 && in_doubt > 0);
}
