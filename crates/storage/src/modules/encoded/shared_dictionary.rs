//! Shared dictionary: the texts are in a dictionary of the container, here are ids, bit-packed.
//!
//! ```text
//! dictionary   0 AIR   1 RAIL   2 SHIP   3 MAIL        order of the ids   0 AIR  3 MAIL  1 RAIL  2 SHIP
//! rows         SHIP  MAIL  SHIP  SHIP
//! codes          0    1     0     0                    base 2, 1 bit each: an id is the base and a code
//! ```
//! Ids are the same in all segments of a container, so that columns of different segments and partitions can be grouped
//! by them. They are in no order: a comparison is a search in the dictionary's order, the ids of the texts found become
//! codes, and these ranges or a set. Segments whose texts are near in the dictionary have narrow codes.

use super::codes::CodeTest;
use super::encoding::{Encoded, Encoding};
use super::packed::{Packed, bytes_of};
use super::selection::Selection;
use super::source::Source;
use crate::batch::{
    BytesView, ColumnBuilder, ColumnView, DictionaryTexts, RowWriter, RowsOf, ValidityView, Values, ValuesView, Views,
};
use crate::dictionary::{DICTIONARY_TEXTS_MAX, SharedDictionary};
use crate::error::StorageError;
use crate::modules::filter::test_column;
use crate::predicate::{Comparison, Test};
use crate::types::DataType;
use crate::value::Value;
use eris_platform::{Arena, MemoryExceeded};
use std::iter::once;
use std::ops::Range;
use std::sync::Arc;

/// The encoding.
pub(super) struct Shared;

const NAME: &str = "shared dictionary";

/// How much wider ids may be than codes of a segment's own. They tend to be a little wider: a segment has a part of a
/// dictionary's texts, which are anywhere in it. Half a byte is one in some dozens of what a row takes.
const GAIN_BITS: u64 = 4;

/// Listed rows tested together.
const LISTED: usize = 64;

/// How the different texts of a segment are found in a dictionary.
pub(super) struct Found {
    /// The state that was looked at.
    texts: Arc<DictionaryTexts>,
    /// By text, in the order of the texts: the id that it has or would get.
    ids: Vec<u16>,
    /// Texts that it lacks, ascending.
    missing: Vec<u32>,
    low: u16,
    high: u16,
}

impl Found {
    /// Looks all texts of a segment up; none if the dictionary has no room for those it lacks.
    pub(super) fn new(source: &Source<'_>, dictionary: &SharedDictionary) -> Option<Self> {
        let Values::Bytes(views) = &source.column().values else { return None };
        let distinct = source.distinct_within(source.plain_bytes())?;
        if distinct.len() > DICTIONARY_TEXTS_MAX {
            return None;
        }
        let texts = dictionary.texts();
        let (mut ids, mut missing, mut bytes) = (Vec::with_capacity(distinct.len()), Vec::new(), 0);
        for (code, row) in distinct.rows.iter().enumerate() {
            let text = views.get(*row as usize);
            ids.push(texts.id_of(text).unwrap_or_else(|| {
                // Without room it is given up below, whatever this says.
                let next = (texts.len() + missing.len()) as u16;
                missing.push(code as u32);
                bytes += text.len();
                next
            }));
        }
        let (low, high) = (*ids.iter().min()?, *ids.iter().max()?);
        let fits = dictionary.has_room(missing.len(), bytes);
        fits.then_some(Self { texts, ids, missing, low, high })
    }
}

impl Encoding for Shared {
    fn name(&self) -> &'static str {
        NAME
    }

    fn measure(&self, source: &Source<'_>) -> Option<u64> {
        let found = source.found_in_dictionary()?;
        Some(bytes_of(source.rows(), u64::from(found.high - found.low)) as u64)
    }

    fn shared_bytes(&self, source: &Source<'_>) -> u64 {
        let (Some(found), Values::Bytes(views)) = (source.found_in_dictionary(), &source.column().values) else {
            return 0;
        };
        let Some(distinct) = source.distinct_within(0) else { return 0 };
        let len = |code: &u32| views.get(distinct.rows[*code as usize] as usize).len();
        found.missing.iter().map(|code| SharedDictionary::text_bytes(len(code))).sum()
    }

    fn percent_max(&self) -> u64 {
        100
    }

    /// Ids in common save hashing and comparing texts whenever rows are grouped: that is worth `GAIN_BITS` a row, and
    /// padding, so that a segment with one text has its id as well.
    fn slack_bytes(&self, source: &Source<'_>) -> u64 {
        source.rows() as u64 * GAIN_BITS / 8 + bytes_of(0, 0) as u64 * 2
    }

    fn encode(&self, source: &Source<'_>) -> Option<Arc<dyn Encoded>> {
        let (Some(found), Some(dictionary), Values::Bytes(views)) =
            (source.found_in_dictionary(), source.dictionary(), &source.column().values)
        else {
            unreachable!("{NAME} was measured")
        };
        let Some(distinct) = source.distinct_within(0) else { unreachable!("{NAME} was measured") };
        let text = |code: &u32| views.get(distinct.rows[*code as usize] as usize);
        let texts = if found.missing.is_empty() {
            Arc::clone(&found.texts)
        } else {
            dictionary.grow(&found.texts, &found.missing.iter().map(text).collect::<Vec<_>>())?
        };
        debug_assert!(
            distinct.rows.iter().zip(&found.ids).all(|(row, id)| texts.id_of(views.get(*row as usize)) == Some(*id)),
            "texts get the ids that were measured"
        );
        let code_of = |code: &u32| u64::from(found.ids[*code as usize] - found.low);
        // A NULL has the first text's code.
        let codes = distinct.codes.iter().map(code_of);
        let max = u64::from(found.high - found.low);
        let codes = Packed::new(codes, source.rows(), max);
        let data_type = source.column().data_type;
        Some(Arc::new(SharedCodes { data_type, texts: Arc::new(texts.counted_apart()), base: found.low, max, codes }))
    }
}

/// Codes of a segment.
struct SharedCodes {
    data_type: DataType,
    /// The state of the dictionary that the segment was sealed by, or a later one.
    texts: Arc<DictionaryTexts>,
    base: u16,
    /// The largest code.
    max: u64,
    codes: Packed,
}

impl SharedCodes {
    /// The dictionary as a column, by id.
    fn view(&self) -> ColumnView<'_> {
        let texts = self.texts.texts();
        let values = ValuesView::Bytes(BytesView { views: &texts.views, data: &texts.data, current: &[] });
        ColumnView { data_type: self.data_type, validity: ValidityView::All, values }
    }

    fn id(&self, row: u32) -> u32 {
        self.codes.get(row as usize) as u32 + u32::from(self.base)
    }

    /// How many texts accept a test, if those that do come first in the order.
    fn count_until(&self, comparison: Comparison, constant: &Value) -> Result<usize, StorageError> {
        let test = Test::Compare(comparison, constant.clone());
        let order = self.texts.order();
        let (mut low, mut high) = (0, order.len());
        while low < high {
            let middle = low.midpoint(high);
            let mut mask = [1];
            test_column(&mut mask, &self.view(), &RowsOf::List(&[u32::from(order[middle])]), &test)?;
            if mask == [1] {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        Ok(low)
    }

    /// The codes of texts that come in these places of the order.
    fn codes_of(&self, places: impl Iterator<Item = Range<usize>>) -> CodeTest {
        let (base, order) = (u64::from(self.base), self.texts.order());
        let mut set = vec![0_u64; self.max as usize / 64 + 1];
        for id in places.flat_map(|places| &order[places]) {
            let code = u64::from(*id).wrapping_sub(base);
            if code <= self.max {
                set[(code >> 6) as usize] |= 1 << (code & 63);
            }
        }
        let codes: Vec<u64> = (0..=self.max).filter(|code| set[(code >> 6) as usize] >> (code & 63) & 1 != 0).collect();
        CodeTest::any_of(&codes, self.max)
    }

    fn code_test(&self, test: &Test) -> Result<CodeTest, StorageError> {
        let below = |constant: &Value| self.count_until(Comparison::Less, constant);
        let up_to = |constant: &Value| self.count_until(Comparison::LessOrEqual, constant);
        let all = self.texts.len();
        let one = |places: Range<usize>| Ok(self.codes_of(once(places)));
        match test {
            Test::Compare(_, Value::Null) => Ok(CodeTest::Nothing),
            Test::Compare(comparison, constant) => match comparison {
                Comparison::Equal => one(below(constant)?..up_to(constant)?),
                Comparison::NotEqual => Ok(self.codes_of(once(below(constant)?..up_to(constant)?)).negated()),
                Comparison::Less => one(0..below(constant)?),
                Comparison::LessOrEqual => one(0..up_to(constant)?),
                Comparison::Greater => one(up_to(constant)?..all),
                Comparison::GreaterOrEqual => one(below(constant)?..all),
            },
            Test::In(constants) => {
                let known = constants.iter().filter(|constant| !matches!(constant, Value::Null));
                let places = known.map(|constant| Ok(below(constant)?..up_to(constant)?));
                Ok(self.codes_of(places.collect::<Result<Vec<_>, StorageError>>()?.into_iter()))
            }
            Test::StartsWith(prefix) => {
                let (texts, prefix) = (self.texts.texts(), prefix.as_bytes());
                let before = |accepts: &dyn Fn(&[u8]) -> bool| {
                    self.texts.order().partition_point(|id| accepts(texts.get(usize::from(*id))))
                };
                one(before(&|text| text < prefix)..before(&|text| text < prefix || text.starts_with(prefix)))
            }
            Test::IsNull | Test::IsNotNull | Test::CompareAttribute(..) => {
                unreachable!("{test:?} is not translated")
            }
        }
    }
}

impl Encoded for SharedCodes {
    fn encoding(&self) -> &'static str {
        NAME
    }

    fn bytes(&self) -> u64 {
        self.codes.bytes()
    }

    fn run(&self, rows: Range<usize>) -> Values {
        let ids: Vec<u16> = self.codes.unpack(rows, u64::from(self.base));
        Values::Bytes(Views::coded_by(&self.texts, ids.into()))
    }

    fn link(&self, rows: &[u32], validity: ValidityView<'_>, out: &mut ColumnBuilder) {
        out.extend_parts(validity, rows, &self.view().values, rows.iter().map(|row| self.id(*row)));
    }

    fn gather(&self, rows: &[u32]) -> Option<Values> {
        let (codes, base) = (self.codes.codes(), self.base);
        let ids = rows.iter().map(|row| codes.get(*row as usize) as u16 + base).collect();
        Some(Values::Bytes(Views::coded_by(&self.texts, ids)))
    }

    fn pack(&self, row: usize, column: usize, out: &mut RowWriter<'_>) {
        out.write(column, &self.view(), self.id(row as u32) as usize);
    }

    fn translate(&self, test: &Test) -> Result<Option<CodeTest>, StorageError> {
        self.code_test(test).map(Some)
    }

    fn select(&self, test: &CodeTest, selection: &mut Selection) {
        self.codes.select(test, selection);
    }

    fn select_listed(&self, test: &CodeTest, rows: &[u32], mask: &mut [u8]) {
        self.codes.test_listed(test, rows, mask);
    }

    fn test_listed(&self, test: &Test, rows: &[u32], mask: &mut [u8]) -> Result<(), StorageError> {
        let mut ids = [0; LISTED];
        for (rows, mask) in rows.chunks(LISTED).zip(mask.chunks_mut(LISTED)) {
            ids.iter_mut().zip(rows).for_each(|(id, row)| *id = self.id(*row));
            test_column(mask, &self.view(), &RowsOf::List(&ids[..rows.len()]), test)?;
        }
        Ok(())
    }

    /// The dictionary stays where it is: all nodes read it, and it fits in their caches.
    fn placed(&self, arena: &Arena) -> Result<(Arc<dyn Encoded>, u64), MemoryExceeded> {
        let (codes, taken) = self.codes.placed(arena)?;
        let texts = Arc::new(self.texts.counted_apart());
        Ok((Arc::new(Self { data_type: self.data_type, texts, base: self.base, max: self.max, codes }), taken))
    }
}
