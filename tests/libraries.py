"""Libcryptos beside the installed one, each fetched once into the user's cache; builds for x86-64 Linux.

Where one cannot be had, the test that asks for it is skipped with the reason, or fails there if
AES_EXPORTER_REQUIRE_TOOLS is 1, as in tools.py.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

from tests.tools import require, unavailable

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "aes-exporter-tests"
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
RELEASE = "trixie"
SOURCE = f"deb [signed-by={KEYRING}] http://deb.debian.org/debian {RELEASE} main\n"
PACKAGES = ("android-libboringssl", "openssl-provider-fips")
_SECONDS = 50  # less than a test may take


def openssl_1_1() -> Path:
    """Return the path of a libcrypto of OpenSSL 1.1.1."""
    return _from_wheel(
        "psycopg2-binary==2.9.5",
        "bcda1c84a1c533c528356da5490d464a139b6e84eb77cc0b432e38c5c6dd7882",
        "psycopg2_binary.libs/libcrypto-*.so.1.1",
    )


def openssl_3_5() -> Path:
    """Return the path of a libcrypto of OpenSSL 3.5, newer than the one of many distributions."""
    return _from_wheel(
        "psycopg2-binary==2.9.12",
        "e4e184b1fb6072bf05388aa41c697e1b2d01b3473f107e7ec44f186a32cfd0b8",
        "psycopg2_binary.libs/libcrypto-*.so.3",
    )


def boringssl() -> Path:
    """Return the path of a libcrypto of BoringSSL, as Android's tools use it."""
    return _from_debian("usr/lib/*/android/libcrypto.so.*")


def fips_module() -> Path:
    """Return the path of OpenSSL's FIPS provider, which any libcrypto of OpenSSL 3 can load."""
    return _from_debian("usr/lib/*/ossl-modules/fips.so")


def arm64_root() -> Path:
    """Return a folder with Debian's Python and libcrypto for aarch64, as emulators of single programs want it."""
    mmdebstrap = require("mmdebstrap")

    def fill(folder: Path) -> None:
        options = ("--mode=root", "--variant=extract", "--arch=arm64", "--include=python3,libssl3,libc6")
        _run(mmdebstrap, *options, "bookworm", str(folder / "root"), seconds=240)

    return _fetched("debian-bookworm-arm64", fill, "root")


def _from_wheel(requirement: str, sha256: str, pattern: str) -> Path:
    def fill(folder: Path) -> None:
        (folder / "pinned.txt").write_text(f"{requirement} --hash=sha256:{sha256}\n")
        platform = ("--python-version=3.11", "--abi=cp311", "--platform=manylinux2014_x86_64", "--only-binary=:all:")
        options = ("--quiet", "--no-deps", "--require-hashes", f"--dest={folder}")
        _run(sys.executable, "-m", "pip", "download", *platform, *options, "-r", str(folder / "pinned.txt"))
        (wheel,) = folder.glob("*.whl")
        zipfile.ZipFile(wheel).extractall(folder)

    return _fetched(requirement, fill, pattern)


def _from_debian(pattern: str) -> Path:
    """Fetch packages of a fixed Debian release, by an apt that leaves the system's own lists and cache alone."""
    apt, dpkg = require("apt-get"), require("dpkg")
    if not KEYRING.exists():
        unavailable(f"the keys of Debian's archive are not at {KEYRING}")

    def fill(folder: Path) -> None:
        (folder / "sources.list").write_text(SOURCE)
        (folder / "lists" / "partial").mkdir(parents=True)
        settings = {
            "Dir::Etc::SourceList": folder / "sources.list",
            "Dir::Etc::SourceParts": os.devnull,
            "Dir::State::Lists": folder / "lists",
            "Dir::Cache": folder,
            "APT::Architecture": "amd64",
            "APT::Sandbox::User": "",
        }
        options = [f"--option={name}={value}" for name, value in settings.items()]
        _run(apt, *options, "update")
        _run(apt, *options, "download", *PACKAGES, folder=folder)
        for archive in folder.glob("*.deb"):
            _run(dpkg, "--extract", str(archive), str(folder))

    return _fetched(f"debian-{RELEASE}", fill, pattern)


def _fetched(name: str, fill: Callable[[Path], None], pattern: str) -> Path:
    """Return the one file that matches below the cached folder `name`, which `fill` makes whole or not at all."""
    folder = CACHE / name
    if not folder.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=CACHE) as scratch:
            fresh = Path(scratch) / "fresh"
            fresh.mkdir()
            fill(fresh)
            fresh.rename(folder)
    (found,) = folder.glob(pattern)
    return found


def _run(*command: str, folder: Path | None = None, seconds: float = _SECONDS) -> None:
    try:
        subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True, timeout=seconds)
    except subprocess.CalledProcessError as error:
        unavailable(f"{Path(command[0]).name} failed: {error.stderr.strip()[-200:]}")
    except subprocess.TimeoutExpired as error:
        unavailable(str(error))
