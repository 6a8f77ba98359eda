"""Lines that are measured or checked by running real commands, printed as a table.

A script registers one small function per line and calls `main`. A function returns an `Outcome`, or raises
`Unavailable` if something it needs is missing on this machine or in this version, or `Failed` if a command did not do
what it should. Nothing counts as reached that was not run.
"""
import argparse
import contextlib
import dataclasses
import datetime
import functools
import json
import os
import pathlib
import platform
import re
import socket
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench" / "results"
COLD_RUN = RESULTS / "cold-run.json"


class Unavailable(Exception):
    """A prerequisite is missing; the line stays open."""


class Failed(Exception):
    """A command ran and the result is wrong."""


@dataclasses.dataclass
class Outcome:
    measured: str
    reached: bool
    command: str


@dataclasses.dataclass
class Line:
    text: str
    target: str
    measure: object


class Checklist:
    """The lines of each milestone, in order."""

    def __init__(self, name):
        self.name = name
        self.milestones = {}
        self.cold = False
        self.large = False

    def line(self, milestone, text, target):
        def register(measure):
            self.milestones.setdefault(milestone, []).append(Line(text, target, measure))
            return measure
        return register

    def main(self):
        parser = argparse.ArgumentParser(prog=f"scripts/{self.name}", description=__doc__.split("\n", maxsplit=1)[0])
        parser.add_argument("milestone", type=int, nargs="?", help="which table")
        parser.add_argument("--list", action="store_true", help="print the lines without measuring")
        parser.add_argument("--only", metavar="TEXT", default="", help="only lines whose text contains TEXT")
        parser.add_argument("--cold", action="store_true", help="allow builds from nothing (up to an hour)")
        parser.add_argument("--large", action="store_true", help="allow data of 10^9 rows (about an hour, 10 GB)")
        arguments = parser.parse_args()
        self.cold = arguments.cold
        self.large = arguments.large
        commit()  # what is measured, before the results themselves change the tree
        if arguments.list:
            for milestone, lines in self.milestones.items():
                for line in lines:
                    print(f"{milestone}  {line.text}: {line.target}")
            return 0
        if arguments.milestone not in self.milestones:
            parser.error(f"tables exist for {', '.join(map(str, self.milestones))}")
        lines = [line for line in self.milestones[arguments.milestone] if arguments.only in line.text]
        rows = [self._row(line) for line in lines]
        print_table(rows)
        path = RESULTS / f"{self.name}-{arguments.milestone}.json"
        if not arguments.only or path.is_file():
            kept = json.loads(path.read_text())["lines"] if arguments.only else []
            order = [line.text for line in self.milestones[arguments.milestone]]
            write_json(path, {"machine": machine(), "lines": merged(kept, rows, order)})
        return 0 if rows and all(row["reached"] == "yes" for row in rows) else 1

    def _row(self, line):
        print(f"... {line.text}", file=sys.stderr, flush=True)
        row = {"line": line.text, "target": line.target, "measured": "", "reached": "no", "command": "",
               "commit": commit()}
        try:
            outcome = line.measure()
            row.update(measured=outcome.measured, reached="yes" if outcome.reached else "no", command=outcome.command)
        except Unavailable as reason:
            row.update(measured=f"unavailable: {reason}", reached="unavailable")
        except Failed as reason:
            row.update(measured=f"failed: {reason}")
        return row


def merged(kept, rows, order):
    """What was measured now in place of what was kept of the same lines; lines that are gone are not kept."""
    newest = {row["line"]: row for row in [*kept, *rows]}
    return [newest[text] for text in order if text in newest]


def print_table(rows):
    columns = ["line", "target", "measured", "reached", "command"]
    widths = {name: max([len(name)] + [len(row[name]) for row in rows]) for name in columns[:-1]}
    for row in [{name: name for name in columns}] + rows:
        print("  ".join(row[name].ljust(widths.get(name, 0)) for name in columns).rstrip())


def write_json(path, value):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, indent=1) + "\n")


def machine():
    model = re.search(r"model name\s*: (.*)", pathlib.Path("/proc/cpuinfo").read_text())
    return {
        "commit": commit(),
        "date": datetime.date.today().isoformat(),
        "processor": model.group(1) if model else platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "system": platform.platform(),
    }


@functools.cache
def commit():
    """This one; `-dirty` if anything differs from it but records of what was measured and verified."""
    name = run(["git", "describe", "--always", "--abbrev=12"]).strip()
    changed = run(["git", "status", "--porcelain", "--untracked-files=no", "--",
                   ".", ":!verification/ledger.json", ":!bench/results"])
    return f"{name}-dirty" if changed.strip() else name


def run(command, timeout=600, env=None, cwd=ROOT):
    """Standard output of a command that must succeed."""
    try:
        done = subprocess.run(command, cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=timeout, env={**os.environ, **(env or {})}, check=False)
    except FileNotFoundError as error:
        raise Unavailable(f"{command[0]} is not installed") from error
    except subprocess.TimeoutExpired as error:
        raise Failed(f"no end after {timeout} s: {' '.join(map(str, command))}") from error
    if done.returncode != 0:
        raise Failed(f"exit {done.returncode}: {last_line(done.stderr) or last_line(done.stdout)}")
    return done.stdout


def step_back():
    """Leaves a process only the processor time that nobody else wants."""
    os.nice(19)
    autogroup = pathlib.Path("/proc/self/autogroup")  # the processes of a session are weighed as a group
    if autogroup.exists():
        autogroup.write_text("19")


def last_line(text):
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("error")]
    return (errors or lines or [""])[-1][:200]


def shown(command):
    """A command as one would type it."""
    words = [str(word) for word in command]
    if words[0].startswith("/"):
        words[0] = pathlib.Path(words[0]).name
    return " ".join(word.replace(f"{ROOT}/", "") for word in words)


@functools.cache
def target_directory():
    metadata = run(["cargo", "metadata", "--format-version", "1", "--no-deps", "--offline"])
    return pathlib.Path(json.loads(metadata)["target_directory"])


@functools.cache
def eris():
    """The binary of this tree."""
    run(["cargo", "build", "--release", "--quiet"], timeout=3600)
    return target_directory() / "release" / "eris"


def require_option(option, *subcommand):
    if option not in run([eris(), *subcommand, "--help"]):
        raise Unavailable(f"eris {' '.join(subcommand)} has no {option}")


def bench(name, *options, result, timeout=3600):
    """Runs a benchmark; returns its report and the command."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    path = RESULTS / f"{result}.json"
    path.unlink(missing_ok=True)
    command = [eris(), "bench", name, *options, "--json", path]
    run(command, timeout=timeout)
    if not path.is_file():
        raise Failed(f"{shown(command)} wrote no report")
    return json.loads(path.read_text()), shown(command)


@contextlib.contextmanager
def on_disk(name="db"):
    """The path of a new directory or file in TMPDIR, which has to be on a disk; removed with the block."""
    with tempfile.TemporaryDirectory(prefix="eris-on-disk-") as parent:
        kind = run(["stat", "--file-system", "--format=%T", parent]).strip()
        if kind in ("tmpfs", "ramfs"):
            raise Unavailable(f"{parent} is in memory: set TMPDIR to a directory on a disk")
        yield pathlib.Path(parent) / name


def bench_on_disk(name, *options, result, timeout=3600):
    """Runs a benchmark of a database in a directory on a disk; returns its report and the command."""
    with on_disk() as directory:
        report, command = bench(name, "--db", directory, *options, result=result, timeout=timeout)
    return report, command.replace(str(directory), "DIR")


def core_report(name, options, timeout=3600):
    """Runs a benchmark of the core alone, an example of `workloads`; returns its report and the command."""
    run(["cargo", "build", "--release", "--quiet", "-p", "eris-workloads", "--example", name], timeout=3600)
    command = [target_directory() / "release" / "examples" / name, *options]
    return json.loads(run(command, timeout=timeout)), shown(command)


def core_benchmark(name, *options, result, timeout=3600):
    """The same, and the report is kept."""
    report, command = core_report(name, options, timeout)
    write_json(RESULTS / f"{result}.json", {**machine(), **report})
    return report, command


def core_benchmarks(name, runs, result):
    """The same with several lists of options, by name; returns the reports, by name."""
    reports = {one: core_report(name, options)[0] for one, options in runs.items()}
    write_json(RESULTS / f"{result}.json", {**machine(), "reports": reports})
    return reports


def storage_benchmark(part, result, timeout=3600):
    """Runs a part of the benchmark of storage modules; returns its measurements and the command."""
    command = ["cargo", "bench", "--quiet", "-p", "eris-storage", "--bench", "modules", "--", "--only", part]
    measurements = json.loads(run(command, timeout=timeout))
    write_json(RESULTS / f"{result}.json", {**machine(), "measurements": measurements})
    return measurements, shown(command)


# Alone, they would have what they share compiled again, with fewer features than the binary asks for.
WITH_BINARY = ["eris-sql", "eris-server"]


def test_command(package, arguments, features, test):
    command = ["cargo", "test", "--release", "-p", package]
    command += ["-p", "eris-cli"] if package in WITH_BINARY else []
    command += ["--features", features] if features else []
    command += ["--test", test] if test else []
    return command + list(arguments)


def cargo_test(package, *arguments, features="", test="", timeout=3600, env=None):
    """Runs tests of a package; the number that passed, and the command. No matching test is no success."""
    command = test_command(package, arguments, features, test)
    try:
        output = run(command, timeout=timeout, env=env)
    except Failed as failure:
        if "no test target named" in str(failure):
            raise Unavailable(f"no such test: {shown(command)}") from failure
        raise
    passed = sum(int(count) for count in re.findall(r"^test result: ok\. (\d+) passed", output, re.MULTILINE))
    if passed == 0:
        raise Unavailable(f"no such test: {shown(command)}")
    return passed, shown(command)


def failing_test(package, *arguments, features="", test="", timeout=3600, env=None):
    """Runs tests that have to fail; their output, and the command. What does not compile has proved nothing."""
    command = test_command(package, arguments, features, test)
    run([*command, "--no-run"], timeout=timeout, env=env)
    try:
        done = subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=timeout, env={**os.environ, **(env or {})}, check=False)
    except subprocess.TimeoutExpired as error:
        raise Failed(f"the tests do not end within {timeout} s: {shown(command)}") from error
    if done.returncode == 0:
        raise Failed(f"the tests pass: {shown(command)}")
    return done.stdout + done.stderr, shown(command)


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


# Memory is at rest when it has not become less for as long; longer than the maximum nobody waits for that.
REST_S, REST_WAIT_MAX_S = 10, 900


class Server:
    """`eris serve` on a free port, ended with the block."""

    def __init__(self, *options):
        self.port = free_port()
        self.command = [eris(), "serve", "--listen", f"127.0.0.1:{self.port}", *options]

    def __enter__(self):
        started = time.perf_counter()
        self.errors = tempfile.TemporaryFile(mode="w+")
        self.process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                        stderr=self.errors, text=True)
        self.ready_line = self.process.stdout.readline()
        self.startup_s = time.perf_counter() - started
        if not self.ready_line:
            self.process.wait(timeout=10)
            self.errors.seek(0)
            raise Failed(f"eris serve ended: {last_line(self.errors.read())}")
        return self

    def __exit__(self, *_):
        self.process.terminate()
        try:
            self.process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.errors.close()

    @property
    def pid(self):
        return self.process.pid

    def cpu_ns(self):
        """Time on a processor, of all threads."""
        tasks = pathlib.Path(f"/proc/{self.pid}/task").iterdir()
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks)

    def rss_bytes(self):
        status = pathlib.Path(f"/proc/{self.pid}/status").read_text()
        return int(re.search(r"^VmRSS:\s+(\d+) kB$", status, re.MULTILINE).group(1)) * 1024

    def rss_at_rest_bytes(self):
        """Resident memory once it has stopped falling: what was loaded is sealed, encoded, and the rest given back."""
        started = since = time.monotonic()
        least = now = self.rss_bytes()
        while time.monotonic() - since < REST_S:
            if time.monotonic() - started > REST_WAIT_MAX_S:
                raise Failed(f"memory still falls after {REST_WAIT_MAX_S} s, to {now:,} bytes")
            time.sleep(0.5)
            now = self.rss_bytes()
            if now < least:
                least, since = now, time.monotonic()
        return now


def cold_run(allowed):
    """Steps of `.ci/run` in a fresh clone with an empty target directory: `{step: [seconds, verdict]}`.

    Kept with the commit it was made on, because it takes up to an hour.
    """
    if COLD_RUN.is_file():
        kept = json.loads(COLD_RUN.read_text())
        if kept["commit"] == commit():
            return kept
    if not allowed:
        raise Unavailable("takes up to an hour: pass --cold")
    with tempfile.TemporaryDirectory(prefix="eris-cold-") as directory:
        clone = f"{directory}/clone"
        run(["git", "clone", "--quiet", str(ROOT), clone])
        env = {"CI": "true", "CARGO_TARGET_DIR": f"{directory}/target"}
        started = time.perf_counter()
        done = subprocess.run(["bash", ".ci/run"], cwd=clone, env={**os.environ, **env}, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=5400, check=False)
        seconds = time.perf_counter() - started
    steps = re.findall(r"^== (\S+) +(\d+) s  (.*)$", done.stdout, re.MULTILINE)
    kept = {"commit": commit(), "seconds": seconds, "exit": done.returncode,
            "steps": {name: [int(elapsed), verdict] for name, elapsed, verdict in steps}}
    write_json(COLD_RUN, kept)
    return kept
