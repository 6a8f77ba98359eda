//! What is defined, changed and dropped while the power may go: each builder has a plot, on which one thing stands at a
//! time, and notes every change before it asks for it ([`ledger`]). After a crash what is there must be what the plot
//! was at some moment since it was last known to be durable, whole, and nothing else may be there.
//!
//! ```text
//!   houses    containers of all types ([`house`]): made, filled, changed, named in the catalog, dropped
//!   guests    a foreign key of the bank's children, guest to parents, that comes and goes
//!   counters  a sequence that comes and goes
//!   names     plot* | container        the catalog, as SQL has one: rows that name what exists
//! ```

mod builder;
mod house;
mod ledger;
mod values;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use eris_engine::{
    ContainerSpec, Definition, Engine, EngineError, ForeignKeySpec, KeySide, Partitioning, Read, ReferentialAction,
};
use eris_storage::{AttributeId, Batch, ContainerId, DataType, Predicate, ReadRequest, Value};

use crate::bank::{Bank, CHILD_HOME, read};
use crate::books::Tables;
use crate::schemas::{attribute, schema};
use house::House;
use ledger::{Ledger, UnderWay};

pub use builder::Builders;

pub const HOUSES: usize = 2;
/// Where a child may refer to a parent; the attribute, and the place among its numbers.
const GUEST: usize = 2;
/// The key of no parent and no child.
const NOBODY: i64 = -1;
const GUESTS: &str = "children_guest";
/// What is not dropped: a foreign key, a global index, a sequence.
pub const HOME: &str = "children_home";
pub const CODES: &str = "journal_code_key";
pub const TICKETS: &str = "tickets";

/// What stands on all plots.
#[derive(Debug)]
pub struct Plots {
    houses: Vec<Ledger<Option<House>>>,
    /// Whether the foreign key is there.
    guests: Ledger<bool>,
    /// The number of the sequence that is there.
    counter: Ledger<Option<u64>>,
    counters: u64,
    pub counts: Counts,
}

/// What builders did, and what crashes left of it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    pub made: u64,
    pub altered: u64,
    pub dropped: u64,
    pub refused: u64,
    pub foreign_keys_made: u64,
    pub foreign_keys_dropped: u64,
    pub under_way_there: u64,
    pub under_way_lost: u64,
}

impl Default for Plots {
    fn default() -> Self {
        Self {
            houses: (0..HOUSES).map(|_| Ledger::new(None)).collect(),
            guests: Ledger::new(false),
            counter: Ledger::new(None),
            counters: 0,
            counts: Counts::default(),
        }
    }
}

/// What is there besides what stands on plots.
#[derive(Clone, Copy, Debug)]
pub struct Ground<'g> {
    pub names: ContainerId,
    /// All of them, but houses.
    pub containers: &'g BTreeSet<ContainerId>,
    /// The names of foreign keys, global indexes and sequences that stay.
    pub kept: [&'g str; 3],
}

/// Makes the catalog.
pub fn make_names(engine: &Engine) -> Result<ContainerId, EngineError> {
    let number = |name| attribute(name, DataType::Int64, false);
    let schema = schema(engine.next_container_id(), &[number("plot"), number("container")], true, 16);
    let partitioning = Partitioning::Range(Box::new([AttributeId(0)]));
    engine.create_container(ContainerSpec { schema, partitioning }).map(|container| container.id())
}

/// The foreign key that comes and goes.
fn guests(bank: Bank) -> ForeignKeySpec {
    let side = |container, name: &str, attribute: usize| KeySide {
        container,
        name: name.into(),
        attributes: Box::new([AttributeId(attribute as u16)]),
    };
    ForeignKeySpec {
        name: GUESTS.into(),
        child: side(bank.children, "children", GUEST),
        parent: side(bank.parents, "parents", 0),
        on_delete: ReferentialAction::NoAction,
        on_update: ReferentialAction::NoAction,
    }
}

fn counter_name(number: u64) -> String {
    format!("counter_{number}")
}

/// What was found after a crash.
struct Found {
    definitions: Vec<Definition>,
    /// Rows of all containers that are no part of the ground.
    rows: BTreeMap<ContainerId, Vec<Vec<Value>>>,
    names: BTreeMap<i64, i64>,
}

/// Compares what is there with what builders know, and keeps what it says.
pub async fn check(
    engine: &Engine,
    ground: Ground<'_>,
    tables: &Tables,
    plots: &Mutex<Plots>,
) -> Result<(), EngineError> {
    let definitions = engine.definitions();
    let mut rows = BTreeMap::new();
    for definition in &definitions {
        if let Definition::Container { schema, .. } = definition
            && !ground.containers.contains(&schema.container)
        {
            rows.insert(schema.container, all_rows(engine, schema.container).await?);
        }
    }
    let mut names = BTreeMap::new();
    for row in all_rows(engine, ground.names).await? {
        let [Value::Int64(plot), Value::Int64(container)] = row[..] else { panic!("a name has two numbers: {row:?}") };
        names.insert(plot, container);
    }
    let found = Found { definitions, rows, names };
    let mut plots = plots.lock().expect("not poisoned");
    plots.recovered(&found, ground);
    if *plots.guests.last() {
        assert_eq!(tables.orphans(GUEST), Vec::<&crate::books::Row>::new(), "guests of nobody, under a foreign key");
    }
    Ok(())
}

impl Plots {
    fn recovered(&mut self, found: &Found, ground: Ground<'_>) {
        let mut expected = Vec::new();
        let mut containers = ground.containers.clone();
        for (plot, ledger) in self.houses.iter_mut().enumerate() {
            let ids: Vec<ContainerId> = ledger.states().iter().flatten().map(House::id).collect();
            let left = ledger.recover(|house| found.has_house(plot, house.as_ref(), &ids));
            let left = left.unwrap_or_else(|| panic!("{}", found.contradicts(plot, ledger)));
            self.counts.note(left);
            if let Some(house) = ledger.last() {
                assert!(containers.insert(house.id()), "{:?} stands on two plots", house.id());
                expected.extend(house.has_global_index.then(|| format!("codes_{}", house.id().0)));
            }
        }
        let there: BTreeSet<ContainerId> = found.containers().map(|schema| schema.container).collect();
        assert_eq!(there, containers, "containers that are there, and those that were made");
        let named: BTreeSet<i64> = found.names.keys().copied().collect();
        let houses = self.houses.iter().enumerate();
        let is_named = |house: &Option<House>| house.as_ref().is_some_and(|house| house.is_named);
        let houses: BTreeSet<i64> =
            houses.filter(|(_, ledger)| is_named(ledger.last())).map(|(plot, _)| plot as i64).collect();
        assert_eq!(named, houses, "plots that the catalog names");
        let there = found.kept();
        for (plot, is_there) in [
            self.guests.recover(|guests| there.contains(GUESTS) == *guests),
            self.counter.recover(|counter| found.has_counter(*counter)),
        ]
        .into_iter()
        .enumerate()
        {
            let left = is_there.unwrap_or_else(|| {
                panic!("of {:?} and {:?} the {plot}th is not as it may be in {there:?}", self.guests, self.counter)
            });
            self.counts.note(left);
        }
        expected.extend(self.guests.last().then(|| GUESTS.to_owned()));
        expected.extend(self.counter.last().map(counter_name));
        expected.extend(ground.kept.map(str::to_owned));
        let expected: BTreeSet<String> = expected.into_iter().collect();
        assert_eq!(there, expected, "foreign keys, global indexes and sequences");
    }

    pub fn has_guests(&self) -> bool {
        *self.guests.last()
    }
}

impl Counts {
    pub fn add(&mut self, other: Self) {
        self.made += other.made;
        self.altered += other.altered;
        self.dropped += other.dropped;
        self.refused += other.refused;
        self.foreign_keys_made += other.foreign_keys_made;
        self.foreign_keys_dropped += other.foreign_keys_dropped;
        self.under_way_there += other.under_way_there;
        self.under_way_lost += other.under_way_lost;
    }

    fn note(&mut self, left: UnderWay) {
        self.under_way_there += left.there;
        self.under_way_lost += left.lost;
    }
}

impl Found {
    fn containers(&self) -> impl Iterator<Item = &Arc<eris_storage::Schema>> {
        self.definitions.iter().filter_map(|definition| match definition {
            Definition::Container { schema, .. } => Some(schema),
            _ => None,
        })
    }

    /// Whether a plot is as a state of it says; `ids` are those of its containers in all states. That nothing else is
    /// there is seen when all plots are known.
    fn has_house(&self, plot: usize, house: Option<&House>, ids: &[ContainerId]) -> bool {
        let name = self.names.get(&(plot as i64)).copied();
        let Some(house) = house else { return name.is_none() && !ids.iter().any(|id| self.rows.contains_key(id)) };
        let global = |definition: &Definition| match definition {
            Definition::GlobalIndex(spec, _) => spec.container == house.id(),
            _ => false,
        };
        name == house.is_named.then(|| i64::from(house.id().0))
            && self.definitions.iter().any(|definition| house.is_defined_by(definition))
            && self.definitions.iter().any(global) == house.has_global_index
            && self.rows.get(&house.id()) == Some(&house.expected())
    }

    fn contradicts(&self, plot: usize, ledger: &Ledger<Option<House>>) -> String {
        let states: Vec<String> = ledger.states().iter().map(|house| format!("{house:?}")).collect();
        let (names, definitions) = (&self.names, &self.definitions);
        format!(
            "plot {plot} is at none of its states:\n  {}\nnames {names:?}\ndefinitions {definitions:?}\nrows {:?}",
            states.join("\n  "),
            self.rows
        )
    }

    fn has_counter(&self, counter: Option<u64>) -> bool {
        let kept = self.kept();
        match counter {
            Some(number) => kept.contains(&counter_name(number)),
            None => !kept.iter().any(|name| name.starts_with("counter_")),
        }
    }

    /// The names of foreign keys, global indexes and sequences.
    fn kept(&self) -> BTreeSet<String> {
        let name = |definition: &Definition| match definition {
            Definition::ForeignKey(spec) => Some(spec.name.to_string()),
            Definition::GlobalIndex(spec, _) => Some(spec.name.to_string()),
            Definition::Sequence(_, spec, _) => Some(spec.name.to_string()),
            _ => None,
        };
        self.definitions.iter().filter_map(name).collect()
    }
}

/// All rows of a container, sorted.
async fn all_rows(engine: &Engine, container: ContainerId) -> Result<Vec<Vec<Value>>, EngineError> {
    let there = engine.container(container).ok_or(EngineError::NoSuchContainer(container))?;
    let desired = (0..there.schema().attributes.len() as u16).map(AttributeId).collect();
    let request = ReadRequest { predicate: Predicate::all(), desired, order: None };
    let mut rows = Vec::new();
    for batch in engine.begin().scan(Read { container, request }, None)?.collect().await? {
        rows.extend((0..batch.rows).map(|row| batch.row(row)));
    }
    rows.sort_unstable();
    Ok(rows)
}

/// Whether foreign keys are enforced: who would make an orphan is refused, of either side.
pub async fn enforce(engine: &Engine, bank: Bank, tables: &Tables, guests: bool) -> Result<(), EngineError> {
    let is_refused = |outcome: &Result<u64, EngineError>| matches!(outcome, Err(EngineError::ForeignKeyViolation(_)));
    let parent = tables.parents.first().map(|parent| parent.numbers[0]);
    let outcome = try_child(engine, bank, NOBODY, parent.unwrap_or(NOBODY)).await;
    assert!(is_refused(&outcome), "a child without a parent: {outcome:?}");
    if let Some(parent) = parent {
        let outcome = try_child(engine, bank, parent, NOBODY).await;
        assert_eq!(is_refused(&outcome), guests, "a guest of nobody: {outcome:?}");
        assert!(guests || outcome.is_ok(), "a guest of nobody, without a foreign key: {outcome:?}");
    }
    if let Some(child) = tables.children.first() {
        let parent = read(bank.parents, &[(0, child.numbers[CHILD_HOME])], &[0]);
        let outcome = engine.begin().delete(&parent, None).await;
        assert!(is_refused(&outcome), "the parent of a child goes: {outcome:?}");
    }
    Ok(())
}

/// Inserts a child and rolls back.
async fn try_child(engine: &Engine, bank: Bank, home: i64, guest: i64) -> Result<u64, EngineError> {
    let types = [DataType::Int64, DataType::Int64, DataType::Int64, DataType::Text];
    let row = vec![Value::Int64(NOBODY), Value::Int64(home), Value::Int64(guest), Value::Null];
    let mut transaction = engine.begin();
    transaction.insert(bank.children, Batch::from_rows(&types, &[row])).await
}
