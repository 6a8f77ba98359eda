"""Cycles of work, death and restart, with a check after each restart.

```
  start ─> clients work, tables come and go, checkpoints ─> enough acknowledged ─> a second server, refused
        ─> a random moment ─> the end by kind:

    busy          SIGKILL
    checkpoint    SIGKILL while a CHECKPOINT runs
    recovery      SIGKILL, and again, up to three times, while the server that was started next reads its files
    twice         SIGKILL, a check, and again after a few milliseconds of work
    clean         SIGTERM
                                                                  ─> start ─> check ─> the next cycle
```
The seed of a cycle is that of the run plus its number: it decides the kind, the settings and what clients ask for. When
the kill meets the server is up to the machine, so a seed repeats the plan and not the run.
"""
import collections
import itertools
import pathlib
import random
import resource
import shutil
import subprocess
import time

from crash import emptied
from crash.clients import Checkpoints, Life, Sorts, TableChanges, Transfers
from crash.ledger import ClientLedger, Verdict, judge
from crash.server import Server, ServerDied, Violated
from crash.tables import TablesLedger, find_tables
from wire import ServerError

KINDS = ["busy", "checkpoint", "recovery", "clean", "twice"]
ACCOUNTS = 64
START_BALANCE = 10_000
# Small ones have checkpoints come by themselves and log files go.
CHECKPOINT_BYTES = ["256K", "4M", "256M"]
LIFE_SECONDS_MAX = 300
SECOND_SERVER_SECONDS_MAX = 60
# What a SERIALIZABLE transaction hears that has to be tried again, and transfers among which one does at the latest.
SERIALIZATION_FAILURE, WITHOUT_RETRY_MAX = "40001", 500


def kind_of(seed):
    """How a cycle ends."""
    return KINDS[seed % len(KINDS)]


class Run:
    """All cycles of one directory."""

    def __init__(self, options):
        self.options = options
        self.directory = pathlib.Path(options.directory)
        self.numbers = itertools.count(1)
        # Every other client does not wait for the disk, and of either kind every other one is SERIALIZABLE.
        self.ledgers = [ClientLedger(client, client % 2 == 0, client % 4 >= 2) for client in range(options.clients)]
        self.tables, self.emptied = TablesLedger(), emptied.EmptiedLedger()
        self.total = Verdict()
        self.kills = dict.fromkeys(["busy", "during checkpoint", "during recovery", "after recovery", "twice", "clean"],
                                   0)
        # Those that ended with SIGKILL, whatever else was killed in them.
        self.cycles, self.killed = 0, 0
        self.acknowledged, self.checkpoints, self.work_seconds = 0, 0, 0.0
        self.sorts, self.killed_in_files = 0, 0
        self.second_servers, self.locks_removed = 0, 0
        self.recoveries = []
        self.violation = None

    def run(self):
        """Runs the cycles up to the first violation."""
        server = None
        try:
            server = self._first_start()
            for cycle in range(self.options.cycles):
                seed = self.options.seed + cycle
                server = self._cycle(server, seed)
                self.cycles += 1
                self.killed += kind_of(seed) != "clean"
            if server.terminate() != 0:
                raise Violated(f"exit code {server.process.returncode} after SIGTERM: {server.last_errors()}")
            check_retries(self.ledgers, self.acknowledged)
        except (Violated, ServerDied, ServerError, OSError) as error:
            self.violation = {"seed": self.options.seed + self.cycles, "what": str(error).splitlines()}
        finally:
            if server is not None and not server.has_ended():
                server.kill()

    def report(self):
        """What is printed."""
        total, recoveries = self.total, self.recoveries or [0.0]
        report = {
            "cycles": self.cycles, "killed": self.killed, "kills": self.kills, "acknowledged": self.acknowledged,
            "checkpoints": self.checkpoints, "checked": total.checked, "lost": total.lost, "phantom": total.phantom,
            "half": total.half, "lost_asynchronous": total.lost_asynchronous,
            "retries": dict(sum((ledger.retries for ledger in self.ledgers), collections.Counter())),
            "changes_of_tables": dict(self.tables.acknowledged),
            "emptied_beside_writers": dict(self.emptied.acknowledged),
            "sorts_in_files": self.sorts, "killed_with_temporary_files": self.killed_in_files,
            "second_servers_refused": self.second_servers, "lock_files_removed": self.locks_removed,
            "recovery_seconds_max": round(max(recoveries), 3),
            "recovery_seconds_mean": round(sum(recoveries) / len(recoveries), 3),
            "commits_per_second": round(self.acknowledged / self.work_seconds) if self.work_seconds else 0,
        }
        if self.violation:
            report |= {"violation": self.violation, "directory": str(self.directory),
                       "directory_before_restart": str(self._before())}
        return report

    def _server(self, rng):
        return Server(self.options.binary, self.directory, "--checkpoint-bytes", rng.choice(CHECKPOINT_BYTES))

    def _first_start(self):
        server = self._server(random.Random(self.options.seed))
        server.wait_until_ready()
        connection = server.connect()
        connection.query("CREATE TABLE accounts (id int PRIMARY KEY, balance bigint)")
        connection.query("CREATE TABLE journal (txn bigint PRIMARY KEY, client int, seq int, a int, b int, "
                         "amount bigint)")
        values = ", ".join(f"({account}, {START_BALANCE})" for account in range(ACCOUNTS))
        connection.query(f"INSERT INTO accounts VALUES {values}")
        connection.query(emptied.CREATE)
        connection.query(emptied.KEPT)
        connection.close()
        return server

    def _cycle(self, server, seed):
        """One cycle with a running server; the one that runs afterwards."""
        rng = random.Random(seed)
        kind = kind_of(seed)
        life = self._work(server, rng, self.options.acknowledgements, rng.uniform(0, 0.2))
        self._try_second_server(rng)
        if kind == "checkpoint":
            life.checkpoint_wanted.set()
            life.checkpoint_begun.wait(30)
            time.sleep(rng.uniform(0, life.checkpoint_seconds))
        self._end(life, kind)
        if kind == "recovery":
            for _ in range(rng.randint(1, 3)):
                usual = self.recoveries[-1] if self.recoveries else 0.1
                server = self._server(rng)
                time.sleep(rng.uniform(0, 1.1 * usual))
                if server.has_ended():
                    raise ServerDied(f"it ended while it recovered: {server.last_errors()}")
                self.kills["after recovery" if server.kill() else "during recovery"] += 1
        server = self._restart_and_check(life, rng, clean=kind == "clean")
        if kind == "twice":
            life = self._work(server, rng, 0, rng.uniform(0, 0.05))
            self._end(life, "twice")
            server = self._restart_and_check(life, rng, clean=False)
        return server

    def _work(self, server, rng, acknowledgements, then_seconds):
        """Has clients work until so many transfers are acknowledged, and a while longer."""
        life = Life(server)
        transfers = [Transfers(ledger, ACCOUNTS, self.numbers, random.Random(rng.random())) for ledger in self.ledgers]
        begun = time.monotonic()
        life.start(*transfers, TableChanges(self.tables, random.Random(rng.random())),
                   Sorts(random.Random(rng.random())),
                   *(emptied.Writer(self.emptied, random.Random(rng.random())) for _ in range(2)),
                   emptied.Emptying(self.emptied, random.Random(rng.random())),
                   Checkpoints(random.Random(rng.random()), rng.choice([0.05, 0.5, 5.0])))
        enough = life.wait_for(acknowledgements, LIFE_SECONDS_MAX)
        time.sleep(then_seconds if enough else 0)
        self.work_seconds += time.monotonic() - begun
        if not enough or life.troubles:
            died, errors = server.has_ended(), server.last_errors()
            life.ending.set()
            server.kill()
            life.join()
            state = "the server ended by itself" if died else f"{life.acknowledged} acknowledged in the cycle"
            raise Violated("\n".join([state, *life.troubles, errors]))
        return life

    def _try_second_server(self, rng):
        """A second server on the directory is refused under work, whether there is a lock file or not."""
        if rng.random() < 0.5:
            (self.directory / "eris.lock").unlink(missing_ok=True)
            self.locks_removed += 1
        command = [self.options.binary, "serve", "--db", self.directory, "--listen", "127.0.0.1:0"]
        try:
            done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
                                  timeout=SECOND_SERVER_SECONDS_MAX)
        except subprocess.TimeoutExpired as expired:
            raise Violated("a second server has the directory") from expired
        if done.returncode != 1 or "is in use" not in done.stderr:
            raise Violated(f"a second server ended with {done.returncode}: {done.stderr}")
        self.second_servers += 1

    def _end(self, life, kind):
        """Ends a server under work."""
        if life.server.has_ended():
            raise ServerDied(f"it ended by itself: {life.server.last_errors()}")
        life.ending.set()
        code = 0
        if kind == "clean":
            code = life.server.terminate()
        else:
            self.killed_in_files += life.server.open_temporary_files() > 0
            life.server.kill()
        during = kind == "checkpoint" and life.checkpoint_under_way
        life.join()
        self.kills["during checkpoint" if during else kind if kind in ("twice", "clean") else "busy"] += 1
        self.acknowledged += life.acknowledged
        self.checkpoints += life.checkpoints
        self.sorts += life.sorts
        if life.troubles or code != 0:
            raise Violated("\n".join([*life.troubles, f"exit code {code}", life.server.last_errors()]))

    def _restart_and_check(self, life, rng, clean):
        """A server on what is left, if that is as promised."""
        before = self._before()
        shutil.rmtree(before, ignore_errors=True)
        shutil.copytree(self.directory, before)
        server = self._server(rng)
        self.recoveries.append(server.wait_until_ready())
        verdict = Verdict()
        try:
            connection = server.connect()
            journal = [tuple(map(int, row)) for row in
                       connection.query("SELECT txn, client, seq, a, b, amount FROM journal")]
            balances = {int(id_): int(balance) for id_, balance in
                        connection.query("SELECT id, balance FROM accounts")}
            verdict = judge(self.ledgers, journal, balances, START_BALANCE, life.durable_before, clean)
            if sorted(balances) != list(range(ACCOUNTS)):
                verdict.report("half", f"accounts {sorted(balances)}")
            self._ask_otherwise(connection, verdict, journal, balances)
            self.tables.judge(verdict, find_tables(connection, verdict))
            self.emptied.judge(verdict, *({int(row[0]) for row in connection.query(f"SELECT n FROM {table}")}
                                          for table in ("emptied", "kept")))
            connection.close()
        except (ServerError, OSError) as error:
            server.kill()
            raise Violated("\n".join([f"a check was refused: {error}", *verdict.words])) from error
        for name in ("checked", "lost", "phantom", "half", "lost_asynchronous"):
            setattr(self.total, name, getattr(self.total, name) + getattr(verdict, name))
        temporary = self.directory / "temp"
        left = sorted(path.name for path in temporary.iterdir()) if temporary.is_dir() else []
        if left:
            verdict.words.append(f"temporary files of a server that ended: {left[:20]}")
        if "panicked" in server.last_errors():
            verdict.words.append(server.last_errors())
        if verdict.words:
            server.kill()
            raise Violated("\n".join(verdict.words))
        return server

    @staticmethod
    def _ask_otherwise(connection, verdict, journal, balances):
        """The same by sums of the server, and by keys: indexes are built anew when a database is opened."""
        total = connection.query("SELECT count(*), sum(balance) FROM accounts")[0]
        if total != [str(len(balances)), str(sum(balances.values()))]:
            verdict.report("half", f"accounts, by the server's count and sum: {total}")
        count = connection.query("SELECT count(*) FROM journal")[0]
        if count != [str(len(journal))]:
            verdict.report("half", f"{len(journal)} rows of the journal, {count[0]} by the server's count")
        for row in sorted(journal)[-20:]:
            by_key = connection.query(f"SELECT txn, client, seq, a, b, amount FROM journal WHERE txn = {row[0]}")
            by_client = connection.query(f"SELECT txn FROM journal WHERE client = {row[1]} AND seq = {row[2]}")
            if by_key != [list(map(str, row))] or by_client != [[str(row[0])]]:
                verdict.report("half", f"{row} is {by_key} by its key and {by_client} by its client")

    def _before(self):
        """The directory as the last end of a server left it."""
        return pathlib.Path(f"{self.directory}.before-restart")

    def remove(self):
        """Everything that was kept."""
        for path in (self.directory, self._before()):
            shutil.rmtree(path, ignore_errors=True)
        pathlib.Path(f"{self.directory}.stderr").unlink(missing_ok=True)


def check_retries(ledgers, acknowledged):
    """Clients at SERIALIZABLE that never have to try again do not get in each other's way: nothing was tried."""
    serializable = [ledger for ledger in ledgers if ledger.serializable]
    retries = sum(ledger.retries[SERIALIZATION_FAILURE] for ledger in serializable)
    if len(serializable) > 1 and acknowledged >= WITHOUT_RETRY_MAX and retries == 0:
        raise Violated(f"{acknowledged} transfers, and no SERIALIZABLE one heard {SERIALIZATION_FAILURE}")


def processor_seconds():
    """Of this process and those that it started."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)
