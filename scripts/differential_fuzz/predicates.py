"""Conditions: comparisons, lists, patterns, NULLs, truth, subqueries."""
import dataclasses

from differential_fuzz import expressions, numbers, subqueries
from differential_fuzz.literals import quoted
from differential_fuzz.tree import BOOLEAN, DOUBLE, NUMBERS, Items, Node, words

COMPARISONS = ["=", "=", "=", "<>", "<", "<=", ">", ">="]


def of(template, *children):
    return Node(template, children, type=BOOLEAN, bound=1)


def predicate(context, scope, depth):
    """A condition; NULL is one of its values."""
    if depth > 0 and context.chance(0.3):
        left, right = (predicate(context, scope, depth - 1) for _ in range(2))
        return of(f"({{}} {context.pick('AND', 'AND', 'OR')} {{}})", left, right)
    if depth > 0 and context.chance(0.1):
        return of("(NOT {})", predicate(context, scope, depth - 1))
    choices = [comparison, comparison, comparison, between, listed, listed, null_test, pattern, distinct, truth, rows]
    if depth > 0:
        choices += [subqueries.exists, subqueries.membership, subqueries.membership, subqueries.compared,
                    subqueries.quantified, subqueries.row_membership]
    return context.rng.choice(choices)(context, scope, depth)


def kind_in(context, scope):
    """The kind of some column, most often."""
    atoms = scope.exact()
    kind = context.rng.choice(atoms).type.kind if atoms else "number"
    return "number" if kind in NUMBERS else kind


def comparable(context, scope, depth):
    """Two expressions that may be compared."""
    kind = kind_in(context, scope)
    left = expressions.expression(context, scope, kind, depth - 1)
    atoms = scope.of_kind(*(NUMBERS if kind == "number" else [kind]))
    if context.chance(0.6):
        right = expressions.constant(context, [left] if left.samples else atoms, kind)
    else:
        right = expressions.expression(context, scope, kind, depth - 1)
    if kind == "number" and numbers.same_type(left, right) is None:
        return left, left
    return left, right


def comparison(context, scope, depth):
    left, right = comparable(context, scope, depth)
    if context.chance(0.1):
        left, right = right, left
    sign = context.rng.choice(COMPARISONS)
    both = left.role == right.role == "column"
    role = "equality" if sign == "=" and both else None
    return dataclasses.replace(of(f"({{}} {sign} {{}})", left, right), role=role)


def between(context, scope, depth):
    left, low = comparable(context, scope, depth)
    kind = "number" if left.type.is_number else left.type.kind
    high = expressions.constant(context, [left] if left.samples else scope.of_kind(left.type.kind), kind)
    if kind == "number" and (numbers.same_type(left, high) is None or numbers.same_type(low, high) is None):
        high = low
    if len({node.type == DOUBLE for node in (left, low, high)}) > 1:
        left = low = high  # DuckDB compares all three as one type (rule not-generated)
    return of(f"({{}} {context.pick('', '', 'NOT ')}BETWEEN {{}} AND {{}})", left, low, high)


def listed(context, scope, depth):
    """x IN (a, b, ...), with NULL among them at times."""
    left, first = comparable(context, scope, depth)
    kind = "number" if left.type.is_number else left.type.kind
    items = [first]
    for _ in range(context.pick(0, 1, 2, 3, 6, 25 if context.chance(0.2) else 4)):
        item = expressions.constant(context, [left] if left.samples else scope.of_kind(left.type.kind), kind)
        if kind != "number" or (numbers.same_type(left, item) and numbers.same_type(first, item)):
            items.append(item)
    if kind == "number" and any("double" in (left.type.kind, item.type.kind) for item in items):
        # What a list of numerics and doubles is compared as is no common ground.
        items = [item for item in items if item.type.kind == left.type.kind] or [left]
    return of(f"({{}} {context.pick('', '', 'NOT ')}IN ({{}}))", left, Items(children=tuple(items)))


def null_test(context, scope, depth):
    return of(f"({{}} IS {context.pick('', 'NOT ')}NULL)", expressions.any_expression(context, scope, depth - 1))


def pattern(context, scope, depth):
    text = expressions.expression(context, scope, "text", depth - 1)
    samples = [sample for atom in scope.of_kind("text") for sample in atom.samples] or ["abc"]
    sample = context.rng.choice(samples).replace("\\", "_")
    start, length = context.rng.randint(0, max(0, len(sample) - 1)), context.rng.randint(0, 4)
    part = sample[start:start + length]
    # PostgreSQL's escape is the backslash, DuckDB has none (rule not-generated).
    shape = context.pick(f"{sample[:length]}%", f"%{part}%", f"%{part}", f"{part}_%", "%", "_", sample, f"_{part}%",
                         f"%{part[:1]}%{part[1:]}%")
    return of(f"({{}} {context.pick('', 'NOT ')}LIKE {{}})", text, words(quoted(shape)))


def distinct(context, scope, depth):
    left, right = comparable(context, scope, depth)
    return of(f"({{}} IS {context.pick('', 'NOT ')}DISTINCT FROM {{}})", left, right)


def truth(context, scope, depth):
    atoms = scope.of_kind("boolean")
    if not atoms or context.chance(0.5):
        condition = comparison(context, scope, depth)
    else:
        condition = context.rng.choice(atoms)
        if context.chance(0.4):
            return condition
    return of(f"({{}} IS {context.pick('', 'NOT ')}{context.pick('TRUE', 'FALSE', 'UNKNOWN')})", condition)


def rows(context, scope, depth):
    """Rows of two are compared, field by field in DuckDB (rule rows)."""
    (left, low), (right, high) = comparable(context, scope, 0), comparable(context, scope, 0)
    if context.chance(0.5):
        sign, word = context.pick(("=", "AND"), ("<>", "OR"))
        return Node(f"(({{}}, {{}}) {sign} ({{}}, {{}}))", (left, right, low, high), type=BOOLEAN, bound=1,
                    duckdb=f"(({{0}} {sign} {{2}}) {word} ({{1}} {sign} {{3}}))")
    negated = context.pick("", "NOT ")
    return Node(f"(({{}}, {{}}) {negated}IN (({{}}, {{}}), ({{}}, {{}})))", (left, right, low, high, low, right),
                type=BOOLEAN, bound=1, duckdb=f"({negated}((({{0}} = {{2}}) AND ({{1}} = {{3}})) OR "
                                              "(({0} = {4}) AND ({1} = {5}))))")
