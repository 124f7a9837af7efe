"""The private server of a program: the ``tidelock`` binary, which ends when the program ends."""

import json
import os
import secrets
import ssl
import subprocess
import tempfile
import threading
from pathlib import Path
from typing import IO, List, Optional, Tuple, Union

from . import errors

#: A Unix socket as a path, or host and port.
Address = Union[str, Tuple[str, int]]


def binary() -> str:
    """The program that serves: ``TIDELOCK_BINARY``, the one in this package, or the one on the path."""
    named = os.environ.get("TIDELOCK_BINARY")
    if named:
        return named
    bundled = Path(__file__).parent / "bin" / "tidelock"
    return str(bundled) if bundled.is_file() else "tidelock"


class PrivateServer:
    """A server that only this process uses."""

    def __init__(self, url: Optional[str]) -> None:
        folder = os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir()
        if not os.path.isdir(folder):
            folder = tempfile.gettempdir()
        # Nobody can guess the name, and the server creates the socket for this user only.
        self.path = os.path.join(folder, f"tidelock-{secrets.token_hex(8)}.sock")
        environment = dict(os.environ)
        if url is not None:
            # Not as an argument: a URL may have a password, and everybody can list arguments.
            environment["TIDELOCK_URL"] = url
        command: List[str] = [binary(), "serve", "--listen", f"unix:{self.path}", "--until-stdin-closes"]
        self._log: IO[bytes] = tempfile.TemporaryFile()
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._log,
                env=environment,
                # Ctrl-C is for the program, which may have locks to release.
                start_new_session=True,
            )
        except OSError as error:
            raise errors.Unavailable(f"the server {command[0]} cannot be started: {error}", retryable=False) from error
        self._await_ready()

    @property
    def pid(self) -> int:
        return self._process.pid

    def is_running(self) -> bool:
        return self._process.poll() is None

    def _await_ready(self) -> None:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        try:
            ready = json.loads(line)["event"] == "listening"
        except (ValueError, KeyError):
            ready = False
        if ready:
            return
        self.stop()
        self._log.seek(0)
        said = self._log.read().decode("utf-8", "replace").strip()
        raise errors.Refused(
            said or f"the server ended with {self._process.returncode} before it was ready", kind="config"
        )

    def stop(self, limit: float = 5.0) -> None:
        """Ends the server and waits for that; one that hangs is killed."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._process.wait(limit)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def forget(self) -> None:
        """In a child after ``fork()``: the server belongs to the parent and must not be kept alive from here."""
        for end in (self._process.stdin, self._process.stdout):
            if end is not None:
                end.close()
        # There is no child process to wait for.
        self._process.returncode = 0


class Place:
    """Where the server of a client is: one that runs already, or a private one, which is started when needed."""

    def __init__(self, url: Optional[str], place: Optional[str], token: Optional[str], ca: Optional[str] = None) -> None:
        if url is not None and place is not None:
            raise errors.Refused("a server has its own URL: give a URL or a socket")
        self.url = url
        self.place = place or (None if url is not None else os.environ.get("TIDELOCK_SOCKET"))
        self.token = token
        self.tls: Optional[ssl.SSLContext] = None
        if self.place is not None and self.place.startswith("https://"):
            try:
                self.tls = ssl.create_default_context(cafile=ca)
            except OSError as error:
                raise errors.Refused(f"the certificates in {ca} cannot be read: {error}", kind="config") from error
        #: Nanoseconds of the time on which the client relies, for a microsecond that the server says. Clocks of two
        #: machines may run at rates that differ by up to a percent.
        self.trust = 1_000 if self.place is None or not self.place.startswith(("tcp:", "https:")) else 990
        self.server: Optional[PrivateServer] = None
        self.guard = threading.Lock()

    def ready(self) -> Optional[Address]:
        """Where the server is, if it runs as far as is known."""
        if self.place is None:
            server = self.server
            return server.path if server is not None and server.is_running() else None
        if self.place.startswith(("tcp:", "https:")):
            host, _, port = self.place.partition(":")[2].strip("/").rpartition(":")
            return host.strip("[]"), int(port)
        return self.place[5:] if self.place.startswith("unix:") else self.place

    def address(self) -> Address:
        """Where the server is. A private one that does not run is started, which takes a moment."""
        with self.guard:
            ready = self.ready()
            if ready is None:
                self.server = PrivateServer(self.url)
                ready = self.server.path
            return ready

    def unreachable(self, error: OSError) -> errors.Unavailable:
        where = self.place or "its own socket"
        return errors.Unavailable(f"the tidelock server at {where} cannot be reached: {error}")

    def close(self) -> None:
        with self.guard:
            if self.server is not None:
                self.server.stop()
                self.server = None

    def after_fork(self) -> None:
        self.guard = threading.Lock()
        if self.server is not None:
            self.server.forget()
            self.server = None
