"""The conversation between `eris bench` and a peer: one JSON object per line.

    peer  -> {"ready": true, "version": "2.0.0", "load_ms": 5500.0}       once the data are in memory
    bench -> {"name": "q1", "sql": "select ..."}
    peer  -> {"name": "q1", "ms": 166.2, "rows": [["A", "F", "37734107.00", ...], ...]}
    peer  -> {"name": "q1", "error": "..."}                                if it cannot run the query

The time runs from the SQL text to the last row in the client's hands. Rows are sent as text (floats with all digits),
so that the bench checks a peer's answers as it checks its own. The end of the input ends the peer.
"""
import datetime
import json
import pathlib
import sys
import threading
import time

# A query that takes longer is given up. Q21 with JCC-H's skewed parameters compares every line of a populous order with
# every other one in DuckDB and in Hyper: a hundred times the time for ten times the rows.
QUERY_SECONDS_MAX = 7200

TABLES = ["region", "nation", "supplier", "customer", "part", "partsupp", "orders", "lineitem"]


def cell(value):
    if value is None:
        return None
    if isinstance(value, float):
        return repr(value)
    if hasattr(value, "isoformat"):
        return value.isoformat()
    if isinstance(value, datetime.date):
        return value.isoformat()
    return str(value)


def say(message):
    print(json.dumps(message), flush=True)


def arguments():
    """The directory with the .tbl files and schema.sql, and the number of threads."""
    return pathlib.Path(sys.argv[1]), int(sys.argv[2])


def statements(directory):
    return [text for text in (directory / "schema.sql").read_text().split(";\n") if text.strip()]


def serve(version, load, query, interrupt=lambda: None):
    """Loads, then answers; `query` returns rows of Python values, `interrupt` makes it raise in another thread."""
    start = time.perf_counter()
    load()
    say({"ready": True, "version": version, "load_ms": (time.perf_counter() - start) * 1000})
    for line in sys.stdin:
        request = json.loads(line)
        limit = threading.Timer(QUERY_SECONDS_MAX, interrupt)
        limit.start()
        try:
            start = time.perf_counter()
            rows = query(request["sql"])
            elapsed = (time.perf_counter() - start) * 1000
            say({"name": request["name"], "ms": elapsed, "rows": [[cell(value) for value in row] for row in rows]})
        except Exception as error:  # whatever the engine raises is the answer
            say({"name": request["name"], "error": f"{type(error).__name__}: {error}"})
        finally:
            limit.cancel()
