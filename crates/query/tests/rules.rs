//! What each rule makes of a query, as pictures.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test fails by panicking")]

use eris_operators::AggregateFunction;
use eris_query::resolve::resolve;
use eris_query::rules::{common_parts, extremes, push_filters, unnested};
use eris_query::{
    Aggregate, AggregateItem, ColumnId, Join, JoinKind, Projected, Relation, Scalar, ScalarKind, ScannedColumn,
    SqlType, TableId, TypedColumn,
};
use eris_storage::{AttributeId, Value};

/// A table of integers with columns from `first` on.
fn scan(table: usize, first: u32, columns: u16) -> Relation {
    let column = |at: u16| ScannedColumn {
        column: ColumnId(first + u32::from(at)),
        attribute: AttributeId(at),
        sql_type: SqlType::Integer,
    };
    Relation::Scan { table: TableId(table), columns: (0..columns).map(column).collect() }
}

fn column(number: u32) -> Scalar {
    Scalar::column(ColumnId(number), SqlType::Integer)
}

fn number(value: i32) -> Scalar {
    Scalar::constant(Value::Int32(value), SqlType::Integer)
}

fn operation(name: &str, left: Scalar, right: Scalar) -> Scalar {
    let operator = resolve(name, &[left.sql_type.kind(), right.sql_type.kind()]).unwrap();
    let sql_type = operator.result.plain();
    Scalar { kind: ScalarKind::Call { operator, operands: vec![left, right] }, sql_type }
}

fn filter(input: Relation, condition: Scalar) -> Relation {
    Relation::Filter { input: Box::new(input), condition }
}

fn join(kind: JoinKind, left: Relation, right: Relation, condition: Option<Scalar>) -> Relation {
    Relation::Join(Box::new(Join { kind, left, right, keys: Vec::new(), condition, null_equal: false }))
}

fn project(input: Relation, items: Vec<(u32, Scalar)>) -> Relation {
    let items = items.into_iter().map(|(column, value)| Projected { column: ColumnId(column), value }).collect();
    Relation::Project { input: Box::new(input), items }
}

/// Sums of values by keys.
fn sums(input: Relation, groups: Vec<(u32, Scalar)>, calls: Vec<(u32, Scalar)>) -> Relation {
    let groups = groups.into_iter().map(|(column, value)| Projected { column: ColumnId(column), value }).collect();
    let calls = calls.into_iter().map(|(column, argument)| AggregateItem {
        result: TypedColumn { column: ColumnId(column), sql_type: SqlType::BigInt },
        function: AggregateFunction::Sum,
        argument: Some(argument),
        distinct: false,
        filter: None,
    });
    Relation::Aggregate(Box::new(Aggregate { input, groups, calls: calls.collect(), sets: None }))
}

#[track_caller]
fn assert_picture(relation: &Relation, expected: &str) {
    let shown = relation.to_string();
    let lines = |text: &str| text.lines().map(|line| line.trim_end().to_string()).collect::<Vec<_>>();
    let indent = expected.lines().nth(1).map_or(0, |line| line.len() - line.trim_start().len());
    let expected: Vec<String> = expected
        .lines()
        .skip(1)
        .filter(|line| !line.trim().is_empty())
        .map(|line| line[indent..].to_string())
        .collect();
    assert_eq!(lines(&shown), expected, "\n{shown}");
}

#[test]
fn conditions_go_to_the_side_that_they_are_about_and_equalities_become_keys() {
    let both = join(JoinKind::Inner, scan(0, 0, 2), scan(1, 2, 2), None);
    let condition = Scalar::and([
        operation("=", column(0), column(2)),
        operation(">", column(1), number(5)),
        operation("<", number(7), column(3)),
        operation("<", column(1), column(3)),
    ]);
    assert_picture(
        &push_filters(filter(both, condition)),
        "
        Join inner, #0 = #2, #1 < #3
          Filter #1 > 5
            Scan 0: #0 #1
          Filter 7 < #3
            Scan 1: #2 #3
        ",
    );
}

#[test]
fn what_is_said_of_a_column_is_said_of_its_equals() {
    let three = join(JoinKind::Inner, join(JoinKind::Inner, scan(0, 0, 1), scan(1, 1, 1), None), scan(2, 2, 1), None);
    let quotient = operation("/", number(10), column(0));
    let condition = Scalar::and([
        operation("=", column(0), column(1)),
        operation("=", column(1), column(2)),
        operation("<", column(2), number(5)),
        operation("=", quotient, number(3)),
    ]);
    // What may be an error is not computed for further rows.
    assert_picture(
        &push_filters(filter(three, condition)),
        "
        Join inner, #1 = #2
          Join inner, #0 = #1
            Filter (10 / #0) = 3 and #0 < 5
              Scan 0: #0
            Filter #1 < 5
              Scan 1: #1
          Filter #2 < 5
            Scan 2: #2
        ",
    );
}

#[test]
fn a_condition_that_drops_nulls_makes_an_outer_join_an_inner_one() {
    let left = |condition| {
        let on = operation("=", column(0), column(2));
        push_filters(filter(join(JoinKind::Left, scan(0, 0, 2), scan(1, 2, 2), Some(on)), condition))
    };
    assert_picture(
        &left(operation(">", column(3), number(1))),
        "
        Join inner, #0 = #2
          Scan 0: #0 #1
          Filter #3 > 1
            Scan 1: #2 #3
        ",
    );
    let is_null = Scalar::condition(ScalarKind::IsNull { input: Box::new(column(3)), negated: false });
    assert_picture(
        &left(is_null.clone()),
        "
        Filter #3 is null
          Join left, #0 = #2
            Scan 0: #0 #1
            Scan 1: #2 #3
        ",
    );
    // One branch of the OR keeps rows without partner.
    assert_picture(
        &left(Scalar::or(vec![operation(">", column(3), number(1)), operation("=", column(1), number(2))])),
        "
        Filter (#3 > 1 or #1 = 2)
          Join left, #0 = #2
            Scan 0: #0 #1
            Scan 1: #2 #3
        ",
    );
    assert_picture(
        &left(is_null.negated()),
        "
        Join inner, #0 = #2
          Scan 0: #0 #1
          Filter not (#3 is null)
            Scan 1: #2 #3
        ",
    );
}

#[test]
fn conditions_of_on_stay_where_they_keep_rows() {
    let on = Scalar::and([
        operation("=", column(0), column(2)),
        operation(">", column(1), number(1)),
        operation(">", column(3), number(2)),
    ]);
    let joined = |kind| push_filters(join(kind, scan(0, 0, 2), scan(1, 2, 2), Some(on.clone())));
    assert_picture(
        &joined(JoinKind::Left),
        "
        Join left, #0 = #2, #1 > 1
          Scan 0: #0 #1
          Filter #3 > 2
            Scan 1: #2 #3
        ",
    );
    assert_picture(
        &joined(JoinKind::Full),
        "
        Join full, #0 = #2, #1 > 1 and #3 > 2
          Scan 0: #0 #1
          Scan 1: #2 #3
        ",
    );
    assert_picture(
        &joined(JoinKind::Anti { null_aware: true }),
        "
        Join not in, #0 = #2, #1 > 1 and #3 > 2
          Scan 0: #0 #1
          Scan 1: #2 #3
        ",
    );
}

#[test]
fn full_joins_lose_the_sides_whose_nulls_are_dropped() {
    let full = |condition| {
        let on = operation("=", column(0), column(2));
        push_filters(filter(join(JoinKind::Full, scan(0, 0, 2), scan(1, 2, 2), Some(on)), condition))
    };
    assert_picture(
        &full(operation(">", column(1), number(1))),
        "
        Join left, #0 = #2
          Filter #1 > 1
            Scan 0: #0 #1
          Scan 1: #2 #3
        ",
    );
    assert_picture(
        &full(operation(">", column(3), number(1))),
        "
        Join left, #2 = #0
          Filter #3 > 1
            Scan 1: #2 #3
          Scan 0: #0 #1
        ",
    );
    assert_picture(
        &full(operation("<", column(1), column(3))),
        "
        Join inner, #0 = #2, #1 < #3
          Scan 0: #0 #1
          Scan 1: #2 #3
        ",
    );
}

#[test]
fn conditions_pass_projections_and_the_keys_of_groups() {
    let doubled = project(scan(0, 0, 2), vec![(5, operation("+", column(0), column(0))), (6, column(1))]);
    let summed = sums(doubled, vec![(7, column(5))], vec![(8, column(6))]);
    let sum = Scalar::column(ColumnId(8), SqlType::BigInt);
    let condition = Scalar::and([operation("=", column(7), number(4)), operation(">", sum, number(9))]);
    assert_picture(
        &push_filters(filter(summed, condition)),
        "
        Filter #8 > 9
          Aggregate #8 = Sum(#6) by #7 = #5
            Project #5 = (#0 + #0), #6 = #1
              Filter (#0 + #0) = 4
                Scan 0: #0 #1
        ",
    );
    // There is a group without rows, which a condition below would not take away.
    let one_group = sums(scan(0, 0, 1), Vec::new(), vec![(8, column(0))]);
    let never = Scalar::constant(Value::Boolean(false), SqlType::Boolean);
    assert_picture(
        &push_filters(filter(one_group, never)),
        "
        Filter false
          Aggregate #8 = Sum(#0) by
            Scan 0: #0
        ",
    );
}

#[test]
fn a_condition_does_not_grow_with_every_projection() {
    let mut relation = scan(0, 0, 1);
    for number in 0..60 {
        let sum = operation("+", column(number), column(number));
        relation = project(relation, vec![(number + 1, sum)]);
    }
    let pushed = push_filters(filter(relation, operation(">", column(60), number(1)))).to_string();
    assert!(pushed.len() < 10_000, "{} bytes", pushed.len());
    assert!(pushed.contains("Filter"), "{pushed}");
}

#[test]
fn what_branches_have_in_common_and_what_they_say_of_one_side_is_known_early() {
    let branch = |one, other| {
        Scalar::and([
            operation("=", column(0), column(2)),
            operation("=", column(1), number(one)),
            operation("=", column(3), number(other)),
        ])
    };
    let both = join(JoinKind::Inner, scan(0, 0, 2), scan(1, 2, 2), None);
    assert_picture(
        &push_filters(filter(both, Scalar::or(vec![branch(1, 2), branch(3, 4)]))),
        "
        Join inner, #0 = #2, (#1 = 1 and #3 = 2 or #1 = 3 and #3 = 4)
          Filter (#1 = 1 or #1 = 3)
            Scan 0: #0 #1
          Filter (#3 = 2 or #3 = 4)
            Scan 1: #2 #3
        ",
    );
}

#[test]
fn parts_that_are_always_computed_are_computed_once() {
    let product = || operation("*", column(0), operation("-", number(1), column(1)));
    let mut next = 20;
    let calls = vec![(10, product()), (11, operation("*", product(), column(2))), (12, column(2))];
    assert_picture(
        &common_parts(sums(scan(0, 0, 3), vec![(9, column(2))], calls), &mut next),
        "
        Aggregate #10 = Sum(#20), #11 = Sum((#20 * #21)), #12 = Sum(#21) by #9 = #21
          Project #20 = (#0 * (1 - #1)), #21 = #2
            Scan 0: #0 #1 #2
        ",
    );
    // A condition may keep an error away from it.
    let guarded = |condition: Scalar| Scalar {
        kind: ScalarKind::Case { branches: vec![(condition, product())], otherwise: None },
        sql_type: SqlType::Integer,
    };
    let items =
        vec![(10, guarded(operation("=", column(0), number(1)))), (11, guarded(operation("=", column(0), number(2))))];
    let relation = project(scan(0, 0, 2), items);
    assert_eq!(common_parts(relation.clone(), &mut next).to_string(), relation.to_string());
}

#[test]
fn the_least_and_the_largest_answer_for_all_rows_of_a_key() {
    let semi = |name: &str, kind| {
        let condition = operation(name, column(3), column(1));
        let mut relation = join(kind, scan(0, 0, 2), scan(1, 2, 2), Some(condition));
        if let Relation::Join(join) = &mut relation {
            join.keys.push((column(0), column(2)));
        }
        extremes(relation, &mut 20)
    };
    assert_picture(
        &semi("<>", JoinKind::Semi),
        "
        Join semi, #0 = #20, (#21 <> #1 or #22 <> #1)
          Scan 0: #0 #1
          Aggregate #21 = Min(#3), #22 = Max(#3) by #20 = #2
            Scan 1: #2 #3
        ",
    );
    assert_picture(
        &semi("<", JoinKind::Anti { null_aware: false }),
        "
        Join anti, #0 = #20, #21 < #1
          Scan 0: #0 #1
          Aggregate #21 = Min(#3) by #20 = #2
            Scan 1: #2 #3
        ",
    );
    assert_picture(
        &semi("=", JoinKind::Semi),
        "
        Join semi, #0 = #2, #3 = #1
          Scan 0: #0 #1
          Scan 1: #2 #3
        ",
    );
}

#[test]
fn conditions_on_rows_outside_are_taken_out_of_a_subquery() {
    // Columns 0 and 1 are outside.
    let condition = Scalar::and([operation("=", column(2), column(0)), operation(">", column(3), number(1))]);
    let (relation, conditions) =
        unnested(project(filter(scan(1, 2, 2), condition.clone()), vec![(5, column(3))]), &mut 20)
            .expect("a condition goes up through a projection");
    assert_eq!(conditions.iter().map(ToString::to_string).collect::<Vec<_>>(), ["#20 = #0"]);
    assert_picture(
        &relation,
        "
        Project #5 = #3, #20 = #2
          Filter #3 > 1
            Scan 1: #2 #3
        ",
    );
    let groups = sums(filter(scan(1, 2, 2), condition), vec![(5, column(3))], Vec::new());
    let (relation, conditions) = unnested(groups, &mut 20).expect("an equality becomes a key");
    assert_eq!(conditions.iter().map(ToString::to_string).collect::<Vec<_>>(), ["#20 = #0"]);
    assert_picture(
        &relation,
        "
        Aggregate  by #5 = #3, #20 = #2
          Filter #3 > 1
            Scan 1: #2 #3
        ",
    );
    let distinct = |condition| Relation::Distinct {
        input: Box::new(filter(scan(1, 2, 2), condition)),
        columns: vec![ColumnId(3)],
    };
    let (relation, _) = unnested(distinct(operation("=", column(0), column(2))), &mut 20).expect("a column is equal");
    assert_picture(
        &relation,
        "
        Distinct #3 #2
          Scan 1: #2 #3
        ",
    );
    // Different values of #2 may have the same remainder: a row outside would see one value of #3 twice.
    let remainder = operation("%", column(2), number(2));
    unnested(distinct(operation("=", remainder, column(0))), &mut 20).expect_err("what is computed is equal");
    let less = filter(scan(1, 2, 2), operation("<", column(2), column(0)));
    unnested(sums(less.clone(), vec![(5, column(3))], Vec::new()), &mut 20).expect_err("an inequality is no key");
    let one = Scalar::constant(Value::Int64(1), SqlType::BigInt);
    let first = Relation::Limit { input: Box::new(less), skip: None, fetch: Some(one) };
    unnested(first, &mut 20).expect_err("each row outside has its own first row");
}
