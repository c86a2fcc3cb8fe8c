"""The web config in force: read again whenever a byte of its files changed, and when a signal asks for it.

In: a path. Out: a WebConfig, always a good one, and how the latest reading went. There is no timer: the files are
looked at when somebody connects or asks, which takes some tens of microseconds.
"""

from __future__ import annotations

import errno
import logging
import os
import time
from collections.abc import Callable
from pathlib import Path

from aes_exporter.model import WebConfigReading
from aes_exporter.web.document import WebConfigError
from aes_exporter.web.settings import WebConfig, load
from aes_exporter.web.tls import Tls

_log = logging.getLogger(__name__)


class CurrentWebConfig:
    """Keeps the last good WebConfig of a file. Call it for the one in force. Raises WebConfigError without a first."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.time) -> None:
        self._path = path
        self._clock = clock
        self._seen: dict[Path, bytes | int] = {}
        self._config = self._read()
        self.reading = WebConfigReading(successful=True, last_success=clock())

    def __call__(self) -> WebConfig:
        """Return the config in force, after looking whether the files are still what they were."""
        if any(_content(path) != content for path, content in self._seen.items()):
            self._renew(confirmed=False)
        return self._config

    def tls(self) -> Tls | None:
        """Return how the next connection is secured."""
        return self().tls

    def reload(self) -> None:
        """Read the files again, for somebody who asks and so knows what is in them."""
        self._renew(confirmed=True)

    def _renew(self, *, confirmed: bool) -> None:
        try:
            config = self._read()
            if not confirmed:
                self._refuse_loss(config)
        except (WebConfigError, OSError) as error:  # such as no descriptor left
            self.reading = WebConfigReading(successful=False, last_success=self.reading.last_success)
            _log.error("web config refused, the last good one stays in force", extra={"reason": str(error)})
        else:
            self._config = config
            self.reading = WebConfigReading(successful=True, last_success=self._clock())
            _log.info("web config read", extra={"protections": config.shown()})

    def _refuse_loss(self, config: WebConfig) -> None:
        """Refuse what asks for less than before: a file caught while it is being written looks just like that."""
        lost = self._config.protections() - config.protections()
        if lost:
            raise WebConfigError(f"{self._path}: no longer asks for {', '.join(sorted(lost))}; SIGHUP if that is meant")

    def _read(self) -> WebConfig:
        self._seen = {}
        return load(self._path, self._file)

    def _file(self, path: Path) -> bytes:
        content = self._seen[path] = _content(path)
        if isinstance(content, int):
            raise OSError(content, os.strerror(content))
        return content


def _content(path: Path) -> bytes | int:
    """Return what is in a file, or the number of the error that prevents it; only a file can be read over and over."""
    try:
        return path.read_bytes() if path.is_file() or not path.exists() else errno.EINVAL
    except OSError as error:
        return error.errno or errno.EIO
    except ValueError:  # a null byte in its name
        return errno.ENOENT
