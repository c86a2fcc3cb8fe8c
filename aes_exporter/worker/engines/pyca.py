"""The cryptography package: what a Python program gets from AES.

The loop is C-level iteration over `update_into`. Below about 1 KiB a figure is mostly the 0.2 microseconds of a call
through the binding, not AES: true for a Python program, but nothing to compare CPUs by.
"""

from __future__ import annotations

import site
import sys
import time
from collections import deque
from collections.abc import Callable
from itertools import repeat
from typing import Any

from aes_exporter.vocabulary import Cell, Library, Reason
from aes_exporter.worker.answers import IV, KEY
from aes_exporter.worker.engines import EngineError
from aes_exporter.worker.engines.libcrypto import CPU_INFO, library_name
from aes_exporter.worker.mapped import mapped_library
from aes_exporter.worker.messages import Slice, shares
from aes_exporter.worker.probe import Probe

try:
    if sys.flags.no_site:  # workers start without the site packages
        site.main()
    from cryptography.hazmat.bindings import _rust
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
except BaseException as error:  # whatever a broken installation raises; a panic of its Rust part is no Exception
    raise EngineError(Reason.ENGINE_UNAVAILABLE, f"cannot import the cryptography package: {error}") from error

_PADDING = 15  # update_into asks for this much room behind the data


class Pyca:
    """The cryptography engine."""

    def __init__(self, probe: Probe) -> None:
        from cryptography.hazmat.backends.openssl.backend import backend  # noqa: PLC0415

        self._probe = probe
        self._version = str(backend.openssl_version_text())

    @property
    def library(self) -> Library:
        return Library(name=library_name(self._version), file=mapped_library("libcrypto") or str(_rust.__file__))

    @property
    def capabilities(self) -> str:
        """The private binding is the only way to ask, so every answer but a text means that it does not tell."""
        try:
            from cryptography.hazmat.bindings.openssl.binding import Binding  # noqa: PLC0415

            text = Binding.ffi.string(Binding.lib.OpenSSL_version(CPU_INFO)).decode(errors="replace")
        except Exception:
            return ""
        return text if "cap=" in text else ""

    def operation(self, cell: Cell) -> _Operation:
        mode: Any = modes.CBC(IV) if cell.algorithm == "aes-128-cbc" else modes.ECB()  # noqa: S305 (measured, not used)
        cipher = Cipher(algorithms.AES(KEY), mode)
        context = cipher.encryptor() if cell.operation == "encrypt" else cipher.decryptor()
        return _Operation(context.update_into, cell.block_size, self._probe)


class _Operation:
    """One cipher context with its buffers, allocated once."""

    def __init__(self, update_into: Callable[[bytes, bytearray], int], block_size: int, probe: Probe) -> None:
        self._update_into = update_into
        self._source = bytes(block_size)
        self._target = bytearray(block_size + _PADDING)
        self._probe = probe

    def answers(self, data: bytes) -> set[bytes]:
        return {bytes(self._target[: self._update_into(data, self._target)])}

    def slice(self, warm_up: int, calls: int) -> Slice:
        self._repeat(warm_up)
        cpu_start, start = time.thread_time_ns(), time.perf_counter_ns()
        timings = [self._probe()]
        for share in shares(calls):
            before = time.perf_counter_ns()
            self._repeat(share)
            timings += max(1, time.perf_counter_ns() - before), self._probe()
        wall_ns, cpu_ns = time.perf_counter_ns() - start, time.thread_time_ns() - cpu_start
        return Slice(calls=calls, wall_ns=max(1, wall_ns), cpu_ns=max(0, cpu_ns), timings=tuple(timings))

    def _repeat(self, calls: int) -> None:
        deque(map(self._update_into, repeat(self._source, calls), repeat(self._target)), maxlen=0)
