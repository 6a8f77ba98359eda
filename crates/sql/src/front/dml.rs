//! INSERT, UPDATE, DELETE.

use super::command::{Assignment, Command, DeleteCommand, InsertCommand, InsertSource, UpdateCommand};
use super::names::{fold, simple_name, table_name};
use super::{Lowered, TableName, expressions, query, refuse_if, windows};
use crate::ast::{
    self, AssignmentTarget, Expr, FromTable, SetExpr, TableFactor, TableObject, TableWithJoins, UpdateTableFromKind,
};
use crate::errors::{SqlError, SqlState};

const NO_RETURNING: &str = "Read the rows with a SELECT in the same transaction.";

pub(super) fn insert(insert: &ast::Insert) -> Lowered<Command> {
    let ast::Insert {
        insert_token: _,
        optimizer_hints,
        or,
        ignore,
        into: _,
        table,
        table_alias,
        columns,
        overwrite,
        source,
        assignments,
        partitioned,
        after_columns,
        has_table_keyword,
        on,
        returning,
        output,
        replace_into,
        priority,
        insert_alias,
        settings,
        format_clause,
        multi_table_insert_type,
        multi_table_into_clauses,
        multi_table_when_clauses,
        multi_table_else_clause,
    } = insert;
    refuse_if(
        on.is_some() || or.is_some() || *ignore || *replace_into,
        "INSERT ... ON CONFLICT",
        "Try the INSERT, and UPDATE when it answers 23505; or UPDATE first and INSERT when no row was changed.",
    )?;
    refuse_if(returning.is_some() || output.is_some(), "INSERT ... RETURNING", NO_RETURNING)?;
    refuse_if(
        !optimizer_hints.is_empty()
            || *overwrite
            || !assignments.is_empty()
            || partitioned.is_some()
            || !after_columns.is_empty()
            || *has_table_keyword
            || priority.is_some()
            || insert_alias.is_some()
            || settings.is_some()
            || format_clause.is_some()
            || multi_table_insert_type.is_some()
            || !multi_table_into_clauses.is_empty()
            || !multi_table_when_clauses.is_empty()
            || multi_table_else_clause.is_some(),
        "this form of INSERT",
        "Write INSERT INTO table (columns) VALUES (...) or a SELECT.",
    )?;
    refuse_if(table_alias.is_some(), "an alias of INSERT's table", "Leave it out: nothing can refer to it.")?;
    let TableObject::TableName(name) = table else {
        return Err(SqlError::unsupported("INSERT into something that is not a table", "Name a table."));
    };
    let columns = columns.iter().map(simple_name).collect::<Lowered<Vec<_>>>()?;
    let source = match source {
        None => InsertSource::Defaults,
        Some(source) => insert_source(source)?,
    };
    Ok(Command::Insert(InsertCommand { table: table_name(name)?, columns, source }))
}

fn insert_source(source: &ast::Query) -> Lowered<InsertSource> {
    let plain = source.with.is_none() && source.order_by.is_none() && source.limit_clause.is_none();
    match source.body.as_ref() {
        SetExpr::Values(values) if plain && source.fetch.is_none() => {
            query::check_tail(source)?;
            let mut rows = Vec::with_capacity(values.rows.len());
            for row in &values.rows {
                let mut fields = Vec::with_capacity(row.content.len());
                for field in &row.content {
                    windows::refuse(field, "VALUES")?;
                    fields.push(value_or_default(field)?);
                }
                rows.push(fields);
            }
            refuse_if(values.explicit_row, "VALUES ROW(...)", "Write VALUES (...).")?;
            Ok(InsertSource::Values(rows))
        }
        _ => {
            query::check(source)?;
            Ok(InsertSource::Query(Box::new(source.clone())))
        }
    }
}

/// DEFAULT is parsed as an identifier of that name.
fn value_or_default(value: &Expr) -> Lowered<Option<Expr>> {
    if matches!(value, Expr::Identifier(ident)
        if ident.quote_style.is_none() && ident.value.eq_ignore_ascii_case("default"))
    {
        return Ok(None);
    }
    expressions::check(value)?;
    Ok(Some(value.clone()))
}

pub(super) fn update(update: &ast::Update) -> Lowered<Command> {
    let ast::Update {
        update_token: _,
        optimizer_hints,
        table,
        assignments,
        from,
        selection,
        returning,
        output,
        or,
        order_by,
        limit,
    } = update;
    let others = match from {
        None => &[],
        Some(UpdateTableFromKind::AfterSet(others)) => others.as_slice(),
        Some(UpdateTableFromKind::BeforeSet(_)) => {
            return Err(SqlError::unsupported("FROM before SET", "Write UPDATE table SET ... FROM others."));
        }
    };
    others.iter().try_for_each(query::check_from)?;
    refuse_if(returning.is_some() || output.is_some(), "UPDATE ... RETURNING", NO_RETURNING)?;
    refuse_if(
        or.is_some() || !order_by.is_empty() || limit.is_some() || !optimizer_hints.is_empty(),
        "this form of UPDATE",
        "Write UPDATE table SET column = value WHERE condition.",
    )?;
    let (table, alias) = single_table(table, "UPDATE")?;
    let mut lowered = Vec::with_capacity(assignments.len());
    for assignment in assignments {
        windows::refuse(&assignment.value, "UPDATE")?;
        match &assignment.target {
            AssignmentTarget::ColumnName(name) => {
                lowered.push(Assignment { column: simple_name(name)?, value: value_or_default(&assignment.value)? });
            }
            AssignmentTarget::Tuple(names) => assign_row(names, &assignment.value, &mut lowered)?,
        }
    }
    if let Some(condition) = selection {
        expressions::check(condition)?;
        windows::refuse(condition, "WHERE")?;
    }
    Ok(Command::Update(UpdateCommand {
        table,
        alias,
        assignments: lowered,
        others: others.to_vec(),
        selection: selection.clone(),
    }))
}

/// SET (a, b) = (x, y).
fn assign_row(names: &[ast::ObjectName], values: &Expr, lowered: &mut Vec<Assignment>) -> Lowered<()> {
    let values = match values {
        Expr::Tuple(values) => values.as_slice(),
        Expr::Nested(value) => std::slice::from_ref(&**value),
        Expr::Subquery(_) => {
            return Err(SqlError::unsupported("SET (a, b) = (SELECT ...)", "Write UPDATE table SET ... FROM others."));
        }
        _ => return Err(SqlError::syntax("=", None).detail("A list of columns takes a list of values.")),
    };
    if names.len() != values.len() {
        return Err(SqlError::new(SqlState::SYNTAX, "number of columns does not match number of values"));
    }
    for (name, value) in names.iter().zip(values) {
        lowered.push(Assignment { column: simple_name(name)?, value: value_or_default(value)? });
    }
    Ok(())
}

pub(super) fn delete(delete: &ast::Delete) -> Lowered<Command> {
    let ast::Delete {
        delete_token: _,
        optimizer_hints,
        tables,
        from,
        using,
        selection,
        returning,
        output,
        order_by,
        limit,
    } = delete;
    let others = using.as_deref().unwrap_or_default();
    others.iter().try_for_each(query::check_from)?;
    refuse_if(returning.is_some() || output.is_some(), "DELETE ... RETURNING", NO_RETURNING)?;
    refuse_if(
        !tables.is_empty() || !order_by.is_empty() || limit.is_some() || !optimizer_hints.is_empty(),
        "this form of DELETE",
        "Write DELETE FROM table WHERE condition.",
    )?;
    let (FromTable::WithFromKeyword(tables) | FromTable::WithoutKeyword(tables)) = from;
    let [table] = tables.as_slice() else {
        return Err(SqlError::unsupported("DELETE from several tables", "Write one DELETE for each table."));
    };
    let (table, alias) = single_table(table, "DELETE")?;
    if let Some(condition) = selection {
        expressions::check(condition)?;
        windows::refuse(condition, "WHERE")?;
    }
    Ok(Command::Delete(DeleteCommand { table, alias, others: others.to_vec(), selection: selection.clone() }))
}

fn single_table(table: &TableWithJoins, statement: &str) -> Lowered<(TableName, Option<String>)> {
    refuse_if(!table.joins.is_empty(), &format!("{statement} over a join"), "Use a subquery in WHERE.")?;
    query::check_relation(&table.relation)?;
    let TableFactor::Table { name, alias, .. } = &table.relation else {
        return Err(SqlError::unsupported(format!("{statement} of something that is not a table"), "Name a table."));
    };
    let alias = match alias {
        None => None,
        Some(alias) => {
            refuse_if(!alias.columns.is_empty(), "column aliases here", "Alias the table only.")?;
            Some(fold(&alias.name)?)
        }
    };
    Ok((table_name(name)?, alias))
}
