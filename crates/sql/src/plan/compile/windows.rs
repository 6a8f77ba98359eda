//! Window functions: a stage for those of a relation that see the same partitions in the same order.
//!
//! What they look at becomes columns first: keys, arguments, and for RANGE with an offset what keys are compared with.

use eris_operators::{FrameBound, SortKeys, WindowCall, WindowFunction, WindowSpec};
use eris_query::{Relation, Scalar, Window, WindowItem, columns_of};
use eris_storage::DataType;

use super::estimate::{ColumnEstimate, Estimate};
use super::stream::{Places, Stream};
use super::{Compiler, Lowering, Needed};
use crate::native::{SinkPlan, Source};

/// A window with those of its functions that are needed.
struct Asked<'w> {
    window: &'w Window,
    items: Vec<&'w WindowItem>,
}

impl<'w> Asked<'w> {
    /// The places of what its keys, functions and frames look at.
    fn looked_at(&self) -> Vec<usize> {
        let keys = self.window.keys.iter().map(|key| key.column);
        let calls = self.items.iter().flat_map(|item| {
            let of_frame = item.call.frame.columns();
            item.call.function.columns().into_iter().chain(of_frame)
        });
        let mut places: Vec<usize> = keys.chain(calls).collect();
        places.sort_unstable();
        places.dedup();
        places
    }

    /// What they look at.
    fn inputs(&self) -> Vec<&'w Scalar> {
        self.looked_at().into_iter().map(|place| &self.window.inputs[place]).collect()
    }
}

impl Compiler<'_> {
    pub(super) fn window(&mut self, input: &Relation, windows: &[Window], needed: &Needed) -> Lowering<Stream> {
        let asked = windows.iter().map(|window| {
            let items = window.items.iter().filter(|item| needed.contains(&item.column)).collect();
            Asked { window, items }
        });
        let asked: Vec<Asked<'_>> = asked.filter(|asked| !asked.items.is_empty()).collect();
        let mut wanted: Needed = needed.clone();
        for item in windows.iter().flat_map(|window| &window.items) {
            wanted.remove(&item.column);
        }
        for own in &asked {
            self.ready(own.inputs())?;
            wanted.extend(columns_of(own.inputs()));
        }
        let mut stream = self.stream(input, &wanted)?;
        for (at, own) in asked.iter().enumerate() {
            // What is needed after this stage: for the result, and for other windows.
            let mut later = needed.clone();
            later.extend(asked[at + 1..].iter().flat_map(|other| columns_of(other.inputs())));
            stream = self.windows(stream, own, &later)?;
        }
        Ok(stream)
    }

    /// One stage.
    fn windows(&mut self, mut stream: Stream, asked: &Asked<'_>, later: &Needed) -> Lowering<Stream> {
        let looked_at = asked.looked_at();
        let expressions = stream.lower_all(asked.inputs())?.to_vec();
        let columns = stream.with_columns(expressions);
        let place = |input: usize| columns[looked_at.partition_point(|looked| *looked < input)];
        let keys = asked.window.keys.iter().map(|key| eris_operators::SortKey { column: place(key.column), ..*key });
        let keys = SortKeys(keys.collect());
        let calls = asked.items.iter().map(|item| placed(item.call.clone(), &place)).collect();
        let mut kept: Vec<usize> = Vec::new();
        let mut places = Places::new();
        for column in later {
            if let Some(at) = stream.places.get(column) {
                let known = kept.iter().position(|known| known == at).unwrap_or_else(|| {
                    kept.push(*at);
                    kept.len() - 1
                });
                places.insert(*column, known);
            }
        }
        let mut types: Vec<DataType> = kept.iter().map(|column| stream.types[*column]).collect();
        let mut estimate = Estimate { sample: None, ..stream.estimate.chosen(&kept) };
        for item in &asked.items {
            places.insert(item.column, types.len());
            types.push(item.call.result);
            let rows = estimate.rows.max(1.0);
            estimate.columns.push(ColumnEstimate { distinct: rows, domain: rows });
        }
        let partition_keys = asked.window.partition_keys;
        let stage = self.end(&stream, SinkPlan::Window(WindowSpec { keys, partition_keys, kept: kept.into(), calls }));
        Ok(Stream::of(Source::Stage(stage), places, types, estimate))
    }
}

/// A call on columns of the batches.
fn placed(mut call: WindowCall, place: &dyn Fn(usize) -> usize) -> WindowCall {
    call.function = match call.function {
        WindowFunction::RowNumber
        | WindowFunction::Rank
        | WindowFunction::DenseRank
        | WindowFunction::PercentRank
        | WindowFunction::CumeDist => call.function,
        WindowFunction::Ntile { buckets } => WindowFunction::Ntile { buckets: place(buckets) },
        WindowFunction::Shift { value, offset, default, ahead } => {
            WindowFunction::Shift { value: place(value), offset: offset.map(place), default: default.map(place), ahead }
        }
        WindowFunction::FirstValue { value } => WindowFunction::FirstValue { value: place(value) },
        WindowFunction::LastValue { value } => WindowFunction::LastValue { value: place(value) },
        WindowFunction::NthValue { value, number } => {
            WindowFunction::NthValue { value: place(value), number: place(number) }
        }
        WindowFunction::Aggregate { function, input } => {
            WindowFunction::Aggregate { function, input: input.map(place) }
        }
    };
    for bound in [&mut call.frame.start, &mut call.frame.end] {
        if let FrameBound::Value { key, bound } = bound {
            (key.column, *bound) = (place(key.column), place(*bound));
        }
    }
    call
}
