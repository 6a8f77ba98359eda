//! The initial rows, by the rules of the benchmark.
//!
//! Every subscriber's rows in all four tables depend on the seed and the subscriber's id only, so they can be made in
//! any order, in parallel, and once more after a run to compare against.

use super::schema::Table;
use crate::connection::SqlValue;
use eris_platform::SeededRandom;

/// What to populate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PopulationOptions {
    pub subscribers: u32,
    pub seed: u64,
    /// Numbers are a permutation of the ids instead of the ids themselves: a system that computes `s_id` from
    /// `sub_nbr` then finds the wrong subscriber.
    pub permuted_numbers: bool,
    /// Subscribers are inserted in a random order of `s_id`, as the reference suite does by default.
    pub random_order: bool,
}

impl PopulationOptions {
    pub fn new(subscribers: u32) -> Self {
        Self { subscribers, seed: 1, permuted_numbers: false, random_order: true }
    }
}

/// Largest value of a location: a signed 32-bit integer's.
pub(super) const LOCATION_MAX: i64 = i32::MAX as i64;

pub(super) const START_TIMES: [i64; 3] = [0, 8, 16];

/// A population of `1..=subscribers`.
#[derive(Debug, Clone)]
pub struct Population {
    options: PopulationOptions,
    /// Multiplier of the permutation of numbers; coprime to the number of subscribers.
    multiplier: u64,
}

/// One subscriber's rows in the four tables, in `Table::ALL` order.
#[derive(Debug, Clone, PartialEq)]
pub struct SubscriberRows {
    tables: [Vec<Vec<SqlValue>>; 4],
}

impl SubscriberRows {
    pub fn of(&self, table: Table) -> &[Vec<SqlValue>] {
        &self.tables[table as usize]
    }
}

impl Population {
    pub fn new(options: PopulationOptions) -> Self {
        assert!(options.subscribers > 0, "a population has at least one subscriber");
        let subscribers = u64::from(options.subscribers);
        let mut multiplier = 2_654_435_761u64;
        while greatest_common_divisor(multiplier, subscribers) != 1 {
            multiplier += 1;
        }
        Self { options, multiplier }
    }

    pub fn subscribers(&self) -> u32 {
        self.options.subscribers
    }

    pub fn options(&self) -> &PopulationOptions {
        &self.options
    }

    /// The subscriber's telephone number: 15 digits.
    pub fn number_of(&self, s_id: u32) -> String {
        let subscribers = u64::from(self.options.subscribers);
        let number = if self.options.permuted_numbers {
            (u64::from(s_id) * self.multiplier + 12_345) % subscribers + 1
        } else {
            u64::from(s_id)
        };
        format!("{number:015}")
    }

    /// All ids in the order in which they are inserted.
    pub fn insertion_order(&self) -> Vec<u32> {
        let mut order: Vec<u32> = (1..=self.options.subscribers).collect();
        if self.options.random_order {
            SeededRandom::new(self.options.seed).shuffle(&mut order);
        }
        order
    }

    pub fn rows_of(&self, s_id: u32) -> SubscriberRows {
        assert!((1..=self.options.subscribers).contains(&s_id), "subscriber {s_id} does not exist");
        // An odd multiplier other than the one that fills the generator's state: neighbouring seeds would share it.
        let mut random = SeededRandom::new(self.options.seed ^ u64::from(s_id).wrapping_mul(0xd1b5_4a32_d192_ed03));
        let subscriber = self.subscriber(s_id, &mut random);
        let access_info = types(&mut random).into_iter().map(|ai_type| access_info(s_id, ai_type, &mut random));
        let access_info = access_info.collect();
        let (mut facilities, mut forwardings) = (Vec::new(), Vec::new());
        for sf_type in types(&mut random) {
            facilities.push(special_facility(s_id, sf_type, &mut random));
            let mut start_times = START_TIMES;
            random.shuffle(&mut start_times);
            for start_time in &start_times[..random.below(4) as usize] {
                forwardings.push(self.call_forwarding(s_id, sf_type, *start_time, &mut random));
            }
        }
        SubscriberRows { tables: [vec![subscriber], access_info, facilities, forwardings] }
    }

    fn subscriber(&self, s_id: u32, random: &mut SeededRandom) -> Vec<SqlValue> {
        let mut row = vec![SqlValue::Int(i64::from(s_id)), SqlValue::Text(self.number_of(s_id))];
        for value_max in [1, 15, 255] {
            row.extend((0..10).map(|_| SqlValue::Int(random.between(0, value_max))));
        }
        row.extend((0..2).map(|_| SqlValue::Int(random.between(1, LOCATION_MAX))));
        row
    }

    fn call_forwarding(&self, s_id: u32, sf_type: i64, start_time: i64, random: &mut SeededRandom) -> Vec<SqlValue> {
        let target = random.between(1, i64::from(self.options.subscribers));
        vec![
            SqlValue::Int(i64::from(s_id)),
            SqlValue::Int(sf_type),
            SqlValue::Int(start_time),
            SqlValue::Int(start_time + random.between(1, 8)),
            SqlValue::Text(format!("{target:015}")),
        ]
    }
}

/// One to four of the types 1 to 4, each number and each set equally likely.
fn types(random: &mut SeededRandom) -> Vec<i64> {
    let mut types = [1, 2, 3, 4];
    random.shuffle(&mut types);
    types[..=random.index(4)].to_vec()
}

fn access_info(s_id: u32, ai_type: i64, random: &mut SeededRandom) -> Vec<SqlValue> {
    vec![
        SqlValue::Int(i64::from(s_id)),
        SqlValue::Int(ai_type),
        SqlValue::Int(random.between(0, 255)),
        SqlValue::Int(random.between(0, 255)),
        letters(3, random),
        letters(5, random),
    ]
}

fn special_facility(s_id: u32, sf_type: i64, random: &mut SeededRandom) -> Vec<SqlValue> {
    vec![
        SqlValue::Int(i64::from(s_id)),
        SqlValue::Int(sf_type),
        SqlValue::Int(i64::from(random.below(100) < 85)),
        SqlValue::Int(random.between(0, 255)),
        SqlValue::Int(random.between(0, 255)),
        letters(5, random),
    ]
}

fn letters(count: usize, random: &mut SeededRandom) -> SqlValue {
    SqlValue::Text((0..count).map(|_| char::from(b'A' + random.below(26) as u8)).collect())
}

fn greatest_common_divisor(left: u64, right: u64) -> u64 {
    if right == 0 { left } else { greatest_common_divisor(right, left % right) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn int(value: &SqlValue) -> i64 {
        value.as_int().unwrap()
    }

    /// Acceptance checks of the reference for 100,000 subscribers.
    #[test]
    fn the_population_follows_the_rules() {
        let population = Population::new(PopulationOptions::new(100_000));
        let (mut counts, mut active, mut additions) = ([0usize; 4], 0, BTreeSet::new());
        for s_id in 1..=100_000 {
            let rows = population.rows_of(s_id);
            for (count, table) in counts.iter_mut().zip(Table::ALL) {
                *count += rows.of(table).len();
                let keys: BTreeSet<Vec<i64>> =
                    rows.of(table).iter().map(|row| row[..table.key_columns()].iter().map(int).collect()).collect();
                assert_eq!(keys.len(), rows.of(table).len(), "keys of {} repeat", table.name());
                assert!(rows.of(table).iter().all(|row| row.len() == table.columns().len()));
            }
            active += rows.of(Table::SpecialFacility).iter().filter(|row| int(&row[2]) == 1).count();
            for row in rows.of(Table::CallForwarding) {
                additions.insert(int(&row[3]) - int(&row[2]));
                assert!(rows.of(Table::SpecialFacility).iter().any(|facility| facility[1] == row[1]));
            }
        }
        assert_eq!(counts[0], 100_000);
        for (count, expected) in counts[1..].iter().zip([250_000, 250_000, 375_000]) {
            assert!(count.abs_diff(expected) * 100 <= expected, "{counts:?}");
        }
        let share = active as f64 / counts[2] as f64;
        assert!((share - 0.85).abs() <= 0.005, "{share} of the facilities are active");
        assert_eq!(additions, (1..=8).collect());
    }

    #[test]
    fn numbers_are_unique_and_permuted_only_on_request() {
        for subscribers in [1, 2, 1_000, 4_096] {
            let options = PopulationOptions { permuted_numbers: true, ..PopulationOptions::new(subscribers) };
            let permuted = Population::new(options);
            let numbers: BTreeSet<String> = (1..=subscribers).map(|s_id| permuted.number_of(s_id)).collect();
            let plain = Population::new(PopulationOptions::new(subscribers));
            assert_eq!(numbers, (1..=subscribers).map(|s_id| plain.number_of(s_id)).collect());
            assert!(numbers.iter().all(|number| number.len() == 15));
            let moved = (1..=subscribers).filter(|s_id| permuted.number_of(*s_id) != plain.number_of(*s_id)).count();
            assert!(subscribers <= 2 || moved > subscribers as usize / 2, "{moved} of {subscribers} moved");
        }
    }

    #[test]
    fn the_order_of_insertion_is_a_permutation() {
        let mut options = PopulationOptions::new(1_000);
        let random = Population::new(options).insertion_order();
        options.random_order = false;
        let sequential = Population::new(options).insertion_order();
        assert_ne!(random, sequential);
        let mut sorted = random;
        sorted.sort_unstable();
        assert_eq!(sorted, sequential);
    }

    #[test]
    fn a_subscriber_depends_on_seed_and_id_only() {
        let population = Population::new(PopulationOptions::new(10));
        assert_eq!(population.rows_of(7), population.rows_of(7));
        assert_ne!(population.rows_of(7), population.rows_of(8));
        let other = Population::new(PopulationOptions { seed: 2, ..PopulationOptions::new(10) });
        assert_ne!(population.rows_of(7), other.rows_of(7));
    }
}
