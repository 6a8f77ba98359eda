//! Orders: whose they are, when, and what their lines make of them.

use super::{SCALE_FACTORS, assert_same, population, rows_of, tpch_rows_of};
use crate::jcch::generate;
use crate::tpch::{Table, TablePart, dates};
use std::collections::HashMap;

/// Days of a date.
fn days(text: &str) -> i64 {
    i64::from(dates::parse(text).unwrap())
}

#[test]
fn customers_dates_and_comments_follow_from_hash_and_date_of_tpch() {
    for scale_factor in SCALE_FACTORS {
        let population = population(scale_factor);
        let (ours, theirs) = (rows_of(Table::Orders, &population), tpch_rows_of(Table::Orders, scale_factor));
        assert_eq!(ours.len(), (1_500_000.0 * scale_factor).round() as usize);
        assert_same(&ours, &theirs, &["o_orderkey", "o_orderpriority", "o_clerk", "o_shippriority"]);
        let customers = (150_000.0 * scale_factor).round() as u64;
        let (their_dates, our_dates) = (theirs.numbers("o_orderdate"), ours.numbers("o_orderdate"));
        let (comments, statuses) = (ours.texts("o_comment"), ours.texts("o_orderstatus"));
        let their_comments = theirs.texts("o_comment");
        for (row, customer) in ours.keys("o_custkey").into_iter().enumerate() {
            let index = row as u64 + 1;
            let hash = population.orders.hash(index);
            let their_date = dates::format(their_dates[row] as i32);
            let (year, month) = (&their_date[..4], &their_date[5..7]);
            let date = if hash < 5 {
                assert_eq!(statuses[row], "F");
                days(["1992-05-28", "1993-05-28", "1994-05-28", "1997-05-28", "1998-05-28"][hash as usize])
            } else if 17 * index % 4 < 3 && !["05", "06", "07", "08"].contains(&month) {
                days(&format!("{year}-05-28"))
            } else {
                their_dates[row]
            };
            assert_eq!(our_dates[row], date, "order {index}");
            let region = hash % 5;
            let populous = hash < 5 || !["1995", "1996"].contains(&year) && hash / 20 % 20 < 7;
            let offset = if populous {
                0
            } else {
                let number = hash / 5 % (customers / 5 - customers / 15);
                (3 * number / 2 % (customers / 5)).max(1)
            };
            assert_eq!(customer, population.customers.key(region * (customers / 5) + offset), "order {index}");
            if populous {
                assert_eq!(comments[row], format!("1mine2 3gold4{}", &their_comments[row][13..]));
            } else {
                assert_eq!(comments[row], their_comments[row]);
            }
        }
    }
}

#[test]
fn totals_and_states_follow_from_the_lines() {
    let population = population(0.05);
    let lines = rows_of(Table::LineItem, &population);
    let values = ["l_extendedprice", "l_discount", "l_tax"].map(|name| lines.numbers(name));
    let mut sums: HashMap<u64, (i64, Vec<&str>)> = HashMap::new();
    for (row, (key, status)) in lines.keys("l_orderkey").into_iter().zip(lines.texts("l_linestatus")).enumerate() {
        let [price, discount, tax] = [0, 1, 2].map(|column: usize| values[column][row]);
        let (total, states) = sums.entry(key).or_default();
        *total += price * (100 - discount) / 100 * (100 + tax) / 100;
        states.push(status);
    }
    let orders = rows_of(Table::Orders, &population);
    let totals = orders.numbers("o_totalprice");
    let states = orders.texts("o_orderstatus");
    assert_eq!(sums.len(), orders.len());
    let mut seen: HashMap<&str, usize> = HashMap::new();
    for (row, key) in orders.keys("o_orderkey").into_iter().enumerate() {
        let (total, line_states) = &sums[&key];
        assert_eq!(totals[row], *total, "order {key}");
        let shipped = line_states.iter().filter(|state| **state == "F").count();
        let state = match shipped {
            0 => "O",
            all if all == line_states.len() => "F",
            _ => "P",
        };
        if line_states.len() <= 4 {
            assert_eq!(states[row], state, "order {key}");
        }
        *seen.entry(states[row]).or_default() += 1;
    }
    assert!(["F", "O", "P"].iter().all(|state| seen[state] > 100), "{seen:?}");
}

#[test]
fn parts_of_orders_agree_with_the_whole() {
    let population = population(0.0035);
    let whole = rows_of(Table::Orders, &population);
    let parts = (0..4).flat_map(|index| generate(Table::Orders, &population, TablePart { index, count: 4 }));
    let parts = super::collect(Table::Orders, parts);
    assert_eq!(whole.chunk, parts.chunk);
}
