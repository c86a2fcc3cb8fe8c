"""Clean Debian systems for tests, made by mmdebstrap, with the Python that each brings, and the wheels for it."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import time
import tomllib
from dataclasses import dataclass
from pathlib import Path

from tests.tools import require

ROOT = Path(__file__).parent.parent.parent

PACKAGES = "ca-certificates curl dbus procps python3 python3-venv systemd systemd-sysv util-linux"
_WEEK_SECONDS = 7 * 24 * 3600


@dataclass(frozen=True)
class Suite:
    """A Debian release and its Python."""

    name: str
    python: str


BOOKWORM, TRIXIE = SUITES = (Suite("bookworm", "3.11"), Suite("trixie", "3.13"))


def run(*command: str | Path, **options: object) -> str:
    """Run a command and return what it printed; fail with all it said if it fails."""
    finished = subprocess.run(command, capture_output=True, text=True, check=False, **options)  # type: ignore[call-overload]
    assert finished.returncode == 0, f"{command}\n{finished.stdout}\n{finished.stderr}"
    return str(finished.stdout)


def copy_checkout(folder: Path) -> None:
    """Copy what a checkout of the project has of use to those who deploy it."""
    for name in ("aes_exporter", "deploy", "grafana"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE", "Dockerfile"):
        shutil.copy(ROOT / name, folder)


def archive(suite: Suite, cache: Path) -> Path:
    """Return the tar file of a minimal system of that release, made anew when the one in the cache is a week old."""
    mmdebstrap = require("mmdebstrap")
    path = cache / f"{suite.name}-{hashlib.sha256(PACKAGES.encode()).hexdigest()[:8]}.tar"
    if not path.exists() or time.time() - path.stat().st_mtime > _WEEK_SECONDS:
        part = path.with_suffix(f".{os.getpid()}.tar")
        include = f"--include={PACKAGES.replace(' ', ',')}"
        run(mmdebstrap, "--quiet", "--mode=root", "--variant=minbase", include, suite.name, part)
        part.replace(path)
    return path


def unpack(archive: Path, folder: Path) -> Path:
    """Unpack a system below a folder and return its root."""
    folder.mkdir()
    run("tar", "--extract", "--numeric-owner", "--file", archive, "--directory", folder)
    return folder


def wheelhouse(suite: Suite, release: Path, folder: Path) -> Path:
    """Fill a folder with a release of ours, and all that it needs to be built and to run on that Python."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    needed = project["project"]["dependencies"] + project["build-system"]["requires"]
    tags = [f"manylinux{tag}_{os.uname().machine}" for tag in ("2014", "_2_17", "_2_28", "_2_34")]
    platforms = [f"--platform={tag}" for tag in tags]
    command = (sys.executable, "-m", "pip", "download", "--quiet", "--only-binary=:all:", "--dest", folder)
    run(*command, "--implementation=cp", f"--python-version={suite.python}", *platforms, *needed, "wheel")
    run("cp", *release.iterdir(), folder)
    return folder
