//! The order of inner joins: the cheapest tree over all ways to divide the leaves, by dynamic programming over their
//! sets; for many leaves the pair with the smallest result, again and again.
//!
//! The cost of a join is what its build side costs to build, what its probe side costs to look up (more when the built
//! side does not fit into caches, or keys have several parts and have to be hashed) and what it gives on, of which the
//! built side's columns are fetched from all over memory. How many rows a set of leaves gives does not depend on the
//! order in which they are joined.

use eris_query::Scalar;

use super::estimate::{Estimate, share_of_pairs};
use super::graph::Edge;
use super::stream::Stream;

/// Leaves by number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LeafSet(u64);

impl LeafSet {
    pub fn one(leaf: usize) -> Self {
        Self(1 << leaf)
    }

    pub fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub fn meets(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Whether all of the other's leaves are here.
    pub fn holds(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    pub fn is_empty(self) -> bool {
        self.0 == 0
    }
}

/// Joins as a tree. The probe sides of a path are one pipeline.
#[derive(Clone, Debug)]
pub(super) enum Tree {
    Leaf(usize),
    Join { probe: Box<Tree>, build: Box<Tree> },
}

impl Tree {
    pub fn leaves(&self) -> LeafSet {
        match self {
            Self::Leaf(leaf) => LeafSet::one(*leaf),
            Self::Join { probe, build } => probe.leaves().with(build.leaves()),
        }
    }
}

/// Sets of so many leaves are gone through completely: three to that power divisions.
const EXHAUSTIVE_MAX: usize = 10;
/// Costs, in about a nanosecond: a row that is built, looked up, or given on.
pub(super) const BUILD_COST: f64 = 4.0;
const PROBE_COST: f64 = 1.0;
/// A column of a row that is built.
const COLUMN_COST: f64 = 1.0;
const OUTPUT_COST: f64 = 1.0;
/// Build sides of so many rows are in the second cache; beyond it a probe costs more, up to a memory access.
const CACHED_ROWS: f64 = 32_768.0;
const PROBE_COST_MAX: f64 = 6.0;

/// How much more a probe costs by keys of several parts: mostly they are hashed, and compared one by one. This and the
/// costs of fetching are fitted to the two orders in which TPC-H's Q9 joins partsupp.
const HASHED_PROBE: f64 = 4.0;
/// What it costs to fetch a built row's column: in the cache, and how much more with each doubling beyond it.
const FETCH_COST: f64 = 0.5;
const FETCH_COST_SLOPE: f64 = 0.3;
const FETCH_COST_MAX: f64 = 3.0;

/// What it costs to look a row up in a build side of so many rows.
pub(super) fn probe_cost(build_rows: f64) -> f64 {
    (build_rows / CACHED_ROWS).max(1.0).log2().mul_add(0.8, PROBE_COST).min(PROBE_COST_MAX)
}

fn fetch_cost(build_rows: f64) -> f64 {
    (build_rows / CACHED_ROWS).max(1.0).log2().mul_add(FETCH_COST_SLOPE, FETCH_COST).min(FETCH_COST_MAX)
}

/// A pair of sides without a key between them.
const CROSS_PENALTY: f64 = 1e3;

struct Sets {
    rows: Vec<f64>,
    /// Columns of each leaf.
    widths: Vec<usize>,
    edges: Vec<Link>,
    count: usize,
}

/// All edges between two sets of leaves.
struct Link {
    one: LeafSet,
    other: LeafSet,
    /// What they keep of all pairs.
    share: f64,
    /// How many there are: the parts of a key.
    keys: usize,
}

impl Link {
    /// Whether it leads from one set to the other.
    fn joins(&self, one: LeafSet, other: LeafSet) -> bool {
        (one.holds(self.one) && other.holds(self.other)) || (one.holds(self.other) && other.holds(self.one))
    }
}

/// The tree with the lowest cost. Where nothing is known of tables, any will do.
pub(super) fn best_order(leaves: &[Stream], edges: &[Edge<'_>], is_known: bool) -> Tree {
    let sets = Sets {
        rows: leaves.iter().map(|leaf| leaf.estimate.rows.max(1.0)).collect(),
        widths: leaves.iter().map(|leaf| leaf.places.len()).collect(),
        edges: edge_shares(leaves, edges),
        count: leaves.len(),
    };
    if is_known && leaves.len() <= EXHAUSTIVE_MAX { sets.exhaustive() } else { sets.greedy() }
}

/// Edges between the same two leaves are judged together.
fn edge_shares(leaves: &[Stream], edges: &[Edge<'_>]) -> Vec<Link> {
    let estimate = |leaf: usize| -> &Estimate { &leaves[leaf].estimate };
    let mut shares: Vec<Link> = Vec::new();
    let mut seen: Vec<(LeafSet, LeafSet)> = Vec::new();
    for edge in edges {
        let (one, other) = if edge.a_leaves.0 <= edge.b_leaves.0 {
            (edge.a_leaves, edge.b_leaves)
        } else {
            (edge.b_leaves, edge.a_leaves)
        };
        if seen.contains(&(one, other)) {
            continue;
        }
        seen.push((one, other));
        let (a, b) = (one.0.trailing_zeros() as usize, other.0.trailing_zeros() as usize);
        let single = one.0.is_power_of_two() && other.0.is_power_of_two();
        let mut pairs = Vec::new();
        let (mut computed, mut keys) = (0, 0);
        for same in edges.iter().filter(|same| {
            (same.a_leaves, same.b_leaves) == (one, other) || (same.b_leaves, same.a_leaves) == (one, other)
        }) {
            keys += 1;
            let (left, right) = if same.a_leaves == one { (&same.a, &same.b) } else { (&same.b, &same.a) };
            let place = |key: &Scalar, leaf: usize| leaves[leaf].places.get(&key.as_column()?).copied();
            match (place(left, a), place(right, b)) {
                (Some(left), Some(right)) if single => pairs.push((left, right)),
                _ => computed += 1,
            }
        }
        let share = if single { share_of_pairs(estimate(a), estimate(b), &pairs) } else { 1.0 };
        shares.push(Link { one, other, share: share * 0.01_f64.powi(computed), keys });
    }
    shares
}

impl Sets {
    fn rows_of(&self, set: LeafSet) -> f64 {
        let all: f64 =
            (0..self.count).filter(|leaf| set.holds(LeafSet::one(*leaf))).map(|leaf| self.rows[leaf]).product();
        let share: f64 =
            self.edges.iter().filter(|link| set.holds(link.one.with(link.other))).map(|link| link.share).product();
        (all * share).max(1.0)
    }

    fn is_connected(&self, one: LeafSet, other: LeafSet) -> bool {
        self.edges.iter().any(|link| link.joins(one, other))
    }

    /// The cost of one join, and whether the first side is the one to build.
    fn join_cost(&self, one: LeafSet, other: LeafSet, rows: (f64, f64), result: f64) -> (f64, bool) {
        let keys: usize = self.edges.iter().filter(|link| link.joins(one, other)).map(|link| link.keys).sum();
        let hashed = if keys > 1 { HASHED_PROBE } else { 1.0 };
        let way = |built: LeafSet, build: f64, probe: f64| {
            let columns: usize =
                (0..self.count).filter(|leaf| built.holds(LeafSet::one(*leaf))).map(|leaf| self.widths[leaf]).sum();
            build * COLUMN_COST.mul_add(columns as f64, BUILD_COST)
                + probe * probe_cost(build) * hashed
                + result * columns as f64 * fetch_cost(build)
        };
        let (first, second) = (way(one, rows.0, rows.1), way(other, rows.1, rows.0));
        let cost = first.min(second) + result * OUTPUT_COST;
        let cost = if self.is_connected(one, other) { cost } else { cost * CROSS_PENALTY };
        (cost, first < second)
    }

    fn exhaustive(&self) -> Tree {
        let full = (1_u64 << self.count) - 1;
        let rows: Vec<f64> = (0..=full).map(|set| if set == 0 { 0.0 } else { self.rows_of(LeafSet(set)) }).collect();
        // By set: the cost, the part that is built and the part that is probed.
        let mut best: Vec<(f64, u64, u64)> = vec![(f64::INFINITY, 0, 0); full as usize + 1];
        for set in 1..=full {
            if set.is_power_of_two() {
                best[set as usize].0 = 0.0;
                continue;
            }
            let mut part = (set - 1) & set;
            while part > 0 {
                let rest = set ^ part;
                // Each division once.
                if part < rest {
                    let below = best[part as usize].0 + best[rest as usize].0;
                    let sides = (rows[part as usize], rows[rest as usize]);
                    let (cost, first) = self.join_cost(LeafSet(part), LeafSet(rest), sides, rows[set as usize]);
                    if below + cost < best[set as usize].0 {
                        let (build, probe) = if first { (part, rest) } else { (rest, part) };
                        best[set as usize] = (below + cost, build, probe);
                    }
                }
                part = (part - 1) & set;
            }
        }
        tree_of(full, &best)
    }

    fn greedy(&self) -> Tree {
        let mut trees: Vec<Tree> = (0..self.count).map(Tree::Leaf).collect();
        while trees.len() > 1 {
            let mut chosen = (f64::INFINITY, 0, 1, false);
            for one in 0..trees.len() {
                for other in one + 1..trees.len() {
                    let (a, b) = (trees[one].leaves(), trees[other].leaves());
                    let rows = (self.rows_of(a), self.rows_of(b));
                    let result = self.rows_of(a.with(b));
                    let (_, first) = self.join_cost(a, b, rows, result);
                    let weight = if self.is_connected(a, b) { result } else { result * CROSS_PENALTY };
                    if weight < chosen.0 {
                        chosen = (weight, one, other, first);
                    }
                }
            }
            let (_, one, other, first) = chosen;
            let second = trees.swap_remove(other);
            let chosen = std::mem::replace(&mut trees[one], Tree::Leaf(0));
            let (build, probe) = if first { (chosen, second) } else { (second, chosen) };
            trees[one] = Tree::Join { probe: Box::new(probe), build: Box::new(build) };
        }
        trees.swap_remove(0)
    }
}

fn tree_of(set: u64, best: &[(f64, u64, u64)]) -> Tree {
    if set.is_power_of_two() {
        return Tree::Leaf(set.trailing_zeros() as usize);
    }
    let (_, build, probe) = best[set as usize];
    Tree::Join { probe: Box::new(tree_of(probe, best)), build: Box::new(tree_of(build, best)) }
}
