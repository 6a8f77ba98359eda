"""DataFusion over its own in-memory tables: datafusion_peer.py DIRECTORY THREADS (see peer.py).

One target partition per thread; tables of two partitions per thread in batches of 8,192 rows.
"""
import re

import datafusion
import peer
import pyarrow
import pyarrow.csv

BATCH_ROWS = 8192

directory, threads = peer.arguments()
config = datafusion.SessionConfig().with_target_partitions(threads).with_batch_size(BATCH_ROWS)
context = datafusion.SessionContext(config)


def arrow_type(sql_type):
    if sql_type.startswith("VARCHAR"):
        return pyarrow.string()
    if sql_type.startswith("DECIMAL"):
        return pyarrow.decimal128(15, 2)
    return {"INTEGER": pyarrow.int32(), "BIGINT": pyarrow.int64(), "DATE": pyarrow.date32()}[sql_type]


def columns_of(statement):
    """Names and types from `CREATE TABLE t (a INTEGER NOT NULL, ..., PRIMARY KEY (...))`."""
    found = re.findall(r"(\w+) (INTEGER|BIGINT|DATE|DECIMAL\([^)]*\)|VARCHAR\(\d+\)) NOT NULL", statement)
    return {name: arrow_type(sql_type) for name, sql_type in found}


def load():
    for statement in peer.statements(directory):
        table = re.match(r"CREATE TABLE (\w+)", statement).group(1)
        types = columns_of(statement)
        data = pyarrow.csv.read_csv(
            directory / f"{table}.tbl",
            # The last field of a line is empty: dbgen ends every field with the delimiter.
            read_options=pyarrow.csv.ReadOptions(column_names=[*types, "nothing"], block_size=1 << 24),
            parse_options=pyarrow.csv.ParseOptions(delimiter="|", quote_char=False),
            convert_options=pyarrow.csv.ConvertOptions(column_types=types, include_columns=list(types)),
        )
        fields = [pyarrow.field(name, type_, nullable=False) for name, type_ in types.items()]
        batches = data.cast(pyarrow.schema(fields)).combine_chunks().to_batches(max_chunksize=BATCH_ROWS)
        partitions = [batches[index :: 2 * threads] for index in range(2 * threads)]
        partitions = [partition for partition in partitions if partition]
        context.register_record_batches(table, partitions)


def query(sql):
    rows = []
    for batch in context.sql(sql).collect():
        rows.extend(zip(*(column.to_pylist() for column in batch.columns)))
    return rows


peer.serve(datafusion.__version__, load, query)
