//! A plan in words, for EXPLAIN.

use super::compile::{Access, MicroPlan};
use crate::ids::AttributeId;
use crate::predicate::ReadRequest;
use crate::schema::{IndexKind, Schema};
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

/// Describes a plan; `modules` are those the partition's segments use now, `scans` whether a scan replaces the index
/// because the range is wide.
pub(crate) fn describe(
    schema: &Schema,
    request: &ReadRequest,
    plan: &MicroPlan,
    modules: &[&'static str],
    scans: bool,
) -> MicroPlanDescription {
    let conditions = |which: &[u16]| {
        let text: Vec<String> =
            which.iter().map(|p| request.predicate.conditions[usize::from(*p)].describe(schema)).collect();
        text.join(" AND ")
    };
    let names = |ids: &[AttributeId]| {
        let names: Vec<&str> = ids.iter().filter_map(|id| Some(&*schema.attribute(*id)?.name)).collect();
        names.join(", ")
    };
    let modules = if modules.is_empty() { "no segments".to_owned() } else { modules.join(", ") };
    let mut steps = Vec::new();
    match &plan.access {
        Access::Index(found) if !scans => {
            let index = &schema.indexes[found.index];
            let lookup = match (index.kind, found.unique) {
                (IndexKind::Ordered, true) => "ordered index lookup",
                (IndexKind::Ordered, false) => "ordered index scan",
                (IndexKind::Hash, _) => "hash index lookup",
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
                steps.push(format!("filter {modules} where {}", conditions(&plan.residual)));
            }
        }
        Access::Index(_) | Access::Scan => {
            let filter = if plan.all.is_empty() { String::new() } else { format!(" where {}", conditions(&plan.all)) };
            steps.push(format!("scan {modules}{filter}"));
            steps.push("versions visible to the snapshot".to_owned());
        }
    }
    steps.push(format!("link {modules} [{}]", names(&request.desired)));
    MicroPlanDescription { steps }
}
