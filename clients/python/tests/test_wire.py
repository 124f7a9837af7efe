"""Requests and answers as bytes, and the window, without a server."""

import json

import pytest
from tidelock import _calls, _window, _wire, errors
from tidelock._clock import now_ns

PLAIN = b'HTTP/1.1 409 Conflict\r\nContent-Type: application/json\r\nContent-Length: 15\r\n\r\n{"kind":"busy"}'
LINES = ['{"event":"granted"}\n', '{"event":"renewed","name":"\u9501"}\n', '{"event":"released"}\n']
STREAM = (
    b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
    + b"".join(b"%x\r\n%s\r\n" % (len(line.encode()), line.encode()) for line in LINES)
    + b"0\r\n\r\n"
)


@pytest.mark.parametrize("size", range(1, len(STREAM) + 1))
def test_answers_are_read_however_they_are_cut(size):
    reader = _wire.Reader()
    lines, answers = [], []
    data = STREAM + PLAIN
    for start in range(0, len(data), size):
        reader.feed(data[start : start + size])
        if not answers and reader.head() and reader.status == 200:
            lines += reader.lines()
            if not reader.end_of_stream():
                continue
            answers.append("stream")
        if answers:
            answer = reader.body()
            if answer:
                answers.append(answer)
    assert [line.decode() + "\n" for line in lines] == LINES
    assert answers == ["stream", (409, b'{"kind":"busy"}')]
    assert reader.raw == b""


def test_what_is_no_answer_is_an_error_and_not_a_hang():
    for data in (b"SSH-2.0 no http at all\r\n\r\n", b"HTTP/1.1 200 OK\r\ncontent-length: x\r\n\r\n", b"x" * 70_000):
        reader = _wire.Reader()
        reader.feed(data)
        with pytest.raises(_wire.Garbled):
            reader.head()
    reader = _wire.Reader()
    reader.feed(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n")
    with pytest.raises(_wire.Garbled):
        reader.body()


@pytest.mark.parametrize("name", [".", "..", "a/b", "a?b", "%2F", "\u9501", "a\r\nHost: evil", " "])
def test_a_name_is_one_segment_of_a_path(name):
    from urllib.parse import unquote

    path = _wire.segment(name)
    assert unquote(path) == name
    assert path not in (".", "..")
    assert not set(path) & set("/?# \r\n")


def granted(until_us=1_000_000, ttl_ms=1_000):
    return {"event": "granted", "hold": "h", "token": str(2**60), "until_us": until_us, "ttl_ms": ttl_ms}


def test_a_window_counts_from_before_the_question():
    noted = now_ns()
    window = _window.Window(granted(), noted)
    assert window.deadline == noted + 1_000_000_000
    assert window.token == 2**60
    old = _window.Window(granted(), noted - 2_000_000_000)
    assert old.remaining_ns() == 0
    assert old.expire()
    assert isinstance(old.lost, errors.Lost)


def test_a_line_of_the_stream_never_extends_the_window():
    window = _window.Window(granted(), now_ns() - 2_000_000_000)
    window.read(json.dumps({"event": "renewed", "until_us": 10_000_000}).encode())
    assert window.remaining_ns() == 0


def test_a_confirmation_extends_the_window_only_while_it_is_open():
    noted = now_ns()
    window = _window.Window(granted(), noted)
    window.confirmed(200, b'{"until_us": 5000000}', noted)
    assert window.deadline == noted + 5_000_000_000
    ended = _window.Window(granted(), noted - 2_000_000_000)
    ended.confirmed(200, b'{"until_us": 5000000}', noted)
    assert ended.remaining_ns() == 0


@pytest.mark.parametrize("status", [404, 410])
def test_a_confirmation_that_is_refused_is_a_loss(status):
    window = _window.Window(granted(), now_ns())
    window.confirmed(status, b'{"kind":"lost","message":"evicted"}', now_ns())
    assert window.remaining_ns() == 0
    assert window.lost is not None


def test_errors_carry_their_kind_and_whether_to_try_again():
    error = errors.from_answer(409, b'{"kind":"busy","message":"held by x","retryable":true,"holder":{"label":"x"}}')
    assert isinstance(error, errors.Busy)
    assert (error.kind, error.message, error.retryable) == ("busy", "held by x", True)
    assert error.details["holder"] == {"label": "x"}
    assert isinstance(errors.from_answer(503, b"proxy"), errors.Unavailable)
    assert isinstance(errors.from_answer(418, b'{"kind":"teapot"}'), errors.Refused)
    assert type(errors.from_answer(500, b'{"kind":"internal"}')) is errors.Error


def test_times_are_seconds_or_text_with_a_unit():
    assert [_calls.seconds(t) for t in (5, 0.5, "200ms", "1.5s", "15m", None)] == [5, 0.5, 0.2, 1.5, 900, None]
    with pytest.raises(errors.Refused):
        _calls.seconds("soon")
