//! Ranges of positions: what a partition owns, what a message concerns, what a partition gave away.

use eris_storage::{Key, PartitionId};

use crate::ids::TableVersion;

/// The positions from `lower` up to, not including, `upper`; none at all if `nothing`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Bounds {
    pub lower: Option<Key>,
    pub upper: Option<Key>,
    nothing: bool,
}

impl Bounds {
    /// `None` is unbounded.
    pub fn new(lower: Option<Key>, upper: Option<Key>) -> Self {
        assert!(upper.is_none() || lower < upper, "bounds enclose a position");
        Self { lower, upper, nothing: false }
    }

    /// What a forwarder owns.
    pub fn nothing() -> Self {
        Self { lower: None, upper: None, nothing: true }
    }

    pub fn is_nothing(&self) -> bool {
        self.nothing
    }

    pub fn contains(&self, position: &Key) -> bool {
        !self.nothing
            && self.lower.as_ref().is_none_or(|lower| lower <= position)
            && self.upper.as_ref().is_none_or(|upper| position < upper)
    }

    /// What lies in both.
    pub fn intersection(&self, other: &Self) -> Self {
        if self.nothing || other.nothing {
            return Self::nothing();
        }
        let lower = self.lower.as_ref().max(other.lower.as_ref());
        let upper = match (&self.upper, &other.upper) {
            (None, upper) | (upper, None) => upper.as_ref(),
            (Some(left), Some(right)) => Some(left.min(right)),
        };
        match (lower, upper) {
            (Some(lower), Some(upper)) if lower >= upper => Self::nothing(),
            _ => Self { lower: lower.cloned(), upper: upper.cloned(), nothing: false },
        }
    }

    /// What lies in here and not in `other`: at most one piece on either side.
    pub fn without(&self, other: &Self) -> Vec<Self> {
        let common = self.intersection(other);
        if common.nothing {
            return if self.nothing { Vec::new() } else { vec![self.clone()] };
        }
        let mut pieces = Vec::new();
        if self.lower < common.lower {
            pieces.push(Self::new(self.lower.clone(), common.lower.clone()));
        }
        if common.upper.is_some() && common.upper != self.upper {
            pieces.push(Self::new(common.upper, self.upper.clone()));
        }
        pieces
    }

    /// Both as one, if one begins where the other ends.
    pub fn joined(&self, other: &Self) -> Option<Self> {
        if self.nothing || other.nothing {
            return None;
        }
        if self.upper.is_some() && self.upper == other.lower {
            Some(Self::new(self.lower.clone(), other.upper.clone()))
        } else if other.upper.is_some() && other.upper == self.lower {
            Some(Self::new(other.lower.clone(), self.upper.clone()))
        } else {
            None
        }
    }

    /// The middle of the hashes that these bounds leave, if there is one.
    pub fn middle_of_hashes(&self) -> Option<Key> {
        let hash = |bound: &Option<Key>| {
            bound.as_ref().map(|bound| {
                let mut bytes = [0; 8];
                bytes.copy_from_slice(bound.as_bytes());
                u128::from(u64::from_be_bytes(bytes))
            })
        };
        let lower = hash(&self.lower).unwrap_or(0);
        let upper = hash(&self.upper).unwrap_or(1 << 64);
        let middle = lower.midpoint(upper);
        (middle > lower).then(|| Key::from_bytes(&(middle as u64).to_be_bytes()))
    }
}

/// What a partition gave away once.
#[derive(Clone, Debug)]
pub(crate) struct Handover {
    /// The first table version that knows of it.
    pub version: TableVersion,
    /// Who has owned the positions since, or knows who does.
    pub to: PartitionId,
    /// Which positions; of a container without positions all that came to `to`.
    pub bounds: Bounds,
}

#[cfg(test)]
mod tests {
    use eris_platform::SeededRandom;

    use super::*;

    fn key(value: u64) -> Key {
        Key::from_bytes(&value.to_be_bytes())
    }

    /// Bounds over 1..20, open at either end now and then, nothing at all sometimes.
    fn random_bounds(random: &mut SeededRandom) -> Bounds {
        if random.below(8) == 0 {
            return Bounds::nothing();
        }
        let low = 1 + random.below(18);
        let high = low + 1 + random.below(19 - low);
        let lower = (random.below(4) > 0).then(|| key(low));
        Bounds::new(lower, (random.below(4) > 0).then(|| key(high)))
    }

    #[test]
    fn bounds_are_sets_of_positions() {
        let mut random = SeededRandom::new(9);
        for _ in 0..20_000 {
            let (left, right) = (random_bounds(&mut random), random_bounds(&mut random));
            let both = left.intersection(&right);
            let rest = left.without(&right);
            let joined = left.joined(&right);
            for value in 0..=20 {
                let position = key(value);
                let (in_left, in_right) = (left.contains(&position), right.contains(&position));
                assert_eq!(both.contains(&position), in_left && in_right);
                let pieces = rest.iter().filter(|piece| piece.contains(&position)).count();
                assert_eq!(pieces, usize::from(in_left && !in_right));
                if let Some(joined) = &joined {
                    assert_eq!(joined.contains(&position), in_left || in_right);
                }
            }
        }
    }
}
