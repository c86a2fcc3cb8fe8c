"""The real program as a user meets it: what it prints, its exit codes, and how it ends."""

from __future__ import annotations

import json
import os
import platform
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from aes_exporter import __version__
from tests.daemons import QUICK, Daemon, daemon
from tests.processes import alive, children

PROGRAM = (sys.executable, "-m", "aes_exporter")
QUICK_BENCH = ("--benchmark.rounds=5", "--benchmark.slice=100us", "--benchmark.block-size=1024")
ONE_ENGINE = (*QUICK_BENCH, "--benchmark.engine=libcrypto")
NO_SUCH_LIBRARY = (*ONE_ENGINE, "--benchmark.libcrypto=/no/such/libcrypto.so")
LONG = ("--benchmark.rounds=1000", "--benchmark.slice=3ms", "--benchmark.block-size=1024")
"""Flags for a run that takes longer than any test."""


def run(
    *arguments: str, environment: dict[str, str] | None = None, folder: Path | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        (*PROGRAM, *arguments),
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
        cwd=folder,
        env={**os.environ, **(environment or {})},
    )


def in_shell(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a shell script in which "$@" is the program with these arguments."""
    return subprocess.run(
        ("sh", "-c", script, "sh", *PROGRAM, *arguments), capture_output=True, text=True, check=False, timeout=30
    )


@contextmanager
def started(
    folder: Path, *arguments: str, shell: str = 'exec "$@"', log: Path = Path(os.devnull)
) -> Iterator[subprocess.Popen[str]]:
    """Start the program by a line of shell, wait until it has workers, and see to it that it ends."""
    with log.open("w") as stderr:
        process = subprocess.Popen(
            ("sh", "-c", shell, "sh", *PROGRAM, *arguments),
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            cwd=folder,
            start_new_session=True,
        )
    try:
        wait_for_workers(process.pid)
        yield process
    finally:
        process.kill()
        process.communicate()


def wait_for_workers(pid: int) -> list[int]:
    deadline = time.monotonic() + 15
    while not (found := children(pid)):
        assert time.monotonic() < deadline, "no worker was started"
        time.sleep(0.02)
    return found


def test_version() -> None:
    """The version goes to standard output, under the program's own name."""
    result = run("--version")

    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout == f"aes-exporter {__version__} (Python {platform.python_version()})\n"


@pytest.mark.parametrize("arguments", [("--help",), ("bench", "-h")])
def test_help(arguments: tuple[str, ...]) -> None:
    """Help goes to standard output and is no error."""
    result = run(*arguments)

    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.startswith("Usage: aes-exporter ")


@pytest.mark.parametrize(
    ("arguments", "environment", "line"),
    [
        (("--benchmark.round=5",), {}, "--benchmark.round: no such flag; did you mean --benchmark.rounds?"),
        (("--log.level=debug", "bench"), {}, "--log.level: write it after bench"),
        (("bench", "--web.telemetry-path=/m"), {}, "--web.telemetry-path: not a flag of bench"),
        (
            (),
            {"AES_EXPORTER_BENCHMARK_PATH": "hardware,tables"},
            "AES_EXPORTER_BENCHMARK_PATH: expected hardware, software, table or forced, got 'tables'",
        ),
        (
            ("--config.check", "--benchmark.rounds=few"),
            {},
            "--benchmark.rounds: expected a whole number from 5 to 100000, got 'few'",
        ),
        (
            ("bench", "--output=/no/such/folder/file"),
            {},
            "--output: '/no/such/folder/file': No such file or directory",
        ),
    ],
)
def test_refusal(arguments: tuple[str, ...], environment: dict[str, str], line: str) -> None:
    """Bad usage or configuration is one line on standard error and exit code 2."""
    result = run(*arguments, environment=environment)

    assert (result.returncode, result.stdout, result.stderr) == (2, "", f"aes-exporter: {line}\n")


def test_config_check() -> None:
    """A good configuration is said to be good, and nothing is started; warnings are logged as ever."""
    result = run("--config.check", environment={"AES_EXPORTER_LOG_LEVLE": "debug"})

    assert (result.returncode, result.stdout) == (0, "The configuration is valid.\n")
    assert result.stderr.endswith(
        "level=warn caller=cli msg=\"unknown environment variable 'AES_EXPORTER_LOG_LEVLE'; "
        'did you mean AES_EXPORTER_LOG_LEVEL?"\n'
    )
    assert result.stderr.count("\n") == 1


def test_port_in_use() -> None:
    """A port that is taken is one line and exit code 1, before anything is measured."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        result = run(f"--web.listen-address={address}")

    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr == f"aes-exporter: cannot listen on {address}: Address already in use\n"


@pytest.mark.parametrize("redirection", ["| true", ">/dev/full", ">&-", "2>&-", "2>/dev/full"])
@pytest.mark.parametrize("arguments", [("--help",), ("bench", *ONE_ENGINE)])
def test_standard_streams_that_take_nothing(arguments: tuple[str, ...], redirection: str) -> None:
    """Whatever its standard streams are, the program never answers with a traceback."""
    result = in_shell(f'"$@" {redirection}', *arguments)

    assert "Traceback" not in result.stderr
    assert "Exception ignored" not in result.stderr
    if redirection == ">/dev/full":
        line = "aes-exporter: standard output: No space left on device\n"
        assert (result.returncode, result.stderr) == (1, line)
    else:
        assert (result.returncode, result.stderr) == (0, "")


def test_a_refusal_into_a_full_stream_keeps_its_exit_code() -> None:
    """An error that cannot be printed still ends with its exit code."""
    assert in_shell('"$@" 2>/dev/full', "--nonsense").returncode == 2


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("state", ["in its first run", "between runs"])
def test_a_signal_ends_the_daemon(tmp_path: Path, state: str, number: signal.Signals) -> None:
    """SIGTERM and SIGINT end the daemon with 0 within two seconds, and no worker survives."""
    flags = (*LONG, "--benchmark.pause=0") if state == "in its first run" else QUICK
    with daemon(tmp_path, *flags) as subject:
        subject.wait_until(lambda: bool(subject.url))
        workers = wait_for_workers(subject.process.pid) if flags is not QUICK else []
        if flags is QUICK:
            subject.wait_until_ready()
        begun = time.monotonic()

        assert subject.end(number) == 0
        assert time.monotonic() - begun < 2
        assert [pid for pid in workers if alive(pid)] == []
        assert "Traceback" not in subject.log.read_text()


def test_a_full_log_does_not_change_the_exit_code(tmp_path: Path) -> None:
    """A full disk under the log costs lines, and neither the daemon nor its exit code."""
    flags = (*LONG, "--benchmark.pause=0", "--web.listen-address=127.0.0.1:0")
    with started(tmp_path, *flags, log=Path("/dev/full")) as process:
        process.terminate()

        assert process.wait(5) == 0


def test_sighup_is_ignored(tmp_path: Path) -> None:
    """SIGHUP, with nothing to reload, changes nothing and is said in the log."""
    with daemon(tmp_path, *QUICK) as subject:
        subject.wait_until_ready()
        subject.process.send_signal(signal.SIGHUP)
        subject.wait_until(lambda: "SIGHUP" in subject.log.read_text())

        assert subject.get("/-/ready")[0] == 200


def test_the_start_is_logged(tmp_path: Path) -> None:
    """The log says the version, each address with its real port, and the interval; a root user is warned."""
    with daemon(tmp_path, "--web.listen-address=127.0.0.2:0", *QUICK, "--log.format=json") as subject:
        subject.wait_until(lambda: '"started"' in subject.log.read_text())
        lines = [json.loads(line) for line in subject.log.read_text().splitlines()]

    begun = next(line for line in lines if line["msg"] == "started")
    ports = [int(address.rpartition(":")[2]) for address in begun["addresses"].split(",")]
    assert begun["addresses"] == f"127.0.0.1:{ports[0]},127.0.0.2:{ports[1]}"
    assert all(ports)
    assert (begun["version"], begun["interval_seconds"], begun["level"]) == (__version__, 300.0, "info")
    assert any("root" in line["msg"] for line in lines) == (os.geteuid() == 0)


def test_a_low_limit_of_files(tmp_path: Path) -> None:
    """Where the process may open few files, connections are fewer and the log says so."""
    flags = (*LONG, "--benchmark.pause=0", "--web.listen-address=127.0.0.1:0")
    log = tmp_path / "log"
    with started(tmp_path, *flags, shell='ulimit -n 100; exec "$@"', log=log) as process:
        process.terminate()

        assert process.wait(5) == 0
    assert 'level=warn caller=cli msg="fewer connections for want of files" connections=36 files=100' in log.read_text()


def test_serving(tmp_path: Path) -> None:
    """The daemon serves metrics of its run, a page with links, and its health, at the path that was asked for."""
    with daemon(tmp_path, *QUICK, "--web.telemetry-path=/m") as subject:
        subject.wait_until_ready()

        assert "\naes_throughput_bytes_per_second{" in subject.get("/m")[1]
        assert '<a href="./m">' in subject.get("/")[1]
        assert [subject.get(path)[0] for path in ("/metrics", "/-/healthy", "/-/ready")] == [404, 200, 200]


def test_the_first_run_makes_no_pauses(tmp_path: Path) -> None:
    """The first figures are there at once, however long the pauses between rounds are."""
    flags = (flag for flag in QUICK if "pause" not in flag)
    with daemon(tmp_path, *flags, "--benchmark.pause=1h", "--benchmark.interval=1d") as subject:
        subject.wait_until_ready()


def runs(subject: Daemon) -> int:
    return int(float(subject.metrics().partition("\naes_exporter_runs_total ")[2].partition("\n")[0]))


def test_runs_repeat(tmp_path: Path) -> None:
    """One run follows the other at the interval that was asked for."""
    with daemon(tmp_path, *QUICK, "--benchmark.interval=1s") as subject:
        subject.wait_until_ready()
        subject.wait_until(lambda: runs(subject) >= 3)


@pytest.mark.parametrize("form", ["table", "json", "csv", "prometheus"])
def test_bench(tmp_path: Path, form: str) -> None:
    """The bench prints, or writes to a file, the same kind of text in each format."""
    printed = run("bench", *QUICK_BENCH, f"--format={form}")
    written = run("bench", *QUICK_BENCH, f"--format={form}", "--output=file", folder=tmp_path)
    text = (tmp_path / "file").read_text()

    assert (printed.returncode, printed.stderr) == (0, "")
    assert (written.returncode, written.stdout, written.stderr) == (0, "", "")
    assert text.split("\n")[0].split()[:2] == printed.stdout.split("\n")[0].split()[:2]
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_bench_without_a_library() -> None:
    """If a lane that applies was not measured, the output is printed all the same, with the reason, and ends with 3."""
    result = run("bench", *NO_SUCH_LIBRARY, "--format=json")

    assert result.returncode == 3
    assert {failure["reason"] for failure in json.loads(result.stdout)["failures"]} == {"engine_unavailable"}
    assert "engine=libcrypto path=hardware reason=engine_unavailable" in result.stderr


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_bench(tmp_path: Path, number: signal.Signals, code: int) -> None:
    """Ctrl-C and SIGTERM end the bench at once, without a word, a file or a process left behind."""
    log, folder = tmp_path / "log", tmp_path / "folder"
    folder.mkdir()
    with started(folder, "bench", *LONG, "--output=file", log=log) as process:
        workers = children(process.pid)
        begun = time.monotonic()
        process.send_signal(number)

        assert (process.wait(5), log.read_text()) == (code, "")
        assert time.monotonic() - begun < 2
        assert [pid for pid in workers if alive(pid)] == []
        assert list(folder.iterdir()) == []


def test_a_signal_ends_bench_in_the_background(tmp_path: Path) -> None:
    """A script starts its background with SIGINT ignored; the bench minds it all the same."""
    with started(tmp_path, "bench", *LONG, shell='trap "" INT; exec "$@"') as process:
        process.send_signal(signal.SIGINT)

        assert process.wait(5) == 130
