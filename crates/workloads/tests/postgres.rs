//! The drivers against a real PostgreSQL server.
//!
//! `ERIS_TEST_POSTGRES_URL=postgres://user@127.0.0.1:5432/db cargo test -p eris-workloads -- --ignored`

use eris_workloads::connection::{SqlConnection, SqlValue};
use eris_workloads::postgres::PostgresConnection;
use eris_workloads::tatp::sql::{DestinationStatements, SqlClient, load};
use eris_workloads::tatp::{KeyDistribution, Population, PopulationOptions, RunOptions, check, run_over_sql};
use std::sync::Arc;
use std::time::Duration;

fn connect() -> Result<PostgresConnection, Box<dyn std::error::Error>> {
    let url = std::env::var("ERIS_TEST_POSTGRES_URL")?;
    Ok(PostgresConnection::connect(&url.parse()?)?)
}

#[test]
#[ignore = "needs a PostgreSQL server in ERIS_TEST_POSTGRES_URL"]
fn values_of_all_types_arrive() {
    let mut connection = connect().unwrap();
    let sql = "SELECT 1::int2, 2::int4, $1::int8, 0.5::float8, true, 'ä'::varchar(3), 12.50::numeric, \
               DATE '1998-09-02', NULL";
    let row = connection.execute(sql, &[SqlValue::Int(-3)]).unwrap().rows.remove(0);
    let expected = [
        SqlValue::Int(1),
        SqlValue::Int(2),
        SqlValue::Int(-3),
        SqlValue::Float(0.5),
        SqlValue::Bool(true),
        SqlValue::from("ä"),
        SqlValue::from("12.50"),
        SqlValue::from("1998-09-02"),
        SqlValue::Null,
    ];
    assert_eq!(row, expected);
    assert_eq!(connection.execute("SELECT 1/0", &[]).unwrap_err().sqlstate, "22012");
    assert_eq!(connection.execute("SELECT $1::int4", &[SqlValue::Int(7)]).unwrap().rows, [[SqlValue::Int(7)]]);
}

#[test]
#[ignore = "needs a PostgreSQL server in ERIS_TEST_POSTGRES_URL"]
fn tatp_runs_and_leaves_consistent_tables() {
    let options = PopulationOptions { permuted_numbers: true, ..PopulationOptions::new(2_000) };
    let population = Arc::new(Population::new(options));
    let mut connection = connect().unwrap();
    load(&mut connection, &population, "").unwrap();
    let client = |statements| SqlClient::new(connect().unwrap(), statements).unwrap();
    let threads = [DestinationStatements::Join, DestinationStatements::Separate]
        .map(|statements| vec![client(statements), client(statements)]);
    let run_options = RunOptions {
        clients: 4,
        warm_up: Duration::from_millis(200),
        measured: Duration::from_secs(2),
        keys: KeyDistribution::NonUniform,
        seed: 3,
    };
    let result = run_over_sql(threads.into(), &population, &run_options, &mut |_| {}).unwrap();
    assert!(result.statistics.completed() > 1_000, "{}", result.statistics.completed());
    let found = check(&population, &result.statistics.forwarding_changes, |table, range| {
        let sql = format!("SELECT * FROM {} WHERE s_id >= {} AND s_id < {}", table.name(), range.start, range.end);
        connection.execute(&sql, &[]).map(|result| result.rows)
    });
    let found = found.unwrap();
    assert!(found.is_consistent(), "{:?}", found.examples);
    eprintln!("{:.0} transactions/s, {} rows checked", result.throughput_per_s(), found.rows);
}
