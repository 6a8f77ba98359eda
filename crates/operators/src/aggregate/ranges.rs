//! Groups of several slots, found by dense integers in all of them: one part of the values at a time.
//!
//! ```text
//!                    part 0            part 1
//!   slot 0   | 1 2 3 4 5 . . . | . . . . . 8 9 . |   the slot's group of each value, if it has one
//!   slot 1   | . . . . 3 4 5 6 | 7 8 . . . . 1 2 |
//!                      ^                     ^       both slots have it: their states are merged
//! ```
//! A part is some chunks of the arrays, which begin at the same values in all slots.
//!
//! Where the rows of a value lie together, as they do for a key that rows were loaded by, hardly any value is in two
//! slots, and the states of almost all groups are results as they are.

use super::dense::{Chunk, chunk_of, chunks_between};
use super::grouped::{CallState, Grouped};

#[derive(Debug)]
pub(super) struct Ranges {
    pub slots: Vec<Grouped>,
    first_chunk: i64,
    chunks: u64,
    /// Chunks of one part.
    width: u64,
}

/// The groups of one part, by slot and in the order of their values.
#[derive(Debug)]
pub(super) struct Part {
    /// Those that no other slot has.
    pub alone: Vec<Vec<u32>>,
    pub shared: Vec<Vec<u32>>,
}

/// How many values a range may have for each group, and how many places, in whole chunks, arrays that are made for it.
const RANGE_FACTOR: u64 = 16;
/// Chunks of a part at most: its lists are small, however uneven the values lie.
const PART_CHUNKS: u64 = 16;

impl Ranges {
    /// Gives the slots back where arrays would be much emptier than their groups are many, or take too much memory.
    pub fn of(mut slots: Vec<Grouped>, parts: usize) -> Result<Self, Vec<Grouped>> {
        let bounds = slots.iter().map(|slot| slot.groups.integer_bounds());
        let all = bounds.reduce(|all, own| match (all, own) {
            (Some((low, high)), Some((least, most))) => Some((low.min(least), high.max(most))),
            _ => None,
        });
        let plain = slots.iter().flat_map(|slot| &slot.states).all(|state| matches!(state, CallState::Plain(_)));
        let places = slots.iter().fold(0_u64, |places, slot| places.saturating_add(slot.groups.places_to_make()));
        let most = slots.iter().map(Grouped::len).sum::<usize>() as u64 * RANGE_FACTOR;
        let Some((low, high)) = all.flatten().filter(|_| plain && places <= most) else { return Err(slots) };
        let span = high.wrapping_sub(low) as u64;
        if span > most {
            return Err(slots);
        }
        if !slots.iter_mut().all(Grouped::make_dense) {
            // Columns are all that is asked of the groups from here on.
            slots.iter_mut().for_each(Grouped::leave_dense);
            return Err(slots);
        }
        let chunks = chunks_between(low, high);
        let width = chunks.div_ceil(parts as u64).clamp(1, PART_CHUNKS);
        Ok(Self { slots, first_chunk: chunk_of(low), chunks, width })
    }

    pub fn parts(&self) -> usize {
        self.chunks.div_ceil(self.width) as usize
    }

    pub fn part(&self, part: usize) -> Part {
        let mut found = Part { alone: vec![Vec::new(); self.slots.len()], shared: vec![Vec::new(); self.slots.len()] };
        let start = part as u64 * self.width;
        for chunk in start..self.chunks.min(start + self.width) {
            let number = self.first_chunk + chunk as i64;
            let chunks = self.slots.iter().enumerate();
            let chunks: Vec<(usize, &Chunk)> =
                chunks.filter_map(|(slot, own)| Some((slot, own.groups.dense()?.chunk(number)?))).collect();
            for (slot, own) in &chunks {
                let others = || chunks.iter().filter(|(other, _)| other != slot);
                for (at, place) in own.iter().enumerate().filter(|(_, place)| **place != 0) {
                    let is_shared = others().any(|(_, places)| places[at] != 0);
                    let list = if is_shared { &mut found.shared } else { &mut found.alone };
                    list[*slot].push(*place - 1);
                }
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use eris_platform::MemoryPool;
    use eris_storage::{BATCH_ROWS, Batch, DataType, Value, Values};

    use super::*;
    use crate::expression::Expression;
    use crate::settings::AggregationInput;

    /// A slot that has met these values.
    fn slot(values: impl Iterator<Item = i32>, memory: &Arc<MemoryPool>) -> Grouped {
        let key = Expression::Column { index: 0, data_type: DataType::Int32 };
        let mut grouped = Grouped::new([key].into(), 1, [].into(), memory, AggregationInput::default());
        let rows: Vec<Vec<Value>> = values.map(|value| vec![Value::Int32(value)]).collect();
        for rows in rows.chunks(BATCH_ROWS) {
            grouped.update(&Batch::from_rows(&[DataType::Int32], rows), &[]).unwrap();
        }
        grouped
    }

    fn values_of(slot: &Grouped, groups: &[u32]) -> Vec<i32> {
        let keys = slot.groups.columns(&groups.into());
        let Values::Int32(values) = &keys[0].values else { panic!("{keys:?}") };
        values.to_vec()
    }

    #[test]
    fn each_value_is_in_one_part_and_shared_if_two_slots_have_it() {
        let memory = MemoryPool::unlimited();
        // Between the first and the others are values that nobody has; the last goes downwards.
        let values: [Vec<i32>; 3] = [
            (-5_000..-1_000).collect(),
            (0..9_000).step_by(3).chain(-1_100..-1_050).collect(),
            (0..9_000).rev().step_by(2).collect(),
        ];
        let times = |value: i32| values.iter().filter(|values| values.contains(&value)).count();
        for parts in [1, 7, 256] {
            let slots = values.iter().map(|values| slot(values.iter().copied(), &memory)).collect();
            let ranges = Ranges::of(slots, parts).unwrap();
            let mut found: Vec<Vec<i32>> = vec![Vec::new(); 3];
            let mut before = i32::MIN;
            for part in 0..ranges.parts() {
                let Part { alone, shared } = ranges.part(part);
                let mut last = before;
                for (slot, found) in found.iter_mut().enumerate() {
                    let alone = values_of(&ranges.slots[slot], &alone[slot]);
                    let shared = values_of(&ranges.slots[slot], &shared[slot]);
                    assert!(alone.iter().all(|value| times(*value) == 1));
                    assert!(shared.iter().all(|value| times(*value) == 2));
                    let all: Vec<i32> = alone.into_iter().chain(shared).collect();
                    assert!(all.iter().all(|value| *value > before), "parts are in order");
                    last = all.iter().copied().fold(last, i32::max);
                    found.extend(all);
                }
                before = last;
            }
            for (mut found, values) in found.into_iter().zip(&values) {
                let mut values = values.clone();
                values.sort_unstable();
                found.sort_unstable();
                assert_eq!(found, values);
            }
        }
    }

    #[test]
    fn slots_that_are_far_apart_or_would_take_too_much_are_given_back() {
        let memory = MemoryPool::unlimited();
        let far = [slot(0..5_000, &memory), slot(1_000_000_000..1_000_005_000, &memory)];
        assert_eq!(Ranges::of(far.into(), 4).unwrap_err().len(), 2);
        assert!(
            Ranges::of(vec![slot(0..5_000, &memory), slot(7..9, &memory)], 4).is_ok(),
            "an array is made at the end"
        );
        let limited = MemoryPool::new(memory.peak());
        let slots = vec![slot(0..5_000, &memory), slot([0, 60_000].into_iter(), &limited)];
        let rest = limited.reserve("all that is left");
        rest.grow(memory.peak() - limited.used()).unwrap();
        let slots = Ranges::of(slots, 4).unwrap_err();
        assert!(slots.iter().all(|slot| slot.groups.dense().is_none()), "no array stays");
        assert_eq!(values_of(&slots[1], &[0, 1]), [0, 60_000]);
        let few = |value: i32| slot(std::iter::once(value), &memory);
        assert!(Ranges::of(vec![few(1), few(2)], 4).is_err(), "whole chunks for two groups");
        // Each slot has half of the values, spread over all of them.
        let spread = |start: i32| slot((start..90_000).step_by(30), &memory);
        let before = memory.used();
        assert!(Ranges::of(vec![spread(0), spread(15)], 4).is_err(), "arrays for 180,000 values and 6,000 groups");
        assert_eq!(memory.used(), before);
    }
}
