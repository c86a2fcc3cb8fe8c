"""`python -m tests.refresh` rewrites every file made from the code: the goldens, docs/metrics.md, the service settings.

The tests compare the same files with the same functions, so a change of them is seen in review.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping
from pathlib import Path
from unittest.mock import patch

from prometheus_client import generate_latest

from aes_exporter import exposition, metrics, report
from aes_exporter.options import OPTIONS
from tests.snapshots import HOST, RUN, RUN_PARTLY_FAILED, SNAPSHOT

_ROOT = Path(__file__).parent.parent
GOLDEN = _ROOT / "tests" / "golden"


def service_settings() -> bytes:
    """Return the environment file of the systemd units: every option of theirs, commented out."""
    head = (
        "# Settings of aes-exporter.service and aes-exporter-textfile.service. Uncomment what you change, then\n"
        "#   systemctl restart aes-exporter\n"
        "# Values are not quoted; lists are comma separated. `aes-exporter --config.check` checks flags alike.\n"
    )
    options = (option for option in OPTIONS if "serve" in option.commands and option.metavar)
    texts = (f"\n# {option.help}\n#{option.variable}={option.default or ''}\n" for option in options)
    return (head + "".join(texts)).encode()


GENERATED: Mapping[Path, Callable[[], bytes]] = {
    _ROOT / "docs" / "metrics.md": lambda: metrics.document().encode(),
    _ROOT / "deploy" / "systemd" / "aes-exporter.default": service_settings,
    GOLDEN / "metrics.prom": lambda: generate_latest(exposition.SnapshotCollector(lambda: SNAPSHOT)),
    GOLDEN / "bench.prom": lambda: exposition.textfile(HOST, RUN),
    GOLDEN / "bench.txt": lambda: report.table(HOST, RUN).encode(),
    GOLDEN / "bench.json": lambda: report.json_text(HOST, RUN).encode(),
    GOLDEN / "bench.csv": lambda: report.csv_text(HOST, RUN).encode(),
    GOLDEN / "bench-partly-failed.txt": lambda: report.table(HOST, RUN_PARTLY_FAILED).encode(),
    GOLDEN / "bench-partly-failed.json": lambda: report.json_text(HOST, RUN_PARTLY_FAILED).encode(),
}
"""Each generated file and the function that returns its content."""


def generate(path: Path) -> bytes:
    """Return what the file should hold, the versions in it fixed so that neither a release nor a Python changes it."""
    with (
        patch.object(metrics, "__version__", "1.2.3"),
        patch.object(report, "__version__", "1.2.3"),
        patch.object(platform, "python_version", lambda: "3.11.0"),
    ):
        return GENERATED[path]()


if __name__ == "__main__":
    for generated in GENERATED:
        generated.write_bytes(generate(generated))
