//! Outer, semi, anti and mark joins: two sides that cannot change places freely.

use std::sync::Arc;

use eris_operators::{Expression, JoinKind};
use eris_query::{self as query, ColumnId, Join, Scalar, columns_of};
use eris_storage::{DataType, Value};

use super::joins::{Matching, Residual, Sides, kept_columns};
use super::stream::{Places, Stream, placed};
use super::{Compiler, Lowering, Needed};
use crate::native::{Input, SinkPlan, Source, StepPlan};

/// Both sides as streams, and how they match. The first side's rows are the ones that matter.
struct Both {
    first: Stream,
    second: Stream,
    first_keys: Arc<[Expression]>,
    second_keys: Arc<[Expression]>,
    /// The further condition.
    condition: Option<Scalar>,
    /// Needed columns of the batches.
    first_kept: Vec<(usize, ColumnId)>,
    second_kept: Vec<(usize, ColumnId)>,
    null_equal: bool,
}

impl Compiler<'_> {
    pub(super) fn pair(&mut self, join: &Join, needed: &Needed) -> Lowering<Stream> {
        let both = self.both(join, needed)?;
        match join.kind {
            query::JoinKind::Inner => self.probe_first(both, JoinKind::Inner),
            query::JoinKind::Left if both.builds_first() => self.outer_build_first(both),
            query::JoinKind::Left => self.probe_first(both, JoinKind::Left),
            query::JoinKind::Full => self.full(both),
            query::JoinKind::Semi | query::JoinKind::Anti { null_aware: false }
                if both.builds_first() && both.is_better_by_rows() =>
            {
                self.build_first(both, join.kind == query::JoinKind::Semi)
            }
            query::JoinKind::Semi => self.probe_first(both, JoinKind::Semi),
            query::JoinKind::Anti { null_aware: false } => self.probe_first(both, JoinKind::Anti),
            query::JoinKind::Anti { null_aware: true } => self.probe_first(both, JoinKind::NullAwareAnti),
            query::JoinKind::Mark { column, null_aware } => {
                let mut stream = self.probe_first(both, JoinKind::Mark { null_aware })?;
                stream.places.insert(column, stream.types.len() - 1);
                Ok(stream)
            }
        }
    }

    fn both(&mut self, join: &Join, needed: &Needed) -> Lowering<Both> {
        self.ready(join.keys.iter().flat_map(|(first, second)| [first, second]).chain(&join.condition))?;
        let firsts = || join.keys.iter().map(|(first, _)| first);
        let seconds = || join.keys.iter().map(|(_, second)| second);
        let of_condition = columns_of(&join.condition);
        let side = |relation: &query::Relation, keys: Needed| {
            let columns: Needed = relation.columns().into_iter().collect();
            let needed: Needed = needed.intersection(&columns).copied().collect();
            let mut wanted = keys;
            wanted.extend(&needed);
            wanted.extend(of_condition.intersection(&columns));
            (needed, wanted)
        };
        let (first_needed, first_wanted) = side(&join.left, columns_of(firsts()));
        let (second_needed, second_wanted) = side(&join.right, columns_of(seconds()));
        let first = self.stream(&join.left, &first_wanted)?;
        let second = self.stream(&join.right, &second_wanted)?;
        let kept = |stream: &Stream, needed: &Needed| {
            needed.iter().map(|column| Ok((stream.place_of(*column)?, *column))).collect::<Lowering<Vec<_>>>()
        };
        Ok(Both {
            first_keys: first.lower_all(firsts())?,
            second_keys: second.lower_all(seconds())?,
            condition: join.condition.clone(),
            first_kept: kept(&first, &first_needed)?,
            second_kept: kept(&second, &second_needed)?,
            first,
            second,
            null_equal: join.null_equal,
        })
    }

    /// The first side is probed, the second one built.
    fn probe_first(&mut self, both: Both, kind: JoinKind) -> Lowering<Stream> {
        let columns = both.columns(kind);
        let matching = both.matching(true);
        let build_kept = match kind {
            JoinKind::Inner | JoinKind::Left => places_of(&both.second_kept),
            JoinKind::Semi | JoinKind::Anti | JoinKind::NullAwareAnti | JoinKind::Mark { .. } | JoinKind::Build => {
                Vec::new()
            }
        };
        let sides =
            Sides { probe: both.first, build: &both.second, probe_kept: places_of(&both.first_kept), build_kept };
        let (mut stream, _) = self.probed(sides, &matching, kind, false)?;
        stream.places = placed(columns);
        Ok(stream)
    }

    /// The first side is built, because it is smaller; its rows without partner follow the others.
    fn outer_build_first(&mut self, both: Both) -> Lowering<Stream> {
        let (unmet_types, second_kept) = (both.first_types(), places_of(&both.second_kept));
        let missing: Vec<DataType> = second_kept.iter().map(|column| both.second.types[*column]).collect();
        let columns: Vec<ColumnId> =
            both.second_kept.iter().chain(&both.first_kept).map(|(_, column)| *column).collect();
        let rows = both.first.estimate.rows;
        let (mut stream, stage, first_columns) = self.probe_second(both, JoinKind::Inner)?;
        // NULLs for the second side, which stands in front, then the first side's columns.
        let nulls = missing.iter().map(|data_type| Expression::Constant { value: Value::Null, data_type: *data_type });
        let own = first_columns
            .iter()
            .zip(&unmet_types)
            .map(|(index, data_type)| Expression::Column { index: *index, data_type: *data_type });
        let step = StepPlan::Project(nulls.chain(own).collect());
        let source = Source::Built { stage, met: false };
        stream.inputs.push(Input { source, steps: vec![step], expected_rows: rows });
        stream.estimate.rows = stream.estimate.rows.max(rows);
        stream.places = placed(columns);
        Ok(stream)
    }

    /// The first side is built; what remains are its rows that were met, or those that were not.
    fn build_first(&mut self, both: Both, met: bool) -> Lowering<Stream> {
        let columns: Vec<ColumnId> = both.first_kept.iter().map(|(_, column)| *column).collect();
        let (types, kept) = (both.first_types(), places_of(&both.first_kept));
        let estimate = both.first.estimate.chosen(&kept).scaled(0.5, None);
        let (stream, stage, first_columns) = self.probe_second(both, JoinKind::Build)?;
        self.end(&stream, SinkPlan::Nothing);
        let own = first_columns
            .iter()
            .zip(&types)
            .map(|(index, data_type)| Expression::Column { index: *index, data_type: *data_type });
        let step = StepPlan::Project(own.collect());
        let expected_rows = estimate.rows;
        let inputs = vec![Input { source: Source::Built { stage, met }, steps: vec![step], expected_rows }];
        Ok(Stream { inputs, places: placed(columns), types, estimate })
    }

    /// Probes the built first side with the second one; also where the first side's needed columns are among those that
    /// were kept of it.
    fn probe_second(&mut self, both: Both, kind: JoinKind) -> Lowering<(Stream, usize, Vec<usize>)> {
        let matching = both.matching(false);
        let first_kept = places_of(&both.first_kept);
        let all = kept_columns(&first_kept, matching.residual.as_ref());
        let places = first_kept.iter().filter_map(|column| all.iter().position(|own| own == column)).collect();
        let sides = Sides {
            probe: both.second,
            build: &both.first,
            probe_kept: if kind == JoinKind::Build { Vec::new() } else { places_of(&both.second_kept) },
            build_kept: first_kept,
        };
        let (stream, stage) = self.probed(sides, &matching, kind, true)?;
        Ok((stream, stage, places))
    }

    /// Rows of both sides without partner stay.
    fn full(&mut self, both: Both) -> Lowering<Stream> {
        let columns = both.columns(JoinKind::Left);
        let matching = both.matching(true);
        let (first_kept, second_kept) = (places_of(&both.first_kept), places_of(&both.second_kept));
        let missing = both.first_types();
        let second_types: Vec<DataType> = second_kept.iter().map(|column| both.second.types[*column]).collect();
        let all = kept_columns(&second_kept, matching.residual.as_ref());
        let rows = both.second.estimate.rows;
        let sides =
            Sides { probe: both.first, build: &both.second, probe_kept: first_kept, build_kept: second_kept.clone() };
        let (mut stream, stage) = self.probed(sides, &matching, JoinKind::Left, true)?;
        let nulls = missing.iter().map(|data_type| Expression::Constant { value: Value::Null, data_type: *data_type });
        let own = second_kept.iter().zip(&second_types).filter_map(|(column, data_type)| {
            let index = all.iter().position(|kept| kept == column)?;
            Some(Expression::Column { index, data_type: *data_type })
        });
        let step = StepPlan::Project(nulls.chain(own).collect());
        let source = Source::Built { stage, met: false };
        stream.inputs.push(Input { source, steps: vec![step], expected_rows: rows });
        stream.estimate.rows += rows;
        stream.places = placed(columns);
        Ok(stream)
    }
}

fn places_of(kept: &[(usize, ColumnId)]) -> Vec<usize> {
    kept.iter().map(|(column, _)| *column).collect()
}

impl Both {
    /// Whether the first side is the smaller one: a row costs more to build than to look up.
    fn builds_first(&self) -> bool {
        self.first.estimate.rows < self.second.estimate.rows
    }

    /// Whether rows have to be looked at; else a bit for each key of the second side is enough, which is cheap to make.
    fn is_better_by_rows(&self) -> bool {
        let one_number = matches!(&*self.second_keys, [key] if matches!(
            key.data_type(),
            DataType::Int16 | DataType::Int32 | DataType::Int64 | DataType::Date
        ));
        self.condition.is_some() || !one_number
    }

    /// How they match when the first side is probed, or when it is built.
    fn matching(&self, first_is_probed: bool) -> Matching {
        let (first, second): (&Places, &Places) = (&self.first.places, &self.second.places);
        let (probe, build) = if first_is_probed { (first, second) } else { (second, first) };
        let (probe_keys, build_keys) =
            if first_is_probed { (&self.first_keys, &self.second_keys) } else { (&self.second_keys, &self.first_keys) };
        let residual = self.condition.as_ref().map(|condition| Residual {
            condition: condition.clone(),
            probe: probe.clone(),
            build: build.clone(),
        });
        Matching {
            probe_keys: Arc::clone(probe_keys),
            build_keys: Arc::clone(build_keys),
            residual,
            null_equal: self.null_equal,
        }
    }

    fn first_types(&self) -> Vec<DataType> {
        self.first_kept.iter().map(|(column, _)| self.first.types[*column]).collect()
    }

    /// The result's columns when the first side was probed.
    fn columns(&self, kind: JoinKind) -> Vec<ColumnId> {
        let second = if matches!(kind, JoinKind::Inner | JoinKind::Left) { &*self.second_kept } else { &[] };
        self.first_kept.iter().chain(second).map(|(_, column)| *column).collect()
    }
}
