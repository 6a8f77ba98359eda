//! Outer, semi, anti and mark joins: two sides that cannot change places freely.

use std::sync::Arc;

use datafusion::common::{DFSchema, NullEquality};
use datafusion::logical_expr::{Expr, Join, JoinType};
use eris_operators::{Expression, JoinKind};
use eris_storage::{DataType, Value};

use super::joins::{Matching, Residual, Sides, kept_columns};
use super::stream::{Stream, referred};
use super::{Compiler, Needed};
use crate::native::{Input, SinkPlan, Source, StepPlan};
use crate::plan::lower::{Lowering, NotNative, lower_all};

/// A join as it was asked for, with its first side as the one whose rows matter.
struct Asked<'j> {
    join: &'j Join,
    /// The first side is the plan's right one.
    swapped: bool,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Inner,
    Outer,
    Full,
    Semi,
    Anti,
    NullAwareAnti,
    Mark,
}

/// Both sides as streams, and how they match.
struct Both {
    first: Stream,
    second: Stream,
    first_keys: Arc<[Expression]>,
    second_keys: Arc<[Expression]>,
    /// The further condition, over the first side's schema and then the second's.
    condition: Option<Expr>,
    combined: DFSchema,
    /// Needed columns of the batches, with their positions in the plan's schema.
    first_kept: Vec<(usize, usize)>,
    second_kept: Vec<(usize, usize)>,
    null_equal: bool,
}

impl Compiler<'_> {
    pub(super) fn pair(&mut self, join: &Join, needed: &Needed) -> Lowering<Stream> {
        let (kind, swapped) = match join.join_type {
            JoinType::Inner => (Kind::Inner, false),
            JoinType::Left => (Kind::Outer, false),
            JoinType::Right => (Kind::Outer, true),
            JoinType::Full => (Kind::Full, false),
            JoinType::LeftSemi => (Kind::Semi, false),
            JoinType::RightSemi => (Kind::Semi, true),
            JoinType::LeftAnti if join.null_aware => (Kind::NullAwareAnti, false),
            JoinType::LeftAnti => (Kind::Anti, false),
            JoinType::RightAnti => (Kind::Anti, true),
            JoinType::LeftMark => (Kind::Mark, false),
            JoinType::RightMark => (Kind::Mark, true),
        };
        let asked = Asked { join, swapped, kind };
        let both = self.both(&asked, needed)?;
        let width = join.schema.fields().len();
        match kind {
            Kind::Inner => self.probe_first(both, JoinKind::Inner, width),
            Kind::Outer if both.builds_first() => self.outer_build_first(both, width),
            Kind::Outer => self.probe_first(both, JoinKind::Left, width),
            Kind::Full => self.full(both, width),
            Kind::Semi | Kind::Anti if both.builds_first() && both.is_better_by_rows() => {
                self.build_first(both, kind == Kind::Semi, width)
            }
            Kind::Semi => self.probe_first(both, JoinKind::Semi, width),
            Kind::Anti => self.probe_first(both, JoinKind::Anti, width),
            Kind::NullAwareAnti => self.probe_first(both, JoinKind::NullAwareAnti, width),
            Kind::Mark => {
                let mut stream = self.probe_first(both, JoinKind::Mark { null_aware: join.null_aware }, width)?;
                stream.columns[width - 1] = Some(stream.types.len() - 1);
                Ok(stream)
            }
        }
    }

    fn both(&mut self, asked: &Asked<'_>, needed: &Needed) -> Lowering<Both> {
        let Asked { join, swapped, kind } = *asked;
        let (first, second) = if swapped { (&join.right, &join.left) } else { (&join.left, &join.right) };
        let (first_schema, second_schema) = (first.schema(), second.schema());
        let mut first_exprs: Vec<Expr> = Vec::new();
        let mut second_exprs: Vec<Expr> = Vec::new();
        for (left, right) in &join.on {
            let (a, b) = if swapped { (right, left) } else { (left, right) };
            first_exprs.push(self.without_subqueries(a)?);
            second_exprs.push(self.without_subqueries(b)?);
        }
        // Positions of the plan's schema that belong to each side.
        let (first_offset, second_offset) = match kind {
            Kind::Semi | Kind::Anti | Kind::NullAwareAnti => (Some(0), None),
            Kind::Mark => (Some(0), None),
            Kind::Inner | Kind::Outer | Kind::Full if swapped => (Some(second_schema.fields().len()), Some(0)),
            Kind::Inner | Kind::Outer | Kind::Full => (Some(0), Some(first_schema.fields().len())),
        };
        let of_side = |offset: Option<usize>, fields: usize| -> Needed {
            let Some(offset) = offset else { return Needed::new() };
            needed.iter().filter(|at| (offset..offset + fields).contains(at)).map(|at| at - offset).collect()
        };
        let first_needed = of_side(first_offset, first_schema.fields().len());
        let second_needed = of_side(second_offset, second_schema.fields().len());
        let combined = first_schema.join(second_schema).map_err(NotNative::because)?;
        let condition = join.filter.as_ref().map(|filter| self.without_subqueries(filter)).transpose()?;
        let mut first_wanted = referred(&first_exprs, first_schema)?;
        let mut second_wanted = referred(&second_exprs, second_schema)?;
        first_wanted.extend(&first_needed);
        second_wanted.extend(&second_needed);
        if let Some(condition) = &condition {
            for position in referred([condition], &combined)? {
                match position.checked_sub(first_schema.fields().len()) {
                    None => first_wanted.insert(position),
                    Some(position) => second_wanted.insert(position),
                };
            }
        }
        let first = self.stream(first, &first_wanted)?;
        let second = self.stream(second, &second_wanted)?;
        let first_keys = lower_all(&first_exprs, Stream::scope(first_schema, &first.columns))?;
        let second_keys = lower_all(&second_exprs, Stream::scope(second_schema, &second.columns))?;
        let kept = |stream: &Stream, needed: &Needed, offset: Option<usize>| {
            let offset = offset.unwrap_or(0);
            needed.iter().map(|at| Ok((stream.column(*at)?, at + offset))).collect::<Lowering<Vec<_>>>()
        };
        Ok(Both {
            first_kept: kept(&first, &first_needed, first_offset)?,
            second_kept: kept(&second, &second_needed, second_offset)?,
            first,
            second,
            first_keys,
            second_keys,
            condition,
            combined,
            null_equal: join.null_equality == NullEquality::NullEqualsNull,
        })
    }

    /// The first side is probed, the second one built.
    fn probe_first(&mut self, both: Both, kind: JoinKind, width: usize) -> Lowering<Stream> {
        let positions = both.positions(kind);
        let matching = both.matching(true);
        let build_kept = match kind {
            JoinKind::Inner | JoinKind::Left => columns_of(&both.second_kept),
            JoinKind::Semi | JoinKind::Anti | JoinKind::NullAwareAnti | JoinKind::Mark { .. } | JoinKind::Build => {
                Vec::new()
            }
        };
        let sides =
            Sides { probe: both.first, build: &both.second, probe_kept: columns_of(&both.first_kept), build_kept };
        let (mut stream, _) = self.probed(sides, &matching, kind, false)?;
        stream.place(&positions, width);
        Ok(stream)
    }

    /// The first side is built, because it is smaller; its rows without partner follow the others.
    fn outer_build_first(&mut self, both: Both, width: usize) -> Lowering<Stream> {
        let (unmet_types, second_kept) = (both.first_types(), columns_of(&both.second_kept));
        let missing: Vec<DataType> = second_kept.iter().map(|column| both.second.types[*column]).collect();
        let mut positions: Vec<usize> = both.second_kept.iter().map(|(_, position)| *position).collect();
        positions.extend(both.first_kept.iter().map(|(_, position)| *position));
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
        stream.place(&positions, width);
        Ok(stream)
    }

    /// The first side is built; what remains are its rows that were met, or those that were not.
    fn build_first(&mut self, both: Both, met: bool, width: usize) -> Lowering<Stream> {
        let positions: Vec<usize> = both.first_kept.iter().map(|(_, position)| *position).collect();
        let (types, kept) = (both.first_types(), columns_of(&both.first_kept));
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
        let mut stream = Stream { inputs, columns: Vec::new(), types, estimate };
        stream.place(&positions, width);
        Ok(stream)
    }

    /// Probes the built first side with the second one; also where the first side's needed columns are among those that
    /// were kept of it.
    fn probe_second(&mut self, both: Both, kind: JoinKind) -> Lowering<(Stream, usize, Vec<usize>)> {
        let matching = both.matching(false);
        let first_kept = columns_of(&both.first_kept);
        let all = kept_columns(&first_kept, matching.residual.as_ref())?;
        let places = first_kept.iter().filter_map(|column| all.iter().position(|own| own == column)).collect();
        let sides = Sides {
            probe: both.second,
            build: &both.first,
            probe_kept: if kind == JoinKind::Build { Vec::new() } else { columns_of(&both.second_kept) },
            build_kept: first_kept,
        };
        let (stream, stage) = self.probed(sides, &matching, kind, true)?;
        Ok((stream, stage, places))
    }

    /// Rows of both sides without partner stay.
    fn full(&mut self, both: Both, width: usize) -> Lowering<Stream> {
        let positions = both.positions(JoinKind::Left);
        let matching = both.matching(true);
        let (first_kept, second_kept) = (columns_of(&both.first_kept), columns_of(&both.second_kept));
        let missing = both.first_types();
        let second_types: Vec<DataType> = second_kept.iter().map(|column| both.second.types[*column]).collect();
        let all = kept_columns(&second_kept, matching.residual.as_ref())?;
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
        stream.place(&positions, width);
        Ok(stream)
    }
}

fn columns_of(kept: &[(usize, usize)]) -> Vec<usize> {
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
        let (first_width, second_width) = (self.first.columns.len(), self.second.columns.len());
        let first: Vec<Option<usize>> =
            self.first.columns.iter().copied().chain(std::iter::repeat_n(None, second_width)).collect();
        let second: Vec<Option<usize>> =
            std::iter::repeat_n(None, first_width).chain(self.second.columns.iter().copied()).collect();
        let (probe, build) = if first_is_probed { (first, second) } else { (second, first) };
        let (probe_keys, build_keys) =
            if first_is_probed { (&self.first_keys, &self.second_keys) } else { (&self.second_keys, &self.first_keys) };
        let residual = self.condition.as_ref().map(|condition| Residual {
            condition: condition.clone(),
            schema: self.combined.clone(),
            probe,
            build,
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

    /// Where the result's columns belong when the first side was probed.
    fn positions(&self, kind: JoinKind) -> Vec<usize> {
        let mut positions: Vec<usize> = self.first_kept.iter().map(|(_, position)| *position).collect();
        if matches!(kind, JoinKind::Inner | JoinKind::Left) {
            positions.extend(self.second_kept.iter().map(|(_, position)| *position));
        }
        positions
    }
}
