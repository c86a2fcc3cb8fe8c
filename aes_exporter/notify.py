"""Words to the service manager, by systemd's notification protocol: ready, alive, stopping.

In: the environment that the manager started us with, and a function that says whether all is well. Out: datagrams to
the manager's socket; nothing where there is no manager. It does not know what being well means.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Callable, Mapping

_log = logging.getLogger(__name__)

_SEND_SECONDS = 1.0  # the manager drains its socket at once; a hung one must not hold up the event loop for long


class ServiceManager:
    """The other end of `NOTIFY_SOCKET`: a path, or a name in the abstract namespace where it begins with `@`."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        address = environ.get("NOTIFY_SOCKET", "")
        self._address = f"\0{address[1:]}" if address.startswith("@") else address
        self._watchdog_seconds = _watchdog_seconds(environ)
        self._reachable = True

    def ready(self) -> None:
        """Say that clients can connect."""
        self._send(b"READY=1")

    def stopping(self) -> None:
        """Say that the end has begun."""
        self._send(b"STOPPING=1")

    async def keep_alive(self, healthy: Callable[[], bool]) -> None:
        """Say twice per watchdog period that all is well, as long as it is; return at once without a watchdog."""
        while self._watchdog_seconds:
            if healthy():
                self._send(b"WATCHDOG=1")
            await asyncio.sleep(self._watchdog_seconds / 2)

    def _send(self, message: bytes) -> None:
        if not self._address:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:
                sock.settimeout(_SEND_SECONDS)
                sock.sendto(message, self._address)
        except OSError as error:
            if self._reachable:
                _log.warning("cannot reach the service manager", extra={"error": str(error)})
            self._reachable = False
        else:
            self._reachable = True


def _watchdog_seconds(environ: Mapping[str, str]) -> float:
    """Return the time within which the manager wants to hear from this process; 0 where it does not."""
    meant_for = environ.get("WATCHDOG_PID") or str(os.getpid())
    microseconds = environ.get("WATCHDOG_USEC", "")
    if meant_for != str(os.getpid()) or not (microseconds.isascii() and microseconds.isdecimal()):
        return 0.0
    return int(microseconds) / 1e6
