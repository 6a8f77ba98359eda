//! Commits of one row over the wire: a prepared UPDATE by key in autocommit, by the extended protocol.

use std::time::{Duration, Instant};

use eris_platform::SeededRandom;
use eris_workloads::connection::{SqlConnection, SqlFailure, SqlValue, StatementId};
use eris_workloads::postgres::{PostgresConnection, PostgresUrl};

use super::Keys;
use crate::error::BenchError;

const UPDATE: &str = "UPDATE accounts SET balance = $1 WHERE id = $2";

pub(super) struct SqlClient {
    connection: PostgresConnection,
    update: StatementId,
    keys: Keys,
    random: SeededRandom,
}

impl SqlClient {
    pub fn connect(url: &PostgresUrl, keys: Keys) -> Result<Self, SqlFailure> {
        let mut connection = PostgresConnection::connect(url)?;
        let update = connection.prepare(UPDATE)?;
        Ok(Self { connection, update, keys, random: SeededRandom::new(u64::from(keys.first) + 1) })
    }

    /// Bytes sent and received so far.
    pub fn traffic_bytes(&self) -> (u64, u64) {
        self.connection.traffic_bytes()
    }

    /// So many commits, one after the other; gives the nanoseconds of each.
    pub fn run(&mut self, count: u32) -> Result<Vec<u64>, SqlFailure> {
        (0..count).map(|_| self.commit_one()).collect()
    }

    fn commit_one(&mut self) -> Result<u64, SqlFailure> {
        let (key, balance) = self.keys.draw(&mut self.random);
        let values = [SqlValue::Int(balance), SqlValue::Int(i64::from(key))];
        let begun = Instant::now();
        let changed = self.connection.execute_prepared(self.update, &values)?.rows_affected;
        let nanos = begun.elapsed().as_nanos() as u64;
        assert_eq!(changed, 1, "account {key} is there once");
        Ok(nanos)
    }
}

/// All clients at once, each a thread with one statement under way, for a while; the nanoseconds of each.
pub(super) fn many(clients: &mut [SqlClient], duration: Duration) -> Result<Vec<u64>, BenchError> {
    let end = Instant::now() + duration;
    let drive = |client: &mut SqlClient| {
        let mut latencies = Vec::new();
        while Instant::now() < end {
            latencies.push(client.commit_one()?);
        }
        Ok::<_, SqlFailure>(latencies)
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = clients.iter_mut().map(|client| scope.spawn(|| drive(client))).collect();
        let mut all = Vec::new();
        for thread in threads {
            match thread.join() {
                Ok(latencies) => all.extend(latencies?),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        Ok(all)
    })
}
