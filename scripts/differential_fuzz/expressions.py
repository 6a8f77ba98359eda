"""Expressions of any type over what a scope has."""
import datetime
import decimal

from differential_fuzz import numbers, predicates, subqueries
from differential_fuzz.context import null_of
from differential_fuzz.literals import literal, number, quoted
from differential_fuzz.tree import (BOOLEAN, DATE, DOUBLE, INT2, INT4, INT8, NUMBERS, TEXT, TIMESTAMP, Node, Type)

# Dates that are moved stay between the years 1000 and 3000.
MOVED_DAYS_MAX = 300_000
KINDS = ["number", "number", "number", "text", "boolean", "date", "timestamp"]
UNITS = ["year", "month", "day", "quarter", "dow", "doy", "hour", "minute"]


def any_expression(context, scope, depth):
    """Of the kind of some column, as a rule."""
    atoms = scope.exact()
    if atoms and context.chance(0.8):
        kind = context.rng.choice(atoms).type.kind
    else:
        kind = context.pick(*KINDS)
    return expression(context, scope, "number" if kind in NUMBERS else kind, depth)


def expression(context, scope, kind, depth):
    """Of a kind; `number` means any of them. Its tolerance is None."""
    if depth <= 0 or context.chance(0.35):
        return leaf(context, scope, kind)
    if context.chance(0.2):
        return conditional(context, scope, kind, depth - 1)
    made = MAKERS[kind](context, scope, depth - 1)
    return made if made.tolerance is None else leaf(context, scope, kind)


def leaf(context, scope, kind):
    atoms = scope.of_kind(*(NUMBERS if kind == "number" else [kind]))
    if atoms and context.chance(0.85):
        return context.rng.choice(atoms)
    return constant(context, atoms, kind)


def constant(context, atoms, kind):
    """One that a column has, if possible."""
    with_samples = [atom for atom in atoms if atom.samples]
    if with_samples and context.chance(0.7):
        atom = context.rng.choice(with_samples)
        return literal(context.rng.choice(atom.samples), atom.type)
    of = {"text": TEXT, "boolean": BOOLEAN, "date": DATE, "timestamp": TIMESTAMP}.get(kind)
    if context.chance(0.04):
        return null_of(of or INT4)
    rng = context.rng
    if of is None:
        return context.pick(
            number(rng.randint(-3, 10)), number(rng.randint(-1000, 1000)), literal(rng.randint(0, 9), INT2),
            literal(rng.randint(-10 ** 10, 10 ** 10), INT8), literal(rng.randint(-40, 40) / 4, DOUBLE),
            literal(decimal.Decimal(rng.randint(-9999, 9999)).scaleb(-2), Type("numeric", 4, 2)))
    day = datetime.date(1970, 1, 1) + datetime.timedelta(days=rng.randint(-9000, 25000))
    return literal({"text": rng.choice(["", "a", "abc", "b", "日本", "%"]), "boolean": rng.random() < 0.5, "date": day,
                    "timestamp": datetime.datetime(day.year, day.month, day.day, rng.randint(0, 23))}[kind], of)


def pair(context, scope, kind, depth):
    """Two expressions that fit together in one column, and its type."""
    left = expression(context, scope, kind, depth)
    right = expression(context, scope, kind, depth)
    if kind == "number":
        return numbers.same_type(left, right) or (left, left, left.type)
    return left, right, left.type


def conditional(context, scope, kind, depth):
    """CASE, coalesce, nullif, greatest, least."""
    left, right, of = pair(context, scope, kind, depth)
    facts = {"type": of, "bound": max(left.bound, right.bound), "tiny": min(left.tiny, right.tiny)}
    choice = context.pick("case", "case", "coalesce", "nullif", "extreme", "simple case", "no else")
    if choice == "coalesce":
        return Node("coalesce({}, {})", (left, right), **facts)
    if choice == "nullif" and left.type.kind == right.type.kind:
        # Of two types PostgreSQL and ERIS give the wider one, DuckDB the first.
        return Node("nullif({}, {})", (left, right), **{**facts, "type": left.type, "bound": left.bound})
    if choice == "extreme":
        return Node(f"{context.pick('greatest', 'least')}({{}}, {{}})", (left, right), **facts)
    if choice == "simple case":
        subject = expression(context, scope, "number", 0)
        if subject.type.kind in ("int2", "int4", "int8"):
            one, two = (number(context.rng.randint(-2, 9)) for _ in range(2))
            return Node("CASE {} WHEN {} THEN {} WHEN {} THEN {} ELSE {} END", (subject, one, left, two, right, left),
                        **facts)
    condition = predicates.predicate(context, scope, depth)
    if choice == "no else":
        other = predicates.predicate(context, scope, depth - 1)
        return Node("CASE WHEN {} THEN {} WHEN {} THEN {} END", (condition, left, other, right), **facts)
    return Node("CASE WHEN {} THEN {} ELSE {} END", (condition, left, right), **facts)


def a_number(context, scope, depth):
    choice = context.pick("arithmetic", "arithmetic", "arithmetic", "divide", "remainder", "round", "sign", "abs",
                          "length", "extract", "days", "minus", "subquery")
    if choice == "subquery":
        return subqueries.scalar(context, scope, "number", depth) or leaf(context, scope, "number")
    if choice in ("length", "extract", "days"):
        return integer_of(context, scope, depth, choice)
    left = expression(context, scope, "number", depth)
    if choice == "round":
        return numbers.rounded(context, left)
    if choice == "sign":
        return Node("CAST(sign({}) AS integer)", (left,), type=INT4, bound=1)
    if choice in ("abs", "minus"):
        if left.type.kind in ("int2", "int4", "int8") and left.bound > left.type.largest:
            return left
        return Node("abs({})" if choice == "abs" else "(- {})", (left,), type=left.type, bound=left.bound,
                    tiny=left.tiny)
    right = expression(context, scope, "number", depth)
    if choice == "divide":
        return numbers.quotient(context, left, right)
    if choice == "remainder":
        return numbers.remainder(left, right)
    return numbers.binary(context, context.pick("+", "-", "*"), left, right)


def integer_of(context, scope, depth, choice):
    """An integer that says something of a text or a date (rule width)."""
    if choice == "length":
        text = expression(context, scope, "text", depth)
        return Node("length({})", (text,), duckdb="CAST(length({}) AS integer)", type=INT4, bound=text.bound)
    if choice == "extract":
        kind = context.pick("date", "timestamp")
        when = expression(context, scope, kind, depth)
        unit = context.pick(*(UNITS[:6] if kind == "date" else UNITS))
        return Node(f"CAST(extract({unit} FROM {{}}) AS integer)", (when,), type=INT4, bound=9999)
    first, second = (expression(context, scope, "date", depth) for _ in range(2))
    return Node("({} - {})", (first, second), duckdb="CAST({} - {} AS integer)", type=INT4,
                bound=first.bound + second.bound)


def a_text(context, scope, depth):
    text = expression(context, scope, "text", depth)
    choice = context.pick("join", "case", "substring", "trim", "replace", "left", "cast", "position", "concat")
    if choice == "join":
        other = expression(context, scope, "text", depth)
        bound = text.bound + other.bound
        return Node("({} || {})", (text, other), type=TEXT, bound=bound) if bound < 500 else text
    if choice == "case":
        return Node(f"{context.pick('upper', 'lower')}({{}})", (text,), type=TEXT, bound=text.bound)
    if choice == "substring":
        start, length = context.rng.randint(1, 6), context.rng.randint(0, 5)
        return Node(f"substring({{}} FROM {start} FOR {length})", (text,), type=TEXT, bound=length)
    if choice == "trim":
        return Node(f"{context.pick('trim', 'ltrim', 'rtrim')}({{}})", (text,), type=TEXT, bound=text.bound)
    if choice == "replace":
        old, new = context.pick("a", "ab", "日", "x"), context.pick("", "b", "zz")
        return Node(f"replace({{}}, {quoted(old)}, {quoted(new)})", (text,), type=TEXT, bound=text.bound * 2)
    if choice == "left":
        return Node(f"{context.pick('left', 'right')}({{}}, {context.rng.randint(0, 5)})", (text,), type=TEXT, bound=5)
    if choice == "cast":
        atom = leaf(context, scope, context.pick("number", "boolean", "date", "timestamp"))
        # Doubles as text and years of fewer than four digits are no common ground (rule not-generated).
        if atom.type.kind != "double" and (atom.type.kind not in ("date", "timestamp") or atom.bound < MOVED_DAYS_MAX):
            return Node("CAST({} AS text)", (atom,), type=TEXT, bound=40)
    if choice == "concat":
        return Node("concat({}, '-', {})", (text, expression(context, scope, "text", 0)), type=TEXT,
                    bound=text.bound * 2 + 1)
    return text


def a_date(context, scope, depth):
    kind = context.pick("date", "timestamp")
    when = expression(context, scope, kind, depth)
    if kind == "timestamp":
        return Node("CAST({} AS date)", (when,), type=DATE, bound=when.bound)
    if when.bound > MOVED_DAYS_MAX - 10_000:
        return when
    if context.chance(0.5):
        days = context.rng.randint(-1000, 1000)
        return Node(f"({{}} {'-' if days < 0 else '+'} {{}})", (when, number(abs(days))), type=DATE,
                    bound=when.bound + 1000)
    return Node(f"CAST({{}} {context.pick('+', '-')} {interval(context)} AS date)", (when,), type=DATE,
                bound=when.bound + 9000)


def interval(context):
    unit = context.pick("day", "day", "month", "month", "year", "hour")
    return f"INTERVAL '{context.rng.randint(1, 24)} {unit}'"


def a_timestamp(context, scope, depth):
    kind = context.pick("date", "timestamp", "timestamp")
    when = expression(context, scope, kind, depth)
    if kind == "timestamp" and context.chance(0.4) and when.bound < MOVED_DAYS_MAX:
        unit = context.pick("year", "quarter", "month", "week", "day", "hour", "minute", "second")
        return Node(f"date_trunc('{unit}', {{}})", (when,), type=TIMESTAMP, bound=when.bound + 366)
    if context.chance(0.5) and when.bound < MOVED_DAYS_MAX - 10_000:
        # Rule moved-dates.
        return Node(f"CAST({{}} {context.pick('+', '-')} {interval(context)} AS timestamp)", (when,), type=TIMESTAMP,
                    bound=when.bound + 9000)
    if kind == "date":
        return Node("CAST({} AS timestamp)", (when,), type=TIMESTAMP, bound=when.bound + 1)
    return when


def a_boolean(context, scope, depth):
    return predicates.predicate(context, scope, depth)


MAKERS = {"number": a_number, "text": a_text, "date": a_date, "timestamp": a_timestamp, "boolean": a_boolean}
