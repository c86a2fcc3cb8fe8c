"""The engines: each wraps one way to a library's AES behind the same two protocols."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from aes_exporter.vocabulary import Cell, Library, Reason
from aes_exporter.worker.messages import Slice

if TYPE_CHECKING:
    from aes_exporter.worker.probe import Probe


class EngineError(Exception):
    """An engine that cannot measure, and why."""

    def __init__(self, reason: Reason, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail


class Operation(Protocol):
    """One cell set up once, under the key of the known answers and, for CBC, from their initialisation vector on."""

    def answers(self, data: bytes) -> set[bytes]:
        """Return what the library's contexts make of one block of data, in the very call that `slice` times."""

    def slice(self, warm_up: int, calls: int) -> Slice:
        """Time `calls` library calls after `warm_up` untimed ones. Raises EngineError if one of them failed."""


class Engine(Protocol):
    """A library ready to measure."""

    @property
    def library(self) -> Library:
        """Which library this really is."""

    @property
    def capabilities(self) -> str:
        """The line in which the library prints its capability words, "" where it prints none."""

    def operation(self, cell: Cell) -> Operation:
        """Set a cell up. Raises EngineError."""


def load(engine: str, libcrypto: str | None, probe: Probe) -> Engine:
    """Load an engine by name, which probes the core around what it times.

    `libcrypto` is a path or soname, None for the first one found. Raises EngineError.
    """
    if engine == "libcrypto":
        from aes_exporter.worker.engines.libcrypto import Libcrypto  # noqa: PLC0415 (a worker loads one library only)

        return Libcrypto(libcrypto, probe)
    if engine == "cryptography":
        from aes_exporter.worker.engines.pyca import Pyca  # noqa: PLC0415

        return Pyca(probe)
    raise EngineError(Reason.ENGINE_UNAVAILABLE, f"no engine is called {engine}")
