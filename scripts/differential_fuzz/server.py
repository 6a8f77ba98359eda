"""`eris serve` in memory, for many cases; started again if it ends."""
import os
import pathlib
import re
import select
import subprocess
import tempfile

START_SECONDS_MAX = 60
MEMORY_LIMIT = "3G"
# What is in memory when no table is left grows with nothing, so that a run of hours stays below this.
RESIDENT_BYTES_MAX = 2 << 30


class Server:
    """A process on a port of the system's choice; its standard error is kept."""

    def __init__(self, binary):
        self.binary = binary
        self.process, self.port = None, None
        self.seconds_of_ended = 0.0
        self.resident_bytes_max = 0
        self.start()

    def start(self):
        self.errors = tempfile.TemporaryFile(mode="w+")
        self.process = subprocess.Popen(
            [self.binary, "serve", "--listen", "127.0.0.1:0", "--workers", "2", "--memory-limit", MEMORY_LIMIT],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=self.errors, text=True)
        readable, _, _ = select.select([self.process.stdout], [], [], START_SECONDS_MAX)
        match = re.search(r"127\.0\.0\.1:(\d+)", self.process.stdout.readline() if readable else "")
        if match is None:
            self.stop()
            raise OSError(f"{self.binary} serve does not start")
        self.port = int(match[1])

    def stop(self):
        """Ends it; the processor time that it took is added up."""
        self.seconds_of_ended += self.processor_seconds_now()
        self.process.terminate()
        try:
            self.process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()
        self.errors.close()

    def restart(self):
        self.stop()
        self.start()

    def has_ended(self):
        return self.process.poll() is not None

    def panics(self):
        """What it said of panics since it was started."""
        self.errors.seek(0)
        return "\n".join(re.findall(r"^.*panicked at[^\n]*\n?[^\n]*", self.errors.read(), re.MULTILINE))

    def resident_bytes(self):
        try:
            status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        except OSError:
            return 0
        found = re.search(r"VmRSS:\s+(\d+) kB", status)
        resident = int(found[1]) * 1024 if found else 0
        self.resident_bytes_max = max(self.resident_bytes_max, resident)
        return resident

    def processor_seconds_now(self):
        try:
            fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return 0.0
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def processor_seconds(self):
        return self.seconds_of_ended + self.processor_seconds_now()
