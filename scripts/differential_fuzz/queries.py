"""Queries: plain and grouped selects, set operations, WITH, order and limit."""
import dataclasses

from differential_fuzz import aggregates, expressions, numbers, predicates, relations
from differential_fuzz.context import Scope, null_of
from differential_fuzz.tree import Items, Node, words


@dataclasses.dataclass
class Query:
    """`outputs` are pairs of name and expression, `rows` the most there may be."""

    node: Node
    outputs: list
    rows: int


def output_items(outputs, types=()):
    """The select list; `types` are those of the result where a set operation decides."""
    types = types or [expression.type for _, expression in outputs]
    return Items(children=tuple(
        dataclasses.replace(expression, template=f"{{}} AS {name}", duckdb=None, children=(expression,), role="output",
                            type=of)
        for (name, expression), of in zip(outputs, types)), role="outputs")


def named(expressions_):
    return [(f"r{at}", expression) for at, expression in enumerate(expressions_)]


def where(context, scope, depth, share=0.6):
    if not context.chance(share):
        return words("")
    return Node(" WHERE {}", (predicates.predicate(context, scope, depth),), role="where", droppable=True)


def plain(context, depth, shared=(), kinds=None):
    """SELECT ... FROM ... WHERE; with `kinds`, of these kinds."""
    found = relations.from_clause(context, depth, shared)
    scope = Scope(found.atoms)
    condition = where(context, scope, depth)
    if kinds is None:
        made = [expressions.any_expression(context, scope, context.pick(0, 0, 1, 2))
                for _ in range(context.rng.randint(1, 5))]
        if context.chance(0.05):
            extra = aggregates.window(context, scope, found.rows)
            made += [extra] if extra else []
        elif context.chance(0.1):
            made = list(found.atoms[:8])
    else:
        made = [expressions.expression(context, scope, kind, context.pick(0, 0, 1)) for kind in kinds]
    exact = all(expression.tolerance is None for expression in made)
    distinct = words("DISTINCT " if exact and context.chance(0.15) else "", droppable=True)
    outputs = named(made)
    node = Node("SELECT {}{} FROM {}{}", (distinct, output_items(outputs), found.node, condition))
    return Query(node, outputs, found.rows)


def grouped(context, depth, shared=()):
    """SELECT ... GROUP BY ... HAVING, or aggregates of all rows."""
    found = relations.from_clause(context, depth, shared)
    scope = Scope(found.atoms)
    condition = where(context, scope, depth)
    keys = []
    for _ in range(context.pick(0, 1, 1, 1, 2, 3)):
        key = expressions.any_expression(context, scope, context.pick(0, 0, 0, 1))
        # A constant is no key in PostgreSQL: a number would be a place.
        if any(node.role == "column" for node in (key, *key.descendants())):
            keys.append(key)
    made = [aggregates.aggregate(context, scope, found.rows, context.pick(0, 0, 1))
            for _ in range(context.rng.randint(1, 4))]
    of_groups = Scope([*keys, *made])
    having = words("")
    if context.chance(0.25):
        having = Node(" HAVING {}", (predicates.predicate(context, of_groups, 0),), droppable=True)
    shown = [*keys, *made]
    if context.chance(0.3):
        shown.append(expressions.any_expression(context, of_groups, 1))
    outputs = named(shown)
    node = Node("SELECT {} FROM {}{}{}{}", (output_items(outputs), found.node, condition,
                                            group_by(context, keys), having))
    return Query(node, outputs, found.rows if keys else 1)


def group_by(context, keys):
    if not keys:
        return words("")
    columns = all(key.role == "column" for key in keys)
    if columns and len(keys) > 1 and context.chance(0.08):
        return Node(f" GROUP BY {context.pick('ROLLUP', 'CUBE')} ({{}})", (Items(children=tuple(keys)),))
    if context.chance(0.6):
        return words(f" GROUP BY {', '.join(str(at + 1) for at in range(len(keys)))}")
    return Node(" GROUP BY {}", (Items(children=tuple(keys)),))


def combined(context, depth, shared=()):
    """UNION, INTERSECT, EXCEPT of two queries."""
    left = plain(context, depth - 1, shared)
    exact = [node for _, node in left.outputs]
    if any(node.tolerance is not None for node in exact):
        return left
    kinds = ["number" if node.type.is_number else node.type.kind for node in exact]
    right = plain(context, depth - 1, shared, kinds)
    operator = context.pick("UNION ALL", "UNION", "UNION", "INTERSECT", "EXCEPT", "INTERSECT ALL", "EXCEPT ALL")
    first, second, facts = [], [], []
    for (_, one), (_, two) in zip(left.outputs, right.outputs):
        fitting = numbers.same_type(one, two) if one.type.is_number else (one, two, one.type)
        one, two, of = fitting or (one, null_of(one.type), one.type)
        first.append(one)
        second.append(two)
        facts.append(Node("", type=of, bound=max(one.bound, two.bound), tiny=min(one.tiny, two.tiny)))
    types = [fact.type for fact in facts]
    sides = [with_outputs(query, made, types) for query, made in ((left, first), (right, second))]
    node = Node(f"{{}} {operator} {{}}", tuple(sides))
    return Query(node, named(facts), left.rows + right.rows)


def with_outputs(query, made, types):
    """The same query with other items."""
    items = output_items(named(made), types)
    children = tuple(items if child.role == "outputs" else child for child in query.node.children)
    return dataclasses.replace(query.node, children=children)


def query(context, depth, shared=()):
    choice = context.pick("plain", "plain", "plain", "grouped", "grouped", "combined")
    if choice == "combined" and depth > 0:
        return combined(context, depth, shared)
    return (plain if choice == "plain" else grouped)(context, depth, shared)


def tail(context, made):
    """ORDER BY and LIMIT; a limit only if the order tells all rows apart that differ."""
    places = list(range(1, len(made.outputs) + 1))
    exact = [at for at in places if made.outputs[at - 1][1].tolerance is None]
    if not exact or context.chance(0.5):
        return words(""), ()
    total = len(exact) == len(places) and context.chance(0.6)
    chosen = context.rng.sample(exact, len(exact) if total else context.rng.randint(1, len(exact)))
    terms = ", ".join(f"{at}{context.pick('', '', ' DESC', ' ASC NULLS FIRST', ' DESC NULLS LAST')}" for at in chosen)
    limit = words("")
    if total and context.chance(0.6):
        offset = f" OFFSET {context.rng.randint(0, 5)}" if context.chance(0.3) else ""
        limit = words(f" LIMIT {context.pick(0, 1, 3, 10, 100)}{offset}", droppable=True)
    return Node(f" ORDER BY {terms}{{}}", (limit,), droppable=True, role="order"), tuple(at - 1 for at in chosen)


def statement(context):
    """A whole query; its node and the places of the columns that it is ordered by."""
    depth = context.pick(0, 1, 1, 2, 2, 3)
    shared, clause = [], words("")
    if depth and context.chance(0.12):
        made = query(context, depth - 1)
        name = context.alias("w")
        shared = [(name, made.outputs, made.rows)]
        clause = Node(f"WITH {name} AS ({{}}) ", (made.node,), role="with")
    made = query(context, depth, shared)
    end, order = tail(context, made)
    return Node("{}{}{}", (clause, made.node, end), role="query"), order
