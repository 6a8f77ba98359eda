//! The graph of dependencies, and the shortest cycle in it that no level of isolation allows.

use std::collections::VecDeque;

/// How one transaction depends on another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    WriteWrite,
    WriteRead,
    ReadWrite,
    RealTime,
}

impl Kind {
    pub fn describe(self, key: i64) -> String {
        match self {
            Self::WriteWrite => format!("-ww-> appends to list {key} behind it"),
            Self::WriteRead => format!("-wr-> reads that from list {key}"),
            Self::ReadWrite => format!("-rw-> appends to list {key} what was not seen"),
            Self::RealTime => "-rt-> begins later".to_owned(),
        }
    }
}

/// One dependency.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Edge {
    pub from: usize,
    pub to: usize,
    pub kind: Kind,
    pub key: i64,
}

/// Transactions, moments between them, and what depends on what.
pub struct Graph {
    nodes: usize,
    edges: Vec<Edge>,
}

/// What a search follows, and what a cycle of that is called.
const SEARCHES: [(&str, &[Kind]); 5] = [
    ("G0, a cycle of writes", &[Kind::WriteWrite]),
    ("G1c, a cycle of what was seen", &[Kind::WriteWrite, Kind::WriteRead]),
    ("G1c in real time", &[Kind::WriteWrite, Kind::WriteRead, Kind::RealTime]),
    ("", &[Kind::WriteWrite, Kind::WriteRead, Kind::ReadWrite]),
    ("a stale snapshot", &[Kind::WriteWrite, Kind::WriteRead, Kind::ReadWrite, Kind::RealTime]),
];

impl Graph {
    pub fn new(transactions: usize) -> Self {
        Self { nodes: transactions, edges: Vec::new() }
    }

    /// A node that is no transaction.
    pub fn add_moment(&mut self) -> usize {
        self.nodes += 1;
        self.nodes - 1
    }

    pub fn add(&mut self, edge: Edge) {
        self.edges.push(edge);
    }

    /// The name of what is wrong, and the shortest cycle of its kind.
    pub fn forbidden_cycle(&self) -> Option<(&'static str, Vec<Edge>)> {
        SEARCHES.iter().find_map(|(name, kinds)| {
            let cycle = Search::new(self, kinds).shortest_cycle()?;
            Some((if name.is_empty() { name_of(&cycle) } else { name }, cycle))
        })
    }

    /// The shortest cycle of whatever edges.
    pub fn any_cycle(&self) -> Option<Vec<Edge>> {
        Search::of_all(self).shortest_cycle()
    }
}

/// What a cycle with rw edges, no two of them in a row, is called.
fn name_of(cycle: &[Edge]) -> &'static str {
    let anti = cycle.iter().filter(|edge| edge.kind == Kind::ReadWrite).count();
    let same_key = cycle.iter().all(|edge| edge.key == cycle[0].key);
    let writes = cycle.iter().any(|edge| edge.kind == Kind::WriteWrite);
    match (anti, cycle.len()) {
        (1, 2) if same_key && writes => "lost update",
        (1, _) => "G-single, read skew",
        _ => "G-nonadjacent, snapshots that contradict each other",
    }
}

/// The product of nodes and "the last edge was rw": state 2n is node n, 2n + 1 is node n entered by rw.
struct Search {
    out: Vec<Vec<(usize, Edge)>>,
}

impl Search {
    fn new(graph: &Graph, kinds: &[Kind]) -> Self {
        let mut out = vec![Vec::new(); 2 * graph.nodes];
        for edge in graph.edges.iter().filter(|edge| kinds.contains(&edge.kind)) {
            if edge.kind == Kind::ReadWrite {
                out[2 * edge.from].push((2 * edge.to + 1, *edge));
            } else {
                out[2 * edge.from].push((2 * edge.to, *edge));
                out[2 * edge.from + 1].push((2 * edge.to, *edge));
            }
        }
        Self { out }
    }

    /// Of all edges, in whatever order: nodes are in their first state only.
    fn of_all(graph: &Graph) -> Self {
        let mut out = vec![Vec::new(); 2 * graph.nodes];
        for edge in &graph.edges {
            out[2 * edge.from].push((2 * edge.to, *edge));
        }
        Self { out }
    }

    /// States that remain when all that nothing remaining leads to are taken away: empty if there is no cycle.
    fn remaining(&self) -> Vec<bool> {
        let mut entries = vec![0; self.out.len()];
        for (to, _) in self.out.iter().flatten() {
            entries[*to] += 1;
        }
        let mut remains = vec![true; self.out.len()];
        let mut free: Vec<usize> = (0..self.out.len()).filter(|state| entries[*state] == 0).collect();
        while let Some(state) = free.pop() {
            remains[state] = false;
            for (to, _) in &self.out[state] {
                entries[*to] -= 1;
                if entries[*to] == 0 {
                    free.push(*to);
                }
            }
        }
        remains
    }

    fn shortest_cycle(&self) -> Option<Vec<Edge>> {
        let remains = self.remaining();
        let starts = (0..self.out.len()).filter(|state| remains[*state]);
        starts.filter_map(|start| self.cycle_through(start, &remains)).min_by_key(Vec::len)
    }

    /// The shortest way from a state back to it.
    fn cycle_through(&self, start: usize, remains: &[bool]) -> Option<Vec<Edge>> {
        let mut came: Vec<Option<(usize, Edge)>> = vec![None; self.out.len()];
        let mut queue = VecDeque::from([start]);
        while let Some(state) = queue.pop_front() {
            for (to, edge) in self.out[state].iter().filter(|(to, _)| remains[*to]) {
                if came[*to].is_some() {
                    continue;
                }
                came[*to] = Some((state, *edge));
                if *to == start {
                    return Some(way_back(start, &came));
                }
                queue.push_back(*to);
            }
        }
        None
    }
}

fn way_back(start: usize, came: &[Option<(usize, Edge)>]) -> Vec<Edge> {
    let mut cycle = Vec::new();
    let mut at = start;
    while let Some((before, edge)) = came[at] {
        cycle.push(edge);
        at = before;
        if at == start {
            break;
        }
    }
    cycle.reverse();
    cycle
}
