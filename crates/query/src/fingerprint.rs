//! Which relations give the same rows: those that are alike but for the numbers of their columns.

use std::collections::BTreeMap;

use crate::relation::Relation;
use crate::scalar::ColumnId;

/// A relation without the numbers of its columns.
#[derive(Clone, Debug)]
pub struct Fingerprint {
    text: String,
    /// Its columns in the order in which they occur.
    columns: Vec<ColumnId>,
}

impl Fingerprint {
    /// Of a relation.
    pub fn of(relation: &Relation) -> Self {
        let mut numbered = relation.clone();
        let mut numbers: BTreeMap<ColumnId, u32> = BTreeMap::new();
        let mut columns = Vec::new();
        numbered.each_column(&mut |column| {
            let number = *numbers.entry(*column).or_insert_with(|| {
                columns.push(*column);
                columns.len() as u32 - 1
            });
            *column = ColumnId(number);
        });
        Self { text: format!("{numbered:?}"), columns }
    }

    /// Whether both are of relations that give the same rows.
    pub fn is_same(&self, other: &Self) -> bool {
        self.text == other.text
    }

    /// Of a column of this relation the column of the other one, which is the same.
    pub fn column_of(&self, other: &Self, column: ColumnId) -> Option<ColumnId> {
        let at = self.columns.iter().position(|known| *known == column)?;
        other.columns.get(at).copied()
    }
}

#[cfg(test)]
mod tests {
    use eris_storage::{AttributeId, Value};

    use super::*;
    use crate::operators::operators_named;
    use crate::relation::{ScannedColumn, TableId};
    use crate::scalar::{Scalar, ScalarKind};
    use crate::types::SqlType;

    /// `select * from t where a = value`, with columns from `first` on.
    fn filtered(first: u32, value: i32) -> Relation {
        let column = |at: u16| ScannedColumn {
            column: ColumnId(first + u32::from(at)),
            attribute: AttributeId(at),
            sql_type: SqlType::Integer,
        };
        let scan = Relation::Scan { table: TableId(0), columns: vec![column(0), column(1)] };
        let equal =
            operators_named("=", 2).iter().find(|signature| signature.arguments[0] == SqlType::Integer.kind()).unwrap();
        let operands = vec![
            Scalar::column(ColumnId(first), SqlType::Integer),
            Scalar::constant(Value::Int32(value), SqlType::Integer),
        ];
        let condition = Scalar::condition(ScalarKind::Call { operator: equal, operands });
        Relation::Filter { input: Box::new(scan), condition }
    }

    #[test]
    fn relations_are_the_same_whatever_their_columns_are_called() {
        let (one, other) = (Fingerprint::of(&filtered(3, 7)), Fingerprint::of(&filtered(20, 7)));
        assert!(one.is_same(&other));
        assert_eq!(one.column_of(&other, ColumnId(4)), Some(ColumnId(21)));
        assert_eq!(one.column_of(&other, ColumnId(5)), None);
        assert!(!one.is_same(&Fingerprint::of(&filtered(3, 8))));
    }
}
