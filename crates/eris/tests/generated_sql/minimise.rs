//! A failing case made smaller: statements that are not needed go, then parts of the others.

use crate::check::Problem;
use crate::expression::Expr;
use crate::generate::Case;
use crate::query::{Body, InsertSource, Query, Select, Statement};

/// Runs that one case is worth.
const RUNS_MAX: usize = 400;

/// The smaller case, and how it fails.
pub fn minimise(case: &Case, problem: Problem, fails: &mut dyn FnMut(&Case) -> Option<Problem>) -> (Case, Problem) {
    let mut smallest = Smallest { case: case.clone(), problem, runs: 0 };
    smallest.truncate();
    let mut size = smallest.case.statements.len() / 2;
    while size > 0 {
        let mut start = 0;
        // The last statement is the one that fails.
        while start + size < smallest.case.statements.len() {
            let mut without = smallest.case.clone();
            without.statements.drain(start..start + size);
            if !smallest.try_one(without, fails) {
                start += size;
            }
        }
        size /= 2;
    }
    while smallest.make_a_statement_smaller(fails) {}
    (smallest.case, smallest.problem)
}

struct Smallest {
    case: Case,
    problem: Problem,
    runs: usize,
}

impl Smallest {
    fn truncate(&mut self) {
        self.case.statements.truncate(self.problem.at + 1);
    }

    fn try_one(&mut self, case: Case, fails: &mut dyn FnMut(&Case) -> Option<Problem>) -> bool {
        if self.runs >= RUNS_MAX {
            return false;
        }
        self.runs += 1;
        let Some(problem) = fails(&case) else { return false };
        (self.case, self.problem) = (case, problem);
        self.truncate();
        true
    }

    fn make_a_statement_smaller(&mut self, fails: &mut dyn FnMut(&Case) -> Option<Problem>) -> bool {
        for at in (0..self.case.statements.len()).rev() {
            for statement in smaller(&self.case.statements[at]) {
                let mut case = self.case.clone();
                case.statements[at] = statement;
                if self.try_one(case, fails) {
                    return true;
                }
            }
        }
        false
    }
}

fn smaller(statement: &Statement) -> Vec<Statement> {
    let mut list = Vec::new();
    match statement {
        Statement::Query(query) => list.extend(smaller_query(query).into_iter().map(Statement::Query)),
        Statement::Elsewhere(query) => list.extend(smaller_query(query).into_iter().map(Statement::Elsewhere)),
        Statement::Partition(query, condition) => {
            list.extend(
                smaller_exprs(condition).into_iter().map(|smaller| Statement::Partition(query.clone(), smaller)),
            );
        }
        Statement::Insert { source: InsertSource::Values(rows), .. } if rows.len() > 1 => {
            for half in [&rows[..rows.len() / 2], &rows[rows.len() / 2..]] {
                let mut smaller = statement.clone();
                if let Statement::Insert { source, .. } = &mut smaller {
                    *source = InsertSource::Values(half.to_vec());
                }
                list.push(smaller);
            }
        }
        Statement::Update { sets, filter, .. } => {
            for without in (0..sets.len()).filter(|_| sets.len() > 1) {
                let mut smaller = statement.clone();
                if let Statement::Update { sets, .. } = &mut smaller {
                    sets.remove(without);
                }
                list.push(smaller);
            }
            for at in 0..sets.len() {
                for value in smaller_exprs(&sets[at].2).into_iter().filter(|value| value.kind == sets[at].2.kind) {
                    let mut smaller = statement.clone();
                    if let Statement::Update { sets, .. } = &mut smaller {
                        sets[at].2 = value;
                    }
                    list.push(smaller);
                }
            }
            list.extend(smaller_filters(statement, filter.as_ref()));
        }
        Statement::Delete { filter, .. } => list.extend(smaller_filters(statement, filter.as_ref())),
        _ => {}
    }
    list
}

fn smaller_filters(statement: &Statement, filter: Option<&Expr>) -> Vec<Statement> {
    let with = |new: Expr| {
        let mut smaller = statement.clone();
        if let Statement::Update { filter, .. } | Statement::Delete { filter, .. } = &mut smaller {
            *filter = Some(new);
        }
        smaller
    };
    filter.into_iter().flat_map(smaller_exprs).map(with).collect()
}

fn smaller_query(query: &Query) -> Vec<Query> {
    let mut list = Vec::new();
    if !query.order.is_empty() {
        list.push(Query { body: query.body.clone(), order: Vec::new(), limit: None, offset: None });
        return list;
    }
    match &query.body {
        Body::Set(_, left, right) => {
            list.extend([left, right].map(|body| Query { body: (**body).clone(), ..query.clone() }));
        }
        Body::Select(select) => list.extend(smaller_selects(select).into_iter().map(Query::of)),
    }
    list
}

fn smaller_selects(select: &Select) -> Vec<Select> {
    let mut list = Vec::new();
    let mut push = |change: &dyn Fn(&mut Select)| {
        let mut smaller = select.clone();
        change(&mut smaller);
        list.push(smaller);
    };
    if select.filter.is_some() {
        push(&|select| select.filter = None);
    }
    // Without an aggregate it would not be one group any more.
    let whole_group = select.group.as_ref().is_some_and(Vec::is_empty);
    if select.having.is_some() && !whole_group {
        push(&|select| select.having = None);
    }
    if select.distinct {
        push(&|select| select.distinct = false);
    }
    for at in (0..select.items.len()).filter(|_| select.items.len() > 1 && !whole_group) {
        push(&|select| {
            select.items.remove(at);
        });
    }
    for filter in select.filter.iter().flat_map(smaller_exprs) {
        push(&|select| select.filter = Some(filter.clone()));
    }
    // The items of groups are keys: these stay as they are.
    for at in (0..select.items.len()).filter(|_| select.group.is_none()) {
        for item in smaller_exprs(&select.items[at]) {
            push(&|select| select.items[at] = item.clone());
        }
    }
    list
}

/// A part of the same type in place of the whole, at any depth.
fn smaller_exprs(expr: &Expr) -> Vec<Expr> {
    let mut list: Vec<Expr> = expr.children().into_iter().filter(|child| child.kind == expr.kind).cloned().collect();
    for (at, child) in expr.children().into_iter().enumerate() {
        for smaller in smaller_exprs(child) {
            let mut whole = expr.clone();
            *whole.children_mut()[at] = smaller;
            list.push(whole);
        }
    }
    list
}
