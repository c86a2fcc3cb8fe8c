"""What `bench` prints and writes."""

from __future__ import annotations

import csv
import io
import json
import os
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from aes_exporter import report
from aes_exporter.model import Exemption, Failure, Figure, Host, Lane, NotApplicable, Run
from aes_exporter.vocabulary import Cell, Library, Reason
from tests.snapshots import HARDWARE, HOST, LANES, RUN, RUN_FAILED, RUN_PARTLY_FAILED, measurement, run

# The goldens of all formats are compared by test_metrics.py, together with the other generated files.

OLD = b"old content\n"


def json_of(host: Host, run: Run) -> dict[str, Any]:
    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    found: dict[str, Any] = json.loads(report.json_text(host, run), parse_constant=refuse)
    return found


# The table


def test_the_table_gives_megabytes_per_second() -> None:
    """A figure of the table is bytes per second divided by a million, with one decimal."""
    cell = Cell(algorithm="aes-128-cbc", operation="encrypt", block_size=16)
    outcome = replace(measurement(HARDWARE), figures=(Figure(cell=cell, best=998_460_000.0, median=1.0),))

    assert "  libcrypto hardware       998.5\n" in report.table(HOST, run({HARDWARE: outcome}))


def test_every_line_fits_80_columns() -> None:
    """Long names, long paths and many block sizes are wrapped, and no block size is lost."""
    sizes = tuple(16 * 2**power for power in range(13))
    cells = tuple(Cell(algorithm="aes-128-cbc", operation="encrypt", block_size=size) for size in sizes)
    law = {lane: measurement(lane) for lane in LANES}
    outcomes = {
        lane: replace(
            law[lane],
            library=Library(name="OpenSSL 3.0.19", file="/opt" + "/directory" * 12 + "/libcrypto.so.3"),
            figures=tuple(Figure(cell=cell, best=1e10, median=1e10) for cell in cells),
        )
        for lane in LANES
    }
    lines = report.table(replace(HOST, brand="Brand " * 30), run(outcomes)).splitlines()
    headings = [line.split()[1::2] for line in lines if line.startswith("MB/s") and line.endswith(" B")]

    assert max(map(len, lines)) <= 80
    assert [str(size) for size in sizes] == [size for heading in headings for size in heading]


def test_the_table_is_plain_text_whatever_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither colours nor another width come out, even if the environment asks for them."""
    expected = report.table(HOST, RUN)
    for name, value in {"FORCE_COLOR": "1", "COLUMNS": "200", "TERM": "xterm-256color"}.items():
        monkeypatch.setenv(name, value)

    assert report.table(HOST, RUN) == expected
    assert "\x1b" not in expected


def test_text_from_outside_stays_text() -> None:
    """Brackets are no markup, and what would move the cursor or cannot be encoded is spelled out."""
    failure = Failure(reason=Reason.CRASH, detail="\x1b[2Jexit\tcode 1 \udcff :boom: [bold]")

    text = report.table(replace(HOST, brand="[red]AMD[/red]"), run({HARDWARE: failure}))

    assert "[red]AMD[/red], x86_64" in text
    assert r"\u001b[2Jexit\tcode 1 \\udcff :boom: [bold]" in text


def test_a_run_without_figures_has_no_table_of_zeros() -> None:
    """Where nothing was measured there are reasons and no rows, no notes and no figures."""
    text = report.table(HOST, RUN_FAILED)

    assert "MB/s" not in text
    assert "speed-up" not in text
    assert text.count("failed: the worker could not be started (spawn_failed)") == len(LANES)


@pytest.mark.parametrize("reason", [*Reason, *Exemption])
def test_every_reason_has_words(reason: Reason | Exemption) -> None:
    """Each lane that was not measured is listed with its reason, once in words and once as in the metrics."""
    outcome = Failure(reason=reason, detail="details") if isinstance(reason, Reason) else NotApplicable(reason=reason)
    words = " ".join(report.table(HOST, run({HARDWARE: outcome})).split())

    assert f" ({reason})" in words
    assert ("details" in words) == isinstance(reason, Reason)


def test_the_note_on_the_binding_stands_where_it_matters() -> None:
    """Small blocks of the engine cryptography come with a note; without them the note is not there."""
    large = tuple(f for f in measurement(LANES[2]).figures if f.cell.block_size >= 1024)

    assert "Python binding" in report.table(HOST, RUN)
    assert "Python binding" not in report.table(HOST, run({HARDWARE: measurement(HARDWARE)}))
    assert "Python binding" not in report.table(HOST, run({LANES[2]: replace(measurement(LANES[2]), figures=large)}))


def test_engines_that_disagree_on_flags_are_told_apart() -> None:
    """Flags stand once a path, and once an engine, too, where two engines of the path see different ones."""
    other = Lane(engine="cryptography", path="hardware")
    outcomes = {HARDWARE: measurement(HARDWARE), other: replace(measurement(other), cpu_flags=())}

    text = report.table(HOST, run(outcomes))

    assert "vpclmulqdq (libcrypto)" in text
    assert "hardware flags  none (cryptography)" in text
    assert "(libcrypto" not in report.table(HOST, RUN)


def test_the_table_ends_with_the_answer() -> None:
    """The last lines are what AES costs in the units of the landing page, and its sentence for each engine."""
    words = " ".join(report.table(HOST, RUN).split())
    costs = words.index("cost at 8192 B GB/s CPU seconds per GB cores per 10 Gbit/s aes-128-cbc encrypt")

    assert words[costs:].count("libcrypto hardware 1.21 0.827 1.03 libcrypto software 0.329 3.04 3.80") == 1
    assert words.endswith(
        "cryptography AES is accelerated here. This CPU's AES instructions are used by OpenSSL 4.0.3 (engine "
        "cryptography). Nothing to do."
    )


# JSON and CSV


def test_json_has_the_fields_promised() -> None:
    """Schema 1 has these fields, filled from the run."""
    found = json_of(HOST, RUN)

    assert list(found) == [
        "schema",
        "version",
        "run",
        "host",
        "engines",
        "core_frequency_hertz",
        "limits",
        "results",
        "speedups",
        "failures",
        "not_applicable",
    ]
    assert (found["schema"], found["core_frequency_hertz"]) == (1, 3.25e9)
    assert found["limits"][0] == {
        "algorithm": "aes-128-cbc",
        "operation": "encrypt",
        "instructions": "aes",
        "bytes_per_second": 1.3e9,
    }
    assert found["host"]["hardware_state"] == {"libcrypto": "accelerated", "cryptography": "accelerated"}
    results = found["results"]
    assert {(each["engine"], each["cycles_per_byte"] is None) for each in results} == {
        ("libcrypto", False),
        ("cryptography", True),
    }
    assert {(each["path"], each["implementation"]) for each in results} == {
        ("hardware", "aesni"),
        ("software", "vpaes"),
    }


def test_json_says_null_for_what_is_unknown() -> None:
    """An unknown fact is null: no empty text, no missing key, and no empty list of flags."""
    outcome = replace(measurement(HARDWARE), library=Library(name="OpenSSL 1.1.1w"))
    found = json_of(Host(architecture="aarch64"), replace(run({HARDWARE: outcome}), cpu=None, silicon=None))

    assert found["host"] == {
        "architecture": "aarch64",
        "flags": None,
        "brand": None,
        "vendor": None,
        "family": None,
        "model": None,
        "stepping": None,
        "hypervisor": None,
        "kernel_drivers": [],
        "masks": [],
        "hardware_state": {"libcrypto": "accelerated"},
    }
    assert found["engines"] == [{"engine": "libcrypto", "library": "OpenSSL 1.1.1w", "file": None, "provider": None}]
    assert found["run"]["cpu"] is None


def test_json_survives_undecodable_text() -> None:
    """A file name that is not UTF-8 is escaped, so the report can be encoded and read back."""
    outcome = replace(measurement(HARDWARE), library=Library(name="OpenSSL", file="/opt/\udcff.so"))

    report.json_text(HOST, run({HARDWARE: outcome})).encode("ascii")
    assert json_of(HOST, run({HARDWARE: outcome}))["engines"][0]["file"] == "/opt/\udcff.so"


def test_json_refuses_what_is_no_number() -> None:
    """NaN is an error of ours, not a value that other programs would have to cope with."""
    with pytest.raises(ValueError, match="not JSON compliant"):
        report.json_text(HOST, replace(RUN, duration_seconds=float("nan")))


@pytest.mark.parametrize("run", [RUN, RUN_PARTLY_FAILED, RUN_FAILED], ids=["full", "partly", "failed"])
def test_csv_and_json_hold_the_same_results(run: Run) -> None:
    """CSV has the columns and rows of the JSON object's results; null is an empty field."""
    rows = list(csv.DictReader(io.StringIO(report.csv_text(HOST, run))))
    results = json_of(HOST, run)["results"]

    assert rows == [{name: "" if value is None else str(value) for name, value in row.items()} for row in results]


# Files


def test_write_creates_a_readable_file_whatever_the_umask(tmp_path: Path) -> None:
    """A new file has the content, mode 0644 even under umask 077, and no temporary file beside it."""
    path = tmp_path / "bench.prom"
    umask = os.umask(0o077)
    try:
        report.write(path, b"new")
    finally:
        os.umask(umask)

    assert (path.read_bytes(), stat.S_IMODE(path.stat().st_mode)) == (b"new", 0o644)
    assert list(tmp_path.iterdir()) == [path]


@pytest.fixture
def old(tmp_path: Path) -> Path:
    path = tmp_path / "bench.prom"
    path.write_bytes(OLD)
    return path


def test_write_replaces_a_file_in_one_step(old: Path) -> None:
    """Whoever has the old file open keeps reading the old content; the name has the new."""
    with old.open("rb") as reader:
        report.write(old, b"new")

        assert (reader.read(), old.read_bytes()) == (OLD, b"new")


@pytest.mark.parametrize("step", ["fchmod", "fsync", "replace"])
@pytest.mark.parametrize("error", [OSError("no space left"), KeyboardInterrupt()], ids=["error", "interrupt"])
def test_write_that_fails_leaves_no_trace(
    old: Path, monkeypatch: pytest.MonkeyPatch, step: str, error: BaseException
) -> None:
    """Whatever step fails, the error gets out, the old content stays whole and the temporary file goes."""

    def fail(*arguments: object) -> None:
        raise error

    monkeypatch.setattr(os, step, fail)
    with pytest.raises(type(error)):
        report.write(old, b"new")

    assert old.read_bytes() == OLD
    assert list(old.parent.iterdir()) == [old]


def test_write_is_on_disk_before_it_has_the_name(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of the content is written and synchronised while the name still has the old content."""
    seen = []
    monkeypatch.setattr(
        os, "fsync", lambda fd: seen.append((Path(f"/proc/self/fd/{fd}").read_bytes(), old.read_bytes()))
    )

    report.write(old, b"new")

    assert seen == [(b"new", OLD)]


def test_write_says_when_there_is_no_directory(tmp_path: Path) -> None:
    """A directory that is missing is an OSError for the caller to report."""
    with pytest.raises(FileNotFoundError):
        report.write(tmp_path / "missing" / "bench.prom", b"new")


def test_write_to_a_directory_is_an_error(tmp_path: Path) -> None:
    """A directory is not replaced by a file."""
    with pytest.raises(IsADirectoryError):
        report.write(tmp_path, b"new")


@pytest.mark.parametrize("dangling", [False, True])
def test_write_follows_a_symbolic_link(old: Path, dangling: bool) -> None:
    """A link stays a link, and what it points to is replaced, or created beside nothing else."""
    link = old.parent / "link"
    link.symlink_to("bench.prom")
    if dangling:
        old.unlink()

    report.write(link, b"new")

    assert link.is_symlink()
    assert (old.is_symlink(), old.read_bytes()) == (False, b"new")
    assert sorted(old.parent.iterdir()) == [old, link]


def test_write_refuses_links_in_a_circle(tmp_path: Path) -> None:
    """Links that lead to one another are an OSError, not an endless search."""
    first, second = tmp_path / "first", tmp_path / "second"
    first.symlink_to(second)
    second.symlink_to(first)
    with pytest.raises(OSError, match="symbolic links"):
        report.write(first, b"new")


def test_write_goes_through_a_fifo(tmp_path: Path) -> None:
    """A FIFO is written to and stays a FIFO."""
    path = tmp_path / "fifo"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        report.write(path, b"new")

        assert os.read(reader, 100) == b"new"
    finally:
        os.close(reader)
    assert stat.S_ISFIFO(path.stat().st_mode)


@pytest.mark.parametrize("link", ["/dev/fd/{}", "/proc/self/fd/{}", "log"])
def test_write_to_an_open_file_appends(old: Path, link: str) -> None:
    """`--output /dev/stdout >> file` adds to the file, also by a link of the user's own, and replaces nothing."""
    with old.open("ab") as standard_output:
        path = Path(link.format(standard_output.fileno()))
        if link == "log":
            path = old.parent / link
            path.symlink_to(f"/proc/self/fd/{standard_output.fileno()}")
        inode = old.stat().st_ino
        report.write(path, b"new")

    assert (old.read_bytes(), old.stat().st_ino) == (OLD + b"new", inode)


# Progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_is_drawn_on_a_terminal_and_wiped(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a terminal the bar counts rounds as they end; the last thing drawn erases its line."""
    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal()
    with report.progress(stream) as advance:
        advance(1, 80)
        advance(2, 80)
    drawn = stream.getvalue()

    assert drawn.index("1/80") < drawn.index("2/80")
    assert drawn.endswith("\x1b[2K")


def test_progress_is_silent_elsewhere(capsys: pytest.CaptureFixture[str]) -> None:
    """Where standard error is no terminal, nothing is drawn on it or anywhere."""
    with report.progress() as advance:
        advance(1, 80)

    assert capsys.readouterr() == ("", "")
