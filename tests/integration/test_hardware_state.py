"""Every state of the hardware, provoked as really as one machine allows: real workers, real masks, real children."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path

import pytest

from aes_exporter import host, paths, rounds, workers
from aes_exporter.explanation import explain
from aes_exporter.host import instructions
from aes_exporter.model import Exemption, Failure, Host, Lane, Measurement, NotApplicable, Run
from aes_exporter.state import State, states
from aes_exporter.vocabulary import Reason
from aes_exporter.worker import compiled
from aes_exporter.workers import Worker
from tests.integration.test_real_worker import HARDWARE, MACHINE, PLAN, SOFTWARE, flags
from tests.tools import require

FORCED = Lane(engine="libcrypto", path="forced")
PYTHON = os.path.realpath(sys.executable)
MASK = "~0x200000200000000:~0:~0:~0:~0"
HOST = Host(architecture=MACHINE, flags=flags())
BARE = Host(architecture=MACHINE, flags=(flags() or frozenset()) - {"aes"}, hypervisor="KVM")

pytestmark = pytest.mark.skipif(
    MACHINE != "x86_64" or "aes" not in (flags() or ()), reason="needs an x86-64 CPU with AES instructions"
)


def masking(command: tuple[str, ...] = workers.COMMAND) -> rounds.Start:
    """Return a start of workers in which the hardware path is masked, as on a host that shows no AES."""

    def start(environment: Mapping[str, str]) -> AbstractAsyncContextManager[Worker]:
        return workers.start({"OPENSSL_ia32cap": MASK, **environment}, command=command)

    return start


async def measure(where: Host, start: rounds.Start = workers.start) -> Run:
    return await rounds.measure(PLAN, where, start=start)


def sentence(run: Run, where: Host) -> str:
    return explain(states(run, where)["libcrypto"], "libcrypto", run, where).summary


async def test_accelerated() -> None:
    """On this host the instructions are there and used."""
    run = await measure(HOST)

    assert states(run, HOST) == {"libcrypto": State.ACCELERATED}
    assert "are used by OpenSSL" in sentence(run, HOST)


async def test_masked_by_the_daemons_own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """The real variable in the daemon's environment is found, and the hardware path is still measured without it."""
    monkeypatch.setenv("OPENSSL_ia32cap", "~0x200000200000000")
    where = host.read()

    run = await measure(where)

    assert [mask.place for mask in where.masks] == ["the environment of this process"]
    assert states(run, where) == {"libcrypto": State.MASKED}
    assert isinstance(run.outcomes[HARDWARE], Measurement)
    assert 'OPENSSL_ia32cap="~0x200000200000000"' in sentence(run, where)


async def test_hidden_and_what_is_lost() -> None:
    """Where flags and words show no AES, a real child finds that it works, and the forced path shows its speed."""
    run = await measure(BARE, masking())

    assert run.outcomes[HARDWARE] == NotApplicable(reason=Exemption.NO_HARDWARE)
    assert states(run, BARE) == {"libcrypto": State.HIDDEN}
    software, forced = run.outcomes[SOFTWARE], run.outcomes[FORCED]
    assert isinstance(software, Measurement)
    assert isinstance(forced, Measurement)
    assert "aes" in forced.cpu_flags
    assert max(figure.best for figure in forced.figures) > 2 * max(figure.best for figure in software.figures)
    assert "KVM hides them" in sentence(run, BARE)


async def test_absent() -> None:
    """Where no flag shows AES and the instruction is illegal, the CPU has none; nothing failed."""

    async def illegal() -> bool:
        return False

    run = await rounds.measure(PLAN, BARE, start=masking(), aes_works=illegal)

    assert states(run, BARE) == {"libcrypto": State.ABSENT}
    assert not list(run.failures())
    assert FORCED not in run.outcomes
    assert isinstance(run.outcomes[SOFTWARE], Measurement)


async def test_unused(tmp_path: Path, copy_package: Callable[[Path], Path]) -> None:
    """A library that shows AES and does not use it is as slow as masked software; that mask is no failure."""
    root = copy_package(tmp_path)
    engine = root / "aes_exporter" / "worker" / "engines" / "libcrypto.py"
    words = '"OPENSSL_ia32cap=" + __import__("os").environ["SHOWN"]'
    altered = engine.read_text().replace("text = _decode(self._version(CPU_INFO))", f"text = {words}")
    assert words in altered
    engine.write_text(altered)
    command = (*workers.COMMAND[:-1], str(root))
    software = paths.environment("software", MACHINE, os.environ)

    def start(environment: Mapping[str, str]) -> AbstractAsyncContextManager[Worker]:
        shown = "0x20000000000" if environment == software else "0x200020000000000"
        return workers.start({**environment, "OPENSSL_ia32cap": MASK, "SHOWN": shown}, command=command)

    run = await measure(HOST, start)

    assert isinstance(run.outcomes[SOFTWARE], Measurement)
    assert states(run, HOST) == {"libcrypto": State.UNUSED}
    assert "does not use them" in sentence(run, HOST)


async def test_failed() -> None:
    """A hardware path that could not be measured is failed, whatever else is known of the host."""
    hanging = (sys.executable, "-I", "-c", "import time; time.sleep(60)")

    def start(environment: Mapping[str, str]) -> AbstractAsyncContextManager[Worker]:
        return workers.start(environment, command=hanging, reply_seconds=0.3)

    where = replace(HOST, masks=())
    run = await measure(where, start)

    outcome = run.outcomes[HARDWARE]
    assert isinstance(outcome, Failure)
    assert outcome.reason is Reason.TIMEOUT
    assert states(run, where) == {"libcrypto": State.FAILED}
    assert "could not be measured (timeout)" in sentence(run, where)


def emulated(cpu: str) -> rounds.Start:
    """Return a start of real workers on an emulated CPU."""
    command = (require("qemu-x86_64-static"), "-cpu", cpu, PYTHON, *workers.COMMAND[1:])

    def start(environment: Mapping[str, str]) -> AbstractAsyncContextManager[Worker]:
        return workers.start(environment, command=command, reply_seconds=60)

    return start


async def emulated_instruction(cpu: str, folder: Path) -> bool | None:
    """Try the instruction on an emulated CPU as the daemon does on the real one; its core file goes to `folder`."""
    process = await asyncio.create_subprocess_exec(
        *(require("qemu-x86_64-static"), "-cpu", cpu, PYTHON, "-I", "-c", instructions._TRY_AES, compiled.FILE),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        cwd=folder,
    )
    output, _ = await process.communicate()
    if process.returncode == -signal.SIGILL:
        return False
    return output.strip() == instructions._AES_WORKS


@pytest.mark.timeout(180)
@pytest.mark.parametrize("cpu", ["Nehalem", "qemu64"])
async def test_absent_on_an_emulated_cpu_without_aes(cpu: str, tmp_path: Path) -> None:
    """On CPUs whose CPUID has no AES, libcrypto's words and a dying child agree; masked software is still measured."""
    where = Host(architecture=MACHINE, flags=frozenset())
    plan = replace(PLAN, cells=PLAN.cells[:6:5])

    run = await rounds.measure(plan, where, start=emulated(cpu), aes_works=lambda: emulated_instruction(cpu, tmp_path))

    assert run.outcomes[HARDWARE] == NotApplicable(reason=Exemption.NO_HARDWARE)
    assert run.hidden is False
    assert states(run, where) == {"libcrypto": State.ABSENT}
    assert isinstance(run.outcomes[SOFTWARE], Measurement)


@pytest.mark.timeout(180)
async def test_an_emulated_cpu_with_aes_is_measured() -> None:
    """On an emulated Westmere the words show AES, and the hardware path is measured by its aesni code."""
    run = await rounds.measure(
        replace(PLAN, cells=PLAN.cells[:6:5], lanes=(HARDWARE,)), HOST, start=emulated("Westmere")
    )

    hardware = run.outcomes[HARDWARE]
    assert isinstance(hardware, Measurement)
    assert {"aes", "pclmulqdq"} <= set(hardware.cpu_flags)
    assert "avx" not in hardware.cpu_flags
    assert {figure.implementation for figure in hardware.figures} == {"aesni"}
