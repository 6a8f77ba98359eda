//! Commits of one row over the task API: begin, an update by key, commit.

use std::sync::{Arc, mpsc};
use std::time::Duration;

use eris_engine::{Engine, EngineError, Read};
use eris_platform::SeededRandom;
use eris_storage::{AttributeId, ContainerId, DataType, Predicate, ReadRequest, Value};
use eris_workloads::set_constant;

use super::{Keys, Timed};
use crate::error::BenchError;

const ID: AttributeId = AttributeId(0);
const BALANCE: AttributeId = AttributeId(1);

/// A container of accounts, and who updates it.
#[derive(Clone)]
pub(super) struct TaskClient {
    engine: Engine,
    container: ContainerId,
    keys: Keys,
    random: SeededRandom,
}

impl TaskClient {
    pub fn new(engine: &Engine, container: ContainerId, keys: Keys) -> Self {
        let random = SeededRandom::new(u64::from(keys.first) + 1);
        Self { engine: engine.clone(), container, keys, random }
    }

    /// One transaction; the nanoseconds of all of it, and of its commit alone.
    async fn commit_one(&mut self) -> Result<Timed, EngineError> {
        let env = Arc::clone(self.engine.env());
        let (key, balance) = self.keys.draw(&mut self.random);
        let begun = env.now();
        let predicate = Predicate::equal(ID, Value::Int32(key));
        let request = ReadRequest { predicate, desired: Arc::new([]), order: None };
        let read = Read { container: self.container, request };
        let mut transaction = self.engine.begin();
        let change = set_constant(BALANCE, DataType::Int64, Value::Int64(balance));
        let changed = transaction.update(&read, change).await?;
        assert_eq!(changed, 1, "account {key} is there once");
        let committing = env.now();
        transaction.commit().await?;
        let ended = env.now();
        Ok(Timed { whole_ns: ended.0 - begun.0, commit_ns: ended.0 - committing.0 })
    }
}

/// So many commits, one after the other.
pub(super) fn one(client: &TaskClient, count: u32) -> Result<Vec<Timed>, BenchError> {
    let mut running = client.clone();
    let timed = client.engine.block_on(async move {
        let mut timed = Vec::with_capacity(count as usize);
        for _ in 0..count {
            timed.push(running.commit_one().await?);
        }
        Ok::<_, EngineError>(timed)
    });
    Ok(timed??)
}

/// All clients at once, each with one commit under way, for a while; the nanoseconds of each commit.
pub(super) fn many(clients: &[TaskClient], duration: Duration) -> Result<Vec<u64>, BenchError> {
    let (sender, receiver) = mpsc::channel();
    for client in clients {
        let (mut client, sender) = (client.clone(), sender.clone());
        client.engine.clone().spawn(async move {
            let env = Arc::clone(client.engine.env());
            let end = env.now() + duration;
            let mut latencies = Ok(Vec::new());
            while let Ok(known) = &mut latencies
                && env.now() < end
            {
                match client.commit_one().await {
                    Ok(timed) => known.push(timed.whole_ns),
                    Err(error) => latencies = Err(error),
                }
            }
            // The receiver waits below; it is gone only if the run is.
            let _ = sender.send(latencies);
        });
    }
    drop(sender);
    let mut all = Vec::new();
    for latencies in receiver {
        all.extend(latencies?);
    }
    Ok(all)
}
