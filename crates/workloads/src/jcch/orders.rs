//! Orders: five of them have a twentieth of all lines each, five customers a quarter of the orders, and five days of
//! the years (Black Friday, the 28th of May) half of them.
//!
//! What an order is follows from its hash and from the date it has in TPC-H. With `v` the hash and `C` customers:
//!
//! - `v` < 5: populous; one in each region, on Black Friday of 1992, 1993, 1994, 1997 and 1998.
//! - Outside 1995 and 1996 with `v / 20 mod 20` < 7: of the populous customer of region `v mod 5`.
//! - Else of the customer of that region with offset `3c / 2 mod (C / 5)` but at least 1, where
//!   `c = v / 5 mod (C / 5 - C / 15)`: a third of the customers never orders.
//! - Three of four orders move to Black Friday of their year, unless they are of May to August.
//!
//! Status and total price follow from the lines, as in TPC-H, but a populous order is fulfilled always. Everything else
//! is what it is in TPC-H.

use super::fanout::Fanout;
use super::lines::lines;
use super::population::{POPULOUS_ORDERS, Population, REGIONS};
use crate::tpch::dates;
use crate::tpch::rows::{Appender, RowValues, append_order};
use std::sync::LazyLock;
use tpchgen::dates::{MIN_GENERATE_DATE, TPCHDate};
use tpchgen::decimal::TPCHDecimal;
use tpchgen::generators::{Order, OrderGenerator, OrderStatus};
use tpchgen::random::RandomBoundedInt;

/// What the comment of a populous customer's order begins with.
pub(super) const POPULOUS_COMMENT: &str = "1mine2 3gold4";

const POPULOUS_YEARS: [i32; POPULOUS_ORDERS as usize] = [92, 93, 94, 97, 98];

/// What an order's lines need to know of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct OrderPlan {
    /// From one; the key is sparser.
    pub index: u64,
    pub hash: u64,
    /// Of the customer, and of the ordinary lines' parts and suppliers.
    pub region: u64,
    pub date: GeneratedDate,
    pub is_black_friday: bool,
    /// In 1995 and 1996 few orders are of the populous customers and no ordinary line is of a populous part.
    pub is_quiet_year: bool,
    pub has_populous_customer: bool,
}

/// A date in the count of the TPC-H generators: days, 1992-01-01 is 92001.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct GeneratedDate(pub i32);

impl GeneratedDate {
    pub fn plus(self, days: i64) -> Self {
        Self(self.0 + days as i32)
    }

    pub fn is_in_past(self) -> bool {
        TPCHDate::is_in_past(self.0)
    }

    pub fn get(self) -> TPCHDate {
        TPCHDate::new(self.0)
    }

    /// Black Friday of a year from 92 to 98.
    fn black_friday(year: i32) -> Self {
        static DAYS: LazyLock<[i32; 7]> = LazyLock::new(|| {
            [1992, 1993, 1994, 1995, 1996, 1997, 1998].map(|year| {
                let Some(days) = dates::parse(&format!("{year}-05-28")) else { unreachable!("May has a 28th") };
                days - TPCHDate::UNIX_EPOCH_OFFSET + MIN_GENERATE_DATE
            })
        });
        Self(DAYS[year as usize - 92])
    }
}

impl OrderPlan {
    /// Plans an order from the date it has in TPC-H.
    pub fn new(population: &Population, index: u64, tpch_date: GeneratedDate) -> Self {
        let hash = population.orders.hash(index);
        let region = hash % REGIONS;
        if hash < POPULOUS_ORDERS {
            return Self {
                index,
                hash,
                region,
                date: GeneratedDate::black_friday(POPULOUS_YEARS[hash as usize]),
                is_black_friday: true,
                is_quiet_year: false,
                has_populous_customer: true,
            };
        }
        let (year, month, _) = tpch_date.get().to_ymd();
        let black_friday = GeneratedDate::black_friday(year);
        let moves = 17 * index % 4 < 3 && !(5..=8).contains(&month);
        let date = if moves { black_friday } else { tpch_date };
        let is_quiet_year = matches!(year, 95 | 96);
        Self {
            index,
            hash,
            region,
            date,
            is_black_friday: date == black_friday,
            is_quiet_year,
            has_populous_customer: !is_quiet_year && hash / 20 % 20 < 7,
        }
    }

    pub fn is_populous(&self) -> bool {
        self.hash < POPULOUS_ORDERS
    }

    pub fn customer(&self, population: &Population) -> u64 {
        let of_region = population.customers_of_region();
        let offset = if self.has_populous_customer {
            0
        } else {
            let number = self.hash / REGIONS % (of_region - population.customers.count() / 15);
            (3 * number / 2 % of_region).max(1)
        };
        population.customers.key(self.region * of_region + offset)
    }
}

/// The key of the order with an index: 8 of 32 numbers are keys.
pub(super) fn order_key(index: u64) -> u64 {
    (index >> 3 << 5) | (index & 7)
}

fn order_index(key: u64) -> u64 {
    (key >> 5 << 3) | (key & 7)
}

/// The plans of all orders from an index on, by the stream of dates of TPC-H.
pub(super) struct Plans {
    population: Population,
    next_index: u64,
    dates: RandomBoundedInt,
}

impl Plans {
    pub fn from_index(population: Population, index: u64) -> Self {
        let mut dates = OrderGenerator::create_order_date_random();
        dates.advance_rows(index as i64 - 1);
        Self { population, next_index: index, dates }
    }

    pub fn next(&mut self) -> OrderPlan {
        let plan = OrderPlan::new(&self.population, self.next_index, GeneratedDate(self.dates.next_value()));
        self.dates.row_finished();
        self.next_index += 1;
        plan
    }
}

/// An order of this benchmark.
pub(super) struct SkewedOrder {
    order: Order<'static>,
    has_populous_customer: bool,
}

impl SkewedOrder {
    pub fn new(population: &Population, fanout: &Fanout, mut order: Order<'static>) -> Self {
        let index = order_index(order.o_orderkey as u64);
        let tpch_date = GeneratedDate(MIN_GENERATE_DATE + order.o_orderdate.into_inner());
        let plan = OrderPlan::new(population, index, tpch_date);
        let lines_of_order = fanout.children(index);
        let (mut total_price, mut shipped) = (0, 0);
        for line in lines(population, plan, 0..lines_of_order) {
            total_price += line.charged_price();
            shipped += u64::from(line.is_shipped());
        }
        order.o_custkey = plan.customer(population) as i64;
        order.o_orderdate = plan.date.get();
        order.o_totalprice = TPCHDecimal(total_price);
        order.o_orderstatus = if plan.is_populous() || shipped == lines_of_order {
            OrderStatus::Fulfilled
        } else if shipped > 0 {
            OrderStatus::Pending
        } else {
            OrderStatus::Open
        };
        Self { order, has_populous_customer: plan.has_populous_customer }
    }
}

impl RowValues for SkewedOrder {
    fn append(&self, to: &mut Appender<'_>) {
        let comment = self.order.o_comment;
        if self.has_populous_customer {
            // The shortest comment of TPC-H has 19 characters, all of them ASCII.
            append_order(&self.order, format_args!("{POPULOUS_COMMENT}{}", &comment[POPULOUS_COMMENT.len()..]), to);
        } else {
            append_order(&self.order, comment, to);
        }
    }
}
