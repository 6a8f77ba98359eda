//! Parts: twenty are populous, and alike; others of their type exist, but nobody buys those.
//!
//! Queries with skewed parameters find the populous parts by brand and container, by type and size, or by name. So no
//! other part may have these combinations: brands and sizes of parts that would are moved out of the way. A part whose
//! brand is moved keeps its type, also where its hash would give it the populous one.

use super::population::{POPULOUS_PARTS, Population};
use crate::tpch::rows::{Appender, RowValues, append_part};
use tpchgen::generators::{Part, PartBrandName};

pub(super) const POPULOUS_BRAND: i32 = 55;
pub(super) const POPULOUS_CONTAINER: &str = "LG BOX";
pub(super) const POPULOUS_TYPE: &str = "SHINY MINED GOLD";
pub(super) const POPULOUS_NAME: &str = "shiny mined gold";
const POPULOUS_SIZE: i32 = 1;
/// Parts that would have brand and container of the populous ones have this brand.
const MOVED_BRAND: i32 = 15;

/// A part of this benchmark.
pub(super) struct SkewedPart {
    part: Part<'static>,
    populous: bool,
}

impl SkewedPart {
    pub fn new(population: &Population, mut part: Part<'static>) -> Self {
        let hash = population.parts.hash(part.p_partkey as u64);
        let populous = hash < POPULOUS_PARTS;
        if populous {
            part.p_brand = PartBrandName::new(POPULOUS_BRAND);
            part.p_size = POPULOUS_SIZE;
            part.p_container = POPULOUS_CONTAINER;
            part.p_type = POPULOUS_TYPE;
        } else {
            let brand = part.p_brand == PartBrandName::new(POPULOUS_BRAND);
            let container = part.p_container == POPULOUS_CONTAINER;
            let unsold = hash > population.parts_sold();
            if brand && container {
                part.p_brand = PartBrandName::new(MOVED_BRAND);
            } else if unsold {
                part.p_type = POPULOUS_TYPE;
            }
            if part.p_size == POPULOUS_SIZE && (brand || container || part.p_type == POPULOUS_TYPE) {
                part.p_size += 1 + (hash % 50) as i32;
            }
        }
        Self { part, populous }
    }
}

impl RowValues for SkewedPart {
    fn append(&self, to: &mut Appender<'_>) {
        if self.populous {
            append_part(&self.part, POPULOUS_NAME, to);
        } else {
            append_part(&self.part, &self.part.p_name, to);
        }
    }
}
