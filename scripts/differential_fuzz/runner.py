"""Runs cases on both sides and tells what differs."""
import collections
import dataclasses

from differential_fuzz.case import BLOCK, CHANGE, LOAD, QUERY, SETUP
from differential_fuzz.compare import Difference, Excused, compare
from differential_fuzz.judge import TABLES
from differential_fuzz.reduce import reduce
from differential_fuzz.server import RESIDENT_BYTES_MAX
from differential_fuzz.sides import Refusal, Rows, copy_lines, load_text
from differential_fuzz.tree import DUCKDB, ERIS

ROWS_SHOWN = 20


@dataclasses.dataclass
class Finding:
    """The step of a case whose answers differ."""

    at: int
    difference: Difference
    eris: object
    other: object


class Runner:
    """`left` is ERIS, or what stands in for it; `server` its process, if it is ours; `judge` may say that DuckDB is
    wrong."""

    def __init__(self, left, right, server=None, judge=None):
        self.left, self.right, self.server, self.judge = left, right, server, judge
        self.counts = collections.Counter()
        self.refused = collections.Counter()
        self.errors = collections.Counter()

    def run(self, case, counted=True):
        """The first step whose answers differ, or None."""
        self._begin()
        in_block = False
        for at, step in enumerate(case.steps):
            if step.kind == BLOCK:
                in_block = step.text(ERIS) == "BEGIN"
            eris, other = self.left.run(step), self.right.run(step)
            verdict = self._health() or compare(step, eris, other)
            if counted and self._judged(case.steps[:at + 1], eris, verdict):
                verdict = Excused("judged")
            if counted:
                self._count(step, eris, other, verdict)
            if isinstance(verdict, Difference):
                return Finding(at, verdict, eris, other)
            if isinstance(verdict, Excused) and (step.kind == CHANGE or in_block):
                return None  # the databases differ from here on
            if isinstance(eris, Refusal) and (step.kind == SETUP or in_block):
                return None  # there is none, or what an error undoes is not asked
        return None

    def _judged(self, steps, eris, verdict):
        """Whether the answers differ and PostgreSQL gives that of ERIS."""
        return (self.judge is not None and isinstance(verdict, Difference) and not verdict.kind.startswith("ERIS: ")
                and self.judge.agrees(steps, eris))

    def _begin(self):
        try:
            self.left.reset(TABLES)
        except OSError:
            if self.server is None:
                raise
            self._restart()
        self.right.reset(TABLES)

    def _restart(self):
        self.server.restart()
        self.left.port = self.server.port
        self.left.reset(TABLES)

    def _health(self):
        """A server that ended or panicked, which no answer excuses."""
        if self.server is None:
            return None
        ended = self.server.has_ended()
        panics = self.server.panics()
        if not ended and not panics:
            return None
        self._restart()
        return Difference("the server ended" if ended else "a panic", panics)

    def memory_kept(self):
        """A difference if the server keeps memory although it has no tables."""
        if self.server is None or self.server.resident_bytes() <= RESIDENT_BYTES_MAX:
            return None
        self._begin()
        kept = self.server.resident_bytes()
        self._restart()
        return Difference("memory", f"{kept} bytes resident without any table")

    def _count(self, step, eris, other, verdict):
        self.counts["statements"] += 1
        if step.kind == QUERY:
            self.counts["queries"] += 1
        if isinstance(eris, Rows):
            self.counts["rows"] += len(eris.rows)
        if verdict is not None and not isinstance(verdict, Difference):
            self.counts[f"rule {verdict.rule}"] += 1
            if verdict.words:
                self.refused[verdict.words.partition("\n")[0][:90]] += 1
        elif isinstance(eris, Refusal) and isinstance(other, Refusal):
            self.counts["errors of both"] += 1
            self.errors[f"{eris.words[:90]} / {other.state}"] += 1

    def reduced(self, case, finding, seconds):
        """A smaller case with the same kind of difference in its last step, and what is found there."""
        steps = case.steps[:finding.at + 1]
        # Most of what was asked before changed nothing.
        without = tuple(step for step in steps[:-1] if step.kind != QUERY) + steps[-1:]

        def found(smaller):
            made = self.run(smaller, counted=False)
            same = made is not None and made.at == len(smaller.steps) - 1
            return made if same and made.difference.kind == finding.difference.kind else None
        whole = dataclasses.replace(case, steps=steps)
        shorter = dataclasses.replace(case, steps=without)
        start = shorter if found(shorter) else whole if found(whole) else None
        if start is None:
            return whole, finding
        small = reduce(start, lambda smaller: found(smaller) is not None, seconds)
        return small, found(small) or finding


def script(case):
    """A case as text that psql runs on ERIS; where DuckDB is told something else, that is a comment."""
    lines = []
    for step in case.steps:
        if step.kind == LOAD:
            if step.table.by_copy:
                lines += [f"COPY {step.table.name} FROM STDIN;", "".join(copy_lines(step)) + "\\."]
            else:
                lines += [f"{node.text(ERIS)};" for node in load_text(step)]
            continue
        lines.append(f"{step.text(ERIS)};")
        if not step.eris_only and step.text(DUCKDB) != step.text(ERIS):
            lines.append(f"-- in DuckDB: {step.text(DUCKDB)};")
    return "\n".join(lines)


def answer(of):
    """An answer for people."""
    if isinstance(of, Rows):
        rows = sorted(of.rows, key=repr)
        return "\n".join(["  " + repr(row) for row in rows[:ROWS_SHOWN]]
                         + [f"  {len(rows)} rows"])
    return f"  {of}"
