//! A controller without a plan: splits, merges and moves random partitions while others work.

#![allow(dead_code, reason = "each test uses a part of it")]

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

use eris_engine::{Engine, MoveMethod, PlacementError};
use eris_platform::{NodeId, SeededRandom};
use eris_storage::ContainerId;

/// What a mover needs.
pub struct Mover {
    pub engine: Engine,
    pub container: ContainerId,
    pub seed: u64,
    /// Between two orders.
    pub pause: Duration,
    pub over: Arc<AtomicBool>,
}

/// More partitions than this are only merged.
const PARTITIONS_MAX: usize = 12;

/// Gives random orders until it is over.
pub async fn move_about(mover: Mover) {
    let Mover { engine, container, seed, pause, over } = mover;
    let mut random = SeededRandom::new(seed ^ 0xB0DE);
    while !over.load(Ordering::Relaxed) {
        engine.sleep_until(engine.env().now() + pause).await;
        match random_order(&engine, container, &mut random).await {
            Ok(())
            | Err(
                PlacementError::Busy(_)
                | PlacementError::NotDivisible(_)
                | PlacementError::NoSuchPartition(_)
                | PlacementError::NotNeighbours(..)
                | PlacementError::OutOfMemory(_)
                | PlacementError::NoSuchNode(_),
            ) => {}
            Err(error) => panic!("unexpected error: {error}"),
        }
    }
}

/// One random order about one container.
pub async fn random_order(
    engine: &Engine,
    container: ContainerId,
    random: &mut SeededRandom,
) -> Result<(), PlacementError> {
    // In the order of the table.
    let ids = engine.partition_ids(container);
    let place = random.index(ids.len());
    let node = NodeId(random.index(engine.node_count()) as u16);
    let choice = if ids.len() > PARTITIONS_MAX { 0 } else { random.below(4) };
    match choice {
        0 => {
            let other = ids.get(place + 1).or(ids.get(place.wrapping_sub(1))).unwrap_or(&ids[place]);
            engine.merge_partitions(ids[place], *other).await
        }
        1 => engine.move_partition(ids[place], node, MoveMethod::Link).await,
        2 => engine.move_partition(ids[place], node, MoveMethod::Copy).await,
        _ => engine.split_partition(ids[place]).await,
    }
}

/// Polls a future so many times, or until it is ready, and drops it.
pub async fn poll_some<T>(future: impl Future<Output = T>, polls: usize) {
    let mut future = pin!(future);
    let mut left = polls;
    poll_fn(|context| {
        if left == 0 || future.as_mut().poll(context).is_ready() {
            return Poll::Ready(());
        }
        left -= 1;
        if left == 0 { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}
