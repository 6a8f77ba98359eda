"""Expressions that are numbers. None of them overflows, unless the statement is a risky one."""
from differential_fuzz.literals import number
from differential_fuzz.tree import DOUBLE, INT4, INT8, NUMBERS, Node, Type

RANK = {kind: rank for rank, kind in enumerate(NUMBERS)}
# DuckDB's digits of an integer beside a decimal.
DIGITS = {"int2": 5, "int4": 10, "int8": 19}
SCALE_MAX = 12
BOUND_MAX = 1e25


def as_numeric(of):
    """The numeric type that an integer type is beside numerics."""
    return of if of.kind == "numeric" else Type("numeric", DIGITS[of.kind], 0)


def unified(left, right):
    """The type of two numbers in one column, or None if that is too wide."""
    kind = max(left.kind, right.kind, key=RANK.get)
    if kind != "numeric":
        return Type(kind)
    left, right = as_numeric(left), as_numeric(right)
    scale = max(left.scale, right.scale)
    precision = max(left.precision - left.scale, right.precision - right.scale) + scale
    return Type("numeric", precision, scale) if precision <= 38 else None


def cast(node, of, **facts):
    return Node(f"CAST({{}} AS {of.sql})", (node,), type=of, **{"bound": node.bound, "tiny": node.tiny, **facts})


def to_double(node):
    """Exact where the double is the nearest one in every engine: up to 15 digits."""
    exact = node.type.kind != "numeric" or node.type.precision <= 15
    return cast(node, DOUBLE, tolerance=None if exact else float(node.bound) * 1e-12,
                tiny=min(1.0, 10.0 ** -node.type.scale))


def widened(node, bound):
    """The same number in a type that holds `bound`, if there is one."""
    for of in (node.type, INT8, Type("numeric", 30, 0)):
        if RANK[of.kind] >= RANK[node.type.kind] and of.largest >= bound:
            return node if of == node.type else cast(node, of)
    return None


def binary(context, operator, left, right):
    """left operator right, or left alone if the result would not fit."""
    if "double" in (left.type.kind, right.type.kind):
        return of_doubles(operator, left, right)
    bound = left.bound * right.bound if operator == "*" else left.bound + right.bound
    of = unified(left.type, right.type)
    if of is None or bound > BOUND_MAX:
        return left
    if of.kind == "numeric":
        return of_numerics(context, operator, left, right, bound)
    raises = False
    if bound > of.largest:
        if context.risky:
            raises = True
        else:
            wide = widened(left, bound)
            if wide is None or wide.type.kind == "numeric":
                return left
            left, of = wide, wide.type
    return Node(f"({{}} {operator} {{}})", (left, right), type=of, bound=min(bound, of.largest), raises=raises,
                narrows=True)


def of_numerics(context, operator, left, right, bound):
    first, second = as_numeric(left.type), as_numeric(right.type)
    if operator == "*":
        scale, precision = first.scale + second.scale, first.precision + second.precision
    else:
        scale = max(first.scale, second.scale)
        precision = max(first.precision - first.scale, second.precision - second.scale) + scale + 1
    # DuckDB stays with 64 bits as long as both operands do.
    limit = 18 if max(first.precision, second.precision) <= 18 else 38
    held = Type("numeric", min(precision, limit), scale)
    if scale > SCALE_MAX or precision > 38 or scale >= limit or (held.largest < bound and not context.risky):
        return left
    return Node(f"({{}} {operator} {{}})", (left, right), type=Type("numeric", precision, scale),
                bound=min(bound, held.largest), raises=held.largest < bound, narrows=True)


def of_doubles(operator, left, right):
    left, right = (node if node.type == DOUBLE else to_double(node) for node in (left, right))
    bound = float(left.bound) * float(right.bound) if operator == "*" else float(left.bound) + float(right.bound)
    tiny = left.tiny * right.tiny if operator == "*" else min(left.tiny, right.tiny) * 1e-17
    if bound > 1e250 or tiny < 1e-250 or left.tolerance is not None or right.tolerance is not None:
        return left
    return Node(f"({{}} {operator} {{}})", (left, right), type=DOUBLE, bound=bound, tiny=tiny)


def quotient(context, left, right):
    """A division whose divisor is never zero (rule division-by-zero)."""
    divisor = Node("nullif({}, {})", (right, number(0)), type=right.type)
    if "double" in (left.type.kind, right.type.kind):
        left, right = (node if node.type == DOUBLE else to_double(node) for node in (left, right))
        bound, tiny = float(left.bound) / right.tiny, left.tiny / max(float(right.bound), 1.0)
        if bound > 1e250 or tiny < 1e-250 or left.tolerance is not None or right.tolerance is not None:
            return left
        divisor = Node("nullif({}, {})", (right, number(0)), type=DOUBLE)
        return Node("({} / {})", (left, divisor), type=DOUBLE, bound=bound, tiny=tiny)
    of = unified(left.type, right.type)
    if of is None:
        return left
    if of.kind == "numeric":
        return numeric_quotient(left, right, divisor)
    if left.bound > of.largest:
        return left
    return Node("({} / {})", (left, divisor), type=of, bound=left.bound)


def numeric_quotient(left, right, divisor):
    """Rule quotient: ten digits more than the operands have, or a double."""
    first, second = as_numeric(left.type), as_numeric(right.type)
    if max(first.precision, second.precision) > 13:
        return left
    return Node("CAST({} / {} AS double precision)", (left, divisor), type=DOUBLE,
                bound=float(left.bound) * 10.0 ** second.scale,
                tolerance=1e-9 + float(left.bound) * 10.0 ** second.scale * 1e-13)


def remainder(left, right):
    of = unified(left.type, right.type)
    if of is None or of.kind in ("numeric", "double") or max(left.bound, right.bound) > of.largest:
        return left
    return Node("({} % nullif({}, {}))", (left, right, number(0)), type=of, bound=min(left.bound, right.bound))


def rounded(context, node):
    """round, floor, ceil, trunc and casts that round."""
    if node.type.kind == "double":
        if node.bound < 1e15:
            of = INT8 if node.bound > INT4.largest - 1 else INT4
            return context.pick(
                Node(f"{context.pick('floor', 'ceil', 'trunc')}({{}})", (node,), type=DOUBLE, bound=node.bound + 1),
                cast(node, of, bound=int(node.bound) + 1, narrows=True))
        return node
    if node.type.kind != "numeric":
        return node
    digits = context.rng.randint(0, max(0, node.type.scale))
    bound = node.bound + 1
    narrow = Type("numeric", min(38, node.type.precision + 1), digits)
    choices = [cast(node, narrow, bound=bound, narrows=True)] if narrow.largest > bound else []
    if bound < INT8.largest - 1:
        choices.append(cast(node, INT4 if bound < INT4.largest - 1 else INT8, bound=int(bound), narrows=True))
    if node.type.precision < 18:
        choices.append(Node(f"round({{}}, {digits})", (node,), type=narrow, bound=bound))
        choices.append(Node(f"{context.pick('floor', 'ceil', 'trunc')}({{}})", (node,), bound=bound,
                            type=Type("numeric", node.type.precision + 1, 0)))
    return context.rng.choice(choices) if choices else node


def same_type(left, right):
    """Both in one type, by casts; None if none holds both."""
    of = unified(left.type, right.type)
    if of is None or left.tolerance is not None or right.tolerance is not None:
        return None
    if of.kind == "double":
        left, right = (node if node.type == DOUBLE else to_double(node) for node in (left, right))
        if left.tolerance is not None or right.tolerance is not None:
            return None
    return left, right, of
