//! Texts as numbers: the ids of the dictionary that all keys of a build side come from.
//!
//! Rows from the same dictionary have these numbers already. Those from another one are translated: the orders of both
//! are merged once, into a list that leads from its ids to ours. Texts without ids are looked up by their hashes.
//!
//! ```text
//!   ours     0 MAIL  1 AIR  2 SHIP     in order  1 0 2
//!   theirs   0 SHIP  1 RAIL  2 AIR     in order  2 1 0        list   2  -  1
//! ```

use std::cmp::Ordering;
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use eris_storage::{Column, DICTIONARY_TEXTS_MAX, DictionaryTexts, Values};

use super::enter::Entering;
use super::table::{NO_ROW, find_rows, tag_of};
use crate::assembly::{settled, zeros};
use crate::hash::hash_rows;

/// What a text that the dictionary does not have is.
const NONE: i64 = NO_ROW as i64 - 1;
/// Lists that are kept: rows come from one container, rarely from the parts of a UNION.
const LISTS_MAX: usize = 4;

/// A dictionary, and lists from others to it.
#[derive(Debug)]
pub(super) struct Merging {
    own: Arc<DictionaryTexts>,
    lists: RwLock<Vec<Arc<List>>>,
    /// Made when texts without ids come.
    hashed: OnceLock<Hashed>,
}

/// From texts to ids: the texts as a column, and a hash table of its rows.
#[derive(Debug)]
struct Hashed {
    texts: [Column; 1],
    entries: Box<[u64]>,
}

#[derive(Debug)]
struct List {
    from: Arc<DictionaryTexts>,
    ids: Box<[i64]>,
}

impl Merging {
    pub fn new(own: Arc<DictionaryTexts>) -> Self {
        Self { own, lists: RwLock::default(), hashed: OnceLock::new() }
    }

    /// Bytes that it may come to take.
    pub fn bytes(&self) -> u64 {
        let lists = LISTS_MAX * DICTIONARY_TEXTS_MAX * size_of::<i64>();
        (lists + entries_for(&self.own) * size_of::<u64>()) as u64
    }

    /// A number for each text, the same for equal ones; what is no id of the dictionary is not there. Under a NULL
    /// there is any number.
    pub fn numbers(&self, key: &Column) -> Vec<i64> {
        let Some(coded) = key.coded() else {
            let Hashed { texts, entries } = self.hashed.get_or_init(|| Hashed::of(&self.own, key));
            let mut rows = vec![NO_ROW; key.len()];
            find_rows(texts, entries, std::slice::from_ref(key), false, &mut rows);
            return rows.into_iter().map(|row| i64::from(row) - 1).collect();
        };
        if coded.texts.is_same_dictionary(&self.own) {
            return coded.ids.iter().map(|id| i64::from(*id)).collect();
        }
        let list = self.list(coded.texts);
        coded.ids.iter().map(|id| list.ids[usize::from(*id)]).collect()
    }

    fn list(&self, from: &Arc<DictionaryTexts>) -> Arc<List> {
        let serves = |list: &&Arc<List>| list.from.is_same_dictionary(from) && list.from.len() >= from.len();
        let known = self.lists.read().unwrap_or_else(PoisonError::into_inner).iter().find(serves).cloned();
        known.unwrap_or_else(|| {
            let made = Arc::new(List { from: Arc::clone(from), ids: merged(&self.own, from) });
            let mut lists = self.lists.write().unwrap_or_else(PoisonError::into_inner);
            lists.retain(|list| !list.from.is_same_dictionary(from) || list.from.len() > from.len());
            if lists.len() < LISTS_MAX {
                lists.push(Arc::clone(&made));
            }
            made
        })
    }
}

fn entries_for(dictionary: &DictionaryTexts) -> usize {
    (dictionary.len() * 2).next_power_of_two()
}

impl Hashed {
    /// Of a dictionary, for keys of this type.
    fn of(dictionary: &DictionaryTexts, key: &Column) -> Self {
        let values = Values::Bytes(dictionary.texts().clone());
        let texts = [Column { data_type: key.data_type, validity: None, values }];
        let hashes = hash_rows(&texts, dictionary.len());
        let entries = zeros(entries_for(dictionary));
        let hash_and_tag = |row: usize| Some((hashes[row], tag_of(hashes[row])));
        let entering = Entering { entries: &entries, chains: None, equal: |_, _| false };
        entering.enter(0..dictionary.len(), hash_and_tag);
        Self { texts, entries: settled(entries) }
    }
}

/// From the ids of `from` to those of `own`.
fn merged(own: &DictionaryTexts, from: &DictionaryTexts) -> Box<[i64]> {
    let mut ids = vec![NONE; from.len()];
    let mut ours = own.order().iter().copied().peekable();
    for theirs in from.order() {
        let text = from.texts().get(usize::from(*theirs));
        let mut order = Ordering::Less;
        while let Some(id) = ours.peek() {
            order = own.texts().get(usize::from(*id)).cmp(text);
            if order != Ordering::Less {
                break;
            }
            ours.next();
        }
        if let (Ordering::Equal, Some(id)) = (order, ours.peek()) {
            ids[usize::from(*theirs)] = i64::from(*id);
        }
    }
    ids.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::coded_batches::coded;
    use eris_platform::MemoryPool;
    use eris_storage::{Batch, ContainerDictionaries, DataType, Value};

    fn column(texts: &[String], dictionaries: Option<&Arc<ContainerDictionaries>>) -> Column {
        let rows: Vec<Vec<Value>> = texts.iter().map(|text| vec![Value::Text(text.as_str().into())]).collect();
        let batch = Batch::from_rows(&[DataType::Text], &rows);
        dictionaries.map_or_else(|| batch.clone(), |dictionaries| coded(&batch, dictionaries)).columns[0].clone()
    }

    fn texts(numbers: impl Iterator<Item = usize> + Clone) -> Vec<String> {
        // Often enough for a shared dictionary to be taken.
        std::iter::repeat_n(numbers, 40).flatten().map(|number| format!("text number {}", number * 7 % 100)).collect()
    }

    #[test]
    fn equal_texts_have_one_number_wherever_they_come_from() {
        let [ours, theirs] = [0, 1].map(|_| ContainerDictionaries::new(&MemoryPool::unlimited()));
        let own = column(&texts(0..40), Some(&ours));
        let merging = Merging::new(Arc::clone(own.coded().unwrap().texts));
        let number_of = |text: &String| texts(0..40).iter().position(|own| own == text);
        let first: Vec<i64> = merging.numbers(&own);
        for (numbers, dictionaries, lists) in [
            (0..40, Some(&ours), 0),
            (20..60, None, 0),
            (30..50, Some(&theirs), 1),
            // It has grown: the list is made anew, and serves for columns of before.
            (10..95, Some(&theirs), 1),
            (30..50, Some(&theirs), 1),
            (70..80, Some(&ContainerDictionaries::new(&MemoryPool::unlimited())), 2),
            (0..60, Some(&ours), 2),
        ] {
            let asked = texts(numbers.clone());
            let column = column(&asked, dictionaries);
            assert_eq!(column.coded().is_some(), dictionaries.is_some());
            for (text, number) in asked.iter().zip(merging.numbers(&column)) {
                let there = number_of(text).map(|at| first[at]);
                let is_there = (0..40).contains(&number);
                assert_eq!(is_there.then_some(number), there, "{text} of {numbers:?}");
            }
            assert_eq!(merging.lists.read().unwrap().len(), lists, "{numbers:?}");
        }
    }
}
