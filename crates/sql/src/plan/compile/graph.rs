//! Inner joins that hang together, taken apart: leaves, the keys they are joined by, conditions on several of them, and
//! the semi joins and anti joins that only take rows away.
//!
//! ```text
//!   Semi: o_orderkey in (big orders)                leaves    customer, orders, lineitem
//!     Join: o_orderkey = l_orderkey                 edges     c_custkey = o_custkey, o_orderkey = l_orderkey
//!       Join: c_custkey = o_custkey         ->      reducers  orders: o_orderkey in (big orders)
//!         customer
//!         orders
//!       lineitem
//! ```
//! A reducer whose keys belong to one leaf is applied to that leaf, before anything is joined with it. The order of the
//! joins is chosen in [`super::order`]; here they are put together again.

use std::collections::BTreeMap;

use eris_operators::JoinKind;
use eris_query::{self as query, ColumnId, Join, Relation, Scalar, Unplanned, columns_of};

use super::joins::{Matching, Sides};
use super::order::{LeafSet, Tree, best_order};
use super::stream::{Stream, placed};
use super::{Compiler, Lowering, Needed};

/// More leaves than a set of bits holds are left to a plan without reordering.
const LEAVES_MAX: usize = 64;

/// What hangs together.
#[derive(Default)]
struct Graph<'r> {
    leaves: Vec<&'r Relation>,
    edges: Vec<Edge<'r>>,
    conditions: Vec<Condition<'r>>,
    reducers: Vec<Reducer<'r>>,
    /// Which leaf yields a column.
    leaf_of: BTreeMap<ColumnId, usize>,
}

/// Two scalars that are equal in joined rows.
pub(super) struct Edge<'r> {
    pub a: &'r Scalar,
    pub b: &'r Scalar,
    pub a_leaves: LeafSet,
    pub b_leaves: LeafSet,
}

/// A condition on rows of several leaves: one that is true, or two values that are equal.
struct Condition<'r> {
    test: Test<'r>,
    leaves: LeafSet,
}

#[derive(Clone, Copy)]
enum Test<'r> {
    True(&'r Scalar),
    Equal(&'r Scalar, &'r Scalar),
}

impl<'r> Test<'r> {
    fn scalars(self) -> impl Iterator<Item = &'r Scalar> {
        let (one, other) = match self {
            Self::True(condition) => (condition, None),
            Self::Equal(one, other) => (one, Some(other)),
        };
        [one].into_iter().chain(other)
    }
}

/// A semi or anti join: only rows whose keys are there, or are not, stay.
struct Reducer<'r> {
    join: &'r Join,
    anti: bool,
    leaves: LeafSet,
}

impl<'r> Reducer<'r> {
    fn keys(&self) -> impl Iterator<Item = &'r Scalar> {
        self.join.keys.iter().map(|(key, _)| key)
    }

    fn others(&self) -> impl Iterator<Item = &'r Scalar> {
        self.join.keys.iter().map(|(_, other)| other)
    }
}

/// Whether a join only takes rows of its left side away, by keys.
fn is_reducer(join: &Join) -> bool {
    matches!(join.kind, query::JoinKind::Semi | query::JoinKind::Anti { null_aware: false })
        && join.condition.is_none()
        && !join.keys.is_empty()
        && join.keys.iter().all(|(key, _)| key.has_columns())
        && !join.null_equal
}

/// Whether a relation is made of inner joins, below what only takes rows away.
pub(super) fn has_inner_joins(relation: &Relation) -> bool {
    match relation {
        Relation::Join(join) if is_reducer(join) => has_inner_joins(&join.left),
        Relation::Join(join) => join.kind == query::JoinKind::Inner && !join.null_equal,
        Relation::Filter { input, .. } => has_inner_joins(input),
        _ => false,
    }
}

/// The parts in the order in which they are found.
#[derive(Default)]
struct Parts<'r> {
    pairs: Vec<&'r (Scalar, Scalar)>,
    conditions: Vec<&'r Scalar>,
    reducers: Vec<&'r Join>,
}

impl<'r> Graph<'r> {
    fn of(relation: &'r Relation, compiler: &mut Compiler<'_>) -> Lowering<Self> {
        let mut graph = Self::default();
        let mut parts = Parts::default();
        graph.collect(relation, &mut parts);
        if graph.leaves.len() > LEAVES_MAX {
            return Err(Unplanned(format!("a join of more than {LEAVES_MAX} tables")));
        }
        for (number, leaf) in graph.leaves.iter().enumerate() {
            graph.leaf_of.extend(leaf.columns().into_iter().map(|column| (column, number)));
        }
        for (a, b) in parts.pairs {
            compiler.ready([a, b])?;
            let (a_leaves, b_leaves) = (graph.leaves_of([a])?, graph.leaves_of([b])?);
            if a_leaves.is_empty() || b_leaves.is_empty() || a_leaves.meets(b_leaves) {
                graph.conditions.push(Condition { leaves: a_leaves.with(b_leaves), test: Test::Equal(a, b) });
            } else {
                graph.edges.push(Edge { a, b, a_leaves, b_leaves });
            }
        }
        for condition in parts.conditions {
            compiler.ready([condition])?;
            graph.conditions.push(Condition { leaves: graph.leaves_of([condition])?, test: Test::True(condition) });
        }
        for join in parts.reducers {
            let anti = matches!(join.kind, query::JoinKind::Anti { .. });
            let mut reducer = Reducer { join, anti, leaves: LeafSet::default() };
            compiler.ready(reducer.keys().chain(reducer.others()))?;
            reducer.leaves = graph.leaves_of(reducer.keys())?;
            graph.reducers.push(reducer);
        }
        Ok(graph)
    }

    fn collect(&mut self, relation: &'r Relation, parts: &mut Parts<'r>) {
        match relation {
            Relation::Join(join) if is_reducer(join) => {
                self.collect(&join.left, parts);
                parts.reducers.push(join);
            }
            Relation::Join(join) if has_inner_joins(relation) => {
                self.collect(&join.left, parts);
                self.collect(&join.right, parts);
                parts.pairs.extend(&join.keys);
                parts.conditions.extend(join.condition.iter().flat_map(Scalar::conjuncts));
            }
            Relation::Filter { input, condition } if has_inner_joins(relation) => {
                self.collect(input, parts);
                parts.conditions.extend(condition.conjuncts());
            }
            leaf => self.leaves.push(leaf),
        }
    }

    fn leaves_of<'s>(&self, scalars: impl IntoIterator<Item = &'s Scalar>) -> Lowering<LeafSet> {
        let mut leaves = LeafSet::default();
        for column in columns_of(scalars) {
            let leaf = self.leaf_of.get(&column);
            let leaf = leaf.ok_or_else(|| Unplanned(format!("column {} is elsewhere", column.0)))?;
            leaves = leaves.with(LeafSet::one(*leaf));
        }
        Ok(leaves)
    }

    /// Everything that joins and conditions refer to where two sets of leaves meet, or later.
    fn referred_from(&self, inside: LeafSet) -> Needed {
        let edges = self.edges.iter().filter(|edge| !inside.holds(edge.a_leaves.with(edge.b_leaves)));
        let conditions = self.conditions.iter().filter(|condition| !inside.holds(condition.leaves));
        let reducers = self.reducers.iter().filter(|reducer| !inside.holds(reducer.leaves));
        columns_of(
            edges
                .flat_map(|edge| [edge.a, edge.b])
                .chain(conditions.flat_map(|condition| condition.test.scalars()))
                .chain(reducers.flat_map(Reducer::keys)),
        )
    }

    /// Everything that joins and conditions refer to.
    fn referred(&self) -> Needed {
        let edges = self.edges.iter().flat_map(|edge| [edge.a, edge.b]);
        let conditions = self.conditions.iter().flat_map(|condition| condition.test.scalars());
        columns_of(edges.chain(conditions).chain(self.reducers.iter().flat_map(Reducer::keys)))
    }
}

impl Compiler<'_> {
    pub(super) fn inner_joins(&mut self, relation: &Relation, needed: &Needed) -> Lowering<Stream> {
        let graph = Graph::of(relation, self)?;
        let mut all = needed.clone();
        all.extend(graph.referred());
        let mut leaves = Vec::with_capacity(graph.leaves.len());
        for (number, leaf) in graph.leaves.iter().enumerate() {
            let own: Needed = all.iter().filter(|column| graph.leaf_of.get(column) == Some(&number)).copied().collect();
            let stream = self.stream(leaf, &own)?;
            leaves.push(self.reduced(&graph, stream, LeafSet::one(number), LeafSet::default(), LeafSet::default())?);
        }
        let tree = best_order(&leaves, &graph.edges, !self.statistics.is_empty());
        let mut leaves: Vec<Option<Stream>> = leaves.into_iter().map(Some).collect();
        self.joined(&graph, &tree, &mut leaves, needed)
    }

    /// A tree of joins as an open pipeline that goes through all builds on its way.
    fn joined(
        &mut self,
        graph: &Graph<'_>,
        tree: &Tree,
        leaves: &mut [Option<Stream>],
        wanted: &Needed,
    ) -> Lowering<Stream> {
        let (probe_tree, build_tree) = match tree {
            Tree::Leaf(number) => {
                let leaf = leaves[*number].take();
                return leaf.ok_or_else(|| Unplanned::because("a table is joined twice in one plan"));
            }
            Tree::Join { probe, build } => (probe, build),
        };
        let build = self.joined(graph, build_tree, leaves, wanted)?;
        let probe = self.joined(graph, probe_tree, leaves, wanted)?;
        let (probe_leaves, build_leaves) = (probe_tree.leaves(), build_tree.leaves());
        let both = probe_leaves.with(build_leaves);
        let is_due = |leaves: LeafSet| both.holds(leaves) && !probe_leaves.holds(leaves) && !build_leaves.holds(leaves);
        let (mut probe_keys, mut build_keys) = (Vec::new(), Vec::new());
        // Edges one end of which needs leaves of both sides: no keys of this join, and no later one sees them.
        let mut across = Vec::new();
        for edge in graph.edges.iter().filter(|edge| is_due(edge.a_leaves.with(edge.b_leaves))) {
            if probe_leaves.holds(edge.a_leaves) && build_leaves.holds(edge.b_leaves) {
                probe_keys.push(edge.a);
                build_keys.push(edge.b);
            } else if probe_leaves.holds(edge.b_leaves) && build_leaves.holds(edge.a_leaves) {
                probe_keys.push(edge.b);
                build_keys.push(edge.a);
            } else {
                across.push(Test::Equal(edge.a, edge.b));
            }
        }
        let matching = Matching {
            probe_keys: probe.lower_all(probe_keys)?,
            build_keys: build.lower_all(build_keys)?,
            residual: None,
            null_equal: false,
        };
        // What goes on: the result's columns, those of later joins, and those of conditions that are tested right here.
        let mut later = wanted.clone();
        later.extend(graph.referred_from(both));
        let here = graph.conditions.iter().filter(|condition| is_due(condition.leaves));
        later.extend(columns_of(
            here.map(|condition| condition.test).chain(across.iter().copied()).flat_map(Test::scalars),
        ));
        let here = graph.reducers.iter().filter(|reducer| is_due(reducer.leaves));
        later.extend(columns_of(here.flat_map(Reducer::keys)));
        let kept = |stream: &Stream| -> Vec<(usize, ColumnId)> {
            later.iter().filter_map(|column| Some((*stream.places.get(column)?, *column))).collect()
        };
        let (probe_kept, build_kept) = (kept(&probe), kept(&build));
        let columns: Vec<ColumnId> = probe_kept.iter().chain(&build_kept).map(|(_, column)| *column).collect();
        let sides = Sides {
            probe,
            build: &build,
            probe_kept: probe_kept.iter().map(|(place, _)| *place).collect(),
            build_kept: build_kept.iter().map(|(place, _)| *place).collect(),
        };
        let (mut stream, _) = self.probed(sides, &matching, JoinKind::Inner, false)?;
        stream.places = placed(columns);
        for test in across {
            stream = self.tested(stream, test)?;
        }
        self.reduced(graph, stream, both, probe_leaves, build_leaves)
    }

    fn tested(&self, stream: Stream, test: Test<'_>) -> Lowering<Stream> {
        match test {
            Test::True(condition) => self.filtered(stream, &[condition]),
            Test::Equal(one, other) => {
                let (left, right) = (Box::new(stream.lower(one)?), Box::new(stream.lower(other)?));
                let comparison = eris_storage::Comparison::Equal;
                Ok(self.filtered_by(stream, eris_operators::Expression::Compare { comparison, left, right }))
            }
        }
    }

    /// Applies conditions and reducers that can be tested on these leaves, and could not on either part of them.
    fn reduced(
        &mut self,
        graph: &Graph<'_>,
        mut stream: Stream,
        leaves: LeafSet,
        one: LeafSet,
        other: LeafSet,
    ) -> Lowering<Stream> {
        let is_due = |needed: LeafSet| {
            let earlier = !one.is_empty() && (one.holds(needed) || other.holds(needed));
            leaves.holds(needed) && !earlier
        };
        for condition in graph.conditions.iter().filter(|condition| is_due(condition.leaves)) {
            stream = self.tested(stream, condition.test)?;
        }
        for reducer in graph.reducers.iter().filter(|reducer| is_due(reducer.leaves)) {
            let build = self.stream(&reducer.join.right, &columns_of(reducer.others()))?;
            let matching = Matching {
                probe_keys: stream.lower_all(reducer.keys())?,
                build_keys: build.lower_all(reducer.others())?,
                residual: None,
                null_equal: false,
            };
            let places = stream.places.clone();
            let probe_kept: Vec<usize> = (0..stream.types.len()).collect();
            let sides = Sides { probe: stream, build: &build, probe_kept, build_kept: Vec::new() };
            let kind = if reducer.anti { JoinKind::Anti } else { JoinKind::Semi };
            (stream, _) = self.probed(sides, &matching, kind, false)?;
            stream.places = places;
        }
        Ok(stream)
    }
}
