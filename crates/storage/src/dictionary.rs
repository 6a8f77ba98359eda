//! Dictionaries that all partitions of a container share: one for each attribute of texts, with stable ids.
//!
//! ```text
//! sealed segments of all partitions      ids, bit-packed; each with the state it was sealed by
//!        │        │        │
//!        v        v        v
//!     state 1  state 2  state 2 ...      texts by id, and the order of ids
//!        └────────┴─> newest             whoever seals looks texts up in it, and publishes another if some are missing
//! ```
//! A state never changes, so who reads never waits. A further state begins with the ids of the one before: an id, once
//! given, stands for its text for ever. A dictionary grows a few times and up to a limit; where it may not, a segment
//! has texts of its own. Which ids texts get depends on the order in which segments are sealed; what is answered does
//! not.
//!
//! Memory is charged where the dictionaries were made for, each state for as long as somebody has it. Long texts lie in
//! memory that states share.

use crate::batch::{Buffer, DictionaryIdentity, DictionaryTexts, VIEW_INLINE_MAX, Views, data_view, inline_view};
use crate::ids::AttributeId;
use eris_platform::memory::{MemoryPool, Reservation};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What the pool calls them.
pub const DICTIONARIES: &str = "shared dictionaries";

/// Texts of one dictionary at most: ids take 12 bits.
pub const DICTIONARY_TEXTS_MAX: usize = 4_096;

/// Bytes of the texts of one dictionary at most: with views and order they stay in a second-level cache.
pub const DICTIONARY_BYTES_MAX: usize = 1 << 16;

/// How often a dictionary grows at most, which bounds what its states take together. Texts that are few are there after
/// the first segments.
pub const DICTIONARY_GROWTHS_MAX: u32 = 64;

const _: () = assert!(DICTIONARY_TEXTS_MAX <= 1 << 16, "ids have 16 bits");

/// The dictionaries of one container.
pub struct ContainerDictionaries {
    memory: Arc<MemoryPool>,
    by_attribute: Mutex<BTreeMap<AttributeId, Arc<SharedDictionary>>>,
}

/// The dictionary of one attribute.
pub(crate) struct SharedDictionary {
    memory: Arc<MemoryPool>,
    newest: Mutex<Newest>,
}

struct Newest {
    texts: Arc<DictionaryTexts>,
    /// Of all texts.
    bytes: usize,
    growths: u32,
}

/// Memory that is accounted for as long as it is there.
struct Charged<T> {
    values: Vec<T>,
    _memory: Reservation,
}

impl<T> AsRef<[T]> for Charged<T> {
    fn as_ref(&self) -> &[T] {
        &self.values
    }
}

/// A buffer of these values; none if there is no memory for it.
fn charged<T: Copy + Send + Sync + 'static>(values: Vec<T>, memory: &Arc<MemoryPool>) -> Option<Buffer<T>> {
    let reservation = memory.reserve(DICTIONARIES);
    reservation.grow(size_of_val(values.as_slice()) as u64).ok()?;
    Some(Buffer::from_owner(Charged { values, _memory: reservation }))
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ContainerDictionaries {
    /// No dictionaries yet; what they take will be taken from `memory`.
    pub fn new(memory: &Arc<MemoryPool>) -> Arc<Self> {
        Arc::new(Self { memory: Arc::clone(memory), by_attribute: Mutex::default() })
    }

    /// The dictionary of an attribute, empty if nobody asked before.
    pub(crate) fn of(&self, attribute: AttributeId) -> Arc<SharedDictionary> {
        let new = || Arc::new(SharedDictionary::new(&self.memory));
        Arc::clone(locked(&self.by_attribute).entry(attribute).or_insert_with(new))
    }

    /// Attributes whose dictionaries have texts, how many, and how many bytes these texts have.
    pub fn describe(&self) -> Vec<(AttributeId, usize, usize)> {
        let all = locked(&self.by_attribute);
        let each = all.iter().map(|(attribute, dictionary)| {
            let newest = locked(&dictionary.newest);
            (*attribute, newest.texts.len(), newest.bytes)
        });
        each.filter(|(_, texts, _)| *texts > 0).collect()
    }
}

impl std::fmt::Debug for ContainerDictionaries {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.describe()).finish()
    }
}

impl SharedDictionary {
    pub(crate) fn new(memory: &Arc<MemoryPool>) -> Self {
        let nothing = Views { views: Vec::new().into(), data: Arc::default() };
        let texts = DictionaryTexts::new(Arc::new(DictionaryIdentity::default()), nothing, Buffer::default());
        let newest = Newest { texts: Arc::new(texts), bytes: 0, growths: 0 };
        Self { memory: Arc::clone(memory), newest: Mutex::new(newest) }
    }

    /// The newest state.
    pub(crate) fn texts(&self) -> Arc<DictionaryTexts> {
        Arc::clone(&locked(&self.newest).texts)
    }

    /// Whether so many further texts of so many bytes may be added.
    pub(crate) fn has_room(&self, texts: usize, bytes: usize) -> bool {
        let newest = locked(&self.newest);
        texts == 0
            || (newest.growths < DICTIONARY_GROWTHS_MAX
                && newest.texts.len() + texts <= DICTIONARY_TEXTS_MAX
                && newest.bytes + bytes <= DICTIONARY_BYTES_MAX)
    }

    /// Bytes that a further text of so many bytes takes, beside what another state takes anyway.
    pub(crate) fn text_bytes(len: usize) -> u64 {
        let long = if len > VIEW_INLINE_MAX { len } else { 0 };
        (size_of::<u128>() + size_of::<u16>() + long) as u64
    }

    /// Adds texts that the state `known` lacks, ascending: they get the next ids in this order. None if somebody else
    /// has added some since, or there is no memory for them.
    pub(crate) fn grow(&self, known: &Arc<DictionaryTexts>, added: &[&[u8]]) -> Option<Arc<DictionaryTexts>> {
        debug_assert!(added.is_sorted(), "texts come in their order");
        let bytes: usize = added.iter().map(|text| text.len()).sum();
        let mut newest = locked(&self.newest);
        if !Arc::ptr_eq(&newest.texts, known) {
            return None;
        }
        let (len, old) = (known.len(), known.texts());
        let mut views = Vec::with_capacity(len + added.len());
        views.extend_from_slice(&old.views);
        let (mut long, buffer) = (Vec::new(), old.data.len() as u32);
        for text in added {
            if text.len() <= VIEW_INLINE_MAX {
                views.push(inline_view(text));
            } else {
                views.push(data_view(text, buffer, long.len() as u32));
                long.extend_from_slice(text);
            }
        }
        let mut data: Vec<Buffer<u8>> = old.data.to_vec();
        if !long.is_empty() {
            data.push(charged(long, &self.memory)?);
        }
        let texts = Views { views: charged(views, &self.memory)?.into(), data: data.into() };
        let order = charged(merged_order(known, added), &self.memory)?;
        let grown = Arc::new(DictionaryTexts::new(Arc::clone(known.identity()), texts, order));
        assert!(grown.len() <= DICTIONARY_TEXTS_MAX, "{} texts in a dictionary", grown.len());
        *newest = Newest { texts: Arc::clone(&grown), bytes: newest.bytes + bytes, growths: newest.growths + 1 };
        Some(grown)
    }
}

/// The ids of a state and of texts added behind them, in the order of all texts.
fn merged_order(known: &DictionaryTexts, added: &[&[u8]]) -> Vec<u16> {
    let mut order = Vec::with_capacity(known.len() + added.len());
    let mut new = (known.len() as u16..).zip(added).peekable();
    for id in known.order() {
        let text = known.texts().get(usize::from(*id));
        while let Some((new, _)) = new.next_if(|(_, added)| **added < text) {
            order.push(new);
        }
        order.push(*id);
    }
    order.extend(new.map(|(id, _)| id));
    order
}

#[cfg(test)]
mod tests;
