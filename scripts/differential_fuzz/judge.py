"""PostgreSQL as the third opinion, where it is installed: DuckDB is wrong at times."""
from differential_fuzz.compare import Difference, compare
from differential_fuzz.sides import Eris
from postgres import PostgreSql

TABLES = [f"t{number}" for number in range(4)]


class Judge:
    """A cluster that is started when it is asked for the first time."""

    def __init__(self):
        self.cluster, self.side = None, None

    def answer(self, steps):
        """PostgreSQL's answer to the last of these steps."""
        if self.cluster is None:
            self.cluster = PostgreSql("fsync=off", "jit=off", "statement_timeout=30s")
            self.cluster.__enter__()
            self.side = Eris(self.cluster.port, postgres=True)
        self.side.reset(TABLES)
        return [self.side.run(step) for step in steps][-1]

    def agrees(self, steps, eris):
        """Whether it answers the last step as ERIS did."""
        return not isinstance(compare(steps[-1], eris, self.answer(steps)), Difference)

    def end(self):
        if self.cluster is not None:
            self.cluster.__exit__()
