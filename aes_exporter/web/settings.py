"""The document -> one frozen WebConfig: everything checked, certificates loaded, passwords still hashed."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from aes_exporter.web import document
from aes_exporter.web.document import Value, WebConfigError
from aes_exporter.web.tls import Tls, build

_HEADERS: Mapping[str, tuple[str, ...]] = {  # the values that each may have; any, where there are none
    "Strict-Transport-Security": (),
    "X-Content-Type-Options": ("nosniff",),
    "X-Frame-Options": ("deny", "sameorigin"),
    "X-XSS-Protection": (),
    "Content-Security-Policy": (),
}
_HASH = re.compile(r"\$2[abxy]\$(0[4-9]|[12][0-9]|3[01])\$[./A-Za-z0-9]{53}")
_DURATION = re.compile(r"(?:[0-9]{1,9}(?:\.[0-9]{1,9})?(?:ns|us|µs|ms|s|m|h))+")
_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class RateLimit:
    """A token bucket: one more request every `interval_seconds`, and `burst` of them saved at most."""

    interval_seconds: float
    burst: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WebConfig:
    """What a web config asks for. `users` maps names to bcrypt hashes; empty means that nobody is asked."""

    tls: Tls | None
    users: Mapping[bytes, bytes] = field(repr=False)
    headers: Mapping[str, str]
    rate_limit: RateLimit | None

    def protections(self) -> frozenset[str]:
        """Return what a client has to bring or to pass."""
        present = {
            "TLS": self.tls is not None,
            "client certificates": self.tls is not None and self.tls.verifies_clients,
            "passwords": bool(self.users),
        }
        return frozenset(name for name, there in present.items() if there)

    def shown(self) -> str:
        """Return the protections for the log."""
        return ", ".join(sorted(self.protections())) or "none"


def load(path: Path, read: Callable[[Path], bytes]) -> WebConfig:
    """Return the config in the file at `path`; it and the files it names, relative to its folder, come from `read`.

    Raises WebConfigError: one line that names file, line and key, and repeats no secret.
    """

    def read_named(value: Value) -> bytes:
        try:
            return read(path.parent / value.text())
        except OSError as error:
            raise value.refusal(str(error.strerror)) from None  # not its name, which may be a key in the wrong place

    try:
        content = read(path)
    except OSError as error:
        raise WebConfigError(f"{path}: {error.strerror}") from None
    whole = document.parse(content, str(path))
    blank = Value(file=str(path), name="", node=None)
    sections = whole.fields(("tls_server_config", "http_server_config", "basic_auth_users", "rate_limit"))
    return WebConfig(
        tls=build(sections.get("tls_server_config", blank), read_named),
        users=_users(sections.get("basic_auth_users", blank)),
        headers=_headers(sections.get("http_server_config", blank)),
        rate_limit=_rate_limit(sections.get("rate_limit", blank)),
    )


def _users(section: Value) -> dict[bytes, bytes]:
    users = {}
    for name, value in section.entries():
        if not _HASH.fullmatch(value.text()):
            raise value.refusal("the password of this user is not a bcrypt hash, such as htpasswd -nBC 10 makes")
        users[name.encode()] = value.text().encode()
    return users


def _headers(section: Value) -> dict[str, str]:
    fields = section.fields(("http2", "headers"))
    if "http2" in fields:
        fields["http2"].switch()  # what is served is HTTP/1.1, whatever the answer
    headers = fields["headers"].fields(_HEADERS) if "headers" in fields else {}
    return {name: _header(value, _HEADERS[name]) for name, value in headers.items()}


def _header(value: Value, choices: tuple[str, ...]) -> str:
    if choices:
        return value.choice(choices)
    if not (value.text().isascii() and value.text().isprintable()):
        raise value.refusal("expected printable ASCII on one line")
    return value.text().strip()


def _rate_limit(section: Value) -> RateLimit | None:
    fields = section.fields(("interval", "burst"))
    seconds = _duration(fields["interval"]) if "interval" in fields else 0.0
    burst = _count(fields["burst"]) if "burst" in fields else 0
    if not seconds:
        return None
    if not burst:
        raise section.refusal("a burst of 0 would refuse every request")
    return RateLimit(interval_seconds=seconds, burst=burst)


def _duration(value: Value) -> float:
    if value.text() == "0":
        return 0.0
    if not _DURATION.fullmatch(value.text()):
        raise value.refusal("expected a duration such as 1s or 100ms")
    return sum(float(count) * _SECONDS[unit] for count, unit in re.findall(r"([0-9.]+)([a-zµ]+)", value.text()))


def _count(value: Value) -> int:
    if not re.fullmatch("[0-9]{1,9}", value.text()):
        raise value.refusal("expected a whole number")
    return int(value.text())
