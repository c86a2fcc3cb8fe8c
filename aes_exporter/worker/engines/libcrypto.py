"""Any libcrypto through ctypes: OpenSSL 1.1 to 4, AWS-LC, BoringSSL, LibreSSL. The loop itself is hotloop.c.

Only functions that every one of them has are required: EVP_aes_128_cbc() and its like rather than EVP_CIPHER_fetch.
"""

from __future__ import annotations

import ctypes
import re
from ctypes import c_char_p, c_int, c_int64, c_void_p
from typing import Any

from aes_exporter.vocabulary import Cell, Library, Reason
from aes_exporter.worker import compiled
from aes_exporter.worker.answers import IV, KEY
from aes_exporter.worker.engines import EngineError
from aes_exporter.worker.mapped import mapped_file
from aes_exporter.worker.messages import PARTS, Slice
from aes_exporter.worker.probe import Probe

SONAMES = ("libcrypto.so.4", "libcrypto.so.3", "libcrypto.so.1.1")

VERSION, CPU_INFO = 0, 9  # what OpenSSL_version(3) can be asked for
_PAGE = 4096  # bytes
_PLACES = 5  # for context and buffer of a cell; no divisor of 64 placements, so that each of them meets all of these


class Libcrypto:
    """The libcrypto engine: what `openssl speed -evp` measures. Raises EngineError where it cannot be loaded."""

    def __init__(self, name: str | None, probe: Probe) -> None:
        self._loop = compiled.load().hotloop_slice
        self._probe = probe.iterations
        self._library = _load_libcrypto(name)
        self._update_address = {
            "encrypt": self._address("EVP_EncryptUpdate"),
            "decrypt": self._address("EVP_DecryptUpdate"),
        }
        self._new = self._function("EVP_CIPHER_CTX_new", c_void_p)
        self._padding = self._function("EVP_CIPHER_CTX_set_padding", c_int, c_void_p, c_int)
        arguments = (c_void_p, c_void_p, c_void_p, c_char_p, c_char_p)
        self._init = {
            "encrypt": self._function("EVP_EncryptInit_ex", c_int, *arguments),
            "decrypt": self._function("EVP_DecryptInit_ex", c_int, *arguments),
        }
        self._cipher = {
            "aes-128-cbc": self._function("EVP_aes_128_cbc", c_void_p),
            "aes-128-ecb": self._function("EVP_aes_128_ecb", c_void_p),
        }
        self._version = self._function("OpenSSL_version", c_char_p, c_int)

    @property
    def library(self) -> Library:
        return Library(
            name=library_name(_decode(self._version(VERSION))),
            file=mapped_file(self._update_address["encrypt"]),
            provider=self._provider(),
        )

    @property
    def capabilities(self) -> str:
        text = _decode(self._version(CPU_INFO))
        return text if "cap=" in text else ""

    def operation(self, cell: Cell) -> _Operation:
        contexts = [self._context(cell) for _ in range(_PLACES)]
        return _Operation(contexts, self._update_address[cell.operation], self._loop, cell, self._probe)

    def _context(self, cell: Cell) -> int:
        context = self._new()
        cipher = self._cipher[cell.algorithm]()
        if not context or not cipher or self._init[cell.operation](context, cipher, None, KEY, IV) != 1:
            raise EngineError(Reason.ENGINE_UNAVAILABLE, f"the library refuses to set up {cell.algorithm}")
        self._padding(context, 0)  # else EVP_DecryptUpdate holds the last block back
        return int(context)

    def _provider(self) -> str:
        """Return the provider behind a context, such as "default" or "fips"; "" for libraries without providers."""
        try:
            cipher_of = self._function("EVP_CIPHER_CTX_get0_cipher", c_void_p, c_void_p)
            provider_of = self._function("EVP_CIPHER_get0_provider", c_void_p, c_void_p)
            name_of = self._function("OSSL_PROVIDER_get0_name", c_char_p, c_void_p)
        except EngineError:
            return ""
        provider = provider_of(
            cipher_of(self._context(Cell(algorithm="aes-128-cbc", operation="encrypt", block_size=16)))
        )
        return _decode(name_of(provider)) if provider else ""

    def _function(self, name: str, result: Any, *arguments: Any) -> Any:
        try:
            function = getattr(self._library, name)
        except AttributeError as error:
            raise EngineError(Reason.ENGINE_UNAVAILABLE, f"{self._library._name} has no function {name}") from error
        function.restype = result
        function.argtypes = arguments
        return function

    def _address(self, name: str) -> int:
        return int(ctypes.cast(self._function(name, c_int), c_void_p).value or 0)


class _Operation:
    """EVP contexts, each with a buffer that is updated in place as `openssl speed` does, for the life of the worker.

    Where buffer, stack and context lie against each other can cost up to 18 %, and would be chance: slices take
    contexts and buffers in turn, and each part of a slice has another placement of buffer and stack, see hotloop.c.
    """

    def __init__(self, contexts: list[int], update: int, loop: Any, cell: Cell, probe: int) -> None:
        self._cell = cell
        self._storage = [ctypes.create_string_buffer(cell.block_size + 2 * _PAGE) for _ in contexts]
        starts = map(ctypes.addressof, self._storage)
        self._places = [(context, start + -start % _PAGE) for context, start in zip(contexts, starts, strict=True)]
        self._update = update
        self._loop = loop
        self._probe = probe
        self._turn = 0
        self._elapsed = (c_int64 * 2)()
        self._timings = (c_int64 * (2 * PARTS + 1))()

    def answers(self, data: bytes) -> set[bytes]:
        return {self._answer(context, page, data) for context, page in self._places}

    def _answer(self, context: int, page: int, data: bytes) -> bytes:
        ctypes.memmove(page, data, len(data))
        self._repeat(context, page, 0, 0, 1)
        return ctypes.string_at(page, len(data))

    def slice(self, warm_up: int, calls: int) -> Slice:
        context, page = self._places[self._turn % len(self._places)]
        parts = self._repeat(context, page, self._turn * PARTS, warm_up, calls)
        self._turn += 1
        wall_ns, cpu_ns = self._elapsed
        timings = tuple(self._timings[: 2 * parts + 1])
        return Slice(calls=calls, wall_ns=max(1, wall_ns), cpu_ns=max(0, cpu_ns), timings=timings)

    def _repeat(self, context: int, page: int, placement: int, warm_up: int, calls: int) -> int:
        """Make the calls, and return in how many parts."""
        parts = min(PARTS, calls)
        where = (self._update, context, page, self._cell.block_size, placement)
        failed = self._loop(*where, warm_up, calls, parts, self._probe, self._elapsed, self._timings)
        if failed:
            problem = "the clocks cannot be read" if failed < 0 else f"{failed} of {warm_up + calls} calls failed"
            raise EngineError(Reason.WRONG_ANSWER, f"{self._cell.algorithm} {self._cell.operation}: {problem}")
        return parts


def library_name(version: str) -> str:
    """Return name and version number of a library by its OpenSSL_version(0), e.g. "OpenSSL 3.0.19".

    AWS-LC and BoringSSL give an OpenSSL version first and say in parentheses who they are.
    """
    match = re.search(r"\(compatible; ([^)]+)\)", version)
    return " ".join((match[1] if match else version).split()[:2])


def _load_libcrypto(name: str | None) -> ctypes.CDLL:
    problems = []
    for candidate in (name,) if name else SONAMES:
        try:
            return ctypes.CDLL(candidate)
        except OSError as error:
            problems.append(str(error))
    detail = (
        "; ".join(problems) if name else f"none of {', '.join(SONAMES)} is installed; name one by --benchmark.libcrypto"
    )
    raise EngineError(Reason.ENGINE_UNAVAILABLE, detail)


def _decode(text: bytes | None) -> str:
    return (text or b"").decode(errors="replace")
