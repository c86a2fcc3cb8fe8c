"""Exit codes and the one line on standard error, with the program run inside the test."""

from __future__ import annotations

import errno
import logging
import platform

import pytest

from aes_exporter import __version__, cli, usage


@pytest.mark.parametrize(
    ("arguments", "environ", "line"),
    [
        (["--benchmark.round=5"], {}, "--benchmark.round: no such flag; did you mean --benchmark.rounds?"),
        (["--log.level=loud"], {}, "--log.level: expected debug, info, warn or error, got 'loud'"),
        (
            [],
            {"AES_EXPORTER_LOG_LEVEL": "\x1b[2J\n"},
            r"AES_EXPORTER_LOG_LEVEL: expected debug, info, warn or error, got '\x1b[2J\n'",
        ),
        (["bench", "\x9b\u202e"], {}, r"Got unexpected extra argument (\u009b\u202e)"),
        (["--\n\udcff"], {}, r"--\n\\udcff: no such flag"),
    ],
)
def test_refusal(arguments: list[str], environ: dict[str, str], line: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Bad usage and bad configuration are exit code 2 and one printable line on standard error."""
    assert cli.run(arguments, environ) == 2
    assert capsys.readouterr() == ("", f"aes-exporter: {line}\n")


def test_an_answer_goes_to_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    """What was asked for is no error: it goes to standard output with exit code 0."""
    assert cli.run(["--version"], {}) == 0
    assert capsys.readouterr() == (f"aes-exporter {__version__} (Python {platform.python_version()})\n", "")


@pytest.mark.parametrize(
    ("error", "code", "stderr"),
    [
        (ValueError("a\nb"), 1, "aes-exporter: unexpected ValueError: a\\nb\n"),
        (OSError(errno.ENOSPC, "No space left on device", "/x"), 1, "aes-exporter: /x: No space left on device\n"),
        (OSError("strange"), 1, "aes-exporter: strange\n"),
        (BrokenPipeError(errno.EPIPE, "Broken pipe"), 1, ""),
        (KeyboardInterrupt(), 130, ""),
    ],
)
def test_whatever_fails_is_one_line(
    error: BaseException, code: int, stderr: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No error gets out as a traceback; a reader that went away and Ctrl-C are not worth a word."""

    def fail(_: object) -> None:
        raise error

    monkeypatch.setattr(usage, "parse", fail)

    assert cli.run([], {}) == code
    assert capsys.readouterr() == ("", stderr)


def test_a_traceback_is_for_level_debug(
    caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where an unexpected error came from is logged at level debug, and only there."""
    monkeypatch.setattr(usage, "parse", lambda _: 1 / 0)

    with caplog.at_level(logging.DEBUG):
        assert cli.run([], {}) == 1

    assert [(record.levelname, record.exc_info is not None) for record in caplog.records] == [("DEBUG", True)]
    assert "Traceback" not in capsys.readouterr().err
