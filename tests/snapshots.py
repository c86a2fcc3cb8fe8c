"""Fixed example records for tests: a host, runs that went well and badly, and the Snapshots that show them.

The figures follow from a simple law (a call costs a fixed time and a time per byte), so they look like real ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from aes_exporter.model import (
    BLOCK_SIZES,
    ENGINES,
    Exemption,
    Failure,
    Figure,
    Host,
    KernelDriver,
    Lane,
    Limit,
    Measurement,
    NotApplicable,
    Outcome,
    Run,
    Silicon,
    Snapshot,
    WebConfigReading,
)
from aes_exporter.vocabulary import ALGORITHMS, OPERATIONS, Cell, Library, Reason

HARDWARE = Lane(engine="libcrypto", path="hardware")
SOFTWARE = Lane(engine="libcrypto", path="software")
LANES = tuple(Lane(engine=engine, path=path) for engine in ENGINES for path in ("hardware", "software"))
CELLS = tuple(
    Cell(algorithm=algorithm, operation=operation, block_size=size)
    for algorithm in ALGORITHMS
    for operation in OPERATIONS
    for size in BLOCK_SIZES
)

HOST = Host(
    architecture="x86_64",
    flags=frozenset(("aes", "avx", "avx2", "pclmulqdq", "sha_ni", "ssse3", "vaes", "vpclmulqdq")),
    brand="AMD EPYC 7B13",
    vendor="AuthenticAMD",
    family="25",
    model="1",
    stepping="1",
    hypervisor="KVM",
    kernel_drivers=(
        KernelDriver(algorithm="cbc(aes)", driver="cbc-aes-aesni", accelerated=True),
        KernelDriver(algorithm="ecb(aes)", driver="ecb-aes-aesni", accelerated=True),
        KernelDriver(algorithm="xts(aes)", driver="xts(ecb(aes-generic))", accelerated=False),
    ),
)

_LIBRARIES = {
    "libcrypto": Library(name="OpenSSL 3.0.19", file="/usr/lib/x86_64-linux-gnu/libcrypto.so.3", provider="default"),
    "cryptography": Library(
        name="OpenSSL 4.0.3",
        file="/usr/lib/python3/dist-packages/cryptography/hazmat/bindings/_rust.abi3.so",
        provider="default",
    ),
}
_FLAGS = {
    "hardware": tuple(sorted(HOST.flags or ())),
    "software": ("avx", "avx2", "sha_ni", "ssse3", "vaes", "vpclmulqdq"),
}
_BYTES_PER_NS = {
    ("aes-128-cbc", "encrypt", "hardware"): 1.21,
    ("aes-128-cbc", "decrypt", "hardware"): 9.98,
    ("aes-128-ecb", "encrypt", "hardware"): 9.82,
    ("aes-128-ecb", "decrypt", "hardware"): 9.81,
    ("aes-128-cbc", "encrypt", "software"): 0.329,
    ("aes-128-cbc", "decrypt", "software"): 0.553,
    ("aes-128-ecb", "encrypt", "software"): 0.355,
    ("aes-128-ecb", "decrypt", "software"): 0.285,
}
_NS_PER_CALL = {"libcrypto": 3.0, "cryptography": 180.0}


def figure(lane: Lane, cell: Cell) -> Figure:
    """Return what the law gives for a cell on a lane, the median 2 % below the best."""
    speed = _BYTES_PER_NS[cell.algorithm, cell.operation, lane.path]
    best = round(cell.block_size / (_NS_PER_CALL[lane.engine] + cell.block_size / speed) * 1e9)
    implementation = "aesni" if lane.path == "hardware" else "vpaes"
    return Figure(cell=cell, best=float(best), median=float(round(best * 0.98)), implementation=implementation)


def measurement(lane: Lane, cells: tuple[Cell, ...] = CELLS) -> Measurement:
    """Return the outcome of a lane on which all `cells` were measured."""
    return Measurement(
        library=_LIBRARIES[lane.engine],
        cpu_flags=_FLAGS[lane.path],
        figures=tuple(figure(lane, cell) for cell in cells),
        contention_ratio=0.0625,
    )


_SILICON = Silicon(
    core_hertz=3.25e9,
    quiet_ratio=0.9,
    limits=(
        Limit(algorithm="aes-128-cbc", operation="encrypt", instructions="aes", bytes_per_second=1.3e9),
        Limit(algorithm="aes-128-ecb", operation="encrypt", instructions="aes", bytes_per_second=1.04e10),
        Limit(algorithm="aes-128-ecb", operation="encrypt", instructions="vaes", bytes_per_second=2.08e10),
    ),
)


def run(outcomes: Mapping[Lane, Outcome]) -> Run:
    """Return a run with these outcomes, on a Saturday in 2026."""
    return Run(
        started=1772884800.25,
        duration_seconds=43.5,
        cpu_seconds=3.02,
        rounds=80,
        cpu=1,
        outcomes=outcomes,
        silicon=_SILICON,
        steal_ratio=0.001,
        throttled_periods=0,
    )


RUN = run({lane: measurement(lane) for lane in LANES})
"""Every lane was measured."""

RUN_PARTLY_FAILED = replace(
    run(
        {
            HARDWARE: measurement(HARDWARE),
            SOFTWARE: Failure(reason=Reason.MASK_INEFFECTIVE, detail="AES bit still set in 0xfffa320b078bffff"),
            Lane(engine="libcrypto", path="forced"): NotApplicable(reason=Exemption.NOT_HIDDEN),
            Lane(engine="cryptography", path="hardware"): Failure(reason=Reason.TIMEOUT, detail="no reply within 10 s"),
            Lane(engine="cryptography", path="software"): measurement(Lane(engine="cryptography", path="software")),
        }
    ),
    cpu=None,
)
"""One lane of each engine failed, so there is no speed-up; another lane does not apply; the run was not pinned."""

RUN_FAILED = replace(
    run({lane: Failure(reason=Reason.SPAWN_FAILED, detail="Cannot allocate memory") for lane in LANES}),
    started=RUN.started - 900,
    rounds=0,
    silicon=None,
)
"""A quarter of an hour before RUN, nothing was measured."""

FRESH = Snapshot(host=HOST, lanes=LANES, interval_seconds=300.0)
"""A daemon that has just started: its first run has not ended."""

SNAPSHOT = replace(
    FRESH.begun().ended(RUN_FAILED).skipped(2).begun().ended(RUN),
    web_config=WebConfigReading(successful=True, last_success=1772880000.5),
)
"""A daemon with a web config whose first run failed, that then missed two, and whose latest run measured everything."""
