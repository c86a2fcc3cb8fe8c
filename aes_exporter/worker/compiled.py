"""The compiled piece, hotloop.so, as Python functions. It is optional: without it `load` says what to do."""

from __future__ import annotations

import ctypes
from ctypes import POINTER, c_int, c_int64, c_void_p

from aes_exporter.vocabulary import Reason
from aes_exporter.worker.engines import EngineError

FILE = f"{__file__.rpartition('/')[0]}/hotloop.so"  # pathlib would take each worker 8 ms of its start


def load() -> ctypes.CDLL:
    """Return the shared object with its functions declared. Raises EngineError."""
    try:
        library = ctypes.CDLL(FILE)
        library.hotloop_slice.restype = c_int64
        library.hotloop_slice.argtypes = (*(c_void_p,) * 3, c_int, *(c_int64,) * 5, *(POINTER(c_int64),) * 2)
        library.hotloop_probe.restype = c_int64
        library.hotloop_probe.argtypes = (c_int64,)
        library.hotloop_chain_units.restype = c_int64
        library.hotloop_chain_units.argtypes = (c_int,)
        library.hotloop_chain_slice.restype = c_int
        library.hotloop_chain_slice.argtypes = (c_int, c_int64, c_int64, POINTER(c_int64))
    except (OSError, AttributeError) as error:
        detail = (
            f"the compiled loop hotloop.so is missing or does not fit this machine ({error}): reinstall "
            "aes-exporter where a C compiler is installed, or from a wheel for this platform"
        )
        raise EngineError(Reason.ENGINE_UNAVAILABLE, detail) from error
    return library
