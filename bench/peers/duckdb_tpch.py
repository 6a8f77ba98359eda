"""DuckDB, in memory: duckdb_tpch.py DIRECTORY THREADS (see peer.py)."""
import duckdb
import peer

directory, threads = peer.arguments()
connection = duckdb.connect(config={"threads": threads})


def load():
    for statement in peer.statements(directory):
        connection.execute(statement)
    for table in peer.TABLES:
        connection.execute(f"COPY {table} FROM '{directory / table}.tbl' (DELIMITER '|', HEADER false)")


peer.serve(duckdb.__version__, load, lambda sql: connection.execute(sql).fetchall())
