//! Everything that is neither query nor DML nor DDL of tables: transactions, settings, prepared statements.

use eris_engine::IsolationLevel;

use super::command::{Command, Isolation, SetValue};
use super::create::option_text;
use super::lower::lower as lower_statement;
use super::names::{fold, setting_name, simple_name};
use super::type_names::sql_type_of;
use super::{Lowered, expressions, refuse_if};
use crate::ast::{
    ContextModifier, DiscardObject, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, Reset,
    ResetStatement, Set, Statement, TransactionAccessMode, TransactionIsolationLevel, TransactionMode,
};
use crate::errors::SqlError;
use crate::settings::TRANSACTION_ISOLATION;

pub(super) fn lower(statement: &Statement) -> Lowered<Command> {
    match statement {
        Statement::StartTransaction {
            modes,
            begin: _,
            transaction: _,
            modifier,
            statements,
            exception,
            has_end_keyword,
        } => {
            refuse_if(
                modifier.is_some() || !statements.is_empty() || exception.is_some() || *has_end_keyword,
                "this form of BEGIN",
                "Write BEGIN [ISOLATION LEVEL ...].",
            )?;
            Ok(Command::Begin(isolation(modes)?))
        }
        Statement::Commit { chain, end: _, modifier } => {
            refuse_if(*chain || modifier.is_some(), "COMMIT AND CHAIN", "Write COMMIT, then BEGIN.")?;
            Ok(Command::Commit)
        }
        Statement::Rollback { chain, savepoint } => {
            refuse_if(*chain, "ROLLBACK AND CHAIN", "Write ROLLBACK, then BEGIN.")?;
            refuse_if(savepoint.is_some(), "ROLLBACK TO SAVEPOINT", "Roll back the whole transaction.")?;
            Ok(Command::Rollback)
        }
        Statement::Savepoint { .. } | Statement::ReleaseSavepoint { .. } => {
            Err(SqlError::unsupported("SAVEPOINT", "Use one transaction for what must be undone together."))
        }
        Statement::Set(set) => lower_set(set),
        Statement::Reset(ResetStatement { reset }) => Ok(Command::Reset(match reset {
            Reset::ALL => None,
            Reset::ConfigurationParameter(name) => Some(setting_name(name)?),
        })),
        Statement::ShowVariable { variable } => {
            let words = variable.iter().map(|word| word.value.to_lowercase()).collect::<Vec<_>>();
            Ok(Command::Show(match words.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
                ["all"] => None,
                ["transaction", "isolation", "level"] => Some(TRANSACTION_ISOLATION.to_string()),
                ["time", "zone"] => Some("timezone".to_string()),
                ["session", "authorization"] => Some("session_authorization".to_string()),
                words => Some(words.join(".")),
            }))
        }
        Statement::Prepare { name, data_types, statement } => {
            let statement = lower_statement(statement)?;
            if !matches!(statement, Command::Query(_) | Command::Insert(_) | Command::Update(_) | Command::Delete(_)) {
                return Err(SqlError::unsupported("PREPARE of this statement", "Queries and DML can be prepared."));
            }
            let parameter_types = data_types.iter().map(sql_type_of).collect::<Lowered<Vec<_>>>()?;
            Ok(Command::Prepare { name: fold(name)?, parameter_types, statement: Box::new(statement) })
        }
        Statement::Execute { name, parameters, has_parentheses: _, immediate, into, using, output, default } => {
            refuse_if(
                *immediate || !into.is_empty() || !using.is_empty() || *output || *default,
                "this form of EXECUTE",
                "Write EXECUTE name (values).",
            )?;
            let Some(name) = name else { return Err(SqlError::syntax("", None)) };
            parameters.iter().try_for_each(expressions::check)?;
            Ok(Command::Execute { name: simple_name(name)?, arguments: parameters.clone() })
        }
        Statement::Deallocate { name, prepare: _ } => {
            let name = fold(name)?;
            Ok(Command::Deallocate((name != "all").then_some(name)))
        }
        Statement::Call(function) => call(function),
        Statement::Discard { object_type } => Ok(Command::Discard { all: matches!(object_type, DiscardObject::ALL) }),
        other => {
            let text = other.to_string();
            let words: Vec<&str> = text.split_whitespace().take(2).collect();
            Err(SqlError::unsupported(words.join(" "), "See the documentation for the statements there are."))
        }
    }
}

/// What stands for statements that the parser does not know, see [`super::parse`].
fn call(function: &Function) -> Lowered<Command> {
    let name = function.name.to_string().to_lowercase();
    let argument = match &function.args {
        FunctionArguments::List(list) => match list.args.as_slice() {
            [FunctionArg::Unnamed(FunctionArgExpr::Expr(value))] => Some(value),
            _ => None,
        },
        FunctionArguments::None | FunctionArguments::Subquery(_) => None,
    };
    match (name.as_str(), argument) {
        ("checkpoint", None) if matches!(function.args, FunctionArguments::None) => Ok(Command::Checkpoint),
        ("backup", Some(directory @ Expr::Value(_))) => Ok(Command::Backup(option_text(directory))),
        _ => Err(SqlError::unsupported(format!("CALL {name}"), "There are no procedures.")),
    }
}

fn isolation(modes: &[TransactionMode]) -> Lowered<Isolation> {
    let mut isolation = Isolation::default();
    for mode in modes {
        match mode {
            TransactionMode::AccessMode(TransactionAccessMode::ReadOnly) => isolation.read_only = Some(true),
            TransactionMode::AccessMode(TransactionAccessMode::ReadWrite) => isolation.read_only = Some(false),
            TransactionMode::IsolationLevel(level) => match level {
                TransactionIsolationLevel::ReadUncommitted
                | TransactionIsolationLevel::ReadCommitted
                | TransactionIsolationLevel::RepeatableRead
                | TransactionIsolationLevel::Snapshot => isolation.level = Some(IsolationLevel::RepeatableRead),
                TransactionIsolationLevel::Serializable => isolation.level = Some(IsolationLevel::Serializable),
            },
        }
    }
    Ok(isolation)
}

fn lower_set(set: &Set) -> Lowered<Command> {
    match set {
        Set::SingleAssignment { scope, hivevar, variable, values } => {
            refuse_if(*hivevar, "HIVEVAR", "Leave it out.")?;
            let local = match scope {
                None | Some(ContextModifier::Session) => false,
                Some(ContextModifier::Local) => true,
                Some(ContextModifier::Global) => {
                    return Err(SqlError::unsupported("SET GLOBAL", "Settings belong to a session."));
                }
            };
            Ok(Command::Set { name: setting_name(variable)?, value: set_value(values), local })
        }
        Set::SetTimeZone { local, value } => Ok(Command::Set {
            name: "timezone".to_string(),
            value: set_value(std::slice::from_ref(value)),
            local: *local,
        }),
        Set::SetNames { charset_name, collation_name } => {
            refuse_if(collation_name.is_some(), "COLLATE", "Text is ordered by its bytes.")?;
            Ok(Command::Set {
                name: "client_encoding".to_string(),
                value: SetValue::Text(charset_name.value.clone()),
                local: false,
            })
        }
        Set::SetTransaction { modes, snapshot, session } => {
            refuse_if(snapshot.is_some(), "SET TRANSACTION SNAPSHOT", "Leave it out.")?;
            let isolation = isolation(modes)?;
            Ok(if *session { Command::SetCharacteristics(isolation) } else { Command::SetTransaction(isolation) })
        }
        other => Err(SqlError::unsupported(other, "Write SET name = value.")),
    }
}

fn set_value(values: &[Expr]) -> SetValue {
    match values {
        [Expr::Identifier(ident)] if ident.quote_style.is_none() && ident.value.eq_ignore_ascii_case("default") => {
            SetValue::Default
        }
        values => SetValue::Text(values.iter().map(option_text).collect::<Vec<_>>().join(", ")),
    }
}
