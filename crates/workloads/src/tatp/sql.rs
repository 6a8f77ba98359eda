//! The seven transactions as prepared SQL statements on one connection.
//!
//! A transaction of one statement runs in autocommit, the others between BEGIN and COMMIT, with ROLLBACK when they hit
//! nothing. The isolation level is the server's default: snapshot isolation in ERIS; a PostgreSQL to compare with is
//! started with `default_transaction_isolation = 'repeatable read'`.

use super::population::Population;
use super::schema::{CREATE_NUMBER_INDEX, Table};
use super::transactions::{Completed, ForwardingChange, ForwardingKey, Transaction};
use crate::connection::{SharedThread, SqlConnection, SqlFailure, SqlResult, SqlValue, StatementId};
use std::io;
use std::os::fd::OwnedFd;

/// How `GET_NEW_DESTINATION` asks for its two tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DestinationStatements {
    /// One join, as the benchmark writes it.
    #[default]
    Join,
    /// First the facility, then its forwardings, in one transaction.
    Separate,
}

impl DestinationStatements {
    pub fn name(self) -> &'static str {
        match self {
            Self::Join => "join",
            Self::Separate => "two statements",
        }
    }
}

const GET_NEW_DESTINATION: &str = "SELECT cf.numberx FROM special_facility sf, call_forwarding cf \
     WHERE sf.s_id = $1 AND sf.sf_type = $2 AND sf.is_active = 1 \
     AND cf.s_id = sf.s_id AND cf.sf_type = sf.sf_type AND cf.start_time <= $3 AND $4 < cf.end_time";
const GET_FACILITY: &str = "SELECT is_active FROM special_facility WHERE s_id = $1 AND sf_type = $2";
const GET_FORWARDING: &str = "SELECT numberx FROM call_forwarding \
     WHERE s_id = $1 AND sf_type = $2 AND start_time <= $3 AND end_time > $4";
const GET_ACCESS_DATA: &str = "SELECT data1, data2, data3, data4 FROM access_info WHERE s_id = $1 AND ai_type = $2";
const UPDATE_SUBSCRIBER: &str = "UPDATE subscriber SET bit_1 = $1 WHERE s_id = $2";
const UPDATE_FACILITY: &str = "UPDATE special_facility SET data_a = $1 WHERE s_id = $2 AND sf_type = $3";
const UPDATE_LOCATION: &str = "UPDATE subscriber SET vlr_location = $1 WHERE sub_nbr = $2";
const GET_ID: &str = "SELECT s_id FROM subscriber WHERE sub_nbr = $1";
const GET_FACILITY_TYPES: &str = "SELECT sf_type FROM special_facility WHERE s_id = $1";
const INSERT_FORWARDING: &str = "INSERT INTO call_forwarding VALUES ($1, $2, $3, $4, $5)";
const DELETE_FORWARDING: &str = "DELETE FROM call_forwarding WHERE s_id = $1 AND sf_type = $2 AND start_time = $3";

/// Bytes of COPY data sent at a time.
const COPY_PIECE_BYTES: usize = 1 << 16;

/// Makes the four tables anew and fills them.
pub fn load(
    connection: &mut dyn SqlConnection,
    population: &Population,
    storage_options: &str,
) -> Result<(), SqlFailure> {
    for table in Table::ALL {
        connection.execute(&format!("DROP TABLE IF EXISTS {}", table.name()), &[])?;
        connection.execute(&table.create_statement(storage_options), &[])?;
    }
    connection.execute(CREATE_NUMBER_INDEX, &[])?;
    let order = population.insertion_order();
    for table in Table::ALL {
        let mut ids = order.iter();
        let mut pieces = std::iter::from_fn(|| {
            let mut piece = Vec::with_capacity(COPY_PIECE_BYTES + 4_096);
            while piece.len() < COPY_PIECE_BYTES
                && let Some(s_id) = ids.next()
            {
                for row in population.rows_of(*s_id).of(table) {
                    append_csv(&mut piece, row);
                }
            }
            (!piece.is_empty()).then_some(piece)
        });
        connection.copy_in(&format!("COPY {} FROM STDIN WITH (FORMAT csv)", table.name()), &mut pieces)?;
    }
    Ok(())
}

/// Digits and letters only: nothing needs quotes.
fn append_csv(out: &mut Vec<u8>, row: &[SqlValue]) {
    for (position, value) in row.iter().enumerate() {
        if position > 0 {
            out.push(b',');
        }
        out.extend(value.to_string().as_bytes());
    }
    out.push(b'\n');
}

/// One client's connection with its prepared statements.
pub struct SqlClient<C> {
    connection: C,
    get_subscriber_data: StatementId,
    destination: Destination,
    get_access_data: StatementId,
    update_subscriber: StatementId,
    update_facility: StatementId,
    update_location: StatementId,
    get_id: StatementId,
    get_facility_types: StatementId,
    insert_forwarding: StatementId,
    delete_forwarding: StatementId,
}

enum Destination {
    Join(StatementId),
    Separate { facility: StatementId, forwarding: StatementId },
}

impl<C: SharedThread> SqlClient<C> {
    pub fn new(mut connection: C, destination: DestinationStatements) -> Result<Self, SqlFailure> {
        let columns: Vec<&str> = Table::Subscriber.columns().iter().map(|column| column.name).collect();
        let get_subscriber_data = format!("SELECT {} FROM subscriber WHERE s_id = $1", columns.join(", "));
        let mut prepare = |sql: &str| connection.holding().prepare(sql);
        let destination = match destination {
            DestinationStatements::Join => Destination::Join(prepare(GET_NEW_DESTINATION)?),
            DestinationStatements::Separate => {
                Destination::Separate { facility: prepare(GET_FACILITY)?, forwarding: prepare(GET_FORWARDING)? }
            }
        };
        Ok(Self {
            get_subscriber_data: prepare(&get_subscriber_data)?,
            destination,
            get_access_data: prepare(GET_ACCESS_DATA)?,
            update_subscriber: prepare(UPDATE_SUBSCRIBER)?,
            update_facility: prepare(UPDATE_FACILITY)?,
            update_location: prepare(UPDATE_LOCATION)?,
            get_id: prepare(GET_ID)?,
            get_facility_types: prepare(GET_FACILITY_TYPES)?,
            insert_forwarding: prepare(INSERT_FORWARDING)?,
            delete_forwarding: prepare(DELETE_FORWARDING)?,
            connection,
        })
    }

    /// See [`SharedThread::socket`].
    pub fn socket(&self) -> io::Result<Option<OwnedFd>> {
        self.connection.socket()
    }

    /// Runs a transaction once; the caller repeats it when the failure is retryable.
    pub async fn run(&mut self, transaction: &Transaction) -> Result<Completed, SqlFailure> {
        match transaction {
            Transaction::GetSubscriberData { s_id } => {
                let result = self.one(self.get_subscriber_data, &[int(*s_id)]).await?;
                Ok(Completed::found(!result.rows.is_empty()))
            }
            Transaction::GetNewDestination { s_id, sf_type, start_time, end_time } => {
                let arguments = [int(*s_id), int(*sf_type), int(*start_time), int(*end_time)];
                match self.destination {
                    Destination::Join(join) => Ok(Completed::found(!self.one(join, &arguments).await?.rows.is_empty())),
                    Destination::Separate { facility, forwarding } => {
                        self.in_transaction(async |client: &mut Self| {
                            let active = client.one(facility, &arguments[..2]).await?.rows;
                            let active = active.first().and_then(|row| row[0].as_int()) == Some(1);
                            let found = active && !client.one(forwarding, &arguments).await?.rows.is_empty();
                            Ok((Completed::found(found), End::Commit))
                        })
                        .await
                    }
                }
            }
            Transaction::GetAccessData { s_id, ai_type } => {
                let result = self.one(self.get_access_data, &[int(*s_id), int(*ai_type)]).await?;
                Ok(Completed::found(!result.rows.is_empty()))
            }
            Transaction::UpdateSubscriberData { s_id, bit_1, sf_type, data_a } => {
                self.in_transaction(async |client: &mut Self| {
                    let subscribers =
                        client.one(client.update_subscriber, &[int(*bit_1), int(*s_id)]).await?.rows_affected;
                    let arguments = [int(*data_a), int(*s_id), int(*sf_type)];
                    let facilities = client.one(client.update_facility, &arguments).await?.rows_affected;
                    Ok(commit_if(subscribers == 1 && facilities == 1, Completed::found(true)))
                })
                .await
            }
            Transaction::UpdateLocation { sub_nbr, vlr_location } => {
                let result = self.one(self.update_location, &[int(*vlr_location), text(sub_nbr)]).await?;
                Ok(Completed::found(result.rows_affected == 1))
            }
            Transaction::InsertCallForwarding { sub_nbr, sf_type, start_time, end_time, numberx } => {
                let inserted = self
                    .in_transaction(async |client: &mut Self| {
                        let Some(s_id) = client.id_of(sub_nbr).await? else {
                            return Ok((Completed::EMPTY, End::Rollback));
                        };
                        client.one(client.get_facility_types, &[int(s_id)]).await?;
                        let row = [int(s_id), int(*sf_type), int(*start_time), int(*end_time), text(numberx)];
                        client.one(client.insert_forwarding, &row).await?;
                        let key = ForwardingKey { s_id, sf_type: *sf_type, start_time: *start_time };
                        Ok((Completed::changed(key, ForwardingChange::Added), End::Commit))
                    })
                    .await;
                match inserted {
                    Err(failure) if failure.is_constraint_violation() => Ok(Completed::REJECTED),
                    other => other,
                }
            }
            Transaction::DeleteCallForwarding { sub_nbr, sf_type, start_time } => {
                self.in_transaction(async |client: &mut Self| {
                    let Some(s_id) = client.id_of(sub_nbr).await? else { return Ok((Completed::EMPTY, End::Rollback)) };
                    let arguments = [int(s_id), int(*sf_type), int(*start_time)];
                    let deleted = client.one(client.delete_forwarding, &arguments).await?.rows_affected;
                    let key = ForwardingKey { s_id, sf_type: *sf_type, start_time: *start_time };
                    Ok(commit_if(deleted == 1, Completed::changed(key, ForwardingChange::Removed)))
                })
                .await
            }
        }
    }

    async fn one(&mut self, statement: StatementId, arguments: &[SqlValue]) -> Result<SqlResult, SqlFailure> {
        self.connection.ask_prepared(statement, arguments).await
    }

    async fn id_of(&mut self, sub_nbr: &str) -> Result<Option<i64>, SqlFailure> {
        let result = self.one(self.get_id, &[text(sub_nbr)]).await?;
        Ok(result.rows.first().and_then(|row| row[0].as_int()))
    }

    async fn in_transaction(
        &mut self,
        body: impl AsyncFnOnce(&mut Self) -> Result<(Completed, End), SqlFailure>,
    ) -> Result<Completed, SqlFailure> {
        self.connection.ask("BEGIN").await?;
        match body(self).await {
            Ok((completed, End::Commit)) => self.connection.ask("COMMIT").await.map(|_| completed),
            Ok((completed, End::Rollback)) => self.connection.ask("ROLLBACK").await.map(|_| completed),
            Err(failure) => {
                // The statement's failure is the news; a connection too broken to roll back says so at the next call.
                let _ = self.connection.ask("ROLLBACK").await;
                Err(failure)
            }
        }
    }
}

enum End {
    Commit,
    Rollback,
}

fn commit_if(hit: bool, completed: Completed) -> (Completed, End) {
    if hit { (completed, End::Commit) } else { (Completed::EMPTY, End::Rollback) }
}

fn int(value: i64) -> SqlValue {
    SqlValue::Int(value)
}

fn text(value: &str) -> SqlValue {
    SqlValue::Text(value.to_owned())
}
