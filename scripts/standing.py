"""How the server stands at its limits: the figures of milestone 39, each measured with a server that this starts."""
import concurrent.futures
import functools
import json
import pathlib
import re
import shutil
import statistics
import tempfile
import threading
import time

from checklist import (RESULTS, Failed, Outcome, Server, bench, eris, machine, on_disk, run, shown,
                       target_directory, test_command, write_json)
from tpch import load_tpch, tpch_files
from wire import Connection, ServerError

MILESTONE = 39
# The last commit before what this list is about.
BEFORE = "65e333358053a2ff222881a314187b1082f4d9c5"
FLAGGED_ROWS, FLAG_INDEXES, VERIFY_MAX_S = 1_000_000, 3, 10
CLIENTS, CLIENTS_LIMIT_BYTES, CLIENTS_SECONDS = 10, 800_000_000, 60
SPILL_LIMIT_BYTES = 512 << 20
SPILL_SLOWDOWN_MAX = 5
READS, READ_SLOWDOWN_MAX = 20_000, 3
CANCEL_MAX_MS = 50
USABLE_MIN = 0.8
LARGE_LIMITS, LARGE_SLOWDOWN_MAX = (4_000_000_000, 8_000_000_000), 3
# Twenty medians of short queries differ by more than nothing where the same code runs twice.
PAIRS, SLOWER_MAX, SLOWER_QUERY_MAX = 20, 1.02, 1.05


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


LIMITS = {"256 MB": 256 << 20, "512 MB": SPILL_LIMIT_BYTES, "1 GB": 1 << 30, "4 GB": 4 << 30}


@functools.cache
def statements_under(limit=None):
    """Time and answer, or error, of each of these statements on one server, and how much that had resident at most."""
    options, found, loaded = [] if limit is None else ["--memory-limit", str(limit)], {}, None
    with on_disk() as directory, Server("--db", directory, "--workers", "2", *options) as server:
        client = Connection(server.port, timeout_s=3600)
        for name, (table, columns, rows, values, query) in SPILLING.items():
            if loaded != table:
                if loaded:
                    client.query(f"DROP TABLE {loaded}")
                client.query(f"CREATE TABLE {table} ({columns})")
                fill(client, table, rows, values)
                loaded = table
            started = time.perf_counter()
            try:
                answer = client.query(query)
            except ServerError as error:
                answer = error
            found[name] = time.perf_counter() - started, answer
        return found, peak_bytes(server.pid), shown(server.command).replace(str(directory), "DIR")


def spilling_statement(name):
    took, answer = statements_under()[0][name]
    found, _, command = statements_under(SPILL_LIMIT_BYTES)
    limited, under_limit = found[name]
    if isinstance(under_limit, ServerError):
        raise Failed(f"{name}: {under_limit}")
    right = answer == under_limit
    return Outcome(f"{limited / took:.1f} x ({limited:.1f} s, without a limit {took:.1f} s), "
                   f"{'right' if right else 'wrong'}", right and limited <= SPILL_SLOWDOWN_MAX * took, command)


def peak_under(limit):
    """The most that a server had resident that did all of these statements."""
    answers = {name: answer for name, (_, answer) in statements_under()[0].items()}
    found, peak, command = statements_under(limit)
    right = [name for name, (_, answer) in found.items() if answer == answers[name]]
    errors = [f"; {name}: {answer}" for name, (_, answer) in found.items() if isinstance(answer, ServerError)]
    return Outcome(f"{peak / limit * 100:.0f} % ({peak / 1e6:,.0f} MB), {len(right)} of {len(found)} statements right"
                   + "".join(errors), peak <= limit and len(right) == len(found), command)


# Of rows that are as many as it takes: each copy of the keys has keys of its own.
HOLDING = {
    "sort": "SELECT k FROM ({rows}) c ORDER BY k * 3 % 1000003, k OFFSET {last}",
    "grouping": "SELECT count(*) FROM (SELECT k, count(*) AS n FROM ({rows}) c GROUP BY k) grouped",
    "window": "SELECT sum(r) FROM (SELECT row_number() OVER (PARTITION BY k % 1000 ORDER BY k) AS r FROM ({rows}) c) n",
}


def usable_by_one_statement(limit):
    """The most of the limit that is accounted for while each of these statements takes what it can, up to its files."""
    table, columns, step, values, _ = SPILLING["GROUP BY of 10 M groups"]
    shares = {}
    for name, query in HOLDING.items():
        with on_disk() as directory, Server("--db", directory, "--workers", "2", "--memory-limit",
                                            str(limit)) as server:
            client, watcher = Connection(server.port, timeout_s=3600), Connection(server.port)
            client.query(f"CREATE TABLE {table} ({columns})")
            # Sixteen bytes of each of these are more than the limit.
            count = min(step, limit // 512 // 100_000 * 100_000)
            copies = limit // 16 // count + 1
            fill(client, table, count, values)
            # What counts is over when files are used.
            client.query("SET temp_file_limit = 65536")
            rows = " UNION ALL ".join(f"SELECT k + {copy * step} AS k FROM {table}" for copy in range(copies))
            ended, seen = threading.Event(), [0]

            def watch(watcher=watcher, ended=ended, seen=seen):
                while not ended.is_set():
                    # Not of eris.memory_limit, which has the limit decided anew.
                    held = watcher.query("SELECT sum(bytes) FROM eris.memory")[0][0]
                    seen[0] = max(seen[0], int(held))
                    time.sleep(0.002)

            thread = threading.Thread(target=watch)
            thread.start()
            try:
                client.query(query.format(rows=rows, last=copies * count - 1))
                raise Failed(f"{name}: all of it fits into the limit")
            except ServerError as error:
                if error.sqlstate != "53400":
                    raise
            finally:
                ended.set()
                thread.join()
            shares[name] = seen[0] / limit, peak_bytes(server.pid) / limit
    measured = ", ".join(f"{name} {share * 100:.0f} % ({peak * 100:.0f} % resident at most)"
                         for name, (share, peak) in shares.items())
    return Outcome(measured, all(share >= USABLE_MIN and peak <= 1 for share, peak in shares.values()),
                   shown(server.command).replace(str(directory), "DIR"))


def large_under_limits():
    """TPC-H SF 10 in less memory and in enough; the answers of both are those of DuckDB."""
    reports = {}
    for limit in LARGE_LIMITS:
        reports[limit], command = bench("tpch", "--sf", "10", "--repeat", "1", "--peers", "duckdb", "--memory-limit",
                                        str(limit), result=f"tpch-sf10-{limit // 10 ** 9}", timeout=4 * 3600)
    less, enough = (reports[limit] for limit in LARGE_LIMITS)
    right = sum(result["answer"] == "ok" for result in less["results"])
    ratio = less["total_ms"] / enough["total_ms"]
    return Outcome(f"{right} of 22, {ratio:.1f} x ({less['total_ms'] / 1e3:.1f} s, {enough['total_ms'] / 1e3:.1f} s), "
                   f"at most {less['rss_bytes'] / 1e6:,.0f} MB resident", right == 22 and ratio <= LARGE_SLOWDOWN_MAX
                   and less["rss_bytes"] <= LARGE_LIMITS[0], command)


def binary_before():
    """The binary of the code before, built once, in a directory of its own: cargo takes artefacts of the same crates
    elsewhere for those of this code."""
    place = target_directory() / "before"
    kept = place / f"eris-{BEFORE[:12]}"
    if kept.is_file():
        return kept
    with tempfile.TemporaryDirectory(prefix="eris-before-") as parent:
        tree = pathlib.Path(parent) / "eris"
        run(["git", "worktree", "add", "--detach", tree, BEFORE])
        try:
            run(["cargo", "build", "--release", "--quiet"], cwd=tree, timeout=2 * 3600,
                env={"CARGO_TARGET_DIR": str(place)})
            shutil.copy(place / "release" / "eris", kept)
            shutil.rmtree(place / "release")
        finally:
            run(["git", "worktree", "remove", "--force", tree])
    return kept


def no_statement_is_slower():
    """TPC-H SF 1 by the code before and this one in turn; medians of the pairs' ratios."""
    before, binary = binary_before(), eris()
    pairs = []
    with tempfile.TemporaryDirectory(prefix="eris-pairs-") as place:
        report = pathlib.Path(place) / "report.json"

        def times(of):
            run([of, "bench", "tpch", "--sf", "1", "--workers", "2", "--repeat", "3", "--json", report])
            return {result["name"]: result["median_ms"] for result in json.loads(report.read_text())["results"]}

        for number in range(PAIRS):
            order = (before, binary) if number % 2 == 0 else (binary, before)
            found = {of: times(of) for of in order}
            pairs.append((found[before], found[binary]))
    ratios = {name: statistics.median(now[name] / then[name] for then, now in pairs) for name in pairs[0][0]}
    total = statistics.median(sum(now.values()) / sum(then.values()) for then, now in pairs)
    slowest = max(ratios, key=ratios.get)
    write_json(RESULTS / "tpch-before.json", {**machine(), "before": BEFORE, "ratios": ratios, "total": total,
                                              "pairs": pairs})
    return Outcome(f"total {total:.3f} x, {slowest} {ratios[slowest]:.3f} x, medians of {PAIRS} pairs",
                   total <= SLOWER_MAX and ratios[slowest] <= SLOWER_QUERY_MAX,
                   "eris bench tpch --sf 1 --workers 2 --repeat 3")


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


def cancels_heard():
    """What a test prints of each place where a statement is cancelled."""
    command = test_command("eris-sql", ["every_statement_hears", "--", "--nocapture"], "", "statements")
    printed = re.findall(r"^(\S.{0,27}?) +([\d.]+) ms$", run(command, timeout=3600), re.MULTILINE)
    if not printed:
        raise Failed("the test printed no times")
    took = {what: float(ms) for what, ms in printed}
    slowest = max(took, key=took.get)
    median = statistics.median(took.values())
    return Outcome(f"{len(took)} places, median {median:.1f} ms, at most {took[slowest]:.1f} ms ({slowest})",
                   took[slowest] <= CANCEL_MAX_MS, shown(command))


def add_figures(figures):
    figures.line(MILESTONE, "TPC-H SF 1, ten clients at 800 MB", "0 errors, at least 0.9 x one client")(ten_clients)
    figures.line(MILESTONE, "verify of 1 M rows, three indexes on a flag", f"at most {VERIFY_MAX_S} s")(
        verify_with_repeated_keys)
    for name in SPILLING:
        figures.line(MILESTONE, f"{name} at 512 MB", f"right, at most {SPILL_SLOWDOWN_MAX} x")(
            functools.partial(spilling_statement, name))
    for name, limit in LIMITS.items():
        figures.line(MILESTONE, f"Resident at most with these three statements at {name}", "the limit")(
            functools.partial(peak_under, limit))
    for name, limit in LIMITS.items():
        figures.line(MILESTONE, f"Of {name} accounted for by one statement", f"at least {USABLE_MIN * 100:.0f} %")(
            functools.partial(usable_by_one_statement, limit))
    figures.line(MILESTONE, "TPC-H SF 10 at a limit of 4 GB beside 8 GB", "22 of 22 right, at most 3 x")(
        large_under_limits)
    figures.line(MILESTONE, "TPC-H SF 1 beside the code before, where nothing spills", "no statement slower")(
        no_statement_is_slower)
    figures.line(MILESTONE, "Point reads beside a spilling statement, p99", f"at most {READ_SLOWDOWN_MAX} x alone")(
        reads_beside_a_spill)
    figures.line(MILESTONE, "From a cancel to the end of its statement", f"at most {CANCEL_MAX_MS} ms")(cancels_heard)
