"""The two databases, and what they answer."""
import dataclasses
import datetime
import decimal
import re

import duckdb

from differential_fuzz.case import LOAD
from differential_fuzz.tree import DUCKDB, ERIS, Items, Node
from wire import Connection, ServerError

# Rows of an INSERT that loads.
BATCH = 500
ANSWER_SECONDS_MAX = 60


@dataclasses.dataclass(frozen=True)
class Rows:
    rows: list


@dataclasses.dataclass(frozen=True)
class Done:
    """A change, and how many rows it changed."""

    count: int | None


@dataclasses.dataclass(frozen=True)
class Refusal:
    """An error: its SQLSTATE, or DuckDB's class of errors, and its words. Without a state the connection ended."""

    state: str | None
    words: str


def value_of(text, of):
    """What ERIS writes, as a value of the type that the query gives."""
    if text is None:
        return None
    if of.kind == "date":
        return datetime.date.fromisoformat(text)
    if of.kind == "timestamp":
        day, _, rest = text.partition(" ")
        whole, _, micros = rest.partition(".")
        return datetime.datetime.fromisoformat(f"{day} {whole}").replace(microsecond=int(micros.ljust(6, "0") or 0))
    if of.kind == "boolean":
        return {"t": True, "f": False}[text]
    return {"text": str, "double": float, "numeric": decimal.Decimal}.get(of.kind, int)(text)


def load_text(step, limit=BATCH):
    """INSERT statements for the rows of a LOAD, per dialect."""
    for at in range(0, len(step.rows), limit):
        lines = Items(children=tuple(step.table.values(row) for row in step.rows[at:at + limit]))
        yield Node(f"INSERT INTO {step.table.name} VALUES {{}}", (lines,))


def copy_field(value):
    if value is None:
        return "\\N"
    if isinstance(value, bool):
        return "t" if value else "f"
    if isinstance(value, decimal.Decimal):
        return format(value, "f")
    if isinstance(value, datetime.datetime):
        return value.isoformat(sep=" ")
    return "".join({"\\": "\\\\", "\t": "\\t", "\n": "\\n"}.get(character, character) for character in str(value))


def copy_lines(step):
    return ["\t".join(copy_field(value) for value in row) + "\n" for row in step.rows]


class Eris:
    """A server, by its port. PostgreSQL takes the same statements, but for settings."""

    dialect = ERIS

    def __init__(self, port, postgres=False):
        self.port, self.postgres = port, postgres
        self.connection = None
        self.reset(())

    def reset(self, tables):
        """No tables, and a session that knows nothing of the case before."""
        if self.connection is not None:
            self.connection.close()
        self.connection = Connection(self.port, timeout_s=ANSWER_SECONDS_MAX)
        for table in tables:
            self.run_text(f"DROP TABLE IF EXISTS {table}")

    def run(self, step):
        if step.kind == LOAD:
            return self._load(step)
        if step.eris_only and self.postgres:
            return Done(None)
        text = step.text(ERIS)
        if self.postgres:
            text = re.sub(r" WITH \(partitions = \d+\)", "", text)
        return self.run_text(text, [item.type for item in step.node.outputs()])

    def run_text(self, text, types=()):
        try:
            rows = self.connection.query(text)
        except ServerError as error:
            return Refusal(error.sqlstate, str(error))
        except OSError as error:
            return Refusal(None, f"no answer: {error}")
        if not types:
            return Done(count_of(self.connection.tag))
        try:
            return Rows([tuple(value_of(text, of) for text, of in zip(row, types, strict=True)) for row in rows])
        except (ValueError, KeyError, decimal.InvalidOperation) as error:
            return Refusal("?", f"the rows are not of the query's types: {error}")

    def _load(self, step):
        if not step.table.by_copy:
            answers = [self.run_text(node.text(ERIS)) for node in load_text(step)]
            return next((answer for answer in answers if isinstance(answer, Refusal)), Done(len(step.rows)))
        try:
            self.connection.copy_in(f"COPY {step.table.name} FROM STDIN", ["".join(copy_lines(step)).encode()])
        except ServerError as error:
            return Refusal(error.sqlstate, str(error))
        except OSError as error:
            return Refusal(None, f"no answer: {error}")
        return Done(len(step.rows))


def count_of(tag):
    """The number in `UPDATE 3`, None if there is none."""
    last = (tag or "").rpartition(" ")[2]
    return int(last) if last.isdigit() else None


class DuckDb:
    """In this process, in memory, set up by the rules null-order and integer-division."""

    dialect = DUCKDB

    def __init__(self):
        self.connection = None
        self.reset(())

    def reset(self, tables):
        if self.connection is not None:
            self.connection.close()
        self.connection = duckdb.connect(config={"threads": 1})
        self.connection.execute("SET default_null_order = 'postgres'; SET integer_division = true")

    def text(self, step):
        return step.text(DUCKDB)

    def run(self, step):
        try:
            if step.eris_only:
                return Done(None)
            if step.kind == LOAD:
                for node in load_text(step):
                    self.connection.execute(node.text(DUCKDB))
                return Done(len(step.rows))
            found = self.connection.execute(self.text(step)).fetchall()
            if step.node.outputs():
                return Rows(found)
            return Done(found[0][0] if found and found[0] and isinstance(found[0][0], int) else None)
        except duckdb.Error as error:
            return Refusal(type(error).__name__, str(error))
