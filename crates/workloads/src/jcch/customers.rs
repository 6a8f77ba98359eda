//! Customers: one of each region is populous, and its phone number says so.

use super::nations::NationKey;
use super::population::{Population, REGIONS};
use crate::tpch::rows::{Appender, RowValues, append_customer};
use tpchgen::generators::Customer;

/// The first two characters of the phone number of a region's populous customer.
pub(super) const POPULOUS_PHONES: [&str; REGIONS as usize] = ["40", "50", "60", "70", "80"];

/// A customer of this benchmark.
pub(super) struct SkewedCustomer {
    customer: Customer<'static>,
    phone_start: Option<&'static str>,
}

impl SkewedCustomer {
    /// The phone number keeps the country code of the nation the customer had in TPC-H, unless it is populous.
    pub fn new(population: &Population, mut customer: Customer<'static>) -> Self {
        let hash = population.customers.hash(customer.c_custkey as u64);
        customer.c_nationkey = NationKey::of_hash(hash, population.customers.count()).get();
        let of_region = population.customers_of_region();
        let populous = hash.is_multiple_of(of_region);
        Self { customer, phone_start: populous.then(|| POPULOUS_PHONES[(hash / of_region) as usize]) }
    }
}

impl RowValues for SkewedCustomer {
    fn append(&self, to: &mut Appender<'_>) {
        let phone = &self.customer.c_phone;
        match self.phone_start {
            Some(start) => append_customer(&self.customer, format!("{start}{}", &phone.to_string()[start.len()..]), to),
            None => append_customer(&self.customer, phone, to),
        }
    }
}
