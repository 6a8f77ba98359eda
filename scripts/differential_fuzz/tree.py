"""Statements as trees that are written down in two dialects, and that can be made smaller.

A node is a template with a place for each child. What DuckDB needs to be told in other words has a template of its own.
An expression knows its type and what its values can be, so that whoever builds on it knows what fits.
"""
import dataclasses

ERIS, DUCKDB = "eris", "duckdb"
NUMBERS = ("int2", "int4", "int8", "numeric", "double")
SQL_NAMES = {"int2": "smallint", "int4": "integer", "int8": "bigint", "double": "double precision", "text": "text",
             "boolean": "boolean", "date": "date", "timestamp": "timestamp"}


@dataclasses.dataclass(frozen=True)
class Type:
    """A kind of SQL type; `precision` and `scale` are those of numerics."""

    kind: str
    precision: int = 0
    scale: int = 0

    @property
    def sql(self):
        if self.kind == "numeric":
            return f"numeric({self.precision}, {self.scale})"
        return SQL_NAMES[self.kind]

    @property
    def is_number(self):
        return self.kind in NUMBERS

    @property
    def largest(self):
        """The largest absolute value that it holds for sure: of integers, numerics and doubles."""
        if self.kind == "numeric":
            return (10 ** self.precision - 1) / 10 ** self.scale
        return {"int2": 2 ** 15 - 1, "int4": 2 ** 31 - 1, "int8": 2 ** 63 - 1, "double": 1e300}[self.kind]


INT2, INT4, INT8, DOUBLE = Type("int2"), Type("int4"), Type("int8"), Type("double")
TEXT, BOOLEAN, DATE, TIMESTAMP = Type("text"), Type("boolean"), Type("date"), Type("timestamp")


@dataclasses.dataclass
class Node:
    """A piece of a statement.

    `type`, if it is an expression; `bound`: no value is larger, by its absolute value (days since 1970 for dates,
    characters for texts); `tiny`: no value but zero is smaller (doubles); `tolerance`: how far two right answers may be
    apart, None if they are equal; `raises`: computing it may fail for values that it has; `narrows`: it may fail for
    larger ones, such as those of a column that equals its own; `droppable`: the statement makes sense without it;
    `role`: what a reader of the tree looks for; `samples`: values that a column has.
    """

    template: str
    children: tuple = ()
    duckdb: str | None = None
    type: Type | None = None
    bound: float = 0
    tiny: float = 1
    tolerance: float | None = None
    raises: bool = False
    narrows: bool = False
    droppable: bool = False
    role: str | None = None
    samples: tuple = ()

    def __post_init__(self):
        self.bound = float(self.bound)  # a literal's is the number that it was drawn as

    def text(self, dialect):
        template = self.duckdb if dialect == DUCKDB and self.duckdb is not None else self.template
        if not self.children:
            return template
        return template.format(*(child.text(dialect) for child in self.children))

    def smaller(self):
        """Trees with one thing less, the largest steps first."""
        if self.droppable:
            yield Node("")
        if self.type is not None and self.children:
            yield from (node for node in self.descendants() if node.type and node.type.kind == self.type.kind)
            yield Node(f"CAST(NULL AS {self.type.sql})", type=self.type)
        for at, child in enumerate(self.children):
            for variant in child.smaller():
                yield dataclasses.replace(self, children=(*self.children[:at], variant, *self.children[at + 1:]))

    def descendants(self):
        for child in self.children:
            yield child
            yield from child.descendants()

    def may_raise(self):
        """Whether an error of a value is possible: what a condition says of a column it says of those that equal it."""
        nodes = [self, *self.descendants()]
        return any(node.raises for node in nodes) or (
            any(node.narrows for node in nodes) and any(node.role == "equality" for node in nodes))

    def outputs(self):
        """The items of a query's select list."""
        if self.role == "outputs":
            return self.children
        found = (child.outputs() for child in self.children if child.role not in ("with", "from", "where"))
        return next((items for items in found if items), ())

    def size(self):
        return 1 + sum(child.size() for child in self.children)


@dataclasses.dataclass
class Items(Node):
    """Nodes in a row, of which any may be missing as long as `least` are left."""

    template: str = ", "
    least: int = 1

    def text(self, dialect):
        return self.template.join(child.text(dialect) for child in self.children)

    def smaller(self):
        count = len(self.children)
        size = count // 2
        while size:
            for at in range(0, count, size):
                left = (*self.children[:at], *self.children[at + size:])
                if len(left) >= self.least:
                    yield dataclasses.replace(self, children=left)
            size //= 2
        yield from super().smaller()


def words(text, duckdb=None, **facts):
    """A node without children."""
    return Node(text, duckdb=duckdb, **facts)
