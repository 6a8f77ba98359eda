//! Which groups are meant.

use std::ops::Range;

/// Groups that follow each other, or a list of them.
#[derive(Clone, Debug)]
pub(super) enum Chosen<'a> {
    Range(Range<usize>),
    List(&'a [u32]),
}

impl Chosen<'_> {
    pub fn len(&self) -> usize {
        match self {
            Self::Range(range) => range.len(),
            Self::List(list) => list.len(),
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        let (range, list) = match self {
            Self::Range(range) => (range.clone(), [].as_slice()),
            Self::List(list) => (0..0, *list),
        };
        range.chain(list.iter().map(|group| *group as usize))
    }

    /// What they have, of what all groups have.
    pub fn of<T: Copy>(&self, all: &[T]) -> Vec<T> {
        match self {
            Self::Range(range) => all[range.clone()].to_vec(),
            Self::List(list) => list.iter().map(|group| all[*group as usize]).collect(),
        }
    }

    /// At most so many at once.
    pub fn chunks(&self, most: usize) -> impl Iterator<Item = Self> {
        let whole = self.clone();
        (0..self.len()).step_by(most).map(move |start| {
            let part = start..(start + most).min(whole.len());
            match &whole {
                Self::Range(range) => Self::Range(range.start + part.start..range.start + part.end),
                Self::List(list) => Self::List(&list[part]),
            }
        })
    }
}

impl From<Range<usize>> for Chosen<'_> {
    fn from(range: Range<usize>) -> Self {
        Self::Range(range)
    }
}

impl<'a> From<&'a [u32]> for Chosen<'a> {
    fn from(list: &'a [u32]) -> Self {
        Self::List(list)
    }
}
