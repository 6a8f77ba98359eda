//! How relations and scalars are shown: a line for each relation, its inputs below it.
//!
//! ```text
//! Join inner, #0 = #4
//!   Scan 0: #0 #1
//!   Filter #5 > 1
//!     Scan 1: #4 #5
//! ```

use std::fmt;

use eris_storage::Value;

use crate::operators::Kernel;
use crate::relation::{AggregateItem, JoinKind, Relation};
use crate::scalar::{ColumnId, Scalar, ScalarKind};

impl fmt::Display for ColumnId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", self.0)
    }
}

impl fmt::Display for Relation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut open = vec![(self, 0)];
        while let Some((relation, depth)) = open.pop() {
            writeln!(f, "{:1$}{2}", "", depth * 2, Line(relation))?;
            open.extend(relation.inputs().into_iter().rev().map(|input| (input, depth + 1)));
        }
        Ok(())
    }
}

/// A relation without its inputs.
struct Line<'r>(&'r Relation);

impl fmt::Display for Line<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Relation::OneRow => f.write_str("OneRow"),
            Relation::Values { columns, rows } => {
                write!(f, "Values {} rows: {}", rows.len(), List(columns.iter().map(|column| column.column), " "))
            }
            Relation::Scan { table, columns } => {
                write!(f, "Scan {}: {}", table.0, List(columns.iter().map(|column| column.column), " "))
            }
            Relation::Filter { condition, .. } => write!(f, "Filter {condition}"),
            Relation::Project { items, .. } => {
                let items = items.iter().map(|item| format!("{} = {}", item.column, item.value));
                write!(f, "Project {}", List(items, ", "))
            }
            Relation::Join(join) => {
                f.write_str("Join ")?;
                match join.kind {
                    JoinKind::Inner => f.write_str("inner")?,
                    JoinKind::Left => f.write_str("left")?,
                    JoinKind::Full => f.write_str("full")?,
                    JoinKind::Semi => f.write_str("semi")?,
                    JoinKind::Anti { null_aware } => f.write_str(if null_aware { "not in" } else { "anti" })?,
                    JoinKind::Mark { column, null_aware } => {
                        write!(f, "mark {column}{}", if null_aware { " in" } else { "" })?;
                    }
                }
                join.keys.iter().try_for_each(|(one, other)| write!(f, ", {one} = {other}"))?;
                join.condition.iter().try_for_each(|condition| write!(f, ", {condition}"))
            }
            Relation::Aggregate(aggregate) => {
                let calls = aggregate.calls.iter().map(|call| format!("{} = {}", call.result.column, Call(call)));
                let groups = aggregate.groups.iter().map(|group| format!("{} = {}", group.column, group.value));
                write!(f, "Aggregate {} by {}", List(calls, ", "), List(groups, ", "))?;
                aggregate.sets.iter().try_for_each(|sets| write!(f, ", {} sets", sets.sets.len()))
            }
            Relation::Window { windows, .. } => {
                let items = windows.iter().flat_map(|window| &window.items);
                write!(f, "Window {}", List(items.map(|item| item.column), " "))
            }
            Relation::Distinct { columns, .. } => write!(f, "Distinct {}", List(columns.iter(), " ")),
            Relation::Sort { keys, fetch, .. } => {
                let keys = keys.iter().map(|key| format!("{}{}", key.value, if key.descending { " desc" } else { "" }));
                write!(f, "Sort {}", List(keys, ", "))?;
                fetch.iter().try_for_each(|rows| write!(f, ", at most {rows} rows"))
            }
            Relation::Limit { skip, fetch, .. } => {
                f.write_str("Limit")?;
                fetch.iter().try_for_each(|rows| write!(f, " {rows}"))?;
                skip.iter().try_for_each(|rows| write!(f, " after {rows}"))
            }
            Relation::Union { columns, .. } => {
                write!(f, "Union {}", List(columns.iter().map(|column| column.column), " "))
            }
        }
    }
}

struct Call<'r>(&'r AggregateItem);

impl fmt::Display for Call<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let AggregateItem { function, argument, distinct, filter, .. } = self.0;
        write!(f, "{function:?}({}", if *distinct { "distinct " } else { "" })?;
        argument.iter().try_for_each(|argument| write!(f, "{argument}"))?;
        f.write_str(")")?;
        filter.iter().try_for_each(|filter| write!(f, " where {filter}"))
    }
}

/// Items with something between them.
struct List<'s, I>(I, &'s str);

impl<I: Iterator<Item: fmt::Display> + Clone> fmt::Display for List<'_, I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, item) in self.0.clone().enumerate() {
            write!(f, "{}{item}", if at > 0 { self.1 } else { "" })?;
        }
        Ok(())
    }
}

impl fmt::Display for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let not = |negated: bool| if negated { "not " } else { "" };
        match &self.kind {
            ScalarKind::Column(column) => write!(f, "{column}"),
            ScalarKind::Constant(Value::Text(text)) => write!(f, "'{text}'"),
            ScalarKind::Constant(value) => write!(f, "{value}"),
            ScalarKind::Parameter(index) => write!(f, "${}", index + 1),
            ScalarKind::Call { operator, operands } => match (operator.kernel, operands.as_slice()) {
                (Kernel::Compare(_), [left, right]) => write!(f, "{left} {} {right}", operator.name),
                (_, [left, right]) => write!(f, "({left} {} {right})", operator.name),
                _ => write!(f, "{}{}", operator.name, List(operands.iter(), ", ")),
            },
            ScalarKind::And(parts) => write!(f, "{}", List(parts.iter(), " and ")),
            ScalarKind::Or(parts) => write!(f, "({})", List(parts.iter(), " or ")),
            ScalarKind::Not(input) => write!(f, "not ({input})"),
            ScalarKind::IsNull { input, negated } => write!(f, "{input} is {}null", not(*negated)),
            ScalarKind::IsTruth { input, truth, negated } => write!(f, "({input}) is {}{truth}", not(*negated)),
            ScalarKind::InList { input, items, negated } => {
                write!(f, "{input} {}in ({})", not(*negated), List(items.iter(), ", "))
            }
            ScalarKind::Case { branches, otherwise } => {
                f.write_str("case")?;
                branches.iter().try_for_each(|(when, then)| write!(f, " when {when} then {then}"))?;
                otherwise.iter().try_for_each(|otherwise| write!(f, " else {otherwise}"))?;
                f.write_str(" end")
            }
            ScalarKind::Cast(input) => write!(f, "{input}::{}", self.sql_type),
            ScalarKind::Function { function, input } => write!(f, "{function:?}({input})"),
            ScalarKind::Lowered(expression) => write!(f, "[{expression}]"),
        }
    }
}
