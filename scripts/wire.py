"""A PostgreSQL connection in a page: simple queries, COPY FROM STDIN, no authentication. Enough to measure a server."""
import socket
import struct


class ServerError(Exception):
    """An ErrorResponse: SQLSTATE and message."""

    @property
    def sqlstate(self):
        """None if the connection ended instead."""
        state, colon, _ = str(self).partition(": ")
        return state if colon and len(state) == 5 else None


class Connection:
    def __init__(self, port, host="127.0.0.1", user="eris", database="eris", timeout_s=600):
        self.socket = socket.create_connection((host, port), timeout=timeout_s)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.stream = self.socket.makefile("rb")
        self.tag = None  # of the last statement that succeeded: UPDATE 3
        parameters = f"user\0{user}\0database\0{database}\0\0".encode()
        self.socket.sendall(struct.pack("!II", 8 + len(parameters), 196608) + parameters)
        self._until_ready()

    def query(self, sql):
        """Rows of text (None for NULL) of the last result."""
        self._send(b"Q", sql.encode() + b"\0")
        return self._until_ready()

    def copy_in(self, sql, chunks):
        """COPY ... FROM STDIN with the given blocks of bytes."""
        self._send(b"Q", sql.encode() + b"\0")
        kind, body = self._receive()
        if kind != b"G":
            self._until_ready(kind, body)
            raise ServerError("the statement did not ask for data")
        for chunk in chunks:
            self._send(b"d", chunk)
        self._send(b"c", b"")
        self._until_ready()

    def close(self):
        self._send(b"X", b"")
        self.stream.close()
        self.socket.close()

    def _send(self, kind, body):
        self.socket.sendall(kind + struct.pack("!I", len(body) + 4) + body)

    def _receive(self):
        head = self.stream.read(5)
        if len(head) < 5:
            raise ServerError("the server closed the connection")
        length = struct.unpack("!I", head[1:])[0] - 4
        body = self.stream.read(length)
        if len(body) < length:
            # It was killed in the middle of a message.
            raise ServerError("the server closed the connection")
        return head[:1], body

    def _until_ready(self, kind=b"", body=b""):
        rows, error = [], None
        while kind != b"Z":
            if kind == b"T":
                rows = []
            elif kind == b"D":
                rows.append(fields_of(body))
            elif kind == b"C":
                self.tag = body[:-1].decode()
            elif kind == b"E":
                fields = {field[:1]: field[1:].decode() for field in body.split(b"\0") if field}
                error = ServerError(f"{fields.get(b'C', '?????')}: {fields.get(b'M', '')}")
            elif kind == b"R" and body[:4] != b"\0\0\0\0":
                raise ServerError("the server asks for authentication")
            kind, body = self._receive()
        if error:
            raise error
        return rows


def fields_of(body):
    """The columns of a DataRow."""
    fields, at = [], 2
    for _ in range(struct.unpack_from("!H", body)[0]):
        length = struct.unpack_from("!i", body, at)[0]
        at += 4
        fields.append(None if length < 0 else body[at:at + length].decode())
        at += max(length, 0)
    return fields
