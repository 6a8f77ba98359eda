"""Subqueries in conditions and as values: EXISTS, IN, ANY, ALL, scalar ones, with and without columns from outside."""
from differential_fuzz import aggregates, expressions, numbers, predicates, relations
from differential_fuzz.context import Scope
from differential_fuzz.tree import BOOLEAN, DOUBLE, NUMBERS, Node, words


def source(context, depth):
    """What a subquery reads: a relation or two that are joined."""
    found = relations.relation(context, depth - 1)
    if context.chance(0.2):
        other = relations.of_table(context, context.rng.choice(context.tables))
        if found.rows * other.rows < relations.PRODUCT_MAX // 10:
            found = relations.joined(context, found, other, 0)
    return found


def where_clause(context, scope, found, depth, correlated, others=False):
    """A condition, with an equality with a column from outside, and other comparisons with such if they may be."""
    conditions = []
    outer = [atom for atom in scope.atoms if atom.role == "column"]
    if correlated and outer:
        equal = relations.equality(context, outer, found.atoms)
        conditions += [equal] if equal else []
        if others and equal and context.chance(0.25):
            pairs = [(one, two) for one in outer for two in found.atoms if relations.fit(one, two)]
            one, two = context.rng.choice(pairs)
            conditions.append(predicates.of(f"({{}} {context.pick('<>', '<', '>=')} {{}})", one, two))
    if context.chance(0.5) or not conditions:
        conditions.append(predicates.predicate(context, Scope(found.atoms), depth - 1))
    text = " AND ".join("{}" for _ in conditions)
    return Node(f" WHERE {text}", tuple(conditions), role="where", droppable=True)


def exists(context, scope, depth):
    if not context.may_nest(depth):
        return predicates.null_test(context, scope, 0)
    found = source(context, depth)
    where = where_clause(context, scope, found, depth, context.chance(0.85), others=True)
    what = context.pick(words("1"), words("*"), context.rng.choice(found.atoms))
    return predicates.of(f"({context.pick('', 'NOT ')}EXISTS (SELECT {{}} FROM {{}}{{}}))", what, found.node, where)


def membership(context, scope, depth):
    """x [NOT] IN (SELECT ...)."""
    return among(context, scope, depth, f"({{}} {context.pick('', 'NOT ')}IN (SELECT {{}} FROM {{}}{{}}))")


def quantified(context, scope, depth):
    """x < ANY (SELECT ...)."""
    sign, quantifier = context.rng.choice(predicates.COMPARISONS[2:]), context.pick("ANY", "SOME", "ALL", "ALL")
    return among(context, scope, depth, f"({{}} {sign} {quantifier} (SELECT {{}} FROM {{}}{{}}))")


def among(context, scope, depth, template):
    """A value and what a subquery selects."""
    if not context.may_nest(depth):
        return predicates.listed(context, scope, 0)
    found = source(context, depth)
    kind = predicates.kind_in(context, Scope(found.atoms))
    left = expressions.expression(context, scope, kind, 1)
    item = expressions.expression(context, Scope(found.atoms), kind, 1)
    if kind == "number" and (numbers.same_type(left, item) is None or DOUBLE in (left.type, item.type)):
        return predicates.listed(context, scope, 0)
    where = words("")
    if context.chance(0.6):
        where = where_clause(context, scope, found, depth, context.chance(0.3))
    return predicates.of(template, left, item, found.node, where)


def row_membership(context, scope, depth):
    """(x, y) [NOT] IN (SELECT ...), of columns; question by question in DuckDB (rule rows)."""
    columns = [atom for atom in scope.atoms if atom.role == "column"]
    if not columns or not context.may_nest(depth):
        return predicates.rows(context, scope, 0)
    found = source(context, depth)
    pairs = [(one, two) for one in columns for two in found.atoms if relations.fit(one, two)]
    if not pairs:
        return predicates.rows(context, scope, 0)
    (left, low), (right, high) = context.rng.choice(pairs), context.rng.choice(pairs)
    where = where_clause(context, scope, found, depth, context.chance(0.3))
    negated = context.pick("", "NOT ")
    rows = "EXISTS (SELECT 1 FROM (SELECT {2} AS c, {3} AS d FROM {4}{5}) r WHERE "
    is_found = f"{rows}{{0}} = r.c AND {{1}} = r.d)"
    may_be = f"{rows}({{0}} = r.c) IS NOT FALSE AND ({{1}} = r.d) IS NOT FALSE)"
    return Node(f"(({{}}, {{}}) {negated}IN (SELECT {{}}, {{}} FROM {{}}{{}}))",
                (left, right, low, high, found.node, where), type=BOOLEAN, bound=1,
                duckdb=f"({negated}(CASE WHEN {is_found} THEN true WHEN {may_be} THEN NULL ELSE false END))")


def compared(context, scope, depth):
    """x < (SELECT ...)."""
    kind = predicates.kind_in(context, scope)
    right = scalar(context, scope, kind, depth)
    left = expressions.expression(context, scope, kind, 1)
    if right is None or (kind == "number" and numbers.same_type(left, right) is None):
        return predicates.comparison(context, scope, 0)
    return predicates.of(f"({{}} {context.rng.choice(predicates.COMPARISONS)} {{}})", left, right)


def scalar(context, scope, kind, depth):
    """A subquery with at most one row, of a kind, or None."""
    if not context.may_nest(depth):
        return None
    found = source(context, depth)
    inner = Scope(found.atoms)
    fitting = inner.of_kind(*(NUMBERS if kind == "number" else [kind]))
    if not fitting:
        return None
    where = where_clause(context, scope, found, depth, context.chance(0.7))
    if context.chance(0.15):
        # The value is the same whichever of equal rows is the first.
        value = context.rng.choice(fitting)
        tail = words(f" ORDER BY 1{context.pick('', ' DESC', ' NULLS FIRST')} LIMIT 1")
        return Node("(SELECT {} FROM {}{}{})", (value, found.node, where, tail), type=value.type, bound=value.bound,
                    tiny=value.tiny)
    for _ in range(4):
        value = aggregates.aggregate(context, inner, found.rows, 1)
        if value.tolerance is None and ("number" if value.type.is_number else value.type.kind) == kind:
            return Node("(SELECT {} FROM {}{})", (value, found.node, where), type=value.type, bound=value.bound,
                        tiny=value.tiny)
    return None
