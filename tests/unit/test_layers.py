"""The floor plan as a rule: who may import whom, and which file may import which outside library."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import PACKAGE

# Each room may import the rooms above it in this list, and no other. `worker` is the other program: see below.
FLOOR_PLAN = (
    "vocabulary",
    "model",
    "capabilities",
    "paths",
    "worker",
    "notation",
    "options",
    "config",
    "usage",
    "offspring",
    "host",
    "meter",
    "workers",
    "silicon",
    "verdict",
    "implementation",
    "rounds",
    "state",
    "explanation",
    "cost",
    "logs",
    "journal",
    "schedule",
    "metrics",
    "exposition",
    "chart",
    "page",
    "report",
    "web",
    "server",
    "notify",
    "cli",
    "__main__",
)
IN_THE_WORKER = {"vocabulary", "worker"}  # what a worker may import of the package

LIBRARIES = {
    "apscheduler": {"schedule"},
    "bcrypt": {"web.passwords"},
    "click": {"usage"},
    "cpuinfo": set(),  # only in the text of the child that asks it
    "cryptography": {"worker.engines.pyca"},
    "h11": {"server.connections"},
    "jinja2": {"page"},
    "logfmter": {"logs"},
    "prometheus_client": {"exposition", "server.application"},
    "pythonjsonlogger": {"logs"},
    "rich": {"report"},
    "setuptools": {"worker.build_hotloop"},
    "starlette": {"server.application", "server.connections", "server.serving"},
    "uvicorn": {"server.connections", "server.serving"},
    "yaml": {"web.document"},
}

MODULES = {
    ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__"): path
    for path in PACKAGE.rglob("*.py")
    if path != PACKAGE / "__init__.py"
}


def imports(path: Path) -> Iterator[str]:
    """Yield the dotted name of everything a file imports, wherever in it."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports hide the direction"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def room(name: str) -> str:
    return name.removeprefix("aes_exporter.").split(".")[0]


def test_every_module_has_its_place() -> None:
    """No file of the package is missing in the floor plan, and no place in it is empty."""
    assert {room(name) for name in MODULES} == set(FLOOR_PLAN)


@pytest.mark.parametrize(("name", "path"), MODULES.items(), ids=MODULES.keys())
def test_imports_point_downwards(name: str, path: Path) -> None:
    """A room imports only rooms above it in the plan; nothing imports upwards or in a circle."""
    used = {room(each) for each in imports(path) if each.startswith("aes_exporter.")} - {"__version__", room(name)}
    allowed = set(FLOOR_PLAN[: FLOOR_PLAN.index(room(name))])

    assert used <= (IN_THE_WORKER if room(name) == "worker" else allowed)


@pytest.mark.parametrize(("name", "path"), MODULES.items(), ids=MODULES.keys())
def test_outside_libraries_have_one_door(name: str, path: Path) -> None:
    """Each outside library is imported only by the file that is its door."""
    outside = {each.split(".")[0] for each in imports(path)} - sys.stdlib_module_names - {"aes_exporter"}

    assert {library for library in outside if name not in LIBRARIES.get(library, set())} == set()


def test_no_module_hides_one_of_the_standard_library() -> None:
    """No file is named after a standard module, so that no import can mean two things."""
    assert {room(name) for name in MODULES} & sys.stdlib_module_names - {"__main__"} == set()


def loaded_by(statement: str) -> set[str]:
    """Return the top-level modules that a fresh interpreter has loaded after a statement."""
    code = f"import sys, json; sys.path.insert(0, sys.argv[1]); {statement}; print(json.dumps(list(sys.modules)))"
    command = (sys.executable, "-I", "-c", code, str(PACKAGE.parent))
    output = subprocess.run(command, capture_output=True, check=True, timeout=30).stdout
    return {name.split(".")[0] for name in json.loads(output)}


def test_the_daemon_never_imports_the_cryptography_package() -> None:
    """Importing all of the daemon loads no AES library that a mask should have reached first."""
    assert "cryptography" not in loaded_by("import aes_exporter.cli, aes_exporter.server, aes_exporter.metrics")


def test_the_daemon_does_not_load_what_only_bench_needs() -> None:
    """Progress bars and tables cost memory, so serving does not import them."""
    assert "rich" not in loaded_by("import aes_exporter.cli, aes_exporter.server, aes_exporter.metrics")


def test_the_template_engine_waits_for_a_visitor() -> None:
    """What only the landing page needs is imported with the first page, since most daemons never show one."""
    assert "jinja2" not in loaded_by("import aes_exporter.cli, aes_exporter.server, aes_exporter.page")


def test_only_a_web_config_costs_its_libraries() -> None:
    """Without a web config neither YAML nor bcrypt is loaded; with one, bcrypt waits for the first password."""
    assert not loaded_by("import aes_exporter.cli, aes_exporter.server, aes_exporter.metrics") & {"yaml", "bcrypt"}
    assert "bcrypt" not in loaded_by("import aes_exporter.web.current, aes_exporter.web.guard")


def test_a_worker_loads_the_standard_library_and_its_engine_only() -> None:
    """A libcrypto worker imports nothing from outside, and no hashlib, which would load a libcrypto of its own."""
    loaded = loaded_by("import aes_exporter.worker.__main__, aes_exporter.worker.engines.libcrypto")
    bare = loaded_by("pass")

    assert loaded - bare - sys.stdlib_module_names == {"aes_exporter"}
    assert not loaded & {"hashlib", "_hashlib", "ssl"}
