"""How the server stands at its limits: the figures of milestone 39, each measured with a server that this starts."""
import concurrent.futures
import pathlib
import re
import statistics
import threading
import time

from checklist import Failed, Outcome, Server, eris, on_disk, run, shown
from tpch import load_tpch, tpch_files
from wire import Connection, ServerError

MILESTONE = 39
FLAGGED_ROWS, FLAG_INDEXES, VERIFY_MAX_S = 1_000_000, 3, 10
CLIENTS, CLIENTS_LIMIT_BYTES, CLIENTS_SECONDS = 10, 800_000_000, 60
SPILL_LIMIT_BYTES = 512 << 20
SPILL_SLOWDOWN_MAX = 5
READS, READ_SLOWDOWN_MAX = 20_000, 3


def peak_bytes(pid):
    """The most memory a process ever had resident, as the operating system counts it."""
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"^VmHWM:\s+(\d+) kB$", status, re.MULTILINE).group(1)) * 1024


def verify_with_repeated_keys():
    """`eris verify` of a table whose indexed columns have two values each."""
    with on_disk() as directory:
        with Server("--db", directory) as server:
            client = Connection(server.port)
            columns = ", ".join(f"flag{number} int" for number in range(FLAG_INDEXES))
            client.query(f"CREATE TABLE flagged (id bigint PRIMARY KEY, {columns})")
            for number in range(FLAG_INDEXES):
                client.query(f"CREATE INDEX flagged{number} ON flagged (flag{number})")
            values = ", ".join(f"(id + 1) / {number + 1} % 2" for number in range(FLAG_INDEXES))
            fill(client, "flagged", FLAGGED_ROWS, f"id, {values}")
            client.query("CHECKPOINT")
            client.close()
        started = time.perf_counter()
        run([eris(), "verify", directory], timeout=600)
        took = time.perf_counter() - started
    return Outcome(f"{took:.1f} s, {FLAGGED_ROWS:,} rows, {FLAG_INDEXES} indexes on flags", took <= VERIFY_MAX_S,
                   "eris verify DIR")


def fill(client, table, rows, values):
    """`rows` rows made of the numbers 0 to rows - 1, named `id` in `values`, at most 100,000 in one statement."""
    client.query("CREATE TABLE IF NOT EXISTS digits (d bigint)")
    if client.query("SELECT count(*) FROM digits") == [["0"]]:
        client.query("INSERT INTO digits VALUES " + ", ".join(f"({digit})" for digit in range(10)))
    step = min(rows, 100_000)
    product = ", ".join(f"digits d{place}" for place in range(len(str(step)) - 1))
    number = " + ".join(f"d{place}.d * {10 ** place}" for place in range(len(str(step)) - 1))
    for first in range(0, rows, step):
        numbers = f"SELECT {first} + {number} AS id FROM {product}"
        client.query(f"INSERT INTO {table} SELECT {values} FROM ({numbers}) numbers")


def tpch_queries():
    """The text of the 22 queries, as the benchmark runs them."""
    texts = [path.read_text().rstrip().rstrip(";") for path in sorted(tpch_files().glob("q*.sql"))]
    if len(texts) != 22:
        raise Failed(f"{len(texts)} queries")
    return texts


def clients_at_work(port, queries, clients, seconds):
    """Streams of queries until the time is over: how many were answered, and the errors."""
    answered, errors, lock = [0], [], threading.Lock()
    end = time.monotonic() + seconds

    def stream(first):
        connection, number = Connection(port), first
        while time.monotonic() < end:
            query = queries[number % len(queries)]
            number += 1
            try:
                connection.query(query)
                with lock:
                    answered[0] += 1
            except ServerError as error:
                with lock:
                    errors.append(f"query {number % len(queries)}: {error}")
        connection.close()

    with concurrent.futures.ThreadPoolExecutor(clients) as pool:
        list(pool.map(stream, range(clients)))
    return answered[0], errors


def ten_clients():
    """Streams of TPC-H queries under a limit that not all of them fit into at once."""
    queries = tpch_queries()
    with on_disk() as directory, Server("--db", directory, "--workers", "2", "--memory-limit",
                                        str(CLIENTS_LIMIT_BYTES)) as server:
        client = Connection(server.port)
        load_tpch(client)
        client.query("CHECKPOINT")
        alone, refused_alone = clients_at_work(server.port, queries, 1, CLIENTS_SECONDS)
        together, refused = clients_at_work(server.port, queries, CLIENTS, CLIENTS_SECONDS)
        peak = peak_bytes(server.pid)
    errors = refused_alone + refused
    measured = (f"{len(errors)} errors of {together + len(refused)} statements{', ' + errors[0] if errors else ''}; "
                f"{together / max(alone, 1):.2f} x one client's {alone / CLIENTS_SECONDS:.1f} statements/s; at most "
                f"{peak / 1e6:,.0f} MB resident")
    return Outcome(measured, not errors and together >= 0.9 * alone and peak <= CLIENTS_LIMIT_BYTES,
                   shown(server.command).replace(str(directory), "DIR"))


# Statements that do not fit into the limit: name, table, its rows and values, and the query, whose answer is small.
SPILLING = {
    "sort of 3 M wide rows": (
        "wide", "id bigint, name text", 3_000_000, "id, 'row ' || (id * 7919 % 3000000) || ' of the wide table'",
        "SELECT name, id FROM wide ORDER BY name, id OFFSET 2999990"),
    "GROUP BY of 10 M groups": (
        "many", "k bigint", 10_000_000, "id * 7919 % 10000000",
        "SELECT count(*), sum(k), sum(n) FROM (SELECT k, count(*) AS n FROM many GROUP BY k) grouped"),
    "join of 10 M by 10 M": (
        "many", "k bigint", 10_000_000, "id * 7919 % 10000000",
        "SELECT count(*), sum(a.k) FROM many a JOIN many b ON a.k = b.k"),
}


def statement_under_limit(name, *limit):
    """Time, answer and peak memory of a statement on a server of its own."""
    table, columns, rows, values, query = SPILLING[name]
    with on_disk() as directory, Server("--db", directory, "--workers", "2", *limit) as server:
        client = Connection(server.port, timeout_s=3600)
        client.query(f"CREATE TABLE {table} ({columns})")
        fill(client, table, rows, values)
        started = time.perf_counter()
        answer = client.query(query)
        return time.perf_counter() - started, answer, peak_bytes(server.pid)


def spilling_statement(name):
    took, answer, _ = statement_under_limit(name)
    try:
        limited, under_limit, peak = statement_under_limit(name, "--memory-limit", str(SPILL_LIMIT_BYTES))
    except ServerError as error:
        raise Failed(f"{name}: {error}") from error
    right = answer == under_limit
    measured = (f"{limited / took:.1f} x ({limited:.1f} s, without a limit {took:.1f} s), "
                f"{'right' if right else 'wrong'}, at most {peak / 1e6:,.0f} MB resident")
    return Outcome(measured, right and limited <= SPILL_SLOWDOWN_MAX * took and peak <= SPILL_LIMIT_BYTES,
                   f"eris serve --memory-limit {SPILL_LIMIT_BYTES}")


def reads_ms(client, rows, until=None):
    """Times of point reads; with `until`, as long as it has not happened."""
    took, number = [], 0
    while len(took) < READS if until is None else not until.is_set():
        number = (number * 48_271 + 11) % rows
        started = time.perf_counter()
        client.query(f"SELECT v FROM points WHERE id = {number}")
        took.append((time.perf_counter() - started) * 1e3)
    return took


def p99(took):
    if len(took) < 100:
        raise Failed(f"only {len(took)} reads")
    return statistics.quantiles(took, n=100)[98]


def reads_beside_a_spill():
    """p99 of point reads while a statement spills, beside the same reads alone."""
    table, columns, rows, values, query = SPILLING["GROUP BY of 10 M groups"]
    with on_disk() as directory, Server("--db", directory, "--workers", "2", "--memory-limit",
                                        str(SPILL_LIMIT_BYTES)) as server:
        client = Connection(server.port)
        client.query(f"CREATE TABLE {table} ({columns})")
        fill(client, table, rows, values)
        client.query("CREATE TABLE points (id bigint PRIMARY KEY, v bigint)")
        fill(client, "points", 100_000, "id, id")
        alone = p99(reads_ms(client, 100_000))
        ended, failed = threading.Event(), []

        def spill():
            try:
                analyst = Connection(server.port, timeout_s=3600)
                analyst.query(query)
            except ServerError as error:
                failed.append(error)
            ended.set()

        thread = threading.Thread(target=spill)
        thread.start()
        beside = reads_ms(client, 100_000, ended)
        thread.join()
    if failed:
        raise Failed(f"the statement that should spill: {failed[0]}")
    ratio = p99(beside) / alone
    return Outcome(f"{ratio:.1f} x (p99 {p99(beside):.2f} ms of {len(beside):,} reads, alone {alone:.2f} ms)",
                   ratio <= READ_SLOWDOWN_MAX, shown(server.command).replace(str(directory), "DIR"))


def add_figures(figures):
    figures.line(MILESTONE, "TPC-H SF 1, ten clients at 800 MB", "0 errors, at least 0.9 x one client")(ten_clients)
    figures.line(MILESTONE, "verify of 1 M rows, three indexes on a flag", f"at most {VERIFY_MAX_S} s")(
        verify_with_repeated_keys)
    for name in SPILLING:
        figures.line(MILESTONE, f"{name} at 512 MB", f"right, at most {SPILL_SLOWDOWN_MAX} x")(
            lambda name=name: spilling_statement(name))
    figures.line(MILESTONE, "Point reads beside a spilling statement, p99", f"at most {READ_SLOWDOWN_MAX} x alone")(
        reads_beside_a_spill)
