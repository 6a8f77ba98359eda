//! Clients that define things all the time, and say so in rows, as SQL does: what a row names exists from before the
//! row's commit until behind the commit that takes it away.
//!
//! ```text
//!   names    number* | kind | subject | count
//!              a container (subject) with so many rows; a unique index of marks (subject); a foreign key of leaves
//!   marks    mark | note         rows of one mark while there is no index
//!   trunks   key*                leaves   key* | trunk        leaves without a trunk while there is no foreign key
//! ```

use std::sync::Arc;
use std::time::Duration;

use eris_engine::{
    ContainerSpec, Durability, Engine, EngineError, ForeignKeySpec, KeySide, Partitioning, Read, ReferentialAction,
};
use eris_platform::SeededRandom;
use eris_storage::{
    AttributeId, Batch, Comparison, Condition, ContainerId, DataType, IndexDefinition, IndexId, IndexKind, Predicate,
    ReadRequest, Schema, SchemaVersion, Test, Value,
};

use crate::schemas::{attribute, schema};

const A_CONTAINER: i64 = 1;
const AN_INDEX: i64 = 2;
const A_FOREIGN_KEY: i64 = 3;
/// The name of the foreign key.
const LEAF_TRUNK: &str = "leaf_trunk";
/// Each kind of builder numbers its names from a number of its own.
const NUMBERS: i64 = 1_000_000;

/// Where builders work.
#[derive(Clone, Copy, Debug)]
pub struct Site {
    names: ContainerId,
    marks: ContainerId,
    trunks: ContainerId,
    leaves: ContainerId,
}

fn make(engine: &Engine, attributes: usize, keyed: bool) -> Result<ContainerId, EngineError> {
    let number = |place: usize| attribute(&format!("a{place}"), DataType::Int64, false);
    let attributes: Vec<_> = (0..attributes).map(number).collect();
    let schema = schema(engine.next_container_id(), &attributes, keyed, 16);
    let partitioning = Partitioning::Range(Box::new([AttributeId(0)]));
    engine.create_container(ContainerSpec { schema, partitioning }).map(|container| container.id())
}

async fn insert(engine: &Engine, container: ContainerId, rows: &[Vec<i64>]) -> Result<(), EngineError> {
    let mut transaction = engine.begin();
    let types = vec![DataType::Int64; rows[0].len()];
    let rows: Vec<Vec<Value>> = rows.iter().map(|row| row.iter().copied().map(Value::Int64).collect()).collect();
    transaction.insert(container, Batch::from_rows(&types, &rows)).await?;
    transaction.commit().await.map(drop)
}

fn where_equal(container: ContainerId, attribute: u16, value: i64) -> Read {
    let test = Test::Compare(Comparison::Equal, Value::Int64(value));
    let conditions = Arc::new([Condition { attribute: AttributeId(attribute), test }]);
    Read {
        container,
        request: ReadRequest { predicate: Predicate { conditions }, desired: Arc::from([]), order: None },
    }
}

/// Deletes the rows with this value; asynchronously, so that the commit may be decided long before it is visible.
async fn delete(engine: &Engine, container: ContainerId, attribute: u16, value: i64) -> Result<(), EngineError> {
    let mut transaction = engine.begin();
    transaction.set_durability(Durability::Asynchronous);
    transaction.delete(&where_equal(container, attribute, value), None).await?;
    transaction.commit().await.map(drop)
}

impl Site {
    pub fn create(engine: &Engine) -> Result<Self, EngineError> {
        let names = make(engine, 4, true)?;
        Ok(Self {
            names,
            marks: make(engine, 2, false)?,
            trunks: make(engine, 1, true)?,
            leaves: make(engine, 2, true)?,
        })
    }

    /// Starts all builders. Each builds so many things, and then one that stays.
    pub fn build(self, engine: &Engine, random: &mut SeededRandom, rounds: i64) {
        for kind in [A_CONTAINER, AN_INDEX, A_FOREIGN_KEY] {
            let (engine, mut random) = (engine.clone(), SeededRandom::new(random.next_u64()));
            engine.clone().spawn(async move {
                for round in 0..=rounds {
                    let built = match kind {
                        A_CONTAINER => self.container(&engine, &mut random, round, round == rounds).await,
                        AN_INDEX => self.index(&engine, &mut random, round, round == rounds).await,
                        _ => self.foreign_key(&engine, &mut random, round, round == rounds).await,
                    };
                    built.unwrap_or_else(|error| panic!("a builder did not expect: {error}"));
                }
            });
        }
    }

    async fn name(&self, engine: &Engine, kind: i64, round: i64, what: [i64; 2]) -> Result<(), EngineError> {
        insert(engine, self.names, &[vec![kind * NUMBERS + round, kind, what[0], what[1]]]).await
    }

    async fn take_name(&self, engine: &Engine, kind: i64, round: i64) -> Result<(), EngineError> {
        delete(engine, self.names, 0, kind * NUMBERS + round).await
    }

    async fn container(
        &self,
        engine: &Engine,
        random: &mut SeededRandom,
        n: i64,
        stays: bool,
    ) -> Result<(), EngineError> {
        let container = make(engine, 1, random.index(2) > 0)?;
        let count = 1 + random.below(40) as i64;
        insert(engine, container, &(0..count).map(|row| vec![row]).collect::<Vec<_>>()).await?;
        self.name(engine, A_CONTAINER, n, [i64::from(container.0), count]).await?;
        rest(engine, random).await;
        if stays {
            return Ok(());
        }
        self.take_name(engine, A_CONTAINER, n).await?;
        engine.drop_container(container)
    }

    async fn index(&self, engine: &Engine, random: &mut SeededRandom, n: i64, stays: bool) -> Result<(), EngineError> {
        for note in 0..3 {
            insert(engine, self.marks, &[vec![n, note]]).await?;
        }
        for note in 1..3 {
            delete(engine, self.marks, 1, note).await?;
        }
        let container = engine.container(self.marks).ok_or(EngineError::NoSuchContainer(self.marks))?;
        let before = container.schema();
        let index = IndexDefinition {
            id: IndexId(n as u32 + 1),
            name: format!("marks_{n}").into(),
            attributes: Box::new([AttributeId(0)]),
            unique: true,
            primary: false,
            kind: IndexKind::Ordered,
        };
        let (version, indexes) = (SchemaVersion(before.version.0 + 1), Box::new([index.clone()]));
        let with = Schema { version, indexes, ..Schema::clone(&before) };
        engine.create_index(index, Arc::new(with.clone())).await?;
        self.name(engine, AN_INDEX, n, [n + 1, 0]).await?;
        rest(engine, random).await;
        if stays {
            return Ok(());
        }
        self.take_name(engine, AN_INDEX, n).await?;
        let without = Schema { version: SchemaVersion(with.version.0 + 1), indexes: Box::default(), ..with };
        engine.drop_index(Arc::new(without)).await
    }

    async fn foreign_key(
        &self,
        engine: &Engine,
        random: &mut SeededRandom,
        n: i64,
        stays: bool,
    ) -> Result<(), EngineError> {
        insert(engine, self.leaves, &[vec![n, n]]).await?;
        let side = |container, name: &str, attribute| KeySide {
            container,
            name: name.into(),
            attributes: Box::new([AttributeId(attribute)]),
        };
        let spec = ForeignKeySpec {
            name: LEAF_TRUNK.into(),
            child: side(self.leaves, "leaves", 1),
            parent: side(self.trunks, "trunks", 0),
            on_delete: ReferentialAction::NoAction,
            on_update: ReferentialAction::NoAction,
        };
        // While the leaf has no trunk the key is looked at, and is none.
        match engine.create_foreign_key(&spec).await {
            Err(EngineError::ForeignKeyViolation(_)) => {}
            other => panic!("leaf {n} has no trunk: {other:?}"),
        }
        rest(engine, random).await;
        if random.index(2) == 0 {
            delete(engine, self.leaves, 0, n).await?;
        } else {
            insert(engine, self.trunks, &[vec![n]]).await?;
        }
        engine.create_foreign_key(&spec).await?;
        self.name(engine, A_FOREIGN_KEY, n, [0, 0]).await?;
        rest(engine, random).await;
        if stays {
            return Ok(());
        }
        self.take_name(engine, A_FOREIGN_KEY, n).await?;
        engine.drop_foreign_key(self.leaves, LEAF_TRUNK)
    }

    /// Whether everything that rows name is there; gives how many names there are.
    pub async fn check(&self, engine: &Engine) -> Result<usize, EngineError> {
        let names = rows(engine, self.names).await?;
        for name in &names {
            let [_, kind, subject, count] = name[..] else { panic!("a name has four numbers: {name:?}") };
            match kind {
                A_CONTAINER => {
                    let found = rows(engine, ContainerId(subject as u32)).await?;
                    let expected: Vec<Vec<i64>> = (0..count).map(|row| vec![row]).collect();
                    assert_eq!(found, expected, "rows of container {subject}");
                }
                AN_INDEX => {
                    let schema = engine.container(self.marks).map(|container| container.schema());
                    let is_there = schema.is_some_and(|schema| schema.index(IndexId(subject as u32)).is_some());
                    assert!(is_there, "index {subject} has a name and is not there");
                }
                _ => {
                    let keys = engine.foreign_keys(self.leaves)?;
                    assert!(!keys.is_empty(), "the foreign key has a name and is not there");
                }
            }
        }
        Ok(names.len())
    }
}

/// The numbers of all rows of a container, sorted.
async fn rows(engine: &Engine, container: ContainerId) -> Result<Vec<Vec<i64>>, EngineError> {
    let there = engine.container(container).ok_or(EngineError::NoSuchContainer(container))?;
    let desired = (0..there.schema().attributes.len() as u16).map(AttributeId).collect();
    let request = ReadRequest { predicate: Predicate::all(), desired, order: None };
    let mut found = Vec::new();
    for batch in engine.begin().scan(Read { container, request }, None)?.collect().await? {
        let number = |row, column| match batch.value(row, column) {
            Value::Int64(number) => number,
            other => panic!("a number, not {other}"),
        };
        found.extend((0..batch.rows).map(|row| (0..batch.columns.len()).map(|column| number(row, column)).collect()));
    }
    found.sort_unstable();
    Ok(found)
}

async fn rest(engine: &Engine, random: &mut SeededRandom) {
    let pause = Duration::from_micros([0, 0, 50, 2_000][random.index(4)]);
    engine.sleep_until(engine.env().now() + pause).await;
}
