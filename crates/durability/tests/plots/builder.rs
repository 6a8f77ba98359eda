//! Those who build on plots. One step is one change, which the log gets as a whole or not at all.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use eris_engine::{
    Change, ContainerSpec, Definition, Durability, Engine, EngineError, LogError, RowChange, SequenceError,
    SequenceSpec, Transaction,
};
use eris_platform::SeededRandom;
use eris_storage::{AttributeId, Batch, ContainerId, DataType, StorageError, Value};

use super::house::House;
use super::{GUEST, GUESTS, HOUSES, Plots, counter_name, guests};
use crate::bank::{Bank, read};
use crate::books::is_full;
use crate::life::Watch;

/// Everybody who builds, in one life.
#[derive(Clone)]
pub struct Builders {
    pub engine: Engine,
    pub plots: Arc<Mutex<Plots>>,
    pub bank: Bank,
    pub names: ContainerId,
    pub watch: Watch,
}

/// One of them.
struct Builder {
    all: Builders,
    random: SeededRandom,
}

/// How a step ended.
enum Step {
    /// It is done; on disk, too, if that is known.
    Done { durable: bool },
    /// Nothing to do.
    Nothing,
}

impl Builders {
    /// Starts them; each takes so many steps.
    pub fn start(&self, random: &mut SeededRandom, steps: u64) {
        for plot in 0..HOUSES {
            let mut builder = Builder { all: self.clone(), random: SeededRandom::new(random.next_u64()) };
            self.engine.spawn(self.watch.clone().over(async move {
                for _ in 0..steps {
                    builder.rest().await;
                    let outcome = builder.house(plot).await;
                    if !builder.goes_on(
                        outcome,
                        |plots| plots.houses[plot].refused(),
                        |plots| plots.houses[plot].durable(),
                    ) {
                        return;
                    }
                }
            }));
        }
        let mut builder = Builder { all: self.clone(), random: SeededRandom::new(random.next_u64()) };
        self.engine.spawn(self.watch.clone().over(async move {
            for _ in 0..steps {
                builder.rest().await;
                let outcome = builder.guests().await;
                if !builder.goes_on(outcome, |plots| plots.guests.refused(), |plots| plots.guests.durable()) {
                    return;
                }
                let outcome = builder.counter().await;
                if !builder.goes_on(outcome, |plots| plots.counter.refused(), |plots| plots.counter.durable()) {
                    return;
                }
            }
        }));
    }
}

impl Builder {
    fn plots<T>(&self, with: impl FnOnce(&mut Plots) -> T) -> T {
        with(&mut self.all.plots.lock().expect("not poisoned"))
    }

    async fn rest(&mut self) {
        let engine = &self.all.engine;
        let pause = Duration::from_micros([0, 50, 500, 3_000][self.random.index(4)]);
        engine.sleep_until(engine.env().now() + pause).await;
    }

    /// Notes how a step ended; false if nothing more can be done in this life.
    fn goes_on(
        &self,
        outcome: Result<Step, EngineError>,
        refused: impl FnOnce(&mut Plots),
        durable: impl FnOnce(&mut Plots),
    ) -> bool {
        match outcome {
            Ok(Step::Done { durable: true }) => self.plots(durable),
            Ok(Step::Done { durable: false } | Step::Nothing) => {}
            // It may be there or not.
            Err(
                EngineError::Log(LogError::Failed { .. })
                | EngineError::Sequence(SequenceError::Log(LogError::Failed { .. })),
            ) => return false,
            Err(error) if is_full(&error) || matches!(error, EngineError::LockTimeout) => {
                self.plots(|plots| {
                    refused(plots);
                    plots.counts.refused += 1;
                });
            }
            // A guest of nobody; rows that were rolled back and are not swept yet, before a global index.
            Err(EngineError::ForeignKeyViolation(_) | EngineError::Storage(StorageError::InvalidRequest { .. })) => {
                self.plots(refused);
            }
            Err(error) if error.is_retryable() => self.plots(refused),
            Err(other) => panic!("a builder did not expect: {other}"),
        }
        true
    }

    /// Whether a definition that was made is known to be on disk: not always waited for. Who cannot be told knows
    /// nothing.
    async fn synced(&mut self) -> Step {
        let durable = self.random.index(2) == 0 && self.all.engine.sync_log().await.is_ok();
        Step::Done { durable }
    }

    fn begin(&mut self) -> (Transaction, Durability) {
        let durability = [Durability::Synchronous, Durability::Asynchronous][self.random.index(2)];
        let mut transaction = self.all.engine.begin();
        transaction.set_durability(durability);
        transaction.set_lock_timeout(Some(Duration::from_millis(20)));
        (transaction, durability)
    }

    async fn house(&mut self, plot: usize) -> Result<Step, EngineError> {
        let house = self.plots(|plots| plots.houses[plot].last().clone());
        let Some(house) = house else {
            let new = House::plan(&self.all.engine, &mut self.random);
            self.plots(|plots| plots.houses[plot].ask(Some(new.clone())));
            let spec = ContainerSpec { schema: new.schema, partitioning: new.partitioning };
            self.all.engine.create_container(spec)?;
            self.plots(|plots| plots.counts.made += 1);
            return Ok(self.synced().await);
        };
        let ask = |builder: &Self, state: Option<House>| builder.plots(|plots| plots.houses[plot].ask(state));
        match self.random.index(14) {
            0..6 => {
                let step = house.row_step(&mut self.random);
                let in_bulk = self.random.index(3) == 0;
                ask(self, Some(house.after(&step)));
                let (mut transaction, durability) = self.begin();
                let rows = house.take(&mut transaction, &step, in_bulk).await?;
                transaction.commit().await?;
                // Who wrote nothing waits for nothing.
                return Ok(Step::Done { durable: rows > 0 && durability == Durability::Synchronous });
            }
            6 | 7 => {
                let (new, index) = house.with_other_indexes(&mut self.random);
                ask(self, Some(new.clone()));
                match index {
                    Some(index) => self.all.engine.create_index(index, new.schema).await?,
                    None => self.all.engine.drop_index(new.schema).await?,
                }
            }
            8 | 9 => {
                let new = house.with_other_layouts(&mut self.random);
                ask(self, Some(new.clone()));
                let layouts = new.schema.physical.as_deref().cloned();
                self.all.engine.set_layout(house.id(), None, layouts).await?;
            }
            10 => {
                let Some(new) = house.widened(&mut self.random) else { return Ok(Step::Nothing) };
                ask(self, Some(new.clone()));
                self.all.engine.drop_index(new.schema).await?;
            }
            11 => {
                let Some(spec) = house.global_index() else { return Ok(Step::Nothing) };
                ask(self, Some(house.indexed()));
                self.all.engine.create_global_index(&spec)?;
            }
            // Named from behind its making until before its end.
            12 if !house.is_named => {
                ask(self, Some(house.named(true)));
                return self.name(plot, house.id()).await;
            }
            13 if house.is_named => {
                ask(self, Some(house.named(false)));
                return self.take_name(plot).await;
            }
            13 => {
                ask(self, None);
                self.all.engine.drop_container(house.id())?;
                self.plots(|plots| plots.counts.dropped += 1);
                return Ok(self.synced().await);
            }
            _ => return Ok(Step::Nothing),
        }
        self.plots(|plots| plots.counts.altered += 1);
        Ok(self.synced().await)
    }

    async fn name(&mut self, plot: usize, container: ContainerId) -> Result<Step, EngineError> {
        let (mut transaction, durability) = self.begin();
        let row = vec![Value::Int64(plot as i64), Value::Int64(i64::from(container.0))];
        transaction.insert(self.all.names, Batch::from_rows(&[DataType::Int64; 2], &[row])).await?;
        transaction.commit().await?;
        Ok(Step::Done { durable: durability == Durability::Synchronous })
    }

    async fn take_name(&mut self, plot: usize) -> Result<Step, EngineError> {
        let (mut transaction, durability) = self.begin();
        let gone = transaction.delete(&read(self.all.names, &[(0, plot as i64)], &[0]), None).await?;
        assert_eq!(gone, 1, "the name of plot {plot} is there");
        transaction.commit().await?;
        Ok(Step::Done { durable: durability == Durability::Synchronous })
    }

    /// The foreign key comes, if there are no guests of nobody, or goes.
    async fn guests(&mut self) -> Result<Step, EngineError> {
        let bank = self.all.bank;
        if self.plots(|plots| plots.has_guests()) {
            self.plots(|plots| plots.guests.ask(false));
            self.all.engine.drop_foreign_key(bank.children, GUESTS)?;
            self.plots(|plots| plots.counts.foreign_keys_dropped += 1);
            return Ok(self.synced().await);
        }
        self.plots(|plots| plots.guests.ask(true));
        let (mut transaction, _) = self.begin();
        transaction.update(&read(bank.children, &[], &[0]), Arc::new(NoGuests)).await?;
        transaction.commit().await?;
        self.all.engine.create_foreign_key(&guests(bank)).await?;
        self.plots(|plots| plots.counts.foreign_keys_made += 1);
        Ok(self.synced().await)
    }

    async fn counter(&mut self) -> Result<Step, EngineError> {
        let engine = self.all.engine.clone();
        let Some(number) = self.plots(|plots| *plots.counter.last()) else {
            let number = self.plots(|plots| {
                plots.counters += 1;
                plots.counter.ask(Some(plots.counters));
                plots.counters
            });
            engine.create_sequence(&SequenceSpec::new(&counter_name(number)))?;
            return Ok(self.synced().await);
        };
        let known = engine.definitions().into_iter().find_map(|definition| match definition {
            Definition::Sequence(id, spec, _) if *spec.name == counter_name(number) => Some(id),
            _ => None,
        });
        self.plots(|plots| plots.counter.ask(None));
        engine.drop_sequence(known.expect("the sequence is there"))?;
        Ok(self.synced().await)
    }
}

/// Children are nobody's guests.
struct NoGuests;

impl RowChange for NoGuests {
    fn inputs(&self) -> usize {
        1
    }

    fn attributes(&self) -> &[AttributeId] {
        &[AttributeId(GUEST as u16)]
    }

    fn apply(&self, batch: &Batch) -> Result<Change, EngineError> {
        let rows: Vec<Vec<Value>> = (0..batch.rows).map(|_| vec![Value::Null]).collect();
        let values = Batch::from_rows(&[DataType::Int64], &rows);
        Ok(Change { rows: None, attributes: self.attributes().into(), values })
    }
}
