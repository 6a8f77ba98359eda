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
//! The backlink of the indirect world, from a handle to its rows, is not stored: such a path is never scanned handle
//! by handle, but asked about the handles of a window's rows.
//!
//! An insert that fails after some paths have taken the rows leaves the composite closed: the surplus rows lie behind
//! those it counts, nobody reads them, and the partition begins another segment.

mod member;
mod steps;

use super::filter::{compare_columns, mask_retain};
use super::{AccessPath, AccessPathScanState, PathAttribute, PathConfiguration, PathFilter, Registry};
use crate::batch::{Batch, Column, ColumnBuilder, FixedValue, RowsOf};
use crate::dictionary::ContainerDictionaries;
use crate::error::StorageError;
use crate::ids::AttributeId;
use crate::physical::PhysicalLayout;
use crate::predicate::{Condition, Test};
use crate::types::DataType;
use eris_platform::memory::{MemoryExceeded, MemoryPool};
use member::Member;
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use steps::{CompiledFilters, Step, compile, shape_of};

/// What [`AccessPath::module`] says of several paths together.
pub const COMPOSITE: &str = "composite";

/// From this many rows on an attribute that is held twice is read where it lies most densely: then cache lines are
/// shared by its own values, below by the other attributes of a row.
const DENSE_ROWS_MIN: usize = 64;

/// What scans keep between calls.
#[derive(Debug, Default)]
pub(crate) struct CompositeScratch {
    compiled: CompiledFilters,
    rows: Vec<u32>,
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
    dictionaries: Option<&Arc<ContainerDictionaries>>,
) -> Box<dyn AccessPath> {
    let create = |module: &str, ids: &[AttributeId]| {
        let held: Vec<PathAttribute> = ids.iter().map(|id| attributes[id.index()]).collect();
        modules.create_rows(module, PathConfiguration { attributes: &held, rows_max, memory, dictionaries })
    };
    let paths = layout.members().iter().map(|member| (create(&member.module, &member.attributes), &*member.attributes));
    let mut paths: Vec<(Box<dyn AccessPath>, &[AttributeId])> = paths.collect();
    if paths.len() == 1 && !paths[0].0.gives_handles() {
        return paths.remove(0).0;
    }
    Box::new(CompositePath::new(layout.clone(), paths, attributes, modules, memory))
}

/// Where an attribute is read.
struct Route {
    data_type: DataType,
    /// All members that hold it, the densest first.
    holders: Box<[u8]>,
    /// The member that holds most other attributes beside it.
    widest: u8,
}

/// Several paths of one segment.
struct CompositePath {
    layout: PhysicalLayout,
    members: Box<[Member]>,
    /// By attribute id.
    routes: Box<[Route]>,
    rows: u32,
    closed: bool,
    /// Members that are frozen.
    frozen_members: usize,
}

impl CompositePath {
    fn new(
        layout: PhysicalLayout,
        paths: Vec<(Box<dyn AccessPath>, &[AttributeId])>,
        attributes: &[PathAttribute],
        modules: &Registry,
        memory: &Arc<MemoryPool>,
    ) -> Self {
        let count = attributes.len();
        let members = paths.into_iter().map(|(path, ids)| Member::new(path, ids, count, memory));
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
        Self { layout, members, routes, rows: 0, closed: false, frozen_members: 0 }
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

    /// Keeps those of the offsets from position `from` on for which two attributes compare right.
    fn retain_across(
        &self,
        state: &mut AccessPathScanState,
        condition: &Condition,
        offsets: &mut Vec<u32>,
        from: usize,
    ) -> Result<(), StorageError> {
        let Test::CompareAttribute(comparison, other) = condition.test else {
            unreachable!("some member holds the attribute of {condition:?}");
        };
        let listed = &offsets[from..];
        let linked = |attribute: AttributeId| {
            let mut out = ColumnBuilder::with_capacity(self.route(attribute).data_type, listed.len());
            self.link(attribute, listed, &mut out);
            out.finish()
        };
        let (left, right) = (linked(condition.attribute), linked(other));
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
        window: Option<&Range<u32>>,
        offsets: &mut Vec<u32>,
        from: usize,
    ) -> Result<(), StorageError> {
        let mut scratch = std::mem::take(&mut state.composite);
        let CompositeScratch { compiled, rows: scratch_rows } = &mut scratch;
        let steps = compiled.steps(&self.layout, window.is_some(), filter, |shapes| {
            compile(shapes, window.is_some(), &self.members, &self.routes)
        });
        let mut started = window.is_none();
        let mut result = Ok(());
        for step in steps {
            // While the whole window qualifies, a path is faster over the window than over the list.
            let whole = window.filter(|window| !started || offsets.len() - from == window.len()).cloned();
            result = match (step, whole) {
                (Step::Member { member, selected }, whole) => {
                    let conditions = PathFilter { conditions: filter.conditions, selected };
                    let member = &self.members[usize::from(*member)];
                    if let Some(window) = whole {
                        offsets.truncate(from);
                        member.scan(state, scratch_rows, conditions, window, offsets)
                    } else {
                        member.retain(state, scratch_rows, conditions, offsets, from)
                    }
                }
                (Step::Across(position), whole) => {
                    if let Some(window) = whole.filter(|_| !started) {
                        offsets.extend(window);
                    }
                    self.retain_across(state, &filter.conditions[usize::from(*position)], offsets, from)
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
        self.narrow(state, filter, Some(&window), found, from)
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

    fn filter_modules(&self, filter: PathFilter<'_>, scans: bool, modules: &mut BTreeSet<&'static str>) {
        let shapes: Vec<_> = filter.iter().map(shape_of).zip(filter.selected.iter().copied()).collect();
        for step in compile(&shapes, scans, &self.members, &self.routes) {
            match step {
                Step::Member { member, .. } => {
                    modules.insert(self.members[usize::from(member)].path.module());
                }
                Step::Across(position) => {
                    let (left, right) = shape_of(&filter.conditions[usize::from(position)]);
                    self.link_modules(&[left], DENSE_ROWS_MIN, modules);
                    self.link_modules(right.as_slice(), DENSE_ROWS_MIN, modules);
                }
            }
        }
    }

    fn link_modules(&self, attributes: &[AttributeId], rows: usize, modules: &mut BTreeSet<&'static str>) {
        modules.extend(attributes.iter().map(|id| self.reader(*id, rows).path.module()));
    }

    fn updates_in_place(&self, attribute: AttributeId) -> bool {
        self.route(attribute).holders.iter().all(|holder| {
            let member = &self.members[usize::from(*holder)];
            member.linkage.is_none() && member.path.updates_in_place(attribute)
        })
    }

    fn exchange(&mut self, attribute: AttributeId, offset: u32, new: FixedValue) -> FixedValue {
        let holders = &self.routes[attribute.index()].holders;
        let mut old = new;
        for holder in holders {
            old = self.members[usize::from(*holder)].path.exchange(attribute, offset, new);
        }
        old
    }

    fn truncates(&self) -> bool {
        self.members.iter().all(|member| member.linkage.is_none() && member.path.truncates())
    }

    fn truncate(&mut self, rows: u32) {
        self.members.iter_mut().for_each(|member| member.path.truncate(rows));
        self.rows = rows;
    }

    fn freeze(&mut self) {
        for member in &mut self.members {
            member.path.freeze();
        }
    }

    fn freeze_step(&mut self) -> bool {
        let unfrozen = self.members.iter_mut().skip(self.frozen_members);
        for member in unfrozen {
            if member.path.freeze_step() {
                return true;
            }
            self.frozen_members += 1;
        }
        false
    }

    fn refused_encoding(&self) -> Option<&MemoryExceeded> {
        self.members.iter().find_map(|member| member.path.refused_encoding())
    }

    fn encodings(&self, visit: &mut dyn FnMut(AttributeId, &'static str, u64)) {
        self.members.iter().for_each(|member| member.path.encodings(visit));
    }

    fn bytes(&self) -> u64 {
        self.members.iter().map(Member::bytes).sum()
    }
}
