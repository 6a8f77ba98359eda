"""A server process on a directory, which can be killed at any time."""
import contextlib
import pathlib
import re
import select
import signal
import subprocess
import time

from wire import Connection

START_SECONDS_MAX = 120


class Violated(Exception):
    """Something is not as promised; the words say what."""


class ServerDied(Exception):
    """It ended, or did not begin, and nobody asked it to."""


class Server:
    """`eris serve` on a port of the system's choice. Its standard error goes into a file beside the directory, if it is
    not told where."""

    def __init__(self, binary, directory, *options, errors=None):
        self.errors = errors or pathlib.Path(f"{directory}.stderr")
        with self.errors.open("a") as errors:
            self.process = subprocess.Popen([binary, "serve", "--db", directory, "--listen", "127.0.0.1:0", *options],
                                            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, text=True)
        self.started = time.monotonic()
        self.port = None

    def wait_until_ready(self):
        """Seconds from the start to the line that says where it listens."""
        readable, _, _ = select.select([self.process.stdout], [], [], START_SECONDS_MAX)
        line = self.process.stdout.readline() if readable else ""
        match = re.search(r"127\.0\.0\.1:(\d+)", line)
        if match is None:
            if readable:
                # The end of its output comes just before that of the process.
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self.process.wait(timeout=10)
            self.kill()
            raise ServerDied(f"it does not start (exit {self.process.returncode}): {self.last_errors()}")
        self.port = int(match[1])
        return time.monotonic() - self.started

    def connect(self):
        return Connection(self.port, timeout_s=60)

    def kill(self):
        """SIGKILL. Whether it had said that it listens."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        said = self.port is not None or "accepts connections" in self.process.stdout.read()
        self.process.stdout.close()
        return said

    def terminate(self):
        """SIGTERM; its exit code."""
        self.process.send_signal(signal.SIGTERM)
        try:
            code = self.process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            self.kill()
            raise ServerDied("it does not stop within a minute of SIGTERM") from None
        self.process.stdout.close()
        return code

    def open_temporary_files(self):
        """How many files of sorts and joins it has open now; they have no name any more."""
        count = 0
        for descriptor in pathlib.Path(f"/proc/{self.process.pid}/fd").iterdir():
            # One that is closed meanwhile is none.
            with contextlib.suppress(OSError):
                count += "/temp/spill-" in str(descriptor.readlink())
        return count

    def has_ended(self):
        return self.process.poll() is not None

    def last_errors(self):
        return self.errors.read_text(errors="replace")[-2000:].strip()
