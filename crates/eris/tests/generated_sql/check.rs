//! Runs a case on a target and holds it against the model, statement by statement.

use std::collections::BTreeSet;
use std::fmt::Write;

use crate::evaluate::Mistake;
use crate::expression::{Expr, Node, Test};
use crate::generate::Case;
use crate::model::{Answer, Expected, Model};
use crate::query::{Body, Query, Statement};
use crate::run::ordered;
use crate::target::{Failure, Reply, Target};
use crate::value::{
    DIVISION_BY_ZERO, DUPLICATE_KEY, Decimal, Kind, MANY_ROWS, NOT_NULL, OVERFLOW, Row, State, TOO_LONG, Value,
    canonical_row,
};

/// What a case did, for the summary of a run.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    pub statements: usize,
    pub errors: usize,
    /// Statements that were refused as not supported: what, for the summary.
    pub refused: Vec<String>,
}

/// A statement that did something else than it should.
#[derive(Clone, Debug)]
pub struct Problem {
    /// Its position; all statements before it were right.
    pub at: usize,
    pub text: String,
}

pub fn check(
    case: &Case,
    target: &mut dyn Target,
    mistake: Option<Mistake>,
    counts: &mut Counts,
) -> Result<(), Problem> {
    for table in &case.tables {
        for sql in table.create(target.is_eris()) {
            target.run(&sql).map_err(|failure| Problem { at: 0, text: format!("{sql}\n  {failure:?}") })?;
        }
    }
    let mut model = Model::new(&case.tables, mistake);
    for (at, statement) in case.statements.iter().enumerate() {
        counts.statements += 1;
        if !step(case, target, &mut model, statement, counts).map_err(|text| Problem { at, text })? {
            break;
        }
    }
    Ok(())
}

type Checked = Result<(), String>;

/// One statement; `false`: the model cannot follow any further.
fn step(
    case: &Case,
    target: &mut dyn Target,
    model: &mut Model<'_>,
    statement: &Statement,
    counts: &mut Counts,
) -> Result<bool, String> {
    let sql = statement.to_string();
    let (expected, rows) = model.expect(statement, false);
    let reply = match statement {
        Statement::Elsewhere(_) => target.run_elsewhere(&sql),
        _ => target.run(&sql),
    };
    if let Err(failure) = &reply {
        counts.errors += 1;
        if failure.state == "0A000" {
            counts.refused.push(format!("{}\n  {sql}", failure.message));
            // A block that it spoiled is over for the model, too.
            model.apply(statement, Err("0A000"));
            return Ok(true);
        }
    }
    let outcome = compare(target.is_eris(), statement, &expected, &reply, || model.expect(statement, true).0);
    outcome.map_err(|text| format!("{sql}\n{text}"))?;
    // It went well where it may fail: what it changed is not known.
    if reply.is_ok() && expected.result.is_err() && !matches!(statement, Statement::Query(_) | Statement::Elsewhere(_))
    {
        return Ok(false);
    }
    let failed = reply.is_err();
    model.apply(statement, if failed { Err("failed") } else { Ok(rows) });
    if failed {
        return Ok(true);
    }
    let checked = match statement {
        Statement::Query(_) | Statement::Elsewhere(_) => other_lane(target, model, statement, &sql, &expected),
        Statement::Partition(query, condition) => partition(target, &sql, query, condition),
        Statement::Insert { table, .. } | Statement::Update { table, .. } | Statement::Delete { table, .. } => {
            whole_table(case, target, model, *table).map_err(|text| format!("{sql}\n{text}"))
        }
        Statement::Begin | Statement::Commit | Statement::Rollback => Ok(()),
    };
    checked.map(|()| true)
}

/// The same query in the fallback lane.
fn other_lane(
    target: &mut dyn Target,
    model: &mut Model<'_>,
    statement: &Statement,
    sql: &str,
    expected: &Expected,
) -> Checked {
    if !target.set_native(false) {
        return Ok(());
    }
    let reply = match statement {
        Statement::Elsewhere(_) => target.run_elsewhere(sql),
        _ => target.run(sql),
    };
    target.set_native(true);
    compare(true, statement, expected, &reply, || model.expect(statement, true).0)
        .map_err(|text| format!("SET native = off; {sql}\n{text}"))?;
    // Where an error is possible, one lane may meet it and the other not.
    if reply.is_err() {
        model.apply(statement, Err("failed"));
    }
    Ok(())
}

/// What remains in a table after a change, read by a scan.
fn whole_table(case: &Case, target: &mut dyn Target, model: &Model<'_>, table: usize) -> Checked {
    let schema = &case.tables[table];
    let kinds: Vec<Kind> = schema.columns.iter().map(|column| column.declared.kind()).collect();
    let sql = format!("SELECT * FROM {}", schema.name);
    let reply = target.run(&sql).map_err(|failure| format!("{sql}\n{failure:?}"))?;
    let rows = parsed(&reply, &kinds)?;
    same_rows(target.is_eris(), model.rows(table), &rows).map_err(|text| format!("{sql}\n{text}"))
}

/// Ternary logic partitioning (Rigger and Su, 2020): a condition is true, false or unknown for every row.
fn partition(target: &mut dyn Target, sql: &str, query: &Query, condition: &Expr) -> Checked {
    let Body::Select(select) = &query.body else { return Ok(()) };
    let kinds = query.body.kinds();
    let conditions = [
        condition.clone(),
        Expr::new(Kind::Bool, Node::Not(Box::new(condition.clone()))),
        Expr::new(Kind::Bool, Node::Is(Test::Null, Box::new(condition.clone()))),
    ];
    let parts: Vec<String> = conditions
        .into_iter()
        .map(|condition| {
            let mut select = select.clone();
            select.filter = Some(condition);
            select.to_string()
        })
        .collect();
    let divided = parts.join(" UNION ALL ");
    // An error in the condition says nothing. It would end an open block, so the other session is asked, for both.
    match target.run_elsewhere(&divided) {
        Err(_) => Ok(()),
        Ok(reply) => {
            let there = target.run_elsewhere(sql).map_err(|failure| format!("{sql}\n{failure:?}"))?;
            let there = parsed(&there, &kinds)?;
            same_rows(true, &there, &parsed(&reply, &kinds)?)
                .map_err(|text| format!("{sql}\nis not the same as\n{divided}\n{text}"))
        }
    }
}

fn compare(
    is_eris: bool,
    statement: &Statement,
    expected: &Expected,
    reply: &Result<Reply, Failure>,
    eager: impl FnOnce() -> Expected,
) -> Checked {
    match (reply, &expected.result) {
        (Err(failure), _) => {
            let state = failure.state.as_str();
            let other = expected.result.is_err() && other_errors(statement, expected.strict).contains(&state);
            if other || expected.noted.contains(state) || eager().noted.contains(state) {
                return Ok(());
            }
            Err(format!("  fails: {} {}\n  expected: {}", state, failure.message, described(expected)))
        }
        // PostgreSQL's sums of bigints are numerics.
        (Ok(_), Err(state)) if !expected.strict || (!is_eris && *state == OVERFLOW) => Ok(()),
        (Ok(_), Err(_)) => Err(format!("  succeeds\n  expected: {}", described(expected))),
        (Ok(reply), Ok(Answer::Changed(count))) if reply.changed != *count => {
            Err(format!("  changes {} rows instead of {count}", reply.changed))
        }
        (Ok(reply), Ok(Answer::Rows(rows))) => {
            let (Statement::Query(query) | Statement::Elsewhere(query) | Statement::Partition(query, _)) = statement
            else {
                return Ok(());
            };
            let found = parsed(reply, &query.body.kinds())?;
            same_rows(is_eris, rows, &found)?;
            let sorted = found.is_sorted_by(|left, right| ordered(query, left, right).is_le());
            if sorted { Ok(()) } else { Err(format!("  in the wrong order:\n{}", listed(&found))) }
        }
        (Ok(_), Ok(_)) => Ok(()),
    }
}

/// Where a statement has to fail, the errors that may come before those that the evaluator met: rows are stored while
/// others are still computed, and parts of a query run in any order.
fn other_errors(statement: &Statement, strict: bool) -> &'static [State] {
    match statement {
        Statement::Insert { .. } | Statement::Update { .. } => {
            &[OVERFLOW, DIVISION_BY_ZERO, TOO_LONG, NOT_NULL, DUPLICATE_KEY]
        }
        _ if strict => &[],
        _ => &[OVERFLOW, DIVISION_BY_ZERO, MANY_ROWS],
    }
}

fn described(expected: &Expected) -> String {
    match &expected.result {
        Ok(Answer::Rows(rows)) => format!("rows (or errors {:?})\n{}", expected.noted, listed(rows)),
        other => format!("{other:?} (or errors {:?})", expected.noted),
    }
}

fn parsed(reply: &Reply, kinds: &[Kind]) -> Result<Vec<Row>, String> {
    let value = |(text, kind): (&Option<String>, &Kind)| match text {
        None => Ok(Value::Null),
        Some(text) => Value::parse(*kind, text).ok_or_else(|| format!("  {text:?} is not written as {kind:?}")),
    };
    let row = |row: &Vec<Option<String>>| {
        if row.len() != kinds.len() {
            return Err(format!("  {} columns instead of {}", row.len(), kinds.len()));
        }
        row.iter().zip(kinds).map(value).collect()
    };
    reply.rows.iter().map(row).collect()
}

/// The rows in any order. Averages have other digits in PostgreSQL, so that numerics are rounded there.
fn same_rows(is_eris: bool, expected: &[Row], found: &[Row]) -> Checked {
    let text = |row: &Row| {
        let rounded = |value: &Value| match value {
            Value::Numeric(Decimal { digits, scale }) if !is_eris && *scale > 6 => {
                Value::Numeric(Decimal { digits: *digits, scale: *scale }.rounded(6))
            }
            other => other.clone(),
        };
        canonical_row(&row.iter().map(rounded).collect::<Row>())
    };
    let mut expected: Vec<String> = expected.iter().map(text).collect();
    let mut found: Vec<String> = found.iter().map(text).collect();
    expected.sort();
    found.sort();
    if expected == found {
        return Ok(());
    }
    let known = |list: &[String]| list.iter().cloned().collect::<BTreeSet<String>>();
    let (wanted, there) = (known(&expected), known(&found));
    let mut text = format!("  {} rows instead of {}\n", found.len(), expected.len());
    for missing in wanted.difference(&there).take(8) {
        let _ = writeln!(text, "  missing: {missing}");
    }
    for unexpected in there.difference(&wanted).take(8) {
        let _ = writeln!(text, "  not expected: {unexpected}");
    }
    Err(text)
}

fn listed(rows: &[Row]) -> String {
    let rows: Vec<String> = rows.iter().take(12).map(|row| format!("  {}", canonical_row(row))).collect();
    rows.join("\n")
}
