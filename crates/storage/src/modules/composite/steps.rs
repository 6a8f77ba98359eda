//! How a filter is carried out in one layout: compiled once per layout and shape of the filter, and kept.
//!
//! ```text
//!   conditions, in the plan's order     a < 7    c = 'x'    b > 2    a = d
//!   members                             0: a b   1: c d
//!   steps                               member 0: a < 7, b > 2    member 1: c = 'x'    across: a = d
//! ```
//! The first condition decides the first member, which tests all it can; so goes it on. A scan begins where the first
//! condition's attribute lies most densely, because every row of the window is looked at; rows that are left, or that
//! were listed from the beginning, are tested where most conditions are answered together, because each is a cache
//! line or two. Comparisons of attributes that no member holds together come last. A step depends on which attributes
//! are compared, not with what.

use super::Route;
use super::member::Member;
use crate::ids::AttributeId;
use crate::modules::PathFilter;
use crate::physical::PhysicalLayout;
use crate::predicate::{Condition, Test};

/// The attributes of a condition.
pub(super) type ConditionShape = (AttributeId, Option<AttributeId>);

/// Filters kept at most: the shapes that a partition sees again and again, times its layouts.
const FILTERS_MAX: usize = 16;

/// One step of a filter.
#[derive(Debug)]
pub(super) enum Step {
    /// A member tests the conditions at these positions.
    Member { member: u8, selected: Box<[u16]> },
    /// The condition at this position compares attributes of different members.
    Across(u16),
}

/// Filters compiled lately.
#[derive(Debug, Default)]
pub(super) struct CompiledFilters {
    filters: Vec<CompiledFilter>,
}

#[derive(Debug)]
struct CompiledFilter {
    layout: PhysicalLayout,
    scans: bool,
    /// Each selected condition's attributes and position.
    shapes: Box<[(ConditionShape, u16)]>,
    steps: Box<[Step]>,
}

pub(super) fn shape_of(condition: &Condition) -> ConditionShape {
    let other = match &condition.test {
        Test::CompareAttribute(_, other) => Some(*other),
        Test::Compare(..) | Test::In(_) | Test::IsNull | Test::IsNotNull | Test::StartsWith(_) => None,
    };
    (condition.attribute, other)
}

impl CompiledFilters {
    /// The steps of a filter in a layout, over a window if it scans, else of listed rows; compiled if it was not met
    /// lately.
    pub(super) fn steps(
        &mut self,
        layout: &PhysicalLayout,
        scans: bool,
        filter: PathFilter<'_>,
        compile: impl FnOnce(&[(ConditionShape, u16)]) -> Box<[Step]>,
    ) -> &[Step] {
        let shapes = || filter.iter().map(shape_of).zip(filter.selected.iter().copied());
        let known = |known: &CompiledFilter| {
            // The filter holds the layout, so the same address is the same layout.
            known.layout.is_same(layout)
                && known.scans == scans
                && known.shapes.len() == filter.selected.len()
                && known.shapes.iter().copied().eq(shapes())
        };
        let known = self.filters.iter().position(known);
        let position = known.unwrap_or_else(|| {
            if self.filters.len() == FILTERS_MAX {
                self.filters.remove(0);
            }
            let shapes: Box<[_]> = shapes().collect();
            let steps = compile(&shapes);
            self.filters.push(CompiledFilter { layout: layout.clone(), scans, shapes, steps });
            self.filters.len() - 1
        });
        &self.filters[position].steps
    }
}

/// Compiles a filter, over a window if it `scans`.
pub(super) fn compile(
    shapes: &[(ConditionShape, u16)],
    scans: bool,
    members: &[Member],
    routes: &[Route],
) -> Box<[Step]> {
    let mut left = shapes.to_vec();
    let mut steps = Vec::new();
    loop {
        let dense = scans && steps.is_empty();
        let found = left.iter().find_map(|(first, _)| best_member(*first, dense, &left, members, routes));
        let Some(member) = found else { break };
        let tests = |shape: &ConditionShape| members[usize::from(member)].can_test(*shape);
        let selected = left.iter().filter(|(shape, _)| tests(shape)).map(|(_, position)| *position).collect();
        steps.push(Step::Member { member, selected });
        left.retain(|(shape, _)| !tests(shape));
    }
    steps.extend(left.into_iter().map(|(_, position)| Step::Across(position)));
    steps.into()
}

/// The member that can test a condition and most of those that are left beside it, the densest among equals; if
/// `dense`, the densest of all.
fn best_member(
    first: ConditionShape,
    dense: bool,
    left: &[(ConditionShape, u16)],
    members: &[Member],
    routes: &[Route],
) -> Option<u8> {
    let mut best: Option<(u8, usize)> = None;
    for holder in routes[first.0.index()].holders.iter().copied() {
        let member = &members[usize::from(holder)];
        if dense && member.can_test(first) {
            return Some(holder);
        }
        let covered = left.iter().filter(|(shape, _)| member.can_test(*shape)).count();
        if member.can_test(first) && best.is_none_or(|(_, most)| covered > most) {
            best = Some((holder, covered));
        }
    }
    best.map(|(member, _)| member)
}
