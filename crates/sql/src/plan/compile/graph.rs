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

use datafusion::common::{Column, DFSchema, NullEquality};
use datafusion::logical_expr::utils::split_conjunction;
use datafusion::logical_expr::{Expr, Filter, Join, JoinType, LogicalPlan, Projection};
use eris_operators::JoinKind;

use super::joins::{Matching, Sides};
use super::order::{LeafSet, Tree, best_order};
use super::stream::{Stream, referred};
use super::{Compiler, Needed};
use crate::plan::lower::{Lowering, NotNative, lower_all};

/// More leaves than a set of bits holds are left to a plan without reordering.
const LEAVES_MAX: usize = 64;

/// What hangs together.
#[derive(Default)]
struct Parts<'p> {
    leaves: Vec<&'p LogicalPlan>,
    pairs: Vec<(&'p Expr, &'p Expr)>,
    conditions: Vec<&'p Expr>,
    reducers: Vec<&'p Join>,
}

/// Two expressions that are equal in joined rows.
pub(super) struct Edge {
    pub a: Expr,
    pub b: Expr,
    pub a_leaves: LeafSet,
    pub b_leaves: LeafSet,
}

/// A condition on rows of several leaves.
struct Condition {
    expr: Expr,
    leaves: LeafSet,
}

/// A semi or anti join: only rows whose keys are there, or are not, stay.
struct Reducer<'p> {
    plan: &'p LogicalPlan,
    keys: Vec<Expr>,
    plan_keys: Vec<Expr>,
    anti: bool,
    leaves: LeafSet,
}

struct Graph<'p> {
    /// All leaves' columns, one leaf behind the other.
    schema: DFSchema,
    offsets: Vec<usize>,
    leaves: Vec<&'p LogicalPlan>,
    edges: Vec<Edge>,
    conditions: Vec<Condition>,
    reducers: Vec<Reducer<'p>>,
}

/// Whether a join only takes rows of its left side away, by keys.
fn is_reducer(join: &Join) -> bool {
    matches!(join.join_type, JoinType::LeftSemi | JoinType::LeftAnti)
        && !join.null_aware
        && join.filter.is_none()
        && !join.on.is_empty()
        && join.null_equality == NullEquality::NullEqualsNothing
}

/// Whether a plan is made of inner joins, below what only takes columns or rows away.
pub(super) fn has_inner_joins(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Join(join) if is_reducer(join) => has_inner_joins(&join.left),
        LogicalPlan::Join(join) => {
            join.join_type == JoinType::Inner && join.null_equality == NullEquality::NullEqualsNothing
        }
        LogicalPlan::Projection(projection) if only_columns(projection) => has_inner_joins(&projection.input),
        LogicalPlan::Filter(filter) => has_inner_joins(&filter.input),
        _ => false,
    }
}

fn only_columns(projection: &Projection) -> bool {
    projection.expr.iter().all(|expr| matches!(expr, Expr::Column(_)))
}

fn collect<'p>(plan: &'p LogicalPlan, parts: &mut Parts<'p>) {
    match plan {
        LogicalPlan::Join(join) if is_reducer(join) => {
            collect(&join.left, parts);
            parts.reducers.push(join);
        }
        LogicalPlan::Join(join) if has_inner_joins(plan) => {
            collect(&join.left, parts);
            collect(&join.right, parts);
            parts.pairs.extend(join.on.iter().map(|(a, b)| (a, b)));
            parts.conditions.extend(join.filter.iter().flat_map(split_conjunction));
        }
        LogicalPlan::Projection(projection) if has_inner_joins(plan) => collect(&projection.input, parts),
        LogicalPlan::Filter(Filter { predicate, input, .. }) if has_inner_joins(plan) => {
            collect(input, parts);
            parts.conditions.extend(split_conjunction(predicate));
        }
        leaf => parts.leaves.push(leaf),
    }
}

impl<'p> Graph<'p> {
    fn of(plan: &'p LogicalPlan, compiler: &mut Compiler<'_>) -> Lowering<Self> {
        let mut parts = Parts::default();
        collect(plan, &mut parts);
        if parts.leaves.len() > LEAVES_MAX {
            return Err(NotNative(format!("a join of more than {LEAVES_MAX} tables")));
        }
        let mut schema = DFSchema::empty();
        let mut offsets = Vec::with_capacity(parts.leaves.len());
        for leaf in &parts.leaves {
            offsets.push(schema.fields().len());
            schema = schema.join(leaf.schema()).map_err(NotNative::because)?;
        }
        let mut graph = Self {
            schema,
            offsets,
            leaves: parts.leaves,
            edges: Vec::new(),
            conditions: Vec::new(),
            reducers: Vec::new(),
        };
        for (a, b) in parts.pairs {
            let (a, b) = (compiler.without_subqueries(a)?, compiler.without_subqueries(b)?);
            let (a_leaves, b_leaves) = (graph.leaves_of([&a])?, graph.leaves_of([&b])?);
            if a_leaves.is_empty() || b_leaves.is_empty() || a_leaves.meets(b_leaves) {
                let expr = a.eq(b);
                graph.conditions.push(Condition { leaves: a_leaves.with(b_leaves), expr });
            } else {
                graph.edges.push(Edge { a, b, a_leaves, b_leaves });
            }
        }
        for condition in parts.conditions {
            let expr = compiler.without_subqueries(condition)?;
            graph.conditions.push(Condition { leaves: graph.leaves_of([&expr])?, expr });
        }
        for join in parts.reducers {
            let mut keys = Vec::new();
            let mut plan_keys = Vec::new();
            for (key, plan_key) in &join.on {
                keys.push(compiler.without_subqueries(key)?);
                plan_keys.push(compiler.without_subqueries(plan_key)?);
            }
            let leaves = graph.leaves_of(&keys)?;
            let anti = join.join_type == JoinType::LeftAnti;
            graph.reducers.push(Reducer { plan: &join.right, keys, plan_keys, anti, leaves });
        }
        Ok(graph)
    }

    fn leaf_of(&self, position: usize) -> usize {
        self.offsets.partition_point(|offset| *offset <= position) - 1
    }

    fn leaves_of<'e>(&self, exprs: impl IntoIterator<Item = &'e Expr>) -> Lowering<LeafSet> {
        let positions = referred(exprs, &self.schema)?;
        Ok(positions
            .into_iter()
            .fold(LeafSet::default(), |set, position| set.with(LeafSet::one(self.leaf_of(position)))))
    }

    /// Everything that joins and conditions refer to.
    fn referred(&self) -> Lowering<Needed> {
        let edges = self.edges.iter().flat_map(|edge| [&edge.a, &edge.b]);
        let conditions = self.conditions.iter().map(|condition| &condition.expr);
        referred(edges.chain(conditions).chain(self.reducers.iter().flat_map(|reducer| &reducer.keys)), &self.schema)
    }

    /// What is referred to where two sets of leaves meet, or later.
    fn referred_from(&self, inside: LeafSet) -> Lowering<Needed> {
        let edges = self.edges.iter().filter(|edge| !inside.holds(edge.a_leaves.with(edge.b_leaves)));
        let conditions = self.conditions.iter().filter(|condition| !inside.holds(condition.leaves));
        let reducers = self.reducers.iter().filter(|reducer| !inside.holds(reducer.leaves));
        referred(
            edges
                .flat_map(|edge| [&edge.a, &edge.b])
                .chain(conditions.map(|condition| &condition.expr))
                .chain(reducers.flat_map(|reducer| &reducer.keys)),
            &self.schema,
        )
    }
}

impl Compiler<'_> {
    pub(super) fn inner_joins(&mut self, plan: &LogicalPlan, needed: &Needed) -> Lowering<Stream> {
        let graph = Graph::of(plan, self)?;
        let mut wanted = Needed::new();
        let mut places = Vec::with_capacity(needed.len());
        for position in needed {
            let column = Column::from(plan.schema().qualified_field(*position));
            let place = graph.schema.maybe_index_of_column(&column);
            let place = place.ok_or_else(|| NotNative(format!("column {column} is elsewhere")))?;
            wanted.insert(place);
            places.push((*position, place));
        }
        let mut all = wanted.clone();
        all.extend(graph.referred()?);
        let mut leaves = Vec::with_capacity(graph.leaves.len());
        for (number, leaf) in graph.leaves.iter().enumerate() {
            let (offset, width) = (graph.offsets[number], leaf.schema().fields().len());
            let own: Needed =
                all.iter().filter(|at| (offset..offset + width).contains(at)).map(|at| at - offset).collect();
            let mut stream = self.stream(leaf, &own)?;
            let mut columns = vec![None; graph.schema.fields().len()];
            columns[offset..offset + width].copy_from_slice(&stream.columns);
            stream.columns = columns;
            leaves.push(self.reduced(&graph, stream, LeafSet::one(number), LeafSet::default(), LeafSet::default())?);
        }
        let estimates: Vec<_> = leaves.iter().map(|leaf| (&leaf.estimate, &*leaf.columns)).collect();
        let tree = best_order(&estimates, &graph.edges, &graph.schema);
        let mut leaves: Vec<Option<Stream>> = leaves.into_iter().map(Some).collect();
        let mut stream = self.joined(&graph, &tree, &mut leaves, &wanted)?;
        let mut columns = vec![None; plan.schema().fields().len()];
        for (position, place) in places {
            columns[position] = Some(stream.column(place)?);
        }
        stream.columns = columns;
        Ok(stream)
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
                return leaf.ok_or_else(|| NotNative("a table is joined twice in one plan".to_string()));
            }
            Tree::Join { probe, build } => (probe, build),
        };
        let build = self.joined(graph, build_tree, leaves, wanted)?;
        let probe = self.joined(graph, probe_tree, leaves, wanted)?;
        let (probe_leaves, build_leaves) = (probe_tree.leaves(), build_tree.leaves());
        let both = probe_leaves.with(build_leaves);
        let is_due = |leaves: LeafSet| both.holds(leaves) && !probe_leaves.holds(leaves) && !build_leaves.holds(leaves);
        let mut probe_exprs = Vec::new();
        let mut build_exprs = Vec::new();
        // Edges one end of which needs leaves of both sides: no keys of this join, and no later one sees them.
        let mut across = Vec::new();
        for edge in graph.edges.iter().filter(|edge| is_due(edge.a_leaves.with(edge.b_leaves))) {
            if probe_leaves.holds(edge.a_leaves) && build_leaves.holds(edge.b_leaves) {
                probe_exprs.push(&edge.a);
                build_exprs.push(&edge.b);
            } else if probe_leaves.holds(edge.b_leaves) && build_leaves.holds(edge.a_leaves) {
                probe_exprs.push(&edge.b);
                build_exprs.push(&edge.a);
            } else {
                across.push(edge.a.clone().eq(edge.b.clone()));
            }
        }
        let matching = Matching {
            probe_keys: lower_all(probe_exprs, Stream::scope(&graph.schema, &probe.columns))?,
            build_keys: lower_all(build_exprs, Stream::scope(&graph.schema, &build.columns))?,
            residual: None,
            null_equal: false,
        };
        // What goes on: the result's columns, those of later joins, and those of conditions that are tested right here.
        let mut later = wanted.clone();
        later.extend(graph.referred_from(both)?);
        let here = graph.conditions.iter().filter(|condition| is_due(condition.leaves));
        later.extend(referred(here.map(|condition| &condition.expr).chain(&across), &graph.schema)?);
        let here = graph.reducers.iter().filter(|reducer| is_due(reducer.leaves));
        later.extend(referred(here.flat_map(|reducer| &reducer.keys), &graph.schema)?);
        let kept = |stream: &Stream| -> Vec<(usize, usize)> {
            later.iter().filter_map(|place| Some((stream.columns[*place]?, *place))).collect()
        };
        let (probe_kept, build_kept) = (kept(&probe), kept(&build));
        let positions: Vec<usize> = probe_kept.iter().chain(&build_kept).map(|(_, place)| *place).collect();
        let sides = Sides {
            probe,
            build: &build,
            probe_kept: probe_kept.iter().map(|(column, _)| *column).collect(),
            build_kept: build_kept.iter().map(|(column, _)| *column).collect(),
        };
        let (mut stream, _) = self.probed(sides, &matching, JoinKind::Inner, false)?;
        stream.place(&positions, graph.schema.fields().len());
        for condition in &across {
            stream = self.filtered(stream, condition, &graph.schema)?;
        }
        self.reduced(graph, stream, both, probe_leaves, build_leaves)
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
            stream = self.filtered(stream, &condition.expr, &graph.schema)?;
        }
        for reducer in graph.reducers.iter().filter(|reducer| is_due(reducer.leaves)) {
            let schema = reducer.plan.schema();
            let build = self.stream(reducer.plan, &referred(&reducer.plan_keys, schema)?)?;
            let matching = Matching {
                probe_keys: lower_all(&reducer.keys, Stream::scope(&graph.schema, &stream.columns))?,
                build_keys: lower_all(&reducer.plan_keys, Stream::scope(schema, &build.columns))?,
                residual: None,
                null_equal: false,
            };
            let columns = stream.columns.clone();
            let probe_kept: Vec<usize> = (0..stream.types.len()).collect();
            let sides = Sides { probe: stream, build: &build, probe_kept, build_kept: Vec::new() };
            let kind = if reducer.anti { JoinKind::Anti } else { JoinKind::Semi };
            (stream, _) = self.probed(sides, &matching, kind, false)?;
            stream.columns = columns;
        }
        Ok(stream)
    }
}
