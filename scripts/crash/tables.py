"""Tables and indexes that come and go: what was acknowledged, and what a restarted server has.

One client with synchronous commits changes them, so at most one change is under way when the server dies. It is there
as a whole or not at all.
"""
import collections
import dataclasses

# A transaction of a few rows lies in many blocks of the log, and a few of them fill a file of it.
NOTE_CHARS = 20_000
JOURNAL_INDEX = "journal_by_client"


@dataclasses.dataclass(frozen=True)
class Table:
    """The numbers of its rows, by id; whether `n` has an index."""
    rows: tuple = ()
    indexed: bool = False


def note(number):
    """Text that says of what row it is, in full length."""
    return f"{number:08d}" * (NOTE_CHARS // 8)


def index_name(table):
    return JOURNAL_INDEX if table == "journal" else f"{table}_by_n"


class TablesLedger:
    """What was acknowledged, by name; beside it the change under way: a name, and the table behind the change."""

    def __init__(self):
        self.tables = {"journal": Table()}
        self.pending = None
        self.named = 0
        # Of each kind.
        self.kind, self.acknowledged = "", collections.Counter()

    def plan(self, rng):
        """Statements of the next change. They are one transaction."""
        mine = sorted(name for name in self.tables if name != "journal")
        kind = rng.choice(["create", "create", "whole", "insert", "insert", "index", "index", "truncate", "drop"])
        if kind in ("create", "whole") and len(mine) >= 6:
            kind = "drop"
        if not mine and kind in ("insert", "truncate", "drop"):
            kind = "create"
        self.kind = kind
        if kind in ("create", "whole"):
            self.named += 1
            name = f"t_{self.named}"
            statements = [f"CREATE TABLE {name} (id int PRIMARY KEY, n int, note text)"]
            after = Table()
            if kind == "whole":
                after = Table(tuple(rng.randrange(1000) for _ in range(20)), indexed=True)
                statements += [self._insert(name, 0, after.rows), f"CREATE INDEX {index_name(name)} ON {name} (n)"]
            self.pending = name, after
            return statements
        name = rng.choice([*mine, "journal"] if kind == "index" else mine)
        before = self.tables[name]
        if kind == "insert":
            rows = tuple(rng.randrange(1000) for _ in range(rng.randint(1, 30)))
            self.pending = name, Table(before.rows + rows, before.indexed)
            return [self._insert(name, len(before.rows), rows)]
        if kind == "truncate":
            self.pending = name, Table((), before.indexed)
            return [f"TRUNCATE TABLE {name}"]
        if kind == "drop":
            self.pending = name, None
            return [f"DROP TABLE {name}"]
        self.pending = name, Table(before.rows, not before.indexed)
        columns = "journal (client, seq)" if name == "journal" else f"{name} (n)"
        return [f"DROP INDEX {index_name(name)}" if before.indexed else f"CREATE INDEX {index_name(name)} ON {columns}"]

    @staticmethod
    def _insert(name, first, rows):
        values = ", ".join(f"({first + at}, {n}, '{note(n)}')" for at, n in enumerate(rows))
        return f"INSERT INTO {name} VALUES {values}"

    def acknowledge(self):
        """The change under way is made."""
        self._settle(*self.pending)
        self.acknowledged[self.kind] += 1
        self.pending = None

    def refuse(self):
        """It is not made, and will not be."""
        self.pending = None

    def _settle(self, name, table):
        if table is None:
            self.tables.pop(name, None)
        else:
            self.tables[name] = table

    def judge(self, verdict, found):
        """Compares with what was found; goes on from what was acknowledged, and from the change that was made."""
        pending, self.pending = self.pending, None
        for name in sorted({*self.tables, *found} | ({pending[0]} if pending else set())):
            verdict.checked += 1
            acknowledged, here = self.tables.get(name), found.get(name)
            if here == acknowledged:
                continue
            if pending and name == pending[0] and here == pending[1]:
                self._settle(*pending)
            elif here is None:
                verdict.report("lost", f"table {name}: {shown(acknowledged)}")
            elif acknowledged is None and not (pending and name == pending[0]):
                verdict.report("phantom", f"table {name}: {shown(here)}")
            else:
                verdict.report("half", f"table {name} has {shown(here)}, acknowledged is {shown(acknowledged)}, under "
                                       f"way {shown(pending[1]) if pending else 'nothing'}")


def shown(table):
    return f"{len(table.rows)} rows, {'an' if table.indexed else 'no'} index" if table else "no table"


def find_tables(connection, verdict):
    """The tables of a server, their rows read both with and without their index."""
    relations = {name: kind for name, kind in connection.query("SELECT relname, relkind FROM pg_class "
                                                               "WHERE relkind = 'r' OR relkind = 'i'")}
    found = {"journal": Table(indexed=JOURNAL_INDEX in relations)}
    for name in (name for name, kind in relations.items() if kind == "r" and name.startswith("t_")):
        rows = [(int(id_), int(n), text) for id_, n, text in
                connection.query(f"SELECT id, n, note FROM {name} ORDER BY id")]
        if [row[0] for row in rows] != list(range(len(rows))) or any(text != note(n) for _, n, text in rows):
            verdict.report("half", f"table {name}: ids {[row[0] for row in rows][:40]} or their notes")
        found[name] = Table(tuple(row[1] for row in rows), index_name(name) in relations)
        for n in {row[1] for row in rows[:3]}:
            count = int(connection.query(f"SELECT count(*) FROM {name} WHERE n = {n}")[0][0])
            if count != sum(row[1] == n for row in rows):
                verdict.report("half", f"table {name} has {count} rows by index where n = {n}")
    return found
