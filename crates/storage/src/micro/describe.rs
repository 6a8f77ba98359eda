//! A plan in words, for EXPLAIN.

use super::compile::{Access, MicroPlan};
use crate::ids::AttributeId;
use crate::predicate::ReadRequest;
use crate::schema::{IndexKind, Schema};
use std::collections::BTreeSet;
use std::fmt;

/// The steps of a micro-QEP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MicroPlanDescription {
    /// One line each.
    pub steps: Vec<String>,
}

impl fmt::Display for MicroPlanDescription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, step) in self.steps.iter().enumerate() {
            if number > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{}. {step}", number + 1)?;
        }
        Ok(())
    }
}

/// The modules that answer for a request in any of the partition's segments now.
#[derive(Debug, Default)]
pub(crate) struct UsedModules {
    /// For the conditions.
    pub filter: BTreeSet<&'static str>,
    /// For the attributes wanted.
    pub link: BTreeSet<&'static str>,
}

fn listed(modules: &BTreeSet<&'static str>) -> String {
    if modules.is_empty() {
        return "no segments".to_owned();
    }
    modules.iter().copied().collect::<Vec<_>>().join(", ")
}

/// Describes a plan; `scans` says whether a scan replaces the index because the range is wide.
pub(crate) fn describe(
    schema: &Schema,
    request: &ReadRequest,
    plan: &MicroPlan,
    modules: &UsedModules,
    scans: bool,
) -> MicroPlanDescription {
    let conditions = |which: &[u16]| {
        // As they were written: the order in which they are tested follows the data.
        let which: BTreeSet<u16> = which.iter().copied().collect();
        let text: Vec<String> =
            which.iter().map(|p| request.predicate.conditions[usize::from(*p)].describe(schema)).collect();
        text.join(" AND ")
    };
    let names = |ids: &[AttributeId]| {
        let names: Vec<&str> = ids.iter().filter_map(|id| Some(&*schema.attribute(*id)?.name)).collect();
        names.join(", ")
    };
    let (filtering, linking) = (listed(&modules.filter), listed(&modules.link));
    let mut steps = Vec::new();
    match &plan.access {
        Access::Index(found) if !scans => {
            let index = &schema.indexes[found.index];
            let lookup = match (index.kind, found.unique) {
                (IndexKind::Ordered, true) => "ordered index lookup",
                (IndexKind::Ordered, false) => "ordered index scan",
                (IndexKind::Hash, _) => "hash index lookup",
                (IndexKind::Inverted, true) => "inverted index lookup",
                (IndexKind::Inverted, false) => "inverted index scan",
            };
            let backwards = if found.descending { " descending" } else { "" };
            let mut step = format!("{lookup}{backwards} {}({})", index.name, names(&index.attributes));
            let mut used = found.equal.clone();
            used.extend([found.lower, found.upper, found.prefix].into_iter().flatten());
            used.dedup();
            if !used.is_empty() {
                step = format!("{step} where {}", conditions(&used));
            }
            steps.push(step);
            steps.push("versions visible to the snapshot".to_owned());
            if !plan.residual.is_empty() {
                steps.push(format!("filter {filtering} where {}", conditions(&plan.residual)));
            }
        }
        Access::Index(_) | Access::Scan => {
            let filter = if plan.all.is_empty() { String::new() } else { format!(" where {}", conditions(&plan.all)) };
            let scanned = if plan.all.is_empty() { &linking } else { &filtering };
            steps.push(format!("scan {scanned}{filter}"));
            steps.push("versions visible to the snapshot".to_owned());
        }
    }
    steps.push(format!("link {linking} [{}]", names(&request.desired)));
    MicroPlanDescription { steps }
}
