//! Partsupp: a quarter of its rows are the populous parts, which every supplier has.
//!
//! Other parts have three suppliers, and the first 60 of them a fourth, so that there are 800,000 rows at scale
//! factor 1 as in TPC-H. Quantity, cost and comment have the ranges of TPC-H, and values of our own.

use super::draws::{Drawn, draws, text};
use super::fanout::{Child, Fanout};
use super::population::{POPULOUS_PARTS, Population};
use super::suppliers::{SupplierClass, supplier_of_part};
use tpchgen::decimal::TPCHDecimal;
use tpchgen::generators::PartSupp;
use tpchgen::text::TextPool;

const AVAILABLE_QUANTITY_OF_SCALE_FACTOR_1: f64 = 4_000_000.0;

/// Which rows there are.
pub(super) fn fanout(population: &Population) -> Fanout {
    Fanout {
        parents: population.parts.count(),
        base: 3,
        longer: 3 * POPULOUS_PARTS,
        heavy: population.populous_parts(),
        heavy_children: population.suppliers.count(),
    }
}

/// One row; a populous part has the suppliers in the order of their keys.
pub(super) fn row(population: &Population, pool: &'static TextPool, child: Child) -> PartSupp<'static> {
    let hash = population.parts.hash(child.parent);
    let populous = hash < POPULOUS_PARTS;
    let mut random = draws(Drawn::PartSupp, child.parent, child.place);
    let quantity = random.between(1, 9_999) as i32;
    PartSupp {
        ps_partkey: child.parent as i64,
        ps_suppkey: if populous {
            child.place as i64 + 1
        } else {
            supplier_of_part(population, hash, SupplierClass::ALL[child.place as usize]) as i64
        },
        ps_availqty: if populous {
            (AVAILABLE_QUANTITY_OF_SCALE_FACTOR_1 * population.scale_factor()) as i32
        } else {
            quantity
        },
        ps_supplycost: TPCHDecimal(random.between(100, 100_000)),
        ps_comment: text(&mut random, pool, 124),
    }
}
