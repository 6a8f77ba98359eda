//! Partsupp: who has which part.

use super::{SCALE_FACTORS, population, rows_of};
use crate::tpch::Table;
use std::collections::BTreeMap;

#[test]
fn every_supplier_has_the_populous_parts_and_few_have_any_other() {
    for scale_factor in SCALE_FACTORS {
        let population = population(scale_factor);
        let suppliers = (10_000.0 * scale_factor).round() as u64;
        let of_region = suppliers / 5;
        let rows = rows_of(Table::PartSupp, &population);
        assert_eq!(rows.len() as u64, 80 * suppliers);
        let pairs = rows.keys("ps_partkey").into_iter().zip(rows.keys("ps_suppkey"));
        let mut suppliers_of: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
        for ((part, supplier), quantity) in pairs.zip(rows.numbers("ps_availqty")) {
            suppliers_of.entry(part).or_default().push(supplier);
            if population.parts.hash(part) < 20 {
                assert_eq!(quantity as u64, 400 * suppliers);
            } else {
                assert!((1..=9_999).contains(&quantity), "{quantity}");
            }
        }
        assert_eq!(suppliers_of.len() as u64, 20 * suppliers);
        let mut ordinary_before = 0;
        for (part, mut found) in suppliers_of {
            let hash = population.parts.hash(part);
            if hash < 20 {
                assert_eq!(found, (1..=suppliers).collect::<Vec<_>>(), "part {part}");
                continue;
            }
            let supplier = |region: u64, offset: u64| population.suppliers.key(region % 5 * of_region + offset);
            let (own, other) = (hash % 5, hash % 5 + 1 + hash / 5 % 4);
            let far = 4 + (hash / 20) % (of_region - 4);
            let mut expected =
                vec![supplier(own, 0), supplier(own, far), supplier(other, hash / 20 % 4), supplier(other, far)];
            expected.truncate(if ordinary_before < 60 { 4 } else { 3 });
            ordinary_before += 1;
            assert_eq!(found, expected, "part {part} of hash {hash}");
            found.sort_unstable();
            found.dedup();
            assert_eq!(found.len(), expected.len(), "part {part} has a supplier twice");
        }
        let costs = rows.numbers("ps_supplycost");
        assert!(costs.iter().all(|cost| (100..=100_000).contains(cost)));
        let lengths: Vec<usize> = rows.texts("ps_comment").iter().map(|comment| comment.len()).collect();
        assert_eq!((lengths.iter().min(), lengths.iter().max()), (Some(&49), Some(&198)));
    }
}
