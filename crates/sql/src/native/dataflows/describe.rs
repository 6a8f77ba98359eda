//! EXPLAIN of a macro-QEP: stage after stage, each with its inputs, what they pass through, and where they end.

use std::fmt::Display;

use eris_operators::{Expression, GroupCall, RowCounts, SortKey, SortKeys, WindowCall, WindowFunction, WindowSpec};

use super::actuals::StageActuals;
use super::{Actuals, Input, MacroQep, PassedFilterPlan, ProbePlan, SinkPlan, Source, Stage, StepPlan};
use crate::native::describe::{access_text, expressions_text, kernel, slot_text, sort_text};

/// The lines of a plan, in the order in which it runs; with what happened, if it ran.
pub fn describe_dataflows(qep: &MacroQep, actuals: Option<&Actuals>, depth: usize, lines: &mut Vec<String>) {
    let indent = "  ".repeat(depth);
    for (number, stage) in qep.stages.iter().enumerate() {
        let scalar = qep.scalars.iter().find(|scalar| scalar.stage == number);
        let becomes = scalar.map_or(String::new(), |scalar| format!(", its value is ${}", scalar.parameter + 1));
        let actuals = actuals.map(|actuals| actuals.stage(number));
        lines.push(format!(
            "{indent}Stage {number}: {}{becomes}  (about {:.0} rows come{})  [native]",
            sink_text(stage),
            stage.expected_rows,
            actuals.map_or(String::new(), came_text)
        ));
        for (place, input) in stage.inputs.iter().enumerate() {
            let counts = actuals.map(|actuals| &*actuals.inputs[place]);
            describe_input(qep, input, counts, &format!("{indent}  "), lines);
        }
    }
}

/// What came to a stage, and how long it took, unless it handed its rows on as they came.
fn came_text(actuals: &StageActuals) -> String {
    let took = actuals.took().map_or(String::new(), |took| format!(" in {:.3} ms", took.as_secs_f64() * 1e3));
    format!("; {} came{took}", actuals.rows())
}

fn describe_input(qep: &MacroQep, input: &Input, counts: Option<&RowCounts>, indent: &str, lines: &mut Vec<String>) {
    let place = match &input.source {
        Source::Scan(_) => "in each partition",
        Source::Stage(_) | Source::Built { .. } | Source::Values { .. } => "tasks",
    };
    let passed = |step: usize| counts.map_or(String::new(), |counts| format!("  ({} rows)", counts.at(step)));
    lines.push(format!("{indent}{}{}  [native]", source_text(&input.source), passed(0)));
    for (number, step) in input.steps.iter().enumerate() {
        let passed = passed(number + 1);
        let text = match step {
            StepPlan::Filter(condition) => format!("filter: {condition}{passed}  [{}, {place}]", kernel(condition)),
            StepPlan::Project(expressions) => {
                let worst = expressions.iter().map(kernel).max().unwrap_or("native");
                format!("compute: {}{passed}  [{worst}, {place}]", expressions_text(expressions))
            }
            StepPlan::Expand(lists) => {
                let worst = lists.iter().flat_map(|list| list.iter()).map(kernel).max().unwrap_or("native");
                let lists: Vec<String> = lists.iter().map(|list| format!("({})", expressions_text(list))).collect();
                format!("expand: {}{passed}  [{worst}, {place}]", lists.join(", "))
            }
            StepPlan::Passed(filter) => format!("{}{passed}  [native, {place}]", passed_text(qep, filter)),
            StepPlan::Probe(probe) => format!("{}{passed}  [native, {place}]", probe_text(probe)),
        };
        lines.push(format!("{indent}  {text}"));
    }
}

fn source_text(source: &Source) -> String {
    match source {
        Source::Scan(access) => access_text(access),
        Source::Stage(stage) => format!("Rows of stage {stage}"),
        Source::Built { stage, met: true } => format!("Rows that stage {stage} built and a probe has met"),
        Source::Built { stage, met: false } => format!("Rows that stage {stage} built and no probe has met"),
        Source::Values { rows, .. } => format!("Values ({} rows)", rows.len()),
    }
}

fn passed_text(qep: &MacroQep, passed: &PassedFilterPlan) -> String {
    let key = match &qep.stages[passed.stage].sink {
        SinkPlan::Build(spec) => spec.keys[passed.key].to_string(),
        _ => "keys".to_string(),
    };
    format!("filter passed from stage {}: #{} is among its {key}", passed.stage, passed.column)
}

fn probe_text(probe: &ProbePlan) -> String {
    let keys = if probe.keys.is_empty() { "every row".to_string() } else { expressions_text(&probe.keys) };
    let residual = probe.residual.as_ref().map_or(String::new(), |residual| format!(" if {residual}"));
    format!("probe stage {}: {:?} by {keys}{residual}", probe.stage, probe.kind)
}

fn sink_text(stage: &Stage) -> String {
    let text = match &stage.sink {
        SinkPlan::Emit => "Rows to the task".to_string(),
        SinkPlan::Collect => "Collect".to_string(),
        SinkPlan::Nothing => "Mark what is met".to_string(),
        SinkPlan::Build(spec) if spec.existence => format!("Build keys {}", expressions_text(&spec.keys)),
        SinkPlan::Build(spec) => {
            format!("Build by {}, {} columns", expressions_text(&spec.keys), spec.columns.len())
        }
        SinkPlan::Group { groups, determining, calls } => {
            let calls: Vec<String> = calls
                .iter()
                .map(|GroupCall { call, distinct, filter }| {
                    let input = call.input.as_ref().map_or("*".to_string(), Expression::to_string);
                    let distinct = if *distinct { "distinct " } else { "" };
                    let filter = filter.as_ref().map_or(String::new(), |filter| format!(" filter {filter}"));
                    format!("{:?}({distinct}{input}){filter}", call.function)
                })
                .collect();
            let (compared, carried) = groups.split_at(*determining);
            let carried = match carried {
                [] => String::new(),
                carried => format!(" with [{}]", expressions_text(carried)),
            };
            format!("Group by [{}]{carried}: {}", expressions_text(compared), calls.join(", "))
        }
        SinkPlan::Sort { keys, limit } => {
            let first = limit.map_or(String::new(), |limit| format!(", the first {limit}"));
            format!("Sort by {}{first}", sort_text(keys))
        }
        SinkPlan::Window(spec) => window_text(spec),
    };
    let part = |slot: &Option<crate::native::Slot>, word: &dyn Display| {
        slot.as_ref().map_or(String::new(), |slot| format!(" {word} {}", slot_text(slot)))
    };
    match &stage.limit {
        None => text,
        Some(limit) => format!("{text}, limit{}{}", part(&limit.fetch, &"to"), part(&limit.skip, &"after")),
    }
}

fn window_text(spec: &WindowSpec) -> String {
    let (partition, order) = spec.keys.0.split_at(spec.partition_keys);
    let keys = |keys: &[SortKey]| sort_text(&SortKeys(keys.into()));
    let order = if order.is_empty() { String::new() } else { format!(" in order {}", keys(order)) };
    let calls: Vec<String> = spec.calls.iter().map(call_text).collect();
    format!("Window by [{}]{order}: {}", keys(partition), calls.join(", "))
}

fn call_text(call: &WindowCall) -> String {
    let place = |column: Option<usize>| column.map_or(String::new(), |column| format!(", #{column}"));
    let name = match call.function {
        WindowFunction::RowNumber => "RowNumber()".to_string(),
        WindowFunction::Rank => "Rank()".to_string(),
        WindowFunction::DenseRank => "DenseRank()".to_string(),
        WindowFunction::PercentRank => "PercentRank()".to_string(),
        WindowFunction::CumeDist => "CumeDist()".to_string(),
        WindowFunction::Ntile { buckets } => format!("Ntile(#{buckets})"),
        WindowFunction::Shift { value, offset, default, ahead } => {
            format!("{}(#{value}{}{})", if ahead { "Lead" } else { "Lag" }, place(offset), place(default))
        }
        WindowFunction::FirstValue { value } => format!("FirstValue(#{value})"),
        WindowFunction::LastValue { value } => format!("LastValue(#{value})"),
        WindowFunction::NthValue { value, number } => format!("NthValue(#{value}, #{number})"),
        WindowFunction::Aggregate { function, input } => {
            format!("{function:?}({})", input.map_or("*".to_string(), |input| format!("#{input}")))
        }
    };
    if call.function.has_frame() { format!("{name} of {}", call.frame) } else { name }
}
