"""The web side: listening sockets, the ASGI application, and the server that keeps answering whatever clients do.

In: a registry, two yes-or-no functions, a page, a way to TLS. Out: HTTP. It starts no measurement, knows no metric, and
handles no signal.
"""

from __future__ import annotations

from aes_exporter.server.application import HEALTH_PATHS, application
from aes_exporter.server.serving import Server
from aes_exporter.server.sockets import ListenError, listen

__all__ = ("HEALTH_PATHS", "ListenError", "Server", "application", "listen")
