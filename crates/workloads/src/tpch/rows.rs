//! Rows of `tpchgen`, value by value into the columns of chunks.

use super::chunk::{Chunk, Column, TextColumn};
use super::schema::Table;
use std::fmt::Display;
use tpchgen::generators::{Customer, LineItem, Nation, Order, Part, PartSupp, Region, Supplier};

/// Rows per chunk: large enough to amortise the hand-over, small enough that a chunk of lineitem (about 9 MB) is not a
/// memory question.
pub const CHUNK_ROWS: usize = 1 << 16;

/// The rows of a table or of a part of it, in order.
pub type Chunks = ChunksOf<'static>;

/// The same of rows that borrow something.
pub(crate) type ChunksOf<'a> = Box<dyn Iterator<Item = Chunk> + Send + 'a>;

/// Puts rows into chunks of their table's columns.
pub(crate) fn chunks<'a, I>(table: Table, rows: I) -> ChunksOf<'a>
where
    I: Iterator + Send + 'a,
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
pub(crate) struct Appender<'a> {
    columns: std::slice::IterMut<'a, Column>,
}

impl Appender<'_> {
    pub(crate) fn int(&mut self, value: i64) {
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
    pub(crate) fn decimal(&mut self, hundredths: i64) {
        match self.columns.next() {
            Some(Column::Decimal(values)) => values.push(hundredths),
            other => unreachable!("a decimal meets column {other:?}"),
        }
    }

    pub(crate) fn date(&mut self, days: i32) {
        match self.columns.next() {
            Some(Column::Date(values)) => values.push(days),
            other => unreachable!("a date meets column {other:?}"),
        }
    }

    pub(crate) fn text(&mut self, text: &str) {
        self.text_column().push(text);
    }

    pub(crate) fn display(&mut self, value: impl Display) {
        self.text_column().push_display(value);
    }

    fn text_column(&mut self) -> &mut TextColumn {
        match self.columns.next() {
            Some(Column::Text(values)) => values,
            other => unreachable!("text meets column {other:?}"),
        }
    }
}

pub(crate) trait RowValues {
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
        append_customer(self, &self.c_phone, to);
    }
}

/// Appends a customer with another phone number.
pub(crate) fn append_customer(customer: &Customer<'_>, phone: impl Display, to: &mut Appender<'_>) {
    to.int(customer.c_custkey);
    to.display(customer.c_name);
    to.display(&customer.c_address);
    to.int(customer.c_nationkey);
    to.display(phone);
    to.decimal(customer.c_acctbal.0);
    to.text(customer.c_mktsegment);
    to.text(customer.c_comment);
}

impl RowValues for Part<'_> {
    fn append(&self, to: &mut Appender<'_>) {
        append_part(self, &self.p_name, to);
    }
}

/// Appends a part under another name.
pub(crate) fn append_part(part: &Part<'_>, name: impl Display, to: &mut Appender<'_>) {
    to.int(part.p_partkey);
    to.display(name);
    to.display(part.p_mfgr);
    to.display(part.p_brand);
    to.text(part.p_type);
    to.int(i64::from(part.p_size));
    to.text(part.p_container);
    to.decimal(part.p_retailprice.0);
    to.text(part.p_comment);
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
        append_order(self, self.o_comment, to);
    }
}

/// Appends an order with another comment.
pub(crate) fn append_order(order: &Order<'_>, comment: impl Display, to: &mut Appender<'_>) {
    to.int(order.o_orderkey);
    to.int(order.o_custkey);
    to.text(order.o_orderstatus.as_str());
    to.decimal(order.o_totalprice.0);
    to.date(order.o_orderdate.to_unix_epoch());
    to.text(order.o_orderpriority);
    to.display(order.o_clerk);
    to.int(i64::from(order.o_shippriority));
    to.display(comment);
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
