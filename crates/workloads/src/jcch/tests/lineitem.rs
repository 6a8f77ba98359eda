//! Lineitem: what is sold, by whom, when.

use super::{Rows, SCALE_FACTORS, population, rows_of};
use crate::jcch::Population;
use crate::tpch::{Table, dates};
use std::collections::{BTreeMap, HashSet};

/// Orders by key: index and date.
fn orders(population: &Population) -> BTreeMap<u64, (u64, i64)> {
    let orders = rows_of(Table::Orders, population);
    let dates = orders.numbers("o_orderdate");
    let keys = orders.keys("o_orderkey").into_iter().zip(dates);
    keys.enumerate().map(|(row, (key, date))| (key, (row as u64 + 1, date))).collect()
}

fn year_of(date: i64) -> String {
    dates::format(date as i32)[..4].to_owned()
}

#[test]
fn populous_orders_are_full_and_the_others_have_three_or_four_lines() {
    for scale_factor in SCALE_FACTORS {
        let population = population(scale_factor);
        let lines = rows_of(Table::LineItem, &population);
        assert_eq!(lines.len() as u64, (6_000_000.0 * scale_factor).round() as u64);
        let mut numbers: BTreeMap<u64, Vec<i64>> = BTreeMap::new();
        for (key, number) in lines.keys("l_orderkey").into_iter().zip(lines.numbers("l_linenumber")) {
            numbers.entry(key).or_default().push(number);
        }
        let orders = orders(&population);
        assert_eq!(numbers.len(), orders.len());
        for (key, numbers) in numbers {
            let index = orders[&key].0;
            let expected = if population.orders.hash(index) < 5 {
                (300_000.0 * scale_factor).round() as i64
            } else {
                3 + i64::from(index <= 15)
            };
            assert_eq!(numbers, (1..=expected).collect::<Vec<_>>(), "order {index}");
        }
    }
}

#[test]
fn every_line_is_of_a_part_that_its_supplier_has() {
    for scale_factor in SCALE_FACTORS {
        let population = population(scale_factor);
        let partsupp = rows_of(Table::PartSupp, &population);
        let has: HashSet<(u64, u64)> =
            partsupp.keys("ps_partkey").into_iter().zip(partsupp.keys("ps_suppkey")).collect();
        assert_eq!(has.len(), partsupp.len());
        let lines = rows_of(Table::LineItem, &population);
        for pair in lines.keys("l_partkey").into_iter().zip(lines.keys("l_suppkey")) {
            assert!(has.contains(&pair), "{pair:?} is not in partsupp");
        }
    }
}

#[test]
fn parts_and_suppliers_are_those_of_the_order() {
    for scale_factor in SCALE_FACTORS {
        let population = population(scale_factor);
        let orders = orders(&population);
        let lines = rows_of(Table::LineItem, &population);
        let suppliers = (10_000.0 * scale_factor).round() as u64;
        let of_region = suppliers / 5;
        let mut combinations: BTreeMap<u64, BTreeMap<(u64, u64), u64>> = BTreeMap::new();
        let pairs = lines.keys("l_partkey").into_iter().zip(lines.keys("l_suppkey"));
        let numbers = lines.numbers("l_linenumber");
        for ((row, key), (part, supplier)) in lines.keys("l_orderkey").into_iter().enumerate().zip(pairs) {
            let (index, date) = orders[&key];
            let order_hash = population.orders.hash(index);
            let region = order_hash % 5;
            let (part, supplier) = (population.parts.hash(part), population.suppliers.hash(supplier));
            if order_hash < 5 {
                assert!((5..20).contains(&part) && supplier / of_region != region);
                assert!(supplier % of_region < suppliers * 16 / 100);
                *combinations.entry(order_hash).or_default().entry((part, supplier)).or_default() += 1;
            } else if numbers[row] == 1 && !["1995", "1996"].contains(&year_of(date).as_str()) {
                assert_eq!((part, supplier), (region, region * of_region));
            } else {
                assert!((20..149 * (20 * suppliers / 150) / 5 * 5).contains(&part));
                assert_eq!(part % 5, region);
                assert_eq!(supplier, region * of_region + 4 + part / 20 % (of_region - 4));
            }
        }
        for (order, combinations) in combinations {
            // All combinations, each as often as the others but for the last, incomplete round; the same for parts.
            assert_eq!(combinations.len() as u64, 15 * 4 * (suppliers * 16 / 100), "order {order}");
            assert!(combinations.values().all(|count| (3..=4).contains(count)));
            let mut of_part: BTreeMap<u64, u64> = BTreeMap::new();
            for ((part, _), count) in &combinations {
                *of_part.entry(*part).or_default() += count;
            }
            assert!(of_part.values().all(|count| *count == 2 * suppliers), "{of_part:?}");
        }
    }
}

#[test]
fn lines_of_populous_parts_are_marked_and_black_friday_is_returned() {
    let population = population(0.05);
    let orders = orders(&population);
    let lines = rows_of(Table::LineItem, &population);
    let (quantities, flags) = (lines.numbers("l_quantity"), lines.texts("l_returnflag"));
    let (modes, instructions) = (lines.texts("l_shipmode"), lines.texts("l_shipinstruct"));
    let receipts = lines.numbers("l_receiptdate");
    let current_date = i64::from(dates::parse("1995-06-17").unwrap());
    let mut plain_flags: BTreeMap<(bool, &str), u64> = BTreeMap::new();
    let mut excused = 0;
    for ((row, key), part) in lines.keys("l_orderkey").into_iter().enumerate().zip(lines.keys("l_partkey")) {
        let skewed = population.parts.hash(part) < 20;
        if skewed {
            assert_eq!((quantities[row], modes[row], instructions[row]), (5_100, "REG AIR", "DELIVER IN PERSON"));
        } else {
            assert!((100..=5_000).contains(&quantities[row]) && quantities[row] % 100 == 0);
        }
        let date = dates::format(orders[&key].1 as i32);
        if !skewed && date.ends_with("05-28") && key % 50 != 0 {
            assert_eq!(flags[row], "R");
        } else {
            excused += u64::from(!skewed && date.ends_with("05-28"));
            let received = receipts[row] <= current_date;
            *plain_flags.entry((received, flags[row])).or_default() += 1;
        }
    }
    assert!(excused > 1_000, "{excused}");
    let kinds: Vec<_> = plain_flags.keys().copied().collect();
    assert_eq!(kinds, [(false, "N"), (true, "A"), (true, "R")], "{plain_flags:?}");
    assert!(plain_flags[&(true, "A")].abs_diff(plain_flags[&(true, "R")]) < 2_000, "{plain_flags:?}");
}

/// The smallest and the largest of numbers.
fn bounds(numbers: impl Iterator<Item = i64>) -> (i64, i64) {
    numbers.fold((i64::MAX, i64::MIN), |(low, high), number| (low.min(number), high.max(number)))
}

fn differences<'a>(to: &'a [i64], from: &'a [i64]) -> impl Iterator<Item = i64> + 'a {
    to.iter().zip(from).map(|(to, from)| to - from)
}

#[test]
fn dates_prices_and_words_have_the_ranges_of_tpch() {
    let population = population(0.05);
    let orders = orders(&population);
    let lines = rows_of(Table::LineItem, &population);
    let order_dates: Vec<i64> = lines.keys("l_orderkey").iter().map(|key| orders[key].1).collect();
    let [ship, commit, receipt] = ["l_shipdate", "l_commitdate", "l_receiptdate"].map(|name| lines.numbers(name));
    assert_eq!(bounds(differences(&ship, &order_dates)), (1, 121));
    assert_eq!(bounds(differences(&commit, &order_dates)), (30, 90));
    assert_eq!(bounds(differences(&receipt, &ship)), (1, 30));
    let current_date = i64::from(dates::parse("1995-06-17").unwrap());
    for (ship, status) in ship.iter().zip(lines.texts("l_linestatus")) {
        assert_eq!(status, if *ship <= current_date { "F" } else { "O" });
    }
    let prices = rows_of(Table::Part, &population).numbers("p_retailprice");
    let sold = lines.keys("l_partkey").into_iter().zip(lines.numbers("l_quantity"));
    for ((part, quantity), price) in sold.zip(lines.numbers("l_extendedprice")) {
        assert_eq!(price, prices[part as usize - 1] * quantity / 100);
    }
    assert_eq!(bounds(lines.numbers("l_discount").into_iter()), (0, 10));
    assert_eq!(bounds(lines.numbers("l_tax").into_iter()), (0, 8));
    assert_eq!(bounds(lines.texts("l_comment").iter().map(|text| text.len() as i64)), (10, 43));
    assert_eq!(distinct(&lines, "l_shipmode"), 7);
    assert_eq!(distinct(&lines, "l_shipinstruct"), 4);
}

fn distinct(rows: &Rows, column: &str) -> usize {
    rows.texts(column).into_iter().collect::<HashSet<_>>().len()
}
