//! The four TATP tables and their DDL.
//!
//! TINYINT is SMALLINT here. Locations are 1..2^31-1, so that a signed INTEGER holds them. Foreign keys are not
//! declared; reports say so. `sub_nbr` is unique by construction and found through an ordinary index.

use std::fmt::Write;

/// What reports state about referential constraints of the loaded schema.
pub const FOREIGN_KEYS: &str = "not declared";

/// The index through which a subscriber is found by number.
pub const CREATE_NUMBER_INDEX: &str = "CREATE INDEX subscriber_sub_nbr ON subscriber (sub_nbr)";

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Table {
    Subscriber,
    AccessInfo,
    SpecialFacility,
    CallForwarding,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ColumnType {
    SmallInt,
    Integer,
    /// At most so many characters.
    Varchar(u16),
}

/// Name and type of a column; all of them are NOT NULL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ColumnDefinition {
    pub name: &'static str,
    pub column_type: ColumnType,
}

const fn small(name: &'static str) -> ColumnDefinition {
    ColumnDefinition { name, column_type: ColumnType::SmallInt }
}

const fn integer(name: &'static str) -> ColumnDefinition {
    ColumnDefinition { name, column_type: ColumnType::Integer }
}

const fn varchar(name: &'static str, length: u16) -> ColumnDefinition {
    ColumnDefinition { name, column_type: ColumnType::Varchar(length) }
}

/// Positions of the subscriber columns that transactions change.
pub const BIT_1: usize = 2;
pub const VLR_LOCATION: usize = 33;
/// Position of the special-facility column that transactions change.
pub const DATA_A: usize = 4;

#[rustfmt::skip]
const SUBSCRIBER: &[ColumnDefinition] = &[
    integer("s_id"), varchar("sub_nbr", 15),
    small("bit_1"), small("bit_2"), small("bit_3"), small("bit_4"), small("bit_5"),
    small("bit_6"), small("bit_7"), small("bit_8"), small("bit_9"), small("bit_10"),
    small("hex_1"), small("hex_2"), small("hex_3"), small("hex_4"), small("hex_5"),
    small("hex_6"), small("hex_7"), small("hex_8"), small("hex_9"), small("hex_10"),
    small("byte2_1"), small("byte2_2"), small("byte2_3"), small("byte2_4"), small("byte2_5"),
    small("byte2_6"), small("byte2_7"), small("byte2_8"), small("byte2_9"), small("byte2_10"),
    integer("msc_location"), integer("vlr_location"),
];

const ACCESS_INFO: &[ColumnDefinition] =
    &[integer("s_id"), small("ai_type"), small("data1"), small("data2"), varchar("data3", 3), varchar("data4", 5)];

const SPECIAL_FACILITY: &[ColumnDefinition] = &[
    integer("s_id"),
    small("sf_type"),
    small("is_active"),
    small("error_cntrl"),
    small("data_a"),
    varchar("data_b", 5),
];

const CALL_FORWARDING: &[ColumnDefinition] =
    &[integer("s_id"), small("sf_type"), small("start_time"), small("end_time"), varchar("numberx", 15)];

impl Table {
    pub const ALL: [Self; 4] = [Self::Subscriber, Self::AccessInfo, Self::SpecialFacility, Self::CallForwarding];

    pub fn name(self) -> &'static str {
        match self {
            Self::Subscriber => "subscriber",
            Self::AccessInfo => "access_info",
            Self::SpecialFacility => "special_facility",
            Self::CallForwarding => "call_forwarding",
        }
    }

    pub fn columns(self) -> &'static [ColumnDefinition] {
        match self {
            Self::Subscriber => SUBSCRIBER,
            Self::AccessInfo => ACCESS_INFO,
            Self::SpecialFacility => SPECIAL_FACILITY,
            Self::CallForwarding => CALL_FORWARDING,
        }
    }

    /// How many of the first columns make the primary key.
    pub fn key_columns(self) -> usize {
        match self {
            Self::Subscriber => 1,
            Self::AccessInfo | Self::SpecialFacility => 2,
            Self::CallForwarding => 3,
        }
    }

    /// The CREATE TABLE statement; `storage_options` is the text between the parentheses of a WITH clause, or empty.
    pub fn create_statement(self, storage_options: &str) -> String {
        let mut sql = format!("CREATE TABLE {} (", self.name());
        for ColumnDefinition { name, column_type } in self.columns() {
            let _ = match column_type {
                ColumnType::SmallInt => write!(sql, "{name} SMALLINT NOT NULL, "),
                ColumnType::Integer => write!(sql, "{name} INTEGER NOT NULL, "),
                ColumnType::Varchar(length) => write!(sql, "{name} VARCHAR({length}) NOT NULL, "),
            };
        }
        let keys: Vec<&str> = self.columns()[..self.key_columns()].iter().map(|column| column.name).collect();
        let _ = write!(sql, "PRIMARY KEY ({}))", keys.join(", "));
        if !storage_options.is_empty() {
            let _ = write!(sql, " WITH ({storage_options})");
        }
        sql
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changed_columns_are_where_they_are_said_to_be() {
        assert_eq!(SUBSCRIBER.len(), 34);
        assert_eq!(SUBSCRIBER[BIT_1].name, "bit_1");
        assert_eq!(SUBSCRIBER[VLR_LOCATION].name, "vlr_location");
        assert_eq!(SPECIAL_FACILITY[DATA_A].name, "data_a");
    }

    #[test]
    fn keys_are_declared() {
        let ddl = Table::CallForwarding.create_statement("partitions = 4");
        assert!(ddl.ends_with("PRIMARY KEY (s_id, sf_type, start_time)) WITH (partitions = 4)"), "{ddl}");
    }
}
