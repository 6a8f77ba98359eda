//! Changes of placement and layout while statements run.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use eris_engine::{Engine, MoveMethod};
use eris_platform::{NodeId, SeededRandom};
use eris_sql::catalog::CATALOG_CONTAINER;
use eris_storage::{COLUMN, ENCODED, PhysicalLayout, ROW_DYNAMIC, SegmentLayouts};

/// The longest pause between two changes.
const PAUSE_MAX_MICROS: u64 = 400;

/// Splits, merges and moves partitions of all tables and gives them other layouts, until it is asked to end.
pub struct Disturber {
    over: Arc<AtomicBool>,
    thread: JoinHandle<u64>,
}

impl Disturber {
    pub fn start(engine: &Engine, seed: u64) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let (engine, ended) = (engine.clone(), Arc::clone(&over));
        let mut random = SeededRandom::new(seed);
        let thread = std::thread::spawn(move || {
            let mut changes = 0;
            while !ended.load(Ordering::Relaxed) {
                changes += u64::from(change(&engine, &mut random));
                std::thread::sleep(Duration::from_micros(random.below(PAUSE_MAX_MICROS)));
            }
            changes
        });
        Self { over, thread }
    }

    /// How many changes there were.
    pub fn end(self) -> u64 {
        self.over.store(true, Ordering::Relaxed);
        self.thread.join().expect("changes do not panic")
    }
}

/// One change, if it can be made: a partition may be busy, or too small, or gone.
fn change(engine: &Engine, random: &mut SeededRandom) -> bool {
    let partitions = engine.partitions();
    let tables: Vec<_> = partitions.iter().filter(|partition| partition.container != CATALOG_CONTAINER).collect();
    if tables.is_empty() {
        return false;
    }
    let partition = tables[random.index(tables.len())];
    let (id, container) = (partition.id, partition.container);
    let own = engine.clone();
    let made = match random.below(4) {
        0 => engine.block_on(async move { own.split_partition(id).await.is_ok() }),
        1 => {
            let others: Vec<_> = tables.iter().filter(|other| other.container == container && other.id != id).collect();
            if others.is_empty() {
                return false;
            }
            let survivor = others[random.index(others.len())].id;
            engine.block_on(async move { own.merge_partitions(id, survivor).await.is_ok() })
        }
        2 => {
            let node = NodeId(random.index(engine.node_count()) as u16);
            let method = [MoveMethod::Copy, MoveMethod::Link][random.index(2)];
            engine.block_on(async move { own.move_partition(id, node, method).await.is_ok() })
        }
        _ => {
            let Some(table) = engine.container(container) else { return false };
            let attributes = table.schema().attributes.len();
            let single = |module: &str| PhysicalLayout::single(module, attributes);
            let open = single([ROW_DYNAMIC, COLUMN][random.index(2)]);
            let sealed = single([ROW_DYNAMIC, COLUMN, ENCODED][random.index(3)]);
            let target = random.chance(0.5).then_some(id);
            let layouts = random.chance(0.8).then_some(SegmentLayouts { open, sealed });
            engine.block_on(async move { own.set_layout(container, target, layouts).await.is_ok() })
        }
    };
    made.expect("the engine runs")
}
