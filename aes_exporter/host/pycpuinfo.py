"""What py-cpuinfo knows of a CPU that /proc/cpuinfo does not name: asked once, in a child process with a deadline."""

from __future__ import annotations

import importlib.util
import json
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

from aes_exporter.host import child
from aes_exporter.host.files import text
from aes_exporter.host.processor import as_label, foreign
from aes_exporter.model import Host

_log = logging.getLogger(__name__)

# Appended, not put first: nothing beside py-cpuinfo may stand in for a module of the standard library.
_ASK = "import sys; sys.path.append(sys.argv[1]); import cpuinfo, json; print(json.dumps(cpuinfo.get_cpu_info()))"


async def complete(host: Host, *, root: Path = Path("/"), ask: Callable[[], Awaitable[object]] | None = None) -> Host:
    """Return the host with the identity that is still missing filled in by py-cpuinfo, which is asked at most once.

    `ask` fetches py-cpuinfo's dictionary. Whatever goes wrong is logged at level DEBUG and leaves the host unchanged.
    The flags stay: py-cpuinfo lists what it found, and what it does not list may be there all the same.
    """
    if host.brand and host.vendor:
        return host
    if foreign(text(root / "proc/cpuinfo"), host.architecture):
        return host  # py-cpuinfo would believe that text
    try:
        return _filled(host, await (ask or _ask_py_cpuinfo)())
    except (OSError, ValueError, RecursionError) as error:
        _log.debug("py-cpuinfo gave no answer", extra={"error": repr(error)})
        return host


def _filled(host: Host, facts: object) -> Host:
    if not isinstance(facts, dict):
        raise ValueError("the reply is not an object")

    def either(known: str, key: str) -> str:
        fact = facts.get(key)
        return known or (as_label(str(fact)) if isinstance(fact, str | int) else "")

    return replace(
        host,
        brand=either(host.brand, "brand_raw"),
        vendor=either(host.vendor, "vendor_id_raw"),
        family=either(host.family, "family"),
        model=either(host.model, "model"),
        stepping=either(host.stepping, "stepping"),
    )


async def _ask_py_cpuinfo() -> object:
    """Run py-cpuinfo in a child: it takes a second, starts programs, and runs machine code it wrote itself."""
    spec = importlib.util.find_spec("cpuinfo")
    if spec is None or spec.origin is None:
        raise FileNotFoundError("py-cpuinfo is not installed")
    code, output = await child.run(_ASK, str(Path(spec.origin).parent.parent))
    if code != 0:
        raise ValueError(f"exit code {code}")
    return json.loads(output)
