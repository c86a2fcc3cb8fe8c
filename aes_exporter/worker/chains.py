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

_PROBE = len(NAMES)  # behind them: the chain that fills the core's issue slots

SLICE_NS = 50_000
"""Long enough: chains of 25 us read 0.06 % high, and the limits of ten runs of these agree to 0.1 %."""


PROBE_NS = 5_000
"""Enough: a busy sibling thread lengthens the probe by a quarter or more, and reading the clock by half a percent."""


class Chains:
    """The chains that this CPU can run, each calibrated when it is first asked for."""

    def __init__(self, compiled: CDLL) -> None:
        self._compiled = compiled
        self._calls: dict[str, int] = {}
        units = {name: int(compiled.hotloop_chain_units(number)) for number, name in enumerate(NAMES)}
        self.units: Mapping[str, int] = {name: count for name, count in units.items() if count}
        has_probe = compiled.hotloop_chain_units(_PROBE) != 0
        self._probe_calls = calibrate(_Chain(compiled, _PROBE), PROBE_NS) if has_probe else 0
        self._probed = (c_int64 * 2)()

    def probe(self) -> int:
        """Return how many nanoseconds a fixed number of independent additions takes now, 0 where none are known.

        A busy sibling thread of the same core takes issue slots away, and with them the speed of short calls.
        """
        if not self._probe_calls:
            return 0
        self._compiled.hotloop_chain_slice(_PROBE, 0, self._probe_calls, self._probed)
        return max(1, self._probed[0])

    def take(self, names: Iterable[str]) -> tuple[Slice, ...]:
        """Return a slice of each named chain; its calls are cycles for "clock" and AES-128 blocks for the others."""
        return tuple(self._take(name) for name in names)

    def _take(self, name: str) -> Slice:
        chain = _Chain(self._compiled, NAMES.index(name))
        if name not in self._calls:
            self._calls[name] = calibrate(chain, SLICE_NS)
        calls = self._calls[name]
        slice_ = chain.slice(-(-calls // WARM_UP_SHARE), calls)
        return Slice(calls=calls * self.units[name], wall_ns=slice_.wall_ns, cpu_ns=slice_.cpu_ns)


class _Chain:
    """One chain in the shape of an Operation; a call is an iteration."""

    def __init__(self, compiled: CDLL, number: int) -> None:
        self._compiled = compiled
        self._number = number

    def once(self, data: bytes) -> bytes:
        return data

    def slice(self, warm_up: int, calls: int) -> Slice:
        elapsed = (c_int64 * 2)()
        if self._compiled.hotloop_chain_slice(self._number, warm_up, calls, elapsed) != 0:
            raise EngineError(Reason.ENGINE_UNAVAILABLE, f"chain {self._number} of chains.c cannot run here")
        return Slice(calls=calls, wall_ns=max(1, elapsed[0]), cpu_ns=max(0, elapsed[1]))
