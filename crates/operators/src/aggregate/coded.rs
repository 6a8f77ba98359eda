//! Groups of texts by their ids in shared dictionaries: an array over all combinations of ids leads to the groups.
//!
//! ```text
//!   place = id 1 + domain 1 * (id 2 + domain 2 * id 3)       the last of a domain stands for NULL
//!   array   0: not met yet          n: group n - 1
//! ```
//! Rows whose combination has not been met are looked up as any others are, all of a batch together, so groups are the
//! same whether rows come with ids or without. What dictionaries gain meanwhile has no place: then the array is made
//! anew.

use std::sync::Arc;

use eris_platform::MemoryExceeded;
use eris_storage::{CodedTexts, Column, DictionaryTexts};

use super::room::Room;

/// Places at most: they stay in a second-level cache.
const PLACES_MAX: usize = 1 << 16;
/// The array may have this many places a row that came: it has to be cleared before it is of use.
const PLACES_PER_ROW: usize = 32;
/// Columns from other dictionaries than before so often are not worth another array.
const CHANGES_MAX: u32 = 64;

/// From ids to groups.
#[derive(Debug, Default)]
pub(super) struct Coded {
    /// What the array is for, by group column.
    keys: Vec<Arc<DictionaryTexts>>,
    places: Vec<u32>,
    rows: usize,
    changes: u32,
}

/// Values of a key, NULL among them.
fn domain(texts: &DictionaryTexts) -> usize {
    texts.len() + 1
}

/// Adds what a key column says to the places of its rows.
fn place(places: &mut [u32], key: &Column, ids: &[u16], stride: usize, null: usize) {
    let (stride, null) = (stride as u32, (null * stride) as u32);
    match &key.validity {
        None => places.iter_mut().zip(ids).for_each(|(place, id)| *place += u32::from(*id) * stride),
        Some(valid) => places.iter_mut().zip(ids).enumerate().for_each(|(row, (place, id))| {
            *place += if valid.get(row) { u32::from(*id) * stride } else { null };
        }),
    }
}

impl Coded {
    /// The group of each row, if all group columns have ids and there are few combinations; `look_up` finds or makes
    /// the groups of some rows otherwise.
    pub fn find_or_add(
        &mut self,
        keys: &[Column],
        rows: usize,
        room: &mut Room,
        look_up: impl FnOnce(&[u32], &mut Room) -> Result<Vec<u32>, MemoryExceeded>,
    ) -> Option<Result<Vec<u32>, MemoryExceeded>> {
        let coded = keys.iter().map(Column::coded).collect::<Option<Vec<CodedTexts<'_>>>>()?;
        self.rows = self.rows.saturating_add(rows);
        if !self.suits(&coded) && !self.make(&coded, room) {
            return None;
        }
        let (mut places, mut stride) = (vec![0_u32; rows], 1);
        for ((key, coded), texts) in keys.iter().zip(&coded).zip(&self.keys) {
            place(&mut places, key, coded.ids, stride, texts.len());
            stride *= domain(texts);
        }
        let mut groups: Vec<u32> = places.iter().map(|place| self.places[*place as usize]).collect();
        let unmet: Vec<u32> = (0..rows as u32).filter(|row| groups[*row as usize] == 0).collect();
        if !unmet.is_empty() {
            match look_up(&unmet, room) {
                Ok(found) => {
                    for (row, group) in unmet.iter().zip(found) {
                        self.places[places[*row as usize] as usize] = group + 1;
                        groups[*row as usize] = group + 1;
                    }
                }
                Err(error) => return Some(Err(error)),
            }
        }
        for group in &mut groups {
            *group -= 1;
        }
        Some(Ok(groups))
    }

    fn suits(&self, coded: &[CodedTexts<'_>]) -> bool {
        let has = |(own, coded): (&Arc<DictionaryTexts>, &CodedTexts<'_>)| {
            own.is_same_dictionary(coded.texts) && coded.texts.len() <= own.len()
        };
        self.keys.len() == coded.len() && self.keys.iter().zip(coded).all(has)
    }

    /// Makes an array for these dictionaries; false if it would be too large, or changes too often.
    fn make(&mut self, coded: &[CodedTexts<'_>], room: &mut Room) -> bool {
        let combinations = coded.iter().try_fold(1, |all: usize, key| all.checked_mul(domain(key.texts)));
        let most = PLACES_MAX.min(self.rows.saturating_mul(PLACES_PER_ROW));
        let Some(places) = combinations.filter(|all| *all <= most && self.changes < CHANGES_MAX) else {
            return false;
        };
        if room.add(places * size_of::<u32>()).is_err() {
            return false;
        }
        room.give_back(self.bytes());
        self.changes += 1;
        self.places = vec![0; places];
        self.keys = coded.iter().map(|key| Arc::clone(key.texts)).collect();
        true
    }

    /// Bytes of the array.
    pub fn bytes(&self) -> usize {
        self.places.len() * size_of::<u32>()
    }

    /// Whether there is an array.
    #[cfg(test)]
    pub fn is_used(&self) -> bool {
        !self.places.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::coded_batches::{coded, coded_columns};
    use eris_platform::MemoryPool;
    use eris_storage::{Batch, ContainerDictionaries, DataType, Value};
    use std::collections::BTreeMap;

    const ROWS: usize = 1_000;

    /// Two columns with so many texts; every eleventh is NULL.
    fn batch(texts: [usize; 2], dictionaries: &Arc<ContainerDictionaries>) -> Batch {
        let text = |row: usize, at: usize| match (row * (at + 3) + at) % 11 {
            0 => Value::Null,
            _ => Value::Text(format!("{} of the texts", row / (at + 1) % texts[at]).into()),
        };
        let rows: Vec<Vec<Value>> = (0..ROWS).map(|row| vec![text(row, 0), text(row, 1)]).collect();
        let batch = coded(&Batch::from_rows(&[DataType::Text; 2], &rows), dictionaries);
        assert_eq!(coded_columns(&batch), 2, "{texts:?}");
        batch
    }

    /// Groups by values, which are told to the array as it asks.
    #[derive(Default)]
    struct ByValues {
        known: BTreeMap<Vec<Value>, u32>,
        asked: usize,
    }

    impl ByValues {
        fn of(&mut self, row: Vec<Value>) -> u32 {
            let next = self.known.len() as u32;
            *self.known.entry(row).or_insert(next)
        }

        /// The groups that the array finds are those of the values; false if it finds none.
        fn check(&mut self, coded: &mut Coded, room: &mut Room, batch: &Batch) -> bool {
            let found = coded.find_or_add(&batch.columns, batch.rows, room, |rows, _| {
                self.asked += 1;
                Ok(rows.iter().map(|row| self.of(batch.row(*row as usize))).collect())
            });
            let Some(found) = found else { return false };
            for (row, group) in found.unwrap().into_iter().enumerate() {
                assert_eq!(group, self.of(batch.row(row)), "row {row}: {:?}", batch.row(row));
            }
            true
        }
    }

    #[test]
    fn each_combination_is_looked_up_in_one_batch_only() {
        let pool = MemoryPool::unlimited();
        let (mut coded, mut room) = (Coded::default(), Room::new(&pool, 8));
        let dictionaries = [0, 1].map(|_| ContainerDictionaries::new(&pool));
        let mut by_values = ByValues::default();
        let few = batch([3, 5], &dictionaries[0]);
        assert!(by_values.check(&mut coded, &mut room, &few) && by_values.check(&mut coded, &mut room, &few));
        assert_eq!((coded.places.len(), by_values.asked), (4 * 6, 1));
        // The dictionary has grown: places are others, groups the same.
        let more = batch([7, 5], &dictionaries[0]);
        assert!(by_values.check(&mut coded, &mut room, &more) && by_values.check(&mut coded, &mut room, &few));
        assert_eq!((coded.places.len(), by_values.asked), (8 * 6, 2));
        // Another dictionary has other ids for the same texts.
        let elsewhere = batch([2, 5], &dictionaries[1]);
        assert!(by_values.check(&mut coded, &mut room, &elsewhere) && by_values.check(&mut coded, &mut room, &more));
        assert_eq!(room.bytes(), coded.bytes() as u64);
    }

    #[test]
    fn large_domains_and_columns_without_ids_are_left_to_others() {
        let pool = MemoryPool::unlimited();
        let (mut coded, mut room) = (Coded::default(), Room::new(&pool, 8));
        let dictionaries = ContainerDictionaries::new(&pool);
        let mut by_values = ByValues::default();
        // 201 times 251 places are too many for so few rows.
        let many = batch([200, 250], &dictionaries);
        assert!(!by_values.check(&mut coded, &mut room, &many));
        assert_eq!((coded.is_used(), room.bytes(), by_values.asked), (false, 0, 0));
        let one = Batch::new(vec![many.columns[0].clone()], many.rows);
        assert!(by_values.check(&mut coded, &mut room, &one));
        let plain = Batch::from_rows(&[DataType::Text], &(0..9).map(|row| one.row(row)).collect::<Vec<_>>());
        assert!(!by_values.check(&mut coded, &mut room, &plain));
        // Behind more rows, more places are worth it, up to a limit.
        for _ in 0..100 {
            by_values.check(&mut coded, &mut room, &many);
        }
        assert_eq!(coded.places.len(), 201 * 251);
        let small = MemoryPool::new(100);
        let (mut coded, mut room) = (Coded::default(), Room::new(&small, 8));
        assert!(!by_values.check(&mut coded, &mut room, &one), "no memory, no array");
        assert_eq!(small.used(), 0);
    }

    #[test]
    fn dictionaries_that_take_turns_get_no_more_arrays() {
        let pool = MemoryPool::unlimited();
        let (mut coded, mut room) = (Coded::default(), Room::new(&pool, 8));
        let batches = [0, 1].map(|_| batch([3, 5], &ContainerDictionaries::new(&pool)));
        let mut by_values = ByValues::default();
        let found = (0..200).filter(|at| by_values.check(&mut coded, &mut room, &batches[at % 2])).count();
        // The last one that was made stays.
        assert_eq!(found as u32, CHANGES_MAX + (200 - CHANGES_MAX) / 2);
    }
}
