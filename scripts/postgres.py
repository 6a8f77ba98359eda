"""PostgreSQL 15 as a peer: a fresh cluster in a temporary directory, on a free port, ended with the block."""
import os
import pathlib
import shutil
import subprocess
import tempfile
import time

from checklist import Failed, Unavailable, free_port, run
from wire import Connection, ServerError

BINARIES = pathlib.Path("/usr/lib/postgresql/15/bin")


class PostgreSql:
    """`url` and `pid` while the block runs. It refuses to run as root, so root hands it to another user."""

    def __init__(self, *settings):
        self.settings = settings
        self.port = free_port()
        self.url = f"postgres://eris@127.0.0.1:{self.port}/eris"

    def __enter__(self):
        if not (BINARIES / "initdb").is_file():
            raise Unavailable("PostgreSQL 15 is not installed (apt-get install postgresql-15)")
        self.directory = tempfile.mkdtemp(prefix="eris-postgres-")
        user = ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []
        if user:
            shutil.chown(self.directory, "postgres")
        data = f"{self.directory}/data"
        run([*user, BINARIES / "initdb", "-A", "trust", "-U", "eris", "-D", data])
        settings = [f"port={self.port}", "listen_addresses=127.0.0.1", f"unix_socket_directories={self.directory}"]
        options = [word for setting in [*settings, *self.settings] for word in ("-c", setting)]
        self.process = subprocess.Popen([*user, BINARIES / "postgres", "-D", data, *options],
                                        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                        stderr=subprocess.DEVNULL)
        for _ in range(100):
            try:
                connection = Connection(self.port, database="postgres")
                connection.query("CREATE DATABASE eris")
                connection.close()
                self.pid = int(pathlib.Path(f"{data}/postmaster.pid").read_text().split()[0])
                return self
            except (OSError, ServerError):  # not listening yet, or listening and not ready
                time.sleep(0.1)
        self.__exit__()
        raise Failed("PostgreSQL did not start within ten seconds")

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(timeout=60)
        shutil.rmtree(self.directory, ignore_errors=True)
