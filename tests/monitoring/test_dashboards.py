"""The dashboards without any server: generated, canonical, and after the rules of grafana/dashboard-linter and ours."""

from __future__ import annotations

import itertools
import re
from typing import Any

import promql_parser
import pytest
import yaml

from grafana.generate import DASHBOARDS as BUILDERS
from grafana.generate import FOLDER, canonical
from tests.monitoring.documents import DASHBOARDS, KNOWN, ROOT, expressions, label_values, panels, selectors, variables

Json = dict[str, Any]

EXCLUSIONS = {
    ("template-instance", "aes-host"): "one host at a time: large numbers of many hosts say nothing",
    ("target-rate-interval", "*"): "counters move once a run, five minutes apart; $__rate_interval would show spikes",
}
"""Rules of dashboard-linter that we break, with the reason: (rule, dashboard) -> reason."""

every_dashboard = pytest.mark.parametrize(("name", "dashboard"), DASHBOARDS.items(), ids=DASHBOARDS.keys())


def queries() -> list[Any]:
    return [
        pytest.param(name, title, expr, id=f"{name}: {title} {number}")
        for name, dashboard in DASHBOARDS.items()
        for number, (title, expr) in enumerate(expressions(dashboard))
    ]


every_query = pytest.mark.parametrize(("name", "title", "expr"), queries())


@pytest.mark.parametrize("file", BUILDERS)
def test_the_committed_json_is_what_the_generator_writes(file: str) -> None:
    """Nobody edited a dashboard by hand, and nobody forgot to run the generator."""
    assert (FOLDER / file).read_text() == canonical(BUILDERS[file]())


def test_every_dashboard_has_a_generator() -> None:
    """No file lies in the folder that the generator does not know."""
    assert {path.name for path in FOLDER.iterdir()} == set(BUILDERS)


def test_uids_are_fixed_and_unique() -> None:
    """Links and bookmarks rest on uids, so they are these two for ever."""
    assert {dashboard["uid"] for dashboard in DASHBOARDS.values()} == {"aes-exporter-host", "aes-exporter-fleet"}


@every_dashboard
def test_it_can_be_imported_and_provisioned(name: str, dashboard: Json) -> None:
    """No id, no inputs, the current schema, not editable, tagged, with a title and a description."""
    assert "id" not in dashboard
    assert "__inputs" not in dashboard
    assert (dashboard["schemaVersion"], dashboard["editable"], dashboard["tags"]) == (42, False, ["aes-exporter"])
    assert dashboard["title"]
    assert dashboard["description"]


@every_dashboard
def test_the_data_source_is_a_variable(name: str, dashboard: Json) -> None:
    """There is one data source variable, and every panel, query and variable uses it."""
    sources = [each for each in dashboard["templating"]["list"] if each["type"] == "datasource"]

    def used(node: Any) -> Any:
        if isinstance(node, dict):
            if "datasource" in node:
                yield node["datasource"]
            for value in node.values():
                yield from used(value)
        elif isinstance(node, list):
            for value in node:
                yield from used(value)

    assert [(each["name"], each["label"], each["query"]) for each in sources] == [
        ("datasource", "Data Source", "prometheus")
    ]
    assert all(each == {"type": "prometheus", "uid": "${datasource}"} for each in used(dashboard))


@every_dashboard
def test_variables_are_chained_and_read_again(name: str, dashboard: Json) -> None:
    """Job, instance, engine, algorithm and operation: each narrowed by those before, read again with the time range."""
    chain = variables(dashboard)

    assert list(chain) == ["job", "instance", "engine", "algorithm", "operation"]
    for number, (variable, definition) in enumerate(chain.items()):
        selector, label = label_values(definition["query"]["query"])
        assert label == variable
        assert set(re.findall(r"\$(\w+)", selector)) == set(list(chain)[:number])
        assert definition["refresh"] == 2
        assert definition["label"]
        promql_parser.parse(selector)


@every_dashboard
def test_job_and_instance_take_many_values(name: str, dashboard: Json) -> None:
    """They are multiple choice with All as `.+`, unless excluded with a reason."""
    for variable in ("job", "instance"):
        if (f"template-{variable}", name) not in EXCLUSIONS:
            definition = variables(dashboard)[variable]
            assert (definition["multi"], definition["includeAll"], definition["allValue"]) == (True, True, ".+")


@every_dashboard
def test_dashboards_link_to_each_other_and_keep_variables_and_time(name: str, dashboard: Json) -> None:
    """The link at the top leads to every dashboard of the tag; links in cells lead to a uid that exists."""
    link = dashboard["links"][0]
    targets = re.findall(r"/d/([\w-]+)", canonical(dashboard))

    assert (link["type"], link["includeVars"], link["keepTime"], link["tags"]) == (
        "dashboards",
        True,
        True,
        ["aes-exporter"],
    )
    assert set(targets) <= {each["uid"] for each in DASHBOARDS.values()}
    assert bool(targets) == (name == "aes-fleet")


@every_dashboard
def test_cell_links_keep_time_and_data_source(name: str, dashboard: Json) -> None:
    """A click on a host opens it at the same time range and data source."""
    for url in re.findall(r'"url": "(/d/[^"]+)"', canonical(dashboard)):
        assert "${__url_time_range}" in url
        assert "${datasource:queryparam}" in url
        assert "var-instance=${__value.raw}" in url


@every_dashboard
def test_panels_say_how_to_read_them(name: str, dashboard: Json) -> None:
    """Every panel has a title, a description of at least a sentence, a query, and no title is used twice in a row."""
    for panel in panels(dashboard):
        assert panel["title"]
        assert len(panel["description"]) > 60, panel["title"]
        assert panel["description"].endswith((".", "peers")), panel["title"]
        assert panel["targets"], panel["title"]


@every_dashboard
def test_panels_do_not_overlap(name: str, dashboard: Json) -> None:
    """Panels have their own ids and places within the 24 columns of the grid, without gaps in the first row."""
    boxes = [panel["gridPos"] for panel in dashboard["panels"]]

    assert len({panel["id"] for panel in dashboard["panels"]}) == len(boxes)
    assert all(box["x"] >= 0 and box["x"] + box["w"] <= 24 and box["h"] > 0 for box in boxes)
    assert sum(box["w"] for box in boxes if box["y"] == 0) == 24
    for a, b in itertools.combinations(boxes, 2):
        apart = a["x"] + a["w"] <= b["x"] or b["x"] + b["w"] <= a["x"]
        assert apart or a["y"] + a["h"] <= b["y"] or b["y"] + b["h"] <= a["y"], (a, b)


@every_query
def test_queries_name_metrics_that_exist(name: str, title: str, expr: str) -> None:
    """A query names only metrics of the exporter, recorded series, and those of Prometheus itself."""
    assert {selector.metric for selector in selectors(expr)} <= KNOWN


@every_query
def test_queries_select_job_and_instance(name: str, title: str, expr: str) -> None:
    """Every selector has both; a recorded series has those that its level has: see aes-recording.yml."""
    for selector in selectors(expr):
        level = selector.metric.split(":")[0] if ":" in selector.metric else "instance"
        wanted = {"job", "instance"} if level.startswith("instance") else {"job"}
        assert wanted <= selector.labels, selector


@every_query
def test_counters_stand_inside_rates(name: str, title: str, expr: str) -> None:
    """A counter is never shown raw, and a rate is taken over an hour: see EXCLUSIONS."""
    for selector in selectors(expr):
        assert selector.metric.endswith("_total") == (selector.function in {"rate", "irate", "increase"}), selector
        if selector.metric.endswith("_total"):
            assert selector.window == 3600


def test_the_fleet_dashboard_reads_recorded_series() -> None:
    """Its queries read recorded series, or a raw one that has a single series a host."""
    single = {"up", "aes_exporter_build_info"}

    for title, expr in expressions(DASHBOARDS["aes-fleet"]):
        raw = {selector.metric for selector in selectors(expr) if ":" not in selector.metric}
        assert raw <= single, title


def test_the_host_dashboard_needs_no_rules() -> None:
    """Whoever has one small box and no rules sees everything of it; only the list of alerts is empty."""
    for title, expr in expressions(DASHBOARDS["aes-host"]):
        assert not [selector for selector in selectors(expr) if ":" in selector.metric], title


def test_provisioning_files_say_the_same_as_the_dashboards() -> None:
    """The data source is a Prometheus by default, and the provider loads files that nobody edits in the browser."""
    folder = ROOT / "grafana/provisioning"
    source = yaml.safe_load((folder / "datasources/prometheus.yml").read_text())["datasources"][0]
    provider = yaml.safe_load((folder / "dashboards/aes.yml").read_text())["providers"][0]

    assert (source["type"], source["isDefault"], source["url"]) == ("prometheus", True, "${PROMETHEUS_URL}")
    assert (provider["type"], provider["allowUiUpdates"]) == ("file", False)
