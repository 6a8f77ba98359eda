//! The TPC-H rows, generated straight into columns with `tpchgen` (the same rows as dbgen at any scale factor).
//!
//! A table can be generated in `part_count` parts, independently of each other, so that loading is parallel. A part is
//! an iterator over chunks of at most `CHUNK_ROWS` rows.

use super::chunk::{Chunk, Column, TextColumn};
use super::schema::Table;
use std::fmt::Display;
use tpchgen::generators::{
    Customer, CustomerGenerator, LineItem, LineItemGenerator, Nation, NationGenerator, Order, OrderGenerator, Part,
    PartGenerator, PartSupp, PartSuppGenerator, Region, RegionGenerator, Supplier, SupplierGenerator,
};

/// Rows per chunk: large enough to amortise the hand-over, small enough that a chunk of lineitem (about 9 MB) is not a
/// memory question.
pub const CHUNK_ROWS: usize = 1 << 16;

/// Which share of a table to generate: part `index` (from 0) of `count` parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TablePart {
    pub index: u32,
    pub count: u32,
}

impl TablePart {
    pub const WHOLE: Self = Self { index: 0, count: 1 };
}

/// Generates a part of a table at a scale factor. Region and nation have the same few rows always: all of them come
/// with part 0.
pub fn generate(table: Table, scale_factor: f64, part: TablePart) -> Box<dyn Iterator<Item = Chunk> + Send> {
    assert!(scale_factor > 0.0, "a scale factor is positive, not {scale_factor}");
    assert!(part.index < part.count, "part {} of {} does not exist", part.index, part.count);
    let first_only = if part.index == 0 { usize::MAX } else { 0 };
    // tpchgen counts parts from one.
    let (number, count) = (part.index as i32 + 1, part.count as i32);
    match table {
        Table::Region => chunks(table, RegionGenerator::new(scale_factor, 1, 1).iter().take(first_only)),
        Table::Nation => chunks(table, NationGenerator::new(scale_factor, 1, 1).iter().take(first_only)),
        Table::Supplier => chunks(table, SupplierGenerator::new(scale_factor, number, count).iter()),
        Table::Customer => chunks(table, CustomerGenerator::new(scale_factor, number, count).iter()),
        Table::Part => chunks(table, PartGenerator::new(scale_factor, number, count).iter()),
        Table::PartSupp => chunks(table, PartSuppGenerator::new(scale_factor, number, count).iter()),
        Table::Orders => chunks(table, OrderGenerator::new(scale_factor, number, count).iter()),
        Table::LineItem => chunks(table, LineItemGenerator::new(scale_factor, number, count).iter()),
    }
}

fn chunks<I>(table: Table, rows: I) -> Box<dyn Iterator<Item = Chunk> + Send>
where
    I: Iterator + Send + 'static,
    I::Item: RowValues,
{
    let mut rows = rows;
    Box::new(std::iter::from_fn(move || {
        let mut columns: Vec<Column> =
            table.columns().iter().map(|definition| Column::new(definition.column_type)).collect();
        for row in rows.by_ref().take(CHUNK_ROWS) {
            row.append(&mut Appender { columns: columns.iter_mut() });
        }
        let chunk = Chunk { columns };
        (chunk.rows() > 0).then_some(chunk)
    }))
}

/// Appends the values of one row, column after column.
struct Appender<'a> {
    columns: std::slice::IterMut<'a, Column>,
}

impl Appender<'_> {
    fn int(&mut self, value: i64) {
        match self.columns.next() {
            Some(Column::Int32(values)) => {
                let narrow = i32::try_from(value);
                assert!(narrow.is_ok(), "key {value} does not fit INTEGER: the scale factor is too large");
                values.push(narrow.unwrap_or(i32::MAX));
            }
            Some(Column::Int64(values)) => values.push(value),
            other => unreachable!("an integer meets column {other:?}"),
        }
    }

    /// Appends a decimal given in hundredths.
    fn decimal(&mut self, hundredths: i64) {
        match self.columns.next() {
            Some(Column::Decimal(values)) => values.push(hundredths),
            other => unreachable!("a decimal meets column {other:?}"),
        }
    }

    fn date(&mut self, days: i32) {
        match self.columns.next() {
            Some(Column::Date(values)) => values.push(days),
            other => unreachable!("a date meets column {other:?}"),
        }
    }

    fn text(&mut self, text: &str) {
        self.text_column().push(text);
    }

    fn display(&mut self, value: impl Display) {
        self.text_column().push_display(value);
    }

    fn text_column(&mut self) -> &mut TextColumn {
        match self.columns.next() {
            Some(Column::Text(values)) => values,
            other => unreachable!("text meets column {other:?}"),
        }
    }
}

trait RowValues {
    fn append(&self, to: &mut Appender<'_>);
}

impl RowValues for Region<'_> {
    fn append(&self, to: &mut Appender<'_>) {
        to.int(self.r_regionkey);
        to.text(self.r_name);
        to.text(self.r_comment);
    }
}

impl RowValues for Nation<'_> {
    fn append(&self, to: &mut Appender<'_>) {
        to.int(self.n_nationkey);
        to.text(self.n_name);
        to.int(self.n_regionkey);
        to.text(self.n_comment);
    }
}

impl RowValues for Supplier {
    fn append(&self, to: &mut Appender<'_>) {
        to.int(self.s_suppkey);
        to.display(self.s_name);
        to.display(&self.s_address);
        to.int(self.s_nationkey);
        to.display(&self.s_phone);
        to.decimal(self.s_acctbal.0);
        to.text(&self.s_comment);
    }
}

impl RowValues for Customer<'_> {
    fn append(&self, to: &mut Appender<'_>) {
        to.int(self.c_custkey);
        to.display(self.c_name);
        to.display(&self.c_address);
        to.int(self.c_nationkey);
        to.display(&self.c_phone);
        to.decimal(self.c_acctbal.0);
        to.text(self.c_mktsegment);
        to.text(self.c_comment);
    }
}

impl RowValues for Part<'_> {
    fn append(&self, to: &mut Appender<'_>) {
        to.int(self.p_partkey);
        to.display(&self.p_name);
        to.display(self.p_mfgr);
        to.display(self.p_brand);
        to.text(self.p_type);
        to.int(i64::from(self.p_size));
        to.text(self.p_container);
        to.decimal(self.p_retailprice.0);
        to.text(self.p_comment);
    }
}

impl RowValues for PartSupp<'_> {
    fn append(&self, to: &mut Appender<'_>) {
        to.int(self.ps_partkey);
        to.int(self.ps_suppkey);
        to.int(i64::from(self.ps_availqty));
        to.decimal(self.ps_supplycost.0);
        to.text(self.ps_comment);
    }
}

impl RowValues for Order<'_> {
    fn append(&self, to: &mut Appender<'_>) {
        to.int(self.o_orderkey);
        to.int(self.o_custkey);
        to.text(self.o_orderstatus.as_str());
        to.decimal(self.o_totalprice.0);
        to.date(self.o_orderdate.to_unix_epoch());
        to.text(self.o_orderpriority);
        to.display(self.o_clerk);
        to.int(i64::from(self.o_shippriority));
        to.text(self.o_comment);
    }
}

impl RowValues for LineItem<'_> {
    fn append(&self, to: &mut Appender<'_>) {
        to.int(self.l_orderkey);
        to.int(self.l_partkey);
        to.int(self.l_suppkey);
        to.int(i64::from(self.l_linenumber));
        // The generator gives whole units; the column is a DECIMAL(15, 2).
        to.decimal(self.l_quantity * 100);
        to.decimal(self.l_extendedprice.0);
        to.decimal(self.l_discount.0);
        to.decimal(self.l_tax.0);
        to.text(self.l_returnflag);
        to.text(self.l_linestatus);
        to.date(self.l_shipdate.to_unix_epoch());
        to.date(self.l_commitdate.to_unix_epoch());
        to.date(self.l_receiptdate.to_unix_epoch());
        to.text(self.l_shipinstruct);
        to.text(self.l_shipmode);
        to.text(self.l_comment);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(table: Table, scale_factor: f64, part: TablePart) -> usize {
        generate(table, scale_factor, part).map(|chunk| chunk.rows()).sum()
    }

    #[test]
    fn row_counts_follow_the_scale_factor() {
        let expected = [5, 25, 100, 1_500, 2_000, 8_000, 15_000, 60_175];
        for (table, expected) in Table::ALL.into_iter().zip(expected) {
            assert_eq!(rows(table, 0.01, TablePart::WHOLE), expected, "{}", table.name());
        }
    }

    /// Parts put together are the whole, in order: compared by the `.tbl` text of both.
    #[test]
    fn parts_make_the_whole() {
        for table in Table::ALL {
            let mut whole = Vec::new();
            for chunk in generate(table, 0.003, TablePart::WHOLE) {
                super::super::tbl::write_chunk(&mut whole, &chunk).unwrap();
            }
            let mut parts = Vec::new();
            for index in 0..5 {
                for chunk in generate(table, 0.003, TablePart { index, count: 5 }) {
                    super::super::tbl::write_chunk(&mut parts, &chunk).unwrap();
                }
            }
            assert_eq!(whole, parts, "{}", table.name());
        }
    }

    /// Our columns written as `.tbl` are what tpchgen itself prints, except that dbgen writes a quantity of 17 as `17`
    /// and a decimal column writes it as `17.00`.
    #[test]
    fn columns_hold_what_the_generator_prints() {
        let mut ours = Vec::new();
        for chunk in generate(Table::LineItem, 0.001, TablePart::WHOLE) {
            super::super::tbl::write_chunk(&mut ours, &chunk).unwrap();
        }
        let ours = String::from_utf8(ours).unwrap();
        let mut lines = ours.lines();
        for theirs in LineItemGenerator::new(0.001, 1, 1).iter() {
            let theirs = theirs.to_string();
            let mut fields: Vec<String> = theirs.split('|').map(str::to_owned).collect();
            fields[4].push_str(".00");
            assert_eq!(lines.next(), Some(fields.join("|").as_str()));
        }
        assert_eq!(lines.next(), None);
    }
}
