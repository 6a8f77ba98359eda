//! What foreign keys refuse, and why they are refused.

use std::fmt;

use eris_storage::{AttributeId, DataType, Value};
use thiserror::Error as ThisError;

/// A row that refers to nothing, or would (SQLSTATE 23503).
#[derive(Clone, Debug, PartialEq)]
pub struct ForeignKeyViolation {
    /// The constraint.
    pub constraint: Box<str>,
    /// The container whose rows refer.
    pub child: Box<str>,
    /// The one that is referred to.
    pub parent: Box<str>,
    /// Whether the parent's row was taken away, rather than a child's row written.
    pub still_referenced: bool,
    /// Names (of the side that was written) and values of the key.
    pub key: Box<[(Box<str>, Value)]>,
}

impl ForeignKeyViolation {
    /// Which key it is about.
    pub fn detail(&self) -> String {
        self.detail_with(Value::to_string)
    }

    /// The same, with values in somebody's own words.
    pub fn detail_with(&self, text: impl Fn(&Value) -> String) -> String {
        let names: Vec<&str> = self.key.iter().map(|(name, _)| &**name).collect();
        let values: Vec<String> = self.key.iter().map(|(_, value)| text(value)).collect();
        let (names, values) = (names.join(", "), values.join(", "));
        if self.still_referenced {
            format!("Key ({names})=({values}) is still referenced from table \"{}\".", self.child)
        } else {
            format!("Key ({names})=({values}) is not present in table \"{}\".", self.parent)
        }
    }
}

impl fmt::Display for ForeignKeyViolation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { constraint, child, parent, .. } = self;
        if self.still_referenced {
            write!(
                formatter,
                "update or delete on table \"{parent}\" violates foreign key constraint \"{constraint}\" on table \
                 \"{child}\""
            )
        } else {
            write!(formatter, "insert or update on table \"{child}\" violates foreign key constraint \"{constraint}\"")
        }
    }
}

/// Why a foreign key cannot be made, or what it stands in the way of.
#[derive(Clone, Debug, PartialEq, Eq, ThisError)]
pub enum ForeignKeyError {
    /// The attributes of the sides are none, or of different numbers (42830).
    #[error("number of referencing and referenced columns for foreign key disagree")]
    DifferentNumbers,
    /// Attributes that correspond are of different types (42804).
    #[error(
        "foreign key constraint \"{name}\" cannot be implemented: key columns \"{child_name}\" and \"{parent_name}\" \
         are of incompatible types: {child_type} and {parent_type}"
    )]
    DifferentTypes {
        name: Box<str>,
        child_name: Box<str>,
        child_type: DataType,
        parent_name: Box<str>,
        parent_type: DataType,
    },
    /// One of the tables has no such attribute (42703).
    #[error("column {attribute} of table \"{table}\" referenced in foreign key constraint does not exist")]
    NoSuchAttribute { table: Box<str>, attribute: AttributeId },
    /// The referenced attributes are not those of a unique key (42830).
    #[error("there is no unique constraint matching given keys for referenced table \"{parent}\"")]
    NoUniqueKey { parent: Box<str> },
    /// The child has a constraint of this name (42710).
    #[error("constraint \"{name}\" for relation \"{child}\" already exists")]
    Exists { name: Box<str>, child: Box<str> },
    /// There is no such constraint (42704).
    #[error("constraint \"{name}\" does not exist")]
    NoSuchConstraint { name: Box<str> },
    /// The table or its key is referred to (2BP01).
    #[error(
        "cannot drop table \"{parent}\" or its key because constraint \"{name}\" on table \"{child}\" depends on it"
    )]
    Referenced { name: Box<str>, child: Box<str>, parent: Box<str> },
}
