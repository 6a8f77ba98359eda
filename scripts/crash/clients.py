"""Clients that work until their connection ends with the server, and note what they send before they send it."""
import threading
import time

from crash.ledger import ACKNOWLEDGED, REFUSED, SENT, Attempt
from wire import ServerError

# The transaction is gone, nothing of it was done: try again.
RETRIED = ("40001", "40P01")
# Accounts that a SERIALIZABLE transfer reads and does not write, as a rule.
READ_ACCOUNTS = 8
# The server says goodbye: whether a commit was made shows later.
STOPPED = ("57P01", "57P02", "57P03")


class Life:
    """One life of the server, from a start to its end, and the clients of it."""

    def __init__(self, server):
        self.server = server
        self.changed = threading.Condition()
        self.acknowledged = 0
        self.ending = threading.Event()
        # Errors that no client should see.
        self.troubles = []
        # What was acknowledged before this moment is in a checkpoint.
        self.durable_before = 0.0
        self.checkpoints = 0
        self.checkpoint_seconds = 0.01
        self.sorts = 0
        self.checkpoint_wanted, self.checkpoint_begun = threading.Event(), threading.Event()
        self.checkpoint_under_way = False
        self.threads = []

    def start(self, *targets):
        self.threads = [threading.Thread(target=self._run, args=(target,)) for target in targets]
        for thread in self.threads:
            thread.start()

    def _run(self, target):
        try:
            connection = self.server.connect()
            try:
                target(self, connection)
            finally:
                connection.close()
        except ServerError as error:
            if error.sqlstate is not None and not (error.sqlstate in STOPPED and self.ending.is_set()):
                self.troubles.append(f"{target}: {error}")
            elif not self.ending.is_set():
                self.troubles.append(f"{target}: {error}, and nobody stopped the server")
        except OSError as error:
            if not self.ending.is_set():
                self.troubles.append(f"{target}: {error}, and nobody stopped the server")

    def count(self):
        """One more acknowledged transfer."""
        with self.changed:
            self.acknowledged += 1
            self.changed.notify()

    def wait_for(self, acknowledged, seconds_max):
        """Whether so many were acknowledged in time, with a server that lives and clients without troubles."""
        until = time.monotonic() + seconds_max
        with self.changed:
            while self.acknowledged < acknowledged:
                if self.troubles or self.server.has_ended() or time.monotonic() > until:
                    return False
                self.changed.wait(0.1)
        return True

    def join(self):
        for thread in self.threads:
            thread.join(timeout=90)
            if thread.is_alive():
                self.troubles.append(f"{thread} does not notice that the server is gone")


class Transfers:
    """Moves amounts between accounts, each with a row in the journal. A SERIALIZABLE client reads some accounts first,
    so that it depends on what others write."""

    def __init__(self, ledger, accounts, numbers, rng):
        self.ledger, self.accounts, self.numbers, self.rng = ledger, accounts, numbers, rng

    def __call__(self, life, connection):
        connection.query(f"SET synchronous_commit = {'on' if self.ledger.synchronous else 'off'}")
        seq = self.ledger.next_seq()
        while True:
            a, b = self.rng.sample(range(self.accounts), 2)
            amount = self.rng.randint(1, 100)
            while not self._attempt(connection, Attempt(next(self.numbers), self.ledger.client, seq, a, b, amount)):
                pass
            seq += 1
            life.count()

    def _attempt(self, connection, attempt):
        """Whether it was committed; if not, it is to be tried again."""
        self.ledger.recent.append(attempt)
        statements = [
            *self._begin(),
            f"UPDATE accounts SET balance = balance - {attempt.amount} WHERE id = {attempt.a}",
            f"UPDATE accounts SET balance = balance + {attempt.amount} WHERE id = {attempt.b}",
            f"INSERT INTO journal VALUES ({', '.join(map(str, attempt.row()))})",
            "COMMIT",
        ]
        try:
            # One by one, or in one message, which is as far as COMMIT from the beginning.
            if self.rng.random() < 0.5:
                statements = ["; ".join(statements)]
            for statement in statements:
                if statement.endswith("COMMIT"):
                    attempt.sent_at, attempt.state = time.monotonic(), SENT
                connection.query(statement)
        except ServerError as error:
            if error.sqlstate not in RETRIED:
                raise
            attempt.state = REFUSED
            self.ledger.retries[error.sqlstate] += 1
            connection.query("ROLLBACK")
            return False
        attempt.acknowledged_at, attempt.state = time.monotonic(), ACKNOWLEDGED
        return True

    def _begin(self):
        if not self.ledger.serializable:
            return ["BEGIN"]
        first = self.rng.randrange(self.accounts)
        return ["BEGIN ISOLATION LEVEL SERIALIZABLE",
                f"SELECT sum(balance) FROM accounts WHERE id BETWEEN {first} AND {first + READ_ACCOUNTS - 1}"]

    def __str__(self):
        return f"client {self.ledger.client}"


class TableChanges:
    """Makes and drops tables and indexes."""

    def __init__(self, ledger, rng):
        self.ledger, self.rng = ledger, rng

    def __call__(self, life, connection):
        while True:
            time.sleep(self.rng.uniform(0, 0.05))
            statements = self.ledger.plan(self.rng)
            if len(statements) > 1:
                statements = ["BEGIN", *statements, "COMMIT"]
            try:
                for statement in statements:
                    connection.query(statement)
            except (ServerError, OSError) as error:
                retried = isinstance(error, ServerError) and error.sqlstate in RETRIED
                if retried or statement is not statements[-1]:
                    self.ledger.refuse()
                if not retried:
                    raise
                if len(statements) > 1:
                    connection.query("ROLLBACK")
            else:
                self.ledger.acknowledge()

    def __str__(self):
        return "the client of tables"


class Sorts:
    """Sorts the journal in temporary files."""

    def __init__(self, rng):
        self.rng = rng

    def __call__(self, life, connection):
        connection.query("SET work_mem = '1B'")
        while True:
            rows = [tuple(map(int, row)) for row in
                    connection.query("SELECT amount, txn FROM journal ORDER BY amount, txn")]
            if rows != sorted(set(rows)):
                life.troubles.append(f"{self}: {len(rows)} rows are not in order, or come twice")
                return
            life.sorts += bool(rows)
            time.sleep(self.rng.uniform(0, 0.1))

    def __str__(self):
        return "the client that sorts"


class Checkpoints:
    """Asks for checkpoints, now and then or at once."""

    def __init__(self, rng, pause_max):
        self.rng, self.pause_max = rng, pause_max

    def __call__(self, life, connection):
        wanted = False
        while not wanted:
            wanted = life.checkpoint_wanted.wait(self.rng.uniform(0, self.pause_max))
            begun = time.monotonic()
            life.checkpoint_under_way = True
            if wanted:
                life.checkpoint_begun.set()
            connection.query("CHECKPOINT")
            life.checkpoint_under_way = False
            life.durable_before, life.checkpoint_seconds = begun, time.monotonic() - begun
            life.checkpoints += 1

    def __str__(self):
        return "the client of checkpoints"
