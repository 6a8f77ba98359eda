//! The seven transactions, their inputs, and the standard mix.

use super::keys::KeyDistribution;
use super::population::{LOCATION_MAX, Population, START_TIMES};
use eris_platform::SeededRandom;
use std::sync::Arc;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum TransactionKind {
    GetSubscriberData,
    GetNewDestination,
    GetAccessData,
    UpdateSubscriberData,
    UpdateLocation,
    InsertCallForwarding,
    DeleteCallForwarding,
}

impl TransactionKind {
    pub const ALL: [Self; 7] = [
        Self::GetSubscriberData,
        Self::GetNewDestination,
        Self::GetAccessData,
        Self::UpdateSubscriberData,
        Self::UpdateLocation,
        Self::InsertCallForwarding,
        Self::DeleteCallForwarding,
    ];

    /// Share of the standard mix in percent: 80 % read, 20 % write.
    pub const fn percent(self) -> u64 {
        match self {
            Self::GetSubscriberData | Self::GetAccessData => 35,
            Self::GetNewDestination => 10,
            Self::UpdateLocation => 14,
            Self::UpdateSubscriberData | Self::InsertCallForwarding | Self::DeleteCallForwarding => 2,
        }
    }

    /// The name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::GetSubscriberData => "get_subscriber_data",
            Self::GetNewDestination => "get_new_destination",
            Self::GetAccessData => "get_access_data",
            Self::UpdateSubscriberData => "update_subscriber_data",
            Self::UpdateLocation => "update_location",
            Self::InsertCallForwarding => "insert_call_forwarding",
            Self::DeleteCallForwarding => "delete_call_forwarding",
        }
    }

    fn draw(random: &mut SeededRandom) -> Self {
        let mut left = random.below(100);
        for kind in Self::ALL {
            if left < kind.percent() {
                return kind;
            }
            left -= kind.percent();
        }
        unreachable!("the shares of the mix add up to a hundred")
    }
}

const _: () = {
    let (mut sum, mut index) = (0, 0);
    while index < TransactionKind::ALL.len() {
        sum += TransactionKind::ALL[index].percent();
        index += 1;
    }
    assert!(sum == 100, "the shares of the mix add up to a hundred");
};

/// A transaction with its inputs. Where the benchmark gives a number, the system under test gets the number only and
/// has to find the subscriber by it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Transaction {
    GetSubscriberData { s_id: i64 },
    GetNewDestination { s_id: i64, sf_type: i64, start_time: i64, end_time: i64 },
    GetAccessData { s_id: i64, ai_type: i64 },
    UpdateSubscriberData { s_id: i64, bit_1: i64, sf_type: i64, data_a: i64 },
    UpdateLocation { sub_nbr: String, vlr_location: i64 },
    InsertCallForwarding { sub_nbr: String, sf_type: i64, start_time: i64, end_time: i64, numberx: String },
    DeleteCallForwarding { sub_nbr: String, sf_type: i64, start_time: i64 },
}

impl Transaction {
    pub fn kind(&self) -> TransactionKind {
        match self {
            Self::GetSubscriberData { .. } => TransactionKind::GetSubscriberData,
            Self::GetNewDestination { .. } => TransactionKind::GetNewDestination,
            Self::GetAccessData { .. } => TransactionKind::GetAccessData,
            Self::UpdateSubscriberData { .. } => TransactionKind::UpdateSubscriberData,
            Self::UpdateLocation { .. } => TransactionKind::UpdateLocation,
            Self::InsertCallForwarding { .. } => TransactionKind::InsertCallForwarding,
            Self::DeleteCallForwarding { .. } => TransactionKind::DeleteCallForwarding,
        }
    }
}

/// How a transaction ended when it did not fail.
///
/// *Success*: a GET returned at least one row, a write changed what it meant to change, and it committed. *Empty*: a
/// GET found no row (it still committed), or an UPDATE or DELETE hit none and was rolled back. *Rejected*: an INSERT
/// met an existing key and was rolled back. All three are foreseen by the benchmark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    Success,
    Empty,
    /// `CallForwarding` had the key already.
    Rejected,
}

/// The key of a call-forwarding row: subscriber, facility type, start time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ForwardingKey {
    pub s_id: i64,
    pub sf_type: i64,
    pub start_time: i64,
}

/// What a client learns from a transaction: the outcome, and which call-forwarding row it added or removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Completed {
    pub outcome: Outcome,
    pub forwarding: Option<(ForwardingKey, ForwardingChange)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ForwardingChange {
    Added,
    Removed,
}

impl Completed {
    /// Success if `found`, else empty.
    pub fn found(found: bool) -> Self {
        Self { outcome: if found { Outcome::Success } else { Outcome::Empty }, forwarding: None }
    }

    pub fn changed(key: ForwardingKey, change: ForwardingChange) -> Self {
        Self { outcome: Outcome::Success, forwarding: Some((key, change)) }
    }

    pub const EMPTY: Self = Self { outcome: Outcome::Empty, forwarding: None };
    pub const REJECTED: Self = Self { outcome: Outcome::Rejected, forwarding: None };
}

/// An endless, seeded stream of transactions of the standard mix.
#[derive(Debug, Clone)]
pub struct Inputs {
    population: Arc<Population>,
    keys: KeyDistribution,
    random: SeededRandom,
}

impl Inputs {
    pub fn new(population: Arc<Population>, keys: KeyDistribution, seed: u64) -> Self {
        Self { population, keys, random: SeededRandom::new(seed) }
    }

    /// The next transaction of the mix.
    pub fn draw(&mut self) -> Transaction {
        let kind = TransactionKind::draw(&mut self.random);
        self.draw_of(kind)
    }

    pub fn draw_of(&mut self, kind: TransactionKind) -> Transaction {
        match kind {
            TransactionKind::GetSubscriberData => Transaction::GetSubscriberData { s_id: self.s_id() },
            TransactionKind::GetNewDestination => Transaction::GetNewDestination {
                s_id: self.s_id(),
                sf_type: self.random.between(1, 4),
                start_time: self.start_time(),
                end_time: self.random.between(1, 24),
            },
            TransactionKind::GetAccessData => {
                Transaction::GetAccessData { s_id: self.s_id(), ai_type: self.random.between(1, 4) }
            }
            TransactionKind::UpdateSubscriberData => Transaction::UpdateSubscriberData {
                s_id: self.s_id(),
                bit_1: self.random.between(0, 1),
                sf_type: self.random.between(1, 4),
                data_a: self.random.between(0, 255),
            },
            TransactionKind::UpdateLocation => Transaction::UpdateLocation {
                sub_nbr: self.number(),
                vlr_location: self.random.between(1, LOCATION_MAX),
            },
            TransactionKind::InsertCallForwarding => Transaction::InsertCallForwarding {
                sub_nbr: self.number(),
                sf_type: self.random.between(1, 4),
                start_time: self.start_time(),
                end_time: self.random.between(1, 24),
                numberx: self.number(),
            },
            TransactionKind::DeleteCallForwarding => Transaction::DeleteCallForwarding {
                sub_nbr: self.number(),
                sf_type: self.random.between(1, 4),
                start_time: self.start_time(),
            },
        }
    }

    fn s_id(&mut self) -> i64 {
        i64::from(self.keys.draw(self.population.subscribers(), &mut self.random))
    }

    fn number(&mut self) -> String {
        let s_id = self.keys.draw(self.population.subscribers(), &mut self.random);
        self.population.number_of(s_id)
    }

    fn start_time(&mut self) -> i64 {
        START_TIMES[self.random.index(START_TIMES.len())]
    }
}

#[cfg(test)]
mod tests {
    use super::super::population::PopulationOptions;
    use super::super::schema::Table;
    use super::*;

    fn inputs(subscribers: u32) -> Inputs {
        let population = Arc::new(Population::new(PopulationOptions::new(subscribers)));
        Inputs::new(population, KeyDistribution::NonUniform, 11)
    }

    #[test]
    fn the_mix_is_the_standard_one() {
        let mut inputs = inputs(1_000);
        let mut counts = [0u64; 7];
        for _ in 0..1_000_000 {
            counts[inputs.draw().kind() as usize] += 1;
        }
        for (kind, count) in TransactionKind::ALL.into_iter().zip(counts) {
            let expected = kind.percent() * 10_000;
            assert!(count.abs_diff(expected) < 1_500, "{}: {count} of a million", kind.name());
        }
    }

    /// On fresh data 14.8 % of the second transaction and 62.5 % of the third find rows, by the rules of the data.
    #[test]
    fn fresh_data_answers_as_often_as_the_rules_say() {
        let mut inputs = inputs(100_000);
        let (mut destinations, mut accesses) = (0, 0);
        for _ in 0..200_000 {
            let Transaction::GetNewDestination { s_id, sf_type, start_time, end_time } =
                inputs.draw_of(TransactionKind::GetNewDestination)
            else {
                unreachable!("a destination was asked for")
            };
            let rows = inputs.population.rows_of(s_id as u32);
            let int = |row: &[crate::connection::SqlValue], column: usize| row[column].as_int().unwrap();
            let facility = rows.of(Table::SpecialFacility).iter().find(|row| int(row, 1) == sf_type);
            let active = facility.is_some_and(|row| int(row, 2) == 1);
            let forwarded = rows
                .of(Table::CallForwarding)
                .iter()
                .any(|row| int(row, 1) == sf_type && int(row, 2) <= start_time && end_time < int(row, 3));
            destinations += u32::from(active && forwarded);
            // The type asked for is as uniform for access data as for facilities.
            accesses += u32::from(rows.of(Table::AccessInfo).iter().any(|row| int(row, 1) == sf_type));
        }
        let share = f64::from(destinations) / 200_000.0;
        assert!((share - 0.148).abs() < 0.005, "{share} of the destinations were found");
        let share = f64::from(accesses) / 200_000.0;
        assert!((share - 0.625).abs() < 0.01, "{share} of the access data were found");
    }
}
