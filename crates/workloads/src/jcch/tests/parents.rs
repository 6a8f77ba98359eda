//! Suppliers, customers and parts.

use super::{LARGE, Rows, SCALE_FACTORS, SMALL, assert_same, population, rows_of, tpch_rows_of};
use crate::jcch::Population;
use crate::tpch::{Table, TablePart, generate as generate_tpch};
use std::collections::HashMap;

/// Names of nations and regions by the key of the nation, from the generated tables.
fn nation_names() -> (Vec<String>, Vec<i64>) {
    let table = Table::Nation;
    let chunk = generate_tpch(table, 1.0, TablePart::WHOLE).next().unwrap();
    let rows = Rows { table, chunk };
    (rows.texts("n_name").into_iter().map(str::to_owned).collect(), rows.numbers("n_regionkey"))
}

/// The rule of regions and nations, in permille of all hashes.
fn assert_nations(hashes: &[u64], nations: &[i64], count: u64) {
    let (names, regions) = nation_names();
    for (&hash, &nation) in hashes.iter().zip(nations) {
        let region = hash * 5 / count;
        assert_eq!(regions[nation as usize], region as i64, "hash {hash} of {count}");
        let permille = hash as f64 / count as f64 * 1_000.0 - region as f64 * 200.0;
        let expected = if permille < 180.0 {
            LARGE[region as usize]
        } else {
            SMALL[region as usize][(permille - 180.0) as usize / 5]
        };
        assert_eq!(names[nation as usize], expected, "hash {hash} of {count}");
    }
}

#[test]
fn suppliers_have_the_nations_of_their_hashes_and_twenty_have_no_comment() {
    for scale_factor in SCALE_FACTORS {
        let population = population(scale_factor);
        let count = (10_000.0 * scale_factor).round() as u64;
        let (ours, theirs) = (rows_of(Table::Supplier, &population), tpch_rows_of(Table::Supplier, scale_factor));
        let keys = ours.keys("s_suppkey");
        assert_eq!(keys, (1..=count).collect::<Vec<_>>());
        let hashes: Vec<u64> = keys.iter().map(|&key| population.suppliers.hash(key)).collect();
        assert_nations(&hashes, &ours.numbers("s_nationkey"), count);
        assert_same(&ours, &theirs, &["s_name", "s_address", "s_phone", "s_acctbal"]);
        let comments = ours.texts("s_comment").into_iter().zip(theirs.texts("s_comment"));
        let empty = hashes.iter().zip(comments).filter(|(hash, (ours, theirs))| {
            let is_empty = *hash % (count / 5) < 4;
            assert_eq!(*ours, if is_empty { "" } else { theirs });
            is_empty
        });
        assert_eq!(empty.count(), 20);
    }
}

#[test]
fn customers_have_the_nations_of_their_hashes_and_five_have_phones_of_their_own() {
    for scale_factor in SCALE_FACTORS {
        let population = population(scale_factor);
        let count = (150_000.0 * scale_factor).round() as u64;
        let (ours, theirs) = (rows_of(Table::Customer, &population), tpch_rows_of(Table::Customer, scale_factor));
        let keys = ours.keys("c_custkey");
        assert_eq!(keys, (1..=count).collect::<Vec<_>>());
        let hashes: Vec<u64> = keys.iter().map(|&key| population.customers.hash(key)).collect();
        assert_nations(&hashes, &ours.numbers("c_nationkey"), count);
        assert_same(&ours, &theirs, &["c_name", "c_address", "c_acctbal", "c_mktsegment", "c_comment"]);
        let mut populous = Vec::new();
        for (hash, (ours, theirs)) in hashes.iter().zip(ours.texts("c_phone").into_iter().zip(theirs.texts("c_phone")))
        {
            if hash % (count / 5) == 0 {
                assert_eq!(ours[2..], theirs[2..]);
                populous.push((hash / (count / 5), ours[..2].to_owned()));
            } else {
                assert_eq!(ours, theirs);
            }
        }
        populous.sort();
        let expected = [(0, "40"), (1, "50"), (2, "60"), (3, "70"), (4, "80")];
        assert_eq!(populous, expected.map(|(region, code)| (region, code.to_owned())));
    }
}

#[test]
fn twenty_parts_are_alike_and_no_others_are_like_them() {
    // The first scale factors have no part that must move out of the way.
    for scale_factor in [0.0025, 0.05, 0.5] {
        let population = population(scale_factor);
        let count = (200_000.0 * scale_factor).round() as u64;
        let sold = 149 * (count / 150) / 5 * 5;
        let (ours, theirs) = (rows_of(Table::Part, &population), tpch_rows_of(Table::Part, scale_factor));
        assert_eq!(ours.len() as u64, count);
        assert_same(&ours, &theirs, &["p_partkey", "p_mfgr", "p_retailprice", "p_comment"]);
        let mut kinds: HashMap<&str, u64> = HashMap::new();
        for row in 0..ours.len() {
            let hash = population.parts.hash(row as u64 + 1);
            let part = PartValues::of(&ours, row);
            let was = PartValues::of(&theirs, row);
            let kind = if hash < 20 {
                let populous = PartValues {
                    name: "shiny mined gold",
                    brand: "Brand#55",
                    part_type: "SHINY MINED GOLD",
                    size: 1,
                    container: "LG BOX",
                };
                assert_eq!(part, populous);
                "populous"
            } else {
                let moved = was.brand == "Brand#55" && was.container == "LG BOX";
                let gold = hash > sold && !moved;
                let unlike_size_1 = was.brand == "Brand#55" || was.container == "LG BOX" || gold;
                let expected = PartValues {
                    brand: if moved { "Brand#15" } else { was.brand },
                    part_type: if gold { "SHINY MINED GOLD" } else { was.part_type },
                    size: if was.size == 1 && unlike_size_1 { 2 + (hash % 50) as i64 } else { was.size },
                    ..was
                };
                assert_eq!(part, expected, "hash {hash}");
                assert!(part.brand != "Brand#55" || part.container != "LG BOX");
                let is_asked_for = ["Brand#55", "LG BOX", "SHINY MINED GOLD"]
                    .iter()
                    .any(|value| [part.brand, part.container, part.part_type].contains(value));
                assert!(part.size != 1 || !is_asked_for);
                if moved {
                    "moved"
                } else if gold {
                    "gold"
                } else {
                    "ordinary"
                }
            };
            *kinds.entry(kind).or_default() += 1;
        }
        assert_eq!(kinds["populous"], 20);
        assert_eq!(
            kinds["gold"] + kinds.get("moved").map_or(0, |_| moved_unsold(&population, &theirs)),
            count - 1 - sold
        );
        if scale_factor >= 0.05 {
            assert!(kinds["moved"] > 0, "{kinds:?}");
        }
    }
}

/// Parts that are not sold and keep their type, because their brand is moved.
fn moved_unsold(population: &Population, theirs: &Rows) -> u64 {
    let unsold = (0..theirs.len()).filter(|row| population.parts.hash(*row as u64 + 1) > population.parts_sold());
    let moved = unsold.filter(|&row| {
        let was = PartValues::of(theirs, row);
        was.brand == "Brand#55" && was.container == "LG BOX"
    });
    moved.count() as u64
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct PartValues<'a> {
    name: &'a str,
    brand: &'a str,
    part_type: &'a str,
    size: i64,
    container: &'a str,
}

impl<'a> PartValues<'a> {
    fn of(rows: &'a Rows, row: usize) -> Self {
        let text = |name| match rows.column(name) {
            crate::tpch::Column::Text(values) => values.get(row),
            _ => panic!("{name} is no text"),
        };
        let crate::tpch::Column::Int32(sizes) = rows.column("p_size") else { panic!("p_size is an integer") };
        Self {
            name: text("p_name"),
            brand: text("p_brand"),
            part_type: text("p_type"),
            size: i64::from(sizes[row]),
            container: text("p_container"),
        }
    }
}
