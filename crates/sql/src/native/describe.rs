//! EXPLAIN of native plans: which access primitives run, and how data moves.

use eris_operators::{Expression, SortKeys};
use eris_storage::Comparison;

use super::access::{Access, Expected};
use super::conditions::{ConditionTemplate, Slot, TestTemplate};
use super::node::Node;

/// The lines of a plan, outermost first, indented.
pub fn describe(node: &Node, depth: usize, lines: &mut Vec<String>) {
    let line = |lines: &mut Vec<String>, depth: usize, text: String| {
        lines.push(format!("{}{text}", "  ".repeat(depth)));
    };
    match node {
        Node::Values { rows, .. } => line(lines, depth, format!("Values ({} rows)  [native, task]", rows.len())),
        Node::Scan { access, filter, projection } => {
            line(lines, depth, format!("{}  [native]", access_text(access)));
            operators(filter.as_deref(), projection.as_deref(), access, depth + 1, lines);
        }
        Node::KeyJoin { outer, inner, filter, left } => {
            let kind = if *left { "KeyJoin left" } else { "KeyJoin" };
            line(lines, depth, format!("{kind}: outer keys are sent to the partition that owns them  [native, task]"));
            describe(outer, depth + 1, lines);
            line(lines, depth + 1, format!("{}  [native]", access_text(inner)));
            if let Some(filter) = filter {
                line(lines, depth + 1, format!("filter: {filter}  [{}]", kernel(filter)));
            }
        }
        Node::Aggregate { access, filter, projection, groups, calls } => {
            line(lines, depth, "AggregateMerge: partial groups of all partitions  [native, task]".to_string());
            line(lines, depth + 1, format!("{}  [native]", access_text(access)));
            operators(filter.as_deref(), projection.as_deref(), access, depth + 2, lines);
            let groups: Vec<String> = groups.iter().map(ToString::to_string).collect();
            let calls: Vec<String> = calls
                .iter()
                .map(|call| {
                    let input = call.input.as_ref().map_or("*".to_string(), ToString::to_string);
                    format!("{:?}({input})", call.function)
                })
                .collect();
            let text =
                format!("aggregate: by [{}]: {}  [native, in each partition]", groups.join(", "), calls.join(", "));
            line(lines, depth + 2, text);
        }
        Node::Project { input, expressions } => {
            line(lines, depth, format!("Project {}  [native, task]", expressions_text(expressions)));
            describe(input, depth + 1, lines);
        }
        Node::Filter { input, condition } => {
            line(lines, depth, format!("Filter {condition}  [{}, task]", kernel(condition)));
            describe(input, depth + 1, lines);
        }
        Node::Sort { input, spec } => {
            line(lines, depth, format!("Sort by {}  [native, task]", sort_text(&spec.keys)));
            describe(input, depth + 1, lines);
        }
        Node::Limit { input, skip, fetch } => {
            let part = |slot: &Option<Slot>, word: &str| {
                slot.as_ref().map_or(String::new(), |slot| format!(" {word} {}", slot_text(slot)))
            };
            line(lines, depth, format!("Limit{}{}  [native, task]", part(fetch, "to"), part(skip, "after")));
            describe(input, depth + 1, lines);
        }
    }
}

/// The accesses of a plan whose conditions do not wait for outer rows, in the order of [`describe`].
pub fn accesses<'n>(node: &'n Node, found: &mut Vec<&'n Access>) {
    match node {
        Node::Values { .. } => {}
        Node::Scan { access, .. } | Node::Aggregate { access, .. } => found.push(access),
        Node::KeyJoin { outer: input, .. }
        | Node::Project { input, .. }
        | Node::Filter { input, .. }
        | Node::Sort { input, .. }
        | Node::Limit { input, .. } => accesses(input, found),
    }
}

/// Several expressions.
pub(super) fn expressions_text(expressions: &[Expression]) -> String {
    let list: Vec<String> = expressions.iter().map(ToString::to_string).collect();
    list.join(", ")
}

/// Sort keys.
pub(super) fn sort_text(keys: &SortKeys) -> String {
    let keys: Vec<String> =
        keys.0.iter().map(|key| format!("#{}{}", key.column, if key.descending { " desc" } else { "" })).collect();
    keys.join(", ")
}

/// Where an expression is computed.
pub(super) fn kernel(expression: &Expression) -> &'static str {
    if expression.has_foreign() { "native, foreign kernels" } else { "native" }
}

fn operators(
    filter: Option<&Expression>,
    projection: Option<&[Expression]>,
    access: &Access,
    depth: usize,
    lines: &mut Vec<String>,
) {
    let place = if access.expected() == Expected::Many { "in each partition" } else { "task" };
    let indent = "  ".repeat(depth);
    if let Some(filter) = filter {
        lines.push(format!("{indent}filter: {filter}  [{}, {place}]", kernel(filter)));
    }
    if let Some(projection) = projection {
        let kernel = projection.iter().map(kernel).max().unwrap_or("native");
        lines.push(format!("{indent}compute: {}  [{kernel}, {place}]", expressions_text(projection)));
    }
}

/// The access primitive with its target.
pub(super) fn access_text(access: &Access) -> String {
    let table = &access.table;
    let key = table.partitioning.attributes();
    let by_key = !key.is_empty()
        && key.iter().all(|attribute| {
            access.conditions.iter().any(|condition| condition.attribute == *attribute && condition.is_equality())
        });
    let (primitive, movement) = match (access.expected(), by_key) {
        (Expected::One | Expected::Few, true) => ("Lookup", "to the one partition that owns the key"),
        (Expected::One | Expected::Few, false) => ("Lookup", "broadcast"),
        (Expected::Many, true) => ("UnorderedScan", "to the one partition that owns the key"),
        (Expected::Many, false) => ("UnorderedScan", "broadcast, pruned by partition table and segment bounds"),
    };
    let conditions: Vec<String> = access.conditions.iter().map(|condition| condition_text(condition, access)).collect();
    let on = if conditions.is_empty() { String::new() } else { format!(" where {}", conditions.join(" and ")) };
    format!("{primitive} {}{on}: {movement}", table.name)
}

fn comparison_text(comparison: Comparison) -> &'static str {
    match comparison {
        Comparison::Equal => "=",
        Comparison::NotEqual => "<>",
        Comparison::Less => "<",
        Comparison::LessOrEqual => "<=",
        Comparison::Greater => ">",
        Comparison::GreaterOrEqual => ">=",
    }
}

pub(super) fn slot_text(slot: &Slot) -> String {
    match slot {
        Slot::Constant(value) => crate::pg_format::value_text(value).unwrap_or_else(|| "NULL".to_string()),
        Slot::Expression(expression) => expression.to_string(),
        Slot::Outer(column) => format!("outer #{column}"),
    }
}

fn condition_text(condition: &ConditionTemplate, access: &Access) -> String {
    let name = |attribute: eris_storage::AttributeId| &access.table.columns[attribute.index()].name;
    let left = name(condition.attribute);
    match &condition.test {
        TestTemplate::Compare(comparison, slot) => {
            format!("{left} {} {}", comparison_text(*comparison), slot_text(slot))
        }
        TestTemplate::In(slots) => {
            let values: Vec<String> = slots.iter().map(slot_text).collect();
            format!("{left} in ({})", values.join(", "))
        }
        TestTemplate::Never => "false".to_string(),
        TestTemplate::IsNull => format!("{left} is null"),
        TestTemplate::IsNotNull => format!("{left} is not null"),
        TestTemplate::CompareAttribute(comparison, right) => {
            format!("{left} {} {}", comparison_text(*comparison), name(*right))
        }
        TestTemplate::StartsWith(prefix) => format!("{left} like '{prefix}%'"),
    }
}
