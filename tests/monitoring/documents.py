"""The dashboards and rules of the project as the tests see them: panels, queries, variables, rules, selectors."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import promql_parser
import yaml

from aes_exporter.metrics import FAMILIES

Json = dict[str, Any]

ROOT = Path(__file__).parent.parent.parent
DASHBOARDS = {path.stem: json.loads(path.read_text()) for path in sorted((ROOT / "grafana/dashboards").glob("*.json"))}
RULE_FILES = sorted((ROOT / "deploy/prometheus/rules").glob("*.yml"))
RULE_TESTS = sorted((ROOT / "deploy/prometheus/tests").glob("*.yml"))
GROUPS: list[Json] = [group for path in RULE_FILES for group in yaml.safe_load(path.read_text())["groups"]]
RULES: list[Json] = [rule for group in GROUPS for rule in group["rules"]]
ALERTS: dict[str, Json] = {rule["alert"]: rule for rule in RULES if "alert" in rule}
RECORDS = {rule["record"] for rule in RULES if "record" in rule}

OTHERS = frozenset(
    {
        "ALERTS",
        "process_cpu_seconds_total",
        "process_resident_memory_bytes",
        "process_start_time_seconds",
        "up",
    }
)
"""Series of Prometheus itself and of prometheus_client."""

KNOWN = {family.name for family in FAMILIES} | RECORDS | OTHERS


@dataclass(frozen=True, kw_only=True)
class Selector:
    """A vector selector in an expression; `window` is the range in seconds, 0 for an instant one."""

    metric: str
    labels: frozenset[str]
    function: str
    window: float


def selectors(expr: str) -> list[Selector]:
    """Return every selector of an expression, with the function around it."""
    found: list[Selector] = []
    ranged: dict[str, tuple[str, float]] = {}

    def visit(node: object) -> bool:
        if isinstance(node, promql_parser.Call):
            for argument in node.args:
                if isinstance(argument, promql_parser.MatrixSelector):
                    key = argument.vector_selector.prettify()
                    ranged[key] = node.func.name, argument.range.total_seconds()
        if isinstance(node, promql_parser.VectorSelector):
            function, window = ranged.get(node.prettify(), ("", 0.0))
            labels = frozenset(matcher.name for matcher in node.matchers.matchers)
            found.append(Selector(metric=str(node.name), labels=labels, function=function, window=window))
        return True

    promql_parser.walk(promql_parser.parse(expr), visit)
    return found


def metrics(expr: str) -> set[str]:
    return {selector.metric for selector in selectors(expr)}


def ingredients(expr: str) -> set[str]:
    """Return the metrics that an expression rests on, those behind recorded series included."""
    found = metrics(expr)
    for rule in RULES:
        if rule.get("record") in found:
            found |= ingredients(rule["expr"])
    return found


def panels(dashboard: Json) -> Iterator[Json]:
    """Yield the panels that show something."""
    return (panel for panel in dashboard["panels"] if panel["type"] != "row")


def expressions(dashboard: Json) -> Iterator[tuple[str, str]]:
    """Yield (panel title, expression) of every query."""
    for panel in panels(dashboard):
        for target in panel["targets"]:
            yield panel["title"], target["expr"]


def variables(dashboard: Json) -> dict[str, Json]:
    """Return the variables that are filled by a query, in their order."""
    return {each["name"]: each for each in dashboard["templating"]["list"] if each["type"] == "query"}


def label_values(query: str) -> tuple[str, str]:
    """Return (selector, label) of a label_values query."""
    match = re.fullmatch(r"label_values\((.+), *(\w+)\)", query)
    assert match, f"not a label_values query: {query}"
    return match[1], match[2]


def promised() -> set[str]:
    """Return the names of all metrics in docs/metrics.md."""
    return set(re.findall(r"^\| `(aes_\w+)`", (ROOT / "docs/metrics.md").read_text(), re.MULTILINE))
