//! Conditions go down to what they are about.
//!
//! ```text
//!   Filter  #0 = #4 and #1 > 5 and #5 = 'x'        Join   #0 = #4
//!     Join                                           Filter  #1 > 5
//!       Scan  customer  #0, #1              ->         Scan    customer
//!       Scan  orders    #4, #5                       Filter  #5 = 'x'
//!                                                      Scan    orders
//! ```
//! * Of an equality between the two sides of a join each side becomes a key.
//! * A comparison of a column with a constant is one of every column that an inner join makes equal to it.
//! * What all branches of an OR have in common is a condition by itself; and where each branch says something about one
//!   side alone, one of these has to be true there.
//! * A condition that is not true where one side is NULL makes an outer join an inner one.
//! * A condition of an outer join that is about the side whose rows may be missing is one on that side.

use std::collections::BTreeSet;

use eris_storage::Comparison;

use crate::numeric;
use crate::operators::Kernel;
use crate::relation::{Aggregate, Join, JoinKind, Projected, Relation, TypedColumn};
use crate::scalar::{ColumnId, Scalar, ScalarKind, columns_of};
use crate::types::{SqlType, TypeKind};

/// See the module's documentation.
pub fn push_filters(relation: Relation) -> Relation {
    pushed(relation, Vec::new())
}

type Columns = BTreeSet<ColumnId>;

/// A relation below conditions, which go as far down as they can.
fn pushed(relation: Relation, mut conditions: Vec<Scalar>) -> Relation {
    match relation {
        Relation::Filter { input, condition } => {
            let mut all: Vec<Scalar> = condition.into_conjuncts().into_iter().flat_map(factored).collect();
            all.append(&mut conditions);
            pushed(*input, all)
        }
        Relation::Join(join) => joined(*join, conditions),
        Relation::Project { input, items } => {
            let (below, above): (Vec<Scalar>, Vec<Scalar>) =
                conditions.into_iter().partition(|condition| is_movable(condition, &items));
            let below = below.into_iter().map(|condition| before(condition, &items)).collect();
            filtered(Relation::Project { input: Box::new(pushed(*input, below)), items }, above)
        }
        Relation::Aggregate(aggregate) => grouped(*aggregate, conditions),
        Relation::Distinct { input, columns } => {
            Relation::Distinct { input: Box::new(pushed(*input, conditions)), columns }
        }
        Relation::Sort { input, keys, fetch: None } => {
            Relation::Sort { input: Box::new(pushed(*input, conditions)), keys, fetch: None }
        }
        Relation::Union { inputs, columns } => united(inputs, columns, conditions),
        other => filtered(other.map_inputs(&mut push_filters), conditions),
    }
}

/// A relation with conditions directly above it.
fn filtered(relation: Relation, conditions: Vec<Scalar>) -> Relation {
    if conditions.is_empty() {
        return relation;
    }
    Relation::Filter { input: Box::new(relation), condition: Scalar::and(conditions) }
}

/// A condition that becomes larger than this stays above a projection. Projections within each other may double what
/// they are made of each time.
const MOVED_SIZE_MAX: usize = 100;

/// Whether a condition means the same below a projection, and is not much more to compute there.
fn is_movable(condition: &Scalar, items: &[Projected]) -> bool {
    if condition.is_volatile() || condition.has_lowered() {
        return false;
    }
    let mut size = condition.size();
    condition.columns(&mut |column| {
        size += match items.iter().find(|item| item.column == column) {
            Some(item) if !item.value.is_volatile() => item.value.size(),
            _ => MOVED_SIZE_MAX,
        };
    });
    size <= MOVED_SIZE_MAX
}

/// A condition with what a projection computes in the place of its columns.
fn before(condition: Scalar, items: &[Projected]) -> Scalar {
    condition.replaced(&|part| {
        let column = part.as_column()?;
        items.iter().find(|item| item.column == column).map(|item| item.value.clone())
    })
}

/// A condition on the rows of a union is one on those of each of its inputs.
fn united(inputs: Vec<(Relation, Vec<ColumnId>)>, columns: Vec<TypedColumn>, conditions: Vec<Scalar>) -> Relation {
    let (below, above): (Vec<Scalar>, Vec<Scalar>) =
        conditions.into_iter().partition(|condition| !condition.is_volatile() && !condition.has_lowered());
    let inputs = inputs.into_iter().map(|(input, own)| {
        let own_column = |part: &Scalar| {
            let at = columns.iter().position(|known| Some(known.column) == part.as_column())?;
            Some(Scalar::column(own[at], columns[at].sql_type))
        };
        let below = below.iter().map(|condition| condition.clone().replaced(&own_column)).collect();
        (pushed(input, below), own.clone())
    });
    let inputs = inputs.collect();
    filtered(Relation::Union { inputs, columns }, above)
}

/// Conditions on keys alone are conditions on the rows that are grouped.
fn grouped(aggregate: Aggregate, conditions: Vec<Scalar>) -> Relation {
    let Aggregate { input, groups, calls, sets } = aggregate;
    let is_below = |condition: &Scalar| sets.is_none() && condition.has_columns() && is_movable(condition, &groups);
    let (below, above): (Vec<Scalar>, Vec<Scalar>) = conditions.into_iter().partition(is_below);
    let below = below.into_iter().map(|condition| before(condition, &groups)).collect();
    let input = pushed(input, below);
    filtered(Relation::Aggregate(Box::new(Aggregate { input, groups, calls, sets })), above)
}

/// The two sides of a join with the conditions that go down to them.
struct Sides {
    left: Columns,
    right: Columns,
    to_left: Vec<Scalar>,
    to_right: Vec<Scalar>,
    keys: Vec<(Scalar, Scalar)>,
    /// What is about both.
    rest: Vec<Scalar>,
}

impl Sides {
    fn is_left(&self, condition: &Scalar) -> bool {
        columns_of([condition]).is_subset(&self.left)
    }

    fn is_right(&self, condition: &Scalar) -> bool {
        condition.has_columns() && columns_of([condition]).is_subset(&self.right)
    }

    /// Notes a condition of both sides as keys, if it is an equality.
    fn both(&mut self, condition: Scalar) {
        match equal_sides(&condition, &self.left, &self.right) {
            Some(keys) => self.keys.push(keys),
            None => self.rest.push(condition),
        }
    }
}

fn joined(join: Join, conditions: Vec<Scalar>) -> Relation {
    let Join { mut kind, mut left, mut right, keys, condition, null_equal } = join;
    let mut sides = Sides {
        left: left.columns().into_iter().collect(),
        right: right.columns().into_iter().collect(),
        to_left: Vec::new(),
        to_right: Vec::new(),
        keys,
        rest: Vec::new(),
    };
    let drops = |columns: &Columns| conditions.iter().any(|condition| is_not_true(condition, columns));
    let (drops_left, drops_right) = (drops(&sides.left), drops(&sides.right));
    match kind {
        JoinKind::Left if drops_right => kind = JoinKind::Inner,
        JoinKind::Full if drops_left && drops_right => kind = JoinKind::Inner,
        JoinKind::Full if drops_left => kind = JoinKind::Left,
        JoinKind::Full if drops_right => {
            kind = JoinKind::Left;
            std::mem::swap(&mut left, &mut right);
            std::mem::swap(&mut sides.left, &mut sides.right);
            sides.keys.iter_mut().for_each(|(one, other)| std::mem::swap(one, other));
        }
        _ => {}
    }
    let mut above = Vec::new();
    let mut conditions = conditions;
    if kind == JoinKind::Inner && !null_equal {
        let on = condition.iter().flat_map(Scalar::conjuncts);
        let inferred = inferred(&conditions.iter().chain(on).collect::<Vec<_>>(), &sides.keys);
        conditions.extend(inferred);
    }
    for condition in condition.into_iter().flat_map(Scalar::into_conjuncts).flat_map(factored) {
        let to_right = match kind {
            JoinKind::Inner | JoinKind::Left | JoinKind::Semi | JoinKind::Anti { null_aware: false } => {
                sides.is_right(&condition)
            }
            JoinKind::Full | JoinKind::Anti { null_aware: true } | JoinKind::Mark { .. } => false,
        };
        if condition.is_volatile() || null_equal {
            sides.rest.push(condition);
        } else if to_right {
            sides.to_right.push(condition);
        } else if kind == JoinKind::Inner && sides.is_left(&condition) {
            sides.to_left.push(condition);
        } else {
            sides.both(condition);
        }
    }
    for condition in conditions {
        if condition.is_volatile() || kind == JoinKind::Full {
            above.push(condition);
        } else if sides.is_left(&condition) {
            sides.to_left.push(condition);
        } else if kind == JoinKind::Inner && sides.is_right(&condition) {
            sides.to_right.push(condition);
        } else if kind == JoinKind::Inner && !null_equal {
            sides.both(condition);
        } else {
            above.push(condition);
        }
    }
    if kind == JoinKind::Inner {
        for condition in &sides.rest {
            sides.to_left.extend(implied(condition, &sides.left));
            sides.to_right.extend(implied(condition, &sides.right));
        }
    }
    let condition = (!sides.rest.is_empty()).then(|| Scalar::and(sides.rest));
    let (left, right) = (pushed(left, sides.to_left), pushed(right, sides.to_right));
    let join = Join { kind, left, right, keys: sides.keys, condition, null_equal };
    filtered(Relation::Join(Box::new(join)), above)
}

/// More conditions than this are not compared with each other.
const INFERRED_FROM_MAX: usize = 200;

/// Conditions on single columns that hold for the columns that are equal to those.
fn inferred(conditions: &[&Scalar], keys: &[(Scalar, Scalar)]) -> Vec<Scalar> {
    if conditions.len() > INFERRED_FROM_MAX {
        return Vec::new();
    }
    let columns = |one: &Scalar, other: &Scalar| {
        let is_stored_alike = one.sql_type.data_type() == other.sql_type.data_type();
        (is_stored_alike && one.as_column().is_some() && other.as_column().is_some())
            .then(|| (one.clone(), other.clone()))
    };
    let of_conditions = conditions.iter().filter_map(|condition| {
        let (one, other) = equal_values(condition)?;
        columns(one, other)
    });
    let equal: Vec<(Scalar, Scalar)> =
        of_conditions.chain(keys.iter().filter_map(|(one, other)| columns(one, other))).collect();
    let mut inferred: Vec<Scalar> = Vec::new();
    for condition in conditions.iter().filter(|condition| cannot_fail(condition)) {
        let about = columns_of([*condition]);
        let Some(first) = about.first().filter(|_| about.len() == 1) else { continue };
        let mut reached = vec![*first];
        let mut at = 0;
        while let Some(column) = reached.get(at).copied() {
            at += 1;
            for (one, other) in &equal {
                for (from, to) in [(one, other), (other, one)] {
                    let Some(next) = to.as_column().filter(|_| from.as_column() == Some(column)) else { continue };
                    if !reached.contains(&next) {
                        reached.push(next);
                        let moved = (*condition)
                            .clone()
                            .replaced(&|part| (part.as_column() == Some(*first)).then(|| to.clone()));
                        let is_known = |known: &Scalar| known.is_same(&moved);
                        if !conditions.iter().any(|known| is_known(known)) && !inferred.iter().any(is_known) {
                            inferred.push(moved);
                        }
                    }
                }
            }
        }
    }
    inferred
}

/// Whether a condition is no error whatever its columns are: comparisons of them with constants.
fn cannot_fail(condition: &Scalar) -> bool {
    match &condition.kind {
        ScalarKind::Column(_) | ScalarKind::Constant(_) | ScalarKind::Parameter(_) => true,
        ScalarKind::Call { operator, operands } => {
            matches!(operator.kernel, Kernel::Compare(_) | Kernel::Like { .. }) && operands.iter().all(cannot_fail)
        }
        ScalarKind::And(parts) | ScalarKind::Or(parts) => parts.iter().all(cannot_fail),
        ScalarKind::Not(input)
        | ScalarKind::IsNull { input, .. }
        | ScalarKind::IsTruth { input, .. }
        | ScalarKind::InList { input, .. } => cannot_fail(input),
        ScalarKind::Case { .. } | ScalarKind::Cast(_) | ScalarKind::Function { .. } | ScalarKind::Lowered(_) => false,
    }
}

/// The two values of an equality.
fn equal_values(condition: &Scalar) -> Option<(&Scalar, &Scalar)> {
    let ScalarKind::Call { operator, operands } = &condition.kind else { return None };
    match (operator.kernel, operands.as_slice()) {
        (Kernel::Compare(Comparison::Equal), [one, other]) => Some((one, other)),
        _ => None,
    }
}

/// The two values of an equality as one type, if there is one.
pub fn equal_keys(condition: &Scalar) -> Option<(Scalar, Scalar)> {
    let (one, other) = equal_values(condition)?;
    as_keys(one, other)
}

/// The two values of an equality, of which one is about one side and one about the other, as one type.
fn equal_sides(condition: &Scalar, left: &Columns, right: &Columns) -> Option<(Scalar, Scalar)> {
    let (one, other) = equal_values(condition)?;
    let is_of = |scalar: &Scalar, side: &Columns| scalar.has_columns() && columns_of([scalar]).is_subset(side);
    let (one, other) = if is_of(one, left) && is_of(other, right) {
        (one, other)
    } else if is_of(other, left) && is_of(one, right) {
        (other, one)
    } else {
        return None;
    };
    as_keys(one, other)
}

fn as_keys(one: &Scalar, other: &Scalar) -> Option<(Scalar, Scalar)> {
    let sql_type = key_type(one.sql_type, other.sql_type)?;
    let brought = |scalar: &Scalar| {
        if scalar.sql_type.data_type() == sql_type.data_type() { scalar.clone() } else { scalar.clone().cast(sql_type) }
    };
    Some((brought(one), brought(other)))
}

/// The type as which keys of two types are compared.
fn key_type(one: SqlType, other: SqlType) -> Option<SqlType> {
    if one.data_type() == other.data_type() {
        return Some(one);
    }
    let rank = |kind| match kind {
        TypeKind::SmallInt => Some(1),
        TypeKind::Integer => Some(2),
        TypeKind::BigInt => Some(3),
        _ => None,
    };
    match (one.kind(), other.kind()) {
        (TypeKind::Real | TypeKind::Double, TypeKind::Real | TypeKind::Double) => Some(SqlType::Double),
        (TypeKind::Date, TypeKind::Timestamp) | (TypeKind::Timestamp, TypeKind::Date) => Some(SqlType::Timestamp),
        (TypeKind::Numeric, _) | (_, TypeKind::Numeric) => numeric::common(one, other),
        (one_kind, other_kind) => {
            let (one_rank, other_rank) = (rank(one_kind)?, rank(other_kind)?);
            Some(if one_rank > other_rank { one } else { other })
        }
    }
}

/// A condition in parts all of which have to be true: what the branches of an OR have in common, and what is left.
fn factored(condition: Scalar) -> Vec<Scalar> {
    let ScalarKind::Or(branches) = &condition.kind else { return vec![condition] };
    let [first, others @ ..] = branches.as_slice() else { return vec![condition] };
    let is_in = |branch: &Scalar, part: &Scalar| branch.conjuncts().iter().any(|own| own.is_same(part));
    let common: Vec<Scalar> = first
        .conjuncts()
        .iter()
        .filter(|part| !part.is_volatile() && others.iter().all(|branch| is_in(branch, part)))
        .cloned()
        .collect();
    if common.is_empty() {
        return vec![condition];
    }
    let left = |branch: &Scalar| -> Vec<Scalar> {
        let is_common = |part: &&Scalar| common.iter().any(|known| known.is_same(part));
        branch.conjuncts().iter().filter(|part| !is_common(part)).cloned().collect()
    };
    let rest: Vec<Vec<Scalar>> = branches.iter().map(left).collect();
    let mut parts = common.clone();
    if rest.iter().all(|branch| !branch.is_empty()) {
        parts.push(Scalar::or(rest.into_iter().map(Scalar::and).collect()));
    }
    parts
}

/// Of an OR each branch of which says something about one side alone: that one of these has to be true.
fn implied(condition: &Scalar, side: &Columns) -> Option<Scalar> {
    let ScalarKind::Or(branches) = &condition.kind else { return None };
    let of_side = |branch: &Scalar| {
        let is_of = |part: &&Scalar| part.has_columns() && !part.is_volatile() && columns_of([*part]).is_subset(side);
        let parts: Vec<Scalar> = branch.conjuncts().iter().filter(is_of).cloned().collect();
        (!parts.is_empty()).then(|| Scalar::and(parts))
    };
    Some(Scalar::or(branches.iter().map(of_side).collect::<Option<Vec<_>>>()?))
}

/// Whether a condition is false or NULL, or an error, where all of these columns are NULL.
fn is_not_true(condition: &Scalar, columns: &Columns) -> bool {
    match &condition.kind {
        ScalarKind::And(parts) => parts.iter().any(|part| is_not_true(part, columns)),
        ScalarKind::Or(parts) => !parts.is_empty() && parts.iter().all(|part| is_not_true(part, columns)),
        ScalarKind::IsNull { input, negated: true } | ScalarKind::IsTruth { input, negated: false, .. } => {
            is_null(input, columns)
        }
        ScalarKind::Not(input) => is_null(input, columns) || is_true(input, columns),
        _ => is_null(condition, columns),
    }
}

/// Whether a condition is true where all of these columns are NULL.
fn is_true(condition: &Scalar, columns: &Columns) -> bool {
    match &condition.kind {
        ScalarKind::And(parts) => parts.iter().all(|part| is_true(part, columns)),
        ScalarKind::Or(parts) => parts.iter().any(|part| is_true(part, columns)),
        ScalarKind::IsNull { input, negated: false } | ScalarKind::IsTruth { input, negated: true, .. } => {
            is_null(input, columns)
        }
        _ => false,
    }
}

/// Whether a value is NULL where all of these columns are.
fn is_null(scalar: &Scalar, columns: &Columns) -> bool {
    match &scalar.kind {
        ScalarKind::Column(column) => columns.contains(column),
        ScalarKind::Constant(value) => value.is_null(),
        ScalarKind::Call { operands, .. } => operands.iter().any(|operand| is_null(operand, columns)),
        ScalarKind::Not(input)
        | ScalarKind::InList { input, .. }
        | ScalarKind::Function { input, .. }
        | ScalarKind::Cast(input) => is_null(input, columns),
        ScalarKind::Parameter(_)
        | ScalarKind::And(_)
        | ScalarKind::Or(_)
        | ScalarKind::IsNull { .. }
        | ScalarKind::IsTruth { .. }
        | ScalarKind::Case { .. }
        | ScalarKind::Lowered(_) => false,
    }
}
