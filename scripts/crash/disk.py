"""A disk that is full, and a directory that cannot be written.

A full disk refuses commits (SQLSTATE 53100) and nothing else: what was acknowledged stays, can be read, and survives a
kill; once there is room, commits are accepted again by the same process.
"""
import contextlib
import hashlib
import os
import pathlib
import subprocess
import tempfile
import time

from crash.server import Server, ServerDied, Violated
from wire import ServerError

DISK_FULL = "53100"
# At first; when there is to be room without a restart; after a restart.
SMALL, LARGER, LARGEST = "64m", "96m", "320m"
# One commit; the disk is full after a few hundred.
ROW_CHARS = 100_000
COMMITS_MAX = 10_000
# The server looks for room once a second.
ROOM_SECONDS_MAX = 10


class Skipped(Exception):
    """It cannot be tried here; the words say why."""


@contextlib.contextmanager
def small_file_system():
    """The root of a file system of a few megabytes."""
    with tempfile.TemporaryDirectory(prefix="eris-disk-") as mount_point:
        if os.geteuid() != 0:
            raise Skipped("only root mounts a file system")
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SMALL}", "eris-disk", mount_point],
                                 capture_output=True, text=True, check=False)
        if mounted.returncode != 0:
            raise Skipped(f"a file system cannot be mounted here: {mounted.stderr.strip()}")
        try:
            yield pathlib.Path(mount_point)
        finally:
            subprocess.run(["umount", mount_point], check=True)


def remount(mount_point, options):
    subprocess.run(["mount", "-o", f"remount,{options}", mount_point], check=True)


class Filler:
    """Commits rows until there is no room; knows which were acknowledged."""

    def __init__(self):
        self.acknowledged, self.refused, self.next = [], [], 0

    def commit(self, connection):
        """One row in a transaction of its own; the SQLSTATE if it was refused."""
        number, self.next = self.next, self.next + 1
        try:
            connection.query(f"INSERT INTO filler VALUES ({number}, '{str(number % 10) * ROW_CHARS}')")
        except ServerError as error:
            if error.sqlstate is None:
                raise
            self.refused.append(number)
            return error.sqlstate
        self.acknowledged.append(number)
        return None

    def fill(self, connection):
        """Until three commits in a row are refused, each with the right SQLSTATE."""
        refused = 0
        for _ in range(COMMITS_MAX):
            state = self.commit(connection)
            if state not in (None, DISK_FULL):
                raise Violated(f"a full disk is SQLSTATE {state}")
            refused = refused + 1 if state else 0
            if refused == 3:
                return
        raise Violated(f"{COMMITS_MAX} commits of {ROW_CHARS} bytes went into {SMALL}")

    def expect_room(self, connection, when):
        """Commits are accepted, soon and from then on; the seconds until the first one."""
        begun = time.monotonic()
        while state := self.commit(connection):
            if time.monotonic() - begun > ROOM_SECONDS_MAX:
                raise Violated(f"{when}: commits are still refused after {ROOM_SECONDS_MAX} s: {state}")
            time.sleep(0.02)
        seconds = time.monotonic() - begun
        for _ in range(100):
            if state := self.commit(connection):
                raise Violated(f"{when}: a commit is refused: {state}")
        self.check(connection, when)
        return round(seconds, 2)

    def check(self, connection, when):
        """Acknowledged rows are there and whole, refused ones are not."""
        rows = connection.query("SELECT id, text FROM filler ORDER BY id")
        present = [int(id_) for id_, _ in rows]
        if present != sorted(self.acknowledged):
            lost, phantom = set(self.acknowledged) - set(present), set(present) - set(self.acknowledged)
            raise Violated(f"{when}: lost {sorted(lost)[:20]}, phantom {sorted(phantom)[:20]}")
        if any(text != str(int(id_) % 10) * ROW_CHARS for id_, text in rows):
            raise Violated(f"{when}: a row is not what was sent")
        if connection.query("SELECT count(*) FROM filler") != [[str(len(present))]]:
            raise Violated(f"{when}: the server counts otherwise")


def full_disk(binary):
    """Fills, kills, restarts, makes room; what was done, in numbers."""
    with small_file_system() as mount_point, contextlib.ExitStack() as stack:
        # Standard error goes beside the directory, and there is no room for it there.
        database = mount_point / "db"
        errors = tempfile.mkdtemp(prefix="eris-disk-errors-")
        stack.callback(lambda: subprocess.run(["rm", "-r", errors], check=False))
        filler, servers = Filler(), []

        def start():
            server = Server(binary, database, errors=pathlib.Path(errors) / "stderr")
            servers.append(server)
            stack.callback(lambda: server.has_ended() or server.kill())
            server.wait_until_ready()
            return server, server.connect()

        try:
            server, connection = start()
            connection.query("CREATE TABLE filler (id int PRIMARY KEY, text text)")
            filler.fill(connection)
            filled = len(filler.acknowledged)
            filler.check(connection, "on the full disk")
            checkpoint = checkpoint_state(connection)
            filler.check(connection, "after a checkpoint of the full disk")
            remount(mount_point, f"size={LARGER}")
            waited = filler.expect_room(connection, "with room, without a restart")
            filler.fill(connection)
            filler.check(connection, "full again")
            server.kill()
            server, connection = start()
            filler.check(connection, "after the kill, on the full disk")
            if (state := filler.commit(connection)) not in (None, DISK_FULL):
                raise Violated(f"a commit behind a start on a full disk: {state}")
            remount(mount_point, f"size={LARGEST}")
            filler.expect_room(connection, "with room")
            connection.query("CHECKPOINT")
            server.kill()
            server, connection = start()
            filler.check(connection, "after the last kill")
            connection.close()
            code = server.terminate()
        except (ServerError, ServerDied, OSError) as error:
            said = servers[-1].last_errors() if servers and not isinstance(error, ServerDied) else ""
            raise Violated(f"{len(filler.acknowledged)} acknowledged, {len(filler.refused)} refused: {error}\n"
                           f"{said}") from error
        if code != 0:
            raise Violated(f"exit code {code} after SIGTERM")
        return {"acknowledged": len(filler.acknowledged), "until_full": filled, "refused": len(filler.refused),
                "seconds_until_room_is_seen": waited, "checkpoint_on_full_disk": checkpoint or "taken"}


def checkpoint_state(connection):
    """A checkpoint of a full disk is taken, or refused for want of room."""
    try:
        connection.query("CHECKPOINT")
    except ServerError as error:
        if error.sqlstate != DISK_FULL:
            raise Violated(f"a checkpoint on a full disk: {error}") from error
        return error.sqlstate
    return None


def read_only_directory(binary):
    """Serves a database, and an empty directory, that cannot be written: refused with a reason, and nothing changes."""
    if os.geteuid() == 0:
        with small_file_system() as mount_point:
            prepare(binary, mount_point)
            remount(mount_point, "ro")
            return refused(binary, mount_point)
    with tempfile.TemporaryDirectory(prefix="eris-disk-") as directory:
        root = pathlib.Path(directory)
        prepare(binary, root)
        paths = [root, *root.rglob("*")]
        modes = [path.stat().st_mode for path in paths]
        for path in paths:
            path.chmod(0o555 if path.is_dir() else 0o444)
        try:
            return refused(binary, root)
        finally:
            for path, mode in zip(paths, modes):
                path.chmod(mode)


def prepare(binary, root):
    """A database with a row, and an empty directory."""
    server = Server(binary, root / "db")
    server.wait_until_ready()
    connection = server.connect()
    connection.query("CREATE TABLE t (id int PRIMARY KEY)")
    connection.query("INSERT INTO t VALUES (1)")
    connection.close()
    if server.terminate() != 0:
        raise Violated(f"exit code {server.process.returncode} after SIGTERM")
    (root / "empty").mkdir()


def refused(binary, root):
    """Tries the database, the empty directory, and one that would have to be made; what was said."""
    before, said = state_of(root), {}
    for name in ("db", "empty", "missing"):
        done = subprocess.run([binary, "serve", "--db", root / name, "--listen", "127.0.0.1:0"], text=True,
                              stdin=subprocess.DEVNULL, capture_output=True, timeout=60, check=False)
        line = done.stderr.strip()
        said[name] = line.replace(str(root), "DIR")
        if done.returncode != 1 or done.stdout or not line.startswith("error: ") or "\n" in line:
            raise Violated(f"{name}: exit code {done.returncode}, {done.stdout!r}, {done.stderr!r}")
        if str(root / name) not in line or not ("read-only" in line.lower() or "denied" in line.lower()):
            raise Violated(f"{name}: the error does not say what is wrong with which directory: {line}")
        if state_of(root) != before:
            raise Violated(f"{name}: the directory was changed")
    return {"said": said}


def state_of(root):
    """Names, times and contents of everything below a directory."""
    state = {}
    for path in sorted(root.rglob("*")):
        content = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
        stat = path.stat()
        state[str(path)] = stat.st_mode, stat.st_size, stat.st_mtime_ns, content
    return state
