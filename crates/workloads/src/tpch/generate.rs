//! The TPC-H rows, generated straight into columns with `tpchgen` (the same rows as dbgen at any scale factor).
//!
//! A table can be generated in `part_count` parts, independently of each other, so that loading is parallel. A part is
//! an iterator over chunks of at most `CHUNK_ROWS` rows.

use super::chunk::Chunk;
use super::rows::{Chunks, ChunksOf, chunks};
use super::schema::Table;
use self_cell::self_cell;
use std::sync::{Arc, Mutex, PoisonError};
use tpchgen::distribution::Distributions;
use tpchgen::generators::{
    CustomerGenerator, LineItemGenerator, NationGenerator, OrderGenerator, PartGenerator, PartSuppGenerator,
    RegionGenerator, SupplierGenerator,
};
use tpchgen::text::TextPool;

/// Which share of a table to generate: part `index` (from 0) of `count` parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TablePart {
    pub index: u32,
    pub count: u32,
}

impl TablePart {
    pub const WHOLE: Self = Self { index: 0, count: 1 };
}

/// The texts that all parts take their comments from, until they are [forgotten](forget_texts).
static TEXTS: Mutex<Option<Arc<TextPool>>> = Mutex::new(None);
/// As many as dbgen has.
const TEXT_BYTES: i32 = 300 << 20;

self_cell! {
    /// Rows, with the texts that they borrow.
    struct Generated {
        owner: Arc<TextPool>,
        #[not_covariant]
        dependent: ChunksOf,
    }
}

impl Iterator for Generated {
    type Item = Chunk;

    fn next(&mut self) -> Option<Chunk> {
        self.with_dependent_mut(|_, chunks| chunks.next())
    }
}

/// Generates a part of a table at a scale factor. Region and nation have the same few rows always: all of them come
/// with part 0. The first call makes 300 MB of texts, which stay until they are [forgotten](forget_texts).
pub fn generate(table: Table, scale_factor: f64, part: TablePart) -> Chunks {
    let texts = {
        let mut kept = TEXTS.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(kept.get_or_insert_with(|| Arc::new(TextPool::new(TEXT_BYTES, Distributions::static_default()))))
    };
    Box::new(Generated::new(texts, |texts| generate_of(table, scale_factor, part, texts)))
}

/// Gives the memory of the texts back, once all rows that are being generated are.
pub fn forget_texts() {
    *TEXTS.lock().unwrap_or_else(PoisonError::into_inner) = None;
}

/// The same of these texts.
pub(crate) fn generate_of(table: Table, scale_factor: f64, part: TablePart, texts: &TextPool) -> ChunksOf<'_> {
    assert!(scale_factor > 0.0, "a scale factor is positive, not {scale_factor}");
    assert!(part.index < part.count, "part {} of {} does not exist", part.index, part.count);
    let first_only = if part.index == 0 { usize::MAX } else { 0 };
    // tpchgen counts parts from one.
    let (scale, number, count) = (scale_factor, part.index as i32 + 1, part.count as i32);
    let words = Distributions::static_default();
    macro_rules! rows {
        ($generator:ident) => {
            $generator::new_with_distributions_and_text_pool(scale, number, count, words, texts).iter()
        };
    }
    match table {
        Table::Region => {
            let generator = RegionGenerator::new_with_distributions_and_text_pool(words, texts);
            chunks(table, generator.iter().take(first_only))
        }
        Table::Nation => {
            let generator = NationGenerator::new_with_distributions_and_text_pool(words, texts);
            chunks(table, generator.iter().take(first_only))
        }
        Table::Supplier => chunks(table, rows!(SupplierGenerator)),
        Table::Customer => chunks(table, rows!(CustomerGenerator)),
        Table::Part => chunks(table, rows!(PartGenerator)),
        Table::PartSupp => chunks(table, PartSuppGenerator::new_with_text_pool(scale, number, count, texts).iter()),
        Table::Orders => chunks(table, rows!(OrderGenerator)),
        Table::LineItem => chunks(table, rows!(LineItemGenerator)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(table: Table, scale_factor: f64, part: TablePart) -> usize {
        generate(table, scale_factor, part).map(|chunk| chunk.rows()).sum()
    }

    #[test]
    fn row_counts_follow_the_scale_factor() {
        let expected = [5, 25, 100, 1_500, 2_000, 8_000, 15_000, 60_175];
        for (table, expected) in Table::ALL.into_iter().zip(expected) {
            assert_eq!(rows(table, 0.01, TablePart::WHOLE), expected, "{}", table.name());
        }
    }

    /// Parts put together are the whole, in order: compared by the `.tbl` text of both.
    #[test]
    fn parts_make_the_whole() {
        for table in Table::ALL {
            let mut whole = Vec::new();
            for chunk in generate(table, 0.003, TablePart::WHOLE) {
                super::super::tbl::write_chunk(&mut whole, &chunk).unwrap();
            }
            let mut parts = Vec::new();
            for index in 0..5 {
                for chunk in generate(table, 0.003, TablePart { index, count: 5 }) {
                    super::super::tbl::write_chunk(&mut parts, &chunk).unwrap();
                }
            }
            assert_eq!(whole, parts, "{}", table.name());
        }
    }

    /// Our columns written as `.tbl` are what tpchgen itself prints, except that dbgen writes a quantity of 17 as `17`
    /// and a decimal column writes it as `17.00`.
    #[test]
    fn columns_hold_what_the_generator_prints() {
        let mut ours = Vec::new();
        for chunk in generate(Table::LineItem, 0.001, TablePart::WHOLE) {
            super::super::tbl::write_chunk(&mut ours, &chunk).unwrap();
        }
        let ours = String::from_utf8(ours).unwrap();
        let mut lines = ours.lines();
        for theirs in LineItemGenerator::new(0.001, 1, 1).iter() {
            let theirs = theirs.to_string();
            let mut fields: Vec<String> = theirs.split('|').map(str::to_owned).collect();
            fields[4].push_str(".00");
            assert_eq!(lines.next(), Some(fields.join("|").as_str()));
        }
        assert_eq!(lines.next(), None);
    }
}
