//! A container of many types that changes in every way: its rows, its indexes, its attributes, its layouts.

use std::collections::BTreeMap;
use std::sync::Arc;

use eris_engine::{Change, Definition, Engine, EngineError, GlobalIndexSpec, Partitioning, Read, RowChange};
use eris_platform::SeededRandom;
use eris_storage::{
    Attribute, AttributeId, Batch, COLUMN, Comparison, Condition, ContainerId, DataType, ENCODED, IndexDefinition,
    IndexId, IndexKind, PhysicalLayout, Predicate, ROW_STATIC, ReadRequest, Schema, SchemaVersion, SegmentLayouts,
    Test, Value,
};

use super::values::{TYPES, value_of};
use crate::schemas::{attribute, schema};

/// The key, a code that is unique, and one of each type.
const KEY: AttributeId = AttributeId(0);
const CODE: AttributeId = AttributeId(1);
const FIXED: usize = 2;
/// Attributes that it gains at most.
const ADDED_MAX: usize = 3;
/// The index that comes and goes.
const INDEX: IndexId = IndexId(7);
const ROWS_MAX: usize = 60;
/// A code is a key and an age.
const AGES: i64 = 1_000;

/// A container as it is to be.
#[derive(Clone, Debug)]
pub struct House {
    pub schema: Arc<Schema>,
    pub partitioning: Partitioning,
    /// Whether codes are in a global index.
    pub has_global_index: bool,
    /// Whether it is in the catalog.
    pub is_named: bool,
    /// By key, how often the row was written, and how many attributes there were the last time.
    rows: BTreeMap<i64, (i64, usize)>,
    /// The first key that was never used.
    key_next: i64,
}

/// What becomes of its rows, in one transaction.
#[derive(Clone, Debug)]
pub enum RowStep {
    /// New rows with these keys.
    Insert(std::ops::Range<i64>),
    /// No more rows with keys below this one.
    DeleteBelow(i64),
    /// Rows with keys from this one on are written anew.
    RenewFrom(i64),
}

impl House {
    pub fn plan(engine: &Engine, random: &mut SeededRandom) -> Self {
        let typed =
            TYPES.iter().enumerate().map(|(place, data_type)| attribute(&format!("a{place}"), *data_type, true));
        let fixed = ["key", "code"].map(|name| attribute(name, DataType::Int64, false));
        let attributes: Vec<Attribute> = fixed.into_iter().chain(typed).collect();
        let is_keyed = random.index(3) > 0;
        let schema = schema(engine.next_container_id(), &attributes, is_keyed, [8, 16, 64][random.index(3)]);
        let by_key = Box::new([KEY]);
        let partitioning = match random.index(4) {
            0 if !is_keyed => Partitioning::Size { partitions: 2 },
            1 => Partitioning::Hash { attributes: by_key, partitions: 3 },
            _ => Partitioning::Range(by_key),
        };
        let (has_global_index, is_named) = (false, false);
        Self { schema, partitioning, has_global_index, is_named, rows: BTreeMap::new(), key_next: 0 }
    }

    pub fn id(&self) -> ContainerId {
        self.schema.container
    }

    /// A global index, if it can have one more.
    pub fn global_index(&self) -> Option<GlobalIndexSpec> {
        let fits =
            !self.has_global_index && self.key_next == 0 && self.partitioning != Partitioning::Size { partitions: 2 };
        fits.then(|| GlobalIndexSpec {
            container: self.id(),
            name: format!("codes_{}", self.id().0).into(),
            attributes: Box::new([CODE]),
            partitions: 2,
        })
    }

    /// The same with a global index.
    pub fn indexed(&self) -> Self {
        Self { has_global_index: true, ..self.clone() }
    }

    /// The same, in the catalog or not.
    pub fn named(&self, is_named: bool) -> Self {
        Self { is_named, ..self.clone() }
    }

    fn with_schema(&self, schema: Schema) -> Self {
        Self { schema: Arc::new(schema), ..self.clone() }
    }

    /// The same with the index, or without if it has it; and the index, if it is new.
    pub fn with_other_indexes(&self, random: &mut SeededRandom) -> (Self, Option<IndexDefinition>) {
        let new = IndexDefinition {
            id: INDEX,
            name: "codes".into(),
            attributes: Box::new([
                [CODE, AttributeId(FIXED as u16 + random.index(TYPES.len()) as u16)][random.index(2)]
            ]),
            unique: false,
            primary: false,
            kind: [IndexKind::Ordered, IndexKind::Hash, IndexKind::Inverted][random.index(3)],
        };
        let new = IndexDefinition { unique: *new.attributes == [CODE] && random.index(2) == 0, ..new };
        let kept: Vec<IndexDefinition> =
            self.schema.indexes.iter().filter(|index| index.id != INDEX).cloned().collect();
        let new = (kept.len() == self.schema.indexes.len()).then_some(new);
        let indexes = kept.into_iter().chain(new.clone()).collect();
        let version = SchemaVersion(self.schema.version.0 + 1);
        (self.with_schema(Schema { version, indexes, ..Schema::clone(&self.schema) }), new)
    }

    /// The same with one attribute more, if there may be one more.
    pub fn widened(&self, random: &mut SeededRandom) -> Option<Self> {
        let count = self.schema.attributes.len();
        // Layouts set by hand grow as the engine likes.
        let may = count < FIXED + TYPES.len() + ADDED_MAX && self.schema.physical.is_none();
        let added = attribute(&format!("a{count}"), TYPES[random.index(TYPES.len())], true);
        may.then(|| self.with_schema(self.schema.with_attributes([added])))
    }

    /// The same with other layouts.
    pub fn with_other_layouts(&self, random: &mut SeededRandom) -> Self {
        let single = |module| PhysicalLayout::single(module, self.schema.attributes.len());
        let open = single([ROW_STATIC, COLUMN][random.index(2)]);
        let sealed = single([ROW_STATIC, COLUMN, ENCODED][random.index(3)]);
        let physical = (random.index(3) > 0).then(|| Arc::new(SegmentLayouts { open, sealed }));
        self.with_schema(Schema { physical, ..Schema::clone(&self.schema) })
    }

    pub fn row_step(&self, random: &mut SeededRandom) -> RowStep {
        let any = self.key_next - random.below(self.rows.len() as u64 + 1) as i64;
        match random.index(4) {
            0 | 1 if self.rows.len() < ROWS_MAX => {
                RowStep::Insert(self.key_next..self.key_next + 1 + random.below(20) as i64)
            }
            2 => RowStep::RenewFrom(any),
            _ => RowStep::DeleteBelow(any),
        }
    }

    /// The same behind the step.
    pub fn after(&self, step: &RowStep) -> Self {
        let mut after = self.clone();
        let width = self.schema.attributes.len();
        match step {
            RowStep::Insert(keys) => {
                after.rows.extend(keys.clone().map(|key| (key, (0, width))));
                after.key_next = keys.end;
            }
            RowStep::DeleteBelow(key) => after.rows = after.rows.split_off(key),
            RowStep::RenewFrom(key) => {
                after.rows.range_mut(key..).for_each(|(_, (age, of))| (*age, *of) = (*age + 1, width));
            }
        }
        after
    }

    /// Does it; gives how many rows it wrote.
    pub async fn take(
        &self,
        transaction: &mut eris_engine::Transaction,
        step: &RowStep,
        in_bulk: bool,
    ) -> Result<u64, EngineError> {
        let after = self.after(step);
        match step {
            RowStep::Insert(keys) => {
                let rows: Vec<Vec<Value>> = keys.clone().map(|key| after.row(key)).collect();
                let rows = Batch::from_rows(&self.schema.data_types(), &rows);
                if !in_bulk {
                    return transaction.insert(self.id(), rows).await;
                }
                let mut load = transaction.bulk(self.id())?;
                load.append(rows).await?;
                load.finish().await
            }
            RowStep::DeleteBelow(key) => {
                let gone = transaction.delete(&self.read(Comparison::Less, *key), None).await?;
                assert_eq!(gone as usize, self.rows.len() - after.rows.len(), "rows below {key} of {self:?}");
                Ok(gone)
            }
            RowStep::RenewFrom(key) => {
                let attributes = (1..self.schema.attributes.len() as u16).map(AttributeId).collect();
                let count = after.rows.range(key..).count();
                let renew = Arc::new(Renew { attributes, after });
                let renewed = transaction.update(&self.read(Comparison::GreaterOrEqual, *key), renew).await?;
                assert_eq!(renewed as usize, count, "rows from {key} of {self:?}");
                Ok(renewed)
            }
        }
    }

    /// The keys of rows that compare so.
    fn read(&self, comparison: Comparison, key: i64) -> Read {
        let condition = Condition { attribute: KEY, test: Test::Compare(comparison, Value::Int64(key)) };
        let predicate = Predicate { conditions: Arc::new([condition]) };
        let request = ReadRequest { predicate, desired: Arc::new([KEY]), order: None };
        Read { container: self.id(), request }
    }

    /// A row as it is to be.
    fn row(&self, key: i64) -> Vec<Value> {
        let (age, width) = self.rows[&key];
        let value = |(place, attribute): (usize, &Attribute)| match place {
            0 => Value::Int64(key),
            1 => Value::Int64(key * AGES + age),
            _ if place < width => value_of(attribute.data_type, key, age, place),
            _ => Value::Null,
        };
        self.schema.attributes.iter().enumerate().map(value).collect()
    }

    pub fn expected(&self) -> Vec<Vec<Value>> {
        let mut rows: Vec<Vec<Value>> = self.rows.keys().map(|key| self.row(*key)).collect();
        rows.sort_unstable();
        rows
    }

    /// Whether a definition is that of the container.
    pub fn is_defined_by(&self, definition: &Definition) -> bool {
        matches!(definition, Definition::Container { schema, partitioning, .. }
            if *schema == self.schema && *partitioning == self.partitioning)
    }
}

/// Writes all attributes but the key.
struct Renew {
    attributes: Box<[AttributeId]>,
    after: House,
}

impl RowChange for Renew {
    fn inputs(&self) -> usize {
        1
    }

    fn attributes(&self) -> &[AttributeId] {
        &self.attributes
    }

    fn apply(&self, batch: &Batch) -> Result<Change, EngineError> {
        let new = |row| match batch.value(row, 0) {
            Value::Int64(key) => self.after.row(key).split_off(1),
            other => panic!("a key, not {other}"),
        };
        let rows: Vec<Vec<Value>> = (0..batch.rows).map(new).collect();
        let values = Batch::from_rows(&self.after.schema.data_types()[1..], &rows);
        Ok(Change { rows: None, attributes: self.attributes.clone(), values })
    }
}
