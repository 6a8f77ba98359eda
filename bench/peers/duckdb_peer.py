"""DuckDB, in memory: duckdb_peer.py DIRECTORY THREADS (see peer.py)."""
import duckdb
import peer

directory, threads = peer.arguments()
connection = duckdb.connect(config={"threads": threads})


def load():
    for statement in peer.statements(directory):
        connection.execute(statement)
    for table in peer.TABLES:
        options = "DELIMITER '|', HEADER false"
        if table == "supplier":
            options += ", FORCE_NOT_NULL (s_comment)"  # empty for some suppliers of JCC-H
        connection.execute(f"COPY {table} FROM '{directory / table}.tbl' ({options})")


peer.serve(duckdb.__version__, load, lambda sql: connection.execute(sql).fetchall(),
           connection.interrupt)
