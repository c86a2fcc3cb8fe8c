"""The lines of the log: their keys, what is let through, and that nothing gets back into the program."""

from __future__ import annotations

import errno
import io
import json
import logging
import re
import unicodedata
from collections.abc import Callable, Iterator
from typing import NoReturn

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aes_exporter import logs

Lines = Callable[[], list[str]]
FORMATS = ("logfmt", "json")
NASTY = "\n\r\x1b[31m\x7f\x85\x9b\u2028\u2029\u202e\u2066\ufeff\udcff\U000e0001"


@pytest.fixture(autouse=True)
def restored_logging() -> Iterator[None]:
    """Leave logging as it was found."""
    root, names = logging.getLogger(), ("apscheduler", "asyncio", "uvicorn")
    before = root.level, root.handlers[:], logging.raiseExceptions, [logging.getLogger(name).level for name in names]
    root.handlers.clear()
    yield
    root.handlers[:] = before[1]
    root.setLevel(before[0])
    logging.raiseExceptions = before[2]
    for name, level in zip(names, before[3], strict=True):
        logging.getLogger(name).setLevel(level)


def configured(level: str = "info", log_format: str = "logfmt") -> Lines:
    """Configure logging and return a function that returns the lines logged since."""
    stream = io.StringIO()
    logs.configure(level, log_format, stream)
    return lambda: stream.getvalue().split("\n")[:-1]


def test_logfmt_line() -> None:
    """A logfmt line has time, level, caller and message, then the event's own fields."""
    lines = configured()

    logging.getLogger("aes_exporter.schedule").info("run ended", extra={"rounds": 80, "cpu": None, "detail": 'a "b"'})

    assert re.fullmatch(
        r'time=\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z level=info caller=schedule msg="run ended" '
        r'rounds=80 cpu= detail="a \\"b\\""',
        lines()[0],
    )


def test_json_line() -> None:
    """A JSON line has the same keys in the same order."""
    lines = configured(log_format="json")

    logging.getLogger("aes_exporter.schedule").info("run ended", extra={"rounds": 80, "cpu": None})

    record = json.loads(lines()[0])
    assert list(record) == ["time", "level", "caller", "msg", "rounds", "cpu"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", record.pop("time"))
    assert record == {"level": "info", "caller": "schedule", "msg": "run ended", "rounds": 80, "cpu": None}


@pytest.mark.parametrize(
    ("log_format", "time"),
    [("logfmt", "time=2026-02-28T23:59:59.007Z "), ("json", '{"time": "2026-02-28T23:59:59.007Z", ')],
)
def test_time_is_utc(log_format: str, time: str) -> None:
    """The time of a line is UTC to the millisecond."""
    lines = configured(log_format=log_format)
    record = logging.makeLogRecord({"name": "x", "levelno": logging.INFO, "created": 1772323199.0079, "msecs": 7.9})

    logging.getLogger().handle(record)

    assert lines()[0].startswith(time)


@pytest.mark.parametrize("log_format", FORMATS)
@pytest.mark.parametrize(
    ("number", "name"),
    [(logging.DEBUG, "debug"), (logging.INFO, "info"), (logging.WARNING, "warn"), (logging.ERROR, "error")],
)
def test_levels_are_named_as_in_the_flag(log_format: str, number: int, name: str) -> None:
    """A line's level is written as --log.level writes it."""
    lines = configured("debug", log_format)

    logging.getLogger("aes_exporter.cli").log(number, "x")

    assert re.search(rf'"?level"?[=:] ?"?{name}\b', lines()[0])


@pytest.mark.parametrize(
    ("level", "expected"),
    [("debug", ["d", "i", "w", "e"]), ("info", ["i", "w", "e"]), ("warn", ["w", "e"]), ("error", ["e"])],
)
def test_level(level: str, expected: list[str]) -> None:
    """Nothing below the level is logged, and all from it on."""
    lines = configured(level)
    log = logging.getLogger("aes_exporter.rounds")

    for method, text in ((log.debug, "d"), (log.info, "i"), (log.warning, "w"), (log.error, "e")):
        method(text)

    assert [line.rpartition("=")[2] for line in lines()] == expected


@pytest.mark.parametrize("level", ["debug", "info", "error"])
def test_libraries_are_kept_quiet(level: str) -> None:
    """What the web server says of single requests is not logged at any level; its errors are."""
    lines = configured(level)
    logging.getLogger("uvicorn.error").setLevel(logging.NOTSET)  # a server in this process may have set it

    logging.getLogger("uvicorn.access").info("GET /metrics")
    logging.getLogger("uvicorn.error").warning("Invalid HTTP request received.")
    logging.getLogger("uvicorn.error").error("broken")
    logging.getLogger("asyncio").debug("Using selector")
    logging.getLogger("apscheduler.scheduler").debug("Looking for jobs to run")

    assert [line.partition("caller=")[2] for line in lines()] == ["uvicorn.error msg=broken"]


def test_libraries_may_speak_at_level_debug() -> None:
    """The scheduler's own events are logged at level debug only."""
    for level, expected in (("debug", 1), ("info", 0)):
        lines = configured(level)
        logging.getLogger("apscheduler.scheduler").info("Added job")
        assert len(lines()) == expected


@pytest.mark.parametrize("log_format", FORMATS)
@pytest.mark.parametrize("where", ["message", "argument", "field", "exception"])
def test_nothing_gets_through_unescaped(log_format: str, where: str) -> None:
    """Wherever hostile text stands in a record, one printable line comes out."""
    lines = configured(log_format=log_format)
    log = logging.getLogger("aes_exporter.host")

    match where:
        case "message":
            log.error(NASTY)
        case "argument":
            log.error("%s", NASTY)
        case "field":
            log.error("x", extra={"field": NASTY, "nested": {NASTY: NASTY}, "list": [NASTY]})
        case "exception":
            log.error("x", exc_info=ValueError(NASTY))

    assert len(lines()) == 1
    assert lines()[0].isprintable()


def test_json_keeps_the_text() -> None:
    """A reader of JSON gets the text as it was, but for lone surrogates, which stay escapes."""
    lines = configured(log_format="json")

    logging.getLogger("aes_exporter.host").error("%s", f"Größe {NASTY}")

    assert json.loads(lines()[0])["msg"] == f"Größe {NASTY}".replace("\udcff", "\\udcff")


@given(st.text(st.characters(), max_size=20))
def test_printable(text: str) -> None:
    """What is printable stays, and nothing else does."""
    result = logs.printable(text)

    assert all(unicodedata.category(char)[0] not in "CZ" or char == " " for char in result)
    assert result == text or not text.isprintable()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("é ü 猫", "é ü 猫"),
        ("a\nb", r"a\nb"),
        ("\x9b\x7f", r"\u009b\u007f"),
        ("\u202e", r"\u202e"),
        ("\U000e0001", r"\udb40\udc01"),
        ("\udcff", r"\\udcff"),
    ],
)
def test_printable_by_example(text: str, expected: str) -> None:
    """Escapes are those of JSON; a lone surrogate's is made unreadable as one."""
    assert logs.printable(text) == expected


class Broken:
    """A value that cannot be shown."""

    def __str__(self) -> NoReturn:
        raise ValueError("no text")


@pytest.mark.parametrize("log_format", FORMATS)
def test_a_value_that_cannot_be_shown_raises_nothing(log_format: str, capfd: pytest.CaptureFixture[str]) -> None:
    """A record that cannot be formatted neither raises nor prints a traceback of the logging module."""
    lines = configured(log_format=log_format)

    logging.getLogger("aes_exporter.cli").error("%s", Broken())
    logging.getLogger("aes_exporter.cli").error("%d", "x")
    logging.getLogger("aes_exporter.cli").error("after")

    assert len(lines()) == 1
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("number", [errno.EPIPE, errno.ENOSPC, errno.EAGAIN, errno.EBADF])
def test_a_stream_that_takes_nothing_raises_nothing(number: int, capfd: pytest.CaptureFixture[str]) -> None:
    """A log that is closed, full or not ready loses its lines and nothing else."""

    class Failing(io.StringIO):
        def write(self, _text: str) -> NoReturn:
            raise OSError(number, "no")

        def flush(self) -> NoReturn:
            raise OSError(number, "no")

    logs.configure("info", "logfmt", Failing())

    logging.getLogger("aes_exporter.cli").error("lost")

    assert capfd.readouterr() == ("", "")


def test_a_closed_stream_raises_nothing() -> None:
    """A stream that was closed raises ValueError instead of OSError, and that stays inside, too."""
    stream = io.StringIO()
    logs.configure("info", "logfmt", stream)
    stream.close()

    logging.getLogger("aes_exporter.cli").error("lost")


def test_configuring_replaces() -> None:
    """Configured twice, each line is logged once, by the latest configuration."""
    before = configured()
    after = configured(log_format="json")

    logging.getLogger("aes_exporter.cli").error("x")

    assert before() == []
    assert len(after()) == 1


def test_standard_error_is_the_default(capsys: pytest.CaptureFixture[str]) -> None:
    """Without a stream the log goes to standard error as it is then."""
    logs.configure("info", "logfmt")

    logging.getLogger("aes_exporter.cli").error("here")

    out, err = capsys.readouterr()
    assert out == ""
    assert err.endswith("msg=here\n")
