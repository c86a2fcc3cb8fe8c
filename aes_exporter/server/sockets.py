"""Listening sockets: from addresses as users write them to what the system has."""

from __future__ import annotations

import errno
import logging
import os
import socket
from collections.abc import Iterator, Sequence
from contextlib import ExitStack

from aes_exporter.notation import Address

_log = logging.getLogger(__name__)

_NO_IPV6 = (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL)


class ListenError(Exception):
    """An address cannot be listened on; the message is one line that names it."""


def listen(addresses: Sequence[Address]) -> list[socket.socket]:
    """Return bound, listening sockets: one for each address, or as many as a host name resolves to.

    Raises ListenError, with no socket left open, if one of the addresses cannot be had.
    """
    with ExitStack() as stack:
        sockets = []
        for address in addresses:
            try:
                sockets += [stack.enter_context(sock) for sock in _bind(address)]
            except (OSError, UnicodeError) as error:
                raise ListenError(f"cannot listen on {address}: {_reason(error)}") from error
        stack.pop_all()
    for sock in sockets:  # handed down to its connections; asyncio does not see that they are TCP
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sockets


def _bind(address: Address) -> Iterator[socket.socket]:
    if address.host in ("", "::") and socket.has_dualstack_ipv6():
        yield socket.create_server(("::", address.port), family=socket.AF_INET6, dualstack_ipv6=True)
        return
    if not address.host:
        _log.warning("no IPv6 on this host, listening on IPv4 only", extra={"address": str(address)})
    found = socket.getaddrinfo(address.host or "0.0.0.0", address.port, type=socket.SOCK_STREAM)
    targets = list(dict.fromkeys((family, target) for family, _, _, _, target in found))
    refused: list[OSError] = []
    for family, target in targets:
        try:
            yield socket.create_server(target, family=family)
        except OSError as error:
            if family != socket.AF_INET6 or error.errno not in _NO_IPV6:
                raise
            refused.append(error)  # containers without IPv6 often still map localhost to ::1 as well
    if len(refused) == len(targets):
        raise refused[0]
    if refused:
        _log.warning("no IPv6 on this host, listening on IPv4 only", extra={"address": str(address)})


def _reason(error: Exception) -> str:
    """Return the reason alone: Python puts the address into the text of some errors."""
    if isinstance(error, OSError) and not isinstance(error, socket.gaierror) and error.errno:
        return os.strerror(error.errno)
    return str(getattr(error, "strerror", None) or error)
