"""The worker's tie to the daemon: it ends with it, even while it is stopped or hangs and reads no end of input."""

from __future__ import annotations

import ctypes
import signal
import sys

_PR_SET_PDEATHSIG = 1


def die_with_parent() -> None:
    """Have the kernel kill this process once its parent is gone. On other systems than Linux nothing is done."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL), *(ctypes.c_ulong(0),) * 3)
