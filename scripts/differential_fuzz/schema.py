"""Random tables: columns of all types, with and without a key and indexes, and their first rows."""
import dataclasses
import datetime

from differential_fuzz.literals import literal
from differential_fuzz.rows import bound_of, source, with_nulls
from differential_fuzz.tree import BOOLEAN, DATE, DOUBLE, INT2, INT4, INT8, TEXT, TIMESTAMP, Items, Node, Type, words

KEYS = ["none", "none", "serial", "serial", "text", "pair", "date"]


@dataclasses.dataclass
class Column:
    """`bound` and `tiny` are those of the values so far, see `Node`; statements that write widen them."""

    name: str
    type: Type
    nullable: bool
    values: object
    bound: float = 0
    tiny: float = 1
    samples: tuple = ()

    def node(self, alias):
        return Node(f"{alias}.{self.name}", type=self.type, bound=self.bound, tiny=self.tiny, samples=self.samples,
                    role="column")


@dataclasses.dataclass
class Table:
    """`key` has the names of the key's columns; `count` rows were made for it, some of which may be deleted."""

    name: str
    columns: list
    key: tuple
    rows: list
    by_copy: bool
    count: int = 0
    partitions: int = 0
    indexes: tuple = ()

    def create(self):
        columns = Items(children=tuple(
            words(f"{column.name} {column.type.sql}{'' if column.nullable else ' NOT NULL'}")
            for column in self.columns), least=1)
        key = words(f", PRIMARY KEY ({', '.join(self.key)})" if self.key else "", droppable=True)
        partitions = f" WITH (partitions = {self.partitions})" if self.partitions else ""
        return Node(f"CREATE TABLE {self.name} ({{}}{{}}){{}}",
                    (columns, key, words(partitions, duckdb="", droppable=True)))

    def row(self):
        """One more, with a key that no row has or had."""
        at, self.count = self.count, self.count + 1
        return tuple(column.values(at) for column in self.columns)

    def widen(self, column, bound, tiny):
        column.bound, column.tiny = max(column.bound, bound), min(column.tiny, tiny)

    def learn(self, rows):
        """Takes in what these rows say of the columns' values."""
        for at, column in enumerate(self.columns):
            values = [row[at] for row in rows]
            self.widen(column, *bound_of(column.type, values))
            there = [value for value in values if value is not None]
            column.samples = (*column.samples, *there[:3], *there[-3:])[-12:]

    def values(self, row):
        return Node("({})", (Items(children=tuple(
            literal(value, column.type) for value, column in zip(row, self.columns))),))


def type_at_random(rng):
    kind = rng.choice(["int2", "int4", "int4", "int4", "int8", "numeric", "numeric", "double", "text", "text",
                       "boolean", "date", "timestamp"])
    if kind != "numeric":
        return {"int2": INT2, "int4": INT4, "int8": INT8, "double": DOUBLE, "text": TEXT, "boolean": BOOLEAN,
                "date": DATE, "timestamp": TIMESTAMP}[kind]
    precision = rng.choice([3, 5, 9, 10, 15, 18, 18, 25])
    return Type("numeric", precision, rng.randint(0, min(precision, 6)))


def key_columns(rng, kind):
    """Columns that are never NULL and together never the same."""
    if kind == "serial":
        step, first = rng.choice([1, 1, 2, 7]), rng.choice([0, 1, -50, 1000])
        return [("k", rng.choice([INT4, INT8]), lambda at: first + at * step)]
    if kind == "text":
        return [("k", TEXT, lambda at: f"key {at}")]
    if kind == "pair":
        width = rng.choice([2, 5, 20])
        return [("k", INT4, lambda at: at // width), ("l", INT4, lambda at: at % width)]
    if kind == "date":
        return [("k", DATE, lambda at, day=source_of_days(rng): day(at))]
    return []


def source_of_days(rng):
    first = datetime.date(rng.randint(1950, 2050), rng.randint(1, 12), 1)
    return lambda at: first + datetime.timedelta(days=at)


def table_at_random(rng, name, size):
    keys = key_columns(rng, rng.choice(KEYS))
    columns = [Column(column, of, False, values) for column, of, values in keys]
    for number in range(rng.randint(1, 6)):
        of = type_at_random(rng)
        nullable = rng.random() < 0.8
        values = source(rng, of)
        columns.append(Column(f"c{number}", of, nullable, with_nulls(rng, values) if nullable else values))
    rng.shuffle(columns)
    table = Table(name, columns, tuple(column for column, _, _ in keys), [], rng.random() < 0.5)
    table.rows = [table.row() for _ in range(size)]
    table.learn(table.rows)
    if keys and rng.random() < 0.3:
        table.partitions = rng.randint(1, 5)
    if rng.random() < 0.3:
        table.indexes = (rng.choice(columns).name,)
    return table


def size_at_random(rng):
    return rng.choice([0, 1, rng.randint(2, 12), rng.randint(5, 60), rng.randint(5, 60), rng.randint(5, 60),
                       rng.randint(60, 400), rng.randint(60, 400),
                       rng.randint(400, 4000) if rng.random() < 0.4 else rng.randint(5, 200)])


def tables_at_random(rng):
    return [table_at_random(rng, f"t{number}", size_at_random(rng)) for number in range(rng.choice([1, 2, 2, 3, 4]))]
