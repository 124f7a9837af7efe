"""Connections of threads to the server: made when needed, kept, and used again."""

import os
import socket
import ssl
from collections import deque
from typing import Any, Deque, Dict, Optional, Set, Tuple

from . import errors
from ._server import Address, Place
from ._window import check_ended, released
from ._wire import Garbled, Reader, end_elsewhere, request

#: How long a call may take that does not wait for a lock.
PATIENCE = 15.0
#: How much is read at once: more than all that is usual.
READ = 8_192


class Gone(Exception):
    """The connection ended, or what came is not an answer."""


class Connection:
    """One connection, used by one thread at a time."""

    __slots__ = ("socket", "reader", "used", "streams", "limit", "waits", "waited", "descriptor", "tls")

    def __init__(self, address: Address, limit: float, tls: Optional[ssl.SSLContext] = None) -> None:
        family = socket.AF_UNIX if isinstance(address, str) else socket.AF_INET
        if not isinstance(address, str) and ":" in address[0]:
            family = socket.AF_INET6
        self.socket = socket.socket(family, socket.SOCK_STREAM)
        self.reader = Reader()
        #: Whether it has carried an answer, so that the server may have closed it since.
        self.used = False
        #: Whether the end of a stream has to be read before the next answer.
        self.streams = False
        #: How long the answer may take, or `None`: for ever.
        self.limit: Optional[float] = limit
        #: How long the socket waits at a time, and how long it has waited in vain. To set that for each answer would be
        #: a system call.
        self.waits = limit
        self.waited = 0.0
        self.tls = tls is not None
        try:
            # Always with a limit. Python then waits for readiness before it reads. A read that blocks on a Unix socket
            # would also be woken when the server reads, for nothing: four times for each lock instead of twice.
            self.socket.settimeout(limit)
            self.socket.connect(address)
            if family != socket.AF_UNIX:
                self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if tls is not None:
                self.socket = tls.wrap_socket(self.socket, server_hostname=address[0])
        except BaseException:
            self.socket.close()
            raise
        self.descriptor = self.socket.fileno()

    def send(self, data: bytes, limit: Optional[float]) -> None:
        self.limit = limit
        self.waited = 0.0
        if limit is not None and limit < self.waits:
            self._wait_for(limit)
        # The end of a stream that was carried before is read together with the answer to this.
        sent = 0
        if not self.tls:
            try:
                # Not through the socket, which would first wait until it can be written: it always can, but for long
                # data.
                sent = os.write(self.descriptor, data)
            except BlockingIOError:
                pass
        if sent < len(data):
            self._wait_for(PATIENCE if limit is None else min(limit, PATIENCE))
            self.socket.sendall(data[sent:])

    def skip(self) -> None:
        """Reads up to the end of the stream that was carried before."""
        while not self.reader.end_of_stream():
            self.more()
            self.reader.lines()
        self.streams = False

    def _wait_for(self, seconds: float) -> None:
        self.waits = seconds
        self.socket.settimeout(seconds)

    def _goes_on(self) -> bool:
        """Whether to wait on after the socket has waited in vain."""
        self.waited += self.waits
        left = PATIENCE if self.limit is None else self.limit - self.waited
        if left > 0:
            self._wait_for(min(left, PATIENCE))
        return left > 0

    def more(self) -> None:
        """Waits for more bytes."""
        while True:
            try:
                data = self.socket.recv(READ)
                break
            except socket.timeout:
                if not self._goes_on():
                    raise
        if not data:
            raise Gone("the server closed the connection")
        self.reader.feed(data)

    def sole_line(self) -> Optional[bytes]:
        """Waits for bytes, and gives the line that a stream begins with if that is all that came: see `Reader`."""
        if not self.reader.raw:
            self.more()
        if self.streams and self.reader.end_of_stream():
            self.streams = False
        return None if self.streams else self.reader.sole_line()

    def answer(self) -> Tuple[int, bytes]:
        try:
            if self.streams:
                self.skip()
            whole = self.reader.body()
            while whole is None:
                self.more()
                whole = self.reader.body()
        except Garbled as error:
            raise Gone(str(error)) from error
        self.used = True
        return whole

    def head(self) -> int:
        try:
            if self.streams:
                self.skip()
            while not self.reader.head():
                self.more()
        except Garbled as error:
            raise Gone(str(error)) from error
        return self.reader.status

    def end(self, data: bytes, limit: float) -> None:
        """Ends the hold whose stream this is. Raises what came of it unless it was released."""
        reader = self.reader
        self.send(data, limit)
        try:
            if not (reader.raw or reader.text or reader.ended):
                self.more()
            while not (reader.says_released() or released(reader.lines())):
                if reader.ended:
                    raise Gone("the stream ended without a word")
                self.more()
        except Garbled as error:
            raise Gone(str(error)) from error
        # Its end comes with the last line, or with the next answer.
        self.streams, self.used = reader.status != 0, True

    def poll(self) -> bool:
        """Reads all that has come, without waiting. False: the stream has ended."""
        if self.tls:
            self._wait_for(0.0)
        while True:
            try:
                # Not through the socket, which would wait. The descriptor does not block, because there is a limit.
                data = self.socket.recv(READ) if self.tls else os.read(self.descriptor, READ)
            except (BlockingIOError, ssl.SSLWantReadError):
                return True
            except OSError:
                return False
            if not data:
                return False
            self.reader.feed(data)
            if len(data) < READ and not self.tls:
                return True

    def close(self) -> None:
        self.socket.close()


class Pool:
    """The server, and the connections to it that nobody uses at the moment."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.token = place.token
        self.idle: Deque[Connection] = deque()
        #: All that are open, for a child that must close them.
        self.open: Set[Connection] = set()
        self.closed = False

    def get(self) -> Connection:
        if self.closed:
            raise errors.Refused("this client is closed: connect again", kind="closed")
        try:
            return self.idle.pop()
        except IndexError:
            pass
        return self.fresh()

    def fresh(self) -> Connection:
        try:
            connection = Connection(self.place.address(), PATIENCE, self.place.tls)
        except OSError as error:
            raise self.place.unreachable(error) from error
        self.open.add(connection)
        return connection

    def put(self, connection: Connection) -> None:
        if self.closed or not connection.reader.keeps:
            self.drop(connection)
        else:
            self.idle.append(connection)

    def drop(self, connection: Connection) -> None:
        self.open.discard(connection)
        connection.close()

    def ask(
        self,
        method: str,
        path: str,
        fields: Optional[Dict[str, Any]] = None,
        again: bool = True,
        limit: float = PATIENCE,
    ) -> Tuple[int, bytes]:
        """Sends a request and reads its answer. ``again``: it may be sent twice if a kept connection was closed."""
        data = request(method, path, fields, self.token)
        while True:
            connection = self.get()
            try:
                connection.send(data, limit)
                answer = connection.answer()
            except (OSError, Gone) as error:
                stale = connection.used and not isinstance(error, socket.timeout)
                self.drop(connection)
                if stale and again:
                    continue
                raise errors.Unavailable(f"the tidelock server did not answer: {error}") from error
            except BaseException:
                self.drop(connection)
                raise
            self.put(connection)
            return answer

    def end(self, stream: Connection, hold: str, ending: str) -> None:
        """Ends the hold of a stream over another connection. Raises what came of it unless it was released."""
        status, body = self.ask(*end_elsewhere(hold, ending), again=False)
        check_ended(status, body)
        stream.streams = stream.used = True

    def close(self) -> None:
        self.closed = True
        for connection in list(self.open):
            self.drop(connection)
        self.idle.clear()
        self.place.close()

    def after_fork(self) -> None:
        """In the child: closes what belongs to the parent, so that the parent's death is noticed by the server."""
        for connection in list(self.open):
            connection.close()
        self.open = set()
        self.idle = deque()
        self.place.after_fork()
