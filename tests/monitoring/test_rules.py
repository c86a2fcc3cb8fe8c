"""The rules without a server: names, annotations, runbook, and promtool's unit tests of every alert."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml

from tests.monitoring.documents import (
    ALERTS,
    DASHBOARDS,
    GROUPS,
    KNOWN,
    RECORDS,
    ROOT,
    RULE_FILES,
    RULE_TESTS,
    RULES,
    expressions,
    ingredients,
    metrics,
    promised,
)
from tests.tools import require

Json = dict[str, Any]

LEVELS = {
    "global": set(),
    "operation": {"operation"},
    "kind": {"brand", "library", "engine", "algorithm", "operation"},
    "job": {"job"},
    "job_problem": {"job", "problem"},
    "job_state": {"job", "engine", "state"},
    "job_brand": {"job", "brand"},
    "job_brand_state": {"job", "engine", "brand", "state"},
    "job_library": {"job", "engine", "library"},
    "instance": {"job", "instance"},
    "instance_path": {"job", "instance", "path"},
    "instance_kind": {"job", "instance", "brand", "library"},
}
"""What every series of a level has at least."""

UNUSED = {
    "aes_exporter_web_config_last_reload_success_timestamp_seconds": "says since when what the alert rests on is so",
}
"""Promised metrics that no dashboard and no rule uses, with the reason."""

every_alert = pytest.mark.parametrize(("name", "alert"), ALERTS.items(), ids=ALERTS.keys())


def promtool(*arguments: str | Path) -> str:
    """Return what promtool says; its exit code must be 0."""
    done = subprocess.run((require("promtool"), *arguments), capture_output=True, text=True, timeout=50, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def headings() -> set[str]:
    """Return the anchors of the runbook's headings."""
    text = (ROOT / "docs/runbook.md").read_text()
    return {
        re.sub(r"[^\w-]", "", title.lower().replace(" ", "-")) for title in re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    }


def test_promtool_finds_no_fault() -> None:
    """Rules and the example configuration are valid, and no rule is there twice."""
    promtool("check", "rules", "--lint-fatal", *RULE_FILES)
    promtool("check", "config", ROOT / "deploy/prometheus/prometheus.yml")


@pytest.mark.parametrize("path", RULE_TESTS, ids=[path.stem for path in RULE_TESTS])
def test_promtool_runs_the_unit_tests(path: Path) -> None:
    """Alerts are silent, fire with exactly these labels and words, and resolve, as written in the tests."""
    promtool("test", "rules", path)


@every_alert
def test_every_alert_is_tested_silent_firing_and_resolved(name: str, alert: Json) -> None:
    """A unit test asks at three moments: before, while, and after."""
    cases = [
        case
        for path in RULE_TESTS
        for test in yaml.safe_load(path.read_text())["tests"]
        for case in test["alert_rule_test"]
        if case["alertname"] == name
    ]

    assert [bool(case["exp_alerts"]) for case in cases] == [False, True, False]


@every_alert
def test_every_alert_says_what_to_do(name: str, alert: Json) -> None:
    """Severity, a summary of one sentence, a description that names the host, and a heading in the runbook."""
    notes = alert["annotations"]

    assert name.startswith("Aes")
    assert alert["labels"]["severity"] in {"critical", "warning", "info"}
    assert re.fullmatch(r"[A-Z][^.]*\.", notes["summary"])
    assert "{{ $labels.instance }}" in notes["description"] or name == "AesExporterAbsent"
    assert notes["runbook_url"] == f"docs/runbook.md#{name.lower()}"
    assert name.lower() in headings()


@pytest.mark.parametrize("rule", RULES, ids=[rule.get("alert") or rule["record"] for rule in RULES])
def test_rules_name_metrics_that_exist(rule: Json) -> None:
    """An expression names only metrics of the exporter, recorded series, and those of Prometheus itself."""
    assert metrics(rule["expr"]) <= KNOWN


@pytest.mark.parametrize("record", sorted(RECORDS))
def test_recorded_series_are_named_by_level_metric_and_operation(record: str) -> None:
    """A name has three parts, its level is one of those in the head of aes-recording.yml."""
    level, metric, operation = record.split(":")

    assert level in LEVELS
    assert metric.startswith("aes_")
    assert re.fullmatch(r"[a-z0-9]+", operation)


def test_alerts_do_not_rest_on_counters() -> None:
    """A counter that first appears at 1 has not increased, so alerts rest on states, path_up and timestamps."""
    counters = {metric for alert in ALERTS.values() for metric in ingredients(alert["expr"]) if "_total" in metric}

    assert counters == set()


def test_no_number_is_written_twice() -> None:
    """A threshold is written once, in aes-thresholds.yml: alerts compare ratios with it, never with a literal."""
    literals = {
        (name, float(node.val))
        for name, alert in ALERTS.items()
        for node in nodes(alert["expr"])
        if isinstance(node, promql_parser.NumberLiteral)
    }

    # States and booleans are no thresholds: 0, 1, and the code of `accelerated`.
    assert {each for each in literals if each[1] not in {0, 1}} == {("AesHardwareLost", 6)}


def nodes(expr: str) -> list[object]:
    """Return all nodes of an expression's syntax tree."""
    found: list[object] = []

    def visit(node: object) -> bool:
        found.append(node)
        return True

    promql_parser.walk(promql_parser.parse(expr), visit)
    return found


def test_groups_have_their_own_names() -> None:
    """A group is named once, and begins with aes, so that it clashes with nobody's."""
    names = [group["name"] for group in GROUPS]

    assert len(names) == len(set(names))
    assert all(name.startswith("aes-") for name in names)


def test_every_promised_metric_is_used() -> None:
    """A metric that no dashboard, no rule and no list of queries uses has a written reason, or should not be there."""
    used = {metric for rule in RULES for metric in metrics(rule["expr"])}
    used |= {
        metric for dashboard in DASHBOARDS.values() for _, expr in expressions(dashboard) for metric in metrics(expr)
    }
    used |= set(re.findall(r"aes_\w+", (ROOT / "README.md").read_text()))

    assert promised() - used == set(UNUSED)
