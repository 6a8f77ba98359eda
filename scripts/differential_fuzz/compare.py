"""Two answers: the same, excused by a rule, or a difference."""
import collections
import dataclasses
import math

from differential_fuzz.sides import Done, Refusal, Rows

# States of errors that depend on which rows were looked at first.
OF_ORDER = {"22003", "22012", "21000"}
TWINS = {"42712", "42702"}
# ERIS must not give these, whatever DuckDB says: an internal error, no memory, no answer, rows that cannot be read.
NEVER = {"XX000", "53200", "57014", None, "?"}
RELATIVE = 1e-9


@dataclasses.dataclass(frozen=True)
class Difference:
    """`kind` stays the same while a case is reduced."""

    kind: str
    words: str


@dataclasses.dataclass(frozen=True)
class Excused:
    rule: str
    words: str = ""


def compare(step, eris, other):
    """None if the answers agree."""
    if isinstance(eris, Refusal):
        return of_refusal(step, eris, other)
    if isinstance(other, Refusal):
        if step.node is not None and step.node.may_raise():
            return Excused("order-of-evaluation")
        return Difference(f"DuckDB only: {other.state}", other.words)
    if isinstance(eris, Done) or isinstance(other, Done):
        same = not isinstance(eris, Rows) and not isinstance(other, Rows) and (
            eris.count == other.count or None in (eris.count, other.count))
        return None if same else Difference("count", f"{eris} and {other}")
    return of_rows(step, eris.rows, other.rows)


def of_refusal(step, eris, other):
    kind = f"ERIS only: {eris.state}"
    if eris.state in NEVER:
        return Difference(f"ERIS: {eris.state}", eris.words)
    if isinstance(other, Refusal):
        return None
    if eris.state == "0A000":
        return Excused("refused", eris.words)
    if eris.state in TWINS:
        return Excused("cast-twins", eris.words)
    if eris.state in OF_ORDER and step.node is not None and step.node.may_raise():
        return Excused("order-of-evaluation", eris.words)
    return Difference(kind, eris.words)


def of_rows(step, eris, other):
    if len(eris) != len(other):
        return Difference("rows", f"{len(eris)} rows and {len(other)} rows")
    outputs = step.node.outputs()
    tolerances = [None if item.type.kind != "double" and item.tolerance is None else item.tolerance or 0.0
                  for item in outputs]
    exact = [at for at, tolerance in enumerate(tolerances) if tolerance is None]
    near = [(at, tolerance) for at, tolerance in enumerate(tolerances) if tolerance is not None]
    if not near:
        left, right = collections.Counter(eris), collections.Counter(other)
        if left != right:
            return Difference("rows", f"only ERIS: {sample(left - right)}; only DuckDB: {sample(right - left)}")
    elif not match(eris, other, exact, near):
        return Difference("rows", f"ERIS: {sample(eris)}; DuckDB: {sample(other)}")
    if step.order and not in_order(step.order, eris, other, dict(near)):
        return Difference("order", f"ERIS: {sample(eris)}; DuckDB: {sample(other)}")
    return None


def sample(rows):
    return str(list(rows)[:3])


def close(one, two, tolerance):
    if one is None or two is None:
        return one is two
    one, two = float(one), float(two)
    return one == two or (math.isnan(one) and math.isnan(two)) or abs(one - two) <= max(
        tolerance, RELATIVE * max(abs(one), abs(two)))


def match(eris, other, exact, near):
    """Whether the rows pair up: equal in the exact columns, close in the others."""
    groups = collections.defaultdict(lambda: ([], []))
    for side, rows in enumerate((eris, other)):
        for row in rows:
            groups[tuple(row[at] for at in exact)][side].append(row)
    return all(len(left) == len(right) and paired(left, right, near) for left, right in groups.values())


def paired(left, right, near):
    def key(row):
        return [(row[at] is None, float(row[at] or 0)) for at, _ in near]

    def fit(one, two):
        return all(close(one[at], two[at], tolerance) for at, tolerance in near)
    left, right = sorted(left, key=key), sorted(right, key=key)
    if all(fit(one, two) for one, two in zip(left, right)):
        return True
    if len(left) > 2000:
        return False
    for one in left:
        found = next((at for at, two in enumerate(right) if fit(one, two)), None)
        if found is None:
            return False
        right.pop(found)
    return True


def in_order(places, eris, other, near):
    """Whether the columns that the query orders by come in the same order."""
    return all(close(one[at], two[at], near[at]) if at in near else one[at] == two[at]
               for one, two in zip(eris, other) for at in places)
