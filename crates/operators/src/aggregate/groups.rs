//! Which group a row belongs to.
//!
//! Every group column gives one 128-bit word per row: the value's bits, a short text's view, or the number of a long
//! text. Words are compared in an open-addressing table; a group's values are kept once, in column builders. What grows
//! is reserved in the [`Room`] before.

use eris_platform::{DeterministicMap, MemoryExceeded};
use eris_storage::{Column, ColumnBuilder, DataType, VIEW_INLINE_MAX, Values};

use super::room::Room;

/// Texts longer than a view holds are numbered; no inline view has this length.
const NUMBERED: u128 = 0xFFFF_FFFF;
/// Of the table before the first group.
const TABLE_SLOTS_MIN: usize = 64;
/// What the map of long texts takes for each besides its bytes, at its worst load.
const LONG_TEXT_BYTES: u64 = 64;

#[derive(Debug)]
pub(super) struct Groups {
    types: Vec<DataType>,
    builders: Vec<ColumnBuilder>,
    /// Group number plus one; 0 is free. The length is a power of two.
    table: Vec<u32>,
    /// The words of all groups, `width` each.
    words: Vec<u128>,
    len: usize,
    long_texts: DeterministicMap<Box<[u8]>, u32>,
    /// Bytes of long texts, in the map and in the builders.
    text_bytes: u64,
}

impl Groups {
    pub fn new(types: Vec<DataType>) -> Self {
        let builders = types.iter().map(|data_type| ColumnBuilder::with_capacity(*data_type, 0)).collect();
        Self {
            types,
            builders,
            table: Vec::new(),
            words: Vec::new(),
            len: 0,
            long_texts: DeterministicMap::default(),
            text_bytes: 0,
        }
    }

    /// Bytes of a group's entries here: its words, its values, their validity. Texts come on top.
    pub fn group_bytes(types: &[DataType]) -> usize {
        let values: usize = types.iter().map(|data_type| data_type.physical().width() + 1).sum();
        (types.len() + 1) * size_of::<u128>() + values
    }

    /// Bytes of long texts.
    pub fn text_bytes(&self) -> u64 {
        self.text_bytes
    }

    pub fn len(&self) -> usize {
        self.len
    }

    /// The group columns, one row a group; the groups start anew.
    pub fn take_columns(&mut self) -> Vec<Column> {
        let fresh = Self::new(self.types.clone());
        std::mem::replace(self, fresh).builders.into_iter().map(ColumnBuilder::finish).collect()
    }

    /// The words of a row: null bits first, then one word per column.
    fn width(&self) -> usize {
        self.types.len() + 1
    }

    /// The group of each row; new groups are added in the order in which they are met.
    pub fn assign(&mut self, keys: &[Column], rows: usize, room: &mut Room) -> Result<Vec<u32>, MemoryExceeded> {
        if keys.is_empty() {
            if rows > 0 && self.len == 0 {
                room.grow()?;
                self.len = 1;
            }
            return Ok(vec![0; rows]);
        }
        if self.table.is_empty() {
            room.add(TABLE_SLOTS_MIN * size_of::<u32>())?;
            self.table.resize(TABLE_SLOTS_MIN, 0);
        }
        let width = self.width();
        let mut words = vec![0_u128; rows * width];
        for (at, key) in keys.iter().enumerate() {
            self.fill(key, at, width, &mut words);
        }
        let mut groups = Vec::with_capacity(rows);
        for row in 0..rows {
            let own = &words[row * width..(row + 1) * width];
            groups.push(match self.find(own) {
                Ok(group) => group,
                Err(slot) => self.add(slot, own, keys, row, room)?,
            });
        }
        Ok(groups)
    }

    fn fill(&mut self, key: &Column, at: usize, width: usize, words: &mut [u128]) {
        let mut put = |row: usize, word: u128| words[row * width + at + 1] = word;
        match &key.values {
            Values::Boolean(values) => values.iter().enumerate().for_each(|(row, v)| put(row, u128::from(*v))),
            Values::Int16(values) => values.iter().enumerate().for_each(|(row, v)| put(row, *v as u16 as u128)),
            Values::Int32(values) => values.iter().enumerate().for_each(|(row, v)| put(row, *v as u32 as u128)),
            Values::Int64(values) => values.iter().enumerate().for_each(|(row, v)| put(row, *v as u64 as u128)),
            Values::Int128(values) => values.iter().enumerate().for_each(|(row, v)| put(row, *v as u128)),
            // -0 is 0, and all NaNs are one value.
            Values::Float32(values) => values.iter().enumerate().for_each(|(row, v)| {
                let v = if v.is_nan() { f32::NAN } else { *v + 0.0 };
                put(row, u128::from(v.to_bits()));
            }),
            Values::Float64(values) => values.iter().enumerate().for_each(|(row, v)| {
                let v = if v.is_nan() { f64::NAN } else { *v + 0.0 };
                put(row, u128::from(v.to_bits()));
            }),
            Values::Bytes(views) => {
                for (row, view) in views.views.iter().enumerate() {
                    if (*view as u32) as usize <= VIEW_INLINE_MAX {
                        put(row, *view);
                    } else if !key.is_null(row) {
                        let next = self.long_texts.len() as u32;
                        let bytes = views.get(row);
                        let number = if let Some(number) = self.long_texts.get(bytes) {
                            *number
                        } else {
                            self.text_bytes += bytes.len() as u64 + LONG_TEXT_BYTES;
                            self.long_texts.insert(bytes.into(), next);
                            next
                        };
                        put(row, NUMBERED | (u128::from(number) << 32));
                    }
                }
            }
        }
        if let Some(validity) = &key.validity {
            for row in 0..validity.len() {
                if !validity.get(row) {
                    words[row * width] |= 1 << at;
                    words[row * width + at + 1] = 0;
                }
            }
        }
    }

    /// The group with these words, or the slot where it belongs.
    #[inline]
    fn find(&self, own: &[u128]) -> Result<u32, usize> {
        let width = own.len();
        let mask = self.table.len() - 1;
        let mut slot = hash(own) as usize & mask;
        loop {
            match self.table[slot] {
                0 => return Err(slot),
                taken => {
                    let group = taken as usize - 1;
                    if self.words[group * width..(group + 1) * width] == *own {
                        return Ok(group as u32);
                    }
                    slot = (slot + 1) & mask;
                }
            }
        }
    }

    fn add(
        &mut self,
        slot: usize,
        own: &[u128],
        keys: &[Column],
        row: usize,
        room: &mut Room,
    ) -> Result<u32, MemoryExceeded> {
        let width = own.len();
        if self.len == room.groups() {
            room.grow()?;
            self.words.reserve_exact(room.groups() * width - self.words.len());
            self.builders.iter_mut().for_each(|builder| builder.reserve_exact(room.groups(), 0));
        }
        let group = self.len;
        self.len += 1;
        self.words.extend_from_slice(own);
        self.table[slot] = self.len as u32;
        for (builder, key) in self.builders.iter_mut().zip(keys) {
            builder.extend(key, row..row + 1);
            if let Values::Bytes(views) = &key.values {
                let bytes = views.views[row] as u32 as usize;
                self.text_bytes += if bytes > VIEW_INLINE_MAX { bytes as u64 } else { 0 };
            }
        }
        if self.len * 2 > self.table.len() {
            self.rebuild(width, room)?;
        }
        Ok(group as u32)
    }

    fn rebuild(&mut self, width: usize, room: &mut Room) -> Result<(), MemoryExceeded> {
        let size = self.table.len() * 4;
        room.add((size - self.table.len()) * size_of::<u32>())?;
        self.table.clear();
        self.table.reserve_exact(size);
        self.table.resize(size, 0);
        for group in 0..self.len {
            let mut slot = hash(&self.words[group * width..(group + 1) * width]) as usize & (size - 1);
            while self.table[slot] != 0 {
                slot = (slot + 1) & (size - 1);
            }
            self.table[slot] = group as u32 + 1;
        }
        Ok(())
    }

    /// Bytes that are allocated for anything but texts.
    #[cfg(test)]
    pub fn allocated_bytes(&self) -> usize {
        self.words.capacity() * size_of::<u128>() + self.table.capacity() * size_of::<u32>()
    }
}

/// Folded multiplication over the words.
fn hash(words: &[u128]) -> u64 {
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    for word in words {
        for half in [*word as u64, (*word >> 64) as u64] {
            let product = u128::from(state ^ half).wrapping_mul(0xA076_1D64_78BD_642F_E703_7ED1_A0B4_28DB);
            state = (product as u64) ^ ((product >> 64) as u64);
        }
    }
    state ^ (state >> 32)
}
