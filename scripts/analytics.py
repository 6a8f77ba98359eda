"""Figures and conditions of analytical queries: TPC-H beside DuckDB and Hyper in one run."""
import functools
import json

from checklist import ROOT, Failed, Outcome, Unavailable, bench
from coverage import failed_last

PEERS = "duckdb,hyper"
FUZZED_HOURS = 4


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


def tpch_native(scale):
    """All queries without a DataFusion node, with the right answers."""
    report, command = bench("tpch", "--sf", scale, "--repeat", "1", result=f"tpch-native-{scale}")
    wrong = [result["name"] for result in report["results"] if result["answer"] != "ok" or not result["native"]]
    if len(report["results"]) != 22:
        raise Failed(f"{len(report['results'])} queries")
    return Outcome(f"{22 - len(wrong)} of 22" + (f", not {', '.join(wrong)}" if wrong else ""), not wrong, command)


def add_figures(figures):
    figures.line(5, "TPC-H SF 1, total beside DuckDB 2.0", "at most 0.7 x")(tpch_total)
    figures.line(5, "TPC-H SF 1, geometric mean beside Hyper API", "at most 0.7 x")(tpch_geometric_mean)
    figures.line(5, "TPC-H SF 1, each query beside the better of the two", "at most 1 x")(tpch_each)
    figures.line(5, "TPC-H SF 1, total on two workers beside one", "at least 1.6 x")(tpch_scaling)


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


def add_conditions(done):
    for scale in ("0.01", "1"):
        done.line(5, f"TPC-H SF {scale}: right, and no DataFusion node", "22 of 22")(
            functools.partial(tpch_native, scale))
    done.line(5, "Differential fuzzer beside DuckDB", f"{FUZZED_HOURS} hours in sum, the last run without failures")(
        differential_fuzzer)
