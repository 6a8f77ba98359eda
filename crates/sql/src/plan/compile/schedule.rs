//! The order in which stages run: each behind what it needs, else as they were compiled.
//!
//! A stage needs the stages whose rows it reads, whose build sides it probes, and whose filters it was passed. Rows of
//! a build side that a probe has met, or has not, need all its probes; and every stage behind one that gives a scalar
//! needs that one, because its expressions may refer to the value.

use std::collections::BTreeSet;

use crate::native::{MacroQep, Source, Stage, StepPlan};

/// For each stage what has to run before.
pub(super) fn needs(qep: &MacroQep) -> Vec<BTreeSet<usize>> {
    (0..qep.stages.len()).map(|number| needs_of(qep, number)).collect()
}

fn needs_of(qep: &MacroQep, number: usize) -> BTreeSet<usize> {
    let mut needed: BTreeSet<usize> =
        qep.scalars.iter().map(|scalar| scalar.stage).filter(|stage| *stage < number).collect();
    needed.extend(qep.stages[number].reads());
    for input in &qep.stages[number].inputs {
        if let Source::Built { stage, .. } = input.source {
            let probes = qep.stages.iter().enumerate().filter(|(_, other)| probes_of(other, stage) > 0);
            needed.extend(probes.map(|(other, _)| other).filter(|other| *other != number));
        }
    }
    needed
}

/// How many steps of a stage look rows up in a build side.
pub(super) fn probes_of(stage: &Stage, built: usize) -> usize {
    let steps = stage.inputs.iter().flat_map(|input| &input.steps);
    steps.filter(|step| matches!(step, StepPlan::Probe(probe) if probe.stage == built)).count()
}

/// Whether a stage needs another one, itself or through others.
pub(super) fn reaches(needs: &[BTreeSet<usize>], from: usize, to: usize) -> bool {
    let mut seen = BTreeSet::new();
    let mut open = vec![from];
    while let Some(stage) = open.pop() {
        if stage == to {
            return true;
        }
        if seen.insert(stage) {
            open.extend(&needs[stage]);
        }
    }
    false
}

/// Puts the stages in order, and gives them their numbers.
///
/// # Panics
/// If stages need each other, or another one than the last would be the last.
pub(super) fn put_in_order(qep: &mut MacroQep) {
    let needs = needs(qep);
    let mut order: Vec<usize> = Vec::with_capacity(needs.len());
    while order.len() < needs.len() {
        let ready = |stage: &usize| !order.contains(stage) && needs[*stage].iter().all(|need| order.contains(need));
        let next = (0..needs.len()).find(ready);
        assert!(next.is_some(), "stages need each other");
        order.extend(next);
    }
    assert!(order.last().copied() == needs.len().checked_sub(1), "the last stage gives the rows");
    let mut places = vec![0; order.len()];
    order.iter().enumerate().for_each(|(place, stage)| places[*stage] = place);
    let mut stages: Vec<Option<Stage>> = std::mem::take(&mut qep.stages).into_iter().map(Some).collect();
    qep.stages = order.iter().filter_map(|stage| stages[*stage].take()).collect();
    qep.stages.iter_mut().for_each(|stage| renumber(stage, &places));
    qep.scalars.iter_mut().for_each(|scalar| scalar.stage = places[scalar.stage]);
}

fn renumber(stage: &mut Stage, places: &[usize]) {
    for input in &mut stage.inputs {
        match &mut input.source {
            Source::Stage(stage) | Source::Built { stage, .. } => *stage = places[*stage],
            Source::Scan(_) | Source::Values { .. } => {}
        }
        for step in &mut input.steps {
            match step {
                StepPlan::Probe(probe) => probe.stage = places[probe.stage],
                StepPlan::Passed(passed) => passed.stage = places[passed.stage],
                StepPlan::Filter(_) | StepPlan::Project(_) | StepPlan::Expand(_) => {}
            }
        }
    }
}
