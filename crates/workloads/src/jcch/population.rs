//! How many rows a scale factor has, and which of them are populous.
//!
//! A scale factor is accepted when every number that the rules divide is whole: suppliers (10,000 of scale factor 1)
//! come in fives, one share for each region, and there are 25 of them at least, so that each region has one that is not
//! populous. That makes the smallest scale factor 0.0025, and its steps 0.0005.

use super::key_hash::{KEYS_MAX, KeyHash};

/// Rows per supplier.
const PARTS: u64 = 20;
const CUSTOMERS: u64 = 15;
const ORDERS: u64 = 150;

const SUPPLIERS_OF_SCALE_FACTOR_1: f64 = 10_000.0;
const SUPPLIERS_MIN: u64 = 25;

pub(super) const REGIONS: u64 = 5;

/// Populous parts: those with the lowest hashes.
pub(super) const POPULOUS_PARTS: u64 = 20;

/// Populous orders: those with the lowest hashes, one for each region.
pub(super) const POPULOUS_ORDERS: u64 = REGIONS;

/// Why there is no data of a scale factor.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
#[error("scale factor {0} is not a multiple of 0.0005 from 0.0025 to 1431")]
pub struct ScaleFactorError(f64);

/// The numbers of rows and the scattered keys of one scale factor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Population {
    pub(super) suppliers: KeyHash,
    pub(super) parts: KeyHash,
    pub(super) customers: KeyHash,
    pub(super) orders: KeyHash,
}

impl Population {
    pub fn new(scale_factor: f64) -> Result<Self, ScaleFactorError> {
        let suppliers = scale_factor * SUPPLIERS_OF_SCALE_FACTOR_1;
        let whole = suppliers.round();
        // A scale factor such as 0.29 is no binary fraction; the tolerance is far below one supplier.
        let accepted = (suppliers - whole).abs() < 1e-6
            && whole >= SUPPLIERS_MIN as f64
            && whole * ORDERS as f64 <= KEYS_MAX as f64
            && (whole as u64).is_multiple_of(REGIONS);
        if !accepted {
            return Err(ScaleFactorError(scale_factor));
        }
        let suppliers = whole as u64;
        Ok(Self {
            suppliers: KeyHash::new(suppliers),
            parts: KeyHash::new(suppliers * PARTS),
            customers: KeyHash::new(suppliers * CUSTOMERS),
            orders: KeyHash::new(suppliers * ORDERS),
        })
    }

    pub fn scale_factor(&self) -> f64 {
        self.suppliers.count() as f64 / SUPPLIERS_OF_SCALE_FACTOR_1
    }

    /// The scale factor for the generators of TPC-H, which cut products with it to whole numbers: a trifle more makes
    /// them cut at the number that is meant.
    pub(super) fn tpch_scale_factor(&self) -> f64 {
        self.scale_factor() * (1.0 + 1e-12)
    }

    /// Suppliers of one region.
    pub(super) fn suppliers_of_region(&self) -> u64 {
        self.suppliers.count() / REGIONS
    }

    /// Customers of one region.
    pub(super) fn customers_of_region(&self) -> u64 {
        self.customers.count() / REGIONS
    }

    /// Lines of one populous order.
    pub(super) fn lines_of_populous_order(&self) -> u64 {
        self.orders.count() / 5
    }

    /// Parts are sold while their hash is below this; what lies above it has the type that queries with skewed
    /// parameters ask for, so that the populous parts do not stand out by the number of their type's parts.
    pub(super) fn parts_sold(&self) -> u64 {
        149 * (self.parts.count() / 150) / 5 * 5
    }

    /// The keys of the populous orders, in ascending order.
    pub(super) fn populous_orders(&self) -> Vec<u64> {
        sorted((0..POPULOUS_ORDERS).map(|hash| self.orders.key(hash)))
    }

    /// The keys of the populous parts, in ascending order.
    pub(super) fn populous_parts(&self) -> Vec<u64> {
        sorted((0..POPULOUS_PARTS).map(|hash| self.parts.key(hash)))
    }
}

fn sorted(keys: impl Iterator<Item = u64>) -> Vec<u64> {
    let mut keys: Vec<u64> = keys.collect();
    keys.sort_unstable();
    keys
}

#[cfg(test)]
mod tests {
    use super::super::orders::order_key;
    use super::*;

    #[test]
    fn populous_keys_are_those_of_the_benchmark() {
        let expected = [
            (
                1.0,
                [196_688, 137_745, 78_802, 19_859, 160_916],
                [4_576, 8_576, 2_576, 6_576, 576],
                [96_688, 6_688, 66_688, 126_688, 36_688],
                [2_139_840, 3_504_065, 4_868_290, 232_515, 1_596_740],
            ),
            (
                10.0,
                [34_960, 1_376_017, 717_074, 58_131, 1_399_188],
                [96_688, 36_688, 76_688, 16_688, 56_688],
                [534_960, 1_134_960, 234_960, 834_960, 1_434_960],
                [6_661_184, 44_025_409, 21_389_634, 58_753_859, 36_118_084],
            ),
        ];
        for (scale_factor, parts, suppliers, customers, orders) in expected {
            let population = Population::new(scale_factor).unwrap();
            let five = |key: &dyn Fn(u64) -> u64| [0, 1, 2, 3, 4].map(key);
            assert_eq!(five(&|hash| population.parts.key(hash)), parts);
            assert_eq!(five(&|r| population.suppliers.key(r * population.suppliers_of_region())), suppliers);
            assert_eq!(five(&|r| population.customers.key(r * population.customers_of_region())), customers);
            assert_eq!(five(&|hash| order_key(population.orders.key(hash))), orders);
        }
    }

    #[test]
    fn numbers_follow_the_scale_factor() {
        for (scale_factor, suppliers, sold) in [(1.0, 10_000, 198_615), (0.01, 100, 1_935), (0.0025, 25, 445)] {
            let population = Population::new(scale_factor).unwrap();
            let counts = [population.suppliers, population.parts, population.customers, population.orders];
            assert_eq!(counts.map(KeyHash::count), [1, 20, 15, 150].map(|each| each * suppliers));
            assert_eq!(population.parts_sold(), sold);
            assert_eq!(population.lines_of_populous_order(), 30 * suppliers);
        }
    }

    #[test]
    fn scale_factors_without_whole_numbers_are_refused() {
        for refused in [0.0, -1.0, 0.001, 0.002, 0.0026, 0.01001, 1_432.0, f64::NAN, f64::INFINITY] {
            let error = Population::new(refused).unwrap_err().to_string();
            assert!(error.contains("multiple of 0.0005"), "{error}");
        }
        for accepted in [0.0025, 0.003, 0.29, 0.57, 1.0, 1_431.0] {
            assert!(Population::new(accepted).is_ok(), "{accepted}");
        }
    }
}
