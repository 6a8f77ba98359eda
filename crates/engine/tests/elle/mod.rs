//! A checker of isolation that knows nothing of the engine: no timestamps, no snapshots, only what clients saw.
//!
//! Clients append unique elements to lists and read lists, so what they saw tells in which order a list grew, and with
//! that which transaction depends on which (Adya; Elle's list-append workload):
//!
//! ```text
//!   ww   appended behind the other's element        list:  [a of T1][b of T2][c of T3]
//!   wr   read what the other appended                        T4 read [a b]:  T2 -wr-> T4
//!   rw   did not see what the other appended                                 T4 -rw-> T3
//!   rt   began after the other had its answer
//! ```
//! Neither level lets a reader see what was taken back (G1a) or half of what a transaction did to a list (G1b), nor a
//! cycle of ww (G0), wr and rt (G1c) edges. Snapshot isolation allows a cycle only if two rw edges follow each other in
//! it (write skew); rw edges count only if their reader was promised a snapshot. The product of transactions and "the
//! last edge was rw" makes that an ordinary search for cycles: from a transaction that was entered by rw, no rw leaves.
//!
//! SERIALIZABLE transactions that committed are looked at once more, by themselves: no cycle of any edges is allowed
//! among them (G2). A list that others appended to in between grew all the same, so an edge passes over those. Who
//! ended before another one began comes before it: snapshot isolation gives that with the serial order, because
//! whoever begins sees all that have their answer.
//!
//! Transactions that were rolled back count as readers. Of those whose end nobody heard, what became of their elements
//! tells whether they committed.

mod anomalies;
mod cycle;

use std::collections::{BTreeMap, BTreeSet};

use cycle::{Edge, Graph, Kind};

/// Something appended to a list, once in a history.
pub type Element = u64;

/// What a transaction did.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Operation {
    Append {
        key: i64,
        element: Element,
        /// Rolled back to a savepoint before the operation with this number.
        undone: Option<usize>,
    },
    Read {
        key: i64,
        list: Vec<Element>,
    },
}

/// How a transaction ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ending {
    Committed,
    RolledBack,
    /// Nobody heard of it.
    Unknown,
}

/// What a transaction was promised.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Level {
    ReadCommitted,
    Snapshot,
    Serializable,
}

impl Level {
    /// Whether all statements read in one snapshot.
    fn has_snapshot(self) -> bool {
        self != Self::ReadCommitted
    }
}

/// A transaction as its client saw it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ListTransaction {
    pub level: Level,
    pub operations: Vec<Operation>,
    pub ending: Ending,
    /// When it began and when its client heard of its end, as numbers in one order of all such events.
    pub begun: u64,
    pub ended: Option<u64>,
}

/// A read without what the reader itself had appended by then.
struct ForeignRead<'h> {
    reader: usize,
    key: i64,
    list: &'h [Element],
}

/// Who appended what, and what became of it.
struct Appended {
    writer: usize,
    key: i64,
    /// Nothing of its transaction follows it in the list.
    last: bool,
    undone: bool,
}

/// All transactions of a run; the last one reads every list when all others have ended.
#[derive(Default)]
pub struct ListHistory {
    pub transactions: Vec<ListTransaction>,
}

impl ListHistory {
    /// Says what was seen that nobody may see.
    pub fn check(&self) -> Result<(), String> {
        let appended = self.appended()?;
        let mut reads = Vec::new();
        for (reader, transaction) in self.transactions.iter().enumerate() {
            self.foreign_reads(reader, transaction, &appended, &mut reads)?;
        }
        let orders = self.orders(&reads)?;
        let committed = self.committed(&appended, &orders)?;
        for read in &reads {
            self.check_read(read, &appended, &committed)?;
        }
        let mut graph = Graph::new(self.transactions.len());
        self.add_dependencies(&mut graph, &reads, &orders, &appended, |_| true);
        self.add_real_time(&mut graph, |_| true);
        if let Some((name, cycle)) = graph.forbidden_cycle() {
            return Err(self.report(name, &cycle));
        }
        let serializable = |number: usize| committed[number] && self.transactions[number].level == Level::Serializable;
        let mut graph = Graph::new(self.transactions.len());
        self.add_dependencies(&mut graph, &reads, &orders, &appended, serializable);
        self.add_real_time(&mut graph, serializable);
        match graph.any_cycle() {
            None => Ok(()),
            Some(cycle) => Err(self.report("G2 among SERIALIZABLE transactions", &cycle)),
        }
    }

    fn appended(&self) -> Result<BTreeMap<Element, Appended>, String> {
        let mut appended: BTreeMap<Element, Appended> = BTreeMap::new();
        for (writer, transaction) in self.transactions.iter().enumerate() {
            let mut last: BTreeMap<i64, Element> = BTreeMap::new();
            for operation in &transaction.operations {
                let Operation::Append { key, element, undone } = operation else { continue };
                let new = Appended { writer, key: *key, last: true, undone: undone.is_some() };
                if appended.insert(*element, new).is_some() {
                    return Err(format!("element {element} is appended twice by the clients"));
                }
                if undone.is_none()
                    && let Some(before) = last.insert(*key, *element)
                    && let Some(before) = appended.get_mut(&before)
                {
                    before.last = false;
                }
            }
        }
        Ok(appended)
    }

    /// The reads of a transaction, checked against its own operations.
    fn foreign_reads<'h>(
        &self,
        reader: usize,
        transaction: &'h ListTransaction,
        appended: &BTreeMap<Element, Appended>,
        reads: &mut Vec<ForeignRead<'h>>,
    ) -> Result<(), String> {
        let mut first: BTreeMap<i64, &[Element]> = BTreeMap::new();
        for (at, operation) in transaction.operations.iter().enumerate() {
            let Operation::Read { key, list } = operation else { continue };
            let own: Vec<Element> = transaction.operations[..at]
                .iter()
                .filter_map(|before| match before {
                    Operation::Append { key: of, element, undone } => {
                        (of == key && undone.is_none_or(|undone| undone > at)).then_some(*element)
                    }
                    Operation::Read { .. } => None,
                })
                .collect();
            let wrong = |what: &str| Err(format!("{what}: {} in list {key}", self.describe(reader)));
            let distinct: BTreeSet<Element> = list.iter().copied().collect();
            if distinct.len() < list.len() {
                return wrong("an element is there twice");
            }
            if list.iter().any(|element| appended.get(element).is_none_or(|appended| appended.key != *key)) {
                return wrong("an element that nobody appended");
            }
            let Some(foreign) = list.strip_suffix(own.as_slice()) else {
                return wrong("a transaction does not see its own appends at the end of the list");
            };
            if foreign.iter().any(|element| appended[element].writer == reader) {
                return wrong("a transaction sees an append that it has taken back or not made yet");
            }
            if transaction.level.has_snapshot() && *first.entry(*key).or_insert(foreign) != foreign {
                return wrong("a snapshot changes");
            }
            reads.push(ForeignRead { reader, key: *key, list: foreign });
        }
        Ok(())
    }

    /// The order in which each list grew: the longest that anybody saw, of which all others are prefixes.
    fn orders<'h>(&self, reads: &[ForeignRead<'h>]) -> Result<BTreeMap<i64, &'h [Element]>, String> {
        let mut longest: BTreeMap<i64, &ForeignRead<'h>> = BTreeMap::new();
        for read in reads {
            let known = longest.entry(read.key).or_insert(read);
            if read.list.len() > known.list.len() {
                *known = read;
            }
        }
        for read in reads {
            let known = longest[&read.key];
            if !known.list.starts_with(read.list) {
                return Err(format!(
                    "list {} grew in two ways:\n  {}\n  {}",
                    read.key,
                    self.describe(read.reader),
                    self.describe(known.reader)
                ));
            }
        }
        Ok(longest.into_iter().map(|(key, read)| (key, read.list)).collect())
    }

    /// Which transactions committed. At the end the lists hold all elements of those, and of no others.
    fn committed(
        &self,
        appended: &BTreeMap<Element, Appended>,
        orders: &BTreeMap<i64, &[Element]>,
    ) -> Result<Vec<bool>, String> {
        let there: BTreeSet<Element> = orders.values().flat_map(|order| order.iter().copied()).collect();
        let mut committed: Vec<bool> =
            self.transactions.iter().map(|transaction| transaction.ending == Ending::Committed).collect();
        for element in &there {
            let writer = appended[element].writer;
            if self.transactions[writer].ending == Ending::Unknown {
                committed[writer] = true;
            }
        }
        for (element, Appended { writer, undone, .. }) in appended {
            if committed[*writer] && !undone && !there.contains(element) {
                return Err(format!("element {element} is lost: {}", self.describe(*writer)));
            }
        }
        Ok(committed)
    }

    fn check_read(
        &self,
        read: &ForeignRead<'_>,
        appended: &BTreeMap<Element, Appended>,
        committed: &[bool],
    ) -> Result<(), String> {
        for element in read.list {
            let Appended { writer, undone, .. } = appended[element];
            if undone || !committed[writer] {
                return Err(format!(
                    "G1a, aborted read of element {element}:\n  {}\n  {}",
                    self.describe(writer),
                    self.describe(read.reader)
                ));
            }
        }
        match read.list.last() {
            Some(element) if !appended[element].last => Err(format!(
                "G1b, intermediate read of element {element}:\n  {}\n  {}",
                self.describe(appended[element].writer),
                self.describe(read.reader)
            )),
            _ => Ok(()),
        }
    }

    fn add_dependencies(
        &self,
        graph: &mut Graph,
        reads: &[ForeignRead<'_>],
        orders: &BTreeMap<i64, &[Element]>,
        appended: &BTreeMap<Element, Appended>,
        counts: impl Fn(usize) -> bool,
    ) {
        let mut add = |from: usize, to: usize, kind, key| {
            if from != to {
                graph.add(Edge { from, to, kind, key });
            }
        };
        let writer = |element: &Element| appended[element].writer;
        for (key, order) in orders {
            let order: Vec<usize> = order.iter().map(writer).filter(|it| counts(*it)).collect();
            for pair in order.windows(2) {
                add(pair[0], pair[1], Kind::WriteWrite, *key);
            }
        }
        for ForeignRead { reader, key, list } in reads.iter().filter(|read| counts(read.reader)) {
            if let Some(seen) = list.iter().map(writer).rfind(|it| counts(*it)) {
                add(seen, *reader, Kind::WriteRead, *key);
            }
            if let Some(missed) = orders[key][list.len()..].iter().map(writer).find(|it| counts(*it) && it != reader)
                && self.transactions[*reader].level.has_snapshot()
            {
                add(*reader, missed, Kind::ReadWrite, *key);
            }
        }
    }

    /// Who ended before others began: one node for each end, so that there are as many edges as ends and beginnings.
    fn add_real_time(&self, graph: &mut Graph, counts: impl Fn(usize) -> bool) {
        let mut events: Vec<(u64, bool, usize)> = Vec::new();
        for (number, transaction) in self.transactions.iter().enumerate().filter(|(number, _)| counts(*number)) {
            events.push((transaction.begun, true, number));
            events.extend(transaction.ended.map(|ended| (ended, false, number)));
        }
        events.sort_unstable();
        let mut last = None;
        for (_, begins, number) in events {
            if begins {
                if let Some(moment) = last {
                    graph.add(Edge { from: moment, to: number, kind: Kind::RealTime, key: 0 });
                }
                continue;
            }
            let moment = graph.add_moment();
            graph.add(Edge { from: number, to: moment, kind: Kind::RealTime, key: 0 });
            if let Some(before) = last {
                graph.add(Edge { from: before, to: moment, kind: Kind::RealTime, key: 0 });
            }
            last = Some(moment);
        }
    }

    fn report(&self, name: &str, cycle: &[Edge]) -> String {
        let mut text = format!("{name}:");
        for edge in cycle {
            if edge.from < self.transactions.len() {
                text += &format!("\n  {}\n    {}", self.describe(edge.from), edge.kind.describe(edge.key));
            }
        }
        text
    }

    fn describe(&self, number: usize) -> String {
        let ListTransaction { level, operations, ending, .. } = &self.transactions[number];
        let steps: Vec<String> = operations
            .iter()
            .map(|operation| match operation {
                Operation::Append { key, element, undone: None } => format!("append {element} to {key}"),
                Operation::Append { key, element, undone: Some(_) } => format!("append {element} to {key} (undone)"),
                Operation::Read { key, list } => format!("read {key} {list:?}"),
            })
            .collect();
        format!("T{number} ({level:?}, {ending:?}): {}", steps.join(", "))
    }
}
