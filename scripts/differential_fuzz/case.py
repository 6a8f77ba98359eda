"""A case: what a seed stands for. Settings, tables, rows, and statements that ask and change."""
import dataclasses
import random

from differential_fuzz import changes, queries, schema
from differential_fuzz.context import Context
from differential_fuzz.tree import Node, words

SETUP, LOAD, CHANGE, QUERY, BLOCK = "setup", "load", "change", "query", "block"


@dataclasses.dataclass(frozen=True)
class Step:
    """A statement. `order` has the places of the columns that a query is ordered by; `eris_only`: DuckDB is not asked;
    a LOAD has rows instead, and says whether ERIS gets them by COPY."""

    kind: str
    node: Node | None = None
    order: tuple = ()
    eris_only: bool = False
    table: schema.Table | None = None
    rows: tuple = ()

    def text(self, dialect):
        return self.node.text(dialect)


@dataclasses.dataclass(frozen=True)
class Case:
    seed: int
    steps: tuple


def settings(rng):
    """How ERIS keeps new tables; small segments are sealed soon."""
    made = [("layout", rng.choice(["default", "default", "row", "column", "mixed"])),
            ("segment_rows", rng.choice([8, 16, 64, 64, 256, 65536])),
            ("partitions", rng.choice([0, 0, 1, 3, 8]))]
    return [Step(SETUP, words(f"SET {name} = {value}"), eris_only=True) for name, value in made]


def whole(table):
    """A query for everything in a table."""
    outputs = queries.output_items([(column.name, Node(column.name, type=column.type)) for column in table.columns])
    return Step(QUERY, Node(f"SELECT {{}} FROM {table.name}", (outputs,), role="query"))


def case(seed):
    rng = random.Random(seed)
    steps = settings(rng)
    tables = schema.tables_at_random(rng)
    for table in tables:
        steps.append(Step(SETUP, table.create()))
        if table.rows:
            steps.append(Step(LOAD, table=table, rows=tuple(table.rows)))
        steps += [Step(SETUP, words(f"CREATE INDEX ON {table.name} ({name})"), eris_only=True)
                  for name in table.indexes]
    context = Context(rng, tables)
    for _ in range(rng.randint(3, 8)):
        steps += asked(context, rng.randint(2, 10))
        steps += changed(context)
    steps += asked(context, 3)
    return Case(seed, tuple(steps))


def asked(context, count):
    made = []
    for _ in range(count):
        context.begin()
        node, order = queries.statement(context)
        made.append(Step(QUERY, node, order))
    return made


def changed(context):
    """Some changes, at times in a transaction block, and the tables as they are then."""
    statements = [Step(CHANGE, changes.change(context)) for _ in range(context.rng.randint(1, 4))]
    if context.chance(0.2):
        end = context.pick("COMMIT", "ROLLBACK")
        statements = [Step(BLOCK, words("BEGIN")), *statements, *asked(context, 1), Step(BLOCK, words(end))]
    return [*statements, *(whole(table) for table in context.tables)]
