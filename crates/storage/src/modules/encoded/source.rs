//! The values to be encoded, and what encodings ask about them. Each question is answered once, when somebody asks.

use super::encoding::choose;
use super::shared_dictionary::Found;
use super::symbols::Compressed;
use crate::batch::{Buffer, Column, ColumnBuilder, VIEW_INLINE_MAX, Values, view_len};
use crate::dictionary::{DICTIONARY_TEXTS_MAX, SharedDictionary};
use crate::value::{order_f32, order_f64};
use eris_platform::DeterministicMap;
use std::cell::OnceCell;
use std::hash::Hash;

/// One attribute's values of a segment.
pub(super) struct Source<'a> {
    column: &'a Column,
    /// Whether the values take no more memory than they must.
    exact: bool,
    /// Of the container, for texts.
    dictionary: Option<&'a SharedDictionary>,
    found: OnceCell<Option<Found>>,
    range: OnceCell<Option<(i128, i128)>>,
    distinct: OnceCell<Option<Distinct>>,
    run_starts: OnceCell<Option<Vec<u32>>>,
    chosen_of_runs: OnceCell<RunHeads>,
    compressed: OnceCell<Option<Compressed>>,
}

/// Different values, and which of them each row has.
pub(super) struct Distinct {
    /// A row with each value, in the order of the values.
    pub rows: Vec<u32>,
    /// By row.
    pub codes: Vec<u32>,
}

/// The value of each run, and what it takes as the encoding holds it that suits best.
pub(super) struct RunHeads {
    pub column: Column,
    pub bytes: u64,
    /// And where others share it.
    pub shared_bytes: u64,
}

/// Transient bytes of answering all questions about so many rows of so many bytes at most: a table of different values,
/// codes, heads of runs, compressed strings and what finds their symbols.
pub(super) fn scratch_bytes(rows: usize, values: &Values) -> u64 {
    const ROW_BYTES: usize = 64;
    const SYMBOLS_BYTES: u64 = 1 << 18;
    let fixed = (rows * ROW_BYTES) as u64;
    if matches!(values, Values::Bytes(_)) { fixed + buffers_bytes(values) + SYMBOLS_BYTES } else { fixed }
}

/// Rows looked at before all are.
const SAMPLE_ROWS: usize = 1_024;
/// If so many of them are different, a dictionary cannot pay.
const SAMPLE_DISTINCT_MAX: usize = 1_012;
/// Runs shorter than this on average do not pay.
const RUN_ROWS_MIN: usize = 8;

/// Memory of values that share nothing with others.
pub(super) fn buffers_bytes(values: &Values) -> u64 {
    let bytes = match values {
        Values::Boolean(buffer) => buffer.bytes(),
        Values::Int16(buffer) => buffer.bytes(),
        Values::Int32(buffer) => buffer.bytes(),
        Values::Int64(buffer) => buffer.bytes(),
        Values::Int128(buffer) => buffer.bytes(),
        Values::Float32(buffer) => buffer.bytes(),
        Values::Float64(buffer) => buffer.bytes(),
        Values::Bytes(views) => {
            views.views.len() * size_of::<u128>() + views.data.iter().map(Buffer::bytes).sum::<usize>()
        }
    };
    bytes as u64
}

/// A copy of some rows that takes no more memory than it must, without validity.
pub(super) fn compact(column: &Column, rows: &[u32]) -> Column {
    let values = Column { data_type: column.data_type, validity: None, values: column.values.clone() };
    let mut builder = ColumnBuilder::with_capacity(column.data_type, rows.len());
    builder.reserve_exact(rows.len(), long_bytes(&column.values, rows));
    builder.extend_taken(&values, rows);
    builder.finish()
}

fn long_bytes(values: &Values, rows: &[u32]) -> usize {
    let Values::Bytes(views) = values else { return 0 };
    let lens = rows.iter().map(|row| view_len(views.views[*row as usize]));
    lens.filter(|len| *len > VIEW_INLINE_MAX).sum()
}

/// Integers of any width, one by one.
pub(super) fn integers(values: &Values) -> Box<dyn Iterator<Item = i128> + '_> {
    match values {
        Values::Boolean(buffer) => Box::new(buffer.iter().map(|value| i128::from(*value))),
        Values::Int16(buffer) => Box::new(buffer.iter().map(|value| i128::from(*value))),
        Values::Int32(buffer) => Box::new(buffer.iter().map(|value| i128::from(*value))),
        Values::Int64(buffer) => Box::new(buffer.iter().map(|value| i128::from(*value))),
        Values::Int128(buffer) => Box::new(buffer.iter().copied()),
        Values::Float32(_) | Values::Float64(_) | Values::Bytes(_) => Box::new(std::iter::empty()),
    }
}

impl<'a> Source<'a> {
    /// Values whose validity bitmap, if there is one, has a NULL.
    pub(super) fn new(column: &'a Column, exact: bool, dictionary: Option<&'a SharedDictionary>) -> Self {
        Self {
            column,
            exact,
            dictionary,
            found: OnceCell::new(),
            range: OnceCell::new(),
            distinct: OnceCell::new(),
            run_starts: OnceCell::new(),
            chosen_of_runs: OnceCell::new(),
            compressed: OnceCell::new(),
        }
    }

    pub(super) fn column(&self) -> &'a Column {
        self.column
    }

    /// The values as they are, without validity and in no more memory than they must take.
    pub(super) fn plain(&self) -> Column {
        if self.exact {
            Column { data_type: self.column.data_type, validity: None, values: self.column.values.clone() }
        } else {
            compact(self.column, &(0..self.rows() as u32).collect::<Vec<_>>())
        }
    }

    pub(super) fn rows(&self) -> usize {
        self.column.len()
    }

    /// What the values take as they are.
    pub(super) fn plain_bytes(&self) -> u64 {
        buffers_bytes(&self.column.values)
    }

    /// The container's dictionary for these values, if there is one.
    pub(super) fn dictionary(&self) -> Option<&'a SharedDictionary> {
        self.dictionary
    }

    /// How the texts are found there, if it has or may get all of them.
    pub(super) fn found_in_dictionary(&self) -> Option<&Found> {
        let dictionary = self.dictionary?;
        self.found.get_or_init(|| Found::new(self, dictionary)).as_ref()
    }

    /// What [`compact`] takes for these rows.
    pub(super) fn bytes_of_rows(&self, rows: &[u32]) -> u64 {
        let width = self.column.values.physical().width();
        (rows.len() * width + long_bytes(&self.column.values, rows)) as u64
    }

    /// The smallest and the largest of integers that are not NULL.
    pub(super) fn range(&self) -> Option<(i128, i128)> {
        *self.range.get_or_init(|| {
            fn ends<T: Copy + Ord + Into<i128>>(values: &[T], column: &Column) -> Option<(i128, i128)> {
                let ends = |values: &mut dyn Iterator<Item = T>| {
                    let first = values.next()?;
                    Some(values.fold((first, first), |(low, high), value| (low.min(value), high.max(value))))
                };
                let (low, high) = match &column.validity {
                    None => {
                        let first = *values.first()?;
                        values.iter().fold((first, first), |(low, high), value| (low.min(*value), high.max(*value)))
                    }
                    Some(valid) => ends(&mut valid.iter().zip(values).filter(|(valid, _)| *valid).map(|(_, v)| *v))?,
                };
                Some((low.into(), high.into()))
            }
            match &self.column.values {
                Values::Boolean(values) => ends(values, self.column),
                Values::Int16(values) => ends(values, self.column),
                Values::Int32(values) => ends(values, self.column),
                Values::Int64(values) => ends(values, self.column),
                Values::Int128(values) => ends(values, self.column),
                Values::Float32(_) | Values::Float64(_) | Values::Bytes(_) => None,
            }
        })
    }

    /// A row whose value is that of all rows that are not NULL; none if there are several values, or no rows.
    pub(super) fn only_value(&self) -> Option<u32> {
        let first = (0..self.rows()).find(|row| !self.column.is_null(*row));
        let Some(first) = first else { return (self.rows() > 0).then_some(0) };
        let same = |row: usize| self.column.is_null(row) || self.is_same(first, row);
        (first + 1..self.rows()).all(same).then_some(first as u32)
    }

    /// Whether two rows have the same value, bit by bit.
    fn is_same(&self, a: usize, b: usize) -> bool {
        match &self.column.values {
            Values::Boolean(values) => values[a] == values[b],
            Values::Int16(values) => values[a] == values[b],
            Values::Int32(values) => values[a] == values[b],
            Values::Int64(values) => values[a] == values[b],
            Values::Int128(values) => values[a] == values[b],
            Values::Float32(values) => values[a].to_bits() == values[b].to_bits(),
            Values::Float64(values) => values[a].to_bits() == values[b].to_bits(),
            Values::Bytes(views) => {
                let (left, right) = (views.views[a], views.views[b]);
                // Length and first bytes are in the view.
                left as u64 == right as u64 && (left == right || views.get(a) == views.get(b))
            }
        }
    }

    /// The different values, if they are so few that a dictionary of them and codes take less than `bytes`, or that the
    /// container's dictionary might have them.
    pub(super) fn distinct_within(&self, bytes: u64) -> Option<&Distinct> {
        let distinct = self.distinct.get_or_init(|| {
            let values_bytes = buffers_bytes(&self.column.values).max(1);
            let most = (u128::from(bytes) * self.rows() as u128 / u128::from(values_bytes)) as usize;
            let most = if self.dictionary.is_some() { most.max(DICTIONARY_TEXTS_MAX) } else { most };
            match &self.column.values {
                Values::Boolean(values) => self.find_distinct(most, |row| values[row], |row| i128::from(values[row])),
                Values::Int16(values) => self.find_distinct(most, |row| values[row], |row| values[row]),
                Values::Int32(values) => self.find_distinct(most, |row| values[row], |row| values[row]),
                Values::Int64(values) => self.find_distinct(most, |row| values[row], |row| values[row]),
                Values::Int128(values) => self.find_distinct(most, |row| values[row], |row| values[row]),
                // 0 and -0 are equal and yet two values.
                Values::Float32(values) => {
                    let bits = |row: usize| values[row].to_bits();
                    self.find_distinct(most, bits, |row| (order_f32(values[row]), bits(row)))
                }
                Values::Float64(values) => {
                    let bits = |row: usize| values[row].to_bits();
                    self.find_distinct(most, bits, |row| (order_f64(values[row]), bits(row)))
                }
                Values::Bytes(views) => self.find_distinct(most, |row| views.get(row), |row| views.get(row)),
            }
        });
        distinct.as_ref()
    }

    fn find_distinct<K: Hash + Eq, O: Ord>(
        &self,
        most: usize,
        key: impl Fn(usize) -> K,
        order: impl Fn(usize) -> O,
    ) -> Option<Distinct> {
        let rows = self.rows();
        let valid = |row: &usize| !self.column.is_null(*row);
        let mut known: DeterministicMap<K, u32> = DeterministicMap::default();
        if rows > 2 * SAMPLE_ROWS {
            let sample = (0..SAMPLE_ROWS).map(|n| n * rows / SAMPLE_ROWS).filter(valid);
            known.extend(sample.map(|row| (key(row), 0)));
            if known.len() > SAMPLE_DISTINCT_MAX.min(most) {
                return None;
            }
            known.clear();
        }
        let (mut codes, mut firsts) = (vec![0; rows], Vec::new());
        for row in (0..rows).filter(valid) {
            let next = firsts.len() as u32;
            let code = *known.entry(key(row)).or_insert(next);
            if code == next {
                firsts.push(row as u32);
                if firsts.len() > most {
                    return None;
                }
            }
            codes[row] = code;
        }
        let mut sorted: Vec<u32> = (0..firsts.len() as u32).collect();
        sorted.sort_unstable_by_key(|code| order(firsts[*code as usize] as usize));
        let mut rank = vec![0; firsts.len()];
        sorted.iter().enumerate().for_each(|(position, code)| rank[*code as usize] = position as u32);
        for row in (0..rows).filter(valid) {
            codes[row] = rank[codes[row] as usize];
        }
        Some(Distinct { rows: sorted.iter().map(|code| firsts[*code as usize]).collect(), codes })
    }

    /// Where runs of equal values begin, if they are long. NULLs belong to the run before.
    pub(super) fn run_starts(&self) -> Option<&[u32]> {
        let starts = self.run_starts.get_or_init(|| {
            let most = self.rows() / RUN_ROWS_MIN;
            let mut starts = Vec::new();
            let mut head = None;
            for row in 0..self.rows() {
                let continues = head.is_some_and(|head| self.column.is_null(row) || self.is_same(head, row));
                // A NULL at the very front takes the value that follows.
                let first = row == 0;
                if !first && continues {
                    continue;
                }
                if first || head.is_some() {
                    starts.push(row as u32);
                    if starts.len() > most {
                        return None;
                    }
                }
                head = (!self.column.is_null(row)).then_some(row).or(head);
            }
            (!starts.is_empty()).then_some(starts)
        });
        starts.as_deref()
    }

    /// The values of the runs, and how they are to be held.
    pub(super) fn run_heads(&self) -> Option<&RunHeads> {
        let starts = self.run_starts()?;
        Some(self.chosen_of_runs.get_or_init(|| {
            // The first row of a run that is no NULL has its value.
            let ends = starts.iter().skip(1).copied().chain([self.rows() as u32]);
            let heads = starts
                .iter()
                .zip(ends)
                .map(|(start, end)| (*start..end).find(|row| !self.column.is_null(*row as usize)).unwrap_or(*start));
            let column = compact(self.column, &heads.collect::<Vec<u32>>());
            let heads = Source::of_heads(&column, self.dictionary);
            let (encoding, bytes) = choose(&heads);
            let shared_bytes = encoding.shared_bytes(&heads);
            RunHeads { column, bytes, shared_bytes }
        }))
    }

    /// Strings as codes of symbols, compressed by the first who asks.
    pub(super) fn compressed(&self, compress: impl FnOnce() -> Option<Compressed>) -> Option<&Compressed> {
        self.compressed.get_or_init(compress).as_ref()
    }

    /// The values of runs: they have no runs themselves.
    pub(super) fn of_heads(column: &'a Column, dictionary: Option<&'a SharedDictionary>) -> Self {
        let source = Self::new(column, true, dictionary);
        let no_runs = source.run_starts.set(None);
        assert!(no_runs.is_ok(), "nobody asked yet");
        source
    }
}

impl Distinct {
    /// Values.
    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }
}
