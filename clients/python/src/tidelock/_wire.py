"""HTTP/1.1 as bytes: requests are written and answers are read here, without a socket.

``http.client`` builds a message object for each answer, which costs more than the round trip.
"""

import json
from typing import Any, Dict, List, Optional, Tuple
from urllib.parse import quote


def segment(name: str) -> str:
    """A name as one segment of a path."""
    # "." and ".." mean something else in a path.
    return name.replace(".", "%2E") if name in (".", "..") else quote(name, safe="")


def request(method: str, path: str, body: Optional[Dict[str, Any]] = None, token: Optional[str] = None) -> bytes:
    """A whole request."""
    extra = f"Authorization: Bearer {token}\r\n" if token else ""
    if body is None:
        return f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n{extra}\r\n".encode("ascii")
    text = json.dumps(body, separators=(",", ":")).encode("ascii")
    head = (
        f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n{extra}"
        f"Content-Type: application/json\r\nContent-Length: {len(text)}\r\n\r\n"
    )
    return head.encode("ascii") + text


def opened(path: str, body: Dict[str, Any], token: Optional[str] = None) -> bytes:
    """A request whose body stays open: what ends the hold is sent behind it, on the same connection."""
    extra = f"Authorization: Bearer {token}\r\n" if token else ""
    head = (
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\n{extra}"
        "Content-Type: application/x-ndjson\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    return head.encode("ascii") + chunk(json.dumps(body, separators=(",", ":")))


def chunk(line: str) -> bytes:
    """A line of a body that stays open."""
    return b"%x\r\n%s\n\r\n" % (len(line) + 1, line.encode("ascii"))


#: How a hold is ended: the last line of the body, and the end of the body.
ENDINGS = {ending: chunk(f'{{"end":"{ending}"}}') + b"0\r\n\r\n" for ending in ("release", "done", "failed")}


def end_elsewhere(hold: str, ending: str) -> Tuple[str, str]:
    """How a hold is ended whose body does not stay open: method and path."""
    return ("DELETE", f"/v1/holds/{hold}") if ending == "release" else ("POST", f"/v1/holds/{hold}/{ending}")


#: What a stream says when its hold was released, and its end, which comes with it or after it.
RELEASED = chunk('{"event":"released"}')
END = b"0\r\n\r\n"
RELEASED_AND_END = RELEASED + END
#: What this many bytes do not end is not from a server of ours.
LONGEST_HEAD = 65_536
LONGEST_LINE = 1_048_576


class Garbled(Exception):
    """What arrived is not HTTP."""


class Reader:
    """Reads answers from bytes, one after the other. A stream is read line by line as it comes."""

    __slots__ = ("raw", "text", "status", "left", "keeps", "ended", "known")

    def __init__(self) -> None:
        self.raw = b""  # as it came
        self.text = b""  # of the body, without the marks of chunks
        self.status = 0  # 0: the head of the next answer has not come yet
        self.left = 0  # bytes of a body that has a length; -1: it comes in chunks
        self.keeps = True  # whether the connection stays open after this answer
        self.ended = True  # whether the body has ended
        self.known = b""  # the head of the last stream

    def sole_line(self) -> Optional[bytes]:
        """The line that a stream begins with, if all that is here is a known head and one whole line.

        Almost all grants come so: the head is that of the last stream. Otherwise nothing is changed.
        """
        data = self.raw
        body = len(self.known)
        if self.status or not body or not data.startswith(self.known):
            return None
        start = data.find(b"\r\n", body) + 2
        end = len(data) - 3
        # The first line has to end where the data ends.
        if data.find(b"\n", start) != end or data[end + 1 :] != b"\r\n":
            return None
        if data[body : start - 2].upper() != b"%X" % (end + 1 - start):
            return None
        self.status, self.left, self.keeps, self.ended = 200, -1, True, False
        self.raw = self.text = b""
        return data[start:end]

    def says_released(self) -> bool:
        """Whether all that is here is that the hold of the stream was released. Otherwise nothing is changed."""
        if self.text or self.ended or self.left != -1:
            return False
        if self.raw == RELEASED_AND_END:
            self.ended, self.status = True, 0
        elif self.raw != RELEASED:
            return False
        self.raw = b""
        return True

    def feed(self, data: bytes) -> None:
        self.raw = self.raw + data if self.raw else data

    def head(self) -> bool:
        """Whether the head of the answer is here; then ``status`` is set."""
        if self.status:
            return True
        end = self.raw.find(b"\r\n\r\n")
        if end < 0:
            if len(self.raw) > LONGEST_HEAD:
                raise Garbled("the head of the answer does not end")
            return False
        whole, self.raw = self.raw[: end + 4], self.raw[end + 4 :]
        head = whole[:end].lower()
        self.text = b""
        try:
            self.status = int(head[9:12])
            length = head.find(b"\r\ncontent-length:")
            if length >= 0:
                stop = head.find(b"\r\n", length + 2)
                self.left = int(head[length + 17 : stop if stop > 0 else len(head)])
            else:
                self.left = -1 if b"\r\ntransfer-encoding: chunked" in head else 0
        except ValueError as error:
            raise Garbled(f"the head of the answer cannot be read: {head[:80]!r}") from error
        if self.left < -1 or self.status < 100:
            raise Garbled(f"the head of the answer cannot be read: {head[:80]!r}")
        self.keeps = b"\r\nconnection: close" not in head
        self.ended = self.left == 0
        if self.left == -1 and self.keeps and self.status == 200:
            self.known = whole
        return True

    def _advance(self) -> None:
        """Moves what has come of the body to ``text``."""
        if self.ended:
            return
        if self.left >= 0:
            part = self.raw[: self.left]
            self.raw = self.raw[self.left :]
            self.left -= len(part)
            self.text += part
            self.ended = self.left == 0
            return
        while True:
            end = self.raw.find(b"\r\n")
            if end < 0:
                if len(self.raw) > LONGEST_HEAD:
                    raise Garbled("the size of a chunk does not end")
                return
            try:
                size = int(self.raw[:end].split(b";")[0], 16)
            except ValueError as error:
                raise Garbled(f"a chunk has no size: {self.raw[:20]!r}") from error
            stop = end + 2 + size
            if size < 0:
                raise Garbled(f"a chunk has no size: {self.raw[:20]!r}")
            if len(self.raw) < stop + 2:
                return
            if self.raw[stop : stop + 2] != b"\r\n":
                raise Garbled("a chunk is longer than its size")
            self.text += self.raw[end + 2 : stop]
            self.raw = self.raw[stop + 2 :]
            if size == 0:
                self.ended = True
                return

    def body(self) -> Optional[Tuple[int, bytes]]:
        """The whole answer, once it is here."""
        if not self.head():
            return None
        self._advance()
        if not self.ended:
            return None
        status, self.status = self.status, 0
        return status, self.text

    def lines(self) -> List[bytes]:
        """The lines of a stream that have come since the last call."""
        self._advance()
        end = self.text.rfind(b"\n")
        if end < 0:
            if len(self.text) > LONGEST_LINE or len(self.raw) > 2 * LONGEST_LINE:
                raise Garbled("a line does not end")
            return []
        whole, self.text = self.text[:end], self.text[end + 1 :]
        return [line for line in whole.split(b"\n") if line]

    def end_of_stream(self) -> bool:
        """Whether the stream has ended; then the next answer may be read."""
        self._advance()
        if self.ended:
            self.status = 0
        return self.ended
