//! How the group columns of a row become one word.
//!
//! ```text
//!   | null bits, if there ever was a NULL | ... | column 2 | column 1 |        64 or 128 bits
//!   number: its bits          text: | bytes, padded with zeros | length (8 bits) |       or its id (16 bits)
//! ```
//! The layout begins as small as types allow, with room for texts of one byte and none for NULLs, and is widened when a
//! batch does not fit. Texts are ids as long as all come from one shared dictionary, however long they are. What never
//! fits in 128 bits is kept as bytes, one run a group.

use std::sync::Arc;

use eris_storage::{
    Bitmap, Column, ColumnBuilder, DataType, DictionaryTexts, Physical, VIEW_INLINE_MAX, Values, Views,
};

use crate::hash::{float_bits, mix, mix_into, real_bits};

/// Lengths of texts that get a place in words.
const TEXT_LENGTHS: [u8; 4] = [1, 3, 7, VIEW_INLINE_MAX as u8];

/// A key of up to so many bits.
pub(super) trait Word: Copy + Eq + std::fmt::Debug + Default + Send + Sync {
    fn from_bits(bits: u128) -> Self;
    fn bits(self) -> u128;
    fn hash(self) -> u64;
    fn with(self, bits: Self, shift: u32) -> Self;
}

impl Word for u64 {
    #[inline]
    fn from_bits(bits: u128) -> Self {
        bits as u64
    }

    #[inline]
    fn bits(self) -> u128 {
        u128::from(self)
    }

    #[inline]
    fn hash(self) -> u64 {
        mix(self)
    }

    #[inline]
    fn with(self, bits: Self, shift: u32) -> Self {
        self | bits << shift
    }
}

impl Word for u128 {
    #[inline]
    fn from_bits(bits: u128) -> Self {
        bits
    }

    #[inline]
    fn bits(self) -> u128 {
        self
    }

    #[inline]
    fn hash(self) -> u64 {
        mix_into(mix(self as u64), (self >> 64) as u64)
    }

    #[inline]
    fn with(self, bits: Self, shift: u32) -> Self {
        self | bits << shift
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Width {
    Narrow,
    Wide,
    /// Words do not suffice.
    Rows,
}

/// How the texts of a column get into words.
#[derive(Clone, Debug)]
enum Texts {
    /// There was none yet.
    None,
    /// As ids: all so far came from this dictionary, here in the longest state that was met.
    Ids(Arc<DictionaryTexts>),
    /// As they are, up to so many bytes.
    Bytes(u8),
}

/// Whether words are the same.
impl PartialEq for Texts {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::None, Self::None) => true,
            (Self::Ids(one), Self::Ids(other)) => one.is_same_dictionary(other),
            (Self::Bytes(one), Self::Bytes(other)) => one == other,
            _ => false,
        }
    }
}

impl Texts {
    fn bits(&self) -> u32 {
        match self {
            Self::None | Self::Ids(_) => u16::BITS,
            Self::Bytes(most) => 8 + 8 * u32::from(*most),
        }
    }

    /// A form for these and for those of a key column; `None`: they are too long for any word.
    fn with(&self, key: &Column) -> Option<Self> {
        let Values::Bytes(views) = &key.values else { return Some(self.clone()) };
        if key.null_count() == key.len() {
            return Some(self.clone());
        }
        let dictionary = key.coded().map(|coded| coded.texts);
        let known = match (self, dictionary) {
            (Self::None, Some(texts)) => return Some(Self::Ids(Arc::clone(texts))),
            (Self::Ids(own), Some(texts)) if own.is_same_dictionary(texts) => return Some(self.clone()),
            (Self::Ids(own), _) => longest(own.texts()),
            (Self::None, None) => u32::from(TEXT_LENGTHS[0]),
            (Self::Bytes(most), _) => u32::from(*most),
        };
        let needed = longest(views).max(known);
        TEXT_LENGTHS.iter().find(|length| u32::from(**length) >= needed).map(|length| Self::Bytes(*length))
    }
}

fn longest(views: &Views) -> u32 {
    views.views.iter().fold(0, |longest, view| longest.max(*view as u32))
}

/// See the module.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Layout {
    types: Vec<DataType>,
    /// By column.
    texts: Vec<Texts>,
    nulls: bool,
    /// A text was too long for any word.
    long: bool,
    shifts: Vec<u32>,
    null_shift: u32,
    pub width: Width,
}

impl Layout {
    pub fn new(types: Vec<DataType>) -> Self {
        let texts = vec![Texts::None; types.len()];
        Self { types, texts, nulls: false, long: false, shifts: Vec::new(), null_shift: 0, width: Width::Narrow }
            .placed()
    }

    pub fn types(&self) -> &[DataType] {
        &self.types
    }

    fn placed(mut self) -> Self {
        let mut shift = 0;
        self.shifts.clear();
        for (data_type, texts) in self.types.iter().zip(&self.texts) {
            self.shifts.push(shift);
            shift += match data_type.physical() {
                Physical::Bytes => texts.bits(),
                fixed => 8 * fixed.width() as u32,
            };
        }
        self.null_shift = shift;
        let bits = shift + if self.nulls { self.types.len() as u32 } else { 0 };
        self.width = match bits {
            _ if self.long => Width::Rows,
            0..=64 => Width::Narrow,
            65..=128 => Width::Wide,
            _ => Width::Rows,
        };
        self
    }

    /// How many bits a word of one integer column leaves free; `None` for other columns, or if there are NULLs.
    pub fn integer_shift(&self) -> Option<u32> {
        match self.types[..] {
            [only] if !self.nulls => match only.physical() {
                Physical::Int16 => Some(48),
                Physical::Int32 => Some(32),
                Physical::Int64 => Some(0),
                Physical::Boolean | Physical::Int128 | Physical::Float32 | Physical::Float64 | Physical::Bytes => None,
            },
            _ => None,
        }
    }

    /// Takes note of what dictionaries have gained.
    pub fn follow(&mut self, keys: &[Column]) {
        for (key, texts) in keys.iter().zip(&mut self.texts) {
            if let (Texts::Ids(own), Some(coded)) = (texts, key.coded())
                && let Some(longer) = own.longer(coded.texts)
            {
                *own = Arc::clone(longer);
            }
        }
    }

    /// Another layout, if the rows of these columns do not fit into this one.
    pub fn widened_for(&self, keys: &[Column]) -> Option<Self> {
        if self.width == Width::Rows {
            return None;
        }
        let mut wider = self.clone();
        wider.nulls |= keys.iter().any(|key| key.null_count() > 0);
        for (key, texts) in keys.iter().zip(&mut wider.texts) {
            match texts.with(key) {
                Some(with) => *texts = with,
                None => wider.long = true,
            }
        }
        (wider != *self).then(|| wider.placed())
    }

    /// The words of all rows of key columns that fit.
    pub fn words<W: Word>(&self, keys: &[Column], rows: usize) -> Vec<W> {
        let mut words = vec![W::default(); rows];
        for (at, (key, shift)) in keys.iter().zip(&self.shifts).enumerate() {
            macro_rules! place {
                ($values:expr, $bits:expr) => {{
                    let bits = $values.iter().map(|value| W::from_bits(u128::from($bits(*value))));
                    self.place(key, at, *shift, &mut words, bits);
                }};
            }
            match &key.values {
                Values::Boolean(values) => place!(values, |value: u8| value),
                Values::Int16(values) => place!(values, |value: i16| value as u16),
                Values::Int32(values) => place!(values, |value: i32| value as u32),
                Values::Int64(values) => place!(values, |value: i64| value as u64),
                Values::Int128(values) => place!(values, |value: i128| value as u128),
                Values::Float32(values) => place!(values, real_bits),
                Values::Float64(values) => place!(values, float_bits),
                Values::Bytes(views) => match (&self.texts[at], key.coded()) {
                    (Texts::Ids(_), Some(coded)) => place!(coded.ids, |id: u16| id),
                    // Without ids it is all NULL.
                    (Texts::Ids(_), None) => place!(views.views, |_: u128| 0_u16),
                    // Length and first bytes of a view become first bytes and length.
                    _ => place!(views.views, |view: u128| view >> 32 << 8 | (view & 0xFF)),
                },
            }
        }
        words
    }

    #[inline]
    fn place<W: Word>(&self, key: &Column, at: usize, shift: u32, words: &mut [W], bits: impl Iterator<Item = W>) {
        match &key.validity {
            None => {
                for (word, bits) in words.iter_mut().zip(bits) {
                    *word = word.with(bits, shift);
                }
            }
            Some(valid) => {
                for (row, (word, bits)) in words.iter_mut().zip(bits).enumerate() {
                    *word = if valid.get(row) {
                        word.with(bits, shift)
                    } else {
                        word.with(W::from_bits(1), self.null_shift + at as u32)
                    };
                }
            }
        }
    }

    /// The columns that words stand for.
    pub fn columns<W: Word>(&self, words: &[W]) -> Vec<Column> {
        let column = |at: usize, data_type: &DataType| {
            let shift = self.shifts[at];
            let values = match data_type.physical() {
                Physical::Int32 => {
                    Some(Values::Int32(words.iter().map(|word| (word.bits() >> shift) as i32).collect()))
                }
                Physical::Int64 => {
                    Some(Values::Int64(words.iter().map(|word| (word.bits() >> shift) as i64).collect()))
                }
                _ => None,
            };
            if let (Some(values), false) = (values, self.nulls) {
                return Column { data_type: *data_type, validity: None, values };
            }
            let is_null = |word: &W| self.nulls && word.bits() >> (self.null_shift + at as u32) & 1 != 0;
            if let Texts::Ids(texts) = &self.texts[at] {
                let ids = words.iter().map(|word| (word.bits() >> shift) as u16).collect();
                let validity = self.nulls.then(|| words.iter().map(|word| !is_null(word)).collect::<Bitmap>());
                let values = Values::Bytes(Views::of_ids(texts, ids));
                return Column { data_type: *data_type, validity, values }.without_idle_validity();
            }
            let mut builder = ColumnBuilder::with_capacity(*data_type, words.len());
            for word in words {
                if is_null(word) {
                    builder.push_null();
                    continue;
                }
                let bits = word.bits() >> shift;
                match data_type.physical() {
                    Physical::Boolean => builder.push_bool(bits as u8),
                    Physical::Int16 => builder.push_i16(bits as i16),
                    Physical::Int32 => builder.push_i32(bits as i32),
                    Physical::Int64 => builder.push_i64(bits as i64),
                    Physical::Int128 => builder.push_i128(bits as i128),
                    Physical::Float32 => builder.push_f32(f32::from_bits(bits as u32)),
                    Physical::Float64 => builder.push_f64(f64::from_bits(bits as u64)),
                    Physical::Bytes => {
                        let bytes = (bits >> 8).to_le_bytes();
                        builder.push_bytes(&bytes[..usize::from(bits as u8)]);
                    }
                }
            }
            builder.finish()
        };
        self.types.iter().enumerate().map(|(at, data_type)| column(at, data_type)).collect()
    }
}
