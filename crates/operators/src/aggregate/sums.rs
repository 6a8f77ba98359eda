//! Exact sums by group: in 64 bits as long as no sum can have left them, then in 128.
//!
//! A bound says how large the largest sum may have become. While it fits, values are added without looking; when it no
//! longer does, it is made exact, and if that does not help the sums become wide.

use eris_storage::{Column, Values};

/// Bounds behind a look at the sums: beyond a quarter of the range it is not worth looking again.
const EXACT_BOUND_MAX: u128 = i64::MAX as u128 / 4;

/// See the module.
#[derive(Debug)]
pub(super) enum Sums {
    Narrow { sums: Vec<i64>, bound: u128 },
    Wide(Vec<i128>),
}

/// So many groups are summed up in places that differ from row to row, because a sum that is read right behind its last
/// change waits for it.
const FEW_GROUPS: usize = 16;
const PLACES: usize = 4;

/// Adds values to few groups.
fn add_to_few<T: Copy>(sums: &mut [i64], values: &[T], groups: &[u32], narrow: impl Fn(T) -> i64) {
    if let [sum] = sums {
        *sum = values.iter().fold(*sum, |sum, value| sum.wrapping_add(narrow(*value)));
        return;
    }
    let mut places = [[0_i64; FEW_GROUPS]; PLACES];
    let (values, values_rest) = values.as_chunks::<PLACES>();
    let (groups, groups_rest) = groups.as_chunks::<PLACES>();
    for (values, groups) in values.iter().zip(groups) {
        for ((place, value), group) in places.iter_mut().zip(values).zip(groups) {
            // Groups are fewer than places; the mask spares the check.
            let sum = &mut place[*group as usize & (FEW_GROUPS - 1)];
            *sum = sum.wrapping_add(narrow(*value));
        }
    }
    for (value, group) in values_rest.iter().zip(groups_rest) {
        let sum = &mut places[0][*group as usize & (FEW_GROUPS - 1)];
        *sum = sum.wrapping_add(narrow(*value));
    }
    for (group, sum) in sums.iter_mut().enumerate() {
        *sum = places.iter().fold(*sum, |sum, place| sum.wrapping_add(place[group]));
    }
}

/// Counts the rows of groups.
pub(super) fn count_rows(counts: &mut [i64], groups: &[u32]) {
    if counts.len() <= FEW_GROUPS {
        add_to_few(counts, groups, groups, |_| 1);
    } else {
        for group in groups {
            counts[*group as usize] += 1;
        }
    }
}

/// Something does not fit in 128 bits.
#[derive(Debug)]
pub(super) struct TooLarge;

/// At least as large as the magnitude of each value, and less than twice as large as the largest.
fn magnitude(values: impl Iterator<Item = i64>) -> u128 {
    let bits = values.fold(0, |bits, value| bits | (value ^ (value >> 63)));
    if bits == 0 { 1 } else { 1 << (64 - bits.leading_zeros()) }
}

impl Sums {
    pub fn new() -> Self {
        Self::Narrow { sums: Vec::new(), bound: 0 }
    }

    /// Bytes of a group's sum at most.
    pub const GROUP_BYTES: usize = size_of::<i128>();

    #[cfg(test)]
    pub fn allocated_bytes(&self) -> usize {
        match self {
            Self::Narrow { sums, .. } => sums.capacity() * size_of::<i64>(),
            Self::Wide(sums) => sums.capacity() * size_of::<i128>(),
        }
    }

    pub fn grow(&mut self, groups: usize, room: usize) {
        match self {
            Self::Narrow { sums, .. } => super::accumulator::grow(sums, groups, room, 0),
            Self::Wide(sums) => super::accumulator::grow(sums, groups, room, 0),
        }
    }

    pub fn get(&self, group: usize) -> i128 {
        match self {
            Self::Narrow { sums, .. } => i128::from(sums[group]),
            Self::Wide(sums) => sums[group],
        }
    }

    /// The sums as they are, if none needs more than 64 bits.
    pub fn narrow(&self) -> Option<&[i64]> {
        match self {
            Self::Narrow { sums, .. } => Some(sums),
            Self::Wide(_) => None,
        }
    }

    fn widen(&mut self) {
        if let Self::Narrow { sums, .. } = self {
            // As much room as before: it was reserved for the wide ones.
            let mut wide = Vec::with_capacity(sums.capacity());
            wide.extend(sums.iter().map(|sum| i128::from(*sum)));
            *self = Self::Wide(wide);
        }
    }

    /// Makes sure that so many values of this magnitude can be added.
    fn make_room(&mut self, magnitude: u128, values: usize) {
        let Self::Narrow { sums, bound } = self else { return };
        let more = magnitude * values as u128;
        if *bound + more > i64::MAX as u128 {
            *bound = sums.iter().map(|sum| u128::from(sum.unsigned_abs())).max().unwrap_or(0);
            if *bound > EXACT_BOUND_MAX || *bound + more > i64::MAX as u128 {
                return self.widen();
            }
        }
        *bound += more;
    }

    /// Adds values to groups; `valid` says which.
    fn add<T: Copy>(
        &mut self,
        values: &[T],
        groups: &[u32],
        input: &Column,
        narrow: impl Fn(T) -> i64,
        wide: impl Fn(T) -> i128,
    ) -> Result<(), TooLarge> {
        match self {
            Self::Narrow { sums, .. } => match &input.validity {
                None if sums.len() <= FEW_GROUPS => add_to_few(sums, values, groups, narrow),
                None => {
                    for (value, group) in values.iter().zip(groups) {
                        let sum = &mut sums[*group as usize];
                        *sum = sum.wrapping_add(narrow(*value));
                    }
                }
                Some(valid) => {
                    for (row, (value, group)) in values.iter().zip(groups).enumerate() {
                        let sum = &mut sums[*group as usize];
                        *sum = sum.wrapping_add(if valid.get(row) { narrow(*value) } else { 0 });
                    }
                }
            },
            Self::Wide(sums) => {
                let mut failed = false;
                for (row, (value, group)) in values.iter().zip(groups).enumerate() {
                    if !input.is_null(row) {
                        let sum = &mut sums[*group as usize];
                        let (added, over) = sum.overflowing_add(wide(*value));
                        *sum = added;
                        failed |= over;
                    }
                }
                if failed {
                    return Err(TooLarge);
                }
            }
        }
        Ok(())
    }

    /// Adds a column's values that are not NULL; `None` if it is of another type.
    pub fn update(&mut self, input: &Column, groups: &[u32]) -> Option<Result<(), TooLarge>> {
        let rows = groups.len();
        Some(match &input.values {
            Values::Int16(values) => {
                self.make_room(1 << 15, rows);
                self.add(values, groups, input, i64::from, i128::from)
            }
            Values::Int32(values) => {
                self.make_room(1 << 31, rows);
                self.add(values, groups, input, i64::from, i128::from)
            }
            Values::Int64(values) => {
                self.make_room(magnitude(values.iter().copied()), rows);
                self.add(values, groups, input, |value| value, i128::from)
            }
            Values::Int128(values) => {
                let high = values.iter().fold(0, |bits, value| bits | (value ^ (value >> 127)));
                if high >> 63 == 0 {
                    self.make_room(magnitude(values.iter().map(|value| *value as i64)), rows);
                } else {
                    self.widen();
                }
                self.add(values, groups, input, |value| value as i64, |value| value)
            }
            Values::Boolean(_) | Values::Float32(_) | Values::Float64(_) | Values::Bytes(_) => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use eris_platform::SeededRandom;
    use eris_storage::DataType;

    fn column(values: &[i64]) -> Column {
        let values = Values::Int64(values.to_vec().into());
        Column { data_type: DataType::Int64, validity: None, values }
    }

    #[test]
    fn sums_stay_exact_beyond_64_bits() {
        for seed in 0..100 {
            let mut random = SeededRandom::new(seed);
            let shift = random.below(64);
            let (mut sums, mut exact) = (Sums::new(), [0_i128; 3]);
            sums.grow(3, 4);
            for _ in 0..40 {
                let values: Vec<i64> = (0..50).map(|_| random.next_u64() as i64 >> shift).collect();
                let groups: Vec<u32> = (0..50).map(|_| random.below(3) as u32).collect();
                sums.update(&column(&values), &groups).unwrap().unwrap();
                values.iter().zip(&groups).for_each(|(value, group)| exact[*group as usize] += i128::from(*value));
                assert_eq!([0, 1, 2].map(|group| sums.get(group)), exact, "seed {seed}");
            }
            assert!(shift > 6 || matches!(sums, Sums::Wide(_)));
            assert!(shift < 20 || matches!(sums, Sums::Narrow { .. }));
        }
    }

    #[test]
    fn extreme_values_are_added_at_once() {
        let mut sums = Sums::new();
        sums.grow(1, 1);
        sums.update(&column(&[i64::MIN, i64::MIN, i64::MAX]), &[0; 3]).unwrap().unwrap();
        assert_eq!(sums.get(0), i128::from(i64::MIN) - 1);
        let wide = Column {
            data_type: DataType::Decimal { precision: 38, scale: 0 },
            validity: None,
            values: Values::Int128(vec![i128::MAX].into()),
        };
        sums.update(&wide, &[0]).unwrap().unwrap();
        assert!(sums.update(&wide, &[0]).unwrap().is_err());
    }
}
