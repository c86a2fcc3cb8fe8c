"""docs/scripts.md: every line that it tells people to use is run here, with the report it needs beside it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from aes_exporter.report import json_text
from tests.snapshots import HOST, RUN, RUN_PARTLY_FAILED
from tests.tools import require

ROOT = Path(__file__).parent.parent.parent
BLOCKS = re.findall(r"```(?:sh|crontab)\n(.*?)```", (ROOT / "docs" / "scripts.md").read_text(), re.DOTALL)
MARKS = {
    "accelerated": "hardware_state",
    "fast enough": "any(.bytes_per_second > 1e9)",
    "cost": "1e9 / .bytes_per_second",
    "failures": '"\\(.engine) \\(.path): ',
    "cron": "*/15",
    "history": "history.csv",
    "no slower": "--slurpfile",
    "exit code": "case $?",
    "measure": "aes-exporter bench --format json --output aes.json\n",
}
"""Words by which the blocks are told apart, by what they are for here; the first that match count."""
SCRIPTS = {next(name for name, mark in MARKS.items() if mark in block): block for block in BLOCKS}
QUICK = {
    "AES_EXPORTER_BENCHMARK_ROUNDS": "5",
    "AES_EXPORTER_BENCHMARK_SLICE": "100us",
    "AES_EXPORTER_BENCHMARK_BLOCK_SIZE": "16,8192",
    "AES_EXPORTER_BENCHMARK_ENGINE": "libcrypto",
}

Shell = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    """Run a script in a folder with aes.json of a run where all went well; `aes-exporter` in it is quick."""
    require("jq")
    (tmp_path / "aes.json").write_text(json_text(HOST, RUN))

    def run(script: str, **environment: str) -> subprocess.CompletedProcess[str]:
        ours = {name: value for name, value in os.environ.items() if not name.startswith("AES_EXPORTER_")}
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        return subprocess.run(
            ("sh", "-c", script),
            cwd=tmp_path,
            env={**ours, **QUICK, "PATH": path, **environment},
            capture_output=True,
            text=True,
            check=False,
            timeout=30,
        )

    return run


def altered(folder: Path, change: Callable[[Any], object], name: str = "aes.json") -> None:
    """Write a report that differs from that of a run where all went well."""
    report = json.loads(json_text(HOST, RUN))
    change(report)
    (folder / name).write_text(json.dumps(report))


def test_no_block_is_left_out() -> None:
    """Each block of the document is one of those that are run here."""
    assert len(SCRIPTS) == len(BLOCKS)
    assert SCRIPTS.keys() == MARKS.keys()


def test_measure(shell: Shell, tmp_path: Path) -> None:
    """The first line leaves a report of this host."""
    (tmp_path / "aes.json").unlink()
    done = shell(SCRIPTS["measure"])

    assert (done.returncode, done.stdout) == (0, "")
    assert json.loads((tmp_path / "aes.json").read_text())["schema"] == 1


@pytest.mark.parametrize(("state", "code"), [("accelerated", 0), ("hidden", 1)])
def test_is_it_accelerated(shell: Shell, tmp_path: Path, state: str, code: int) -> None:
    """The question has the exit code 0 for yes and 1 for no."""
    altered(tmp_path, lambda report: report["host"].update(hardware_state={"libcrypto": state}))

    assert shell(SCRIPTS["accelerated"]).returncode == code


@pytest.mark.parametrize(("share", "code"), [(1.0, 0), (0.1, 1)])
def test_is_it_fast_enough(shell: Shell, tmp_path: Path, share: float, code: int) -> None:
    """9.9 GB/s are enough, and a tenth of it is not; nor is a figure that is missing."""
    altered(
        tmp_path,
        lambda report: [each.update(bytes_per_second=share * each["bytes_per_second"]) for each in report["results"]],
    )
    assert shell(SCRIPTS["fast enough"]).returncode == code

    altered(tmp_path, lambda report: report["results"].clear())
    assert shell(SCRIPTS["fast enough"]).returncode == 1


def test_cost(shell: Shell) -> None:
    """A line for each algorithm, operation and path, with CPU seconds per GB."""
    lines = [line.split("\t") for line in shell(SCRIPTS["cost"]).stdout.splitlines()]

    assert len(lines) == 8
    assert lines[0][:3] == ["aes-128-cbc", "encrypt", "hardware"]
    assert float(lines[0][3]) == pytest.approx(0.827, abs=0.001)


def test_failures(shell: Shell, tmp_path: Path) -> None:
    """A line for each lane that failed, and none where all went well."""
    assert shell(SCRIPTS["failures"]).stdout == ""

    (tmp_path / "aes.json").write_text(json_text(HOST, RUN_PARTLY_FAILED))
    assert shell(SCRIPTS["failures"]).stdout.splitlines()[1] == "cryptography hardware: timeout: no reply within 10 s"


def test_cron(shell: Shell, tmp_path: Path) -> None:
    """The command of the cron table, with its directory exchanged, writes a text file, silently."""
    schedule, command = SCRIPTS["cron"].strip().split(" root ")
    assert schedule == "*/15 * * * *"
    done = shell(command.replace("/var/lib/prometheus/node-exporter", str(tmp_path)))

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    names = {family.name for family in text_string_to_metric_families((tmp_path / "aes.prom").read_text())}
    assert "aes_throughput_bytes_per_second" in names


def test_history(shell: Shell, tmp_path: Path) -> None:
    """Each time the history grows by the figures of one run, each with the time before it."""
    for runs in (1, 2):
        assert shell(SCRIPTS["history"]).returncode == 0
        lines = (tmp_path / "history.csv").read_text().splitlines()
        assert len(lines) == runs * (len((tmp_path / "aes.csv").read_text().splitlines()) - 1)
    assert all(re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ,libcrypto,aes-128-", line) for line in lines)


def test_no_slower(shell: Shell, tmp_path: Path) -> None:
    """A loss of more than a tenth is refused and named; a gain, a smaller loss and a new figure are not."""
    (tmp_path / "best.json").write_text(json_text(HOST, RUN))

    def change(factor: float) -> None:
        altered(tmp_path, lambda report: report["results"][0].update(bytes_per_second=986_000_000 * factor))

    for factor in (0.95, 2.0):
        change(factor)
        assert (shell(SCRIPTS["no slower"]).returncode, shell(SCRIPTS["no slower"]).stdout) == (0, '"no slower"\n')
    change(0.85)
    refused = shell(SCRIPTS["no slower"])
    assert refused.returncode == 1
    assert refused.stderr == "slower: libcrypto aes-128-cbc encrypt hardware 16\n"
    altered(tmp_path, lambda report: report["results"].pop(), "best.json")
    change(1.0)
    assert shell(SCRIPTS["no slower"]).returncode == 0


@pytest.mark.parametrize(
    ("environment", "code", "words"),
    [
        ({}, 0, "measured\n"),
        ({"AES_EXPORTER_BENCHMARK_LIBCRYPTO": "/no/such/libcrypto.so"}, 0, "measured in part\nengine_unavailable\n"),
        ({"AES_EXPORTER_BENCHMARK_ROUNDS": "few"}, 1, ""),
    ],
    ids=["measured", "in part", "broken"],
)
def test_exit_codes(shell: Shell, environment: dict[str, str], code: int, words: str) -> None:
    """The three outcomes are told apart by the exit code of bench."""
    done = shell(SCRIPTS["exit code"], **environment)

    assert done.returncode == code
    assert done.stdout.startswith(words)
