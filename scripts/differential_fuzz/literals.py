"""Constants in both dialects."""
import decimal

from differential_fuzz.tree import DATE, INT2, INT4, INT8, TIMESTAMP, Type, words


def quoted(text):
    return "'" + text.replace("'", "''") + "'"


def literal(value, of):
    """A value of a type, as a constant expression; of integers its own type is that of PostgreSQL's literal."""
    if value is None:
        return words(f"CAST(NULL AS {of.sql})", type=of)
    if of.kind in ("int2", "int4", "int8"):
        return integer(value, of)
    if of.kind == "numeric":
        text = format(value, "f")
        shown = f"({text})" if text.startswith("-") else text
        digits = len(text.lstrip("-").replace(".", "").lstrip("0")) or 1
        scale = len(text.partition(".")[2])
        own = Type("numeric", max(digits, scale), scale)
        if "." not in text:
            shown = f"CAST({text} AS {own.sql})"
        return words(shown, type=own, bound=abs(value))
    if of.kind == "double":
        return words(f"CAST('{value!r}' AS double precision)", type=of, bound=abs(value), tiny=abs(value) or 1)
    if of.kind == "text":
        return words(quoted(value), type=of, bound=len(value))
    if of.kind == "boolean":
        return words("true" if value else "false", type=of, bound=1)
    return moment(value, of)


def integer(value, of):
    bound = abs(value)
    if of == INT2 or value in (-2 ** 31, -2 ** 63):
        return words(f"CAST('{value}' AS {of.sql})", type=of, bound=bound)
    own = INT4 if -2 ** 31 < value < 2 ** 31 else INT8
    shown = f"({value})" if value < 0 else str(value)
    # DuckDB's literals take the type of what stands beside them.
    return words(shown, duckdb=f"CAST({value} AS {own.sql})", type=own, bound=bound)


def moment(value, of):
    if of == DATE:
        return words(f"DATE '{value.isoformat()}'", type=DATE, bound=abs(value.toordinal() - 719163))
    return words(f"TIMESTAMP '{value.isoformat(sep=' ')}'", type=TIMESTAMP,
                 bound=abs(value.toordinal() - 719163) + 1)


def number(value):
    """A small integer literal."""
    return integer(value, INT4)


def scaled(value, scale):
    return literal(decimal.Decimal(value).scaleb(-scale), Type("numeric", 38, scale))
