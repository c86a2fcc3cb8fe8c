"""The engine cryptography: what a Python program gets, measured beside libcrypto."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path

import pytest

from aes_exporter import rounds, workers
from aes_exporter.model import Failure, Host, Lane, Measurement
from aes_exporter.vocabulary import Reason
from aes_exporter.workers import Worker
from tests.integration.test_real_worker import HARDWARE, MACHINE, PLAN, SOFTWARE, flags

PYCA_HARDWARE = Lane(engine="cryptography", path="hardware")
PYCA_SOFTWARE = Lane(engine="cryptography", path="software")
BOTH = replace(PLAN, lanes=(HARDWARE, SOFTWARE, PYCA_HARDWARE, PYCA_SOFTWARE))
HOST = Host(architecture=MACHINE, flags=flags())

pytestmark = pytest.mark.skipif(
    MACHINE != "x86_64" or "aes" not in (flags() or ()), reason="needs an x86-64 CPU with AES instructions"
)


def from_copy(root: Path) -> rounds.Start:
    """Return a start of workers from an altered copy of the package."""
    command = (*workers.COMMAND[:-1], str(root))

    def start(environment: Mapping[str, str]) -> AbstractAsyncContextManager[Worker]:
        return workers.start(environment, command=command)

    return start


async def test_both_engines_are_measured_in_one_run() -> None:
    """All four lanes give figures of the same cells, each engine with the library it really uses."""
    run = await rounds.measure(BOTH, HOST)

    assert not list(run.failures())
    measured = dict(run.measured())
    assert list(measured) == list(BOTH.lanes)
    hardware = measured[PYCA_HARDWARE]
    assert hardware.library.name.startswith("OpenSSL ")
    assert Path(hardware.library.file).name.startswith(("_rust", "libcrypto"))
    assert "aes" in hardware.cpu_flags
    assert "aes" not in measured[PYCA_SOFTWARE].cpu_flags
    assert [figure.cell for figure in hardware.figures] == list(BOTH.cells)


async def test_small_blocks_show_the_binding() -> None:
    """At 16 bytes the Python binding takes most of the time, which the figures show rather than hide."""
    run = await rounds.measure(replace(BOTH, lanes=(HARDWARE, PYCA_HARDWARE), cells=BOTH.cells[:1]), HOST)

    best = {lane.engine: measurement.figures[0].best for lane, measurement in run.measured()}
    assert best["cryptography"] < best["libcrypto"] / 2


async def test_a_binding_that_does_not_tell_its_words_is_proven_by_ratio(
    tmp_path: Path, copy_package: Callable[[Path], Path]
) -> None:
    """The private binding may be gone in any release: then the ratio proves the mask, and the code is unknown."""
    root = copy_package(tmp_path)
    engine = root / "aes_exporter" / "worker" / "engines" / "pyca.py"
    engine.write_text(
        engine.read_text().replace("bindings.openssl.binding import Binding", "bindings.gone import Gone")
    )

    run = await rounds.measure(replace(BOTH, lanes=BOTH.lanes[2:]), HOST, start=from_copy(root))

    measured = dict(run.measured())
    assert set(measured) == {PYCA_HARDWARE, PYCA_SOFTWARE}
    assert {figure.implementation for figure in measured[PYCA_HARDWARE].figures} == {"unknown"}
    assert "aes" not in measured[PYCA_SOFTWARE].cpu_flags


@pytest.mark.parametrize("broken", ["raise ImportError('libffi is gone')", "raise BaseException('panicked')", "1/0"])
async def test_a_broken_package_is_unavailable_and_libcrypto_carries_on(
    tmp_path: Path, copy_package: Callable[[Path], Path], broken: str
) -> None:
    """Whatever importing cryptography raises, its lanes say so and the other engine is measured."""
    root = copy_package(tmp_path)
    (root / "cryptography").mkdir()
    (root / "cryptography" / "__init__.py").write_text(broken)

    run = await rounds.measure(replace(BOTH, lanes=(HARDWARE, PYCA_HARDWARE)), HOST, start=from_copy(root))

    failure = run.outcomes[PYCA_HARDWARE]
    assert isinstance(failure, Failure)
    assert failure.reason is Reason.ENGINE_UNAVAILABLE
    assert failure.detail.startswith("cannot import the cryptography package: ")
    assert isinstance(run.outcomes[HARDWARE], Measurement)
