//! Parents and children: no child without the parent that its home names.

use std::sync::Arc;

use eris_engine::{Change, Engine, EngineError, ForeignKeySpec, KeySide, ReferentialAction, RowChange, Transaction};
use eris_platform::SeededRandom;
use eris_storage::{AttributeId, Batch, ContainerId, DataType, StorageError, Value};

use super::{Bank, Book, OF_CHILD, OF_PARENT, TRIES_MAX, read, wait_for_room};

const PARENTS: u64 = 8;
const CHILDREN: u64 = 24;
/// Where a child names its parent; the attribute, and the place among its numbers.
pub const CHILD_HOME: usize = 1;

pub fn parent_note(key: i64) -> String {
    format!("parent {key}")
}

pub fn child_note(key: i64, home: i64) -> String {
    format!("child {key} at home with {home}")
}

fn key_side(container: ContainerId, name: &str, attribute: usize) -> KeySide {
    KeySide { container, name: name.into(), attributes: Box::new([AttributeId(attribute as u16)]) }
}

/// The foreign key that is there from the beginning.
fn home(bank: Bank) -> ForeignKeySpec {
    ForeignKeySpec {
        name: "children_home".into(),
        child: key_side(bank.children, "children", CHILD_HOME),
        parent: key_side(bank.parents, "parents", 0),
        on_delete: ReferentialAction::NoAction,
        on_update: ReferentialAction::Restrict,
    }
}

/// Makes it.
pub(super) async fn make_home(engine: &Engine, bank: Bank) -> Result<(), EngineError> {
    for _ in 0..TRIES_MAX {
        match engine.create_foreign_key(&home(bank)).await {
            Ok(()) => return Ok(()),
            Err(error) => wait_for_room(engine, error).await?,
        }
    }
    engine.create_foreign_key(&home(bank)).await
}

/// Whether a statement met a key that is there, or a parent that is not: the transaction goes on without it.
pub(super) fn is_refused(error: &EngineError) -> bool {
    matches!(error, EngineError::ForeignKeyViolation(_) | EngineError::Storage(StorageError::DuplicateKey { .. }))
}

/// Moves children to another home, with their notes.
struct Move(i64);

impl RowChange for Move {
    fn inputs(&self) -> usize {
        1
    }

    fn attributes(&self) -> &[AttributeId] {
        &[AttributeId(1), AttributeId(3)]
    }

    fn apply(&self, batch: &Batch) -> Result<Change, EngineError> {
        let new = |row| match batch.value(row, 0) {
            Value::Int64(key) => vec![Value::Int64(self.0), Value::Text(child_note(key, self.0).into())],
            other => panic!("a key, not {other}"),
        };
        let rows: Vec<Vec<Value>> = (0..batch.rows).map(new).collect();
        let values = Batch::from_rows(&[DataType::Int64, DataType::Text], &rows);
        Ok(Change { rows: None, attributes: self.attributes().into(), values })
    }
}

pub(super) async fn step(
    transaction: &mut Transaction,
    bank: Bank,
    book: &mut Book,
    random: &mut SeededRandom,
) -> Result<(), EngineError> {
    let parent = random.below(PARENTS) as i64;
    let child = random.below(CHILDREN) as i64;
    match random.index(9) {
        0..3 => {
            let row = vec![Value::Int64(parent), Value::Text(parent_note(parent).into())];
            let types = [DataType::Int64, DataType::Text];
            transaction.insert(bank.parents, Batch::from_rows(&types, &[row])).await?;
            book.note(OF_PARENT, parent, 1);
        }
        3 => {
            let gone = transaction.delete(&read(bank.parents, &[(0, parent)], &[0]), None).await?;
            book.note(OF_PARENT, parent, -(gone as i64));
        }
        4..7 => {
            let guest = match random.below(3) {
                0 => Value::Null,
                _ => Value::Int64(random.below(PARENTS) as i64),
            };
            let note = Value::Text(child_note(child, parent).into());
            let row = vec![Value::Int64(child), Value::Int64(parent), guest, note];
            let types = [DataType::Int64, DataType::Int64, DataType::Int64, DataType::Text];
            transaction.insert(bank.children, Batch::from_rows(&types, &[row])).await?;
            book.note(OF_CHILD, child, 1);
        }
        7 => {
            let key = read(bank.children, &[(0, child)], &[0]);
            transaction.update(&key, Arc::new(Move(parent))).await?;
        }
        _ => {
            let gone = transaction.delete(&read(bank.children, &[(0, child)], &[0]), None).await?;
            book.note(OF_CHILD, child, -(gone as i64));
        }
    }
    Ok(())
}
