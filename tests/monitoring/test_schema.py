"""The dashboards against Grafana's own code: the SDK's classes, the TypeScript types, the unit formats."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.monitoring.documents import DASHBOARDS, panels
from tests.tools import require

Json = dict[str, Any]
HERE = Path(__file__).parent

every_dashboard = pytest.mark.parametrize("name", DASHBOARDS)


def package(name: str) -> None:
    """Skip, or fail under AES_EXPORTER_REQUIRE_TOOLS, without an npm package: see tests/monitoring/package.json."""
    if not (HERE / "node_modules" / name).is_dir():
        require(f"npm package {name} (npm ci in tests/monitoring)")


def units(node: Any) -> set[str]:
    """Return every unit named anywhere in a dashboard, in fields and in overrides."""
    if isinstance(node, list):
        return set().union(*map(units, node))
    if not isinstance(node, dict):
        return set()
    own = {node["unit"]} if "unit" in node else set()
    if node.get("id") == "unit":
        own.add(node["value"])
    return own.union(*map(units, node.values()))


def lost(before: Any, after: Any, path: str = "") -> list[str]:
    """Return the paths of what is in one JSON value and not, or otherwise, in another; empty values may get lost."""
    if isinstance(before, dict) and isinstance(after, dict):
        return [found for key, value in before.items() for found in lost(value, after.get(key), f"{path}.{key}")]
    if isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        return [
            found for at, pair in enumerate(zip(before, after, strict=True)) for found in lost(*pair, f"{path}[{at}]")
        ]
    return [] if before == after or (not before and not after) else [f"{path}: {before!r} -> {after!r}"]


@every_dashboard
def test_the_sdk_reads_and_writes_it_without_loss(name: str) -> None:
    """Grafana's own classes know every key: one that they do not know would not come back."""
    from grafana_foundation_sdk.cog.encoder import JSONEncoder
    from grafana_foundation_sdk.cog.plugins import register_default_plugins
    from grafana_foundation_sdk.models.dashboard import Dashboard

    register_default_plugins()
    read = Dashboard.from_json(DASHBOARDS[name])
    written = json.loads(JSONEncoder(sort_keys=True).encode(read))

    assert lost(DASHBOARDS[name], written) == []


@every_dashboard
def test_it_satisfies_grafanas_types(name: str, tmp_path: Path) -> None:
    """The TypeScript compiler accepts it as a Dashboard, and every panel's options as those of its type."""
    package("@grafana/schema")
    package("typescript")
    node = require("node")
    source = HERE / "node_modules" / f".{name}.ts"
    source.write_text(typescript(DASHBOARDS[name]))
    command = (node, "typescript/bin/tsc", "--noEmit", "--strict", "--skipLibCheck", "--module", "esnext")
    more = ("--moduleResolution", "bundler", "--target", "es2022", source.name)
    try:
        checked = subprocess.run((*command, *more), cwd=source.parent, capture_output=True, text=True, check=False)
    finally:
        source.unlink()

    assert checked.stdout == ""
    assert checked.returncode == 0


KINDS = {
    "barchart": ("barchart", "BarChartPanelCfg"),
    "bargauge": ("bargauge", "BarGaugePanelCfg"),
    "stat": ("stat", "StatPanelCfg"),
    "state-timeline": ("statetimeline", "StateTimelinePanelCfg"),
    "table": ("table", "TablePanelCfg"),
    "timeseries": ("timeseries", "TimeSeriesPanelCfg"),
}
PLAIN = """
type Plain<T> = unknown extends T ? T : T extends string ? `${T}` : T extends number | boolean | null | undefined ? T
  : T extends (infer Each)[] ? Plain<Each>[] : { [Key in keyof T]?: Plain<T[Key]> };
"""  # what JSON can write of a type: an enum as its strings, and every key as an option


def typescript(dashboard: Json) -> str:
    """Return a program that is well typed if the dashboard and the options of its panels are."""
    lines = ["import type { Dashboard } from '@grafana/schema';", PLAIN]
    for folder, module in KINDS.values():
        path = f"@grafana/schema/dist/esm/raw/composable/{folder}/panelcfg/x/{module}_types.gen"
        lines.append(f"import type * as {folder} from '{path}';")
    lines.append(f"export const dashboard = {json.dumps(dashboard)} satisfies Plain<Dashboard>;")
    for number, panel in enumerate(panels(dashboard)):
        kind = KINDS[panel["type"]][0]
        options, custom = panel["options"], panel["fieldConfig"]["defaults"].get("custom")
        lines.append(f"export const options{number} = {json.dumps(options)} satisfies Plain<{kind}.Options>;")
        if custom:
            lines.append(f"export const custom{number} = {json.dumps(custom)} satisfies Plain<{kind}.FieldConfig>;")
    return "\n".join(lines) + "\n"


def test_units_are_grafanas() -> None:
    """Every unit is one of Grafana's, or a suffix written as such; another would be printed behind the number."""
    package("@grafana/data")
    node = require("node")
    program = (
        "require('global-jsdom/register');"
        "const formats = require('@grafana/data').getValueFormats();"
        "console.log(JSON.stringify(formats.flatMap(each => each.submenu.map(format => format.value))))"
    )
    output = subprocess.run((node, "-e", program), cwd=HERE, capture_output=True, text=True, check=True).stdout
    known = set(json.loads(output))
    used = {unit for unit in units(DASHBOARDS) if not unit.startswith("suffix:")}

    assert {"Bps", "percentunit"} <= known
    assert used <= known
