//! Whether a macro-QEP can run: looked at again in debug builds after each rewrite.

use eris_operators::{Expression, JoinKind};
use eris_storage::DataType;

use crate::native::{Input, MacroQep, SinkPlan, Source, StepPlan};

/// What is wrong with a plan, if anything is.
pub(super) fn fault(qep: &MacroQep) -> Option<String> {
    for (number, stage) in qep.stages.iter().enumerate() {
        for input in &stage.inputs {
            if let Err(fault) = columns_of(qep, number, input) {
                return Some(format!("stage {number}: {fault}"));
            }
        }
    }
    None
}

/// The types behind the steps of an input, where they are known.
fn columns_of(qep: &MacroQep, number: usize, input: &Input) -> Result<Option<Vec<DataType>>, String> {
    let mut types = match &input.source {
        Source::Scan(access) => Some(access.types()),
        Source::Values { types, .. } => Some(types.to_vec()),
        Source::Stage(stage) if *stage >= number => return Err(format!("rows of stage {stage}")),
        Source::Stage(_) => None,
        Source::Built { stage, .. } => match &qep.stages.get(*stage).map(|stage| &stage.sink) {
            Some(SinkPlan::Build(spec)) if *stage < number && spec.keep_unmatched => Some(spec.types.to_vec()),
            _ => return Err(format!("rows met of stage {stage}")),
        },
    };
    for step in &input.steps {
        types = step_types(qep, number, step, types)?;
    }
    Ok(types)
}

fn step_types(
    qep: &MacroQep,
    number: usize,
    step: &StepPlan,
    types: Option<Vec<DataType>>,
) -> Result<Option<Vec<DataType>>, String> {
    let key_of = |stage: usize| match qep.stages.get(stage).map(|stage| &stage.sink) {
        Some(SinkPlan::Build(spec)) if stage < number => Ok(spec),
        _ => Err(format!("stage {stage} builds nothing before")),
    };
    match step {
        StepPlan::Filter(_) => Ok(types),
        StepPlan::Project(expressions) => Ok(Some(expressions.iter().map(Expression::data_type).collect())),
        StepPlan::Expand(lists) => {
            let types_of = |list: &[Expression]| list.iter().map(Expression::data_type).collect::<Vec<_>>();
            let first = lists.first().ok_or("rows are expanded to none")?;
            if lists.iter().any(|list| types_of(list) != types_of(first)) {
                return Err("rows are expanded to rows of several types".to_string());
            }
            Ok(Some(types_of(first)))
        }
        StepPlan::Passed(passed) => {
            let key = key_of(passed.stage)?.keys.get(passed.key).ok_or("a filter of no key")?;
            let own =
                types.as_ref().map(|types| types.get(passed.column).ok_or("a filter of no column")).transpose()?;
            match own {
                Some(own) if own.physical() != key.data_type().physical() => {
                    Err(format!("a filter of {} for {own}", key.data_type()))
                }
                _ => Ok(types),
            }
        }
        StepPlan::Probe(probe) => {
            let spec = key_of(probe.stage)?;
            if spec.keys.len() != probe.keys.len() || probe.keys.len() != probe.expected_shares.len() {
                return Err(format!("{} keys for {}", probe.keys.len(), spec.keys.len()));
            }
            let Some(types) = types else { return Ok(None) };
            let own = probe.probe_columns.iter().map(|column| types.get(*column));
            let built = probe.build_columns.iter().map(|column| spec.types.get(*column));
            let mark = matches!(probe.kind, JoinKind::Mark { .. }).then_some(Some(&DataType::Boolean));
            let all = own.chain(built).chain(mark).map(Option::<&DataType>::copied);
            all.collect::<Option<Vec<_>>>().map(Some).ok_or_else(|| "columns that are not there".to_string())
        }
    }
}
