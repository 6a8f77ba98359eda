//! Groups of one integer column by an array over the values seen, while that is not much emptier than a hash table.

use eris_platform::MemoryExceeded;

use super::room::Room;

/// The array may have this many places a row that was seen: much emptier, each group costs a page of memory.
const PLACES_PER_ROW: u64 = 16;
/// Behind an array that was given up there have to be so many times as many rows before there is one again.
const ROWS_AGAIN: u64 = 4;

/// From values to groups.
#[derive(Debug, Default)]
pub(super) struct Dense {
    low: i64,
    /// The group plus one of each value from `low` on; empty while a hash table is used.
    places: Vec<u32>,
    rows: u64,
    bounds: Option<(i64, i64)>,
    /// There is no array before so many rows.
    rows_again: u64,
}

impl Dense {
    pub fn is_used(&self) -> bool {
        !self.places.is_empty()
    }

    /// The groups plus one of some values from `low` on: how many values are skipped, and those behind. What is not
    /// among them has no group.
    pub fn part(&self, low: i64, values: u64) -> (usize, &[u32]) {
        // All are within the bounds of all slots, which are not far apart.
        let (start, end) = (i128::from(low), i128::from(low) + i128::from(values));
        let own = i128::from(self.low);
        let from = start.clamp(own, own + self.places.len() as i128);
        let to = end.clamp(from, own + self.places.len() as i128);
        ((from - start).max(0) as usize, &self.places[(from - own) as usize..(to - own) as usize])
    }

    /// Bytes of the array.
    pub fn bytes(&self) -> usize {
        self.places.len() * size_of::<u32>()
    }

    /// Takes note of values that come.
    pub fn note(&mut self, values: &[i64]) {
        self.rows += values.len() as u64;
        let extremes = (values.iter().min(), values.iter().max());
        if let (Some(low), Some(high)) = extremes {
            let (least, most) = self.bounds.unwrap_or((*low, *high));
            self.bounds = Some((least.min(*low), most.max(*high)));
        }
    }

    /// Whether the array has a place for all values so far.
    pub fn is_wide_enough(&self) -> bool {
        self.bounds.is_some_and(|(low, high)| {
            self.low <= low && (high.wrapping_sub(self.low) as u64) < self.places.len() as u64
        })
    }

    /// Makes an array for all values so far, if they are dense enough and there is memory; says whether there is one.
    pub fn widen(&mut self, room: &mut Room) -> bool {
        let Some((low, high)) = self.bounds else { return false };
        let span = (high.wrapping_sub(low) as u64).saturating_add(1);
        let most = self.rows * PLACES_PER_ROW;
        if span > most || self.rows < self.rows_again {
            return false;
        }
        // Values tend to go on in the direction in which they left the array.
        let places = span.saturating_mul(2).min(most);
        let below = if self.is_used() && low < self.low { places - span } else { 0 };
        let start = low.saturating_sub(i64::try_from(below).unwrap_or(i64::MAX));
        if room.add(places as usize * size_of::<u32>()).is_err() {
            return false;
        }
        let mut wider = vec![0; places as usize];
        if self.is_used() {
            // What lies beyond the values so far is empty.
            let from = self.low.max(start);
            let old = &self.places[from.wrapping_sub(self.low) as usize..];
            let at = from.wrapping_sub(start) as usize;
            let length = old.len().min(wider.len() - at);
            wider[at..at + length].copy_from_slice(&old[..length]);
            room.give_back(self.bytes());
        }
        (self.low, self.places) = (start, wider);
        true
    }

    /// Gives the array up.
    pub fn leave(&mut self, room: &mut Room) {
        room.give_back(self.bytes());
        self.places = Vec::new();
        self.rows_again = self.rows.saturating_mul(ROWS_AGAIN);
    }

    /// Makes an array for the values so far and no others, however empty, if there is memory.
    pub fn fit(&mut self, room: &mut Room) -> bool {
        let Some((low, high)) = self.bounds else { return false };
        let Ok(places) = usize::try_from((high.wrapping_sub(low) as u64).saturating_add(1)) else { return false };
        if room.add(places.saturating_mul(size_of::<u32>())).is_err() {
            return false;
        }
        (self.low, self.places) = (low, vec![0; places]);
        true
    }

    /// Between which values all lie that came.
    pub fn bounds(&self) -> Option<(i64, i64)> {
        self.bounds
    }

    /// Enters the values of groups that were found otherwise, from group 0 on.
    pub fn enter(&mut self, values: impl Iterator<Item = i64>) {
        for (group, value) in values.enumerate() {
            self.places[value.wrapping_sub(self.low) as usize] = group as u32 + 1;
        }
    }

    /// The groups of values that all have a place; `add` makes the group for a new one.
    pub fn find_or_add(
        &mut self,
        values: &[i64],
        mut add: impl FnMut(usize) -> Result<u32, MemoryExceeded>,
    ) -> Result<Vec<u32>, MemoryExceeded> {
        let mut groups = Vec::with_capacity(values.len());
        for (row, value) in values.iter().enumerate() {
            let place = &mut self.places[value.wrapping_sub(self.low) as usize];
            if *place == 0 {
                *place = add(row)? + 1;
            }
            groups.push(*place - 1);
        }
        Ok(groups)
    }
}
