"""Certificates and web configs for tests: a certificate authority of their own, and hashes that are quick to check."""

from __future__ import annotations

from pathlib import Path

import trustme

NAMES = ("localhost", "127.0.0.1")
ALICE = "$2y$04$abcdefghijklmnopqrstuujZkTwHUiJ9XdZPwKfcfDo7dMp5DjlTu"
"""The bcrypt hash of "wonderland", at the least cost."""
PAIR = "tls_server_config:\n  cert_file: server.crt\n  key_file: server.key\n"
"""A web config that names the files of `write_pair`."""
MUTUAL = f"{PAIR}  client_auth_type: RequireAndVerifyClientCert\n  client_ca_file: clients.crt\n"
USERS = f"basic_auth_users:\n  alice: {ALICE}\n"


def write_pair(folder: Path, authority: trustme.CA, *names: str, stem: str = "server") -> None:
    """Write a new certificate for `names` and its key to `stem`.crt and `stem`.key, each replaced in one step."""
    issued = authority.issue_cert(*(names or NAMES))
    _replace(folder / f"{stem}.key", issued.private_key_pem.bytes())
    _replace(folder / f"{stem}.crt", b"".join(pem.bytes() for pem in issued.cert_chain_pems))


def write_authority(file: Path, *authorities: trustme.CA) -> Path:
    """Write the certificates of authorities to a file."""
    _replace(file, b"".join(authority.cert_pem.bytes() for authority in authorities))
    return file


def write(folder: Path, text: str) -> Path:
    """Write a web config, replaced in one step, and return its path."""
    _replace(folder / "web.yml", text.encode())
    return folder / "web.yml"


def _replace(file: Path, content: bytes) -> None:
    new = file.with_name(f"{file.name}.new")
    new.write_bytes(content)
    new.replace(file)
