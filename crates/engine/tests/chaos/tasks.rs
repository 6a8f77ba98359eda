//! Tasks beside the clients that make trouble until the run is to come to its end.

use std::sync::Arc;
use std::time::Duration;

use eris_engine::{ContainerSpec, Engine, EngineError, Partitioning};
use eris_platform::SeededRandom;
use eris_storage::{Batch, ContainerId, DataType, Layout, Value};

use super::{Chaos, INJECTED};
use crate::accounts::{self, everything, pairs};
use crate::lists::{self, Append, Lists};

/// Between two troubles of a kind.
const PAUSE_MICROS_MAX: u64 = 4_000;
/// Tasks that are going to panic at a time: more than that would only wait for each other.
const PANICKING_MAX: usize = 3;
/// Of a container that will vanish.
const PARTITIONS: usize = 3;

/// Sleeps a while, and until a transaction is through: troubles do not outnumber what they trouble.
async fn pause(engine: &Engine, chaos: &Chaos, random: &mut SeededRandom) {
    let finished = chaos.transactions_finished();
    loop {
        engine.sleep_until(engine.env().now() + Duration::from_micros(1 + random.below(PAUSE_MICROS_MAX))).await;
        if chaos.is_calm() || chaos.transactions_finished() > finished {
            break;
        }
    }
}

/// Tasks that change lists and panic before they commit: nobody ever sees what they did.
pub async fn panic_in_tasks(lists: Lists, mut random: SeededRandom) {
    let running = Arc::new(());
    while !lists.chaos.is_calm() {
        pause(&lists.engine, &lists.chaos, &mut random).await;
        if Arc::strong_count(&running) > PANICKING_MAX {
            continue;
        }
        let (task, mut random, running) = (lists.clone(), random.fork(), Arc::clone(&running));
        lists.engine.spawn(async move {
            let mut transaction = task.engine.begin();
            transaction.set_lock_timeout(Some(Duration::from_millis(5)));
            let key = random.below(task.keys) as i64;
            let read = lists::every_list(task.container);
            let element = task.chaos.tick();
            // Errors do not matter to a task that is about to panic.
            let _ = match random.below(3) {
                0 => transaction.update(&read, Arc::new(Append(element))).await,
                1 => transaction.insert(task.container, lists::row(key, element, key)).await,
                _ => transaction.delete(&read, None).await,
            };
            task.chaos.count("task panicked");
            drop(running);
            std::panic::panic_any(INJECTED);
        });
    }
}

/// The index over lengths comes and goes; statements that were planned for the other schema are told so.
pub async fn move_schemas(lists: Lists, mut random: SeededRandom) {
    let Lists { engine, container, chaos, .. } = lists;
    while !chaos.is_calm() {
        pause(&engine, &chaos, &mut random).await;
        let schema = engine.container(container).expect("it is dropped at the end").schema();
        let indexed = schema.index(lists::BY_LENGTH).is_some();
        let next = Arc::new(lists::with_index(&schema, !indexed));
        let moved =
            if indexed { engine.drop_index(next).await } else { engine.create_index(lists::by_length(), next).await };
        match moved {
            Ok(()) => chaos.count("index moved"),
            Err(error) => chaos.expect(&error),
        }
    }
}

/// Containers that are loaded, read, and dropped while others use them.
pub async fn vanish_containers(engine: Engine, chaos: Arc<Chaos>, mut random: SeededRandom) {
    while !chaos.is_calm() {
        pause(&engine, &chaos, &mut random).await;
        let container = engine.next_container_id();
        let schema = Arc::new(accounts::schema(container, Layout::Default, 8));
        let partitioning = match random.below(3) {
            0 => Partitioning::Hash { attributes: Box::new([accounts::KEY]), partitions: PARTITIONS },
            1 => Partitioning::Size { partitions: PARTITIONS },
            _ => Partitioning::Range(Box::new([accounts::KEY])),
        };
        let by_size = matches!(partitioning, Partitioning::Size { .. });
        engine.create_container(ContainerSpec { schema, partitioning }).expect("the id is fresh");
        for _ in 0..2 {
            let (user, chaos, mut random) = (engine.clone(), Arc::clone(&chaos), random.fork());
            engine.spawn(async move {
                for round in 0.. {
                    let Err(error) = use_container(&user, container, round, &mut random).await else { continue };
                    chaos.expect(&error);
                    if matches!(error, EngineError::NoSuchContainer(_)) {
                        break;
                    }
                }
            });
        }
        // It takes more rows than one pause brings until a partition has a sibling.
        for _ in 0..if by_size { 4 } else { 1 } {
            pause(&engine, &chaos, &mut random).await;
        }
        if by_size && engine.partition_ids(container).len() > PARTITIONS {
            chaos.count("sibling by size");
        }
        engine.drop_container(container).expect("it is there");
    }
}

/// Loads rows and counts them.
async fn use_container(
    engine: &Engine,
    container: ContainerId,
    round: i64,
    random: &mut SeededRandom,
) -> Result<(), EngineError> {
    let rows = 1 + random.below(40) as i64;
    let first = random.below(1 << 40) as i64;
    let values: Vec<Vec<Value>> =
        (0..rows).map(|row| vec![Value::Int64(first + row), Value::Int64(round), Value::Null]).collect();
    let batch = Batch::from_rows(&[DataType::Int64, DataType::Int64, DataType::Text], &values);
    let mut transaction = engine.begin();
    let mut bulk = transaction.bulk(container)?;
    bulk.append(batch).await?;
    bulk.finish().await?;
    transaction.next_statement();
    let found = pairs(&transaction.scan(everything(container), None)?.collect().await?);
    let own = found.iter().filter(|(key, _)| (first..first + rows).contains(key)).count() as i64;
    assert_eq!(own, rows, "a load is there as a whole, once");
    if random.chance(0.5) {
        transaction.commit().await?;
    }
    Ok(())
}
