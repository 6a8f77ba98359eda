"""Figures and conditions of analytical queries: TPC-H and JCC-H beside DuckDB and Hyper in one run, mixed loads."""
import functools
import json
import os
import statistics

from checklist import (RESULTS, ROOT, Failed, Outcome, Server, Unavailable, bench, cargo_test, machine, run, shown,
                       write_json)
from coverage import failed_last
from tpch import dbgen_bytes, load_tpch
from wire import Connection, ServerError

PEERS = "duckdb,hyper"
FUZZED_HOURS = 4
CACHE_QUERIES = {"scan": "at least 80 % of the read bandwidth", "aggregation": "reported", "join": "reported"}
READS_MIN = 1_000_000
# Of the transactions that are due beside the stream: with fewer done, it had less than half the load beside it.
TATP_DONE_MIN = 0.95
MEMORY_BYTES_MAX = 8_000_000_000
WRITERS = 4
CHURN = 200
SUITES = {
    "TPC-H SF {}": ["tpch"],
    "JCC-H SF {}, normal parameters": ["jcch", "--parameters", "normal"],
    "JCC-H SF {}, skewed parameters": ["jcch", "--parameters", "skewed"],
}
# By scale factor. The queries are over within a second of the smallest one: writers have to meet each of them. There a
# table would be a single segment, too.
REPETITIONS = {"0.01": "50", "1": "3", "5": "2"}
SEGMENTS = {"0.01": ["--segment-rows", "1000"]}


@functools.cache
def tpch_beside_peers():
    return bench("tpch", "--sf", "1", "--workers", "2", "--repeat", "5", "--peers", PEERS, result="tpch-peers")


def peer(name):
    report, _ = tpch_beside_peers()
    found = report.get("peers", {}).get(name)
    if not found or "total_ms" not in found:
        raise Unavailable(f"the report has no peer {name}")
    return found


def tpch_total():
    report, command = tpch_beside_peers()
    found = peer("duckdb")
    ratio = report["total_ms"] / found["total_ms"]
    return Outcome(f"{ratio:.2f} x ({report['total_ms']:.0f} ms, DuckDB {found['version']} {found['total_ms']:.0f} ms)",
                   ratio <= 0.7, command)


def tpch_geometric_mean():
    report, command = tpch_beside_peers()
    found = peer("hyper")
    ratio = report["geomean_ms"] / found["geomean_ms"]
    return Outcome(f"{ratio:.2f} x ({report['geomean_ms']:.1f} ms, Hyper API {found['version']} "
                   f"{found['geomean_ms']:.1f} ms)", ratio <= 0.7, command)


def tpch_each():
    """Of each query the ratio to the better of the two, worst first."""
    report, command = tpch_beside_peers()
    best = {name: min(peer(engine)["results"][name] for engine in PEERS.split(",")) for name in
            (result["name"] for result in report["results"])}
    ratios = sorted(((result["median_ms"] / best[result["name"]], result["name"]) for result in report["results"]),
                    reverse=True)
    shown = ", ".join(f"{name} {ratio:.2f}" for ratio, name in ratios)
    return Outcome(shown, ratios[0][0] <= 1, command)


def tpch_scaling():
    """The total on one worker beside that on two."""
    single, _ = bench("tpch", "--sf", "1", "--workers", "1", "--repeat", "3", result="tpch-one-worker")
    double, command = bench("tpch", "--sf", "1", "--workers", "2", "--repeat", "3", result="tpch-two-workers")
    ratio = single["total_ms"] / double["total_ms"]
    return Outcome(f"{ratio:.2f} x ({single['total_ms']:.0f} ms, {double['total_ms']:.0f} ms)", ratio >= 1.6, command)


@functools.cache
def mixed():
    return bench("mixed", "--sf", "1", "--workers", "2", result="mixed")


def point_reads_beside_stream(report, command):
    reads, stream = report["point_reads"], report["stream"]
    if min(reads[name]["count"] for name in ("alone", "beside_stream")) < READS_MIN:
        raise Failed(f"only {reads['alone']['count']:,} reads alone and {reads['beside_stream']['count']:,} beside")
    alone, beside, machine = (statistics.median(reads[name]["p99_us_of_rounds"])
                              for name in ("alone", "beside_stream", "machine"))
    measured = (f"{reads['p99_ratio']:.2f} x: {beside:.0f} us, alone {alone:.0f} us, the machine itself "
                f"{machine:.0f} us (medians of {report['rounds']} rounds); {reads['reads_per_s']:,.0f} of "
                f"{reads['capacity_per_s']:,.0f} reads/s, the stream keeps {stream['share_beside_reads'] * 100:.0f} %")
    return Outcome(measured, reads["p99_ratio"] <= 3 or beside <= 1000, command)


def stream_beside_tatp(report, command):
    stream, tatp = report["stream"], report["tatp"]
    done = tatp["done_per_s"] / tatp["asked_per_s"]
    measured = (f"{stream['share_beside_tatp'] * 100:.0f} % (median of {report['rounds']} rounds; "
                f"{statistics.median(stream['beside_tatp_ms_of_rounds']):.0f} ms, alone {stream['alone_ms']:.0f} ms); "
                f"{tatp['done_per_s']:,.0f} transactions/s, {done * 100:.0f} % of those due; "
                f"{tatp['capacity_per_s']:,.0f}/s alone")
    return Outcome(measured, stream["share_beside_tatp"] >= 0.7 and done >= TATP_DONE_MIN, command)


def freshness(report, command):
    """The age of the newest commit that a query sees when it starts."""
    found = report["freshness"]
    measured = (f"median {found['age_p50_us']:.0f} us, at most {found['age_max_us']:.0f} us ({found['queries']} "
                f"queries, {found['stale']} stale; a commit every {found['interval_p50_us']:.0f} us, at most "
                f"{found['interval_max_us']:.0f} us)")
    return Outcome(measured, found["queries"] > 0 and found["stale"] == 0, command)


def native(report, command):
    """All queries without a DataFusion node and with the right answers, and no peer says anything else."""
    wrong = [result["name"] for result in report["results"] if result["answer"] != "ok" or not result["native"]]
    if len(report["results"]) != 22:
        raise Failed(f"{len(report['results'])} queries")
    named = f", not {', '.join(wrong)}" if wrong else ""
    peers = report.get("peers", {})
    same = "".join(f", {found['answers_right']} as {name} {found['version']}" for name, found in peers.items())
    # A query that one peer cannot run, or takes too long for, is compared with what the other one says.
    agree = all(found["answers_right"] + len(found["errors"]) == 22 for found in peers.values())
    return Outcome(f"{22 - len(wrong)} of 22{named}{same}", not wrong and agree, command)


def tpch_native(scale):
    return native(*bench("tpch", "--sf", scale, "--repeat", "1", result=f"tpch-native-{scale}"))


def tpch_as_peers(scale):
    require_peers()
    return native(*bench("tpch", "--sf", scale, "--repeat", "1", "--peers", PEERS, result=f"tpch-native-{scale}"))


def jcch_as_peers(scale, parameters):
    require_peers()
    return native(*bench("jcch", "--sf", scale, "--parameters", parameters, "--repeat", "1", "--peers", PEERS,
                         result=f"jcch-{parameters}-{scale}", timeout=6 * 3600))


def require_peers():
    python = os.environ.get("ERIS_BENCH_PYTHON", "python3")
    try:
        run([python, "-c", "import duckdb, tableauhyperapi"])
    except Failed as reason:
        raise Unavailable(f"{python} has not both peers: {reason}") from reason


@functools.cache
def cache_queries(rows):
    report, command = bench("cache-queries", "--rows", str(rows), "--workers", "2", result=f"cache-queries-{rows}",
                            timeout=4 * 3600)
    return {query["name"]: query for query in report["queries"]}, report["cached_scan"], command


def cache_query_of_many(figures, name):
    if not figures.large:
        raise Unavailable("takes about an hour and 10 GB: pass --large")
    return cache_query(10**9, name)


def cache_query(rows, name):
    queries, _, command = cache_queries(rows)
    query = queries[name]
    if not query["native"]:
        raise Failed("an operator is not native")
    share = query["share_of_limit_percent"]
    measured = (f"{query['ns_per_row']:.3f} ns/row, {query['execution_ns_per_row']:.3f} without planning "
                f"({query['plan_us']:.0f} us): {query['read_bytes'] / 1e6:,.0f} MB at "
                f"{query['bytes_per_s'] / 1e9:.1f} GB/s, {share:.0f} % of the bandwidth "
                f"({query['limit_bytes_per_s'] / 1e9:.1f} GB/s)")
    return Outcome(measured, name != "scan" or share >= 80, command)


def cached_scan():
    _, scan, command = cache_queries(10**8)
    if scan["lies_in_l2"] is False:
        raise Unavailable(f"{scan['bytes']:,} bytes do not lie in {scan['l2_bytes']:,}")
    l2 = f"{scan['l2_bytes'] / 1024:,.0f} KiB" if scan["l2_bytes"] else "unknown size"
    measured = (f"{scan['codes_per_ns_and_core']:.1f} codes/ns: {scan['rows']:,} of {scan['bits_per_code']} bits in "
                f"{scan['execution_us']:.0f} us, of which {scan['empty_execution_us']:.0f} us also over no rows; "
                f"{scan['bytes'] / 1024:,.0f} KiB, cache of {l2}; {scan['share_of_limit_percent']:.0f} % of the "
                f"bandwidth of the cache")
    return Outcome(measured, scan["codes_per_ns_and_core"] >= 8, command)


def beside_writers(suite, scale):
    """While clients insert, delete and change rows of which no query may see anything."""
    report, command = bench(*SUITES[suite], "--sf", scale, *SEGMENTS.get(scale, []), "--refresh", str(WRITERS),
                            "--repeat", REPETITIONS[scale], result=f"{result_name(suite, scale)}-writers",
                            timeout=2 * 3600)
    done = {"transactions": report["refresh_transactions"]}
    if scale in SEGMENTS:  # larger segments may outlive so short a run
        done.update(rewritten(report))
    return after_all_of(done, native(report, command))


def after_changes(suite, scale):
    """Random changes that stay: as a fresh load of the same rows answers."""
    report, command = bench(*SUITES[suite], "--sf", scale, *SEGMENTS.get(scale, []), "--churn", str(CHURN),
                            "--repeat", "1", result=f"{result_name(suite, scale)}-churn", timeout=2 * 3600)
    done = {name.replace("_", " "): count for name, count in report["churn"].items()}
    done.update(rewritten(report))
    return after_all_of(done, native(report, command))


def rewritten(report):
    return {"segments thawed or compacted": sum(report["counters"][f"segments_{name}"] for name in
                                                ("thawed", "compacted"))}


def result_name(suite, scale):
    return "-".join([SUITES[suite][0], *SUITES[suite][2:], scale])


def after_all_of(done, outcome):
    """What was found out, and what had to be done to the rows for it to mean anything."""
    counts = ", ".join(f"{count:,} {name}" for name, count in done.items())
    return Outcome(f"{outcome.measured}; {counts}", outcome.reached and all(done.values()), outcome.command)


def memory_at_rest():
    """Resident memory of a server with all tables and their primary keys, without that of an empty one."""
    try:
        with Server("--workers", "2") as server:
            empty = server.rss_at_rest_bytes()
        with Server("--workers", "2") as server:
            connection = Connection(server.port)
            load_tpch(connection)
            lines = int(connection.query("SELECT count(*) FROM lineitem")[0][0])
            connection.close()
            loaded = server.rss_at_rest_bytes()
            command = shown(server.command)
    except ServerError as error:
        raise Failed(str(error)) from error
    text = dbgen_bytes(lines)
    write_json(RESULTS / "tpch-memory.json", {**machine(), "rss_empty_bytes": empty, "rss_at_rest_bytes": loaded,
                                              "tbl_bytes": text})
    share = (loaded - empty) / text
    return Outcome(f"{share * 100:.1f} % ({loaded - empty:,} of {text:,} bytes; the empty server has {empty:,})",
                   share <= 0.4, command)


def large_in_memory():
    report, command = bench("tpch", "--sf", "10", "--repeat", "1", "--memory-limit", str(MEMORY_BYTES_MAX),
                            result="tpch-sf10", timeout=4 * 3600)
    answered = sum(result["answer"] in ("ok", "unchecked") for result in report["results"])
    peak = report["rss_bytes"]
    return Outcome(f"{answered} of 22, {peak / 1e9:.2f} GB resident at most", answered == 22 and
                   0 < peak <= MEMORY_BYTES_MAX, command)


def add_figures(figures):
    figures.line(5, "TPC-H SF 1, total beside DuckDB 2.0", "at most 0.7 x")(tpch_total)
    figures.line(5, "TPC-H SF 1, geometric mean beside Hyper API", "at most 0.7 x")(tpch_geometric_mean)
    figures.line(5, "TPC-H SF 1, each query beside the better of the two", "at most 1 x")(tpch_each)
    figures.line(5, "TPC-H SF 1, total on two workers beside one", "at least 1.6 x")(tpch_scaling)
    for name, target in CACHE_QUERIES.items():
        figures.line(5, f"001's queries at 10^8 rows: {name}", target)(functools.partial(cache_query, 10**8, name))
    figures.line(5, "001's scan of a column in L2", "at least 8 codes per ns and core")(cached_scan)
    for name, target in CACHE_QUERIES.items():
        figures.line(5, f"001's queries at 10^9 rows: {name}", target)(
            functools.partial(cache_query_of_many, figures, name))
    figures.line(5, "Mixed: point reads at half load beside a TPC-H stream, p99 of 10^6",
                 "at most 3 x that of reads alone, or 1 ms")(lambda: point_reads_beside_stream(*mixed()))
    figures.line(5, "Mixed: a TPC-H stream beside half the TATP load, speed beside alone", "at least 70 %")(
        lambda: stream_beside_tatp(*mixed()))
    figures.line(5, "Mixed: age of the newest commit that a query sees", "reported")(lambda: freshness(*mixed()))
    figures.line(5, "TPC-H SF 1 with primary keys, memory at rest without that of an empty server",
                 "at most 40 % of the .tbl bytes")(memory_at_rest)
    figures.line(5, "TPC-H SF 10 loaded and all 22 queries within 8 GB", "22 of 22, at most 8 GB resident")(
        large_in_memory)


def differential_fuzzer():
    """By the processor, not by the clock, as for the other fuzzers."""
    ledger = json.loads((ROOT / "verification" / "ledger.json").read_text())
    entries = [entry for entry in ledger if entry["name"] == "differential fuzzer"]
    if not entries:
        raise Unavailable("the ledger has no \"differential fuzzer\"")
    hours, of_processor = (sum(entry[name] for entry in entries) / 3600 for name in ("seconds", "processor_seconds"))
    cases, failures = (sum(entry[name] for entry in entries) for name in ("executions", "failures"))
    last = failed_last(entries)
    return Outcome(f"{hours:.1f} h ({of_processor:.1f} h of processor time), {cases:,} cases, {failures} failures, "
                   f"{last} of them in the last run", of_processor >= FUZZED_HOURS and last == 0,
                   f"just differential {FUZZED_HOURS * 3600} --record")


def full_matrix():
    """Every way of storing tables with every way of making it hard."""
    passed, command = cargo_test("eris-sql", test="slt", env={"ERIS_MATRIX": "full"}, timeout=2 * 3600)
    return Outcome(f"{passed} test", passed > 0, f"ERIS_MATRIX=full {command}")


def add_conditions(done):
    for scale in ("0.01", "1"):
        done.line(5, f"TPC-H SF {scale}: right, and no DataFusion node", "22 of 22")(
            functools.partial(tpch_native, scale))
    done.line(5, "TPC-H SF 5: as DuckDB and Hyper say, and no DataFusion node", "22 of 22")(
        functools.partial(tpch_as_peers, "5"))
    for scale in ("0.01", "1", "5"):
        for parameters in ("normal", "skewed"):
            done.line(5, f"JCC-H SF {scale}, {parameters} parameters: as DuckDB and Hyper say, and no DataFusion node",
                      "22 of 22")(functools.partial(jcch_as_peers, scale, parameters))
    for scale in ("0.01", "1", "5"):
        for suite in SUITES:
            title = suite.format(scale)
            done.line(5, f"{title}: right while {WRITERS} clients change other rows", "22 of 22")(
                functools.partial(beside_writers, suite, scale))
            done.line(5, f"{title}: after random inserts, deletes and merges as a fresh load", "22 of 22")(
                functools.partial(after_changes, suite, scale))
    done.line(5, "All .slt files under the adversarial matrix, in full", "pass")(full_matrix)
    done.line(5, "Differential fuzzer beside DuckDB", f"{FUZZED_HOURS} hours in sum, the last run without failures")(
        differential_fuzzer)
