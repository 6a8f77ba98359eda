//! A row that was written, and whether a predicate concerns it.

use eris_storage::{AttributeId, Condition, Predicate, Test, TransactionId, Value};

/// What a write did to one row: an insert has no old image, a delete no new one.
#[derive(Debug)]
pub(crate) struct RowWrite {
    pub transaction: TransactionId,
    pub old: Option<Box<[Value]>>,
    pub new: Option<Box<[Value]>>,
}

/// What an entry costs besides what it holds.
const ENTRY_BYTES: usize = 64;

impl RowWrite {
    /// The row before and after.
    pub fn images(&self) -> impl Iterator<Item = &[Value]> {
        let old = self.old.as_deref();
        // Planted: whom an update takes a row away from does not count.
        let old = if cfg!(feature = "bug_ssi_misses_old_image") && self.new.is_some() { None } else { old };
        old.into_iter().chain(self.new.as_deref())
    }

    /// Whether a read of this predicate sees other rows, or other values, because of the write.
    pub fn concerns(&self, predicate: &Predicate) -> bool {
        self.images().any(|row| may_accept(predicate, row))
    }

    /// Whether both images have all of these attributes.
    pub fn has_all(&self, attributes: &[AttributeId]) -> bool {
        self.images().all(|row| attributes.iter().all(|id| id.index() < row.len()))
    }

    /// Bytes to reserve for it.
    pub fn bytes(&self) -> usize {
        ENTRY_BYTES + self.images().flatten().map(bytes_of_value).sum::<usize>()
    }
}

/// Whether a row qualifies. One that was written before an attribute was added might.
fn may_accept(predicate: &Predicate, row: &[Value]) -> bool {
    let lacks = |id: AttributeId| id.index() >= row.len();
    let unknown = |condition: &Condition| {
        lacks(condition.attribute) || matches!(condition.test, Test::CompareAttribute(_, other) if lacks(other))
    };
    predicate.conditions.iter().any(unknown) || predicate.accepts(row)
}

/// Bytes to reserve for a predicate that is kept.
pub(crate) fn bytes_of_predicate(predicate: &Predicate) -> usize {
    let of_test = |test: &Test| match test {
        Test::Compare(_, value) => bytes_of_value(value),
        Test::In(list) => list.iter().map(bytes_of_value).sum(),
        Test::StartsWith(prefix) => prefix.len(),
        Test::IsNull | Test::IsNotNull | Test::CompareAttribute(..) => 0,
    };
    let of_condition = |condition: &Condition| size_of::<Condition>() + of_test(&condition.test);
    ENTRY_BYTES + predicate.conditions.iter().map(of_condition).sum::<usize>()
}

/// Bytes to reserve for the key of a read.
pub(crate) fn bytes_of_key(key: &[u8]) -> usize {
    2 * (ENTRY_BYTES + key.len())
}

fn bytes_of_value(value: &Value) -> usize {
    let outside = match value {
        Value::Text(text) => text.len(),
        Value::Bytes(bytes) => bytes.len(),
        _ => 0,
    };
    size_of::<Value>() + outside
}

#[cfg(test)]
mod tests {
    use super::*;
    use eris_storage::Comparison;

    fn row(values: &[i64]) -> Option<Box<[Value]>> {
        Some(values.iter().map(|value| Value::Int64(*value)).collect())
    }

    #[test]
    fn a_row_matters_to_whom_it_leaves_and_to_whom_it_comes() {
        let write = RowWrite { transaction: TransactionId(1), old: row(&[1, 10]), new: row(&[1, 20]) };
        let amount = |value| Predicate::equal(AttributeId(1), Value::Int64(value));
        let concerned = [10, 20, 30].map(|value| write.concerns(&amount(value)));
        assert_eq!(concerned, [!cfg!(feature = "bug_ssi_misses_old_image"), true, false]);
        assert!(write.concerns(&Predicate::all()));
    }

    #[test]
    fn what_a_row_lacks_might_qualify() {
        let write = RowWrite { transaction: TransactionId(1), old: None, new: row(&[1]) };
        let added = Predicate::equal(AttributeId(1), Value::Int64(5));
        let test = Test::CompareAttribute(Comparison::Less, AttributeId(1));
        let compared = Predicate::new([Condition { attribute: AttributeId(0), test }]);
        assert!(write.concerns(&added) && write.concerns(&compared));
        assert!(!write.has_all(&[AttributeId(1)]) && write.has_all(&[AttributeId(0)]));
    }
}
