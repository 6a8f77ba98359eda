//! Filters that build sides pass sideways: to where the rows come from that would not find a partner in the end.
//!
//! ```text
//!   stage 0  scan part where p_brand = ... ──────────────────────> build by p_partkey ──┐ which keys there are
//!   stage 1  scan lineitem ── passed filter ─────────────────────> group by l_partkey   │
//!                                  └────────────────────────────────────────────────────┤
//!   stage 2  rows of stage 1 ── probe 0 by l_partkey ────────────> ...                  │
//! ```
//! Each key by which a pipeline looks rows up in a build side, and loses those that find nothing, is followed back to
//! where it comes from: through steps that hand the column on, into groups by that column, into the build side of a
//! join that is probed by the way, into collected and sorted rows. There a filter is worth its time or not, by what it
//! is expected to take away, what each row costs from there on, and what it costs to make and to ask. Where rows look
//! the same value up in a further build side, before or behind that probe, the filter is followed into that one, too.
//!
//! Why no row is missed:
//!
//! * The probe is one that gives nothing for a row without partner (inner, semi, or only marking what is met), and a
//!   NULL has none. So whatever a row that a filter takes away would have become, it would have been lost there.
//! * On the way back each row must depend on its own source only. That is so for the probed side of any join that does
//!   not note which built rows were met: that would change with a probed row that is missing. It is so for the built
//!   side of an inner join. In a left join a row whose partners are missing gets a NULL as its key, which is lost, too.
//! * A row of a further build side whose key does not pass is looked for by rows alone that are lost at the probe,
//!   whatever comes of it there; so it need not be built, unless built rows are read that nobody met.
//! * Groups by the column are lost or kept with all their rows. A limit, a window, or rows that somebody else reads,
//!   too, end the way.
//!
//! What a filter needs runs before: a filter that would need itself is not passed ([`super::schedule`]).

use std::collections::BTreeSet;

use eris_operators::{BuildSpec, Expression, JoinKind};
use eris_storage::{Column, DataType, Values};

use super::order::{BUILD_COST, probe_cost};
use super::schedule::{needs, probes_of, reaches};
use crate::native::{MacroQep, PassedFilterPlan, ProbePlan, SinkPlan, Source, StepPlan};
use crate::statistics::Statistics;

/// Costs, in about a nanosecond a row. Conditions and columns that are computed:
const FILTER_COST: f64 = 1.0;
const PROJECT_COST: f64 = 1.0;
/// Rows that are grouped, sorted, collected:
const GROUP_COST: f64 = 10.0;
const SORT_COST: f64 = 20.0;
const COLLECT_COST: f64 = 2.0;
/// Asking a filter, and copying what passes; entering a value. Numbers, and values that have to be hashed.
const TEST_COST: f64 = 1.2;
const HASHED_TEST_COST: f64 = 5.0;
const COPY_COST: f64 = 2.0;
/// What a row costs that is scanned, if an index could find the few that are asked for; how many keys may be few.
const SCANNED_COST: f64 = 2.0;
const FEW_BUILT: f64 = 2_048.0;
/// What conditions leave of which only that is known.
const FILTERED_SHARE: f64 = 0.5;
/// A filter that lets more pass is within the error of the estimate.
const SHARE_MAX: f64 = 0.7;
/// Filters of one plan at most.
const FILTERS_MAX: usize = 64;

/// Where a filter can be put.
#[derive(Debug)]
struct Place {
    stage: usize,
    input: usize,
    /// Before this step.
    step: usize,
    column: usize,
    /// Rows that come there.
    rows: f64,
    /// What each of them costs from there to the probe.
    work: f64,
}

/// A filter and its place.
#[derive(Debug)]
struct Candidate {
    place: Place,
    filter: PassedFilterPlan,
    gain: f64,
}

/// Adds all filters that are worth it; whether there are any. The stages then have to be put in order.
pub(super) fn pass_filters(qep: &mut MacroQep, statistics: &Statistics) -> bool {
    for passed in 0..FILTERS_MAX {
        let Some(Candidate { place, mut filter, .. }) = best(qep) else { return passed > 0 };
        let input = &mut qep.stages[place.stage].inputs[place.input];
        if let Source::Scan(access) = &input.source
            && let Some(known) = statistics.of(access.table.container())
            && input.steps[..place.step].iter().all(|step| matches!(step, StepPlan::Passed(_)))
        {
            filter.spread = spread_of(&known.sample.columns[access.desired[filter.column].index()]);
        }
        input.steps.insert(place.step, StepPlan::Passed(filter));
    }
    true
}

/// The filter that is worth most.
fn best(qep: &MacroQep) -> Option<Candidate> {
    let needs = needs(qep);
    let mut best: Option<Candidate> = None;
    for (number, stage) in qep.stages.iter().enumerate() {
        for (input, plan) in stage.inputs.iter().enumerate() {
            for (step, probe) in plan.steps.iter().enumerate() {
                let StepPlan::Probe(probe) = probe else { continue };
                for candidate in candidates(qep, (number, input, step), probe, &needs) {
                    if best.as_ref().is_none_or(|best| candidate.gain > best.gain) {
                        best = Some(candidate);
                    }
                }
            }
        }
    }
    best
}

/// The filters that a probe's build side could pass, as far as they are worth it.
fn candidates(
    qep: &MacroQep,
    (stage, input, step): (usize, usize, usize),
    probe: &ProbePlan,
    needs: &[BTreeSet<usize>],
) -> Vec<Candidate> {
    let Some(spec) = built_by(qep, probe) else { return Vec::new() };
    let loses_rows = matches!(probe.kind, JoinKind::Inner | JoinKind::Semi | JoinKind::Build);
    if !loses_rows || spec.null_equal {
        return Vec::new();
    }
    let built_rows = qep.stages[probe.stage].expected_rows;
    // Bits of existence are as fast as the filter would be.
    let work = if spec.existence { probe_cost(0.0) } else { probe_cost(built_rows) };
    let mut found = Vec::new();
    for (key, (expression, share)) in probe.keys.iter().zip(&*probe.expected_shares).enumerate() {
        let Expression::Column { index, data_type } = expression else { continue };
        if *share > SHARE_MAX {
            continue;
        }
        let mut way = Way { qep, data_type: *data_type, places: Vec::new() };
        way.back(stage, input, step, *index, work);
        way.forward((stage, input, step), *index, spec.keys.get(key));
        for mut place in way.places {
            if built_rows <= FEW_BUILT && leads_an_index(qep, &place) {
                place.work += SCANNED_COST;
            }
            let column = place.column;
            let filter = PassedFilterPlan { stage: probe.stage, key, column, expected_share: *share, spread: None };
            let gain = gain(&place, &filter, built_rows, *data_type);
            if gain > 0.0 && !is_there(qep, &place, &filter) && !reaches(needs, probe.stage, place.stage) {
                found.push(Candidate { place, filter, gain });
            }
        }
    }
    found
}

/// Whether the column is an attribute as it is scanned, with which an index begins.
fn leads_an_index(qep: &MacroQep, place: &Place) -> bool {
    let input = &qep.stages[place.stage].inputs[place.input];
    let Source::Scan(access) = &input.source else { return false };
    let is_first = input.steps[..place.step].iter().all(|step| matches!(step, StepPlan::Passed(_)));
    is_first && access.leads_an_index(access.desired[place.column])
}

fn gain(place: &Place, filter: &PassedFilterPlan, built_rows: f64, data_type: DataType) -> f64 {
    let is_number = matches!(
        data_type,
        DataType::Boolean | DataType::Int16 | DataType::Int32 | DataType::Int64 | DataType::Date | DataType::Timestamp
    );
    let test = if is_number { TEST_COST } else { HASHED_TEST_COST };
    let share = filter.expected_share;
    place.rows * ((1.0 - share) * place.work - test - share * COPY_COST) - built_rows * test
}

/// Whether rows of an input are tested for the same key already.
fn is_there(qep: &MacroQep, place: &Place, filter: &PassedFilterPlan) -> bool {
    let steps = &qep.stages[place.stage].inputs[place.input].steps;
    steps.iter().any(
        |step| matches!(step, StepPlan::Passed(passed) if (passed.stage, passed.key) == (filter.stage, filter.key)),
    )
}

/// Between which values an attribute lies, by its sample.
fn spread_of(sample: &Column) -> Option<(i64, i64)> {
    macro_rules! ends {
        ($values:expr) => {{
            let known = || (0..sample.len()).filter(|row| !sample.is_null(*row)).map(|row| i64::from($values[row]));
            known().min().zip(known().max())
        }};
    }
    match &sample.values {
        Values::Int16(values) => ends!(values),
        Values::Int32(values) => ends!(values),
        Values::Int64(values) => ends!(values),
        Values::Boolean(_) | Values::Int128(_) | Values::Float32(_) | Values::Float64(_) | Values::Bytes(_) => None,
    }
}

fn built_by<'q>(qep: &'q MacroQep, probe: &ProbePlan) -> Option<&'q BuildSpec> {
    match &qep.stages[probe.stage].sink {
        SinkPlan::Build(spec) => Some(spec),
        SinkPlan::Emit
        | SinkPlan::Collect
        | SinkPlan::Nothing
        | SinkPlan::Group { .. }
        | SinkPlan::Sort { .. }
        | SinkPlan::Window(_) => None,
    }
}

fn is_one_of(expression: &Expression, columns: &[usize]) -> bool {
    matches!(expression, Expression::Column { index, .. } if columns.contains(index))
}

/// The way from a probe back to where its key comes from.
struct Way<'w> {
    qep: &'w MacroQep,
    /// Of the key.
    data_type: DataType,
    places: Vec<Place>,
}

impl Way<'_> {
    /// From before a step on; `work` is what a row costs from there to the probe.
    fn back(&mut self, stage: usize, input: usize, step: usize, mut column: usize, mut work: f64) {
        let qep = self.qep;
        let plan = &qep.stages[stage].inputs[input];
        let passed = plan.steps[..step].iter().take_while(|step| matches!(step, StepPlan::Passed(_))).count();
        let mut at = step;
        while at > passed {
            match &plan.steps[at - 1] {
                // A column may be another one in each list.
                StepPlan::Expand(_) => break,
                StepPlan::Filter(_) => work = work.mul_add(FILTERED_SHARE, FILTER_COST),
                StepPlan::Passed(filter) => work = work.mul_add(filter.expected_share, TEST_COST),
                StepPlan::Project(expressions) => {
                    let Some(Expression::Column { index, .. }) = expressions.get(column) else { break };
                    column = *index;
                    work += PROJECT_COST;
                }
                StepPlan::Probe(probe) => {
                    if let Some(built) = column.checked_sub(probe.probe_columns.len()) {
                        if self.through_build(probe, built, work) {
                            return;
                        }
                        break;
                    }
                    if self.notes_met(probe.stage) {
                        break;
                    }
                    column = probe.probe_columns[column];
                    self.through_partners(probe, &[column]);
                    work = work.mul_add(kept_share(probe), probe_cost(qep.stages[probe.stage].expected_rows));
                }
            }
            at -= 1;
        }
        if at == passed && self.through_source(&plan.source, column, work, plan.expected_rows) {
            return;
        }
        let rows = plan.steps[..at].iter().fold(plan.expected_rows, |rows, step| match step {
            StepPlan::Passed(filter) => rows * filter.expected_share,
            StepPlan::Filter(_) => rows * FILTERED_SHARE,
            StepPlan::Probe(probe) => rows * kept_share(probe),
            StepPlan::Expand(lists) => rows * lists.len() as f64,
            StepPlan::Project(_) => rows,
        });
        self.places.push(Place { stage, input, step: at, column, rows, work });
    }

    /// Into the build sides in which rows look the key up behind its probe, which is this step.
    fn forward(&mut self, (stage, input, first): (usize, usize, usize), column: usize, built: Option<&Expression>) {
        let qep = self.qep;
        let mut columns = vec![column];
        for (step, plan) in qep.stages[stage].inputs[input].steps.iter().enumerate().skip(first) {
            columns = match plan {
                StepPlan::Filter(_) | StepPlan::Passed(_) => columns,
                StepPlan::Project(expressions) => {
                    let kept = expressions.iter().enumerate().filter(|(_, expression)| is_one_of(expression, &columns));
                    kept.map(|(position, _)| position).collect()
                }
                // A column may be another one in each list.
                StepPlan::Expand(_) => return,
                StepPlan::Probe(probe) => {
                    if step > first {
                        self.through_partners(probe, &columns);
                    }
                    let own = probe.probe_columns.iter().enumerate().filter(|(_, own)| columns.contains(own));
                    let mut behind: Vec<usize> = own.map(|(position, _)| position).collect();
                    // The built row's key is the same value.
                    if step == first
                        && let (Some(spec), Some(key)) = (built_by(qep, probe), built)
                    {
                        let is_key = |kept: &usize| is_one_of(key, &[spec.columns[*kept]]);
                        let equal = probe.build_columns.iter().enumerate().filter(|(_, kept)| is_key(kept));
                        behind.extend(equal.map(|(position, _)| probe.probe_columns.len() + position));
                    }
                    behind
                }
            };
        }
    }

    /// Into what a probe looks these columns up in.
    fn through_partners(&mut self, probe: &ProbePlan, columns: &[usize]) {
        let qep = self.qep;
        let Some(spec) = built_by(qep, probe) else { return };
        let finds_pairs = matches!(probe.kind, JoinKind::Inner | JoinKind::Left | JoinKind::Semi | JoinKind::Anti);
        if !finds_pairs || spec.null_equal || !self.is_only_probe(probe) {
            return;
        }
        for (own, built) in probe.keys.iter().zip(&*spec.keys) {
            let Expression::Column { index, data_type } = built else { continue };
            if is_one_of(own, columns) && data_type.physical() == self.data_type.physical() {
                self.through_stage(probe.stage, *index, BUILD_COST);
            }
        }
    }

    /// Whether nothing else looks rows up there, or reads those that nobody met.
    fn is_only_probe(&self, probe: &ProbePlan) -> bool {
        let probes: usize = self.qep.stages.iter().map(|stage| probes_of(stage, probe.stage)).sum();
        probes == 1 && !self.notes_met(probe.stage)
    }

    fn notes_met(&self, built: usize) -> bool {
        matches!(&self.qep.stages[built].sink, SinkPlan::Build(spec) if spec.keep_unmatched)
    }

    /// Into the build side of a join that is probed on the way, whose column comes behind it.
    fn through_build(&mut self, probe: &ProbePlan, column: usize, work: f64) -> bool {
        let Some(spec) = built_by(self.qep, probe) else { return false };
        if !matches!(probe.kind, JoinKind::Inner | JoinKind::Left) || !self.is_only_probe(probe) {
            return false;
        }
        let Some(kept) = probe.build_columns.get(column) else { return false };
        self.through_stage(probe.stage, spec.columns[*kept], work + BUILD_COST)
    }

    /// Into the stage that the rows come from, if nobody else reads them.
    fn through_source(&mut self, source: &Source, column: usize, work: f64, rows: f64) -> bool {
        match source {
            Source::Scan(_) | Source::Values { .. } => false,
            Source::Built { stage, .. } => self.through_met(*stage, column, work),
            Source::Stage(number) => {
                let qep = self.qep;
                let stage = &qep.stages[*number];
                if qep.uses(*number) != 1 || stage.limit.is_some() {
                    return false;
                }
                match &stage.sink {
                    SinkPlan::Group { groups, .. } => {
                        let Some(Expression::Column { index, .. }) = groups.get(column) else { return false };
                        let share = (rows / stage.expected_rows.max(1.0)).min(1.0);
                        self.through_stage(*number, *index, work.mul_add(share, GROUP_COST))
                    }
                    SinkPlan::Collect => self.through_stage(*number, column, work + COLLECT_COST),
                    SinkPlan::Sort { limit: None, .. } => self.through_stage(*number, column, work + SORT_COST),
                    // A window's rows depend on each other.
                    SinkPlan::Sort { .. }
                    | SinkPlan::Window(_)
                    | SinkPlan::Emit
                    | SinkPlan::Nothing
                    | SinkPlan::Build(_) => false,
                }
            }
        }
    }

    /// Into a build side of which only those rows are read that were met, or those that were not.
    fn through_met(&mut self, built: usize, column: usize, work: f64) -> bool {
        let qep = self.qep;
        let inputs = || qep.stages.iter().flat_map(|stage| &stage.inputs);
        let readers =
            inputs().filter(|input| matches!(input.source, Source::Built { stage, .. } if stage == built)).count();
        let only_marks = inputs().flat_map(|input| &input.steps).all(|step| match step {
            StepPlan::Probe(probe) => probe.stage != built || probe.kind == JoinKind::Build,
            StepPlan::Filter(_) | StepPlan::Project(_) | StepPlan::Expand(_) | StepPlan::Passed(_) => true,
        });
        let SinkPlan::Build(spec) = &qep.stages[built].sink else { return false };
        readers == 1 && only_marks && self.through_stage(built, spec.columns[column], work + BUILD_COST)
    }

    fn through_stage(&mut self, stage: usize, column: usize, work: f64) -> bool {
        let qep = self.qep;
        for (input, plan) in qep.stages[stage].inputs.iter().enumerate() {
            self.back(stage, input, plan.steps.len(), column, work);
        }
        true
    }
}

/// Which share of rows a probe lets pass, by its keys.
fn kept_share(probe: &ProbePlan) -> f64 {
    match probe.kind {
        JoinKind::Inner | JoinKind::Semi => probe.expected_shares.iter().copied().fold(1.0, f64::min),
        JoinKind::Left | JoinKind::Anti | JoinKind::NullAwareAnti | JoinKind::Mark { .. } | JoinKind::Build => 1.0,
    }
}
