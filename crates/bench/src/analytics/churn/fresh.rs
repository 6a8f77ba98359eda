//! A fresh load of the rows that are in an instance, and what it answers.

use crate::analytics::load::{Rows, load_rows};
use crate::analytics::options::AnalyticsOptions;
use crate::analytics::statements::within;
use crate::analytics::suite::Query;
use crate::error::BenchError;
use crate::instance::Instance;
use eris_workloads::answers::Answer;
use eris_workloads::connection::{SqlConnection, SqlValue};
use eris_workloads::tpch::{Table, answer_shape};

/// Rows of a table that are on their way at one time, about: of lineitem less than 100 MB.
const PART_ROWS: i64 = 1 << 19;

/// Loads the rows of `instance`, which have to be so many, into a fresh instance, whose answers become those stored for
/// the queries.
pub(in crate::analytics) fn answer_by_fresh_load(
    instance: &Instance,
    options: &AnalyticsOptions,
    rows: u64,
    queries: &mut [Query],
) -> Result<(), BenchError> {
    let fresh = Instance::start(&options.instance_options())?;
    let mut copied = 0;
    for table in Table::ALL {
        fresh.execute(&table.create_statement(&options.storage_options()))?;
        for part in parts(instance, table)? {
            copied += copy_part(instance, &fresh, table, &part)?;
        }
    }
    if copied != rows {
        return Err(BenchError::Options(format!("{copied} rows were found where {rows} are right")));
    }
    for query in queries {
        let rows = fresh.query(&query.sql)?.rows;
        let answer = Answer::of_result(answer_shape(query.number), &rows);
        let answer = answer.map_err(|mismatch| {
            BenchError::Options(format!("{}: a fresh load answers wrongly: {mismatch}", query.name))
        })?;
        query.stored = Some(answer);
    }
    fresh.shutdown();
    Ok(())
}

/// Conditions that cut a table by the first attribute of its primary key.
fn parts(instance: &Instance, table: Table) -> Result<Vec<String>, BenchError> {
    let (name, key) = (table.name(), table.columns()[table.primary_key()[0]].name);
    let sql = format!("SELECT min({key}), max({key}), count(*) FROM {name}");
    let found = instance.connect().execute(&sql, &[])?.rows;
    let numbers: Vec<i64> = found.iter().flatten().filter_map(SqlValue::as_int).collect();
    // An empty table has no keys.
    let &[min, max, rows] = numbers.as_slice() else { return Ok(Vec::new()) };
    let count = rows / PART_ROWS + 1;
    let width = (max - min) / count + 1;
    Ok((0..count).map(|part| within(key, &(min + part * width..min + (part + 1) * width))).collect())
}

/// Copies the rows that meet a condition; how many they are.
fn copy_part(from: &Instance, to: &Instance, table: Table, condition: &str) -> Result<u64, BenchError> {
    let batches = from.batches(&format!("SELECT * FROM {} WHERE {condition}", table.name()))?;
    for batch in &batches {
        assert_eq!(batch.data_types(), table.data_types(), "{} is read in the types it has", table.name());
    }
    let (engine, container) = (to.engine().clone(), to.container(table.name())?);
    let rows: Rows = Box::new(batches.into_iter().map(|batch| Ok((0, batch))));
    let (copied, _) = to.engine().block_on(async move { load_rows(&engine, container, rows).await })??;
    Ok(copied)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analytics::verdict::Verdict;
    use crate::analytics::{Suite, load, run_query};

    #[test]
    fn a_fresh_load_says_what_is_right() {
        let options =
            AnalyticsOptions { scale_factor: 0.01, memory_limit_bytes: 2 << 30, ..AnalyticsOptions::default() };
        let instance = Instance::start(&options.instance_options()).unwrap();
        let loaded = load(&instance, &options).unwrap();
        let mut queries = Suite::Tpch.queries(0.01);
        let before = queries.clone();
        answer_by_fresh_load(&instance, &options, loaded.rows, &mut queries).unwrap();
        for (query, before) in queries.iter().zip(&before) {
            // The same as what was stored, as the rows are still the same.
            let rows = instance.query(&query.sql).unwrap().rows;
            assert_eq!(Verdict::new(before).on_own(&rows), "ok", "{}", query.name);
            assert_eq!(Verdict::new(query).on_own(&rows), "ok", "{}", query.name);
        }
        instance.execute("UPDATE lineitem SET l_tax = l_tax + 0.01 WHERE l_orderkey = 1").unwrap();
        assert!(run_query(&instance, &queries[0], 0).answer.starts_with("wrong: "));
        let missing = answer_by_fresh_load(&instance, &options, loaded.rows + 1, &mut queries);
        assert!(missing.is_err_and(|error| error.to_string().contains("rows were found where")));
        instance.shutdown();
    }
}
