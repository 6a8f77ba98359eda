//! Statement by statement: which are planned, which are refused, and with what advice.

use super::command::{Command, ExplainCommand};
use super::names::{fold, table_name};
use super::{Lowered, copy, create, dml, nothing, query, refuse_if, utility};
use crate::ast::{ObjectType, Statement};
use crate::errors::SqlError;

/// Turns a statement into a command, or refuses it.
pub fn lower(statement: &Statement) -> Lowered<Command> {
    match statement {
        Statement::Query(q) if nothing::reads_nothing(q) => match nothing::without_rows(q) {
            Some(empty) => Ok(Command::Query(empty)),
            None => Err(SqlError::unsupported("* of a table that is always empty", "Name the columns.")),
        },
        Statement::Query(q) => {
            query::check(q)?;
            Ok(Command::Query(q.clone()))
        }
        Statement::Insert(insert) => dml::insert(insert),
        Statement::Update(update) => dml::update(update),
        Statement::Delete(delete) => dml::delete(delete),
        Statement::Copy { source, to, target, options, legacy_options, values } => {
            copy::lower(source, *to, target, options, legacy_options, values)
        }
        Statement::CreateTable(table) => create::table(table),
        Statement::CreateIndex(index) => create::index(index),
        Statement::Drop { object_type, if_exists, names, cascade, restrict: _, purge, temporary, table } => {
            refuse_if(*cascade, "DROP ... CASCADE", "Nothing depends on tables or indexes yet: leave CASCADE out.")?;
            refuse_if(*purge, "PURGE", "Leave it out.")?;
            refuse_if(*temporary, "DROP TEMPORARY", "There are no temporary tables yet.")?;
            refuse_if(table.is_some(), "DROP INDEX ... ON", "Name the index only.")?;
            let names = names.iter().map(table_name).collect::<Lowered<Vec<_>>>()?;
            match object_type {
                ObjectType::Table => Ok(Command::DropTable { names, if_exists: *if_exists }),
                ObjectType::Index => Ok(Command::DropIndex { names, if_exists: *if_exists }),
                other => Err(SqlError::unsupported(format!("DROP {other}"), "Tables and indexes can be dropped.")),
            }
        }
        Statement::Truncate(truncate) => create::truncate(truncate),
        Statement::Lock(lock) => create::lock_table(lock),
        Statement::Explain {
            describe_alias: _,
            analyze,
            verbose,
            query_plan,
            estimate,
            statement,
            format,
            options,
        } => {
            refuse_if(*query_plan || *estimate, "EXPLAIN with QUERY PLAN or ESTIMATE", "Write EXPLAIN [ANALYZE].")?;
            refuse_if(format.is_some(), "EXPLAIN FORMAT", "The plan is printed as text.")?;
            let (mut analyze, mut verbose) = (*analyze, *verbose);
            for option in options.iter().flatten() {
                let on = option.arg.as_ref().is_none_or(|value| {
                    matches!(value.to_string().to_lowercase().as_str(), "true" | "on" | "1" | "yes")
                });
                match fold(&option.name)?.as_str() {
                    "analyze" => analyze = on,
                    "verbose" => verbose = on,
                    // What these would add is printed anyway or not measured; leaving them out is no loss.
                    "costs" | "timing" | "summary" if !on => {}
                    other => {
                        return Err(SqlError::unsupported(
                            format!("EXPLAIN ({})", other.to_uppercase()),
                            "ANALYZE and VERBOSE are known.",
                        ));
                    }
                }
            }
            let statement = lower(statement)?;
            match &statement {
                Command::Query(_) | Command::Insert(_) | Command::Update(_) | Command::Delete(_) => {}
                _ => return Err(SqlError::syntax("EXPLAIN", None).detail("Queries and DML can be explained.")),
            }
            Ok(Command::Explain(ExplainCommand { analyze, verbose, statement: Box::new(statement) }))
        }
        other => utility::lower(other),
    }
}
