//! The cross-world store of one segment: several access paths, each holding some attributes of the same rows, behind
//! the interface of one (004, section 5.2.3).
//!
//! ```text
//!   offset      0     1     2     3               the direct address, common to all
//!   column      a0    a1    a2    a3              direct world: addressed by offset
//!   linkage     2     0     0     1               handles of the path below, one per row
//!                \_____________\_____\
//!   row sparse  [0: all NULL] [1: b3 c3] [2: b0 c0]     indirect world: addressed by its own handles
//! ```
//! A scan tests its conditions path by path: the first conditions decide the first path, which tests all it can over
//! the window; what qualifies is passed to the next. An attribute held twice is scanned and read in long runs where it
//! lies most densely, and read for few rows where it lies beside most others. A condition that compares attributes
//! which no path holds together is tested last, on linked values.
//!
//! The backlink of the indirect world, from a handle to its rows, is not stored: such a path is never scanned first, but
//! asked about the handles of rows.
//!
//! An insert that fails after some paths have taken the rows leaves the composite closed: the surplus rows lie behind
//! those it counts, nobody reads them, and the partition begins another segment.

use super::filter::{compare_columns, mask_retain};
use super::{AccessPath, AccessPathScanState, PathAttribute, PathConfiguration, PathFilter, Registry};
use crate::batch::{Batch, Column, ColumnBuilder, RowsOf};
use crate::error::StorageError;
use crate::ids::AttributeId;
use crate::physical::PhysicalLayout;
use crate::predicate::{Comparison, Condition, Test};
use eris_platform::memory::{MemoryPool, Reservation};
use std::ops::Range;
use std::sync::Arc;

/// What [`AccessPath::module`] says of several paths together.
pub const COMPOSITE: &str = "composite";

/// From this many rows on an attribute that is held twice is read where it lies most densely: then cache lines are
/// shared by its own values, below by the other attributes of a row.
const DENSE_ROWS_MIN: usize = 64;

/// Rows up to which handles are looked up without a heap allocation.
const HANDLES_INLINE: usize = 16;

/// Rows for which room is made at first in a linkage attribute.
const LINKAGE_ROWS_FIRST: usize = 64;

/// Lists that a scan needs, kept between calls.
#[derive(Debug, Default)]
pub(crate) struct CompositeScratch {
    left: Vec<u16>,
    taken: Vec<u16>,
    handles: Vec<u32>,
}

/// A new path for rows of a layout that was checked; a single member that is addressed by offset stands for itself.
///
/// # Panics
/// If the layout was not checked against these attributes and modules.
pub(crate) fn layout_path(
    layout: &PhysicalLayout,
    attributes: &[PathAttribute],
    rows_max: u32,
    modules: &Registry,
    memory: &Arc<MemoryPool>,
) -> Box<dyn AccessPath> {
    let create = |module: &str, ids: &[AttributeId]| {
        let held: Vec<PathAttribute> = ids.iter().map(|id| attributes[id.index()]).collect();
        modules.create_rows(module, PathConfiguration { attributes: &held, rows_max, memory })
    };
    let paths = layout.members().iter().map(|member| (create(&member.module, &member.attributes), &*member.attributes));
    let mut paths: Vec<(Box<dyn AccessPath>, &[AttributeId])> = paths.collect();
    if paths.len() == 1 && !paths[0].0.gives_handles() {
        return paths.remove(0).0;
    }
    Box::new(CompositePath::new(paths, attributes, modules, memory))
}

/// The handles of an indirect path's rows, by offset.
struct Linkage {
    handles: Vec<u32>,
    memory: Reservation,
}

impl Linkage {
    fn reserve(&mut self, more: usize) -> Result<(), StorageError> {
        let (len, capacity) = (self.handles.len(), self.handles.capacity());
        if len + more > capacity {
            let wanted = (len + more).max(capacity * 2).max(LINKAGE_ROWS_FIRST);
            self.memory.grow(((wanted - capacity) * size_of::<u32>()) as u64)?;
            self.handles.reserve_exact(wanted - len);
        }
        Ok(())
    }

    fn of(&self, offset: u32) -> u32 {
        self.handles[offset as usize]
    }

    /// Calls `with` with the handles of some rows.
    fn with_handles<T>(&self, offsets: &[u32], with: impl FnOnce(&[u32]) -> T) -> T {
        if offsets.len() > HANDLES_INLINE {
            return with(&offsets.iter().map(|offset| self.of(*offset)).collect::<Vec<u32>>());
        }
        let mut handles = [0; HANDLES_INLINE];
        for (handle, offset) in handles.iter_mut().zip(offsets) {
            *handle = self.of(*offset);
        }
        with(&handles[..offsets.len()])
    }
}

/// One of the paths.
struct Member {
    path: Box<dyn AccessPath>,
    /// By attribute id.
    holds: Box<[bool]>,
    attribute_count: usize,
    /// For a path that is addressed by handles.
    linkage: Option<Linkage>,
}

impl Member {
    fn holds(&self, id: AttributeId) -> bool {
        self.holds.get(id.index()).copied().unwrap_or(false)
    }

    /// Whether it can test a condition alone.
    fn can_test(&self, condition: &Condition) -> bool {
        self.holds(condition.attribute)
            && match &condition.test {
                Test::CompareAttribute(_, other) => self.holds(*other),
                Test::Compare(..) | Test::In(_) | Test::IsNull | Test::IsNotNull | Test::StartsWith(_) => true,
            }
    }

    fn insert(&mut self, rows: &Batch, range: Range<usize>) -> Result<(), StorageError> {
        let Some(linkage) = &mut self.linkage else { return self.path.insert(rows, range) };
        linkage.reserve(range.len())?;
        let before = linkage.handles.len();
        let inserted = self.path.insert_with_handles(rows, range.clone(), &mut linkage.handles);
        if inserted.is_err() {
            linkage.handles.truncate(before);
            return inserted;
        }
        assert!(linkage.handles.len() == before + range.len(), "{} gives a handle per row", self.path.module());
        Ok(())
    }

    /// Appends the offsets of a window's rows that qualify.
    fn scan(
        &self,
        state: &mut AccessPathScanState,
        scratch: &mut Vec<u32>,
        filter: PathFilter<'_>,
        window: Range<u32>,
        found: &mut Vec<u32>,
    ) -> Result<(), StorageError> {
        if self.linkage.is_none() {
            return self.path.scan(state, filter, window, found);
        }
        let from = found.len();
        found.extend(window);
        self.retain(state, scratch, filter, found, from)
    }

    /// Keeps those of the offsets from position `from` on that qualify.
    fn retain(
        &self,
        state: &mut AccessPathScanState,
        scratch: &mut Vec<u32>,
        filter: PathFilter<'_>,
        offsets: &mut Vec<u32>,
        from: usize,
    ) -> Result<(), StorageError> {
        let Some(linkage) = &self.linkage else {
            if from == 0 {
                return self.path.retain(state, filter, offsets);
            }
            scratch.clear();
            scratch.extend(&offsets[from..]);
            self.path.retain(state, filter, scratch)?;
            offsets.truncate(from);
            offsets.extend_from_slice(scratch);
            return Ok(());
        };
        scratch.clear();
        scratch.extend(offsets[from..].iter().map(|offset| linkage.of(*offset)));
        self.path.retain(state, filter, scratch)?;
        // What is left is in the order of the rows, and rows of one handle qualify together: both lists in step.
        let mut kept = from;
        let mut handles = scratch.iter().peekable();
        for position in from..offsets.len() {
            let offset = offsets[position];
            if handles.next_if(|handle| **handle == linkage.of(offset)).is_some() {
                offsets[kept] = offset;
                kept += 1;
            }
        }
        assert!(handles.next().is_none(), "{} keeps handles in their order", self.path.module());
        offsets.truncate(kept);
        Ok(())
    }

    fn link(&self, attribute: AttributeId, offsets: &[u32], out: &mut ColumnBuilder) {
        match &self.linkage {
            None => self.path.link(attribute, offsets, out),
            Some(linkage) => linkage.with_handles(offsets, |handles| self.path.link(attribute, handles, out)),
        }
    }

    fn gather(&self, attribute: AttributeId, offsets: &[u32]) -> Option<Column> {
        match &self.linkage {
            None => self.path.gather(attribute, offsets),
            Some(linkage) => linkage.with_handles(offsets, |handles| self.path.gather(attribute, handles)),
        }
    }

    fn bytes(&self) -> u64 {
        self.path.bytes() + self.linkage.as_ref().map_or(0, |linkage| linkage.memory.bytes())
    }
}

/// Where an attribute is read.
struct Route {
    data_type: crate::types::DataType,
    /// All members that hold it, the densest first.
    holders: Box<[u8]>,
    /// The member that holds most other attributes beside it.
    widest: u8,
}

/// One step of a scan.
enum Step {
    /// A member tests the conditions that were taken.
    Member(usize),
    /// A comparison of attributes in different members.
    Across { left: AttributeId, right: AttributeId, comparison: Comparison },
}

/// Several paths of one segment.
struct CompositePath {
    members: Box<[Member]>,
    /// By attribute id.
    routes: Box<[Route]>,
    rows: u32,
    closed: bool,
}

impl CompositePath {
    fn new(
        paths: Vec<(Box<dyn AccessPath>, &[AttributeId])>,
        attributes: &[PathAttribute],
        modules: &Registry,
        memory: &Arc<MemoryPool>,
    ) -> Self {
        let members = paths.into_iter().map(|(path, ids)| {
            let mut holds = vec![false; attributes.len()];
            for id in ids {
                holds[id.index()] = true;
            }
            let linkage = path
                .gives_handles()
                .then(|| Linkage { handles: Vec::new(), memory: memory.reserve("linkage attributes") });
            Member { path, holds: holds.into(), attribute_count: ids.len(), linkage }
        });
        let members: Box<[Member]> = members.collect();
        let shares = |member: &Member| {
            modules.module(member.path.module()).is_some_and(|module| module.properties().shares_frozen_columns)
        };
        let route = |attribute: &PathAttribute| {
            let holders = members.iter().enumerate().filter(|(_, member)| member.holds(attribute.id));
            let mut holders: Vec<u8> = holders.map(|(position, _)| position as u8).collect();
            assert!(!holders.is_empty(), "attribute {} is held by a path", attribute.id);
            // Stable: among equals the layout's order decides.
            holders.sort_by_key(|holder| {
                let member = &members[usize::from(*holder)];
                (member.linkage.is_some(), !shares(member), member.attribute_count)
            });
            let wide = |holder: &&u8| {
                let member = &members[usize::from(**holder)];
                (member.linkage.is_none(), member.attribute_count)
            };
            let widest = holders.iter().max_by_key(wide).copied().unwrap_or(holders[0]);
            Route { data_type: attribute.data_type, holders: holders.into(), widest }
        };
        let routes = attributes.iter().map(route).collect();
        Self { members, routes, rows: 0, closed: false }
    }

    fn route(&self, attribute: AttributeId) -> &Route {
        &self.routes[attribute.index()]
    }

    /// The member that reads an attribute of so many rows.
    fn reader(&self, attribute: AttributeId, rows: usize) -> &Member {
        let route = self.route(attribute);
        let holder = if rows >= DENSE_ROWS_MIN { route.holders[0] } else { route.widest };
        &self.members[usize::from(holder)]
    }

    /// The member that can test a condition and most of those that are left beside it; the densest among equals.
    fn best_member(&self, conditions: &[Condition], left: &[u16], first: &Condition) -> Option<usize> {
        let mut best: Option<(usize, usize)> = None;
        for holder in &self.route(first.attribute).holders {
            let member = &self.members[usize::from(*holder)];
            if !member.can_test(first) {
                continue;
            }
            let tests = |position: &&u16| member.can_test(&conditions[usize::from(**position)]);
            let covered = left.iter().filter(tests).count();
            if best.is_none_or(|(_, most)| covered > most) {
                best = Some((usize::from(*holder), covered));
            }
        }
        best.map(|(member, _)| member)
    }

    /// Takes the next step's conditions out of `left`: those that one member can test, with the first of them that any
    /// member can test at all. `left` is in the order in which the plan wants conditions to be tested.
    fn next_step(&self, conditions: &[Condition], left: &mut Vec<u16>, taken: &mut Vec<u16>) -> Option<Step> {
        taken.clear();
        let condition = |position: &u16| &conditions[usize::from(*position)];
        if let Some(member) = left.iter().find_map(|first| self.best_member(conditions, left, condition(first))) {
            left.retain(|position| {
                let here = self.members[member].can_test(condition(position));
                if here {
                    taken.push(*position);
                }
                !here
            });
            return Some(Step::Member(member));
        }
        let across = left.pop()?;
        let Condition { attribute, test } = condition(&across);
        match test {
            Test::CompareAttribute(comparison, other) => {
                Some(Step::Across { left: *attribute, right: *other, comparison: *comparison })
            }
            other => unreachable!("some member holds the attribute of {other:?}"),
        }
    }

    /// Keeps those of the offsets from position `from` on for which two attributes compare right.
    fn retain_across(
        &self,
        state: &mut AccessPathScanState,
        (left, right): (AttributeId, AttributeId),
        comparison: Comparison,
        offsets: &mut Vec<u32>,
        from: usize,
    ) -> Result<(), StorageError> {
        let listed = &offsets[from..];
        let linked = |attribute: AttributeId| {
            let mut out = ColumnBuilder::with_capacity(self.route(attribute).data_type, listed.len());
            self.link(attribute, listed, &mut out);
            out.finish()
        };
        let (left, right) = (linked(left), linked(right));
        state.mask.clear();
        state.mask.resize(listed.len(), 1);
        compare_columns(&mut state.mask, &left.view(), &right.view(), &RowsOf::Run(0..listed.len()), comparison)?;
        mask_retain(&state.mask, offsets, from);
        Ok(())
    }

    /// Tests all conditions: over a window, or of the offsets from position `from` on.
    fn narrow(
        &self,
        state: &mut AccessPathScanState,
        filter: PathFilter<'_>,
        window: Option<Range<u32>>,
        offsets: &mut Vec<u32>,
        from: usize,
    ) -> Result<(), StorageError> {
        let mut scratch = std::mem::take(&mut state.composite);
        let CompositeScratch { left, taken, handles, .. } = &mut scratch;
        left.clear();
        left.extend_from_slice(filter.selected);
        let mut started = window.is_none();
        let mut result = Ok(());
        while let Some(step) = self.next_step(filter.conditions, left, taken) {
            let conditions = PathFilter { conditions: filter.conditions, selected: taken };
            // While the whole window qualifies, a path is faster over the window than over the list.
            let whole = window.clone().filter(|window| !started || offsets.len() - from == window.len());
            result = match (step, whole) {
                (Step::Member(member), Some(window)) => {
                    offsets.truncate(from);
                    self.members[member].scan(state, handles, conditions, window, offsets)
                }
                (Step::Member(member), None) => self.members[member].retain(state, handles, conditions, offsets, from),
                (Step::Across { left, right, comparison }, whole) => {
                    if let Some(window) = whole.filter(|_| !started) {
                        offsets.extend(window);
                    }
                    self.retain_across(state, (left, right), comparison, offsets, from)
                }
            };
            started = true;
            if result.is_err() || offsets.len() == from {
                break;
            }
        }
        state.composite = scratch;
        result
    }
}

impl AccessPath for CompositePath {
    fn module(&self) -> &'static str {
        COMPOSITE
    }

    fn rows(&self) -> u32 {
        self.rows
    }

    fn insert(&mut self, rows: &Batch, range: Range<usize>) -> Result<(), StorageError> {
        assert!(!self.is_closed(), "a composite that took a part of some rows takes no more");
        for position in 0..self.members.len() {
            if let Err(error) = self.members[position].insert(rows, range.clone()) {
                self.closed = position > 0;
                return Err(error);
            }
        }
        self.rows += range.len() as u32;
        Ok(())
    }

    fn is_closed(&self) -> bool {
        self.closed || self.members.iter().any(|member| member.path.is_closed())
    }

    fn scan(
        &self,
        state: &mut AccessPathScanState,
        filter: PathFilter<'_>,
        window: Range<u32>,
        found: &mut Vec<u32>,
    ) -> Result<(), StorageError> {
        if filter.is_empty() {
            found.extend(window);
            return Ok(());
        }
        let from = found.len();
        self.narrow(state, filter, Some(window), found, from)
    }

    fn retain(
        &self,
        state: &mut AccessPathScanState,
        filter: PathFilter<'_>,
        offsets: &mut Vec<u32>,
    ) -> Result<(), StorageError> {
        self.narrow(state, filter, None, offsets, 0)
    }

    fn link(&self, attribute: AttributeId, offsets: &[u32], out: &mut ColumnBuilder) {
        self.reader(attribute, offsets.len()).link(attribute, offsets, out);
    }

    fn shared(&self, attribute: AttributeId, run: Range<u32>) -> Option<Column> {
        let holders = self.route(attribute).holders.iter().map(|holder| &self.members[usize::from(*holder)]);
        let mut direct = holders.filter(|member| member.linkage.is_none());
        direct.find_map(|member| member.path.shared(attribute, run.clone()))
    }

    fn gather(&self, attribute: AttributeId, offsets: &[u32]) -> Option<Column> {
        let mut holders = self.route(attribute).holders.iter().map(|holder| &self.members[usize::from(*holder)]);
        holders.find_map(|member| member.gather(attribute, offsets))
    }

    fn freeze(&mut self) {
        for member in &mut self.members {
            member.path.freeze();
        }
    }

    fn bytes(&self) -> u64 {
        self.members.iter().map(Member::bytes).sum()
    }
}
