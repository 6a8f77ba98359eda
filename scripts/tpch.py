"""TPC-H's rows as text, made once, and on their way into a server."""
from checklist import run, target_directory

TABLES = ["region", "nation", "supplier", "customer", "part", "partsupp", "orders", "lineitem"]


def tpch_files():
    """Data files of scale factor 1, made once."""
    directory = target_directory() / "tpch-sf1"
    run(["cargo", "run", "--release", "--quiet", "-p", "eris-workloads", "--example", "tpch_dump", "--", "1",
         directory], timeout=3600)
    return directory


def blocks(path):
    """A data file in blocks of whole lines, without the delimiter that ends each line."""
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            yield (block + file.readline()).replace(b"|\n", b"\n")


def load_tpch(connection):
    directory = tpch_files()
    for statement in (directory / "schema.sql").read_text().split(";"):
        if statement.strip():
            connection.query(statement)
    for table in TABLES:
        connection.copy_in(f"COPY {table} FROM STDIN WITH (FORMAT csv, DELIMITER '|', QUOTE E'\\x01')",
                           blocks(directory / f"{table}.tbl"))


def dbgen_bytes(lines):
    """Size of the files that dbgen writes of the same rows, `lines` of them in lineitem: 17 where ours say 17.00."""
    directory = tpch_files()
    return sum((directory / f"{table}.tbl").stat().st_size for table in TABLES) - 3 * lines
