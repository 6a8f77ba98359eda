//! Parameters of the queries: many draws of each, all of which must keep the rules of their set.

use super::{LARGE, SMALL};
use crate::jcch::{DrawnQuery, ParameterSet};
use crate::tpch::{QueryNumber, dates};
use eris_platform::SeededRandom;
use std::collections::{BTreeSet, HashMap};

const REGIONS: [&str; 5] = ["AFRICA", "AMERICA", "ASIA", "EUROPE", "MIDDLE EAST"];

/// Two thousand draws of a query, each as a map of parameters.
fn draws(number: u8, set: ParameterSet) -> Vec<HashMap<&'static str, String>> {
    let query = QueryNumber::new(number).unwrap();
    let mut random = SeededRandom::new(u64::from(number));
    let draw = || {
        let drawn = DrawnQuery::draw(query, set, &mut random);
        let sql = drawn.sql(1.0);
        assert!(!sql.contains(['{', '}', ';']), "{sql}");
        drawn.parameters.into_iter().collect()
    };
    std::iter::repeat_with(draw).take(2_000).collect()
}

/// The distinct values of one parameter.
fn values(number: u8, set: ParameterSet, name: &str) -> BTreeSet<String> {
    draws(number, set).into_iter().map(|mut parameters| parameters.remove(name).unwrap()).collect()
}

#[track_caller]
fn assert_values<T: ToString>(number: u8, set: ParameterSet, name: &str, expected: impl IntoIterator<Item = T>) {
    let expected: BTreeSet<String> = expected.into_iter().map(|value| value.to_string()).collect();
    assert_eq!(values(number, set, name), expected, "q{number}, {}, {name}", set.name());
}

/// The first days of months.
fn firsts(years: &[i32], months: &[i32]) -> Vec<String> {
    years.iter().flat_map(|year| months.iter().map(move |month| format!("{year}-{month:02}-01"))).collect()
}

fn region_of(nation: &str) -> usize {
    let region = |region: &usize| LARGE[*region] == nation || SMALL[*region].contains(&nation);
    (0..5).find(region).unwrap_or_else(|| panic!("{nation} is in no region"))
}

use ParameterSet::{Normal, Skewed};

#[test]
fn numbers_and_dates_are_those_of_the_set() {
    for set in ParameterSet::ALL {
        assert_values(1, set, "delta", 60..=120);
        assert_values(6, set, "discount", (2..=9).map(|hundredths| format!("0.0{hundredths}")));
        assert_values(5, set, "region", REGIONS);
        assert_values(19, set, "quantity1", 1..=10);
        assert_values(19, set, "quantity2", 10..=20);
    }
    assert_values(3, Normal, "date", (1..=31).map(|day| format!("1995-03-{day:02}")));
    assert_values(3, Skewed, "date", ["1993-05-29", "1993-05-30", "1993-05-31"]);
    assert_values(4, Normal, "date", firsts(&[1995, 1996], &[1, 2, 9, 10]));
    assert_values(4, Skewed, "date", firsts(&[1992, 1993, 1994, 1997], &[5, 6]));
    for number in [5, 6, 12, 20] {
        assert_values(number, Normal, "date", firsts(&[1995, 1996], &[1]));
        assert_values(number, Skewed, "date", firsts(&[1993, 1994], &[1]));
    }
    assert_values(6, Normal, "quantity", [24, 25]);
    assert_values(6, Skewed, "quantity", [100]);
    for number in [7, 8] {
        assert_values(number, Normal, "first", ["1995-01-01"]);
        assert_values(number, Normal, "last", ["1996-12-31"]);
        assert_values(number, Skewed, "first", ["1993-01-01"]);
        assert_values(number, Skewed, "last", ["1994-12-31"]);
    }
    for number in [14, 15] {
        let mut normal = firsts(&[1995, 1996], &[1, 2, 3, 4, 9, 10, 11, 12]);
        normal.push("1997-01-01".to_owned());
        assert_values(number, Normal, "date", normal);
        let mut skewed = firsts(&[1993, 1994], &[5, 6, 7, 8]);
        skewed.push("1995-05-01".to_owned());
        assert_values(number, Skewed, "date", skewed);
    }
    assert_values(18, Normal, "quantity", 312..=315);
    assert_values(18, Skewed, "quantity", 812..=815);
    assert!(values(18, Normal, "filter").iter().all(|filter| filter.ends_with("l_quantity <= 50")));
    assert!(values(18, Skewed, "filter").iter().all(|filter| filter.ends_with("l_quantity <= 100")));
    assert_values(19, Normal, "quantity3", 20..=30);
    assert_values(19, Skewed, "quantity3", 41..=50);
}

#[test]
fn a_range_of_order_dates_ends_after_black_friday_or_three_months_later() {
    let days: Vec<String> =
        [1, 2].iter().flat_map(|month| (1..=25).map(move |day| format!("1995-{month:02}-{day:02}"))).collect();
    assert_values(10, Normal, "date", days);
    let years = [1992, 1993, 1994, 1997, 1998];
    let of_may = |first: i32, last: i32| {
        years.iter().flat_map(move |year| (first..=last).map(move |day| format!("{year}-05-{day}")))
    };
    assert_values(10, Skewed, "date", of_may(24, 28));
    assert_values(10, Skewed, "end", of_may(29, 31).map(|date| format!("date '{date}'")));
    for parameters in draws(10, Normal) {
        assert_eq!(parameters["end"], format!("date '{}' + interval '3' month", parameters["date"]));
    }
    for parameters in draws(10, Skewed) {
        assert_eq!(parameters["end"][6..10], parameters["date"][..4], "one year");
    }
    for set in ParameterSet::ALL {
        for number in [3, 4, 5, 6, 10, 12, 14, 15, 20] {
            for date in values(number, set, "date") {
                assert!(dates::parse(&date).is_some(), "q{number}: {date}");
            }
        }
    }
}

#[test]
fn nations_are_large_or_small() {
    for number in [8, 11, 20, 21] {
        assert_values(number, Normal, "nation", SMALL.concat());
        assert_values(number, Skewed, "nation", LARGE);
    }
    for parameters in draws(7, Normal) {
        let (first, second) = (parameters["nation1"].as_str(), parameters["nation2"].as_str());
        assert!(!LARGE.contains(&first) && !LARGE.contains(&second) && first != second);
        assert_eq!(region_of(first), region_of(second));
    }
    for parameters in draws(7, Skewed) {
        let (first, second) = (parameters["nation1"].as_str(), parameters["nation2"].as_str());
        assert!(LARGE.contains(&first) && LARGE.contains(&second) && first != second);
    }
    for (set, same) in [(Normal, false), (Skewed, true)] {
        for parameters in draws(8, set) {
            assert_eq!(REGIONS[region_of(&parameters["nation"])] == parameters["region"], same);
        }
        assert_values(8, set, "region", REGIONS);
    }
    assert_values(8, Skewed, "type", ["SHINY MINED GOLD"]);
    assert_eq!(values(8, Normal, "type").len(), 150);
}

#[test]
fn words_find_the_populous_rows_or_do_not() {
    assert_values(2, Normal, "size", 1..=50);
    assert_values(2, Normal, "type", ["TIN", "NICKEL", "BRASS", "STEEL", "COPPER"]);
    assert_values(2, Skewed, "size", [1]);
    assert_values(2, Skewed, "type", (0..=10).map(|cut| &"SHINY MINED GOLD"[cut..]));
    assert_values(9, Skewed, "colour", (0..=10).map(|cut| &"shiny mined gold"[cut..]));
    assert_values(20, Skewed, "colour", (5..=16).map(|length| &"shiny mined gold"[..length]));
    assert_eq!(values(9, Normal, "colour"), values(20, Normal, "colour"));
    assert_eq!(values(9, Normal, "colour").len(), 92);
    assert_values(13, Normal, "word1", ["1mine2", "mine2", "1mine", "mine"]);
    assert_values(13, Normal, "word2", ["3gold4", "gold4", "3gold", "gold"]);
    assert_values(13, Skewed, "word1", ["special", "pending", "unusual", "express"]);
    assert_values(13, Skewed, "word2", ["packages", "requests", "accounts", "deposits"]);
    let modes = ["AIR", "FOB", "MAIL", "RAIL", "REG AIR", "SHIP", "TRUCK"];
    assert_values(12, Normal, "mode1", modes);
    assert_values(12, Normal, "mode2", modes);
    assert_values(12, Skewed, "mode1", modes.into_iter().filter(|mode| *mode != "REG AIR"));
    assert_values(12, Skewed, "mode2", ["REG AIR"]);
    assert!(draws(12, Normal).iter().all(|parameters| parameters["mode1"] != parameters["mode2"]));
}

#[test]
fn brands_sizes_and_codes_find_the_populous_rows_or_do_not() {
    let brands = |last: i32| -> Vec<String> {
        (1..=5).flat_map(|first| (1..=last).map(move |second| format!("Brand#{first}{second}"))).collect()
    };
    for (number, set, name) in
        [(16, Normal, "brand"), (16, Skewed, "brand"), (17, Normal, "brand"), (19, Normal, "brand3")]
    {
        assert_values(number, set, name, brands(4));
    }
    assert_values(17, Skewed, "brand", ["Brand#55"]);
    assert_values(17, Skewed, "container", ["LG BOX"]);
    assert_eq!(values(17, Normal, "container").len(), 40);
    assert_values(19, Normal, "brand1", brands(5));
    assert_values(19, Normal, "brand2", brands(5));
    assert_values(19, Skewed, "brand1", ["Brand#00"]);
    assert_values(19, Skewed, "brand2", ["Brand#00"]);
    assert_values(19, Skewed, "brand3", ["Brand#55"]);
    for set in ParameterSet::ALL {
        for parameters in draws(16, set) {
            let sizes: Vec<i32> = parameters["sizes"].split(", ").map(|size| size.parse().unwrap()).collect();
            let (others, last) = sizes.split_at(7);
            assert_eq!(last[0] == 1, set == Skewed);
            assert!(sizes.len() == 8 && others.iter().all(|size| (2..=50).contains(size)));
            assert_eq!(sizes.iter().collect::<BTreeSet<_>>().len(), 8, "{sizes:?}");
            assert_eq!(parameters["type"].split(' ').count(), 2);
        }
        for parameters in draws(22, set) {
            let codes: Vec<&str> = parameters["codes"].split(", ").map(|code| code.trim_matches('\'')).collect();
            assert_eq!(codes.iter().collect::<BTreeSet<_>>().len(), 7, "{codes:?}");
            let random = if set == Skewed {
                assert_eq!(codes[..5], ["40", "50", "60", "70", "80"]);
                &codes[5..]
            } else {
                &codes[..]
            };
            assert!(random.iter().all(|code| (10..=34).contains(&code.parse::<i32>().unwrap())));
        }
    }
}
