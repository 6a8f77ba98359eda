"""Figures of milestone 40: planning, and what a statement costs that has its values in the text, by pgbench."""
import functools
import json
import re
import statistics
import tempfile

from checklist import Failed, Outcome, Server, Unavailable, eris, run, shown
from postgres import BINARIES, PostgreSql
from wire import Connection

ROWS = 100_000
CLIENTS = 4
SECONDS = 5
ROUNDS = 5
SELECT = f"\\set aid random(1, {ROWS})\nSELECT abalance FROM pgbench_accounts WHERE aid = :aid;\n"


def fill(port):
    connection = Connection(port)
    connection.query("CREATE TABLE pgbench_accounts (aid int PRIMARY KEY, bid int, abalance int, filler char(84))")
    for first in range(1, ROWS + 1, 1000):
        rows = ", ".join(f"({aid}, 1, 0, '')" for aid in range(first, first + 1000))
        connection.query(f"INSERT INTO pgbench_accounts VALUES {rows}")
    connection.close()


def pgbench(port, mode):
    """Transactions a second and in all, and the command."""
    binary = BINARIES / "pgbench"
    if not binary.is_file():
        raise Unavailable("pgbench is not installed (apt-get install postgresql-15)")
    with tempfile.NamedTemporaryFile("w", suffix=".sql") as script:
        script.write(SELECT)
        script.flush()
        command = [binary, "-h", "127.0.0.1", "-p", str(port), "-U", "eris", "-n", "-M", mode, "-c", str(CLIENTS),
                   "-j", "2", "-T", str(SECONDS), "-f", script.name, "eris"]
        output = run(command)
        command = shown(command).replace(script.name, "select.sql").replace(f"-p {port}", "-p PORT")
    number = re.search(r"^number of transactions actually processed: (\d+)", output, re.MULTILINE)
    rate = re.search(r"^tps = ([\d.]+)", output, re.MULTILINE)
    if not number or not rate:
        raise Failed("pgbench did not say how many transactions it ran")
    return float(rate[1]), int(number[1]), command


PLANNING_RUNS = 25


@functools.cache
def tpch_planning():
    """Milliseconds until the plan of each of TPC-H's queries was ready, medians of runs, and the command."""
    with tempfile.NamedTemporaryFile("r", suffix=".json") as file:
        command = [eris(), "bench", "tpch", "--sf", "0.01", "--repeat", str(PLANNING_RUNS), "--json", file.name]
        run(command, timeout=600)
        results = json.load(file)["results"]
    return {result["name"]: result["plan_ms"] for result in results}, shown(command[:-1] + ["tpch.json"])


@functools.cache
def select_by_key():
    """By round and mode: server processor time of ERIS in us, and throughput of ERIS and PostgreSQL."""
    rounds, command = [], ""
    with PostgreSql() as postgres, Server("--workers", "2") as server:
        fill(postgres.port)
        fill(server.port)
        for number in range(ROUNDS):
            found = {}
            for mode in ("simple", "prepared") if number % 2 == 0 else ("prepared", "simple"):
                before = server.cpu_ns()
                rate, count, command = pgbench(server.port, mode)
                found[mode] = {"cpu_us": (server.cpu_ns() - before) / 1e3 / count, "eris": rate}
                found[mode]["postgresql"] = pgbench(postgres.port, mode)[0]
            rounds.append(found)
    return rounds, f"{shown(server.command)}; {command}"


def add_figures(figures):
    @figures.line(40, "planning of TPC-H's 22 queries, text to runnable plan", "at most 6 ms")
    def planning_of_all():
        plans, command = tpch_planning()
        total = sum(plans.values())
        return Outcome(f"{total:.1f} ms (SF 0.01, medians of {PLANNING_RUNS})", total <= 6, command)

    @figures.line(40, "planning of each of them", "at most 0.5 ms")
    def planning_of_each():
        plans, command = tpch_planning()
        worst = max(plans, key=plans.get)
        return Outcome(f"{plans[worst]:.2f} ms ({worst})", plans[worst] <= 0.5, command)

    @figures.line(40, "pgbench select-only, simple protocol: server processor time beside prepared", "at most 1.3 x")
    def beside_prepared():
        rounds, command = select_by_key()
        ratio = statistics.median(one["simple"]["cpu_us"] / one["prepared"]["cpu_us"] for one in rounds)
        simple, prepared = (statistics.median(one[mode]["cpu_us"] for one in rounds) for mode in ("simple", "prepared"))
        return Outcome(f"{ratio:.2f} x ({simple:.1f} us, prepared {prepared:.1f} us; {ROWS:,} rows, {CLIENTS} clients)",
                       ratio <= 1.3, command)

    @figures.line(40, "pgbench select-only, simple protocol: throughput beside PostgreSQL 15", "at least 1 x")
    def beside_postgresql():
        rounds, command = select_by_key()
        ratio = statistics.median(one["simple"]["eris"] / one["simple"]["postgresql"] for one in rounds)
        own, theirs = (statistics.median(one["simple"][name] for one in rounds) for name in ("eris", "postgresql"))
        return Outcome(f"{ratio:.2f} x ({own:,.0f}/s, PostgreSQL {theirs:,.0f}/s; {ROWS:,} rows, {CLIENTS} clients)",
                       ratio >= 1, command)
