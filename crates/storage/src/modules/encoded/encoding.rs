//! Encodings: how one attribute of a sealed segment may be held, behind one trait, and which of them is taken.
//!
//! To add an encoding: its file, a line in [`ENCODINGS`], and a source of values that it wins in the tests' list.

use super::codes::CodeTest;
use super::constant::Constant;
use super::dictionary::Dictionary;
use super::plain::Plain;
use super::reference::FrameOfReference;
use super::runs::RunLength;
use super::selection::Selection;
use super::shared_dictionary::Shared;
use super::source::Source;
use super::symbols::SymbolTable;
use crate::batch::{ColumnBuilder, RowWriter, ValidityView, Values};
use crate::error::StorageError;
use crate::predicate::Test;
use eris_platform::{Arena, MemoryExceeded};
use std::ops::Range;
use std::sync::Arc;

/// A way to hold an attribute's values.
pub(super) trait Encoding: Sync {
    /// Its name.
    fn name(&self) -> &'static str;
    /// The bytes these values would take, exactly; none if it cannot hold them, or if it is known to be of no use.
    fn measure(&self, source: &Source<'_>) -> Option<u64>;
    /// The bytes that they would take besides, where others share them.
    fn shared_bytes(&self, _source: &Source<'_>) -> u64 {
        0
    }
    /// How many percent of the smallest encoding before it in the list this one may take: what decodes slower has to
    /// save more.
    fn percent_max(&self) -> u64;
    /// How many bytes that is made out to be larger: what others gain by this encoding.
    fn slack_bytes(&self, _source: &Source<'_>) -> u64 {
        0
    }
    /// Encodes values that were measured; none if what was measured is so no more, for what is shared.
    fn encode(&self, source: &Source<'_>) -> Option<Arc<dyn Encoded>>;
}

/// An attribute's values, encoded. Which of them are NULL is known to the column around them; what stands for a NULL
/// here may be anything.
pub(super) trait Encoded: Send + Sync {
    /// The encoding that made it.
    fn encoding(&self) -> &'static str;
    /// Memory, without what the values share with others.
    fn bytes(&self) -> u64;
    /// The values of a run of rows.
    fn run(&self, rows: Range<usize>) -> Values;
    /// Appends the values of listed rows; `validity` is that of all rows.
    fn link(&self, rows: &[u32], validity: ValidityView<'_>, out: &mut ColumnBuilder);
    /// The values of listed rows by reference, where that is cheaper than copying them.
    fn gather(&self, rows: &[u32]) -> Option<Values>;
    /// Writes the value of a row into a field.
    fn pack(&self, row: usize, column: usize, out: &mut RowWriter<'_>);
    /// What a test (not of NULL, and not against another attribute) means for the codes; none if there are no codes
    /// that could be compared instead of values.
    fn translate(&self, test: &Test) -> Result<Option<CodeTest>, StorageError>;
    /// Narrows a selection to the rows whose codes qualify. The test is one of its own.
    fn select(&self, test: &CodeTest, selection: &mut Selection);
    /// Clears the mask of the listed rows whose codes do not qualify. The test is one of its own.
    fn select_listed(&self, test: &CodeTest, rows: &[u32], mask: &mut [u8]);
    /// Clears the mask of the listed rows that do not qualify: a few, for which a translation does not pay.
    fn test_listed(&self, test: &Test, rows: &[u32], mask: &mut [u8]) -> Result<(), StorageError>;
    /// The same values in the memory of `arena`, and the bytes they take there.
    fn placed(&self, arena: &Arena) -> Result<(Arc<dyn Encoded>, u64), MemoryExceeded>;
}

/// All encodings, the fastest first.
pub(super) static ENCODINGS: &[&dyn Encoding] =
    &[&Plain, &Constant, &FrameOfReference, &Dictionary, &Shared, &RunLength, &SymbolTable];

/// The encoding that suits the values best, and the bytes it takes itself.
pub(super) fn choose(source: &Source<'_>) -> (&'static dyn Encoding, u64) {
    let mut best: Option<(&'static dyn Encoding, u64, u64)> = None;
    for encoding in ENCODINGS.iter().copied() {
        let Some(bytes) = encoding.measure(source) else { continue };
        let whole = bytes + encoding.shared_bytes(source);
        let most = |smallest: u64| (smallest + encoding.slack_bytes(source)) * encoding.percent_max();
        if best.is_none_or(|(_, _, smallest)| whole * 100 <= most(smallest)) {
            best = Some((encoding, bytes, whole));
        }
    }
    match best {
        Some((encoding, bytes, _)) => (encoding, bytes),
        None => unreachable!("any values can be held plain"),
    }
}

/// Encodes values as was chosen; none if they have to be measured again.
pub(super) fn encode(encoding: &dyn Encoding, bytes: u64, source: &Source<'_>) -> Option<Arc<dyn Encoded>> {
    let encoded = encoding.encode(source)?;
    assert!(encoded.bytes() == bytes, "{} takes {} bytes, not {bytes}", encoding.name(), encoded.bytes());
    assert!(encoded.encoding() == encoding.name(), "{} calls itself {}", encoding.name(), encoded.encoding());
    Some(encoded)
}

#[cfg(test)]
mod tests;
