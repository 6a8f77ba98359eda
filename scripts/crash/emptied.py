"""A table that is emptied beside its writers: what must be there, and what must not.

Each writer inserts numbers, each in `emptied` and, in the same transaction, in `kept`. Another client truncates
`emptied`, or drops it and makes it anew. All wait for the disk. So a number in `kept` was committed; in `emptied` it is

    missing only if a change was under way after its INSERT was sent:   INSERT ─> ... ─> the change is acknowledged
    there only if no change began after it was acknowledged:            acknowledged ─> the change begins ─> done
"""
import collections
import dataclasses
import threading
import time

from crash.ledger import ACKNOWLEDGED, OPEN, REFUSED, SENT
from wire import ServerError

CREATE = "CREATE TABLE emptied (n bigint PRIMARY KEY)"
KEPT = "CREATE TABLE kept (n bigint PRIMARY KEY)"
# Try again; the last one is said of a table that was dropped while the statement waited for it.
RETRIED = ("40001", "40P01", "42P01")


@dataclasses.dataclass(slots=True)
class Step:
    """A number that is inserted, or a change that empties the table."""
    begun_at: float
    state: str = OPEN
    acknowledged_at: float = 0.0

    def acknowledge(self):
        self.acknowledged_at, self.state = time.monotonic(), ACKNOWLEDGED


class EmptiedLedger:
    """What was sent and acknowledged since the last check, beside what was there then."""

    def __init__(self):
        self.lock = threading.Lock()
        self.inserts, self.changes = {}, []
        self.kept, self.next_number = set(), 0
        # Of each kind.
        self.acknowledged = collections.Counter()

    def insert(self):
        """A new number and its step."""
        with self.lock:
            self.next_number += 1
            step = self.inserts[self.next_number] = Step(time.monotonic())
            return self.next_number, step

    def change(self):
        step = Step(time.monotonic())
        with self.lock:
            self.changes.append(step)
        return step

    def judge(self, verdict, emptied, kept):
        """Compares with the numbers that were found, and goes on from them."""
        changes = [change for change in self.changes if change.state in (SENT, ACKNOWLEDGED)]
        # A change that was sent and not acknowledged may have been made at any time since.
        done_at = (change.acknowledged_at if change.state == ACKNOWLEDGED else float("inf") for change in changes)
        last_done = max(done_at, default=0.0)
        last_begun = max((change.begun_at for change in changes if change.state == ACKNOWLEDGED), default=0.0)
        for number in sorted(self.kept - kept):
            verdict.report("lost", f"{number} was in kept after the last restart")
        for number, step in self.inserts.items():
            verdict.checked += 1
            committed = number in kept
            if step.state == ACKNOWLEDGED and not committed:
                verdict.report("lost", f"{number} was acknowledged and is not in kept")
            elif step.state in (OPEN, REFUSED) and committed:
                verdict.report("phantom", f"{number} is in kept and was never committed")
            if number in emptied and not committed:
                verdict.report("half", f"{number} is in emptied and not in kept")
            elif committed and number not in emptied and last_done < step.begun_at:
                verdict.report("lost", f"{number} was inserted after emptied was emptied, and is not there")
            elif number in emptied and step.state == ACKNOWLEDGED and step.acknowledged_at < last_begun:
                verdict.report("phantom", f"{number} was there before emptied was emptied, and is there still")
        for number in sorted((emptied | kept) - self.inserts.keys() - self.kept):
            verdict.report("phantom", f"{number} was never inserted")
        now = time.monotonic()
        self.inserts = {number: Step(now, ACKNOWLEDGED, now) for number in emptied}
        self.changes, self.kept = [], set(kept)


class Writer:
    """Inserts numbers, in a transaction block or in one message."""

    def __init__(self, ledger, rng):
        self.ledger, self.rng = ledger, rng

    def __call__(self, life, connection):
        while True:
            time.sleep(self.rng.uniform(0, 0.02))
            number, step = self.ledger.insert()
            inserts = [f"INSERT INTO {table} VALUES ({number})" for table in ("emptied", "kept")]
            self.rng.shuffle(inserts)
            obey(connection, step, inserts, self.rng)

    def __str__(self):
        return "a client that writes into what is emptied"


class Emptying:
    """Truncates the table, or drops it and makes it anew."""

    def __init__(self, ledger, rng):
        self.ledger, self.rng = ledger, rng

    def __call__(self, life, connection):
        while True:
            time.sleep(self.rng.uniform(0, 0.1))
            kind, statements = self.rng.choice([
                ("truncate", ["TRUNCATE TABLE emptied"]),
                ("truncate", ["TRUNCATE TABLE emptied"]),
                ("drop", ["DROP TABLE emptied", CREATE]),
            ])
            if obey(connection, self.ledger.change(), statements, self.rng):
                self.ledger.acknowledged[kind] += 1

    def __str__(self):
        return "the client that empties a table"


def obey(connection, step, statements, rng):
    """One transaction; whether it was made."""
    statements = ["BEGIN", *statements, "COMMIT"]
    if rng.random() < 0.5:
        statements = ["; ".join(statements)]
    try:
        for statement in statements:
            if statement.endswith("COMMIT"):
                step.state = SENT
            connection.query(statement)
    except ServerError as error:
        if error.sqlstate not in RETRIED:
            raise
        step.state = REFUSED
        connection.query("ROLLBACK")
        return False
    step.acknowledge()
    return True
