//! The eight TPC-H tables: names, columns, keys, and their DDL.
//!
//! Order keys are BIGINT, because they leave 32 bits at scale factor 358; everything else fits INTEGER at any scale
//! factor one can hold in memory. Fixed-length text is VARCHAR: the specification allows it, and no value has trailing
//! blanks. Foreign keys are not declared; reports say so.

use super::chunk::ColumnType::{self, Date, Decimal, Int32, Int64, Text};
use std::fmt::Write;

/// What reports state about referential constraints of the loaded schema.
pub const FOREIGN_KEYS: &str = "not declared";

/// One of the eight tables, in an order in which every parent comes before its children.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Table {
    Region,
    Nation,
    Supplier,
    Customer,
    Part,
    PartSupp,
    Orders,
    LineItem,
}

/// Name and type of a column; all of them are NOT NULL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ColumnDefinition {
    pub name: &'static str,
    pub column_type: ColumnType,
}

const fn column(name: &'static str, column_type: ColumnType) -> ColumnDefinition {
    ColumnDefinition { name, column_type }
}

const REGION: &[ColumnDefinition] =
    &[column("r_regionkey", Int32), column("r_name", Text(25)), column("r_comment", Text(152))];

const NATION: &[ColumnDefinition] = &[
    column("n_nationkey", Int32),
    column("n_name", Text(25)),
    column("n_regionkey", Int32),
    column("n_comment", Text(152)),
];

const SUPPLIER: &[ColumnDefinition] = &[
    column("s_suppkey", Int32),
    column("s_name", Text(25)),
    column("s_address", Text(40)),
    column("s_nationkey", Int32),
    column("s_phone", Text(15)),
    column("s_acctbal", Decimal),
    column("s_comment", Text(101)),
];

const CUSTOMER: &[ColumnDefinition] = &[
    column("c_custkey", Int32),
    column("c_name", Text(25)),
    column("c_address", Text(40)),
    column("c_nationkey", Int32),
    column("c_phone", Text(15)),
    column("c_acctbal", Decimal),
    column("c_mktsegment", Text(10)),
    column("c_comment", Text(117)),
];

const PART: &[ColumnDefinition] = &[
    column("p_partkey", Int32),
    column("p_name", Text(55)),
    column("p_mfgr", Text(25)),
    column("p_brand", Text(10)),
    column("p_type", Text(25)),
    column("p_size", Int32),
    column("p_container", Text(10)),
    column("p_retailprice", Decimal),
    column("p_comment", Text(23)),
];

const PARTSUPP: &[ColumnDefinition] = &[
    column("ps_partkey", Int32),
    column("ps_suppkey", Int32),
    column("ps_availqty", Int32),
    column("ps_supplycost", Decimal),
    column("ps_comment", Text(199)),
];

const ORDERS: &[ColumnDefinition] = &[
    column("o_orderkey", Int64),
    column("o_custkey", Int32),
    column("o_orderstatus", Text(1)),
    column("o_totalprice", Decimal),
    column("o_orderdate", Date),
    column("o_orderpriority", Text(15)),
    column("o_clerk", Text(15)),
    column("o_shippriority", Int32),
    column("o_comment", Text(79)),
];

const LINEITEM: &[ColumnDefinition] = &[
    column("l_orderkey", Int64),
    column("l_partkey", Int32),
    column("l_suppkey", Int32),
    column("l_linenumber", Int32),
    column("l_quantity", Decimal),
    column("l_extendedprice", Decimal),
    column("l_discount", Decimal),
    column("l_tax", Decimal),
    column("l_returnflag", Text(1)),
    column("l_linestatus", Text(1)),
    column("l_shipdate", Date),
    column("l_commitdate", Date),
    column("l_receiptdate", Date),
    column("l_shipinstruct", Text(25)),
    column("l_shipmode", Text(10)),
    column("l_comment", Text(44)),
];

impl Table {
    pub const ALL: [Self; 8] = [
        Self::Region,
        Self::Nation,
        Self::Supplier,
        Self::Customer,
        Self::Part,
        Self::PartSupp,
        Self::Orders,
        Self::LineItem,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Region => "region",
            Self::Nation => "nation",
            Self::Supplier => "supplier",
            Self::Customer => "customer",
            Self::Part => "part",
            Self::PartSupp => "partsupp",
            Self::Orders => "orders",
            Self::LineItem => "lineitem",
        }
    }

    pub fn columns(self) -> &'static [ColumnDefinition] {
        match self {
            Self::Region => REGION,
            Self::Nation => NATION,
            Self::Supplier => SUPPLIER,
            Self::Customer => CUSTOMER,
            Self::Part => PART,
            Self::PartSupp => PARTSUPP,
            Self::Orders => ORDERS,
            Self::LineItem => LINEITEM,
        }
    }

    /// Positions of the primary key's columns.
    pub fn primary_key(self) -> &'static [usize] {
        match self {
            Self::Region | Self::Nation | Self::Supplier | Self::Customer | Self::Part | Self::Orders => &[0],
            Self::PartSupp => &[0, 1],
            Self::LineItem => &[0, 3],
        }
    }

    /// The CREATE TABLE statement; `storage_options` is the text between the parentheses of a WITH clause, or empty.
    pub fn create_statement(self, storage_options: &str) -> String {
        let mut sql = format!("CREATE TABLE {} (", self.name());
        for definition in self.columns() {
            let _ = write!(sql, "{} {} NOT NULL, ", definition.name, sql_type(definition.column_type));
        }
        let keys: Vec<&str> = self.primary_key().iter().map(|&position| self.columns()[position].name).collect();
        let _ = write!(sql, "PRIMARY KEY ({}))", keys.join(", "));
        if !storage_options.is_empty() {
            let _ = write!(sql, " WITH ({storage_options})");
        }
        sql
    }
}

fn sql_type(column_type: ColumnType) -> String {
    match column_type {
        Int32 => "INTEGER".to_owned(),
        Int64 => "BIGINT".to_owned(),
        Decimal => "DECIMAL(15, 2)".to_owned(),
        Date => "DATE".to_owned(),
        Text(length) => format!("VARCHAR({length})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ddl_has_every_column_and_the_key() {
        let ddl = Table::LineItem.create_statement("layout = column");
        for definition in Table::LineItem.columns() {
            assert!(ddl.contains(&format!("{} ", definition.name)), "{} is missing", definition.name);
        }
        assert!(ddl.ends_with("PRIMARY KEY (l_orderkey, l_linenumber)) WITH (layout = column)"), "{ddl}");
        assert_eq!(Table::ALL.iter().map(|table| table.columns().len()).sum::<usize>(), 61);
    }
}
