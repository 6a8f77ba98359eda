"""Aggregates and window functions."""
from differential_fuzz import expressions, predicates
from differential_fuzz.tree import BOOLEAN, DOUBLE, INT8, NUMBERS, Node, Type, words


def aggregate(context, scope, rows, depth):
    """One of them over at most so many rows, often with FILTER."""
    where = words("")
    if context.chance(0.15):
        where = Node(" FILTER (WHERE {})", (predicates.predicate(context, scope, 0),), droppable=True)
    choice = context.pick("count", "count", "count distinct", "sum", "sum", "sum", "avg", "extreme", "extreme",
                          "boolean", "rows", "spread")
    if choice == "rows":
        return Node("count(*){}", (where,), type=INT8, bound=rows)
    if choice in ("count", "count distinct"):
        argument = expressions.any_expression(context, scope, depth)
        distinct = "DISTINCT " if choice == "count distinct" else ""
        return Node(f"count({distinct}{{}}){{}}", (argument, where), type=INT8, bound=rows)
    if choice == "boolean":
        return Node(f"{context.pick('bool_and', 'bool_or')}({{}}){{}}",
                    (predicates.predicate(context, scope, depth), where), type=BOOLEAN, bound=1)
    if choice == "extreme":
        return extreme(context, scope, where, depth)
    argument = expressions.expression(context, scope, "number", depth)
    if choice == "avg":
        return average(argument, where, rows)
    if choice == "spread":
        return spread(context, argument, where, rows)
    return total(context, argument, where, rows)


def extreme(context, scope, where, depth):
    kinds = {"number" if atom.type.kind in NUMBERS else atom.type.kind for atom in scope.exact()} - {"boolean"}
    argument = expressions.expression(context, scope, context.rng.choice(sorted(kinds) or ["number"]), depth)
    return Node(f"{context.pick('min', 'max')}({{}}){{}}", (argument, where), type=argument.type,
                bound=argument.bound, tiny=argument.tiny, samples=argument.samples)


def total(context, argument, where, rows):
    """A sum, in the type that ERIS gives it (rule width)."""
    distinct = "DISTINCT " if context.chance(0.15) else ""
    bound = argument.bound * max(1, rows)
    if argument.type == DOUBLE:
        bound = float(bound)
        return Node(f"sum({distinct}{{}}){{}}", (argument, where), type=DOUBLE, bound=bound, tolerance=bound * 1e-13)
    if argument.type.kind == "numeric":
        of = Type("numeric", 38, argument.type.scale)
        if bound > of.largest:
            return Node("count({}){}", (argument, where), type=INT8, bound=rows)
        return Node(f"sum({distinct}{{}}){{}}", (argument, where), type=of, bound=bound)
    if bound > INT8.largest and not context.risky:
        return Node("count({}){}", (argument, where), type=INT8, bound=rows)
    raises = bound > INT8.largest
    text = f"CAST(sum({distinct}{{}}){{}} AS bigint)"
    return Node(text if argument.type == INT8 else f"sum({distinct}{{}}){{}}", (argument, where), duckdb=text,
                type=INT8, bound=min(bound, INT8.largest), raises=raises)


def average(argument, where, rows):
    """As a double (rules quotient, sum-of-doubles)."""
    bound = float(argument.bound)
    return Node("CAST(avg({}){} AS double precision)", (argument, where), type=DOUBLE, bound=bound,
                tolerance=1e-9 + bound * max(1, rows) * 1e-14 + bound * 1e-12)


def spread(context, argument, where, rows):
    """Standard deviations and variances: squares of doubles lose half of the digits."""
    name = context.pick("stddev", "stddev_pop", "var_samp", "var_pop")
    if argument.bound > 1e6:
        return Node("count({}){}", (argument, where), type=INT8, bound=rows)
    square = float(argument.bound) ** 2
    return Node(f"CAST({name}({{}}){{}} AS double precision)", (argument, where), type=DOUBLE, bound=square,
                tolerance=1e-6 + square * 1e-9 + float(argument.bound) * 1e-5)


def window(context, scope, rows):
    """A window function whose value does not depend on the order of equal rows."""
    keys = scope.exact()
    if not keys:
        return None
    partition = context.rng.choice(keys) if context.chance(0.7) else None
    order = context.rng.choice(keys)
    clause = " OVER ({}ORDER BY {}{})"
    by = words("") if partition is None else Node("PARTITION BY {} ", (partition,), droppable=True)
    direction = words(context.pick("", " DESC", " NULLS FIRST", " DESC NULLS LAST"), droppable=True)
    choice = context.pick("rank", "rank", "count", "sum", "extreme", "first")
    if choice == "rank":
        return Node(f"{context.pick('rank', 'dense_rank')}(){clause}", (by, order, direction), type=INT8, bound=rows)
    numbers = [atom for atom in keys if atom.type.kind in ("int2", "int4") or
               (atom.type.kind == "numeric" and atom.type.precision < 25)]
    if choice == "sum" and numbers:
        inner = total(context, context.rng.choice(numbers), words(clause), rows)
        if inner.template.startswith("sum(") and "DISTINCT" not in inner.template:
            argument = inner.children[0]
            duckdb = None if inner.duckdb is None else f"CAST(sum({{}}){clause} AS bigint)"
            return Node(f"sum({{}}){clause}", (argument, by, order, direction), duckdb=duckdb, type=inner.type,
                        bound=inner.bound)
    value = context.rng.choice(keys)
    if choice == "extreme" and value.type.kind != "boolean":
        return Node(f"{context.pick('min', 'max')}({{}}){clause}", (value, by, order, direction), type=value.type,
                    bound=value.bound, tiny=value.tiny)
    if choice == "first":
        return Node(f"first_value({{}}){clause}", (order, by, order, direction), type=order.type, bound=order.bound,
                    tiny=order.tiny)
    return Node(f"count({{}}){clause}", (value, by, order, direction), type=INT8, bound=rows)
