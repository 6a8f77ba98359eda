//! EXPLAIN of a macro-QEP: stage after stage, each with its inputs, what they pass through, and where they end.

use std::fmt::Display;

use eris_operators::{Expression, GroupCall};

use super::{Input, MacroQep, PassedFilterPlan, ProbePlan, SinkPlan, Source, Stage, StepPlan};
use crate::native::describe::{access_text, expressions_text, kernel, slot_text, sort_text};

/// The lines of a plan, in the order in which it runs.
pub fn describe_dataflows(qep: &MacroQep, depth: usize, lines: &mut Vec<String>) {
    let indent = "  ".repeat(depth);
    for (number, stage) in qep.stages.iter().enumerate() {
        let scalar = qep.scalars.iter().find(|scalar| scalar.stage == number);
        let becomes = scalar.map_or(String::new(), |scalar| format!(", its value is ${}", scalar.parameter + 1));
        lines.push(format!(
            "{indent}Stage {number}: {}{becomes}  (about {:.0} rows come)  [native]",
            sink_text(stage),
            stage.expected_rows
        ));
        for input in &stage.inputs {
            describe_input(qep, input, &format!("{indent}  "), lines);
        }
    }
}

fn describe_input(qep: &MacroQep, input: &Input, indent: &str, lines: &mut Vec<String>) {
    let place = match &input.source {
        Source::Scan(_) => "in each partition",
        Source::Stage(_) | Source::Built { .. } | Source::Values { .. } => "tasks",
    };
    lines.push(format!("{indent}{}  [native]", source_text(&input.source)));
    for step in &input.steps {
        let text = match step {
            StepPlan::Filter(condition) => format!("filter: {condition}  [{}, {place}]", kernel(condition)),
            StepPlan::Project(expressions) => {
                let worst = expressions.iter().map(kernel).max().unwrap_or("native");
                format!("compute: {}  [{worst}, {place}]", expressions_text(expressions))
            }
            StepPlan::Passed(passed) => format!("{}  [native, {place}]", passed_text(qep, passed)),
            StepPlan::Probe(probe) => format!("{}  [native, {place}]", probe_text(probe)),
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
        SinkPlan::Group { groups, calls } => {
            let calls: Vec<String> = calls
                .iter()
                .map(|GroupCall { call, distinct, filter }| {
                    let input = call.input.as_ref().map_or("*".to_string(), Expression::to_string);
                    let distinct = if *distinct { "distinct " } else { "" };
                    let filter = filter.as_ref().map_or(String::new(), |filter| format!(" filter {filter}"));
                    format!("{:?}({distinct}{input}){filter}", call.function)
                })
                .collect();
            format!("Group by [{}]: {}", expressions_text(groups), calls.join(", "))
        }
        SinkPlan::Sort { keys, limit } => {
            let first = limit.map_or(String::new(), |limit| format!(", the first {limit}"));
            format!("Sort by {}{first}", sort_text(keys))
        }
    };
    let part = |slot: &Option<crate::native::Slot>, word: &dyn Display| {
        slot.as_ref().map_or(String::new(), |slot| format!(" {word} {}", slot_text(slot)))
    };
    match &stage.limit {
        None => text,
        Some(limit) => format!("{text}, limit{}{}", part(&limit.fetch, &"to"), part(&limit.skip, &"after")),
    }
}
