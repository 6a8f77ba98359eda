//! How many children each parent row has, in closed form: the way from a row number of lineitem or partsupp to its
//! parent and back, so that generation can begin at any row.
//!
//! Parents are numbered from one. A few *heavy* ones have very many children, the first *light* ones one more than the
//! base, all others the base.

use std::ops::Range;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Fanout {
    pub parents: u64,
    /// Children of a light parent.
    pub base: u64,
    /// So many light parents from the first have one child more.
    pub longer: u64,
    /// Keys of the heavy parents, ascending.
    pub heavy: Vec<u64>,
    /// Children of a heavy parent.
    pub heavy_children: u64,
}

/// A child: its parent and its place among the parent's children, from zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Child {
    pub parent: u64,
    pub place: u64,
}

impl Fanout {
    pub fn children(&self, parent: u64) -> u64 {
        self.first_row(parent + 1) - self.first_row(parent)
    }

    /// The number of all rows.
    pub fn rows(&self) -> u64 {
        self.first_row(self.parents + 1)
    }

    /// The row number, from zero, of a parent's first child.
    fn first_row(&self, parent: u64) -> u64 {
        let heavy = self.heavy.partition_point(|&key| key < parent) as u64;
        let light = parent - 1 - heavy;
        heavy * self.heavy_children + light * self.base + light.min(self.longer)
    }

    fn locate(&self, row: u64) -> Child {
        assert!(row < self.rows(), "row {row} of {} does not exist", self.rows());
        let (mut low, mut high) = (1, self.parents + 1);
        while high - low > 1 {
            let middle = low.midpoint(high);
            if self.first_row(middle) <= row { low = middle } else { high = middle }
        }
        Child { parent: low, place: row - self.first_row(low) }
    }

    /// The children with these row numbers, in order.
    pub fn iter(self, rows: Range<u64>) -> impl Iterator<Item = Child> + Send + 'static {
        let mut left = rows.end - rows.start;
        let mut next = if left > 0 { self.locate(rows.start) } else { Child { parent: 1, place: 0 } };
        let mut children = self.children(next.parent);
        std::iter::from_fn(move || {
            left = left.checked_sub(1)?;
            if next.place == children {
                next = Child { parent: next.parent + 1, place: 0 };
                children = self.children(next.parent);
            }
            let child = next;
            next.place += 1;
            Some(child)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_found_from_everywhere() {
        for heavy in [vec![1, 4], vec![2, 3, 12], vec![]] {
            let fanout = Fanout { parents: 12, base: 3, longer: 4, heavy, heavy_children: 9 };
            let whole: Vec<Child> = fanout.clone().iter(0..fanout.rows()).collect();
            let expected: Vec<Child> = (1..=12)
                .flat_map(|parent| {
                    let light = (1..parent).filter(|key| !fanout.heavy.contains(key)).count();
                    let children = if fanout.heavy.contains(&parent) { 9 } else { 3 + u64::from(light < 4) };
                    (0..children).map(move |place| Child { parent, place })
                })
                .collect();
            assert_eq!(whole, expected);
            for start in 0..fanout.rows() {
                let end = fanout.rows().min(start + 7);
                let some: Vec<Child> = fanout.clone().iter(start..end).collect();
                assert_eq!(some, whole[start as usize..end as usize]);
            }
            assert_eq!(fanout.iter(5..5).count(), 0);
        }
    }
}
