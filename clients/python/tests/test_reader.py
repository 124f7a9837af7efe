"""How grants and releases are read: the usual ones at once, all others step by step, and both alike."""

import pytest
from tidelock._wire import END, LONGEST_HEAD, LONGEST_LINE, RELEASED, RELEASED_AND_END, Garbled, Reader, chunk

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/x-ndjson\r\ntransfer-encoding: chunked\r\n\r\n"
LINE = '{"event":"granted","hold":"h","token":"1","ttl_ms":30000,"until_us":29698000}'
GRANT = HEAD + chunk(LINE)


def read(reader, data):
    """As connections do."""
    reader.feed(data)
    line = reader.sole_line()
    if line is not None:
        return [line]
    return reader.lines() if reader.head() else []


def used():
    """A reader that has read a stream before."""
    reader = Reader()
    assert read(reader, GRANT) == [LINE.encode()]
    reader.feed(RELEASED_AND_END)
    assert reader.says_released()
    return reader


def test_a_grant_is_read_at_once_if_the_head_is_known():
    reader = used()
    reader.feed(GRANT)
    assert reader.sole_line() == LINE.encode()
    assert (reader.status, reader.keeps, reader.ended, reader.raw) == (200, True, False, b"")
    fresh = Reader()
    fresh.feed(GRANT)
    assert fresh.sole_line() is None


@pytest.mark.parametrize("cut", range(1, len(GRANT)))
def test_a_grant_that_comes_in_two_pieces_is_the_same_grant(cut):
    reader = used()
    assert read(reader, GRANT[:cut]) + read(reader, GRANT[cut:]) == [LINE.encode()]
    assert (reader.status, reader.keeps, reader.ended, reader.raw, reader.text) == (200, True, False, b"", b"")


@pytest.mark.parametrize("cut", range(1, len(RELEASED_AND_END)))
def test_a_release_that_comes_in_two_pieces_is_the_same_release(cut):
    reader = used()
    read(reader, GRANT)
    lines = []
    for piece in (RELEASED_AND_END[:cut], RELEASED_AND_END[cut:]):
        reader.feed(piece)
        lines += [b'{"event":"released"}'] if reader.says_released() else reader.lines()
    assert lines == [b'{"event":"released"}']
    assert reader.end_of_stream()
    assert read(reader, GRANT) == [LINE.encode()]


def test_more_than_a_grant_is_read_step_by_step():
    lost = chunk('{"event":"lost","reason":"evicted"}')
    for more in (lost, END, b"0", b"5\r"):
        reader = used()
        reader.feed(GRANT + more)
        assert reader.sole_line() is None
        assert read(reader, b"")[0] == LINE.encode()
    two = chunk(LINE + "\n" + LINE)
    assert read(used(), HEAD + two) == [LINE.encode()] * 2


@pytest.mark.parametrize("line", ["", "{}", '{"event":"released"} ', '{"event":"lost"}', "[" * 5_000, "\x00"])
def test_a_line_is_no_release_unless_it_says_so(line):
    reader = used()
    read(reader, GRANT)
    reader.feed(chunk(line))
    assert not reader.says_released()
    assert reader.lines() == ([line.encode()] if line else [])


def test_a_release_that_nobody_asked_for_is_not_taken_for_one():
    reader = used()
    # Behind the end of a stream, and before the rest of a line that has begun.
    reader.feed(RELEASED)
    assert not reader.says_released()
    reader = used()
    read(reader, GRANT)
    reader.feed(b"5\r\n" + RELEASED)
    assert not reader.says_released()


@pytest.mark.parametrize("size", [b"-5", b"", b"xyz", b"1", b"4d", b"4f", b"04E"])
def test_a_chunk_of_another_size_is_not_read_at_once(size):
    data = HEAD + size + GRANT[len(HEAD) + 2 :]
    reader = used()
    reader.feed(data)
    assert reader.sole_line() is None
    assert reader.head()
    if size == b"04E":
        assert reader.lines() == [LINE.encode()]
    elif size == b"4f":
        # It may go on.
        assert reader.lines() == []
    else:
        with pytest.raises(Garbled):
            reader.lines()


def test_a_line_that_is_longer_than_what_is_read_at_once():
    line = '{"event":"granted","label":"' + "x" * 300_000 + '"}'
    data = HEAD + chunk(line)
    reader, lines = used(), []
    for start in range(0, len(data), 8_192):
        lines += read(reader, data[start : start + 8_192])
    assert lines == [line.encode()]


@pytest.mark.parametrize(
    "endless",
    [
        b"1" * (LONGEST_HEAD + 1),
        b"%x\r\n" % (1 << 40) + b"x" * (2 * LONGEST_LINE),
        chunk("x" * LONGEST_LINE).replace(b"\n\r\n", b"x\r\n"),
    ],
)
def test_what_does_not_end_is_an_error_and_not_a_full_memory(endless):
    reader = used()
    reader.feed(HEAD + endless)
    assert reader.head()
    with pytest.raises(Garbled):
        reader.lines()


@pytest.mark.parametrize("head", [b"HTTP/1.1 200 OK\r\ncontent-length: -7", b"HTTP/1.1 -20 OK", b"HTTP/1.1 007 OK"])
def test_a_head_with_impossible_numbers_is_an_error(head):
    reader = Reader()
    reader.feed(head + b"\r\n\r\n")
    with pytest.raises(Garbled):
        reader.head()
