"""Questions that only instructions can answer, asked by questions.c in a child that may die of them.

Nothing in, an answer out, None where there is none: no compiled piece, another architecture, a child that went wrong.
"""

from __future__ import annotations

import logging
import signal
from pathlib import Path

from aes_exporter import worker
from aes_exporter.host import child

_log = logging.getLogger(__name__)

_COMPILED = str(Path(worker.__file__).with_name("hotloop.so"))

_HYPERVISOR = """
import ctypes, sys
signature = ctypes.create_string_buffer(13)
ctypes.CDLL(sys.argv[1]).hotloop_hypervisor(signature)
print(signature.value.decode("ascii", "replace"))
"""

# The example of AESENC in Intel's white paper 323641-001, "Advanced Encryption Standard (AES) New Instructions Set",
# where the most significant byte comes first.
_TRY_AES = """
import ctypes, sys
state = ctypes.create_string_buffer(bytes.fromhex("7b5b54657374566563746f725d53475d")[::-1], 16)
key = ctypes.create_string_buffer(bytes.fromhex("48692853686179295b477565726f6e5d")[::-1], 16)
tried = ctypes.CDLL(sys.argv[1]).hotloop_try_aes(state, key)
print(tried, state.raw[::-1].hex())
"""
_AES_WORKS = b"0 a8311c2f9fdba3c58b104b58ded7e595"


async def hypervisor_signature() -> str:
    """Return what CPUID leaf 0x40000000 says, such as "KVMKVMKVM"; "" without a hypervisor or an answer."""
    code, output = await _ask(_HYPERVISOR)
    return output.decode(errors="replace").strip() if code == 0 else ""


async def aes_works(code: str = _TRY_AES) -> bool | None:
    """Return whether an AES instruction computes what it should, whatever the CPU's flags say.

    False means that the child died of an illegal instruction, as on a CPU without AES or with AES switched off by its
    firmware; anything else but the right result is None.
    """
    exit_code, output = await _ask(code)
    if exit_code == -signal.SIGILL:
        return False
    return True if exit_code == 0 and output.strip() == _AES_WORKS else None


async def _ask(code: str) -> tuple[int | None, bytes]:
    try:
        return await child.run(code, _COMPILED)
    except (OSError, ValueError) as error:
        _log.debug("no answer from the CPU", extra={"error": repr(error)})
        return None, b""
