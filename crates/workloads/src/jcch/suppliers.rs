//! Suppliers, and which of them have a part: few parts are supplied by all, and many by a populous supplier.
//!
//! With `q` the hash of a part that is not populous and `S` suppliers, the hash of its supplier is, by class:
//!
//! | class | region | offset in the region |
//! |---|---|---|
//! | A | q mod 5 | 0, the populous one |
//! | B | q mod 5 | 4 + (q / 20 mod (S / 5 - 4)) |
//! | C | (q mod 5 + 1 + (q / 5 mod 4)) mod 5 | q / 20 mod 4 |
//! | D | as C | as B |

use super::nations::NationKey;
use super::population::{Population, REGIONS};
use tpchgen::generators::Supplier;

/// The first suppliers of a region have no comment, and none of the ordinary parts of their region but by class A.
const WITHOUT_COMMENT: u64 = 4;

/// How a part comes to a supplier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SupplierClass {
    A,
    B,
    C,
    D,
}

impl SupplierClass {
    /// In the order of the rows of partsupp.
    pub const ALL: [Self; 4] = [Self::A, Self::B, Self::C, Self::D];
}

/// The key of the supplier of a part in a class; the part is given by its hash.
pub(super) fn supplier_of_part(population: &Population, part_hash: u64, class: SupplierClass) -> u64 {
    let of_region = population.suppliers_of_region();
    let own_region = part_hash % REGIONS;
    let other_region = (own_region + 1 + part_hash / 5 % 4) % REGIONS;
    let ordinary = WITHOUT_COMMENT + part_hash / 20 % (of_region - WITHOUT_COMMENT);
    let (region, offset) = match class {
        SupplierClass::A => (own_region, 0),
        SupplierClass::B => (own_region, ordinary),
        SupplierClass::C => (other_region, part_hash / 20 % 4),
        SupplierClass::D => (other_region, ordinary),
    };
    population.suppliers.key(region * of_region + offset)
}

/// Makes a supplier of TPC-H one of this benchmark. The phone number keeps the country code of the nation it had.
pub(super) fn skewed_supplier(population: &Population, mut supplier: Supplier) -> Supplier {
    let hash = population.suppliers.hash(supplier.s_suppkey as u64);
    supplier.s_nationkey = NationKey::of_hash(hash, population.suppliers.count()).get();
    if hash % population.suppliers_of_region() < WITHOUT_COMMENT {
        supplier.s_comment.clear();
    }
    supplier
}
