"""Libcryptos of other makers and releases, measured by real workers as --benchmark.libcrypto would have it."""

from __future__ import annotations

import os
import statistics
import subprocess
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path

import pytest

from aes_exporter import capabilities, host, paths, rounds, workers
from aes_exporter.model import Failure, Lane, Measurement, Run
from aes_exporter.vocabulary import Reason
from aes_exporter.worker.messages import Ready
from aes_exporter.workers import Worker
from tests import libraries
from tests.integration.test_real_worker import CELLS as ALL_CELLS
from tests.integration.test_real_worker import HARDWARE, MACHINE, PLAN, SETUP, SOFTWARE
from tests.tools import require

HOST = host.read()
CELLS = tuple(cell for cell in ALL_CELLS if cell.block_size in (16, 1024, 8192))
TELLING = (libraries.openssl_3_5,)
SILENT = (libraries.openssl_1_1, libraries.boringssl)
NAMES = {
    libraries.openssl_1_1: "OpenSSL 1.1.1",
    libraries.openssl_3_5: "OpenSSL 3.5.",
    libraries.boringssl: "BoringSSL",
}

Fetch = Callable[[], Path]

pytestmark = pytest.mark.skipif(
    MACHINE != "x86_64" or "aes" not in (HOST.flags or ()), reason="the libraries are for x86-64 with AES-NI"
)


async def measure(library: Path | None) -> Run:
    return await rounds.measure(replace(PLAN, cells=CELLS, libcrypto=str(library) if library else None), HOST)


async def ready(library: Path | None, path: str) -> Ready:
    """Return what a worker on a path says of its library."""
    environment = paths.environment(path, MACHINE, os.environ)
    assert isinstance(environment, dict)
    async with workers.start(environment) as worker:
        return await worker.set_up(replace(SETUP, libcrypto=str(library) if library else None))


def measurement(run: Run, lane: Lane) -> Measurement:
    outcome = run.outcomes[lane]
    assert isinstance(outcome, Measurement), outcome
    return outcome


def codes(run: Run, lane: Lane) -> set[str]:
    return {figure.implementation for figure in measurement(run, lane).figures}


@pytest.mark.parametrize("fetch", [*TELLING, *SILENT], ids=lambda fetch: fetch.__name__)
async def test_a_library_by_its_path_is_measured_on_both_paths(fetch: Fetch) -> None:
    """Figures of both paths come with a speed-up of every cell, and the library names itself, its file and provider."""
    path = fetch()

    run = await measure(path)

    for lane in (HARDWARE, SOFTWARE):
        library = measurement(run, lane).library
        assert library.name.startswith(NAMES[fetch])
        assert library.file == str(path)
        assert library.provider == ("default" if fetch in TELLING else "")
    assert {speedup.cell for speedup in run.speedups()} == set(CELLS)
    assert statistics.median(each.ratio for each in run.speedups() if each.cell.block_size >= 1024) > 2


async def test_the_distributions_own_library_is_measured() -> None:
    """Told no library, the exporter measures the installed libcrypto with its default provider."""
    run = await measure(None)

    library = measurement(run, HARDWARE).library
    assert Path(library.file).name.startswith("libcrypto.so")
    assert library.provider in ("default", "")
    assert {speedup.cell for speedup in run.speedups()} == set(CELLS)


@pytest.mark.parametrize("fetch", SILENT, ids=lambda fetch: fetch.__name__)
async def test_a_library_that_keeps_its_words_is_unknown_code(fetch: Fetch) -> None:
    """OpenSSL 1.1 and BoringSSL print no words, so nobody can say which code ran, and none is named."""
    assert capabilities.parse_words((await ready(fetch(), "hardware")).capabilities) is None

    run = await measure(fetch())

    assert codes(run, HARDWARE) == codes(run, SOFTWARE) == {"unknown"}


async def test_a_library_that_tells_its_words_has_its_code_named() -> None:
    """The five words of OpenSSL 3.5 name the code of each cell."""
    run = await measure(libraries.openssl_3_5())

    assert codes(run, HARDWARE) == {"aesni"}
    assert codes(run, SOFTWARE) == {"vpaes", "table", "bsaes"}


async def test_the_file_is_the_one_really_mapped(tmp_path: Path) -> None:
    """A link is followed: the file reported is the one that the kernel has mapped."""
    target = libraries.openssl_1_1()
    link = tmp_path / "libcrypto.so"
    link.symlink_to(target)

    said = await ready(link, "hardware")

    assert said.library.file == str(target)


async def refused(library: Path) -> Failure:
    run = await measure(library)

    (failure,) = set(run.outcomes.values())
    assert isinstance(failure, Failure)
    return failure


async def test_a_library_for_another_architecture_is_refused_in_the_loaders_words(tmp_path: Path) -> None:
    """What the loader does not take is engine_unavailable on both paths, with its reason."""
    foreign = tmp_path / "libcrypto.so"
    elf = libraries.openssl_1_1().read_bytes()
    foreign.write_bytes(elf[:18] + b"\xb7\x00" + elf[20:])  # the machine it is for: aarch64

    failure = await refused(foreign)

    assert failure.reason is Reason.ENGINE_UNAVAILABLE
    assert str(foreign) in failure.detail


async def test_a_library_cut_short_ends_its_worker_and_no_more(tmp_path: Path) -> None:
    """A file that the loader maps beyond its end kills the worker; that is the reason "signal" on both paths."""
    truncated = tmp_path / "libcrypto.so"
    truncated.write_bytes(libraries.openssl_1_1().read_bytes()[:4096])

    failure = await refused(truncated)

    assert failure.reason is Reason.SIGNAL
    assert "SIGBUS" in failure.detail


def deaf(library: Path, folder: Path) -> Path:
    """Return a library like `library`, except that it never sees the capability variable.

    Its initialisation removes the variable and, by initfirst, runs before that of the libcrypto it depends on.
    """
    source, target = folder / "deaf.c", folder / "deaf.so"
    source.write_text(
        '#include <stdlib.h>\n__attribute__((constructor)) static void forget(void) { unsetenv("OPENSSL_ia32cap"); }\n'
    )
    options = ("-shared", "-fPIC", "-Wl,-z,initfirst", "-Wl,--no-as-needed", f"-Wl,-rpath,{library.parent}")
    command = (require("gcc"), *options, "-o", target, source, library)
    subprocess.run(command, check=True, capture_output=True, timeout=30)
    return target


@pytest.mark.parametrize(
    ("fetch", "words"),
    [
        pytest.param(libraries.openssl_3_5, "still shows AES instructions under the mask", id="by its words"),
        pytest.param(libraries.openssl_1_1, "of what AES instructions allow on this CPU", id="by its speed"),
    ],
)
async def test_a_library_deaf_to_the_variable_gives_no_speedup(fetch: Fetch, words: str, tmp_path: Path) -> None:
    """Its hardware path is measured; its software path, at hardware speed too, is mask_ineffective and no baseline."""
    run = await measure(deaf(fetch(), tmp_path))

    outcome = run.outcomes[SOFTWARE]
    assert isinstance(outcome, Failure)
    assert outcome.reason is Reason.MASK_INEFFECTIVE
    assert words in outcome.detail
    assert measurement(run, HARDWARE).library.file == str(fetch())
    assert list(run.speedups()) == []


def fips_settings(folder: Path) -> dict[str, str]:
    """Return environment variables by which a libcrypto of OpenSSL 3 has no ciphers but those of the FIPS provider."""
    module = libraries.fips_module()
    command = (require("openssl"), "fipsinstall", "-quiet", "-module", module, "-out", folder / "module.cnf")
    subprocess.run(command, check=True, capture_output=True, timeout=30)
    settings = folder / "openssl.cnf"
    settings.write_text(
        f"openssl_conf = all\n.include {folder}/module.cnf\n[all]\nproviders = providers\n"
        "[providers]\nfips = fips_sect\nbase = base\n[base]\nactivate = 1\n"
    )
    return {"OPENSSL_CONF": str(settings), "OPENSSL_MODULES": str(module.parent)}


async def test_the_fips_provider_is_reported_where_it_is_the_one_used(tmp_path: Path) -> None:
    """A host configured for FIPS has the provider's own AES measured, the mask reaches it, and it is named."""
    settings = fips_settings(tmp_path)

    def start(environment: Mapping[str, str]) -> AbstractAsyncContextManager[Worker]:
        return workers.start({**environment, **settings})

    run = await rounds.measure(replace(PLAN, cells=CELLS, libcrypto=str(libraries.openssl_3_5())), HOST, start=start)

    assert measurement(run, HARDWARE).library.provider == "fips"
    assert measurement(run, SOFTWARE).library.provider == "fips"
    assert statistics.median(each.ratio for each in run.speedups() if each.cell.block_size >= 1024) > 2
