"""Hyper through its Python API, in temporary tables: hyper_peer.py DIRECTORY THREADS (see peer.py)."""
import tempfile

import peer
import tableauhyperapi
from tableauhyperapi import Connection, CreateMode, HyperProcess, Telemetry

directory, threads = peer.arguments()

with tempfile.TemporaryDirectory() as scratch:
    parameters = {"log_config": "", "hard_concurrent_query_thread_limit": str(threads)}
    with HyperProcess(Telemetry.DO_NOT_SEND_USAGE_DATA_TO_TABLEAU, parameters=parameters) as process:
        with Connection(process.endpoint, f"{scratch}/tpch.hyper", CreateMode.CREATE_AND_REPLACE) as connection:

            def load():
                for statement in peer.statements(directory):
                    # Hyper does not enforce primary keys and refuses the clause for temporary tables.
                    table = statement.replace("CREATE TABLE", "CREATE TEMPORARY TABLE")
                    connection.execute_command(table[: table.index(", PRIMARY KEY")] + ")")
                for table in peer.TABLES:
                    # The empty field after the last delimiter is a column too many: it is cut off by a trimmed copy.
                    path = f"{scratch}/{table}.tbl"
                    with open(directory / f"{table}.tbl", "rb") as source, open(path, "wb") as target:
                        for line in source:
                            target.write(line.removesuffix(b"|\n") + b"\n" if line.endswith(b"|\n") else line)
                    # Nothing is NULL; some texts of JCC-H are empty.
                    options = "FORMAT csv, DELIMITER '|', NULL '\\N'"
                    connection.execute_command(f"COPY {table} FROM '{path}' WITH ({options})")

            def query(sql):
                with connection.execute_query(sql) as result:
                    return [list(row) for row in result]

            peer.serve(tableauhyperapi.__version__, load, query, connection.cancel)
