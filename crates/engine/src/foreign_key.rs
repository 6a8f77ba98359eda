//! Foreign keys: every key that a row of the *child* has is the key of a row of the *parent*.
//!
//! ```text
//!   child                                     parent
//!   id | parent_id                            id | ...            <- a unique key: of a local index that names the
//!   11 |    7     -- key share on the row -->  7 | ...               partition, or of a global index, whose entry is
//!   12 |   NULL      (no check)                                      locked in place of the row
//! ```
//! - A child is written first, then its parent is looked up and locked; a parent is deleted first, which waits for such
//!   locks, then its children are looked up. Whichever comes second sees the other (`transaction/foreign_keys.rs`).
//! - A constraint is known to both containers ([`references`]) before the rows that exist are checked ([`define`]):
//!   transactions that wrote without knowing it are waited for, a statement that is between looking and writing fails
//!   and is repeated.

mod define;
mod error;
mod references;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use eris_storage::{AttributeId, Batch, ContainerId, LookupRequest, Schema};

use crate::container::Container;
use crate::error::EngineError;
use crate::lookup::{Coalescing, Lookup};
use crate::runtime::Runtime;

pub use error::{ForeignKeyError, ForeignKeyViolation};
pub(crate) use references::References;

/// One side of a foreign key: a container and the attributes of the key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeySide {
    /// The container.
    pub container: ContainerId,
    /// What errors call it.
    pub name: Box<str>,
    /// The key; attributes of both sides correspond by their places.
    pub attributes: Box<[AttributeId]>,
}

/// What becomes of a statement that takes away a key to which children refer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum ReferentialAction {
    /// It fails if at its end there are children without a parent: another row may have the key by then, and the check
    /// may be put off ([`crate::Transaction::hold_checks`]).
    #[default]
    NoAction,
    /// It fails if at its end there are children of a row that it took the key from.
    Restrict,
}

/// What [`crate::Engine::create_foreign_key`] needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForeignKeySpec {
    /// The constraint's name; the child has no other one with it.
    pub name: Box<str>,
    /// The container whose rows refer. A key with a NULL in it refers to nothing (MATCH SIMPLE).
    pub child: KeySide,
    /// The container that is referred to, by a unique key; may be the same.
    pub parent: KeySide,
    /// When a parent row is deleted.
    pub on_delete: ReferentialAction,
    /// When a parent row gets another key.
    pub on_update: ReferentialAction,
}

/// Which rows a check begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// Children with new keys: each must have a parent.
    Child,
    /// Parents whose keys went: none may have children.
    Parent,
}

/// A foreign key that is enforced.
#[derive(Debug)]
pub(crate) struct ForeignKey {
    spec: ForeignKeySpec,
    /// The parent, or the hidden container of its global index.
    target: ContainerId,
    /// The key's attributes there, in the order of the child's.
    target_attributes: Arc<[AttributeId]>,
    child_attributes: Arc<[AttributeId]>,
    /// Nobody enforces it any more: checks that were put off are not run.
    dropped: AtomicBool,
    /// It was found to hold; until then it may be taken back.
    established: AtomicBool,
}

impl ForeignKey {
    fn new(runtime: &Runtime, spec: &ForeignKeySpec) -> Result<Self, EngineError> {
        let child = runtime.container(spec.child.container)?;
        let parent = runtime.container(spec.parent.container)?;
        check_types(&child.schema(), &parent.schema(), spec)?;
        let (target, target_attributes) = target(&parent, &spec.parent.attributes)
            .ok_or_else(|| ForeignKeyError::NoUniqueKey { parent: spec.parent.name.clone() })?;
        let child_attributes = spec.child.attributes.iter().copied().collect();
        let (dropped, established) = (AtomicBool::new(false), AtomicBool::new(false));
        Ok(Self { spec: spec.clone(), target, target_attributes, child_attributes, dropped, established })
    }

    /// What it was made of.
    pub fn spec(&self) -> &ForeignKeySpec {
        &self.spec
    }

    /// Whether it was dropped.
    pub fn is_dropped(&self) -> bool {
        self.dropped.load(Ordering::Acquire)
    }

    /// Whether the rows that existed were found to obey it: it is a definition from then on.
    pub fn is_established(&self) -> bool {
        self.established.load(Ordering::Acquire)
    }

    fn mark_established(&self) {
        self.established.store(true, Ordering::Release);
    }

    /// The attributes of a side's rows that a check needs.
    pub fn attributes(&self, side: Side) -> &[AttributeId] {
        match side {
            Side::Child => &self.spec.child.attributes,
            Side::Parent => &self.spec.parent.attributes,
        }
    }

    /// Whether child and parent are the same container.
    pub fn is_own(&self) -> bool {
        self.spec.child.container == self.spec.parent.container
    }

    /// Asks which keys have a parent.
    pub fn parent_lookup(&self) -> Lookup {
        lookup(self.target, &self.target_attributes)
    }

    /// Asks which keys have children.
    pub fn child_lookup(&self) -> Lookup {
        lookup(self.spec.child.container, &self.child_attributes)
    }

    /// What a delete, or an update, of a parent does.
    pub fn action(&self, deletes: bool) -> ReferentialAction {
        if deletes { self.spec.on_delete } else { self.spec.on_update }
    }

    /// The error about one of the keys.
    pub fn violation(&self, runtime: &Runtime, side: Side, keys: &Batch, row: u32) -> EngineError {
        let written = match side {
            Side::Child => &self.spec.child,
            Side::Parent => &self.spec.parent,
        };
        let schema = runtime.container(written.container).map(|container| container.schema()).ok();
        let name = |id: &AttributeId| {
            let attribute = schema.as_ref().and_then(|schema| schema.attribute(*id));
            attribute.map_or_else(|| Box::from("?"), |attribute| attribute.name.clone())
        };
        let names = written.attributes.iter().map(name);
        let violation = ForeignKeyViolation {
            constraint: self.spec.name.clone(),
            child: self.spec.child.name.clone(),
            parent: self.spec.parent.name.clone(),
            still_referenced: side == Side::Parent,
            key: names.enumerate().map(|(place, name)| (name, keys.value(row as usize, place))).collect(),
        };
        EngineError::ForeignKeyViolation(Arc::new(violation))
    }

    fn referenced(&self) -> EngineError {
        let ForeignKeySpec { name, child, parent, .. } = &self.spec;
        let (name, child, parent) = (name.clone(), child.name.clone(), parent.name.clone());
        ForeignKeyError::Referenced { name, child, parent }.into()
    }
}

fn lookup(container: ContainerId, attributes: &Arc<[AttributeId]>) -> Lookup {
    let request = LookupRequest { attributes: Arc::clone(attributes), desired: Arc::new([]) };
    Lookup { container, request, coalescing: Coalescing::Sender }
}

/// Whether the keys of both sides can be compared.
fn check_types(child: &Schema, parent: &Schema, spec: &ForeignKeySpec) -> Result<(), ForeignKeyError> {
    let attribute = |schema: &Schema, side: &KeySide, id: AttributeId| {
        let missing = ForeignKeyError::NoSuchAttribute { table: side.name.clone(), attribute: id };
        schema.attribute(id).map(|found| (found.name.clone(), found.data_type)).ok_or(missing)
    };
    if spec.child.attributes.is_empty() || spec.child.attributes.len() != spec.parent.attributes.len() {
        return Err(ForeignKeyError::DifferentNumbers);
    }
    for (child_id, parent_id) in spec.child.attributes.iter().zip(&spec.parent.attributes) {
        let (child_name, child_type) = attribute(child, &spec.child, *child_id)?;
        let (parent_name, parent_type) = attribute(parent, &spec.parent, *parent_id)?;
        if child_type != parent_type {
            let name = spec.name.clone();
            return Err(ForeignKeyError::DifferentTypes { name, child_name, child_type, parent_name, parent_type });
        }
    }
    Ok(())
}

/// Where keys of a parent are found: in itself if a unique index is over them and they name a partition, so that the
/// index sees all rows that could share a key; or in a global index.
fn target(parent: &Container, key: &[AttributeId]) -> Option<(ContainerId, Arc<[AttributeId]>)> {
    if has_unique_key(parent, &parent.schema(), key) {
        return Some((parent.id(), key.iter().copied().collect()));
    }
    parent.global_indexes()?.iter().find_map(|index| {
        let indexed = index.key();
        let place = |id| indexed.iter().position(|other| other == id).map(|place| AttributeId(place as u16));
        let attributes: Option<Arc<[AttributeId]>> = key.iter().map(place).collect();
        attributes.filter(|_| is_over(indexed, key)).map(|attributes| (index.container().id(), attributes))
    })
}

/// Whether an index is over these attributes, in whatever order.
fn is_over(indexed: &[AttributeId], key: &[AttributeId]) -> bool {
    indexed.len() == key.len() && indexed.iter().all(|attribute| key.contains(attribute))
}

fn has_unique_key(parent: &Container, schema: &Schema, key: &[AttributeId]) -> bool {
    let partitioning = parent.partitioning();
    partitioning.has_positions()
        && partitioning.attributes().iter().all(|attribute| key.contains(attribute))
        && schema.indexes.iter().any(|index| index.unique && is_over(&index.attributes, key))
}
