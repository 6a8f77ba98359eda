//! Lineitem: five orders have a quarter of all lines, and twenty parts two fifths of them.
//!
//! A *populous order* of region `g` goes through all combinations of a populous part of hash 5 to 19, a region other
//! than `g` and one of the first 16 % of that region's suppliers, again and again; the part changes fastest, so that
//! all parts have equally many lines. Any other order has three lines, the first 15 one more:
//!
//! | line | part | supplier |
//! |---|---|---|
//! | first, outside 1995 and 1996 | populous, of hash `g` | populous, of region `g` |
//! | others | ordinary, of a hash that is `g` modulo 5 | of class B: ordinary, of region `g` |
//!
//! Lines of populous parts are *skewed*: quantity 51, by REG AIR, to be delivered in person. Other lines of orders of a
//! Black Friday are returned, but for one order key in fifty. Everything else is drawn from the ranges of TPC-H, with
//! values of our own.

use super::draws::{Drawn, draws, text};
use super::fanout::{Child, Fanout};
use super::orders::{OrderPlan, Plans, order_key};
use super::population::{POPULOUS_PARTS, Population, REGIONS};
use super::suppliers::{SupplierClass, supplier_of_part};
use eris_platform::SeededRandom;
use std::ops::Range;
use tpchgen::decimal::TPCHDecimal;
use tpchgen::distribution::{Distribution, Distributions};
use tpchgen::generators::{LineItem, PartGeneratorIterator};
use tpchgen::text::TextPool;

const SKEWED_QUANTITY: i64 = 51;
const SKEWED_MODE: &str = "REG AIR";
const SKEWED_INSTRUCTIONS: &str = "DELIVER IN PERSON";

/// Which rows there are.
pub(super) fn fanout(population: &Population) -> Fanout {
    Fanout {
        parents: population.orders.count(),
        base: 3,
        longer: 15,
        heavy: population.populous_orders(),
        heavy_children: population.lines_of_populous_order(),
    }
}

/// What an order needs to know of its line; the rest is drawn when the line itself is wanted.
pub(super) struct Line {
    plan: OrderPlan,
    /// From zero.
    place: u64,
    pub part: u64,
    pub supplier: u64,
    pub is_skewed: bool,
    pub quantity: i64,
    /// In hundredths.
    pub extended_price: i64,
    /// In hundredths.
    discount: i64,
    /// In hundredths.
    tax: i64,
    ship_days: i64,
    random: SeededRandom,
}

/// Lines of an order, by their places from zero.
pub(super) fn lines(population: &Population, plan: OrderPlan, places: Range<u64>) -> impl Iterator<Item = Line> {
    places.map(move |place| Line::new(population, plan, place))
}

impl Line {
    pub fn new(population: &Population, plan: OrderPlan, place: u64) -> Self {
        let mut random = draws(Drawn::LineItem, plan.index, place);
        let (part_hash, supplier, is_skewed) = if plan.is_populous() {
            let (part_hash, supplier) = combination(population, plan.region, place);
            (part_hash, supplier, true)
        } else if place == 0 && !plan.is_quiet_year {
            (plan.region, supplier_of_part(population, plan.region, SupplierClass::A), true)
        } else {
            let part_hash = ordinary_part(population, plan.region, &mut random);
            (part_hash, supplier_of_part(population, part_hash, SupplierClass::B), false)
        };
        let drawn_quantity = random.between(1, 50);
        let quantity = if is_skewed { SKEWED_QUANTITY } else { drawn_quantity };
        let part = population.parts.key(part_hash);
        Self {
            plan,
            place,
            part,
            supplier,
            is_skewed,
            quantity,
            extended_price: PartGeneratorIterator::calculate_part_price(part as i64) * quantity,
            discount: random.between(0, 10),
            tax: random.between(0, 8),
            ship_days: random.between(1, 121),
            random,
        }
    }

    /// With discount and tax, in hundredths, rounded as TPC-H does.
    pub fn charged_price(&self) -> i64 {
        self.extended_price * (100 - self.discount) / 100 * (100 + self.tax) / 100
    }

    pub fn is_shipped(&self) -> bool {
        self.plan.date.plus(self.ship_days).is_in_past()
    }

    fn into_row(mut self, pool: &'static TextPool) -> LineItem<'static> {
        let random = &mut self.random;
        let words = Distributions::static_default();
        let key = order_key(self.plan.index);
        let ship_date = self.plan.date.plus(self.ship_days);
        let commit_date = self.plan.date.plus(random.between(30, 90));
        let receipt_date = ship_date.plus(random.between(1, 30));
        let drawn_flag = one_of(words.return_flags(), random);
        let (drawn_instructions, drawn_mode) =
            (one_of(words.ship_instructions(), random), one_of(words.ship_modes(), random));
        let return_flag = if !self.is_skewed && self.plan.is_black_friday && !key.is_multiple_of(50) {
            "R"
        } else if receipt_date.is_in_past() {
            drawn_flag
        } else {
            "N"
        };
        LineItem {
            l_orderkey: key as i64,
            l_partkey: self.part as i64,
            l_suppkey: self.supplier as i64,
            l_linenumber: self.place as i32 + 1,
            l_quantity: self.quantity,
            l_extendedprice: TPCHDecimal(self.extended_price),
            l_discount: TPCHDecimal(self.discount),
            l_tax: TPCHDecimal(self.tax),
            l_returnflag: return_flag,
            l_linestatus: if ship_date.is_in_past() { "F" } else { "O" },
            l_shipdate: ship_date.get(),
            l_commitdate: commit_date.get(),
            l_receiptdate: receipt_date.get(),
            l_shipinstruct: if self.is_skewed { SKEWED_INSTRUCTIONS } else { drawn_instructions },
            l_shipmode: if self.is_skewed { SKEWED_MODE } else { drawn_mode },
            l_comment: text(random, pool, 27),
        }
    }
}

/// Part hash and supplier key of a populous order's line.
fn combination(population: &Population, own_region: u64, place: u64) -> (u64, u64) {
    let parts = POPULOUS_PARTS - REGIONS;
    let suppliers_used = population.suppliers.count() * 4 / 25;
    let (part, rest) = (place % parts, place / parts);
    let (region, rest) = (rest % (REGIONS - 1), rest / (REGIONS - 1));
    let region = (own_region + 1 + region) % REGIONS;
    let supplier = region * population.suppliers_of_region() + rest % suppliers_used;
    (REGIONS + part, population.suppliers.key(supplier))
}

/// The hash of an ordinary part that is sold in a region.
fn ordinary_part(population: &Population, region: u64, random: &mut SeededRandom) -> u64 {
    let drawn = population.parts.hash(1 + random.below(population.parts.count()));
    let ordinary = POPULOUS_PARTS + drawn % (population.parts_sold() - POPULOUS_PARTS);
    ordinary / REGIONS * REGIONS + region
}

fn one_of(words: &'static Distribution, random: &mut SeededRandom) -> &'static str {
    let words = words.get_values();
    words[random.index(words.len())]
}

/// Lines with these row numbers, in order.
pub(super) fn planned_lines(population: Population, rows: Range<u64>) -> impl Iterator<Item = Line> + Send {
    let mut children = fanout(&population).iter(rows).peekable();
    let first = children.peek().map_or(1, |child| child.parent);
    let mut plans = Plans::from_index(population, first);
    let mut plan = plans.next();
    children.map(move |Child { parent, place }| {
        if plan.index != parent {
            plan = plans.next();
        }
        debug_assert_eq!(plan.index, parent, "no order is without lines");
        Line::new(&population, plan, place)
    })
}

/// Rows of lineitem with these numbers, in order.
pub(super) fn rows(
    population: Population,
    pool: &'static TextPool,
    rows: Range<u64>,
) -> impl Iterator<Item = LineItem<'static>> + Send {
    planned_lines(population, rows).map(move |line| line.into_row(pool))
}
