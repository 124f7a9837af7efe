"""Connections of event loops to the server, kept for each loop."""

import asyncio
import os
import socket
import weakref
from typing import Any, Dict, List, Optional, Tuple, cast

from . import errors
from ._alarm import Alarm, Timed
from ._pool import PATIENCE, Gone
from ._server import Address, Place
from ._window import released
from ._wire import Garbled, Reader, request


def _running() -> Optional[asyncio.AbstractEventLoop]:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


class Watcher:
    """Who wants to know at once what a stream brings."""

    def came(self) -> None:
        raise NotImplementedError


class Local:
    """What a client has in one event loop."""

    __slots__ = ("idle", "alarm")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.idle: List[Link] = []
        self.alarm = Alarm(loop)


class Link(asyncio.Protocol, Timed):
    """One connection, used by one task at a time."""

    def __init__(self, local: Local) -> None:
        self.local = local
        self.reader = Reader()
        self.transport: Optional[asyncio.Transport] = None
        self.loop: Optional[asyncio.AbstractEventLoop] = None
        self.used = False
        self.streams = False
        self.gone = False
        #: Whether it was closed because an answer took too long.
        self.late = False
        self.watcher: Optional[Watcher] = None
        self._waiter: Optional["asyncio.Future[None]"] = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.loop = asyncio.get_running_loop()

    def data_received(self, data: bytes) -> None:
        self.reader.feed(data)
        self._wake()

    def connection_lost(self, exc: Optional[Exception]) -> None:
        self.gone = True
        self._wake()

    def _wake(self) -> None:
        if self.watcher is not None:
            self.watcher.came()
        elif self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def look(self) -> None:
        """Reads what has come while the loop was busy, without waiting."""
        if self.gone or self.transport is None or self.transport.get_extra_info("sslcontext") is not None:
            return
        try:
            data = os.read(self.descriptor(), 65536)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if data:
            self.reader.feed(data)
        else:
            self.gone = True

    def descriptor(self) -> int:
        assert self.transport is not None
        return int(self.transport.get_extra_info("socket").fileno())

    def limit(self, limit: Optional[float]) -> None:
        """Closes the connection if what is asked next takes longer. `unlimit` has to follow.

        `asyncio.wait_for` would do, but before Python 3.12 it can swallow the cancellation of a task, and then nobody
        tells the task that its lock is lost. It also makes a task for each call.
        """
        if limit is not None:
            self.local.alarm.set(self, limit)

    def unlimit(self) -> None:
        self.local.alarm.discard(self)

    def ring(self) -> None:
        self.late = True
        self.close()

    async def more(self) -> None:
        if self.gone:
            raise Gone("it took too long" if self.late else "the server closed the connection")
        assert self.loop is not None
        self._waiter = self.loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    async def send(self, data: bytes) -> None:
        try:
            if self.streams:
                while not self.reader.end_of_stream():
                    await self.more()
                    self.reader.lines()
                self.streams = False
        except Garbled as error:
            raise Gone(str(error)) from error
        if self.gone or self.transport is None:
            raise Gone("the server closed the connection")
        self.transport.write(data)

    async def answer(self) -> Tuple[int, bytes]:
        try:
            whole = self.reader.body()
            while whole is None:
                await self.more()
                whole = self.reader.body()
        except Garbled as error:
            raise Gone(str(error)) from error
        self.used = True
        return whole

    async def head(self) -> int:
        try:
            while not self.reader.head():
                await self.more()
        except Garbled as error:
            raise Gone(str(error)) from error
        return self.reader.status

    async def end(self, data: bytes) -> None:
        """Ends the hold whose stream this is. Raises what came of it unless it was released."""
        if self.gone or self.transport is None:
            raise Gone("the server closed the connection")
        reader = self.reader
        self.limit(PATIENCE)
        try:
            self.transport.write(data)
            if not (reader.raw or reader.text or reader.ended):
                await self.more()
            while not (reader.says_released() or released(reader.lines())):
                if reader.ended:
                    raise Gone("the stream ended without a word")
                await self.more()
        except Garbled as error:
            raise Gone(str(error)) from error
        finally:
            self.unlimit()
        # Its end comes with the last line, or before the next answer.
        self.streams, self.used = reader.status != 0, True

    def close(self) -> None:
        self.watcher = None
        self.gone = True
        if self.transport is None or self.loop is None:
            return
        if self.loop.is_closed():
            # The loop left it open, and cannot close it any more.
            self.transport.get_extra_info("socket").shutdown(socket.SHUT_RDWR)
        elif self.loop is not _running():
            self.loop.call_soon_threadsafe(self.transport.abort)
        else:
            # Not close(): nothing that is still to be written matters.
            self.transport.abort()


class Links:
    """The kept connections of all event loops."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self._locals: "weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Local]" = weakref.WeakKeyDictionary()
        self.open: "weakref.WeakSet[Link]" = weakref.WeakSet()
        self.closed = False

    def _local(self) -> Local:
        loop = asyncio.get_running_loop()
        local = self._locals.get(loop)
        if local is None:
            self._forget_closed()
            local = self._locals[loop] = Local(loop)
        return local

    def _forget_closed(self) -> None:
        """Forgets what loops have left that were closed: a program may run one after the other."""
        for loop, local in list(self._locals.items()):
            if loop.is_closed():
                del self._locals[loop]
                for link in local.idle:
                    link.close()

    def kept(self) -> Optional[Link]:
        """A kept connection of this event loop."""
        if self.closed:
            raise errors.Refused("this client is closed: connect again", kind="closed")
        idle = self._local().idle
        while idle:
            link = idle.pop()
            if not link.gone:
                return link
        return None

    async def fresh(self) -> Link:
        loop = asyncio.get_running_loop()
        address = self.place.ready()
        if address is None:
            address = await loop.run_in_executor(None, self.place.address)
        try:
            link = await self._connect(address)
        except OSError as error:
            raise self.place.unreachable(error) from error
        self.open.add(link)
        return link

    async def _connect(self, address: Address) -> Link:
        loop, local = asyncio.get_running_loop(), self._local()
        if isinstance(address, str):
            return (await loop.create_unix_connection(lambda: Link(local), address))[1]
        return (await loop.create_connection(lambda: Link(local), *address, ssl=self.place.tls))[1]

    def put(self, link: Link) -> None:
        if self.closed or link.gone or not link.reader.keeps:
            link.close()
        else:
            link.local.idle.append(link)

    async def ask(
        self, method: str, path: str, fields: Optional[Dict[str, Any]] = None, again: bool = True, limit: float = PATIENCE
    ) -> Tuple[int, bytes]:
        return (await self.ask_all([request(method, path, fields, self.place.token)], again, limit))[0]

    async def ask_all(self, asked: List[bytes], again: bool, limit: float) -> List[Tuple[int, bytes]]:
        """Sends requests in one message, and reads their answers. ``again``: see `Pool.ask`."""
        data = b"".join(asked)
        while True:
            link = self.kept() or await self.fresh()
            link.limit(limit)
            try:
                await link.send(data)
                answers = [await link.answer() for _ in asked]
            except (OSError, Gone) as error:
                stale = link.used and not link.late
                link.close()
                if stale and again:
                    continue
                raise errors.Unavailable(f"the tidelock server did not answer: {error}") from error
            except BaseException:
                link.close()
                raise
            finally:
                link.unlimit()
            self.put(link)
            return answers

    async def close(self) -> None:
        self.closed = True
        for link in list(self.open):
            link.close()
        await asyncio.get_running_loop().run_in_executor(None, self.place.close)

    def after_fork(self) -> None:
        """In the child: the connections of the parent are replaced by nothing, without the knowledge of the loop, whose
        poll set the parent shares."""
        nothing = os.open(os.devnull, os.O_RDWR)
        for link in list(self.open):
            if not link.gone:
                os.dup2(nothing, link.descriptor(), inheritable=False)
            link.gone = True
        os.close(nothing)
        self._locals = weakref.WeakKeyDictionary()
        self.open = weakref.WeakSet()
        self.place.after_fork()
