//! Texts of a dictionary that a container's partitions share, by their ids: what a column hands on instead of views,
//! and how views come about when somebody asks for them.
//!
//! ```text
//! ids      2  0  0  1  2                      texts   0 AIR  1 MAIL  2 SHIP  3 FOB  4 RAIL
//! views    SHIP  AIR  AIR  MAIL  SHIP         order   0  3  1  4  2
//!          made at the first look
//! ```
//! Who groups or joins by a column, or gives on a part of its rows, never looks.

use super::buffer::Buffer;
use super::views::{VIEW_INLINE_MAX, Views, view_len};
use std::fmt;
use std::ops::{Deref, Range};
use std::sync::{Arc, OnceLock};

/// Stands for a dictionary in all its states.
#[derive(Debug, Default)]
pub(crate) struct DictionaryIdentity(());

/// The texts of a dictionary as far as it had grown at some time, by id. Later ones get further ids: what an id stands
/// for never changes, and neither does the order of two of them.
#[derive(Clone, Debug)]
pub struct DictionaryTexts {
    identity: Arc<DictionaryIdentity>,
    texts: Views,
    /// Ids in the order of their texts.
    order: Buffer<u16>,
}

impl DictionaryTexts {
    /// Different texts, and their ids in the order of these texts.
    pub(crate) fn new(identity: Arc<DictionaryIdentity>, texts: Views, order: Buffer<u16>) -> Self {
        assert!(texts.len() == order.len(), "{} texts and {} places", texts.len(), order.len());
        debug_assert!(
            order.windows(2).all(|pair| texts.get(pair[0].into()) < texts.get(pair[1].into())),
            "the order of ids is that of their texts, each once"
        );
        Self { identity, texts, order }
    }

    /// How many; ids are below.
    pub fn len(&self) -> usize {
        self.texts.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.texts.is_empty()
    }

    /// The texts by id.
    pub fn texts(&self) -> &Views {
        &self.texts
    }

    /// Ids in the order of their texts.
    pub fn order(&self) -> &[u16] {
        &self.order
    }

    /// Whether both are states of one dictionary: an id that both have stands for the same text.
    pub fn is_same_dictionary(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.identity, &other.identity)
    }

    /// The state with more texts, if both are of one dictionary.
    pub fn longer<'a>(self: &'a Arc<Self>, other: &'a Arc<Self>) -> Option<&'a Arc<Self>> {
        self.is_same_dictionary(other).then_some(if other.len() > self.len() { other } else { self })
    }

    /// The id of a text.
    pub fn id_of(&self, text: &[u8]) -> Option<u16> {
        let found = self.order.binary_search_by(|id| self.texts.get(usize::from(*id)).cmp(text));
        found.ok().map(|rank| self.order[rank])
    }

    pub(crate) fn identity(&self) -> &Arc<DictionaryIdentity> {
        &self.identity
    }

    /// The same with a list of buffers of its own: references to it are counted apart from those to others.
    pub(crate) fn counted_apart(&self) -> Self {
        let data: Arc<[Buffer<u8>]> = self.texts.data.iter().cloned().collect();
        Self { texts: Views { views: self.texts.views.clone(), data }, ..self.clone() }
    }
}

/// The views of a column: there, or ids that become views at the first look. Either way it reads as a buffer of views.
#[derive(Clone)]
pub struct ViewBuffer(Form);

#[derive(Clone)]
enum Form {
    Views(Buffer<u128>),
    Ids(Arc<Coded>),
}

struct Coded {
    texts: Arc<DictionaryTexts>,
    ids: Buffer<u16>,
    views: OnceLock<Buffer<u128>>,
}

/// Texts by their ids. What the id of a NULL says means nothing, but it is one of the dictionary's.
#[derive(Clone, Copy, Debug)]
pub struct CodedTexts<'a> {
    pub texts: &'a Arc<DictionaryTexts>,
    pub ids: &'a [u16],
}

impl Coded {
    fn views(&self) -> &Buffer<u128> {
        self.views.get_or_init(|| {
            let known: &[u128] = &self.texts.texts.views;
            self.ids.iter().map(|id| known[usize::from(*id)]).collect()
        })
    }
}

impl ViewBuffer {
    /// How many, without a look at them.
    pub(super) fn count(&self) -> usize {
        match &self.0 {
            Form::Views(views) => views.len(),
            Form::Ids(coded) => coded.ids.len(),
        }
    }

    pub(super) fn coded(&self) -> Option<CodedTexts<'_>> {
        match &self.0 {
            Form::Views(_) => None,
            Form::Ids(coded) => Some(CodedTexts { texts: &coded.texts, ids: &coded.ids }),
        }
    }

    /// Bytes of ids and views, and of the long texts that they use.
    pub(super) fn bytes(&self) -> usize {
        fn long(views: impl Iterator<Item = u128>) -> usize {
            views.map(view_len).filter(|len| *len > VIEW_INLINE_MAX).sum()
        }
        match &self.0 {
            Form::Views(views) => views.bytes() + long(views.iter().copied()),
            // Views are counted before they are there: whoever asked will not ask again.
            Form::Ids(coded) => {
                let known: &[u128] = &coded.texts.texts.views;
                let used = coded.ids.iter().map(|id| known[usize::from(*id)]);
                coded.ids.len() * (size_of::<u16>() + size_of::<u128>()) + long(used)
            }
        }
    }

    fn of_ids(texts: &Arc<DictionaryTexts>, ids: Buffer<u16>, views: OnceLock<Buffer<u128>>) -> Self {
        Self(Form::Ids(Arc::new(Coded { texts: Arc::clone(texts), ids, views })))
    }

    pub(super) fn slice(&self, range: Range<usize>) -> Self {
        match &self.0 {
            Form::Views(views) => Self(Form::Views(views.slice(range))),
            Form::Ids(coded) => {
                let views = coded.views.get().map(|views| OnceLock::from(views.slice(range.clone())));
                Self::of_ids(&coded.texts, coded.ids.slice(range), views.unwrap_or_default())
            }
        }
    }

    pub(super) fn take(&self, rows: &[u32]) -> Self {
        match &self.0 {
            Form::Views(views) => rows.iter().map(|row| views[*row as usize]).collect(),
            Form::Ids(coded) => {
                let ids = rows.iter().map(|row| coded.ids[*row as usize]).collect();
                Self::of_ids(&coded.texts, ids, OnceLock::new())
            }
        }
    }

    /// Each of them as often as is said.
    pub(crate) fn repeated(&self, counts: impl Iterator<Item = usize>) -> Self {
        fn repeat<T: Copy + Send + Sync + 'static>(values: &[T], counts: impl Iterator<Item = usize>) -> Buffer<T> {
            let counts: Vec<usize> = counts.collect();
            let mut out = Vec::with_capacity(counts.iter().sum());
            for (value, count) in values.iter().zip(counts) {
                out.resize(out.len() + count, *value);
            }
            out.into()
        }
        match &self.0 {
            Form::Views(views) => Self(Form::Views(repeat(views, counts))),
            Form::Ids(coded) => Self::of_ids(&coded.texts, repeat(&coded.ids, counts), OnceLock::new()),
        }
    }
}

impl Views {
    /// Texts of a dictionary by ids that others have put together.
    ///
    /// # Panics
    /// If an id is not one of the dictionary's.
    pub fn of_ids(texts: &Arc<DictionaryTexts>, ids: Buffer<u16>) -> Self {
        assert!(
            ids.iter().max().is_none_or(|id| usize::from(*id) < texts.len()),
            "an id that is not in the dictionary"
        );
        Self::coded_by(texts, ids)
    }

    /// Texts of a dictionary by their ids, which are below its length.
    pub(crate) fn coded_by(texts: &Arc<DictionaryTexts>, ids: Buffer<u16>) -> Self {
        let data = Arc::clone(&texts.texts.data);
        Self { views: ViewBuffer::of_ids(texts, ids, OnceLock::new()), data }
    }
}

impl Deref for ViewBuffer {
    type Target = Buffer<u128>;

    #[inline]
    fn deref(&self) -> &Buffer<u128> {
        match &self.0 {
            Form::Views(views) => views,
            Form::Ids(coded) => coded.views(),
        }
    }
}

impl From<Buffer<u128>> for ViewBuffer {
    fn from(views: Buffer<u128>) -> Self {
        Self(Form::Views(views))
    }
}

impl From<Vec<u128>> for ViewBuffer {
    fn from(views: Vec<u128>) -> Self {
        Self(Form::Views(views.into()))
    }
}

impl FromIterator<u128> for ViewBuffer {
    fn from_iter<I: IntoIterator<Item = u128>>(views: I) -> Self {
        Self(Form::Views(views.into_iter().collect()))
    }
}

impl fmt::Debug for ViewBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Form::Views(views) => views.fmt(f),
            Form::Ids(coded) => f.debug_tuple("Ids").field(&coded.ids).finish(),
        }
    }
}
