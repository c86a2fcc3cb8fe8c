"""The section `tls_server_config` -> a TLS context, and who may connect.

Keys mean what they mean to the official exporters. What would be weaker here than there, because Python's TLS cannot do
it, is refused by name; where the two differ without harm, the stricter one holds.
"""

from __future__ import annotations

import ipaddress
import os
import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from aes_exporter.web.document import Value

_KEYS = (
    "cert",
    "cert_file",
    "key",
    "key_file",
    "client_ca",
    "client_ca_file",
    "client_auth_type",
    "client_allowed_sans",
    "min_version",
    "max_version",
    "cipher_suites",
    "prefer_server_cipher_suites",
    "curve_preferences",
)
_CLIENT_AUTH = {
    "NoClientCert": ssl.CERT_NONE,
    "RequestClientCert": ssl.CERT_NONE,  # asked for and never looked at
    "VerifyClientCertIfGiven": ssl.CERT_OPTIONAL,
    "RequireAndVerifyClientCert": ssl.CERT_REQUIRED,
}
_UNVERIFIED = ("RequireAnyClientCert", "RequireClientCert")
_OLDEST, _NEWEST = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3
_MIN_VERSION = {"TLS10": _OLDEST, "TLS11": _OLDEST, "TLS12": _OLDEST, "TLS13": _NEWEST}
_MAX_VERSION = {"TLS12": _OLDEST, "TLS13": _NEWEST}
_CURVES = {"CurveP256": "prime256v1", "CurveP384": "secp384r1", "CurveP521": "secp521r1", "X25519": None}
_SUITES = {
    **{
        f"TLS_{exchange}_WITH_{suite}": "-".join((*prefix, cipher))
        for exchange, *prefix in (
            ("ECDHE_ECDSA", "ECDHE", "ECDSA"),
            ("ECDHE_RSA", "ECDHE", "RSA"),
            ("RSA",),
        )
        for suite, cipher in {
            "AES_128_GCM_SHA256": "AES128-GCM-SHA256",
            "AES_256_GCM_SHA384": "AES256-GCM-SHA384",
            "AES_128_CBC_SHA": "AES128-SHA",
            "AES_256_CBC_SHA": "AES256-SHA",
        }.items()
    },
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-RSA-CHACHA20-POLY1305",
    # Those of TLS 1.3 are not for choosing, there as here: all of them are on.
    **dict.fromkeys(("TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"), ""),
}

Read = Callable[[Value], bytes]
"""Returns what is in the file that a value names; raises WebConfigError."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """How connections are secured. `clients` tells who may connect: equal if the same certificates open the door."""

    context: ssl.SSLContext = field(repr=False)
    clients: tuple[ssl.VerifyMode, bytes, frozenset[str]] = field(repr=False)

    @property
    def verifies_clients(self) -> bool:
        return self.context.verify_mode is ssl.CERT_REQUIRED

    def admits(self, certificate: Mapping[str, Any] | None) -> bool:
        """Return whether a client may connect, by its verified certificate as `getpeercert` returns it."""
        allowed = self.clients[2]
        return not allowed or not allowed.isdisjoint(_alternative_names(certificate or {}))


def build(section: Value, read: Read) -> Tls | None:
    """Return what the section asks for, None if it is empty. Raises WebConfigError."""
    fields = section.fields(_KEYS)
    if not fields:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.set_alpn_protocols(["http/1.1"])
    _limit(context, fields)
    _load_certificate(context, section, fields, read)
    return Tls(context=context, clients=_load_clients(context, fields, read))


def _limit(context: ssl.SSLContext, fields: Mapping[str, Value]) -> None:
    """Set the versions, cipher suites and the curve."""
    context.minimum_version, context.maximum_version = _OLDEST, _NEWEST
    if value := fields.get("min_version"):
        context.minimum_version = _MIN_VERSION[value.choice(_MIN_VERSION)]
    if value := fields.get("max_version"):
        context.maximum_version = _MAX_VERSION[value.choice(_MAX_VERSION)]
        if context.maximum_version < context.minimum_version:
            raise value.refusal("lower than min_version")
    if (value := fields.get("prefer_server_cipher_suites")) and not value.switch():
        context.options &= ~ssl.OP_CIPHER_SERVER_PREFERENCE
    if value := fields.get("cipher_suites"):
        _choose_suites(context, value)
    if value := fields.get("curve_preferences"):
        _choose_curve(context, value)


def _choose_suites(context: ssl.SSLContext, value: Value) -> None:
    chosen = [_SUITES[item.choice(_SUITES)] for item in value.items()]
    if chosen and not any(chosen):
        raise value.refusal("none for TLS 1.2; to allow TLS 1.3 only, set min_version: TLS13")
    if chosen:
        try:
            context.set_ciphers(":".join(filter(None, chosen)))
        except ssl.SSLError:
            raise value.refusal("none that this OpenSSL has") from None


def _choose_curve(context: ssl.SSLContext, value: Value) -> None:
    chosen = [_CURVES[item.choice(_CURVES)] for item in value.items()]
    if set(chosen) == set(_CURVES.values()) or not chosen:
        return  # a preference alone weakens nothing
    if len(chosen) > 1 or chosen[0] is None:
        raise value.refusal("cannot be honoured by Python, but for one of CurveP256, CurveP384 and CurveP521 alone")
    context.set_ecdh_curve(chosen[0])


def _load_certificate(context: ssl.SSLContext, section: Value, fields: Mapping[str, Value], read: Read) -> None:
    certificate, key = _either("cert", fields), _either("key", fields)
    if not certificate:
        raise section.refusal("missing one of cert or cert_file")
    if not key:
        raise section.refusal("missing one of key or key_file")
    with _file(_content(certificate, read)) as certificate_file, _file(_content(key, read)) as key_file:
        try:
            context.load_cert_chain(certificate_file, key_file, password=_no_password)
        except (ssl.SSLError, ValueError) as error:
            reason = getattr(error, "reason", None) or "it may be encrypted"
            raise key.refusal(f"does not make a pair with {certificate.name}: {reason.lower()}") from None


def _load_clients(
    context: ssl.SSLContext, fields: Mapping[str, Value], read: Read
) -> tuple[ssl.VerifyMode, bytes, frozenset[str]]:
    """Set which client certificates are asked for and trusted, and return what tells that from any other choice."""
    mode = _client_auth(fields.get("client_auth_type"))
    authorities = _either("client_ca", fields)
    allowed = fields.get("client_allowed_sans")
    if authorities and _nobody_is_asked(fields.get("client_auth_type")):
        raise authorities.refusal("has no effect without a client_auth_type, such as RequireAndVerifyClientCert")
    if allowed and mode is not ssl.CERT_REQUIRED:
        raise allowed.refusal("needs client_auth_type: RequireAndVerifyClientCert")
    context.verify_mode = mode
    content = b""
    if authorities:
        content = _content(authorities, read)
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # an intermediate authority may be trusted by itself
        with _file(content) as file:
            try:
                context.load_verify_locations(file)
            except ssl.SSLError:
                raise authorities.refusal("no certificate in it, or a broken one") from None
    elif mode is not ssl.CERT_NONE:
        context.load_default_certs(ssl.Purpose.CLIENT_AUTH)
    return mode, content, frozenset(item.text() for item in allowed.items()) if allowed else frozenset()


def _client_auth(value: Value | None) -> ssl.VerifyMode:
    if value is None:
        return ssl.CERT_NONE
    if value.text() in _UNVERIFIED:
        raise value.refusal(f"{value.text()} cannot be honoured by Python; RequireAndVerifyClientCert is the safe one")
    return _CLIENT_AUTH[value.choice(_CLIENT_AUTH)]


def _nobody_is_asked(value: Value | None) -> bool:
    return value is None or value.text() == "NoClientCert"


def _either(name: str, fields: Mapping[str, Value]) -> Value | None:
    """Return the value that names a file, or else the one that holds its content."""
    return fields.get(f"{name}_file") or fields.get(name)


def _content(value: Value, read: Read) -> bytes:
    return read(value) if value.name.endswith("_file") else value.text().encode()


@contextmanager
def _file(content: bytes) -> Iterator[str]:
    """Give a content the name of a file, in memory only: OpenSSL by way of Python takes no keys but from files."""
    with open(os.memfd_create("pem"), "wb", buffering=0) as file:  # noqa: PTH123
        file.write(content)
        yield f"/proc/self/fd/{file.fileno()}"


def _no_password() -> str:
    """Return no password for an encrypted key; without this OpenSSL would ask for one on the terminal."""
    return ""


def _alternative_names(certificate: Mapping[str, Any]) -> Iterator[str]:
    for kind, value in certificate.get("subjectAltName", ()):
        yield str(ipaddress.ip_address(value.strip())) if kind == "IP Address" else value
