"""The whole worker on aarch64, with Debian's Python and libcrypto under an emulator: bytes and paths, not speed."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path

import pytest

from aes_exporter import rounds, workers
from aes_exporter.model import Host, Lane
from aes_exporter.vocabulary import Cell
from aes_exporter.workers import Worker
from tests.integration.test_real_worker import HARDWARE, PLAN, SOFTWARE
from tests.libraries import arm64_root
from tests.tools import require

TABLE = Lane(engine="libcrypto", path="table")
CELLS = tuple(
    Cell(algorithm="aes-128-cbc", operation=operation, block_size=size)
    for operation in ("encrypt", "decrypt")
    for size in (16, 1024)
)
HOST = Host(architecture="aarch64", flags=None)

pytestmark = pytest.mark.timeout(400)


@pytest.fixture
def start(tmp_path: Path, copy_package: Callable[[Path], Path]) -> Callable[[str], rounds.Start]:
    """Return a function that gives a start of workers on an emulated aarch64 CPU of the given model."""
    emulator, compiler, root = require("qemu-aarch64-static"), require("aarch64-linux-gnu-gcc"), arm64_root()
    folder = copy_package(tmp_path)
    worker = folder / "aes_exporter" / "worker"
    sources = [str(worker / name) for name in ("hotloop.c", "chains.c", "questions.c")]
    options = ("-std=c11", "-O2", "-fPIC", "-shared", "-fvisibility=hidden", "-Wall", "-Wextra", "-Werror")
    subprocess.run([compiler, *options, *sources, "-o", str(worker / "hotloop.so")], check=True)
    python = next((root / "usr" / "bin").glob("python3.[0-9]*[0-9]"))

    def on(cpu: str) -> rounds.Start:
        command = (emulator, "-cpu", cpu, "-L", str(root), str(python), "-I", "-S", "-c", workers._BOOT, str(folder))

        def begin(environment: Mapping[str, str]) -> AbstractAsyncContextManager[Worker]:
            return workers.start(environment, command=command, reply_seconds=120)

        return begin

    return on


@pytest.mark.parametrize("cpu", ["max", "cortex-a57"])
async def test_masks_are_made_from_the_words_read_back(start: Callable[[str], rounds.Start], cpu: str) -> None:
    """Hardware, software and table give right bytes, each under its own words, by the code that follows from them."""
    plan = replace(PLAN, lanes=(HARDWARE, SOFTWARE, TABLE), cells=CELLS)

    run = await rounds.measure(plan, HOST, start=start(cpu))

    assert not list(run.failures())
    measured = dict(run.measured())
    assert {"aes", "asimd", "pmull"} <= set(measured[HARDWARE].cpu_flags)
    assert "asimd" in measured[SOFTWARE].cpu_flags
    assert not {"aes", "pmull"} & set(measured[SOFTWARE].cpu_flags)
    assert not {"aes", "asimd", "pmull"} & set(measured[TABLE].cpu_flags)
    codes = {lane.path: {figure.implementation for figure in outcome.figures} for lane, outcome in measured.items()}
    assert codes == {"hardware": {"armv8"}, "software": {"vpaes"}, "table": {"table"}}
    assert run.silicon is not None
    assert {limit.instructions for limit in run.silicon.limits} == {"aes"}
