"""The chains of chains.c: slices of the CPU's own instructions, calibrated like those of a library."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from ctypes import CDLL, c_int64

from aes_exporter.vocabulary import Reason
from aes_exporter.worker.engines import EngineError
from aes_exporter.worker.measure import WARM_UP_SHARE, calibrate
from aes_exporter.worker.messages import Slice

NAMES = ("clock", "cbc", "encrypt", "decrypt", "vaes_encrypt", "vaes_decrypt")
"""What can be asked for, in the order of chains.c."""

SLICE_NS = 50_000
"""Long enough: chains of 25 us read 0.06 % high, and the limits of ten runs of these agree to 0.1 %."""


class Chains:
    """The chains that this CPU can run, each calibrated when it is first asked for."""

    def __init__(self, compiled: CDLL) -> None:
        self._compiled = compiled
        self._calls: dict[str, int] = {}
        units = {name: int(compiled.hotloop_chain_units(number)) for number, name in enumerate(NAMES)}
        self.units: Mapping[str, int] = {name: count for name, count in units.items() if count}

    def take(self, names: Iterable[str]) -> tuple[Slice, ...]:
        """Return a slice of each named chain; its calls are cycles for "clock" and AES-128 blocks for the others."""
        return tuple(self._take(name) for name in names)

    def _take(self, name: str) -> Slice:
        number = NAMES.index(name)
        if name not in self._calls:
            self._calls[name] = calibrate(lambda calls: self._timed(number, 0, calls)[0], SLICE_NS)
        calls = self._calls[name]
        wall_ns, cpu_ns = self._timed(number, -(-calls // WARM_UP_SHARE), calls)
        return Slice(calls=calls * self.units[name], wall_ns=wall_ns, cpu_ns=cpu_ns)

    def _timed(self, number: int, warm_up: int, calls: int) -> tuple[int, int]:
        """Return the nanoseconds of wall and CPU time that so many iterations of a chain take."""
        elapsed = (c_int64 * 2)()
        if self._compiled.hotloop_chain_slice(number, warm_up, calls, elapsed) != 0:
            raise EngineError(Reason.ENGINE_UNAVAILABLE, f"chain {number} of chains.c cannot run here")
        return max(1, elapsed[0]), max(0, elapsed[1])
