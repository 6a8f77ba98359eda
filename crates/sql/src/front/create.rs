//! CREATE TABLE, CREATE INDEX, TRUNCATE, LOCK TABLE.

use super::command::{Command, CreateIndexCommand, CreateTableCommand, NewColumn, NewConstraint};
use super::names::{fold, simple_name, table_name};
use super::type_names::sql_type_of;
use super::{Lowered, expressions, refuse_if};
use crate::ast::{
    self, ColumnDef, ColumnOption, ConstraintCharacteristics, CreateTableOptions, Expr, HiveDistributionStyle,
    IndexColumn, IndexType, NullsDistinctOption, OrderByExpr, OrderByOptions, PrimaryKeyConstraint, SqlOption,
    TableConstraint, UniqueConstraint,
};
use crate::errors::{SqlError, SqlState};
use eris_engine::TableLockMode;
use eris_storage::IndexKind;

const NO_FOREIGN_KEYS: &str = "Foreign keys are not enforced yet: leave REFERENCES out.";
const NO_CHECKS: &str = "CHECK constraints are not enforced yet: leave them out.";

pub(super) fn table(create: &ast::CreateTable) -> Lowered<Command> {
    let ast::CreateTable {
        or_replace,
        temporary,
        external,
        dynamic,
        global,
        if_not_exists,
        transient,
        volatile,
        iceberg,
        snapshot,
        name,
        columns,
        constraints,
        hive_distribution,
        hive_formats,
        table_options,
        file_format,
        location,
        query,
        without_rowid,
        like,
        clone,
        version,
        comment,
        on_commit,
        on_cluster,
        primary_key,
        order_by,
        partition_by,
        cluster_by,
        clustered_by,
        inherits,
        partition_of,
        for_values,
        strict,
        copy_grants,
        enable_schema_evolution,
        change_tracking,
        data_retention_time_in_days,
        max_data_extension_time_in_days,
        default_ddl_collation,
        with_aggregation_policy,
        with_row_access_policy,
        with_storage_lifecycle_policy,
        with_tags,
        external_volume,
        base_location,
        catalog,
        catalog_sync,
        storage_serialization_policy,
        target_lag,
        warehouse,
        refresh_mode,
        initialize,
        require_user,
        diststyle,
        distkey,
        sortkey,
        backup,
    } = create;
    refuse_if(*or_replace, "CREATE OR REPLACE TABLE", "Write DROP TABLE IF EXISTS first.")?;
    refuse_if(
        *temporary || global.is_some() || on_commit.is_some(),
        "CREATE TEMPORARY TABLE",
        "Create a table and drop it.",
    )?;
    refuse_if(query.is_some(), "CREATE TABLE ... AS", "Write CREATE TABLE, then INSERT ... SELECT.")?;
    refuse_if(like.is_some() || clone.is_some(), "CREATE TABLE ... LIKE", "List the columns.")?;
    refuse_if(inherits.is_some(), "INHERITS", "List the columns.")?;
    refuse_if(
        partition_by.is_some() || partition_of.is_some() || for_values.is_some(),
        "PARTITION BY",
        "Tables are partitioned by themselves; WITH (partitions = n) sets how many to start with.",
    )?;
    refuse_if(comment.is_some(), "COMMENT", "Leave it out.")?;
    let foreign = [
        *external,
        *dynamic,
        *transient,
        *volatile,
        *iceberg,
        *snapshot,
        !matches!(hive_distribution, HiveDistributionStyle::NONE),
        hive_formats.as_ref().is_some_and(|formats| *formats != ast::HiveFormat::default()),
        file_format.is_some(),
        location.is_some(),
        *without_rowid,
        version.is_some(),
        on_cluster.is_some(),
        primary_key.is_some(),
        order_by.is_some(),
        cluster_by.is_some(),
        clustered_by.is_some(),
        *strict,
        *copy_grants,
        enable_schema_evolution.is_some(),
        change_tracking.is_some(),
        data_retention_time_in_days.is_some(),
        max_data_extension_time_in_days.is_some(),
        default_ddl_collation.is_some(),
        with_aggregation_policy.is_some(),
        with_row_access_policy.is_some(),
        with_storage_lifecycle_policy.is_some(),
        with_tags.is_some(),
        external_volume.is_some(),
        base_location.is_some(),
        catalog.is_some(),
        catalog_sync.is_some(),
        storage_serialization_policy.is_some(),
        target_lag.is_some(),
        warehouse.is_some(),
        refresh_mode.is_some(),
        initialize.is_some(),
        *require_user,
        diststyle.is_some(),
        distkey.is_some(),
        sortkey.is_some(),
        backup.is_some(),
    ];
    refuse_if(
        foreign.contains(&true),
        "this clause of another SQL dialect",
        "Write CREATE TABLE name (columns) WITH (layout = ..., partitions = ..., segment_rows = ...).",
    )?;
    let mut command = CreateTableCommand {
        table: table_name(name)?,
        if_not_exists: *if_not_exists,
        columns: Vec::with_capacity(columns.len()),
        constraints: Vec::new(),
        options: table_options_of(table_options)?,
    };
    for definition in columns {
        let column = column(definition, &mut command.constraints)?;
        command.columns.push(column);
    }
    for constraint in constraints {
        let constraint = table_constraint(constraint)?;
        command.constraints.push(constraint);
    }
    Ok(Command::CreateTable(command))
}

fn table_options_of(options: &CreateTableOptions) -> Lowered<Vec<(String, String)>> {
    let list = match options {
        CreateTableOptions::None => return Ok(Vec::new()),
        CreateTableOptions::With(list) => list,
        CreateTableOptions::Options(_) | CreateTableOptions::Plain(_) | CreateTableOptions::TableProperties(_) => {
            return Err(SqlError::unsupported("table options outside WITH (...)", "Write WITH (name = value)."));
        }
    };
    list.iter()
        .map(|option| match option {
            SqlOption::KeyValue { key, value } => Ok((fold(key)?, option_text(value))),
            other => Err(SqlError::unsupported(format!("the table option {other}"), "Write name = value.")),
        })
        .collect()
}

/// A word, string or number as plain text.
pub(super) fn option_text(value: &Expr) -> String {
    match value {
        Expr::Value(value) => match &value.value {
            ast::Value::SingleQuotedString(text) | ast::Value::EscapedStringLiteral(text) => text.clone(),
            other => other.to_string(),
        },
        Expr::Identifier(ident) => ident.value.clone(),
        other => other.to_string(),
    }
}

fn column(definition: &ColumnDef, constraints: &mut Vec<NewConstraint>) -> Lowered<NewColumn> {
    let ColumnDef { name, data_type, options } = definition;
    let name = fold(name)?;
    let mut column =
        NewColumn { name: name.clone(), sql_type: sql_type_of(data_type)?, not_null: false, default: None };
    let mut nullable = false;
    for option in options {
        let constraint_name = option.name.as_ref().map(fold).transpose()?;
        match &option.option {
            ColumnOption::Null => nullable = true,
            ColumnOption::NotNull => column.not_null = true,
            ColumnOption::Default(value) => {
                expressions::check(value)?;
                column.default = Some(value.clone());
            }
            ColumnOption::PrimaryKey(key) => {
                let mut constraint = primary_key(key)?;
                constraint.name = constraint.name.or(constraint_name);
                constraint.columns = vec![name.clone()];
                constraints.push(constraint);
            }
            ColumnOption::Unique(key) => {
                let mut constraint = unique(key)?;
                constraint.name = constraint.name.or(constraint_name);
                constraint.columns = vec![name.clone()];
                constraints.push(constraint);
            }
            ColumnOption::ForeignKey(_) => return Err(SqlError::unsupported("REFERENCES", NO_FOREIGN_KEYS)),
            ColumnOption::Check(_) => return Err(SqlError::unsupported("CHECK", NO_CHECKS)),
            ColumnOption::Collation(_) => {
                return Err(SqlError::unsupported(
                    "COLLATE",
                    "Text is ordered by its bytes (UTF-8, as collation \"C\").",
                ));
            }
            ColumnOption::Generated { .. } | ColumnOption::Identity(_) => {
                return Err(SqlError::unsupported("a generated column", "Compute the value in the INSERT."));
            }
            other => return Err(SqlError::unsupported(format!("the column option {other}"), "Leave it out.")),
        }
    }
    if nullable && column.not_null {
        let message = format!("conflicting NULL/NOT NULL declarations for column \"{name}\"");
        return Err(SqlError::new(SqlState::SYNTAX, message));
    }
    Ok(column)
}

fn table_constraint(constraint: &TableConstraint) -> Lowered<NewConstraint> {
    match constraint {
        TableConstraint::PrimaryKey(key) => primary_key(key),
        TableConstraint::Unique(key) => unique(key),
        TableConstraint::ForeignKey(_) => Err(SqlError::unsupported("FOREIGN KEY", NO_FOREIGN_KEYS)),
        TableConstraint::Check(_) => Err(SqlError::unsupported("CHECK", NO_CHECKS)),
        TableConstraint::Index(_)
        | TableConstraint::FulltextOrSpatial(_)
        | TableConstraint::PrimaryKeyUsingIndex(_)
        | TableConstraint::UniqueUsingIndex(_) => {
            Err(SqlError::unsupported("an index inside CREATE TABLE", "Write CREATE INDEX afterwards."))
        }
    }
}

fn check_characteristics(characteristics: Option<&ConstraintCharacteristics>) -> Lowered<()> {
    let Some(ConstraintCharacteristics { deferrable, initially, enforced }) = characteristics else { return Ok(()) };
    refuse_if(
        *deferrable == Some(true) || initially.is_some() || enforced.is_some(),
        "a deferrable or unenforced constraint",
        "Constraints are checked at once: leave it out.",
    )
}

fn primary_key(key: &PrimaryKeyConstraint) -> Lowered<NewConstraint> {
    let PrimaryKeyConstraint { name, index_name, index_type, columns, index_options, characteristics } = key;
    check_characteristics(characteristics.as_ref())?;
    refuse_if(
        index_name.is_some() || index_type.is_some() || !index_options.is_empty(),
        "index options of a PRIMARY KEY",
        "Write PRIMARY KEY (columns).",
    )?;
    Ok(NewConstraint { name: name.as_ref().map(fold).transpose()?, primary: true, columns: index_columns(columns)? })
}

fn unique(key: &UniqueConstraint) -> Lowered<NewConstraint> {
    let UniqueConstraint {
        name,
        index_name,
        index_type_display: _,
        index_type,
        columns,
        index_options,
        characteristics,
        nulls_distinct,
    } = key;
    check_characteristics(characteristics.as_ref())?;
    refuse_if(
        matches!(nulls_distinct, NullsDistinctOption::NotDistinct),
        "NULLS NOT DISTINCT",
        "Declare the columns NOT NULL.",
    )?;
    refuse_if(
        index_name.is_some() || index_type.is_some() || !index_options.is_empty(),
        "index options of UNIQUE",
        "Write UNIQUE (columns).",
    )?;
    Ok(NewConstraint { name: name.as_ref().map(fold).transpose()?, primary: false, columns: index_columns(columns)? })
}

fn index_columns(columns: &[IndexColumn]) -> Lowered<Vec<String>> {
    columns
        .iter()
        .map(|IndexColumn { column, operator_class }| {
            refuse_if(operator_class.is_some(), "an operator class", "Leave it out.")?;
            let OrderByExpr { expr, options: OrderByOptions { asc, nulls_first }, with_fill } = column;
            refuse_if(with_fill.is_some(), "WITH FILL", "Leave it out.")?;
            refuse_if(
                *asc == Some(false) || *nulls_first == Some(true),
                "a descending index or NULLS FIRST",
                "Indexes are read in both directions: leave it out.",
            )?;
            match expr {
                Expr::Identifier(ident) => fold(ident),
                other => Err(SqlError::unsupported(format!("an index on the expression {other}"), "Index columns.")),
            }
        })
        .collect()
}

pub(super) fn index(create: &ast::CreateIndex) -> Lowered<Command> {
    let ast::CreateIndex {
        name,
        table_name: table,
        using,
        columns,
        unique,
        concurrently,
        if_not_exists,
        include,
        nulls_distinct,
        with,
        predicate,
        index_options,
        alter_options,
    } = create;
    refuse_if(*concurrently, "CREATE INDEX CONCURRENTLY", "Leave CONCURRENTLY out.")?;
    refuse_if(predicate.is_some(), "a partial index", "Leave WHERE out.")?;
    refuse_if(!include.is_empty(), "INCLUDE", "Leave it out.")?;
    refuse_if(*nulls_distinct == Some(false), "NULLS NOT DISTINCT", "Declare the columns NOT NULL.")?;
    refuse_if(
        !with.is_empty() || !index_options.is_empty() || !alter_options.is_empty(),
        "index options",
        "Write CREATE INDEX name ON table (columns).",
    )?;
    let kind = index_kind(using.as_ref())?;
    if *unique && kind == IndexKind::Inverted {
        let message = "access method \"inverted\" does not support unique indexes";
        let hint = "It is for keys that many rows share: leave USING or UNIQUE out.";
        return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message).hint(hint));
    }
    Ok(Command::CreateIndex(CreateIndexCommand {
        name: name.as_ref().map(simple_name).transpose()?,
        table: table_name(table)?,
        columns: index_columns(columns)?,
        unique: *unique,
        kind,
        if_not_exists: *if_not_exists,
    }))
}

/// What USING names; without it indexes are ordered.
fn index_kind(using: Option<&IndexType>) -> Lowered<IndexKind> {
    let hint = "Write USING btree, hash or inverted, or leave it out: then it is btree.";
    match using {
        None | Some(IndexType::BTree) => Ok(IndexKind::Ordered),
        Some(IndexType::Hash) => Ok(IndexKind::Hash),
        Some(IndexType::Custom(name)) => match fold(name)?.as_str() {
            "inverted" => Ok(IndexKind::Inverted),
            other => {
                let message = format!("access method \"{other}\" does not exist");
                Err(SqlError::new(SqlState::NO_SUCH_OBJECT, message).hint(hint))
            }
        },
        Some(other) => Err(SqlError::unsupported(format!("USING {other}"), hint)),
    }
}

pub(super) fn truncate(truncate: &ast::Truncate) -> Lowered<Command> {
    let ast::Truncate { table_names, partitions, table: _, if_exists, identity, cascade, on_cluster } = truncate;
    refuse_if(
        partitions.is_some()
            || matches!(identity, Some(ast::TruncateIdentityOption::Restart))
            || matches!(cascade, Some(ast::CascadeOption::Cascade))
            || on_cluster.is_some(),
        "an option of TRUNCATE",
        "Write TRUNCATE table.",
    )?;
    let names = table_names
        .iter()
        .map(|target| {
            refuse_if(target.only, "TRUNCATE ONLY", "Leave ONLY out.")?;
            table_name(&target.name)
        })
        .collect::<Lowered<Vec<_>>>()?;
    Ok(Command::Truncate { names, if_exists: *if_exists })
}

pub(super) fn lock_table(lock: &ast::Lock) -> Lowered<Command> {
    let ast::Lock { tables, lock_mode, nowait } = lock;
    let names = tables
        .iter()
        .map(|target| {
            refuse_if(target.only, "LOCK TABLE ONLY", "Leave ONLY out.")?;
            table_name(&target.name)
        })
        .collect::<Lowered<Vec<_>>>()?;
    let mode = match lock_mode {
        Some(ast::LockTableMode::AccessShare) => TableLockMode::AccessShare,
        Some(ast::LockTableMode::RowShare) => TableLockMode::RowShare,
        Some(ast::LockTableMode::RowExclusive) => TableLockMode::RowExclusive,
        Some(ast::LockTableMode::ShareUpdateExclusive) => TableLockMode::ShareUpdateExclusive,
        Some(ast::LockTableMode::Share) => TableLockMode::Share,
        Some(ast::LockTableMode::ShareRowExclusive) => TableLockMode::ShareRowExclusive,
        Some(ast::LockTableMode::Exclusive) => TableLockMode::Exclusive,
        Some(ast::LockTableMode::AccessExclusive) | None => TableLockMode::AccessExclusive,
    };
    Ok(Command::LockTable { names, mode, nowait: *nowait })
}
