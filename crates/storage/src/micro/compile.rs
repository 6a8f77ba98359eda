//! From a request's shape to a plan.
//!
//! 1. Of all indexes take the one that binds most: a unique key completely, else the longest prefix of equalities
//!    (one of them may be an IN list), then a range or a text prefix on the attribute behind it. An order asked for
//!    decides the index. A hash index serves equalities (or an IN list) on all of its attributes, and nothing else.
//! 2. Conditions the index does not answer are filters, the most selective first: pushed into the scan, or applied to
//!    the linked rows. In which access path of a composite each is tested is decided per layout (`composite.rs`).
//! 3. Desired attributes are linked, or handed out without a copy where a whole run of a frozen column qualifies.

use super::usage::{AccessTotals, PlanUsage};
use crate::batch::RowFormat;
use crate::error::StorageError;
use crate::predicate::{Comparison, ReadRequest, Test};
use crate::schema::{IndexDefinition, IndexKind, Schema};
use crate::types::DataType;
use std::sync::Arc;

/// How an index is used. Numbers are positions of conditions in the predicate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct IndexUse {
    /// Position among the schema's indexes.
    pub index: usize,
    /// For each leading attribute the condition that fixes it.
    pub equal: Vec<u16>,
    /// The one among `equal` that is an IN list.
    pub list: Option<u16>,
    /// Bounds of the attribute behind them.
    pub lower: Option<u16>,
    pub upper: Option<u16>,
    pub prefix: Option<u16>,
    pub descending: bool,
    /// Whether rows must leave in the index's order: then there is no choice.
    pub ordered: bool,
    /// Whether at most one row version lives under each key asked for.
    pub unique: bool,
}

/// Where rows are found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Scan,
    Index(IndexUse),
}

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct MicroPlan {
    pub access: Access,
    /// The format of the desired attributes, for rows that leave row-wise.
    pub format: Arc<RowFormat>,
    /// Conditions left to test when the index is used.
    pub residual: Box<[u16]>,
    /// All conditions, for scans.
    pub all: Box<[u16]>,
    pub usage: PlanUsage,
}

fn check(schema: &Schema, request: &ReadRequest) -> Result<(), StorageError> {
    let known = |id: crate::ids::AttributeId| {
        schema.attribute(id).ok_or_else(|| StorageError::InvalidRequest { reason: format!("no attribute {id}") })
    };
    for attribute in request.desired.iter() {
        known(*attribute)?;
    }
    for condition in request.predicate.conditions.iter() {
        let attribute = known(condition.attribute)?;
        let fits = match &condition.test {
            Test::CompareAttribute(_, other) => known(*other)?.data_type.physical() == attribute.data_type.physical(),
            Test::StartsWith(_) => attribute.data_type == DataType::Text,
            Test::Compare(..) | Test::In(_) | Test::IsNull | Test::IsNotNull => true,
        };
        if !fits {
            let reason = format!("a condition does not fit: {}", condition.describe(schema));
            return Err(StorageError::InvalidRequest { reason });
        }
    }
    Ok(())
}

/// How well an index fits, the larger the better: (whole unique key, attributes fixed, bounds, [`preference`]).
type Fit = (bool, usize, usize, u8);

/// Which of two indexes that fit alike is better: a hash index finds a key fastest, and an inverted one reads less
/// memory for the rows of a key than an ordered one.
fn preference(kind: IndexKind) -> u8 {
    match kind {
        IndexKind::Ordered => 0,
        IndexKind::Inverted => 1,
        IndexKind::Hash => 2,
    }
}

fn use_of(request: &ReadRequest, position: usize, index: &IndexDefinition) -> (Fit, IndexUse) {
    let conditions = &request.predicate.conditions;
    let find = |attribute, wanted: &dyn Fn(&Test) -> bool| {
        let mut positions = conditions.iter().enumerate();
        positions.find(|(_, c)| c.attribute == attribute && wanted(&c.test)).map(|(position, _)| position as u16)
    };
    let ordered = request.order.filter(|order| order.index == index.id);
    let mut found = IndexUse {
        index: position,
        descending: ordered.is_some_and(|order| order.descending),
        ordered: ordered.is_some(),
        ..IndexUse::default()
    };
    for attribute in &index.attributes {
        if let Some(equal) = find(*attribute, &|test| matches!(test, Test::Compare(Comparison::Equal, _))) {
            found.equal.push(equal);
            continue;
        }
        if found.list.is_none()
            && let Some(list) = find(*attribute, &|test| matches!(test, Test::In(_)))
        {
            found.equal.push(list);
            found.list = Some(list);
            continue;
        }
        let compares = |wanted: [Comparison; 2]| {
            move |test: &Test| match test {
                Test::Compare(comparison, _) => wanted.contains(comparison),
                _ => false,
            }
        };
        found.lower = find(*attribute, &compares([Comparison::Greater, Comparison::GreaterOrEqual]));
        found.upper = find(*attribute, &compares([Comparison::Less, Comparison::LessOrEqual]));
        if found.lower.is_none() && found.upper.is_none() {
            found.prefix = find(*attribute, &|test| matches!(test, Test::StartsWith(_)));
        }
        break;
    }
    found.unique = index.unique && found.equal.len() == index.attributes.len();
    let bounds = [found.lower, found.upper, found.prefix].iter().flatten().count();
    let fit = (found.unique, found.equal.len(), bounds);
    // A hash tells nothing about a part of the key, or about what lies beside it.
    let serves = index.kind.has_key_order() || fit.1 == index.attributes.len();
    let fit = if serves { fit } else { (false, 0, 0) };
    ((fit.0, fit.1, fit.2, preference(index.kind)), found)
}

/// Compiles a request; `known` is what earlier requests showed.
pub(crate) fn compile(schema: &Schema, request: &ReadRequest, known: &AccessTotals) -> Result<MicroPlan, StorageError> {
    check(schema, request)?;
    let types = request.desired.iter().map(|id| schema.attributes[id.index()].data_type);
    let format = Arc::new(RowFormat::new(types));
    // The most selective first; those of which nothing is known stay as they were written, behind the others.
    let selectivity = |position: &u16| {
        let attribute = request.predicate.conditions[usize::from(*position)].attribute;
        known.attribute(attribute).selectivity().unwrap_or(1.0)
    };
    let mut all: Box<[u16]> = (0..request.predicate.conditions.len() as u16).collect();
    all.sort_by(|left, right| selectivity(left).total_cmp(&selectivity(right)));
    let usage = PlanUsage::default();
    let candidates = schema.indexes.iter().enumerate().map(|(position, index)| use_of(request, position, index));
    let best = match request.order {
        Some(order) => {
            let mut candidates = candidates;
            let is_wanted = |index: &IndexDefinition| index.id == order.index && index.kind.has_key_order();
            let wanted = candidates.find(|(_, found)| is_wanted(&schema.indexes[found.index]));
            let reason = format!("no ordered index {}", order.index);
            Some(wanted.ok_or(StorageError::InvalidRequest { reason })?.1)
        }
        None => candidates
            .filter(|(fit, _)| fit.1 + fit.2 > 0)
            .max_by_key(|(fit, found)| (*fit, std::cmp::Reverse(found.index)))
            .map(|(_, found)| found),
    };
    let Some(found) = best else {
        return Ok(MicroPlan { access: Access::Scan, format, residual: all.clone(), all, usage });
    };
    let answered = |position: &u16| {
        found.equal.contains(position) || [found.lower, found.upper, found.prefix].contains(&Some(*position))
    };
    let residual = all.iter().copied().filter(|position| !answered(position)).collect();
    Ok(MicroPlan { access: Access::Index(found), format, residual, all, usage })
}
