#!/usr/bin/env python3
"""Makes the stored answers of TPC-H and JCC-H with DuckDB.

    pip install duckdb==2.0.0
    bench/answers/make.py tpch [SCALE_FACTOR ...]        (default: 0.01 0.1 1 5)
    bench/answers/make.py jcch [SCALE_FACTOR ...]        (default: 0.01 1 5)

The data are the rows of our own generators, dumped as .tbl files by examples of crate `eris-workloads`, together with
the schema and the texts of the queries, so that DuckDB answers exactly what ERIS is asked. Scale factor 5 takes 14 GB
on disk. The format of an answer file is described in crates/workloads/src/answers/stored.rs;
crates/workloads/src/answers must canonicalise rows as this script does.
"""
import csv
import datetime
import decimal
import pathlib
import re
import subprocess
import sys
import tempfile

import duckdb

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
TABLES = ["region", "nation", "supplier", "customer", "part", "partsupp", "orders", "lineitem"]
ROWS_STORED_MAX = 1000
DUCKDB_MEMORY = "6GB"

# By benchmark: the default scale factors, and the directories with its queries in a dump, which its answers have, too.
SCALE_FACTORS = {"tpch": ["0.01", "0.1", "1", "5"], "jcch": ["0.01", "1", "5"]}
QUERIES = {"tpch": ["."], "jcch": ["normal", "skewed"]}

# The ORDER BY of each query: positions in the select list, "d" for descending.
ORDER = {
    1: ["0", "1"], 2: ["0d", "2", "1", "3"], 3: ["1d", "2"], 4: ["0"], 5: ["1d"], 6: [], 7: ["0", "1", "2"], 8: ["0"],
    9: ["0", "1d"], 10: ["2d"], 11: ["1d"], 12: ["0"], 13: ["1d", "0d"], 14: [], 15: ["0"], 16: ["3d", "0", "1", "2"],
    17: [], 18: ["4d", "3"], 19: [], 20: ["0"], 21: ["1d", "0"], 22: ["0"],
}

# Q21 asks of each late line whether its order has another supplier, and no other late one. On the crowded orders of
# JCC-H DuckDB compares each line with each other one, at scale factor 5 for half an hour. That two differ is that the
# smallest is not the largest.
Q21_ASKS = re.compile(
    r"exists \(.*l2\.l_suppkey <> l1\.l_suppkey\s*\)\s*and not exists \(.*l3\.l_commitdate\s*\)", re.S)
Q21_COUNTS = """l1.l_orderkey in (
        select l_orderkey from lineitem group by l_orderkey having min(l_suppkey) <> max(l_suppkey)
    )
    and l1.l_orderkey in (
        select l_orderkey from lineitem where l_receiptdate > l_commitdate
        group by l_orderkey having min(l_suppkey) = max(l_suppkey)
    )"""


def canonical(value):
    """The canonical text of a cell."""
    if value is None:
        return "NULL"
    if isinstance(value, (int, decimal.Decimal)):
        text = format(value, "f") if isinstance(value, decimal.Decimal) else str(value)
        if "." in text:
            text = text.rstrip("0").rstrip(".")
        return "0" if text == "-0" else text
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, datetime.date):
        return value.isoformat()
    return value.rstrip()


def kind(rows, column):
    value = next((row[column] for row in rows if row[column] is not None), "")
    if isinstance(value, float):
        return "approximate"
    return "exact" if isinstance(value, (int, decimal.Decimal)) else "text"


def row_hash(cells):
    value = 0xCBF29CE484222325
    for byte in b"".join(cell.encode() + b"\x1f" for cell in cells):
        value = ((value ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return value


def order_key(row, number):
    return [row[int(column.rstrip("d"))] for column in ORDER[number]]


def check_cut(connection, sql, rows, number):
    """A LIMIT must not cut through rows that the ORDER BY leaves equal: the answer would not be defined."""
    head, separator, limit = sql.rpartition("limit ")
    if not separator or len(rows) < int(limit):
        return
    more = connection.execute(f"{head}limit {int(limit) + 1}").fetchall()
    if len(more) > len(rows):
        assert order_key(more[-1], number) != order_key(rows[-1], number), f"q{number}: ties at the limit"


def make(benchmark, scale_factor, directory):
    dump = ["cargo", "run", "-q", "--release", "-p", "eris-workloads", "--example", f"{benchmark}_dump", "--"]
    subprocess.run([*dump, scale_factor, str(directory)], cwd=ROOT, check=True)
    connection = duckdb.connect(directory / "duckdb", config={"memory_limit": DUCKDB_MEMORY})
    connection.execute((directory / "schema.sql").read_text())
    for table in TABLES:
        options = "DELIMITER '|', HEADER false"
        if table == "supplier":
            options += ", FORCE_NOT_NULL (s_comment)"  # empty for some suppliers of JCC-H
        connection.execute(f"COPY {table} FROM '{directory / table}.tbl' ({options})")
    for queries in QUERIES[benchmark]:
        target = ROOT / "bench" / "answers" / benchmark / queries / f"sf{scale_factor}"
        target.mkdir(parents=True, exist_ok=True)
        for number in range(1, 23):
            sql = (directory / queries / f"q{number}.sql").read_text()
            if number == 21:
                sql, rewritten = Q21_ASKS.subn(Q21_COUNTS, sql)
                assert rewritten == 1, sql
            said = answer(connection, sql, number, target / f"q{number}.csv")
            print(f"{benchmark} {queries} sf{scale_factor} q{number}: {said}")


def answer(connection, sql, number, path):
    """Writes an answer file; says what is in it."""
    cursor = connection.execute(sql)
    columns = len(cursor.description)
    rows = cursor.fetchall()
    check_cut(connection, sql, rows, number)
    kinds = [kind(rows, column) for column in range(columns)]
    cells = [[canonical(value) for value in row] for row in rows]
    with open(path, "w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["kinds", *kinds])
        writer.writerow(["order", *ORDER[number]])
        writer.writerow(["rows", len(rows)])
        if len(rows) > ROWS_STORED_MAX:
            assert "approximate" not in kinds, f"q{number}: floating point cannot be hashed"
            writer.writerow(["hash", f"{sum(map(row_hash, cells)) & 0xFFFFFFFFFFFFFFFF:016x}"])
        else:
            writer.writerows(cells)
    return f"{len(rows)} rows, {','.join(kinds)}"


if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1] not in QUERIES:
        sys.exit(__doc__)
    for scale in sys.argv[2:] or SCALE_FACTORS[sys.argv[1]]:
        with tempfile.TemporaryDirectory() as temporary:
            make(sys.argv[1], scale, pathlib.Path(temporary))
